//! A server played by a thread that waits a known time in each phase: the same times must come back.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pgusher_auth::{Mechanism, Password, RAW_NONCE_LEN, ServerExchange, Verifier};
use pgusher_client::conninfo::{Environment, Params};
use pgusher_client::{Attempts, Config, Connector, ErrorKind, Phase};
use pgusher_wire::startup::{SSL_REQUEST_BYTES, Startup};
use pgusher_wire::{Report, TxStatus};
use pgusher_wire::{backend, frontend};

const QUEUE: Duration = Duration::from_millis(90);
const STARTUP: Duration = Duration::from_millis(150);
const ROUND: Duration = Duration::from_millis(120);
const READY: Duration = Duration::from_millis(180);
const FIRST_ROW: Duration = Duration::from_millis(75);
const LAST_ROW: Duration = Duration::from_millis(105);
const FINISH: Duration = Duration::from_millis(60);
const EXIT: Duration = Duration::from_millis(135);

/// More than the server waited: what two threads need on a busy machine, and less than any of the waits, so that a phase
/// into which a neighbour slipped is seen.
const SLACK: Duration = Duration::from_millis(45);
const TRIES: usize = 40;

/// A phase that was measured, and how long the server let it wait.
type Timing = (&'static str, Option<Duration>, Duration);

/// A busy machine can make any phase of one try longer, and nothing can make it shorter. So no try may measure less than was
/// waited, and each phase must have been measured closely in some try: one that also counts its neighbour never is.
fn assert_measured(mut experiment: impl FnMut() -> Vec<Timing>) {
    let mut best: Vec<Timing> = Vec::new();
    for _ in 0..TRIES {
        let timings = experiment();
        for (i, (name, measured, waited)) in timings.into_iter().enumerate() {
            let measured = measured.unwrap_or_else(|| panic!("{name} was not measured"));
            assert!(measured + Duration::from_micros(100) >= waited, "{name}: {measured:?} is less than {waited:?}");
            match best.get_mut(i) {
                Some((_, least, _)) => *least = (*least).min(Some(measured)),
                None => best.push((name, Some(measured), waited)),
            }
        }
        if best.iter().all(|(_, least, waited)| *least <= Some(*waited + SLACK)) {
            return;
        }
    }
    panic!("measured is always more than was waited: {best:?}");
}

fn serve(play: impl FnOnce(TcpStream) + Send + 'static) -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        play(stream);
    });
    (port, thread)
}

fn connector(port: u16, more: &str) -> Connector {
    let text = format!("host=127.0.0.1 port={port} user=u password=pw {more}");
    let config = Config::resolve(Params::parse(&text).unwrap(), &Environment::empty()).unwrap();
    Connector::new(&config).unwrap().timeout(Some(Duration::from_secs(10)))
}

fn read_startup(stream: &mut TcpStream) -> Vec<u8> {
    let mut len = [0; 4];
    stream.read_exact(&mut len).unwrap();
    let mut packet = len.to_vec();
    packet.resize(u32::from_be_bytes(len) as usize, 0);
    stream.read_exact(&mut packet[4..]).unwrap();
    packet
}

fn read_message(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let mut head = [0; 5];
    stream.read_exact(&mut head).unwrap();
    let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4;
    let mut body = vec![0; len];
    stream.read_exact(&mut body).unwrap();
    (head[0], body)
}

fn ready(out: &mut Vec<u8>) {
    backend::write_parameter_status(out, b"server_version", b"99.1");
    backend::write_backend_key_data(out, 77, &[1, 2, 3, 4]);
    backend::write_ready_for_query(out, TxStatus::Idle);
}

fn refuse_tls(stream: &mut TcpStream, wait: Duration) {
    assert_eq!(read_startup(stream), SSL_REQUEST_BYTES);
    thread::sleep(wait);
    stream.write_all(b"N").unwrap();
}

