//! What warming a fresh connection takes away from a statement's first run, and what the warming itself costs.
//!
//! A backend begins with empty private caches; the first run of a statement fills them and is several times slower than
//! later ones. Each sample here is a new connection that is warmed in one way or not at all and then runs the statement
//! several times. The ways take turns within a round, in an order that moves on by one from round to round, so that
//! whatever drifts on the machine meets all of them alike.
//!
//! Nothing is executed to warm: Parse, Parse + Bind, and EXPLAIN parse and plan at most.

mod exhibits;
mod model;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use pgusher_client::{Connection, Connector, Error, Reply};

use crate::failure::{Failure, Failures, Step};
use crate::profile::{Protocol, micros};
use crate::server_view::host::{Backend, Usage};

pub use model::{Cost, Prewarm, Sample, Statement, Way, WaySummary};

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// How the runs are sent; not [`Protocol::Prepared`], which parses on each connection before the first run anyway.
    pub protocol: Protocol,
    /// The statements, each measured on connections of its own.
    pub queries: Vec<String>,
    /// The ways to compare with no warming.
    pub ways: Vec<Way>,
    /// Rounds: connections for each statement and way.
    pub rounds: u32,
    /// Runs on each connection, at least 3: the third and later ones are the steady ones.
    pub runs: u32,
}

/// Measures. `user` and `database` are those of the connector, to find its backends on this host; `progress` is told how
/// many of how many connections are done.
///
/// # Errors
/// When not even the first connection is possible.
pub fn run(
    options: &Options,
    connector: &Connector,
    (user, database): (&str, &str),
    stop: &AtomicBool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Prewarm, Error> {
    let mut ways = vec![Way::None];
    ways.extend(options.ways.iter().copied().filter(|way| *way != Way::None));
    let mut failures = Failures::default();
    let mut notes = Vec::new();
    let mut statements: Vec<Statement> =
        options.queries.iter().map(|sql| Statement { sql: sql.clone(), samples: Vec::new() }).collect();
    let all = u64::from(options.rounds) * (ways.len() * statements.len()) as u64;
    let mut done = 0;
    let mut interrupted = false;
    'rounds: for round in 1..=options.rounds {
        for statement in &mut statements {
            for turn in 0..ways.len() {
                if stop.load(Ordering::Relaxed) {
                    interrupted = true;
                    break 'rounds;
                }
                let at = (turn + usize::try_from(round).unwrap_or(0)) % ways.len();
                let Some(way) = ways.get(at).copied() else { continue };
                let mut fresh = Fresh { options, connector, user, database, notes: &mut notes };
                match fresh.sample(round, way, &statement.sql) {
                    Ok(sample) => statement.samples.push(sample),
                    Err((Step::Connect, error)) if done == 0 => return Err(error),
                    Err((step, error)) => failures.count(failure(step, way, &error)),
                }
                done += 1;
                progress(done, all);
            }
        }
    }
    Ok(Prewarm {
        protocol: options.protocol,
        rounds: options.rounds,
        runs: options.runs,
        ways,
        statements,
        failures: failures.counts(),
        notes,
        interrupted,
    })
}

fn failure(step: Step, way: Way, error: &Error) -> Failure {
    let mut failure = Failure::of(step, error);
    failure.message = format!("{}: {}", way.name(), failure.message);
    failure
}

/// One connection.
struct Fresh<'a> {
    options: &'a Options,
    connector: &'a Connector,
    user: &'a str,
    database: &'a str,
    notes: &'a mut Vec<String>,
}

impl Fresh<'_> {
    fn sample(&mut self, round: u32, way: Way, sql: &str) -> Result<Sample, (Step, Error)> {
        let (mut session, _) = self.connector.connect().map_err(|error| (Step::Connect, error))?;
        let mut backend = match Backend::find(session.backend_pid(), self.user, self.database) {
            Ok(backend) => Some(backend),
            Err(why) => {
                if self.notes.is_empty() {
                    self.notes.push(format!("no processor times, faults and memory of backends: {why}"));
                }
                None
            }
        };
        let mut look = || backend.as_mut().and_then(Backend::used);
        let before = look();
        let in_transaction = |error| (Step::Transaction, error);
        let mut warming = None;
        if way != Way::None {
            let started = Instant::now();
            way.warm(&mut session, sql).map_err(in_transaction)?;
            let wall_us = micros(started.elapsed());
            let host = look();
            let grown = |after: Usage| after.rss_kib as f64 - before.map_or(0.0, |before| before.rss_kib as f64);
            warming = Some(Cost { wall_us, host, rss_growth_kib: host.map(grown) });
        }
        let mut runs = Vec::new();
        for _ in 0..self.options.runs.max(3) {
            let started = Instant::now();
            one_run(&mut session, self.options.protocol, sql).map_err(in_transaction)?;
            let wall_us = micros(started.elapsed());
            runs.push(Cost { wall_us, host: look(), rss_growth_kib: None });
        }
        // Its end must not run beside the next one's beginning.
        session.terminate().map_err(|error| (Step::Disconnect, error))?;
        Ok(Sample { round, way, warming, runs })
    }
}

fn one_run(session: &mut Connection, protocol: Protocol, sql: &str) -> Result<Reply, Error> {
    match protocol {
        Protocol::Simple => session.simple_query(sql)?.into_result(),
        Protocol::Pipelined => session.pipelined(sql, &[])?.into_result(),
        Protocol::Extended | Protocol::Prepared => {
            session.parse_describe_sync("", sql)?.into_result()?;
            session.bind_execute_sync("", &[])?.into_result()
        }
    }
}

impl Way {
    fn warm(self, session: &mut Connection, sql: &str) -> Result<(), Error> {
        let reply = match self {
            Way::None => return Ok(()),
            Way::Parse => session.parse_describe_sync("", sql)?,
            Way::Bind => session.parse_bind_sync(sql, &[])?,
            Way::Explain => session.simple_query(&format!("EXPLAIN {sql}"))?,
        };
        reply.into_result().map(drop)
    }
}
