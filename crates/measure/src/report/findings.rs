//! Sentences that follow from the numbers, whichever way the numbers came out; and the table that says the same at a
//! glance.

use super::exhibit::{Experiment, Table};
use super::model::{ConnectionSeries, Finding, ProtocolSeries, Report, Tone};
use crate::reconnect::{Mode, Reconnect};
use crate::stats::{Distribution, Interval, Ratio, count, micros, quantile, ratio_of_medians, ratio_text};
use crate::target::Side;

/// How two things of which less is better compare, in words.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Verdict {
    /// The first is better by this factor (above 1).
    Better(f64),
    /// The first is worse by this factor (above 1).
    Worse(f64),
    /// The measurement does not show a difference.
    Same,
}

/// Below this a difference is not worth a sentence of its own, whatever its interval.
const NOTICEABLE: f64 = 1.05;

impl Verdict {
    /// `ratio` is good / bad: above 1 the first one is better.
    fn of(ratio: Ratio) -> Self {
        let shown = ratio.interval.is_none() || ratio.differs();
        if shown && ratio.value >= NOTICEABLE {
            Self::Better(ratio.value)
        } else if shown && ratio.value <= 1.0 / NOTICEABLE {
            Self::Worse(1.0 / ratio.value)
        } else {
            Self::Same
        }
    }

    fn tone(self) -> Tone {
        match self {
            Self::Better(_) => Tone::Good,
            Self::Worse(_) => Tone::Bad,
            Self::Same => Tone::Neutral,
        }
    }

    fn words(self, better: &str, worse: &str) -> String {
        match self {
            Self::Better(by) => format!("{} {better}", ratio_text(by)),
            Self::Worse(by) => format!("{} {worse}", ratio_text(by)),
            Self::Same => "no difference shown".to_owned(),
        }
    }
}

/// A line of the table at a glance.
#[derive(Debug, Clone, PartialEq)]
pub struct Glance {
    /// What was measured.
    pub what: String,
    /// Straight to PostgreSQL.
    pub direct: String,
    /// Through the manager.
    pub managed: String,
    /// How managed compares with direct.
    pub verdict: String,
}

/// The sentences: those of every experiment, and whether anything failed.
#[must_use]
pub fn findings(report: &Report) -> Vec<Finding> {
    let mut out: Vec<Finding> = report.experiments().into_iter().flat_map(Experiment::findings).collect();
    out.extend(failures(report));
    out
}

/// Of connections, direct, managed, and compared.
pub(super) fn connection_findings(series: &[ConnectionSeries]) -> Vec<Finding> {
    let find = |side| series.iter().find(|s| s.side == side);
    let (direct, managed) = (find(Side::Direct), find(Side::Managed));
    let mut out: Vec<Finding> = direct.and_then(first_connection).into_iter().collect();
    if let (Some(direct), Some(managed)) = (direct, managed) {
        out.extend(later_connections(direct, managed));
        out.extend(first_client(direct, managed));
    }
    out
}

/// Of first and later runs.
pub(super) fn protocol_findings(series: &[ProtocolSeries]) -> Vec<Finding> {
    Side::ALL.into_iter().filter_map(|side| first_runs(series, side)).collect()
}

/// Of reconnecting.
#[must_use]
pub fn reconnect_findings(result: &Reconnect) -> Vec<Finding> {
    let mut out: Vec<Finding> = cost_of_reconnecting(result).into_iter().collect();
    out.extend(Mode::ALL.into_iter().rev().filter_map(|mode| managed_throughput(result, mode)));
    out
}

fn finding(tone: Tone, text: String) -> Finding {
    Finding { tone, text }
}

fn first_connection(series: &ConnectionSeries) -> Option<Finding> {
    let summary = series.connect()?;
    // Without number 1 the first sample is not the first connection.
    series.samples.first().filter(|s| s.number == 1)?;
    let (steady, ratio) = (summary.steady.as_ref()?, summary.first_to_steady?);
    let (tone, compared) = longer(ratio);
    Some(finding(
        tone,
        format!(
            "The first connection after {} took {}, {compared} a later one (median {}).",
            series.after,
            micros(summary.first),
            micros(steady.median)
        ),
    ))
}

/// `a` compared with `b`, where `ratio` is a / b: a tone, and words such as "2.1 times as long as".
pub(crate) fn longer(ratio: f64) -> (Tone, String) {
    if ratio >= NOTICEABLE {
        let tone = if ratio >= 1.5 { Tone::Bad } else { Tone::Neutral };
        (tone, format!("{} times as long as", times(ratio)))
    } else if ratio <= 1.0 / NOTICEABLE {
        (Tone::Neutral, format!("only {} times as long as", times(ratio)))
    } else {
        (Tone::Neutral, "about as long as".to_owned())
    }
}

fn times(ratio: f64) -> String {
    ratio_text(ratio).trim_end_matches('x').to_owned()
}

