//! Replication connections through the manager: PostgreSQL's own programs, the streams of both kinds, and the ends of both sides.

mod support;

use pgusher_embedded::Server;
use pgusher_manager::Manager;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;
use support::*;

const PATIENCE: Duration = Duration::from_secs(30);

/// A server with logical decoding, which changes what is written to its log and so is none that other tests share.
fn source() -> &'static Server {
    static SOURCE: OnceLock<Server> = OnceLock::new();
    SOURCE.get_or_init(|| {
        Server::builder().setting("wal_level", "logical").setting("max_wal_senders", "20").start().expect("a server")
    })
}

fn manager_of(toml: &str, workers: usize) -> Manager {
    manager_with(source(), toml, &overrides(workers, 2))
}

fn command(manager: &Manager, name: &str, args: &[&str]) -> Command {
    let mut command = source().client(name);
    command.args(args).env("PGHOST", "127.0.0.1").env("PGPORT", port(manager)).stdin(Stdio::null());
    command
}

fn psql(manager: &Manager, conninfo: &str, sql: &str) -> (bool, String) {
    let output = command(manager, "psql", &["-XAtq", "-d", conninfo, "-c", sql]).output().expect("psql");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.success(), text.trim().to_owned())
}

fn walsenders() -> usize {
    let sql = "select count(*) from pg_stat_activity where backend_type = 'walsender'";
    source().psql("postgres", sql).expect("psql").parse().expect("a number")
}

/// A folder that the account of the server can write to, for programs that run as it.
fn folder(name: &str) -> tempfile::TempDir {
    let dir = tempfile::Builder::new().prefix(name).tempdir().expect("a folder");
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("permissions");
    dir
}

