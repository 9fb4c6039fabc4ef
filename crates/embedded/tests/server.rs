//! The server as its users meet it: started, asked, restarted, killed and cleared away.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use pgusher_embedded::{Auth, Error, Server, Signal, StopMode};
use rustix::process::{Pid, kill_process};

/// Waits until `done` says so, at most ten seconds.
fn within_ten_seconds(mut done: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        if done() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

fn alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn starts_answers_and_restarts() {
    let mut server = Server::builder().setting("application_name", "it's \\ here").start().unwrap();
    assert_eq!(server.psql("postgres", "select 1 + 1").unwrap(), "2");
    assert_eq!(server.psql("postgres", "show application_name").unwrap(), "psql", "psql names itself");
    let boot = server.psql("postgres", "select setting from pg_file_settings where name = 'application_name'").unwrap();
    assert_eq!(boot, "it's \\ here");
    assert_eq!(server.psql("postgres", "show server_encoding").unwrap(), "UTF8");
    assert_eq!(server.psql("postgres", "show max_connections").unwrap(), "300");
    assert_eq!(server.psql("postgres", "show fsync").unwrap(), "off");

    // Over TCP, by both forms of connection string.
    for target in [
        server.conninfo("postgres", "postgres"),
        server.uri("postgres", "postgres"),
        server.socket_conninfo("postgres", "postgres"),
        server.socket_uri("postgres", "postgres"),
    ] {
        let output = Command::new(server.bin("psql"))
            .args(["-X", "-A", "-t", "-c", "select inet_server_port()", &target])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let expected = if target.contains("127.0.0.1") { server.port().to_string() } else { String::new() };
        assert!(output.status.success(), "{target}: {output:?}");
        assert_eq!(text.trim(), expected, "{target}");
    }

    server.psql("postgres", "create table kept (n int)").unwrap();
    let (port, pid) = (server.port(), server.postmaster_pid());
    server.restart().unwrap();
    assert_eq!(server.port(), port);
    assert_ne!(server.postmaster_pid(), pid);
    assert_eq!(server.psql("postgres", "select count(*) from kept").unwrap(), "0");

    server.alter_system("work_mem", "7MB").unwrap();
    assert!(within_ten_seconds(|| { server.psql("postgres", "show work_mem").unwrap() == "7MB" }));
    let log = std::fs::read_to_string(server.log_path()).unwrap();
    assert!(log.contains("ready to accept connections"), "{log}");
}

#[test]
fn a_failed_statement_is_an_error_with_its_text() {
    let server = Server::builder().start().unwrap();
    let error = server.psql("postgres", "select 1/0").unwrap_err();
    assert!(matches!(&error, Error::Program { output, .. } if output.contains("division by zero")), "{error}");
}

#[test]
fn two_servers_live_side_by_side() {
    let start = || std::thread::spawn(|| Server::builder().start().unwrap());
    let (one, two) = (start(), start());
    let (one, two) = (one.join().unwrap(), two.join().unwrap());
    assert_ne!(one.port(), two.port());
    one.psql("postgres", "create table only_here ()").unwrap();
    let count = "select count(*) from pg_class where relname = 'only_here'";
    assert_eq!(one.psql("postgres", count).unwrap(), "1");
    assert_eq!(two.psql("postgres", count).unwrap(), "0");
    drop(one);
    assert_eq!(two.psql("postgres", "select 1").unwrap(), "1");
}

#[test]
fn survives_a_kill_of_the_postmaster_and_starts_again() {
    let mut server = Server::builder().durable(true).start().unwrap();
    server.psql("postgres", "create table kept (n int)").unwrap();
    server.kill().unwrap();
    assert!(!server.is_running());
    assert_eq!(server.postmaster_pid(), None);
    server.restart().unwrap();
    assert!(server.is_running());
    assert_eq!(server.psql("postgres", "select count(*) from kept").unwrap(), "0");
    let status = server.stop(StopMode::Fast).unwrap().unwrap();
    assert!(status.success(), "{status}");
    assert!(server.stop(StopMode::Fast).unwrap().is_none());
}

#[test]
fn drop_leaves_nothing() {
    let server = Server::builder().start().unwrap();
    let folder = server.socket_dir().to_path_buf();
    let pid = server.postmaster_pid().unwrap();
    assert!(folder.exists() && alive(pid));
    drop(server);
    assert!(!folder.exists());
    assert!(!alive(pid));
}

#[test]
fn passwords_are_asked_for_and_checked() {
    for (auth, stored) in [(Auth::Scram, "SCRAM-SHA-256$"), (Auth::Md5, "md5"), (Auth::Password, "SCRAM-SHA-256$")] {
        let server = Server::builder().superuser("Ann B").auth(auth).password("it's \\ a \"secret\"").start().unwrap();
        // `psql` gives the password; the same without it is refused.
        let verifier =
            server.psql("postgres", "select rolpassword from pg_authid where rolpassword is not null").unwrap();
        assert!(verifier.starts_with(stored), "{auth:?}: {verifier}");
        for target in [server.conninfo("postgres", "Ann B"), server.socket_uri("postgres", "Ann B")] {
            let output = Command::new(server.bin("psql"))
                .args(["-X", "-w", "-c", "select 1", &target])
                .env_remove("PGPASSWORD")
                .env("PGPASSFILE", "/dev/null")
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(text.contains("no password supplied"), "{auth:?}: {text}");
        }
    }
}

#[test]
fn own_lines_of_pg_hba_count_first() {
    let server = Server::builder().hba("host all refused 127.0.0.1/32 reject").start().unwrap();
    server.psql("postgres", "create role refused login").unwrap();
    let output = Command::new(server.bin("psql"))
        .args(["-X", "-c", "select 1", &server.conninfo("postgres", "refused")])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("pg_hba.conf rejects"), "{text}");
}

