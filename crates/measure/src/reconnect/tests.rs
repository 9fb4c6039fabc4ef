//! The formats of a result, with numbers that are made up and stay the same.

use super::*;
use crate::failure::{FailureCount, Step};
use crate::report;
use crate::stats::{Bucket, Distribution};
use crate::target::Side;

fn distribution(n: u64, median: f64) -> Distribution {
    Distribution {
        n,
        min: median * 0.5,
        median,
        median_interval: None,
        mad: median * 0.1,
        p90: median * 1.5,
        p95: median * 2.0,
        p99: median * 4.0,
        p999: None,
        max: median * 10.0,
        mean: median * 1.1,
        stddev: median * 0.3,
    }
}

fn cell(mode: Mode, side: Side, tps: f64, connect: f64) -> Cell {
    let round = |number: u32| {
        let tps = tps * (0.98 + 0.01 * f64::from(number));
        Round {
            number,
            wall_seconds: 5.0,
            transactions: (tps * 5.0) as u64,
            failed_transactions: u64::from(number == 2),
            connections: 16,
            failed_connections: 0,
            connecting_seconds: 0.5,
            tps_including_connecting: tps,
            tps_excluding_connecting: tps * 5.0 / 4.5,
            latency_average_us: 500.0,
            latency_stddev_us: 100.0,
            skipped_transactions: 0,
            late_transactions: 0,
            lag_average_us: None,
            lag_max_us: None,
            first: Some(FirstConnection {
                connect_us: connect * 2.0,
                transaction_us: (number != 1).then_some(900.0),
                disconnect_us: 20.0,
            }),
        }
    };
    Cell {
        mode,
        side,
        rounds: (1..=3).map(round).collect(),
        connect: Some(distribution(48, connect)),
        transaction: Some(distribution(100_000, 450.0)),
        disconnect: None,
        response: None,
        lag: None,
        histograms: Histograms {
            transaction: vec![
                Bucket { above_us: 398.1, up_to_us: 501.2, count: 90_000 },
                Bucket { above_us: 501.2, up_to_us: 631.0, count: 10_000 },
            ],
            ..Histograms::default()
        },
        failures: vec![FailureCount {
            step: Step::Transaction,
            cause: "57014".to_owned(),
            count: 1,
            example: "ERROR 57014: canceling <statement>".to_owned(),
        }],
    }
}

/// A result with all four combinations.
pub(crate) fn sample() -> Reconnect {
    let settings = Settings {
        clients: 16,
        connecting_at_once: Some(4),
        seconds: Some(5.0),
        transactions_per_client: None,
        rate_per_second: None,
        latency_limit_us: None,
        rounds: 3,
        protocol: Protocol::Simple,
        script: "select only".to_owned(),
        wait_for_exit: false,
        reuse_keys: true,
        seed: 1,
    };
    let cells = vec![
        cell(Mode::Static, Side::Direct, 29_464.0, 2_500.0),
        cell(Mode::Static, Side::Managed, 25_092.0, 120.0),
        cell(Mode::Reconnect, Side::Direct, 374.0, 2_600.0),
        cell(Mode::Reconnect, Side::Managed, 7_015.0, 130.0),
    ];
    Reconnect::of(settings, cells, false, vec!["a note".to_owned()])
}

#[test]
fn the_table_for_people() {
    let (now, before) = (report::text(&sample()), include_str!("sample.txt"));
    assert!(
        now == before,
        "if this change is wanted, put it into sample.txt:
{now}<end>"
    );
}

#[test]
fn one_side_only_has_no_ratio() {
    let mut result = sample();
    result.cells.retain(|c| c.side == Side::Direct);
    let result = Reconnect::of(result.settings, result.cells, true, Vec::new());
    assert!(result.ratios.is_empty());
    let table = report::text(&result);
    assert!(table.contains("INTERRUPTED") && !table.contains("managed"), "{table}");
}

#[test]
fn nothing_measured_is_still_a_table() {
    let result = Reconnect::of(sample().settings, Vec::new(), true, Vec::new());
    assert!(report::text(&result).contains("INTERRUPTED"));
    assert_eq!(csv(&result).lines().count(), 1);
}

#[test]
fn lines_of_csv_have_the_columns_of_the_heading() {
    let csv = csv(&sample());
    let mut lines = csv.lines();
    let columns = lines.next().expect("a heading").split(',').count();
    let mut count = 0;
    for line in lines {
        assert_eq!(line.split(',').count(), columns, "{line}");
        count += 1;
    }
    assert_eq!(count, 4 * 4);
    assert!(csv.contains("\nreconnect,managed,all,15.000000,"), "{csv}");
}

#[test]
fn json_reads_back_and_its_keys_carry_units() {
    let result = sample();
    let json = serde_json::to_value(&result).expect("json");
    assert_eq!(json["cells"][0]["connect"]["median_us"], 2500.0);
    assert_eq!(json["cells"][0]["rounds"][0]["first"]["connect_us"], 5000.0);
    let back: Reconnect = serde_json::from_value(json).expect("reads back");
    assert_eq!(back, result);
}

#[test]
fn the_ratio_is_that_of_the_rounds() {
    let ratio = sample().ratio(Mode::Reconnect).expect("both sides");
    assert!((ratio.value - 7015.0 / 374.0).abs() < 1e-9);
    assert!(ratio.differs());
}
