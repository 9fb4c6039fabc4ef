//! What clients report while a round goes on, for its lines of progress.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What happened since the last line of progress.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Interval {
    pub(super) since_start: Duration,
    pub(super) length: Duration,
    pub(super) transactions: u64,
    pub(super) failed: u64,
    pub(super) mean_us: f64,
    pub(super) stddev_us: f64,
    /// How late transactions began on average; only with a given rate.
    pub(super) lag_us: Option<f64>,
    /// Transactions that were not begun because they were too late; only with a limit.
    pub(super) skipped: Option<u64>,
}

/// Running sums for the lines of progress.
#[derive(Default)]
pub(super) struct Live {
    transactions: AtomicU64,
    failed: AtomicU64,
    skipped: AtomicU64,
    sum_ns: AtomicU64,
    /// Squares of tenths of microseconds. May wrap around; only differences over an interval are used.
    sum_of_squares: AtomicU64,
    lag_ns: AtomicU64,
}

impl Live {
    /// A transaction: how long it took, and how late it began.
    pub(super) fn succeeded(&self, took: Duration, lag: Duration) {
        let ns = nanoseconds(took);
        let tenths = ns / 100;
        self.transactions.fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
        self.sum_of_squares.fetch_add(tenths.saturating_mul(tenths), Ordering::Relaxed);
        self.lag_ns.fetch_add(nanoseconds(lag), Ordering::Relaxed);
    }

    /// A transaction or a connection that failed.
    pub(super) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// A transaction that was too late to be begun.
    pub(super) fn skipped(&self) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> [u64; 6] {
        [&self.transactions, &self.failed, &self.skipped, &self.sum_ns, &self.sum_of_squares, &self.lag_ns]
            .map(|a| a.load(Ordering::Relaxed))
    }
}

fn nanoseconds(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
}

/// Turns the running sums into intervals.
pub(super) struct Meter {
    start: Instant,
    every: Option<Duration>,
    /// Whether there is a given rate, and whether there is a limit.
    paced: bool,
    limited: bool,
    last: Instant,
    before: [u64; 6],
}

impl Meter {
    pub(super) fn new(start: Instant, every: Option<Duration>, paced: bool, limited: bool) -> Self {
        Self { start, every, paced, limited, last: start, before: [0; 6] }
    }

    /// What happened since the last one, if that is long enough ago.
    pub(super) fn due(&mut self, live: &Live) -> Option<Interval> {
        let length = self.last.elapsed();
        if length < self.every? {
            return None;
        }
        let now = live.read();
        let [transactions, failed, skipped, sum_ns, squares, lag_ns] =
            [0, 1, 2, 3, 4, 5].map(|i| now[i].wrapping_sub(self.before[i]));
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
            lag_us: self.paced.then_some(lag_ns as f64 / 1e3 / n),
            skipped: self.limited.then_some(skipped),
        })
    }
}

impl Interval {
    /// The line as pgbench prints it.
    pub(in crate::reconnect) fn line(&self) -> String {
        let mut line = format!(
            "progress: {:.1} s, {:.1} tps, lat {:.3} ms stddev {:.3}, {} failed",
            self.since_start.as_secs_f64(),
            self.transactions as f64 / self.length.as_secs_f64().max(1e-9),
            self.mean_us / 1e3,
            self.stddev_us / 1e3,
            self.failed
        );
        if let Some(lag) = self.lag_us {
            line.push_str(&format!(", lag {:.3} ms", lag / 1e3));
        }
        if let Some(skipped) = self.skipped {
            line.push_str(&format!(", {skipped} skipped"));
        }
        line
    }
}
