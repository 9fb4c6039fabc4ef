//! One round of load: as many threads as clients, each in a closed loop or, with a given rate, in an open one, until
//! the time or the number of transactions is reached.
//!
//! It knows sessions only through [`Door`] and [`Visit`], so that its bookkeeping is tested without a server.

mod gate;
mod live;
mod pace;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use gate::{Signal, Start, Turnstile};
pub(crate) use live::Interval;
use live::{Live, Meter};
use pace::Pace;

use super::model::Mode;
use crate::failure::{Failure, Failures, Step};
use crate::script::{Script, Variables};
use crate::stats::Histogram;

/// When a client has done enough.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// So long after the clients were released. A transaction under way is brought to its end.
    Time(Duration),
    /// After so many transactions of each client, failed ones and failed connections included.
    Transactions(u64),
}

/// Where clients connect.
pub(crate) trait Door: Send + Sync + 'static {
    type Visit: Visit;
    fn connect(&self) -> Result<Self::Visit, Failure>;
}

/// An established connection.
pub(crate) trait Visit {
    /// Runs the script once.
    fn transaction(&mut self, script: &Script, variables: &mut Variables) -> Result<(), Failure>;
    /// Whether another transaction can be run on it, after one that failed.
    fn usable(&mut self) -> bool;
    /// Ends it. Returns when that is done.
    fn close(self) -> Result<(), Failure>;
}

/// What all clients of a round do.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) clients: u32,
    pub(crate) connecting_at_once: Option<u32>,
    pub(crate) limit: Limit,
    pub(crate) mode: Mode,
    pub(crate) script: Script,
    pub(crate) seed: u64,
    pub(crate) progress_every: Option<Duration>,
    /// Transactions per second that all clients together are to begin; absent: a closed loop.
    pub(crate) rate: Option<f64>,
    /// What a transaction may take; with a rate, one that is later than this is not begun.
    pub(crate) latency_limit: Option<Duration>,
}

/// What a round, or a client of it, measured.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) connect: Histogram,
    pub(crate) transaction: Histogram,
    pub(crate) disconnect: Histogram,
    /// From the moment a transaction was meant to begin to its end, connecting included. Only with a given rate.
    pub(crate) response: Histogram,
    /// From the moment a transaction was meant to begin to the moment the client was free for it. Only with a given rate.
    pub(crate) lag: Histogram,
    /// Transactions that were not begun because they were later than the limit.
    pub(crate) skipped: u64,
    /// Transactions that took longer than the limit.
    pub(crate) late: u64,
    pub(crate) failures: Failures,
    /// Time in connecting, disconnecting and waiting for either, summed over clients.
    pub(crate) connecting: Duration,
}

impl Tally {
    pub(crate) fn merge(&mut self, other: Self) {
        self.connect.merge(&other.connect);
        self.transaction.merge(&other.transaction);
        self.disconnect.merge(&other.disconnect);
        self.response.merge(&other.response);
        self.lag.merge(&other.lag);
        self.skipped += other.skipped;
        self.late += other.late;
        self.failures.merge(other.failures);
        self.connecting += other.connecting;
    }
}

/// The end of a round.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) tally: Tally,
    pub(crate) wall: Duration,
    /// Clients that had not ended when the round was interrupted; their figures are missing.
    pub(crate) missing: u32,
}

/// How long clients may take to notice an interruption.
const GRACE: Duration = Duration::from_secs(3);

