//! What a set of samples looks like: [`Distribution`]; and a series with its first two samples apart:
//! [`Summary`].

use serde::{Deserialize, Serialize};

use super::bootstrap::{Interval, median_interval};

/// One population of samples, microseconds. The names of the serialized fields carry the unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Distribution {
    /// How many samples.
    pub n: u64,
    /// The smallest sample.
    #[serde(rename = "min_us")]
    pub min: f64,
    /// The median.
    #[serde(rename = "median_us")]
    pub median: f64,
    /// 95 % interval of the median; absent below three samples and for histograms.
    #[serde(rename = "median_ci95_us", default, skip_serializing_if = "Option::is_none")]
    pub median_interval: Option<Interval>,
    /// Median of the absolute distances from the median: a spread that outliers do not touch.
    #[serde(rename = "mad_us")]
    pub mad: f64,
    /// 90th percentile.
    #[serde(rename = "p90_us")]
    pub p90: f64,
    /// 95th percentile.
    #[serde(rename = "p95_us")]
    pub p95: f64,
    /// 99th percentile.
    #[serde(rename = "p99_us")]
    pub p99: f64,
    /// 99.9th percentile, only with at least 10,000 samples: below that fewer than ten lie above it.
    #[serde(rename = "p999_us", default, skip_serializing_if = "Option::is_none")]
    pub p999: Option<f64>,
    /// The largest sample.
    #[serde(rename = "max_us")]
    pub max: f64,
    /// The arithmetic mean.
    #[serde(rename = "mean_us")]
    pub mean: f64,
    /// Standard deviation with n in the denominator, the one that pgbench prints.
    #[serde(rename = "stddev_us")]
    pub stddev: f64,
}

/// From how many samples on a 99.9th percentile is given: 10 / (1 - 0.999).
pub(super) const P999_FROM: u64 = 10_000;

impl Distribution {
    /// The distribution of `samples` (microseconds, any order). Values that are not finite are left out; `None`
    /// if nothing remains.
    #[must_use]
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = samples.iter().copied().filter(|v| v.is_finite()).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let n = sorted.len() as f64;
        let mean = sorted.iter().sum::<f64>() / n;
        let variance = sorted.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
        let count = sorted.len() as u64;
        Some(Self {
            n: count,
            min,
            median: quantile(&sorted, 0.5),
            median_interval: median_interval(&sorted),
            mad: mad_of_sorted(&sorted),
            p90: quantile(&sorted, 0.90),
            p95: quantile(&sorted, 0.95),
            p99: quantile(&sorted, 0.99),
            p999: (count >= P999_FROM).then(|| quantile(&sorted, 0.999)),
            max,
            mean: mean.clamp(min, max),
            stddev: variance.sqrt(),
        })
    }
}

/// A series in the order in which it was measured, with its first two samples apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Summary {
    /// How many samples in all.
    pub n: u64,
    /// The first sample, microseconds.
    #[serde(rename = "first_us")]
    pub first: f64,
    /// The second sample, if there was one.
    #[serde(rename = "second_us", default, skip_serializing_if = "Option::is_none")]
    pub second: Option<f64>,
    /// Samples 3 and later; absent if there were only two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steady: Option<Distribution>,
    /// The first sample divided by the steady median: how much the first one pays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_to_steady: Option<f64>,
}

impl Summary {
    /// Summarizes `samples`, microseconds in order of measurement. Values that are not finite are left out;
    /// `None` if nothing remains.
    #[must_use]
    pub fn of(samples: &[f64]) -> Option<Self> {
        let finite: Vec<f64> = samples.iter().copied().filter(|v| v.is_finite()).collect();
        let (&first, later) = finite.split_first()?;
        let steady = later.get(1..).and_then(Distribution::of);
        let first_to_steady = steady.as_ref().filter(|s| s.median > 0.0).map(|s| first / s.median);
        Some(Self { n: finite.len() as u64, first, second: later.first().copied(), steady, first_to_steady })
    }
}

/// The quantile `q` (0 to 1) of `sorted`, which must be in ascending order: linear interpolation between the
/// neighbours, type 7 of Hyndman and Fan (1996), the default of R and NumPy. `NaN` if there are no samples.
#[must_use]
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let position = q.clamp(0.0, 1.0) * last as f64;
    let below = position.floor() as usize;
    let fraction = position - position.floor();
    match (sorted.get(below), sorted.get(below + 1)) {
        (Some(&low), Some(&high)) => low + (high - low) * fraction,
        (Some(&low), None) => low,
        (None, _) => f64::NAN,
    }
}

/// The median absolute deviation of `samples` in any order, in their unit; `NaN` if there are none.
#[must_use]
pub fn mad(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    mad_of_sorted(&sorted)
}

fn mad_of_sorted(sorted: &[f64]) -> f64 {
    let median = quantile(sorted, 0.5);
    let mut distances: Vec<f64> = sorted.iter().map(|v| (v - median).abs()).collect();
    distances.sort_unstable_by(f64::total_cmp);
    quantile(&distances, 0.5)
}

