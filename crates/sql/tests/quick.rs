//! What the one pass says: fingerprints, statements, mentions, and the quick decision.

use pgusher_sql::{Fingerprint, Key, Mention, Outline, Quick, Word};

fn outline(text: &str) -> Outline {
    let mut outline = Outline::new(Key::new(0x1234_5678_9abc_def0, 42));
    outline.read(text.as_bytes(), true);
    outline
}

fn print(text: &str) -> Fingerprint {
    outline(text).fingerprint()
}

#[test]
fn texts_that_differ_only_in_constants_and_spelling() {
    for same in [
        &[
            "select 1",
            "SELECT 2",
            " select\t'x' ",
            "select -- c\n 1;",
            "/* a /* b */ c */ select $$x$$;;",
            "select E'\\''",
            "select B'0'",
            "select 0x1F",
            "select 1_000",
            "select .5e-3",
            "select U&'x'",
            "select 'a'\n'b'",
        ][..],
        &[
            "select * from t where a in (1)",
            "select * from T where A in (1, 2, 3)",
            "select * from t where a IN ('x','y')",
        ],
        &["select * from t where a in (-1)", "select * from t where a in ( - 1 , - 2)"],
        &["select array[1]", "select ARRAY[1,2,3]"],
        &["insert into t (a, b) values (1, 'x')", "insert into t (a, b) values (1, 'x'), (2, 'y'), (3, 'z')"],
        &["insert into t values (1) on conflict do nothing", "insert into t values (1), (2) on conflict do nothing"],
        &["select * from (values (1, 2)) x", "select * from (values (1, 2), (3, 4)) x"],
        &["select a from t where b in (1, 2) and c in ('x')", "select a from t where b in (1) and c in ('x', 'y')"],
        &[
            "select * from t where a in (select b from u where c in (1, 2))",
            "select * from t where a in (select b from u where c in (1))",
        ],
        &["select caf\u{e9}", "SELECT CAF\u{e9}"],
    ] {
        for text in same {
            assert_eq!(print(text), print(same[0]), "{text} / {}", same[0]);
        }
    }
}

#[test]
fn texts_that_differ_in_more() {
    let all = [
        "select 1",
        "select -1",
        "select a",
        "select \"a\"",
        "select \"A\"",
        "select $1",
        "select $2",
        "select 1, 2",
        "select 1 2",
        "select '1'::int",
        "select a.b",
        "select a b",
        "select a, b",
        "select (a, b)",
        "select 1; select 1",
        "select ()",
        "select",
        "selec t1",
        "select * from t where a in (1, $1)",
        "select * from t where a in ($1, $2)",
        "select * from t where a in ($1)",
        "select * from t where a in (1)",
        "select * from t where a in ()",
        "select * from t where a in (b, c)",
        "select * from t where a in (c, b)",
        "insert into t values (1)",
        "insert into t values (1, 2)",
        "insert into t values ($1)",
        "insert into t values ($1), ($2)",
        "insert into t values (now())",
        "insert into t values (1) returning a",
        "select a+b",
        "select a-b",
        "select a - - b",
        "select array[]",
        "select array[1]",
        "select array[[1]]",
        "",
        "selectx",
        "select x",
        "select u&\"a\"",
        "select a between 1 and 2",
        "begin",
        "commit",
    ];
    for (index, one) in all.iter().enumerate() {
        for other in &all[index + 1..] {
            assert_ne!(print(one), print(other), "{one} / {other}");
        }
    }
    // The key counts.
    let mut other = Outline::new(Key::new(1, 42));
    other.read(b"select 1", true);
    assert_ne!(other.fingerprint(), print("select 1"));
}

#[test]
fn statements_and_their_ends() {
    let parts = |text: &str| {
        outline(text)
            .parts()
            .iter()
            .map(|part| (text[part.start..part.end].to_string(), part.first))
            .collect::<Vec<_>>()
    };
    let part = |text: &str, first| (text.to_string(), Some(first));
    assert_eq!(
        parts(" begin ; ;select ';' /* ; */ -- ;\n;(select 1);\n"),
        [part("begin", Word::Begin), part("select ';'", Word::Select), ("(select 1)".to_string(), None)]
    );
    assert_eq!(parts(" -- nothing"), []);
    let function = "create function f() returns int begin atomic select case when true then 1 end; select 2; end";
    assert_eq!(parts(&format!("{function}; select 1")), [part(function, Word::Create), part("select 1", Word::Select)]);
    // A reserved word may be the name of a column.
    assert_eq!(parts("select 1 as case; select 2 begin; select 3 as end").len(), 3);
    let rule = "create rule r as on insert to t do (select 1; select 2)";
    assert_eq!(
        parts(&format!("{rule}; begin; end")),
        [part(rule, Word::Create), part("begin", Word::Begin), part("end", Word::End)]
    );
}

