//! TLS with clients and with the server: each alone and both, certificates that are wrong, channel binding, negotiation in all
//! its ways, cancel requests, much data in both directions.

#[path = "support/secure.rs"]
mod secure;
mod support;

use pgusher_client::conninfo::{Environment, Params};
use pgusher_client::{Connection, Connector, Error};
use pgusher_manager::Manager;
use pgusher_manager::tls::{ClientTlsMode, ClientTlsOptions};
use rustls::HandshakeKind;
use secure::{Secure, client_config, client_tls, conninfo, door, file, manager, world};
use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use support::{Client, Ended, PATIENCE, eventually, port, program_env, query, server};

/// Runs a program that must see the right certificate.
fn verified(manager: &Manager, name: &str, args: &[&str], more: &[(&str, &str)]) -> Ended {
    let ca = file("ca").display().to_string();
    let mut env = vec![("PGHOST", "localhost"), ("PGHOSTADDR", "127.0.0.1"), ("PGUSER", "postgres")];
    env.extend([("PGSSLMODE", "verify-full"), ("PGSSLROOTCERT", ca.as_str())]);
    env.extend_from_slice(more);
    program_env(manager, name, "postgres", args, &env)
}

fn sql(manager: &Manager, sql: &str, more: &[(&str, &str)]) -> Ended {
    verified(manager, "psql", &["-XAtqc", sql], more)
}

/// Our own client, which knows direct negotiation.
fn connect(manager: &Manager, more: &str) -> Result<Connection, Error> {
    let ca = file("ca").display().to_string();
    let text = conninfo(port(manager).parse().unwrap(), &format!("sslrootcert={ca} {more}"));
    let config = pgusher_client::Config::resolve(Params::parse(&text).unwrap(), &Environment::empty())?;
    Ok(Connector::new(&config)?.timeout(Some(PATIENCE)).connect()?.0)
}

fn to_tls_server(more: &str) -> String {
    conninfo(world().server.port(), &format!("sslrootcert={} {more}", file("ca").display()))
}

fn to_plain_server() -> String {
    conninfo(server().port(), "sslmode=disable")
}

const SEEN: &str = "select ssl::text from pg_stat_ssl where pid = pg_backend_pid()";

#[test]
fn each_leg_alone_and_both() {
    for (clients, servers, workers) in [(true, false, 1), (false, true, 1), (true, true, 1), (true, true, 2)] {
        let to = if servers { to_tls_server("sslmode=verify-full") } else { to_plain_server() };
        let options = if clients { client_tls(ClientTlsMode::Require, "good") } else { ClientTlsOptions::default() };
        let manager = manager(&to, workers, 2, options, "");
        let plain = [("PGSSLMODE", "disable")];
        let env: &[(&str, &str)] = if clients { &[] } else { &plain };
        let seen = sql(&manager, SEEN, env);
        assert_eq!(seen.out.trim(), servers.to_string(), "{}", seen.err);
        let shown = verified(&manager, "psql", &["-Xc", "\\conninfo"], env);
        assert_eq!(shown.out.contains("SSL connection (protocol: TLSv1.3"), clients, "{}", shown.out);
        assert!(verified(&manager, "pgbench", &["-qi", "-s", "1"], env).ok);
        for args in [&["-nS", "-c", "6", "-t", "200"][..], &["-nSC", "-c", "4", "-t", "20"]] {
            let ran = verified(&manager, "pgbench", args, env);
            assert!(ran.ok && ran.err.is_empty(), "{args:?}: {}", ran.err);
        }
    }
}

#[test]
fn copy_of_50_mb_both_ways() {
    let manager = manager(&to_tls_server("sslmode=require"), 2, 2, client_tls(ClientTlsMode::Require, "good"), "");
    let out = file("copied").display().to_string();
    let fifty = "select i, md5(i::text), repeat('x', 460) from generate_series(1, 105000) i";
    let ran = verified(&manager, "psql", &["-Xqc", &format!("\\copy ({fifty}) to '{out}'")], &[]);
    assert!(ran.ok, "{}", ran.err);
    assert!(std::fs::metadata(&out).unwrap().len() > 50_000_000);
    let ran = sql(&manager, "create table copied (i int, m text, x text)", &[]);
    assert!(ran.ok, "{}", ran.err);
    let ran = verified(&manager, "psql", &["-Xqc", &format!("\\copy copied from '{out}'")], &[]);
    assert!(ran.ok, "{}", ran.err);
    let right = "select count(*) from copied where m = md5(i::text) and x = repeat('x', 460)";
    assert_eq!(sql(&manager, right, &[]).out.trim(), "105000");
    std::fs::remove_file(out).unwrap();
}

