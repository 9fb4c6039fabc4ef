//! The order of things: for each number of clients, rounds in which the sides take turns, forwards in odd rounds and
//! backwards in even ones; each ends with an empty server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pgusher_client::{Connector, Destination};

use super::engine::{self, Load, Outcome};
use super::limits::{FileLimit, raise_file_limit};
use super::meters::Meters;
use super::model::{Cell, Completion, DisconnectOrder, Facts, Lateness, Round, Settings, Storm};
use super::pace::Pace;
use super::server::Control;
use super::session::{Door, Times};
use super::{disconnect, growth};
use crate::failure::Failures;
use crate::stats::Distribution;
use crate::target::{Side, Target};

/// A pause between rounds in any case.
const SETTLE: Duration = Duration::from_millis(200);
/// Points of a completion curve that are kept.
const CURVE: usize = 256;

/// What to do.
#[derive(Debug, Clone)]
pub struct Options {
    /// Numbers of clients, ascending.
    pub clients: Vec<u32>,
    /// More than so many are not connected directly; `None`: what the server allows.
    pub direct_max: Option<u32>,
    /// When connections begin.
    pub pace: Pace,
    /// Threads at most.
    pub threads: u32,
    /// Rounds of each number and side.
    pub rounds: u32,
    /// Order of disconnecting.
    pub disconnect: DisconnectOrder,
    /// Seed of a random order.
    pub seed: u64,
    /// A statement after each login, in the simple protocol.
    pub statement: Option<String>,
    /// How long one connection may take.
    pub timeout: Duration,
    /// How long the server may take to become empty.
    pub settle: Duration,
    /// The manager's process, where it is this program's own.
    pub manager_pid: Option<u32>,
}

/// Why there is no result at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not even one connection was possible.
    #[error("{side}: {message}")]
    Unreachable {
        /// Which side.
        side: Side,
        /// What happened.
        message: String,
    },
    /// Too many clients for this process.
    #[error(transparent)]
    Files(#[from] FileLimit),
    /// The system gave no event queue.
    #[error("cannot wait for sockets: {0}")]
    Events(#[from] std::io::Error),
}

/// Runs the experiment. `stop` ends it early with what there is; `progress` gets lines for people.
///
/// # Errors
/// [`Error`] if a target cannot be reached when it begins, or the process may not open enough files. What fails later is
/// counted.
pub fn run(
    options: &Options,
    targets: Vec<Target>,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str),
) -> Result<Storm, Error> {
    raise_file_limit(options.clients.last().copied().unwrap_or(0))?;
    let mut notes = Vec::new();
    let mut sides = Vec::new();
    let mut control = None;
    for target in targets {
        let (gate, mine) = Gate::open(target, &mut notes)?;
        control = control.or(mine);
        sides.push(gate);
    }
    let facts = control.as_mut().map(Control::facts);
    let direct_max = direct_max(options, facts.as_ref(), &sides, &mut notes);
    let mut storm = Running { options, stop, control, notes, cells: Vec::new() };
    for clients in &options.clients {
        let beyond = |gate: &&Gate| gate.side == Side::Direct && direct_max.is_some_and(|most| *clients > most);
        let here: Vec<&Gate> = sides.iter().filter(|gate| !beyond(gate)).collect();
        storm.size(&here, *clients, progress)?;
    }
    let cells: Vec<Cell> = storm.cells.into_iter().filter(|c| !c.rounds.is_empty()).collect();
    let given = matches!(options.pace, Pace::Rate { .. });
    if given {
        storm.notes.push(
            "with a given rate the time until all are ready is N / rate; look at the time of one connection".to_owned(),
        );
    }
    Ok(Storm {
        settings: settings(options),
        facts,
        growth: if given { Vec::new() } else { growth::all(&cells) },
        cells,
        interrupted: stop.load(Ordering::Relaxed),
        notes: storm.notes,
    })
}

fn settings(options: &Options) -> Settings {
    Settings {
        clients: options.clients.clone(),
        pace: options.pace,
        threads: options.threads,
        rounds: options.rounds,
        disconnect: options.disconnect,
        seed: options.seed,
        statement: options.statement.clone(),
        timeout_seconds: options.timeout.as_secs_f64(),
    }
}

/// How many clients may connect directly, with a note if that leaves some numbers out.
fn direct_max(options: &Options, facts: Option<&Facts>, sides: &[Gate], notes: &mut Vec<String>) -> Option<u32> {
    if !sides.iter().any(|gate| gate.side == Side::Direct) {
        return None;
    }
    let allowed = facts.and_then(|f| f.connections_allowed);
    let most = options.direct_max.or(allowed)?;
    let left_out: Vec<String> = options.clients.iter().filter(|n| **n > most).map(u32::to_string).collect();
    if !left_out.is_empty() {
        let why =
            if options.direct_max.is_some() { "the limit for it" } else { "what the server allows (max_connections)" };
        notes.push(format!("not measured directly: {} clients, because {why} is {most}", left_out.join(", ")));
    }
    Some(most)
}

