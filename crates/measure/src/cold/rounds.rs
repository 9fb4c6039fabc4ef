//! The order of things: for each number of tables in the database, ascending, all combinations of event, side and statement
//! once per round, forwards in odd rounds and backwards in even ones.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pgusher_client::{Connection, Connector};

use super::files::{self, InitFiles};
use super::model::{Cell, Cold, Event, Round, Settings};
use super::options::{Error, Options, SCHEMA, Surroundings, Work};
use super::series::{Series, ask_kept};
use crate::backend;
use crate::failure::{Failure, Failures, Step};
use crate::own_schema::OwnSchema;
use crate::target::{Side, Target};

/// The longest wait for an answer of the server.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time for a manager that was just started to open the connections that it wants.
const SETTLE: Duration = Duration::from_millis(500);

/// How often the init files are removed again when somebody else's connection has brought them back.
const REMOVALS: u32 = 5;

/// Runs the experiment. The first target is also the one that is asked for facts. `stop` ends it early with what there
/// is; `progress` gets lines for people.
///
/// # Errors
/// [`Error`] if nothing could be measured. What fails later is counted or noted.
pub fn run(
    options: &Options,
    targets: Vec<Target>,
    surroundings: &mut dyn Surroundings,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str),
) -> Result<Cold, Error> {
    let mut bench = Bench::new(options, targets, surroundings, stop, progress)?;
    let (schema, halted) = match &options.work {
        Work::Statement(_) => (None, bench.all_rounds(None)),
        Work::Tables { touched, objects, .. } => {
            let schema = OwnSchema::create(&mut bench.control()?, SCHEMA).map_err(Error::Schema)?;
            let halted = bench.sweep(&schema, touched, objects);
            (Some(schema), halted)
        }
    };
    if let Err(Halt(reason)) = halted {
        bench.incomplete = true;
        bench.note(format!("it ended early: {reason}"));
    }
    if let (Work::Tables { remove: true, .. }, Some(schema)) = (&options.work, schema) {
        (bench.progress)("dropping the tables");
        let removed = bench.control().and_then(|mut connection| schema.remove(&mut connection));
        if let Err(error) = removed {
            bench.incomplete = true;
            bench.note(format!("the schema {SCHEMA} could not be dropped; please do so yourself: {error}"));
        }
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
    key: Key,
    rounds: Vec<Round>,
    failures: Failures,
}

type Key = (Event, Side, Option<u32>, Option<u32>);

struct Bench<'a> {
    options: &'a Options,
    sides: Vec<(Side, Connector)>,
    surroundings: &'a mut dyn Surroundings,
    stop: &'a AtomicBool,
    progress: &'a mut dyn FnMut(&str),
    cells: Vec<Gathered>,
    notes: Vec<String>,
    /// When the server was started, in its own words.
    started: String,
    incomplete: bool,
}

impl<'a> Bench<'a> {
    fn new(
        options: &'a Options,
        targets: Vec<Target>,
        surroundings: &'a mut dyn Surroundings,
        stop: &'a AtomicBool,
        progress: &'a mut dyn FnMut(&str),
    ) -> Result<Self, Error> {
        let sides = targets.into_iter().map(|t| (t.side, t.connector.timeout(Some(PATIENCE)))).collect();
        let (cells, notes, started) = (Vec::new(), Vec::new(), String::new());
        let mut bench = Self { options, sides, surroundings, stop, progress, cells, notes, started, incomplete: false };
        let mut control = bench.control()?;
        bench.started = start_time(&mut control)?;
        if options.events.contains(&Event::Provoke) {
            control.simple_query(files::REMOVE).and_then(pgusher_client::Reply::into_result).map_err(Error::Provoke)?;
        }
        Ok(bench)
    }

    /// A connection to ask and to prepare with.
    fn control(&self) -> pgusher_client::Result<Connection> {
        match self.sides.first() {
            Some((_, connector)) => connector.connect().map(|(connection, _)| connection),
            None => unreachable!("an experiment has a target"),
        }
    }

    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// All rounds, for each number of tables in the database.
    fn sweep(&mut self, schema: &OwnSchema, touched: &[u32], objects: &[u32]) -> Result<(), Halt> {
        let most = touched.iter().copied().max().unwrap_or(0);
        schema.make(&mut self.control()?, "touched", 1..=most, self.stop, &mut |_| {})?;
        let statements: Vec<(Option<u32>, String)> =
            touched.iter().map(|count| (Some(*count), statement_over(schema, *count))).collect();
        let mut sorted = objects.to_vec();
        sorted.sort_unstable();
        let mut made = 0;
        for count in sorted {
            let (stop, progress) = (self.stop, &mut *self.progress);
            let mut control = self.sides.first().map(|(_, c)| c.connect()).transpose()?;
            if let Some((control, _)) = &mut control {
                schema.make(control, "object", made + 1..=count, stop, &mut |last| {
                    progress(&format!("making tables: {last} of {count}"));
                })?;
            }
            drop(control);
            made = made.max(count);
            self.rounds(Some(count), &statements)?;
        }
        Ok(())
    }

