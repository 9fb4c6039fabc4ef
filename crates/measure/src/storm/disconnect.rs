//! The end of a round: connections are ended in a chosen order, and the server is waited for.
//!
//! The order matters: PostgreSQL hands the places of the sessions that ended to the next ones, first out first in since
//! version 16 and last out first in before, and what a new session costs depends on its place.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use socket2::Socket;

use super::model::DisconnectOrder;
use super::session::{Door, Session, has_ended};
use crate::failure::Failures;

/// How often the sockets are looked at.
const LOOK: Duration = Duration::from_millis(5);

/// What came of it.
pub(super) struct End {
    /// From the first goodbye until the server had closed the last connection; `None` if that took too long.
    pub(super) took: Option<Duration>,
    /// Connections that the server had not closed in time.
    pub(super) left: usize,
    pub(super) failures: Failures,
}

/// Puts what is ordered by readiness, the first one first, into the order of disconnecting.
pub(super) fn arrange<T>(items: &mut [T], order: DisconnectOrder, seed: u64) {
    match order {
        DisconnectOrder::Fifo => {}
        DisconnectOrder::Lifo => items.reverse(),
        DisconnectOrder::Random => fastrand::Rng::with_seed(seed).shuffle(items),
    }
}

/// Says goodbye on all, in this order, and waits until the server has closed each, at most `patience`. Sockets are closed
/// at the end only: who closes first keeps the port for a minute (TIME_WAIT), and that shall not be us.
pub(super) fn end(door: &Door<'_>, held: Vec<Session>, patience: Duration, stop: &AtomicBool) -> End {
    let begun = Instant::now();
    let mut buffer = vec![0; 16 * 1024];
    let mut failures = Failures::default();
    let mut sockets: Vec<Socket> = Vec::with_capacity(held.len());
    for mut session in held {
        match session.say_goodbye(door, &mut buffer) {
            Ok(()) => sockets.push(session.socket),
            Err(failure) => failures.count(failure),
        }
    }
    let mut open: Vec<&Socket> = sockets.iter().collect();
    loop {
        open.retain(|socket| !has_ended(socket, &mut buffer));
        if open.is_empty() {
            return End { took: Some(begun.elapsed()), left: 0, failures };
        }
        if begun.elapsed() > patience || (stop.load(Ordering::Relaxed) && begun.elapsed() > Duration::from_secs(2)) {
            return End { took: None, left: open.len(), failures };
        }
        thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arranged(order: DisconnectOrder, seed: u64) -> Vec<u32> {
        let mut items: Vec<u32> = (0..100).collect();
        arrange(&mut items, order, seed);
        items
    }

    #[test]
    fn the_order_is_the_one_asked_for() {
        let first_first: Vec<u32> = (0..100).collect();
        let last_first: Vec<u32> = (0..100).rev().collect();
        assert_eq!(arranged(DisconnectOrder::Fifo, 1), first_first);
        assert_eq!(arranged(DisconnectOrder::Lifo, 1), last_first);
        let random = arranged(DisconnectOrder::Random, 7);
        assert_eq!(random, arranged(DisconnectOrder::Random, 7), "the same seed gives the same order");
        assert_ne!(random, arranged(DisconnectOrder::Random, 8));
        let mut sorted = random.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, first_first);
    }
}
