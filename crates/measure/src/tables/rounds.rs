//! The order of things: every combination of mode, number of tables and target once per run, forwards in odd runs and
//! backwards in even ones, each after a connection of its own that is measured alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pgusher_client::{Connection, Connector};

use super::catalog::{Counters, Source};
use super::model::{Alone, Catalog, Cell, Round, Settings, Tables};
use crate::failure::{Failures, Step};
use crate::own_schema::OwnSchema;
use crate::reconnect::load::{self, Door, Limit, Outcome, Plan, Tally, Visit};
use crate::reconnect::session::ServerDoor;
use crate::reconnect::{Mode, Protocol};
use crate::script::{Script, ScriptError};
use crate::stats::quantile;

/// The schema in which the tables are made.
const SCHEMA: &str = "pgusher_tables";

/// Transactions of the connection that is measured alone.
const ALONE: usize = 7;

/// Time for the backends of the last combination to go away before the next one begins, and for their statistics.
const SETTLE: Duration = Duration::from_millis(250);

/// The longest wait for a single answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Something that is measured.
pub struct Subject {
    /// Its name in the report.
    pub name: String,
    /// The way to it.
    pub connector: Connector,
    /// Whether a connection to it is a backend of its own.
    pub direct: bool,
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Clients, each with a thread of its own.
    pub clients: u32,
    /// Length of a run.
    pub length: Duration,
    /// Runs of each combination.
    pub rounds: u32,
    /// Which modes.
    pub modes: Vec<Mode>,
    /// Numbers of tables.
    pub tables: Vec<u32>,
    /// Whether the tables are dropped at the end.
    pub remove: bool,
}

/// Why there is no result at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing can be asked.
    #[error("{name}: {message}")]
    Unreachable {
        /// Which target.
        name: String,
        /// What happened.
        message: String,
    },
    /// The server cannot be asked.
    #[error(transparent)]
    Client(#[from] pgusher_client::Error),
    /// The tables cannot be made.
    #[error("the schema {SCHEMA} cannot be made: {0}. If it is left of an earlier run, drop it")]
    Schema(pgusher_client::Error),
    /// The script cannot be made.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// It ended before anything was measured.
    #[error("{0}")]
    Nothing(String),
}

/// Makes a target new, so that nothing of earlier runs is left behind it, where that is possible: returns the new way to
/// it, or `None` if it stays as it is.
pub type Renew<'a> = dyn FnMut(&str) -> Result<Option<Connector>, String> + 'a;

/// Runs the experiment. The tables are made through the first subject, which is also the one that is asked for facts and
/// that the others are compared with. `stop` ends it early with what there is; `progress` gets lines for people.
///
/// # Errors
/// [`Error`] if nothing could be measured. What fails later is counted or noted.
pub fn run(
    options: &Options,
    subjects: Vec<Subject>,
    renew: &mut Renew<'_>,
    stop: &Arc<AtomicBool>,
    progress: &mut dyn FnMut(&str),
) -> Result<Tables, Error> {
    let subjects: Vec<Subject> =
        subjects.into_iter().map(|s| Subject { connector: prepared(s.connector), ..s }).collect();
    for subject in &subjects {
        let unreachable =
            |e: pgusher_client::Error| Error::Unreachable { name: subject.name.clone(), message: e.to_string() };
        subject.connector.connect().map_err(unreachable)?.0.terminate().map_err(unreachable)?;
    }
    let mut control = control(&subjects)?;
    let (source, missing) = Source::find(&mut control)?;
    let started = start_time(&mut control)?;
    let schema = OwnSchema::create(&mut control, SCHEMA).map_err(Error::Schema)?;
    let notes = missing.into_iter().collect();
    let mut bench = Bench {
        options,
        subjects,
        renew,
        stop,
        progress,
        control,
        source,
        started,
        cells: Vec::new(),
        notes,
        incomplete: false,
    };
    if let Err(Halt(reason)) = bench.all(&schema) {
        bench.incomplete = true;
        bench.notes.push(format!("it ended early: {reason}"));
    }
    if options.remove {
        bench.remove(schema);
    }
    bench.finish()
}

/// It cannot go on, and why.
struct Halt(String);

impl From<pgusher_client::Error> for Halt {
    fn from(error: pgusher_client::Error) -> Self {
        Self(error.to_string())
    }
}

/// A combination while it is measured.
struct Gathered {
    key: (Mode, u32, String),
    rounds: Vec<Round>,
    tally: Tally,
}

struct Bench<'a> {
    options: &'a Options,
    subjects: Vec<Subject>,
    renew: &'a mut Renew<'a>,
    stop: &'a Arc<AtomicBool>,
    progress: &'a mut dyn FnMut(&str),
    control: Connection,
    source: Source,
    /// When the server was started, in its own words.
    started: String,
    cells: Vec<Gathered>,
    notes: Vec<String>,
    incomplete: bool,
}

