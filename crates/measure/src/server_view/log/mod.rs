//! The server's log beside the client's clock: how long each message of the protocol took inside the server.
//!
//! One file per task: where the bytes come from (a file of this host, or the
//! server itself), the three formats
//! (`stderr`, `csvlog`, `jsonlog`), what a message says, which entries are of our sessions, and which run an entry
//! belongs to. No entry is guessed: what cannot be told stays absent and is said in a note.

mod align;
mod csvlog;
mod file;
mod format;
mod jsonlog;
mod message;
mod prefix;
mod reader;
mod record;
mod remote;
mod sessions;
mod stderr;

pub use align::{ConnectTimes, Expected, RunTimes, connect_times, run_times};
pub use format::LogFormat;
pub use message::{Part, Said};
pub use prefix::Prefix;
pub use reader::{LogReader, Place};
pub use record::{Parsed, Record};
pub use sessions::{Entry, Sessions, sessions};

#[cfg(test)]
mod tests;