    /// All rounds with a statement of the user's.
    fn all_rounds(&mut self, objects: Option<u32>) -> Result<(), Halt> {
        match &self.options.work {
            Work::Statement(statement) => self.rounds(objects, &[(None, statement.clone())]),
            Work::Tables { .. } => Ok(()),
        }
    }

    fn rounds(&mut self, objects: Option<u32>, statements: &[(Option<u32>, String)]) -> Result<(), Halt> {
        let mut order: Vec<(Key, &str)> = Vec::new();
        for event in &self.options.events {
            for (side, _) in &self.sides {
                // A manager of its own has only the managed side.
                if *event == Event::RestartWithManager && *side != Side::Managed {
                    continue;
                }
                order.extend(statements.iter().map(|(n, text)| ((*event, *side, objects, *n), text.as_str())));
            }
        }
        for number in 1..=self.options.rounds {
            for (key, statement) in &order {
                if self.stopped() {
                    return Ok(());
                }
                self.round(*key, number, statement)?;
            }
            order.reverse();
        }
        Ok(())
    }

    fn round(&mut self, key: Key, number: u32, statement: &str) -> Result<(), Halt> {
        let (event, side, objects, tables) = key;
        (self.progress)(&what_now(key, number, self.options.rounds));
        let mut failures = Failures::default();
        let mut round = Round { number, ..Round::default() };
        let mut kept = None;
        let mut control = None;
        if event == Event::Provoke {
            if self.manager(side == Side::Managed)? {
                // A new one opens its connections ahead of need, which would bring the files back.
                drop(self.connector(side).and_then(|connector| client_before(connector, statement, &mut failures)));
                thread::sleep(SETTLE);
            }
            let mut connection = self.control()?;
            self.remove_files(&mut connection, number)?;
            thread::sleep(self.options.pause);
            round.files_before = self.sizes(&mut connection);
            for _ in 1..REMOVALS {
                if round.files_before.is_none_or(|files| files.are_gone()) {
                    break;
                }
                self.remove_files(&mut connection, number)?;
                round.files_before = self.sizes(&mut connection);
            }
            if round.files_before.is_some_and(|files| !files.are_gone()) {
                self.note(format!(
                    "after {event}, {side}, round {number}: the init files were there again before the first connection; \
                     somebody else connects all the time"
                ));
            }
            control = Some(connection);
        } else {
            let goes_on = event == Event::Restart && side == Side::Managed;
            self.manager(goes_on)?;
            if goes_on {
                kept = self.connector(side).and_then(|connector| client_before(connector, statement, &mut failures));
            }
            self.surroundings.restart().map_err(Halt)?;
            self.manager(side == Side::Managed)?;
            thread::sleep(self.options.pause);
        }
        if let Some(connector) = self.connector(side) {
            let series = Series {
                connector,
                statement,
                connections: self.options.connections,
                patient: side == Side::Direct && event != Event::Provoke,
                backends_are_here: side == Side::Direct && backend::is_local(connector.config()),
            };
            round.samples = series.run(&mut failures, self.stop);
        }
        round.kept = kept.map(|connection| ask_kept(connection, statement));
        let control = match control {
            Some(connection) if connection.is_usable() => Ok(connection),
            _ => self.control(),
        };
        let look_back = control.map_err(Halt::from).and_then(|mut connection| {
            round.files_after = self.sizes(&mut connection);
            self.watch_start(&mut connection, event, number)
        });
        self.keep((event, side, objects, tables), round, failures);
        look_back
    }

    /// Whether the manager was started for it.
    fn manager(&mut self, runs: bool) -> Result<bool, Halt> {
        let started = self.surroundings.manager(runs).map_err(Halt)?;
        Ok(started.is_some_and(|connector| {
            self.sides.retain(|(side, _)| *side != Side::Managed);
            self.sides.push((Side::Managed, connector.timeout(Some(PATIENCE))));
            true
        }))
    }

