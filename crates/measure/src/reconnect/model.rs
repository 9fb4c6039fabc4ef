//! The result of the experiment, as data. One definition of each number, used by all formats.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::failure::FailureCount;
use crate::stats::{Bucket, Distribution, Ratio, paired_ratio, quantile};
use crate::target::Side;

/// Whether clients keep their connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// One connection per client for the whole round.
    Static,
    /// One connection per transaction, as `pgbench -C`.
    Reconnect,
}

impl Mode {
    /// Both, in the order of the report.
    pub const ALL: [Self; 2] = [Self::Static, Self::Reconnect];
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Static => "static",
            Self::Reconnect => "reconnect",
        })
    }
}

/// How statements are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// Simple query.
    Simple,
    /// Parse, Bind, Describe, Execute and Sync in one go with the unnamed statement.
    Extended,
    /// Each statement is prepared at its first use in a connection (Parse, Describe, Sync), within the transaction's
    /// time, and then only bound and executed.
    Prepared,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Simple => "simple",
            Self::Extended => "extended",
            Self::Prepared => "prepared",
        })
    }
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Settings {
    /// Clients, each with a thread.
    pub clients: u32,
    /// How many of them may be connecting at the same time; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connecting_at_once: Option<u32>,
    /// Length of a round, if it is limited by time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Transactions per client and round, if it is limited by their number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transactions_per_client: Option<u64>,
    /// Transactions per second that all clients together were to begin (open loop); absent: closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_second: Option<f64>,
    /// What a transaction may take; with a rate, one that is later than this was not begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_limit_us: Option<f64>,
    /// Rounds of each combination.
    pub rounds: u32,
    /// How statements are sent.
    pub protocol: Protocol,
    /// The script's name.
    pub script: String,
    /// Whether a disconnect lasts until the server has closed its side, not only until ours is closed.
    pub wait_for_exit: bool,
    /// Whether the key derived from a SCRAM password was reused for later connections.
    pub reuse_keys: bool,
    /// Seed of the clients' random numbers.
    pub seed: u64,
}

/// The connection made alone before the clients of a round, kept apart from all distributions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FirstConnection {
    /// Establishing it.
    pub connect_us: f64,
    /// Its only transaction; absent if that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transaction_us: Option<f64>,
    /// Ending it.
    pub disconnect_us: f64,
}

/// One round of one combination.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Round {
    /// From 1.
    pub number: u32,
    /// From the moment the clients were released, before their first connect, to the end of the last one.
    pub wall_seconds: f64,
    /// Transactions that succeeded.
    pub transactions: u64,
    /// Transactions that failed.
    pub failed_transactions: u64,
    /// Connections that were established.
    pub connections: u64,
    /// Connections that were not.
    pub failed_connections: u64,
    /// Mean time per client spent connecting, disconnecting and waiting to be allowed to connect.
    pub connecting_seconds: f64,
    /// `transactions / wall_seconds`.
    pub tps_including_connecting: f64,
    /// `transactions / (wall_seconds - connecting_seconds)`.
    pub tps_excluding_connecting: f64,
    /// Mean time of a transaction, without connecting.
    pub latency_average_us: f64,
    /// Its standard deviation, with n in the denominator.
    pub latency_stddev_us: f64,
    /// Transactions that were not begun because they were later than the limit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped_transactions: u64,
    /// Transactions that took longer than the limit; with a rate from the moment when they were meant to begin.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub late_transactions: u64,
    /// How much later than meant transactions began, on average; only with a rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_average_us: Option<f64>,
    /// How much later at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_max_us: Option<f64>,
    /// The connection before the clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<FirstConnection>,
}

// What serde asks for.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// All rounds of one combination of mode and side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Cell {
    /// Whether clients kept their connection.
    pub mode: Mode,
    /// How they reached the server.
    pub side: Side,
    /// The rounds, in order.
    pub rounds: Vec<Round>,
    /// Establishing a connection, over all rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect: Option<Distribution>,
    /// A transaction, from sending its first statement to the last ReadyForQuery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transaction: Option<Distribution>,
    /// Ending a connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disconnect: Option<Distribution>,
    /// From the moment a transaction was meant to begin to its end, connecting included; only with a rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Distribution>,
    /// From the moment a transaction was meant to begin to the moment its client was free for it; only with a rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<Distribution>,
    /// How the times are distributed, over all rounds.
    #[serde(default)]
    pub histograms: Histograms,
    /// What failed.
    pub failures: Vec<FailureCount>,
}

