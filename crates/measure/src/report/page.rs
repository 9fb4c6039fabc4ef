//! The page: findings first, then each experiment with its plot and its table, then the surroundings.

use super::document::Document;
use super::html::Markup;
use super::model::{Finding, Report, Tone};
use super::section::{section, table};

const STYLE: &str = include_str!("page.css");

/// The report as one HTML document that needs nothing else.
#[must_use]
pub fn page(report: &Report) -> String {
    page_document(&Document::of(report))
}

/// A document as a page.
#[must_use]
pub fn page_document(document: &Document) -> String {
    let mut m = Markup::default();
    m.raw("<!DOCTYPE html>\n").open("html", &[("lang", "en")]).open("head", &[]);
    m.empty("meta", &[("charset", "utf-8")]);
    m.empty("meta", &[("name", "viewport"), ("content", "width=device-width, initial-scale=1")]);
    m.empty("meta", &[("name", "color-scheme"), ("content", "light dark")]);
    m.element("title", &[], &document.title);
    m.open("style", &[]).raw(STYLE).close().close();
    m.open("body", &[]).open("main", &[]);
    m.open("header", &[]).element("h1", &[], &document.title);
    m.element("p", &[("class", "dim")], &document.subtitle).close();
    if !document.findings.is_empty() {
        m.open("section", &[]).element("h2", &[], "What it shows");
        findings(&mut m, &document.findings);
        m.close();
    }
    if let Some(rows) = &document.glance {
        m.open("section", &[]).element("h2", &[], "At a glance").open("div", &[("class", "glance")]);
        table(&mut m, rows);
        m.close().close();
    }
    document.sections.iter().for_each(|one| section(&mut m, one));
    if !document.notes.is_empty() {
        m.open("section", &[]).element("h2", &[], "Notes").open("ul", &[]);
        document.notes.iter().for_each(|note| {
            m.element("li", &[], note);
        });
        m.close().close();
    }
    surroundings(&mut m, document);
    m.finish()
}

/// Sentences, each with the colour of its tone.
pub(super) fn findings(m: &mut Markup, findings: &[Finding]) {
    m.open("ul", &[("class", "findings")]);
    for finding in findings {
        let class = match finding.tone {
            Tone::Good => "good",
            Tone::Neutral => "neutral",
            Tone::Bad => "bad",
        };
        m.element("li", &[("class", class)], &finding.text);
    }
    m.close();
}

fn surroundings(m: &mut Markup, document: &Document) {
    m.open("section", &[]).element("h2", &[], "Measured with");
    for (heading, facts) in &document.surroundings {
        if !heading.is_empty() {
            m.element("h3", &[], heading);
        }
        m.open("div", &[("class", "scroll")]).open("table", &[("class", "facts")]).open("tbody", &[]);
        for (name, value) in facts {
            m.open("tr", &[]).element("th", &[("scope", "row")], name).element("td", &[], value).close();
        }
        m.close().close().close();
    }
    m.close();
}
