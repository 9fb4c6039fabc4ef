//! What is known of each connection and each run, from all sides: one record per event of the profile, completed from the
//! log when the run is over.

use std::collections::BTreeMap;

use serde::Serialize;

use super::host::Usage;
use super::log::{ConnectTimes, Entry, Expected, Part, RunTimes, Sessions, connect_times, run_times};
use crate::profile::{ConnectEvent, PhaseTimes, Protocol, StatementEvent, Step};

/// A connection.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConnectSample {
    /// Its number, from 1.
    pub connection: u32,
    /// Process of its backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_pid: Option<u32>,
    /// The attempt that succeeded, without name look-up and without questions after the login.
    pub client_us: f64,
    /// Its phases.
    #[serde(skip)]
    pub phases: PhaseTimes,
    /// What the log says of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<ConnectTimes>,
    /// What its backend used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Usage>,
}

/// A run of a statement, or its preparation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunSample {
    /// Number of the connection, from 1.
    pub connection: u32,
    /// Number of the statement, from 1.
    pub query: u32,
    /// Prepared or run.
    pub step: Step,
    /// Number of the run on this connection, from 1.
    pub run: u32,
    /// From the first send to the last ReadyForQuery.
    pub client_us: f64,
    /// Parse + Describe + Sync.
    #[serde(skip)]
    pub parse_us: Option<f64>,
    /// Bind + Execute + Sync.
    #[serde(skip)]
    pub bind_us: Option<f64>,
    /// Whether it failed; then its times belong to no statistics.
    #[serde(skip)]
    pub failed: bool,
    /// What the log says of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<RunTimes>,
    /// What its backend used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Usage>,
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Samples {
    /// Connections that were established.
    pub connections: Vec<ConnectSample>,
    /// Runs and preparations.
    pub runs: Vec<RunSample>,
}

impl Samples {
    /// Takes a connection in; not one that failed.
    pub fn connect(&mut self, event: &ConnectEvent, host: Option<Usage>) {
        let Some(attempt) = event.attempts.last().filter(|_| event.error.is_none()) else { return };
        let phases = attempt.phases;
        let other = phases.resolve_us.unwrap_or(0.0) + phases.session_check_us.unwrap_or(0.0);
        self.connections.push(ConnectSample {
            connection: event.connection,
            backend_pid: event.backend_pid,
            client_us: attempt.total_us - other,
            phases,
            log: None,
            host,
        });
    }

    /// Takes a run in.
    pub fn statement(&mut self, event: &StatementEvent, host: Option<Usage>) {
        self.runs.push(RunSample {
            connection: event.connection,
            query: event.query,
            step: event.step,
            run: event.run,
            client_us: event.total_us.unwrap_or(0.0),
            parse_us: event.parse_describe_sync_us,
            bind_us: event.bind_execute_sync_us,
            failed: event.error.is_some(),
            log: None,
            host,
        });
    }

    /// Completes them from the sessions of a log. Returns how many connections were found there and how many runs.
    pub fn complete(&mut self, mut sessions: Sessions, protocol: Protocol, queries: &[String]) -> (usize, usize) {
        let mut entries: BTreeMap<u32, Vec<Entry>> = BTreeMap::new();
        for sample in &mut self.connections {
            let session = sample.backend_pid.and_then(|pid| sessions.get_mut(&pid)?.pop_front());
            if let Some(session) = session {
                sample.log = Some(connect_times(&session));
                entries.insert(sample.connection, session);
            }
        }
        let mut found = 0;
        // Runs are in the order of their connections.
        for runs in self.runs.chunk_by_mut(|a, b| a.connection == b.connection) {
            let Some(entries) = runs.first().and_then(|run| entries.get(&run.connection)) else { continue };
            let expected: Vec<Expected<'_>> = runs.iter().map(|run| expected(run, protocol, queries)).collect();
            for (run, times) in runs.iter_mut().zip(run_times(entries, &expected)) {
                found += usize::from(times.is_some());
                run.log = times;
            }
        }
        (entries.len(), found)
    }
}

/// What the server logs of a run, in order.
fn expected<'a>(run: &RunSample, protocol: Protocol, queries: &'a [String]) -> Expected<'a> {
    let at = usize::try_from(run.query).unwrap_or(0).saturating_sub(1);
    let parts: &'static [Part] = match (protocol, run.step) {
        (Protocol::Simple, _) => &[Part::Statement],
        (_, Step::Prepare) => &[Part::Parse],
        (Protocol::Prepared, Step::Run) => &[Part::Bind, Part::Execute],
        (Protocol::Extended | Protocol::Pipelined, Step::Run) => &[Part::Parse, Part::Bind, Part::Execute],
    };
    Expected { parts, sql: queries.get(at).map_or("", String::as_str), failed: run.failed }
}
