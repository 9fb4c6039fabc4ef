//! A reader over the body of one message. It checks every bound, so that no input can make it panic.

use crate::ParseError;

/// Reads big-endian fields from a message body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    tag: u8,
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(tag: u8, body: &'a [u8]) -> Self {
        Self { tag, rest: body }
    }

    fn truncated(&self) -> ParseError {
        ParseError::Truncated { tag: char::from(self.tag) }
    }

    pub(crate) fn invalid(&self, field: &'static str) -> ParseError {
        ParseError::Invalid { tag: char::from(self.tag), field }
    }

    pub(crate) fn bytes(&mut self, n: usize) -> Result<&'a [u8], ParseError> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or_else(|| self.truncated())?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or_else(|| self.truncated())?;
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, ParseError> {
        self.array::<1>().map(|[b]| b)
    }

    pub(crate) fn i16(&mut self) -> Result<i16, ParseError> {
        self.array().map(i16::from_be_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, ParseError> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, ParseError> {
        self.array().map(u32::from_be_bytes)
    }

    /// A count that may not be negative.
    pub(crate) fn count16(&mut self, field: &'static str) -> Result<usize, ParseError> {
        let n = self.i16()?;
        usize::try_from(n).map_err(|_| self.invalid(field))
    }

    /// A string that ends with a zero byte, without that byte.
    pub(crate) fn cstr(&mut self) -> Result<&'a [u8], ParseError> {
        let end = memchr::memchr(0, self.rest).ok_or_else(|| self.truncated())?;
        let (head, rest) = self.rest.split_at(end);
        self.rest = rest.get(1..).unwrap_or_default();
        Ok(head)
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The body must have been read to its end.
    pub(crate) fn finish(self) -> Result<(), ParseError> {
        if self.rest.is_empty() { Ok(()) } else { Err(ParseError::Trailing { tag: char::from(self.tag) }) }
    }
}
