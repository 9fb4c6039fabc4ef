//! Replication connections: who gets one, what reaches the server of what the client says, and what either side leaves behind.

mod support;

use pgusher_embedded::Server;
use pgusher_manager::{AuthMethod, Manager, Overrides};
use pgusher_wire::startup::{Version, write_startup};
use pgusher_wire::{Report, TxStatus, backend};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;
use support::gate::{Gate, Treatment, Visit};
use support::*;

const PHYSICAL: [(&str, &str); 2] = [("user", "postgres"), ("replication", "true")];
const LOGICAL: [(&str, &str); 3] = [("user", "postgres"), ("database", "postgres"), ("replication", "database")];

fn identify(manager: &Manager, user: &str, password: &str) -> (bool, String) {
    let conninfo = format!("replication=true user={user}");
    let output = server()
        .client("psql")
        .args(["-XAtqw", "-d", &conninfo, "-c", "IDENTIFY_SYSTEM"])
        .env("PGHOST", "127.0.0.1")
        .env("PGPORT", port(manager))
        .env("PGPASSWORD", password)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn a_physical_one_is_asked_for_what_the_servers_rules_for_replication_ask_for() {
    let server = Server::builder()
        .password("known to pgusher")
        .hba("host replication banned 127.0.0.1/32 reject")
        .hba("host replication all 127.0.0.1/32 scram-sha-256")
        .hba("host all postgres,banned 127.0.0.1/32 trust")
        .hba("host all standby 127.0.0.1/32 reject")
        .start()
        .unwrap();
    let roles = "create role standby login replication password 'right'; create role banned login replication; \
                 revoke connect on database postgres from public";
    server.psql("postgres", roles).unwrap();
    let conninfo = format!("{} password='known to pgusher'", server.conninfo("postgres", "postgres"));
    for workers in [1, 2] {
        let overrides = Overrides { auth: Some(AuthMethod::Server), ..overrides(workers, 2) };
        let manager = manager_at(&conninfo, "", &overrides);
        // Trusted as an ordinary client, and pgusher has the password.
        assert_eq!(Client::login(&manager, &[("user", "postgres"), ("database", "postgres")]).err().map(|_| ()), None);
        for _ in 0..2 {
            let (ok, text) = identify(&manager, "postgres", "wrong");
            assert!(!ok && text.contains("password authentication failed"), "{text}");
            let (ok, text) = identify(&manager, "postgres", "known to pgusher");
            assert!(ok, "{text}");
            // Let in for nothing else.
            let (ok, text) = identify(&manager, "standby", "right");
            assert!(ok, "{text}");
            let (ok, text) = identify(&manager, "standby", "wrong");
            assert!(!ok && text.contains("password authentication failed"), "{text}");
            let (ok, text) = identify(&manager, "banned", "");
            assert!(!ok && text.contains("pg_hba.conf rejects replication connection"), "{text}");
        }
    }
}

#[test]
fn its_startup_parameters_are_its_own() {
    let manager = manager_with(server(), "statement_reuse = \"custom-plans\"", &overrides(1, 1));
    let login = |parameters: &[(&[u8], &[u8])]| {
        let mut packet = Vec::new();
        let user: [(&[u8], &[u8]); 3] =
            [(b"user", b"postgres"), (b"database", b"postgres"), (b"replication", b"database")];
        write_startup(&mut packet, Version::V3_0, user.iter().chain(parameters).copied());
        let mut client = Client::raw(&manager);
        // What it says at once is not lost.
        packet.extend(query("show application_name"));
        client.send(&packet);
        assert_eq!(client.reply().status, b'I');
        let name = client.reply();
        (client, name.value().to_owned())
    };
    let (mut client, name) = login(&[(b"application_name", b"mine")]);
    assert_eq!(name, "mine");
    assert_eq!(client.query("show plan_cache_mode").value(), "auto");
    // As the server shows it of a direct connection: one question mark for each byte that is not ASCII.
    let (_, name) = login(&[(b"options", b"-c application_name=caf\xe9")]);
    assert_eq!(name, "caf?");
    let (mut client, _) = login(&[(b"options", b"-c work_mem=7MB"), (b"options", b"-c maintenance_work_mem=9MB")]);
    assert_eq!(client.query("show maintenance_work_mem").value(), "9MB");
    assert_eq!(client.query("show work_mem").value(), "4MB", "the last of several counts");
}

#[test]
fn what_the_server_says_right_behind_its_login_arrives() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        stream.read_exact(&mut vec![0; u32::from_be_bytes(length) as usize - 4]).unwrap();
        let mut out = Vec::new();
        backend::write_authentication_ok(&mut out);
        backend::write_backend_key_data(&mut out, 1, &[7; 4]);
        backend::write_ready_for_query(&mut out, TxStatus::Idle);
        out.extend(Report::fatal("57P01", "enough").to_bytes());
        stream.write_all(&out).unwrap();
    });
    let conninfo = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres sslmode=disable");
    let manager = manager_at(&conninfo, "", &overrides(1, 1));
    let mut client = Client::login(&manager, &LOGICAL).unwrap();
    assert_eq!(client.reply().state(), "57P01");
}

