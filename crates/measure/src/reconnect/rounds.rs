//! The order of things: every combination of mode and side once per round, each after a first connection of its
//! own, forwards in odd rounds and backwards in even ones, so that what drifts falls on all of them alike.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::load::{self, Door, Limit, Outcome, Plan, Tally, Visit};
use super::model::{Cell, FirstConnection, Histograms, Mode, Protocol, Reconnect, Round, Settings};
use super::session::ServerDoor;
use crate::failure::{Failure, Step};
use crate::script::Script;
use crate::target::{Side, Target};

/// Time for the backends of the last combination to go away before the next one begins.
const SETTLE: Duration = Duration::from_millis(250);

/// What to do.
#[derive(Debug, Clone)]
pub struct Options {
    /// Clients, each with a thread of its own.
    pub clients: u32,
    /// How many may be connecting at the same time.
    pub connecting_at_once: Option<u32>,
    /// When a round ends.
    pub limit: Limit,
    /// Rounds of each combination.
    pub rounds: u32,
    /// Which modes.
    pub modes: Vec<Mode>,
    /// How statements are sent.
    pub protocol: Protocol,
    /// The transaction.
    pub script: Script,
    /// Whether a disconnect lasts until the server has closed its side.
    pub wait_for_exit: bool,
    /// Whether keys derived from a SCRAM password are reused.
    pub reuse_keys: bool,
    /// How often a line of progress is due.
    pub progress_every: Option<Duration>,
    /// Seed of the clients' random numbers.
    pub seed: u64,
    /// Transactions per second that all clients together are to begin (open loop); absent: closed loop.
    pub rate: Option<f64>,
    /// What a transaction may take; with a rate, one that is later than this is not begun.
    pub latency_limit: Option<Duration>,
}

