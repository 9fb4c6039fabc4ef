//! The result as a table for people.

use std::fmt::Write as _;

use super::model::{Cell, Mode, Reconnect};
use crate::stats::{Distribution, Ratio, count, micros, ratio_text};
use crate::target::Side;

const NAME: usize = 30;
const VALUE: usize = 12;

/// The table. Ends with a line feed.
#[must_use]
pub fn text(result: &Reconnect) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_text(&mut out, result);
    out
}

fn write_text(out: &mut String, result: &Reconnect) -> std::fmt::Result {
    let s = &result.settings;
    let length = match (s.seconds, s.transactions_per_client) {
        (Some(seconds), _) => format!("{seconds} s"),
        (None, Some(n)) => format!("{n} transactions per client"),
        (None, None) => "unlimited length".to_owned(),
    };
    writeln!(
        out,
        "{}; {} protocol; {} client{}; {} alternating round{} of {length}; closed loop",
        s.script,
        s.protocol,
        s.clients,
        plural(s.clients),
        s.rounds,
        plural(s.rounds),
    )?;
    if let Some(at_once) = s.connecting_at_once {
        writeln!(out, "at most {at_once} connecting at the same time")?;
    }
    if result.interrupted {
        writeln!(out, "INTERRUPTED: what was measured until then")?;
    }
    for mode in Mode::ALL {
        let cells: Vec<&Cell> = Side::ALL.into_iter().filter_map(|side| result.cell(mode, side)).collect();
        if !cells.is_empty() {
            section(out, result, mode, &cells)?;
        }
    }
    failures(out, result)?;
    for note in &result.notes {
        writeln!(out, "note: {note}")?;
    }
    Ok(())
}

fn section(out: &mut String, result: &Reconnect, mode: Mode, cells: &[&Cell]) -> std::fmt::Result {
    let title = match mode {
        Mode::Static => "static connections",
        Mode::Reconnect => "a connection per transaction",
    };
    let mut heading = format!("\n{title:<NAME$}");
    for cell in cells {
        write!(heading, "{:>VALUE$}", cell.side.to_string())?;
    }
    if cells.len() == 2 {
        heading.push_str("  managed/direct (95 % interval)");
    }
    writeln!(out, "{heading}")?;
    let ratios = result.ratios.iter().find(|r| r.mode == mode);
    row(out, "tps including connecting", cells, |c| count(c.tps_including()))?;
    ratio(out, ratios.and_then(|r| r.tps_including_connecting))?;
    row(out, "tps excluding connecting", cells, |c| count(c.tps_excluding()))?;
    ratio(out, ratios.and_then(|r| r.tps_excluding_connecting))?;
    let first_connect = |c: &Cell| micros(c.first(|f| Some(f.connect_us)));
    let first_transaction = |c: &Cell| micros(c.first(|f| f.transaction_us));
    row(out, "first connection: connect", cells, first_connect)?;
    out.push('\n');
    row(out, "  its transaction", cells, first_transaction)?;
    out.push('\n');
    distribution(out, "connect", cells, |c| c.connect.as_ref())?;
    distribution(out, "transaction", cells, |c| c.transaction.as_ref())?;
    distribution(out, "disconnect", cells, |c| c.disconnect.as_ref())
}

fn distribution(
    out: &mut String,
    name: &str,
    cells: &[&Cell],
    of: impl Fn(&Cell) -> Option<&Distribution>,
) -> std::fmt::Result {
    if cells.iter().all(|c| of(c).is_none()) {
        return Ok(());
    }
    type Show = fn(&Distribution) -> String;
    let lines: [(&str, Show); 7] = [
        ("average", |d| micros(d.mean)),
        ("stddev", |d| micros(d.stddev)),
        ("median", |d| micros(d.median)),
        ("p95", |d| micros(d.p95)),
        ("p99", |d| micros(d.p99)),
        ("max", |d| micros(d.max)),
        ("n", |d| count(d.n as f64)),
    ];
    for (label, format) in lines {
        let name = if label == "average" { format!("{name} {label}") } else { format!("  {label}") };
        row(out, &name, cells, |c| of(c).map_or_else(|| "-".to_owned(), format))?;
        out.push('\n');
    }
    Ok(())
}

fn row(out: &mut String, name: &str, cells: &[&Cell], of: impl Fn(&Cell) -> String) -> std::fmt::Result {
    write!(out, "  {name:<width$}", width = NAME - 2)?;
    for cell in cells {
        write!(out, "{:>VALUE$}", of(cell))?;
    }
    Ok(())
}

fn ratio(out: &mut String, ratio: Option<Ratio>) -> std::fmt::Result {
    if let Some(r) = ratio {
        write!(out, "  {:>8}", ratio_text(r.value))?;
        match r.interval {
            Some(i) => write!(out, "  ({} to {})", ratio_text(i.low), ratio_text(i.high))?,
            None => write!(out, "  (one round: no interval)")?,
        }
    }
    out.push('\n');
    Ok(())
}

fn failures(out: &mut String, result: &Reconnect) -> std::fmt::Result {
    if !result.any_failure() {
        return Ok(());
    }
    writeln!(out, "\nfailures")?;
    for cell in &result.cells {
        for f in &cell.failures {
            writeln!(out, "  {} {}, {f}", cell.side, cell.mode)?;
        }
    }
    Ok(())
}

fn plural(n: u32) -> &'static str {
    if n == 1 { "" } else { "s" }
}
