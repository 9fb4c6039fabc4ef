//! The page: findings first, then each experiment with its plot and its table, then the surroundings.

use super::bars::{Bar, Group, bars};
use super::findings::glance;
use super::html::Markup;
use super::model::{ConnectionSeries, ProtocolSeries, Report, Tone};
use super::scatter::scatter;
use super::waterfall::{rows, side, waterfall};
use crate::failure::FailureCount;
use crate::reconnect::{Cell, Mode, Reconnect};
use crate::stats::{Distribution, Ratio, count, micros, quantile, ratio_text};
use crate::target::Side;

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
    connections(&mut m, &report.connections);
    protocols(&mut m, &report.protocols);
    if let Some(result) = &report.reconnect {
        reconnect(&mut m, result);
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
    let rows = glance(report);
    if rows.is_empty() {
        return;
    }
    m.open("section", &[]).element("h2", &[], "At a glance");
    m.open("div", &[("class", "scroll glance")]);
    table(m, &["", "direct", "managed", "managed is"], |m| {
        for row in rows {
            cells(m, &row.what, &[row.direct, row.managed, row.verdict]);
        }
    });
    m.close().close();
}

fn connections(m: &mut Markup, series: &[ConnectionSeries]) {
    if series.iter().all(|s| s.samples.is_empty()) {
        return;
    }
    m.open("section", &[]).element("h2", &[], "First and later connections");
    for s in series {
        let n = s.samples.len();
        m.open("p", &[])
            .text(&format!(
                "{}: {n} connections one after the other, the first one right after {}; each runs ",
                side(s.side),
                s.after
            ))
            .element("code", &[], &s.statement)
            .text(".")
            .close();
    }
    m.element("h3", &[], "Where the time goes");
    let bars: Vec<_> = series.iter().flat_map(rows).collect();
    m.open("figure", &[]).raw(&waterfall(&bars));
    m.element(
        "figcaption",
        &[],
        "The first connection as it was, and the medians of each phase over the third and later ones. A sum of \
         medians is not the median of the sums, so it can differ a little from the table below.",
    )
    .close();
    m.element("h3", &[], "Each connection");
    m.open("figure", &[]).raw(&scatter(series));
    m.element("figcaption", &[], "Time to connect; logarithmic. The first connection is the larger dot.").close();
    table(m, &["", "first", "second", "later: median", "p95", "max", "first / median"], |m| {
        for s in series {
            for (name, summary) in [("connect", s.connect()), ("first statement", s.statement())] {
                let Some(summary) = summary else { continue };
                let steady = summary.steady.as_ref();
                let of = |f: fn(&Distribution) -> f64| steady.map_or_else(dash, |d| micros(f(d)));
                cells(
                    m,
                    &format!("{}, {name}", side(s.side)),
                    &[
                        micros(summary.first),
                        summary.second.map_or_else(dash, micros),
                        of(|d| d.median),
                        of(|d| d.p95),
                        of(|d| d.max),
                        summary.first_to_steady.map_or_else(dash, ratio_text),
                    ],
                );
            }
        }
    });
    for s in series {
        failures(m, side(s.side), &s.failures);
    }
    m.close();
}

fn protocols(m: &mut Markup, series: &[ProtocolSeries]) {
    if series.iter().all(|s| s.runs_us.is_empty()) {
        return;
    }
    m.open("section", &[]).element("h2", &[], "First and later runs of a statement");
    if let Some(s) = series.first() {
        m.open("p", &[])
            .element("code", &[], &s.statement)
            .text(&format!(
                ", run several times in each of {} fresh connections. The first run in a session fills caches that later \
                 runs find filled; later means the third and following. Extended is Parse, Describe, Sync and then Bind, \
                 Execute, Sync; prepared does the former only once, and its first run includes that.",
                s.runs_us.len()
            ))
            .close();
    }
    let mut groups = Vec::new();
    let mut lines = Vec::new();
    for s in series {
        let (first, later) = (median(s.first()), median(s.later()));
        if !first.is_finite() || !later.is_finite() {
            continue;
        }
        groups.push(Group {
            title: format!("{}, {}", s.protocol, side(s.side)),
            remark: format!("first is {} later", ratio_text(first / later)),
            bars: vec![
                bar("first", "f-first", first, micros(first)),
                bar("later", colour(s.side), later, micros(later)),
            ],
        });
        lines.push((s, first, later));
    }
    m.open("figure", &[]).raw(&bars("First and later runs by protocol", &groups, micros));
    m.element("figcaption", &[], "Medians over the connections; logarithmic.").close();
    table(m, &["", "first", "later", "later: p95", "first / later"], |m| {
        for (s, first, later) in &lines {
            let p95 = Distribution::of(&s.later()).map_or_else(dash, |d| micros(d.p95));
            cells(
                m,
                &format!("{}, {}", s.protocol, side(s.side)),
                &[micros(*first), micros(*later), p95, ratio_text(first / later)],
            );
        }
    });
    for s in series {
        failures(m, &format!("{} {}", side(s.side), s.protocol), &s.failures);
    }
    m.close();
}

