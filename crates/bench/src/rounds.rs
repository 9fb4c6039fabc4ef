//! Alternating rounds. Two things are compared only within a round, where they ran one after the other on the same machine in
//! the same minute; the machine's mood changes more between minutes than the managers differ.

use std::collections::BTreeMap;

use crate::target::Kind;

/// One run of one target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sample {
    /// Transactions per second.
    pub(crate) tps: f64,
    /// CPU microseconds of the manager per transaction; `None` for the server itself.
    pub(crate) manager_us: Option<f64>,
    /// CPU microseconds of the server's processes per transaction.
    pub(crate) backend_us: Option<f64>,
}

/// All rounds of one workload. A run that failed is `None` with its reason kept apart, so that rounds stay paired.
#[derive(Debug, Default)]
pub(crate) struct Series {
    samples: BTreeMap<Kind, Vec<Option<Sample>>>,
    failures: BTreeMap<Kind, String>,
}

/// A median with the extremes beside it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Series {
    /// Adds the next round's run of a target.
    pub(crate) fn add(&mut self, kind: Kind, result: anyhow::Result<Sample>) {
        let entry = self.samples.entry(kind).or_default();
        match result {
            Ok(sample) => entry.push(Some(sample)),
            Err(error) => {
                entry.push(None);
                self.failures.insert(kind, format!("{error:#}"));
            }
        }
    }

    /// The reason of the target's last failure.
    pub(crate) fn failure(&self, kind: Kind) -> Option<&str> {
        self.failures.get(&kind).map(String::as_str)
    }

    /// The spread of one figure of one target over the rounds.
    pub(crate) fn spread(&self, kind: Kind, figure: fn(&Sample) -> Option<f64>) -> Option<Spread> {
        let values = self.samples.get(&kind)?;
        Spread::of(values.iter().flatten().filter_map(figure).collect())
    }

    /// The spread of `above / below` within each round.
    pub(crate) fn ratio(&self, above: Kind, below: Kind, figure: fn(&Sample) -> Option<f64>) -> Option<Spread> {
        let pairs = self.samples.get(&above)?.iter().zip(self.samples.get(&below)?);
        let ratios = pairs.filter_map(|(a, b)| {
            let (a, b) = (figure(a.as_ref()?)?, figure(b.as_ref()?)?);
            (b > 0.0).then_some(a / b)
        });
        Spread::of(ratios.collect())
    }
}

impl Spread {
    /// `None` for no values.
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let upper = *values.get(middle)?;
        let median = if values.len() % 2 == 1 { upper } else { (upper + *values.get(middle - 1)?) / 2.0 };
        Some(Spread { median, least, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(tps: f64) -> anyhow::Result<Sample> {
        Ok(Sample { tps, manager_us: Some(tps / 10.0), backend_us: None })
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let mut series = Series::default();
        for (one, two) in [(10.0, 5.0), (40.0, 10.0), (9.0, 3.0)] {
            series.add(Kind::Pgusher, sample(one));
            series.add(Kind::PgBouncer, sample(two));
        }
        let ratio = series.ratio(Kind::Pgusher, Kind::PgBouncer, |s| Some(s.tps)).unwrap();
        assert_eq!((ratio.least, ratio.median, ratio.most), (2.0, 3.0, 4.0));
    }

    #[test]
    fn a_failed_run_does_not_shift_the_pairs() {
        let mut series = Series::default();
        series.add(Kind::Pgusher, Err(anyhow::anyhow!("gone")));
        series.add(Kind::PgBouncer, sample(1.0));
        series.add(Kind::Pgusher, sample(8.0));
        series.add(Kind::PgBouncer, sample(4.0));
        let ratio = series.ratio(Kind::Pgusher, Kind::PgBouncer, |s| Some(s.tps)).unwrap();
        assert_eq!((ratio.least, ratio.most), (2.0, 2.0));
        assert_eq!(series.failure(Kind::Pgusher), Some("gone"));
        assert!(series.ratio(Kind::PgusherTwo, Kind::PgBouncer, |s| Some(s.tps)).is_none());
    }

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        assert_eq!(Spread::of(vec![4.0, 1.0, 3.0, 2.0]).unwrap().median, 2.5);
        assert!(Spread::of(Vec::new()).is_none());
    }
}
