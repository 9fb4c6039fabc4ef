//! Results as Markdown with tables (as GitHub and most others read them). Charts are left to the page.

use std::fmt::Write as _;

use super::document::{Document, Section};
use super::exhibit::{Exhibit, Experiment, Table};
use super::model::{Finding, Report, Tone};

/// One experiment, its heading on the second level.
#[must_use]
pub fn markdown(experiment: &dyn Experiment) -> String {
    let mut out = String::new();
    section(&mut out, &Section { findings: experiment.findings(), ..Section::of(experiment) });
    out
}

/// A whole report.
#[must_use]
pub fn markdown_report(report: &Report) -> String {
    markdown_document(&Document::of(report))
}

/// A document.
#[must_use]
pub fn markdown_document(document: &Document) -> String {
    // Writing to a String cannot fail, here and below.
    let mut out = format!("# {}\n\n{}\n", inline(&document.title), inline(&document.subtitle));
    list(&mut out, &document.findings);
    if let Some(table) = &document.glance {
        out.push_str("\n## At a glance\n");
        write_table(&mut out, table);
    }
    for one in &document.sections {
        out.push('\n');
        section(&mut out, one);
    }
    if !document.notes.is_empty() {
        out.push_str("\n## Notes\n\n");
        document.notes.iter().for_each(|note| item(&mut out, note));
    }
    for (heading, facts) in &document.surroundings {
        let heading = if heading.is_empty() { String::new() } else { format!(": {}", inline(heading)) };
        let _ = writeln!(out, "\n## Measured with{heading}");
        let rows = facts.iter().map(|(name, value)| vec![name.clone(), value.clone()]).collect();
        let columns = vec!["what".to_owned(), "value".to_owned()];
        write_table(&mut out, &Table { columns, rows, ..Table::default() });
    }
    out
}

fn section(out: &mut String, section: &Section) {
    let _ = writeln!(out, "## {}\n\n{}", inline(&section.title), inline(&section.method));
    if section.interrupted {
        out.push_str("\n**Interrupted:** what was measured until then.\n");
    }
    list(out, &section.findings);
    for exhibit in &section.exhibits {
        if let Exhibit::Table(table) = exhibit {
            if !table.caption.is_empty() {
                let _ = writeln!(out, "\n### {}", inline(&table.caption));
            }
            write_table(out, table);
        }
    }
    if !section.failures.is_empty() || !section.notes.is_empty() {
        out.push('\n');
    }
    section.failures.iter().for_each(|(whose, failure)| item(out, &format!("failure: {whose}, {failure}")));
    section.notes.iter().for_each(|note| item(out, note));
}

fn list(out: &mut String, findings: &[Finding]) {
    if findings.is_empty() {
        return;
    }
    out.push('\n');
    for Finding { tone, text } in findings {
        match tone {
            Tone::Good | Tone::Neutral => item(out, text),
            Tone::Bad => item(out, &format!("(slow or slower) {text}")),
        }
    }
}

fn item(out: &mut String, text: &str) {
    let _ = writeln!(out, "- {}", inline(text));
}

fn write_table(out: &mut String, table: &Table) {
    // A cell that is indented is a part of the row above it; plain blanks would not be seen.
    let cell = |text: &String| {
        let indent = text.chars().take_while(|c| *c == ' ').count();
        "&nbsp;".repeat(indent) + inline(text).trim()
    };
    let row = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(cell).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule: Vec<&str> = (0..table.columns.len()).map(|c| if table.is_numeric(c) { "---:" } else { "---" }).collect();
    out.push('\n');
    out.push_str(&row(&table.columns));
    let _ = writeln!(out, "|{}|", rule.join("|"));
    table.rows.iter().for_each(|cells| out.push_str(&row(cells)));
    if !table.remark.is_empty() {
        let _ = writeln!(out, "\n{}", inline(&table.remark));
    }
}

/// Text that means nothing to Markdown, on one line.
fn inline(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' => out.extend(['\\', c]),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
