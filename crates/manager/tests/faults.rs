//! Servers that misbehave, one at a time: they answer late, refuse, send nonsense while nobody uses them, keep silent about a
//! cancel request; and clients that do, or go away. Whoever is not concerned notices nothing, and the pool gets its size back.

mod support;

use pgusher_wire::{backend, frontend};
use std::time::{Duration, Instant};
use support::fake::{Fake, message};
use support::gate::{Gate, Treatment, Visit};
use support::*;

const SOON: Duration = Duration::from_secs(5);

/// An idle connection on which something comes that nobody asked for is closed and replaced; the other one stays.
#[test]
fn nonsense_on_an_idle_connection() {
    let nonsense: &[(&str, Vec<u8>)] = &[
        ("a row that nobody asked for", message(backend::DATA_ROW, b"\0\x01\0\0\0\x01x")),
        ("the end of a statement that nobody sent", message(backend::READY_FOR_QUERY, b"I")),
        ("half a header", vec![backend::PARAMETER_STATUS, 0]),
        ("half a message", [&[backend::PARAMETER_STATUS][..], &100u32.to_be_bytes(), b"TimeZ"].concat()),
        ("half a row", [&[backend::DATA_ROW][..], &1_000_000u32.to_be_bytes(), &[7; 50_000]].concat()),
        ("a length that is too small", vec![backend::NOTICE_RESPONSE, 0, 0, 0, 3]),
        ("a length beyond the limit", vec![backend::NOTICE_RESPONSE, 0xff, 0xff, 0xff, 0xff]),
        ("no protocol", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
        ("a setting, then half of another", {
            let whole = message(backend::PARAMETER_STATUS, b"TimeZone\0UTC\0");
            [&whole[..], &whole[..7]].concat()
        }),
    ];
    for workers in [1, 2] {
        let fake = Fake::start();
        let manager = manager_at(&fake.conninfo(), "", &overrides(workers, 2));
        let mut clients = [Client::new(&manager, "postgres"), Client::new(&manager, "postgres")];
        // Both connections of the pool, so that each client gets one.
        let both = |clients: &mut [Client; 2]| -> Vec<usize> {
            for client in &mut *clients {
                assert_eq!(client.query("begin").status, b'T');
            }
            let lines = clients.iter_mut().map(|c| c.query("select").value().parse().unwrap()).collect();
            for client in &mut *clients {
                assert_eq!(client.query("commit").status, b'I');
            }
            lines
        };
        let mut lines = both(&mut clients);
        assert_eq!(fake.open(), 2);
        for (what, bytes) in nonsense {
            let (hit, other) = (lines[0], lines[1]);
            fake.send(hit, bytes);
            eventually(SOON, what, || !fake.is_open(hit));
            // Whatever connection they get, it is a good one.
            for client in &mut clients {
                assert_ne!(client.query("select").value(), hit.to_string(), "{what}");
            }
            lines = both(&mut clients);
            assert!(!lines.contains(&hit) && lines.contains(&other), "{what}: {hit}, {other} became {lines:?}");
            assert_eq!(fake.open(), 2, "{what}");
        }
        // What a server may say at any time harms nothing.
        let harmless = message(backend::PARAMETER_STATUS, b"TimeZone\0UTC\0");
        for line in &lines {
            fake.send(*line, &harmless);
        }
        std::thread::sleep(Duration::from_millis(100));
        lines.sort_unstable();
        let mut after = both(&mut clients);
        after.sort_unstable();
        assert_eq!(after, lines);
    }
}

/// A server says something behind its reply to settings that were put on it: the client whose settings they are gets it, and goes on.
#[test]
fn a_notice_behind_settings() {
    for workers in [1, 2] {
        let fake = Fake::start();
        let manager = manager_at(&fake.conninfo(), "", &overrides(workers, 1));
        let (mut a, mut b) = (Client::new(&manager, "postgres"), Client::new(&manager, "postgres"));
        a.query("set role noisy");
        for _ in 0..5 {
            assert_eq!(b.query("select").value(), "0");
            assert_eq!(a.query("select").value(), "0");
        }
        assert_eq!(fake.logins(), 1);
    }
}

/// A connection of a pool cannot be opened, once, while another is in use: those that wait get the next one that can.
#[test]
fn one_attempt_is_refused() {
    with_one_and_two(|workers| {
        let name = format!("refused{workers}");
        let db = database(&name);
        let gate = Gate::new(server(), |visit| match visit {
            Visit::Login(1) => Treatment::Close,
            _ => Treatment::Pass,
        });
        let manager = manager_at(&gate.conninfo(), "", &overrides(workers, 2));
        let mut holder = Client::new(&manager, db);
        assert_eq!(holder.query("begin").status, b'T');
        assert_eq!(gate.logins(), 1);
        let mut waiting: Vec<Client> = (0..6).map(|_| Client::new(&manager, db)).collect();
        for (i, client) in waiting.iter_mut().enumerate() {
            client.start(&format!("select {i}"));
        }
        let begun = Instant::now();
        for (i, client) in waiting.iter_mut().enumerate() {
            assert_eq!(client.reply().value(), i.to_string());
        }
        assert!(begun.elapsed() < SOON);
        assert_eq!(gate.logins(), 3, "the second one was refused, the third one served them");
        assert_eq!(holder.query("commit").status, b'I');
        assert!((1..=2).contains(&backends(db, "true")));
    });
}

/// The only attempt is refused: nobody is left who could serve those that wait, so they are told; later ones are served.
#[test]
fn the_only_attempt_is_refused() {
    let db = database("refusedfirst");
    for workers in [1, 2] {
        let gate = Gate::new(server(), |visit| match visit {
            Visit::Login(0) => Treatment::Close,
            _ => Treatment::Pass,
        });
        let manager = manager_at(&gate.conninfo(), "", &overrides(workers, 2));
        let refused = Client::login(&manager, &[("user", "postgres"), ("database", db)]).err().unwrap();
        assert_eq!(refused.state(), "08001", "{refused:?}");
        assert_eq!(Client::new(&manager, db).query("select 1").value(), "1");
    }
}

/// The connection that carries a cancel request does not end. The statement ends by itself; its physical connection waits
/// for the request until the time is over, and is closed then. When the request comes late it hits nobody.
#[test]
fn a_cancel_request_that_hangs() {
    with_one_and_two(|workers| {
        let name = format!("hanging{workers}");
        let db = database(&name);
        let gate = Gate::new(server(), |visit| match visit {
            Visit::Cancel(_) => Treatment::Hold,
            Visit::Login(_) => Treatment::Pass,
        });
        let manager = manager_at(&gate.conninfo(), "[timeouts]\nserver_connect = 1\n", &overrides(workers, 1));
        let mut one = Client::new(&manager, db);
        let mut two = Client::new(&manager, db);
        let pid = one.query("select pg_backend_pid()").value().to_owned();
        one.start("select pg_sleep(0.4), 'slept'");
        eventually(SOON, "the query runs", || backends(db, "query like '%slept%' and state = 'active'") == 1);
        cancel(&manager, &one.key);
        eventually(SOON, "the request is under way", || gate.held() == 1);
        assert_eq!(one.reply().state(), "");
        // The only connection is reserved: not even its own client gets it.
        one.start("select pg_backend_pid()");
        two.start("select pg_backend_pid()");
        assert!(two.is_silent(Duration::from_millis(300)) && one.is_silent(Duration::ZERO));
        let pids = [one.reply().value().to_owned(), two.reply().value().to_owned()];
        assert!(!pids.contains(&pid), "{pids:?} after {pid}");
        eventually(SOON, "the old one is gone", || backends(db, &format!("pid = {pid}")) == 0);

        // Now the request comes, while somebody else is at work.
        two.start("select pg_sleep(0.5), 'undisturbed'");
        eventually(SOON, "the query runs", || backends(db, "query like '%undisturbed%' and state = 'active'") == 1);
        gate.open();
        eventually(SOON, "it is delivered", || gate.held() == 0);
        assert_eq!(two.reply().state(), "");
        assert_eq!(backends(db, "true"), 1);
        // A later one works.
        one.start("select pg_sleep(15), 'last'");
        eventually(SOON, "the query runs", || backends(db, "query like '%last%' and state = 'active'") == 1);
        cancel(&manager, &one.key);
        assert_eq!(one.reply().state(), "57014");
    });
}

/// The same, for a statement that outlives the time: its client is told that its connection is lost.
#[test]
fn a_cancel_request_that_hangs_for_a_long_statement() {
    let db = database("hanginglong");
    let gate = Gate::new(server(), |visit| match visit {
        Visit::Cancel(_) => Treatment::Hold,
        Visit::Login(_) => Treatment::Pass,
    });
    let manager = manager_at(&gate.conninfo(), "[timeouts]\nserver_connect = 1\n", &overrides(1, 1));
    let mut one = Client::new(&manager, db);
    let mut two = Client::new(&manager, db);
    one.start("select pg_sleep(5), 'long'");
    eventually(SOON, "the query runs", || backends(db, "query like '%long%' and state = 'active'") == 1);
    two.start("select 'two'");
    cancel(&manager, &one.key);
    let begun = Instant::now();
    let reply = one.reply();
    assert_eq!((reply.state(), reply.status), ("08006", 0), "{reply:?}");
    assert_eq!(two.reply().value(), "two");
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

/// Half of a large message, then the client is gone.
#[test]
fn clients_that_die_inside_a_message() {
    let db = database("half");
    server().psql(db, "create table h (id int)").unwrap();
    for workers in [1, 2] {
        let manager = manager(server(), workers, 1);
        let mut other = Client::new(&manager, db);
        let mut parse = Vec::new();
        frontend::write_parse(&mut parse, b"", format!("select '{}'", "x".repeat(3 << 20)).as_bytes(), &[]);
        let large = query(&format!("insert into h values (1); select '{}'", "y".repeat(3 << 20)));
        let bind = {
            let mut out = batch("select 1");
            frontend::write_bind(&mut out, b"p", b"", &[Some(&[b'z'; 3 << 20])]);
            out
        };
        let copy = {
            let mut out = Vec::new();
            frontend::write_copy_data(&mut out, &b"5\n".repeat(1 << 20));
            [query("copy h from stdin"), out].concat()
        };
        for (what, bytes) in [("Parse", parse), ("Query", large), ("Bind", bind), ("CopyData", copy)] {
            for transaction in [false, true] {
                let mut dying = Client::new(&manager, db);
                if transaction {
                    dying.query("begin; insert into h values (2)");
                }
                dying.send(&bytes[..bytes.len() / 2]);
                drop(dying);
                assert_eq!(other.query("select 'on'").value(), "on", "{what}");
                let open = "(state <> 'idle' or xact_start is not null)";
                eventually(SOON, what, || backends(db, open) == 0);
                // None, if the other client was served before the dying one was seen.
                assert!(backends(db, "true") <= 1, "{what}");
            }
        }
        assert_eq!(other.query("select count(*) from h").value(), "0");
    }
}

/// A FunctionCall, of which the manager knows nothing: it waits for the replies to what was sent before it.
fn call() -> Vec<u8> {
    // pg_backend_pid(), no arguments, a result in binary.
    let body = [&2026_u32.to_be_bytes()[..], &[0; 4], &[0, 1]].concat();
    message(frontend::FUNCTION_CALL, &body)
}

/// Within COPY, messages that would have to wait for the replies to it: it does not end before they are sent, so they are
/// refused, as the server refuses others there.
#[test]
fn messages_that_wait_within_copy() {
    let db = database("waitcopy");
    server().psql(db, "create table w (id int)").unwrap();
    for workers in [1, 2] {
        let manager = manager(server(), workers, 1);
        let mut other = Client::new(&manager, db);
        let copy = query("copy w from stdin");
        let currval = query("select lastval()");
        for (what, bytes) in [("FunctionCall", call()), ("Query", currval)] {
            // The server reads COPY data when it comes, or is about to.
            for at_once in [false, true] {
                for leaves in [false, true] {
                    let mut client = Client::new(&manager, db);
                    if at_once {
                        client.send(&[&copy[..], &bytes].concat());
                    } else {
                        client.send(&copy);
                        client.until(b'G');
                        client.send(&bytes);
                    }
                    if !leaves {
                        let reply = client.reply();
                        assert_eq!((reply.state(), reply.status), ("08P01", 0), "{what}, {at_once}: {reply:?}");
                        assert!(reply.errors[0].1.contains("during COPY from stdin"), "{reply:?}");
                    }
                    drop(client);
                    assert_eq!(other.query("select 'on'").value(), "on", "{what}, {at_once}, {leaves}");
                }
            }
            // Behind the end of the data it waits and is answered.
            let mut client = Client::new(&manager, db);
            let mut whole = copy.clone();
            frontend::write_copy_data(&mut whole, b"1\n");
            whole.extend(message(frontend::COPY_DONE, b""));
            whole.extend(&bytes);
            client.send(&whole);
            assert_eq!(client.reply().done, ["COPY 1"], "{what}");
            assert_eq!(client.reply().status, b'I', "{what}");
        }
        assert_eq!(backends(db, "true"), 1);
    }
}

/// A client has gone while a message of its waits for the replies to a long statement: the statement ends as if nothing waited.
#[test]
fn clients_that_die_while_a_message_waits() {
    let db = database("diewaiting");
    for workers in [1, 2] {
        let manager = manager(server(), workers, 1);
        let mut other = Client::new(&manager, db);
        let long = query("select pg_sleep(300), 'long'");
        let runs = || backends(db, "query like '%long%' and state = 'active'");
        for at_once in [false, true] {
            let mut dying = Client::new(&manager, db);
            dying.send(&[&long[..], &call()].concat());
            if !at_once {
                eventually(SOON, "the query runs", || runs() == 1);
            }
            drop(dying);
            assert_eq!(other.query("select 'on'").value(), "on");
            eventually(SOON, "the statement is stopped", || runs() == 0);
        }
    }
}

/// A Flush that carries something makes the server skip to the next Sync, and no reply belongs to a Flush: it may not come
/// behind what a client leaves to the next one.
#[test]
fn a_flush_that_carries_something() {
    let db = database("flush");
    for workers in [1, 2] {
        let manager = manager(server(), workers, 1);
        let mut next = Client::new(&manager, db);
        for sql in ["commit", ""] {
            let mut client = Client::new(&manager, db);
            assert_eq!(client.query("begin").status, b'T');
            next.start("select 'on'");
            eventually(SOON, "it waits", || next.is_silent(Duration::from_millis(100)));
            let flush = message(frontend::FLUSH, b"x");
            client.send(&if sql.is_empty() { flush } else { [query(sql), flush].concat() });
            assert_eq!(next.reply().value(), "on");
            let reply = client.until(b'E');
            assert_eq!(reply.state(), "08P01", "{reply:?}");
            assert_eq!(client.reply().status, 0, "it is closed");
        }
        // One that comes first, and is gone before the server has said a word.
        for round in 0..20 {
            let mut client = Client::new(&manager, db);
            client.send(&message(frontend::FLUSH, b"x"));
            assert_eq!(next.query(&format!("select {round}")).value(), round.to_string());
        }
    }
}

/// Thousands of messages without a Sync behind a Query: when that is answered, nothing makes the server send the rest.
#[test]
fn too_many_messages_behind_a_query() {
    let db = database("toomany");
    for workers in [1, 2] {
        let manager = manager(server(), workers, 1);
        let mut client = Client::new(&manager, db);
        let parse = |sql: &str| {
            let mut out = Vec::new();
            frontend::write_parse(&mut out, b"", sql.as_bytes(), &[]);
            out
        };
        // From the second time on the server has it, and its reply is not the server's.
        for _ in 0..3 {
            client.send(&[&parse("select 'known'")[..], &frontend::SYNC_BYTES].concat());
            assert_eq!(client.reply().tags, "1Z");
        }
        let mut many = [query("select pg_sleep(0.3)"), parse("select 'new'")].concat();
        for _ in 0..10_000 {
            many.extend(parse("select 'known'"));
        }
        client.send(&many);
        assert_eq!(client.reply().status, b'I');
        let reply = client.reply();
        assert_eq!((reply.state(), reply.status), ("08P01", 0), "{:?}", reply.errors);
        assert_eq!(Client::new(&manager, db).query("select 'on'").value(), "on");
    }
}

/// A backend that is ended from outside, in whatever state it is: its client is told or sees the end, the others go on.
#[test]
fn backends_that_are_terminated_anywhere() {
    with_one_and_two(|workers| {
        let name = format!("anywhere{workers}");
        let db = database(&name);
        server().psql(db, "create table a (id int)").unwrap();
        let manager = manager(server(), workers, 2);
        let mut other = Client::new(&manager, db);
        let terminate = |condition: &str| {
            let sql = format!(
                "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = '{db}' and {condition}"
            );
            eventually(SOON, condition, || server().psql("postgres", &sql).unwrap() == "1");
            eventually(SOON, "it is gone", || backends(db, condition) == 0);
        };
        let told = |reply: &Reply| {
            assert_eq!(reply.status, 0, "{reply:?}");
            assert!(matches!(reply.state(), "57P01" | "08006"), "{reply:?}");
        };

        // While it executes, with more behind it.
        let mut victim = Client::new(&manager, db);
        victim.send(&[query("select pg_sleep(15), 'busy'"), query("insert into a values (1)")].concat());
        terminate("query like '%busy%' and state = 'active'");
        told(&victim.reply());

        // Inside a transaction, while nothing runs.
        let mut victim = Client::new(&manager, db);
        victim.query("begin; insert into a values (2)");
        terminate("state = 'idle in transaction'");
        told(&victim.reply());

        // Inside COPY.
        let mut victim = Client::new(&manager, db);
        victim.start("copy a from stdin");
        victim.until(b'G');
        terminate("query like 'copy%' and state = 'active'");
        told(&victim.reply());

        // Between transactions, of a client that keeps its connection.
        let mut victim = Client::new(&manager, db);
        victim.query("set application_name = 'kept'; create temp table kept (a int)");
        terminate("application_name = 'kept'");
        told(&victim.reply());

        // Between transactions, of a client that does not: it does not notice.
        let mut lucky = Client::new(&manager, db);
        lucky.query("select 'mine'");
        let sql = format!("select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = '{db}'");
        server().psql("postgres", &sql).unwrap();
        eventually(SOON, "they are gone", || backends(db, "true") == 0);
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(lucky.query("select 'lucky'").value(), "lucky");

        assert_eq!(other.query("select count(*) from a").value(), "0");
        assert!(backends(db, "true") <= 2);
        assert_eq!(backends(db, "xact_start is not null"), 0);
    });
}
