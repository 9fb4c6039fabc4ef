//! Settings, custom placeholders and roles.

use super::ALL;
use crate::postgres::{Question, Session, pairs, server};
use pgusher_session::audit::Aspects;
use pgusher_session::settings::Settings;

/// Replayed on another connection, what was found makes a session of which the same is found.
#[test]
fn what_is_found_can_be_replayed() {
    let names = ["app.empty", "app.text", "app.reset", "app.undone", "app.never"];
    let mut session = Session::new(server(), "postgres", "postgres");
    session.run("set app.empty = ''; set app.text = E'\\\\''\\u00e9'; set app.reset = 1; reset app.reset");
    session.run("begin; set app.undone = 1; rollback");
    session.run("do $$ begin perform set_config('timezone', 'Europe/Rome', false); end $$");
    session.run("set search_path = \"$user\", \"a\"\"b,\", public; set datestyle = german; set time zone -3.5");
    session.run("set random_page_cost = 1.5; set statement_timeout = 90000; set vacuum_cost_delay = 0.5; set bytea_output = 'ESCAPE'");
    session.run("set temp_tablespaces = ''; set log_min_messages = warning; set intervalstyle = iso_8601");
    let question = Question { aspects: Aspects::SETTINGS, placeholders: &names, ..Question::default() };
    let found = session.ask(&question).settings.unwrap();
    let values = |session: &mut Session| {
        let own = session.text("select name, setting from pg_settings where source = 'session' order by 1");
        let placeholders = names.map(|name| session.text(&format!("select current_setting('{name}', true)")));
        (own, placeholders)
    };
    let expected = values(&mut session);
    assert_eq!(expected.1, ["", "\\'\u{e9}", "", "", "NULL"]);

    let mut other = Session::new(server(), "postgres", "postgres");
    other.run(&Settings::from_pairs(found.clone()).unwrap().replay(&Settings::default()));
    assert_eq!(values(&mut other), expected);
    assert_eq!(other.ask(&question).settings, Some(found));
}

/// A placeholder that was ever set stays, as an empty one.
#[test]
fn custom_placeholders() {
    let mut session = Session::new(server(), "postgres", "postgres");
    let mut ask = |sql: &str, known, leftovers| {
        session.run(sql);
        let placeholders = &["App.X"];
        let question = Question { aspects: Aspects::SETTINGS, known, placeholders, leftovers, ..Question::default() };
        session.ask(&question).settings.unwrap()
    };
    assert_eq!(ask("select 1", &[("app.X", "1")], &[]), []);
    assert_eq!(ask("begin; set local app.x = 1; commit", &[], &[]), pairs(&[("App.X", "")]));
    // The remainder of somebody else.
    assert_eq!(ask("select 1", &[], &["app.x"]), []);
    assert_eq!(ask("select 1", &[("app.X", "1")], &["app.x"]), pairs(&[("app.x", "")]));
    assert_eq!(ask("set app.x = 2", &[], &["app.x"]), pairs(&[("App.X", "2")]));
    assert_eq!(ask("select 1", &[("app.X", "1")], &[]), pairs(&[("app.x", "2")]));
    assert_eq!(ask("discard all", &[("app.X", "2")], &[]), pairs(&[("app.x", "")]));
}

/// A setting of an extension is a placeholder until its library is loaded.
#[test]
fn settings_of_extensions() {
    let mut session = Session::new(server(), "postgres", "postgres");
    let names = ["plpgsql.extra_warnings", "plpgsql.check_asserts"];
    let question = Question { aspects: Aspects::SETTINGS, placeholders: &names, ..Question::default() };
    session.run("set plpgsql.extra_warnings = 'all'");
    assert_eq!(session.ask(&question).settings.unwrap(), pairs(&[("plpgsql.extra_warnings", "all")]));
    session.run("do $$ begin end $$");
    // Not the other one, which has its default now.
    assert_eq!(session.ask(&question).settings.unwrap(), pairs(&[("plpgsql.extra_warnings", "all")]));
    assert_eq!(session.settings(), pairs(&[("plpgsql.extra_warnings", "all")]));
}

#[test]
fn known_spellings_are_kept_where_they_mean_the_same() {
    let mut session = Session::new(server(), "postgres", "postgres");
    session.run(
        "set work_mem = 4096; set datestyle = 'ISO, MDY'; set enable_seqscan = no; set random_page_cost = 1.23456789",
    );
    session.run("set client_min_messages = NOTICE; set statement_timeout = 1000");
    let known = [
        ("Work_Mem", "4096"),
        ("datestyle", "German"),
        ("enable_seqscan", "NO"),
        ("random_page_cost", "1.23456789"),
        ("client_min_messages", "NOTICE"),
        ("geqo", "off"),
        ("statement_timeout", "2000"),
        ("transaction_read_only", "on"),
    ];
    let found = session.ask(&Question { aspects: Aspects::SETTINGS, known: &known, ..Question::default() });
    let expected = [
        ("client_min_messages", "NOTICE"),
        ("datestyle", "ISO, MDY"),
        ("enable_seqscan", "NO"),
        ("random_page_cost", "1.23456789"),
        ("statement_timeout", "1s"),
        ("work_mem", "4096"),
    ];
    assert_eq!(found.settings.unwrap(), pairs(&expected));
}

