//! One round of load: as many threads as clients, each in a closed loop, until the time or the number of
//! transactions is reached.
//!
//! It knows sessions only through [`Door`] and [`Visit`], so that its bookkeeping is tested without a server.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

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
pub(super) trait Door: Send + Sync + 'static {
    type Visit: Visit;
    fn connect(&self) -> Result<Self::Visit, Failure>;
}

/// An established connection.
pub(super) trait Visit {
    /// Runs the script once.
    fn transaction(&mut self, script: &Script, variables: &mut Variables) -> Result<(), Failure>;
    /// Whether another transaction can be run on it, after one that failed.
    fn usable(&mut self) -> bool;
    /// Ends it. Returns when that is done.
    fn close(self) -> Result<(), Failure>;
}

/// What all clients of a round do.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) clients: u32,
    pub(super) connecting_at_once: Option<u32>,
    pub(super) limit: Limit,
    pub(super) mode: Mode,
    pub(super) script: Script,
    pub(super) seed: u64,
    pub(super) progress_every: Option<Duration>,
}

/// What a round, or a client of it, measured.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) connect: Histogram,
    pub(super) transaction: Histogram,
    pub(super) disconnect: Histogram,
    pub(super) failures: Failures,
    /// Time in connecting, disconnecting and waiting for either, summed over clients.
    pub(super) connecting: Duration,
}

impl Tally {
    pub(super) fn merge(&mut self, other: Self) {
        self.connect.merge(&other.connect);
        self.transaction.merge(&other.transaction);
        self.disconnect.merge(&other.disconnect);
        self.failures.merge(other.failures);
        self.connecting += other.connecting;
    }
}

/// The end of a round.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) tally: Tally,
    pub(super) wall: Duration,
    /// Clients that had not ended when the round was interrupted; their figures are missing.
    pub(super) missing: u32,
}

/// What happened since the last line of progress.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Interval {
    pub(super) since_start: Duration,
    pub(super) length: Duration,
    pub(super) transactions: u64,
    pub(super) failed: u64,
    pub(super) mean_us: f64,
    pub(super) stddev_us: f64,
}

/// How long clients may take to notice an interruption.
const GRACE: Duration = Duration::from_secs(3);

/// Runs a round. `stop` ends it early; `progress` is called from this thread.
pub(super) fn run<D: Door>(
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
    let mut meter = Meter::new(start, shared.plan.progress_every);
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

/// One client's loop.
struct Client<'a> {
    shared: &'a Shared,
    variables: Variables,
    start: Instant,
    tally: Tally,
    attempts: u64,
    refused_in_a_row: u32,
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
        }
    }

    fn run<D: Door>(mut self, door: &D) -> Tally {
        let mut kept: Option<D::Visit> = None;
        while self.goes_on() {
            let Some(mut visit) = kept.take().or_else(|| self.connect(door)) else {
                continue;
            };
            let ok = self.transaction(&mut visit);
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
                self.shared.live.failed.fetch_add(1, Ordering::Relaxed);
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

    fn transaction(&mut self, visit: &mut impl Visit) -> bool {
        self.attempts += 1;
        let begun = Instant::now();
        let result = visit.transaction(&self.shared.plan.script, &mut self.variables);
        let took = begun.elapsed();
        match result {
            Ok(()) => {
                self.tally.transaction.record(took);
                self.shared.live.succeeded(took);
                true
            }
            Err(failure) => {
                self.tally.failures.count(failure);
                self.shared.live.failed.fetch_add(1, Ordering::Relaxed);
                false
            }
        }
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

/// Releases all clients at the same moment.
#[derive(Default)]
struct Start {
    signal: Mutex<Option<Signal>>,
    changed: Condvar,
}

#[derive(Clone, Copy)]
enum Signal {
    Go(Instant),
    GoHome,
}

impl Start {
    fn set(&self, signal: Signal) {
        *lock(&self.signal) = Some(signal);
        self.changed.notify_all();
    }

    fn wait(&self) -> Option<Instant> {
        let guard =
            self.changed.wait_while(lock(&self.signal), |s| s.is_none()).unwrap_or_else(PoisonError::into_inner);
        match *guard {
            Some(Signal::Go(start)) => Some(start),
            Some(Signal::GoHome) | None => None,
        }
    }
}

/// Lets a number of clients connect at the same time.
struct Turnstile {
    free: Mutex<u32>,
    changed: Condvar,
}

impl Turnstile {
    fn new(places: u32) -> Self {
        Self { free: Mutex::new(places.max(1)), changed: Condvar::new() }
    }

    fn enter(&self) -> Pass<'_> {
        let mut free =
            self.changed.wait_while(lock(&self.free), |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Pass(self)
    }
}

struct Pass<'a>(&'a Turnstile);

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        *lock(&self.0.free) += 1;
        self.0.changed.notify_one();
    }
}

/// A panic of another client must not take this one along.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Running sums for the lines of progress.
#[derive(Default)]
struct Live {
    transactions: AtomicU64,
    failed: AtomicU64,
    sum_ns: AtomicU64,
    /// Squares of tenths of microseconds. May wrap around; only differences over an interval are used.
    sum_of_squares: AtomicU64,
}

impl Live {
    fn succeeded(&self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let tenths = ns / 100;
        self.transactions.fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
        self.sum_of_squares.fetch_add(tenths.saturating_mul(tenths), Ordering::Relaxed);
    }

    fn read(&self) -> [u64; 4] {
        [&self.transactions, &self.failed, &self.sum_ns, &self.sum_of_squares].map(|a| a.load(Ordering::Relaxed))
    }
}

/// Turns the running sums into intervals.
struct Meter {
    start: Instant,
    every: Option<Duration>,
    last: Instant,
    before: [u64; 4],
}

impl Meter {
    fn new(start: Instant, every: Option<Duration>) -> Self {
        Self { start, every, last: start, before: [0; 4] }
    }

    fn due(&mut self, live: &Live) -> Option<Interval> {
        let length = self.last.elapsed();
        if length < self.every? {
            return None;
        }
        let now = live.read();
        let [transactions, failed, sum_ns, squares] = [0, 1, 2, 3].map(|i| now[i].wrapping_sub(self.before[i]));
        self.before = now;
        self.last += length;
        let n = transactions.max(1) as f64;
        let mean_us = sum_ns as f64 / 1e3 / n;
        let variance = (squares as f64 / 100.0 / n - mean_us * mean_us).max(0.0);
        Some(Interval {
            since_start: self.start.elapsed(),
            length,
            transactions,
            failed,
            mean_us,
            stddev_us: variance.sqrt(),
        })
    }
}

impl Interval {
    /// The line as pgbench prints it.
    pub(super) fn line(&self) -> String {
        format!(
            "progress: {:.1} s, {:.1} tps, lat {:.3} ms stddev {:.3}, {} failed",
            self.since_start.as_secs_f64(),
            self.transactions as f64 / self.length.as_secs_f64().max(1e-9),
            self.mean_us / 1e3,
            self.stddev_us / 1e3,
            self.failed
        )
    }
}

impl Outcome {
    pub(super) fn failed(&self, step: Step) -> u64 {
        self.tally.failures.in_step(step)
    }
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
