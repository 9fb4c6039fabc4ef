//! Where values lie on an axis, and which of them are marked.

/// An axis from the smallest to the largest value, linear or logarithmic.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    logarithmic: bool,
}

impl Scale {
    /// From 0 to `high`, drawn from `from` to `to`.
    pub(super) fn linear(high: f64, from: f64, to: f64) -> Self {
        Self { low: 0.0, high: if high > 0.0 { high } else { 1.0 }, from, to, logarithmic: false }
    }

    /// From 0, or the lowest of `values` if that is negative, to a round number above the highest.
    pub(super) fn round_linear(values: impl IntoIterator<Item = f64>, from: f64, to: f64) -> Self {
        let (low, high) =
            values.into_iter().filter(|v| v.is_finite()).fold((0.0_f64, 0.0_f64), |(l, h), v| (l.min(v), h.max(v)));
        if high - low <= 0.0 {
            return Self::linear(1.0, from, to);
        }
        let step = step(high - low);
        Self { low: (low / step).floor() * step, high: (high / step).ceil() * step, from, to, logarithmic: false }
    }

    /// From 0, or the lowest of `values` if that is negative, to the highest.
    pub(super) fn exact_linear(values: impl IntoIterator<Item = f64>, from: f64, to: f64) -> Self {
        let (low, high) =
            values.into_iter().filter(|v| v.is_finite()).fold((0.0_f64, 0.0_f64), |(l, h), v| (l.min(v), h.max(v)));
        Self { low, high: if high > low { high } else { low + 1.0 }, from, to, logarithmic: false }
    }

    /// From the lowest to the highest of `values`. Those that are not positive are left out.
    pub(super) fn exact_logarithmic(values: impl IntoIterator<Item = f64>, from: f64, to: f64) -> Self {
        let (low, high) = positive(values);
        let (low, high) = if high > low * 1.0001 { (low, high) } else { (low / 2.0, high * 2.0) };
        Self { low, high, from, to, logarithmic: true }
    }

    /// Whole powers of ten around `values`, drawn from `from` to `to`. Values that are not positive are left out.
    pub(super) fn logarithmic(values: impl IntoIterator<Item = f64>, from: f64, to: f64) -> Self {
        let (low, high) = positive(values);
        let low = 10_f64.powf(low.log10().floor());
        let high = 10_f64.powf(high.log10().ceil()).max(low * 10.0);
        Self { low, high, from, to, logarithmic: true }
    }

    /// The same, but from 1, 2 or 5 times a power of ten to another: values that span little fill the axis.
    pub(super) fn tight_logarithmic(values: impl IntoIterator<Item = f64>, from: f64, to: f64) -> Self {
        let (least, most) = positive(values);
        let marks = || (-12..=15).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power)));
        // A little beyond the mark, so that what lies on it but for rounding stays on it.
        let low = marks().rfind(|m| *m <= least * 1.001).unwrap_or(least);
        let high = marks().find(|m| *m >= most * 0.999).unwrap_or(most);
        let high = if high > low { high } else { low * 10.0 };
        Self { low, high, from, to, logarithmic: true }
    }

    /// Where `value` lies; at the end of the axis if it is beyond.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Values to mark and name: powers of ten, with 2 and 5 times them where there are few; or four to eight round steps.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if !self.logarithmic {
            let step = step(self.high - self.low);
            let first = (self.low / step).ceil();
            return (0..=12)
                .map(|i| (first + f64::from(i)) * step)
                .take_while(|v| *v <= self.high + step * 1e-6)
                .collect();
        }
        let digits: &[f64] = match (self.high / self.low).log10() {
            few if few < 1.1 => &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
            some if some < 2.9 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        self.multiples(digits)
    }

    /// Values to mark without naming them: each digit of the decades, where they are few.
    pub(super) fn minor_ticks(&self) -> Vec<f64> {
        if !self.logarithmic || (self.high / self.low).log10() > 4.1 {
            return Vec::new();
        }
        self.multiples(&[2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])
    }

    fn multiples(&self, digits: &[f64]) -> Vec<f64> {
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        (first..=last)
            .flat_map(|power| digits.iter().map(move |digit| digit * 10_f64.powi(power)))
            .filter(|v| *v >= self.low * 0.999 && *v <= self.high * 1.001)
            .collect()
    }
}

/// The least and the largest of the positive ones; 1 and 10 if there is none.
fn positive(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
    for v in values.into_iter().filter(|v| v.is_finite() && *v > 0.0) {
        (low, high) = (low.min(v), high.max(v));
    }
    if low.is_finite() { (low, high) } else { (1.0, 10.0) }
}

/// 1, 2 or 5 times a power of ten, about a fifth of `span`.
fn step(span: f64) -> f64 {
    let rough = span / 5.0;
    let power = 10_f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|s| s * power).into_iter().find(|s| *s >= rough * 0.999).unwrap_or(rough)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn logarithmic_axes() {
        let s = Scale::logarithmic([30.0, 5000.0, 0.0, f64::NAN], 0.0, 300.0);
        assert_eq!(s.ticks(), [10.0, 100.0, 1000.0, 10000.0]);
        assert!((s.at(100.0) - 100.0).abs() < 1e-9);
        assert!((s.at(0.0)).abs() < 1e-9);
        let s = Scale::tight_logarithmic([30.0, 900.0], 0.0, 1.0);
        assert_eq!(s.ticks(), [20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]);
        assert!(s.minor_ticks().contains(&700.0) && !s.minor_ticks().contains(&2000.0));
        assert_eq!(Scale::tight_logarithmic([50.0], 0.0, 1.0).ticks().first(), Some(&50.0));
        assert_eq!(Scale::logarithmic([], 0.0, 1.0).ticks(), [1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0]);
    }

    #[test]
    fn linear_axes() {
        let s = Scale::linear(47.0, 0.0, 47.0);
        assert_eq!(s.ticks(), [0.0, 10.0, 20.0, 30.0, 40.0]);
        assert!((s.at(23.5) - 23.5).abs() < 1e-9);
        assert!(Scale::linear(0.0, 0.0, 1.0).at(0.0).is_finite());
        assert_eq!(Scale::round_linear([3.0, 47.0], 0.0, 1.0).ticks(), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
        assert_eq!(Scale::round_linear([-3.0, 9.0], 0.0, 1.0).ticks(), [-5.0, 0.0, 5.0, 10.0]);
        assert!(Scale::round_linear([f64::NAN], 0.0, 1.0).at(0.5).is_finite());
    }

    proptest! {
        #[test]
        fn ticks_are_few_and_on_the_axis(values in prop::collection::vec(1e-6..1e12_f64, 1..20), linear: bool) {
            let scale = if linear {
                Scale::round_linear(values.iter().copied(), 0.0, 100.0)
            } else {
                Scale::tight_logarithmic(values.iter().copied(), 0.0, 100.0)
            };
            for exact in [Scale::exact_linear(values.clone(), 0.0, 100.0), Scale::exact_logarithmic(values.clone(), 0.0, 100.0)] {
                prop_assert!(exact.ticks().len() <= 24);
                prop_assert!(values.iter().all(|v| (0.0..=100.0).contains(&exact.at(*v))));
            }
            let ticks = scale.ticks();
            prop_assert!((1..=24).contains(&ticks.len()), "{ticks:?}");
            prop_assert!(ticks.windows(2).all(|w| w[0] < w[1] && scale.at(w[0]) <= scale.at(w[1])), "{ticks:?}");
            for v in values {
                prop_assert!((0.0..=100.0).contains(&scale.at(v)));
            }
        }
    }
}
