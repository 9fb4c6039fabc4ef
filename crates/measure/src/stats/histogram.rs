//! A distribution of a long run in bounded memory: HDR histogram, three significant digits, 1 us to 1 h.
//!
//! One per thread and phase, merged afterwards without loss. It grows with the largest value seen (some 40 kB
//! at 10 ms, 180 kB at an hour), so that hundreds of clients can each own a few. Mean and standard deviation
//! come from exact running sums, not from the buckets.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::distribution::{Distribution, P999_FROM};

/// The largest value that is kept apart; anything longer counts as this. Microseconds, one hour.
const LONGEST_US: u64 = 3_600_000_000;

/// A part of a histogram: how many durations lie above `above_us` and not above `up_to_us`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Bucket {
    /// Lower edge, not included.
    pub above_us: f64,
    /// Upper edge, included.
    pub up_to_us: f64,
    /// How many.
    pub count: u64,
}

/// Counts of durations, mergeable. See the module's description for its precision.
#[derive(Debug, Clone)]
pub struct Histogram {
    counts: hdrhistogram::Histogram<u64>,
    sum_us: f64,
    sum_of_squares: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// An empty one.
    ///
    /// # Panics
    /// Never in practice: three digits is a precision that the library accepts, checked by every test here.
    #[must_use]
    pub fn new() -> Self {
        #[allow(clippy::expect_used)]
        let counts = hdrhistogram::Histogram::<u64>::new(3).expect("3 significant digits are allowed");
        Self { counts, sum_us: 0.0, sum_of_squares: 0.0 }
    }

    /// Counts one duration. Below 1 us counts as 1 us in the percentiles, above one hour as one hour.
    pub fn record(&mut self, took: Duration) {
        let us = took.as_secs_f64() * 1e6;
        self.sum_us += us;
        self.sum_of_squares += us * us;
        // Resizes when it must; the clamp leaves no other cause of an error.
        let _ = self.counts.record((us.round() as u64).clamp(1, LONGEST_US));
    }

    /// Makes room for values up to one hour, so that recording never allocates. Costs 180 kB.
    pub fn reserve(&mut self) {
        let mut full = match hdrhistogram::Histogram::<u64>::new_with_max(LONGEST_US, 3) {
            Ok(full) => full,
            Err(_) => return,
        };
        if full.add(&self.counts).is_ok() {
            full.auto(true);
            self.counts = full;
        }
    }

