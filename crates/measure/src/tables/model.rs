//! The result of the experiment, as data. One definition of each number, used by all formats.

use serde::{Deserialize, Serialize};

use crate::failure::FailureCount;
use crate::reconnect::Mode;
use crate::stats::{Distribution, Ratio, paired_ratio, quantile};

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Settings {
    /// Clients, each with a thread.
    pub clients: u32,
    /// Length of a run.
    pub seconds: f64,
    /// Runs of each combination.
    pub rounds: u32,
    /// Numbers of tables.
    pub tables: Vec<u32>,
    /// Names of the targets; the first one is what the others are compared with.
    pub targets: Vec<String>,
}

/// One connection made alone before the load, with a few transactions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Alone {
    /// Whether the physical connection behind it is known to be a new one: it is directly, and behind a manager that was
    /// started for this run.
    pub fresh: bool,
    /// Establishing it.
    pub connect_us: f64,
    /// The first transaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_us: Option<f64>,
    /// The second one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_us: Option<f64>,
    /// Median of the third and later ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub later_us: Option<f64>,
}

/// What the server did with its catalogs for each statement of the clients, under load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Catalog {
    /// Queries about catalogs per statement, by their text in `pg_stat_statements`. Absent: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queries_per_statement: Option<f64>,
    /// Scans of catalogs per statement: what backends do to fill their private caches, and what queries about catalogs do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scans_per_statement: Option<f64>,
}

/// One run of one combination.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Round {
    /// From 1.
    pub number: u32,
    /// From the moment the clients were released to the end of the last one.
    pub wall_seconds: f64,
    /// Transactions that succeeded: each is one statement per table.
    pub transactions: u64,
    /// Transactions that failed.
    pub failed_transactions: u64,
    /// Connections that were established.
    pub connections: u64,
    /// Connections that were not.
    pub failed_connections: u64,
    /// `transactions / wall_seconds`, connecting included.
    pub tps: f64,
    /// Mean time of a transaction, without connecting.
    pub latency_average_us: f64,
    /// The connection before the load; absent if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone: Option<Alone>,
    /// What the server did with its catalogs.
    pub catalog: Catalog,
}

/// All runs of one combination.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Cell {
    /// How many tables a transaction reads.
    pub tables: u32,
    /// Whether clients kept their connection.
    pub mode: Mode,
    /// Which target.
    pub target: String,
    /// The runs, in order.
    pub rounds: Vec<Round>,
    /// Establishing a connection under load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect: Option<Distribution>,
    /// A transaction under load, without connecting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transaction: Option<Distribution>,
    /// What failed.
    pub failures: Vec<FailureCount>,
}

impl Cell {
    /// Geometric mean over the runs, per second; 0 if a run had no transaction.
    #[must_use]
    pub fn tps(&self) -> f64 {
        let logarithms: f64 = self.rounds.iter().map(|r| r.tps.ln()).sum();
        (logarithms / self.rounds.len() as f64).exp()
    }

    /// Median over the runs of something of the connection alone.
    #[must_use]
    pub fn alone(&self, of: impl Fn(&Alone) -> Option<f64>) -> Option<f64> {
        self.median(|r| of(r.alone.as_ref()?))
    }

    /// Median over the runs of something of the catalog work.
    #[must_use]
    pub fn catalog(&self, of: impl Fn(&Catalog) -> Option<f64>) -> Option<f64> {
        self.median(|r| of(&r.catalog))
    }

    /// first / later of the connection alone.
    #[must_use]
    pub fn first_to_later(&self) -> Option<Ratio> {
        let (first, later): (Vec<f64>, Vec<f64>) = self
            .rounds
            .iter()
            .filter_map(|r| r.alone.as_ref())
            .filter_map(|a| Some((a.first_us?, a.later_us?)))
            .unzip();
        paired_ratio(&first, &later)
    }

    fn median(&self, of: impl Fn(&Round) -> Option<f64>) -> Option<f64> {
        let mut values: Vec<f64> = self.rounds.iter().filter_map(of).collect();
        values.sort_unstable_by(f64::total_cmp);
        (!values.is_empty()).then(|| quantile(&values, 0.5))
    }
}

/// How a target compares with the first one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Comparison {
    /// How many tables a transaction reads.
    pub tables: u32,
    /// Whether clients kept their connection.
    pub mode: Mode,
    /// Which target.
    pub target: String,
    /// Throughput / that of the first target: geometric mean over the runs.
    pub tps: Ratio,
}

/// The whole experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Tables {
    /// What was asked for.
    pub settings: Settings,
    /// The combinations that were measured.
    pub cells: Vec<Cell>,
    /// Each other target against the first one.
    pub comparisons: Vec<Comparison>,
    /// Whether it was ended before its time.
    pub interrupted: bool,
    /// Whether it ended early because something went wrong; a note says what.
    #[serde(default)]
    pub incomplete: bool,
    /// What a reader must know besides.
    pub notes: Vec<String>,
}

impl Tables {
    /// The result of `cells`, with the comparisons computed.
    #[must_use]
    pub fn of(settings: Settings, cells: Vec<Cell>, interrupted: bool, notes: Vec<String>) -> Self {
        let comparisons = comparisons(&settings, &cells);
        Self { settings, cells, comparisons, interrupted, incomplete: false, notes }
    }

    /// The combination, if it was measured.
    #[must_use]
    pub fn cell(&self, tables: u32, mode: Mode, target: &str) -> Option<&Cell> {
        self.cells.iter().find(|c| c.tables == tables && c.mode == mode && c.target == target)
    }

    /// How `target` compares with the first one.
    #[must_use]
    pub fn comparison(&self, tables: u32, mode: Mode, target: &str) -> Option<Ratio> {
        let found = self.comparisons.iter().find(|c| c.tables == tables && c.mode == mode && c.target == target);
        found.map(|c| c.tps)
    }
}

/// Runs of the same number belong together.
fn comparisons(settings: &Settings, cells: &[Cell]) -> Vec<Comparison> {
    let Some((base, others)) = settings.targets.split_first() else {
        return Vec::new();
    };
    let find =
        |tables, mode, target: &str| cells.iter().find(|c| c.tables == tables && c.mode == mode && c.target == *target);
    let mut all = Vec::new();
    for mode in Mode::ALL {
        for tables in &settings.tables {
            for target in others {
                let (Some(cell), Some(base)) = (find(*tables, mode, target), find(*tables, mode, base)) else {
                    continue;
                };
                let (a, b): (Vec<f64>, Vec<f64>) = cell
                    .rounds
                    .iter()
                    .filter_map(|r| Some((r.tps, base.rounds.iter().find(|b| b.number == r.number)?.tps)))
                    .unzip();
                if let Some(tps) = paired_ratio(&a, &b) {
                    all.push(Comparison { tables: *tables, mode, target: target.clone(), tps });
                }
            }
        }
    }
    all
}