/// Counts by duration, ten buckets to a power of ten. Empty where nothing was measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Histograms {
    /// Establishing a connection.
    pub connect: Vec<Bucket>,
    /// A transaction.
    pub transaction: Vec<Bucket>,
    /// Ending a connection.
    pub disconnect: Vec<Bucket>,
    /// From the moment a transaction was meant to begin to its end; only with a rate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub response: Vec<Bucket>,
}

impl Cell {
    /// Geometric mean over the rounds of the throughput with connecting included, per second: the quotient of two of
    /// them is the ratio that the report gives. 0 if a round had none.
    #[must_use]
    pub fn tps_including(&self) -> f64 {
        self.mean_of(|r| r.tps_including_connecting)
    }

    /// The same with connecting taken off.
    #[must_use]
    pub fn tps_excluding(&self) -> f64 {
        self.mean_of(|r| r.tps_excluding_connecting)
    }

    /// Median over the rounds of something of the first connection, microseconds.
    #[must_use]
    pub fn first(&self, of: impl Fn(&FirstConnection) -> Option<f64>) -> f64 {
        let mut values: Vec<f64> = self.rounds.iter().filter_map(|r| of(r.first.as_ref()?)).collect();
        values.sort_unstable_by(f64::total_cmp);
        quantile(&values, 0.5)
    }

    fn mean_of(&self, of: impl Fn(&Round) -> f64) -> f64 {
        let logarithms: f64 = self.rounds.iter().map(|r| of(r).ln()).sum();
        (logarithms / self.rounds.len() as f64).exp()
    }
}

/// managed / direct of one mode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ModeRatio {
    /// The mode.
    pub mode: Mode,
    /// Of the throughput with connecting included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tps_including_connecting: Option<Ratio>,
    /// Of the throughput with connecting taken off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tps_excluding_connecting: Option<Ratio>,
}

/// The whole experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Reconnect {
    /// What was asked for.
    pub settings: Settings,
    /// The combinations that were measured.
    pub cells: Vec<Cell>,
    /// managed / direct per mode, where both were measured: geometric mean over the rounds.
    pub ratios: Vec<ModeRatio>,
    /// Whether it was ended before its time.
    pub interrupted: bool,
    /// What a reader must know besides.
    pub notes: Vec<String>,
}

impl Reconnect {
    /// The result of `cells`, with the ratios computed.
    #[must_use]
    pub fn of(settings: Settings, cells: Vec<Cell>, interrupted: bool, notes: Vec<String>) -> Self {
        let find = |mode, side| cells.iter().find(|c| c.mode == mode && c.side == side);
        let ratios = Mode::ALL
            .into_iter()
            .filter_map(|mode| {
                let (direct, managed) = (find(mode, Side::Direct)?, find(mode, Side::Managed)?);
                let compare = |of: fn(&Round) -> f64| {
                    let a: Vec<f64> = managed.rounds.iter().map(of).collect();
                    let b: Vec<f64> = direct.rounds.iter().map(of).collect();
                    paired_ratio(&a, &b)
                };
                Some(ModeRatio {
                    mode,
                    tps_including_connecting: compare(|r| r.tps_including_connecting),
                    tps_excluding_connecting: compare(|r| r.tps_excluding_connecting),
                })
            })
            .collect();
        Self { settings, cells, ratios, interrupted, notes }
    }

    /// The combination, if it was measured.
    #[must_use]
    pub fn cell(&self, mode: Mode, side: Side) -> Option<&Cell> {
        self.cells.iter().find(|c| c.mode == mode && c.side == side)
    }

    /// managed / direct of the throughput with connecting included.
    #[must_use]
    pub fn ratio(&self, mode: Mode) -> Option<Ratio> {
        self.ratios.iter().find(|r| r.mode == mode)?.tps_including_connecting
    }

    /// Whether anything failed.
    #[must_use]
    pub fn any_failure(&self) -> bool {
        self.cells.iter().any(|c| !c.failures.is_empty())
    }
}