#[test]
fn each_phase_of_a_scram_login_comes_back() {
    assert_measured(|| {
        let verifier = Verifier::from_password(&Password::new("pw"), b"0123456789abcdef", 4096).unwrap();
        let (port, thread) = serve(move |mut stream| {
            refuse_tls(&mut stream, QUEUE);
            let packet = read_startup(&mut stream);
            let (startup, _) = Startup::parse(&packet).unwrap().unwrap();
            let Startup::Session { parameters, .. } = startup else { panic!("no session") };
            assert_eq!(parameters.get("user"), Some(&b"u"[..]));
            thread::sleep(STARTUP);
            let mut out = Vec::new();
            backend::write_authentication_sasl(&mut out, &["SCRAM-SHA-256"]);
            stream.write_all(&out).unwrap();
            scram(&mut stream, verifier);
            let (tag, _) = read_message(&mut stream);
            assert_eq!(tag, b'X');
            thread::sleep(EXIT);
        });
        let (connection, attempts) = connector(port, "").connect().unwrap();
        let phases = attempts.phases();
        assert!(phases.client_crypto.unwrap() > Duration::from_micros(50) && phases.tls.is_none());
        let parts: Duration = phases.iter().map(|(_, time)| time).sum();
        assert!(parts <= phases.total && phases.total <= attempts.total, "{phases:?}");
        assert_eq!(connection.auth_method(), "scram-sha-256");
        assert_eq!((connection.backend_pid(), connection.parameter("server_version")), (77, Some("99.1")));
        let disconnect = connection.terminate().unwrap();
        thread.join().unwrap();
        vec![
            ("connect", phases.connect, Duration::ZERO),
            ("queue+fork", phases.queue_fork, QUEUE),
            ("startup", phases.startup, STARTUP),
            ("authenticate", phases.authenticate, ROUND),
            ("ready", phases.ready, READY),
            ("disconnect", Some(disconnect), EXIT),
        ]
    });
}

fn scram(stream: &mut TcpStream, verifier: Verifier) {
    let mut exchange = ServerExchange::new(verifier, None, &[7; RAW_NONCE_LEN]);
    let (tag, body) = read_message(stream);
    assert_eq!(tag, b'p');
    let (mechanism, first) = frontend::parse_sasl_initial(&body).unwrap();
    assert_eq!(mechanism, b"SCRAM-SHA-256");
    let server_first = exchange.on_client_first(Mechanism::ScramSha256, first.unwrap()).unwrap();
    thread::sleep(ROUND);
    let mut out = Vec::new();
    backend::write_authentication_sasl_continue(&mut out, &server_first);
    stream.write_all(&out).unwrap();
    let (_, client_final) = read_message(stream);
    let accepted = exchange.on_client_final(&client_final).unwrap();
    thread::sleep(READY);
    // As PostgreSQL does, all in one go.
    let mut out = Vec::new();
    backend::write_authentication_sasl_final(&mut out, &accepted.server_final);
    backend::write_authentication_ok(&mut out);
    ready(&mut out);
    stream.write_all(&out).unwrap();
}

#[test]
fn phases_of_a_statement() {
    assert_measured(|| {
        let (port, thread) = serve(|mut stream| {
            read_startup(&mut stream);
            let mut out = Vec::new();
            backend::write_authentication_ok(&mut out);
            ready(&mut out);
            stream.write_all(&out).unwrap();
            let (tag, _) = read_message(&mut stream);
            assert_eq!(tag, b'Q');
            let row = [b'D', 0, 0, 0, 11, 0, 1, 0, 0, 0, 1, b'x'];
            thread::sleep(FIRST_ROW);
            stream.write_all(&row).unwrap();
            thread::sleep(LAST_ROW);
            stream.write_all(&row).unwrap();
            thread::sleep(FINISH);
            let mut out = Vec::new();
            backend::write_command_complete(&mut out, b"SELECT 2");
            backend::write_ready_for_query(&mut out, TxStatus::Transaction);
            stream.write_all(&out).unwrap();
            let _ = read_message(&mut stream);
        });
        let (mut connection, attempts) = connector(port, "sslmode=disable").connect().unwrap();
        assert!(attempts.phases().queue_fork.is_none() && attempts.phases().authenticate.is_none());
        let reply = connection.simple_query("select").unwrap();
        assert_eq!((reply.rows, reply.row_bytes, reply.tag.as_deref()), (2, 14, Some("SELECT 2")));
        assert_eq!(connection.transaction_status(), TxStatus::Transaction);
        drop(connection);
        thread.join().unwrap();
        vec![
            ("first byte", Some(reply.first_byte), FIRST_ROW),
            ("last row", reply.last_row, FIRST_ROW + LAST_ROW),
            ("ready", Some(reply.ready), FIRST_ROW + LAST_ROW + FINISH),
        ]
    });
}

