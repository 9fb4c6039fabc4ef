//! Asks a physical connection what its session holds, and reads the answer.
//!
//! For work of which the text does not say what it did to the session: an unknown function, a DO block, set_config with
//! parameters. [`Inquiry::sql`] is one simple Query, to be sent when the connection is idle and outside of a transaction block.
//! The bodies of the DataRow messages go to [`Answer::row`], and [`Answer::finish`] says what was found. Every other message up
//! to ReadyForQuery says nothing, except an ErrorResponse: then nothing is known, whatever rows came before it. It happens
//! when the session's statement_timeout is shorter than the inquiry takes, or when a name asked for is a setting that the
//! session's role may not read.
//!
//! What SQL cannot tell is not found: loaded libraries, the state of sequences (currval, lastval) and of random numbers,
//! and custom placeholders that nobody has named.

mod answer;
mod findings;
mod sql;

pub use answer::{Answer, MAX_BYTES, Unreadable};
pub use findings::{Findings, FunctionDefinition, PreparedStatement};

pub use crate::aspects::Aspects;

use crate::Settings;

/// Longest value of a setting, in bytes, that an answer holds.
pub const MAX_VALUE: usize = 256 * 1024;
/// Longest text of a prepared statement or body of a function, in bytes, that an answer holds.
pub const MAX_TEXT: usize = 64 * 1024;

/// One question to a physical connection. The same is needed to understand the answer.
#[derive(Debug, Clone, Copy)]
pub struct Inquiry<'a> {
    /// What is asked.
    pub aspects: Aspects,
    /// What the session is believed to have. Its spelling is kept where a value means the same, and so are values that the
    /// session's role may not see.
    pub known: &'a Settings,
    /// The name of the role that the physical connection logged in as.
    pub login: &'a str,
    /// Names of custom placeholders (`app.tenant`) that may have been set, besides those that are known. A name without a dot
    /// is not asked: those settings are found anyway.
    pub placeholders: &'a [Box<str>],
    /// Names of custom placeholders that were empty on the physical connection before the session had it. A placeholder, once
    /// set, is never unknown again: after RESET or ROLLBACK it is empty, in a fresh session it does not exist. One of these that
    /// is empty and not known is the remainder of another session and is not reported.
    pub leftovers: &'a [Box<str>],
    /// Names of functions, as the catalog has them, whose definitions are wanted.
    pub functions: &'a [Box<str>],
}
