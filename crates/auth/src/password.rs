//! A password in memory: wiped when dropped, never printed, prepared for SCRAM as PostgreSQL prepares
//! it. Not for stored secrets, which may be hashes: see `stored`.

use std::borrow::Cow;
use std::fmt;

use subtle::{Choice, ConstantTimeEq};
use zeroize::Zeroizing;

use crate::scram::digest::sha256;

/// A password as bytes. PostgreSQL does not demand that passwords be UTF-8.
#[derive(Clone)]
pub struct Password(Zeroizing<Vec<u8>>);

impl Password {
    /// Takes the bytes over; they are wiped when the password is dropped. Without a terminating NUL.
    #[must_use]
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(Zeroizing::new(bytes.into()))
    }

    /// The bytes as they were given.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// PostgreSQL never accepts an empty password.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes that PBKDF2 gets: SASLprep (RFC 4013), or the raw bytes when the password is not
    /// UTF-8, contains prohibited characters, or has nothing left after the mapping. The same rule as
    /// `pg_saslprep` and its callers in PostgreSQL's src/common/saslprep.c.
    pub(crate) fn prepared(&self) -> Zeroizing<Vec<u8>> {
        if self.0.is_ascii() {
            return self.0.clone();
        }
        let Ok(text) = std::str::from_utf8(&self.0) else {
            return self.0.clone();
        };
        match stringprep::saslprep(text) {
            Ok(Cow::Borrowed(prepared)) if !prepared.is_empty() => Zeroizing::new(prepared.as_bytes().to_vec()),
            Ok(Cow::Owned(prepared)) if !prepared.is_empty() => Zeroizing::new(prepared.into_bytes()),
            Ok(_) | Err(_) => self.0.clone(),
        }
    }

    /// Equal to `other`, in time that depends on neither's content. Both sides are hashed first, so
    /// that unequal lengths take no short cut.
    pub(crate) fn ct_eq(&self, other: &Self) -> Choice {
        let (ours, theirs) = (sha256(&self.0), sha256(&other.0));
        ours.ct_eq(&*theirs)
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(<redacted>)")
    }
}

impl From<&str> for Password {
    fn from(text: &str) -> Self {
        Self::new(text.as_bytes())
    }
}

impl From<&[u8]> for Password {
    fn from(bytes: &[u8]) -> Self {
        Self::new(bytes)
    }
}

impl From<String> for Password {
    fn from(text: String) -> Self {
        Self::new(text.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::Password;

    fn prepared(bytes: &[u8]) -> Vec<u8> {
        Password::from(bytes).prepared().to_vec()
    }

    #[test]
    fn saslprep_maps_and_normalises() {
        // Examples of RFC 4013, 3.
        assert_eq!(prepared("I\u{ad}X".as_bytes()), b"IX");
        assert_eq!(prepared("\u{aa}".as_bytes()), b"a");
        assert_eq!(prepared("\u{2168}".as_bytes()), b"IX");
        assert_eq!(prepared("a\u{a0}b".as_bytes()), b"a b");
        // U+200B is both a space and "mapped to nothing"; PostgreSQL takes it for a space.
        assert_eq!(prepared("a\u{200b}b".as_bytes()), b"a b");
    }

    #[test]
    fn what_saslprep_refuses_stays_raw() {
        for raw in [
            &b"\xff\xfe not utf-8"[..],
            "\u{627}\u{31}".as_bytes(),  // right-to-left rule broken (RFC 4013, 3)
            "tab\u{7}\u{e9}".as_bytes(), // a control character beside a non-ASCII one
            "\u{ad}".as_bytes(),         // nothing left
            b"\x07",                     // ASCII is never touched
            "\u{1f600}".as_bytes(),      // unassigned in Unicode 3.2
        ] {
            assert_eq!(prepared(raw), raw);
        }
    }

    #[test]
    fn never_printed() {
        assert!(!format!("{:?}", Password::from("hunter2")).contains("hunter2"));
    }
}
