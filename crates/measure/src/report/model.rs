//! The data of a report. Keys carry their unit (`_us`); the version changes when a key changes its meaning.

use serde::{Deserialize, Serialize};

use super::environment::Environment;
use super::exhibit::Experiment;
use crate::cold::Cold;
use crate::doctor::Diagnosis;
use crate::failure::FailureCount;
use crate::prewarm::Prewarm;
use crate::profile::Recorded;
use crate::reconnect::Reconnect;
use crate::stats::Summary;
use crate::storm::Storm;
use crate::tables::Tables;
use crate::target::Side;

/// Version of the data model, as `schema_version` in JSON.
pub const SCHEMA_VERSION: u32 = 1;

/// Everything that one run of an experiment found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Report {
    /// [`SCHEMA_VERSION`] when it was written.
    pub schema_version: u32,
    /// For the head of the page.
    pub title: String,
    /// Where and with what it was measured.
    pub environment: Environment,
    /// What follows from the numbers, in sentences.
    pub findings: Vec<Finding>,
    /// First and later connections, one series per side.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<ConnectionSeries>,
    /// First and later runs of a statement, one series per protocol and side.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protocols: Vec<ProtocolSeries>,
    /// Static connections against reconnecting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reconnect: Option<Reconnect>,
    /// Connecting many clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storm: Option<Storm>,
    /// What a server's connections suffer from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doctor: Option<Diagnosis>,
    /// First connections and first queries after a restart, or without the init files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold: Option<Cold>,
    /// How the number of tables in use matters, for any targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tables: Option<Tables>,
    /// What warming a fresh connection takes away from a statement's first run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prewarm: Option<Prewarm>,
    /// Connections and statements, phase by phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Recorded>,
    /// What could not be measured, and other things that a reader must know.
    pub notes: Vec<String>,
}

impl Report {
    /// A report without results yet.
    #[must_use]
    pub fn new(title: impl Into<String>, environment: Environment) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            title: title.into(),
            environment,
            findings: Vec::new(),
            connections: Vec::new(),
            protocols: Vec::new(),
            reconnect: None,
            storm: None,
            doctor: None,
            cold: None,
            tables: None,
            prewarm: None,
            profile: None,
            notes: Vec::new(),
        }
    }

    /// The results that show themselves by exhibits, in the order of the report.
    #[must_use]
    pub fn experiments(&self) -> Vec<&dyn Experiment> {
        let mut all: Vec<&dyn Experiment> = Vec::new();
        if self.connections.iter().any(|s| !s.samples.is_empty() || !s.failures.is_empty()) {
            all.push(&self.connections);
        }
        if self.protocols.iter().any(|s| !s.runs_us.is_empty() || !s.failures.is_empty()) {
            all.push(&self.protocols);
        }
        all.extend(self.reconnect.as_ref().map(|r| r as &dyn Experiment));
        all.extend(self.storm.as_ref().map(|s| s as &dyn Experiment));
        all.extend(self.doctor.as_ref().map(|d| d as &dyn Experiment));
        all.extend(self.cold.as_ref().map(|r| r as &dyn Experiment));
        all.extend(self.tables.as_ref().map(|r| r as &dyn Experiment));
        all.extend(self.prewarm.as_ref().map(|p| p as &dyn Experiment));
        all.extend(self.profile.as_ref().filter(|p| !p.is_empty()).map(|p| p as &dyn Experiment));
        all
    }

    /// Whether any of its experiments counted a failure.
    #[must_use]
    pub fn any_failure(&self) -> bool {
        self.experiments().into_iter().any(|e| !e.failures().is_empty())
    }

    /// Whether any of its experiments was ended before its time.
    #[must_use]
    pub fn interrupted(&self) -> bool {
        self.experiments().into_iter().any(Experiment::interrupted)
    }

    /// All numbers, indented, with a line feed at the end.
    ///
    /// # Errors
    /// None that a report can cause: its keys are texts.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    /// The samples or rounds of all experiments, each with a heading of its own; an empty line between them.
    #[must_use]
    pub fn csv(&self) -> String {
        self.experiments().into_iter().map(Experiment::csv).collect::<Vec<_>>().join("\n")
    }
}

/// Whether a finding is good news.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Tone {
    /// Fast, or faster.
    Good,
    /// Neither.
    Neutral,
    /// Slow, or slower.
    Bad,
}

/// One sentence that follows from the numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Finding {
    /// Good news or not.
    pub tone: Tone,
    /// The sentence.
    pub text: String,
}

/// A part of a connection's time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PhaseTime {
    /// The phase's name, as everywhere in this program.
    pub phase: String,
    /// How long it took.
    pub us: f64,
}

/// One connection of a series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ConnectionSample {
    /// Position in the series, from 1.
    pub number: u32,
    /// Its phases in order.
    pub phases: Vec<PhaseTime>,
    /// From the start to ReadyForQuery. What lies between the phases is in it as well.
    pub connect_us: f64,
    /// Its first statement; absent if that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statement_us: Option<f64>,
}

/// Connections made one after the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ConnectionSeries {
    /// How they reached the server.
    pub side: Side,
    /// What happened right before the first one.
    pub after: String,
    /// The statement that each ran.
    pub statement: String,
    /// The connections, in order.
    pub samples: Vec<ConnectionSample>,
    /// What failed.
    pub failures: Vec<FailureCount>,
}

impl ConnectionSeries {
    /// Establishing the connections.
    #[must_use]
    pub fn connect(&self) -> Option<Summary> {
        Summary::of(&self.samples.iter().map(|s| s.connect_us).collect::<Vec<_>>())
    }

    /// Their first statements.
    #[must_use]
    pub fn statement(&self) -> Option<Summary> {
        Summary::of(&self.samples.iter().filter_map(|s| s.statement_us).collect::<Vec<_>>())
    }
}

/// A statement run several times in each of several fresh connections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProtocolSeries {
    /// How the connections reached the server.
    pub side: Side,
    /// `simple`, `extended` or `prepared`.
    pub protocol: String,
    /// The statement.
    pub statement: String,
    /// For each connection, its runs in order, microseconds.
    pub runs_us: Vec<Vec<f64>>,
    /// What failed.
    pub failures: Vec<FailureCount>,
}

impl ProtocolSeries {
    /// The first run of each connection.
    #[must_use]
    pub fn first(&self) -> Vec<f64> {
        self.runs_us.iter().filter_map(|c| c.first().copied()).collect()
    }

    /// The third and later runs of each connection; the second still fills caches.
    #[must_use]
    pub fn later(&self) -> Vec<f64> {
        self.runs_us.iter().flat_map(|c| c.iter().skip(2).copied()).collect()
    }
}
