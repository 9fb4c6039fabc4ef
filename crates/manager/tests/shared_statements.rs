//! Prepared statements in transaction mode: clients see their own, whatever server they get, and servers share them.

mod support;

use support::batch::begin;
use support::*;

/// What the servers of a database have prepared, through the manager's only connection.
fn prepared(client: &mut Client) -> Vec<String> {
    let mut names = client.query("select statement from pg_prepared_statements order by 1").values;
    names.retain(|n| !n.contains("pg_prepared_statements"));
    names
}

#[test]
fn names_follow_the_client_from_server_to_server() {
    let db = database("names_follow");
    for workers in [1, 2] {
        let manager = manager(server(), workers, 2);
        let mut a = Client::new(&manager, db);
        let mut b = Client::new(&manager, db);
        // Two clients use one name for different statements.
        assert_eq!(begin().parse("s", "select 'a' || $1").sync().run(&mut a).tags, "1Z");
        assert_eq!(begin().parse("s", "select 'b' || $1").sync().run(&mut b).tags, "1Z");
        // Each of the servers in turn is held by a third client.
        for round in 0..6 {
            let mut holder = Client::new(&manager, db);
            holder.query("begin");
            for (client, name) in [(&mut a, "a"), (&mut b, "b")] {
                let reply = begin().bind_with("s", &[&round.to_string()]).execute().sync().run(client);
                assert_eq!(reply.value(), format!("{name}{round}"));
                assert_eq!(reply.tags, "2DCZ");
                let reply = begin().describe("s").sync().run(client);
                assert_eq!(reply.tags, "tTZ");
            }
            holder.query("commit");
        }
        assert_eq!(begin().close("s").sync().run(&mut a).tags, "3Z");
        let reply = begin().bind_with("s", &["x"]).execute().sync().run(&mut a);
        assert_eq!((reply.state(), &*reply.tags), ("26000", "EZ"));
        assert_eq!(begin().bind_with("s", &["x"]).execute().sync().run(&mut b).value(), "bx");
        // A closed name can be used again, in the same batch.
        let reply =
            begin().parse("s", "select 1").close("s").parse("s", "select 2").bind("s").execute().sync().run(&mut a);
        assert_eq!((&*reply.tags, reply.value()), ("1312DCZ", "2"));
    }
}

#[test]
fn the_unnamed_statement_is_parsed_once_on_a_server() {
    let db = database("unnamed_once");
    let manager = manager(server(), 1, 1);
    let mut clients: Vec<Client> = (0..3).map(|_| Client::new(&manager, db)).collect();
    for round in 0..4 {
        for client in &mut clients {
            let value = round.to_string();
            let sql = "select $1::text || 'x'";
            let reply = begin().parse("", sql).describe("").bind_with("", &[&value]).execute().sync().run(client);
            assert_eq!((reply.value(), &*reply.tags), (&*format!("{round}x"), "1tT2DCZ"));
        }
    }
    assert_eq!(prepared(&mut clients[0]), ["select $1::text || 'x'"]);
    // In a transaction of its own, on a server that has seen others meanwhile.
    let [a, b, _] = &mut clients[..] else { unreachable!() };
    assert_eq!(begin().parse("", "select 'mine'").sync().run(a).tags, "1Z");
    assert_eq!(begin().parse("", "select 'theirs'").bind("").execute().sync().run(b).value(), "theirs");
    assert_eq!(begin().bind("").execute().sync().run(a).value(), "mine");
    // A Query ends it.
    a.query("select 1");
    assert_eq!(begin().bind("").execute().sync().run(a).state(), "26000");
    assert_eq!(begin().describe("").sync().run(a).state(), "26000");
    assert_eq!(a.query("select 'alive'").value(), "alive");
}

