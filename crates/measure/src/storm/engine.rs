//! One round: the threads are released at the same moment, and the round is over when every connection is ready or has
//! failed. The connections are handed to the caller, who ends them.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use mio::Poll;

use super::pace::Pace;
use super::session::{Door, Session};
use super::source::Sources;
use super::worker::{Plan, Tally, Worker};
use crate::failure::Failures;

/// What to do in a round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) clients: u32,
    pub(super) threads: u32,
    pub(super) pace: Pace,
    pub(super) timeout: Duration,
}

/// What came of it.
pub(super) struct Outcome {
    /// Connections that are ready, the first one first.
    pub(super) held: Vec<Session>,
    pub(super) failures: Failures,
    pub(super) failed: u32,
    pub(super) retries: u64,
    /// Source addresses that connections came from.
    pub(super) sources: u32,
}

/// How often people are told how far it is.
const NEWS: Duration = Duration::from_secs(1);

/// Runs a round. `news` gets the number of ready connections once a second, from this thread.
pub(super) fn run(door: Door<'_>, load: Load, stop: &AtomicBool, news: &mut dyn FnMut(u32)) -> io::Result<Outcome> {
    let threads = load.pace.threads(load.threads, load.clients);
    let polls = (0..threads).map(|_| Poll::new()).collect::<io::Result<Vec<Poll>>>()?;
    let sources = Sources::new(door.destination, load.clients);
    let plan = Plan {
        door,
        clients: load.clients,
        threads,
        pace: load.pace,
        timeout: load.timeout,
        sources,
        stop,
        ready: AtomicU32::new(0),
    };
    let barrier = Barrier::new(threads as usize + 1);
    let start = OnceLock::new();
    let tallies = thread::scope(|scope| {
        let (plan, barrier, start) = (&plan, &barrier, &start);
        let mut running = Vec::new();
        for (number, poll) in (0..threads).zip(polls) {
            running.push(scope.spawn(move || {
                // Twice: the clock starts when all have come, and nobody runs before it has.
                barrier.wait();
                barrier.wait();
                Worker::new(plan, number, poll, *start.get_or_init(Instant::now)).run()
            }));
        }
        barrier.wait();
        start.get_or_init(Instant::now);
        barrier.wait();
        tell(plan, &running, news);
        let ended = running.into_iter().map(|thread| thread.join());
        ended.map(|t| t.unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))).collect::<io::Result<Vec<_>>>()
    })?;
    Ok(outcome(tallies, plan.sources.count()))
}

fn tell(plan: &Plan<'_>, running: &[thread::ScopedJoinHandle<'_, io::Result<Tally>>], news: &mut dyn FnMut(u32)) {
    let mut told = Instant::now();
    while !running.iter().all(thread::ScopedJoinHandle::is_finished) {
        thread::sleep(Duration::from_millis(2));
        if told.elapsed() >= NEWS {
            told = Instant::now();
            news(plan.ready.load(Ordering::Relaxed));
        }
    }
}

fn outcome(tallies: Vec<Tally>, sources: u32) -> Outcome {
    let mut all = Outcome { held: Vec::new(), failures: Failures::default(), failed: 0, retries: 0, sources };
    for tally in tallies {
        all.held.extend(tally.held);
        all.failures.merge(tally.failures);
        all.failed += tally.failed;
        all.retries += tally.retries;
    }
    all.held.sort_by_key(|session| session.times.ready);
    all
}
