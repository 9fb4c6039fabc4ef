//! What is shown of one report or of several, in the order of reading, before it is drawn: one shape for the terminal, for
//! Markdown and for the page.

use super::exhibit::{Exhibit, Experiment, Table};
use super::facts::facts;
use super::findings::glance_table;
use super::model::{Finding, Report};
use crate::failure::FailureCount;

/// Everything that is shown.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Document {
    /// For the head.
    pub title: String,
    /// Below it: what, when, with what.
    pub subtitle: String,
    /// What follows from the numbers.
    pub findings: Vec<Finding>,
    /// The two sides in one table.
    pub glance: Option<Table>,
    /// One for each experiment.
    pub sections: Vec<Section>,
    /// What a reader must know besides.
    pub notes: Vec<String>,
    /// Where and with what it was measured; each list with a heading, which may be empty.
    pub surroundings: Vec<(String, Vec<(String, String)>)>,
}

/// One experiment, or one comparison.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Section {
    /// The heading.
    pub title: String,
    /// What was done.
    pub method: String,
    /// What follows; said here only where the document does not say it at its head.
    pub findings: Vec<Finding>,
    /// Tables and charts.
    pub exhibits: Vec<Exhibit>,
    /// What failed, and whose it was.
    pub failures: Vec<(String, FailureCount)>,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// Whether it was ended before its time.
    pub interrupted: bool,
}

impl Section {
    /// An experiment without its sentences.
    pub(super) fn of(experiment: &dyn Experiment) -> Self {
        Self {
            title: experiment.title(),
            method: experiment.method(),
            findings: Vec::new(),
            exhibits: experiment.exhibits(),
            failures: experiment.failures(),
            notes: experiment.notes(),
            interrupted: experiment.interrupted(),
        }
    }
}

impl Document {
    /// Of one report.
    #[must_use]
    pub fn of(report: &Report) -> Self {
        let e = &report.environment;
        let server = e.server.as_ref().map_or_else(String::new, |s| format!("PostgreSQL {} · ", s.version));
        Self {
            title: report.title.clone(),
            subtitle: format!("{server}{} · {}", e.started_at, e.tool),
            findings: report.findings.clone(),
            glance: glance_table(report),
            sections: report.experiments().into_iter().map(Section::of).collect(),
            notes: report.notes.clone(),
            surroundings: vec![(String::new(), facts(e))],
        }
    }
}
