//! The page: findings first, then each experiment with its plot and its table, then the surroundings.

use super::facts::facts;
use super::findings::glance_table;
use super::html::Markup;
use super::model::{Report, Tone};
use super::section::{section, table};

const STYLE: &str = include_str!("page.css");

/// The report as one HTML document that needs nothing else.
#[must_use]
pub fn page(report: &Report) -> String {
    let mut m = Markup::default();
    m.raw("<!DOCTYPE html>\n").open("html", &[("lang", "en")]).open("head", &[]);
    m.empty("meta", &[("charset", "utf-8")]);
    m.empty("meta", &[("name", "viewport"), ("content", "width=device-width, initial-scale=1")]);
    m.empty("meta", &[("name", "color-scheme"), ("content", "light dark")]);
    m.element("title", &[], &report.title);
    m.open("style", &[]).raw(STYLE).close().close();
    m.open("body", &[]).open("main", &[]);
    head(&mut m, report);
    findings(&mut m, report);
    at_a_glance(&mut m, report);
    for experiment in report.experiments() {
        section(&mut m, experiment);
    }
    notes(&mut m, report);
    surroundings(&mut m, report);
    m.finish()
}

fn head(m: &mut Markup, report: &Report) {
    let e = &report.environment;
    m.open("header", &[]).element("h1", &[], &report.title);
    let server = e.server.as_ref().map_or_else(String::new, |s| format!("PostgreSQL {} · ", s.version));
    m.element("p", &[("class", "dim")], &format!("{server}{} · {}", e.started_at, e.tool)).close();
}

fn findings(m: &mut Markup, report: &Report) {
    if report.findings.is_empty() {
        return;
    }
    m.open("section", &[]).element("h2", &[], "What it shows").open("ul", &[("class", "findings")]);
    for finding in &report.findings {
        let class = match finding.tone {
            Tone::Good => "good",
            Tone::Neutral => "neutral",
            Tone::Bad => "bad",
        };
        m.element("li", &[("class", class)], &finding.text);
    }
    m.close().close();
}

fn at_a_glance(m: &mut Markup, report: &Report) {
    if let Some(rows) = glance_table(report) {
        m.open("section", &[]).element("h2", &[], "At a glance").open("div", &[("class", "glance")]);
        table(m, &rows);
        m.close().close();
    }
}

fn notes(m: &mut Markup, report: &Report) {
    if report.notes.is_empty() {
        return;
    }
    m.open("section", &[]).element("h2", &[], "Notes").open("ul", &[]);
    for note in &report.notes {
        m.element("li", &[], note);
    }
    m.close().close();
}

fn surroundings(m: &mut Markup, report: &Report) {
    m.open("section", &[]).element("h2", &[], "Measured with");
    m.open("div", &[("class", "scroll")]).open("table", &[("class", "facts")]).open("tbody", &[]);
    for (name, value) in facts(&report.environment) {
        m.open("tr", &[]).element("th", &[("scope", "row")], &name).element("td", &[], &value).close();
    }
    m.close().close().close().close();
}
