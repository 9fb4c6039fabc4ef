//! A profile as JSON and back: the same numbers as in its own summary, shown in every form of a report, comparable.

use super::tests::{connected, ended, failed, ran, written};
use super::*;
use crate::report::{Exhibit, Experiment, Report, markdown_report, page, read, text_report};
use crate::server_view::{Population, Row};

/// Five connections of four runs each; the first of all, and first runs, are slow; one run fails.
fn events() -> Vec<Event> {
    let mut events = Vec::new();
    for connection in 1..=5 {
        events.push(connected(connection, if connection == 1 { 9000.0 } else { 2000.0 + f64::from(connection) }));
        for run in 1..=4 {
            let total = if run == 1 { 500.0 } else { 100.0 + f64::from(run + connection) };
            events.push(on(connection, ran(run, Some(total / 2.0), Some(total / 4.0), total)));
        }
        events.push(ended(connection));
    }
    events.push(on(5, failed(5)));
    events
}

fn on(connection: u32, mut event: Event) -> Event {
    if let Event::Statement(statement) = &mut event {
        statement.connection = connection;
    }
    event
}

fn json() -> String {
    written(Format::Json, Protocol::Extended, false, events())
}

pub(crate) fn sample() -> Report {
    let (mut reports, error) = read(&json());
    assert!(error.is_none() && reports.len() == 1, "{error:?}");
    let mut report = reports.remove(0);
    let row = |run, client_us| Row {
        phase: "extended".to_owned(),
        query: Some(1),
        run: Some(run),
        n: 5,
        client_us: Some(client_us),
        cpu_us: Some(30.0),
        ..Row::default()
    };
    let profile = report.profile.as_mut().expect("a profile");
    let part = Row { phase: "bind_execute_sync".to_owned(), is_part: true, ..row(Population::Steady, 26.5) };
    profile.server_view = vec![row(Population::First, 500.0), row(Population::Steady, 107.0), part];
    profile.notes = vec!["pg_stat_statements: not installed".to_owned()];
    profile.provoked = Some(Provoked { what: Provocation::RelcacheInit, times: 5, verified: 5, present: 0, failed: 0 });
    report
}

#[test]
fn the_series_are_those_of_the_summary() {
    let report = sample();
    let profile = report.profile.as_ref().expect("a profile");
    let mut collector = Collector::new(Protocol::Extended);
    events().iter().for_each(|event| collector.add(event));
    let summary = collector.summary();
    assert_eq!(profile.series.len(), summary.len());
    for (series, row) in profile.series.iter().zip(summary) {
        assert_eq!((series.metric(), series.query), (Some(row.metric), row.query));
        assert_eq!(series.populations(), row.populations);
    }
    assert_eq!(report.environment.targets["target"], "h:1");
    assert!(report.environment.floor.is_some());
    assert_eq!(profile.reached.auth_method.as_deref(), Some("trust"));
    assert!(report.any_failure() && !report.interrupted());
    assert_eq!((profile.failures[0].cause.as_str(), profile.failures[0].count), ("42601", 1));
}

#[test]
fn sentences_say_what_is_first_and_what_is_later() {
    let texts: Vec<String> = sample().findings.into_iter().map(|finding| finding.text).collect();
    assert_eq!(
        texts,
        [
            "The first connection takes 9.00 ms, 4.49 times as long as a later one (median 2.00 ms).",
            "`select now()`: the first run on a connection takes 500 us, 4.69 times as long as a later one (median 106 us)."
        ]
    );
}

#[test]
fn a_report_with_a_profile_is_read_back() {
    let report = sample();
    let (again, error) = read(&report.json().expect("json"));
    assert!(error.is_none(), "{error:?}");
    assert_eq!(again[0].profile, report.profile);
    assert_eq!(again[0].findings, report.findings);
}

