//! currval and lastval in transaction mode: never a neighbour's value, and the client's own from when the pool has learned that
//! it is asked for.

mod support;

use pgusher_manager::Manager;
use pgusher_wire::frontend;
use support::*;

const TABLES: &str = "create table one (id serial primary key, v text); create table two (id serial primary key, v text); \
                      create table plain (v text); select setval('one_id_seq', 1000); select setval('two_id_seq', 2000)";

/// SQLSTATE of a value that is not defined in the session.
const UNDEFINED: &str = "55000";

fn ground(name: &str) -> &str {
    let db = database(name);
    server().psql(db, TABLES).unwrap();
    db
}

/// A pool of so many connections, each transaction on another one.
fn scattered(pool: usize, toml: &str) -> Manager {
    manager_with(server(), &format!("scatter = true\n{toml}"), &overrides(1, pool))
}

/// All connections of the pool exist, and a neighbour has left its values on each.
fn spoil(manager: &Manager, db: &str, pool: usize) {
    let mut clients: Vec<Client> = (0..pool).map(|_| Client::new(manager, db)).collect();
    for client in &mut clients {
        assert_eq!(client.query("begin").state(), "");
        assert_eq!(client.query("insert into one (v) values ('n'); insert into two (v) values ('n')").state(), "");
    }
    for client in &mut clients {
        assert_eq!(client.query("commit").state(), "");
    }
    // They stay connected, so that nobody cleans up behind them.
    std::mem::forget(clients);
}

/// One statement by the extended protocol.
fn extended(client: &mut Client, sql: &str) -> Reply {
    let mut out = batch(sql);
    out.extend_from_slice(&frontend::SYNC_BYTES);
    client.send(&out);
    client.reply()
}

fn both() -> [fn(&mut Client, &str) -> Reply; 2] {
    [|client, sql| client.query(sql), extended]
}

/// A read without a number of one's own is refused by the server, on one connection and on two; later reads are right.
#[test]
fn a_pool_learns() {
    for (p, run) in both().into_iter().enumerate() {
        for pool in [1, 2] {
            let name = format!("learn{p}{pool}");
            let db = ground(&name);
            // One more for each client that will keep its own.
            let manager = scattered(pool + 2, "");
            spoil(&manager, db, pool + 2);
            let (mut a, mut b) = (Client::new(&manager, db), Client::new(&manager, db));
            let mine = run(&mut a, "insert into one (v) values ('a') returning id").value().to_owned();
            assert_eq!(run(&mut a, "select lastval()").state(), UNDEFINED);
            assert_eq!(run(&mut b, "select currval('one_id_seq')").state(), UNDEFINED);
            assert_eq!(run(&mut b, "select lastval()").state(), UNDEFINED);
            assert_ne!(mine, "");
            for _ in 0..5 {
                let a_id = run(&mut a, "insert into one (v) values ('a') returning id").value().to_owned();
                let b_id = run(&mut b, "insert into two (v) values ('b') returning id").value().to_owned();
                assert_eq!(run(&mut a, "select lastval()").value(), a_id);
                assert_eq!(run(&mut b, "select lastval()").value(), b_id);
                assert_eq!(run(&mut a, "select currval('one_id_seq')").value(), a_id);
                assert_eq!(run(&mut b, "select currval('two_id_seq')").value(), b_id);
                assert_eq!(run(&mut a, "select currval('two_id_seq')").state(), UNDEFINED);
            }
            // It ends.
            assert_eq!(run(&mut a, "discard sequences").state(), "");
            assert_eq!(run(&mut a, "select v from plain").state(), "");
            assert_eq!(run(&mut a, "select lastval()").state(), UNDEFINED);
            let b_id = run(&mut b, "select lastval()").value().to_owned();
            assert_eq!(run(&mut b, "select currval('two_id_seq')").value(), b_id);
        }
    }
}

/// In the transaction that got the number the very first read is right, and what others have left is not read there either.
#[test]
fn within_a_transaction() {
    for (p, run) in both().into_iter().enumerate() {
        let name = format!("within{p}");
        let db = ground(&name);
        let manager = scattered(2, "");
        spoil(&manager, db, 2);
        let mut a = Client::new(&manager, db);
        let insert = "insert into one (v) values ('a') returning id";
        assert_eq!(run(&mut a, "begin").state(), "");
        let id = run(&mut a, insert).value().to_owned();
        assert_eq!(run(&mut a, "select lastval()").value(), id);
        assert_eq!(run(&mut a, "commit").state(), "");
        for _ in 0..4 {
            assert_eq!(run(&mut a, "begin").state(), "");
            let id = run(&mut a, insert).value().to_owned();
            assert_eq!(run(&mut a, "select currval('one_id_seq')").value(), id);
            assert_eq!(run(&mut a, "select lastval()").value(), id);
            assert_eq!(run(&mut a, "commit").state(), "");
        }
        // Nobody is kept for that: two connections are enough for four clients.
        let mut others: Vec<Client> = (0..3).map(|_| Client::new(&manager, db)).collect();
        for other in &mut others {
            assert_eq!(run(other, "insert into one (v) values ('o')").state(), "");
        }
        assert_eq!(run(&mut a, "begin").state(), "");
        assert_eq!(run(&mut a, "insert into plain values ('a')").state(), "");
        assert_eq!(run(&mut a, "select lastval()").state(), UNDEFINED);
        assert_eq!(run(&mut a, "rollback").state(), "");
    }
}

