//! What a session has set does not mislead the question.

use super::{ALL, session};
use crate::postgres::{Question, Session, pairs, server};
use pgusher_embedded::StopMode;
use pgusher_session::audit::{Aspects, Findings, PreparedStatement};

/// Functions, operators, types and tables with the names that a careless question would use. All of them fail or lie.
const HOSTILE: &str = "
create schema evil;
create function evil.lie(text, text) returns bool language sql as 'select false';
create function evil.lie(name, text) returns bool language sql as 'select false';
create function evil.lie(name, name) returns bool language sql as 'select false';
create function evil.lie(oid, oid) returns bool language sql as 'select false';
create function evil.lie(int, int) returns bool language sql as 'select false';
create operator evil.= (function = evil.lie, leftarg = text, rightarg = text);
create operator evil.<> (function = evil.lie, leftarg = text, rightarg = text);
create operator evil.= (function = evil.lie, leftarg = name, rightarg = text);
create operator evil.= (function = evil.lie, leftarg = name, rightarg = name);
create operator evil.<> (function = evil.lie, leftarg = name, rightarg = name);
create operator evil.= (function = evil.lie, leftarg = oid, rightarg = oid);
create operator evil.<> (function = evil.lie, leftarg = oid, rightarg = oid);
create operator evil.= (function = evil.lie, leftarg = int, rightarg = int);
create operator evil.<= (function = evil.lie, leftarg = int, rightarg = int);
create table evil.pg_settings (name text, setting text, source text, vartype text);
create table evil.pg_locks (locktype text, pid int);
create table evil.pg_cursors (is_holdable bool);
create table evil.pg_depend (refclassid oid, refobjid oid);
create table evil.pg_proc (proname name);
create table evil.pg_namespace (oid oid, nspname name);
create table evil.pg_language (oid oid, lanname name);
create table evil.pg_prepared_statements (name text, statement text, from_sql bool);
create domain evil.name as text check (false);
create domain evil.text as varchar check (false);
create domain evil.oid as int check (false);
create domain evil.bool as int check (false);
create function evil.current_setting(pg_catalog.text) returns pg_catalog.text language sql as $$select 'lie'::pg_catalog.text$$;
create function evil.lower(pg_catalog.text) returns pg_catalog.text language sql as $$select 'lie'::pg_catalog.text$$;
create function evil.pg_backend_pid() returns int language sql as 'select 0';
create function evil.pg_my_temp_schema() returns pg_catalog.oid language sql as 'select 0::pg_catalog.oid';
create function evil.octet_length(pg_catalog.text) returns int language sql as 'select 100000000';
grant usage on schema evil to public;
";

/// What a session may have set, and what is found of it.
const SURROUNDINGS: [(&str, &[(&str, &str)]); 9] = [
    ("", &[]),
    ("set search_path = evil, pg_catalog", &[("search_path", "evil, pg_catalog")]),
    ("set role login_only", &[("role", "login_only")]),
    ("set client_encoding = latin1", &[("client_encoding", "LATIN1")]),
    ("set client_encoding = sjis", &[("client_encoding", "SJIS")]),
    (
        "set statement_timeout = '20s'; set lock_timeout = 500",
        &[("lock_timeout", "500ms"), ("statement_timeout", "20s")],
    ),
    (
        // It waits for `the_other`, if the question is asked under these settings.
        "set session characteristics as transaction isolation level serializable read only deferrable",
        &[
            ("default_transaction_deferrable", "on"),
            ("default_transaction_isolation", "serializable"),
            ("default_transaction_read_only", "on"),
        ],
    ),
    (
        "set standard_conforming_strings = off; set backslash_quote = off; set escape_string_warning = off; \
         set bytea_output = escape; set array_nulls = off; set transform_null_equals = on",
        &[
            ("array_nulls", "off"),
            ("backslash_quote", "off"),
            ("bytea_output", "escape"),
            ("escape_string_warning", "off"),
            ("standard_conforming_strings", "off"),
            ("transform_null_equals", "on"),
        ],
    ),
    (
        "set session authorization login_only; set role other; set parallel_setup_cost = 0; set parallel_tuple_cost = 0; set quote_all_identifiers = on; \
         set exit_on_error = on; set xmlbinary = hex; set client_min_messages = debug5",
        &[
            ("client_min_messages", "debug5"),
            ("exit_on_error", "on"),
            ("parallel_setup_cost", "0"),
            ("parallel_tuple_cost", "0"),
            ("quote_all_identifiers", "on"),
            ("role", "other"),
            ("session_authorization", "login_only"),
            ("xmlbinary", "hex"),
        ],
    ),
];