#[test]
fn logins_are_bound_to_the_channel() {
    let verifier =
        world().server.psql("postgres", "select rolpassword from pg_authid where rolname = 'u_scram'").unwrap();
    let users = format!("[users]\nu_scram = \"{verifier}\"");
    // pgusher knows no password: it logs in with the key that the client's proof yields, bound on both legs.
    let bound = manager(
        &to_tls_server("sslmode=verify-full channel_binding=require"),
        2,
        2,
        client_tls(ClientTlsMode::Allow, "good"),
        &users,
    );
    let right = [("PGUSER", "u_scram"), ("PGPASSWORD", "right"), ("PGCHANNELBINDING", "require")];
    assert_eq!(sql(&bound, SEEN, &right).out.trim(), "true");
    let wrong = [("PGUSER", "u_scram"), ("PGPASSWORD", "wrong"), ("PGCHANNELBINDING", "require")];
    assert!(sql(&bound, SEEN, &wrong).err.contains("password authentication failed"));
    let nobody = [("PGUSER", "nobody"), ("PGPASSWORD", "wrong"), ("PGCHANNELBINDING", "require")];
    assert!(sql(&bound, SEEN, &nobody).err.contains("password authentication failed"));
    let mut plain = right.to_vec();
    plain.push(("PGSSLMODE", "disable"));
    assert!(sql(&bound, SEEN, &plain).err.contains("channel binding"));
    plain[2].1 = "disable";
    assert_eq!(sql(&bound, SEEN, &plain).out.trim(), "true");

    // A server that asks for no proof at all is not bound.
    let unbound =
        manager(&to_tls_server("sslmode=require channel_binding=require"), 1, 2, ClientTlsOptions::default(), "");
    let refused = sql(&unbound, SEEN, &[("PGSSLMODE", "disable")]);
    assert!(refused.err.contains("channel binding"), "{}", refused.err);
}

#[test]
fn as_the_server_asks_over_tls() {
    let overrides = pgusher_manager::Overrides {
        auth: Some(pgusher_manager::AuthMethod::Server),
        client_tls: client_tls(ClientTlsMode::Require, "good"),
        ..support::overrides(1, 2)
    };
    let to = to_tls_server("sslmode=verify-full");
    let manager = Manager::start(pgusher_manager::Config::from_conninfo(&to, &overrides).unwrap()).unwrap();
    for _ in 0..2 {
        assert_eq!(sql(&manager, SEEN, &[("PGUSER", "u_scram"), ("PGPASSWORD", "right")]).out.trim(), "true");
        assert_eq!(sql(&manager, SEEN, &[("PGUSER", "u_only_tls")]).out.trim(), "true");
    }
    assert!(sql(&manager, SEEN, &[("PGUSER", "u_scram"), ("PGPASSWORD", "wrong")]).err.contains("password"));
    assert!(sql(&manager, SEEN, &[("PGUSER", "u_only_plain")]).err.contains("pg_hba.conf"));
}

#[test]
fn certificates_that_are_wrong() {
    // The server's.
    let other = file("other_ca").display().to_string();
    let expired = door(server().port(), "expired", false);
    let ca = file("ca").display().to_string();
    let disable = [("PGSSLMODE", "disable")];
    for (to, part) in [
        (to_tls_server(&format!("sslmode=verify-ca sslrootcert={other}")), "UnknownIssuer"),
        (to_tls_server("sslmode=verify-full").replace("host=localhost", "host=127.0.0.1"), "not valid for name"),
        (conninfo(expired.port, &format!("sslmode=verify-ca sslrootcert={ca}")), "expired"),
        (conninfo(server().port(), &format!("sslmode=verify-full sslrootcert={ca}")), "does not support TLS"),
    ] {
        let manager = manager(&to, 1, 2, ClientTlsOptions::default(), "");
        let refused = sql(&manager, "select 1", &disable);
        assert!(!refused.ok && refused.err.contains("cannot speak TLS"), "{to}: {}", refused.err);
        assert!(refused.err.contains(part), "{to}: {}", refused.err);
    }
    // Encrypted but not verified, as libpq's require without a root certificate.
    let manager_of_expired = manager(
        &conninfo(expired.port, "sslmode=require sslrootcert=/does/not/exist"),
        1,
        2,
        ClientTlsOptions::default(),
        "",
    );
    assert!(sql(&manager_of_expired, "select 1", &disable).ok);

    // Ours.
    for (certificate, root, part) in
        [("expired", "ca", "certificate has expired"), ("good", "other_ca", "certificate verify failed")]
    {
        let manager = manager(&to_plain_server(), 1, 2, client_tls(ClientTlsMode::Allow, certificate), "");
        let root = file(root).display().to_string();
        let refused = sql(&manager, "select 1", &[("PGSSLROOTCERT", &root)]);
        assert!(
            !refused.ok && (refused.err.contains(part) || refused.err.contains("certificate verify failed")),
            "{}",
            refused.err
        );
        assert!(sql(&manager, "select 1", &[("PGSSLMODE", "require"), ("PGSSLROOTCERT", "/none")]).ok);
    }

    // The client's.
    let mut options = client_tls(ClientTlsMode::VerifyCa, "good");
    options.ca_file = Some(file("ca"));
    let manager = manager(&to_plain_server(), 1, 2, options, "");
    let (cert, key) = (file("person.crt").display().to_string(), file("person.key").display().to_string());
    assert!(sql(&manager, "select 1", &[("PGSSLCERT", &cert), ("PGSSLKEY", &key)]).ok);
    let refused = sql(&manager, "select 1", &[("PGSSLCERT", "/none")]);
    assert!(!refused.ok && refused.err.contains("certificate"), "{}", refused.err);
}

