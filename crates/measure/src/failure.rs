//! Failures, counted by their cause: a run goes on, and its report says what failed, where and how often.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// At what a client was when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Establishing a connection.
    Connect,
    /// Running a transaction.
    Transaction,
    /// Ending a connection.
    Disconnect,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connect",
            Self::Transaction => "transaction",
            Self::Disconnect => "disconnect",
        })
    }
}

/// One failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What was under way.
    pub step: Step,
    /// The cause to count by: an SQLSTATE, `errno 111`, or a word such as `timeout`.
    pub cause: String,
    /// The message, for people.
    pub message: String,
}

impl Failure {
    /// The failure that an error of the client means.
    #[must_use]
    pub fn of(step: Step, error: &pgusher_client::Error) -> Self {
        let cause = match (error.sqlstate(), error.errno()) {
            (Some(sqlstate), _) => sqlstate.to_owned(),
            (None, Some(errno)) => format!("errno {errno}"),
            (None, None) => error.kind().name().to_owned(),
        };
        Self { step, cause, message: error.to_string() }
    }
}

/// How often one cause came up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FailureCount {
    /// What was under way.
    pub step: Step,
    /// SQLSTATE, `errno N`, or a word.
    pub cause: String,
    /// How often.
    pub count: u64,
    /// The message of the first one.
    pub example: String,
}

impl fmt::Display for FailureCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = if self.count == 1 { "time" } else { "times" };
        let (step, cause, count, example) = (self.step, &self.cause, self.count, &self.example);
        write!(f, "{step} {cause}: {count} {times}, for example: {example}")
    }
}

/// Counts failures. Bounded: causes beyond [`Failures::DIFFERENT`] are counted together.
#[derive(Debug, Clone, Default)]
pub struct Failures(BTreeMap<(Step, String), (u64, String)>);

impl Failures {
    /// How many different causes are kept apart.
    pub const DIFFERENT: usize = 64;

    /// Counts one.
    pub fn count(&mut self, failure: Failure) {
        self.add(failure.step, failure.cause, 1, failure.message);
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: Self) {
        for ((step, cause), (count, example)) in other.0 {
            self.add(step, cause, count, example);
        }
    }

    fn add(&mut self, step: Step, cause: String, count: u64, example: String) {
        let key = (step, cause);
        let full = self.0.len() >= Self::DIFFERENT && !self.0.contains_key(&key);
        let key = if full { (step, "other".to_owned()) } else { key };
        self.0.entry(key).or_insert((0, example)).0 += count;
    }

    /// All counts, by step, then the most frequent first.
    #[must_use]
    pub fn counts(&self) -> Vec<FailureCount> {
        let mut counts: Vec<FailureCount> = self
            .0
            .iter()
            .map(|((step, cause), (count, example))| FailureCount {
                step: *step,
                cause: cause.clone(),
                count: *count,
                example: example.clone(),
            })
            .collect();
        counts.sort_by(|a, b| (a.step, b.count).cmp(&(b.step, a.count)));
        counts
    }

    /// How many in one step.
    #[must_use]
    pub fn in_step(&self, step: Step) -> u64 {
        self.0.iter().filter(|((s, _), _)| *s == step).map(|(_, (n, _))| n).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(step: Step, cause: &str) -> Failure {
        Failure { step, cause: cause.to_owned(), message: format!("message of {cause}") }
    }

    #[test]
    fn counted_by_step_and_cause() {
        let mut failures = Failures::default();
        for _ in 0..3 {
            failures.count(failure(Step::Transaction, "42P01"));
        }
        failures.count(failure(Step::Transaction, "57014"));
        let mut more = Failures::default();
        more.count(failure(Step::Transaction, "42P01"));
        more.count(failure(Step::Connect, "errno 111"));
        failures.merge(more);
        let seen: Vec<(Step, String, u64)> =
            failures.counts().into_iter().map(|c| (c.step, c.cause, c.count)).collect();
        assert_eq!(
            seen,
            [
                (Step::Connect, "errno 111".to_owned(), 1),
                (Step::Transaction, "42P01".to_owned(), 4),
                (Step::Transaction, "57014".to_owned(), 1),
            ]
        );
        assert_eq!(failures.in_step(Step::Transaction), 5);
    }

    #[test]
    fn different_causes_are_bounded() {
        let mut failures = Failures::default();
        for i in 0..10_000 {
            failures.count(failure(Step::Connect, &i.to_string()));
        }
        assert!(failures.counts().len() <= Failures::DIFFERENT + 3);
        assert_eq!(failures.in_step(Step::Connect), 10_000);
    }
}
