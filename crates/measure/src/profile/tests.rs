//! The formats, on events made by hand: the layout to the letter, JSON that parses, CSV rows, populations that stay
//! apart, failures that never become numbers.

use std::io::Write;
use std::sync::{Arc, Mutex};

use super::*;

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) fn connected(connection: u32, total_us: f64) -> Event {
    let phases =
        PhaseTimes { connect_us: Some(40.4), startup_us: Some(900.0), ready_us: Some(3.0), ..PhaseTimes::default() };
    let attempt = AttemptRecord {
        target: "h:1".to_owned(),
        encryption: "plain".into(),
        started_us: 0.0,
        total_us,
        phases,
        error: None,
    };
    Event::Connect(ConnectEvent {
        connection,
        total_us,
        attempts: vec![attempt],
        backend_pid: Some(5),
        server_version: Some("15.1".to_owned()),
        auth_method: Some("trust".into()),
        tls_version: None,
        tls_cipher: None,
        error: None,
    })
}

pub(super) fn ran(run: u32, parse: Option<f64>, bind: Option<f64>, total: f64) -> Event {
    let mut event = StatementEvent::new(1, 1, Step::Run, run);
    event.parse_describe_sync_us = parse;
    event.bind_execute_sync_us = bind;
    event.total_us = Some(total);
    event.first_byte_us = Some(total - 1.0);
    Event::Statement(event)
}

pub(super) fn failed(run: u32) -> Event {
    let mut event = StatementEvent::new(1, 1, Step::Run, run);
    event.total_us = Some(1e9);
    event.error = Some(Failure {
        error_kind: "server".to_owned(),
        phase: None,
        sqlstate: Some("42601".to_owned()),
        position: Some(3),
        errno: None,
        message: "ERROR 42601: no, \"never\" (at character 3)".to_owned(),
    });
    Event::Statement(event)
}

pub(super) fn ended(connection: u32) -> Event {
    Event::Disconnect(DisconnectEvent { connection, disconnect_us: Some(1500.0), error: None })
}