#[test]
fn nothing_is_shared_when_reuse_is_off() {
    let db = database("reuse_off");
    let manager = manager_with(server(), "statement_reuse = \"off\"", &overrides(1, 1));
    let mut client = Client::new(&manager, db);
    for _ in 0..4 {
        assert_eq!(begin().parse("", "select 5").bind("").execute().sync().run(&mut client).value(), "5");
    }
    assert!(prepared(&mut client).is_empty());
    assert_eq!(begin().parse("n", "select 6").bind("n").execute().sync().run(&mut client).value(), "6");
    assert_eq!(prepared(&mut client), ["select 6"]);
    let manager = manager_with(server(), "statement_reuse = \"custom-plans\"", &overrides(1, 1));
    let mut client = Client::new(&manager, db);
    assert_eq!(client.query("show plan_cache_mode").value(), "force_custom_plan");
}

#[test]
fn errors_leave_client_and_server_in_agreement() {
    let db = database("statement_errors");
    let manager = manager(server(), 1, 1);
    let mut a = Client::new(&manager, db);
    let mut b = Client::new(&manager, db);
    for round in 0..3 {
        // A Parse that fails defines nothing, also not for a neighbour.
        for client in [&mut a, &mut b] {
            let reply = begin().parse("bad", "select nothing from nowhere").bind("bad").execute().sync().run(client);
            assert_eq!((reply.state(), &*reply.tags), ("42P01", "EZ"), "{round}");
            assert_eq!(begin().bind("bad").execute().sync().run(client).state(), "26000");
        }
        // One that is discarded because of an error in front of it neither.
        let reply = begin().parse("", "select 1/0").bind("").execute().parse("late", "select 1").sync().run(&mut a);
        assert_eq!((reply.state(), &*reply.tags), ("22012", "1EZ"));
        assert_eq!(begin().bind("late").execute().sync().run(&mut a).state(), "26000");
        // In a pipeline the next batch counts again.
        let reply = begin().parse("", "select 1/0").bind("").execute().parse("p", "select 'lost'").sync().run(&mut a);
        assert_eq!(reply.state(), "22012");
        a.send(&begin().parse("", "select 1/0").bind("").execute().parse("p", "select 'lost'").sync().0);
        a.send(&begin().parse("p", "select 'kept'").sync().0);
        assert_eq!(a.reply().state(), "22012");
        assert_eq!(a.reply().tags, "1Z");
        assert_eq!(begin().bind("p").execute().sync().run(&mut a).value(), "kept");
        assert_eq!(begin().close("p").sync().run(&mut a).tags, "3Z");
        // Taken names.
        begin().parse("twice", "select 1").sync().run(&mut a);
        let reply = begin().parse("twice", "select 2").bind("twice").execute().sync().run(&mut a);
        assert_eq!((reply.state(), &*reply.tags), ("42P05", "EZ"));
        assert!(reply.errors[0].1.contains("\"twice\" already exists"), "{reply:?}");
        assert_eq!(begin().bind("twice").execute().sync().run(&mut a).value(), "1");
        assert_eq!(begin().bind("twice").execute().sync().run(&mut b).state(), "26000", "a neighbour has no such name");
        begin().close("twice").sync().run(&mut a);
    }
    // In a failed transaction the server refuses a Parse, of a known statement as well, but not of ROLLBACK.
    for _ in 0..3 {
        begin().parse("", "select 'known'").bind("").execute().sync().run(&mut a);
        begin().parse("", "rollback").bind("").execute().sync().run(&mut a);
    }
    a.query("begin");
    assert_eq!(a.query("select 1/0").state(), "22012");
    let reply = begin().parse("", "select 'known'").bind("").execute().sync().run(&mut a);
    assert_eq!((reply.state(), &*reply.tags, reply.status), ("25P02", "EZ", b'E'));
    let reply = begin().parse("", "rollback").bind("").execute().sync().run(&mut a);
    assert_eq!((&*reply.tags, reply.status), ("12CZ", b'I'));
    // The same in one pipeline, in which the failure is not known when the Parse is sent.
    a.send(
        &begin()
            .query("begin")
            .query("select 1/0")
            .parse("", "select 'known'")
            .bind("")
            .execute()
            .sync()
            .query("rollback")
            .0,
    );
    assert_eq!(a.reply().tags, "CZ");
    assert_eq!(a.reply().tags, "EZ");
    assert_eq!(a.reply().tags, "EZ");
    assert_eq!(a.reply().tags, "CZ");
    assert_eq!(begin().parse("", "select 'known'").bind("").execute().sync().run(&mut b).value(), "known");
}

