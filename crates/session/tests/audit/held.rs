//! What stays with a physical connection, and functions.

use super::{ALL, session};
use crate::postgres::{Question, Session, server};
use pgusher_session::audit::Aspects;

#[test]
fn temporary_objects_until_they_are_dropped() {
    let mut session = session("temporary");
    let question = Question { aspects: Aspects::TEMPORARY, ..Question::default() };
    for (create, drop) in [
        ("table pg_temp.a (i int)", "table a"),
        ("table pg_temp.a (i text primary key)", "table a"),
        ("temp sequence b", "sequence b"),
        ("temp view c as select 1", "view c"),
        ("type pg_temp.d as enum ('x')", "type pg_temp.d"),
        ("type pg_temp.e as (a int)", "type pg_temp.e"),
        ("domain pg_temp.g as int", "domain pg_temp.g"),
        ("function pg_temp.h() returns int language sql as 'select 1'", "function pg_temp.h"),
        ("operator pg_temp.=== (function = int4eq, leftarg = int, rightarg = int)", "operator pg_temp.=== (int, int)"),
    ] {
        session.run(&format!("create {create}"));
        assert!(session.ask(&question).temporary, "{create}");
        session.run(&format!("drop {drop}"));
        assert!(!session.ask(&question).temporary, "{drop}");
    }
    session.run("create temp table a (i int); create temp table b as select 1");
    // Another session's are not this one's.
    assert!(!Session::new(server(), "temporary", "postgres").ask(&question).temporary);
    session.run("discard temp");
    assert!(!session.ask(&question).temporary);
    session.run("begin; create temp table a (i int) on commit drop; commit");
    assert!(!session.ask(&question).temporary);
}

#[test]
fn locks_cursors_channels_and_statements_until_they_end() {
    let mut session = session("ends");
    let held = |session: &mut Session, sql: &str| {
        session.run(sql);
        session.ask(&ALL).held()
    };
    let mut other = Session::new(server(), "ends", "postgres");
    other.run("select pg_advisory_lock(7)");
    assert_eq!(held(&mut session, "select pg_advisory_xact_lock(1)"), Aspects::NONE);
    assert_eq!(held(&mut session, "select pg_advisory_lock_shared(1, 2), pg_advisory_lock(3)"), Aspects::LOCKS);
    assert_eq!(held(&mut session, "select pg_advisory_unlock_all()"), Aspects::NONE);
    assert_eq!(held(&mut session, "begin; declare c cursor for select 1; commit"), Aspects::NONE);
    assert_eq!(held(&mut session, "begin; declare c cursor with hold for select 1; commit"), Aspects::CURSORS);
    assert_eq!(held(&mut session, "close c"), Aspects::NONE);
    assert_eq!(held(&mut session, "listen a; listen b"), Aspects::CHANNELS);
    assert_eq!(held(&mut session, "unlisten a"), Aspects::CHANNELS);
    assert_eq!(held(&mut session, "unlisten *"), Aspects::NONE);
    assert_eq!(held(&mut session, "do $$ begin execute 'prepare p as select 1'; end $$"), Aspects::PREPARED);
    assert_eq!(held(&mut session, "deallocate p; prepare pgusher_p as select 1"), Aspects::NONE);
    // It is not the manager's: `_` stands for itself.
    assert_eq!(held(&mut session, "prepare pgusherxp as select 1"), Aspects::PREPARED);
}

#[test]
fn functions() {
    let mut session = session("functions");
    session.run(
        "create schema s; \
         create function f() returns int language sql as 'select 1'; \
         create function s.f(int) returns int language plpgsql set work_mem = '1MB' as 'begin return 2; end'; \
         create function \"F\"() returns int language internal as 'pg_backend_pid'; \
         create procedure g() language sql as 'select 4'; \
         create aggregate h(int) (sfunc = int4pl, stype = int); \
         create function now(int) returns int language sql as 'select 5'",
    );
    // A body that the server keeps parsed, where there is such a thing.
    let parsed = if server().version().major >= 14 { "int language sql return 3" } else { "void language sql as ''" };
    session.run(&format!("create function f(a text) returns {parsed}"));
    session.run(&format!("create function long() returns int language sql as '--{}\nselect 1'", "x".repeat(65536)));
    let names = ["f", "F", "g", "h", "now", "long", "nobody"];
    let question = Question { aspects: Aspects::FUNCTIONS, functions: &names, ..Question::default() };
    let found = session.ask(&question);
    let mut functions: Vec<String> = found
        .functions
        .into_iter()
        .map(|f| {
            let body = f.body.unwrap_or_else(|| "too long".into());
            format!("{}.{} {} {} {} {}", f.schema, f.name, f.language, f.kind, f.configured, body)
        })
        .collect();
    functions.sort();
    assert_eq!(
        functions,
        [
            "public.F internal f false pg_backend_pid",
            "public.f sql f false ",
            "public.f sql f false select 1",
            "public.g sql p false select 4",
            "public.h internal a false aggregate_dummy",
            "public.long sql f false too long",
            "public.now sql f false select 5",
            "s.f plpgsql f true begin return 2; end",
        ]
    );
    assert!(!found.unrepresentable);
}
