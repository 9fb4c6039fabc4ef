//! What follows from rounds with numbers that are made up.

use super::*;
use crate::failure::{FailureCount, Step};
use crate::report::{Exhibit, Experiment, Table, Tone};
use crate::target::Side;

/// A round of six connections: the first takes `first` times as long to connect; each table costs 100 us in the first run
/// of a statement and 20 us in the second. Rounds differ a little.
fn round(number: u32, connect: f64, first: f64, tables: u32) -> Round {
    let drift = 1.0 + f64::from(number) / 100.0;
    let tables = f64::from(tables);
    let sample = |position: u32| Sample {
        number: position,
        connect_us: connect * drift * if position == 1 { first } else { 1.0 },
        query_us: Some(300.0 + 100.0 * tables),
        again_us: Some(50.0 + 20.0 * tables),
        backend_cpu_us: Some(connect * 0.45),
        backend_minor_faults: Some(if position == 1 { 700 } else { 500 }),
    };
    let files_after = Some(InitFiles { shared_bytes: Some(27_484), database_bytes: Some(162_660) });
    Round { number, samples: (1..=6).map(sample).collect(), files_after, ..Round::default() }
}

fn cell(event: Event, side: Side, objects: u32, tables: u32, connect: f64, first: f64) -> Cell {
    let rounds = (1..=5).map(|number| round(number, connect, first, tables)).collect();
    Cell::of((event, side, Some(objects), Some(tables)), rounds, Vec::new())
}

fn settings() -> Settings {
    Settings { connections: 6, rounds: 5, pause_seconds: 0.2, query: None }
}

fn result(cells: Vec<Cell>) -> Cold {
    Cold::of(settings(), cells, false, Vec::new())
}

fn both_sides() -> Cold {
    let mut cells = Vec::new();
    for objects in [0, 50_000] {
        for tables in [1, 16] {
            cells.push(cell(Event::Restart, Side::Direct, objects, tables, 2000.0, 2.2));
            cells.push(cell(Event::Restart, Side::Managed, objects, tables, 100.0, 1.0));
        }
    }
    result(cells)
}

fn sentences(cold: &Cold) -> Vec<String> {
    cold.findings().into_iter().map(|f| f.text).collect()
}

fn tables(cold: &Cold) -> Vec<Table> {
    let only_tables = |exhibit| match exhibit {
        Exhibit::Table(table) => Some(table),
        _ => None,
    };
    cold.exhibits().into_iter().filter_map(only_tables).collect()
}

#[test]
fn first_second_and_later_are_apart() {
    let cold = both_sides();
    let direct = cold.with_fewest_objects(Event::Restart, Side::Direct).expect("measured");
    // Both statements' rounds together: ten.
    let first = direct.connect.first.as_ref().expect("first");
    assert_eq!((first.n, first.median.round()), (10, (2000.0_f64 * 1.03 * 2.2).round()));
    let ratio = direct.connect.first_to_later.expect("a ratio");
    assert!((ratio.value - 2.2).abs() < 1e-9, "{ratio:?}");
    assert_eq!(direct.connect.later.as_ref().expect("later").n, 10);
    assert_eq!((direct.first_minor_faults, direct.later_minor_faults), (Some(700.0), Some(500.0)));
}

#[test]
fn sentences_follow_from_the_numbers() {
    let text = sentences(&both_sides()).join("\n");
    for part in [
        "the first connection takes 4.53 ms, 2.20 times (2.20 to 2.20) as long as a later one (2.06 ms); its backend needs 900 us",
        "through the manager takes 103 us, about as long as a later one (103 us): 1.00 times",
        "the first client of the manager has its first answer 503 us after it began to connect, the first direct one after 4.93 ms",
        "does not grow with the number of tables in the database: with 50,000 instead of 0 its backend needs 1.00 times",
        "grows with the tables that it touches: 100 us per table (100 us to 100 us), against 20.0 us when it is sent again",
    ] {
        assert!(text.contains(part), "{part}\nin\n{text}");
    }
}

#[test]
fn growth_with_objects_is_said_when_there_is_one() {
    let cold = result(vec![
        cell(Event::Provoke, Side::Direct, 0, 1, 2000.0, 2.0),
        cell(Event::Provoke, Side::Direct, 9000, 1, 4000.0, 2.0),
    ]);
    let grown = cold.findings().into_iter().find(|f| f.text.contains("grows with the number")).expect("a sentence");
    assert_eq!(grown.tone, Tone::Bad);
    assert!(grown.text.contains("with 9,000 instead of 0 its backend needs 2.00 times"), "{}", grown.text);
    // One number of tables touched is no line.
    assert_eq!(cold.per_table, []);
    assert!(!sentences(&cold).iter().any(|t| t.contains("first query of every new connection")));
}

