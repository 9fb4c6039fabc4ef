//! A profile that was written as JSON, read back for a report: its times in series, its failures counted, and the rows of
//! the server's side. How a report shows it is in `exhibits`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::reporter::Surroundings;
use super::{Collector, Event, Metric, Plan, Populations, Provoked, Reached, Sample};
use crate::failure::{self, FailureCount, Failures};
use crate::report::{Experiment, Report};
use crate::server_view::Row;

/// A profile in a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Recorded {
    /// What was asked for.
    pub plan: Plan,
    /// How the server was reached.
    pub reached: Reached,
    /// What was provoked before the connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provoked: Option<Provoked>,
    /// The times: connections first, then each statement.
    pub series: Vec<Series>,
    /// The joined table of the client's and the server's views.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server_view: Vec<Row>,
    /// What failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FailureCount>,
    /// What could not be seen of the server, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Whether it was ended before its time.
    #[serde(default)]
    pub interrupted: bool,
}

/// The times of one phase, in the order in which they were taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Series {
    /// Name of the phase, as elsewhere in the output.
    pub phase: String,
    /// Of which statement, from 1; absent for connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<u32>,
    /// The times.
    pub samples: Vec<Sample>,
}

impl Series {
    /// Its first, second and later ones.
    pub(super) fn populations(&self) -> Populations {
        Populations::of(&self.samples)
    }

    /// What it is the time of; `None` for a phase that this version does not know.
    pub(super) fn metric(&self) -> Option<Metric> {
        Metric::from_name(&self.phase)
    }
}

/// What is read of a profile's JSON. Its summary is not: it is made again of the events.
#[derive(Deserialize)]
struct Document {
    interrupted: bool,
    environment: Surroundings,
    plan: Plan,
    provoked: Option<Provoked>,
    server_view: Option<View>,
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct View {
    rows: Vec<Row>,
    notes: Vec<String>,
}

impl Report {
    /// Of the document that `profile --format json` writes.
    ///
    /// # Errors
    /// When it is none.
    pub(crate) fn of_profile(document: Value) -> serde_json::Result<Report> {
        let Document { interrupted, environment, plan, provoked, server_view, events } =
            Document::deserialize(document)?;
        let Surroundings { mut general, reached } = environment;
        general.targets.extend(reached.target.iter().map(|target| ("target".to_owned(), target.clone())));
        let (rows, notes) = server_view.map_or_else(Default::default, |view| (view.rows, view.notes));
        let profile = Recorded {
            series: series(&events, &plan),
            failures: failures(&events),
            plan,
            reached,
            provoked,
            server_view: rows,
            notes,
            interrupted,
        };
        let mut report = Report::new(profile.title(), general);
        report.findings = profile.findings();
        report.profile = Some(profile);
        Ok(report)
    }
}

fn series(events: &[Event], plan: &Plan) -> Vec<Series> {
    let mut collector = Collector::new(plan.protocol);
    events.iter().for_each(|event| collector.add(event));
    collector
        .series()
        .map(|(query, metric, samples)| Series { phase: metric.name().to_owned(), query, samples: samples.to_vec() })
        .collect()
}

fn failures(events: &[Event]) -> Vec<FailureCount> {
    let mut failures = Failures::default();
    for event in events {
        let Some(failure) = event.failure() else { continue };
        let step = match event {
            Event::Connect(_) => failure::Step::Connect,
            Event::Statement(_) => failure::Step::Transaction,
            Event::Disconnect(_) => failure::Step::Disconnect,
        };
        let cause = match (&failure.sqlstate, failure.errno) {
            (Some(sqlstate), _) => sqlstate.clone(),
            (None, Some(errno)) => format!("errno {errno}"),
            (None, None) => failure.error_kind.clone(),
        };
        failures.count(failure::Failure { step, cause, message: failure.message.clone() });
    }
    failures.counts()
}