#[test]
fn everything_is_found_in_all_surroundings() {
    session("surroundings").run(HOSTILE);
    let mut the_other = Session::new(server(), "surroundings", "postgres");
    the_other.run("create table t ()");
    the_other.run("begin isolation level serializable; select from t; insert into t default values");
    for (i, (surrounding, more)) in SURROUNDINGS.into_iter().enumerate() {
        let mut session = Session::new(server(), "surroundings", "postgres");
        session.run("create or replace function public.f(a int) returns text language sql as $$select '\\'$$");
        session.run("begin; create temp table x (a int); declare c cursor with hold for select 1; commit");
        session.run("listen \"a channel\"; prepare own as select 'it''s'; prepare pgusher_1 as select 2");
        // One for each: a backend that removes its temporary table at its end may wait for `the_other` as well.
        session.run(&format!("select pg_advisory_lock({i})"));
        let odd = "it's \\ \"odd\" \u{e9}\u{65e5}\u{1f600}\n";
        let value = "E'it\\'s \\\\ \"odd\" \\u00e9\\u65e5\\U0001F600\\n'";
        session.run("set backslash_quote = on");
        session.run(&format!(
            "set app.odd = {value}; set app.\"\u{e9}\" = 1; set work_mem = '3MB'; set application_name = 'it''s \\'"
        ));
        session.run("reset backslash_quote");
        session.run(surrounding);
        let found = session.ask(&Question {
            placeholders: &["app.odd", "app.\u{e9}", "app.never", "no dot", "app.\"'\\", "a.b\0"],
            functions: &["f", "it's", "\\", "no\u{e9}"],
            ..ALL
        });
        let mut expected = pairs(more);
        expected.extend(pairs(&[
            ("app.odd", odd),
            ("app.\u{e9}", "1"),
            ("application_name", "it's \\"),
            ("work_mem", "3MB"),
        ]));
        expected.sort();
        assert_eq!(found.settings.as_deref(), Some(&*expected), "{surrounding}");
        let Findings { temporary: true, locks: true, cursors: true, unrepresentable: false, .. } = found else {
            panic!("{surrounding}: {found:?}");
        };
        assert_eq!(found.channels, ["a channel"], "{surrounding}");
        let [PreparedStatement { name, from_sql: true, text: Some(text) }] = &*found.prepared else {
            panic!("{surrounding}: {:?}", found.prepared);
        };
        // The text of the whole Query.
        assert!(name == "own" && text.starts_with("listen") && text.contains("select 'it''s'"), "{text}");
        let [f] = &*found.functions else {
            panic!("{surrounding}: {:?}", found.functions);
        };
        assert_eq!((&*f.schema, &*f.name, &*f.language, f.kind, f.configured), ("public", "f", "sql", 'f', false));
        assert_eq!(f.body.as_deref(), Some("select '\\'"));
        assert_eq!(
            found.held(),
            Aspects::TEMPORARY | Aspects::LOCKS | Aspects::CURSORS | Aspects::CHANNELS | Aspects::PREPARED
        );
    }
}

#[test]
fn on_a_standby() {
    let mut server = pgusher_embedded::Server::builder().setting("wal_level", "replica").start().unwrap();
    server.stop(StopMode::Fast).unwrap();
    std::fs::write(server.data_dir().join("standby.signal"), "").unwrap();
    server.restart().unwrap();
    let mut session = Session::new(&server, "postgres", "postgres");
    assert_eq!(session.text("select pg_is_in_recovery()"), "t");
    session.run(
        "set app.x = 1; set default_transaction_isolation = serializable; set default_transaction_deferrable = on",
    );
    assert!(session.try_query("select 1").is_err(), "it cannot be serializable there");
    let found = session.ask(&Question { placeholders: &["app.x"], functions: &["f"], ..ALL });
    assert_eq!(found.settings.unwrap().len(), 3);
}

/// A user who is nobody special may ask everything.
#[test]
fn without_privileges() {
    let mut session = Session::new(server(), "postgres", "login_only");
    session.run("set work_mem = '1MB'; set role other; select pg_advisory_lock(1); listen x; create temp table x ()");
    let found = session.ask(&Question { functions: &["f"], placeholders: &["a.b"], ..ALL });
    assert_eq!(found.settings.as_deref(), Some(&*pairs(&[("role", "other"), ("work_mem", "1MB")])));
    assert_eq!(found.held(), Aspects::LOCKS | Aspects::CHANNELS | Aspects::TEMPORARY);
}
