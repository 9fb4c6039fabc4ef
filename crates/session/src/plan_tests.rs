//! What texts are read to do to their session.

use super::*;

fn plan(text: &str) -> Option<Plan> {
    match Reader::new([7; 16]).read(text.as_bytes(), Reading::default()) {
        Read::Plain { .. } | Read::Begin | Read::End => None,
        Read::Plan(plan) => Some(Plan::clone(&plan)),
    }
}

fn actions(text: &str) -> Vec<Action> {
    let plan = plan(text).unwrap_or_default();
    assert_eq!(plan.doubts, Aspects::NONE, "{text}");
    plan.steps.iter().flat_map(|step| step.to_vec()).collect()
}

fn set(name: &str, value: &str) -> Action {
    Action::Set { name: name.into(), value: value.into() }
}

#[test]
fn what_a_text_says_itself() {
    assert_eq!(actions("set app.tenant to '7'"), [set("app.tenant", "7")]);
    assert_eq!(actions("SET search_path = a, \"B\""), [set("search_path", "a, \"B\"")]);
    assert_eq!(actions("set timezone to default"), [Action::Reset("timezone".into())]);
    assert_eq!(actions("select set_config('a.b', 'c', false)"), [set("a.b", "c")]);
    let local = Action::Local { name: "a.b".into(), value: Some("c".into()) };
    assert_eq!(actions("set local a.b = 'c'"), std::slice::from_ref(&local));
    assert_eq!(actions("select set_config('a.b', 'c', true)"), [local]);
    assert_eq!(actions("reset all"), [Action::ResetAll]);
    assert_eq!(actions("rollback to s"), [Action::RollbackTo("s".into())]);
    assert_eq!(actions("set role x"), [set("role", "x")]);
    let several = plan("begin; set a.b = '1'; select 1; set a.b = '2'").expect("a plan");
    assert_eq!(several.steps.iter().map(|s| s.len()).collect::<Vec<_>>(), [0, 1, 0, 1]);
}

#[test]
fn what_is_plain() {
    for text in [
        "select 1",
        "insert into t values (1)",
        "begin",
        "commit",
        "set transaction read only",
        "show all",
        "notify a",
        "fetch all from c",
        "declare c cursor for select 1",
        "select pg_advisory_xact_lock(1)",
        "copy t from stdin",
        "",
        "truncate t",
        "lock table t",
        "set constraints all deferred",
        "explain select 1",
        "discard plans",
    ] {
        assert_eq!(plan(text), None, "{text}");
    }
}

#[test]
fn what_only_the_server_knows() {
    let doubts = |text: &str| plan(text).map(|p| (p.doubts, p.ends, p.pins)).unwrap_or_default();
    assert_eq!(doubts("select pg_advisory_lock(1)").0, Aspects::LOCKS);
    assert_eq!(doubts("select pg_advisory_unlock(1)").1, Aspects::LOCKS);
    assert_eq!(doubts("create temp table t (a int)").0, Aspects::TEMPORARY);
    assert_eq!(doubts("create temp table t (a int default f())").0, Aspects::ALL);
    let defines = |text: &str| plan(text).map(|p| (p.defines, p.adds_tables)).unwrap_or_default();
    assert_eq!(defines("create table t (a int)"), (false, true));
    assert_eq!(defines("create table t (a int); create table u (a int check (f(a)))"), (true, true));
    assert_eq!(defines("create temp table t (a int); drop table u"), (false, false));
    assert_eq!(doubts("select 1 as a into temp t").0, Aspects::TEMPORARY);
    assert_eq!(doubts("unlisten a").1, Aspects::CHANNELS);
    let listens = plan("listen a; listen \"B c\"").expect("a plan");
    assert_eq!(*listens.channels, ["a".into(), "B c".into()]);
    assert_eq!(actions("listen Ab; unlisten *"), [Action::Listen("ab".into()), Action::Unlisten(None)]);
    assert_eq!(doubts("prepare p as select 1").0, Aspects::PREPARED);
    assert_eq!(doubts("declare c cursor with hold for select 1").0, Aspects::CURSORS);
    assert_eq!(doubts("drop table t").1, Aspects::TEMPORARY);
    assert_eq!(doubts("set x from current").0, Aspects::SETTINGS);
    assert_eq!(doubts("set datestyle to ymd").0, Aspects::SETTINGS);
    assert_eq!(doubts("select setseed(0.5)").2, Pins::SEED);
    assert_eq!(doubts("select set_config($1, $2, false)").2, Pins::SETTING);
    assert_eq!(doubts("complete nonsense").0, Aspects::ALL);
    let block = plan("do $$ begin perform set_config('app.x', 'y', false); end $$").expect("a plan");
    assert_eq!(block.doubts, Aspects::SETTINGS);
    assert!(block.placeholders.contains(&"app.x".into()));
    let idle = plan("do $$ begin null; end $$").expect("names to be looked at");
    assert!(idle.doubts.is_empty() && idle.pins.is_empty() && idle.functions.is_empty() && !idle.any_relation);
    assert_eq!(*plan("select my_function(1)").expect("a plan").functions, ["my_function".into()]);
}