#[test]
fn flush_brings_replies_that_need_no_server() {
    let db = database("flush");
    let manager = manager(server(), 1, 1);
    let mut client = Client::new(&manager, db);
    for _ in 0..3 {
        client.send(&begin().parse("", "select 'f'").flush().0);
        assert_eq!(client.message().unwrap().0, b'1');
        client.send(&begin().bind("").flush().0);
        assert_eq!(client.message().unwrap().0, b'2');
        client.send(&begin().execute().flush().0);
        assert_eq!(client.message().unwrap().0, b'D');
        assert_eq!(client.message().unwrap().0, b'C');
        client.send(&begin().close("").flush().0);
        assert_eq!(client.message().unwrap().0, b'3');
        assert_eq!(begin().sync().run(&mut client).tags, "Z");
    }
}

#[test]
fn deallocate_and_discard() {
    let db = database("deallocate");
    let manager = manager(server(), 1, 1);
    let mut a = Client::new(&manager, db);
    let mut b = Client::new(&manager, db);
    for round in 0..3 {
        begin().parse("x", "select 'x'").parse("Y", "select 'y'").sync().run(&mut a);
        begin().parse("x", "select 'x'").sync().run(&mut b);
        let reply = a.query("DEALLOCATE x");
        assert_eq!((&*reply.tags, reply.done.join("")), ("CZ", "DEALLOCATE".to_owned()), "{round}");
        assert_eq!(begin().bind("x").execute().sync().run(&mut a).state(), "26000");
        assert_eq!(begin().bind("x").execute().sync().run(&mut b).value(), "x");
        let reply = begin().parse("", "deallocate \"Y\"").bind("").execute().sync().run(&mut a);
        assert_eq!(reply.tags, "12CZ");
        assert_eq!(begin().bind("Y").execute().sync().run(&mut a).state(), "26000");
        assert_eq!(a.query("deallocate x").state(), "26000");
        begin().parse("z", "select 'z'").sync().run(&mut a);
        for sql in ["deallocate all", "discard all"] {
            assert_eq!(a.query(sql).tags, "CZ");
            assert_eq!(begin().bind("z").execute().sync().run(&mut a).state(), "26000");
            // The neighbour's are put there again.
            assert_eq!(begin().bind("x").execute().sync().run(&mut b).value(), "x");
        }
        begin().close("x").sync().run(&mut b);
    }
}

#[test]
fn a_change_of_the_catalogs_is_noticed() {
    let db = database("ddl");
    let manager = manager(server(), 1, 2);
    let mut a = Client::new(&manager, db);
    let mut b = Client::new(&manager, db);
    a.query("create table t (a int); insert into t values (1)");
    for client in [&mut a, &mut b] {
        begin().parse("s", "select * from t").sync().run(client);
        for _ in 0..3 {
            assert_eq!(begin().parse("", "select * from t").bind("").execute().sync().run(client).value(), "1");
            assert_eq!(begin().bind("s").execute().sync().run(client).value(), "1");
        }
    }
    for round in 0..3 {
        b.query(&format!("alter table t add column b{round} int"));
        for client in [&mut a, &mut b] {
            let reply = begin().parse("", "select * from t").bind("").execute().sync().run(client);
            assert_eq!((reply.state(), reply.value()), ("", "1"), "{round}");
            let reply = begin().bind("s").execute().sync().run(client);
            assert_eq!((reply.state(), reply.value()), ("", "1"), "{round}");
        }
    }
    // Changed in a transaction that others do not see before its end.
    b.query("begin");
    b.query("alter table t add column c int");
    assert_eq!(begin().parse("", "select * from t").bind("").execute().sync().run(&mut b).value(), "1");
    b.query("commit");
    assert_eq!(begin().parse("", "select * from t").bind("").execute().sync().run(&mut a).value(), "1");
    // A change past the manager: the server's first complaint is the last one.
    a.query("select 1");
    server().psql(db, "alter table t add column d int").unwrap();
    let mut complaints = 0;
    for _ in 0..6 {
        for client in [&mut a, &mut b] {
            let reply = begin().parse("", "select * from t").bind("").execute().sync().run(client);
            match reply.state() {
                "0A000" => complaints += 1,
                _ => assert_eq!(reply.value(), "1"),
            }
        }
    }
    assert!(complaints <= 1, "{complaints}");
}

