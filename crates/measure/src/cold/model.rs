//! The result of the experiment, as data. One definition of each number, used by all formats.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::files::InitFiles;
use super::per_table::{PerTable, per_tables};
use crate::failure::FailureCount;
use crate::stats::{Distribution, Ratio, paired_ratio, quantile, ratio_of_medians};
use crate::target::Side;

/// What happened right before the first of a row of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// PostgreSQL was restarted; a manager in front of it went on.
    Restart,
    /// PostgreSQL was restarted and the manager started anew after it.
    RestartWithManager,
    /// The init files were removed; PostgreSQL and the manager went on.
    Provoke,
}

impl Event {
    /// All, in the order of the report.
    pub const ALL: [Self; 3] = [Self::Restart, Self::RestartWithManager, Self::Provoke];
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Restart => "a restart of PostgreSQL",
            Self::RestartWithManager => "a restart of PostgreSQL and of the manager",
            Self::Provoke => "the removal of the init files",
        })
    }
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Settings {
    /// Connections in a row after each event.
    pub connections: u32,
    /// How often each combination was measured.
    pub rounds: u32,
    /// Time between the event and the first connection.
    pub pause_seconds: f64,
    /// The statement of each connection, if it is not one over a number of empty tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
}

/// One connection.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Sample {
    /// Position after the event, from 1. Connections that were refused have none.
    pub number: u32,
    /// From the call to ReadyForQuery.
    pub connect_us: f64,
    /// Its first statement; absent if that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query_us: Option<f64>,
    /// The same statement again in the same connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_us: Option<f64>,
    /// Processor time of the backend until it was ready, where it is on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_cpu_us: Option<f64>,
    /// Minor page faults of the backend until it was ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_minor_faults: Option<u64>,
}

impl Sample {
    /// Connecting and the first statement together.
    #[must_use]
    pub fn answer_us(&self) -> Option<f64> {
        Some(self.connect_us + self.query_us?)
    }
}

/// A client that was connected to the manager before PostgreSQL was restarted, and idle meanwhile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Kept {
    /// Its next statement after the connections of the round; absent if that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query_us: Option<f64>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// An event and the connections after it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Round {
    /// From 1.
    pub number: u32,
    /// The connections that were established, in order.
    pub samples: Vec<Sample>,
    /// The init files right before the first connection. Absent: not known, as after a restart, where asking for them
    /// would have been the first connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files_before: Option<InitFiles>,
    /// The init files after the last connection. Absent: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files_after: Option<InitFiles>,
    /// The client that was there before; only through a manager that went on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
}

impl Round {
    /// Something of the connection at this position.
    pub(super) fn at(&self, number: u32, of: &impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        of(self.samples.iter().find(|s| s.number == number)?)
    }

    /// Its median from the third connection on.
    pub(super) fn later(&self, of: &impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        median(self.samples.iter().filter(|s| s.number >= 3).filter_map(of).collect())
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    (!values.is_empty()).then(|| quantile(&values, 0.5))
}

/// The first, the second and the later connections after an event, each over the rounds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Positions {
    /// The first one of each round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Distribution>,
    /// The second one of each round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second: Option<Distribution>,
    /// Each round's median from the third one on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub later: Option<Distribution>,
    /// first / later: geometric mean of the rounds' quotients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_to_later: Option<Ratio>,
}

impl Positions {
    /// Of something of each connection.
    #[must_use]
    pub fn of(rounds: &[&Round], of: impl Fn(&Sample) -> Option<f64>) -> Self {
        let at = |number| rounds.iter().filter_map(|r| r.at(number, &of)).collect::<Vec<f64>>();
        let later: Vec<f64> = rounds.iter().filter_map(|r| r.later(&of)).collect();
        let (a, b): (Vec<f64>, Vec<f64>) = rounds.iter().filter_map(|r| Some((r.at(1, &of)?, r.later(&of)?))).unzip();
        Self {
            first: Distribution::of(&at(1)),
            second: Distribution::of(&at(2)),
            later: Distribution::of(&later),
            first_to_later: paired_ratio(&a, &b),
        }
    }
}

/// All rounds of one combination.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Cell {
    /// What happened before the connections.
    pub event: Event,
    /// How they reached the server.
    pub side: Side,
    /// How many tables there were besides those that the statement touches; absent where none were made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<u32>,
    /// How many tables the statement touches; absent for a statement of the user's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tables: Option<u32>,
    /// The rounds, in order.
    pub rounds: Vec<Round>,
    /// The first statement of each connection.
    pub query: Positions,
    /// The same statement again in the same connection.
    pub again: Positions,
    /// Connecting and the first statement together: what a client waits for its first answer. A manager may put off what it
    /// needs of the server until then.
    pub answer: Positions,
    /// What failed.
    pub failures: Vec<FailureCount>,
}

