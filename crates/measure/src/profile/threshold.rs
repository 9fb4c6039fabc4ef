//! Thresholds of `--fail-if`: `phase.statistic op value[us|ms|s]`, as in `create_connection.p99>20ms`. It states
//! what must *not* be; the exit code says whether it was.

use std::str::FromStr;

use super::{Metric, Populations, SummaryRow};
use crate::stats::{Distribution, micros};

/// A statistic of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Statistic {
    First,
    Second,
    Min,
    Median,
    Mean,
    P90,
    P95,
    P99,
    Max,
    Stddev,
    Worst,
}

const STATISTICS: [(&str, Statistic); 11] = [
    ("first", Statistic::First),
    ("second", Statistic::Second),
    ("min", Statistic::Min),
    ("median", Statistic::Median),
    ("mean", Statistic::Mean),
    ("p90", Statistic::P90),
    ("p95", Statistic::P95),
    ("p99", Statistic::P99),
    ("max", Statistic::Max),
    ("stddev", Statistic::Stddev),
    ("worst", Statistic::Worst),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
}

/// A threshold.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    text: String,
    metric: Metric,
    statistic: Statistic,
    comparison: Comparison,
    limit_us: f64,
}

/// Why an expression is no threshold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThresholdError {
    /// Not of the form that it must have.
    #[error(
        "expected phase.statistic, an operator (> >= < <=) and a time with us, ms or s, as in create_connection.p99>20ms"
    )]
    Form,
    /// An unknown phase.
    #[error("unknown phase \"{0}\"; known are: {1}")]
    Metric(String, String),
    /// An unknown statistic.
    #[error("unknown statistic \"{0}\"; known are: {1}")]
    Statistic(String, String),
    /// Not a time.
    #[error("invalid time \"{0}\"; a number, optionally with us, ms or s")]
    Time(String),
}

impl FromStr for Threshold {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, ThresholdError> {
        let at = text.find(['>', '<']).ok_or(ThresholdError::Form)?;
        let (left, right) = text.split_at(at);
        let operators = [
            (">=", Comparison::GreaterOrEqual),
            ("<=", Comparison::LessOrEqual),
            (">", Comparison::Greater),
            ("<", Comparison::Less),
        ];
        let (comparison, value) = operators
            .iter()
            .find_map(|(sign, comparison)| Some((*comparison, right.strip_prefix(sign)?)))
            .ok_or(ThresholdError::Form)?;
        let (metric, statistic) = left.trim().split_once('.').ok_or(ThresholdError::Form)?;
        let metric = Metric::from_name(metric).ok_or_else(|| {
            let known: Vec<_> = Metric::ALL.iter().map(|metric| metric.name()).collect();
            ThresholdError::Metric(metric.to_owned(), known.join(", "))
        })?;
        let statistic = STATISTICS.iter().find(|(name, _)| *name == statistic).ok_or_else(|| {
            let known: Vec<_> = STATISTICS.iter().map(|(name, _)| *name).collect();
            ThresholdError::Statistic(statistic.to_owned(), known.join(", "))
        })?;
        let limit_us = time(value.trim()).ok_or_else(|| ThresholdError::Time(value.trim().to_owned()))?;
        Ok(Threshold { text: text.trim().to_owned(), metric, statistic: statistic.1, comparison, limit_us })
    }
}

/// Microseconds of `20ms`, `1.5s`, `300us` or `300`.
fn time(text: &str) -> Option<f64> {
    let (number, factor) = if let Some(number) = text.strip_suffix("us") {
        (number, 1.0)
    } else if let Some(number) = text.strip_suffix("ms") {
        (number, 1e3)
    } else if let Some(number) = text.strip_suffix('s') {
        (number, 1e6)
    } else {
        (text, 1.0)
    };
    let value: f64 = number.trim().parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some(value * factor)
}

/// What became of a threshold.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It holds.
    Kept,
    /// It does not; the text says with which value.
    Violated(String),
    /// There is nothing to judge by. A gate that cannot judge does not open.
    NoSamples(String),
}

