//! A diagnosis for a person at a terminal: what is wrong first, what was not looked at last.

use super::model::{Cost, Diagnosis, Finding, Severity};
use crate::stats::{micros, seconds};

/// Lines are at most this long.
const WIDTH: usize = 110;

/// The whole text.
#[must_use]
pub fn text(diagnosis: &Diagnosis) -> String {
    let mut out = String::new();
    head(diagnosis, &mut out);
    out.push('\n');
    if diagnosis.findings.is_empty() {
        out.push_str("Nothing found.\n");
    } else {
        paragraph(&mut out, "", &format!("Found: {}.", counts(diagnosis)));
    }
    for finding in &diagnosis.findings {
        out.push('\n');
        one(finding, &mut out);
    }
    tail(diagnosis, &mut out);
    out
}

fn head(diagnosis: &Diagnosis, out: &mut String) {
    let r = &diagnosis.reached;
    let server = format!(
        "PostgreSQL {} at {}, database {}, as {} ({})",
        r.server_version, r.target, r.database, r.user, r.rights
    );
    paragraph(out, "", &server);
    let over = if r.transport.is_empty() { String::new() } else { format!(" over {}", r.transport) };
    let machine = if r.same_machine { ", on this machine" } else { "" };
    let opened = match diagnosis.connections_opened {
        1 => "1 connection".to_owned(),
        n => format!("{n} connections, one after the other"),
    };
    let elapsed = seconds(diagnosis.elapsed_us / 1e6);
    paragraph(out, "", &format!("reached {}{over}{machine}; {elapsed}, {opened}", r.through));
    if let Some(lost) = &diagnosis.lost {
        paragraph(out, "", &format!("THE SERVER WENT AWAY: {lost}. What was found until then follows."));
    }
    if diagnosis.interrupted {
        paragraph(out, "", "Interrupted. What was found until then follows.");
    }
}

/// `1 critical, 2 warnings`.
fn counts(diagnosis: &Diagnosis) -> String {
    let parts: Vec<String> = [Severity::Critical, Severity::Warning, Severity::Notice]
        .into_iter()
        .filter_map(|severity| match (diagnosis.count(severity), severity) {
            (0, _) => None,
            (n, Severity::Critical) => Some(format!("{n} critical")),
            (1, severity) => Some(format!("1 {}", severity.name())),
            (n, severity) => Some(format!("{n} {}s", severity.name())),
        })
        .collect();
    parts.join(", ")
}

fn one(finding: &Finding, out: &mut String) {
    out.push_str(&format!("{:<10}{}\n", finding.severity.name().to_uppercase(), finding.id));
    paragraph(out, "  ", &finding.what);
    let mut label = "evidence";
    for e in &finding.evidence {
        labelled(out, label, &format!("{}: {}  [{}]", e.name, e.value, e.source));
        label = "";
    }
    labelled(out, "cost", &cost(&finding.cost));
    let mut label = "mend";
    for cure in &finding.cures {
        labelled(out, label, &format!("{}: {}", cure.place(), cure.text));
        label = "";
    }
}

/// A cost in words.
pub(super) fn cost(cost: &Cost) -> String {
    match cost {
        Cost::Measured { per, cost_us, how } => format!("{} per {} ({how})", micros(*cost_us), per.name()),
        Cost::NotMeasured { reason } => format!("not measured: {reason}"),
    }
}

fn tail(diagnosis: &Diagnosis, out: &mut String) {
    if !diagnosis.not_examined.is_empty() {
        out.push_str("\nNot examined\n");
        for (whats, reason, remedy) in grouped(diagnosis) {
            let remedy = if remedy.is_empty() { String::new() } else { format!("  [{remedy}]") };
            paragraph(out, "  ", &format!("{whats}: {reason}{remedy}"));
        }
    }
    if !diagnosis.measurements.is_empty() {
        out.push_str("\nMeasured (median, most)\n");
        let times: Vec<String> = diagnosis
            .measurements
            .iter()
            .map(|m| format!("{} {} ({})", m.name, micros(m.median_us), micros(m.max_us)))
            .collect();
        paragraph(out, "  ", &times.join(", "));
    }
    if !diagnosis.examined.is_empty() {
        out.push_str("\nExamined\n");
        paragraph(out, "  ", &diagnosis.examined.join(", "));
    }
}

