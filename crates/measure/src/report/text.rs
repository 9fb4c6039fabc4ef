//! Results for the terminal: aligned tables, then sentences. Charts are left to the page.

use std::fmt::Write as _;

use super::document::{Document, Section};
use super::exhibit::{Exhibit, Experiment, Table};
use super::model::{Finding, Report, Tone};

/// One experiment. Ends with a line feed.
#[must_use]
pub fn text(experiment: &dyn Experiment) -> String {
    let mut out = String::new();
    section(&mut out, &Section::of(experiment));
    sentences(&mut out, &experiment.findings(), false);
    out
}

/// A whole report. With `colour`, the marks of its sentences have colours of the terminal.
#[must_use]
pub fn text_report(report: &Report, colour: bool) -> String {
    let mut out = text_document(&Document::of(report), colour);
    if let Some(floor) = &report.environment.floor {
        line(&mut out, &floor.to_string());
    }
    out
}

/// A whole report without the tables of its experiments: the table at a glance, the sentences, what failed.
#[must_use]
pub fn text_at_a_glance(report: &Report, colour: bool) -> String {
    let mut short = Document::of(report);
    let failures: Vec<_> = short.sections.drain(..).flat_map(|section| section.failures).collect();
    let mut out = text_document(&short, colour);
    if let Some(floor) = &report.environment.floor {
        line(&mut out, &floor.to_string());
    }
    for (whose, failure) in failures {
        line(&mut out, &format!("failure: {whose}, {failure}"));
    }
    out
}

/// A document: its table at a glance, its sections, then the sentences. What it was measured with is left to the page.
#[must_use]
pub fn text_document(document: &Document, colour: bool) -> String {
    let mut out = String::new();
    if let Some(table) = &document.glance {
        write_table(&mut out, table);
        out.push('\n');
    }
    for one in &document.sections {
        section(&mut out, one);
        out.push('\n');
    }
    sentences(&mut out, &document.findings, colour);
    for note in &document.notes {
        line(&mut out, &format!("note: {note}"));
    }
    out
}

fn section(out: &mut String, section: &Section) {
    line(out, &section.title);
    line(out, &"-".repeat(section.title.chars().count()));
    line(out, &section.method);
    if section.interrupted {
        line(out, "INTERRUPTED: what was measured until then");
    }
    for exhibit in &section.exhibits {
        if let Exhibit::Table(table) = exhibit {
            out.push('\n');
            write_table(out, table);
        }
    }
    sentences(out, &section.findings, false);
    if !section.failures.is_empty() || !section.notes.is_empty() {
        out.push('\n');
    }
    for (whose, failure) in &section.failures {
        line(out, &format!("failure: {whose}, {failure}"));
    }
    for note in &section.notes {
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
            out.push_str(&format!("\u{1b}[{code}m{mark}\u{1b}[0m "));
            line(out, text);
        } else {
            line(out, &format!("{mark} {text}"));
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
        line(out, &table.caption);
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
        line(out, &table.remark);
    }
}

fn line(out: &mut String, text: &str) {
    out.push_str(&safe(text));
    out.push('\n');
}

/// Without characters that a terminal would obey: some of the text comes from a server.
fn safe(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