fn reconnect(m: &mut Markup, result: &Reconnect) {
    let s = &result.settings;
    m.open("section", &[]).element("h2", &[], "Keeping a connection, and one per transaction");
    m.element(
        "p",
        &[],
        &format!(
            "{} clients, {} protocol, {}; {} alternating rounds{}. Closed loop: a client sends its next transaction when \
             the last one has ended.{}",
            s.clients,
            s.protocol,
            s.script,
            s.rounds,
            s.seconds.map_or_else(String::new, |t| format!(" of {t} s")),
            if result.interrupted { " It was interrupted." } else { "" }
        ),
    );
    let groups: Vec<Group> = Mode::ALL.into_iter().filter_map(|mode| group(result, mode)).collect();
    m.open("figure", &[]).raw(&bars("Transactions per second", &groups, count));
    m.element("figcaption", &[], "Transactions per second, connecting included; logarithmic.").close();
    table(m, &["", "tps incl.", "tps excl.", "connect", "transaction", "disconnect"], |m| {
        for cell in &result.cells {
            let both = |d: &Option<Distribution>| {
                d.as_ref().map_or_else(dash, |d| format!("{} / {}", micros(d.median), micros(d.p99)))
            };
            cells(
                m,
                &format!("{}, {}", cell.mode, side(cell.side)),
                &[
                    count(cell.tps_including()),
                    count(cell.tps_excluding()),
                    both(&cell.connect),
                    both(&cell.transaction),
                    both(&cell.disconnect),
                ],
            );
        }
    });
    m.element(
        "p",
        &[("class", "dim")],
        "tps including and excluding the time to connect and disconnect. Times: median / p99. A disconnect is over when our side has closed, unless stated.",
    );
    for cell in &result.cells {
        failures(m, &format!("{} {}", side(cell.side), cell.mode), &cell.failures);
    }
    for note in &result.notes {
        m.element("p", &[("class", "dim")], note);
    }
    m.close();
}

fn group(result: &Reconnect, mode: Mode) -> Option<Group> {
    let bars: Vec<Bar> = Side::ALL
        .into_iter()
        .filter_map(|at| result.cell(mode, at))
        .filter(|cell: &&Cell| cell.tps_including() > 0.0)
        .map(|cell| {
            let tps = cell.tps_including();
            bar(side(cell.side), colour(cell.side), tps, count(tps))
        })
        .collect();
    let title = match mode {
        Mode::Static => "static connections",
        Mode::Reconnect => "a connection per transaction",
    };
    let remark = result.ratio(mode).map_or_else(String::new, |r| format!("managed {}", with_interval(r)));
    (!bars.is_empty()).then(|| Group { title: title.to_owned(), remark, bars })
}

fn with_interval(r: Ratio) -> String {
    match r.interval {
        Some(i) => format!("{} ({} to {})", ratio_text(r.value), ratio_text(i.low), ratio_text(i.high)),
        None => ratio_text(r.value),
    }
}

fn failures(m: &mut Markup, whose: &str, list: &[FailureCount]) {
    for f in list {
        m.element("p", &[("class", "failure")], &format!("{whose}, {f}"));
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
    let e = &report.environment;
    let mut facts: Vec<(String, String)> = vec![
        ("program".to_owned(), e.tool.clone()),
        ("started".to_owned(), e.started_at.clone()),
        ("system".to_owned(), format!("{}, kernel {}", e.host.system, e.host.kernel)),
        ("processor".to_owned(), format!("{} of {}", e.host.processors, e.host.processor)),
        ("memory".to_owned(), format!("{:.1} GiB", e.host.memory_kib as f64 / 1_048_576.0)),
    ];
    facts.extend(e.host.load.map(|load| ("load when it started".to_owned(), format!("{load}"))));
    facts.extend(e.targets.clone());
    if let Some(server) = &e.server {
        facts.push(("server".to_owned(), format!("PostgreSQL {}", server.version)));
        facts.extend(server.settings.clone());
    }
    m.open("section", &[]).element("h2", &[], "Measured with");
    m.open("div", &[("class", "scroll")]).open("table", &[("class", "facts")]).open("tbody", &[]);
    for (name, value) in &facts {
        m.open("tr", &[]).element("th", &[("scope", "row")], name).element("td", &[], value).close();
    }
    m.close().close().close().close();
}

fn table(m: &mut Markup, heading: &[&str], body: impl FnOnce(&mut Markup)) {
    m.open("div", &[("class", "scroll")]).open("table", &[]).open("thead", &[]).open("tr", &[]);
    for name in heading {
        m.element("th", &[("scope", "col")], name);
    }
    m.close().close().open("tbody", &[]);
    body(m);
    m.close().close().close();
}

fn cells(m: &mut Markup, name: &str, values: &[String]) {
    m.open("tr", &[]).element("th", &[("scope", "row")], name);
    for value in values {
        m.element("td", &[], value);
    }
    m.close();
}

fn bar(label: &str, class: &'static str, value: f64, shown: String) -> Bar {
    Bar { label: label.to_owned(), class, value, shown }
}

fn colour(of: Side) -> &'static str {
    match of {
        Side::Direct => "f-direct",
        Side::Managed => "f-managed",
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    quantile(&values, 0.5)
}

fn dash() -> String {
    "-".to_owned()
}
