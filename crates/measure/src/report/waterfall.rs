//! What times are made of, such as those of connections: one stacked bar each.

use super::exhibit::Phases;
use super::model::PhaseTime;
use super::scale::Scale;
use super::svg::{Anchor, Drawing, both, text_width};
use crate::stats::micros;

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
pub(super) fn waterfall(plot: &Phases) -> String {
    both(&plot.caption, |d| draw(d, plot))
}

fn sum(pieces: &[PhaseTime]) -> f64 {
    pieces.iter().map(|p| p.us).sum()
}

fn draw(d: &mut Drawing, plot: &Phases) -> f64 {
    let longest = plot.rows.iter().map(|(_, pieces)| sum(pieces)).fold(0.0, f64::max);
    let widest = plot.rows.iter().map(|(label, _)| text_width(label)).fold(0.0, f64::max) + 10.0;
    let (label, bar) = if d.narrow { (0.0, 20.0) } else { (widest.clamp(130.0, d.width / 3.0), 26.0) };
    let scale = Scale::linear(longest, label, d.width - 66.0);
    let mut y = 6.0;
    for (name, pieces) in &plot.rows {
        if d.narrow {
            d.text("t", Anchor::Start, 0.0, y + 11.0, name);
            y += 17.0;
        } else {
            d.text("t", Anchor::End, label - 10.0, y + bar / 2.0 + 4.0, name);
        }
        let mut sum = 0.0;
        for PhaseTime { phase, us } in pieces {
            let from = scale.at(sum);
            sum += us;
            d.bar(class(phase), from, y, (scale.at(sum) - from).max(0.5), bar, &format!("{phase}: {}", micros(*us)));
        }
        d.text("t strong", Anchor::Start, scale.at(sum) + 6.0, y + bar / 2.0 + 4.0, &micros(sum));
        y += bar + if d.narrow { 10.0 } else { 12.0 };
    }
    legend(d, plot, longest, y + 8.0)
}

fn legend(d: &mut Drawing, plot: &Phases, longest: f64, top: f64) -> f64 {
    let mut names: Vec<&str> = Vec::new();
    for PhaseTime { phase, us } in plot.rows.iter().flat_map(|(_, pieces)| pieces) {
        // What is too short to be seen needs no colour to be known by.
        if *us > longest / 1000.0 && !names.contains(&phase.as_str()) {
            names.push(phase);
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
