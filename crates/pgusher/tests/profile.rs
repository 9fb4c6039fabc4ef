//! `pgusher profile` as a program: layout, formats, exit codes, messages, interruption.

mod support;

use std::io::Read;
use std::process::Output;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use pgusher_embedded::{Process, Server};
use serde_json::Value;
use support::{Program, ended, err, interrupt, json, out, refused, start, succeeded};

const PROFILE: Program = Program(&["profile"]);

/// One server for all tests here.
fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| support::server(&[]).0)
}

fn uri() -> String {
    server().uri("postgres", server().superuser())
}

/// A profile of that server.
fn profile(arguments: &[&str]) -> Output {
    PROFILE.run(&[&["-u", &uri()], arguments].concat())
}

/// The text with each time replaced by the width of its line up to the unit.
fn masked(text: &str) -> String {
    let mut masked = String::new();
    for line in text.lines() {
        match line.strip_suffix(" us") {
            Some(rest) if rest.ends_with(|c: char| c.is_ascii_digit()) => {
                let name = rest.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end();
                masked.push_str(&format!("{name}|{} us\n", rest.len()));
            }
            _ => masked.push_str(&format!("{line}\n")),
        }
    }
    masked
}

#[test]
fn extended_in_the_layout_of_connection_profiler() {
    let output = profile(&["-q", "select now()", "-p", "extended", "-r", "2", "-n", "2"]);
    let connection = "\
create_connection|51 us
------------------------------------------------------------
run nr: 1
parse+describe+sync|31 us
bind+execute+sync|31 us
total extended protocol|51 us
run nr: 2
parse+describe+sync|31 us
bind+execute+sync|31 us
total extended protocol|51 us
============================================================
";
    let text = masked(&succeeded(&output));
    let expected = format!("{connection}{connection}summary, us");
    assert!(text.starts_with(&expected), "{text}");
    assert!(text.lines().last().is_some_and(|line| line.starts_with("the host's own floor: ")), "{text}");
    assert_eq!(err(&output), "");
}

#[test]
fn the_other_protocols() {
    let lines = |protocol: &str| {
        let output = profile(&["-q", "select 1", "-p", protocol]);
        let text = masked(&out(&output));
        text.split("summary").next().unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let dashes = "-".repeat(60);
    let equals = "=".repeat(60);
    assert_eq!(lines("simple"), ["create_connection|51 us", &dashes, "run nr: 1", "total simple query|51 us", &equals]);
    assert_eq!(
        lines("prepared"),
        [
            "create_connection|51 us",
            "parse+describe+sync|31 us",
            "prepare statement|51 us",
            &dashes,
            "run nr: 1",
            "bind+execute+sync|31 us",
            "total extended protocol|51 us",
            &equals
        ]
    );
    assert_eq!(
        lines("pipelined"),
        ["create_connection|51 us", &dashes, "run nr: 1", "total pipelined protocol|51 us", &equals]
    );
    let only_connections = profile(&["-q", "", "-n", "3"]);
    assert_eq!(out(&only_connections).matches("create_connection  ").count(), 4);
    assert!(!out(&only_connections).contains("run nr"));
}

#[test]
fn phases_with_the_fork_probe() {
    let output = profile(&["--phases", "--fork-probe", "-q", "select 1"]);
    let text = out(&output);
    for name in ["connect", "queue+fork", "startup", "ready", "first byte", "last row", "disconnect", "client setup"] {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name}: {text}");
    }
}