/// The first read of a pool stands behind a write that got no number, in the same transaction.
#[test]
fn a_write_without_a_number() {
    for (p, run) in both().into_iter().enumerate() {
        for (r, read) in ["select lastval()", "select currval('one_id_seq')"].into_iter().enumerate() {
            let name = format!("without{p}{r}");
            let db = ground(&name);
            let manager = scattered(1, "");
            spoil(&manager, db, 1);
            let mut a = Client::new(&manager, db);
            assert_eq!(run(&mut a, "begin").state(), "");
            assert_eq!(run(&mut a, "insert into plain values ('a')").state(), "");
            assert_eq!(run(&mut a, read).state(), UNDEFINED);
            assert_eq!(run(&mut a, "rollback").state(), "");
        }
    }
}

/// Functions of the user's own, when nothing is known of them yet and when it is.
#[test]
fn in_functions() {
    for (p, run) in both().into_iter().enumerate() {
        let name = format!("functions{p}");
        let db = ground(&name);
        server()
            .psql(
                db,
                "create function mine() returns bigint language plpgsql as $$ begin return lastval(); end $$; \
                 create function insert_and_read() returns bigint language plpgsql as \
                 $$ begin insert into one (v) values ('f'); return currval('one_id_seq'); end $$; \
                 create function next() returns bigint language sql as $$ select nextval('two_id_seq') $$",
            )
            .unwrap();
        let manager = scattered(4, "");
        spoil(&manager, db, 4);
        let (mut a, mut b) = (Client::new(&manager, db), Client::new(&manager, db));
        for _ in 0..3 {
            let id: i64 = run(&mut a, "select insert_and_read()").value().parse().unwrap();
            assert!(id > 1000);
        }
        assert_eq!(run(&mut b, "select mine()").state(), UNDEFINED);
        assert_eq!(run(&mut b, "select mine()").state(), UNDEFINED);
        for _ in 0..3 {
            let b_id = run(&mut b, "select next()").value().to_owned();
            let a_id = run(&mut a, "select insert_and_read()").value().to_owned();
            assert_eq!(run(&mut b, "select mine()").value(), b_id);
            assert_eq!(run(&mut a, "select mine()").value(), a_id);
        }
    }
}

/// Messages without waiting for replies, with and without Sync between them.
#[test]
fn in_pipelines() {
    let db = ground("pipelines");
    let manager = scattered(6, "");
    spoil(&manager, db, 6);
    let mut a = Client::new(&manager, db);
    // Nothing of the client's own: the first statement is done, the second one fails.
    let mut out = batch("select 1");
    out.extend(batch("select lastval()"));
    out.extend_from_slice(&frontend::SYNC_BYTES);
    a.send(&out);
    let reply = a.reply();
    assert_eq!((reply.values.as_slice(), reply.state()), (&["1".to_owned()][..], UNDEFINED));
    // The number and its reader in one batch.
    let mut out = batch("insert into one (v) values ('a') returning id");
    out.extend(batch("select lastval()"));
    out.extend_from_slice(&frontend::SYNC_BYTES);
    a.send(&out);
    let reply = a.reply();
    assert!(reply.errors.is_empty() && reply.values.len() == 2 && reply.values[0] == reply.values[1], "{reply:?}");
    // Queries, one behind the other.
    let mut b = Client::new(&manager, db);
    let mut out = query("select 7");
    out.extend(query("select lastval()"));
    out.extend(query("insert into two (v) values ('b') returning id"));
    out.extend(query("select lastval()"));
    b.send(&out);
    assert_eq!(b.reply().value(), "7");
    assert_eq!(b.reply().state(), UNDEFINED);
    let id = b.reply().value().to_owned();
    assert_eq!(b.reply().value(), id);
    // A batch that fails before what is put in front of the reader.
    let mut c = Client::new(&manager, db);
    let mut out = batch("select 1/0");
    out.extend(batch("select lastval()"));
    out.extend_from_slice(&frontend::SYNC_BYTES);
    c.send(&out);
    assert_eq!(c.reply().state(), "22012");
    assert_eq!(c.query("select lastval()").state(), UNDEFINED);
    // In a transaction that has failed.
    assert_eq!(c.query("discard all").state(), "");
    assert_eq!(c.query("begin; select 1/0").state(), "22012");
    assert_eq!(c.query("select lastval()").state(), "25P02");
    assert_eq!(c.query("rollback").state(), "");
}

/// `pin`: right from the first statement on; clients that only read tables are not kept, and leaving one's connection cleans it.
#[test]
fn pinned_from_the_start() {
    for (p, run) in both().into_iter().enumerate() {
        let name = format!("pinned{p}");
        let db = ground(&name);
        let manager = scattered(2, "sequences = \"pin\"");
        // More readers than connections, one of which is kept.
        let mut a = Client::new(&manager, db);
        let id = run(&mut a, "insert into one (v) values ('a') returning id").value().to_owned();
        let mut readers: Vec<Client> = (0..4).map(|_| Client::new(&manager, db)).collect();
        for _ in 0..3 {
            for reader in &mut readers {
                assert_eq!(run(reader, "select count(*) from plain").value(), "0");
            }
            assert_eq!(run(&mut a, "select lastval()").value(), id);
        }
        assert_eq!(run(&mut a, "discard sequences").state(), "");
        drop(a);
        assert_eq!(run(&mut readers[0], "select lastval()").state(), UNDEFINED);
    }
}
