//! From events to statistics. First, second and later ones are three populations and stay apart: the first pays for
//! cold caches, and an average over all of them would describe none.
//!
//! For connections, the first is connection 1 of the whole profile. For statements it is run 1 on each connection,
//! for each backend is cold once.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{AttemptRecord, Event, Failure, Metric, Protocol, Step};
use crate::stats::Distribution;

/// The three populations of one metric.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Populations {
    /// How many samples in all.
    pub n: u64,
    /// The first ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<Distribution>,
    /// The second ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second: Option<Distribution>,
    /// The third and all later ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steady: Option<Distribution>,
}

/// A line of the summary.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SummaryRow {
    /// Which metric.
    #[serde(rename = "phase", serialize_with = "name")]
    pub metric: Metric,
    /// Of which statement, from 1; absent for connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<u32>,
    /// Its statistics.
    #[serde(flatten)]
    pub populations: Populations,
}

fn name<S: serde::Serializer>(metric: &Metric, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(metric.name())
}

/// One time that was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Sample {
    /// Number of its connection, from 1.
    pub connection: u32,
    /// Number of the run on that connection, from 1; absent for connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<u32>,
    /// How long it took.
    pub us: f64,
}

impl Sample {
    /// Its place among those that it is compared with, from 1.
    pub(super) fn at(&self) -> u32 {
        self.run.unwrap_or(self.connection)
    }
}

/// Collects samples and failures.
#[derive(Clone, Debug)]
pub struct Collector {
    protocol: Protocol,
    series: BTreeMap<(Option<u32>, Metric), Vec<Sample>>,
    failures: Vec<Failure>,
    failed: u64,
}

/// How many failures are kept with their text; all are counted.
const MAX_FAILURES: usize = 1000;

impl Collector {
    /// For a profile in this protocol.
    pub fn new(protocol: Protocol) -> Self {
        Collector { protocol, series: BTreeMap::new(), failures: Vec::new(), failed: 0 }
    }

    /// Takes an event in. Of failed ones only the failure counts.
    pub fn add(&mut self, event: &Event) {
        if let Some(failure) = event.failure() {
            self.failed += 1;
            if self.failures.len() < MAX_FAILURES {
                self.failures.push(failure.clone());
            }
            return;
        }
        match event {
            Event::Connect(event) => {
                let at = (event.connection, None);
                self.push(None, Metric::CreateConnection, at, Some(event.total_us));
                if let Some(attempt) = event.attempts.last() {
                    for (metric, time) in phases(attempt) {
                        self.push(None, metric, at, time);
                    }
                }
            }
            Event::Statement(event) => {
                let (query, at) = (Some(event.query), (event.connection, Some(event.run)));
                let whole = match event.step {
                    Step::Prepare => Metric::Prepare,
                    Step::Run => Metric::of_run(self.protocol),
                };
                self.push(query, whole, at, event.total_us);
                self.push(query, Metric::ParseDescribeSync, at, event.parse_describe_sync_us);
                self.push(query, Metric::BindExecuteSync, at, event.bind_execute_sync_us);
                if event.step == Step::Run {
                    self.push(query, Metric::FirstByte, at, event.first_byte_us);
                    self.push(query, Metric::LastRow, at, event.last_row_us);
                }
            }
            Event::Disconnect(event) => {
                self.push(None, Metric::Disconnect, (event.connection, None), event.disconnect_us);
            }
        }
    }

    fn push(&mut self, query: Option<u32>, metric: Metric, (connection, run): (u32, Option<u32>), us: Option<f64>) {
        if let Some(us) = us {
            self.series.entry((query, metric)).or_default().push(Sample { connection, run, us });
        }
    }

    /// What was collected: of which statement, which metric, its samples. In the order of [`Self::summary`].
    pub(super) fn series(&self) -> impl Iterator<Item = (Option<u32>, Metric, &[Sample])> {
        self.series.iter().map(|((query, metric), samples)| (*query, *metric, samples.as_slice()))
    }

    /// The summary: connections first, then each statement, in the order of [`Metric::ALL`].
    pub fn summary(&self) -> Vec<SummaryRow> {
        self.series
            .iter()
            .map(|((query, metric), samples)| SummaryRow {
                metric: *metric,
                query: *query,
                populations: Populations::of(samples),
            })
            .collect()
    }

    /// What failed: the first thousand.
    pub fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// How many failed.
    pub fn failed(&self) -> u64 {
        self.failed
    }
}

impl Populations {
    pub(super) fn of(samples: &[Sample]) -> Self {
        let pick = |wanted: fn(u32) -> bool| {
            let times: Vec<f64> = samples.iter().filter(|sample| wanted(sample.at())).map(|sample| sample.us).collect();
            Distribution::of(&times)
        };
        Populations {
            n: samples.len() as u64,
            first: pick(|at| at == 1),
            second: pick(|at| at == 2),
            steady: pick(|at| at > 2),
        }
    }
}

/// The phases of an attempt as metrics.
pub(super) fn phases(attempt: &AttemptRecord) -> [(Metric, Option<f64>); 9] {
    let phases = &attempt.phases;
    [
        (Metric::Resolve, phases.resolve_us),
        (Metric::Connect, phases.connect_us),
        (Metric::QueueFork, phases.queue_fork_us),
        (Metric::Tls, phases.tls_us),
        (Metric::Startup, phases.startup_us),
        (Metric::Authenticate, phases.authenticate_us),
        (Metric::ClientCrypto, phases.client_crypto_us),
        (Metric::Ready, phases.ready_us),
        (Metric::SessionCheck, phases.session_check_us),
    ]
}
