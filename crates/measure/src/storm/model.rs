//! The result of the experiment, as data. Keys carry their unit.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::pace::Pace;
use crate::failure::FailureCount;
use crate::stats::{Distribution, Growth, Interval, median_interval, quantile};
use crate::target::Side;

/// In which order the connections of a round are ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DisconnectOrder {
    /// The one that was ready first is ended first.
    Fifo,
    /// The one that was ready last is ended first.
    Lifo,
    /// By chance, from the seed and the round's number.
    Random,
}

impl fmt::Display for DisconnectOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fifo => "first ready, first ended",
            Self::Lifo => "last ready, first ended",
            Self::Random => "ended in random order",
        })
    }
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Settings {
    /// Numbers of clients, ascending.
    pub clients: Vec<u32>,
    /// When connections begin.
    pub pace: Pace,
    /// Threads that drive them, at most.
    pub threads: u32,
    /// Rounds of each number and side.
    pub rounds: u32,
    /// Order of disconnecting.
    pub disconnect: DisconnectOrder,
    /// Seed of a random order.
    pub seed: u64,
    /// Statement of each connection after its login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statement: Option<String>,
    /// How long one connection may take, seconds.
    pub timeout_seconds: f64,
}

/// What the server's machine says, where it is this one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Facts {
    /// `on`, `off` or `unknown`: whether the server's shared memory lies in huge pages.
    pub huge_pages: String,
    /// How that is known: `huge_pages_status`, or `/proc/PID/smaps`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge_pages_from: Option<String>,
    /// Whether the server runs on this machine, so that its processes could be looked at.
    pub same_host: bool,
    /// Connections that a server allows its clients at the start of the experiment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections_allowed: Option<u32>,
}

/// A point of the completion curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Completion {
    /// So many clients.
    pub n: u32,
    /// Were ready so long after the start of the round.
    pub us: f64,
}

/// What a round cost the server, where it is on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ServerCost {
    /// Backends that were there when the last client was ready.
    pub backends: u32,
    /// Minor page faults of each until then, mean.
    pub minor_faults: f64,
    /// CPU time of each until then, mean.
    pub backend_cpu_us: f64,
    /// CPU time of the postmaster per backend.
    pub postmaster_cpu_us: f64,
    /// CPU time of each backend until its end, mean; absent if not all had ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_life_cpu_us: Option<f64>,
}

/// How much later than intended the load generator began its connections.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Lateness {
    /// Mean.
    pub mean_us: f64,
    /// The worst.
    pub max_us: f64,
}

/// One round of one side with one number of clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Round {
    /// From 1.
    pub number: u32,
    /// From the start until the last client was ready; 0 if none was.
    pub total_us: f64,
    /// Clients that were.
    pub ready: u32,
    /// Clients that failed to connect.
    pub failed: u32,
    /// Clients that had neither when the round was interrupted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unfinished: u32,
    /// Time per client among the first tenth to become ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_tenth_us: Option<f64>,
    /// Time per client among the last tenth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_tenth_us: Option<f64>,
    /// connect() calls that found the backlog of a Unix socket full, or no port, and were made again.
    pub retries: u64,
    /// With a rate: how punctual the connections began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness: Option<Lateness>,
    /// From the first goodbye until the server had closed every connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disconnect_us: Option<f64>,
    /// How often a listen queue of this machine was full during the round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen_overflows: Option<u64>,
    /// How many connections were dropped for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen_drops: Option<u64>,
    /// What it cost the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerCost>,
    /// CPU time of the manager per client until the last one was ready, where it is this program's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager_cpu_us: Option<f64>,
    /// When the n-th client was ready, thinned.
    pub completion: Vec<Completion>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Round {
    /// Whether every client of it became ready.
    #[must_use]
    pub fn is_whole(&self, clients: u32) -> bool {
        self.ready == clients
    }
}

/// Which rounds of a number of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RoundKind {
    /// The first one.
    First,
    /// All others.
    Later,
}

impl RoundKind {
    /// Both, in order.
    pub const ALL: [Self; 2] = [Self::First, Self::Later];

