//! The joined table as data: for each phase, what the client saw, what the server's views say of the same time, and what
//! none of them sees.
//!
//! Nothing is counted twice. The views overlap (pg_stat_statements counts a part of what the log counts as bind and
//! execute), so they are never added to each other: what none of them sees is the client's time less that of the *widest*
//! view. Differences are taken sample by sample and their median is told; the difference of two medians would be another
//! number.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::counts::Counted;
use super::host::Usage;
use super::samples::{ConnectSample, RunSample, Samples};
use crate::profile::{Metric, PhaseTimes, Protocol, Step};
use crate::stats::quantile;

/// Which samples of a series: the first pays for cold caches and is never averaged into the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Population {
    /// Connection 1, or run 1 of each connection.
    First,
    /// The second.
    Second,
    /// The third and all later ones.
    Steady,
}

impl Population {
    /// All, in order.
    pub const ALL: [Self; 3] = [Self::First, Self::Second, Self::Steady];

    /// Of the sample with this number, from 1.
    #[must_use]
    pub fn of(number: u32) -> Self {
        match number {
            0 | 1 => Self::First,
            2 => Self::Second,
            _ => Self::Steady,
        }
    }

    /// A word for tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Second => "second",
            Self::Steady => "steady",
        }
    }
}

/// A row: one phase in one population. Times are medians in microseconds; what is absent was not seen by that view.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Row {
    /// Name of the phase, as elsewhere in the output, or of a part that only the server sees.
    pub phase: String,
    /// Of which statement, from 1; absent for connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<u32>,
    /// Whether it is a part of a row above it.
    pub is_part: bool,
    /// `first`, `second` or `steady`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Population>,
    /// How many samples.
    pub n: u64,
    /// The client's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_us: Option<f64>,
    /// The server's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_us: Option<f64>,
    /// Planning, by pg_stat_statements: the mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_us: Option<f64>,
    /// Execution, by pg_stat_statements: the mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec_us: Option<f64>,
    /// CPU time of the backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<f64>,
    /// Time that the backend waited for a processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_queue_us: Option<f64>,
    /// Minor page faults of the backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minor_faults: Option<f64>,
    /// Resident memory of the backend at the end, KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_kib: Option<f64>,
    /// The client's time less that of the widest view of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unseen_us: Option<f64>,
}

/// The rows: connections first, then each statement.
#[must_use]
pub(super) fn rows(samples: &Samples, counted: &Counted, protocol: Protocol) -> Vec<Row> {
    let mut rows = Vec::new();
    for population in Population::ALL {
        let of: Vec<&ConnectSample> =
            samples.connections.iter().filter(|s| Population::of(s.connection) == population).collect();
        if !of.is_empty() {
            connect_rows(&mut rows, population, &of);
        }
    }
    let mut statements: BTreeMap<u32, Vec<&RunSample>> = BTreeMap::new();
    for run in samples.runs.iter().filter(|run| !run.failed) {
        statements.entry(run.query).or_default().push(run);
    }
    for (query, runs) in statements {
        for population in Population::ALL {
            let of = |step| -> Vec<&RunSample> {
                runs.iter().copied().filter(|s| s.step == step && Population::of(s.run) == population).collect()
            };
            let (prepared, ran) = (of(Step::Prepare), of(Step::Run));
            if !prepared.is_empty() {
                rows.push(prepare_row(query, population, &prepared));
            }
            if !ran.is_empty() {
                run_rows(&mut rows, query, population, &ran, counted, protocol);
            }
        }
    }
    rows
}

/// The median of the samples that have the value.
fn median<T>(samples: &[&T], value: impl Fn(&T) -> Option<f64>) -> Option<f64> {
    let mut values: Vec<f64> = samples.iter().filter_map(|sample| value(sample)).collect();
    values.sort_unstable_by(f64::total_cmp);
    (!values.is_empty()).then(|| quantile(&values, 0.5))
}

impl Row {
    fn new(phase: &str, query: Option<u32>, run: Population, n: usize) -> Self {
        Row { phase: phase.to_owned(), query, run: Some(run), n: n as u64, ..Row::default() }
    }

    fn with_host<T>(mut self, samples: &[&T], host: impl Fn(&T) -> Option<Usage>) -> Self {
        self.cpu_us = median(samples, |s| host(s).map(|usage| usage.cpu_us));
        self.run_queue_us = median(samples, |s| host(s).map(|usage| usage.run_queue_us));
        self.minor_faults = median(samples, |s| host(s).map(|usage| usage.minor_faults as f64));
        self.rss_kib = median(samples, |s| host(s).map(|usage| usage.rss_kib as f64));
        self
    }

    fn part(mut self) -> Self {
        self.is_part = true;
        self
    }
}

