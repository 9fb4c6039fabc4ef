//! A diagnosis as tables for the report.

use super::model::{Cost, Diagnosis, Severity};
use super::text::cost;
use crate::failure::{FailureCount, Step};
use crate::report::{Exhibit, Experiment, Finding, Table, Tone, field};
use crate::stats::{micros, seconds};

impl Experiment for Diagnosis {
    fn title(&self) -> String {
        "Doctor".to_owned()
    }

    fn method(&self) -> String {
        let r = &self.reached;
        format!(
            "Looked at {} (database {}, as {}, {}), reached {}, for {} with {} connections, one after the other.",
            r.target,
            r.database,
            r.user,
            r.rights,
            r.through,
            seconds(self.elapsed_us / 1e6),
            self.connections_opened
        )
    }

    fn findings(&self) -> Vec<Finding> {
        if self.findings.is_empty() {
            return vec![Finding { tone: Tone::Good, text: "Nothing was found.".to_owned() }];
        }
        let sentence = |f: &super::Finding| {
            let tone = match f.severity {
                Severity::Critical | Severity::Warning => Tone::Bad,
                Severity::Notice => Tone::Neutral,
            };
            Finding { tone, text: format!("{} ({}): {}", f.id, f.severity.name(), f.what) }
        };
        self.findings.iter().map(sentence).collect()
    }

    fn exhibits(&self) -> Vec<Exhibit> {
        let mut list: Vec<Exhibit> = self.findings.iter().map(|f| Exhibit::Table(finding(f))).collect();
        let mut add = |caption: &str, columns: &[&str], rows: Vec<Vec<String>>| {
            if !rows.is_empty() {
                list.push(Exhibit::Table(table(caption, columns, rows)));
            }
        };
        let skipped = self.not_examined.iter().map(|n| {
            let remedy = if n.remedy.is_empty() { String::new() } else { format!(" [{}]", n.remedy) };
            vec![n.what.clone(), format!("{}{remedy}", n.reason)]
        });
        add("Not examined", &["what", "why, and what would allow it"], skipped.collect());
        add("Measured", &["time", "n", "median", "least", "most"], self.measurement_rows());
        list
    }

    fn failures(&self) -> Vec<(String, FailureCount)> {
        let failure = |why: &String| {
            let (step, cause) = (Step::Transaction, "lost".to_owned());
            ("the server went away".to_owned(), FailureCount { step, cause, count: 1, example: why.clone() })
        };
        self.lost.iter().map(failure).collect()
    }

    fn notes(&self) -> Vec<String> {
        let examined = (!self.examined.is_empty()).then(|| format!("Examined: {}.", self.examined.join(", ")));
        examined.into_iter().collect()
    }

    fn interrupted(&self) -> bool {
        self.interrupted
    }

    /// A line per finding.
    fn csv(&self) -> String {
        let mut out = "finding,severity,what,per,cost_us\n".to_owned();
        for f in &self.findings {
            let (per, us) = match &f.cost {
                Cost::Measured { per, cost_us, .. } => (per.name(), format!("{cost_us:.1}")),
                Cost::NotMeasured { .. } => ("", String::new()),
            };
            let cells = [f.id.name(), f.severity.name(), f.what.as_str(), per, us.as_str()].map(field);
            out.push_str(&(cells.join(",") + "\n"));
        }
        out
    }
}

fn table(caption: &str, columns: &[&str], rows: Vec<Vec<String>>) -> Table {
    let columns = columns.iter().map(|c| (*c).to_owned()).collect();
    Table { caption: caption.to_owned(), columns, rows, remark: String::new() }
}

/// One finding: two columns, so that it can be read on a phone.
fn finding(f: &super::Finding) -> Table {
    // The first column does not wrap; a statement's text is no name for a row.
    let row = |e: &super::Evidence| match e.name.chars().count() {
        0..=40 => vec![e.name.clone(), format!("{} [{}]", e.value, e.source)],
        _ => vec!["statement".to_owned(), format!("{}: {} [{}]", e.name, e.value, e.source)],
    };
    let mut rows: Vec<Vec<String>> = f.evidence.iter().map(row).collect();
    rows.push(vec!["cost".to_owned(), cost(&f.cost)]);
    rows.extend(f.cures.iter().map(|c| vec!["mend".to_owned(), format!("{}: {}", c.place(), c.text)]));
    table(&format!("{} ({})", f.id, f.severity.name()), &["what", "value"], rows)
}

impl Diagnosis {
    fn measurement_rows(&self) -> Vec<Vec<String>> {
        self.measurements
            .iter()
            .map(|m| vec![m.name.clone(), m.n.to_string(), micros(m.median_us), micros(m.min_us), micros(m.max_us)])
            .collect()
    }
}