#[test]
fn a_manager_whose_first_client_waits_is_not_praised() {
    let mut slow = cell(Event::Restart, Side::Managed, 0, 1, 100.0, 1.0);
    for round in &mut slow.rounds {
        round.samples[0].query_us = Some(30_000.0);
    }
    let slow = Cell::of((Event::Restart, Side::Managed, Some(0), Some(1)), slow.rounds, Vec::new());
    let cold = result(vec![cell(Event::Restart, Side::Direct, 0, 1, 2000.0, 2.2), slow]);
    let compared = cold.findings().into_iter().find(|f| f.text.contains("first answer")).expect("a sentence");
    assert_eq!(compared.tone, Tone::Bad, "{}", compared.text);
}

#[test]
fn clients_that_were_there_before() {
    let with = |error: Option<&str>| {
        let mut cell = cell(Event::Restart, Side::Managed, 0, 1, 100.0, 1.0);
        for round in &mut cell.rounds {
            let lost = error.filter(|_| round.number == 2).map(str::to_owned);
            round.kept = Some(Kept { query_us: lost.is_none().then_some(90.0), error: lost });
        }
        sentences(&result(vec![cell])).join("\n")
    };
    assert!(with(None).contains("could go on after it every time."));
    let lost = with(Some("terminating connection"));
    assert!(lost.contains("4 of 5 times; otherwise: terminating connection"), "{lost}");
}

#[test]
fn tables_and_charts() {
    let cold = both_sides();
    let all = tables(&cold);
    for table in &all {
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{table:?}");
    }
    let connecting = all.first().expect("a table");
    assert_eq!(connecting.rows.len(), 4);
    assert_eq!(
        connecting.rows[0],
        ["direct", "4.53 ms", "2.06 ms", "2.06 ms", "2.20x (2.20x to 2.20x)", "27,484 + 162,660"]
    );
    let charts = cold.exhibits().into_iter().filter(|e| matches!(e, Exhibit::Chart(_))).count();
    assert_eq!(charts, 3);
    let lines = cold.csv();
    assert_eq!(lines.lines().count(), 1 + 8 * 5 * 6);
    assert_eq!(lines.lines().nth(1), Some("restart,direct,0,1,1,1,4444.0,400.0,70.0,900.0,700"));
}

#[test]
fn a_first_connection_that_is_missing_is_not_replaced_by_the_next() {
    let mut rounds: Vec<Round> = (1..=5).map(|number| round(number, 2000.0, 2.0, 1)).collect();
    rounds[0].samples.remove(0);
    let cell = Cell::of((Event::Provoke, Side::Direct, None, None), rounds, Vec::new());
    assert_eq!(cell.query.first.as_ref().map(|d| d.n), Some(4));
    assert_eq!(cell.query.second.as_ref().map(|d| d.n), Some(5));
}

#[test]
fn failures_say_whose_they_were() {
    let failure = FailureCount {
        step: Step::Connect,
        cause: "57P03".to_owned(),
        count: 2,
        example: "the database system is starting up".to_owned(),
    };
    let cell = Cell::of((Event::Restart, Side::Managed, Some(1000), Some(16)), Vec::new(), vec![failure]);
    let cold = result(vec![cell]);
    let (whose, failure) = cold.failures().remove(0);
    assert_eq!(whose, "managed, 1,000 tables besides, 16 touched, after a restart of PostgreSQL");
    assert_eq!(failure.count, 2);
    // Nothing was measured: nothing is concluded, and every table is still well-formed.
    assert_eq!(sentences(&cold), Vec::<String>::new());
    tables(&cold);
}

#[test]
fn json_and_back() {
    let cold = both_sides();
    let json = serde_json::to_value(&cold).expect("json");
    assert_eq!(json["cells"][0]["event"], "restart");
    assert_eq!(json["cells"][0]["rounds"][0]["samples"][0]["connect_us"], 4444.0);
    assert_eq!(json["per_table"][0]["run"], "first_of_first");
    assert_eq!(json["connecting"][0]["connect"]["first"]["n"], 10);
    assert_eq!(serde_json::from_value::<Cold>(json).expect("the same"), cold);
}

#[test]
fn what_the_rounds_do_not_show_is_not_called_equal() {
    // First connections that are now shorter, now longer than later ones.
    let noisy = |tables| {
        let rounds = [0.3, 4.0, 0.5, 2.5, 1.0].into_iter().zip(1..);
        let rounds = rounds.map(|(first, number)| round(number, 2000.0, first, tables)).collect();
        Cell::of((Event::Provoke, Side::Direct, Some(0), Some(tables)), rounds, Vec::new())
    };
    let text = sentences(&result(vec![noisy(1), noisy(2)])).join("\n");
    assert!(text.contains("and the rounds differ too much to compare it with a later one (2.06 ms): 1.0"), "{text}");
}
