//! A diagnosis as tables for the report.

use super::model::{Diagnosis, Severity};
use super::text::{cost, counts, grouped};
use crate::failure::FailureCount;
use crate::report::{Exhibit, Experiment, Finding, Table, Tone};
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
        let tone = match self.worst() {
            Some(Severity::Critical | Severity::Warning) => Tone::Bad,
            Some(Severity::Notice) | None => Tone::Neutral,
        };
        let first = self.findings.iter().take(3).map(|f| f.what.as_str()).collect::<Vec<_>>().join(" ");
        vec![Finding { tone, text: format!("Found: {}. {first}", counts(self)) }]
    }

    fn exhibits(&self) -> Vec<Exhibit> {
        let mut list = Vec::new();
        let mut add = |caption: &str, columns: &[&str], rows: Vec<Vec<String>>| {
            if !rows.is_empty() {
                list.push(Exhibit::Table(Table {
                    caption: caption.to_owned(),
                    columns: columns.iter().map(|c| (*c).to_owned()).collect(),
                    rows,
                    remark: String::new(),
                }));
            }
        };
        add("Findings", &["finding", "severity", "what is wrong", "cost", "what mends it"], self.finding_rows());
        add("Evidence", &["finding", "what", "value", "source"], self.evidence_rows());
        let skipped = grouped(self).into_iter().map(|(what, reason, remedy)| vec![what, reason, remedy]).collect();
        add("Not examined", &["what", "why", "what would allow it"], skipped);
        add("Measured", &["time", "n", "median", "least", "most"], self.measurement_rows());
        list
    }

    fn failures(&self) -> Vec<(String, FailureCount)> {
        Vec::new()
    }

    fn notes(&self) -> Vec<String> {
        let lost = self.lost.as_ref().map(|why| format!("The server went away while it was looked at: {why}"));
        let examined = (!self.examined.is_empty()).then(|| format!("Examined: {}.", self.examined.join(", ")));
        lost.into_iter().chain(examined).collect()
    }

    fn interrupted(&self) -> bool {
        self.interrupted
    }
}

impl Diagnosis {
    fn finding_rows(&self) -> Vec<Vec<String>> {
        let row = |f: &super::Finding| {
            let cures: Vec<String> = f.cures.iter().map(|c| format!("{}: {}", c.place(), c.text)).collect();
            vec![f.id.to_string(), f.severity.name().to_owned(), f.what.clone(), cost(&f.cost), cures.join("; ")]
        };
        self.findings.iter().map(row).collect()
    }

    fn evidence_rows(&self) -> Vec<Vec<String>> {
        let of = |f: &super::Finding| {
            let id = f.id.to_string();
            let row = |e: &super::Evidence| vec![id.clone(), e.name.clone(), e.value.clone(), e.source.clone()];
            f.evidence.iter().map(row).collect::<Vec<_>>()
        };
        self.findings.iter().flat_map(of).collect()
    }

    fn measurement_rows(&self) -> Vec<Vec<String>> {
        self.measurements
            .iter()
            .map(|m| vec![m.name.clone(), m.n.to_string(), micros(m.median_us), micros(m.min_us), micros(m.max_us)])
            .collect()
    }
}