fn connect_rows(rows: &mut Vec<Row>, population: Population, of: &[&ConnectSample]) {
    let row = |phase: &str| Row::new(phase, None, population, of.len());
    let log = |value: fn(&super::log::ConnectTimes) -> Option<f64>| {
        move |sample: &ConnectSample| sample.log.as_ref().and_then(value)
    };
    let setup = log(|log| log.setup_us);
    rows.push(Row {
        client_us: median(of, |s| Some(s.client_us)),
        log_us: median(of, setup),
        unseen_us: median(of, |s| Some(s.client_us - setup(s)?)),
        ..row(Metric::CreateConnection.name()).with_host(of, |s| s.host)
    });
    let fork = log(|log| log.fork_us);
    for (metric, time) in phases() {
        let client = median(of, |s| time(&s.phases));
        if client.is_none() {
            continue;
        }
        let mut part = Row { client_us: client, ..row(metric.name()).part() };
        if metric == Metric::QueueFork {
            part.log_us = median(of, fork);
            part.unseen_us = median(of, |s| Some(time(&s.phases)? - fork(s)?));
        }
        rows.push(part);
    }
    // Clocks of the server that run across several of the client's phases: beside them, not against them.
    let authentication = log(|log| log.authentication_us);
    let of_server = [
        ("server: fork", median(of, fork)),
        ("server: authentication", median(of, authentication)),
        ("server: rest of setup", median(of, |s| Some(setup(s)? - fork(s)? - authentication(s)?))),
        ("server: received to authorized", median(of, log(|log| log.received_to_authorized_us))),
    ];
    for (name, time) in of_server {
        if time.is_some() {
            rows.push(Row { log_us: time, ..row(name).part() });
        }
    }
}

type PhaseOf = fn(&PhaseTimes) -> Option<f64>;

fn phases() -> [(Metric, PhaseOf); 7] {
    [
        (Metric::Connect, |phases| phases.connect_us),
        (Metric::QueueFork, |phases| phases.queue_fork_us),
        (Metric::Tls, |phases| phases.tls_us),
        (Metric::Startup, |phases| phases.startup_us),
        (Metric::Authenticate, |phases| phases.authenticate_us),
        (Metric::ClientCrypto, |phases| phases.client_crypto_us),
        (Metric::Ready, |phases| phases.ready_us),
    ]
}

fn prepare_row(query: u32, population: Population, of: &[&RunSample]) -> Row {
    let parse = |s: &RunSample| s.log.and_then(|log| log.parse_us);
    Row {
        client_us: median(of, |s| Some(s.client_us)),
        log_us: median(of, parse),
        unseen_us: median(of, |s| Some(s.client_us - parse(s)?)),
        ..Row::new(Metric::Prepare.name(), Some(query), population, of.len()).with_host(of, |s| s.host)
    }
}

fn run_rows(
    rows: &mut Vec<Row>,
    query: u32,
    population: Population,
    of: &[&RunSample],
    counted: &Counted,
    protocol: Protocol,
) {
    let row = |phase: &str| Row::new(phase, Some(query), population, of.len());
    let counters = counted.of(query, population);
    let plan = counters.and_then(|c| (c.plans > 0).then(|| c.plan_us / c.plans as f64));
    let exec = counters.and_then(|c| (c.calls > 0).then(|| c.exec_us / c.calls as f64));
    let by_statements = exec.map(|exec| exec + plan.unwrap_or(0.0));
    let logged = |s: &RunSample| s.log.map(|log| log.total_us());
    // The log covers what pg_stat_statements covers, and more; without it that is the widest view.
    let widest = |s: &RunSample| logged(s).or(by_statements);
    rows.push(Row {
        client_us: median(of, |s| Some(s.client_us)),
        log_us: median(of, logged),
        plan_us: plan,
        exec_us: exec,
        unseen_us: median(of, |s| Some((s.client_us - widest(s)?).max(0.0))),
        ..row(Metric::of_run(protocol).name()).with_host(of, |s| s.host)
    });
    if protocol == Protocol::Simple {
        return;
    }
    let parse = |s: &RunSample| s.log.and_then(|log| log.parse_us);
    let bind = |s: &RunSample| s.log.and_then(|log| log.bind_us);
    let execute = |s: &RunSample| s.log.and_then(|log| log.execute_us);
    let bound = |s: &RunSample| Some(bind(s)? + execute(s)?);
    let mut part = |row: Row| rows.push(row.part());
    if protocol == Protocol::Extended {
        part(Row {
            client_us: median(of, |s| s.parse_us),
            log_us: median(of, parse),
            unseen_us: median(of, |s| Some(s.parse_us? - parse(s)?)),
            ..row(Metric::ParseDescribeSync.name())
        });
    }
    if protocol != Protocol::Pipelined {
        part(Row {
            client_us: median(of, |s| s.bind_us),
            log_us: median(of, bound),
            plan_us: plan,
            exec_us: exec,
            unseen_us: median(of, |s| Some((s.bind_us? - bound(s).or(by_statements)?).max(0.0))),
            ..row(Metric::BindExecuteSync.name())
        });
    }
    let parse = if protocol == Protocol::Pipelined { median(of, parse) } else { None };
    for (name, log_us, plan_us, exec_us) in [
        ("server: parse", parse, None, None),
        ("server: bind", median(of, bind), plan, None),
        ("server: execute", median(of, execute), None, exec),
    ] {
        if log_us.is_some() {
            part(Row { log_us, plan_us, exec_us, ..row(name) });
        }
    }
}