#[test]
fn tls_can_be_asked_for_and_demanded() {
    let demanding = manager(&to_plain_server(), 1, 2, client_tls(ClientTlsMode::Require, "good"), "");
    let refused = sql(&demanding, "select 1", &[("PGSSLMODE", "disable")]);
    assert!(
        refused.err.contains("encrypted connections only") && refused.err.contains("sslmode=require"),
        "{}",
        refused.err
    );
    let refused = Client::login(&demanding, &[("user", "postgres"), ("database", "postgres")]).err().unwrap();
    assert_eq!(refused.state(), "28000");
    assert!(sql(&demanding, "select 1", &[("PGSSLMODE", "prefer"), ("PGGSSENCMODE", "prefer")]).ok);

    let without = manager(&to_plain_server(), 1, 2, ClientTlsOptions::default(), "");
    assert!(sql(&without, "select 1", &[("PGSSLMODE", "require")]).err.contains("does not support SSL"));
    assert!(sql(&without, "select 1", &[("PGSSLMODE", "prefer")]).ok);

    // Encryption by GSSAPI is declined, and TLS may be asked for then.
    let mut client = Client::raw(&demanding);
    let mut packet = Vec::new();
    pgusher_wire::startup::write_gssenc_request(&mut packet);
    client.send(&packet);
    let mut answer = [0];
    client.stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"N");
    client.send(&pgusher_wire::startup::SSL_REQUEST_BYTES);
    client.stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"S");
}

#[test]
fn plaintext_behind_the_question_is_refused() {
    let manager = manager(&to_plain_server(), 1, 2, client_tls(ClientTlsMode::Allow, "good"), "");
    let mut startup = Vec::new();
    let parameters: [(&[u8], &[u8]); 1] = [(b"user", b"postgres")];
    pgusher_wire::startup::write_startup(&mut startup, pgusher_wire::startup::Version::V3_0, parameters);
    // In one piece with the question, and behind it.
    for pieces in [true, false] {
        let mut client = Client::raw(&manager);
        let question = pgusher_wire::startup::SSL_REQUEST_BYTES;
        if pieces {
            client.send(&question);
            let mut answer = [0];
            client.stream.read_exact(&mut answer).unwrap();
            client.send(&startup);
        } else {
            client.send(&[&question[..], &startup[..]].concat());
        }
        let mut rest = Vec::new();
        // A reset is an end as well.
        let _ = client.stream.read_to_end(&mut rest);
        // At most an alert: nothing of PostgreSQL's protocol.
        assert!(rest.is_empty() || rest[0] == 0x15, "{rest:?}");
    }
    assert!(sql(&manager, "select 1", &[]).ok);
}