#[test]
fn a_cancel_request_that_gets_nowhere_does_not_end_the_stream() {
    let gate = Gate::new(server(), |visit| match visit {
        Visit::Login(_) => Treatment::Pass,
        Visit::Cancel(_) => Treatment::Hold,
    });
    let manager = manager_at(&gate.conninfo(), "[timeouts]\nserver_connect = 1\n", &overrides(1, 1));
    let mut client = Client::login(&manager, &LOGICAL).unwrap();
    client.start("select pg_sleep(4)");
    cancel(&manager, &client.key.clone());
    eventually(PATIENCE, "the request is held", || gate.cancels() == 1);
    assert_eq!(client.reply().state(), "");
    assert_eq!(client.query("select 1").value(), "1");
    gate.open();
    // One that gets there does what it should.
    client.start("select pg_sleep(60)");
    std::thread::sleep(Duration::from_millis(300));
    cancel(&manager, &client.key.clone());
    assert_eq!(client.reply().state(), "57014");
}

#[test]
fn a_client_that_goes_while_its_walsender_comes_leaves_its_place() {
    with_one_and_two(|workers| {
        let gate = Gate::new(server(), |_| Treatment::Hold);
        let manager = manager_at(
            &gate.conninfo(),
            "max_replication = 1\n[timeouts]\nserver_connect = 60\n",
            &overrides(workers, 1),
        );
        for _ in 0..3 {
            let mut client = Client::raw(&manager);
            client.send(&startup(Version::V3_0, &PHYSICAL));
            eventually(PATIENCE, "it is on its way", || gate.held() >= 1);
            drop(client);
            eventually(PATIENCE, "its place is free", || {
                let mut next = Client::raw(&manager);
                next.send(&startup(Version::V3_0, &PHYSICAL));
                next.is_silent(Duration::from_millis(200))
            });
        }
        gate.open();
        eventually(PATIENCE, "whoever comes now gets one", || Client::login(&manager, &PHYSICAL).is_ok());
    });
}

#[test]
fn a_client_that_does_not_read_gets_all_of_it_later() {
    let manager = manager(server(), 1, 1);
    let slow = [PHYSICAL[0], PHYSICAL[1], ("application_name", "slow")];
    let mut client = Client::login(&manager, &slow).unwrap();
    client.start("BASE_BACKUP (CHECKPOINT 'fast')");
    // The sockets' buffers are full by then.
    std::thread::sleep(Duration::from_secs(1));
    let reply = client.reply();
    assert!(reply.errors.is_empty() && reply.volume > 10_000_000, "{:?} {}", reply.errors, reply.volume);
    assert!(client.query("SHOW server_version").errors.is_empty());
    // Nor does it keep anything when it goes in the middle.
    client.start("BASE_BACKUP (CHECKPOINT 'fast')");
    std::thread::sleep(Duration::from_millis(300));
    drop(client);
    let left = "select count(*) from pg_stat_activity where application_name = 'slow'";
    eventually(PATIENCE, "its walsender has ended", || server().psql("postgres", left).unwrap() == "0");
}