impl Bench<'_> {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn all(&mut self, schema: &OwnSchema) -> Result<(), Halt> {
        let most = self.options.tables.iter().copied().max().unwrap_or(0);
        schema.make(&mut self.control, "t", 1..=most, self.stop, &mut |_| {})?;
        let mut scripts = Vec::new();
        for count in &self.options.tables {
            scripts.push((*count, script(schema, *count).map_err(|e| Halt(e.to_string()))?));
        }
        let mut order = Vec::new();
        for mode in &self.options.modes {
            for (count, script) in &scripts {
                order.extend((0..self.subjects.len()).map(|subject| (*mode, *count, script, subject)));
            }
        }
        for number in 1..=self.options.rounds {
            for (mode, count, script, subject) in &order {
                if self.stopped() {
                    return Ok(());
                }
                self.round(number, *mode, *count, script, *subject)?;
            }
            order.reverse();
        }
        Ok(())
    }

    fn round(&mut self, number: u32, mode: Mode, tables: u32, script: &Script, subject: usize) -> Result<(), Halt> {
        thread::sleep(SETTLE);
        let Some((name, fresh)) = self.renewed(subject)? else {
            return Ok(());
        };
        (self.progress)(&format!("run {number} of {}: {name}, {mode}, tables: {tables}", self.options.rounds));
        let Some(at) = self.subjects.get(subject) else {
            return Ok(());
        };
        // A connector cannot be copied; this one is made of the same configuration.
        let connector = Connector::new(at.connector.config()).map(prepared)?;
        let door = Arc::new(ServerDoor { connector, protocol: Protocol::Simple, wait_for_exit: false });
        let mut failures = Failures::default();
        let alone = alone(&*door, script, fresh, &mut failures);
        let before = self.counters();
        let plan = Plan {
            clients: self.options.clients,
            connecting_at_once: None,
            limit: Limit::Time(self.options.length),
            mode,
            script: script.clone(),
            seed: u64::from(number),
            progress_every: None,
            rate: None,
            latency_limit: None,
        };
        let outcome = load::run(&door, &plan, self.stop, |_| {})
            .map_err(|e| Halt(format!("cannot start {} client threads: {e}", self.options.clients)))?;
        if outcome.missing > 0 {
            self.notes.push(format!(
                "{name}, {mode}, {tables} tables, run {number}: {} clients were still waiting for the server when it was \
                 interrupted; what they had measured is missing",
                outcome.missing
            ));
        }
        thread::sleep(SETTLE);
        let did = self.counters().since(before);
        let mut round = numbers(number, &outcome, did, tables);
        round.alone = alone;
        self.keep((mode, tables, name), round, outcome.tally, failures);
        self.watch_start(number)
    }

    /// The name of a subject, after it was made new if that is possible, and whether its physical connections are new.
    fn renewed(&mut self, at: usize) -> Result<Option<(String, bool)>, Halt> {
        let Some(subject) = self.subjects.get_mut(at) else {
            return Ok(None);
        };
        let renewed = (self.renew)(&subject.name).map_err(Halt)?;
        let fresh = subject.direct || renewed.is_some();
        if let Some(connector) = renewed {
            subject.connector = prepared(connector);
        }
        Ok(Some((subject.name.clone(), fresh)))
    }

    /// Not known if the server cannot be asked now; it may be asked again later.
    fn counters(&mut self) -> Counters {
        if !self.control.is_usable() {
            match control(&self.subjects) {
                Ok(connection) => self.control = connection,
                Err(_) => return Counters::default(),
            }
        }
        self.source.read(&mut self.control).unwrap_or_default()
    }

    fn keep(&mut self, key: (Mode, u32, String), round: Round, tally: Tally, failures: Failures) {
        let at = match self.cells.iter().position(|c| c.key == key) {
            Some(at) => at,
            None => {
                self.cells.push(Gathered { key, rounds: Vec::new(), tally: Tally::default() });
                self.cells.len() - 1
            }
        };
        if let Some(cell) = self.cells.get_mut(at) {
            cell.tally.merge(tally);
            cell.tally.failures.merge(failures);
            cell.rounds.push(round);
        }
    }

    /// Says when the server was restarted meanwhile; a server that cannot be asked ends the experiment.
    fn watch_start(&mut self, number: u32) -> Result<(), Halt> {
        // The control connection of before a restart fails when it is used.
        let now = match start_time(&mut self.control) {
            Ok(now) => now,
            Err(_) => {
                self.control = patient_control(&self.subjects, self.stop)?;
                start_time(&mut self.control)?
            }
        };
        if now != self.started {
            let before = std::mem::replace(&mut self.started, now);
            self.notes.push(format!(
                "in or before run {number} the server was restarted (it had run since {before}); the runs around it are among \
                 the results"
            ));
        }
        Ok(())
    }

    fn remove(&mut self, schema: OwnSchema) {
        let connection = control(&self.subjects);
        if let Err(error) = connection.and_then(|mut connection| schema.remove(&mut connection)) {
            self.incomplete = true;
            self.notes.push(format!("the schema {SCHEMA} could not be dropped; please do so yourself: {error}"));
        }
    }

    fn finish(self) -> Result<Tables, Error> {
        let interrupted = self.stopped();
        if self.cells.is_empty() && !interrupted {
            return Err(Error::Nothing(self.notes.join("; ")));
        }
        let settings = Settings {
            clients: self.options.clients,
            seconds: self.options.length.as_secs_f64(),
            rounds: self.options.rounds,
            tables: self.options.tables.clone(),
            targets: self.subjects.iter().map(|s| s.name.clone()).collect(),
        };
        let cells = self
            .cells
            .into_iter()
            .map(|c| Cell {
                mode: c.key.0,
                tables: c.key.1,
                target: c.key.2,
                rounds: c.rounds,
                connect: c.tally.connect.distribution(),
                transaction: c.tally.transaction.distribution(),
                failures: c.tally.failures.counts(),
            })
            .collect();
        Ok(Tables { incomplete: self.incomplete, ..Tables::of(settings, cells, interrupted, self.notes) })
    }
}

