//! PostgreSQL's md5 authentication, both roles. Kept because old servers and clients need it; it is
//! weak, and whoever has the stored hash can log in with it. Protocol chapter "Start-up",
//! AuthenticationMD5Password; src/common/md5_common.c.

use md5::{Digest, Md5};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::{AuthError, Password};

/// Length of `md5` and 32 hexadecimal digits.
pub const HASH_LEN: usize = 35;

/// A stored or sent md5 hash: `md5` and 32 lower-case hexadecimal digits, wiped when dropped.
#[derive(Clone)]
pub struct Md5Hash(Zeroizing<[u8; HASH_LEN]>);

impl Md5Hash {
    /// What `pg_authid.rolpassword` holds for this user and password.
    #[must_use]
    pub fn from_password(user: &[u8], password: &Password) -> Self {
        Self(hash(&[password.as_bytes(), user]))
    }

    /// Reads the text form by the rule of PostgreSQL's `get_password_type`: exactly 35 bytes, lower
    /// case.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let digits = text.strip_prefix(b"md5")?;
        let lower_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if !digits.iter().all(lower_hex) {
            return None;
        }
        Some(Self(Zeroizing::new(text.try_into().ok()?)))
    }

    /// The text form.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &*self.0
    }

    /// What a client answers to AuthenticationMD5Password with this salt: the body of PasswordMessage
    /// without its NUL.
    #[must_use]
    pub fn response(&self, salt: &[u8; 4]) -> Zeroizing<[u8; HASH_LEN]> {
        let digits = self.0.get(3..).unwrap_or_default();
        hash(&[digits, salt])
    }

    /// Checks a client's response, without its NUL, in constant time.
    ///
    /// # Errors
    /// [`AuthError::WrongPassword`].
    pub fn verify_response(&self, salt: &[u8; 4], response: &[u8]) -> Result<(), AuthError> {
        if bool::from(self.response(salt).ct_eq(response)) { Ok(()) } else { Err(AuthError::WrongPassword) }
    }

    /// Equal in constant time.
    pub(crate) fn ct_eq(&self, other: &Self) -> bool {
        bool::from(self.0.ct_eq(&*other.0))
    }
}

impl std::fmt::Debug for Md5Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Md5Hash(<redacted>)")
    }
}

/// `md5` and the digits of MD5 over `parts`.
fn hash(parts: &[&[u8]]) -> Zeroizing<[u8; HASH_LEN]> {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    let mut digest = Md5::new();
    for part in parts {
        digest.update(part);
    }
    let digest: Zeroizing<[u8; 16]> = Zeroizing::new(digest.finalize().into());
    let mut text = Zeroizing::new([0u8; HASH_LEN]);
    text[..3].copy_from_slice(b"md5");
    for (pair, byte) in text[3..].chunks_exact_mut(2).zip(digest.iter()) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::Md5Hash;
    use crate::Password;

    // select 'md5' || md5('secret' || 'alice');  and the response to salt 01 02 03 04:
    // select 'md5' || md5(convert_to(md5('secret' || 'alice'), 'UTF8') || '\x01020304'::bytea);
    const STORED: &[u8] = b"md54a0a68b43b6cd5cf266fa02f196e2371";
    const RESPONSE: &[u8] = b"md598a0412b9c31436fc53776e863350083";

    #[test]
    fn known_values() {
        let hash = Md5Hash::from_password(b"alice", &Password::from("secret"));
        assert_eq!(hash.as_bytes(), STORED);
        assert_eq!(hash.response(&[1, 2, 3, 4]).as_slice(), RESPONSE);
    }

    #[test]
    fn both_roles_agree() {
        let stored = Md5Hash::parse(STORED).expect("a hash");
        assert!(stored.verify_response(&[1, 2, 3, 4], RESPONSE).is_ok());
        assert!(stored.verify_response(&[1, 2, 3, 5], RESPONSE).is_err());
        assert!(stored.verify_response(&[1, 2, 3, 4], b"").is_err());
        assert!(stored.verify_response(&[1, 2, 3, 4], STORED).is_err());
    }

    #[test]
    fn what_is_a_hash() {
        assert!(Md5Hash::parse(STORED).is_some());
        assert!(Md5Hash::parse(&STORED.to_ascii_uppercase()).is_none());
        assert!(Md5Hash::parse(&STORED[..34]).is_none());
        assert!(Md5Hash::parse(b"md5").is_none());
        assert!(Md5Hash::parse(&[STORED, b"0"].concat()).is_none());
    }
}
