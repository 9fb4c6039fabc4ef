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

/// Made up, and quick: the real ones measure the machine.
fn surroundings() -> Environment {
    let floor = crate::floor::Floor { clock_us: 0.03, pingpong_us: 9.5, worst_gap_us: 2100.0 };
    let mut targets = std::collections::BTreeMap::new();
    targets.insert("direct".to_owned(), "TCP over loopback".to_owned());
    Environment {
        tool: "pgusher 0.1.0".to_owned(),
        started_at: "2026-11-21T12:34:56Z".to_owned(),
        floor: Some(floor),
        server: Some(ServerFacts { version: "18.1".to_owned(), ..ServerFacts::default() }),
        targets,
        ..Environment::default()
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
        environment: surroundings(),
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
        cold: None,
        tables: None,
        prewarm: None,
        profile: None,
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
        cold: None,
        tables: None,
        prewarm: None,
        profile: None,
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

/// A chart of each kind, as the experiments draw them.
fn gallery() -> Section {
    let axis = |label: &str, scale, unit| Axis { label: label.to_owned(), scale, unit };
    let series = |name: &str, colour, mark, points| Series { name: name.to_owned(), colour, mark, points };
    let clients = [512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0_f64];
    let quadratic = |n: f64| 231.0 * n + 0.147 * n * n;
    let measured =
        clients.map(|n| Point { x: n, y: quadratic(n), range: Some((quadratic(n) * 0.8, quadratic(n) * 1.3)) });
    let model = (9..=14).flat_map(|p| [1.0, 1.2, 1.5].map(|f| f * 2_f64.powi(p))).map(|n| Point::at(n, quadratic(n)));
    let growth = Chart {
        caption: "Time until all clients are connected".to_owned(),
        x: axis("clients, logarithmic", AxisScale::Logarithmic, Unit::Count),
        y: axis("time, logarithmic", AxisScale::Logarithmic, Unit::Micros),
        series: vec![
            series("direct: alpha N + beta N^2", Colour::Direct, Mark::Model, model.collect()),
            series("direct", Colour::Direct, Mark::LineAndDots, measured.to_vec()),
            series("managed", Colour::Managed, Mark::LineAndDots, clients.map(|n| Point::at(n, 25.0 * n)).to_vec()),
            series(
                "PostgreSQL 16, published",
                Colour::Other(0),
                Mark::Dots,
                clients.map(|n| Point::at(n, 300.0 * n)).to_vec(),
            ),
        ],
    };
    let mut rng = fastrand::Rng::with_seed(3);
    let many = (1..=16_384_u32).map(|n| {
        let slow = if rng.u32(0..400) == 0 { 30.0 } else { 1.0 };
        Point::at(f64::from(n), slow * (1500.0 + f64::from(n) / 6.0 + 900.0 * rng.f64()))
    });
    let completion = Chart {
        caption: "Each connection of a storm".to_owned(),
        x: axis("connection, in the order of completion", AxisScale::Linear, Unit::Count),
        y: axis("time to connect, logarithmic", AxisScale::Logarithmic, Unit::Micros),
        series: vec![series("direct, 16,384 clients", Colour::Direct, Mark::Dots, many.collect())],
    };
    let tables = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0_f64];
    let line = |i: usize| {
        let points =
            tables.map(|t| Point { x: t, y: 1.0 + t.ln() / (1.0 + i as f64), range: Some((0.9, 2.0 + t.ln() / 2.0)) });
        series(
            &format!("a series with a rather long name, number {i}"),
            Colour::Other(i),
            Mark::LineAndDots,
            points.to_vec(),
        )
    };
    let ratios = Chart {
        caption: "Throughput with the cache, as a multiple of that without".to_owned(),
        x: axis("tables", AxisScale::Logarithmic, Unit::Count),
        y: axis("ratio", AxisScale::Linear, Unit::Ratio),
        series: (0..8).map(line).collect(),
    };
    Section {
        title: "Charts".to_owned(),
        method: "Made-up points.".to_owned(),
        exhibits: [growth, completion, ratios].map(Exhibit::Chart).to_vec(),
        ..Section::default()
    }
}

#[test]
fn charts_of_each_kind_are_well_formed_and_small() {
    let document = Document { sections: vec![gallery()], ..Document::default() };
    let page = page_document(&document);
    assert_eq!(check(&page), Ok(()));
    assert!(page.len() < 150_000, "{}", page.len());
}

/// Leaves the pages of made-up numbers where `PGUSHER_SAMPLE_PAGE` says, to be looked at in a browser.
#[test]
fn written_to_be_looked_at() {
    if let Some(path) = std::env::var_os("PGUSHER_SAMPLE_PAGE") {
        let mut document = Document::of(&sample());
        document.sections.push(gallery());
        std::fs::write(path, page_document(&document)).expect("writable");
    }
}
