//! What follows from the growth of T(N), in words.

use super::model::{Cell, RoundKind, SideGrowth};
use crate::stats::{Better, Growth, Observation, count, micros};
use crate::target::Side;

/// Up to here an exponent counts as that of a line.
pub(super) const LINEAR_BELOW: f64 = 1.1;
/// Fewer sizes say nothing about a curve.
const SIZES: usize = 3;

/// The growth of each side, first and later rounds apart, where there is anything.
pub(super) fn all(cells: &[Cell]) -> Vec<SideGrowth> {
    let mut all = Vec::new();
    for side in Side::ALL {
        for rounds in RoundKind::ALL {
            let observations: Vec<Observation> = cells
                .iter()
                .filter(|cell| cell.side == side)
                .flat_map(|cell| {
                    cell.totals(rounds).into_iter().map(|us| Observation { n: f64::from(cell.clients), us })
                })
                .collect();
            if !observations.is_empty() {
                all.push(of(side, rounds, &observations));
            }
        }
    }
    all
}

fn of(side: Side, rounds: RoundKind, observations: &[Observation]) -> SideGrowth {
    let (growth, verdict) = match Growth::of(observations) {
        Ok(growth) => {
            let verdict = verdict(&growth);
            (Some(growth), verdict)
        }
        Err(error) => (None, format!("how it grows cannot be told: {error}")),
    };
    SideGrowth { side, rounds, growth, verdict }
}

/// The sentence that a person wants.
pub(super) fn verdict(growth: &Growth) -> String {
    let sizes = growth.sizes();
    let b = growth.power_law.exponent;
    let Some(interval) = b.interval.filter(|_| sizes >= SIZES) else {
        return format!("how it grows cannot be told: {sizes} numbers of clients are too few, {SIZES} are needed");
    };
    let exponent =
        format!("the exponent is {:.2} (95 % interval {:.2} to {:.2})", b.value, interval.low, interval.high);
    if interval.high < 1.0 {
        return format!("it grows more slowly than the number of clients: {exponent}");
    }
    if interval.high < LINEAR_BELOW {
        return format!("it grows linearly: {exponent}, below {LINEAR_BELOW}");
    }
    if let Some(text) = quadratic(growth) {
        return format!("{text}; {exponent}");
    }
    if interval.low > LINEAR_BELOW {
        return format!("it grows faster than the number of clients: {exponent}");
    }
    format!("whether it grows linearly cannot be told: {exponent}")
}

/// What the line with a square says, if it is the better model and its square is real.
fn quadratic(growth: &Growth) -> Option<String> {
    let model = &growth.linear_quadratic;
    let real = model.beta_us.interval.is_some_and(|i| i.low > 0.0);
    let bent = growth.power_law.exponent.interval.is_some_and(|i| i.low > 1.0);
    if growth.better == Better::PowerLaw || !real || !bent {
        return None;
    }
    let (least, most) = growth.observations.iter().fold((f64::MAX, 0.0_f64), |(a, b), o| (a.min(o.n), b.max(o.n)));
    let Some(crossover) = model.crossover else {
        return Some("it grows quadratically with the clients, with no linear part to be seen".to_owned());
    };
    let per_client = micros(model.alpha_us.value);
    let at = count(round_to_two(crossover));
    Some(if crossover > most {
        format!(
            "it grows linearly as far as was measured, {per_client} a client; the quadratic part would overtake at about {at} clients"
        )
    } else if crossover < least {
        format!("it grows quadratically over all that was measured: the quadratic part overtakes at about {at} clients")
    } else {
        format!("it grows linearly below about {at} clients ({per_client} each) and quadratically above")
    })
}

/// Two significant digits: more would claim too much.
fn round_to_two(value: f64) -> f64 {
    let scale = 10_f64.powf(value.max(1.0).log10().floor() - 1.0);
    (value / scale).round() * scale
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(points: &[(f64, f64)]) -> String {
        let observations: Vec<Observation> = points.iter().map(|(n, us)| Observation { n: *n, us: *us }).collect();
        of(Side::Direct, RoundKind::Later, &observations).verdict
    }

    fn sizes(time: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        (8..15).flat_map(|p| [0.99, 1.0, 1.02].map(|w| (f64::from(1 << p), time(f64::from(1 << p)) * w))).collect()
    }

    #[test]
    fn published_growth_in_words() {
        let text = words(&[(1024.0, 435e3), (2048.0, 1062e3), (4096.0, 3284e3), (8192.0, 11617e3), (16384.0, 43391e3)]);
        assert!(
            text.starts_with("it grows linearly below about 1,600 clients (231 us each) and quadratically"),
            "{text}"
        );
        assert!(text.ends_with("the exponent is 1.67 (95 % interval 1.45 to 1.90)"), "{text}");
    }

    #[test]
    fn each_kind_of_growth_has_its_words() {
        assert!(words(&sizes(|n| 70.0 * n)).starts_with("it grows linearly: the exponent is 1.00"));
        assert!(words(&sizes(|n| 900.0 * n.powf(0.6))).starts_with("it grows more slowly"));
        assert!(words(&sizes(|n| 70.0 * n.powf(1.5))).starts_with("it grows faster than"));
        assert!(words(&sizes(|n| 0.01 * n * n)).starts_with("it grows quadratically"));
        let far =
            words(&[(64.0, 6.4e3), (64.0, 6.42e3), (512.0, 57e3), (512.0, 57.1e3), (4096.0, 660e3), (4096.0, 661e3)]);
        assert!(far.contains("would overtake"), "{far}");
        assert!(words(&[(64.0, 1e3), (128.0, 3e3), (256.0, 3.3e3)]).starts_with("whether it grows linearly cannot"));
    }

    #[test]
    fn too_few_sizes_are_no_verdict() {
        for points in [&[(64.0, 1e3)][..], &[(64.0, 1e3), (128.0, 2e3), (128.0, 2.1e3)]] {
            assert!(words(points).starts_with("how it grows cannot be told"), "{}", words(points));
        }
    }

    #[test]
    fn two_digits() {
        assert_eq!(round_to_two(1573.2), 1600.0);
        assert_eq!(round_to_two(98_765.0), 99_000.0);
        assert_eq!(round_to_two(7.0), 7.0);
    }
}
