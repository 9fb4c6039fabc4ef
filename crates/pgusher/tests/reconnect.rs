//! `pgusher bench reconnect` as a program: a private server with both sides, formats, exit codes, messages, interruption.

mod support;

use std::time::{Duration, Instant};

use support::{Program, ended, err, interrupt, json, refused, server, start, succeeded};

const RECONNECT: Program = Program(&["bench", "reconnect"]);

#[test]
fn both_sides_of_a_private_server() {
    let output = RECONNECT.run(&["-c", "2", "-T", "1", "--rounds", "1", "-P", "0.4", "--format", "json"]);
    let json = json(&succeeded(&output));
    assert!(err(&output).contains("failed (managed, reconnect, round 1)"), "{}", err(&output));
    assert_eq!(json["schema_version"], 1);
    assert!(json["environment"]["server"]["version"].as_str().is_some_and(|v| !v.is_empty()));
    let cells = json["reconnect"]["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 4);
    for cell in cells {
        assert!(cell["transaction"]["n"].as_u64() > Some(10), "{cell}");
        assert!(cell["connect"]["median_us"].as_f64() > Some(1.0), "{cell}");
    }
    let findings = json["findings"].to_string();
    assert!(findings.contains("With a connection for each transaction"), "{findings}");
}

#[test]
fn a_server_that_was_named() {
    let (server, uri) = server(&[]);
    // Nothing is created on it without being asked for.
    refused(&RECONNECT.run(&[&uri, "-t", "5"]), "make it with --init");
    assert_eq!(server.psql("postgres", "select to_regclass('pgbench_accounts')").expect("psql"), "");
    let arguments = ["-d", &uri, "-t", "5", "-c", "2", "--rounds", "2", "--init", "-s", "1", "-M", "extended"];
    let text = succeeded(&RECONNECT.run(&arguments));
    assert!(
        text.contains("\nselect only; extended protocol; 2 clients; 2 alternating rounds of 5 transactions"),
        "{text}"
    );
    assert!(!text.contains("managed"), "{text}");
    let arguments = ["--through", &uri, "-t", "5", "--rounds", "1", "--mode", "static", "--format", "csv"];
    let csv = succeeded(&RECONNECT.run(&arguments));
    assert_eq!(csv.lines().count(), 3, "{csv}");
    assert!(csv.lines().nth(1).is_some_and(|l| l.starts_with("static,managed,1,")), "{csv}");
}

#[test]
fn a_failing_script_is_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("s.sql");
    std::fs::write(&script, "select * from no_such_table;\n").expect("written");
    let (_server, uri) = server(&[]);
    let script_text = script.to_str().expect("a path");
    let output = RECONNECT.run(&[&uri, "-f", script_text, "-t", "3", "--rounds", "1"]);
    let text = ended(&output, 2);
    // Three and the first connection.
    assert!(text.contains("direct reconnect, transaction 42P01: 4 times"), "{text}");
    std::fs::write(&script, "select 1;\n\\sleep 1 s\n").expect("written");
    refused(&RECONNECT.run(&[&uri, "-f", script_text, "-t", "3"]), "line 2: \\sleep is not supported");
}

#[test]
fn files_are_not_overwritten() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out");
    std::fs::write(&path, "mine").expect("written");
    refused(&RECONNECT.run(&["-o", path.to_str().expect("a path"), "-t", "1"]), "--force");
    assert_eq!(std::fs::read_to_string(&path).expect("there"), "mine");
}

#[test]
fn what_cannot_be_is_said() {
    for (arguments, message) in [
        (&["-T", "1", "-t", "1"][..], "cannot be used with"),
        (&["-c", "0"], "0 is not in 1..=10000"),
        (&["-T", "x"], "a number of seconds"),
        (&["host=127.0.0.1 port=1 user=x sslmode=disable"], "is a server running there"),
        (&["postgres://[", "-t", "1"], "error"),
    ] {
        refused(&RECONNECT.run(arguments), message);
    }
}

#[test]
fn interrupted_it_prints_what_there_is() {
    let (_server, uri) = server(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("s.sql");
    std::fs::write(&script, "select 1;\n").expect("written");
    let process = start(RECONNECT.command(&[&uri, "-f", script.to_str().expect("a path"), "-T", "60"]));
    std::thread::sleep(Duration::from_millis(1500));
    let begun = Instant::now();
    let text = interrupt(process);
    assert!(begun.elapsed() < Duration::from_secs(8));
    assert!(text.contains("INTERRUPTED") && text.contains("static connections"), "{text}");
}

#[test]
fn an_open_loop_of_prepared_statements() {
    let arguments = ["-c", "4", "-T", "1", "--rounds", "1", "-M", "prepared", "-R", "100", "-L", "2000", "-P", "0.4"];
    let output = RECONNECT.run(&[&arguments[..], &["--format", "json"]].concat());
    let json = json(&succeeded(&output));
    assert!(err(&output).contains(", lag ") && err(&output).contains(" skipped (direct"), "{}", err(&output));
    assert_eq!(json["reconnect"]["settings"]["rate_per_second"], 100.0);
    for cell in json["reconnect"]["cells"].as_array().expect("cells") {
        let n = cell["transaction"]["n"].as_u64().expect("a number");
        // 100 meant; a busy machine may skip some, a Poisson process is uneven.
        assert!((20..=170).contains(&n), "{cell}");
        let (response, transaction) = (&cell["response"]["median_us"], &cell["transaction"]["median_us"]);
        assert!(response.as_f64() >= transaction.as_f64(), "{cell}");
        let counted: u64 = cell["histograms"]["response"]
            .as_array()
            .expect("buckets")
            .iter()
            .map(|b| b["count"].as_u64().expect("a number"))
            .sum();
        assert_eq!(counted, n);
    }
}

#[test]
fn histograms_and_wrong_rates() {
    let (_server, uri) = server(&[]);
    let arguments = [&uri, "-t", "5", "--rounds", "1", "--init", "-s", "1", "--mode", "static", "--histogram"];
    let text = succeeded(&RECONNECT.run(&arguments));
    assert!(text.contains("\ndirect static, transaction\n  up to "), "{text}");
    for wrong in [["-R", "0"], ["-R", "many"], ["-L", "-1"], ["-L", "nan"]] {
        let output = RECONNECT.run(&[&[uri.as_str()], &wrong[..]].concat());
        refused(&output, "error");
        assert!(!err(&output).contains("panicked"), "{}", err(&output));
    }
}
