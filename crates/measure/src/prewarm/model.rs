//! The data of the experiment, as JSON has it, and what follows from it.

use serde::{Deserialize, Serialize};

use crate::failure::FailureCount;
use crate::profile::Protocol;
use crate::server_view::host::Usage;
use crate::stats::{Distribution, Ratio, share_removed};

/// A way to warm a fresh connection for a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Not at all.
    None,
    /// Parse + Describe + Sync of the unnamed statement.
    Parse,
    /// Parse + Bind + Sync of the unnamed statement.
    Bind,
    /// EXPLAIN of the statement, as a simple query.
    Explain,
}

impl Way {
    /// A word for output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Way::None => "not warmed",
            Way::Parse => "parse",
            Way::Bind => "parse + bind",
            Way::Explain => "EXPLAIN",
        }
    }
}

/// What something took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Cost {
    /// By the client's clock, microseconds.
    pub wall_us: f64,
    /// Of its backend, where that runs on this host.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Usage>,
    /// By how much the backend's resident memory grew, KiB; of warming only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_growth_kib: Option<f64>,
}

/// One connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Sample {
    /// Its round, from 1.
    pub round: u32,
    /// How it was warmed.
    pub way: Way,
    /// What that took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warming: Option<Cost>,
    /// The runs, in order.
    pub runs: Vec<Cost>,
}

/// A statement with its connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Statement {
    /// Its text.
    pub sql: String,
    /// The connections in the order in which they were made.
    pub samples: Vec<Sample>,
}

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Prewarm {
    /// How the runs were sent.
    pub protocol: Protocol,
    /// Rounds that were asked for.
    pub rounds: u32,
    /// Runs on each connection.
    pub runs: u32,
    /// The ways, `none` first.
    pub ways: Vec<Way>,
    /// The statements.
    pub statements: Vec<Statement>,
    /// What failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FailureCount>,
    /// What could not be measured, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Whether it was ended before its time.
    #[serde(default)]
    pub interrupted: bool,
}

/// What one way did for one statement.
#[derive(Clone, Debug, PartialEq)]
pub struct WaySummary {
    /// The way.
    pub way: Way,
    /// First runs after it.
    pub first: Distribution,
    /// Their processor time; absent for servers elsewhere.
    pub first_cpu: Option<Distribution>,
    /// The share of the first run's excess over a second run that is gone, by the clock.
    pub removed: Option<Ratio>,
    /// The same by the backend's processor time.
    pub removed_cpu: Option<Ratio>,
    /// What the warming took by the clock.
    pub warming: Option<Distribution>,
    /// Its processor time.
    pub warming_cpu: Option<Distribution>,
    /// Median growth of the backend's resident memory by it, KiB.
    pub warming_kib: Option<f64>,
}

impl Statement {
    /// The times of a run (from 0) after a way.
    pub(super) fn run(&self, way: Way, at: usize) -> Vec<&Cost> {
        self.samples.iter().filter(|s| s.way == way).filter_map(|s| s.runs.get(at)).collect()
    }

    /// The third and later runs of connections that were not warmed.
    pub(super) fn steady(&self) -> Vec<&Cost> {
        self.samples.iter().filter(|s| s.way == Way::None).flat_map(|s| s.runs.iter().skip(2)).collect()
    }

    /// What a way did.
    #[must_use]
    pub fn summary(&self, way: Way) -> Option<WaySummary> {
        let cold = self.run(Way::None, 0);
        // What an earlier execution gives: nothing that only warms can do better.
        let second = self.run(Way::None, 1);
        let first = self.run(way, 0);
        let warming: Vec<&Cost> =
            self.samples.iter().filter(|s| s.way == way).filter_map(|s| s.warming.as_ref()).collect();
        let growths: Vec<f64> = warming.iter().filter_map(|cost| cost.rss_growth_kib).collect();
        let warmed = way != Way::None;
        Some(WaySummary {
            way,
            first: Distribution::of(&walls(&first))?,
            first_cpu: Distribution::of(&cpus(&first)),
            removed: warmed.then(|| share_removed(&walls(&cold), &walls(&first), &walls(&second))).flatten(),
            removed_cpu: warmed.then(|| share_removed(&cpus(&cold), &cpus(&first), &cpus(&second))).flatten(),
            warming: Distribution::of(&walls(&warming)),
            warming_cpu: Distribution::of(&cpus(&warming)),
            warming_kib: Distribution::of(&growths).map(|growth| growth.median),
        })
    }
}

pub(super) fn walls(costs: &[&Cost]) -> Vec<f64> {
    costs.iter().map(|cost| cost.wall_us).collect()
}

pub(super) fn cpus(costs: &[&Cost]) -> Vec<f64> {
    costs.iter().filter_map(|cost| Some(cost.host?.cpu_us)).collect()
}

pub(super) fn faults(costs: &[&Cost]) -> Vec<f64> {
    costs.iter().filter_map(|cost| Some(cost.host?.minor_faults as f64)).collect()
}