pub(super) fn written(format: Format, protocol: Protocol, phases: bool, events: Vec<Event>) -> String {
    let out = Shared::default();
    let plan = Plan { protocol, queries: vec!["select now()".to_owned()], runs: 2, connections: 1 };
    let options = Options { format, phases, sslmode: "prefer", setup_us: 12.0 };
    let mut reporter = Reporter::new(Box::new(out.clone()), options, plan);
    reporter.begin().unwrap();
    for event in events {
        reporter.event(event).unwrap();
    }
    reporter.finish(Ending::default()).unwrap();
    let bytes = out.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn the_layout_of_connection_profiler() {
    let events = vec![
        connected(1, 24_960.0),
        ran(1, Some(3295.0), Some(336.0), 3662.0),
        ran(2, Some(110.2), Some(152.4), 290.0),
        ended(1),
    ];
    let text = written(Format::Text, Protocol::Extended, false, events);
    let expected = "\
create_connection                             24960 us
------------------------------------------------------------
run nr: 1
parse+describe+sync        3295 us
bind+execute+sync           336 us
total extended protocol                        3662 us
run nr: 2
parse+describe+sync         110 us
bind+execute+sync           152 us
total extended protocol                         290 us
============================================================
";
    assert!(text.starts_with(expected), "{text}");
    let summary = &text[expected.len()..];
    assert!(summary.starts_with("summary, us"), "{summary}");
    assert!(!summary.contains("disconnect") && summary.contains("bind_execute_sync"), "{summary}");
}

#[test]
fn prepared_has_its_line_before_the_dashes() {
    let mut prepare = StatementEvent::new(1, 1, Step::Prepare, 1);
    prepare.parse_describe_sync_us = Some(500.0);
    prepare.total_us = Some(505.0);
    let events = vec![connected(1, 1.0), Event::Statement(prepare), ran(1, None, Some(306.0), 310.0), ended(1)];
    let text = written(Format::Text, Protocol::Prepared, false, events);
    let expected = "\
create_connection                                 1 us
parse+describe+sync         500 us
prepare statement                               505 us
------------------------------------------------------------
run nr: 1
bind+execute+sync           306 us
total extended protocol                         310 us
============================================================
";
    assert!(text.starts_with(expected), "{text}");
}

#[test]
fn the_floor_of_the_host_comes_last_as_in_every_report() {
    let events = || vec![connected(1, 1000.0), ran(1, None, None, 80.0), ended(1)];
    let text = written(Format::Text, Protocol::Simple, false, events());
    let last = text.lines().last().unwrap();
    assert!(last.starts_with("the host's own floor: clock ") && last.contains(", ping-pong "), "{text}");
    assert_eq!(text.matches("floor").count(), 1, "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&written(Format::Json, Protocol::Simple, false, events())).unwrap();
    assert!(json["environment"]["floor"]["pingpong_us"].as_f64() > Some(0.0), "{json}");
    let csv = written(Format::Csv, Protocol::Simple, false, events());
    assert!(!csv.contains("floor"), "{csv}");
}

#[test]
fn phases_are_added_on_demand() {
    let text =
        written(Format::Text, Protocol::Simple, true, vec![connected(1, 1000.0), ran(1, None, None, 80.0), ended(1)]);
    for line in [
        "connect                      40 us\n",
        "startup                     900 us\n",
        "first byte                   79 us\n",
        "disconnect                                     1500 us\n",
        "client setup before the first connection: 12 us\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
}

#[test]
fn a_failure_is_told_and_never_averaged() {
    let events =
        || vec![connected(1, 10.0), failed(1), ran(2, None, None, 50.0), ran(3, None, None, 40.0), failed(4), ended(1)];
    let text = written(Format::Text, Protocol::Simple, false, events());
    assert!(text.contains("total simple query failed: ERROR 42601"), "{text}");
    assert!(text.contains("failed: 2"), "{text}");
    let mut collector = Collector::new(Protocol::Simple);
    events().iter().for_each(|event| collector.add(event));
    let summary = collector.summary();
    let row = summary.iter().find(|row| row.metric == Metric::SimpleQuery).unwrap();
    assert_eq!((row.populations.n, row.populations.first.is_none()), (2, true));
    assert_eq!(row.populations.second.as_ref().unwrap().median, 50.0);
    assert_eq!(row.populations.steady.as_ref().unwrap().max, 40.0);
}

#[test]
fn json_is_one_document_with_its_surroundings() {
    let json = written(Format::Json, Protocol::Simple, false, vec![connected(1, 10.0), failed(1), ended(1)]);
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["schema_version"], SCHEMA_VERSION);
    assert_eq!(value["environment"]["server_version"], "15.1");
    assert_eq!(value["environment"]["sslmode"], "prefer");
    assert_eq!(value["plan"]["protocol"], "simple");
    assert_eq!(value["events"][0]["attempts"][0]["phases"]["startup_us"], 900.0);
    assert_eq!(value["events"][1]["error"]["sqlstate"], "42601");
    assert_eq!(value["failed"], 1);
    assert_eq!(value["summary"][0]["phase"], "create_connection");
    assert_eq!(value["summary"][0]["first"]["median_us"], 10.0);
}

#[test]
fn jsonl_and_csv_have_a_line_per_thing() {
    let events = || vec![connected(1, 10.0), ran(1, None, None, 50.0), failed(2), ended(1)];
    let jsonl = written(Format::Jsonl, Protocol::Simple, false, events());
    let kinds: Vec<String> = jsonl
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["kind"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(kinds, ["connect", "statement", "statement", "disconnect", "summary"]);
    let csv = written(Format::Csv, Protocol::Simple, false, events());
    assert!(
        csv.starts_with("connection,query,run,phase,time_us,sqlstate,error\n1,,,create_connection,10.000,,\n"),
        "{csv}"
    );
    assert!(csv.contains("1,1,1,simple_query,50.000,,\n"), "{csv}");
    assert!(csv.contains("1,1,2,simple_query,,42601,\"ERROR 42601: no, \"\"never\"\" (at character 3)\"\n"), "{csv}");
}

/// The phases have four lists: the client's, the keys of JSON, the columns of CSV and the metrics. They may not part.
#[test]
fn every_phase_of_the_client_is_a_key_and_a_metric_of_the_same_name() {
    let millis = |n| Some(std::time::Duration::from_millis(n));
    let phases = pgusher_client::Phases {
        resolve: millis(1),
        connect: millis(2),
        queue_fork: millis(3),
        tls: millis(4),
        startup: millis(5),
        authenticate: millis(6),
        client_crypto: millis(7),
        ready: millis(8),
        session_check: millis(9),
        total: std::time::Duration::from_millis(60),
    };
    let Event::Connect(mut event) = connected(1, 60_000.0) else { panic!("a connection") };
    let record = event.attempts.remove(0);
    let record = AttemptRecord { phases: phases.into(), ..record };
    let json = serde_json::to_value(record.phases).unwrap();
    let metrics = collector::phases(&record);
    let named: Vec<_> = phases.iter().collect();
    assert_eq!(named.len(), metrics.len());
    assert_eq!(json.as_object().map(serde_json::Map::len), Some(named.len()));
    for ((phase, time), (metric, us)) in named.into_iter().zip(metrics) {
        let name = phase.name().replace([' ', '+'], "_");
        assert_eq!((metric.name(), us), (name.as_str(), Some(time.as_secs_f64() * 1e6)));
        assert_eq!(json[format!("{name}_us")], us.unwrap());
    }
}
