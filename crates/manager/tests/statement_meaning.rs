//! A statement that servers share means for each client what it would mean on a connection of its own.

mod support;

use pgusher_wire::frontend::{self, SYNC_BYTES, Target};
use std::time::Duration;
use support::*;

/// Parse, Bind, Execute and Sync.
fn run(client: &mut Client, name: &str, sql: Option<&str>) -> Reply {
    let mut out = Vec::new();
    if let Some(sql) = sql {
        frontend::write_parse(&mut out, name.as_bytes(), sql.as_bytes(), &[]);
    }
    frontend::write_bind(&mut out, b"", name.as_bytes(), &[]);
    frontend::write_execute(&mut out, b"", 0);
    out.extend_from_slice(&SYNC_BYTES);
    client.send(&out);
    client.reply()
}

#[test]
fn a_temporary_table_hides_another_one() {
    let db = database("hides");
    let manager = manager(server(), 1, 1);
    let mut a = Client::new(&manager, db);
    a.query("create table t (a text); insert into t values ('public')");
    // The server has its schema for temporary tables from here on.
    a.query("begin; create temp table other (a int) on commit drop; commit");
    for _ in 0..3 {
        assert_eq!(run(&mut a, "", Some("select * from t")).value(), "public");
    }
    a.query("begin");
    a.query("create temp table t on commit drop as select 'temporary'::text as a");
    assert_eq!(run(&mut a, "", Some("select * from t")).value(), "temporary");
    a.query("commit");
    assert_eq!(run(&mut a, "", Some("select * from t")).value(), "public");
    a.query("begin");
    a.query("select 'into'::text as a, 1 as b into temp t");
    assert_eq!(run(&mut a, "", Some("select * from t")).value(), "into");
    a.query("rollback");
    let reply = run(&mut a, "", Some("select * from t"));
    assert_eq!((reply.state(), reply.value()), ("", "public"));
}

#[test]
fn a_rolled_back_table_is_forgotten() {
    let db = database("rolled_back");
    let manager = manager(server(), 1, 1);
    let mut a = Client::new(&manager, db);
    a.query("create table t (a text); insert into t values ('public')");
    a.query("begin; create temp table other (a int) on commit drop; commit");
    let mut b = Client::new(&manager, db);
    b.query("begin");
    b.query("create temp table t (a int, b int)");
    b.query("insert into t values (1, 2)");
    for _ in 0..3 {
        assert_eq!(run(&mut b, "", Some("select * from t")).value(), "1");
    }
    b.query("savepoint s");
    drop(b);
    let reply = run(&mut a, "", Some("select * from t"));
    assert_eq!((reply.state(), &*reply.tags), ("", "12DCZ"));
}

#[test]
fn constants_are_read_under_the_settings_of_their_moment() {
    let db = database("constants");
    let manager = manager(server(), 1, 1);
    let mut a = Client::new(&manager, db);
    let sql = "select extract(month from date '01/02/2020')::text";
    for _ in 0..3 {
        assert_eq!(run(&mut a, "", Some(sql)).value(), "1");
    }
    a.query("begin");
    a.query("set local datestyle = 'german, dmy'");
    assert_eq!(run(&mut a, "", Some(sql)).value(), "2");
    a.query("rollback");
    assert_eq!(run(&mut a, "", Some(sql)).value(), "1");
}

#[test]
fn constants_of_the_moment_differ_between_workers() {
    let db = database("moment");
    let manager = manager(server(), 2, 1);
    let mut seen = Vec::new();
    let mut clients: Vec<Client> = (0..8).map(|_| Client::new(&manager, db)).collect();
    for client in &mut clients {
        let reply = run(client, "n", Some("select timestamptz 'now'"));
        seen.push(reply.value().to_owned());
        std::thread::sleep(Duration::from_millis(5));
    }
    let count = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), count, "{seen:?}");
}

