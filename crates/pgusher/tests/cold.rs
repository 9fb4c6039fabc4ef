//! `pgusher bench cold` as a program: a private server with both sides, a server that was named, formats, exit codes,
//! messages, interruption.

mod support;

use std::time::Duration;

use pgusher_embedded::StopMode;
use support::{Program, ended, interrupt, json, own_schemas, refused, server, start, succeeded};

const COLD: Program = Program(&["bench", "cold"]);

#[test]
fn both_sides_of_a_private_server() {
    let arguments = ["-n", "4", "--rounds", "1", "--tables", "1,8", "--objects", "0,30", "--format", "json"];
    let json = json(&succeeded(&COLD.run(&arguments)));
    let cold = &json["cold"];
    let cells = cold["cells"].as_array().expect("cells");
    // Direct after two events and managed after three, two numbers of tables touched, two of tables besides.
    assert_eq!(cells.len(), 5 * 2 * 2);
    assert_eq!(cold["connecting"].as_array().map(Vec::len), Some(5 * 2));
    for cell in cells {
        let (side, event) = (&cell["side"], cell["event"].as_str().expect("an event"));
        let round = &cell["rounds"][0];
        assert_eq!(round["samples"].as_array().map(Vec::len), Some(4), "{cell}");
        for sample in round["samples"].as_array().into_iter().flatten() {
            assert!(sample["connect_us"].as_f64() > Some(1.0) && sample["query_us"].as_f64() > Some(1.0), "{cell}");
            assert_eq!(sample["backend_cpu_us"].is_number(), side == "direct", "{cell}");
        }
        match event {
            "provoke" => assert_eq!(round["files_before"], serde_json::json!({}), "both files are gone"),
            _ => assert!(round["files_before"].is_null(), "{cell}"),
        }
        // A manager that goes on keeps its clients, and one that is started anew has none to keep.
        let kept = side == "managed" && event == "restart";
        assert_eq!(round["kept"]["query_us"].is_number(), kept, "{cell}");
    }
    let findings = json["findings"].to_string();
    assert!(findings.contains("After a restart of PostgreSQL the first connection takes"), "{findings}");
    assert_eq!(cold["notes"], serde_json::json!([]));
}

#[test]
fn a_server_that_was_named() {
    let (server, uri) = server(&[("autovacuum", "off")]);
    // Nothing happens to it without being asked for.
    refused(&COLD.run(&[&uri]), "say how the server is to lose its init files");
    let text = succeeded(&COLD.run(&[&uri, "--provoke", "-n", "4", "--rounds", "2"]));
    assert!(text.contains("Connecting after the removal of the init files"), "{text}");
    assert!(text.contains("from pg_catalog.pg_class") && !text.contains("managed"), "{text}");
    // Tables only where they were asked for, and no longer than it takes.
    let arguments = ["-d", &uri, "--provoke", "-n", "3", "--rounds", "1", "--tables", "2", "--format", "csv"];
    let csv = succeeded(&COLD.run(&arguments));
    assert_eq!(csv.lines().count(), 1 + 3, "{csv}");
    assert!(csv.lines().nth(1).is_some_and(|line| line.starts_with("provoke,direct,0,2,1,1,")), "{csv}");
    assert_eq!(own_schemas(&server), "0");
}

#[test]
fn restarted_by_a_command() {
    let (mut server, uri) = server(&[("autovacuum", "off")]);
    let useless = COLD.run(&[&uri, "--restart-cmd", "true", "-n", "3", "--rounds", "2", "-q", "select 1"]);
    let text = ended(&useless, 2);
    assert!(text.contains("the server was not restarted"), "{text}");
    let failing = COLD.run(&[&uri, "--restart-cmd", "echo no such service; exit 3", "-n", "3"]);
    refused(&failing, "no such service");
    refused(&failing, "--restart-cmd failed: exit status: 3");
    // The command of this test asks the test to restart its server, and returns before the server is up.
    let folder = tempfile::tempdir().expect("a folder");
    let asked = folder.path().join("asked");
    let ask = format!("touch '{0}'; while test -e '{0}'; do sleep 0.05; done", asked.display());
    let arguments = [&uri, "--restart-cmd", &ask, "-n", "3", "--rounds", "2", "--pause", "0", "--format", "json"];
    let mut process = start(COLD.command(&arguments));
    let stdout = process.child().stdout.take().expect("a pipe");
    let reader = std::thread::spawn(move || std::io::read_to_string(stdout).expect("text"));
    let status = loop {
        if asked.exists() {
            server.stop(StopMode::Fast).expect("it stops");
            std::fs::remove_file(&asked).expect("removable");
            std::thread::sleep(Duration::from_millis(100));
            server.restart().expect("it starts again");
        }
        if let Some(status) = process.wait(Duration::from_millis(20)).expect("waited") {
            break status;
        }
    };
    let json = json(&reader.join().expect("read"));
    assert_eq!(status.code(), Some(0), "{json}");
    let rounds = json["cold"]["cells"][0]["rounds"].as_array().expect("rounds");
    assert_eq!(rounds.len(), 2);
    assert!(rounds.iter().all(|r| r["samples"].as_array().map(Vec::len) == Some(3)), "{json}");
}

#[test]
fn what_cannot_be_is_said() {
    for (arguments, message) in [
        (&["-n", "2"][..], "2 is not in 3..=10000"),
        (&["-q", "select 1", "--tables", "1"], "cannot be used with"),
        (&["--tables", "1,x"], "invalid digit"),
        (&["--pause", "x"], "a number of seconds from 0"),
        (&["--restart-cmd", "true"], "a private one needs no command"),
        (&["postgres://x", "--restart"], "only be restarted by a command of yours"),
        (&["host=127.0.0.1 port=1 user=x sslmode=disable", "--provoke"], "is a server running there"),
        (&["-o", "/no such folder/x"], "cannot write /no such folder/x"),
    ] {
        refused(&COLD.run(arguments), message);
    }
}

#[test]
fn interrupted_it_prints_what_there_is_and_leaves_nothing() {
    let (server, uri) = server(&[("autovacuum", "off")]);
    let process = start(COLD.command(&[&uri, "--provoke", "--tables", "1", "--rounds", "1000", "-n", "3"]));
    std::thread::sleep(Duration::from_millis(2500));
    let text = interrupt(process);
    assert!(text.contains("INTERRUPTED") && text.contains("Connecting after"), "{text}");
    assert_eq!(own_schemas(&server), "0");
}
