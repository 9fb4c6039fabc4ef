//! PostgreSQL's wire protocol, versions 3.0 and 3.2, without I/O.
//!
//! Three ways to read, each for its own reader:
//! * [`scan::Scanner`] walks a byte stream as it arrives, in pieces of any size, and shows the head of each message. It is
//!   what a relay needs: a message that is larger than any buffer passes through, and no body is copied.
//! * [`frame::Frame`] is one whole message in a buffer.
//! * [`frontend::Message`] and [`backend::Message`] are whole messages taken apart into borrowed views.
//!
//! Writers append to a `Vec<u8>` and stand beside the views: [`frontend`], [`backend`], [`startup`].
//!
//! This crate opens no socket and keeps no session state; who owes whom a reply is the business of `pgusher-session`.
//! Reference: PostgreSQL documentation, part VII, chapter "Frontend/Backend Protocol".

pub mod backend;
mod cursor;
pub mod error;
pub mod frame;
pub mod frontend;
pub mod scan;
pub mod sqlstate;
pub mod startup;
mod write;

pub use error::{ErrorFields, Report, Severity};
pub use frame::{Frame, FrameError, HEADER_LEN, MAX_MESSAGE_LEN};

/// Why the bytes of a message do not make sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The message ends before a field that it must have.
    #[error("message {tag:?} ends too early")]
    Truncated {
        /// Type byte of the message.
        tag: char,
    },
    /// The message has bytes after its last field.
    #[error("message {tag:?} has bytes after its end")]
    Trailing {
        /// Type byte of the message.
        tag: char,
    },
    /// A field has a value that the protocol does not allow.
    #[error("message {tag:?} has an invalid {field}")]
    Invalid {
        /// Type byte of the message.
        tag: char,
        /// Name of the field.
        field: &'static str,
    },
    /// The type byte stands for no message in this direction.
    #[error("unknown message type {tag:?}")]
    UnknownTag {
        /// Type byte of the message.
        tag: char,
    },
}

/// What a server says of its transaction in ReadyForQuery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TxStatus {
    /// `I`: not in a transaction block.
    Idle,
    /// `T`: in a transaction block.
    Transaction,
    /// `E`: in a transaction block that has failed.
    Failed,
}

impl TxStatus {
    /// The status for its byte in ReadyForQuery.
    #[inline]
    pub fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            b'I' => Some(Self::Idle),
            b'T' => Some(Self::Transaction),
            b'E' => Some(Self::Failed),
            _ => None,
        }
    }

    /// The byte of this status in ReadyForQuery.
    pub fn as_byte(self) -> u8 {
        match self {
            Self::Idle => b'I',
            Self::Transaction => b'T',
            Self::Failed => b'E',
        }
    }
}