fn later_connections(direct: &ConnectionSeries, managed: &ConnectionSeries) -> Option<Finding> {
    let (d, m) = (steady(direct), steady(managed));
    let verdict = Verdict::of(ratio_of_medians(&d, &m)?);
    let (d, m) = (median(&d), median(&m));
    let text = match verdict {
        Verdict::Better(by) => format!(
            "Connecting through the manager takes {} instead of {}: {} times faster.",
            micros(m),
            micros(d),
            times(by)
        ),
        Verdict::Worse(by) => format!(
            "Connecting through the manager takes {} instead of {}: {} times slower.",
            micros(m),
            micros(d),
            times(by)
        ),
        Verdict::Same => {
            format!("Connecting through the manager ({}) and directly ({}) showed no difference.", micros(m), micros(d))
        }
    };
    Some(finding(verdict.tone(), text))
}

/// The very first client: to be connected and to have its first answer.
fn first_client(direct: &ConnectionSeries, managed: &ConnectionSeries) -> Option<Finding> {
    let (d, m) = (first_answer(direct)?, first_answer(managed)?);
    let verdict = Verdict::of(Ratio { value: d / m, interval: None });
    let compared = match verdict {
        Verdict::Better(by) => format!("{} times faster", times(by)),
        Verdict::Worse(by) => format!("{} times slower", times(by)),
        Verdict::Same => "about the same".to_owned(),
    };
    Some(finding(
        verdict.tone(),
        format!(
            "The very first client after a restart had its first answer after {} directly and {} through the manager: \
             {compared} (each seen once).",
            micros(d),
            micros(m)
        ),
    ))
}

fn first_answer(series: &ConnectionSeries) -> Option<f64> {
    let first = series.samples.first().filter(|s| s.number == 1)?;
    Some(first.connect_us + first.statement_us?)
}

fn first_runs(series: &[ProtocolSeries], side: Side) -> Option<Finding> {
    let parts: Vec<(String, f64)> = series
        .iter()
        .filter(|s| s.side == side)
        .filter_map(|s| {
            let (first, later) = (median(&s.first()), median(&s.later()));
            let ratio = first / later;
            let part = format!("{} against {} ({})", micros(first), micros(later), s.protocol);
            ratio.is_finite().then_some((part, ratio))
        })
        .collect();
    let (low, high) = parts.iter().fold((f64::INFINITY, 0.0_f64), |(l, h), p| (l.min(p.1), h.max(p.1)));
    let times = match parts.len() {
        0 => return None,
        1 => format!("{} times", times(high)),
        _ => format!("{} to {} times", times(low), times(high)),
    };
    let tone = match side {
        Side::Direct if high >= 1.5 => Tone::Bad,
        Side::Managed if high < 1.5 => Tone::Good,
        Side::Direct | Side::Managed => Tone::Neutral,
    };
    let session = match side {
        Side::Direct => "In a fresh direct session",
        Side::Managed => "In a fresh session on the manager",
    };
    let list: Vec<&str> = parts.iter().map(|p| p.0.as_str()).collect();
    Some(finding(
        tone,
        format!("{session} the first run of a statement takes {times} as long as later ones: {}.", list.join(", ")),
    ))
}

fn cost_of_reconnecting(result: &Reconnect) -> Option<Finding> {
    let kept = result.cell(Mode::Static, Side::Direct)?.tps_including();
    let each = result.cell(Mode::Reconnect, Side::Direct)?.tps_including();
    if kept.is_nan() || each.is_nan() || kept <= 0.0 || each <= 0.0 {
        return None;
    }
    let (kept_text, each_text) = (count(kept), count(each));
    let text = if kept / each >= NOTICEABLE {
        let times = times(kept / each);
        format!(
            "Directly, {} clients reach {kept_text} transactions per second when they keep their connections and \
             {each_text} with a connection for each transaction: {times} times less.",
            result.settings.clients
        )
    } else {
        format!(
            "Directly, {} clients reach {each_text} transactions per second with a connection for each transaction; \
             keeping connections ({kept_text}) made it no faster.",
            result.settings.clients
        )
    };
    Some(finding(if kept / each >= 1.5 { Tone::Bad } else { Tone::Neutral }, text))
}

fn managed_throughput(result: &Reconnect, mode: Mode) -> Option<Finding> {
    let tps = |side| result.cell(mode, side).map(|c| count(c.tps_including()));
    let (direct, managed) = (tps(Side::Direct)?, tps(Side::Managed)?);
    let ratio = result.ratio(mode)?;
    let verdict = Verdict::of(ratio);
    let how = match mode {
        Mode::Static => "With static connections",
        Mode::Reconnect => "With a connection for each transaction",
    };
    let interval = interval_text(ratio.interval);
    let text = match verdict {
        Verdict::Better(by) => format!(
            "{how} the manager serves {managed} transactions per second, {} times the {direct} of direct \
             connections{interval}.",
            times(by)
        ),
        Verdict::Worse(_) => format!(
            "{how} the manager serves {managed} transactions per second, {} of the {direct} of direct \
             connections{interval}.",
            ratio_text(ratio.value)
        ),
        Verdict::Same => format!(
            "{how} this run does not tell the manager ({managed} transactions per second) and direct connections \
             ({direct}) apart{interval}."
        ),
    };
    Some(finding(verdict.tone(), text))
}

