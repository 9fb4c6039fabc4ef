//! Runs of the same experiment against each other: what changed beyond chance, what did not, what cannot be compared, and
//! what else differs between the runs.

use std::collections::BTreeMap;

use serde::Serialize;

use super::exhibit::{Experiment, Unit};
use super::facts::facts;
use super::measures::{Better, Measure};
use super::model::{Report, SCHEMA_VERSION};
use crate::stats::{Ratio, quantile, ratio_of_medians};

/// A report and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Its name in what is shown, such as its file's.
    pub name: String,
    /// The report.
    pub report: Report,
}

/// Two runs of one experiment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Which experiment.
    pub experiment: String,
    /// The run that the other one is compared with.
    pub baseline: String,
    /// The other run.
    pub other: String,
    /// The quantities that both have.
    pub measures: Vec<Compared>,
    /// Quantities that only the baseline has.
    pub only_in_baseline: Vec<String>,
    /// Quantities that only the other run has.
    pub only_in_other: Vec<String>,
    /// What a reader must know before believing any of it.
    pub notes: Vec<String>,
}

/// One quantity in both runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// Its name.
    pub name: String,
    /// The unit of the medians.
    pub unit: Unit,
    /// Which direction is better.
    pub better: Better,
    /// In the baseline.
    pub baseline: Samples,
    /// In the other run.
    pub other: Samples,
    /// other / baseline of the medians, with the bootstrap's interval from three samples on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Ratio>,
    /// What follows.
    pub change: Change,
}

/// The samples of one run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Samples {
    /// How many.
    pub n: usize,
    /// Their median, in the quantity's unit.
    pub median: f64,
}

/// Whether a quantity changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Beyond chance, to the better.
    Better,
    /// Beyond chance, to the worse.
    Worse,
    /// The interval of the ratio holds 1, or the medians differ by less than 5 %.
    NotShown,
    /// Fewer than three samples in one of the runs: chance cannot be told from change.
    TooFewSamples,
}

/// A smaller difference than this is not called one, however narrow its interval: the samples of a run share what the
/// machine did meanwhile, and no interval made of them knows how runs differ.
const NOTICEABLE: f64 = 1.05;

/// Something that is not the same in all runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// What.
    pub what: String,
    /// Its value in each run, in their order; `-` where it is not known.
    pub values: Vec<String>,
}

/// All that is said of several runs, for programs.
#[derive(Debug, Serialize)]
pub struct Collected<'a> {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The names of the runs; the first one is the baseline.
    pub runs: Vec<&'a str>,
    /// What was compared.
    pub comparisons: Vec<Comparison>,
    /// What else differs.
    pub differences: Vec<Difference>,
    /// The reports, in the order of the runs.
    pub reports: Vec<&'a Report>,
}

impl<'a> Collected<'a> {
    /// Of these runs.
    #[must_use]
    pub fn of(runs: &'a [Run]) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            runs: runs.iter().map(|r| r.name.as_str()).collect(),
            comparisons: comparisons(runs),
            differences: differences(runs),
            reports: runs.iter().map(|r| &r.report).collect(),
        }
    }
}

/// The first run that has an experiment is its baseline; every later one that has it is compared with that.
#[must_use]
pub fn comparisons(runs: &[Run]) -> Vec<Comparison> {
    let mut baselines: BTreeMap<String, (&Run, &dyn Experiment)> = BTreeMap::new();
    let mut out = Vec::new();
    for run in runs {
        for experiment in run.report.experiments() {
            let name = experiment.name();
            match baselines.get(&name) {
                Some((first, baseline)) => out.push(compare((first, *baseline), (run, experiment))),
                None => {
                    baselines.insert(name, (run, experiment));
                }
            }
        }
    }
    out
}

fn compare(baseline: (&Run, &dyn Experiment), other: (&Run, &dyn Experiment)) -> Comparison {
    let (of_baseline, of_other) = (baseline.1.measures(), other.1.measures());
    let same = |a: &Measure, b: &Measure| a.name == b.name && a.unit == b.unit;
    let missing = |from: &[Measure], there: &[Measure]| -> Vec<String> {
        from.iter().filter(|m| !there.iter().any(|o| same(m, o))).map(|m| m.name.clone()).collect()
    };
    let measures =
        of_baseline.iter().filter_map(|a| of_other.iter().find(|b| same(a, b)).map(|b| compared(a, b))).collect();
    Comparison {
        experiment: baseline.1.name(),
        baseline: baseline.0.name.clone(),
        other: other.0.name.clone(),
        measures,
        only_in_baseline: missing(&of_baseline, &of_other),
        only_in_other: missing(&of_other, &of_baseline),
        notes: cautions(baseline, other),
    }
}

