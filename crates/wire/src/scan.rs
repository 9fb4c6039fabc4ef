//! Walks a stream of messages as it arrives, in pieces of any size.
//!
//! A relay looks at the head of each message and lets the body pass. The scanner keeps only one number: how many bytes of
//! the current body are still to come. What it cannot take yet, because a header or the wanted part of a body is cut off at
//! the end of the buffer, stays with the caller, who puts it in front of the next piece.

use crate::frame::{FrameError, HEADER_LEN, Header};

/// The head of one message in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head<'a> {
    /// Type byte.
    pub tag: u8,
    /// Length of the whole body, in bytes; more than `body` holds if the rest is still to come.
    pub body_len: usize,
    /// The part of the body that is in the buffer: at least as much as was asked for.
    pub body: &'a [u8],
    /// Offset of the type byte in the buffer.
    pub start: usize,
}

impl Head<'_> {
    /// Is the whole message in the buffer?
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.body.len() == self.body_len
    }
}

/// Position inside a stream of messages.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Scanner {
    /// Bytes of the current message's body that have not arrived yet.
    skip: usize,
}

impl Scanner {
    /// A scanner at the start of a message.
    pub fn new() -> Self {
        Self::default()
    }

    /// Is the stream between two messages?
    #[inline]
    pub fn at_boundary(&self) -> bool {
        self.skip == 0
    }

    /// Bytes of the current message that have not arrived yet.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.skip
    }

    /// Steps to the next message in `buf`, from `*pos` on.
    ///
    /// `need(tag)` says how many bytes of a body the caller wants to see (less if the body is shorter). On return `*pos`
    /// is behind everything that may be passed on. `None` means that `buf[*pos..]` is the start of a message that must
    /// be presented again with more bytes behind it; at most [`HEADER_LEN`] + need − 1 bytes are left over that way.
    ///
    /// # Errors
    /// A length field out of bounds; the stream is lost then.
    #[inline]
    pub fn next<'a>(
        &mut self,
        buf: &'a [u8],
        pos: &mut usize,
        need: impl Fn(u8) -> usize,
    ) -> Result<Option<Head<'a>>, FrameError> {
        if self.skip > 0 {
            let n = self.skip.min(buf.len() - *pos);
            self.skip -= n;
            *pos += n;
        }
        let rest = buf.get(*pos..).unwrap_or_default();
        let Some(header) = Header::parse(rest)? else { return Ok(None) };
        let after = rest.get(HEADER_LEN..).unwrap_or_default();
        let visible = header.body_len.min(after.len());
        if visible < header.body_len.min(need(header.tag)) {
            return Ok(None);
        }
        let start = *pos;
        *pos += HEADER_LEN + visible;
        self.skip = header.body_len - visible;
        Ok(Some(Head {
            tag: header.tag,
            body_len: header.body_len,
            body: after.get(..visible).unwrap_or_default(),
            start,
        }))
    }
}