#[test]
fn direct_negotiation() {
    // With clients.
    let manager_of_clients = manager(&to_plain_server(), 1, 2, client_tls(ClientTlsMode::Require, "good"), "");
    let mut connection = connect(&manager_of_clients, "sslmode=verify-full sslnegotiation=direct").unwrap();
    assert!(connection.tls().is_some());
    assert!(connection.simple_query("select 1").unwrap().into_result().is_ok());
    let mut secure = Secure::connect(&manager_of_clients, &client_config(true), true);
    secure.startup("postgres");
    secure.until_ready();
    // Without the protocol's name nothing is said.
    let mut nameless = Secure::connect(&manager_of_clients, &client_config(false), true);
    nameless.startup("postgres");
    assert!(nameless.stream.read(&mut [0]).map_or(true, |n| n == 0));
    // With the question, the name is not needed.
    let mut asked = Secure::connect(&manager_of_clients, &client_config(false), false);
    asked.startup("postgres");
    asked.until_ready();

    // With the server.
    let door = door(server().port(), "good", true);
    let ca = file("ca").display().to_string();
    let to = conninfo(door.port, &format!("sslmode=verify-full sslnegotiation=direct sslrootcert={ca}"));
    let manager = manager(&to, 1, 2, ClientTlsOptions::default(), "");
    let mut client = Client::new(&manager, "postgres");
    assert_eq!(client.query("select 'through'").value(), "through");
    let before = door.entered.load(Ordering::SeqCst);
    // A cancel request comes through the same door.
    let begun = Instant::now();
    client.start("select pg_sleep(15)");
    std::thread::sleep(Duration::from_millis(300));
    cancel(&mut std::net::TcpStream::connect(&manager.addresses()[0]).unwrap(), &client.key);
    assert_eq!(client.reply().state(), "57014");
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(door.entered.load(Ordering::SeqCst), before + 1);
}

