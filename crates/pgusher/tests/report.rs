//! `pgusher report` as a program: what it reads, what it writes, what it says of files that are of no use.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use pgusher_measure::report::{ConnectionSample, ConnectionSeries, Environment, Report};
use pgusher_measure::target::Side;

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pgusher"));
    command.arg("report").args(arguments).current_dir(folder).stdin(Stdio::null());
    command
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().expect("it runs")
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// A report of twenty connections around `us`.
fn json(us: f64) -> String {
    let mut report =
        Report::new("Twenty connections", Environment { tool: "pgusher".to_owned(), ..Default::default() });
    let sample = |number: u32| ConnectionSample {
        number,
        phases: Vec::new(),
        connect_us: us * (1.0 + f64::from(number % 5) / 100.0),
        statement_us: None,
    };
    report.connections = vec![ConnectionSeries {
        side: Side::Direct,
        after: "the start".to_owned(),
        statement: "select 1".to_owned(),
        samples: (1..=20).map(sample).collect(),
        failures: Vec::new(),
    }];
    report.json().expect("json")
}

#[test]
fn one_report_is_a_page_or_something_else() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("a.json"), json(2000.0)).expect("written");
    let output = run(folder.path(), &["a.json"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let text = out(&output);
    let page = text.trim_end().strip_prefix("report: ").expect("the path");
    assert!(page.contains("/pgusher-report-") && page.ends_with(".html"), "{page}");
    assert!(fs::read_to_string(page).expect("there").contains("<h1>Twenty connections</h1>"));
    for (format, part) in [
        ("text", "First and later connections\n---"),
        ("markdown", "# Twenty connections\n"),
        ("json", "\"schema_version\": 1"),
    ] {
        let output = run(folder.path(), &["a.json", "--format", format]);
        assert!(out(&output).contains(part), "{}", out(&output));
    }
    // Read back what it wrote.
    let output = run(folder.path(), &["a.json", "--format", "json", "-o", "b.json"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let output = run(folder.path(), &["b.json", "-o", "b.json"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("--force"), "{}", err(&output));
}

#[test]
fn two_are_compared() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("before.json"), json(2000.0)).expect("written");
    fs::write(folder.path().join("after.json"), json(1000.0)).expect("written");
    let text = out(&run(folder.path(), &["before.json", "after.json", "--format", "text"]));
    assert!(
        text.contains(
            "direct, later connections: 1.02 ms in after.json instead of 2.04 ms in before.json, 2.00x faster"
        ),
        "{text}"
    );
    let text = out(&run(folder.path(), &["before.json", "before.json", "--format", "text"]));
    assert!(text.contains("no change is shown in 1 of 2") && text.contains("before.json [2]"), "{text}");
    let json = out(&run(folder.path(), &["before.json", "after.json", "--format", "json"]));
    let json: serde_json::Value = serde_json::from_str(&json).expect("json");
    assert_eq!(json["comparisons"][0]["measures"][1]["change"], "better");
}

#[test]
fn files_of_no_use_are_named_and_the_rest_counts() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = json(2000.0);
    for (name, content) in [
        ("good.json", good.as_str()),
        ("empty.json", ""),
        ("page.json", "<!DOCTYPE html>"),
        ("other.json", "{\"a\": 1}"),
        ("newer.json", &good.replacen("\"schema_version\": 1", "\"schema_version\": 99", 1)),
        ("cut.json", &good[..good.len() / 2]),
    ] {
        fs::write(folder.path().join(name), content).expect("written");
    }
    fs::write(folder.path().join("binary.json"), [0xff, 0xfe, 0x00]).expect("written");
    for (name, message) in [
        ("empty.json", "empty.json: it is empty"),
        ("page.json", "page.json: it is not JSON"),
        ("other.json", "other.json: it is JSON, but no report of pgusher"),
        ("newer.json", "newer.json: it was written by a newer pgusher"),
        ("cut.json", "cut.json: it ends in the middle"),
        ("binary.json", "binary.json: it is not JSON"),
        ("missing.json", "cannot read missing.json"),
    ] {
        let output = run(folder.path(), &[name, "--format", "text"]);
        assert_eq!(output.status.code(), Some(1), "{name}");
        assert!(err(&output).contains(message) && err(&output).contains("no file held a report"), "{}", err(&output));
        let output = run(folder.path(), &[name, "good.json", "--format", "text"]);
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(err(&output).contains(message) && out(&output).contains("First and later"), "{}", err(&output));
    }
    let output = run(folder.path(), &[]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn standard_input_and_several_in_one_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = command(folder.path(), &["-", "--format", "text"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all((json(2000.0) + &json(3000.0)).as_bytes()).expect("written");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(out(&output).contains("in standard input (2) instead of"), "{}", out(&output));
}
