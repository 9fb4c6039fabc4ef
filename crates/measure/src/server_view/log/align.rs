//! Which entries of a session belong to which run of which statement. The client's runs and the server's entries are two
//! lists in the same order; they are walked side by side.
//!
//! If entries are missing (a log that was cut, a statement that the server was told not to log), nothing is guessed: the
//! runs from there on have no times of the log.

use super::message::{Part, Said};
use super::sessions::Entry;

/// What the log says of a connection, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct ConnectTimes {
    /// Accepted to ready for the first statement (PostgreSQL 18).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup_us: Option<f64>,
    /// The fork, a part of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fork_us: Option<f64>,
    /// Authentication, a part of it; waiting for the client included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authentication_us: Option<f64>,
    /// `connection received` to `connection authorized` by the times of the lines, whole milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received_to_authorized_us: Option<f64>,
}

/// What the log says of a run, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct RunTimes {
    /// A simple query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statement_us: Option<f64>,
    /// Parse.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parse_us: Option<f64>,
    /// Bind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bind_us: Option<f64>,
    /// Execute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execute_us: Option<f64>,
}

impl RunTimes {
    /// All parts together.
    #[must_use]
    pub fn total_us(&self) -> f64 {
        [self.statement_us, self.parse_us, self.bind_us, self.execute_us].into_iter().flatten().sum()
    }

    fn set(&mut self, part: Part, ms: f64) {
        let place = match part {
            Part::Statement => &mut self.statement_us,
            Part::Parse => &mut self.parse_us,
            Part::Bind => &mut self.bind_us,
            Part::Execute => &mut self.execute_us,
        };
        // A simple query of several statements has one entry for all; a portal that goes on has several.
        *place = Some(place.unwrap_or(0.0) + ms * 1e3);
    }
}

/// A run, as the client knows it.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// What the server logs of it, in order.
    pub parts: &'a [Part],
    /// The statement.
    pub sql: &'a str,
    /// Whether it failed: then its last entry is an error.
    pub failed: bool,
}

/// The times of the connection.
#[must_use]
pub fn connect_times(entries: &[Entry]) -> ConnectTimes {
    let mut times = ConnectTimes::default();
    let at = |wanted: fn(&Said) -> bool| entries.iter().find(|entry| wanted(&entry.said)).and_then(|e| e.time_ms);
    if let (Some(received), Some(authorized)) =
        (at(|said| *said == Said::Received), at(|said| matches!(said, Said::Authorized(_))))
    {
        times.received_to_authorized_us = Some(((authorized - received) * 1e3).max(0.0));
    }
    for entry in entries {
        if let Said::Ready { total, fork, authentication } = entry.said {
            times.setup_us = Some(total * 1e3);
            times.fork_us = Some(fork * 1e3);
            times.authentication_us = Some(authentication * 1e3);
        }
    }
    times
}

/// The times of each run; `None` where the log has none that surely belong to it.
#[must_use]
pub fn run_times(entries: &[Entry], runs: &[Expected<'_>]) -> Vec<Option<RunTimes>> {
    let mut rest =
        entries.iter().filter(|entry| entry.is_error || matches!(entry.said, Said::Duration { .. })).peekable();
    let mut result = Vec::with_capacity(runs.len());
    for run in runs {
        let mut times = RunTimes::default();
        let mut complete = true;
        if run.failed {
            // What it did before it failed, and the error.
            rest.by_ref().find(|entry| entry.is_error);
            result.push(None);
            continue;
        }
        for part in run.parts {
            let fits = rest.peek().is_some_and(|entry| match &entry.said {
                Said::Duration { of: Some((said, sql)), .. } => said == part && same_text(sql, run.sql),
                Said::Duration { of: None, .. } => true,
                _ => false,
            });
            match rest.next_if(|_| fits).map(|entry| &entry.said) {
                Some(Said::Duration { ms, .. }) => times.set(*part, *ms),
                _ => complete = false,
            }
        }
        if !complete {
            // Out of step: whatever follows could be another run's.
            result.resize(runs.len(), None);
            return result;
        }
        result.push(Some(times));
    }
    result
}

/// Blanks apart: the server does not log the text around a statement of several in one string, and a log that was
/// converted can have other line ends.
fn same_text(logged: &str, sent: &str) -> bool {
    let words = |text: &'_ str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    logged == sent || words(logged) == words(sent)
}
