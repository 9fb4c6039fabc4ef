//! What happened while connecting: every attempt on every address with its own phases, never added up.

use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::phase::{Phase, Phases};

/// How an attempt was (to be) encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encryption {
    /// Not.
    Plain,
    /// TLS.
    Tls,
}

impl Encryption {
    /// A word for output.
    pub fn name(self) -> &'static str {
        match self {
            Encryption::Plain => "plain",
            Encryption::Tls => "tls",
        }
    }
}

/// Why an attempt failed, in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptError {
    /// What kind.
    pub kind: ErrorKind,
    /// In which phase.
    pub phase: Option<Phase>,
    /// The server's SQLSTATE.
    pub sqlstate: Option<String>,
    /// For people.
    pub text: String,
}

/// One attempt on one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// As in `localhost:5432 (127.0.0.1)`.
    pub target: String,
    /// How it was encrypted in the end, or was to be.
    pub encryption: Encryption,
    /// When it began, from the start of the whole.
    pub started: Duration,
    /// Its phases.
    pub phases: Phases,
    /// `None` if it succeeded.
    pub error: Option<AttemptError>,
}

impl Attempt {
    pub(crate) fn succeeded(target: String, encryption: Encryption, started: Duration, phases: Phases) -> Self {
        Attempt { target, encryption, started, phases, error: None }
    }

    pub(crate) fn failed(
        target: String,
        encryption: Encryption,
        started: Duration,
        phases: Phases,
        error: &Error,
    ) -> Self {
        let error = AttemptError {
            kind: error.kind(),
            phase: error.phase(),
            sqlstate: error.sqlstate().map(str::to_owned),
            text: error.to_string(),
        };
        Attempt { target, encryption, started, phases, error: Some(error) }
    }
}

/// All attempts of one `connect`, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attempts {
    list: Vec<Attempt>,
    /// From the start of the first attempt (name look-up included) to the end of the last.
    pub total: Duration,
}

impl Attempts {
    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.total = Duration::ZERO;
    }

    pub(crate) fn push(&mut self, attempt: Attempt) {
        self.list.push(attempt);
    }

    /// All of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Attempt> {
        self.list.iter()
    }

    /// The last one: the one that succeeded, if any did.
    pub fn last(&self) -> Option<&Attempt> {
        self.list.last()
    }

    /// The phases of the last attempt.
    pub fn phases(&self) -> Phases {
        self.last().map(|attempt| attempt.phases).unwrap_or_default()
    }
}
