//! Results for the terminal: aligned tables, then sentences. Charts are left to the page.

use std::fmt::Write as _;

use super::exhibit::{Exhibit, Experiment, Table};
use super::findings::glance_table;
use super::model::{Finding, Report, Tone};

/// One experiment. Ends with a line feed.
#[must_use]
pub fn text(experiment: &dyn Experiment) -> String {
    let mut out = String::new();
    write_experiment(&mut out, experiment);
    sentences(&mut out, &experiment.findings(), false);
    out
}

/// A whole report: its table at a glance, its experiments, then the sentences. With `colour`, the marks of the sentences have
/// colours of the terminal.
#[must_use]
pub fn text_report(report: &Report, colour: bool) -> String {
    let mut out = String::new();
    at_a_glance(&mut out, report);
    for experiment in report.experiments() {
        write_experiment(&mut out, experiment);
        out.push('\n');
    }
    ending(&mut out, report, colour);
    out
}

/// A whole report without the tables of its experiments: the table at a glance, the sentences, what failed.
#[must_use]
pub fn text_at_a_glance(report: &Report, colour: bool) -> String {
    let mut out = String::new();
    at_a_glance(&mut out, report);
    ending(&mut out, report, colour);
    for (whose, failure) in report.experiments().into_iter().flat_map(Experiment::failures) {
        line(&mut out, &format!("failure: {whose}, {failure}"));
    }
    out
}

fn at_a_glance(out: &mut String, report: &Report) {
    if let Some(table) = glance_table(report) {
        write_table(out, &table);
        out.push('\n');
    }
}

fn ending(out: &mut String, report: &Report, colour: bool) {
    sentences(out, &report.findings, colour);
    for note in &report.notes {
        line(out, &format!("note: {note}"));
    }
    if let Some(floor) = &report.environment.floor {
        line(out, &floor.to_string());
    }
}

fn write_experiment(out: &mut String, experiment: &dyn Experiment) {
    let title = experiment.title();
    line(out, &title);
    line(out, &"-".repeat(title.chars().count()));
    line(out, &experiment.method());
    if experiment.interrupted() {
        line(out, "INTERRUPTED: what was measured until then");
    }
    for exhibit in experiment.exhibits() {
        if let Exhibit::Table(table) = exhibit {
            out.push('\n');
            write_table(out, &table);
        }
    }
    let failures = experiment.failures();
    if !failures.is_empty() {
        out.push('\n');
    }
    for (whose, failure) in failures {
        line(out, &format!("failure: {whose}, {failure}"));
    }
    let notes = experiment.notes();
    if !notes.is_empty() {
        out.push('\n');
    }
    for note in notes {
        line(out, &format!("note: {note}"));
    }
}

/// Each with a mark: `+` good, `=` neither, `-` bad.
fn sentences(out: &mut String, findings: &[Finding], colour: bool) {
    if !findings.is_empty() && !out.is_empty() && !out.ends_with("\n\n") {
        out.push('\n');
    }
    for Finding { tone, text } in findings {
        let (mark, code) = match tone {
            Tone::Good => ("+", "32"),
            Tone::Neutral => ("=", "0"),
            Tone::Bad => ("-", "31"),
        };
        if colour {
            line(out, &format!("\u{1b}[{code}m{mark}\u{1b}[0m {}", safe(text)));
        } else {
            line(out, &format!("{mark} {}", safe(text)));
        }
    }
}

/// A table alone. Ends with a line feed.
#[must_use]
pub fn text_table(table: &Table) -> String {
    let mut out = String::new();
    write_table(&mut out, table);
    out
}

/// Columns two blanks apart, numbers to the right.
fn write_table(out: &mut String, table: &Table) {
    if !table.caption.is_empty() {
        line(out, &safe(&table.caption));
    }
    let width = |column: usize| {
        let cells = table.rows.iter().chain(std::iter::once(&table.columns)).filter_map(|row| row.get(column));
        cells.map(|cell| safe(cell).chars().count()).max().unwrap_or(0)
    };
    let columns: Vec<(usize, bool)> = (0..table.columns.len()).map(|c| (width(c), table.is_numeric(c))).collect();
    for row in std::iter::once(&table.columns).chain(&table.rows) {
        let mut text = String::new();
        for (cell, (width, right)) in row.iter().zip(&columns) {
            let cell = safe(cell);
            // Writing to a String cannot fail.
            let _ = if *right { write!(text, "{cell:>width$}  ") } else { write!(text, "{cell:<width$}  ") };
        }
        line(out, text.trim_end());
    }
    if !table.remark.is_empty() {
        line(out, &safe(&table.remark));
    }
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

/// Without characters that a terminal would obey: some of the text comes from a server.
fn safe(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