/// Why there is no result at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not even one connection and transaction were possible.
    #[error("{side}: {message}")]
    Unreachable {
        /// Which side.
        side: Side,
        /// What happened.
        message: String,
    },
    /// The operating system gave no more threads.
    #[error("cannot start {clients} client threads: {source}")]
    Threads {
        /// How many were wanted.
        clients: u32,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Runs the experiment. `stop` ends it early with what there is; `progress` gets lines for people.
///
/// # Errors
/// [`Error`] if a target cannot be reached when it begins, or threads are lacking. What fails later is counted.
pub fn run(
    options: &Options,
    targets: Vec<Target>,
    stop: &Arc<AtomicBool>,
    progress: &mut dyn FnMut(&str),
) -> Result<Reconnect, Error> {
    let mut sides = Vec::new();
    for target in targets {
        let door = Arc::new(ServerDoor {
            connector: target.connector.remember_scram_keys(options.reuse_keys),
            protocol: options.protocol,
            wait_for_exit: options.wait_for_exit,
        });
        let reached = door.connect().and_then(Visit::close);
        reached.map_err(|f| Error::Unreachable { side: target.side, message: f.message })?;
        sides.push((target.side, door));
    }
    let mut cells: Vec<Gathered> = Vec::new();
    for mode in &options.modes {
        cells.extend(sides.iter().map(|(side, door)| Gathered::new(*mode, *side, door)));
    }
    let mut notes = Vec::new();
    for number in 1..=options.rounds {
        let mut order: Vec<usize> = (0..cells.len()).collect();
        if number % 2 == 0 {
            order.reverse();
        }
        for at in order {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            if let Some(cell) = cells.get_mut(at) {
                cell.round(options, number, stop, &mut notes, progress)?;
            }
        }
    }
    let interrupted = stop.load(Ordering::Relaxed);
    let cells = cells.into_iter().filter(|c| !c.rounds.is_empty()).map(Gathered::finish).collect();
    Ok(Reconnect::of(settings(options), cells, interrupted, notes))
}

fn settings(options: &Options) -> Settings {
    Settings {
        clients: options.clients,
        connecting_at_once: options.connecting_at_once,
        seconds: match options.limit {
            Limit::Time(length) => Some(length.as_secs_f64()),
            Limit::Transactions(_) => None,
        },
        transactions_per_client: match options.limit {
            Limit::Time(_) => None,
            Limit::Transactions(n) => Some(n),
        },
        rate_per_second: options.rate,
        latency_limit_us: options.latency_limit.map(|limit| limit.as_secs_f64() * 1e6),
        rounds: options.rounds,
        protocol: options.protocol,
        script: options.script.name().to_owned(),
        wait_for_exit: options.wait_for_exit,
        reuse_keys: options.reuse_keys,
        seed: options.seed,
    }
}

/// A combination while it is measured.
struct Gathered {
    mode: Mode,
    side: Side,
    door: Arc<ServerDoor>,
    rounds: Vec<Round>,
    tally: Tally,
}

impl Gathered {
    fn new(mode: Mode, side: Side, door: &Arc<ServerDoor>) -> Self {
        Self { mode, side, door: Arc::clone(door), rounds: Vec::new(), tally: Tally::default() }
    }

    fn round(
        &mut self,
        options: &Options,
        number: u32,
        stop: &Arc<AtomicBool>,
        notes: &mut Vec<String>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(), Error> {
        thread::sleep(SETTLE);
        let (mode, side) = (self.mode, self.side);
        let first = match first_connection(&*self.door, &options.script, options.seed) {
            Ok((first, failure)) => {
                failure.into_iter().for_each(|f| self.tally.failures.count(f));
                Some(first)
            }
            Err(failure) => {
                self.tally.failures.count(failure);
                None
            }
        };
        let plan = Plan {
            clients: options.clients,
            connecting_at_once: options.connecting_at_once,
            limit: options.limit,
            mode,
            script: options.script.clone(),
            seed: options.seed.wrapping_add(u64::from(number)),
            progress_every: options.progress_every,
            rate: options.rate,
            latency_limit: options.latency_limit,
        };
        let outcome = load::run(&self.door, &plan, stop, |interval| {
            progress(&format!("{} ({side}, {mode}, round {number})", interval.line()));
        })
        .map_err(|source| Error::Threads { clients: options.clients, source })?;
        if outcome.missing > 0 {
            notes.push(format!(
                "{side}, {mode}, round {number}: {} clients were still waiting for the server when it was interrupted; \
                 what they had measured is missing",
                outcome.missing
            ));
        }
        self.rounds.push(round(number, options.clients, &outcome, first));
        self.tally.merge(outcome.tally);
        Ok(())
    }

    fn finish(self) -> Cell {
        Cell {
            mode: self.mode,
            side: self.side,
            rounds: self.rounds,
            connect: self.tally.connect.distribution(),
            transaction: self.tally.transaction.distribution(),
            disconnect: self.tally.disconnect.distribution(),
            response: self.tally.response.distribution(),
            lag: self.tally.lag.distribution(),
            histograms: Histograms {
                connect: self.tally.connect.buckets(),
                transaction: self.tally.transaction.buckets(),
                disconnect: self.tally.disconnect.buckets(),
                response: self.tally.response.buckets(),
            },
            failures: self.tally.failures.counts(),
        }
    }
}

/// The numbers of a round; their definitions are at [`Round`].
fn round(number: u32, clients: u32, outcome: &Outcome, first: Option<FirstConnection>) -> Round {
    let wall = outcome.wall.as_secs_f64();
    let connecting = outcome.tally.connecting.as_secs_f64() / f64::from(clients.max(1));
    let latency = outcome.tally.transaction.distribution();
    let lag = outcome.tally.lag.distribution();
    let transactions = outcome.tally.transaction.len();
    let per_second = |seconds: f64| {
        if seconds > 0.0 { transactions as f64 / seconds } else { 0.0 }
    };
    Round {
        number,
        wall_seconds: wall,
        transactions,
        failed_transactions: outcome.failed(Step::Transaction),
        connections: outcome.tally.connect.len(),
        failed_connections: outcome.failed(Step::Connect),
        connecting_seconds: connecting,
        tps_including_connecting: per_second(wall),
        tps_excluding_connecting: per_second(wall - connecting),
        latency_average_us: latency.as_ref().map_or(0.0, |d| d.mean),
        latency_stddev_us: latency.as_ref().map_or(0.0, |d| d.stddev),
        skipped_transactions: outcome.tally.skipped,
        late_transactions: outcome.tally.late,
        lag_average_us: lag.as_ref().map(|d| d.mean),
        lag_max_us: lag.as_ref().map(|d| d.max),
        first,
    }
}

/// Connects, runs one transaction, disconnects. A failing transaction or goodbye is returned beside the times.
fn first_connection<D: Door>(
    door: &D,
    script: &Script,
    seed: u64,
) -> Result<(FirstConnection, Option<Failure>), Failure> {
    let us = |begun: Instant| begun.elapsed().as_secs_f64() * 1e6;
    let begun = Instant::now();
    let mut visit = door.connect()?;
    let connect_us = us(begun);
    let begun = Instant::now();
    let transaction = visit.transaction(script, &mut script.variables(seed));
    let transaction_us = us(begun);
    let begun = Instant::now();
    let goodbye = visit.close();
    let first = FirstConnection {
        connect_us,
        transaction_us: transaction.is_ok().then_some(transaction_us),
        disconnect_us: us(begun),
    };
    Ok((first, transaction.and(goodbye).err()))
}
