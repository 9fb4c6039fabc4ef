//! Statements that the protocol has prepared and that SQL names: what stays behind on a physical connection, and whose it is.

mod support;

use support::batch::begin;
use support::*;

/// What a neighbour finds under this name, and whether it can take it.
fn is_free(client: &mut Client, name: &str) {
    let reply = client.query(&format!("execute {name}"));
    assert_eq!(reply.state(), "26000", "{name}: {reply:?}");
    let reply = client.query(&format!("prepare {name} as select 'own'"));
    assert_eq!(reply.state(), "", "{name}: {reply:?}");
    assert_eq!(client.query(&format!("execute {name}")).value(), "own");
    client.query(&format!("deallocate {name}"));
}

#[test]
fn what_a_discarded_batch_was_to_remove_reaches_nobody() {
    let db = database("discarded_removal");
    let manager = manager(server(), 1, 1);
    let mut a = Client::new(&manager, db);
    let mut b = Client::new(&manager, db);
    a.query("begin");
    begin().parse("s", "select 'theirs'").sync().run(&mut a);
    assert_eq!(a.query("execute s").value(), "theirs");
    begin().close("s").sync().run(&mut a);
    // The server looks at nothing behind the error.
    let reply = begin().parse("", "complete nonsense").parse("x", "execute s").sync().run(&mut a);
    assert_eq!(reply.state(), "42601");
    a.query("rollback");
    is_free(&mut b, "s");
}

#[test]
fn what_stands_behind_a_statement_that_fails_reaches_nobody() {
    let db = database("failed_removal");
    let manager = manager(server(), 1, 1);
    let mut a = Client::new(&manager, db);
    let mut b = Client::new(&manager, db);
    a.query("create table gone (n int); create temp table keeps (n int)");
    begin().parse("good", "select 'theirs'").parse("bad", "select * from gone").sync().run(&mut a);
    assert_eq!(a.query("execute good").value(), "theirs");
    begin().close("good").sync().run(&mut a);
    a.query("drop table gone");
    assert_ne!(a.query("execute bad; execute good").state(), "");
    a.query("drop table keeps");
    is_free(&mut b, "good");
}

#[test]
fn a_statement_that_executes_prepare_keeps_its_connection() {
    let db = database("execute_prepare");
    let manager = manager(server(), 1, 4);
    let mut a = Client::new(&manager, db);
    begin().parse("p", "prepare kept as select 'kept'").sync().run(&mut a);
    assert_eq!(a.query("execute p").state(), "");
    let mut others: Vec<Client> = (0..3).map(|_| Client::new(&manager, db)).collect();
    for other in &mut others {
        assert_eq!(other.query("begin").status, b'T');
        assert_eq!(other.query("execute kept").state(), "26000");
    }
    assert_eq!(a.query("execute kept").value(), "kept");
}

#[test]
fn a_long_statement_takes_the_place_of_one_that_sql_has_used() {
    let db = database("long_takes_over");
    let manager = manager(server(), 1, 2);
    let mut a = Client::new(&manager, db);
    let long = format!("select '{}'", "l".repeat(100_000));
    a.query("begin");
    begin().parse("s", "select 1").sync().run(&mut a);
    assert_eq!(a.query("execute s").value(), "1");
    begin().close("s").sync().run(&mut a);
    assert_eq!(begin().parse("s", &long).sync().run(&mut a).tags, "1Z");
    a.query("commit");
    for _ in 0..3 {
        let reply = begin().bind("s").execute().sync().run(&mut a);
        assert_eq!((reply.state(), reply.volume > 100_000), ("", true));
    }
}