#[test]
fn servers_keep_a_bounded_number() {
    let db = database("bounded");
    let manager = manager_with(server(), "statements_per_server = 10", &overrides(1, 1));
    let mut client = Client::new(&manager, db);
    for round in 0..3 {
        for i in 0..40 {
            let sql = format!("select {i}");
            let reply = begin().parse("", &sql).bind("").execute().sync().run(&mut client);
            assert_eq!((reply.value(), &*reply.tags), (&*i.to_string(), "12DCZ"), "{round}");
        }
    }
    for i in 0..30 {
        assert_eq!(begin().parse(&format!("n{i}"), &format!("select 'n{i}'")).sync().run(&mut client).tags, "1Z");
    }
    let count = prepared(&mut client).len();
    assert!((1..=10).contains(&count), "{count}");
    for i in (0..30).rev() {
        let reply = begin().bind(&format!("n{i}")).execute().sync().run(&mut client);
        assert_eq!((reply.value(), &*reply.tags), (&*format!("n{i}"), "2DCZ"));
    }
    // What a transaction under way refers to is not removed.
    client.query("begin");
    for _ in 0..2 {
        for i in 0..30 {
            let name = format!("n{i}");
            assert_eq!(begin().bind(&name).execute().sync().run(&mut client).value(), name);
        }
    }
    client.query("commit");
    assert_eq!(begin().bind("n3").execute().sync().run(&mut client).value(), "n3");
    begin().bind("n4").execute().sync().run(&mut client);
    // It shrinks as soon as there is something new.
    begin().parse("new", "select 'new'").sync().run(&mut client);
    let count = prepared(&mut client).len();
    assert!((1..=10).contains(&count), "{count}");
}

#[test]
fn long_texts_and_long_names() {
    let db = database("long");
    let manager = manager(server(), 1, 2);
    let mut a = Client::new(&manager, db);
    let mut b = Client::new(&manager, db);
    let long = format!("select '{}'", "l".repeat(100_000));
    for _ in 0..3 {
        let reply = begin().parse("", &long).bind("").execute().sync().run(&mut a);
        assert_eq!((&*reply.tags, reply.volume > 100_000), ("12DCZ", true));
        // It stays the client's own between transactions.
        assert_eq!(begin().parse("", &long).sync().run(&mut a).tags, "1Z");
        assert_eq!(begin().parse("", "select 'b'").bind("").execute().sync().run(&mut b).value(), "b");
        assert!(begin().bind("").execute().sync().run(&mut a).volume > 100_000);
        assert_eq!(begin().parse("", "select 'short'").bind("").execute().sync().run(&mut a).value(), "short");
    }
    let name = "n".repeat(63);
    assert_eq!(begin().parse(&name, "select 'long name'").sync().run(&mut b).tags, "1Z");
    assert_eq!(begin().bind(&name).execute().sync().run(&mut b).value(), "long name");
    // Parameters of a size that passes in pieces.
    let big = "p".repeat(3_000_000);
    for _ in 0..3 {
        let reply =
            begin().parse("", "select length($1::text)::text").bind_with("", &[&big]).execute().sync().run(&mut a);
        assert_eq!(reply.value(), "3000000");
    }
    // A long text with a name stays on the client's server.
    assert_eq!(begin().parse("long", &long).sync().run(&mut a).tags, "1Z");
    assert!(begin().bind("long").execute().sync().run(&mut a).volume > 100_000);
}

