//! The profile of single connections and statements: every phase, every run, in order.
//!
//! One connection after the other; on each the statements are run in the protocol that was asked for. Between two
//! timed spans, and only there, the caller is told what was measured ([`Event`]) and may print it. Failures are
//! events too; they never become numbers. What to conclude is in [`Collector`]; how to write it down in
//! [`Reporter`]; a profile that was written as JSON comes back as [`Recorded`]. For load by many clients at once see [`crate::reconnect`].

mod collector;
mod csv;
mod event;
mod exhibits;
mod json;
mod metric;
mod provoke;
mod reached;
mod recorded;
mod reporter;
mod statements;
mod text;
mod threshold;

use std::io;
use std::time::{Duration, Instant};

use pgusher_client::{Attempts, Connection, Connector, Error, Reply};

pub use collector::{Collector, Populations, Sample, SummaryRow};
pub use event::{AttemptRecord, ConnectEvent, DisconnectEvent, Event, Failure, PhaseTimes, StatementEvent, Step};
pub use json::SCHEMA_VERSION;
pub use metric::Metric;
pub use provoke::{Provocation, Provoked, Provoker};
pub use reached::Reached;
pub use recorded::{Recorded, Series};
pub use reporter::{Ending, Format, Options, Reporter};
pub(crate) use statements::short;
pub use statements::{SplitError, split_statements};
pub use threshold::{Threshold, ThresholdError, Verdict};

use crate::report::ServerFacts;

/// How statements are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// Simple query.
    Simple,
    /// Parse + Describe + Sync, then Bind + Execute + Sync, with the unnamed statement.
    Extended,
    /// The same, with a named statement that is parsed once per connection.
    Prepared,
    /// Parse + Bind + Describe + Execute + Sync in one go, as libpq and JDBC do.
    Pipelined,
}

impl Protocol {
    /// A word for output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Simple => "simple",
            Protocol::Extended => "extended",
            Protocol::Prepared => "prepared",
            Protocol::Pipelined => "pipelined",
        }
    }
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Plan {
    /// How statements are sent.
    pub protocol: Protocol,
    /// The statements, run one after the other on each connection; empty ones are not sent at all.
    pub queries: Vec<String>,
    /// How often each statement is run on each connection.
    pub runs: u32,
    /// How many connections, one after the other.
    pub connections: u32,
}

/// Why a profile ended early.
#[derive(Debug)]
pub enum Stopped {
    /// Not even the first connection was possible.
    NoConnection(Error),
    /// The caller could not write what it was told.
    Output(io::Error),
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Stopped::Output(error)
    }
}

/// Who is told of what happens, outside the timed spans. A closure that takes events is one.
pub trait Observer {
    /// A connection is about to be made.
    ///
    /// # Errors
    /// To end the profile.
    fn before_connection(&mut self, _number: u32) -> io::Result<()> {
        Ok(())
    }

    /// Something has happened.
    ///
    /// # Errors
    /// To end the profile.
    fn event(&mut self, event: Event) -> io::Result<()>;
}

impl<F: FnMut(Event) -> io::Result<()>> Observer for F {
    fn event(&mut self, event: Event) -> io::Result<()> {
        self(event)
    }
}

/// Runs the plan. Later connections and statements that fail are events; only a first connection that is impossible
/// is an error, since nothing can be measured then.
pub fn run(connector: &Connector, plan: &Plan, sink: &mut dyn Observer) -> Result<(), Stopped> {
    let queries: Vec<(u32, &str)> =
        (1..).zip(plan.queries.iter().map(String::as_str)).filter(|(_, sql)| !sql.trim().is_empty()).collect();
    let mut attempts = Attempts::default();
    for connection in 1..=plan.connections {
        sink.before_connection(connection)?;
        match connector.connect_traced(&mut attempts) {
            Ok(mut session) => {
                sink.event(Event::Connect(ConnectEvent::established(connection, &attempts, &session)))?;
                for (query, sql) in &queries {
                    let mut on = OnConnection { session: &mut session, connection, query: *query, sql };
                    on.statement(plan, sink)?;
                }
                let ended = if session.is_usable() {
                    DisconnectEvent::new(connection, session.terminate())
                } else {
                    // The statement that broke it has told why.
                    DisconnectEvent { connection, disconnect_us: None, error: None }
                };
                sink.event(Event::Disconnect(ended))?;
            }
            Err(error) => {
                sink.event(Event::Connect(ConnectEvent::failed(connection, &attempts, &error)))?;
                if connection == 1 {
                    return Err(Stopped::NoConnection(error));
                }
            }
        }
    }
    Ok(())
}

