//! How much of an excess something takes away.

use super::bootstrap::{RESAMPLES, middle_95, resampled_median, seeded};
use super::{Ratio, quantile};

/// (median(without) - median(with)) / (median(without) - median(rest)): which share of what `without` takes above `rest`
/// is gone in `with`. 1 is all of it, 0 nothing, below 0 made worse. The interval is of the bootstrap, from three samples
/// of each on. `None` where one is empty or there is no excess.
#[must_use]
pub fn share_removed(without: &[f64], with: &[f64], rest: &[f64]) -> Option<Ratio> {
    let [without, with, rest] = [without, with, rest].map(sorted);
    if without.is_empty() || with.is_empty() || rest.is_empty() {
        return None;
    }
    let median = |samples: &[f64]| quantile(samples, 0.5);
    let value = share(median(&without), median(&with), median(&rest))?;
    let interval = [&without, &with, &rest].iter().all(|samples| samples.len() >= 3).then(|| {
        let mut rng = seeded();
        let mut draw = |samples: &[f64]| resampled_median(samples, &mut rng);
        middle_95((0..RESAMPLES).filter_map(|_| share(draw(&without), draw(&with), draw(&rest))).collect())
    });
    Some(Ratio { value, interval })
}

fn share(without: f64, with: f64, rest: f64) -> Option<f64> {
    let excess = without - rest;
    (excess > 0.0).then(|| (without - with) / excess)
}

fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = samples.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_half_nothing_and_worse() {
        let cold = [1000.0, 1100.0, 1200.0];
        let rest = [100.0, 100.0, 100.0];
        for (with, expected) in [(100.0, 1.0), (600.0, 0.5), (1100.0, 0.0), (2100.0, -1.0)] {
            let share = share_removed(&cold, &[with, with, with], &rest).unwrap();
            assert!((share.value - expected).abs() < 1e-9, "{with}: {share:?}");
            let interval = share.interval.unwrap();
            assert!(interval.low <= expected && expected <= interval.high, "{share:?}");
        }
        assert!(share_removed(&cold, &[5.0], &rest).unwrap().interval.is_none());
        assert!(share_removed(&rest, &cold, &cold).is_none());
        assert!(share_removed(&cold, &[], &rest).is_none());
    }
}
