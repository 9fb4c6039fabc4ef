//! A secret as a server stores it, in any of the three forms of `pg_authid.rolpassword`, and the check
//! of a password in clear against it. Checks by challenge are in `md5` and `scram`.

use crate::md5::Md5Hash;
use crate::scram::{Derivation, KeyParameters, Verifier};
use crate::{AuthError, Password};

/// What is known about a user's password.
#[derive(Clone, Debug)]
pub enum StoredSecret {
    /// The password itself.
    Plain(Password),
    /// `md5` and 32 hexadecimal digits.
    Md5(Md5Hash),
    /// `SCRAM-SHA-256$...`.
    Scram(Verifier),
}

impl StoredSecret {
    /// Sorts a text by PostgreSQL's rule (`get_password_type`, src/backend/libpq/crypt.c): what is
    /// exactly an md5 hash or a valid verifier is one, everything else is a password.
    #[must_use]
    pub fn parse(text: &[u8]) -> Self {
        if let Some(hash) = Md5Hash::parse(text) {
            return Self::Md5(hash);
        }
        match Verifier::parse(text) {
            Ok(verifier) => Self::Scram(verifier),
            Err(_) => Self::Plain(Password::from(text)),
        }
    }

    /// Checks a password that came in clear, in constant time. An empty password is always wrong, as
    /// in PostgreSQL. Blocks for a derivation when a verifier is stored: use
    /// [`derivation`](Self::derivation) and [`Verifier::accepts`] where that does harm.
    ///
    /// # Errors
    /// [`AuthError::WrongPassword`]; [`AuthError::Unsupported`] for a verifier with more than
    /// [`crate::scram::MAX_ITERATIONS`].
    pub fn verify_plain(&self, user: &[u8], password: &Password) -> Result<(), AuthError> {
        let right = match self {
            Self::Plain(stored) => bool::from(stored.ct_eq(password)),
            Self::Md5(stored) => stored.ct_eq(&Md5Hash::from_password(user, password)),
            Self::Scram(stored) => {
                let derivation = Derivation::new(password.clone(), stored.parameters().clone())?;
                stored.accepts(&derivation.run())
            }
        };
        if right && !password.is_empty() { Ok(()) } else { Err(AuthError::WrongPassword) }
    }

    /// The hash for md5 authentication: `None` when only a verifier is stored.
    #[must_use]
    pub fn md5_hash(&self, user: &[u8]) -> Option<Md5Hash> {
        match self {
            Self::Plain(password) if password.is_empty() => None,
            Self::Plain(password) => Some(Md5Hash::from_password(user, password)),
            Self::Md5(hash) => Some(hash.clone()),
            Self::Scram(_) => None,
        }
    }

    /// The derivation that gives the keys of a plain password: those that `parameters` ask for.
    /// `None` for hashes, from which no keys can be made, and for an empty password.
    ///
    /// # Errors
    /// [`AuthError::Unsupported`] for more than [`crate::scram::MAX_ITERATIONS`].
    pub fn derivation(&self, parameters: &KeyParameters) -> Result<Option<Derivation>, AuthError> {
        match self {
            Self::Plain(password) if !password.is_empty() => {
                Derivation::new(password.clone(), parameters.clone()).map(Some)
            }
            Self::Plain(_) | Self::Md5(_) | Self::Scram(_) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::StoredSecret;
    use crate::md5::Md5Hash;
    use crate::{Password, Verifier};

    #[test]
    fn checks_a_plain_password_against_each_form() {
        let right = Password::from("p\u{e4}ss");
        let verifier = Verifier::from_password(&right, b"0123456789abcdef", 10).expect("in range");
        let md5 = Md5Hash::from_password(b"alice", &right);
        let texts = ["p\u{e4}ss".as_bytes().to_vec(), verifier.to_text().as_bytes().to_vec(), md5.as_bytes().to_vec()];
        for text in texts {
            let stored = StoredSecret::parse(&text);
            assert!(stored.verify_plain(b"alice", &right).is_ok());
            for wrong in ["", "p\u{e4}s", "P\u{e4}ss", "p\u{e4}ss "] {
                assert!(stored.verify_plain(b"alice", &wrong.into()).is_err());
            }
        }
        let stored = StoredSecret::Md5(md5);
        assert!(stored.verify_plain(b"bob", &right).is_err());
    }

    #[test]
    fn the_hash_itself_is_not_the_password() {
        let text = b"md5aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
        let stored = StoredSecret::parse(text);
        assert!(matches!(stored, StoredSecret::Md5(_)));
        assert!(stored.verify_plain(b"a", &text[..].into()).is_err());
    }

    #[test]
    fn sorts_like_postgresql() {
        for plain in [
            "",
            "secret",
            "md5",
            "md5AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
            "SCRAM-SHA-256$",
            "SCRAM-SHA-256$4096:c2FsdA==$short:short",
        ] {
            let stored = StoredSecret::parse(plain.as_bytes());
            assert!(matches!(stored, StoredSecret::Plain(_)), "{plain}");
        }
    }

    #[test]
    fn an_empty_password_never_verifies() {
        let stored = StoredSecret::parse(b"");
        assert!(stored.verify_plain(b"a", &"".into()).is_err());
        assert!(stored.md5_hash(b"a").is_none());
    }
}