/// What the server says of itself, over a connection of its own so that no measured one is warmed by it. `None` if
/// that fails: it is only a note beside the figures.
pub fn server_facts(connector: &Connector) -> Option<ServerFacts> {
    let (mut connection, _) = connector.connect().ok()?;
    let rows = connection.query_rows(ServerFacts::QUERY, &[]).ok()?;
    let text = |row: &[Option<String>], at: usize| row.get(at).cloned().flatten();
    Some(ServerFacts::of(rows.iter().filter_map(|row| Some((text(row, 0)?, text(row, 1)?)))))
}

/// One statement on one connection.
struct OnConnection<'a> {
    session: &'a mut Connection,
    connection: u32,
    query: u32,
    sql: &'a str,
}

impl OnConnection<'_> {
    fn statement(&mut self, plan: &Plan, sink: &mut dyn Observer) -> Result<(), Stopped> {
        let name = match plan.protocol {
            Protocol::Prepared => format!("pgusher_{}", self.query),
            Protocol::Simple | Protocol::Extended | Protocol::Pipelined => String::new(),
        };
        if plan.protocol == Protocol::Prepared && self.session.is_usable() {
            let started = Instant::now();
            let result = self.session.parse_describe_sync(&name, self.sql);
            let took = started.elapsed();
            let mut event = self.event(Step::Prepare, 1);
            event.total_us = Some(micros(took));
            if let Some(reply) = event.take(result) {
                event.parse_describe_sync_us = Some(micros(reply.ready));
            }
            let failed = event.error.is_some();
            sink.event(Event::Statement(event))?;
            if failed {
                return Ok(());
            }
        }
        for run in 1..=plan.runs {
            if !self.session.is_usable() {
                break;
            }
            let event = self.one_run(plan.protocol, &name, run);
            sink.event(Event::Statement(event))?;
        }
        Ok(())
    }

    /// One run. Nothing but the calls themselves is between the two looks at the clock.
    fn one_run(&mut self, protocol: Protocol, name: &str, run: u32) -> StatementEvent {
        let mut event = self.event(Step::Run, run);
        let started = Instant::now();
        match protocol {
            Protocol::Simple => {
                let result = self.session.simple_query(self.sql);
                event.total_us = Some(micros(started.elapsed()));
                event.take(result);
            }
            Protocol::Pipelined => {
                let result = self.session.pipelined(self.sql, &[]);
                event.total_us = Some(micros(started.elapsed()));
                event.take(result);
            }
            Protocol::Prepared => {
                let result = self.session.bind_execute_sync(name, &[]);
                event.total_us = Some(micros(started.elapsed()));
                event.take_bound(result);
            }
            Protocol::Extended => {
                let parsed = self.session.parse_describe_sync(name, self.sql);
                if !matches!(&parsed, Ok(reply) if reply.error.is_none()) {
                    event.total_us = Some(micros(started.elapsed()));
                    event.take(parsed);
                    return event;
                }
                let result = self.session.bind_execute_sync(name, &[]);
                event.total_us = Some(micros(started.elapsed()));
                event.parse_describe_sync_us = parsed.ok().map(|reply| micros(reply.ready));
                event.take_bound(result);
            }
        }
        event
    }

    fn event(&self, step: Step, run: u32) -> StatementEvent {
        StatementEvent::new(self.connection, self.query, step, run)
    }
}

pub(crate) fn micros(time: Duration) -> f64 {
    // Whole nanoseconds: 2.5 us stays 2.5 us and does not become 2.4999999.
    time.as_nanos() as f64 / 1e3
}

impl StatementEvent {
    /// Notes a reply or the failure; the reply if it is one of success.
    fn take(&mut self, result: Result<Reply, Error>) -> Option<Reply> {
        match result {
            Ok(reply) => {
                if let Some(error) = &reply.error {
                    self.error = Some(Failure::of_server(error));
                    return None;
                }
                self.first_byte_us = Some(micros(reply.first_byte));
                self.last_row_us = reply.last_row.map(micros);
                self.rows = reply.rows;
                self.row_bytes = reply.row_bytes;
                self.tag.clone_from(&reply.tag);
                Some(reply)
            }
            Err(error) => {
                self.error = Some(Failure::of(&error));
                None
            }
        }
    }

    fn take_bound(&mut self, result: Result<Reply, Error>) {
        if let Some(reply) = self.take(result) {
            self.bind_execute_sync_us = Some(micros(reply.ready));
        }
    }
}

#[cfg(test)]
pub(crate) mod recorded_tests;
#[cfg(test)]
mod tests;
