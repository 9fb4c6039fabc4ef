//! Whole messages in a buffer: a type byte, a length, a body.

/// Bytes in front of a message's body: the type byte and the four bytes of the length.
pub const HEADER_LEN: usize = 5;

/// The largest value of a length field that is accepted: PostgreSQL's own limit for large messages
/// (`PQ_LARGE_MESSAGE_LIMIT`, src/include/libpq/libpq.h).
pub const MAX_MESSAGE_LEN: u32 = 0x3fff_fffe;

/// A length field that no message can have. The stream cannot be read any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid length {len} in a message of type {tag:#04x}")]
pub struct FrameError {
    /// Type byte of the message.
    pub tag: u8,
    /// The length field as it was sent; it counts itself but not the type byte.
    pub len: u32,
}

/// The first five bytes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Type byte.
    pub tag: u8,
    /// Bytes of the body, without type byte and length field.
    pub body_len: usize,
}

impl Header {
    /// Reads a header from the start of `buf`; `None` if there are fewer than five bytes.
    #[inline]
    pub fn parse(buf: &[u8]) -> Result<Option<Self>, FrameError> {
        let Some((&[tag, a, b, c, d], _)) = buf.split_first_chunk::<HEADER_LEN>() else { return Ok(None) };
        let len = u32::from_be_bytes([a, b, c, d]);
        if !(4..=MAX_MESSAGE_LEN).contains(&len) {
            return Err(FrameError { tag, len });
        }
        Ok(Some(Self { tag, body_len: len as usize - 4 }))
    }

    /// Bytes of the whole message.
    #[inline]
    pub fn total_len(self) -> usize {
        HEADER_LEN + self.body_len
    }
}

/// One whole message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Type byte.
    pub tag: u8,
    /// Everything after the length field.
    pub body: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The message at the start of `buf` and the bytes that it takes; `None` while it is not all there.
    pub fn parse(buf: &'a [u8]) -> Result<Option<(Self, usize)>, FrameError> {
        let Some(header) = Header::parse(buf)? else { return Ok(None) };
        let total = header.total_len();
        Ok(buf.get(HEADER_LEN..total).map(|body| (Self { tag: header.tag, body }, total)))
    }
}

/// Walks the whole messages at the start of a buffer; stops at the first incomplete one.
#[derive(Debug, Clone)]
pub struct Frames<'a> {
    buf: &'a [u8],
    used: usize,
}

impl<'a> Frames<'a> {
    /// Starts at the beginning of `buf`.
    pub fn new(buf: &'a [u8]) -> Self {
        Self { buf, used: 0 }
    }

    /// Bytes of the messages that were handed out.
    pub fn used(&self) -> usize {
        self.used
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        match Frame::parse(self.buf.get(self.used..)?) {
            Ok(Some((frame, n))) => {
                self.used += n;
                Some(Ok(frame))
            }
            Ok(None) => None,
            Err(e) => Some(Err(e)),
        }
    }
}
