//! `pgusher doctor` as a program: formats, exit codes, messages; through this manager and through PgBouncer.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use pgusher_embedded::{Process, Server, Signal, StopMode, free_port};
use pgusher_measure::manager_process::ManagerProcess;
use serde_json::Value;
use support::{Program, ended, err, json, out, refused, rest, server, start, succeeded};

const DOCTOR: Program = Program(&["doctor"]);
/// A setting that the doctor warns of.
const UNWISE: &[(&str, &str)] = &[("superuser_reserved_connections", "0")];

/// Without measuring: how fast this machine is at the moment must not decide.
fn run(arguments: &[&str]) -> Output {
    DOCTOR.run(&[&["--watch", "0.3", "--connections", "0"], arguments].concat())
}

#[test]
fn the_exit_code_is_the_severity() {
    let (_server, uri) = server(UNWISE);
    // A warning is not critical.
    let text = succeeded(&run(&[&uri]));
    assert!(text.contains("WARNING   no-reserved-connections\n"), "{text}");
    assert!(text.contains("mend      postgresql.conf, then restart: superuser_reserved_connections = 3\n"), "{text}");
    assert!(text.contains("\nExamined\n"), "{text}");
    assert_eq!(run(&["-d", &uri, "--fail-on", "warning"]).status.code(), Some(3));
    assert_eq!(run(&[&uri, "--fail-on", "never"]).status.code(), Some(0));
    assert_eq!(run(&[&uri, "--fail-on", "sometimes"]).status.code(), Some(1));
    let output = run(&["host=127.0.0.1 port=1 user=x"]);
    assert_eq!(ended(&output, 1), "");
    assert_eq!(err(&output).matches("is a server running there").count(), 1, "{}", err(&output));
}

/// Watches for a minute, in which `meanwhile` happens to it or to the server; what it wrote and its exit code.
fn cut_short(meanwhile: impl FnOnce(&mut Process, &mut Server)) -> (String, Option<i32>) {
    let (mut server, uri) = server(UNWISE);
    let mut process = start(DOCTOR.command(&["--watch", "60", "--fail-on", "warning", &uri]));
    let there =
        "select count(*) from pg_stat_activity where application_name = 'pgusher doctor' and query ~ 'pg_stat_file'";
    let end = Instant::now() + Duration::from_secs(30);
    while server.psql("postgres", there).expect("psql") != "1" {
        assert!(Instant::now() < end, "it does not watch");
        std::thread::sleep(Duration::from_millis(100));
    }
    meanwhile(&mut process, &mut server);
    rest(process)
}

#[test]
fn what_was_found_is_printed_when_it_ends_early() {
    let (text, code) = cut_short(|_, server| {
        server.stop(StopMode::Immediate).expect("it stops");
    });
    assert_eq!(code, Some(2), "before 3: {text}");
    assert!(text.contains("THE SERVER WENT AWAY") && text.contains("WARNING   no-reserved-connections"), "{text}");
    let (text, code) = cut_short(|process, _| process.signal(Signal::INT).expect("sent"));
    assert_eq!(code, Some(130));
    assert!(text.contains("Interrupted.") && text.contains("WARNING   no-reserved-connections"), "{text}");
}

#[test]
fn formats() {
    let (_server, uri) = server(UNWISE);
    let measured = DOCTOR.run(&[&uri, "--watch", "0.3", "--connections", "8", "--format", "json"]);
    let json = json(&out(&measured));
    assert_eq!(json["schema_version"], 1);
    assert_eq!(json["environment"]["server"]["settings"]["superuser_reserved_connections"], Value::Null);
    assert_eq!(json["environment"]["server"]["version"].as_str(), json["doctor"]["reached"]["server_version"].as_str());
    let findings = json["doctor"]["findings"].as_array().expect("a list");
    let warning = findings.iter().find(|f| f["id"] == "no-reserved-connections").expect("the finding");
    assert_eq!(
        (warning["severity"].as_str(), warning["cures"][0]["kind"].as_str()),
        (Some("warning"), Some("restart"))
    );
    assert!(json["doctor"]["measurements"][0]["median_us"].as_f64() > Some(1.0));
    let csv = out(&run(&[&uri, "--format", "csv"]));
    assert!(csv.starts_with("finding,severity,what,per,cost_us\nno-reserved-connections,warning,\"No "), "{csv}");
    let markdown = out(&run(&[&uri, "--format", "markdown"]));
    assert!(markdown.contains("### no-reserved-connections (warning)"), "{markdown}");
    let page = out(&run(&[&uri, "--format", "html"]));
    assert!(page.contains("<html") && page.contains("no-reserved-connections"), "{page}");
}

#[test]
fn through_this_manager_the_servers_settings_are_seen_and_nothing_is_timed() {
    let (server, _) = server(UNWISE);
    let program = Path::new(env!("CARGO_BIN_EXE_pgusher"));
    let manager = ManagerProcess::start(program, &server.socket_conninfo("postgres", "postgres")).expect("a manager");
    let text = succeeded(&run(&[&manager.conninfo("postgres", "postgres")]));
    assert!(text.contains(concat!("reached through pgusher ", env!("CARGO_PKG_VERSION"))), "{text}");
    assert!(text.contains("no-reserved-connections") && text.contains("give the server's own address"), "{text}");
    assert!(!text.contains("\nMeasured"), "{text}");
}

/// A PgBouncer in transaction mode in front of the server; `None` where it is not installed.
fn bouncer(server: &Server, folder: &Path) -> Option<(Process, u16)> {
    let program = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"].into_iter().find(|path| Path::new(path).exists())?;
    let port = free_port().expect("a port");
    let users = folder.join("users.txt");
    let settings = folder.join("pgbouncer.ini");
    fs::write(&users, "\"postgres\" \"\"\n").expect("a file");
    let text = format!(
        "[databases]\n* = host={} port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
         auth_type = trust\nauth_file = {}\npool_mode = transaction\nadmin_users = postgres\n",
        server.socket_dir().display(),
        server.port(),
        users.display()
    );
    fs::write(&settings, text).expect("a file");
    for path in [folder, &users, &settings] {
        // It runs as another user if this test is root's.
        let mode = if path == folder { 0o755 } else { 0o644 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("permissions");
    }
    let mut command = server.account().command(program);
    command.arg(&settings).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let process = Process::spawn(command).expect("it starts");
    let end = Instant::now() + Duration::from_secs(20);
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(50));
    }
    Some((process, port))
}

#[test]
fn through_pgbouncer() {
    let (server, _) = server(UNWISE);
    let folder = tempfile::tempdir().expect("a folder");
    let Some((_process, port)) = bouncer(&server, folder.path()) else {
        eprintln!("PgBouncer is not installed");
        return;
    };
    let text = succeeded(&run(&[&format!("postgres://postgres@127.0.0.1:{port}/postgres")]));
    assert!(text.contains("reached through another connection manager"), "{text}");
    assert!(text.contains("no-reserved-connections") && text.contains("give the server's own address"), "{text}");
    // No setting of the examination stays with the server connection for the next client.
    let mut psql = Command::new(server.bin("psql"));
    psql.args([
        "-XAt",
        &format!("postgres://postgres@127.0.0.1:{port}/postgres"),
        "-c",
        "show statement_timeout",
        "-c",
    ]);
    let left = psql.arg("show search_path").output().expect("psql");
    assert_eq!(out(&left), "0\n\"$user\", public\n", "{}", err(&left));

    let console = format!("postgres://postgres@127.0.0.1:{port}/pgbouncer");
    refused(&run(&[&console]), "the console of a connection manager");
}
