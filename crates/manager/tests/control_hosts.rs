//! Several hosts in the connection string, and an address that changes while the manager runs.

mod support;

use pgusher_embedded::{Server, StopMode};
use pgusher_manager::{Config, Manager};
use std::net::TcpListener;
use std::time::{Duration, Instant};
use support::*;

const PORT: &str = "select current_setting('port')";

fn start() -> Server {
    Server::builder().start().unwrap()
}

/// A manager in front of the TCP ports of several servers.
fn in_front_of(ports: &[u16], conninfo: &str, toml: &str, workers: usize) -> Manager {
    let hosts = vec!["127.0.0.1"; ports.len()].join(",");
    let ports = ports.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
    let toml = format!(
        "server = \"host={hosts} port={ports} user=postgres dbname=postgres sslmode=disable {conninfo}\"\n{toml}"
    );
    Manager::start(Config::from_toml(&toml, &overrides(workers, 2)).unwrap()).unwrap()
}

/// A port that nobody listens on.
fn dead_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn a_dead_host_is_passed_over() {
    let server = start();
    let manager = in_front_of(&[dead_port(), server.port()], "", "", 1);
    assert_eq!(Client::new(&manager, "postgres").query(PORT).value(), server.port().to_string());
    let ended = program(&manager, "psql", "postgres", &["-XAtwc", PORT]);
    assert_eq!(ended.out.trim(), server.port().to_string(), "{}", ended.err);
}

#[test]
fn another_host_takes_over() {
    let (mut one, mut two) = (start(), start());
    for workers in [1, 2] {
        let manager = in_front_of(&[one.port(), two.port()], "", "", workers);
        let mut early = Client::new(&manager, "postgres");
        assert_eq!(early.query(PORT).value(), one.port().to_string());
        one.stop(StopMode::Immediate).unwrap();
        // Nobody is told of it who had nothing under way.
        assert_eq!(early.query(PORT).value(), two.port().to_string());
        assert_eq!(Client::new(&manager, "postgres").query(PORT).value(), two.port().to_string());
        one.restart().unwrap();
        // A host that is back is no reason to move again.
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(early.query(PORT).value(), two.port().to_string());
        two.stop(StopMode::Immediate).unwrap();
        assert_eq!(early.query(PORT).value(), one.port().to_string());
        one.stop(StopMode::Immediate).unwrap();
        // When none is left, clients are told soon, and it goes on when one is back.
        let begun = Instant::now();
        let reply = early.query(PORT);
        assert_eq!(reply.state(), "08001", "{reply:?}");
        assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
        two.restart().unwrap();
        let mut found = String::new();
        eventually(Duration::from_secs(15), "a server that is back is used", || {
            let logged_in = Client::login(&manager, &[("user", "postgres"), ("database", "postgres")]);
            let Ok(mut client) = logged_in else { return false };
            found = client.query(PORT).values.pop().unwrap_or_default();
            !found.is_empty()
        });
        assert_eq!(found, two.port().to_string());
        one.restart().unwrap();
    }
}

#[test]
fn the_kind_that_is_wanted() {
    let (one, two) = (start(), start());
    let frozen = |server: &Server, yes: &str| server.alter_system("default_transaction_read_only", yes).unwrap();
    frozen(&one, "on");
    for workers in [1, 2] {
        let manager =
            in_front_of(&[one.port(), two.port()], "target_session_attrs=read-write", "dns_max_age = 1", workers);
        let mut idle = Client::new(&manager, "postgres");
        assert_eq!(idle.query(PORT).value(), two.port().to_string());
        // A statement under way stays where it is, and its cancel request finds it there.
        let mut busy = Client::new(&manager, "postgres");
        busy.start("select pg_sleep(60)");
        frozen(&one, "off");
        frozen(&two, "on");
        eventually(Duration::from_secs(10), "the manager has moved", || {
            idle.query(PORT).value() == one.port().to_string()
        });
        let mut cancel = Client::raw(&manager);
        let mut request = vec![0, 0, 0, 16, 4, 210, 22, 46];
        request.extend_from_slice(&busy.key);
        cancel.send(&request);
        assert_eq!(busy.reply().state(), "57014");
        // Its connection is closed now, and the client goes on at the new place.
        assert_eq!(busy.query(PORT).value(), one.port().to_string());
        eventually(Duration::from_secs(5), "connections to the old place are closed", || {
            let sql = "select count(*) from pg_stat_activity where backend_type = 'client backend' \
                       and pid <> pg_backend_pid() and application_name not like 'psql'";
            two.psql("postgres", sql).unwrap() == "0"
        });
        drop(manager);
        frozen(&two, "off");
        frozen(&one, "on");
    }
}

#[test]
fn no_server_of_the_kind_that_is_wanted() {
    let server = start();
    let manager = in_front_of(&[server.port()], "target_session_attrs=standby", "", 1);
    let reply = Client::login(&manager, &[("user", "postgres"), ("database", "postgres")]).err().unwrap();
    assert_eq!(reply.state(), "08001");
    assert!(reply.errors[0].1.contains("standby"), "{reply:?}");
}

#[test]
fn a_name_that_means_nothing() {
    let toml = "server = \"host=pgusher-test.invalid user=postgres\"";
    let error = Manager::start(Config::from_toml(toml, &overrides(1, 1)).unwrap()).err().unwrap();
    assert!(error.to_string().contains("cannot be resolved"), "{error}");
}
