//! `pgusher bench tables` as a program: a private server with both sides, servers that were named, formats, exit codes,
//! messages.

mod support;

use std::time::Duration;

use support::{Program, interrupt, json, own_schemas, refused, server, start, succeeded};

const TABLES: Program = Program(&["bench", "tables"]);

#[test]
fn both_sides_of_a_private_server() {
    let (clients, tables) = (["-c", "2", "-T", "0.4", "--rounds", "1"], ["--tables", "8,1,3,3", "--mode", "both"]);
    let json = json(&succeeded(&TABLES.run(&[&clients[..], &tables, &["--format", "json"]].concat())));
    let tables = &json["tables"];
    assert_eq!(tables["settings"]["tables"], serde_json::json!([1, 3, 8]));
    let cells = tables["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 2 * 3 * 2);
    for cell in cells {
        let round = &cell["rounds"][0];
        assert!(round["transactions"].as_u64() > Some(0), "{cell}");
        // The manager is a new one each time, so its physical connections are new as well.
        assert_eq!(round["alone"]["fresh"], true, "{cell}");
        // The private server counts statements, where it has the extension; the manager asks no catalog for a statement.
        if let Some(queries) = round["catalog"]["queries_per_statement"].as_f64() {
            assert!(queries < 0.5, "{cell}");
        }
        assert!(round["catalog"]["scans_per_statement"].is_number(), "{cell}");
    }
    assert_eq!(tables["comparisons"].as_array().map(Vec::len), Some(2 * 3));
    let findings = json["findings"].to_string();
    assert!(findings.contains("managed does") && findings.contains("the transactions of direct"), "{findings}");
}

#[test]
fn targets_that_were_named() {
    let (server, uri) = server(&[]);
    let socket = server.socket_conninfo("postgres", server.superuser());
    let short = ["-c", "2", "-T", "0.2", "--runs", "2", "--tables", "1,4"];
    refused(&TABLES.run(&[&[uri.as_str()], &short[..]].concat()), "say --init to allow that");
    assert_eq!(own_schemas(&server), "0");
    let named = format!("socket={socket}");
    let targets = ["-d", &uri, "--init", "--through", &named, "--through", &uri];
    let text = succeeded(&TABLES.run(&[&targets, &short[..]].concat()));
    for part in ["socket/direct (95 %)", "managed/direct (95 %)", "note: catalog queries are not known", "not known"] {
        assert!(text.contains(part), "{part}\nin\n{text}");
    }
    assert_eq!(own_schemas(&server), "0");
    let csv = succeeded(&TABLES.run(&[&["--init", "--through", &named, "--format", "csv"], &short[..]].concat()));
    assert_eq!(csv.lines().count(), 1 + 2 * 2, "{csv}");
    assert!(csv.lines().nth(1).is_some_and(|line| line.starts_with("reconnect,1,socket,1,")), "{csv}");
}

#[test]
fn what_cannot_be_is_said() {
    let nobody = "host=127.0.0.1 port=1 user=x sslmode=disable";
    let proxy = format!("pool={nobody}");
    for (arguments, message) in [
        (&["--tables", "0"][..], "0 is not in 1..=10000"),
        (&["-c", "0"], "0 is not in 1..=10000"),
        (&["-T", "0"], "a number of seconds"),
        (&[nobody, "--init"], "is a server running there"),
        (&["--init", "--through", &proxy], "is a server running there"),
        (&["--init", "--through", nobody, "--through", nobody], "two targets named managed"),
        (&["--init", "--through", "pool=sslmode=no"], "target pool"),
    ] {
        refused(&TABLES.run(arguments), message);
    }
}

#[test]
fn interrupted_it_prints_what_there_is_and_leaves_nothing() {
    let (server, uri) = server(&[]);
    let process = start(TABLES.command(&[&uri, "--init", "-T", "60", "-c", "2"]));
    // Until the load is under way.
    let busy = "select count(*) from pg_stat_user_tables where seq_scan > 3";
    for _ in 0..200 {
        if server.psql("postgres", busy).expect("psql") != "0" {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let text = interrupt(process);
    assert!(text.contains("INTERRUPTED") && text.contains("Transactions per second"), "{text}");
    assert_eq!(own_schemas(&server), "0");
}
