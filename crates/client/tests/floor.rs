//! The floor of the measuring itself: a server played by a thread waits a known time in every phase of a login over TLS with
//! SCRAM and of statements over it, and the same times must come back within 5 % or 20 us.
//!
//! The server notes when it had received something and when it answered; what it cannot see, the way there and back and the
//! wake-up of either thread, is what the tool adds by itself. A busy machine adds more to some tries, so the median of
//! several counts, and each phase has several chances; an error of the method would be in all of them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pgusher_auth::{Mechanism, Password, RAW_NONCE_LEN, ServerExchange, Verifier};
use pgusher_client::conninfo::{Environment, Params};
use pgusher_client::{Config, Connector, Phases};
use pgusher_wire::startup::SSL_REQUEST_BYTES;
use pgusher_wire::{TxStatus, backend, frontend};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// What the server waits, in the order of the connection. All different, so that no two can be mistaken for each other.
const QUEUE: Duration = Duration::from_millis(17);
const TLS: Duration = Duration::from_millis(37);
const STARTUP: Duration = Duration::from_millis(13);
const ROUND: Duration = Duration::from_millis(23);
const READY: Duration = Duration::from_millis(29);
const PARSE: Duration = Duration::from_millis(11);
const BIND: Duration = Duration::from_millis(19);
const FIRST_ROW: Duration = Duration::from_millis(15);
const LAST_ROW: Duration = Duration::from_millis(21);
const FINISH: Duration = Duration::from_millis(14);
const EXIT: Duration = Duration::from_millis(31);

const NAMES: [&str; 12] = [
    "queue+fork",
    "tls",
    "startup",
    "authenticate",
    "ready",
    "parse",
    "bind",
    "first byte",
    "last row",
    "statement",
    "disconnect",
    "total",
];

/// Connections whose median counts, and how often such a series may be repeated.
const CONNECTIONS: usize = 7;
const SERIES: usize = 20;

/// Times by phase, in the order of [`NAMES`].
type Times = Vec<Duration>;

#[test]
fn what_the_server_waits_comes_back_in_every_phase() {
    let identity = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(identity.signing_key.serialize_der().into());
    let tls = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![identity.cert.der().clone()], key)
        .unwrap();
    let tls = Arc::new(tls);
    let mut open: Vec<&str> = NAMES.to_vec();
    let mut last = Vec::new();
    for _ in 0..SERIES {
        let tries: Vec<(Times, Times)> = (0..CONNECTIONS).map(|_| one_connection(&tls)).collect();
        last = (0..NAMES.len()).map(|phase| judged(&tries, phase)).collect();
        open.retain(|name| last.iter().any(|(of, close, _)| of == name && !close));
        if open.is_empty() {
            // To be read with --nocapture.
            last.iter().for_each(|(_, _, text)| println!("{text}"));
            return;
        }
    }
    let told: Vec<&String> = last.iter().filter(|(name, _, _)| open.contains(name)).map(|(_, _, text)| text).collect();
    panic!("never within 5 % or 20 us: {told:?}");
}

/// Whether the median of the differences of a phase is small enough, and in words.
fn judged(tries: &[(Times, Times)], phase: usize) -> (&'static str, bool, String) {
    let mut differences: Vec<f64> =
        tries.iter().map(|(measured, waited)| us(measured[phase]) - us(waited[phase])).collect();
    differences.sort_unstable_by(f64::total_cmp);
    let (difference, waited) = (differences[differences.len() / 2], us(tries[0].1[phase]));
    let text = format!("{}: waited {waited:.0} us, measured {difference:+.0} us", NAMES[phase]);
    (NAMES[phase], difference.abs() <= (waited * 0.05).max(20.0), text)
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// What was measured, and what the server really waited.
fn one_connection(tls: &Arc<ServerConfig>) -> (Times, Times) {
    let (port, thread) = server(Arc::clone(tls));
    let text = format!("host=127.0.0.1 port={port} user=u password=pw sslmode=require");
    let config = Config::resolve(Params::parse(&text).unwrap(), &Environment::empty()).unwrap();
    let connector = Connector::new(&config).unwrap().timeout(Some(Duration::from_secs(20)));
    let (mut connection, attempts) = connector.connect().unwrap();
    assert!(connection.tls().is_some());
    assert_eq!(connection.auth_method(), "scram-sha-256");
    let Phases { queue_fork, tls, startup, authenticate, ready, client_crypto, connect, total, .. } = attempts.phases();
    // Our own cryptography is a phase of its own, in none of the others, and the kernel's connect() waits for nobody.
    let (crypto, connect) = (client_crypto.unwrap(), connect.unwrap());
    let parse = connection.parse_describe_sync("", "select 1").unwrap();
    let bind = connection.bind_execute_sync("", &[]).unwrap();
    let simple = connection.simple_query("select 1").unwrap();
    let disconnect = connection.terminate().unwrap();
    let mut waited = thread.join().unwrap();
    // Nothing is lost between the phases: the whole is what the server waited and what we did ourselves.
    waited.push(waited.iter().take(5).sum::<Duration>() + crypto + connect);
    let measured = vec![
        queue_fork.unwrap(),
        tls.unwrap(),
        startup.unwrap(),
        authenticate.unwrap(),
        ready.unwrap(),
        parse.ready,
        bind.ready,
        simple.first_byte,
        simple.last_row.unwrap(),
        simple.ready,
        disconnect,
        total,
    ];
    (measured, waited)
}

/// Plays one connection. Gives what it waited, without the total.
fn server(tls: Arc<ServerConfig>) -> (u16, JoinHandle<Times>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let verifier = Verifier::from_password(&Password::new("pw"), b"0123456789abcdef", 4096).unwrap();
    let thread = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut waited = Vec::new();
        assert_eq!(startup_packet(&mut stream), SSL_REQUEST_BYTES);
        waited.push(answer(&mut stream, Instant::now(), QUEUE, b"S"));
        let mut secured = handshake(stream, tls, &mut waited);
        startup_packet(&mut secured);
        login(&mut secured, verifier, &mut waited);
        statements(&mut secured, &mut waited);
        assert_eq!(message(&mut secured).0, b'X');
        let received = Instant::now();
        thread::sleep(EXIT);
        waited.push(received.elapsed());
        waited
    });
    (port, thread)
}