/// One side, found to be reachable.
struct Gate {
    side: Side,
    connector: Connector,
    destination: Destination,
    /// The other end is on this machine.
    local: bool,
}

impl Gate {
    /// Connects once, which also derives the SCRAM keys that the round's connections will use.
    fn open(target: Target, notes: &mut Vec<String>) -> Result<(Self, Option<Control>), Error> {
        let connector = target.connector.remember_scram_keys(true);
        let side = target.side;
        let reached = connector.connect();
        let (connection, _) = reached.map_err(|e| Error::Unreachable { side, message: e.to_string() })?;
        let destination = connection.destination().clone();
        let local = destination.ip().is_none_or(|address| address.ip().is_loopback());
        if let Some(tls) = connection.tls() {
            notes.push(format!(
                "{side}: {} ({}), each connection with a handshake of its own; the client's part of it is in its time",
                tls.version, tls.cipher
            ));
        }
        let control = match side {
            Side::Direct => Some(Control::new(connection, local)),
            Side::Managed => {
                // The answer to a goodbye is of no interest.
                let _ = connection.terminate();
                None
            }
        };
        Ok((Self { side, connector, destination, local }, control))
    }
}

/// A run under way.
struct Running<'a> {
    options: &'a Options,
    stop: &'a AtomicBool,
    control: Option<Control>,
    notes: Vec<String>,
    cells: Vec<Cell>,
}

/// What was gathered of one cell over its rounds.
#[derive(Default)]
struct Gathered {
    connect: Vec<f64>,
    accept: Vec<f64>,
    statement: Vec<f64>,
    failures: Failures,
    rounds: Vec<Round>,
}

impl Running<'_> {
    /// All rounds of one number of clients.
    fn size(&mut self, gates: &[&Gate], clients: u32, progress: &mut dyn FnMut(&str)) -> Result<(), Error> {
        let mut gathered: Vec<Gathered> = gates.iter().map(|_| Gathered::default()).collect();
        for number in 1..=self.options.rounds {
            let mut order: Vec<(&Gate, &mut Gathered)> = gates.iter().copied().zip(gathered.iter_mut()).collect();
            if number % 2 == 0 {
                order.reverse();
            }
            for (gate, into) in order {
                if self.stop.load(Ordering::Relaxed) {
                    break;
                }
                self.round(gate, clients, number, into, progress)?;
            }
        }
        for (gate, g) in gates.iter().zip(gathered) {
            self.cells.push(Cell {
                side: gate.side,
                clients,
                rounds: g.rounds,
                connect: Distribution::of(&g.connect),
                accept: Distribution::of(&g.accept),
                statement: Distribution::of(&g.statement),
                failures: g.failures.counts(),
            });
        }
        Ok(())
    }

    fn round(
        &mut self,
        gate: &Gate,
        clients: u32,
        number: u32,
        into: &mut Gathered,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(), Error> {
        let options = self.options;
        let name = format!("{}, {clients} clients, round {number} of {}", gate.side, options.rounds);
        progress(&name);
        let control = self.control.as_mut().filter(|_| gate.side == Side::Direct);
        let manager = options.manager_pid.filter(|_| gate.side == Side::Managed);
        let meters = Meters::start(gate.local, control, manager);
        let door = || Door {
            connector: &gate.connector,
            destination: &gate.destination,
            statement: options.statement.as_deref(),
        };
        let load = Load { clients, threads: options.threads, pace: options.pace, timeout: options.timeout };
        let mut outcome =
            engine::run(door(), load, self.stop, &mut |ready| progress(&format!("{name}: {ready} ready")))?;
        let mut readings = meters.read();

        let times: Vec<Times> = outcome.held.iter().map(|session| session.times).collect();
        let seed = options.seed.wrapping_add(u64::from(number));
        disconnect::arrange(&mut outcome.held, options.disconnect, seed);
        let held = std::mem::take(&mut outcome.held);
        let end = disconnect::end(&door(), held, options.settle, self.stop);
        into.failures.merge(end.failures);
        if end.left > 0 {
            self.notes.push(format!("{name}: the server had not closed {} connections in time", end.left));
        }
        readings.wait_for_backends(options.settle);
        self.wait_until_empty(gate, &name);

        let mut round = summary(number, clients, &times, &outcome, options.pace);
        round.disconnect_us = end.took.map(|took| took.as_secs_f64() * 1e6).filter(|_| !times.is_empty());
        readings.write(&mut round, clients);
        self.remark(&name, &round, outcome.sources);
        into.take(&times, outcome.failures, round);
        Ok(())
    }

    /// Before the next round: a moment, and as few sessions as at first.
    fn wait_until_empty(&mut self, gate: &Gate, name: &str) {
        thread::sleep(SETTLE);
        let Some(control) = self.control.as_mut().filter(|_| gate.side == Side::Direct) else { return };
        if self.stop.load(Ordering::Relaxed) {
            return;
        }
        if !control.revive(&gate.connector) {
            self.notes.push(format!("{name}: the server did not answer after it"));
        } else if !control.wait_until_empty(self.options.settle) {
            let seconds = self.options.settle.as_secs_f64();
            self.notes
                .push(format!("{name}: the server was not empty {seconds} s after it; the next round found it so"));
        }
    }

    fn remark(&mut self, name: &str, round: &Round, sources: u32) {
        if let Some(late) = round.lateness.filter(|late| late.mean_us > 2000.0) {
            self.notes.push(format!(
                "{name}: the load generator began its connections {:.1} ms late on average; the rate is too high for this machine",
                late.mean_us / 1e3
            ));
        }
        if let Some(overflows @ 1..) = round.listen_overflows {
            self.notes.push(format!(
                "{name}: a listen queue was full {overflows} times; the kernel repeats such a connection after a second or more"
            ));
        }
        if sources > 1 && round.number == 1 {
            self.notes
                .push(format!("{name}: connections came from {sources} loopback addresses, for want of ports on one"));
        }
    }
}