impl Cell {
    /// With the positions computed.
    #[must_use]
    pub fn of(key: (Event, Side, Option<u32>, Option<u32>), rounds: Vec<Round>, failures: Vec<FailureCount>) -> Self {
        let (event, side, objects, tables) = key;
        let all: Vec<&Round> = rounds.iter().collect();
        let query = Positions::of(&all, |s| s.query_us);
        let again = Positions::of(&all, |s| s.again_us);
        let answer = Positions::of(&all, Sample::answer_us);
        Self { event, side, objects, tables, rounds, query, again, answer, failures }
    }
}

/// Establishing connections, over all cells that differ only in the statement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Connecting {
    /// What happened before.
    pub event: Event,
    /// How the connections reached the server.
    pub side: Side,
    /// How many tables there were besides; absent where none were made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<u32>,
    /// From the call to ReadyForQuery.
    pub connect: Positions,
    /// Processor time of the backends, where they are on this machine.
    pub backend_cpu: Positions,
    /// Median minor page faults of the first backend of a round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_minor_faults: Option<f64>,
    /// The same from the third one on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub later_minor_faults: Option<f64>,
    /// The first connection here / that with the fewest tables, of medians.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_to_fewest_objects: Option<Ratio>,
    /// The same of its backend's processor time, on which what else the machine did while one or the other was measured has
    /// little bearing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_cpu_to_fewest_objects: Option<Ratio>,
    /// The init files after the connections of the last round whose files are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<InitFiles>,
}

/// The whole experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Cold {
    /// What was asked for.
    pub settings: Settings,
    /// Establishing connections.
    pub connecting: Vec<Connecting>,
    /// The combinations that were measured, with every connection.
    pub cells: Vec<Cell>,
    /// What each further table costs, where statements over several numbers of tables were measured.
    pub per_table: Vec<PerTable>,
    /// Whether it was ended before its time.
    pub interrupted: bool,
    /// Whether it ended early because something went wrong; a note says what.
    #[serde(default)]
    pub incomplete: bool,
    /// What a reader must know besides.
    pub notes: Vec<String>,
}

impl Cold {
    /// The result of `cells`, with everything computed that follows from them.
    #[must_use]
    pub fn of(settings: Settings, cells: Vec<Cell>, interrupted: bool, notes: Vec<String>) -> Self {
        let mut groups: Vec<(Event, Side, Option<u32>)> = Vec::new();
        for cell in &cells {
            let group = (cell.event, cell.side, cell.objects);
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        groups.sort_unstable();
        let connecting = groups.iter().map(|group| connecting(&cells, *group)).collect();
        let per_table = per_tables(&cells, &groups);
        Self { settings, connecting, cells, per_table, interrupted, incomplete: false, notes }
    }

    /// Establishing connections after `event`, with the fewest tables.
    #[must_use]
    pub fn with_fewest_objects(&self, event: Event, side: Side) -> Option<&Connecting> {
        self.connecting.iter().find(|c| c.event == event && c.side == side)
    }
}

pub(super) type Group = (Event, Side, Option<u32>);

pub(super) fn members(cells: &[Cell], (event, side, objects): Group) -> impl Iterator<Item = &Cell> {
    cells.iter().filter(move |c| c.event == event && c.side == side && c.objects == objects)
}

fn connecting(cells: &[Cell], group: Group) -> Connecting {
    let (event, side, objects) = group;
    let rounds: Vec<&Round> = members(cells, group).flat_map(|c| &c.rounds).collect();
    let firsts = |group, of: fn(&Sample) -> Option<f64>| -> Vec<f64> {
        members(cells, group).flat_map(|c| &c.rounds).filter_map(|r| r.at(1, &of)).collect()
    };
    let fewest = cells.iter().filter(|c| c.event == event && c.side == side).filter_map(|c| c.objects).min();
    let growth = |of| {
        let fewest = fewest.filter(|fewest| objects > Some(*fewest))?;
        ratio_of_medians(&firsts(group, of), &firsts((event, side, Some(fewest)), of))
    };
    let faults = |s: &Sample| s.backend_minor_faults.map(|n| n as f64);
    Connecting {
        event,
        side,
        objects,
        connect: Positions::of(&rounds, |s| Some(s.connect_us)),
        backend_cpu: Positions::of(&rounds, |s| s.backend_cpu_us),
        first_minor_faults: median(rounds.iter().filter_map(|r| r.at(1, &faults)).collect()),
        later_minor_faults: median(rounds.iter().filter_map(|r| r.later(&faults)).collect()),
        first_to_fewest_objects: growth(|s| Some(s.connect_us)),
        first_cpu_to_fewest_objects: growth(|s| s.backend_cpu_us),
        files: rounds.iter().rev().find_map(|r| r.files_after),
    }
}
