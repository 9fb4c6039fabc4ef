//! Where the time of a connection goes: one stacked bar each for the first connection and for the later ones.

use super::model::{ConnectionSample, ConnectionSeries};
use super::svg::{Anchor, Drawing, Scale, both, text_width};
use crate::stats::{micros, quantile};
use crate::target::Side;

/// One bar.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    label: String,
    pieces: Vec<(String, f64)>,
}

/// The bars of a series: its first connection, and the medians of each phase over the third and later ones.
pub(super) fn rows(series: &ConnectionSeries) -> Vec<Row> {
    let mut rows = Vec::new();
    if let Some(first) = series.samples.first() {
        rows.push(Row { label: format!("{}, first", side(series.side)), pieces: pieces(std::slice::from_ref(first)) });
    }
    if let Some(later) = series.samples.get(2..).filter(|s| !s.is_empty()) {
        rows.push(Row { label: format!("{}, later", side(series.side)), pieces: pieces(later) });
    }
    rows
}

pub(super) fn side(side: Side) -> &'static str {
    match side {
        Side::Direct => "direct",
        Side::Managed => "managed",
    }
}

/// The phases in the order in which they first appear, then the statement, each with its median.
fn pieces(samples: &[ConnectionSample]) -> Vec<(String, f64)> {
    let mut names: Vec<&str> = Vec::new();
    for phase in samples.iter().flat_map(|s| &s.phases) {
        if !names.contains(&phase.phase.as_str()) {
            names.push(&phase.phase);
        }
    }
    let median = |mut values: Vec<f64>| {
        values.sort_unstable_by(f64::total_cmp);
        quantile(&values, 0.5)
    };
    let mut pieces: Vec<(String, f64)> = names
        .into_iter()
        .map(|name| {
            let of = |s: &ConnectionSample| s.phases.iter().filter(|p| p.phase == name).map(|p| p.us).sum();
            (name.to_owned(), median(samples.iter().map(of).collect()))
        })
        .collect();
    let statements: Vec<f64> = samples.iter().filter_map(|s| s.statement_us).collect();
    if !statements.is_empty() {
        pieces.push(("first statement".to_owned(), median(statements)));
    }
    pieces
}

/// The class of a phase: the same colour in every report.
fn class(phase: &str) -> &'static str {
    match phase {
        "resolve" => "f-resolve",
        "connect" => "f-connect",
        "queue+fork" => "f-fork",
        "tls" => "f-tls",
        "startup" => "f-startup",
        "authenticate" => "f-auth",
        "client crypto" => "f-crypto",
        "ready" => "f-ready",
        "session check" => "f-check",
        "first statement" => "f-statement",
        _ => "f-other",
    }
}

/// The plot.
pub(super) fn waterfall(all: &[Row]) -> String {
    let longest = all.iter().map(|r| r.pieces.iter().map(|p| p.1).sum::<f64>()).fold(0.0, f64::max);
    both("Where the time of a connection goes", |d| draw(d, all, longest))
}

fn draw(d: &mut Drawing, all: &[Row], longest: f64) -> f64 {
    let (label, bar) = if d.narrow { (0.0, 20.0) } else { (130.0, 26.0) };
    let scale = Scale::linear(longest, label, d.width - 66.0);
    let mut y = 6.0;
    for row in all {
        if d.narrow {
            d.text("t", Anchor::Start, 0.0, y + 11.0, &row.label);
            y += 17.0;
        } else {
            d.text("t", Anchor::End, label - 10.0, y + bar / 2.0 + 4.0, &row.label);
        }
        let mut sum = 0.0;
        for (name, us) in &row.pieces {
            let from = scale.at(sum);
            sum += us;
            d.bar(class(name), from, y, (scale.at(sum) - from).max(0.5), bar, &format!("{name}: {}", micros(*us)));
        }
        d.text("t strong", Anchor::Start, scale.at(sum) + 6.0, y + bar / 2.0 + 4.0, &micros(sum));
        y += bar + if d.narrow { 10.0 } else { 12.0 };
    }
    legend(d, all, longest, y + 8.0)
}

fn legend(d: &mut Drawing, all: &[Row], longest: f64, top: f64) -> f64 {
    let mut names: Vec<&str> = Vec::new();
    for (name, us) in all.iter().flat_map(|r| &r.pieces) {
        // What is too short to be seen needs no colour to be known by.
        if *us > longest / 1000.0 && !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let (mut x, mut y) = (0.0, top);
    for name in names {
        let width = 18.0 + text_width(name) + 14.0;
        if x > 0.0 && x + width > d.width {
            (x, y) = (0.0, y + 20.0);
        }
        d.bar(class(name), x, y, 12.0, 12.0, name);
        d.text("t", Anchor::Start, x + 18.0, y + 10.5, name);
        x += width;
    }
    y + 24.0
}