#[test]
fn json_jsonl_and_csv() {
    let arguments = ["-q", "select 1", "-q", "select 2", "-r", "3", "-n", "3", "-p", "extended"];
    let value = json(&out(&profile(&[&arguments[..], &["--format", "json"]].concat())));
    assert_eq!(value["schema_version"], 1);
    assert_eq!(value["interrupted"], false);
    assert_eq!(value["environment"]["auth_method"], "trust");
    assert!(value["environment"]["server"]["settings"]["max_connections"].is_string());
    // Three connections, each with six runs and an end.
    assert_eq!(value["events"].as_array().unwrap().len(), 3 * (1 + 6 + 1));
    let row = |phase: &str, query: Option<u32>| {
        let rows = value["summary"].as_array().unwrap();
        let matches = |row: &&Value| row["phase"] == phase && row["query"].as_u64() == query.map(u64::from);
        rows.iter().find(matches).cloned().unwrap()
    };
    let extended = row("extended", Some(2));
    assert_eq!([&extended["n"], &extended["first"]["n"], &extended["steady"]["n"]], [9, 3, 3]);
    assert!(row("create_connection", None)["first"]["median_us"].as_f64().unwrap() > 0.0);

    let output = profile(&[&arguments[..], &["--format", "jsonl"]].concat());
    let lines: Vec<Value> = out(&output).lines().map(json).collect();
    assert_eq!(lines.len(), 25);
    assert_eq!(lines[24]["kind"], "summary");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out.csv");
    let output = profile(&[&arguments[..], &["--format", "csv", "-o", file.to_str().unwrap()]].concat());
    assert_eq!(out(&output), "");
    let csv = std::fs::read_to_string(&file).unwrap();
    assert!(csv.starts_with("connection,query,run,phase,time_us,sqlstate,error\n"), "{csv}");
    assert!(csv.lines().all(|line| line.split(',').count() == 7), "{csv}");
}

#[test]
fn a_failing_statement_is_reported_and_not_averaged() {
    let output = profile(&["-q", "select 1/0", "-q", "selct 1", "-q", "select 1", "-r", "2", "--format", "json"]);
    let value = json(&ended(&output, 2));
    assert_eq!(value["failed"], 4);
    assert_eq!(value["failures"][0]["sqlstate"], "22012");
    assert_eq!(value["failures"][2]["sqlstate"], "42601");
    assert_eq!(value["failures"][2]["position"], 1);
    let rows = value["summary"].as_array().unwrap();
    let queries: Vec<&Value> =
        rows.iter().filter(|row| row["phase"] == "simple_query").map(|row| &row["query"]).collect();
    assert_eq!(queries, [&Value::from(3)]);
    let text = profile(&["-q", "select 1/0"]);
    assert!(out(&text).contains("total simple query failed: ERROR 22012: division by zero"), "{}", out(&text));
}

/// What the server's own log says, in each format of the output.
#[test]
fn the_server_side_in_text_json_and_csv() {
    let log = server().log_path();
    let log = log.to_str().unwrap();
    let arguments = ["-q", "select 1", "-p", "extended", "-r", "3", "-n", "3", "--server-log", log];
    let text = succeeded(&profile(&[&arguments[..], &["--pg-stat-statements"]].concat()));
    let table = text.split("seen from the client and from the server").nth(1).unwrap_or_else(|| panic!("{text}"));
    for words in ["client", "log", "unseen", "CPU", "faults", "steady", "server: execute", "unseen: client less"] {
        assert!(table.contains(words), "{words}: {text}");
    }
    // The extension is missing: said, and nothing else is lost.
    assert!(text.contains("note: pg_stat_statements: ") && text.contains("CREATE EXTENSION"), "{text}");

    let value = json(&out(&profile(&[&arguments[..], &["--format", "json"]].concat())));
    let view = &value["server_view"];
    assert_eq!((&view["sources"]["log"]["format"], &view["sources"]["log"]["runs"]), (&"stderr".into(), &9.into()));
    let steady = |row: &&Value| row["phase"] == "extended" && row["run"] == "steady";
    let row = view["rows"].as_array().unwrap().iter().find(steady).unwrap();
    let number = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key}: {row}"));
    assert!(number("log_us") < number("client_us") && number("cpu_us") > 0.0 && number("rss_kib") > 0.0);
    assert_eq!(view["samples"]["runs"].as_array().unwrap().len(), 9);
    assert!(view["samples"]["runs"][0]["log"]["parse_us"].is_number(), "{view}");

    let csv = out(&profile(&[&arguments[..], &["--format", "csv"]].concat()));
    assert!(csv.lines().all(|line| line.split(',').count() == 7), "{csv}");
    assert_eq!(csv.matches(",log_execute,").count(), 9, "{csv}");
    assert_eq!(csv.matches(",backend_cpu,").count(), 3 + 9, "{csv}");
    let jsonl = out(&profile(&[&arguments[..], &["--format", "jsonl"]].concat()));
    let last = json(jsonl.lines().last().unwrap());
    assert_eq!((&last["kind"], &last["server_view"]["sources"]["host"]), (&"summary".into(), &true.into()));
}

