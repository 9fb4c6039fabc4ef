//! Tests that need no server.

use super::model::{Cell, Facts, Round, Settings, Storm};
use super::rounds::{tenths, thinned};
use super::{DisconnectOrder, Pace, RoundKind, growth};
use crate::report::{Environment, Exhibit, Experiment, Mark, Report, markdown_report, text_report};
use crate::target::Side;

#[test]
fn a_curve_is_thinned_but_keeps_its_end() {
    let all: Vec<f64> = (1..=16_384).map(f64::from).collect();
    let curve = thinned(&all);
    assert!(curve.len() <= 257, "{}", curve.len());
    assert_eq!(curve.last().map(|c| (c.n, c.us)), Some((16_384, 16_384.0)));
    assert!(curve.windows(2).all(|w| w[0].n < w[1].n));
    assert_eq!(thinned(&[5.0, 6.0]).len(), 2);
    assert!(thinned(&[]).is_empty());
}

#[test]
fn the_first_and_the_last_tenth_have_their_own_pace() {
    let quadratic: Vec<f64> = (1..=1000).map(|n| f64::from(n * n)).collect();
    let (first, last) = tenths(&quadratic);
    let (first, last) = (first.expect("enough"), last.expect("enough"));
    assert!(last > 10.0 * first, "{first} {last}");
    assert_eq!(tenths(&quadratic[..49]), (None, None));
}

fn round(number: u32, clients: u32, total_us: f64) -> Round {
    Round {
        number,
        total_us,
        ready: clients,
        failed: 0,
        unfinished: 0,
        first_tenth_us: None,
        last_tenth_us: None,
        retries: 0,
        lateness: None,
        disconnect_us: Some(1000.0),
        listen_overflows: Some(0),
        listen_drops: Some(0),
        server: None,
        generator_cpu_us: 20.0,
        manager_cpu_us: None,
        completion: thinned(&[1.0, 2.0, total_us]),
    }
}

/// Direct grows with the square, managed does not.
pub(crate) fn sample() -> Storm {
    let mut cells = Vec::new();
    for clients in [256_u32, 512, 1024, 2048] {
        let n = f64::from(clients);
        for side in Side::ALL {
            let total = |number: u32| {
                let wobble = 1.0 + f64::from(number % 3) * 0.01;
                wobble * if side == Side::Direct { 200.0 * n + 0.3 * n * n } else { 70.0 * n }
            };
            cells.push(Cell {
                side,
                clients,
                rounds: (1..=4).map(|number| round(number, clients, total(number))).collect(),
                connect: None,
                accept: None,
                statement: None,
                failures: Vec::new(),
            });
        }
    }
    let settings = Settings {
        clients: vec![256, 512, 1024, 2048],
        pace: Pace::Window { in_flight: 128 },
        threads: 2,
        rounds: 4,
        disconnect: DisconnectOrder::Random,
        seed: 1,
        statement: None,
        timeout_seconds: 60.0,
    };
    let growth = growth::all(&cells);
    let facts = Facts { huge_pages: "off".to_owned(), ..Facts::default() };
    Storm { settings, facts: Some(facts), cells, growth, interrupted: false, notes: vec!["a note".to_owned()] }
}

#[test]
fn what_is_shown() {
    let storm = sample();
    let texts: Vec<String> = storm.findings().into_iter().map(|f| f.text).collect();
    assert!(texts[0].contains("grows linearly below about 670 clients"), "{texts:?}");
    assert!(
        texts[1].starts_with("managed") && texts[1].contains("it grows linearly: the exponent is 1.00"),
        "{texts:?}"
    );
    assert!(texts[2].contains("2,048 clients are connected in 1.6"), "{texts:?}");
    let exhibits = storm.exhibits();
    let Exhibit::Table(totals) = &exhibits[0] else { panic!("a table first") };
    assert_eq!(totals.columns, ["clients", "256", "512", "1,024", "2,048"]);
    assert_eq!(totals.rows[0][0], "direct, first round");
    assert!(totals.rows[1][4].starts_with("1,6") && totals.rows[1][4].contains(" ± "), "{totals:?}");
    for exhibit in &exhibits {
        if let Exhibit::Table(table) = exhibit {
            assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{table:?}");
        }
    }
    let charts: Vec<_> =
        exhibits.iter().filter_map(|e| if let Exhibit::Chart(c) = e { Some(c) } else { None }).collect();
    assert_eq!(charts.len(), 3);
    assert_eq!(charts[0].series.iter().filter(|s| s.mark == Mark::Model).count(), 4);
    assert!(storm.notes().iter().any(|n| n.contains("huge pages: off")));
    assert!(storm.method().contains("128 in flight, driven by 2 threads; 4 rounds"), "{}", storm.method());
}

#[test]
fn a_line_per_round() {
    let storm = sample();
    let csv = storm.csv();
    let columns = csv.lines().next().expect("heads").split(',').count();
    assert_eq!(csv.lines().count(), 1 + 4 * 2 * 4);
    assert!(csv.lines().all(|line| line.split(',').count() == columns), "{csv}");
    assert!(csv.contains("managed,256,1,18099.200,256,0,0,"), "{csv}");
    let measures = storm.measures();
    assert_eq!(measures.len(), 16);
    assert_eq!(
        (measures[1].name.as_str(), measures[1].samples.len()),
        ("direct, 256 clients, 128 in flight, later rounds", 3)
    );
}

#[test]
fn rounds_with_failures_are_not_fitted() {
    let mut storm = sample();
    let before = storm.cells[0].totals(RoundKind::Later).len();
    storm.cells[0].rounds[2].ready -= 1;
    storm.cells[0].rounds[2].failed += 1;
    assert_eq!(storm.cells[0].totals(RoundKind::Later).len(), before - 1);
}

#[test]
fn nothing_measured_shows_nothing() {
    let empty = Storm { cells: Vec::new(), growth: Vec::new(), facts: None, ..sample() };
    assert!(empty.exhibits().is_empty() && empty.findings().is_empty());
    assert!(!empty.any_failure());
}

#[test]
fn json_carries_units_and_comes_back() {
    let storm = sample();
    let json = serde_json::to_value(&storm).expect("json");
    assert!(json["cells"][0]["rounds"][0]["total_us"].is_number());
    assert_eq!(json["settings"]["pace"]["mode"], "window");
    assert_eq!(json["cells"][0]["side"], "direct");
    let back: Storm = serde_json::from_value(json).expect("back");
    assert_eq!(back.cells, storm.cells);
    assert_eq!(back.settings, storm.settings);
}

#[test]
fn every_drawing_holds_it() {
    let mut report = Report::new("storm", Environment::default());
    report.storm = Some(sample());
    for text in [text_report(&report, false), markdown_report(&report)] {
        assert!(text.contains("direct, first round") && text.contains("alpha"), "{text}");
    }
}
