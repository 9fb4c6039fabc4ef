//! Results as Markdown with tables (as GitHub and most others read them). Charts are left to the page.

use std::fmt::Write as _;

use super::exhibit::{Exhibit, Experiment, Table};
use super::facts::facts;
use super::findings::glance_table;
use super::model::{Finding, Report, Tone};

/// One experiment, its heading on the second level.
#[must_use]
pub fn markdown(experiment: &dyn Experiment) -> String {
    let mut out = String::new();
    write_experiment(&mut out, experiment, &experiment.findings());
    out
}

/// A whole report.
#[must_use]
pub fn markdown_report(report: &Report) -> String {
    let mut out = format!("# {}\n", inline(&report.title));
    list(&mut out, &report.findings);
    if let Some(table) = glance_table(report) {
        out.push_str("\n## At a glance\n");
        write_table(&mut out, &table);
    }
    for experiment in report.experiments() {
        out.push('\n');
        write_experiment(&mut out, experiment, &[]);
    }
    if !report.notes.is_empty() {
        out.push_str("\n## Notes\n\n");
        report.notes.iter().for_each(|note| item(&mut out, note));
    }
    out.push_str("\n## Measured with\n");
    let rows = facts(&report.environment).into_iter().map(|(name, value)| vec![name, value]).collect();
    let columns = vec!["what".to_owned(), "value".to_owned()];
    write_table(&mut out, &Table { columns, rows, ..Table::default() });
    out
}

fn write_experiment(out: &mut String, experiment: &dyn Experiment, findings: &[Finding]) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "## {}\n\n{}", inline(&experiment.title()), inline(&experiment.method()));
    if experiment.interrupted() {
        out.push_str("\n**Interrupted:** what was measured until then.\n");
    }
    list(out, findings);
    for exhibit in experiment.exhibits() {
        if let Exhibit::Table(table) = exhibit {
            if !table.caption.is_empty() {
                let _ = writeln!(out, "\n### {}", inline(&table.caption));
            }
            write_table(out, &table);
        }
    }
    let (failures, notes) = (experiment.failures(), experiment.notes());
    if !failures.is_empty() || !notes.is_empty() {
        out.push('\n');
    }
    failures.iter().for_each(|(whose, failure)| item(out, &format!("failure: {whose}, {failure}")));
    notes.iter().for_each(|note| item(out, note));
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
    let row = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| inline(cell).trim().to_owned()).collect();
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