#[test]
fn without_being_asked_nothing_of_the_server_is_shown() {
    let text = out(&profile(&["-q", "select 1"]));
    assert!(!text.contains("seen from") && !text.contains("note:"), "{text}");
    let text = out(&profile(&["-q", "select 1", "--server-view"]));
    assert!(text.contains("run queue") && !text.contains("note:"), "{text}");
}

#[test]
fn a_log_that_cannot_be_used_is_a_note() {
    for (file, words) in [("/does/not/exist.log", "cannot be read"), ("auto", "logging_collector is off")] {
        let text = succeeded(&profile(&["-q", "select 1", "--server-log", file]));
        assert!(text.contains("note: server log: ") && text.contains(words) && text.contains("simple_query"), "{text}");
    }
}

#[test]
fn provoking_needs_the_right_to() {
    let text = succeeded(&profile(&["--provoke", "relcache-init", "-n", "3"]));
    assert!(text.contains("provoked: pg_internal.init removed before 3 connections"), "{text}");
    server().psql("postgres", "CREATE ROLE ordinary LOGIN").unwrap();
    let uri = server().uri("postgres", "ordinary");
    let output = PROFILE.run(&["-u", &uri, "--provoke", "relcache-init"]);
    refused(&output, "42501");
    refused(&output, "superuser");
    assert_eq!(out(&output), "");
}

#[test]
fn warming_in_text_json_and_a_page() {
    let arguments = ["-q", "select 1", "-p", "extended", "-n", "4", "--prewarm", "bind", "--prewarm", "parse"];
    let text = succeeded(&profile(&arguments));
    for words in ["not warmed", "parse + bind", "(steady runs)", "penalty removed", "its memory"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let value = json(&out(&profile(&[&arguments[..], &["--format", "json"]].concat())));
    assert_eq!(value["prewarm"]["ways"], serde_json::json!(["none", "parse", "bind"]));
    assert_eq!(value["prewarm"]["statements"][0]["samples"].as_array().unwrap().len(), 12);
    assert!(value["environment"]["server"]["version"].is_string());
    assert!(out(&profile(&[&arguments[..], &["--format", "html"]].concat())).starts_with("<!DOCTYPE html>"));
    for (more, words) in [
        (&["--format", "jsonl"][..], "no jsonl"),
        (&["-r", "2"], "-r 3"),
        (&["--provoke", "relcache-init"], "--provoke"),
        (&["--server-view"], "--server-view"),
    ] {
        refused(&profile(&[&arguments[..], more].concat()), words);
    }
    for (arguments, words) in [
        (&["--prewarm", "bind"][..], "needs a statement"),
        (&["--prewarm", "bind", "-q", "select 1", "-p", "prepared"], "-p extended"),
        (&["--format", "html", "-q", "select 1"], "--prewarm only"),
    ] {
        refused(&profile(arguments), words);
    }
    ended(&profile(&["-q", "checkpoint", "-n", "1", "--prewarm", "explain"]), 2);
}

#[test]
fn thresholds() {
    let code = |expression: &str| profile(&["-n", "4", "--fail-if", expression]).status.code();
    assert_eq!(code("create_connection.p99>100s"), Some(0));
    assert_eq!(code("create_connection.median>1us"), Some(3));
    assert_eq!(code("tls.first>1s"), Some(3));
    assert_eq!(code("create_connection.p98>1s"), Some(1));
    let output = profile(&["-n", "4", "--fail-if", "connect.max>1s", "--fail-if", "create_connection.first>1us"]);
    ended(&output, 3);
    assert!(err(&output).contains("create_connection.first>1us: it is "), "{}", err(&output));
}

#[test]
fn a_file_of_statements() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("some.sql");
    std::fs::write(&file, "-- two\nselect ';';\nselect 2;\n").unwrap();
    let text = succeeded(&profile(&["-f", file.to_str().unwrap()]));
    assert!(text.contains("query 2: select 2\nrun nr: 1"), "{text}");
    std::fs::write(&file, "select 'x").unwrap();
    refused(&profile(&["-f", file.to_str().unwrap()]), "line 1: unterminated");
}

