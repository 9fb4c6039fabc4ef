//! The experiment on a real PostgreSQL that is started for it.

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pgusher_client::{Config, Connector};
use pgusher_embedded::{Auth, Server, StopMode};
use pgusher_measure::failure::Step;
use pgusher_measure::report::{Environment, Experiment, Report};
use pgusher_measure::storm::{self, DisconnectOrder, Error, Options, Pace, Storm};
use pgusher_measure::target::{Side, Target};

fn direct(conninfo: &str) -> Vec<Target> {
    let connector = Connector::new(&Config::from_conninfo(conninfo).expect("conninfo")).expect("connector");
    vec![Target { side: Side::Direct, connector }]
}

fn options(clients: &[u32], pace: Pace) -> Options {
    Options {
        clients: clients.to_vec(),
        direct_max: None,
        pace,
        threads: 2,
        rounds: 2,
        disconnect: DisconnectOrder::Fifo,
        seed: 1,
        statement: None,
        timeout: Duration::from_secs(60),
        settle: Duration::from_secs(60),
        manager_pid: None,
    }
}

fn run(options: &Options, targets: Vec<Target>) -> Storm {
    storm::run(options, targets, &AtomicBool::new(false), &mut |_| {}).expect("a result")
}

const WINDOW: Pace = Pace::Window { in_flight: 16 };

#[test]
fn three_paces_over_tcp() {
    let server = Server::builder().start().expect("a server");
    let tcp = format!("{} sslmode=disable", server.conninfo("postgres", "postgres"));
    for pace in [Pace::Burst, WINDOW, Pace::Rate { per_second: 200.0 }] {
        let result = run(&options(&[64, 128], pace), direct(&tcp));
        assert_eq!(result.cells.len(), 2, "{:?}", result.notes);
        for cell in &result.cells {
            assert_eq!(cell.failures, [], "{pace:?}");
            assert_eq!(cell.rounds.iter().map(|r| r.number).collect::<Vec<_>>(), [1, 2]);
            for round in &cell.rounds {
                assert_eq!((round.ready, round.failed, round.unfinished), (cell.clients, 0, 0));
                assert_eq!(round.completion.last().map(|c| c.n), Some(cell.clients));
                assert!(round.completion.windows(2).all(|w| w[0].us <= w[1].us));
                assert!(round.disconnect_us.is_some_and(|us| us > 0.0));
                let cost = round.server.expect("the server runs here");
                assert!(cost.backends >= cell.clients && cost.minor_faults > 50.0, "{cost:?}");
                assert!(cost.backend_cpu_us > 50.0 && cost.postmaster_cpu_us > 1.0, "{cost:?}");
                assert!(round.listen_overflows.is_some());
            }
            let connect = cell.connect.as_ref().expect("a distribution");
            assert_eq!(connect.n, u64::from(2 * cell.clients));
            let longest = cell.rounds.iter().map(|r| r.total_us).fold(0.0, f64::max);
            assert!(connect.min > 50.0 && connect.max <= longest, "{connect:?} {longest}");
        }
        let facts = result.facts.as_ref().expect("asked");
        assert!(facts.same_host && facts.huge_pages != "unknown", "{facts:?}");
        // An open loop takes as long as its rate says.
        if let Pace::Rate { per_second } = pace {
            let round = &result.cells[1].rounds[0];
            assert!(round.total_us >= 127.0 / per_second * 1e6, "{round:?}");
            assert!(round.lateness.is_some());
            assert!(result.growth.is_empty() && result.notes.iter().any(|n| n.contains("N / rate")));
        }
        assert!(result.growth.iter().all(|g| g.verdict.contains("too few")), "{:?}", result.growth);
        assert!(!result.exhibits().is_empty());
    }
}

#[test]
fn passwords_and_tls() {
    let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    for auth in [Auth::Scram, Auth::Md5, Auth::Password] {
        let server = Server::builder()
            .auth(auth)
            .password("geheim")
            .tls(signed.cert.pem(), signed.signing_key.serialize_pem())
            .start()
            .expect("a server");
        let base = format!("{} password=geheim", server.conninfo("postgres", "postgres"));
        for (sslmode, encrypted) in [("disable", false), ("prefer", true)] {
            let targets = direct(&format!("{base} sslmode={sslmode}"));
            let result = run(&Options { rounds: 1, ..options(&[64], WINDOW) }, targets);
            assert_eq!(result.cells[0].failures, [], "{auth:?} {sslmode}");
            assert_eq!(result.cells[0].rounds[0].ready, 64);
            assert_eq!(result.notes.iter().any(|n| n.contains("TLS")), encrypted, "{:?}", result.notes);
        }
        let wrong = direct(&format!("{} password=falsch sslmode=disable", server.conninfo("postgres", "postgres")));
        let error = storm::run(&options(&[8], WINDOW), wrong, &AtomicBool::new(false), &mut |_| {});
        assert!(matches!(error, Err(Error::Unreachable { side: Side::Direct, .. })));
    }
}

