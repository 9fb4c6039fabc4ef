//! Several reports in one document: comparisons first, then what differs, then each run as it is.

use super::compare::{Change, Compared, Comparison, Run, comparisons, differences};
use super::document::{Document, Section};
use super::exhibit::{Exhibit, Table, Unit};
use super::facts::facts;
use super::measures::Better;
use super::model::{Finding, Tone};
use crate::stats::{micros, ratio_text};

/// How many changes are told as sentences; the tables have all.
const SENTENCES: usize = 8;

impl Document {
    /// Of one report as it is, of several with their comparison.
    #[must_use]
    pub fn of_runs(runs: &[Run]) -> Self {
        if let [one] = runs {
            return Self::of(&one.report);
        }
        let comparisons = comparisons(runs);
        let mut sections: Vec<Section> = comparisons.iter().map(section).collect();
        sections.push(about_the_runs(runs));
        let mut notes = Vec::new();
        if comparisons.is_empty() && runs.len() > 1 {
            notes.push("Nothing is compared: no experiment is in more than one of the runs.".to_owned());
        }
        for run in runs {
            let own = Self::of(&run.report);
            let mut findings = own.findings;
            for mut section in own.sections {
                section.title = format!("{}: {}", run.name, section.title);
                // A run's sentences stand where the run begins.
                section.findings = std::mem::take(&mut findings);
                sections.push(section);
            }
            notes.extend(own.notes.into_iter().map(|note| format!("{}: {note}", run.name)));
        }
        let title = if comparisons.is_empty() { "reports" } else { "runs compared" };
        Self {
            title: format!("{} {title}", runs.len()),
            subtitle: runs.iter().map(|r| r.name.as_str()).collect::<Vec<_>>().join(" · "),
            findings: comparisons.iter().flat_map(findings).collect(),
            glance: None,
            sections,
            notes,
            surroundings: runs.iter().map(|r| (r.name.clone(), facts(&r.report.environment))).collect(),
        }
    }
}

/// A comparison as a section.
fn section(c: &Comparison) -> Section {
    let mut notes = c.notes.clone();
    if c.measures.is_empty() {
        let reason = if c.only_in_baseline.is_empty() && c.only_in_other.is_empty() {
            "the report holds no samples of it, only what was made of them"
        } else {
            "the runs have no quantity in common"
        };
        notes.push(format!("Not comparable: {reason}."));
    }
    for (whose, names) in [(&c.baseline, &c.only_in_baseline), (&c.other, &c.only_in_other)] {
        if !names.is_empty() {
            notes.push(format!("Only in {whose}, so not compared: {}.", names.join("; ")));
        }
    }
    let mut exhibits = Vec::new();
    if !c.measures.is_empty() {
        exhibits.push(Exhibit::Table(table(c)));
    }
    Section {
        title: format!("Compared: {}", c.experiment),
        method: format!(
            "{} against the baseline {}. Ratios of medians, other / baseline, with 95 % intervals of the bootstrap. A change is \
             called one if the interval leaves out 1 and the medians differ by 5 % or more; the interval knows how samples of a \
             run differ, not how runs differ.",
            c.other, c.baseline
        ),
        exhibits,
        notes,
        ..Section::default()
    }
}

fn table(c: &Comparison) -> Table {
    // What matters first comes first: a phone shows the first columns only.
    let columns = ["", "change", "ratio", "95 % interval", "baseline", "other", "n"].map(str::to_owned).to_vec();
    let row = |m: &Compared| {
        let interval = m.ratio.and_then(|r| r.interval);
        vec![
            m.name.clone(),
            words(m),
            m.ratio.map_or_else(|| "-".to_owned(), |r| ratio_text(r.value)),
            interval.map_or_else(|| "-".to_owned(), |i| format!("{} to {}", ratio_text(i.low), ratio_text(i.high))),
            m.unit.text(m.baseline.median),
            m.unit.text(m.other.median),
            format!("{}, {}", m.baseline.n, m.other.n),
        ]
    };
    Table { columns, rows: c.measures.iter().map(row).collect(), ..Table::default() }
}