#[test]
fn a_server_that_cannot_start_says_why_and_leaves_nothing() {
    let error = Server::builder().setting("shared_buffers", "nonsense").start().unwrap_err();
    let Error::Ended { path, log, .. } = &error else {
        panic!("{error}");
    };
    assert!(log.contains("shared_buffers"), "{log}");
    assert!(!path.parent().unwrap().exists());
}

/// Not a test of its own: with this variable set, the test program starts a server, says where, and waits for its end.
const HOLD: &str = "PGUSHER_EMBEDDED_TEST_HOLD";

#[test]
fn hold_a_server_when_asked() {
    let Some(report) = std::env::var_os(HOLD) else {
        return;
    };
    // Started by a thread that ends at once: the server must not end with it.
    let server = std::thread::spawn(|| Server::builder().start().unwrap()).join().unwrap();
    assert_eq!(server.psql("postgres", "select 1").unwrap(), "1");
    let text = format!("{}\n{}\n", server.postmaster_pid().unwrap(), server.socket_dir().display());
    let report = PathBuf::from(report);
    std::fs::write(report.with_extension("part"), text).unwrap();
    let home = server.socket_dir().parent().unwrap().to_path_buf();
    std::fs::rename(report.with_extension("part"), report).unwrap();
    if std::env::var_os(CLEAR).is_some() {
        drop(server);
        assert!(home.exists(), "templates are kept for the next server");
        pgusher_embedded::clear_away().unwrap();
        assert!(!home.exists());
        pgusher_embedded::clear_away().unwrap();
        let again = Server::builder().start().unwrap();
        assert_eq!(again.psql("postgres", "select 1").unwrap(), "1");
        let (pid, home) = (again.postmaster_pid().unwrap(), again.socket_dir().parent().unwrap().to_path_buf());
        // Also with a server that nobody has dropped.
        pgusher_embedded::clear_away().unwrap();
        assert!(!home.exists());
        drop(again);
        assert!(!alive(pid));
        return;
    }
    std::thread::sleep(Duration::from_secs(60));
    drop(server);
}

/// With this variable set as well, the holder clears away instead of waiting.
const CLEAR: &str = "PGUSHER_EMBEDDED_TEST_CLEAR";

fn holder(report: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "hold_a_server_when_asked"])
        .env(HOLD, report)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    command
}

#[test]
fn cleared_away_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let output =
        holder(&folder.path().join("report")).env(CLEAR, "1").stderr(std::process::Stdio::piped()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(folder.path().join("report").exists());
}

/// The paths below `folder`, relative to it; those that vanish meanwhile are left out.
fn paths_below(folder: &Path, prefix: &Path, depth: u32, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let relative = prefix.join(entry.file_name());
        if depth > 0 && entry.path().is_dir() {
            paths_below(&entry.path(), &relative, depth - 1, into);
        }
        into.push(relative);
    }
}

