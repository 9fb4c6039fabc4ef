//! Physical connections ahead of need: no client waits for a backend to start, also after a restart of the server.

mod support;

use pgusher_embedded::{Auth, Server};
use pgusher_manager::{Config, Manager, Overrides};
use std::time::Duration;
use support::*;

const BACKENDS: &str = "select coalesce(string_agg(pid::text, ' ' order by pid), '') from pg_stat_activity \
                        where datname = 'app' and backend_type = 'client backend'";

fn ahead(workers: usize) -> Overrides {
    Overrides { min_pool_size: None, ..overrides(workers, 5) }
}

fn start() -> Server {
    let server = Server::builder().start().unwrap();
    server.psql("postgres", "create database app").unwrap();
    server
}

fn backends_of(server: &Server) -> Vec<String> {
    server.psql("postgres", BACKENDS).unwrap().split_whitespace().map(str::to_owned).collect()
}

fn manager_for(server: &Server, toml: &str, overrides: &Overrides) -> Manager {
    let toml = format!("server = \"\"\"{}\"\"\"\n{toml}", server.socket_conninfo("app", server.superuser()));
    Manager::start(Config::from_toml(&toml, overrides).unwrap()).unwrap()
}

fn pid(manager: &Manager, database: &str) -> String {
    Client::new(manager, database).query("select pg_backend_pid()").value().to_owned()
}

#[test]
fn the_first_client_finds_a_connection() {
    let mut server = start();
    for workers in [1, 2] {
        let manager = manager_for(&server, "", &ahead(workers));
        eventually(Duration::from_secs(5), "a connection without a client", || backends_of(&server).len() == 1);
        assert_eq!(pid(&manager, "app"), backends_of(&server)[0]);
        server.restart().unwrap();
        eventually(Duration::from_secs(20), "it comes back by itself", || backends_of(&server).len() == 1);
        assert_eq!(pid(&manager, "app"), backends_of(&server)[0]);
        assert_eq!(backends_of(&server).len(), 1);
        drop(manager);
        eventually(Duration::from_secs(5), "it ends with the manager", || backends_of(&server).is_empty());
    }
}

#[test]
fn as_many_as_are_configured() {
    let server = start();
    let manager = manager_for(&server, "min_pool_size = 3", &ahead(2));
    eventually(Duration::from_secs(5), "three connections", || backends_of(&server).len() == 3);
    // Those that are in use count as well.
    let mut client = Client::new(&manager, "app");
    client.query("begin");
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(backends_of(&server).len(), 3);
    // One that an administrator ends is replaced.
    let before = backends_of(&server);
    let sql = "select pg_terminate_backend(pid) from pg_stat_activity where datname = 'app' and state = 'idle' limit 1";
    server.psql("postgres", sql).unwrap();
    let replaced = |now: Vec<String>| now.len() == 3 && now != before;
    eventually(Duration::from_secs(10), "three again", || replaced(backends_of(&server)));
    assert_eq!(client.query("commit").done, ["COMMIT"]);
    drop(manager);

    let manager = manager_for(&server, "", &Overrides { min_pool_size: Some(0), ..ahead(1) });
    std::thread::sleep(Duration::from_millis(800));
    assert_eq!(backends_of(&server).len(), 0);
    drop(manager);

    let wrong = Config::from_toml("server = \"host=/tmp\"\nmin_pool_size = 9", &ahead(1)).err().unwrap();
    assert!(wrong.to_string().contains("min_pool_size"), "{wrong}");
}

#[test]
fn old_connections_are_closed_down_to_those_that_are_kept() {
    let server = start();
    let manager = manager_for(&server, "min_pool_size = 2\n[timeouts]\nserver_idle = 1", &ahead(1));
    let mut clients: Vec<Client> = (0..4).map(|_| Client::new(&manager, "app")).collect();
    for client in &mut clients {
        client.query("begin");
    }
    assert_eq!(backends_of(&server).len(), 4);
    drop(clients);
    eventually(Duration::from_secs(10), "two are left", || backends_of(&server).len() == 2);
    let kept = backends_of(&server);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(backends_of(&server), kept);
}

/// Without a password for the server nobody knocks at it again and again.
#[test]
fn a_server_that_refuses_is_left_in_peace() {
    let server = Server::builder()
        .hba("host all all 127.0.0.1/32 scram-sha-256")
        .auth(Auth::Trust)
        .setting("log_connections", "on")
        .start()
        .unwrap();
    server.psql("postgres", "create database app").unwrap();
    server.psql("postgres", "create role owner login password 'secret'").unwrap();
    let conninfo = server.conninfo("app", "owner");
    let manager = Manager::start(Config::from_conninfo(&conninfo, &ahead(1)).unwrap()).unwrap();
    let received = || {
        let log = std::fs::read_to_string(server.log_path()).unwrap();
        log.lines().filter(|l| l.contains("connection received: host=127.0.0.1")).count()
    };
    eventually(Duration::from_secs(5), "one attempt", || received() > 0);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(received(), 1);
    drop(manager);

    // With it, a connection is there before a client.
    let toml = format!("server = \"\"\"{conninfo} password=secret\"\"\"");
    let manager = Manager::start(Config::from_toml(&toml, &ahead(1)).unwrap()).unwrap();
    eventually(Duration::from_secs(5), "a connection without a client", || backends_of(&server).len() == 1);
    drop(manager);
}