#[test]
fn the_fork_probe_works_without_tls() {
    assert_measured(|| {
        let (port, thread) = serve(|mut stream| {
            refuse_tls(&mut stream, QUEUE);
            read_startup(&mut stream);
            let mut out = Vec::new();
            backend::write_authentication_ok(&mut out);
            ready(&mut out);
            stream.write_all(&out).unwrap();
        });
        let (_, attempts) = connector(port, "sslmode=disable").fork_probe(true).connect().unwrap();
        thread.join().unwrap();
        vec![("queue+fork", attempts.phases().queue_fork, QUEUE)]
    });
}

#[test]
fn plaintext_behind_the_ssl_answer_is_refused() {
    let (port, thread) = serve(|mut stream| {
        read_startup(&mut stream);
        stream.write_all(b"SE\0\0\0\x05\0").unwrap();
        let _ = stream.read(&mut [0; 100]);
    });
    let error = connector(port, "sslmode=require").connect().err().unwrap();
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Protocol, Some(Phase::QueueFork)));
    assert!(error.to_string().contains("unencrypted data"), "{error}");
    thread.join().unwrap();
}

#[test]
fn a_server_that_is_silent_or_none_at_all_ends_in_an_error() {
    // Silent until the client has gone: an end of the connection would be another error.
    let (port, thread) = serve(|mut stream| {
        read_startup(&mut stream);
        let _ = stream.read(&mut [0; 100]);
    });
    let silent = connector(port, "sslmode=disable").timeout(Some(Duration::from_millis(300))).connect().err().unwrap();
    assert_eq!((silent.kind(), silent.phase()), (ErrorKind::Timeout, Some(Phase::Startup)));
    thread.join().unwrap();

    let (port, thread) = serve(|mut stream| while stream.read(&mut [0; 100]).is_ok_and(|n| n > 0) {});
    let began = std::time::Instant::now();
    let late = connector(port, "sslmode=disable connect_timeout=1").connect().err().unwrap();
    assert_eq!(late.kind(), ErrorKind::Timeout);
    // The connector's own limit is ten seconds.
    assert!((1..8).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    thread.join().unwrap();

    let (port, thread) = serve(|mut stream| {
        read_startup(&mut stream);
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    let http = connector(port, "sslmode=disable").connect().err().unwrap();
    assert!(matches!(http.kind(), ErrorKind::Protocol), "{http:?}");
    thread.join().unwrap();
}

#[test]
fn all_hosts_are_tried_and_all_failures_told() {
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let text = format!("host=127.0.0.1,127.0.0.1 port={},{} user=u sslmode=disable", free(), free());
    let config = Config::resolve(Params::parse(&text).unwrap(), &Environment::empty()).unwrap();
    let mut attempts = Attempts::default();
    let error = Connector::new(&config).unwrap().connect_traced(&mut attempts).err().unwrap();
    assert_eq!(attempts.iter().len(), 2);
    assert!(attempts.iter().all(|attempt| attempt.error.is_some()));
    let text = error.to_string();
    assert_eq!(text.lines().count(), 2, "{text}");
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Io, Some(Phase::Connect)));
    assert!(error.errno().is_some() && text.contains("is a server running"));
}

#[test]
fn errors_of_the_server_during_login_and_in_a_statement() {
    let (port, thread) = serve(|mut stream| {
        read_startup(&mut stream);
        stream.write_all(&Report::fatal("3D000", "no such database").to_bytes()).unwrap();
    });
    let error = connector(port, "sslmode=disable").connect().err().unwrap();
    assert_eq!((error.sqlstate(), error.phase()), (Some("3D000"), Some(Phase::Startup)));
    thread.join().unwrap();

    let (port, thread) = serve(|mut stream| {
        read_startup(&mut stream);
        let mut out = Vec::new();
        backend::write_authentication_ok(&mut out);
        ready(&mut out);
        stream.write_all(&out).unwrap();
        read_message(&mut stream);
        stream.write_all(&Report::fatal("57P01", "going down").to_bytes()).unwrap();
    });
    let (mut connection, _) = connector(port, "sslmode=disable").connect().unwrap();
    let error = connection.simple_query("select 1").unwrap_err();
    assert_eq!((error.sqlstate(), error.phase()), (Some("57P01"), Some(Phase::Statement)));
    assert!(!connection.is_usable());
    assert_eq!(connection.simple_query("select 1").unwrap_err().kind(), ErrorKind::Usage);
    thread.join().unwrap();
}