/// The processes that work in `folder` or below it.
fn processes_in(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        if std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder)) {
            found.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    found
}

/// Killed at each step of making a server, the program leaves nothing: `initdb`, the copy and the postmaster are still writing
/// at that moment.
#[test]
fn nothing_is_left_after_a_kill_at_any_step() {
    type Reached = fn(&Path) -> bool;
    let steps: [(&str, Reached); 6] = [
        ("the folder", |p| p.components().count() == 1),
        ("initdb begins", |p| p.ends_with("template0")),
        ("initdb goes on", |p| p.ends_with("template0/base/1")),
        ("the copy", |p| p.ends_with("1/data/base")),
        ("settings", |p| p.ends_with("1/data/pgusher.conf")),
        ("the postmaster", |p| p.ends_with("1/data/postmaster.pid")),
    ];
    // Three tries at a time, as the guards have to hold while the machine is busy.
    for group in steps.chunks(3) {
        std::thread::scope(|scope| {
            for (name, reached) in group {
                scope.spawn(move || killed_at(name, *reached));
            }
        });
    }
}

fn killed_at(name: &str, reached: fn(&Path) -> bool) {
    // Like /tmp, so that every account may use it, and short enough for a socket.
    let folder = tempfile::Builder::new().prefix("pge").tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
    let report = tempfile::tempdir().unwrap();
    let mut holder = holder(&report.path().join("report")).env("TMPDIR", folder.path()).spawn().unwrap();
    let seen = within_ten_seconds(|| {
        let mut paths = Vec::new();
        paths_below(folder.path(), Path::new(""), 4, &mut paths);
        paths.iter().any(|path| reached(path))
    });
    let killed = holder.kill();
    holder.wait().unwrap();
    assert!(seen, "{name}: never reached");
    killed.unwrap();
    let empty = || std::fs::read_dir(folder.path()).unwrap().next().is_none();
    let end = Instant::now() + Duration::from_secs(60);
    while !(empty() && processes_in(folder.path()).is_empty()) {
        let mut paths = Vec::new();
        paths_below(folder.path(), Path::new(""), 2, &mut paths);
        assert!(Instant::now() < end, "{name}: {paths:?}, processes {:?}", processes_in(folder.path()));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Whether a System V segment is left that the process has made. False where there is no `ipcs`.
fn has_shared_memory(creator: u32) -> bool {
    let output = Command::new("ipcs").args(["-m", "-p"]).output().map(|o| o.stdout).unwrap_or_default();
    // Columns of Linux: segment, owner, creator, last user.
    let text = String::from_utf8_lossy(&output).into_owned();
    text.lines().any(|line| line.split_whitespace().nth(2) == Some(creator.to_string().as_str()))
}

/// Starts this test program once more, as a program that holds a server, and ends it with the signal.
fn nothing_is_left_after(signal: Signal) {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report");
    let mut holder = holder(&report).spawn().unwrap();
    let started = within_ten_seconds(|| report.exists());
    if !started {
        let _ = holder.kill();
        panic!("the holder did not start a server");
    }
    let text = std::fs::read_to_string(&report).unwrap();
    let mut lines = text.lines();
    let pid: u32 = lines.next().unwrap().parse().unwrap();
    let server_folder = PathBuf::from(lines.next().unwrap());
    assert!(alive(pid) && server_folder.exists());
    let known = Command::new("ipcs").output().is_ok();
    assert!(!known || !cfg!(target_os = "linux") || has_shared_memory(pid), "the test does not find shared memory");
    let holder_pid = Pid::from_raw(holder.id().try_into().unwrap()).unwrap();
    kill_process(holder_pid, signal).unwrap();
    holder.wait().unwrap();
    assert!(within_ten_seconds(|| !alive(pid)), "the postmaster {pid} still runs");
    let home = server_folder.parent().unwrap();
    assert!(within_ten_seconds(|| !home.exists()), "{} is still there", home.display());
    assert!(!has_shared_memory(pid), "the shared memory of {pid} is still there");
}

#[test]
fn nothing_is_left_after_sigkill() {
    nothing_is_left_after(Signal::KILL);
}

#[test]
fn nothing_is_left_after_an_interrupt() {
    nothing_is_left_after(Signal::INT);
}
