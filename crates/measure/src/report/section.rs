//! An experiment as a section of the page: heading, method, exhibits in their order, failures, notes.

use super::bars::bars;
use super::chart::chart;
use super::document::Section;
use super::exhibit::{Exhibit, Table};
use super::html::Markup;
use super::page::findings;
use super::waterfall::waterfall;

/// Writes the section.
pub(super) fn section(m: &mut Markup, section: &Section) {
    m.open("section", &[]).element("h2", &[], &section.title);
    m.element("p", &[], &section.method);
    if section.interrupted {
        m.element("p", &[("class", "failure")], "It was interrupted; this is what was measured until then.");
    }
    if !section.findings.is_empty() {
        findings(m, &section.findings);
    }
    for exhibit in &section.exhibits {
        match exhibit {
            Exhibit::Table(one) => table(m, one),
            Exhibit::Chart(one) => figure(m, &one.caption, &chart(one), ""),
            Exhibit::Bars(one) => figure(m, &one.caption, &bars(one), ""),
            Exhibit::Phases(one) => figure(m, &one.caption, &waterfall(one), &one.remark),
        }
    }
    for (whose, failure) in &section.failures {
        m.element("p", &[("class", "failure")], &format!("{whose}, {failure}"));
    }
    for note in &section.notes {
        m.element("p", &[("class", "dim")], note);
    }
    m.close();
}

fn figure(m: &mut Markup, caption: &str, drawing: &str, remark: &str) {
    m.open("figure", &[]).element("figcaption", &[], caption).raw(drawing).close();
    if !remark.is_empty() {
        m.element("p", &[("class", "dim")], remark);
    }
}

/// A table with its caption above and its remark below.
pub(super) fn table(m: &mut Markup, table: &Table) {
    if !table.caption.is_empty() {
        m.element("h3", &[], &table.caption);
    }
    let class = |column: usize| if column == 0 || table.is_numeric(column) { "" } else { "words" };
    m.open("div", &[("class", "scroll")]).open("table", &[]).open("thead", &[]).open("tr", &[]);
    for (column, name) in table.columns.iter().enumerate() {
        m.element("th", &[("scope", "col"), ("class", class(column))], name);
    }
    m.close().close().open("tbody", &[]);
    for row in &table.rows {
        m.open("tr", &[]);
        for (column, cell) in row.iter().enumerate() {
            if column == 0 {
                m.element("th", &[("scope", "row")], cell);
            } else {
                m.element("td", &[("class", class(column))], cell);
            }
        }
        m.close();
    }
    m.close().close().close();
    if !table.remark.is_empty() {
        m.element("p", &[("class", "dim")], &table.remark);
    }
}