/// Answers once `wait` is over since something was `received`. Gives what it really waited.
fn answer(stream: &mut impl Write, received: Instant, wait: Duration, bytes: &[u8]) -> Duration {
    thread::sleep((received + wait).saturating_duration_since(Instant::now()));
    let waited = received.elapsed();
    stream.write_all(bytes).unwrap();
    stream.flush().unwrap();
    waited
}

type Secured = StreamOwned<ServerConnection, TcpStream>;

/// The flight that answers the client's first one waits. Our cryptography happens within that time.
fn handshake(mut stream: TcpStream, tls: Arc<ServerConfig>, waited: &mut Times) -> Secured {
    let mut connection = ServerConnection::new(tls).unwrap();
    let mut received = Instant::now();
    while !connection.wants_write() {
        assert!(connection.read_tls(&mut stream).unwrap() > 0);
        received = Instant::now();
        connection.process_new_packets().unwrap();
    }
    thread::sleep((received + TLS).saturating_duration_since(Instant::now()));
    waited.push(received.elapsed());
    while connection.wants_write() {
        connection.write_tls(&mut stream).unwrap();
    }
    while connection.is_handshaking() {
        assert!(connection.read_tls(&mut stream).unwrap() > 0);
        connection.process_new_packets().unwrap();
    }
    StreamOwned::new(connection, stream)
}

fn login(stream: &mut Secured, verifier: Verifier, waited: &mut Times) {
    let received = Instant::now();
    let mut out = Vec::new();
    backend::write_authentication_sasl(&mut out, &["SCRAM-SHA-256"]);
    waited.push(answer(stream, received, STARTUP, &out));

    let (_, body) = message(stream);
    let received = Instant::now();
    let mut exchange = ServerExchange::new(verifier, None, &[7; RAW_NONCE_LEN]);
    let (_, first) = frontend::parse_sasl_initial(&body).unwrap();
    let server_first = exchange.on_client_first(Mechanism::ScramSha256, first.unwrap()).unwrap();
    let mut out = Vec::new();
    backend::write_authentication_sasl_continue(&mut out, &server_first);
    waited.push(answer(stream, received, ROUND, &out));

    let (_, client_final) = message(stream);
    let received = Instant::now();
    let accepted = exchange.on_client_final(&client_final).unwrap();
    let mut out = Vec::new();
    backend::write_authentication_sasl_final(&mut out, &accepted.server_final);
    backend::write_authentication_ok(&mut out);
    backend::write_parameter_status(&mut out, b"server_version", b"99.1");
    backend::write_backend_key_data(&mut out, 77, &[1, 2, 3, 4]);
    backend::write_ready_for_query(&mut out, TxStatus::Idle);
    waited.push(answer(stream, received, READY, &out));
}

/// Parse + Describe + Sync, Bind + Execute + Sync, and a simple query of two rows.
fn statements(stream: &mut Secured, waited: &mut Times) {
    const PARSED: &[u8] = b"1\0\0\0\x04t\0\0\0\x06\0\0n\0\0\0\x04Z\0\0\0\x05I";
    const ROW: &[u8] = b"D\0\0\0\x0b\0\x01\0\0\0\x01x";
    const DONE: &[u8] = b"C\0\0\0\rSELECT 1\0Z\0\0\0\x05I";
    while message(stream).0 != b'S' {}
    waited.push(answer(stream, Instant::now(), PARSE, PARSED));
    while message(stream).0 != b'S' {}
    let bound = [b"2\0\0\0\x04".as_slice(), DONE].concat();
    waited.push(answer(stream, Instant::now(), BIND, &bound));
    assert_eq!(message(stream).0, b'Q');
    let received = Instant::now();
    for (wait, bytes) in [(FIRST_ROW, ROW), (FIRST_ROW + LAST_ROW, ROW), (FIRST_ROW + LAST_ROW + FINISH, DONE)] {
        waited.push(answer(stream, received, wait, bytes));
    }
}

fn startup_packet(stream: &mut impl Read) -> Vec<u8> {
    let mut packet = vec![0; 4];
    stream.read_exact(&mut packet).unwrap();
    let length = u32::from_be_bytes([packet[0], packet[1], packet[2], packet[3]]) as usize;
    packet.resize(length, 0);
    stream.read_exact(&mut packet[4..]).unwrap();
    packet
}

fn message(stream: &mut impl Read) -> (u8, Vec<u8>) {
    let mut head = [0; 5];
    stream.read_exact(&mut head).unwrap();
    let mut body = vec![0; u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4];
    stream.read_exact(&mut body).unwrap();
    (head[0], body)
}
