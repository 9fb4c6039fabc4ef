//! What can go wrong when a private server is made. Each error names the step and carries what the failing program said.

use std::io;
use std::path::PathBuf;

/// The result of this crate's operations.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a private server could not be found, made, started or asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No folder on this machine holds usable server programs. The text says what to install.
    #[error("{0}")]
    NotFound(String),

    /// An operation of the operating system failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// The system's own error.
        source: io::Error,
    },

    /// A program of PostgreSQL ended with an error.
    #[error("{program} failed ({status}):\n{output}")]
    Program {
        /// The program, for example `initdb`.
        program: String,
        /// Its exit status in words.
        status: String,
        /// What it printed on standard error and, where that is empty, on standard output.
        output: String,
    },

    /// The server ended while it was starting.
    #[error("PostgreSQL ended while starting ({status}); the end of its log {}:\n{log}", path.display())]
    Ended {
        /// Its exit status in words.
        status: String,
        /// Where its log is (removed together with the server's folder).
        path: PathBuf,
        /// The last lines of its log.
        log: String,
    },

    /// The server did not become ready, or did not end, in time.
    #[error("PostgreSQL was not {what} after {seconds} s; the end of its log:\n{log}")]
    Timeout {
        /// `ready` or `stopped`.
        what: &'static str,
        /// How long was waited.
        seconds: u64,
        /// The last lines of its log.
        log: String,
    },

    /// An option of the builder cannot be used.
    #[error("{0}")]
    Option(String),
}

impl Error {
    /// Wraps an operating system error together with what was being done.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }
}