fn path(of: &Path) -> &str {
    of.to_str().expect("a path")
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn commands_of_both_kinds() {
    with_one_and_two(|workers| {
        let manager = manager_of("", workers);
        let (ok, text) = psql(&manager, "replication=true user=postgres dbname=nothing", "IDENTIFY_SYSTEM");
        assert!(ok && text.contains('/'), "{text}");
        let (ok, text) = psql(&manager, "replication=true user=postgres application_name=it", "SHOW application_name");
        assert!(ok && text == "it", "{text}");
        let (ok, text) = psql(&manager, "replication=true user=postgres", "SHOW pgusher.pin");
        assert!(ok && text == "replication", "{text}");
        // A logical one takes SQL as well, in its database.
        let logical = "replication=database user=postgres dbname=postgres options='-c work_mem=7MB'";
        let (ok, text) = psql(&manager, logical, "select current_database() || current_setting('work_mem')");
        assert!(ok && text == "postgres7MB", "{text}");
        let (ok, text) = psql(&manager, "replication=nonsense user=postgres", "select 1");
        assert!(!ok && text.contains("invalid value for parameter \"replication\""), "{text}");
        let (ok, text) = psql(&manager, "replication=database user=postgres dbname=no_such_database", "select 1");
        assert!(!ok && text.contains("no_such_database"), "{text}");
        let (ok, text) = psql(&manager, "replication=false user=postgres dbname=postgres", "select 'ordinary'");
        assert!(ok && text == "ordinary", "{text}");
    });
}

#[test]
fn a_backup_and_a_stream_of_wal() {
    let manager = manager_of("", 2);
    let dir = folder("pgusher-backup");
    let to = dir.path().join("data");
    let backup = ["-D", path(&to), "-X", "stream", "-c", "fast", "-U", "postgres", "--no-sync"];
    let output = command(&manager, "pg_basebackup", &backup).output().expect("pg_basebackup");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = source().client("pg_verifybackup").arg(&to).output().expect("pg_verifybackup");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let dir = folder("pgusher-wal");
    let wal = ["-D", path(dir.path()), "-U", "postgres", "--no-loop", "--synchronous"];
    let receiver = Running(command(&manager, "pg_receivewal", &wal).spawn().expect("pg_receivewal"));
    eventually(PATIENCE, "it streams", || {
        let sql =
            "select count(*) from pg_stat_replication where application_name = 'pg_receivewal' and state = 'streaming'";
        source().psql("postgres", sql).expect("psql") == "1"
    });
    // More than a socket's buffers hold.
    source()
        .psql("postgres", "create table much as select repeat(md5(n::text), 20) from generate_series(1, 60000) n")
        .unwrap();
    source().psql("postgres", "select pg_switch_wal()").unwrap();
    eventually(PATIENCE, "whole segments have arrived", || {
        let whole = |e: std::io::Result<std::fs::DirEntry>| e.is_ok_and(|e| e.path().extension().is_none());
        std::fs::read_dir(dir.path()).expect("readable").map(whole).filter(|w| *w).count() >= 2
    });
    drop(receiver);
}

#[test]
fn logical_decoding_goes_both_ways() {
    let manager = manager_of("", 1);
    let create = ["-d", "dbname=postgres user=postgres", "--slot", "one", "--create-slot", "-P", "test_decoding"];
    let output = command(&manager, "pg_recvlogical", &create).output().expect("pg_recvlogical");
    if String::from_utf8_lossy(&output.stderr).contains("could not access file") {
        eprintln!("skipped: this PostgreSQL has no test_decoding");
        return;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // The server of tests does not wait for its log; here the end of the log must be behind the commit.
    let sql = "set synchronous_commit = on; create table decoded (n int); insert into decoded values (4711)";
    source().psql("postgres", sql).unwrap();
    let end = source().psql("postgres", "select pg_current_wal_flush_lsn()").unwrap();
    let dir = folder("pgusher-decoded");
    let file = dir.path().join("out");
    let start =
        ["-d", "dbname=postgres user=postgres", "--slot", "one", "--start", "-f", path(&file), "-E", &end, "--no-loop"];
    let output = command(&manager, "pg_recvlogical", &start).output().expect("pg_recvlogical");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(std::fs::read_to_string(&file).expect("readable").contains("4711"));
    // What it has confirmed has reached the server: the stream goes both ways, and the end is an orderly one.
    let confirmed = format!("select confirmed_flush_lsn >= '{end}' from pg_replication_slots where slot_name = 'one'");
    assert_eq!(source().psql("postgres", &confirmed).unwrap(), "t");
    let drop = ["-d", "dbname=postgres user=postgres", "--slot", "one", "--drop-slot"];
    assert!(command(&manager, "pg_recvlogical", &drop).status().expect("pg_recvlogical").success());
}

#[test]
fn they_are_bounded_and_end_with_their_clients() {
    let server = Server::builder().start().expect("a server");
    let manager = manager_with(&server, "max_replication = 2\n", &overrides(1, 2));
    let parameters = [("user", "postgres"), ("database", "postgres"), ("replication", "database")];
    let count = || {
        let sql = "select count(*) from pg_stat_activity where backend_type = 'walsender'";
        server.psql("postgres", sql).expect("psql").parse::<usize>().expect("a number")
    };
    let mut one = Client::login(&manager, &parameters).expect("a place");
    let two = Client::login(&manager, &parameters).expect("a place");
    assert_eq!(Client::login(&manager, &parameters).err().map(|r| r.state().to_owned()).as_deref(), Some("53300"));
    // They are none of the pool's: it is whole.
    let mut others: Vec<Client> = (0..2).map(|_| Client::new(&manager, "postgres")).collect();
    for other in &mut others {
        assert_eq!(other.query("begin").status, b'T');
    }
    assert_eq!(one.query("select 1").value(), "1");
    drop(two);
    eventually(PATIENCE, "its walsender has ended", || count() == 1);
    let mut three = Client::login(&manager, &parameters).expect("a place again");
    // The server ends it: what it says reaches the client.
    server
        .psql("postgres", "select pg_terminate_backend(pid) from pg_stat_activity where backend_type = 'walsender'")
        .unwrap();
    let reply = three.reply();
    assert_eq!(reply.state(), "57P01", "{reply:?}");
    eventually(PATIENCE, "both places are free", || {
        let again: Vec<_> = (0..2).map_while(|_| Client::login(&manager, &parameters).ok()).collect();
        again.len() == 2
    });
}

#[test]
fn the_manager_ends_them_when_it_ends() {
    let before = walsenders();
    let manager = manager_of("", 1);
    let one = Client::login(&manager, &[("user", "postgres"), ("database", "postgres"), ("replication", "database")]);
    let mut one = one.expect("a place");
    assert_eq!(one.query("select 1").value(), "1");
    drop(manager);
    assert_eq!(one.message(), None);
    eventually(PATIENCE, "its walsender has ended", || walsenders() <= before.max(1));
}

#[test]
fn nobody_gets_one_without_the_right() {
    source().psql("postgres", "create role ordinary login").unwrap();
    let manager = manager_of("", 1);
    let parameters = [("user", "ordinary"), ("database", "postgres"), ("replication", "true")];
    let refused = Client::login(&manager, &parameters).err().expect("refused");
    assert_eq!(refused.state(), "42501", "{refused:?}");
}
