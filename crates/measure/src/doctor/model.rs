//! What an examination leaves behind: findings with their evidence, what could not be examined and why, and the times
//! that were measured on the way. Plain data, written as JSON; drawing it is in [`super::text`] and `report`.

use serde::{Deserialize, Serialize};

use super::id::Id;

/// How much a finding matters. Greater is worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing; nobody suffers now.
    Notice,
    /// Costs time on many connections or statements, or is about to fail.
    Warning,
    /// Clients fail, or are about to.
    Critical,
}

impl Severity {
    /// As in output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// A number (with its unit) or a word that a finding rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// What it is.
    pub name: String,
    /// Its value, with the unit.
    pub value: String,
    /// Where it comes from: a view, a setting, a file, or "measured".
    pub source: String,
}

/// Who pays a cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    /// Each new connection.
    Connection,
    /// Each run of a statement.
    Statement,
    /// The first run of a statement on each new connection.
    FirstStatement,
}

impl Per {
    /// As in "2.1 ms per ...".
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Statement => "statement",
            Self::FirstStatement => "first run of a statement on a connection",
        }
    }
}

/// What a finding costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Cost {
    /// It was measured.
    Measured {
        /// Who pays it.
        per: Per,
        /// Microseconds.
        cost_us: f64,
        /// How it was measured.
        how: String,
    },
    /// It was not.
    NotMeasured {
        /// Why, and what would measure it.
        reason: String,
    },
}

impl Cost {
    /// A measured one.
    pub(super) fn measured(per: Per, cost_us: f64, how: impl Into<String>) -> Self {
        Self::Measured { per, cost_us, how: how.into() }
    }

    /// One that was not measured.
    pub(super) fn unknown(reason: impl Into<String>) -> Self {
        Self::NotMeasured { reason: reason.into() }
    }

    /// Microseconds, if it was measured.
    #[must_use]
    pub fn us(&self) -> Option<f64> {
        match self {
            Self::Measured { cost_us, .. } => Some(*cost_us),
            Self::NotMeasured { .. } => None,
        }
    }
}

/// What mends a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cure {
    /// What kind of thing it is.
    pub kind: CureKind,
    /// The line, the statement, the command or the advice.
    pub text: String,
}

/// Where a cure is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CureKind {
    /// A line for postgresql.conf; the server rereads it with `pg_ctl reload`.
    Reload,
    /// A line for postgresql.conf that needs a restart.
    Restart,
    /// SQL.
    Sql,
    /// A command of a shell.
    Command,
    /// What an application or its owner does differently.
    Habit,
}

impl Cure {
    /// The words in front of its text.
    #[must_use]
    pub fn place(&self) -> &'static str {
        match self.kind {
            CureKind::Reload => "postgresql.conf, then reload",
            CureKind::Restart => "postgresql.conf, then restart",
            CureKind::Sql => "SQL",
            CureKind::Command => "command",
            CureKind::Habit => "advice",
        }
    }
}

/// Something that makes connections slow or is about to make them fail.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Stable name.
    pub id: Id,
    /// How much it matters.
    pub severity: Severity,
    /// What is wrong, in a sentence.
    pub what: String,
    /// What the sentence rests on.
    pub evidence: Vec<Evidence>,
    /// What it costs.
    pub cost: Cost,
    /// What mends it, the first one first.
    pub cures: Vec<Cure>,
}

impl Finding {
    /// A finding to which evidence, cost and cures are added.
    pub(super) fn new(id: Id, severity: Severity, what: impl Into<String>) -> Self {
        let cost = Cost::unknown("it is not a matter of time");
        Self { id, severity, what: what.into(), evidence: Vec::new(), cost, cures: Vec::new() }
    }

    pub(super) fn evidence(mut self, name: &str, value: impl Into<String>, source: impl Into<String>) -> Self {
        self.evidence.push(Evidence { name: name.to_owned(), value: value.into(), source: source.into() });
        self
    }

    pub(super) fn cost(mut self, cost: Cost) -> Self {
        self.cost = cost;
        self
    }

    pub(super) fn cure(mut self, kind: CureKind, text: impl Into<String>) -> Self {
        self.cures.push(Cure { kind, text: text.into() });
        self
    }
}

/// An examination that could not be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotExamined {
    /// What would have been looked at.
    pub what: String,
    /// Why not.
    pub reason: String,
    /// What would allow it; may be empty.
    pub remedy: String,
}

/// A time that was measured, microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// `connection`, a phase of it, `round trip`, or what else.
    pub name: String,
    /// How often.
    pub n: u64,
    /// Median.
    pub median_us: f64,
    /// The least.
    pub min_us: f64,
    /// The most.
    pub max_us: f64,
}

/// How the server was reached.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Reached {
    /// As in `localhost:5432 (127.0.0.1)`.
    pub target: String,
    /// Database.
    pub database: String,
    /// Role.
    pub user: String,
    /// `server_version`.
    pub server_version: String,
    /// `directly`, or through which manager.
    pub through: String,
    /// `Unix socket`, `loopback` or `network`, and TLS if there is any.
    pub transport: String,
    /// Whether the server's processes can be seen from here.
    pub same_machine: bool,
    /// How much the role may see: `superuser`, `pg_monitor` or `ordinary role`.
    pub rights: String,
}

/// All of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// How the server was reached.
    pub reached: Reached,
    /// The worst first; among equals the most expensive.
    pub findings: Vec<Finding>,
    /// What could not be examined.
    pub not_examined: Vec<NotExamined>,
    /// What was examined, whether something was found or not.
    pub examined: Vec<String>,
    /// Times that were measured.
    pub measurements: Vec<Measurement>,
    /// Connections that were opened for measuring.
    pub connections_opened: u32,
    /// How long it took, microseconds.
    pub elapsed_us: f64,
    /// Why it ended early: the server went away. What was found before is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    /// Whether a person ended it early.
    pub interrupted: bool,
}

impl Diagnosis {
    /// The severity of the worst finding.
    #[must_use]
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|f| f.severity).max()
    }

    /// How many findings have this severity.
    #[must_use]
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|f| f.severity == severity).count()
    }
}

/// Puts the worst first, and among equals the most expensive.
pub(super) fn rank(findings: &mut [Finding]) {
    let cost = |f: &Finding| f.cost.us().unwrap_or(-1.0);
    findings.sort_by(|a, b| b.severity.cmp(&a.severity).then(cost(b).total_cmp(&cost(a))));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_and_then_the_most_expensive_come_first() {
        let with = |severity, cost: Option<f64>| {
            let cost = cost.map_or(Cost::unknown("why"), |us| Cost::measured(Per::Connection, us, "how"));
            Finding::new(Id::LogHostname, severity, "x").cost(cost)
        };
        let mut list = vec![
            with(Severity::Notice, Some(9e9)),
            with(Severity::Warning, None),
            with(Severity::Warning, Some(1.0)),
            with(Severity::Critical, None),
            with(Severity::Warning, Some(5.0)),
        ];
        rank(&mut list);
        let order: Vec<_> = list.iter().map(|f| (f.severity.name(), f.cost.us())).collect();
        assert_eq!(
            order,
            [
                ("critical", None),
                ("warning", Some(5.0)),
                ("warning", Some(1.0)),
                ("warning", None),
                ("notice", Some(9e9)),
            ]
        );
    }

    #[test]
    fn costs_carry_their_unit_in_json() {
        let json = serde_json::to_value(Cost::measured(Per::Connection, 12.5, "so")).expect("json");
        assert_eq!(json["cost_us"], 12.5);
        assert_eq!(json["per"], "connection");
        assert_eq!(json["kind"], "measured");
    }
}