#[test]
fn settings_are_part_of_a_statement() {
    let db = database("statement_settings");
    let manager = manager(server(), 1, 1);
    let with =
        |style: &str| Client::login(&manager, &[("user", "postgres"), ("database", db), ("options", style)]).unwrap();
    let mut iso = with("-c datestyle=iso,mdy");
    let mut german = with("-c datestyle=german,dmy");
    for _ in 0..4 {
        for (client, value) in [(&mut iso, "2020-01-02"), (&mut german, "01.02.2020")] {
            let reply = begin().parse("", "select date '01/02/2020'").bind("").execute().sync().run(client);
            assert_eq!(reply.value(), value);
        }
    }
}

#[test]
fn a_client_with_settings_of_its_own_shares_nothing() {
    let db = database("statement_search_path");
    let manager = manager(server(), 1, 2);
    let mut a = Client::new(&manager, db);
    let mut b = Client::new(&manager, db);
    a.query("create table t as select 1 as n; create schema s; create table s.t as select 'text' as x, 2 as y");
    for client in [&mut a, &mut b] {
        begin().parse("named", "select * from t").sync().run(client);
        for _ in 0..3 {
            assert_eq!(begin().parse("", "select * from t").bind("").execute().sync().run(client).value(), "1");
        }
    }
    a.query("set search_path = s");
    for _ in 0..3 {
        assert_eq!(begin().parse("", "select * from t").bind("").execute().sync().run(&mut a).value(), "text");
        assert_eq!(begin().bind("named").execute().sync().run(&mut a).value(), "text");
        assert_eq!(begin().bind("named").execute().sync().run(&mut b).value(), "1");
    }
    drop(a);
    for _ in 0..4 {
        let mut c = Client::new(&manager, db);
        assert_eq!(begin().parse("", "select * from t").bind("").execute().sync().run(&mut c).value(), "1");
        assert_eq!(begin().bind("named").execute().sync().run(&mut b).value(), "1");
    }
}

#[test]
fn pgbench_with_more_clients_than_connections() {
    let db = database("pgbench_prepared");
    let manager = manager(server(), 2, 3);
    let ended = program(&manager, "pgbench", db, &["-i", "-q", "-U", "postgres"]);
    assert!(ended.ok, "{}", ended.err);
    for mode in ["prepared", "extended", "simple"] {
        // pgbench prepares with a call that blocks its thread, while other clients of the thread are in transactions.
        let args = ["-n", "-M", mode, "-c", "12", "-j", "2", "-t", "40", "-U", "postgres"];
        let ended = program(&manager, "pgbench", db, &args);
        assert!(ended.ok && ended.out.contains("480/480"), "{mode}: {}{}", ended.out, ended.err);
    }
    assert!(backends(db, "true") <= 4);
}