    fn holds(self, number: u32) -> bool {
        match self {
            Self::First => number == 1,
            Self::Later => number > 1,
        }
    }
}

impl fmt::Display for RoundKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First => "first round",
            Self::Later => "later rounds",
        })
    }
}

/// Several values of one thing.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    /// Ascending.
    values: Vec<f64>,
}

impl Spread {
    /// Of values in any order; `None` without any.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.retain(|v| v.is_finite());
        values.sort_unstable_by(f64::total_cmp);
        (!values.is_empty()).then_some(Self { values })
    }

    /// How many.
    #[must_use]
    pub fn n(&self) -> usize {
        self.values.len()
    }

    /// The mean.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.values.iter().sum::<f64>() / self.values.len() as f64
    }

    /// The standard deviation of the sample (n - 1); `None` with one value.
    #[must_use]
    pub fn deviation(&self) -> Option<f64> {
        let (n, mean) = (self.values.len(), self.mean());
        let squares: f64 = self.values.iter().map(|v| (v - mean).powi(2)).sum();
        (n > 1).then(|| (squares / (n - 1) as f64).sqrt())
    }

    /// The median.
    #[must_use]
    pub fn median(&self) -> f64 {
        quantile(&self.values, 0.5)
    }

    /// Its 95 % interval, from three values on.
    #[must_use]
    pub fn interval(&self) -> Option<Interval> {
        median_interval(&self.values)
    }
}

/// All rounds of one side with one number of clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Cell {
    /// How the server was reached.
    pub side: Side,
    /// How many clients.
    pub clients: u32,
    /// The rounds, in order.
    pub rounds: Vec<Round>,
    /// One connection, from its begin (with a rate: its intended begin) to ReadyForQuery, over all rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect: Option<Distribution>,
    /// The part of that until the kernel at the other end had taken the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept: Option<Distribution>,
    /// The statement after the login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statement: Option<Distribution>,
    /// What failed.
    pub failures: Vec<FailureCount>,
}

impl Cell {
    /// T(N) of the rounds in which every client became ready, microseconds.
    #[must_use]
    pub fn totals(&self, kind: RoundKind) -> Vec<f64> {
        self.whole(kind).map(|r| r.total_us).collect()
    }

    /// Something of the rounds in which every client became ready.
    #[must_use]
    pub fn spread(&self, kind: RoundKind, of: impl Fn(&Round) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.whole(kind).filter_map(of).collect())
    }

    fn whole(&self, kind: RoundKind) -> impl Iterator<Item = &Round> {
        self.rounds.iter().filter(move |r| kind.holds(r.number) && r.is_whole(self.clients))
    }
}

/// How T(N) of one side grows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SideGrowth {
    /// Which side.
    pub side: Side,
    /// Which rounds.
    pub rounds: RoundKind,
    /// Both models; absent with fewer than two numbers of clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth: Option<Growth>,
    /// What follows, in words.
    pub verdict: String,
}

/// The whole experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Storm {
    /// What was asked for.
    pub settings: Settings,
    /// What the server and its machine say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<Facts>,
    /// By number of clients, then side.
    pub cells: Vec<Cell>,
    /// By side, first and later rounds.
    pub growth: Vec<SideGrowth>,
    /// Whether it was ended before its time.
    pub interrupted: bool,
    /// What a reader must know besides.
    pub notes: Vec<String>,
}

impl Storm {
    /// The combination, if it was measured.
    #[must_use]
    pub fn cell(&self, side: Side, clients: u32) -> Option<&Cell> {
        self.cells.iter().find(|c| c.side == side && c.clients == clients)
    }

    /// The growth that counts: that of later rounds, of the first ones where there are no others.
    #[must_use]
    pub fn growth_of(&self, side: Side) -> Option<&SideGrowth> {
        let of = |kind| self.growth.iter().find(|g| g.side == side && g.rounds == kind);
        of(RoundKind::Later).or_else(|| of(RoundKind::First))
    }

    /// Whether anything failed.
    #[must_use]
    pub fn any_failure(&self) -> bool {
        self.cells.iter().any(|c| !c.failures.is_empty())
    }
}