/// What was not examined, with those that have one reason in one line.
fn grouped(diagnosis: &Diagnosis) -> Vec<(String, String, String)> {
    let mut groups: Vec<(String, String, String)> = Vec::new();
    for n in &diagnosis.not_examined {
        match groups.iter_mut().find(|(_, reason, remedy)| *reason == n.reason && *remedy == n.remedy) {
            Some((whats, ..)) => {
                whats.push_str("; ");
                whats.push_str(&n.what);
            }
            None => groups.push((n.what.clone(), n.reason.clone(), n.remedy.clone())),
        }
    }
    groups
}

fn labelled(out: &mut String, label: &str, text: &str) {
    let first = format!("  {label:<10}");
    wrapped(out, &first, "            ", text);
}

fn paragraph(out: &mut String, indent: &str, text: &str) {
    wrapped(out, indent, &format!("{indent}  "), text);
}

/// Without characters that a terminal would obey: names and statements come from a server and its clients.
fn safe(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Words in lines of at most [`WIDTH`] characters.
fn wrapped(out: &mut String, first: &str, rest: &str, text: &str) {
    let mut line = first.to_owned();
    let mut empty = true;
    // A cure can hold aligned blanks; they may break, and otherwise stay as they are.
    for word in safe(text).split(' ') {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            out.push_str(line.trim_end());
            out.push('\n');
            line = rest.to_owned();
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    out.push_str(line.trim_end());
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Id;
    use crate::doctor::model::{CureKind, NotExamined, Per, Reached};

    fn diagnosis() -> Diagnosis {
        let finding = |id, severity| {
            Finding::new(id, severity, "What is wrong, in a sentence.")
                .evidence("a number", "5 ms", "pg_settings")
                .cost(Cost::measured(Per::Connection, 1234.0, "median of 9"))
                .cure(CureKind::Reload, "log_hostname = off")
                .cure(CureKind::Command, "do this")
        };
        let skipped = |what: &str| NotExamined { what: what.into(), reason: "why".into(), remedy: "GRANT it".into() };
        Diagnosis {
            reached: Reached { target: "db:5432".into(), through: "directly".into(), ..Reached::default() },
            findings: vec![finding(Id::LogHostname, Severity::Critical), finding(Id::SslOff, Severity::Warning)],
            not_examined: vec![skipped("one thing"), skipped("another")],
            ..Diagnosis::default()
        }
    }

    #[test]
    fn a_finding_says_what_why_how_much_and_what_to_do() {
        let text = text(&diagnosis());
        assert!(text.contains("Found: 1 critical, 1 warning.\n"), "{text}");
        let expected = "CRITICAL  log-hostname\n  What is wrong, in a sentence.\n  evidence  a number: 5 ms  [pg_settings]\n  \
             cost      1.23 ms per connection (median of 9)\n  mend      postgresql.conf, then reload: log_hostname = off\n            \
             command: do this\n";
        assert!(text.contains(expected), "{text}");
        assert!(text.contains("  one thing; another: why  [GRANT it]\n"), "{text}");
    }

    #[test]
    fn nothing_from_the_server_reaches_the_terminal_as_an_order() {
        let mut diagnosis = diagnosis();
        diagnosis.findings[0].evidence[0].value = "\u{1b}[2J\u{7}shop".to_owned();
        assert!(!text(&diagnosis).contains(['\u{1b}', '\u{7}']));
    }

    #[test]
    fn nothing_found_is_said() {
        let healthy = Diagnosis { findings: Vec::new(), ..diagnosis() };
        assert!(text(&healthy).contains("\nNothing found.\n"));
    }

    #[test]
    fn long_lines_are_broken_between_words() {
        let mut out = String::new();
        labelled(&mut out, "cost", &"word ".repeat(60));
        assert!(out.lines().count() >= 3 && out.lines().all(|line| line.chars().count() <= WIDTH), "{out}");
        assert!(out.lines().skip(1).all(|line| line.starts_with("            word")), "{out}");
    }
}