#[test]
fn what_is_known_is_prepared_without_a_server() {
    let db = database("prepared_alone");
    let manager = manager(server(), 1, 1);
    let mut a = Client::new(&manager, db);
    let mut b = Client::new(&manager, db);
    let mut holder = Client::new(&manager, db);
    a.query("create table t (a int); insert into t values (1)");
    let described = begin().parse("s", "select a from t where a = $1").describe("s").sync().run(&mut a);
    assert_eq!(described.tags, "1tTZ");
    assert_eq!(begin().parse("n", "insert into t values (2)").describe("n").sync().run(&mut a).tags, "1tnZ");
    // The only connection is taken.
    holder.query("begin");
    for _ in 0..2 {
        let reply = begin().parse("x", "select a from t where a = $1").describe("x").sync().run(&mut b);
        assert_eq!((&*reply.tags, reply.status), ("1tTZ", b'I'));
        assert_eq!(begin().parse("", "insert into t values (2)").describe("").sync().run(&mut b).tags, "1tnZ");
        // Several in a pipeline, and in one batch.
        let two =
            begin().parse("y", "insert into t values (2)").close("y").sync().close("x").close("none").flush().sync();
        b.send(&two.0);
        assert_eq!(b.reply().tags, "13Z");
        assert_eq!(b.reply().tags, "33Z");
    }
    begin().parse("x", "select a from t where a = $1").sync().run(&mut b);
    holder.query("commit");
    let reply = begin().bind_with("x", &["1"]).execute().sync().run(&mut b);
    assert_eq!((reply.value(), &*reply.tags), ("1", "2DCZ"));
    assert_eq!(begin().bind("").execute().sync().run(&mut b).tags, "2CZ");
    // A name that is taken, and what is not known, is for the server.
    assert_eq!(begin().parse("x", "insert into t values (2)").sync().run(&mut b).state(), "42P05");
    assert_eq!(begin().bind_with("x", &["1"]).execute().sync().run(&mut b).value(), "1");
    assert_eq!(begin().describe("nothing").sync().run(&mut b).state(), "26000");
    // One that is answered in part by nobody is undone, and sent.
    let reply = begin().parse("z", "insert into t values (2)").describe("nothing").sync().run(&mut b);
    assert_eq!((reply.state(), &*reply.tags), ("26000", "1EZ"));
    assert_eq!(begin().close("z").sync().run(&mut b).tags, "3Z");
    // The catalogs have changed.
    holder.query("alter table t rename a to b");
    assert_eq!(begin().parse("w", "select a from t where a = $1").sync().run(&mut b).state(), "42703");
    holder.query("alter table t add a text");
    let reply = begin().parse("w", "select a from t where a = $1").describe("w").sync().run(&mut b);
    assert_eq!(reply.tags, "1tTZ");
    // In pieces.
    let bytes = begin().parse("v", "select a from t where a = $1").describe("v").sync().0;
    for byte in bytes {
        b.send(&[byte]);
    }
    assert_eq!(b.reply().tags, "1tTZ");
}

#[test]
fn sql_finds_what_the_protocol_has_prepared() {
    let db = database("sql_execute");
    let manager = manager(server(), 1, 1);
    let mut a = Client::new(&manager, db);
    let mut b = Client::new(&manager, db);
    for round in 0..3 {
        begin().parse("s", "select 'a' || $1").sync().run(&mut a);
        begin().parse("s", "select 'b' || $1").sync().run(&mut b);
        assert_eq!(a.query("execute s ('1')").value(), "a1", "{round}");
        assert_eq!(b.query("execute s ('2')").value(), "b2");
        assert_eq!(a.query("explain execute s ('1')").state(), "");
        assert_eq!(a.query("create table made as execute s ('x')").state(), "");
        assert_eq!(a.query("select * from made; drop table made").value(), "ax");
        // By the extended protocol, in a transaction, and in a pipeline.
        for name in ["", "e"] {
            let reply = begin().parse(name, "execute s ('3')").describe(name).bind(name).execute().sync().run(&mut a);
            assert_eq!((reply.value(), &*reply.tags), ("a3", "1tT2DCZ"));
            let reply = begin().parse(name, "execute s ('3')").bind(name).execute().close(name).sync().run(&mut b);
            assert_eq!((reply.value(), &*reply.tags), ("b3", "12DC3Z"));
            begin().close(name).sync().run(&mut a);
        }
        a.query("begin");
        assert_eq!(a.query("execute s ('4')").value(), "a4");
        a.query("commit");
        a.send(&begin().query("select 1").query("execute s ('5')").0);
        assert_eq!((a.reply().value(), a.reply().value()), ("1", "a5"));
        // PREPARE finds the name taken; what is closed is gone.
        assert_eq!(a.query("prepare s as select 1").state(), "42P05");
        a.query("begin");
        a.query("execute s ('6')");
        begin().close("s").sync().run(&mut a);
        assert_eq!(a.query("execute s ('7')").state(), "26000");
        a.query("rollback");
        assert_eq!(a.query("execute s ('8')").state(), "26000");
        assert_eq!(b.query("execute s ('9')").value(), "b9");
        begin().close("s").sync().run(&mut b);
        assert!(b.query("select count(*) from pg_prepared_statements where name !~ 'pgusher_'").value() == "0");
    }
}

