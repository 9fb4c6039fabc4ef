//! How two variants compare, with an interval: by their medians, or round by round.

use serde::{Deserialize, Serialize};

use super::bootstrap::{Interval, RESAMPLES, middle_95, resampled_median, seeded};
use super::quantile;

/// A quotient with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Ratio {
    /// The quotient, a pure number.
    pub value: f64,
    /// 95 % interval; absent when there was too little to make one of.
    #[serde(rename = "ci95", default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
}

impl Ratio {
    /// Whether the interval leaves 1 outside, so that the two variants differ beyond chance. `false` without
    /// an interval.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.interval.is_some_and(|i| !i.contains(1.0))
    }
}

/// median(a) / median(b) of independent samples in any order, with a bootstrap interval from three samples each.
/// `None` if either is empty or the lower median is not positive.
#[must_use]
pub fn ratio_of_medians(a: &[f64], b: &[f64]) -> Option<Ratio> {
    let (a, b) = (sorted(a), sorted(b));
    if a.is_empty() || b.is_empty() || b.first().is_none_or(|v| *v <= 0.0) {
        return None;
    }
    let value = quantile(&a, 0.5) / quantile(&b, 0.5);
    let interval = (a.len() >= 3 && b.len() >= 3).then(|| {
        let mut rng = seeded();
        middle_95((0..RESAMPLES).map(|_| resampled_median(&a, &mut rng) / resampled_median(&b, &mut rng)).collect())
    });
    Some(Ratio { value, interval })
}

/// The ratio a / b of variants that were measured in alternating rounds: the geometric mean of the ratios of each
/// round, with Student's interval on their logarithms. What both variants of a round have in common (a machine
/// that was busy just then) cancels out. From two rounds on there is an interval; from very few it is wide,
/// as it should be. `None` if no round has two positive values.
#[must_use]
pub fn paired_ratio(a: &[f64], b: &[f64]) -> Option<Ratio> {
    let logs: Vec<f64> = a
        .iter()
        .zip(b)
        .filter(|(x, y)| x.is_finite() && y.is_finite() && **x > 0.0 && **y > 0.0)
        .map(|(x, y)| (x / y).ln())
        .collect();
    if logs.is_empty() {
        return None;
    }
    let n = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / n;
    let interval = (logs.len() >= 2).then(|| {
        let variance = logs.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let half = student_975(logs.len() - 1) * (variance / n).sqrt();
        Interval { low: (mean - half).exp(), high: (mean + half).exp() }
    });
    Some(Ratio { value: mean.exp(), interval })
}

fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut v: Vec<f64> = samples.iter().copied().filter(|v| v.is_finite()).collect();
    v.sort_unstable_by(f64::total_cmp);
    v
}

/// The 97.5 % quantile of Student's t with `df` degrees of freedom (at least 1): the table up to 12, beyond it
/// the expansion of Cornish and Fisher around the normal quantile, which is within 0.002 there.
pub(super) fn student_975(df: usize) -> f64 {
    const TABLE: [f64; 12] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179];
    if let Some(t) = df.checked_sub(1).and_then(|i| TABLE.get(i)) {
        return *t;
    }
    let (z, d) = (1.959_964_f64, df.max(1) as f64);
    z + (z.powi(3) + z) / (4.0 * d) + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * d * d)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn student_quantiles() {
        for (df, t) in [(1, 12.706), (12, 2.179), (13, 2.160), (30, 2.042), (100, 1.984)] {
            assert!((student_975(df) - t).abs() < 0.002, "{df}");
        }
    }

    #[test]
    fn rounds_cancel_what_they_share() {
        // The machine slows down by half in every round; the ratio stays exactly 2.
        let r = paired_ratio(&[800.0, 400.0, 200.0], &[400.0, 200.0, 100.0]).expect("ratio");
        let i = r.interval.expect("interval");
        assert!((r.value - 2.0).abs() < 1e-12 && (i.high - i.low).abs() < 1e-9);
        assert!(r.differs());
    }

    #[test]
    fn one_round_has_no_interval_and_none_has_no_ratio() {
        assert_eq!(paired_ratio(&[2.0], &[1.0]).and_then(|r| r.interval), None);
        assert_eq!(paired_ratio(&[], &[1.0]), None);
        assert_eq!(paired_ratio(&[1.0], &[0.0]), None);
        assert_eq!(ratio_of_medians(&[], &[1.0]), None);
        assert_eq!(ratio_of_medians(&[1.0], &[0.0]), None);
    }

    #[test]
    fn equal_samples_do_not_differ() {
        let s: Vec<f64> = (1..60).map(f64::from).collect();
        let r = ratio_of_medians(&s, &s).expect("ratio");
        assert!((r.value - 1.0).abs() < 1e-12 && !r.differs());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_interval_surrounds_the_ratio(
            a in prop::collection::vec(1.0..1e4_f64, 3..60),
            b in prop::collection::vec(1.0..1e4_f64, 3..60),
        ) {
            for r in [ratio_of_medians(&a, &b), paired_ratio(&a, &b)] {
                let r = r.expect("positive samples");
                let i = r.interval.expect("three samples");
                prop_assert!(i.low <= r.value * (1.0 + 1e-9) && r.value <= i.high * (1.0 + 1e-9));
            }
        }

        #[test]
        fn turning_it_round_inverts_it(
            a in prop::collection::vec(1.0..1e4_f64, 2..30),
            b in prop::collection::vec(1.0..1e4_f64, 2..30),
        ) {
            let (x, y) = (paired_ratio(&a, &b).expect("x"), paired_ratio(&b, &a).expect("y"));
            prop_assert!((x.value * y.value - 1.0).abs() < 1e-9);
        }
    }
}
