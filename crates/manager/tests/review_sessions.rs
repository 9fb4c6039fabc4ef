//! Orders of events in which what one client does to its session could reach the next one, or in which a session could lose what
//! it has done itself.

mod support;

use pgusher_wire::frontend::{self, SYNC_BYTES};
use std::time::{Duration, Instant};
use support::*;

/// Parse, Bind and Execute of a statement through a portal of this name; no Sync.
fn through(portal: &str, sql: &str, rows: i32) -> Vec<u8> {
    let mut out = Vec::new();
    frontend::write_parse(&mut out, b"", sql.as_bytes(), &[]);
    frontend::write_bind(&mut out, portal.as_bytes(), b"", &[]);
    frontend::write_execute(&mut out, portal.as_bytes(), rows);
    out
}

fn run(client: &mut Client, parts: &[&[u8]]) -> Reply {
    client.send(&[&parts.concat()[..], &SYNC_BYTES].concat());
    client.reply()
}

/// What a client that gets the manager's only connection sees of a setting of the user's own.
fn seen(client: &mut Client, name: &str) -> String {
    client.query(&format!("select coalesce(current_setting('{name}', true), '')")).value().to_owned()
}

#[test]
fn a_portal_that_is_suspended_has_set_what_it_sets() {
    let db = database("portal_suspended");
    let manager = manager(server(), 1, 1);
    let (mut a, mut b) = (Client::new(&manager, db), Client::new(&manager, db));
    let reply = run(&mut a, &[&through("", "select set_config('app.suspended', 'a', false)", 1)]);
    assert_eq!(reply.tags, "12DsZ");
    assert_eq!(seen(&mut b, "app.suspended"), "");
    assert_eq!(seen(&mut a, "app.suspended"), "a");
}

#[test]
fn a_function_that_a_text_defines_is_not_the_one_that_was_known() {
    let db = database("defined_in_text");
    let manager = manager(server(), 1, 1);
    let (mut a, mut b) = (Client::new(&manager, db), Client::new(&manager, db));
    a.query("create function tenant() returns void language plpgsql as $$ begin null; end $$");
    for _ in 0..2 {
        a.query("select tenant()");
    }
    let body = "begin perform set_config('app.defined', 'a', false); end";
    let create = format!("create or replace function tenant() returns void language plpgsql as $$ {body} $$");
    let reply = a.query(&format!("{create}; select tenant()"));
    assert!(reply.errors.is_empty(), "{reply:?}");
    assert_eq!(seen(&mut b, "app.defined"), "");
    assert_eq!(seen(&mut a, "app.defined"), "a");
}

#[test]
fn functions_that_call_each_other_are_followed_once() {
    let db = database("call_each_other");
    let manager = manager(server(), 1, 1);
    let mut a = Client::new(&manager, db);
    let names: Vec<String> = (0..12).map(|i| format!("web{i}")).collect();
    let calls: Vec<String> = names.iter().map(|name| format!("perform {name}(n);")).collect();
    for name in &names {
        let body = format!("begin if n > 0 then {} end if; end", calls.concat());
        a.query(&format!("create function {name}(n int) returns void language plpgsql as $$ {body} $$"));
    }
    let begin = Instant::now();
    for _ in 0..5 {
        assert!(a.query("select web0(0)").errors.is_empty());
    }
    assert!(begin.elapsed() < Duration::from_secs(10));
}

#[test]
fn what_was_found_out_is_not_what_the_session_began_with() {
    let db = database("began_with");
    let manager = manager(server(), 1, 1);
    let mut a = Client::new(&manager, db);
    let before = a.query("show work_mem").value().to_owned();
    a.query("update pg_settings set setting = '640' where name = 'work_mem'");
    assert_eq!(a.query("show work_mem").value(), "640kB");
    a.query("reset work_mem");
    assert_eq!(a.query("show work_mem").value(), before);
}