/// Runs a round. `stop` ends it early; `progress` is called from this thread.
pub(crate) fn run<D: Door>(
    door: &Arc<D>,
    plan: &Plan,
    stop: &Arc<AtomicBool>,
    mut progress: impl FnMut(Interval),
) -> std::io::Result<Outcome> {
    let shared = Arc::new(Shared {
        live: Live::default(),
        start: Start::default(),
        turnstile: plan.connecting_at_once.map(Turnstile::new),
        plan: plan.clone(),
        stop: Arc::clone(stop),
    });
    let (sender, receiver) = mpsc::channel();
    for id in 0..plan.clients {
        let (door, shared_too, sender) = (Arc::clone(door), Arc::clone(&shared), sender.clone());
        let spawned = thread::Builder::new().name(format!("client {id}")).stack_size(512 << 10).spawn(move || {
            if let Some(start) = shared_too.start.wait() {
                let tally = Client::new(&shared_too, id, start).run(&*door);
                // Nobody listens any more after an interruption.
                let _ = sender.send((tally, Instant::now()));
            }
        });
        if let Err(error) = spawned {
            shared.start.set(Signal::GoHome);
            return Err(error);
        }
    }
    drop(sender);
    let start = Instant::now();
    shared.start.set(Signal::Go(start));
    Ok(collect(&shared, start, &receiver, &mut progress))
}