fn compared(baseline: &Measure, other: &Measure) -> Compared {
    let ratio = ratio_of_medians(&other.samples, &baseline.samples);
    let change = match ratio {
        Some(Ratio { value, interval: Some(interval) }) => {
            let noticeable = !(1.0 / NOTICEABLE..=NOTICEABLE).contains(&value);
            match (interval.contains(1.0) || !noticeable, value > 1.0, baseline.better) {
                (true, _, _) => Change::NotShown,
                (false, true, Better::Higher) | (false, false, Better::Lower) => Change::Better,
                (false, true, Better::Lower) | (false, false, Better::Higher) => Change::Worse,
            }
        }
        Some(Ratio { interval: None, .. }) => Change::TooFewSamples,
        // The median of the baseline is not positive: no ratio exists, but equal is equal.
        None if samples(baseline).median == samples(other).median => Change::NotShown,
        None => Change::TooFewSamples,
    };
    Compared {
        name: baseline.name.clone(),
        unit: baseline.unit,
        better: baseline.better,
        baseline: samples(baseline),
        other: samples(other),
        ratio,
        change,
    }
}

fn samples(measure: &Measure) -> Samples {
    let mut sorted: Vec<f64> = measure.samples.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    Samples { n: sorted.len(), median: quantile(&sorted, 0.5) }
}

/// Reasons to doubt that the runs can be compared at all.
fn cautions(baseline: (&Run, &dyn Experiment), other: (&Run, &dyn Experiment)) -> Vec<String> {
    let mut out = Vec::new();
    for (run, experiment) in [baseline, other] {
        if experiment.interrupted() {
            out.push(format!("{} was interrupted; it is compared as far as it came.", run.name));
        }
    }
    let (a, b) = (&baseline.0.report.environment, &other.0.report.environment);
    let host = |e: &super::Environment| (e.host.processor.clone(), e.host.processors, e.host.kernel.clone());
    if host(a) != host(b) {
        out.push("The runs were made on different hosts or systems: a change may come from that alone.".to_owned());
    }
    if let (Some(x), Some(y)) = (a.floor, b.floor) {
        let ratio = y.pingpong_us / x.pingpong_us;
        if ratio.is_finite() && !(2.0 / 3.0..=1.5).contains(&ratio) {
            out.push(format!(
                "The host's own floor was not the same ({} against {}): the machine, or what else ran on it, differed.",
                y.words(),
                x.words()
            ));
        }
    }
    if a.targets != b.targets {
        out.push("The targets were not reached in the same way; see what differs.".to_owned());
    }
    let version = |e: &super::Environment| e.server.as_ref().map(|s| s.version.clone());
    if let (Some(x), Some(y)) = (version(a), version(b)) {
        if x != y {
            out.push(format!("The servers differ: PostgreSQL {y} against {x}."));
        }
    }
    if baseline.1.method() != other.1.method() {
        out.push(format!(
            "What was done: {} Baseline: {}",
            sentence(&other.1.method()),
            sentence(&baseline.1.method())
        ));
    }
    out
}

fn sentence(text: &str) -> String {
    if text.ends_with('.') { text.to_owned() } else { format!("{text}.") }
}

/// What is not the same in all of the surroundings. When they were made, and how busy the machine was then, always differs
/// and is not listed.
#[must_use]
pub fn differences(runs: &[Run]) -> Vec<Difference> {
    let lists: Vec<BTreeMap<String, String>> =
        runs.iter().map(|run| facts(&run.report.environment).into_iter().collect()).collect();
    let mut names: Vec<String> = Vec::new();
    for run in runs {
        for (name, _) in facts(&run.report.environment) {
            if !["started", "load when it started", "the host's own floor"].contains(&name.as_str())
                && !names.contains(&name)
            {
                names.push(name);
            }
        }
    }
    names
        .into_iter()
        .map(|what| {
            let values = lists.iter().map(|l| l.get(&what).cloned().unwrap_or_else(|| "-".to_owned())).collect();
            Difference { what, values }
        })
        .filter(|d| d.values.windows(2).any(|pair| pair.first() != pair.get(1)))
        .collect()
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