/// The change in words.
fn words(m: &Compared) -> String {
    let by = m.ratio.map_or(f64::NAN, |r| if r.value < 1.0 { 1.0 / r.value } else { r.value });
    let by = ratio_text(by);
    match (m.change, m.unit, m.better) {
        (Change::NotShown, _, _) => "no change shown".to_owned(),
        (Change::TooFewSamples, _, _) => "too few samples to tell".to_owned(),
        (Change::Better, Unit::Micros, _) => format!("{by} faster"),
        (Change::Worse, Unit::Micros, _) => format!("{by} slower"),
        (Change::Better, _, Better::Higher) | (Change::Worse, _, Better::Lower) => format!("{by} more"),
        (Change::Better, _, Better::Lower) | (Change::Worse, _, Better::Higher) => format!("{by} less"),
    }
}

/// The changes, the largest first, and how many quantities showed none.
fn findings(c: &Comparison) -> Vec<Finding> {
    let mut changed: Vec<&Compared> =
        c.measures.iter().filter(|m| matches!(m.change, Change::Better | Change::Worse)).collect();
    let size = |m: &Compared| m.ratio.map_or(0.0, |r| r.value.ln().abs());
    changed.sort_by(|a, b| size(b).total_cmp(&size(a)));
    let mut out: Vec<Finding> = changed.iter().take(SENTENCES).map(|m| sentence(c, m)).collect();
    let count = |change: Change| c.measures.iter().filter(|m| m.change == change).count();
    let (all, unchanged, too_few) = (c.measures.len(), count(Change::NotShown), count(Change::TooFewSamples));
    let mut rest = Vec::new();
    if changed.len() > SENTENCES {
        rest.push(format!("{} more changed", changed.len() - SENTENCES));
    }
    if unchanged > 0 {
        rest.push(format!("no change is shown in {unchanged} of {all} quantities"));
    }
    if too_few > 0 {
        rest.push(format!("{too_few} of {all} have too few samples to tell"));
    }
    if all == 0 {
        rest.push("nothing in them is comparable".to_owned());
    }
    if !rest.is_empty() {
        let text = format!("{}, {} against {}: {}.", c.experiment, c.other, c.baseline, rest.join("; "));
        out.push(Finding { tone: Tone::Neutral, text });
    }
    out
}

fn sentence(c: &Comparison, m: &Compared) -> Finding {
    let interval = m.ratio.and_then(|r| r.interval).map_or_else(String::new, |i| {
        format!(" (95 % interval of the ratio: {} to {})", ratio_text(i.low), ratio_text(i.high))
    });
    let text = format!(
        "{}: {} in {} instead of {} in {}, {}{interval}.",
        m.name,
        m.unit.text(m.other.median),
        c.other,
        m.unit.text(m.baseline.median),
        c.baseline,
        words(m)
    );
    Finding { tone: if m.change == Change::Better { Tone::Good } else { Tone::Bad }, text }
}

/// Which runs these are, and what is not the same in all of them.
fn about_the_runs(runs: &[Run]) -> Section {
    let dash = || "-".to_owned();
    let rows = runs
        .iter()
        .map(|run| {
            let e = &run.report.environment;
            let experiments: Vec<String> = run.report.experiments().iter().map(|e| e.title()).collect();
            vec![
                run.name.clone(),
                e.started_at.clone(),
                e.tool.clone(),
                e.server.as_ref().map_or_else(dash, |s| s.version.clone()),
                e.floor.map_or_else(dash, |f| micros(f.pingpong_us)),
                experiments.join("; "),
            ]
        })
        .collect();
    let columns =
        ["run", "started", "program", "PostgreSQL", "host's ping-pong", "experiments"].map(str::to_owned).to_vec();
    let mut exhibits = vec![Exhibit::Table(Table { columns, rows, ..Table::default() })];
    let different = differences(runs);
    if !different.is_empty() {
        let mut columns = vec![String::new()];
        columns.extend(runs.iter().map(|r| r.name.clone()));
        let row = |d: super::compare::Difference| std::iter::once(d.what).chain(d.values).collect();
        let rows = different.into_iter().map(row).collect();
        exhibits.push(Exhibit::Table(Table { caption: "What differs".to_owned(), columns, rows, ..Table::default() }));
    }
    let method = if runs.len() < 2 {
        String::new()
    } else if exhibits.len() > 1 {
        "What differs between them, besides what was to be compared, is below.".to_owned()
    } else {
        "Host, server, settings and targets are the same in all of them.".to_owned()
    };
    Section { title: "The runs".to_owned(), method, exhibits, ..Section::default() }
}