/// The positions in `samples` of values that do not belong to the rest: modified z-score above 3.5
/// (B. Iglewicz and D. C. Hoaglin, "How to detect and handle outliers", 1993). Outliers are named, never dropped.
#[must_use]
pub fn outliers(samples: &[f64]) -> Vec<usize> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let median = quantile(&sorted, 0.5);
    let spread = 1.4826 * mad_of_sorted(&sorted);
    if spread.is_nan() || spread <= 0.0 {
        return Vec::new();
    }
    samples.iter().enumerate().filter(|(_, v)| (*v - median).abs() / spread > 3.5).map(|(i, _)| i).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_values() {
        let d = Distribution::of(&[4.0, 1.0, 3.0, 2.0, 10.0]).expect("samples");
        assert_eq!((d.n, d.min, d.median, d.max, d.mean), (5, 1.0, 3.0, 10.0, 4.0));
        assert_eq!(d.mad, 1.0);
        assert!((d.stddev - 10.0_f64.sqrt()).abs() < 1e-12);
        assert_eq!(d.p999, None);
        assert!((d.p90 - 7.6).abs() < 1e-12);
    }

    #[test]
    fn the_first_two_stay_out_of_the_steady_part() {
        let s = Summary::of(&[1000.0, 50.0, 10.0, 10.0, 10.0]).expect("samples");
        assert_eq!(s.first, 1000.0);
        assert_eq!(s.second, Some(50.0));
        let steady = s.steady.expect("three steady samples");
        assert_eq!((steady.n, steady.max), (3, 10.0));
        assert_eq!(s.first_to_steady, Some(100.0));
    }

    #[test]
    fn short_series() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[f64::NAN]), None);
        let one = Summary::of(&[5.0]).expect("one");
        assert_eq!((one.second, one.steady, one.first_to_steady), (None, None, None));
        let two = Summary::of(&[5.0, 6.0]).expect("two");
        assert_eq!((two.second, two.steady), (Some(6.0), None));
    }

    #[test]
    fn p999_from_ten_thousand_on() {
        let many: Vec<f64> = (0..10_000).map(f64::from).collect();
        assert!(Distribution::of(&many).expect("many").p999.is_some());
        assert!(Distribution::of(&many[1..]).expect("many").p999.is_none());
    }

    #[test]
    fn outliers_are_found_by_position() {
        let mut samples: Vec<f64> = (0..40).map(|i| 100.0 + f64::from(i % 7)).collect();
        samples[0] = 900.0;
        assert_eq!(outliers(&samples), vec![0]);
        assert_eq!(outliers(&[5.0; 20]), Vec::<usize>::new());
    }

    #[test]
    fn serialized_names_carry_the_unit() {
        let json = serde_json::to_value(Summary::of(&[3.0, 2.0, 1.0, 1.0, 1.0])).expect("json");
        assert_eq!(json["first_us"], 3.0);
        assert_eq!(json["steady"]["median_us"], 1.0);
        assert_eq!(json["steady"]["median_ci95_us"]["high"], 1.0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn order_of_the_quantiles(samples in prop::collection::vec(0.0..1e9_f64, 1..400)) {
            let d = Distribution::of(&samples).expect("not empty");
            prop_assert!(d.min <= d.median && d.median <= d.p90 && d.p90 <= d.p95);
            prop_assert!(d.p95 <= d.p99 && d.p99 <= d.max);
            prop_assert!(d.min <= d.mean && d.mean <= d.max);
            prop_assert!(d.mad >= 0.0 && d.mad <= d.max - d.min);
            if let Some(i) = d.median_interval {
                prop_assert!(i.low <= i.high && d.min <= i.low && i.high <= d.max);
            }
        }

        #[test]
        fn order_of_measuring_changes_nothing_but_first_and_second(
            mut samples in prop::collection::vec(0.0..1e6_f64, 3..100),
        ) {
            let before = Distribution::of(&samples).expect("not empty");
            samples.reverse();
            prop_assert_eq!(before, Distribution::of(&samples).expect("not empty"));
        }

        #[test]
        fn scaling_scales(samples in prop::collection::vec(1.0..1e6_f64, 3..100)) {
            let doubled: Vec<f64> = samples.iter().map(|v| v * 2.0).collect();
            let (a, b) = (
                Distribution::of(&samples).expect("not empty"),
                Distribution::of(&doubled).expect("not empty"),
            );
            prop_assert!((b.median - 2.0 * a.median).abs() < 1e-6);
            prop_assert!((b.mad - 2.0 * a.mad).abs() < 1e-6);
            prop_assert!((b.stddev - 2.0 * a.stddev).abs() < 1e-3);
        }

        #[test]
        fn half_lies_on_either_side_of_the_median(samples in prop::collection::vec(0.0..1e6_f64, 1..200)) {
            let d = Distribution::of(&samples).expect("not empty");
            let below = samples.iter().filter(|v| **v < d.median).count();
            let above = samples.iter().filter(|v| **v > d.median).count();
            prop_assert!(below * 2 <= samples.len() && above * 2 <= samples.len());
        }
    }
}