    /// Adds all counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        // Both resize by themselves, the only cause of an error here.
        if self.counts.add(&other.counts).is_ok() {
            self.sum_us += other.sum_us;
            self.sum_of_squares += other.sum_of_squares;
        }
    }

    /// How many durations were recorded.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.counts.len()
    }

    /// Whether nothing was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// The sum of all recorded durations, microseconds, exact.
    #[must_use]
    pub fn sum_us(&self) -> f64 {
        self.sum_us
    }

    /// The value at `q` (0 to 1), microseconds; 0 if empty.
    #[must_use]
    pub fn quantile(&self, q: f64) -> f64 {
        self.counts.value_at_quantile(q) as f64
    }

    /// The distribution as far as the counts tell it; `None` if empty. No interval of the median: that needs
    /// the samples, and with as many observations as go in here it would be narrower than the buckets.
    #[must_use]
    pub fn distribution(&self) -> Option<Distribution> {
        let n = self.counts.len();
        if n == 0 {
            return None;
        }
        let (min, max) = (self.counts.min() as f64, self.counts.max() as f64);
        let median = self.quantile(0.5);
        let mean = self.sum_us / n as f64;
        let variance = (self.sum_of_squares / n as f64 - mean * mean).max(0.0);
        Some(Distribution {
            n,
            min,
            median,
            median_interval: None,
            mad: self.mad(median),
            p90: self.quantile(0.90),
            p95: self.quantile(0.95),
            p99: self.quantile(0.99),
            p999: (n >= P999_FROM).then(|| self.quantile(0.999)),
            max,
            mean,
            stddev: variance.sqrt(),
        })
    }

    /// The share of observations at or below each recorded value: the points of the cumulative curve.
    #[must_use]
    pub fn cumulative(&self) -> Vec<(f64, f64)> {
        let total = self.counts.len() as f64;
        let mut seen = 0_u64;
        self.counts
            .iter_recorded()
            .map(|point| {
                seen += point.count_since_last_iteration();
                (point.value_iterated_to() as f64, seen as f64 / total)
            })
            .collect()
    }

    /// The counts in ten buckets to a power of ten, from the first one with a count to the last; those between may be
    /// empty.
    #[must_use]
    pub fn buckets(&self) -> Vec<Bucket> {
        const PER_DECADE: f64 = 10.0;
        let mut out: Vec<(i32, u64)> = Vec::new();
        for point in self.counts.iter_recorded() {
            let us = (point.value_iterated_to() as f64).max(1.0);
            // Values of up to three digits, whose logarithm may be off by the last bit.
            let at = (us.log10() * PER_DECADE - 1e-9).ceil() as i32;
            let count = point.count_since_last_iteration();
            match out.last_mut() {
                Some((last, sum)) if *last == at => *sum += count,
                _ => {
                    let from = out.last().map_or(at, |(last, _)| last + 1);
                    out.extend((from..at).map(|empty| (empty, 0)));
                    out.push((at, count));
                }
            }
        }
        let edge = |at: i32| 10_f64.powf(f64::from(at) / PER_DECADE);
        out.into_iter().map(|(at, count)| Bucket { above_us: edge(at - 1), up_to_us: edge(at), count }).collect()
    }

    fn mad(&self, median: f64) -> f64 {
        let mut distances: Vec<(f64, u64)> = self
            .counts
            .iter_recorded()
            .map(|point| {
                let value = self.counts.median_equivalent(point.value_iterated_to()) as f64;
                ((value - median).abs(), point.count_at_value())
            })
            .collect();
        distances.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let half = self.counts.len().div_ceil(2);
        let mut seen = 0;
        for (distance, count) in distances {
            seen += count;
            if seen >= half {
                return distance;
            }
        }
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(us: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        for v in us {
            histogram.record(Duration::from_micros(*v));
        }
        histogram
    }

    #[test]
    fn empty() {
        assert_eq!(Histogram::new().distribution(), None);
        assert!(Histogram::new().is_empty());
    }

    #[test]
    fn buckets_lie_side_by_side_and_lose_nothing() {
        let h = of(&[1, 9, 10, 11, 100, 101, 125, 126, 5000]);
        let buckets = h.buckets();
        assert_eq!(buckets.iter().map(|b| b.count).sum::<u64>(), 9);
        assert!(buckets.windows(2).all(|w| (w[0].up_to_us - w[1].above_us).abs() < 1e-9));
        let of = |us: f64| buckets.iter().find(|b| b.above_us < us && us <= b.up_to_us + 1e-6).map(|b| b.count);
        // Upper edges belong to a bucket: 10, 12.6, ..., 100, 125.9, ...
        assert_eq!((of(10.0), of(11.0), of(100.0), of(101.0)), (Some(2), Some(1), Some(1), Some(2)));
        assert_eq!(of(126.0), Some(1));
        assert_eq!(of(2000.0), Some(0));
        assert!(Histogram::new().buckets().is_empty());
    }

    #[test]
    fn too_short_and_too_long_are_kept() {
        let mut h = Histogram::new();
        h.record(Duration::from_nanos(100));
        h.record(Duration::from_secs(100_000));
        let d = h.distribution().expect("two");
        assert_eq!(d.n, 2);
        assert!((d.min - 1.0).abs() < 1e-9);
        assert!((d.max - 3.6e9).abs() / 3.6e9 < 1e-3);
    }

    #[test]
    fn reserving_keeps_what_is_there() {
        let mut h = of(&[5, 10, 20]);
        let before = h.distribution();
        h.reserve();
        assert_eq!(h.distribution(), before);
        h.record(Duration::from_secs(3000));
        assert_eq!(h.len(), 4);
    }

    proptest! {
        #[test]
        fn agrees_with_the_raw_samples_to_three_digits(us in prop::collection::vec(1u64..10_000_000, 1..300)) {
            let raw: Vec<f64> = us.iter().map(|v| *v as f64).collect();
            let exact = Distribution::of(&raw).expect("not empty");
            let d = of(&us).distribution().expect("not empty");
            prop_assert_eq!(d.n, exact.n);
            prop_assert!((d.mean - exact.mean).abs() <= 1e-6 * exact.mean);
            prop_assert!((d.max - exact.max).abs() <= 1e-3 * exact.max + 1.0);
            prop_assert!((d.min - exact.min).abs() <= 1e-3 * exact.min + 1.0);
            // The histogram answers with an observation at or above the rank, never with one in between.
            let mut sorted = us.clone();
            sorted.sort_unstable();
            let rank = sorted[sorted.len().div_ceil(2) - 1] as f64;
            prop_assert!((d.median - rank).abs() <= 1e-3 * rank + 1.0);
        }

        #[test]
        fn merging_is_recording_both(
            a in prop::collection::vec(1u64..1_000_000, 0..100),
            b in prop::collection::vec(1u64..1_000_000, 0..100),
        ) {
            let mut merged = of(&a);
            merged.merge(&of(&b));
            let both: Vec<u64> = a.iter().chain(&b).copied().collect();
            let (x, y) = (merged.distribution(), of(&both).distribution());
            match (x, y) {
                (Some(x), Some(y)) => {
                    prop_assert_eq!((x.n, x.median, x.p99, x.max, x.mad), (y.n, y.median, y.p99, y.max, y.mad));
                    prop_assert!((x.mean - y.mean).abs() < 1e-6 * y.mean.max(1.0));
                }
                (x, y) => prop_assert_eq!(x, y),
            }
        }

        #[test]
        fn the_cumulative_curve_rises_to_one(us in prop::collection::vec(1u64..1_000_000, 1..100)) {
            let curve = of(&us).cumulative();
            prop_assert!(curve.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 < w[1].1));
            prop_assert!((curve.last().expect("points").1 - 1.0).abs() < 1e-12);
        }
    }
}