fn cancel(stream: &mut impl ReadWrite, key: &[u8]) {
    let mut packet = Vec::new();
    pgusher_wire::startup::write_cancel(&mut packet, u32::from_be_bytes([key[0], key[1], key[2], key[3]]), &key[4..]);
    stream.write_all(&packet).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

#[test]
fn cancel_requests() {
    for workers in [1, 2] {
        let manager =
            manager(&to_tls_server("sslmode=require"), workers, 2, client_tls(ClientTlsMode::Require, "good"), "");
        let config = client_config(false);
        // Through TLS as libpq 17 sends them, and in the clear as all before did.
        for encrypted in [true, false] {
            let mut secure = Secure::connect(&manager, &config, false);
            secure.startup("postgres");
            let key = secure.until_ready().into_iter().find(|(tag, _)| *tag == b'K').unwrap().1;
            let begun = Instant::now();
            secure.stream.write_all(&query("select pg_sleep(15)")).unwrap();
            std::thread::sleep(Duration::from_millis(300));
            if encrypted {
                cancel(&mut Secure::connect(&manager, &config, false).stream, &key);
            } else {
                cancel(&mut std::net::TcpStream::connect(&manager.addresses()[0]).unwrap(), &key);
            }
            let reply = secure.until_ready();
            let error = reply.iter().find(|(tag, _)| *tag == b'E').expect("an error");
            assert!(String::from_utf8_lossy(&error.1).contains("57014"));
            assert!(begun.elapsed() < Duration::from_secs(10));
        }
    }
}

#[test]
fn prefer_and_allow_try_both() {
    for (mode, user, encrypted) in [
        ("prefer", "postgres", "true"),
        ("prefer", "u_only_plain", "false"),
        ("allow", "postgres", "false"),
        ("allow", "u_only_tls", "true"),
    ] {
        let manager = manager(&to_tls_server(&format!("sslmode={mode}")), 1, 2, ClientTlsOptions::default(), "");
        let seen = sql(&manager, SEEN, &[("PGSSLMODE", "disable"), ("PGUSER", user)]);
        assert_eq!(seen.out.trim(), encrypted, "{mode} {user}: {}", seen.err);
    }
    for (mode, user) in [("require", "u_only_plain"), ("disable", "u_only_tls")] {
        let manager = manager(&to_tls_server(&format!("sslmode={mode}")), 1, 2, ClientTlsOptions::default(), "");
        let refused = sql(&manager, SEEN, &[("PGSSLMODE", "disable"), ("PGUSER", user)]);
        assert!(refused.err.contains("pg_hba.conf"), "{mode} {user}: {}", refused.err);
    }
    // A server without TLS; and one whose TLS fails.
    let without = manager(&conninfo(server().port(), "sslmode=prefer"), 1, 2, ClientTlsOptions::default(), "");
    assert!(sql(&without, "select 1", &[("PGSSLMODE", "disable")]).ok);
    let other = file("other_ca").display().to_string();
    let failing =
        manager(&to_tls_server(&format!("sslmode=prefer sslrootcert={other}")), 1, 2, ClientTlsOptions::default(), "");
    assert_eq!(sql(&failing, SEEN, &[("PGSSLMODE", "disable")]).out.trim(), "false");
}

#[test]
fn sessions_resume_and_end_politely() {
    let manager = manager(&to_plain_server(), 2, 2, client_tls(ClientTlsMode::Allow, "good"), "");
    let config = client_config(true);
    for expected in [HandshakeKind::Full, HandshakeKind::Resumed] {
        let mut secure = Secure::connect(&manager, &config, false);
        secure.startup("postgres");
        secure.until_ready();
        assert_eq!(secure.stream.conn.handshake_kind(), Some(expected));
        secure.stream.write_all(&pgusher_wire::frontend::TERMINATE_BYTES).unwrap();
        // An end without close_notify would be an error here.
        assert!(secure.message().is_none());
    }
    // A client that ends without a word leaves its connection to the next.
    for polite in [true, false] {
        let mut secure = Secure::connect(&manager, &config, false);
        secure.startup("postgres");
        secure.until_ready();
        secure.stream.write_all(&query("begin")).unwrap();
        secure.until_ready();
        if polite {
            secure.stream.conn.send_close_notify();
            secure.stream.conn.write_tls(&mut secure.stream.sock).unwrap();
            assert!(secure.message().is_none());
        }
    }
    eventually(Duration::from_secs(10), "both physical connections are free again", || {
        sql(&manager, "select 1", &[]).ok && support::backends("postgres", "state = 'idle in transaction'") == 0
    });
}

/// Both sides write as much as they can: a client that sends its whole pipeline before it reads, and the replies of it, which are
/// more than all buffers on the way hold.
#[test]
fn much_in_both_directions_at_once() {
    let manager = manager(&to_tls_server("sslmode=require"), 2, 1, client_tls(ClientTlsMode::Require, "good"), "");
    let Secure { stream } = {
        let mut secure = Secure::connect(&manager, &client_config(true), false);
        secure.startup("postgres");
        secure.until_ready();
        secure
    };
    let (mut tls, mut socket) = stream.into_parts();
    socket.set_nonblocking(true).unwrap();
    tls.set_buffer_limit(Some(256 * 1024));
    let statement = query(&format!("select '{}', repeat('y', 100000)", "x".repeat(100_000)));
    let count = 300;
    let total = statement.repeat(count);
    let (mut sent, mut received, mut ready) = (0, Vec::new(), 0);
    let end = Instant::now() + 3 * PATIENCE;
    let mut volume = 0;
    while ready < count {
        assert!(Instant::now() < end, "stuck after {sent} of {} bytes and {ready} replies", total.len());
        let mut idle = true;
        let taken = tls.writer().write(&total[sent..]).unwrap();
        sent += taken;
        match tls.write_tls(&mut socket) {
            Ok(n) => idle &= n == 0,
            Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
        }
        // Reads only when it can write no more, as a client that fills a pipeline does.
        if idle {
            match tls.read_tls(&mut socket) {
                Ok(0) => panic!("closed"),
                Ok(_) => {
                    tls.process_new_packets().unwrap();
                    let _ = tls.reader().read_to_end(&mut received);
                }
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::WouldBlock);
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        let mut at = 0;
        while let Some(head) = received.get(at..at + 5) {
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize + 1;
            if received.len() < at + length {
                break;
            }
            assert_ne!(head[0], b'E');
            ready += usize::from(head[0] == b'Z');
            at += length;
        }
        volume += at;
        received.drain(..at);
    }
    assert!(sent == total.len() && volume > count * 200_000);
}

/// One physical connection, which goes from worker to worker with its TLS.
#[test]
fn a_connection_moves_between_workers() {
    let manager = manager(&to_tls_server("sslmode=verify-full"), 4, 1, client_tls(ClientTlsMode::Require, "good"), "");
    let config = client_config(true);
    let pids: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..12)
            .map(|_| {
                scope.spawn(|| {
                    let mut secure = Secure::connect(&manager, &config, false);
                    secure.startup("postgres");
                    secure.until_ready();
                    let mut pid = Vec::new();
                    for _ in 0..100 {
                        secure.stream.write_all(&query("select pg_backend_pid(), repeat('z', 3000)")).unwrap();
                        let reply = secure.until_ready();
                        pid = reply.iter().find(|(tag, _)| *tag == b'D').unwrap().1[6..10].to_vec();
                    }
                    pid
                })
            })
            .collect();
        clients.into_iter().map(|c| c.join().unwrap()).collect()
    });
    assert!(pids.iter().all(|pid| *pid == pids[0]), "{pids:?}");
}