#[test]
fn wrong_usage_ends_with_one_and_a_message() {
    for (arguments, words) in [
        (&["--nonsense"][..], "--nonsense"),
        (&["-n", "0"], "0"),
        (&["-r", "0"], "0"),
        (&["-p", "fast"], "fast"),
        (&["postgres://h/db?uzer=x"], "did you mean \"user\""),
        (&["host=h sslmode=strong"], "verify-full"),
        (&["host=h gssencmode=require"], "GSS"),
        (&["-f", "/does/not/exist"], "/does/not/exist"),
        (&["host=127.0.0.1 user=u", "-o", "/does/not/exist"], "/does/not/exist"),
        (&["host=no-such-host.invalid user=u"], "resolve"),
        (&["host=/no/such/folder user=u"], "is a server running"),
    ] {
        refused(&PROFILE.run(arguments), words);
    }
    let port = pgusher_embedded::free_port().unwrap();
    let unreachable = PROFILE.run(&[&format!("postgres://me:hunter2@127.0.0.1:{port}/db")]);
    let text = ended(&unreachable, 1) + &err(&unreachable);
    assert!(text.contains("127.0.0.1") && text.contains("refused") && !text.contains("hunter2"), "{text}");
    let malformed = PROFILE.run(&["postgres://me:hunter2@[::1/db"]);
    ended(&malformed, 1);
    assert!(!err(&malformed).contains("hunter2"), "{}", err(&malformed));
    ended(&profile(&["postgres://h"]), 1);
    succeeded(&PROFILE.run(&["--help"]));
}

#[test]
fn an_unknown_database_is_told_with_its_sqlstate() {
    let uri = server().uri("none_such", server().superuser());
    refused(&PROFILE.run(&[&uri]), "3D000");
}

/// Its second statement sleeps; this waits until the line of the first one has come.
fn in_its_second_statement(arguments: &[&str]) -> Process {
    let uri = uri();
    let sleeping = [&[&uri, "-q", "select 1", "-q", "select pg_sleep(30)"], arguments].concat();
    let mut process = start(PROFILE.command(&sleeping));
    let stdout = process.child().stdout.as_mut().unwrap();
    let (mut seen, mut byte) = (Vec::new(), [0]);
    while !String::from_utf8_lossy(&seen).contains("total simple query") {
        assert_eq!(stdout.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&seen));
        seen.push(byte[0]);
    }
    process
}

#[test]
fn interruption_keeps_what_the_server_said() {
    let log = server().log_path();
    let rest = interrupt(in_its_second_statement(&["--server-log", log.to_str().unwrap()]));
    assert!(rest.contains("interrupted") && rest.contains("seen from the client and from the server"), "{rest}");
}

#[test]
fn interruption_prints_what_there_is() {
    let process = in_its_second_statement(&[]);
    let started = Instant::now();
    let rest = interrupt(process);
    assert!(started.elapsed() < Duration::from_secs(10));
    assert!(rest.contains("interrupted") && rest.contains("create_connection"), "{rest}");
}