#[test]
fn without_tls_at_the_server_prefer_goes_on_in_the_clear() {
    let server = Server::builder().start().expect("a server");
    let targets = direct(&format!("{} sslmode=prefer", server.conninfo("postgres", "postgres")));
    let result = run(&Options { rounds: 1, ..options(&[32], Pace::Burst) }, targets);
    assert_eq!((result.cells[0].rounds[0].ready, result.cells[0].failures.len()), (32, 0));
}

#[test]
fn statements_and_their_errors() {
    let server = Server::builder().start().expect("a server");
    let socket = server.socket_conninfo("postgres", "postgres");
    let with = |sql: &str| Options { rounds: 1, statement: Some(sql.to_owned()), ..options(&[40], WINDOW) };
    let result = run(&with("select count(*) from pg_class"), direct(&socket));
    assert_eq!(result.cells[0].statement.as_ref().map(|d| d.n), Some(40));
    let result = run(&with("select 1/0"), direct(&socket));
    let cell = &result.cells[0];
    assert_eq!(cell.rounds[0].ready, 40, "a statement that fails leaves its client connected");
    assert_eq!((cell.failures[0].step, cell.failures[0].cause.as_str()), (Step::Transaction, "22012"));
    assert_eq!(cell.failures[0].count, 40);
}

#[test]
fn more_than_the_server_allows_is_counted() {
    let server = Server::builder().max_connections(40).start().expect("a server");
    let socket = server.socket_conninfo("postgres", "postgres");
    let forced = Options { direct_max: Some(1000), ..options(&[64], Pace::Burst) };
    let result = run(&forced, direct(&socket));
    let cell = &result.cells[0];
    let refused: u64 = cell.failures.iter().filter(|f| f.cause.starts_with("53300 at ")).map(|f| f.count).sum();
    let round = &cell.rounds[0];
    assert!(round.failed >= 24 && round.ready >= 10, "{cell:?}");
    assert_eq!(round.ready + round.failed, 64);
    assert_eq!(refused, cell.rounds.iter().map(|r| u64::from(r.failed)).sum::<u64>(), "{:?}", cell.failures);
    assert!(result.growth.is_empty(), "a round with failures has no T(N)");
    // Left to itself it does not try.
    let result = run(&options(&[16, 64], WINDOW), direct(&socket));
    assert_eq!(result.cells.len(), 1, "{:?}", result.notes);
    assert!(result.notes.iter().any(|n| n.starts_with("not measured directly: 64 clients")), "{:?}", result.notes);
}

#[test]
fn orders_of_disconnecting() {
    let server = Server::builder().start().expect("a server");
    let socket = server.socket_conninfo("postgres", "postgres");
    for disconnect in [DisconnectOrder::Lifo, DisconnectOrder::Random] {
        let result = run(&Options { disconnect, seed: 7, ..options(&[64], WINDOW) }, direct(&socket));
        assert_eq!(result.cells[0].failures, []);
        assert_eq!(result.cells[0].rounds.len(), 2);
        assert_eq!(
            server
                .psql("postgres", "select count(*) from pg_stat_activity where backend_type = 'client backend'")
                .expect("asked"),
            "1"
        );
    }
}