#[test]
fn mentions() {
    for (text, mention) in [
        ("select Set_Config('a', 'b', true)", Mention::SetConfig),
        ("select \"nextval\"('s')", Mention::Sequence),
        ("select pg_try_advisory_lock(1)", Mention::AdvisoryLock),
        ("select pg_notify('a', 'b')", Mention::Notify),
        ("notify a", Mention::Notify),
        ("select lo_open(1, 2)", Mention::OtherFunction),
        ("create temp table x ()", Mention::Temporary),
        ("drop table \"pg_temp\".x", Mention::Temporary),
        ("LISTEN a", Mention::Listen),
        ("explain execute x", Mention::Prepare),
        ("declare x cursor for select 1", Mention::Declare),
        ("set a to 1", Mention::Set),
        ("reset all", Mention::Reset),
        ("discard all", Mention::Discard),
        ("load 'x'", Mention::Load),
        ("do ''", Mention::Do),
        ("call x()", Mention::Call),
        ("drop table x", Mention::Definition),
        ("update pg_settings set a = 1", Mention::SessionView),
    ] {
        assert!(outline(text).mentions().has(mention), "{text}");
    }
    assert!(outline("select 'set', $$notify$$, nextvals, xset -- set\n from a /* temp */").mentions().is_empty());
}

#[test]
fn plain_texts() {
    for (text, quick) in [
        ("select 1", Quick::PlainRead),
        ("SELECT abalance FROM pgbench_accounts WHERE aid = $1", Quick::PlainRead),
        (
            "select a.*, lower(b), count(*) filter (where c) over (partition by d order by e) from s.t a left join u using (x) where y in (1, 2)",
            Quick::PlainRead,
        ),
        ("select pg_catalog.lower('x'), pg_catalog.\"lower\"('x')", Quick::PlainRead),
        (
            "select cast(a as numeric(10, 2)), b::varchar(3), c::geometry(Point, 4326), d::character varying(3)",
            Quick::PlainRead,
        ),
        ("select * from f_table as f(a, b) join (select 1) g on true, lateral (select 2) h", Quick::PlainRead),
        ("with x as (select 1), y as materialized (select 2) select * from x, y", Quick::PlainRead),
        ("(select 1) union (select 2)", Quick::PlainRead),
        ("values (1), (2)", Quick::PlainRead),
        ("table t", Quick::PlainRead),
        ("select 1; select 2;", Quick::PlainRead),
        ("", Quick::PlainRead),
        ("select t.set, t.notify, t.\"listen\" from t order by (a), (b)", Quick::PlainRead),
        ("select percentile_cont(0.5) within group (order by a) from t group by (a)", Quick::PlainRead),
        ("select 1 for update", Quick::PlainWrite),
        (
            "insert into s.t (a, b) values ($1, now()) on conflict (a) do update set b = excluded.b returning a",
            Quick::PlainWrite,
        ),
        ("insert into t as x (a) select 1", Quick::PlainWrite),
        ("UPDATE pgbench_accounts SET abalance = abalance + $1 WHERE aid = $2", Quick::PlainWrite),
        ("delete from t where a = any ($1)", Quick::PlainWrite),
        ("merge into t using u on t.a = u.a when matched then delete", Quick::PlainWrite),
        ("with x as (insert into t (a) values (1) returning a) select a from x", Quick::PlainWrite),
        ("with x as (select 1) insert into t (a) select * from x", Quick::PlainWrite),
        ("with x as (select 1) merge into t using x on t.a = x.a when not matched then do nothing", Quick::PlainWrite),
        ("select 1; delete from t", Quick::PlainWrite),
        ("begin", Quick::Begin),
        ("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY, NOT DEFERRABLE;", Quick::Begin),
        ("start transaction", Quick::Begin),
        ("commit", Quick::Commit),
        ("END WORK", Quick::Commit),
        ("rollback transaction;", Quick::Rollback),
        ("abort", Quick::Rollback),
    ] {
        assert_eq!(outline(text).quick(), quick, "{text}");
    }
}

