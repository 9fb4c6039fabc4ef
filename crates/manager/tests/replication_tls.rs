//! Replication connections where both legs speak TLS: commands, a backup, a stream in both directions, and who is refused.

#[path = "support/secure.rs"]
mod secure;
mod support;

use pgusher_manager::Manager;
use pgusher_manager::tls::ClientTlsMode;
use secure::{client_tls, conninfo, file, manager, world};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use support::{eventually, port};

const PATIENCE: Duration = Duration::from_secs(30);

/// One whose clients must speak TLS, and that lets itself in to no server without it.
fn encrypting(workers: usize, toml: &str) -> Manager {
    let to = conninfo(world().server.port(), &format!("sslmode=verify-full sslrootcert={}", file("ca").display()));
    manager(&to, workers, 2, client_tls(ClientTlsMode::Require, "good"), toml)
}

/// A program that wants to see the manager's certificate.
fn command(manager: &Manager, name: &str, args: &[&str]) -> Command {
    let mut command = world().server.client(name);
    command
        .args(args)
        .env("PGHOST", "localhost")
        .env("PGHOSTADDR", "127.0.0.1")
        .env("PGPORT", port(manager))
        .env("PGUSER", "postgres")
        .env("PGSSLMODE", "verify-full")
        .env("PGSSLROOTCERT", file("ca"))
        .stdin(Stdio::null());
    command
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn psql(command: &mut Command, conninfo: &str, sql: &str) -> (bool, String) {
    let output = command.args(["-XAtq", "-d", conninfo, "-c", sql]).output().expect("psql");
    (output.status.success(), text(&output).trim().to_owned())
}

fn asked(sql: &str) -> String {
    world().server.psql("postgres", sql).expect("psql")
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
fn commands_and_who_is_refused() {
    for workers in [1, 2] {
        let manager = encrypting(workers, "");
        let (ok, said) = psql(&mut command(&manager, "psql", &[]), "replication=true", "IDENTIFY_SYSTEM");
        assert!(ok && said.contains('/'), "{said}");
        // The server's leg, as the server sees it.
        let seen = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
        let (ok, said) = psql(&mut command(&manager, "psql", &[]), "replication=database dbname=postgres", seen);
        assert!(ok && said == "t", "{said}");
        let mut plain = command(&manager, "psql", &[]);
        let (ok, said) = psql(plain.env("PGSSLMODE", "disable"), "replication=true", "IDENTIFY_SYSTEM");
        assert!(!ok && said.contains("encrypted connections only"), "{said}");
    }
    // A server whose certificate is another's gets nobody's stream.
    let to =
        conninfo(world().server.port(), &format!("sslmode=verify-full sslrootcert={}", file("other_ca").display()));
    let manager = manager(&to, 1, 2, client_tls(ClientTlsMode::Require, "good"), "");
    let (ok, said) = psql(&mut command(&manager, "psql", &[]), "replication=true", "IDENTIFY_SYSTEM");
    assert!(!ok && said.contains("cannot speak TLS"), "{said}");
}

#[test]
fn a_proof_that_is_bound_to_the_channel() {
    let manager = encrypting(1, "[users]\nu_scram = \"right\"\n");
    let mut bound = command(&manager, "psql", &[]);
    bound.env("PGUSER", "u_scram").env("PGPASSWORD", "right").env("PGCHANNELBINDING", "require");
    let (ok, said) = psql(&mut bound, "replication=true", "IDENTIFY_SYSTEM");
    assert!(ok && said.contains('/'), "{said}");
    let mut wrong = command(&manager, "psql", &[]);
    let (ok, said) =
        psql(wrong.env("PGUSER", "u_scram").env("PGPASSWORD", "wrong"), "replication=true", "IDENTIFY_SYSTEM");
    assert!(!ok && said.contains("password authentication failed"), "{said}");
}

#[test]
fn a_backup_and_a_stream_arrive_whole() {
    let manager = encrypting(2, "");
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("permissions");
    let to = dir.path().join("data");
    let backup = ["-D", path(&to), "-X", "stream", "-c", "fast", "--no-sync"];
    let output = command(&manager, "pg_basebackup", &backup).output().expect("pg_basebackup");
    assert!(output.status.success(), "{}", text(&output));
    // Each byte of it: the server has said their sums in the same stream.
    let output = world().server.client("pg_verifybackup").arg(&to).output().expect("pg_verifybackup");
    assert!(output.status.success(), "{}", text(&output));

    let wal = dir.path().join("wal");
    std::fs::create_dir(&wal).expect("a folder");
    std::fs::set_permissions(&wal, std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("permissions");
    let args = ["-D", path(&wal), "--no-loop", "--synchronous"];
    let receiver = Running(command(&manager, "pg_receivewal", &args).spawn().expect("pg_receivewal"));
    let streams = "from pg_stat_replication join pg_stat_ssl using (pid) where application_name = 'pg_receivewal'";
    eventually(PATIENCE, "it streams", || asked(&format!("select count(*) {streams} and state = 'streaming'")) == "1");
    assert_eq!(asked(&format!("select ssl {streams}")), "t");
    // More than the buffers of sockets and of TLS hold.
    let end = asked(
        "create table tls_much as select repeat(md5(n::text), 20) from generate_series(1, 60000) n; \
         select pg_switch_wal(); select pg_current_wal_lsn()",
    );
    let end = end.lines().last().unwrap_or_default();
    // What the client confirms goes the other way.
    eventually(PATIENCE, "all of it is confirmed", || {
        asked(&format!("select count(*) {streams} and flush_lsn >= '{end}'::pg_lsn - 64::numeric")) == "1"
    });
    drop(receiver);
}