impl Threshold {
    /// Judges a summary. With several statements each of them must hold.
    pub fn judge(&self, summary: &[SummaryRow]) -> Verdict {
        let mut judged = false;
        for row in summary.iter().filter(|row| row.metric == self.metric) {
            let Some(value) = self.statistic.of(&row.populations) else {
                continue;
            };
            judged = true;
            let violated = match self.comparison {
                Comparison::Greater => value > self.limit_us,
                Comparison::GreaterOrEqual => value >= self.limit_us,
                Comparison::Less => value < self.limit_us,
                Comparison::LessOrEqual => value <= self.limit_us,
            };
            if violated {
                let query = row.query.map_or(String::new(), |query| format!(", query {query}"));
                return Verdict::Violated(format!("{}: it is {}{query}", self.text, micros(value)));
            }
        }
        if judged {
            return Verdict::Kept;
        }
        let advice = match self.statistic {
            Statistic::First | Statistic::Worst => "the phase did not happen",
            Statistic::Second => "it needs two runs",
            _ => "it is of the third run and later ones, or the phase did not happen",
        };
        Verdict::NoSamples(format!("{}: no samples to judge by ({advice})", self.text))
    }
}

impl Statistic {
    fn of(self, populations: &Populations) -> Option<f64> {
        let steady = |field: fn(&Distribution) -> f64| populations.steady.as_ref().map(field);
        match self {
            Statistic::First => populations.first.as_ref().map(|first| first.median),
            Statistic::Second => populations.second.as_ref().map(|second| second.median),
            Statistic::Min => steady(|steady| steady.min),
            Statistic::Median => steady(|steady| steady.median),
            Statistic::Mean => steady(|steady| steady.mean),
            Statistic::P90 => steady(|steady| steady.p90),
            Statistic::P95 => steady(|steady| steady.p95),
            Statistic::P99 => steady(|steady| steady.p99),
            Statistic::Max => steady(|steady| steady.max),
            Statistic::Stddev => steady(|steady| steady.stddev),
            Statistic::Worst => [&populations.first, &populations.second, &populations.steady]
                .into_iter()
                .filter_map(|population| population.as_ref().map(|population| population.max))
                .reduce(f64::max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(metric: Metric, first: f64, steady: &[f64]) -> SummaryRow {
        let populations = Populations {
            n: 1 + steady.len() as u64,
            first: Distribution::of(&[first]),
            second: None,
            steady: Distribution::of(steady),
        };
        SummaryRow { metric, query: None, populations }
    }

    #[test]
    fn times_and_forms() {
        for (text, us) in [("20ms", 20_000.0), ("1.5s", 1_500_000.0), ("300us", 300.0), ("7", 7.0), ("7 us", 7.0)] {
            assert_eq!(time(text), Some(us), "{text}");
        }
        for bad in ["", "x", "-1ms", "nanms", "infs"] {
            assert_eq!(time(bad), None, "{bad}");
        }
        for bad in
            ["connect", "connect>1", "connect.p99", "connect.p99=1", "nope.p99>1", "connect.p98>1", "connect.p99>x"]
        {
            assert!(bad.parse::<Threshold>().is_err(), "{bad}");
        }
        let unknown = "nope.p99>1".parse::<Threshold>().unwrap_err().to_string();
        assert!(unknown.contains("create_connection"), "{unknown}");
    }

    #[test]
    fn verdicts() {
        let summary = [row(Metric::Connect, 900.0, &[100.0, 110.0, 120.0])];
        let judge = |text: &str| text.parse::<Threshold>().unwrap().judge(&summary);
        assert_eq!(judge("connect.median>1ms"), Verdict::Kept);
        assert_eq!(
            judge(" connect.median >= 110us"),
            Verdict::Violated("connect.median >= 110us: it is 110 us".to_owned())
        );
        assert!(matches!(judge("connect.first>0.5ms"), Verdict::Violated(_)));
        assert!(matches!(judge("connect.worst>800"), Verdict::Violated(_)));
        assert!(matches!(judge("connect.max<200"), Verdict::Violated(_)));
        assert!(matches!(judge("connect.second>1s"), Verdict::NoSamples(_)));
        assert!(matches!(judge("tls.first>1s"), Verdict::NoSamples(_)));
    }
}
