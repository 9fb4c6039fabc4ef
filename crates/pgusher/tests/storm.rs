//! `pgusher bench storm` as a program: a private server with both sides, formats, exit codes, messages, interruption.

mod support;

use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use pgusher_embedded::Server;
use support::{Program, ended, interrupt, json, refused, start, succeeded};

const STORM: Program = Program(&["bench", "storm"]);

#[test]
fn both_sides_of_a_private_server() {
    let json = json(&succeeded(&STORM.run(&[
        "-c",
        "50,100,300",
        "--direct-max",
        "100",
        "--rounds",
        "2",
        "--window",
        "64",
        "--disconnect",
        "random",
        "--format",
        "json",
    ])));
    let storm = &json["storm"];
    let seen: Vec<(u64, &str)> = storm["cells"]
        .as_array()
        .expect("cells")
        .iter()
        .map(|c| (c["clients"].as_u64().expect("a number"), c["side"].as_str().expect("a side")))
        .collect();
    assert_eq!(seen, [(50, "direct"), (50, "managed"), (100, "direct"), (100, "managed"), (300, "managed")]);
    for cell in storm["cells"].as_array().expect("cells") {
        assert_eq!(cell["failures"], serde_json::json!([]), "{cell}");
        for round in cell["rounds"].as_array().expect("rounds") {
            assert_eq!(round["ready"], cell["clients"]);
            let managed = cell["side"] == "managed";
            assert_eq!(round["manager_cpu_us"].is_number(), managed, "{round}");
            assert_eq!(round["server"].is_object(), !managed, "{round}");
        }
    }
    let verdicts: Vec<&str> =
        storm["growth"].as_array().expect("growth").iter().map(|g| g["verdict"].as_str().expect("words")).collect();
    assert_eq!(verdicts.len(), 4, "first and later rounds of both sides");
    assert!(verdicts[0].contains("too few"), "two sizes were measured directly: {verdicts:?}");
    assert!(json["notes"].is_array() && storm["notes"].to_string().contains("not measured directly: 300 clients"));
}

#[test]
fn a_server_that_was_named_in_text_and_csv() {
    let server = Server::builder().start().expect("a server");
    let conninfo = server.socket_conninfo("postgres", "postgres");
    let text = succeeded(&STORM.run(&[&conninfo, "-c", "8,16", "--rounds", "2", "--burst"]));
    for wanted in ["Time until all clients were ready, ms", "direct, first round", "exponent", "huge pages: off"] {
        assert!(text.contains(wanted), "{wanted} is not in {text}");
    }
    assert!(!text.contains("managed"), "{text}");
    let output = STORM.run(&["-d", &conninfo, "-c", "8", "--rounds", "3", "--rate", "100", "--format", "csv"]);
    let csv = succeeded(&output);
    assert_eq!(csv.lines().filter(|line| line.starts_with("direct,8,")).count(), 3, "{csv}");
}

#[test]
fn failures_are_counted_and_told_by_the_exit_code() {
    let server = Server::builder().max_connections(20).start().expect("a server");
    let conninfo = server.socket_conninfo("postgres", "postgres");
    let output = STORM.run(&[&conninfo, "-c", "40", "--rounds", "1", "--direct-max", "40"]);
    let text = ended(&output, 2);
    assert!(text.contains("53300"), "{text}");
}

#[test]
fn what_cannot_be_is_said_before_anything_runs() {
    for (arguments, words) in [
        (&["-c", "zero"][..], "is not a number of clients"),
        (&["-c", "900000"], "open files"),
        (&["--burst", "--rate", "5"], "cannot be used with"),
        (&["host=127.0.0.1 port=1 sslmode=disable user=x"], "direct: connection to 127.0.0.1:1 failed"),
    ] {
        let begun = Instant::now();
        refused(&STORM.run(arguments), words);
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}

#[test]
fn ctrl_c_gives_what_there_is() {
    let server = Server::builder().start().expect("a server");
    let conninfo = server.socket_conninfo("postgres", "postgres");
    let mut process = start(STORM.command(&[&conninfo, "-c", "16", "--rounds", "1000", "--format", "json"]));
    // The first line of progress comes when it has run for a while.
    let mut first = String::new();
    let stderr = process.child().stderr.take().expect("a pipe");
    let mut stderr = BufReader::new(stderr);
    stderr.read_line(&mut first).expect("readable");
    assert!(first.contains("16 clients, round"), "{first}");
    let json = json(&interrupt(process));
    assert_eq!(json["storm"]["interrupted"], true);
    assert!(json["storm"]["cells"][0]["rounds"].as_array().is_some_and(|r| !r.is_empty() && r.len() < 1000), "{json}");
}