/// Keys derived from SCRAM passwords are remembered: PBKDF2 is the client's own cost, and would hide everything else.
fn prepared(connector: Connector) -> Connector {
    connector.timeout(Some(PATIENCE)).remember_scram_keys(true)
}

/// A connection to the first subject, to ask and to prepare with.
fn control(subjects: &[Subject]) -> pgusher_client::Result<Connection> {
    match subjects.first() {
        Some(subject) => subject.connector.connect().map(|(connection, _)| connection),
        None => unreachable!("an experiment has a target"),
    }
}

/// The same, tried for a while: a server that was restarted needs a moment.
fn patient_control(subjects: &[Subject], stop: &AtomicBool) -> Result<Connection, Halt> {
    let limit = Instant::now() + PATIENCE;
    loop {
        match control(subjects) {
            Err(error) if Instant::now() > limit || stop.load(Ordering::Relaxed) => return Err(error.into()),
            Err(_) => thread::sleep(Duration::from_millis(100)),
            Ok(connection) => return Ok(connection),
        }
    }
}

fn start_time(connection: &mut Connection) -> pgusher_client::Result<String> {
    let rows = connection.query_rows("select pg_catalog.pg_postmaster_start_time()", &[])?;
    Ok(rows.get(0, 0).unwrap_or_default().to_owned())
}

/// A SELECT over each table.
fn script(schema: &OwnSchema, tables: u32) -> Result<Script, ScriptError> {
    let text: String = (1..=tables).map(|n| format!("select id from {};\n", schema.table("t", n))).collect();
    Script::parse(&format!("{tables} tables"), &text, &[])
}

/// A connection with a few transactions, before anybody else comes.
fn alone<D: Door>(door: &D, script: &Script, fresh: bool, failures: &mut Failures) -> Option<Alone> {
    let us = |begun: Instant| begun.elapsed().as_secs_f64() * 1e6;
    let begun = Instant::now();
    let mut visit = door.connect().map_err(|failure| failures.count(failure)).ok()?;
    let connect_us = us(begun);
    let mut times = Vec::new();
    for _ in 0..ALONE {
        let begun = Instant::now();
        if let Err(failure) = visit.transaction(script, &mut script.variables(1)) {
            failures.count(failure);
            break;
        }
        times.push(us(begun));
    }
    if let Err(failure) = visit.close() {
        failures.count(failure);
    }
    let mut later = times.get(2..).unwrap_or_default().to_vec();
    later.sort_unstable_by(f64::total_cmp);
    Some(Alone {
        fresh,
        connect_us,
        first_us: times.first().copied(),
        second_us: times.get(1).copied(),
        later_us: (!later.is_empty()).then(|| quantile(&later, 0.5)),
    })
}

/// The numbers of a run; their definitions are at [`Round`].
fn numbers(number: u32, outcome: &Outcome, did: Counters, tables: u32) -> Round {
    let wall_seconds = outcome.wall.as_secs_f64();
    let transactions = outcome.tally.transaction.len();
    let statements = transactions as f64 * f64::from(tables);
    let per_statement = |count: Option<u64>| Some(count? as f64 / statements).filter(|v| v.is_finite());
    Round {
        number,
        wall_seconds,
        transactions,
        failed_transactions: outcome.failed(Step::Transaction),
        connections: outcome.tally.connect.len(),
        failed_connections: outcome.failed(Step::Connect),
        tps: if wall_seconds > 0.0 { transactions as f64 / wall_seconds } else { 0.0 },
        latency_average_us: outcome.tally.transaction.distribution().map_or(0.0, |d| d.mean),
        alone: None,
        catalog: Catalog {
            queries_per_statement: per_statement(did.queries),
            scans_per_statement: per_statement(did.scans),
        },
    }
}
