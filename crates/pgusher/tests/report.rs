//! `pgusher report` as a program: what it reads, what it writes, what it says of files that are of no use.

mod support;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use pgusher_measure::report::{ConnectionSample, ConnectionSeries, Environment, Report};
use pgusher_measure::target::Side;
use support::{Program, ended, err, json, out, refused, server, succeeded};

const REPORT: Program = Program(&["report"]);

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = REPORT.command(arguments);
    command.current_dir(folder);
    command
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().expect("it runs")
}

/// A report of twenty connections around `us`.
fn written(us: f64) -> String {
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
    fs::write(folder.path().join("a.json"), written(2000.0)).expect("written");
    let text = succeeded(&run(folder.path(), &["a.json"]));
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
    succeeded(&run(folder.path(), &["a.json", "--format", "json", "-o", "b.json"]));
    refused(&run(folder.path(), &["b.json", "-o", "b.json"]), "--force");
}

#[test]
fn two_are_compared() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("before.json"), written(2000.0)).expect("written");
    fs::write(folder.path().join("after.json"), written(1000.0)).expect("written");
    let text = out(&run(folder.path(), &["before.json", "after.json", "--format", "text"]));
    assert!(
        text.contains(
            "direct, later connections: 1.02 ms in after.json instead of 2.04 ms in before.json, 2.00x faster"
        ),
        "{text}"
    );
    let text = out(&run(folder.path(), &["before.json", "before.json", "--format", "text"]));
    assert!(text.contains("no change is shown in 1 of 2") && text.contains("before.json [2]"), "{text}");
    let json = json(&out(&run(folder.path(), &["before.json", "after.json", "--format", "json"])));
    assert_eq!(json["comparisons"][0]["measures"][1]["change"], "better");
}

#[test]
fn a_profile_is_a_section_of_its_own() {
    let (_server, uri) = server(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let profile = |name: &str, statement: &str| {
        let path = folder.path().join(name);
        let arguments = ["-u", &uri, "-q", statement, "-p", "extended", "-r", "4", "-n", "4", "--server-view"];
        let output = ["--format", "json", "-o", path.to_str().expect("a path")];
        succeeded(&Program(&["profile"]).run(&[&arguments[..], &output].concat()));
    };
    profile("quick.json", "select 1");
    profile("slow.json", "select pg_sleep(0.02)");
    profile("slow2.json", "select pg_sleep(0.02)");
    for (format, heading) in [
        ("text", "Connections and statements, phase by phase\n---"),
        ("markdown", "## Connections and statements, phase by phase\n"),
        ("html", ">Connections and statements, phase by phase</h2>"),
    ] {
        succeeded(&run(folder.path(), &["quick.json", "--format", format, "-o", "shown", "--force"]));
        let shown = fs::read_to_string(folder.path().join("shown")).expect("there");
        for part in [heading, "Reached: 127.0.0.1", "4 connections", "select 1", "later: median", "run queue"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
    // What it is made into can be read again.
    succeeded(&run(folder.path(), &["quick.json", "--format", "json", "-o", "report.json"]));
    let text = succeeded(&run(folder.path(), &["report.json", "--format", "text"]));
    assert!(text.contains("`select 1`: the first run on a connection takes"), "{text}");
    let compared = json(&out(&run(folder.path(), &["slow.json", "slow2.json", "quick.json", "--format", "json"])));
    let names = |at: usize| compared["comparisons"][at]["measures"].to_string();
    assert!(names(0).contains("select pg_sleep(0.02): extended protocol, extended, later runs"), "{}", names(0));
    assert!(names(1).contains("create_connection, later connections") && !names(1).contains("select"), "{}", names(1));
    // Lines of JSON are something else, and that is said.
    let lines = Program(&["profile"]).run(&["-u", &uri, "--format", "jsonl"]);
    fs::write(folder.path().join("lines.jsonl"), succeeded(&lines)).expect("written");
    refused(&run(folder.path(), &["lines.jsonl"]), "--format jsonl, not json");
}

#[test]
fn files_of_no_use_are_named_and_the_rest_counts() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = written(2000.0);
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
        refused(&output, message);
        refused(&output, "no file held a report");
        let output = run(folder.path(), &[name, "good.json", "--format", "text"]);
        assert!(ended(&output, 2).contains("First and later") && err(&output).contains(message), "{}", err(&output));
    }
    ended(&run(folder.path(), &[]), 1);
}

#[test]
fn standard_input_and_several_in_one_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = command(folder.path(), &["-", "--format", "text"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all((written(2000.0) + &written(3000.0)).as_bytes()).expect("written");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let text = succeeded(&output);
    assert!(text.contains("in standard input (2) instead of"), "{text}");
}