/// A server that accepts slowly behind a backlog of one: connect() on a Unix socket says "try again".
#[test]
fn a_full_backlog_of_a_unix_socket_is_tried_again() {
    use std::io::{Read, Write};
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(".s.PGSQL.5432");
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).expect("a socket");
    socket.bind(&socket2::SockAddr::unix(&path).expect("an address")).expect("bound");
    socket.listen(1).expect("listening");
    let listener = UnixListener::from(socket);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            thread::spawn(move || {
                let mut startup = [0; 4096];
                let _ = stream.read(&mut startup);
                // AuthenticationOk, ReadyForQuery.
                let _ = stream.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I");
                let _ = stream.read(&mut startup);
            });
            thread::sleep(Duration::from_millis(3));
        }
    });
    let conninfo = format!("host={} dbname=x user=x", folder.path().display());
    let result = run(
        &Options { rounds: 1, settle: Duration::from_secs(5), ..options(&[64], Pace::Burst) },
        direct(&conninfo).into_iter().map(|t| Target { side: Side::Managed, ..t }).collect(),
    );
    let round = &result.cells[0].rounds[0];
    assert_eq!((round.ready, round.failed), (64, 0), "{:?}", result.cells[0].failures);
    assert!(round.retries > 0, "{round:?}");
}

#[test]
fn a_server_that_dies_in_mid_run_leaves_what_there_was() {
    let mut server = Server::builder().start().expect("a server");
    let socket = server.socket_conninfo("postgres", "postgres");
    let options = Options {
        rounds: 200,
        timeout: Duration::from_secs(5),
        settle: Duration::from_secs(5),
        ..options(&[32], WINDOW)
    };
    let stop = Arc::new(AtomicBool::new(false));
    let running = {
        let stop = Arc::clone(&stop);
        thread::spawn(move || storm::run(&options, direct(&socket), &stop, &mut |_| {}).expect("a result"))
    };
    thread::sleep(Duration::from_millis(1500));
    server.stop(StopMode::Immediate).expect("stopped");
    thread::sleep(Duration::from_millis(1000));
    stop.store(true, Ordering::Relaxed);
    let begun = Instant::now();
    let result = running.join().expect("no panic");
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert!(result.interrupted);
    let cell = &result.cells[0];
    assert!(!cell.failures.is_empty(), "{:?}", result.notes);
    assert!(cell.rounds.iter().any(|r| r.ready == 32) || cell.rounds[0].ready > 0, "{cell:?}");
    assert!(cell.rounds.iter().any(|r| r.failed > 0), "{cell:?}");
}

#[test]
fn an_interrupted_run_gives_what_there_is() {
    let server = Server::builder().start().expect("a server");
    let stop = Arc::new(AtomicBool::new(false));
    let later = Arc::clone(&stop);
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(700));
        later.store(true, Ordering::Relaxed);
    });
    let socket = server.socket_conninfo("postgres", "postgres");
    let options = Options { rounds: 3, ..options(&[64], Pace::Rate { per_second: 4.0 }) };
    let begun = Instant::now();
    let result = storm::run(&options, direct(&socket), &stop, &mut |_| {}).expect("a result");
    assert!(begun.elapsed() < Duration::from_secs(12));
    assert!(result.interrupted);
    let round = &result.cells[0].rounds[0];
    assert!(round.ready >= 1 && round.unfinished > 0, "{round:?}");
    assert_eq!(round.ready + round.failed + round.unfinished, 64);
}

#[test]
fn a_report_comes_back_from_json() {
    let server = Server::builder().start().expect("a server");
    let result = run(
        &Options { rounds: 3, ..options(&[16, 32, 64], WINDOW) },
        direct(&server.socket_conninfo("postgres", "postgres")),
    );
    assert_eq!(result.growth.len(), 2, "first and later rounds");
    assert!(result.growth.iter().all(|g| g.growth.as_ref().is_some_and(|g| g.sizes() == 3)));
    let mut report = Report::new("test", Environment::here());
    report.storm = Some(result);
    assert_eq!(report.experiments().len(), 1);
    let text = serde_json::to_string(&report).expect("json");
    for key in ["\"total_us\"", "\"alpha_us\"", "\"backend_cpu_us\"", "\"disconnect_us\"", "\"verdict\""] {
        assert!(text.contains(key), "{key}");
    }
    let back: Report = serde_json::from_str(&text).expect("back");
    assert_eq!(back.experiments()[0].exhibits().len(), report.experiments()[0].exhibits().len());
}

#[test]
fn nobody_there_is_said_at_once() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
    let targets = direct(&format!("host=127.0.0.1 port={port} dbname=x user=x sslmode=disable"));
    let error = storm::run(&options(&[8], WINDOW), targets, &AtomicBool::new(false), &mut |_| {}).expect_err("nobody");
    assert!(error.to_string().starts_with("direct: connection to 127.0.0.1"), "{error}");
}