#[test]
fn what_a_long_text_has_set_stays_with_its_client() {
    let db = database("long_text");
    let manager = manager(server(), 1, 1);
    let (mut a, mut b) = (Client::new(&manager, db), Client::new(&manager, db));
    let long = "x".repeat(200_000);
    let reply = a.query(&format!("select set_config('app.long', 'a', false), length('{long}')"));
    assert!(reply.errors.is_empty());
    assert_eq!(seen(&mut b, "app.long"), "");
    let reply = run(&mut a, &[&through("", &format!("select set_config('app.longer', 'a', false), '{long}'"), 0)]);
    assert!(reply.errors.is_empty());
    a.query("select 1");
    assert_eq!(seen(&mut b, "app.longer"), "");
}

#[test]
fn a_commit_inside_a_procedure_keeps_what_was_set_before_it() {
    let db = database("procedure_commits");
    let manager = manager(server(), 1, 1);
    let (mut a, mut b) = (Client::new(&manager, db), Client::new(&manager, db));
    a.query("create procedure commits() language plpgsql as $$ begin commit; end $$");
    for _ in 0..2 {
        assert!(a.query("call commits()").errors.is_empty());
    }
    let set = through("", "set app.procedure = 'a'", 0);
    let reply = run(&mut a, &[&set, &through("", "call commits()", 0), &through("", "select 1 / 0", 0)]);
    assert_eq!(reply.state(), "22012", "{reply:?}");
    assert_eq!(seen(&mut b, "app.procedure"), "");
    let set = through("", "set app.block = 'a'", 0);
    let reply = run(&mut a, &[&set, &through("", "do $$ begin commit; end $$", 0), &through("", "select 1 / 0", 0)]);
    assert_eq!(reply.state(), "22012", "{reply:?}");
    assert_eq!(seen(&mut b, "app.block"), "");
}

#[test]
fn discard_all_in_a_batch_that_fails_is_not_undone() {
    let db = database("discard_in_batch");
    let manager = manager(server(), 1, 1);
    let (mut a, mut b) = (Client::new(&manager, db), Client::new(&manager, db));
    for client in [&mut a, &mut b] {
        client.query("set app.kept = 'x'");
    }
    let reply = run(&mut a, &[&through("", "discard all", 0), &through("", "select 1 / 0", 0)]);
    assert_eq!(reply.state(), "22012", "{reply:?}");
    assert_eq!(seen(&mut b, "app.kept"), "x");
    assert_eq!(seen(&mut a, "app.kept"), "");
}

#[test]
fn a_portal_with_a_long_name_is_seen() {
    let db = database("long_portal");
    let manager = manager(server(), 1, 1);
    let (mut a, mut b) = (Client::new(&manager, db), Client::new(&manager, db));
    let name = "p".repeat(5_000);
    let bytes = through(&name, "set app.portal = 'a'", 0);
    // Only the beginning of each message is there when it is looked at.
    for (i, part) in [&bytes[..1_000], &bytes[1_000..7_000], &bytes[7_000..]].into_iter().enumerate() {
        std::thread::sleep(Duration::from_millis(100 * i as u64));
        a.send(part);
    }
    a.send(&SYNC_BYTES);
    let reply = a.reply();
    assert!(reply.errors.is_empty(), "{reply:?}");
    // It stays with its client.
    drop(a);
    assert_eq!(seen(&mut b, "app.portal"), "");
}

#[test]
fn a_portal_from_before_a_savepoint_is_known() {
    let db = database("old_portal");
    let manager = manager(server(), 1, 1);
    let (mut a, mut b) = (Client::new(&manager, db), Client::new(&manager, db));
    a.query("begin");
    let mut bind = Vec::new();
    frontend::write_parse(&mut bind, b"s", b"set app.old = 'a'", &[]);
    frontend::write_bind(&mut bind, b"p", b"s", &[]);
    assert_eq!(run(&mut a, &[&bind]).tags, "12Z");
    a.query("savepoint here");
    assert_eq!(run(&mut a, &[&through("p", "select 1", 0)]).state(), "42P03");
    a.query("rollback to here");
    let mut execute = Vec::new();
    frontend::write_execute(&mut execute, b"p", 0);
    assert_eq!(run(&mut a, &[&execute]).tags, "CZ");
    a.query("commit");
    assert_eq!(seen(&mut b, "app.old"), "");
}

