//! Session mode: what a client does to its session stays for as long as the client does, and not a moment longer.

mod support;

use pgusher_manager::{Manager, Overrides, PoolMode};
use pgusher_wire::frontend::{self, SYNC_BYTES};
use std::time::Duration;
use support::*;

fn session_manager(workers: usize, pool: usize) -> Manager {
    let overrides = Overrides { pool_mode: Some(PoolMode::Session), ..overrides(workers, pool) };
    manager_with(server(), "", &overrides)
}

fn named(name: &str, sql: &str) -> Vec<u8> {
    let mut out = Vec::new();
    frontend::write_parse(&mut out, name.as_bytes(), sql.as_bytes(), &[]);
    out.extend(SYNC_BYTES);
    out
}

fn run(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    frontend::write_bind(&mut out, b"", name.as_bytes(), &[]);
    frontend::write_execute(&mut out, b"", 0);
    out.extend(SYNC_BYTES);
    out
}

/// What a session can leave behind, counted: settings, temporary tables, advisory locks, statements, channels, cursors.
const TRACES: &str = "select concat_ws(',', current_setting('work_mem'), current_setting('app.tenant', true), \
    (select count(*) from pg_class where relpersistence = 't' and relkind = 'r'), \
    (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()), (select count(*) from pg_prepared_statements), \
    (select count(*) from pg_listening_channels()), (select count(*) from pg_cursors), current_role)";
const NONE: &str = "4MB,,0,0,0,0,0,postgres";

#[test]
fn a_session_stays_and_leaves_nothing() {
    server().psql("postgres", "create role session_role").unwrap();
    with_one_and_two(|workers| {
        let name = format!("session{workers}");
        let db = database(&name);
        let manager = session_manager(workers, 1);
        let mut one = Client::new(&manager, db);
        let clean = one.query(TRACES);
        assert_eq!(clean.value().replace(",,", ","), NONE.replace(",,", ","), "at first");
        let pid = one.query("select pg_backend_pid()").value().to_owned();
        for sql in [
            "set work_mem = '7MB'",
            "set app.tenant = 'seven'",
            "create temp table tt as select 42 as n",
            "select pg_advisory_lock(7)",
            "prepare p as select 'sql statement'",
            "listen channel",
            "begin; declare c cursor with hold for select 'held' from generate_series(1, 3); commit",
            "set role session_role",
        ] {
            let reply = one.query(sql);
            assert!(reply.errors.is_empty() && reply.status == b'I', "{sql}: {reply:?}");
        }
        one.send(&named("q", "select 'protocol statement'"));
        assert_eq!(one.reply().tags, "1Z");
        // Unnamed, and used again much later.
        one.send(&named("", "select 'unnamed statement'"));
        assert_eq!(one.reply().tags, "1Z");

        let mut two = Client::new(&manager, db);
        two.start(TRACES);
        server().psql(db, "notify channel, 'news'").unwrap();
        let news = one.until(b'A');
        assert!(news.tags.ends_with('A'), "{news:?}");
        assert!(two.is_silent(Duration::from_millis(100)), "the only connection is in use");
        one.send(&run(""));
        assert_eq!(one.reply().value(), "unnamed statement");
        one.send(&run("q"));
        assert_eq!(one.reply().value(), "protocol statement");
        assert_eq!(one.query("execute p").value(), "sql statement");
        assert_eq!(one.query("fetch c").value(), "held");
        assert_eq!(one.query("reset role").status, b'I');
        assert_eq!(one.query("select n from tt").value(), "42");
        assert_eq!(one.query(TRACES).value(), "7MB,seven,1,1,2,1,1,postgres");
        assert_eq!(one.query("set role session_role").status, b'I');
        assert_eq!(one.query("select pg_backend_pid()").value(), pid);

        // It leaves, in the middle of a transaction.
        assert_eq!(one.query("begin; set work_mem = '8MB'; create temp table t2 ()").status, b'T');
        drop(one);
        // An empty placeholder stays, as after any RESET; its value is gone.
        let traces = two.reply();
        assert_eq!(traces.value().replace(",,", ","), NONE.replace(",,", ","));
        assert_eq!(two.query("select pg_backend_pid()").value(), pid, "cleaned, not replaced");
        two.send(&run("q"));
        assert_eq!(two.reply().state(), "26000");
        // Nobody listens: no notification reaches it.
        server().psql(db, "notify channel, 'old'").unwrap();
        assert!(!two.query("select 1").tags.contains('A'));
        assert_eq!(backends(db, "true"), 1);
    });
}