#[test]
fn names_that_are_closed_do_not_pile_up() {
    let db = database("closed_names");
    let manager = manager(server(), 1, 1);
    let mut a = Client::new(&manager, db);
    a.query("create temp table keeps (n int)");
    for i in 0..100 {
        let name = format!("n{i}");
        begin().parse(&name, "select 1").sync().run(&mut a);
        assert_eq!(a.query(&format!("execute {name}")).value(), "1");
        match i % 3 {
            0 => assert_eq!(begin().close(&name).sync().run(&mut a).tags, "3Z"),
            1 => assert_eq!(a.query(&format!("deallocate {name}")).tags, "CZ"),
            _ => {
                let sql = format!("deallocate {name}");
                assert_eq!(begin().parse("", &sql).bind("").execute().sync().run(&mut a).tags, "12CZ");
            }
        }
    }
    let left = a.query("select count(*) from pg_prepared_statements where name like 'n%'");
    assert!(left.value().parse::<u32>().unwrap() < 10, "{left:?}");
}

#[test]
fn a_name_that_is_too_long_to_be_shared_is_taken_all_the_same() {
    let db = database("taken_long");
    let manager = manager(server(), 1, 1);
    let mut a = Client::new(&manager, db);
    let name = "n".repeat(1000);
    begin().parse(&name[..63], "select 1").sync().run(&mut a);
    assert_eq!(begin().parse(&name, "select 2").sync().run(&mut a).state(), "42P05");
    assert_eq!(begin().bind(&name[..63]).execute().sync().run(&mut a).value(), "1");
    // Of one that is shortened by the server, nothing is left under its short name.
    a.query("create temp table keeps (n int)");
    let name = &name[..100];
    assert_eq!(begin().parse(name, "select 2").sync().run(&mut a).state(), "42P05");
    begin().close(name).sync().run(&mut a);
    assert_eq!(a.query(&format!("execute {}", &name[..63])).state(), "26000");
}

#[test]
fn what_execute_does_by_a_statement_of_the_protocol_stays_with_its_client() {
    let db = database("executed_effects");
    let manager = manager(server(), 1, 1);
    let see = "select coalesce(current_setting('app.x', true), '') || coalesce(current_setting('app.y', true), '')";
    let mut a = Client::new(&manager, db);
    a.query(
        "create function hidden() returns void language plpgsql as \
         $$ begin perform set_config('app.x', 'hidden', false); end $$",
    );
    begin()
        .parse("set", "select set_config($1::text, $2::text, false)")
        .parse("call", "select hidden()")
        .parse("plain", "set app.x = 'plain'")
        .sync()
        .run(&mut a);
    for (sql, value) in [
        ("execute call", "hidden"),
        ("execute plain", "plain"),
        ("execute set ('app.x', 'mine')", "mine"),
        ("execute set ('app.y', '!')", "mine!"),
    ] {
        for in_batch in [false, true] {
            if in_batch {
                let reply = begin().parse("", sql).bind("").execute().sync().run(&mut a);
                assert_eq!(reply.state(), "", "{sql}: {reply:?}");
            } else {
                assert_eq!(a.query(sql).state(), "", "{sql}");
            }
            assert_eq!(a.query(see).value(), value, "{sql} {in_batch}");
            if !sql.contains("set") {
                let mut b = Client::new(&manager, db);
                assert_eq!(b.query(see).value(), "", "{sql} {in_batch}");
            }
        }
    }
    drop(a);
    let mut b = Client::new(&manager, db);
    assert_eq!(b.query(see).value(), "");
}

#[test]
fn a_connection_is_free_once_the_protocol_has_closed_what_sql_has_prepared() {
    let db = database("closed_by_protocol");
    let manager = manager(server(), 1, 1);
    let mut a = Client::new(&manager, db);
    let mut b = Client::new(&manager, db);
    a.query("prepare p as select 'sql'");
    assert_eq!(begin().parse("p", "select 'protocol'").sync().run(&mut a).state(), "42P05");
    assert_eq!(begin().close("p").sync().run(&mut a).tags, "3Z");
    assert_eq!(b.query("select 'b'").value(), "b");
    assert_eq!(begin().parse("p", "select 'protocol'").bind("p").execute().sync().run(&mut a).value(), "protocol");
    is_free(&mut b, "p");
}