#[test]
fn a_seed_that_an_error_leaves_behind_stays() {
    let db = database("seed_and_error");
    let manager = manager(server(), 1, 1);
    let mut a = Client::new(&manager, db);
    let pid = a.query("select pg_backend_pid()").value().to_owned();
    assert_eq!(a.query("select setseed(0.5), 1 / (random() * 0)::int").state(), "22012");
    drop(a);
    let mut b = Client::new(&manager, db);
    assert_ne!(b.query("select pg_backend_pid()").value(), pid);
}

#[test]
fn a_listener_is_not_closed_by_what_comes_with_an_answer() {
    let db = database("busy_channel");
    let manager = manager(server(), 1, 4);
    let mut a = Client::new(&manager, db);
    a.query("listen busy");
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut noise = Client::new(&manager, db);
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    noise.query("notify busy");
                }
            });
        }
        let end = Instant::now() + Duration::from_secs(4);
        while Instant::now() < end {
            let reply = a.query("select pg_advisory_lock(1), pg_advisory_unlock(1)");
            if reply.status != b'I' {
                done.store(true, std::sync::atomic::Ordering::Relaxed);
                panic!("{reply:?}");
            }
            a.query("listen other");
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_session_with_little_time_can_be_asked() {
    let db = database("little_time");
    let manager = manager(server(), 1, 1);
    let (mut a, mut b) = (Client::new(&manager, db), Client::new(&manager, db));
    a.query(
        "create function g() returns void language plpgsql as $$ begin perform set_config('app.g', '1', false); end $$",
    );
    a.query("set statement_timeout = 1");
    a.query("select g()");
    // It does not keep its connection.
    assert_eq!(seen(&mut b, "app.g"), "");
    assert_eq!(b.query("show statement_timeout").value(), "0");
    assert_eq!(a.query("show statement_timeout").value(), "1ms");
}

#[test]
fn a_declared_cursor_sets_nothing_before_it_is_read() {
    let db = database("declared_cursor");
    let manager = manager(server(), 1, 1);
    let mut a = Client::new(&manager, db);
    a.query("begin");
    a.query("declare c cursor for select set_config('app.cursor', 'a', false)");
    a.query("commit");
    a.query("explain select set_config('app.cursor', 'b', false)");
    a.query("with x as (select set_config('app.cursor', 'c', false)) select 1");
    a.query("select set_config('app.cursor', 'd', false) limit 0");
    a.query("select 1 where false and set_config('app.cursor', 'e', false) is null");
    // Another connection would be given what the manager believes.
    let mut b = Client::new(&manager, db);
    b.query("select 1");
    assert_eq!(seen(&mut a, "app.cursor"), "");
}

#[test]
fn a_text_that_cannot_be_read_for_sure_is_asked_about() {
    let db = database("not_for_sure");
    let manager = manager(server(), 1, 1);
    let (mut a, mut b) = (Client::new(&manager, db), Client::new(&manager, db));
    a.query("begin");
    a.query("set local search_path = pg_catalog");
    let reply = run(&mut a, &[&through("", "select set_config('app.unsure', 'é', false)", 0)]);
    assert!(reply.errors.is_empty(), "{reply:?}");
    a.query("commit");
    assert_eq!(seen(&mut b, "app.unsure"), "");
    assert_eq!(seen(&mut a, "app.unsure"), "é");
}

#[test]
fn many_names_do_not_hide_one() {
    let db = database("many_names");
    let manager = manager(server(), 1, 1);
    let (mut a, mut b) = (Client::new(&manager, db), Client::new(&manager, db));
    let columns: Vec<String> = (0..100).map(|i| format!("t.c{i}")).collect();
    let values: Vec<String> = (0..100).map(|i| format!("{i} as c{i}")).collect();
    a.query("begin");
    a.query("set local search_path = pg_catalog");
    let from = format!("from (select {}) as t", values.join(", "));
    let sql = format!("select {}, set_config('app.hidden', 'é', false) {from}", columns.join(", "));
    assert!(a.query(&sql).errors.is_empty());
    a.query("commit");
    drop(a);
    assert_eq!(seen(&mut b, "app.hidden"), "");
}

#[test]
fn large_definitions_are_asked_for_in_parts() {
    let db = database("large_definitions");
    let manager = manager(server(), 1, 1);
    let (mut a, mut b) = (Client::new(&manager, db), Client::new(&manager, db));
    let padding = "-- nothing\n".repeat(5_000);
    for i in 0..24 {
        let body = format!("begin {padding} perform set_config('app.large', '{i}', false); end");
        a.query(&format!("create function large{i}() returns void language plpgsql as $$ {body} $$"));
    }
    let calls: Vec<String> = (0..24).map(|i| format!("large{i}()")).collect();
    assert!(a.query(&format!("select {}", calls.join(", "))).errors.is_empty());
    // It does not keep its connection.
    assert_eq!(seen(&mut b, "app.large"), "");
    assert_eq!(seen(&mut a, "app.large"), "23");
}

#[test]
fn a_known_function_counts_within_an_unknown_one() {
    let db = database("known_within");
    let manager = manager(server(), 1, 2);
    let (mut a, mut b) = (Client::new(&manager, db), Client::new(&manager, db));
    let function = |name: &str, body: &str| {
        format!("create function {name}() returns void language plpgsql as $$ begin {body}; end $$")
    };
    a.query(&function("inner_one", "perform set_config('app.inner', 'a', false)"));
    a.query(&function("outer_one", "perform inner_one()"));
    a.query("select inner_one()");
    a.query("reset app.inner");
    // Another connection, on which nobody has set it.
    a.query("begin");
    let pid = b.query("select pg_backend_pid()").value().to_owned();
    let mut c = Client::new(&manager, db);
    assert!(c.query("select outer_one()").errors.is_empty());
    assert_eq!(b.query("select pg_backend_pid()").value(), pid);
    assert_eq!(seen(&mut b, "app.inner"), "");
}

#[test]
fn what_is_set_without_a_name_that_is_known_reaches_nobody() {
    let db = database("nameless");
    let manager = manager(server(), 1, 1);
    let (mut a, mut b) = (Client::new(&manager, db), Client::new(&manager, db));
    a.query("set app.known = 'known'");
    // Too long to be read: the names of its settings are not.
    let long = format!("select 1 /* {} */; set app.hidden = 'secret'; set work_mem = '7MB'", "x".repeat(20_000));
    assert!(a.query(&long).errors.is_empty());
    assert_eq!(seen(&mut b, "app.hidden"), "");
    assert_eq!(seen(&mut b, "work_mem"), "4MB");
    assert_eq!(seen(&mut a, "work_mem"), "7MB");
    assert_eq!(seen(&mut a, "app.known"), "known");
    // set_config(text, text, boolean), by its number.
    let mut call = Vec::new();
    let mut body = vec![0, 0, 8, 30, 0, 0, 0, 3];
    for argument in ["app.called", "secret", "f"] {
        body.extend_from_slice(&(argument.len() as u32).to_be_bytes());
        body.extend_from_slice(argument.as_bytes());
    }
    body.extend_from_slice(&[0, 0]);
    call.push(b'F');
    call.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    call.extend_from_slice(&body);
    a.send(&call);
    assert!(a.reply().errors.is_empty());
    assert_eq!(seen(&mut b, "app.called"), "");
    // Nor what a client that dies has set.
    let mut c = Client::new(&manager, db);
    assert!(c.query(&long).errors.is_empty());
    drop(c);
    assert_eq!(seen(&mut b, "app.hidden"), "");
}

#[test]
fn what_a_statement_sets_that_sql_has_prepared_stays_with_its_client() {
    let db = database("sql_prepared");
    let manager = manager(server(), 1, 1);
    let (mut a, mut b) = (Client::new(&manager, db), Client::new(&manager, db));
    a.query("prepare p as select set_config('app.prepared', 'a', false)");
    assert!(a.query("execute p").errors.is_empty());
    a.query("deallocate p");
    assert_eq!(seen(&mut b, "app.prepared"), "");
    assert_eq!(seen(&mut a, "app.prepared"), "a");
    // By a function, and with other audits in between.
    let function = "begin perform set_config('app.named', x, false); end";
    a.query(&format!("create function sets(x text) returns void language plpgsql as $$ {function} $$"));
    a.query("prepare p as select set_config('app.later', $1, false); prepare q as select sets($1)");
    a.query("prepare r as select 1");
    a.query("begin; execute p('x'); commit");
    a.query("execute q('x')");
    a.query("deallocate p; deallocate q");
    a.query("deallocate r");
    assert_eq!((seen(&mut b, "app.later"), seen(&mut a, "app.later")), (String::new(), "x".into()));
    assert_eq!(seen(&mut a, "app.named"), "x");
    // What the protocol has prepared.
    a.query("discard all");
    let mut messages = Vec::new();
    frontend::write_parse(&mut messages, b"s", b"select set_config('app.protocol', 'x', false)", &[]);
    assert!(run(&mut a, &[&messages]).errors.is_empty());
    assert!(a.query("execute s").errors.is_empty());
    assert_eq!((seen(&mut b, "app.protocol"), seen(&mut a, "app.protocol")), (String::new(), "x".into()));
}

#[test]
fn a_limit_in_time_that_a_neighbour_has_left_ends_nobody() {
    let db = database("short_limit");
    let manager = manager(server(), 1, 1);
    server().psql(db, "create role short_limit").unwrap();
    let mut a = Client::new(&manager, db);
    // So many that it takes longer than a millisecond to put them on a connection.
    let many: String = (0..400).map(|i| format!("set app.x{i} = '{i}';")).collect();
    let reply = a.query(&many);
    assert!(reply.errors.is_empty(), "{reply:?}");
    a.query("set role short_limit");
    for _ in 0..3 {
        let mut b = Client::new(&manager, db);
        b.query("set statement_timeout = 1");
        let asked = "current_user || ' ' || current_setting('app.x399') || ' ' || current_setting('statement_timeout')";
        assert_eq!(a.query(&format!("select {asked}")).value(), "short_limit 399 0");
    }
}

#[test]
fn a_reset_does_not_begin_what_a_transaction_may_still_choose() {
    let db = database("reset_first");
    let manager = manager(server(), 1, 1);
    let parameters = [("user", "postgres"), ("database", db), ("timezone", "CET")];
    let mut a = Client::login(&manager, &parameters).unwrap();
    a.query("begin");
    a.query("reset timezone");
    let reply = a.query("set transaction isolation level serializable");
    assert!(reply.errors.is_empty(), "{reply:?}");
    a.query("commit");
    assert_eq!(a.query("show timezone").value(), "CET");
}

#[test]
fn long_texts_do_not_fill_the_place_for_sessions_that_keep_a_connection() {
    let db = database("long_texts");
    let manager = manager(server(), 1, 2);
    let long = "x".repeat(200_000);
    let mut clients: Vec<Client> = (0..6).map(|_| Client::new(&manager, db)).collect();
    for client in &mut clients {
        let reply = client.query(&format!("select length('{long}')"));
        assert!(reply.errors.is_empty(), "{reply:?}");
    }
}