#[test]
fn a_client_that_dies_leaves_no_statement_of_its_own() {
    let db = database("litter");
    let manager = manager(server(), 1, 1);
    let mut a = Client::new(&manager, db);
    a.query("begin");
    run(&mut a, "twice", Some("select 1"));
    assert_eq!(run(&mut a, "twice", Some("select 2")).state(), "42P05");
    let mut b = Client::new(&manager, db);
    drop(a);
    assert_eq!(run(&mut b, "twice", None).state(), "26000");
}

#[test]
fn a_long_unnamed_statement_that_was_never_parsed() {
    let db = database("long_unparsed");
    let manager = manager(server(), 1, 1);
    let mut a = Client::new(&manager, db);
    let mut b = Client::new(&manager, db);
    for _ in 0..2 {
        assert_eq!(run(&mut a, "", Some("select 'mine'")).value(), "mine");
    }
    // The neighbour's unnamed statement is on the server.
    assert_eq!(run(&mut b, "", Some("select 'a secret of the neighbour'")).value(), "a secret of the neighbour");
    let mut out = Vec::new();
    frontend::write_parse(&mut out, b"", b"select 'mine'", &[]);
    frontend::write_describe(&mut out, Target::Portal, b"nowhere");
    let long = format!("select '{}'", "l".repeat(12_500));
    frontend::write_parse(&mut out, b"", long.as_bytes(), &[]);
    out.extend_from_slice(&SYNC_BYTES);
    a.send(&out);
    assert_eq!(a.reply().state(), "34000");
    assert_eq!(run(&mut a, "", None).value(), "mine");
}

#[test]
fn a_flood_of_what_is_answered_here_is_not_kept() {
    use std::io::Write;
    let db = database("given_flood");
    let manager = manager(server(), 1, 1);
    let mut a = Client::new(&manager, db);
    let mut chunk = Vec::new();
    for _ in 0..10_000 {
        frontend::write_close(&mut chunk, Target::Statement, b"");
    }
    a.stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    let mut sent = 0usize;
    while sent < 64 << 20 {
        match a.stream.write(&chunk) {
            Ok(n) => sent += n,
            Err(_) => return,
        }
    }
    panic!("{sent} bytes were taken of a client that reads no answer");
}

#[test]
fn what_waits_for_an_answer_keeps_its_place() {
    let db = database("keeps_its_place");
    let manager = manager(server(), 1, 1);
    let mut a = Client::new(&manager, db);
    for round in 0..5 {
        let mut out = Vec::new();
        // A large message keeps the server's side full while the one that waits is looked at.
        let big = "b".repeat(8_000_000 + round * 7_001);
        frontend::write_parse(&mut out, b"", b"select pg_sleep(0.05), length($1::text)", &[]);
        frontend::write_bind(&mut out, b"", b"", &[Some(big.as_bytes())]);
        frontend::write_execute(&mut out, b"", 0);
        out.extend_from_slice(&SYNC_BYTES);
        frontend::write_parse(&mut out, b"n", b"select 'n'", &[]);
        out.extend_from_slice(&SYNC_BYTES);
        frontend::write_bind(&mut out, b"", b"n", &[]);
        frontend::write_execute(&mut out, b"", 0);
        out.extend_from_slice(&SYNC_BYTES);
        frontend::write_close(&mut out, Target::Statement, b"n");
        out.extend_from_slice(&SYNC_BYTES);
        for i in 0..400 {
            frontend::write_query(&mut out, format!("select {i} /* {} */", "x".repeat(1_000)).as_bytes());
        }
        a.send(&out);
        assert_eq!(a.reply().tags, "12DCZ");
        assert_eq!(a.reply().tags, "1Z");
        assert_eq!(a.reply().value(), "n");
        assert_eq!(a.reply().tags, "3Z");
        for i in 0..400 {
            assert_eq!(a.reply().value(), i.to_string());
        }
    }
}