/// Sessions come one after another on a pool that is full; a startup parameter of one is not the next one's.
#[test]
fn sessions_take_turns() {
    with_one_and_two(|workers| {
        let name = format!("sessionturns{workers}");
        let db = database(&name);
        let manager = session_manager(workers, 2);
        for i in 0..20 {
            let name = format!("client {i}");
            let parameters = [("user", "postgres"), ("database", db), ("application_name", name.as_str())];
            let mut pair = [
                Client::login(&manager, &parameters[..if i % 2 == 0 { 3 } else { 2 }]).unwrap(),
                Client::new(&manager, db),
            ];
            let expected = [if i % 2 == 0 { name.as_str() } else { "" }, ""];
            for (client, expected) in pair.iter_mut().zip(expected) {
                assert_eq!(client.query("show application_name").value(), expected);
                assert_eq!(client.query("show search_path").value(), "\"$user\", public");
                client.query("set search_path = pg_catalog; set application_name = 'other'");
            }
            if i % 3 == 0 {
                for client in &mut pair {
                    client.send(&frontend::TERMINATE_BYTES);
                }
            }
        }
        assert!((1..=2).contains(&backends(db, "true")));
    });
}

#[test]
fn pgbench_with_as_many_clients_as_connections() {
    with_one_and_two(|workers| {
        let name = format!("sessionbench{workers}");
        let db = database(&name);
        let manager = session_manager(workers, 4);
        let run = |args: &[&str]| {
            let ended = program(&manager, "pgbench", db, args);
            assert!(ended.ok, "{workers} workers: {args:?}: {}", ended.err);
            ended.out
        };
        run(&["-i", "-q", "-s", "1"]);
        for mode in ["simple", "extended", "prepared"] {
            let out = run(&["-n", "-M", mode, "-c", "4", "-j", "2", "-t", "50"]);
            assert!(out.contains("actually processed: 200/200") && out.contains("failed transactions: 0 "), "{out}");
        }
        // Each session ends and another one takes its connection, cleaned.
        let out = run(&["-n", "-S", "-M", "prepared", "-C", "-c", "4", "-t", "10"]);
        assert!(out.contains("actually processed: 40/40"), "{out}");
        eventually(Duration::from_secs(5), "clean connections", || backends(db, "query <> 'DISCARD ALL'") == 0);
        assert!((1..=4).contains(&backends(db, "true")));
    });
}

/// A session that begins with settings of its own, and no other: what others have left is not there.
fn begun(manager: &Manager, db: &str) -> Client {
    let options = "-c work_mem=3MB -c search_path=pg_catalog,public -c app.name=größe -c role=session_reset";
    let parameters = [("user", "postgres"), ("database", db), ("timezone", "Asia/Tokyo"), ("options", options)];
    Client::login(manager, &parameters).unwrap()
}

const BEGUN: &str = "Asia/Tokyo 3MB pg_catalog,public größe session_reset";

fn settings(client: &mut Client) -> String {
    let names = ["timezone", "work_mem", "search_path", "app.name", "role"];
    let values: Vec<String> = names.iter().map(|name| format!("current_setting('{name}', true)")).collect();
    client.query(&format!("select concat_ws(' ', {})", values.join(","))).value().to_owned()
}