#[test]
fn what_may_get_numbers_from_sequences() {
    let sequences = |text: &str| match Reader::new([7; 16]).read(text.as_bytes(), Reading::default()) {
        Read::Plain { advances } => Sequences { advances, ..Sequences::NONE },
        Read::Begin | Read::End => Sequences::NONE,
        Read::Plan(plan) => plan.sequences,
    };
    for text in [
        "insert into t values (1)",
        "with x as (insert into t values (1) returning a) select * from x",
        "copy t from stdin",
        "merge into t using s on a = b when not matched then insert values (1)",
        "select nextval('s')",
        "explain analyze insert into t values (1)",
        "create table u as select * from t",
    ] {
        assert_eq!(sequences(text), Sequences::ADVANCES, "{text}");
    }
    for text in [
        "select 1",
        "begin",
        "fetch all from c",
        "copy t to stdout",
        "listen a",
        "set a.b = 'c'",
        "lock table t",
        "vacuum",
        "alter table t add column id serial",
        "create index concurrently i on t (lower(a))",
        "create database d",
    ] {
        assert_eq!(sequences(text), Sequences::NONE, "{text}");
    }
    assert!(sequences("select currval('s')").named && !sequences("select currval('s')").may_advance());
    assert!(sequences("select lastval()").last && !sequences("select lastval()").named);
    let both = sequences("insert into t values (1); select lastval()");
    assert!(both.last && both.advances && !both.unknown);
    for text in
        ["complete nonsense", "select setval('s', 1)", "execute p", "select query_to_xml('select 1', true, true, '')"]
    {
        assert!(sequences(text).unknown, "{text}");
    }
    assert!(sequences("do $$ begin perform nextval('s'); end $$").advances);
    assert!(sequences("do $$ begin insert into t values (1); end $$").advances);
    assert!(sequences("do $$ begin perform lastval(); end $$").reads());
}

#[test]
fn what_prepared_statements_do_later() {
    let later = |text: &str| plan(text).map(|plan| plan.later).unwrap_or_default();
    assert!(later("prepare a as select 1").is_empty());
    let found = later("prepare a as select set_config('app.x', $1, false), f(), setseed(0)");
    let [(name, plan)] = &*found else { panic!("{found:?}") };
    assert_eq!((&**name, &*plan.placeholders, &*plan.functions), ("a", &["app.x".into()][..], &["f".into()][..]));
    assert_eq!(plan.pins, Pins::SEED);
    let found =
        later("prepare a as select set_config('app.x', 'y', false); prepare b as select set_config($1, $2, false)");
    assert_eq!(found.len(), 2);
    assert_eq!((&*found[0].1.placeholders, found[1].1.pins), (&["app.x".into()][..], Pins::SETTING));
}

#[test]
fn names_of_prepared_statements() {
    let names = |text: &str| plan(text).map(|p| p.names.join(",")).unwrap_or_default();
    assert_eq!(names("execute a"), "a");
    assert_eq!(names("explain execute \"B\" (1)"), "B");
    assert_eq!(names("explain analyze execute b (1)"), "b");
    assert_eq!(names("create table t as execute c"), "c");
    assert_eq!(names("execute a; prepare b as select 1"), "a,b");
    assert_eq!(names("execute a; execute a; deallocate a"), "a");
    assert_eq!(names("deallocate a"), "a");
    assert_eq!(names("deallocate all"), "");
    assert_eq!(actions("deallocate A; deallocate all"), [Action::Deallocate("a".into())]);
    for (text, forgets) in [("deallocate all", true), ("discard all", true), ("deallocate a", false)] {
        assert_eq!(plan(text).expect("a plan").forgets, forgets, "{text}");
    }
}

#[test]
fn bytes_that_only_look_like_ascii() {
    let reading = Reading { ascii_apart: false, ..Reading::default() };
    let mut reader = Reader::new([7; 16]);
    assert!(matches!(reader.read(b"select '\x83\x5c'", reading), Read::Plan(plan) if plan.doubts == Aspects::ALL));
    assert!(matches!(reader.read(b"select 'a'", reading), Read::Plain { advances: false }));
    let plan = Plan::unknown_text(b"set app.kanji = '\x83\x5c'; select t.a, 1.5, .x");
    assert_eq!(*plan.placeholders, ["app.kanji".into(), "t.a".into()]);
}
