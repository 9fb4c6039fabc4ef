//! The page with made-up numbers: well-formed, self-contained, and complete.

use super::html::check;
use super::*;
use crate::failure::{FailureCount, Step};
use crate::reconnect::tests as reconnect_tests;
use crate::target::Side;

fn series(side: Side, connect: f64) -> ConnectionSeries {
    let sample = |number: u32| {
        let factor = if number == 1 { 2.5 } else { 1.0 + f64::from(number % 5) * 0.04 };
        let phase = |phase: &str, share: f64| PhaseTime { phase: phase.to_owned(), us: connect * share * factor };
        ConnectionSample {
            number,
            phases: vec![phase("connect", 0.02), phase("queue+fork", 0.3), phase("startup", 0.65)],
            connect_us: connect * factor,
            statement_us: (number != 7).then_some(connect * 0.2 * factor),
        }
    };
    ConnectionSeries {
        side,
        after: "the server's start".to_owned(),
        statement: "select '<&>'".to_owned(),
        samples: (1..=40).map(sample).collect(),
        failures: vec![FailureCount {
            step: Step::Transaction,
            cause: "42P01".to_owned(),
            count: 1,
            example: "relation \"<script>alert(1)</script>\" does not exist".to_owned(),
        }],
    }
}

/// A report with all parts.
pub(crate) fn sample() -> Report {
    let protocol = |side: Side, name: &str, scale: f64| ProtocolSeries {
        side,
        protocol: name.to_owned(),
        statement: "select 1 where 1 < 2 && 'x'".to_owned(),
        runs_us: (0..20).map(|i| vec![900.0 * scale, 150.0, 60.0 + f64::from(i), 58.0, 57.0]).collect(),
        failures: Vec::new(),
    };
    Report {
        schema_version: SCHEMA_VERSION,
        title: "A <title> & more".to_owned(),
        environment: Environment::here(),
        findings: vec![
            Finding { tone: Tone::Bad, text: "The first connection took 6.25 ms, 2.5 times as long.".to_owned() },
            Finding { tone: Tone::Good, text: "Through the manager it is \"fast\".".to_owned() },
            Finding { tone: Tone::Neutral, text: "Nothing else.".to_owned() },
        ],
        connections: vec![series(Side::Direct, 2500.0), series(Side::Managed, 120.0)],
        protocols: vec![
            protocol(Side::Direct, "simple", 1.0),
            protocol(Side::Managed, "simple", 0.1),
            protocol(Side::Direct, "extended", 1.1),
        ],
        reconnect: Some(reconnect_tests::sample()),
        storm: None,
        doctor: None,
        notes: vec!["a <note>".to_owned()],
    }
}

#[test]
fn the_page_is_well_formed() {
    assert_eq!(check(&page(&sample())), Ok(()));
}

#[test]
fn nothing_is_fetched_and_nothing_runs() {
    let page = page(&sample());
    for forbidden in ["http://", "https://", "<script", "<link", "<img", "@import", "url(", "src="] {
        let found = page.replace("http://www.w3.org/2000/svg", "").contains(forbidden);
        assert!(!found, "{forbidden}");
    }
}

#[test]
fn what_was_measured_is_on_it() {
    let page = page(&sample());
    for part in [
        "A &lt;title&gt; &amp; more",
        "2.5 times as long",
        "select &#39;&lt;&amp;&gt;&#39;",
        "&lt;script&gt;alert(1)&lt;/script&gt;",
        "managed 18.8x",
        "7,015",
        "queue+fork",
        "first is 15.5x later",
        "a &lt;note&gt;",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn an_empty_report_is_a_page_too() {
    let empty = Report {
        schema_version: SCHEMA_VERSION,
        title: String::new(),
        environment: Environment::default(),
        findings: Vec::new(),
        connections: vec![ConnectionSeries {
            side: Side::Direct,
            after: String::new(),
            statement: String::new(),
            samples: Vec::new(),
            failures: Vec::new(),
        }],
        protocols: Vec::new(),
        reconnect: None,
        storm: None,
        doctor: None,
        notes: Vec::new(),
    };
    assert_eq!(check(&page(&empty)), Ok(()));
}

#[test]
fn a_storm_is_drawn() {
    let mut report = Report::new("storm", Environment::default());
    report.storm = Some(crate::storm::tests::sample());
    assert_eq!(check(&page(&report)), Ok(()));
}

#[test]
fn json_reads_back() {
    let json = serde_json::to_string(&sample()).expect("json");
    assert!(json.starts_with("{\"schema_version\":1,"));
    let back: Report = serde_json::from_str(&json).expect("reads back");
    assert_eq!(back.findings, sample().findings);
    assert_eq!(back.connections.len(), 2);
    assert_eq!(back.reconnect.map(|r| r.cells.len()), Some(4));
}

/// Leaves the page of made-up numbers where `PGUSHER_SAMPLE_PAGE` says, to be looked at in a browser.
#[test]
fn written_to_be_looked_at() {
    if let Some(path) = std::env::var_os("PGUSHER_SAMPLE_PAGE") {
        std::fs::write(path, page(&sample())).expect("writable");
    }
}