    fn connector(&self, side: Side) -> Option<&Connector> {
        self.sides.iter().find(|(s, _)| *s == side).map(|(_, connector)| connector)
    }

    fn keep(&mut self, key: Key, round: Round, failures: Failures) {
        let at = match self.cells.iter().position(|c| c.key == key) {
            Some(at) => at,
            None => {
                self.cells.push(Gathered { key, rounds: Vec::new(), failures: Failures::default() });
                self.cells.len() - 1
            }
        };
        if let Some(cell) = self.cells.get_mut(at) {
            cell.failures.merge(failures);
            if !round.samples.is_empty() {
                cell.rounds.push(round);
            }
        }
    }

    fn remove_files(&mut self, connection: &mut Connection, number: u32) -> Result<(), Halt> {
        let done = connection.simple_query(files::REMOVE).and_then(pgusher_client::Reply::into_result);
        done.map(drop).map_err(|error| Halt(format!("in round {number} the init files could not be removed: {error}")))
    }

    /// The sizes of the init files, if they may be known.
    fn sizes(&mut self, connection: &mut Connection) -> Option<InitFiles> {
        match files::sizes(connection) {
            Ok(sizes) => Some(sizes),
            Err(error) if error.sqlstate() == Some("42501") => {
                self.note(
                    "the sizes of the init files are not known: this role may not call pg_stat_file (a superuser can allow it: \
                     GRANT EXECUTE ON FUNCTION pg_stat_file(text, boolean) TO the role)"
                        .to_owned(),
                );
                None
            }
            Err(error) => {
                self.note(format!("the sizes of the init files are not known: {error}"));
                None
            }
        }
    }

    /// Whether the server was restarted when it should have been, and only then.
    fn watch_start(&mut self, connection: &mut Connection, event: Event, number: u32) -> Result<(), Halt> {
        let now = start_time(connection)?;
        let changed = now != self.started;
        let before = std::mem::replace(&mut self.started, now);
        if event == Event::Provoke {
            if changed {
                self.note(format!(
                    "in or before round {number} after {event} somebody else restarted the server (it had run since {before}); \
                     that round is among the results"
                ));
            }
        } else if !changed {
            return Err(Halt(format!("the server was not restarted: it has been running since {before} all the time")));
        }
        Ok(())
    }

    fn finish(self) -> Result<Cold, Error> {
        let options = self.options;
        let measured = self.cells.iter().any(|c| !c.rounds.is_empty() || !c.failures.counts().is_empty());
        if !measured && !self.stopped() {
            return Err(Error::Nothing(self.notes.join("; ")));
        }
        let interrupted = self.stopped();
        let cells = self.cells.into_iter().map(|c| Cell::of(c.key, c.rounds, c.failures.counts())).collect();
        let settings = Settings {
            connections: options.connections,
            rounds: options.rounds,
            pause_seconds: options.pause.as_secs_f64(),
            query: match &options.work {
                Work::Statement(statement) => Some(statement.clone()),
                Work::Tables { .. } => None,
            },
        };
        Ok(Cold { incomplete: self.incomplete, ..Cold::of(settings, cells, interrupted, self.notes) })
    }
}

/// One statement over `count` tables: each is opened, planned and read.
fn statement_over(schema: &OwnSchema, count: u32) -> String {
    let parts: Vec<String> = (1..=count).map(|n| format!("select id from {}", schema.table("touched", n))).collect();
    if parts.is_empty() { "select 1".to_owned() } else { parts.join(" union all ") }
}

/// A client that is connected and was served before the restart, and idle then.
fn client_before(connector: &Connector, statement: &str, failures: &mut Failures) -> Option<Connection> {
    let connected = connector.connect().and_then(|(mut connection, _)| {
        connection.simple_query(statement)?.into_result()?;
        Ok(connection)
    });
    connected.map_err(|error| failures.count(Failure::of(Step::Connect, &error))).ok()
}

fn start_time(connection: &mut Connection) -> pgusher_client::Result<String> {
    let rows = connection.query_rows("select pg_catalog.pg_postmaster_start_time()", &[])?;
    Ok(rows.get(0, 0).unwrap_or_default().to_owned())
}

fn what_now((event, side, objects, tables): Key, number: u32, rounds: u32) -> String {
    let mut text = format!("round {number} of {rounds}: {side} after {event}");
    if let Some(tables) = tables {
        text.push_str(&format!(", tables in the statement: {tables}"));
    }
    if let Some(objects @ 1..) = objects {
        text.push_str(&format!(", tables besides: {objects}"));
    }
    text
}
