//! The bootstrap interval of a median, without drawing n samples n times.
//!
//! The percentile bootstrap draws n values with replacement and takes their median, thousands of times. For the
//! median that draw can be made directly: the k-th smallest of n uniform draws from a sorted sample is the
//! element at floor(n * U), where U is the k-th order statistic of n uniform variates, which is Beta(k, n+1-k)
//! distributed. One resample costs a few random numbers whatever n is, and follows exactly the same
//! distribution. (B. Efron, "Bootstrap methods: another look at the jackknife", 1979, treats the median this
//! way; G. Marsaglia and W. W. Tsang, "A simple method for generating gamma variables", 2000, gives the draw.)

use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// How many resamples an interval is made of.
pub const RESAMPLES: usize = 10_000;

/// The seed of every bootstrap: the same samples always give the same interval.
const SEED: u64 = 0x7067_7573_6865_7231;

/// A closed interval that holds the true value with the stated confidence, 95 % everywhere in this crate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Interval {
    /// Lower end, in the unit of the value it belongs to.
    pub low: f64,
    /// Upper end, in the unit of the value it belongs to.
    pub high: f64,
}

impl Interval {
    /// Whether `value` lies inside, ends included.
    #[must_use]
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// The 95 % bootstrap interval of the median of `sorted`, which must be in ascending order.
///
/// `None` with fewer than three samples: two say nothing about their own spread.
#[must_use]
pub fn median_interval(sorted: &[f64]) -> Option<Interval> {
    if sorted.len() < 3 {
        return None;
    }
    let mut rng = Rng::with_seed(SEED);
    Some(middle_95((0..RESAMPLES).map(|_| resampled_median(sorted, &mut rng)).collect()))
}

/// The generator that all intervals of one calculation draw from.
pub(super) fn seeded() -> Rng {
    Rng::with_seed(SEED)
}

/// The median of one bootstrap resample of `sorted` (ascending, not empty).
pub(super) fn resampled_median(sorted: &[f64], rng: &mut Rng) -> f64 {
    let n = sorted.len();
    let pick = |u: f64| -> f64 {
        let index = (u * n as f64) as usize;
        sorted.get(index.min(n - 1)).copied().unwrap_or(f64::NAN)
    };
    if n % 2 == 1 {
        let k = n / 2 + 1;
        pick(beta(k as f64, (n + 1 - k) as f64, rng))
    } else {
        // The two middle order statistics: the lower one, and the upper one given the lower, which is the
        // smallest of the n - k draws that fell above it.
        let k = n / 2;
        let lower = beta(k as f64, (n + 1 - k) as f64, rng);
        let smallest = 1.0 - rng.f64().powf(1.0 / (n - k) as f64);
        let upper = lower + (1.0 - lower) * smallest;
        f64::midpoint(pick(lower), pick(upper))
    }
}

/// The 2.5 % and 97.5 % quantiles of the resampled values.
pub(super) fn middle_95(mut values: Vec<f64>) -> Interval {
    values.sort_unstable_by(f64::total_cmp);
    Interval { low: super::quantile(&values, 0.025), high: super::quantile(&values, 0.975) }
}

/// A Beta(a, b) variate, a and b at least 1.
fn beta(a: f64, b: f64, rng: &mut Rng) -> f64 {
    let x = gamma(a, rng);
    let y = gamma(b, rng);
    x / (x + y)
}

/// A Gamma(shape, 1) variate, shape at least 1.
fn gamma(shape: f64, rng: &mut Rng) -> f64 {
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(rng);
        let v = (1.0 + c * x).powi(3);
        if v <= 0.0 {
            continue;
        }
        let u = 1.0 - rng.f64();
        if u.ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}

/// A standard normal variate (Box and Muller).
fn normal(rng: &mut Rng) -> f64 {
    let u = 1.0 - rng.f64();
    let v = rng.f64();
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::quantile;

    /// The bootstrap as the textbook has it, to compare with.
    fn plain_bootstrap(sorted: &[f64], resamples: usize) -> Interval {
        let mut rng = Rng::with_seed(99);
        let medians = (0..resamples)
            .map(|_| {
                let mut draw: Vec<f64> = (0..sorted.len()).map(|_| sorted[rng.usize(0..sorted.len())]).collect();
                draw.sort_unstable_by(f64::total_cmp);
                quantile(&draw, 0.5)
            })
            .collect();
        middle_95(medians)
    }

    #[test]
    fn agrees_with_the_plain_bootstrap() {
        for n in [5usize, 6, 31, 100] {
            let sorted: Vec<f64> = (0..n).map(|i| 100.0 + (i * i) as f64).collect();
            let fast = median_interval(&sorted).expect("enough samples");
            let plain = plain_bootstrap(&sorted, 20_000);
            let spread = plain.high - plain.low;
            assert!((fast.low - plain.low).abs() <= 0.08 * spread, "n={n} {fast:?} {plain:?}");
            assert!((fast.high - plain.high).abs() <= 0.08 * spread, "n={n} {fast:?} {plain:?}");
        }
    }

    #[test]
    fn holds_the_true_median_about_95_times_in_100() {
        let mut rng = Rng::with_seed(7);
        let mut held = 0;
        for _ in 0..300 {
            let mut sample: Vec<f64> = (0..40).map(|_| rng.f64()).collect();
            sample.sort_unstable_by(f64::total_cmp);
            held += u32::from(median_interval(&sample).expect("enough").contains(0.5));
        }
        assert!((270..=298).contains(&held), "{held} of 300");
    }

    #[test]
    fn is_the_same_every_time() {
        let sorted: Vec<f64> = (0..50).map(f64::from).collect();
        assert_eq!(median_interval(&sorted), median_interval(&sorted));
    }

    #[test]
    fn needs_three_samples() {
        assert_eq!(median_interval(&[1.0, 2.0]), None);
        assert!(median_interval(&[1.0, 2.0, 3.0]).is_some());
    }
}