#[test]
fn what_the_role_may_not_see_is_kept() {
    let mut session = Session::new(server(), "postgres", "postgres");
    let known = [("dynamic_library_path", "/x"), ("work_mem", "1MB"), ("role", "boss")];
    let question = Question { aspects: Aspects::SETTINGS, known: &known, ..Question::default() };
    session.run("set dynamic_library_path = '/y'");
    assert_eq!(session.ask(&question).settings.unwrap(), pairs(&[("dynamic_library_path", "/y")]));
    session.run("set role login_only");
    let expected = [("dynamic_library_path", "/x"), ("role", "login_only")];
    assert_eq!(session.ask(&question).settings.unwrap(), pairs(&expected));
}

#[test]
fn roles() {
    let mut session = Session::new(server(), "postgres", "postgres");
    let mut after = |sql: &str| {
        session.run(sql);
        session.settings()
    };
    assert_eq!(after("set role boss"), pairs(&[("role", "boss")]));
    assert_eq!(after("set role none"), []);
    assert_eq!(after("set session authorization boss"), pairs(&[("session_authorization", "boss")]));
    let both = pairs(&[("role", "login_only"), ("session_authorization", "boss")]);
    assert_eq!(after("set role login_only"), both);
    assert_eq!(after("set session authorization postgres"), []);
    assert_eq!(after("set role postgres"), pairs(&[("role", "postgres")]));
    assert_eq!(after("begin; set local role boss; set local work_mem = '1MB'; commit"), pairs(&[("role", "postgres")]));
}

#[test]
fn settings_of_a_transaction_are_not_the_sessions() {
    let mut session = Session::new(server(), "postgres", "postgres");
    session
        .run("begin; set transaction_read_only = on; set transaction isolation level serializable deferrable; commit");
    session.run("set transaction_isolation = serializable; set transaction_deferrable = on; set seed = 0.5");
    assert_eq!(session.settings(), []);
}

#[test]
fn long_values() {
    let mut session = Session::new(server(), "postgres", "postgres");
    let question = Question { aspects: Aspects::SETTINGS, placeholders: &["app.a", "app.b"], ..Question::default() };
    session.run("select set_config('app.a', repeat('x''\\\u{e9}', 20000), false)");
    let found = session.ask(&question);
    assert_eq!(found.settings.unwrap(), [("app.a".to_owned(), "x'\\\u{e9}".repeat(20_000))]);
    assert!(!found.unrepresentable);
    session.run("select set_config('app.b', repeat('x', 300000), false)");
    let found = session.ask(&question);
    assert!(found.unrepresentable && found.settings.unwrap().len() == 1);
    session.run("select set_config('search_path', repeat('x', 300000), false); reset app.b");
    assert!(session.ask(&question).unrepresentable);
    // Many that are not too long each.
    let names: Vec<String> = (0..20).map(|i| format!("app.many{i}")).collect();
    for name in &names {
        session.run(&format!("select set_config('{name}', repeat('x', 100000), false)"));
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let question = Question { placeholders: &names, ..question };
    assert_eq!(session.try_ask(&question), Err("the server's answer about its session is too large".into()));
}

/// The text of a database in another encoding comes as UTF-8; of one without an encoding, as it is.
#[test]
fn databases_in_other_encodings() {
    let mut admin = Session::new(server(), "postgres", "postgres");
    for encoding in ["latin1", "sql_ascii", "euc_jp"] {
        admin.run(&format!(
            "create database e_{encoding} encoding '{encoding}' template template0 lc_collate 'C' lc_ctype 'C'"
        ));
    }
    let question = Question { placeholders: &["app.a"], functions: &["gr\u{f6}\u{df}e"], ..ALL };
    for client in ["utf8", "latin1"] {
        let mut session = Session::new(server(), "e_latin1", "postgres");
        session.run("set client_encoding = utf8");
        session.run("set app.a = 'f\u{fc}r'; listen \"\u{e9}\"");
        session.run("create or replace function gr\u{f6}\u{df}e() returns text language sql as $$select '\u{e4}'$$");
        session.run(&format!("set client_encoding = {client}"));
        let found = session.ask(&question);
        assert_eq!(found.settings.unwrap().first(), pairs(&[("app.a", "f\u{fc}r")]).first());
        assert_eq!(found.channels, ["\u{e9}"]);
        assert_eq!(found.functions[0].body.as_deref(), Some("select '\u{e4}'"));
    }
    let mut session = Session::new(server(), "e_sql_ascii", "postgres");
    session.run("set app.a = 'f\u{fc}r'");
    let found = session.ask(&question);
    assert_eq!(found.settings.unwrap(), pairs(&[("app.a", "f\u{fc}r")]));
    assert!(!found.unrepresentable);
    session.run("set app.a = E'\\xfc'");
    let found = session.ask(&question);
    assert!(found.unrepresentable && found.settings.unwrap().is_empty());
    // A name that the database cannot have is an error, and so nothing is known.
    let mut session = Session::new(server(), "e_euc_jp", "postgres");
    assert!(session.try_ask(&question).is_ok());
    assert!(session.try_ask(&Question { functions: &["\u{1f600}"], ..ALL }).is_err());
}
