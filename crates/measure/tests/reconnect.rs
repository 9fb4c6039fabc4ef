//! The experiment on a real PostgreSQL that is started for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pgusher_client::{Config, Connector};
use pgusher_embedded::{Auth, Server};
use pgusher_measure::failure::Step;
use pgusher_measure::reconnect::{self, Error, Limit, Mode, Options, Protocol, Reconnect};
use pgusher_measure::script::Script;
use pgusher_measure::target::{Side, Target};

fn connector(conninfo: &str) -> Connector {
    Connector::new(&Config::from_conninfo(conninfo).expect("conninfo")).expect("connector")
}

fn direct(server: &Server) -> Vec<Target> {
    let connector = connector(&server.socket_conninfo("postgres", "postgres"));
    vec![Target { side: Side::Direct, connector }]
}

fn options(script: Script) -> Options {
    Options {
        clients: 3,
        connecting_at_once: None,
        limit: Limit::Transactions(20),
        rounds: 2,
        modes: Mode::ALL.to_vec(),
        protocol: Protocol::Simple,
        script,
        wait_for_exit: false,
        reuse_keys: true,
        progress_every: None,
        seed: 1,
        rate: None,
        latency_limit: None,
    }
}

fn run(options: &Options, targets: Vec<Target>) -> Reconnect {
    reconnect::run(options, targets, &Arc::default(), &mut |_| {}).expect("a result")
}

fn script(text: &str) -> Script {
    Script::parse("test", text, &[]).expect("well-formed")
}

#[test]
fn select_only_for_a_second() {
    let server = Server::builder().start().expect("a server");
    let (mut connection, _) = connector(&server.conninfo("postgres", "postgres")).connect().expect("connects");
    assert!(!reconnect::accounts_exist(&mut connection).expect("asked"));
    reconnect::initialize(&mut connection, 2).expect("made");
    assert!(reconnect::accounts_exist(&mut connection).expect("asked"));
    assert_eq!(reconnect::scale_of(&mut connection).expect("asked"), 2);
    // Both sides reach the same server here; what counts is that everything is measured on both.
    let mut targets = direct(&server);
    let managed = connector(&server.conninfo("postgres", "postgres"));
    targets.push(Target { side: Side::Managed, connector: managed });
    for protocol in [Protocol::Simple, Protocol::Extended] {
        let options = Options {
            limit: Limit::Time(Duration::from_secs(1)),
            rounds: 1,
            protocol,
            progress_every: Some(Duration::from_millis(300)),
            ..options(Script::select_only(2))
        };
        let mut lines = Vec::new();
        let begun = Instant::now();
        let targets = std::mem::take(&mut targets);
        let targets = if targets.is_empty() { direct(&server) } else { targets };
        let sides = targets.len();
        let result = reconnect::run(&options, targets, &Arc::default(), &mut |line| lines.push(line.to_owned()))
            .expect("a result");
        assert!(begun.elapsed() >= Duration::from_secs(2 * sides as u64));
        assert_eq!(result.cells.len(), 2 * sides);
        assert!(lines.iter().any(|l| l.contains("progress: 0.3 s, ")), "{lines:?}");
        for cell in &result.cells {
            assert_eq!(cell.failures, [], "{cell:?}");
            let round = &cell.rounds[0];
            assert!(round.transactions > 10, "{round:?}");
            assert!((1.0..3.0).contains(&round.wall_seconds), "{round:?}");
            assert!(round.tps_excluding_connecting > round.tps_including_connecting);
            assert!(round.first.as_ref().is_some_and(|f| f.connect_us > 0.0 && f.transaction_us > Some(0.0)));
            match cell.mode {
                Mode::Static => assert_eq!(round.connections, 3),
                Mode::Reconnect => assert_eq!(round.connections, round.transactions),
            }
        }
        let tps = |mode| result.cell(mode, Side::Direct).expect("measured").tps_including();
        assert!(tps(Mode::Static) > 2.0 * tps(Mode::Reconnect));
        assert_eq!(result.ratios.len(), if sides == 2 { 2 } else { 0 });
    }
}

#[test]
fn failures_are_counted_by_cause_and_the_run_goes_on() {
    let server = Server::builder().start().expect("a server");
    let failing = script("select 1; select * from no_such_table; select 2;");
    let result = run(&options(failing), direct(&server));
    for cell in &result.cells {
        let [failure] = cell.failures.as_slice() else { panic!("{:?}", cell.failures) };
        // 3 clients, 20 transactions, 2 rounds, and the first connection of each round.
        assert_eq!((failure.step, failure.cause.as_str(), failure.count), (Step::Transaction, "42P01", 122));
        assert!(failure.example.contains("no_such_table"), "{}", failure.example);
        assert_eq!(cell.transaction, None);
        assert_eq!(cell.tps_including(), 0.0);
        let connections: u64 = cell.rounds.iter().map(|r| r.connections).sum();
        assert_eq!(connections, if cell.mode == Mode::Static { 6 } else { 120 });
    }
}