#[test]
fn doubtful_texts() {
    for text in [
        "select 1 as case; listen x",
        "select 1 case; listen x",
        "select 1 as case from t; set a to 1",
        "select t.case, 1 as end; listen x",
        "select insert into temp x from t",
        "select (1) insert into temp x",
        "select 1 + merge into temp x from t",
        "with x as (select 1) select (1) insert into temp y",
        "select a, insert into temp y from t",
        "select 1 as b, varying(1)",
        "(select (1) insert into temp x)",
        "select f(1)",
        "select s.lower(1)",
        "select pg_catalog.f(1)",
        "select a.pg_catalog.lower(1)",
        "select \"LOWER\"(1)",
        "select U&\"lower\"(1)",
        "select set_config('a', 'b', true)",
        "select /**/ nextval -- x\n ('s')",
        "select 1 into t",
        "select 1 into temp t",
        "with x as (select 1) select 1 into t",
        "select over(1)",
        "select filter(1)",
        "select set(1)",
        "select by(1)",
        "select 1 where join(1)",
        "select 1 from a join b on conflict(1)",
        "merge into t using u on conflict(1) when matched then delete",
        "select distinct on (a) filter (b) from t",
        "select a.values(1)",
        "select s.in(1)",
        "set a to 1",
        "reset all",
        "listen a",
        "notify a",
        "discard all",
        "do ''",
        "call lower(1)",
        "create table t ()",
        "drop table t",
        "copy t from stdin",
        "explain select 1",
        "show all",
        "prepare x as select 1",
        "execute x",
        "deallocate x",
        "declare x cursor for select 1",
        "fetch x",
        "close x",
        "lock t",
        "load 'x'",
        "truncate t",
        "vacuum",
        "savepoint a",
        "release a",
        "rollback to a",
        "commit and chain",
        "rollback and chain",
        "commit prepared 'x'",
        "begin; select 1",
        "prepare transaction 'x'",
        "update pg_settings set setting = 1",
        "update pg_catalog.\"pg_settings\" set setting = 1",
        "select * from pg_prepared_statements",
        "select * from pg_cursors",
        "select 'open",
        "select \"open",
        "select /* open",
        "select $a$ open",
        "select 1a",
        "select \\ 1",
        "lower(1)",
        "selct 1",
        "select pg_backend_pid()",
        "select query_to_xml('select f()', true, true, '')",
        "select currval('x')",
        "select * from dblink('a', 'b') as t(a int)",
        "select operator(1)",
        "table t; listen x",
        "start x",
    ] {
        assert_eq!(outline(text).quick(), Quick::NeedsFacts, "{text}");
    }
    // A backslash before a quote means one thing or the other.
    let text = br"select 'a\', f(1), '";
    let mut outline = Outline::new(Key::new(1, 2));
    outline.read(text, true);
    assert_eq!(outline.quick(), Quick::NeedsFacts);
    outline.read(text, false);
    assert_eq!(outline.quick(), Quick::PlainRead);
}

#[test]
fn depth() {
    assert!(outline("select 1").depth() < 10);
    // Many items beside each other are not deep.
    let list = vec!["1"; 10_000].join(", ");
    assert!(outline(&format!("select * from t where a in ({list})")).depth() < 20);
    let rows = vec!["(1, 'x', now())"; 10_000].join(", ");
    assert!(outline(&format!("insert into t values {rows}")).depth() < 20);
    let ors = vec!["a = 1"; 10_000].join(" or ");
    assert!(outline(&format!("select * from t where {ors}")).depth() < 20);
    let chain = vec!["a"; 10_000].join(" || ");
    assert!(outline(&format!("select {chain}")).depth() >= 10_000);
    assert_eq!(outline(&format!("select {}1", "(".repeat(100))).depth(), u32::MAX);
    assert_eq!(outline(&format!("select {}1", "case when ".repeat(100))).depth(), u32::MAX);
}

#[test]
fn encodings() {
    for name in ["SJIS", "shift_jis_2004", "BIG5", "gbk", "UHC", "GB18030", "Johab", "WIN936", "windows-949"] {
        assert!(!pgusher_sql::encoding_keeps_ascii_apart(name), "{name}");
    }
    for name in [
        "UTF8",
        "utf-8",
        "LATIN1",
        "EUC_JP",
        "SQL_ASCII",
        "WIN1252",
        "MULE_INTERNAL",
        "koi8r",
        "a name much longer than all of them",
    ] {
        assert!(pgusher_sql::encoding_keeps_ascii_apart(name), "{name}");
    }
}
