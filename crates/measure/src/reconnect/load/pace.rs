//! The schedule of an open loop: when each transaction of a client is meant to begin, whatever became of the ones
//! before. Gaps are exponentially distributed, as those of many independent users are (a Poisson process), and as
//! `pgbench -R` makes them.

use std::time::{Duration, Instant};

/// One client's schedule.
pub(super) struct Pace {
    rng: fastrand::Rng,
    /// Mean time between two transactions of this client, seconds.
    mean_gap: f64,
    next: Instant,
}

impl Pace {
    /// The schedule of one of `clients` that together are to begin `per_second` transactions a second.
    pub(super) fn new(per_second: f64, clients: u32, seed: u64, start: Instant) -> Self {
        Self { rng: fastrand::Rng::with_seed(seed), mean_gap: f64::from(clients.max(1)) / per_second, next: start }
    }

    /// When the next transaction is meant to begin.
    pub(super) fn advance(&mut self) -> Instant {
        // 1 - x lies in (0, 1], so that the logarithm is finite.
        let gap = -(1.0 - self.rng.f64()).ln() * self.mean_gap;
        // A gap of years is one that never ends; it must not overflow.
        self.next += Duration::from_secs_f64(gap.min(1e6));
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_have_the_mean_and_the_spread_of_a_poisson_process() {
        let start = Instant::now();
        let mut pace = Pace::new(1000.0, 4, 7, start);
        let mut last = start;
        let gaps: Vec<f64> = (0..20_000)
            .map(|_| {
                let at = pace.advance();
                let gap = (at - last).as_secs_f64() * 1e3;
                last = at;
                gap
            })
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((3.8..4.2).contains(&mean), "{mean}");
        assert!((3.7..4.3).contains(&variance.sqrt()), "{}", variance.sqrt());
    }

    #[test]
    fn the_same_seed_gives_the_same_schedule() {
        let start = Instant::now();
        let times = |seed| {
            let mut pace = Pace::new(10.0, 1, seed, start);
            (0..5).map(|_| pace.advance()).collect::<Vec<_>>()
        };
        assert_eq!(times(1), times(1));
        assert_ne!(times(1), times(2));
    }

    #[test]
    fn a_rate_close_to_nothing_does_not_overflow() {
        let mut pace = Pace::new(1e-300, 10_000, 1, Instant::now());
        pace.advance();
    }
}