#[test]
fn text_markdown_and_the_page_have_the_tables() {
    let report = sample();
    for shown in [text_report(&report, false), markdown_report(&report), page(&report)] {
        for words in [
            "Connections and statements, phase by phase",
            "PostgreSQL 15.1, authentication trust, no TLS, sslmode prefer",
            "extended protocol",
            "pg_internal.init removed before 5 connections",
            "create_connection",
            "bind_execute_sync",
            "9.00 ms",
            "seen from the client and from the server",
            "not installed",
            "42601",
            "own floor",
        ] {
            assert!(shown.replace('\\', "").contains(words), "{words}: {shown}");
        }
    }
    assert!(text_report(&report, false).contains("\n  bind_execute_sync  steady"));
    assert!(markdown_report(&report).contains("| &nbsp;&nbsp;bind\\_execute\\_sync | steady"));
    assert!(page(&report).contains(">  bind_execute_sync</th>"));
    let exhibits = report.profile.as_ref().expect("a profile").exhibits();
    let Some(Exhibit::Phases(phases)) = exhibits.first() else { panic!("{exhibits:?}") };
    let names: Vec<&str> = phases.rows.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["first", "second", "later"]);
    let pieces: Vec<&str> = phases.rows[0].1.iter().map(|piece| piece.phase.as_str()).collect();
    assert_eq!(pieces, ["connect", "startup", "ready"]);
}

#[test]
fn statements_that_look_alike_keep_their_numbers() {
    let mut profile = sample().profile.expect("a profile");
    profile.plan.queries = vec!["select  1".to_owned(), "select 2".to_owned(), "select 1".to_owned()];
    let mut more = profile.series.clone();
    for number in [2, 3] {
        more.extend(
            profile.series.iter().filter(|s| s.query == Some(1)).cloned().map(|s| Series { query: Some(number), ..s }),
        );
    }
    profile.series = more;
    let tables: Vec<String> = profile
        .exhibits()
        .into_iter()
        .filter_map(|exhibit| if let Exhibit::Table(table) = exhibit { Some(table.caption) } else { None })
        .collect();
    assert_eq!(tables[..4], ["Connections", "select 1 [1]", "select 2 [2]", "select 1 [3]"]);
    let mut names: Vec<String> = profile.measures().into_iter().map(|measure| measure.name).collect();
    let all = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all, "a name that comes twice would be compared with the wrong one");
}

#[test]
fn each_connection_gives_one_value_of_its_later_runs() {
    let report = sample();
    let measures = report.profile.as_ref().expect("a profile").measures();
    let samples = |name: &str| {
        measures.iter().find(|m| m.name == name).unwrap_or_else(|| panic!("{name} in {measures:?}")).samples.clone()
    };
    assert_eq!(samples("create_connection, first connection"), [9000.0]);
    assert_eq!(samples("create_connection, later connections"), [2003.0, 2004.0, 2005.0]);
    assert_eq!(samples("select now(): extended protocol, extended, first runs"), [500.0; 5]);
    assert_eq!(
        samples("select now(): extended protocol, extended, later runs"),
        [104.5, 105.5, 106.5, 107.5, 108.5],
        "runs 3 and 4"
    );
}

#[test]
fn a_profile_of_nothing_has_nothing_to_show() {
    let nothing = written(Format::Json, Protocol::Simple, false, Vec::new());
    let (reports, error) = read(&nothing);
    assert!(reports.is_empty() && error.is_some_and(|e| e.to_string().contains("nothing in it can be shown")));
    let one = written(Format::Json, Protocol::Simple, false, vec![connected(1, 10.0), ran(1, None, None, 5.0)]);
    let (reports, error) = read(&one);
    assert!(error.is_none() && reports[0].findings.is_empty(), "one connection and one run compare with nothing");
    assert!(
        text_report(&reports[0], false)
            .contains("1 connection, one after the other; on each, 1 statement, 2 times each (simple protocol)")
    );
}

#[test]
fn hostile_profiles_are_refused_or_shown_but_never_a_panic() {
    let json = json();
    for at in (0..json.len()).step_by(97) {
        let cut = json.get(..at).unwrap_or_default();
        assert!(read(cut).0.is_empty());
    }
    for (from, to) in [
        ("\"connection\": 5", "\"connection\": 4294967295"),
        ("\"run\": 4", "\"run\": 0"),
        ("\"query\": 1", "\"query\": 4000000000"),
        ("\"total_us\": 500.0", "\"total_us\": -1e300"),
        ("\"total_us\": 500.0", "\"total_us\": 0"),
        ("\"queries\": [", "\"queries\": [\"a\\u001b[31m\", "),
        ("\"connections\": 1", "\"connections\": 0"),
    ] {
        let hostile = json.replace(from, to);
        assert_ne!(hostile, json, "{from}");
        let (reports, error) = read(&hostile);
        assert!(error.is_none() && reports.len() == 1, "{from}: {error:?}");
        let report = &reports[0];
        let text = text_report(report, false);
        assert!(!text.contains('\u{1b}') && page(report).contains("</html>"), "{text}");
        let _ = report.profile.as_ref().expect("a profile").measures();
    }
}