#[test]
fn names_are_discarded_in_the_middle_of_a_pipeline() {
    let db = database("discard_pipeline");
    let manager = manager(server(), 1, 1);
    let mut a = Client::new(&manager, db);
    for round in 0..3 {
        for sql in ["deallocate all", "DISCARD ALL"] {
            begin().parse("s", "select 'old'").parse("t", "select 't'").sync().run(&mut a);
            let batch = begin().parse("", sql).bind("").execute().parse("s", "select 'new'").bind("s").execute();
            let reply = batch.sync().run(&mut a);
            assert_eq!((reply.value(), &*reply.tags), ("new", "12C12DCZ"), "{round} {sql}");
            assert_eq!(begin().bind("s").execute().sync().run(&mut a).value(), "new");
            assert_eq!(begin().bind("t").execute().sync().run(&mut a).state(), "26000");
            begin().close("s").sync().run(&mut a);
        }
        // It fails, or is never read.
        begin().parse("s", "select 'old'").sync().run(&mut a);
        let reply = begin()
            .parse("", "select 1/0")
            .bind("")
            .execute()
            .parse("", "deallocate all")
            .bind("")
            .execute()
            .parse("u", "select 'u'")
            .sync()
            .run(&mut a);
        assert_eq!((reply.state(), &*reply.tags), ("22012", "1EZ"));
        assert_eq!(begin().bind("s").execute().sync().run(&mut a).value(), "old");
        assert_eq!(begin().bind("u").execute().sync().run(&mut a).state(), "26000");
        let reply = begin().parse("", "select 1/0").bind("").execute().parse("", "deallocate s").sync().run(&mut a);
        assert_eq!(reply.state(), "22012");
        assert_eq!(begin().bind("s").execute().sync().run(&mut a).value(), "old");
        a.query("begin");
        let reply = begin().parse("", "discard all").bind("").execute().sync().run(&mut a);
        assert_eq!(reply.state(), "25001");
        a.query("rollback");
        assert_eq!(begin().bind("s").execute().sync().run(&mut a).value(), "old");
        begin().close("s").sync().run(&mut a);
    }
}

#[test]
fn long_names() {
    let db = database("long_names");
    let manager = manager(server(), 1, 2);
    let mut a = Client::new(&manager, db);
    let mut b = Client::new(&manager, db);
    for length in [63, 64, 600, 800, 1200, 3000] {
        let name = format!("{length:_>length$}");
        assert_eq!(begin().parse(&name, "select 'long'").sync().run(&mut a).tags, "1Z", "{length}");
        b.query("select 1");
        assert_eq!(begin().bind(&name).execute().sync().run(&mut a).value(), "long", "{length}");
        assert_eq!(begin().close(&name).sync().run(&mut a).tags, "3Z");
    }
    let long = format!("select '{}'", "x".repeat(20_000));
    begin().parse("s", "select 's'").sync().run(&mut a);
    assert_eq!(begin().parse("l", &long).sync().run(&mut a).tags, "1Z");
    assert_eq!(begin().bind("l").execute().sync().run(&mut a).tags, "2DCZ");
    assert_eq!(begin().bind("s").execute().sync().run(&mut a).value(), "s");
}