impl Gathered {
    fn take(&mut self, times: &[Times], failures: Failures, round: Round) {
        let us = |from: Duration, to: Duration| to.saturating_sub(from).as_secs_f64() * 1e6;
        for t in times {
            self.connect.extend(t.ready.map(|ready| us(t.intended, ready)));
            self.accept.extend(t.connected.map(|connected| us(t.intended, connected)));
            self.statement.extend(t.ready.zip(t.answered).map(|(ready, answered)| us(ready, answered)));
        }
        self.failures.merge(failures);
        self.rounds.push(round);
    }
}

/// `times` are in the order of readiness.
fn summary(number: u32, clients: u32, times: &[Times], outcome: &Outcome, pace: Pace) -> Round {
    let ready_us: Vec<f64> = times.iter().filter_map(|t| t.ready).map(|t| t.as_secs_f64() * 1e6).collect();
    let ready = ready_us.len() as u32;
    let (first_tenth_us, last_tenth_us) = tenths(&ready_us);
    Round {
        number,
        total_us: ready_us.last().copied().unwrap_or(0.0),
        ready,
        failed: outcome.failed,
        unfinished: clients.saturating_sub(ready + outcome.failed),
        first_tenth_us,
        last_tenth_us,
        retries: outcome.retries,
        lateness: matches!(pace, Pace::Rate { .. }).then(|| lateness(times)).flatten(),
        disconnect_us: None,
        listen_overflows: None,
        listen_drops: None,
        server: None,
        generator_cpu_us: 0.0,
        manager_cpu_us: None,
        completion: thinned(&ready_us),
    }
}

/// Time per client among the first and the last tenth, from 50 clients on.
pub(super) fn tenths(ready_us: &[f64]) -> (Option<f64>, Option<f64>) {
    let n = ready_us.len();
    let tenth = n / 10;
    if tenth < 5 {
        return (None, None);
    }
    let between = |from: usize, to: usize| Some((ready_us.get(to)? - ready_us.get(from)?) / (to - from) as f64);
    (between(0, tenth), between(n - 1 - tenth, n - 1))
}

/// Every k-th point and the last one, so that at most [`CURVE`] are left.
pub(super) fn thinned(ready_us: &[f64]) -> Vec<Completion> {
    let step = ready_us.len().div_ceil(CURVE).max(1);
    let all = ready_us.iter().zip(1_u32..);
    all.filter(|(_, n)| *n as usize % step == 0 || *n as usize == ready_us.len())
        .map(|(us, n)| Completion { n, us: *us })
        .collect()
}

fn lateness(times: &[Times]) -> Option<Lateness> {
    let late: Vec<f64> = times.iter().map(|t| t.begun.saturating_sub(t.intended).as_secs_f64() * 1e6).collect();
    let max_us = late.iter().copied().reduce(f64::max)?;
    Some(Lateness { mean_us: late.iter().sum::<f64>() / late.len() as f64, max_us })
}