#[test]
fn a_failed_transaction_block_does_not_spoil_the_next() {
    let server = Server::builder().start().expect("a server");
    let flaky = script("\\set n random(0, 1)\nbegin; select 1 / :n; commit;");
    let options = Options { modes: vec![Mode::Static], limit: Limit::Transactions(100), ..options(flaky) };
    let result = run(&options, direct(&server));
    let cell = &result.cells[0];
    let succeeded: u64 = cell.rounds.iter().map(|r| r.transactions).sum();
    assert!((150..450).contains(&succeeded), "{succeeded}");
    assert!(cell.failures.iter().all(|f| f.cause == "22012"), "{:?}", cell.failures);
    assert_eq!(cell.rounds.iter().map(|r| r.connections).sum::<u64>(), 6);
}

#[test]
fn refused_connections_are_counted_too() {
    let server = Server::builder()
        .setting("max_connections", "5")
        .setting("superuser_reserved_connections", "0")
        .setting("max_wal_senders", "0")
        .start()
        .expect("a server");
    let options = Options {
        clients: 12,
        limit: Limit::Time(Duration::from_secs(1)),
        rounds: 1,
        modes: vec![Mode::Static],
        ..options(script("select pg_sleep(0.05);"))
    };
    let result = run(&options, direct(&server));
    let cell = &result.cells[0];
    let refused = cell.failures.iter().find(|f| f.cause == "53300").expect("too many clients");
    assert_eq!(refused.step, Step::Connect);
    assert_eq!(cell.rounds[0].failed_connections, refused.count);
    assert!(cell.rounds[0].transactions > 0);
}

#[test]
fn the_backends_end_is_part_of_the_disconnect_when_asked_for() {
    let server = Server::builder().start().expect("a server");
    let base = Options { clients: 1, modes: vec![Mode::Reconnect], ..options(script("select 1;")) };
    let median = |wait_for_exit| {
        let options = Options { wait_for_exit, ..base.clone() };
        let result = run(&options, direct(&server));
        result.cells[0].disconnect.as_ref().expect("measured").median
    };
    let (without, with) = (median(false), median(true));
    assert!(with > 3.0 * without, "{without} {with}");
}

#[test]
fn keys_of_a_scram_password_are_reused_unless_told_not_to() {
    let server = Server::builder().auth(Auth::Scram).password("secret").start().expect("a server");
    let conninfo = format!("{} password=secret", server.conninfo("postgres", "postgres"));
    let base = Options { clients: 1, modes: vec![Mode::Reconnect], ..options(script("select 1;")) };
    let average = |reuse_keys| {
        let options = Options { reuse_keys, ..base.clone() };
        let targets = vec![Target { side: Side::Direct, connector: connector(&conninfo) }];
        run(&options, targets).cells[0].connect.as_ref().expect("measured").min
    };
    // 4096 rounds of HMAC-SHA-256 take about a millisecond. The tests beside this one can take more from either side.
    let pairs: Vec<(f64, f64)> = (0..5).map(|_| (average(true), average(false))).collect();
    assert!(pairs.iter().any(|(reused, computed)| *computed > reused + 300.0), "{pairs:?}");
}

#[test]
fn an_unreachable_server_is_an_error_at_once() {
    let target = connector("host=127.0.0.1 port=1 dbname=x user=x sslmode=disable");
    let targets = vec![Target { side: Side::Managed, connector: target }];
    let error = reconnect::run(&options(script("select 1;")), targets, &Arc::default(), &mut |_| {})
        .expect_err("nobody listens");
    assert!(matches!(error, Error::Unreachable { side: Side::Managed, .. }), "{error}");
    assert!(error.to_string().starts_with("managed: connection to 127.0.0.1"), "{error}");
}

#[test]
fn an_interrupted_run_gives_what_there_is() {
    let server = Server::builder().start().expect("a server");
    let stop = Arc::new(AtomicBool::new(false));
    let later = Arc::clone(&stop);
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(900));
        later.store(true, Ordering::Relaxed);
    });
    let options = Options { limit: Limit::Time(Duration::from_secs(60)), ..options(script("select 1;")) };
    let begun = Instant::now();
    let result = reconnect::run(&options, direct(&server), &stop, &mut |_| {}).expect("a result");
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(result.interrupted);
    assert_eq!(result.cells.len(), 1);
    assert!(result.cells[0].rounds[0].transactions > 0);
}