#[test]
fn reset_goes_back_to_what_the_session_began_with() {
    server().psql("postgres", "create role session_reset").unwrap();
    let db = database("session_reset");
    let manager = session_manager(1, 2);
    let mut one = begun(&manager, db);
    assert_eq!(settings(&mut one), BEGUN);
    let changed =
        "set timezone = 'CET'; set work_mem = '9MB'; set search_path = public; set app.name = 'x'; set role none";
    let resets = [
        "reset timezone; reset work_mem; reset search_path; reset app.name; reset role",
        "reset all; reset role",
        "/* all of it */ RESET ALL ; set role session_reset",
        "begin; reset all; reset role; commit; select 1/0",
        "set time zone local; set work_mem to default; set search_path to default; set app.name to default; reset role",
        "set session authorization default; reset all",
    ];
    for sql in resets {
        one.query(changed);
        assert_eq!(settings(&mut one), "CET 9MB public x none", "{sql}");
        one.query(sql);
        assert_eq!(settings(&mut one), BEGUN, "{sql}");
    }
    one.query(changed);
    assert_eq!(one.query("discard all").tags, "CZ");
    assert_eq!(settings(&mut one), BEGUN);
    // By the extended protocol, now and later, and not by what only looks like it.
    one.query(changed);
    one.send(&named("all", "reset all"));
    assert_eq!(one.reply().tags, "1Z");
    one.send(&[&batch("reset role")[..], &SYNC_BYTES].concat());
    assert_eq!(one.reply().tags, "12nCZ");
    assert_eq!(settings(&mut one), "CET 9MB public x session_reset");
    one.send(&run("all"));
    assert_eq!(one.reply().tags, "2CZ");
    assert_eq!(settings(&mut one), BEGUN);
    // A pipeline, whose end puts back what its beginning has reset.
    one.query(changed);
    one.send(&[query("reset all"), query("reset role"), query("begin"), query("rollback")].concat());
    for _ in 0..4 {
        assert!(one.reply().errors.is_empty());
    }
    assert_eq!(settings(&mut one), BEGUN);
    // The next session has none of it.
    drop(one);
    let mut next = Client::new(&manager, db);
    assert_eq!(next.query("show work_mem").value(), "4MB");
}

#[test]
fn a_reset_that_is_undone_puts_nothing_back() {
    let db = database("session_undone");
    let manager = session_manager(2, 1);
    let parameters = [("user", "postgres"), ("database", db), ("options", "-c work_mem=3MB -c search_path=a,b")];
    let mut one = Client::login(&manager, &parameters).unwrap();
    one.query("set work_mem = '9MB'");
    let show = "show work_mem";
    for sql in [
        "reset work_mem; select 1/0",
        "begin; reset work_mem; rollback",
        "begin; savepoint s; reset work_mem; rollback to s; commit",
        "reset work_mem; set work_mem = '9MB'",
        "select 'reset all'",
        "set local work_mem = '1MB'",
    ] {
        one.query(sql);
        assert_eq!(one.query(show).value(), "9MB", "{sql}");
    }
    one.query("begin");
    one.query("reset work_mem");
    assert_eq!(one.query(show).value(), "3MB");
    one.query("rollback");
    assert_eq!(one.query(show).value(), "9MB");
    one.send(&[batch("reset work_mem"), batch("rollback"), SYNC_BYTES.to_vec()].concat());
    assert_eq!(one.reply().tags.matches('C').count(), 2);
    assert_eq!(one.query(show).value(), "9MB");
    one.query("begin");
    one.query("reset search_path");
    assert!(one.query("set transaction isolation level serializable").errors.is_empty());
    assert_eq!(one.query("show search_path").value(), "a,b");
    one.query("rollback");
    assert_eq!(one.query("show search_path").value(), "a,b");
}

#[test]
fn what_a_client_is_told_after_reset() {
    let db = database("session_told");
    let manager = session_manager(1, 1);
    let parameters = [("user", "postgres"), ("database", db), ("timezone", "Asia/Tokyo")];
    let mut one = Client::login(&manager, &parameters).unwrap();
    let mut told = |sql: &str| {
        one.start(sql);
        let mut told = Vec::new();
        loop {
            match one.message().unwrap() {
                (b'S', body) => told.push(String::from_utf8_lossy(&body).replace('\0', " ").trim().to_owned()),
                (b'Z', _) => return told,
                _ => {}
            }
        }
    };
    assert!(told("select 1").is_empty());
    assert_eq!(told("set timezone = 'CET'"), ["TimeZone CET"]);
    assert_eq!(told("reset timezone"), ["TimeZone Asia/Tokyo"]);
    assert_eq!(told("set timezone = 'CET'; reset all"), ["TimeZone Asia/Tokyo"]);
    assert_eq!(told("reset all; set timezone = 'CET'"), ["TimeZone CET"]);
    assert_eq!(told("begin; reset timezone; rollback"), Vec::<String>::new());
}
