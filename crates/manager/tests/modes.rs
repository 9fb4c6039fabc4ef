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
