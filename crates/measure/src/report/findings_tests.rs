//! The sentences must be true whichever way the numbers come out.

use super::*;
use crate::report::tests::sample;

fn all(report: &Report) -> String {
    findings(report).into_iter().map(|f| f.text + "\n").collect()
}

#[test]
fn as_expected() {
    let text = all(&sample());
    for part in [
        "took 6.25 ms, 2.31 times as long as a later one (median 2.70 ms)",
        "takes 130 us instead of 2.70 ms: 20.8 times faster",
        "the first run of a statement takes 15.5 to 17.1 times as long as later ones",
        "78.8 times less",
        "18.8 times the 374 of direct connections (95 % interval of the ratio: 18.8x to 18.8x)",
        "0.85x of the 29,463 of direct connections",
        "6 operations failed",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn the_other_way_round() {
    let mut report = sample();
    for series in &mut report.connections {
        series.side = match series.side {
            Side::Direct => Side::Managed,
            Side::Managed => Side::Direct,
        };
    }
    for series in &mut report.protocols {
        series.runs_us = vec![vec![10.0, 10.0, 100.0, 100.0]; 5];
    }
    let result = report.reconnect.take().expect("there");
    let mut cells = result.cells;
    for cell in &mut cells {
        cell.side = match cell.side {
            Side::Direct => Side::Managed,
            Side::Managed => Side::Direct,
        };
        cell.mode = match cell.mode {
            Mode::Static => Mode::Reconnect,
            Mode::Reconnect => Mode::Static,
        };
    }
    report.reconnect = Some(Reconnect::of(result.settings, cells, false, Vec::new()));
    let text = all(&report);
    for part in [
        "takes 2.70 ms instead of 130 us: 20.8 times slower",
        "times slower (each seen once)",
        "takes 0.10 to 0.10 times as long as later ones",
        "made it no faster",
        "0.05x of the 7,015 of direct connections",
        "1.17 times the 25,091 of direct connections",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn no_difference_is_said_to_be_none() {
    let mut report = sample();
    let mut twin = report.connections[0].clone();
    twin.side = Side::Managed;
    report.connections[1] = twin;
    let text = all(&report);
    assert!(text.contains("showed no difference."), "{text}");
    assert!(text.contains("about the same (each seen once)"), "{text}");
    assert_eq!(glance(&report)[2].verdict, "no difference shown");
}

#[test]
fn a_missing_side_is_not_talked_about() {
    let mut report = sample();
    report.connections.truncate(1);
    report.protocols.retain(|p| p.side == Side::Direct);
    let result = report.reconnect.take().expect("there");
    let cells = result.cells.into_iter().filter(|c| c.side == Side::Direct).collect();
    report.reconnect = Some(Reconnect::of(result.settings, cells, false, Vec::new()));
    assert!(!all(&report).contains("manager"), "{}", all(&report));
    assert!(glance(&report).iter().all(|row| row.managed == "-" && row.verdict.is_empty()));
}

#[test]
fn nothing_measured_says_nothing() {
    let mut report = sample();
    report.connections.clear();
    report.protocols.clear();
    report.reconnect = None;
    assert_eq!(findings(&report), []);
    assert_eq!(glance(&report), []);
}

#[test]
fn a_failed_first_connection_is_not_replaced_by_the_second() {
    let mut report = sample();
    report.connections[0].samples.remove(0);
    assert!(!all(&report).contains("The first connection"), "{}", all(&report));
}

#[test]
fn the_table_at_a_glance() {
    let rows = glance(&sample());
    let last = rows.last().expect("rows");
    assert_eq!(
        (last.what.as_str(), last.direct.as_str(), last.managed.as_str(), last.verdict.as_str()),
        ("16 clients, a connection per transaction", "374 tps", "7,015 tps", "18.8x more")
    );
    assert!(rows.iter().any(|r| r.what == "a later connection" && r.verdict == "20.8x faster"));
}
