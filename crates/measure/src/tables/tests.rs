//! What follows from runs with numbers that are made up.

use super::*;
use crate::failure::{FailureCount, Step};
use crate::reconnect::Mode;
use crate::report::{Exhibit, Experiment, Table, Tone};

/// Three runs in which each table costs 100 us in a first transaction and 30 us in later ones. They drift together.
fn cell(tables: u32, target: &str, tps: f64, queries: Option<f64>) -> Cell {
    let n = f64::from(tables);
    let round = |number: u32| Round {
        number,
        wall_seconds: 5.0,
        transactions: (tps * 5.0) as u64,
        connections: (tps * 5.0) as u64,
        tps: tps * (1.0 + f64::from(number) / 10.0),
        latency_average_us: 1000.0,
        alone: Some(Alone {
            fresh: target != "other",
            connect_us: 2000.0,
            first_us: Some(500.0 + 100.0 * n),
            second_us: Some(60.0 + 40.0 * n),
            later_us: Some(50.0 + 30.0 * n),
        }),
        catalog: Catalog { queries_per_statement: queries, scans_per_statement: Some(4.0) },
        ..Round::default()
    };
    Cell {
        tables,
        mode: Mode::Reconnect,
        target: target.to_owned(),
        rounds: (1..=3).map(round).collect(),
        connect: None,
        transaction: None,
        failures: Vec::new(),
    }
}

fn settings(targets: &[&str]) -> Settings {
    Settings {
        clients: 30,
        seconds: 5.0,
        rounds: 3,
        tables: vec![1, 32, 256],
        targets: targets.iter().map(|t| (*t).to_owned()).collect(),
    }
}

fn three_targets() -> Tables {
    let mut cells = Vec::new();
    for (tables, direct, managed, other) in
        [(1, 300.0, 3000.0, 250.0), (32, 150.0, 1800.0, 100.0), (256, 40.0, 80.0, 20.0)]
    {
        cells.push(cell(tables, "direct", direct, Some(0.0)));
        cells.push(cell(tables, "managed", managed, Some(0.001)));
        cells.push(cell(tables, "other", other, Some(6.5 / f64::from(tables))));
    }
    Tables::of(settings(&["direct", "managed", "other"]), cells, false, Vec::new())
}

fn all_tables(result: &Tables) -> Vec<Table> {
    let only = |exhibit| match exhibit {
        Exhibit::Table(table) => Some(table),
        _ => None,
    };
    result.exhibits().into_iter().filter_map(only).collect()
}

#[test]
fn quotients_of_the_runs_of_the_same_number() {
    let result = three_targets();
    assert_eq!(result.comparisons.len(), 6);
    let ratio = result.comparison(32, Mode::Reconnect, "managed").expect("compared");
    // All runs drift alike, so the quotient has no spread.
    let interval = ratio.interval.expect("three runs");
    assert!((ratio.value - 12.0).abs() < 1e-9 && interval.high - interval.low < 1e-9, "{ratio:?}");
    assert_eq!(result.comparison(32, Mode::Static, "managed"), None);
}

#[test]
fn sentences_follow_from_the_numbers() {
    let findings = three_targets().findings();
    let find = |part: &str| {
        let found = findings.iter().find(|f| f.text.contains(part));
        found.unwrap_or_else(|| panic!("{part}\nin\n{findings:#?}"))
    };
    let managed = find("managed does 10.00 times (10.00 to 10.00) the transactions of direct with 1 table");
    assert!(managed.text.contains("2.00 times (2.00 to 2.00) with 256 tables; most with 32 tables: 12.00 times"));
    assert_eq!(managed.tone, Tone::Good);
    assert_eq!(find("other does 0.83 times").tone, Tone::Bad);
    find(
        "direct: each table costs 100 us in the first transaction of a new physical connection and 30.0 us in later ones",
    );
    assert_eq!(find("other: the server sees up to 6.50 catalog queries").tone, Tone::Bad);
    assert_eq!(find("managed: the server sees less than one catalog query").tone, Tone::Good);
    let unknown = findings.iter().any(|f| f.text.starts_with("other: each table"));
    assert!(!unknown, "whether its physical connections are new is not known");
}

#[test]
fn tables_and_charts() {
    let result = three_targets();
    let tables = all_tables(&result);
    for table in &tables {
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{table:?}");
    }
    let throughput = tables.first().expect("a table");
    assert_eq!(
        throughput.columns,
        ["tables", "direct", "managed", "other", "managed/direct (95 %)", "other/direct (95 %)"]
    );
    assert_eq!(throughput.rows[2][4], "2.00x (2.00x to 2.00x)");
    assert_eq!(tables[1].rows[2][6], "not known");
    assert_eq!(tables[2].rows[2][1], "6.500");
    assert_eq!(result.exhibits().len(), 3 + 3);
    assert_eq!(result.csv().lines().count(), 1 + 9 * 3);
    let fields = |line: &str| line.split(',').count();
    let text = result.csv();
    let mut lines = text.lines();
    let head = lines.next().map(fields);
    assert!(lines.all(|line| Some(fields(line)) == head));
}

#[test]
fn what_is_not_known_is_not_called_zero() {
    let cells = vec![cell(1, "direct", 300.0, None)];
    let result = Tables::of(settings(&["direct"]), cells, false, Vec::new());
    assert!(!result.findings().iter().any(|f| f.text.contains("catalog quer")));
    assert_eq!(all_tables(&result)[2].rows[0][1], "not known");
}

#[test]
fn failures_say_whose_they_were() {
    let mut failed = cell(32, "managed", 10.0, None);
    failed.rounds.clear();
    failed.failures = vec![FailureCount {
        step: Step::Connect,
        cause: "53300".to_owned(),
        count: 5,
        example: "too many clients".to_owned(),
    }];
    let result = Tables::of(settings(&["direct", "managed"]), vec![failed], false, Vec::new());
    assert_eq!(result.failures()[0].0, "managed, reconnect, 32 tables");
    assert_eq!(result.comparisons, []);
    all_tables(&result);
}

#[test]
fn json_and_back() {
    let result = three_targets();
    let json = serde_json::to_value(&result).expect("json");
    assert_eq!(json["cells"][0]["rounds"][0]["alone"]["first_us"], 600.0);
    assert_eq!(json["cells"][0]["mode"], "reconnect");
    assert!(json["comparisons"][0]["tps"]["ci95"]["low"].is_number());
    assert_eq!(serde_json::from_value::<Tables>(json).expect("the same"), result);
}