fn collect(
    shared: &Shared,
    start: Instant,
    receiver: &mpsc::Receiver<(Tally, Instant)>,
    progress: &mut impl FnMut(Interval),
) -> Outcome {
    let mut tally = Tally::default();
    let mut missing = shared.plan.clients;
    let mut end = start;
    let plan = &shared.plan;
    let paced = plan.rate.is_some();
    let mut meter = Meter::new(start, plan.progress_every, paced, paced && plan.latency_limit.is_some());
    let mut give_up = None;
    while missing > 0 {
        match receiver.recv_timeout(Duration::from_millis(50)) {
            Ok((client, ended)) => {
                tally.merge(client);
                end = end.max(ended);
                missing -= 1;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if let Some(interval) = meter.due(&shared.live) {
            progress(interval);
        }
        if shared.stop.load(Ordering::Relaxed) {
            let until = *give_up.get_or_insert_with(|| Instant::now() + GRACE);
            if Instant::now() >= until {
                break;
            }
        }
    }
    if missing > 0 {
        end = Instant::now();
    }
    Outcome { tally, wall: end - start, missing }
}

struct Shared {
    live: Live,
    start: Start,
    turnstile: Option<Turnstile>,
    plan: Plan,
    stop: Arc<AtomicBool>,
}

/// How a transaction came to begin.
#[derive(Clone, Copy)]
enum Turn {
    /// When the one before had ended.
    Closed,
    /// When it was due, or as soon after that as the client was free.
    Open { due: Instant, lag: Duration },
}

/// One client's loop.
struct Client<'a> {
    shared: &'a Shared,
    variables: Variables,
    start: Instant,
    tally: Tally,
    attempts: u64,
    refused_in_a_row: u32,
    pace: Option<Pace>,
}

impl<'a> Client<'a> {
    fn new(shared: &'a Shared, id: u32, start: Instant) -> Self {
        // Neighbouring seeds must not give neighbouring sequences.
        let seed = shared.plan.seed ^ u64::from(id + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self {
            shared,
            variables: shared.plan.script.variables(seed),
            start,
            tally: Tally::default(),
            attempts: 0,
            refused_in_a_row: 0,
            pace: shared.plan.rate.map(|rate| Pace::new(rate, shared.plan.clients, !seed, start)),
        }
    }

    fn run<D: Door>(mut self, door: &D) -> Tally {
        let mut kept: Option<D::Visit> = None;
        while self.goes_on() {
            let Some(turn) = self.turn() else {
                break;
            };
            if self.too_late(turn) {
                continue;
            }
            let Some(mut visit) = kept.take().or_else(|| self.connect(door)) else {
                continue;
            };
            let ok = self.transaction(&mut visit, turn);
            match self.shared.plan.mode {
                Mode::Static if ok || visit.usable() => kept = Some(visit),
                Mode::Static | Mode::Reconnect => self.close(visit),
            }
        }
        if let Some(visit) = kept {
            self.close(visit);
        }
        self.tally
    }

    fn goes_on(&self) -> bool {
        !self.shared.stop.load(Ordering::Relaxed)
            && match self.shared.plan.limit {
                Limit::Time(length) => self.start.elapsed() < length,
                Limit::Transactions(n) => self.attempts < n,
            }
    }

    /// Waits until the next transaction is to begin. `None` if that lies behind the end, or the run was stopped.
    fn turn(&mut self) -> Option<Turn> {
        let Some(pace) = self.pace.as_mut() else {
            return Some(Turn::Closed);
        };
        let due = pace.advance();
        if let Limit::Time(length) = self.shared.plan.limit {
            if due >= self.start + length {
                return None;
            }
        }
        loop {
            let wait = due.saturating_duration_since(Instant::now());
            if wait.is_zero() {
                return Some(Turn::Open { due, lag: due.elapsed() });
            }
            // In pieces, so that a stop is noticed.
            thread::sleep(wait.min(Duration::from_millis(50)));
            if self.shared.stop.load(Ordering::Relaxed) {
                return None;
            }
        }
    }

    /// Whether this transaction is not worth beginning any more; it is counted then, and as an attempt.
    fn too_late(&mut self, turn: Turn) -> bool {
        let (Turn::Open { lag, .. }, Some(limit)) = (turn, self.shared.plan.latency_limit) else {
            return false;
        };
        if lag <= limit {
            return false;
        }
        self.tally.skipped += 1;
        self.attempts += 1;
        self.shared.live.skipped();
        true
    }

    fn connect<D: Door>(&mut self, door: &D) -> Option<D::Visit> {
        let arrived = Instant::now();
        let pass = self.shared.turnstile.as_ref().map(Turnstile::enter);
        let begun = Instant::now();
        let result = door.connect();
        let took = begun.elapsed();
        drop(pass);
        let visit = match result {
            Ok(visit) => {
                self.tally.connect.record(took);
                self.refused_in_a_row = 0;
                Some(visit)
            }
            Err(failure) => {
                self.tally.failures.count(failure);
                self.shared.live.failed();
                self.attempts += 1;
                self.back_off();
                None
            }
        };
        self.tally.connecting += arrived.elapsed();
        visit
    }

    /// A server that refuses is not asked again at once: 1 ms, doubling to half a second, never past the end.
    fn back_off(&mut self) {
        let mut pause = Duration::from_millis(1 << self.refused_in_a_row.min(9));
        if let Limit::Time(length) = self.shared.plan.limit {
            pause = pause.min(length.saturating_sub(self.start.elapsed()));
        }
        self.refused_in_a_row += 1;
        thread::sleep(pause);
    }

    fn transaction(&mut self, visit: &mut impl Visit, turn: Turn) -> bool {
        self.attempts += 1;
        let begun = Instant::now();
        let result = visit.transaction(&self.shared.plan.script, &mut self.variables);
        let took = begun.elapsed();
        match result {
            Ok(()) => {
                self.tally.transaction.record(took);
                self.count(took, turn);
                true
            }
            Err(failure) => {
                self.tally.failures.count(failure);
                self.shared.live.failed();
                false
            }
        }
    }

    /// Counts a transaction that succeeded: in an open loop from the moment when it was meant to begin.
    fn count(&mut self, took: Duration, turn: Turn) {
        let (whole, lag) = match turn {
            Turn::Closed => (took, Duration::ZERO),
            Turn::Open { due, lag } => {
                let response = due.elapsed();
                self.tally.response.record(response);
                self.tally.lag.record(lag);
                (response, lag)
            }
        };
        if self.shared.plan.latency_limit.is_some_and(|limit| whole > limit) {
            self.tally.late += 1;
        }
        self.shared.live.succeeded(whole, lag);
    }

    fn close(&mut self, visit: impl Visit) {
        let begun = Instant::now();
        let result = visit.close();
        let took = begun.elapsed();
        self.tally.connecting += took;
        match result {
            Ok(()) => self.tally.disconnect.record(took),
            Err(failure) => self.tally.failures.count(failure),
        }
    }
}

impl Outcome {
    pub(crate) fn failed(&self, step: Step) -> u64 {
        self.tally.failures.in_step(step)
    }
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
