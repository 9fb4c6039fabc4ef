//! Clients and servers that die, hostile bytes, limits: whoever is hit is told, all others go on, and the pool gets its size back.

mod support;

use pgusher_embedded::{Server, StopMode};
use pgusher_wire::frontend;
use std::io::Read;
use std::net::Shutdown;
use std::time::Duration;
use support::*;

#[test]
fn clients_that_die() {
    let db = database("dying");
    for workers in [1, 2] {
        let manager = manager(server(), workers, 2);
        let mut other = Client::new(&manager, db);
        other.query("drop table if exists d; create table d (id int)");
        for round in 0..4 {
            let new = || Client::new(&manager, db);
            let mut pipeline = new();
            pipeline.send(&[query("select pg_sleep(0.05)"), query("select 1"), batch("select 2")].concat());
            drop(pipeline);

            let mut transaction = new();
            transaction.query("begin; insert into d values (1)");
            drop(transaction);

            let mut holders = [new(), new()];
            for holder in &mut holders {
                holder.query("begin");
            }
            let mut waiting = new();
            waiting.start("insert into d values (2)");
            std::thread::sleep(Duration::from_millis(50));
            drop(waiting);
            std::thread::sleep(Duration::from_millis(50));
            for holder in &mut holders {
                assert_eq!(holder.query("commit").status, b'I');
            }

            let mut copying = new();
            copying.start("copy d from stdin");
            copying.until(b'G');
            let mut data = Vec::new();
            frontend::write_copy_data(&mut data, b"3\n");
            copying.send(&data);
            drop(copying);

            let mut half = new();
            half.send(&query("select 'half'")[..9]);
            half.stream.shutdown(Shutdown::Both).unwrap();

            eventually(Duration::from_secs(5), "no transaction is left open", || backends(db, "state <> 'idle'") == 0);
            assert!(backends(db, "backend_type = 'client backend'") <= 2);
            let mut both = [new(), new()];
            for client in &mut both {
                assert_eq!(client.query("begin").status, b'T');
            }
            for client in &mut both {
                assert_eq!(client.query("commit").status, b'I');
            }
            let count = other.query("select count(*) from d");
            assert_eq!(count.value(), "0", "round {round}");
        }
    }
}

#[test]
fn backends_that_are_terminated() {
    let db = database("terminated");
    for workers in [1, 2] {
        let manager = manager(server(), workers, 3);
        let mut victim = Client::new(&manager, db);
        let mut other = Client::new(&manager, db);
        other.query("begin");
        victim.start("select pg_sleep(15)");
        let terminate = |condition: &str| {
            let sql = format!(
                "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = '{db}' and {condition}"
            );
            server().psql("postgres", &sql).unwrap()
        };
        eventually(Duration::from_secs(5), "one is hit", || {
            terminate("query like '%pg_sleep(15)%' and state = 'active'") == "1"
        });
        let reply = victim.reply();
        assert_eq!(reply.state(), "57P01", "{reply:?}");
        assert_eq!(other.query("select 'open'").value(), "open");
        assert_eq!(other.query("commit").status, b'I');

        // Those that nobody uses.
        terminate("state = 'idle'");
        eventually(Duration::from_secs(5), "they are gone", || backends(db, "true") == 0);
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(other.query("select 'again'").value(), "again");
    }
}

#[test]
fn servers_that_stop() {
    let mut server = Server::builder().start().unwrap();
    for workers in [1, 2] {
        let manager = manager(&server, workers, 2);
        let mut client = Client::new(&manager, "postgres");
        assert_eq!(client.query("select 1").value(), "1");
        server.restart().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(Client::new(&manager, "postgres").query("select 2").value(), "2");

        server.stop(StopMode::Fast).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let refused = Client::login(&manager, &[("user", "postgres"), ("database", "postgres")]);
        let reply = match refused {
            Err(reply) => reply,
            Ok(mut client) => client.query("select 3"),
        };
        assert_eq!(reply.state(), "08001", "{reply:?}");
        assert!(reply.errors[0].1.contains("hint: "), "{reply:?}");
        server.restart().unwrap();
        eventually(Duration::from_secs(10), "it works again", || {
            Client::login(&manager, &[("user", "postgres"), ("database", "postgres")])
                .is_ok_and(|mut c| c.query("select 4").state().is_empty())
        });
    }
}

