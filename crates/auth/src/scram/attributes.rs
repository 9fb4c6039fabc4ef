//! Reads the comma-separated `x=value` attributes of SCRAM messages (RFC 5802, 7). Only the grammar;
//! what an attribute means is decided by the two roles.

use super::MAX_MESSAGE_LEN;
use crate::AuthError;

/// What is left of a message.
pub(super) struct Attributes<'a> {
    message: &'a [u8],
    /// Where the next attribute begins; past the end when there is none.
    at: usize,
}

impl<'a> Attributes<'a> {
    /// Starts at the beginning of `message`.
    pub(super) fn new(message: &'a [u8]) -> Result<Self, AuthError> {
        if message.len() > MAX_MESSAGE_LEN {
            return Err(AuthError::Protocol("SCRAM message is too long"));
        }
        if message.contains(&0) {
            return Err(AuthError::Protocol("SCRAM message contains a NUL"));
        }
        Ok(Self { message, at: 0 })
    }

    /// The bytes before the next attribute, without the comma between.
    pub(super) fn before(&self) -> &'a [u8] {
        let end = self.at.saturating_sub(1).min(self.message.len());
        self.message.get(..end).unwrap_or_default()
    }

    /// The next attribute's name and value, or `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(u8, &'a [u8])>, AuthError> {
        let rest = match self.message.get(self.at..) {
            // An empty message, or everything has been read. A trailing comma leaves an empty rest,
            // which is an error below.
            None => return Ok(None),
            Some([]) if self.at == 0 => return Ok(None),
            Some(rest) => rest,
        };
        let len = rest.iter().position(|b| *b == b',').unwrap_or(rest.len());
        let attribute = rest.get(..len).unwrap_or_default();
        self.at += len + 1;
        match attribute {
            [name, b'=', value @ ..] if name.is_ascii_alphabetic() => Ok(Some((*name, value))),
            _ => Err(AuthError::Protocol("SCRAM attribute expected")),
        }
    }

    /// The value of the next attribute, which must be called `name`.
    pub(super) fn expect(&mut self, name: u8, missing: &'static str) -> Result<&'a [u8], AuthError> {
        match self.next()? {
            Some((found, value)) if found == name => Ok(value),
            Some((b'm', _)) => Err(AuthError::Unsupported("a mandatory SCRAM extension")),
            Some(_) | None => Err(AuthError::Protocol(missing)),
        }
    }

    /// Reads optional extensions to the end and ignores them, as RFC 5802, 5.1 asks.
    pub(super) fn skip_extensions(&mut self) -> Result<(), AuthError> {
        while self.next()?.is_some() {}
        Ok(())
    }
}

/// A nonce: printable ASCII without a comma, not empty.
pub(super) fn nonce(value: &[u8]) -> Result<&str, AuthError> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_graphic) {
        return Err(AuthError::Protocol("SCRAM nonce is empty or not printable"));
    }
    std::str::from_utf8(value).map_err(|_| AuthError::Protocol("SCRAM nonce is not printable"))
}

/// A positive decimal number without sign or spaces.
pub(super) fn number(value: &[u8]) -> Option<u32> {
    if value.is_empty() || value.len() > 10 {
        return None;
    }
    value.iter().try_fold(0u32, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u32::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::{Attributes, number};

    #[test]
    fn reads_in_order() {
        let mut attributes = Attributes::new(b"c=biws,r=x=y,p=").expect("short");
        assert_eq!(attributes.before(), b"");
        assert_eq!(attributes.next(), Ok(Some((b'c', &b"biws"[..]))));
        assert_eq!(attributes.next(), Ok(Some((b'r', &b"x=y"[..]))));
        assert_eq!(attributes.before(), b"c=biws,r=x=y");
        assert_eq!(attributes.next(), Ok(Some((b'p', &b""[..]))));
        assert_eq!(attributes.next(), Ok(None));
    }

    #[test]
    fn refuses_what_is_no_attribute() {
        for bad in [&b","[..], b"r=x,", b"r", b"=x", b"1=x", b"r=x,,p=y"] {
            let mut attributes = Attributes::new(bad).expect("short");
            assert!(attributes.skip_extensions().is_err(), "{bad:?}");
        }
        assert!(Attributes::new(b"r=\0").is_err());
        assert!(Attributes::new(&vec![b'a'; 1 << 20]).is_err());
    }

    #[test]
    fn numbers() {
        assert_eq!(number(b"4096"), Some(4096));
        assert_eq!(number(b"4294967295"), Some(u32::MAX));
        for bad in [&b""[..], b"-1", b"+1", b" 1", b"4294967296", b"99999999999", b"1x"] {
            assert_eq!(number(bad), None, "{bad:?}");
        }
    }
}