fn interval_text(interval: Option<Interval>) -> String {
    interval.map_or_else(String::new, |i| {
        format!(" (95 % interval of the ratio: {} to {})", ratio_text(i.low), ratio_text(i.high))
    })
}

fn failures(report: &Report) -> Option<Finding> {
    let total: u64 = report.experiments().into_iter().flat_map(Experiment::failures).map(|(_, f)| f.count).sum();
    (total > 0)
        .then(|| finding(Tone::Bad, format!("{} operations failed; below it says what and why.", count(total as f64))))
}

/// The table at a glance, where a report has more to show than one experiment with tables of its own.
pub(super) fn glance_table(report: &Report) -> Option<Table> {
    let rows = glance(report);
    if rows.is_empty() || report.experiments().len() < 2 {
        return None;
    }
    let columns = ["", "direct", "managed", "managed is"].map(str::to_owned).to_vec();
    let rows = rows.into_iter().map(|r| vec![r.what, r.direct, r.managed, r.verdict]).collect();
    Some(Table { columns, rows, ..Table::default() })
}

/// The table at a glance. A dash where something was not measured.
#[must_use]
pub fn glance(report: &Report) -> Vec<Glance> {
    let mut rows = Vec::new();
    let series = |side| report.connections.iter().find(|s| s.side == side);
    let (d, m) = (series(Side::Direct), series(Side::Managed));
    let both = |of: &dyn Fn(&ConnectionSeries) -> Option<f64>| (d.and_then(of), m.and_then(of));
    let (a, b) = both(&|s| s.samples.first().filter(|s| s.number == 1).map(|s| s.connect_us));
    rows.push(time("first connection after a restart", a, b, None));
    let (a, b) = both(&first_answer);
    rows.push(time("  and its first answer", a, b, None));
    let ratio = d.zip(m).and_then(|(d, m)| ratio_of_medians(&steady(d), &steady(m)));
    let (a, b) = both(&|s| Some(median(&steady(s))));
    rows.push(time("a later connection", a, b, ratio));
    for protocol in ["simple", "extended", "prepared"] {
        let find = |side| report.protocols.iter().find(|s| s.side == side && s.protocol == protocol);
        let (d, m) = (find(Side::Direct), find(Side::Managed));
        for (name, of) in
            [("first", ProtocolSeries::first as fn(&ProtocolSeries) -> Vec<f64>), ("later", ProtocolSeries::later)]
        {
            let ratio = d.zip(m).and_then(|(d, m)| ratio_of_medians(&of(d), &of(m)));
            let value = |s: Option<&ProtocolSeries>| s.map(|s| median(&of(s)));
            rows.push(time(&format!("{name} run of a statement, {protocol}"), value(d), value(m), ratio));
        }
    }
    if let Some(result) = &report.reconnect {
        for mode in Mode::ALL {
            rows.push(throughput(result, mode));
        }
    }
    rows.retain(|row| row.direct != "-" || row.managed != "-");
    rows
}

fn time(what: &str, direct: Option<f64>, managed: Option<f64>, ratio: Option<Ratio>) -> Glance {
    let compared = match (direct, managed) {
        (Some(d), Some(m)) if d > 0.0 && m > 0.0 => ratio.or(Some(Ratio { value: d / m, interval: None })),
        _ => None,
    };
    Glance {
        what: what.to_owned(),
        direct: direct.map_or_else(|| "-".to_owned(), micros),
        managed: managed.map_or_else(|| "-".to_owned(), micros),
        verdict: compared.map_or_else(String::new, |r| Verdict::of(r).words("faster", "slower")),
    }
}

fn throughput(result: &Reconnect, mode: Mode) -> Glance {
    let shown =
        |side| result.cell(mode, side).map_or_else(|| "-".to_owned(), |c| format!("{} tps", count(c.tps_including())));
    let how = match mode {
        Mode::Static => "static connections",
        Mode::Reconnect => "a connection per transaction",
    };
    Glance {
        what: format!("{} clients, {how}", result.settings.clients),
        direct: shown(Side::Direct),
        managed: shown(Side::Managed),
        verdict: result.ratio(mode).map_or_else(String::new, |r| Verdict::of(r).words("more", "less")),
    }
}

/// Times to connect of the third and later connections.
fn steady(series: &ConnectionSeries) -> Vec<f64> {
    series.samples.iter().filter(|s| s.number > 2).map(|s| s.connect_us).collect()
}

fn median(values: &[f64]) -> f64 {
    Distribution::of(values).map_or_else(|| quantile(&[], 0.5), |d| d.median)
}

#[cfg(test)]
#[path = "findings_tests.rs"]
mod tests;