#[test]
fn hostile_bytes() {
    let db = database("hostile");
    for workers in [1, 2] {
        let manager = manager(server(), workers, 2);
        let mut good = Client::new(&manager, db);
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        for round in 0..60 {
            let mut bytes: Vec<u8> = (0..64)
                .map(|_| {
                    seed ^= seed << 13;
                    seed ^= seed >> 7;
                    seed ^= seed << 17;
                    seed.to_le_bytes()[0]
                })
                .collect();
            match round % 4 {
                // A length beyond the limit; negative; too small.
                0 => bytes[..4].copy_from_slice(&0x7fff_ffffu32.to_be_bytes()),
                1 => bytes[..4].copy_from_slice(&0xffff_fff0u32.to_be_bytes()),
                2 => bytes[..4].copy_from_slice(&3u32.to_be_bytes()),
                // An unknown protocol of a sound length.
                _ => bytes[..4].copy_from_slice(&64u32.to_be_bytes()),
            }
            let mut client = Client::raw(&manager);
            client.send(&bytes);
            // Either an error or nothing, then the end.
            let mut rest = Vec::new();
            match client.stream.read_to_end(&mut rest) {
                Ok(_) => assert!(rest.is_empty() || rest[0] == b'E' || rest[0] == b'v', "{rest:?}"),
                Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset, "round {round}"),
            }
            assert_eq!(good.query("select 1").value(), "1");
        }
        // A message with a hostile length after the login.
        for length in [0u32, 3, 0xffff_ffff] {
            let mut client = Client::new(&manager, db);
            client.send(&[&b"Q"[..], &length.to_be_bytes(), b"select 1\0"].concat());
            assert_eq!(client.reply().status, 0);
        }
        // What comes behind an SSLRequest in plain text is not taken for the inside of TLS.
        let mut client = Client::raw(&manager);
        let mut bytes = pgusher_wire::startup::SSL_REQUEST_BYTES.to_vec();
        pgusher_wire::startup::write_startup(
            &mut bytes,
            pgusher_wire::startup::Version::V3_0,
            [(&b"user"[..], &b"postgres"[..]), (b"database", db.as_bytes())],
        );
        client.send(&bytes);
        let mut rest = Vec::new();
        let _ = client.stream.read_to_end(&mut rest);
        assert!(!rest.contains(&b'Z'), "{rest:?}");
        assert_eq!(good.query("select 'good'").value(), "good");
    }
}

#[test]
fn limits() {
    let db = database("limits");
    let overrides = overrides(2, 1);
    let manager = manager_with(server(), "max_clients = 3\n[timeouts]\nquery_wait = 1\n", &overrides);
    let unknown = Client::login(&manager, &[("user", "postgres"), ("database", "nowhere")]);
    assert_eq!(unknown.err().map(|r| r.state().to_owned()).as_deref(), Some("3D000"));

    let mut first = Client::new(&manager, db);
    let mut second = Client::new(&manager, db);
    first.query("begin");
    second.start("select 1");
    assert_eq!(second.reply().state(), "53300");
    assert_eq!(first.query("commit").status, b'I');
    assert_eq!(Client::new(&manager, db).query("select 1").value(), "1");
    drop(second);

    let mut held = vec![first];
    eventually(Duration::from_secs(5), "room for two", || {
        held.truncate(1);
        held.extend((0..2).filter_map(|_| Client::login(&manager, &[("user", "postgres"), ("database", db)]).ok()));
        held.len() == 3
    });
    let beyond = Client::login(&manager, &[("user", "postgres"), ("database", db)]);
    assert_eq!(beyond.err().map(|r| r.state().to_owned()).as_deref(), Some("53300"));
    for client in &mut held {
        assert_eq!(client.query("select 1").value(), "1");
    }
}
