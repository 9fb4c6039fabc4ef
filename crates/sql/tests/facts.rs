//! What the facts say of statements, one by one.

use pgusher_sql::{
    Access, Argument, Copy, CopyEnd, Definition, Discard, Effect, Facts, Inside, Isolation, Key, Kind, Limits,
    LockSpan, Modes, Name, ObjectKind, OnCommit, Outline, SessionFunction, Set, Statement, Temporary, Transaction,
    Unknown, Utility, Value, Verb,
};

fn try_facts(text: &str) -> Result<Facts, Unknown> {
    let mut outline = Outline::new(Key::new(3, 5));
    outline.read(text.as_bytes(), true);
    Facts::of(text.as_bytes(), &outline, true, Limits::default())
}

fn facts(text: &str) -> Vec<Statement> {
    try_facts(text).unwrap_or_else(|error| panic!("{text}: {error}")).statements().to_vec()
}

fn one(text: &str) -> Statement {
    let mut all = facts(text);
    assert_eq!(all.len(), 1, "{text}");
    all.remove(0)
}

fn effects(text: &str) -> Vec<Effect> {
    one(text).effects.to_vec()
}

fn set(name: &str, value: &str) -> Effect {
    Effect::Set(Set { name: name.into(), value: Value::Text(value.into()), local: false })
}

fn name(text: &str) -> Name {
    match text.split_once('.') {
        Some((schema, name)) => Name { schema: Some(schema.into()), name: name.into() },
        None => Name { schema: None, name: text.into() },
    }
}

fn relations(text: &str) -> Vec<String> {
    let written =
        |name: &Name| name.schema.as_ref().map_or_else(|| name.name.to_string(), |s| format!("{s}.{}", name.name));
    one(text)
        .relations
        .iter()
        .map(|relation| {
            let mark = match relation.access {
                Access::Read => "",
                Access::Write => "!",
                Access::Define => "=",
            };
            format!("{}{mark}", written(&relation.name))
        })
        .collect()
}

#[test]
fn every_way_to_set() {
    for (text, name, value) in [
        ("SET DateStyle TO postgres, dmy", "datestyle", "postgres, dmy"),
        ("SET datestyle = 'ISO, DMY'", "datestyle", "ISO, DMY"),
        ("SET SESSION work_mem TO '64MB'", "work_mem", "64MB"),
        ("SET work_mem = 64", "work_mem", "64"),
        ("SET random_page_cost = 1.5", "random_page_cost", "1.5"),
        ("SET geqo_seed TO -0.5e-1", "geqo_seed", "-0.5e-1"),
        ("SET enable_seqscan TO off", "enable_seqscan", "off"),
        ("SET enable_seqscan = true", "enable_seqscan", "true"),
        ("SET enable_seqscan TO False", "enable_seqscan", "false"),
        ("SET jit TO on", "jit", "on"),
        ("SET search_path TO my_schema, public", "search_path", "my_schema, public"),
        (
            r#"SET search_path TO "$user", "My Schema", 'it''s "x"', select_"#,
            "search_path",
            r#""$user", "My Schema", "it's ""x""", select_"#,
        ),
        ("SET search_path = ''", "search_path", "\"\""),
        ("SET Search_Path TO 'a,b', 'user', 'public'", "search_path", "\"a,b\", \"user\", public"),
        ("SET SCHEMA 'Alpha'", "search_path", "\"Alpha\""),
        ("SET temp_tablespaces TO fast, 'Slow disk'", "temp_tablespaces", "fast, \"Slow disk\""),
        ("SET TIME ZONE 'Europe/Rome'", "timezone", "Europe/Rome"),
        ("SET TIME ZONE PST8PDT", "timezone", "pst8pdt"),
        ("SET TIME ZONE -7", "timezone", "-7"),
        ("SET TIME ZONE 5.5", "timezone", "5.5"),
        ("SET NAMES 'UTF8'", "client_encoding", "UTF8"),
        ("SET client_encoding TO latin1", "client_encoding", "latin1"),
        ("SET ROLE paul", "role", "paul"),
        ("SET ROLE 'Paul X'", "role", "Paul X"),
        ("SET ROLE NONE", "role", "none"),
        ("SET SESSION ROLE paul", "role", "paul"),
        ("SET SESSION AUTHORIZATION 'paul'", "session_authorization", "paul"),
        ("SET SESSION SESSION AUTHORIZATION paul", "session_authorization", "paul"),
        ("SET XML OPTION DOCUMENT", "xmloption", "DOCUMENT"),
        ("SET SEED TO 0.25", "seed", "0.25"),
        ("SET app.tenant_id TO 'x''y'", "app.tenant_id", "x'y"),
        ("SET app.tenant_id = E'a\\nb'", "app.tenant_id", "a\nb"),
        ("SET \"App\".Tenant = 1", "App.tenant", "1"),
        ("set a.b to $$dollar$$", "a.b", "dollar"),
    ] {
        let statement = one(text);
        assert_eq!(statement.kind, Kind::Utility(Utility::Set), "{text}");
        assert_eq!(*statement.effects, [set(name, value)], "{text}");
        assert!(statement.is_known() && !statement.is_plain(), "{text}");
        // What is replayed means the same again.
        let Effect::Set(replayed) = &statement.effects[0] else { unreachable!() };
        assert_eq!(effects(&replayed.replay()), [set(name, value)], "{text}: {}", replayed.replay());
    }
}

#[test]
fn set_without_a_text() {
    let of = |name: &str, value, local| vec![Effect::Set(Set { name: name.into(), value, local })];
    assert_eq!(effects("SET work_mem TO DEFAULT"), of("work_mem", Value::Default, false));
    assert_eq!(effects("SET LOCAL work_mem = DEFAULT"), of("work_mem", Value::Default, true));
    assert_eq!(effects("SET TIME ZONE LOCAL"), of("timezone", Value::Default, false));
    assert_eq!(effects("SET TIME ZONE DEFAULT"), of("timezone", Value::Default, false));
    assert_eq!(effects("SET SESSION AUTHORIZATION DEFAULT"), of("session_authorization", Value::Default, false));
    assert_eq!(effects("SET NAMES DEFAULT"), of("client_encoding", Value::Default, false));
    assert_eq!(effects("SET work_mem FROM CURRENT"), of("work_mem", Value::Current, false));
    assert_eq!(effects("SET LOCAL ROLE x"), of("role", Value::Text("x".into()), true));
    assert_eq!(
        effects("SET LOCAL SESSION AUTHORIZATION x"),
        of("session_authorization", Value::Text("x".into()), true)
    );
    let interval = |text: &str, fields| Value::Interval { text: text.into(), fields };
    assert_eq!(
        effects("SET TIME ZONE INTERVAL '-08:00' HOUR TO MINUTE"),
        of("timezone", interval("-08:00", "HOUR TO MINUTE"), false)
    );
    assert_eq!(effects("SET TIME ZONE INTERVAL '2' HOUR"), of("timezone", interval("2", "HOUR"), false));
    assert_eq!(effects("SET LOCAL TIME ZONE INTERVAL '02:30'"), of("timezone", interval("02:30", ""), true));
    for text in [
        "SET TIME ZONE INTERVAL '-08:00' HOUR TO MINUTE",
        "SET TIME ZONE INTERVAL '2' HOUR",
        "SET work_mem TO DEFAULT",
        "SET LOCAL a.\"b c\" FROM CURRENT",
    ] {
        let Some(Effect::Set(set)) = effects(text).into_iter().next() else { panic!("{text}") };
        assert_eq!(set.replay(), text);
    }
}

#[test]
fn replay_quotes_what_needs_it() {
    let replay =
        |name: &str, value: &str| Set { name: name.into(), value: Value::Text(value.into()), local: true }.replay();
    assert_eq!(replay("work_mem", "64MB"), "SET LOCAL work_mem TO '64MB'");
    assert_eq!(replay("a.b", r"it's \ here"), r"SET LOCAL a.b TO E'it''s \\ here'");
    assert_eq!(replay("search_path", ""), "SET LOCAL search_path TO ''");
    assert_eq!(replay("SEARCH_PATH", "a, \"B\""), "SET LOCAL \"SEARCH_PATH\" TO 'a', 'B'");
    assert_eq!(replay("app.user", "x"), "SET LOCAL app.\"user\" TO 'x'");
}

#[test]
fn transaction_settings() {
    let modes = |isolation, read_only, deferrable| Modes { isolation, read_only, deferrable };
    assert_eq!(
        effects("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"),
        [Effect::TransactionModes(modes(Some(Isolation::RepeatableRead), Some(true), None))]
    );
    assert_eq!(effects("SET LOCAL TRANSACTION READ WRITE"), [Effect::TransactionModes(modes(None, Some(false), None))]);
    assert_eq!(
        effects("SET TRANSACTION SNAPSHOT '00000003-0000001B-1'"),
        [Effect::Snapshot("00000003-0000001B-1".into())]
    );
    assert_eq!(
        effects("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE READ ONLY NOT DEFERRABLE"),
        [
            set("default_transaction_isolation", "serializable"),
            set("default_transaction_read_only", "on"),
            set("default_transaction_deferrable", "off"),
        ]
    );
    assert_eq!(
        effects("SET default_transaction_isolation = 'read committed'"),
        [set("default_transaction_isolation", "read committed")]
    );
    assert_eq!(one("SET CONSTRAINTS ALL DEFERRED").kind, Kind::Utility(Utility::Constraints));
}

#[test]
fn reset_and_discard() {
    for (text, name) in [
        ("RESET ALL", None),
        ("RESET work_mem", Some("work_mem")),
        ("RESET app.tenant", Some("app.tenant")),
        ("RESET TIME ZONE", Some("timezone")),
        ("RESET SESSION AUTHORIZATION", Some("session_authorization")),
        ("RESET ROLE", Some("role")),
        ("RESET TRANSACTION ISOLATION LEVEL", Some("transaction_isolation")),
    ] {
        let statement = one(text);
        assert_eq!(statement.kind, Kind::Utility(Utility::Reset), "{text}");
        assert_eq!(*statement.effects, [Effect::Reset(name.map(Into::into))], "{text}");
    }
    for (text, what) in [
        ("DISCARD ALL", Discard::All),
        ("DISCARD PLANS", Discard::Plans),
        ("DISCARD SEQUENCES", Discard::Sequences),
        ("DISCARD TEMP", Discard::Temp),
        ("DISCARD TEMPORARY", Discard::Temp),
    ] {
        assert_eq!(effects(text), [Effect::Discard(what)], "{text}");
    }
}

#[test]
fn transaction_control() {
    let none = Modes::default();
    for (text, transaction) in [
        ("BEGIN", Transaction::Begin(none)),
        ("begin work", Transaction::Begin(none)),
        ("START TRANSACTION READ ONLY", Transaction::Begin(Modes { read_only: Some(true), ..none })),
        (
            "BEGIN ISOLATION LEVEL SERIALIZABLE, READ WRITE, DEFERRABLE",
            Transaction::Begin(Modes {
                isolation: Some(Isolation::Serializable),
                read_only: Some(false),
                deferrable: Some(true),
            }),
        ),
        ("COMMIT", Transaction::Commit { chain: false }),
        ("END TRANSACTION AND CHAIN", Transaction::Commit { chain: true }),
        ("ROLLBACK AND NO CHAIN", Transaction::Rollback { chain: false }),
        ("ABORT AND CHAIN", Transaction::Rollback { chain: true }),
        ("SAVEPOINT \"A b\"", Transaction::Savepoint("A b".into())),
        ("RELEASE S1", Transaction::Release("s1".into())),
        ("RELEASE SAVEPOINT s1", Transaction::Release("s1".into())),
        ("ROLLBACK TO s1", Transaction::RollbackTo("s1".into())),
        ("ROLLBACK WORK TO SAVEPOINT s1", Transaction::RollbackTo("s1".into())),
        ("PREPARE TRANSACTION 'x'", Transaction::Prepare("x".into())),
        ("COMMIT PREPARED 'x'", Transaction::CommitPrepared("x".into())),
        ("ROLLBACK PREPARED 'x'", Transaction::RollbackPrepared("x".into())),
    ] {
        let statement = one(text);
        assert_eq!(statement.kind, Kind::Utility(Utility::Transaction(transaction)), "{text}");
        assert!(statement.is_known() && !statement.is_plain(), "{text}");
    }
}

#[test]
fn prepared_statements_of_sql() {
    let text = "PREPARE usrrptplan (int, numeric(10,2) ) AS\n  SELECT * FROM users u, logs l WHERE u.usrid=$1 AND l.date = $2;";
    let statement = one(text);
    assert_eq!(
        *statement.effects,
        [Effect::Prepare {
            name: "usrrptplan".into(),
            types: ["int".into(), "numeric(10,2)".into()].into(),
            text: "SELECT * FROM users u, logs l WHERE u.usrid=$1 AND l.date = $2".into(),
            inside: Inside::default(),
        }]
    );
    assert!(statement.parameters.is_empty() && statement.functions.is_empty(), "nothing of it runs");
    assert_eq!(relations(text), ["logs", "users"]);
    let [Effect::Prepare { inside, .. }] = &*effects("PREPARE p AS SELECT setseed(0), g(1), lower('A')") else {
        panic!()
    };
    assert_eq!(inside.effects.len(), 1);
    assert_eq!(inside.unknown_functions().map(|function| &*function.name.name).collect::<Vec<_>>(), ["g"]);
    assert_eq!(effects("EXECUTE p(f(1))"), [Effect::Execute { name: "p".into() }]);
    assert_eq!(one("EXECUTE p(f(1))").unknown_functions().count(), 1);
    assert_eq!(effects("EXPLAIN EXECUTE p"), [Effect::Execute { name: "p".into() }]);
    assert_eq!(effects("EXPLAIN ANALYZE EXECUTE p"), [Effect::Execute { name: "p".into() }]);
    let created = effects("CREATE TEMP TABLE t ON COMMIT DROP AS EXECUTE p(1)");
    assert!(created.contains(&Effect::Execute { name: "p".into() }));
    assert!(created.contains(&Effect::Temporary(Temporary {
        object: ObjectKind::Table,
        name: name("t"),
        on_commit: OnCommit::Drop
    })));
    assert_eq!(effects("DEALLOCATE p"), [Effect::Deallocate(Some("p".into()))]);
    assert_eq!(effects("DEALLOCATE PREPARE \"ALL\""), [Effect::Deallocate(Some("ALL".into()))]);
    assert_eq!(effects("DEALLOCATE ALL"), [Effect::Deallocate(None)]);
}

#[test]
fn cursors() {
    let declare = |hold, binary, scroll| vec![Effect::Declare { name: "c".into(), hold, binary, scroll }];
    assert_eq!(effects("DECLARE c CURSOR FOR SELECT 1"), declare(false, false, None));
    assert_eq!(effects("DECLARE c BINARY SCROLL CURSOR WITH HOLD FOR SELECT 1"), declare(true, true, Some(true)));
    assert_eq!(
        effects("DECLARE c INSENSITIVE NO SCROLL CURSOR WITHOUT HOLD FOR SELECT 1"),
        declare(false, false, Some(false))
    );
    assert!(one("DECLARE c CURSOR FOR SELECT nextval('s')").effects.len() == 2);
    assert_eq!(effects("FETCH ALL FROM c"), [Effect::Fetch { name: "c".into() }]);
    assert_eq!(one("MOVE 3 c").kind, Kind::Utility(Utility::Move));
    assert_eq!(effects("CLOSE c"), [Effect::Close(Some("c".into()))]);
    assert_eq!(effects("CLOSE ALL"), [Effect::Close(None)]);
}

#[test]
fn channels_and_libraries() {
    assert_eq!(effects("LISTEN \"Virtual\""), [Effect::Listen("Virtual".into())]);
    assert_eq!(effects("UNLISTEN v"), [Effect::Unlisten(Some("v".into()))]);
    assert_eq!(effects("UNLISTEN *"), [Effect::Unlisten(None)]);
    assert_eq!(effects("NOTIFY v, 'payload'"), [Effect::Notify("v".into())]);
    assert_eq!(effects("LOAD 'auto_explain'"), [Effect::Load("auto_explain".into())]);
}

#[test]
fn blocks_and_procedures() {
    let statement = one("DO LANGUAGE plpgsql $a$ BEGIN PERFORM set_config('a.b','c',false); END $a$");
    assert_eq!(
        *statement.effects,
        [Effect::Do { language: "plpgsql".into(), body: " BEGIN PERFORM set_config('a.b','c',false); END ".into() }]
    );
    assert!(!statement.is_known());
    assert_eq!(effects("DO 'x' LANGUAGE plperl"), [Effect::Do { language: "plperl".into(), body: "x".into() }]);
    let statement = one("CALL s.p(1, nextval('q'))");
    assert_eq!(statement.effects.len(), 2);
    assert_eq!(
        statement.unknown_functions().map(|f| (f.name.clone(), f.arguments)).collect::<Vec<_>>(),
        [(name("s.p"), 2)]
    );
}

#[test]
fn copy() {
    for (text, from, end) in [
        ("COPY t FROM STDIN", true, CopyEnd::Client),
        ("COPY t (a, b) TO STDOUT WITH (FORMAT csv)", false, CopyEnd::Client),
        ("COPY t FROM '/x/y'", true, CopyEnd::File),
        ("COPY t TO PROGRAM 'gzip > /x'", false, CopyEnd::Program),
        ("COPY (SELECT f(x) FROM t) TO STDOUT", false, CopyEnd::Client),
    ] {
        assert_eq!(one(text).kind, Kind::Utility(Utility::Copy(Copy { from, end })), "{text}");
    }
    assert_eq!(relations("COPY t FROM STDIN WHERE a > f(1)"), ["t!"]);
    assert_eq!(one("COPY t FROM STDIN WHERE a > f(1)").unknown_functions().count(), 1);
    assert_eq!(one("COPY (SELECT nextval('s')) TO STDOUT").effects.len(), 1);
    assert!(one("COPY (INSERT INTO t VALUES (1) RETURNING a) TO STDOUT").relations.len() == 1);
    assert!(!one("COPY (INSERT INTO t VALUES (1) RETURNING a) TO STDOUT").reads_only);
    assert!(one("COPY t TO STDOUT").reads_only);
}

#[test]
fn temporary_objects() {
    let temporary = |text: &str| {
        effects(text)
            .into_iter()
            .filter_map(|effect| match effect {
                Effect::Temporary(Temporary { object, name, on_commit }) => Some((object, name, on_commit)),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
    use ObjectKind::{Function, Sequence, Table, Type, View};
    for (text, object, called, on_commit) in [
        ("CREATE TEMP TABLE t (a int)", Table, "t", OnCommit::PreserveRows),
        ("CREATE TEMPORARY TABLE IF NOT EXISTS t () ON COMMIT DELETE ROWS", Table, "t", OnCommit::DeleteRows),
        ("CREATE LOCAL TEMP TABLE t (a int) ON COMMIT PRESERVE ROWS", Table, "t", OnCommit::PreserveRows),
        ("CREATE GLOBAL TEMPORARY TABLE t (a int) ON COMMIT DROP", Table, "t", OnCommit::Drop),
        ("CREATE TABLE pg_temp.t (a int)", Table, "pg_temp.t", OnCommit::PreserveRows),
        ("CREATE TEMP TABLE t ON COMMIT DROP AS SELECT 1", Table, "t", OnCommit::Drop),
        ("CREATE TABLE pg_temp.t AS SELECT 1", Table, "pg_temp.t", OnCommit::PreserveRows),
        ("SELECT * INTO TEMP t FROM x", Table, "t", OnCommit::PreserveRows),
        ("SELECT * INTO pg_temp.t FROM x", Table, "pg_temp.t", OnCommit::PreserveRows),
        ("CREATE TEMP VIEW t AS SELECT 1", View, "t", OnCommit::PreserveRows),
        ("CREATE OR REPLACE TEMP RECURSIVE VIEW t (a) AS SELECT 1", View, "t", OnCommit::PreserveRows),
        ("CREATE TEMP SEQUENCE t", Sequence, "t", OnCommit::PreserveRows),
        (
            "CREATE FUNCTION pg_temp.t() RETURNS int LANGUAGE sql AS 'select 1'",
            Function,
            "pg_temp.t",
            OnCommit::PreserveRows,
        ),
        ("CREATE TYPE pg_temp.t AS (a int)", Type, "pg_temp.t", OnCommit::PreserveRows),
        ("CREATE TYPE pg_temp.t AS ENUM ('a')", Type, "pg_temp.t", OnCommit::PreserveRows),
        ("CREATE DOMAIN pg_temp.t AS int", Type, "pg_temp.t", OnCommit::PreserveRows),
        ("EXPLAIN (ANALYZE) CREATE TEMP TABLE t AS SELECT 1", Table, "t", OnCommit::PreserveRows),
    ] {
        assert_eq!(temporary(text), [(object, name(called), on_commit)], "{text}");
    }
    for text in [
        "CREATE TABLE t (a int)",
        "SELECT * INTO t FROM x",
        "EXPLAIN CREATE TEMP TABLE t AS SELECT 1",
        "SELECT temp FROM pg_temp.t",
    ] {
        assert_eq!(temporary(text), [], "{text}");
    }
}

#[test]
fn definitions() {
    for (text, verb, object, names) in [
        ("CREATE TABLE s.t (a int default f())", Verb::Create, ObjectKind::Table, &["s.t"][..]),
        ("ALTER TABLE t ADD COLUMN b int", Verb::Alter, ObjectKind::Table, &["t"]),
        ("ALTER TABLE t RENAME COLUMN a TO b", Verb::Alter, ObjectKind::Table, &["t"]),
        ("ALTER TABLE t SET SCHEMA s", Verb::Alter, ObjectKind::Table, &["t"]),
        ("ALTER VIEW v OWNER TO x", Verb::Alter, ObjectKind::View, &["v"]),
        ("DROP TABLE IF EXISTS a, s.b CASCADE", Verb::Drop, ObjectKind::Table, &["a", "s.b"]),
        ("DROP FUNCTION f(int)", Verb::Drop, ObjectKind::Function, &["f"]),
        ("DROP SCHEMA a, b", Verb::Drop, ObjectKind::Schema, &["a", "b"]),
        ("DROP TYPE s.t", Verb::Drop, ObjectKind::Type, &["s.t"]),
        ("DROP ROLE r", Verb::Drop, ObjectKind::Role, &["r"]),
        ("CREATE INDEX i ON t (lower(a))", Verb::Alter, ObjectKind::Table, &["t"]),
        ("CREATE UNIQUE INDEX CONCURRENTLY ON s.t (a)", Verb::Alter, ObjectKind::Table, &["s.t"]),
        ("DROP INDEX i", Verb::Drop, ObjectKind::Index, &["i"]),
        (
            "CREATE FUNCTION s.f() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT 1; SELECT 2; END",
            Verb::Create,
            ObjectKind::Function,
            &["s.f"],
        ),
        ("CREATE EXTENSION x", Verb::Create, ObjectKind::Extension, &["x"]),
        ("ALTER ROLE r SET search_path TO a", Verb::Defaults, ObjectKind::Role, &["r"]),
        ("ALTER DATABASE d RESET ALL", Verb::Defaults, ObjectKind::Database, &["d"]),
        ("ALTER SYSTEM SET work_mem TO 1", Verb::Defaults, ObjectKind::Other, &[]),
        ("ALTER TYPE t ADD VALUE 'x'", Verb::Alter, ObjectKind::Type, &["t"]),
        ("GRANT SELECT ON t TO x", Verb::Describe, ObjectKind::Table, &["t"]),
        ("COMMENT ON TABLE t IS 'x'", Verb::Describe, ObjectKind::Table, &["t"]),
        ("CREATE RULE r AS ON INSERT TO t DO ALSO (SELECT 1; SELECT 2)", Verb::Alter, ObjectKind::Table, &["t"]),
        ("CREATE PUBLICATION p FOR ALL TABLES", Verb::Alter, ObjectKind::Other, &[]),
    ] {
        let statement = one(text);
        let names = names.iter().map(|text| name(text)).collect();
        assert!(
            statement.effects.contains(&Effect::Definition(Definition { verb, object, names, plain: false })),
            "{text}: {statement:?}"
        );
        assert!(!statement.reads_only, "{text}");
    }
    assert!(one("CREATE VIEW v AS SELECT nextval('s') FROM t").functions.is_empty(), "it is only defined");
    assert_eq!(relations("CREATE VIEW v AS SELECT nextval('s') FROM t"), ["t", "v="]);
}

#[test]
fn plain_tables() {
    let columns = [
        ("a int", true),
        (
            "a serial primary key, b d not null unique, c text collate x check (length(c) < 10 and c > ''), foreign key (a) references x",
            true,
        ),
        ("a int default 1 + 1, b timestamptz default now(), c int generated always as identity (start 5)", true),
        ("a int default f()", false),
        ("a int default nextval('s')", false),
        ("a text default set_config('a.b', 'c', false)", false),
        ("a int, check (f(a))", false),
        ("a int, constraint c check ((select true))", true),
        ("a int generated always as (1 + 1) stored", false),
        ("a int, exclude using gist (a with &&)", false),
        ("a int, like x", false),
    ];
    let others = [
        ("CREATE TABLE t (a int) INHERITS (x)", false),
        ("CREATE TABLE t (a int) PARTITION BY RANGE (f(a))", false),
        ("CREATE TABLE t PARTITION OF x FOR VALUES IN (f())", false),
        ("CREATE TABLE t OF d", false),
        ("CREATE TABLE t AS SELECT 1", false),
        ("CREATE FOREIGN TABLE t (a int) SERVER s", false),
        ("CREATE UNLOGGED TABLE IF NOT EXISTS t (a int) WITH (fillfactor = 70) TABLESPACE x", true),
        ("ALTER TABLE t ADD COLUMN b int", false),
    ];
    let tables = columns.map(|(columns, plain)| (format!("CREATE TABLE t ({columns})"), plain));
    for (text, plain) in tables.into_iter().chain(others.map(|(text, plain)| (text.to_owned(), plain))) {
        let statement = one(&text);
        let found = statement.effects.iter().any(|e| matches!(e, Effect::Definition(Definition { plain: true, .. })));
        assert_eq!(found, plain, "{text}");
        assert!(!plain || !statement.opaque, "{text}");
    }
    assert!(!one("CREATE TEMP TABLE t (a int)").opaque);
}

#[test]
fn relations_but_not_names_of_with() {
    for (text, expected) in [
        ("SELECT * FROM a, s.b AS c JOIN LATERAL (SELECT * FROM d) e ON true", &["a", "d", "s.b"][..]),
        ("WITH a AS (SELECT * FROM a), b AS (SELECT * FROM a) SELECT * FROM b, s.a", &["a", "s.a"]),
        ("WITH RECURSIVE a AS (SELECT 1 UNION ALL SELECT * FROM a) SELECT * FROM a", &[]),
        ("WITH RECURSIVE a AS (SELECT * FROM b), b AS (SELECT * FROM c) SELECT 1", &["c"]),
        ("SELECT * FROM (WITH a AS (SELECT 1) SELECT * FROM a) x, a", &["a"]),
        ("WITH t AS (SELECT 1) INSERT INTO t SELECT * FROM t", &["t!"]),
        ("WITH x AS (DELETE FROM a RETURNING *) SELECT * FROM x", &["a!"]),
        ("UPDATE a SET b = (SELECT max(c) FROM d) FROM e WHERE a.x = e.x", &["a!", "d", "e"]),
        ("DELETE FROM ONLY a USING b WHERE a.x IN (SELECT x FROM c)", &["a!", "b", "c"]),
        (
            "MERGE INTO a USING b ON a.x = b.x WHEN MATCHED THEN UPDATE SET y = (SELECT 1 FROM c) WHEN NOT MATCHED THEN INSERT VALUES (1)",
            &["a!", "b", "c"],
        ),
        ("INSERT INTO a VALUES (1) ON CONFLICT (x) DO UPDATE SET y = (SELECT y FROM b)", &["a!", "b"]),
        ("SELECT * FROM a TABLESAMPLE SYSTEM (10)", &["a"]),
        ("TABLE a", &["a"]),
        ("SELECT EXISTS (SELECT 1 FROM a) FROM f(ARRAY(SELECT x FROM b))", &["a", "b"]),
        ("LOCK TABLE a, b IN SHARE MODE", &["a!", "b!"]),
        ("TRUNCATE a, s.b", &["a!", "s.b!"]),
        ("VACUUM a", &["a!"]),
        ("EXPLAIN SELECT * FROM a", &["a"]),
        ("SELECT \"A\".x FROM \"A\"", &["A"]),
    ] {
        assert_eq!(relations(text), expected, "{text}");
    }
}

#[test]
fn functions_wherever_they_hide() {
    // In each of these, and nowhere else in it, the function f is called with two arguments.
    for text in [
        "SELECT f(1, 2)",
        "SELECT lower(f($1, 'x'))",
        "SELECT 1 FROM f(1, 2)",
        "SELECT 1 FROM f(1, 2) WITH ORDINALITY AS t(a, b)",
        "SELECT 1 FROM ROWS FROM (f(1, 2), generate_series(1, 2)) AS t",
        "SELECT 1 FROM a JOIN b ON f(a.x, b.x)",
        "SELECT 1 FROM a WHERE x = ANY (f(1, 2))",
        "SELECT 1 FROM a WHERE x BETWEEN 1 AND f(1, 2)",
        "SELECT 1 FROM a GROUP BY GROUPING SETS ((f(1, 2)), ())",
        "SELECT 1 FROM a HAVING f(1, 2)",
        "SELECT 1 FROM a ORDER BY f(1, 2) DESC",
        "SELECT 1 FROM a LIMIT f(1, 2)",
        "SELECT 1 FROM a OFFSET f(1, 2)",
        "SELECT DISTINCT ON (f(1, 2)) 1 FROM a",
        "SELECT CASE WHEN true THEN 1 ELSE f(1, 2) END",
        "SELECT CASE f(1, 2) WHEN 1 THEN 1 END",
        "SELECT COALESCE(1, GREATEST(2, NULLIF(f(1, 2), 3)))",
        "SELECT ARRAY[1, f(1, 2)]",
        "SELECT (ARRAY[1, 2])[f(1, 2)]",
        "SELECT ROW(1, f(1, 2))",
        "SELECT (f(1, 2)).*",
        "SELECT f(1, 2)::text COLLATE \"C\"",
        "SELECT f(1, 2) IS NULL",
        "SELECT (f(1, 2)) IS NOT TRUE",
        "SELECT NOT f(1, 2) AND true",
        "SELECT count(*) FILTER (WHERE f(1, 2)) FROM a",
        "SELECT sum(x) OVER (PARTITION BY f(1, 2)) FROM a",
        "SELECT sum(x) OVER w FROM a WINDOW w AS (ORDER BY f(1, 2))",
        "SELECT string_agg(x, ',' ORDER BY f(1, 2)) FROM a",
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY f(1, 2)) FROM a",
        "SELECT lower(a => f(1, 2))",
        "SELECT (SELECT f(1, 2))",
        "SELECT 1 WHERE EXISTS (SELECT 1 WHERE f(1, 2))",
        "VALUES (1), (f(1, 2))",
        "SELECT 1 UNION ALL SELECT f(1, 2)",
        "WITH x AS (SELECT f(1, 2)) SELECT 1",
        "WITH x AS MATERIALIZED (INSERT INTO t VALUES (f(1, 2))) SELECT 1",
        "INSERT INTO t VALUES (1, f(1, 2))",
        "INSERT INTO t (a[f(1, 2)]) VALUES (1)",
        "INSERT INTO t VALUES (1) ON CONFLICT (lower(x)) WHERE f(1, 2) DO NOTHING",
        "INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET x = f(1, 2)",
        "INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET x = 1 WHERE f(1, 2)",
        "INSERT INTO t VALUES (1) RETURNING f(1, 2)",
        "UPDATE t SET (a, b) = (SELECT 1, f(1, 2))",
        "UPDATE t SET (a, b) = ROW(1, f(1, 2))",
        "DELETE FROM t WHERE f(1, 2)",
        "DELETE FROM t USING f(1, 2)",
        "MERGE INTO t USING u ON f(1, 2) WHEN MATCHED THEN DELETE",
        "MERGE INTO t USING u ON true WHEN MATCHED AND f(1, 2) THEN DELETE",
        "MERGE INTO t USING u ON true WHEN NOT MATCHED THEN INSERT VALUES (f(1, 2))",
        "SELECT xmlelement(name a, xmlattributes(f(1, 2) AS b))",
        "SELECT xmlserialize(content f(1, 2) AS text)",
        "SELECT * FROM xmltable('/a' PASSING f(1, 2) COLUMNS x int)",
        "SELECT * FROM a TABLESAMPLE system (f(1, 2))",
        "SELECT json_object('a': f(1, 2))",
        "SELECT json_array(1, f(1, 2))",
        "EXPLAIN ANALYZE SELECT f(1, 2)",
        "CREATE TABLE x AS SELECT f(1, 2)",
        "CREATE MATERIALIZED VIEW x AS SELECT f(1, 2)",
        "SELECT f(1, 2) INTO x",
        "DECLARE c CURSOR FOR SELECT f(1, 2)",
        "COPY (SELECT f(1, 2)) TO STDOUT",
        "EXECUTE p(f(1, 2))",
        "CALL f(1, 2)",
        "SELECT \"f\"(1, 2)",
        "SELECT extract(year FROM f(1, 2))",
        "SELECT overlay('a' placing f(1, 2) from 1)",
        "SELECT 'a' LIKE f(1, 2) ESCAPE '!'",
        "SELECT f(1, 2) AT TIME ZONE 'UTC'",
        "SELECT (a, b) OVERLAPS (c, f(1, 2)) FROM x",
    ] {
        let statement = one(text);
        let unknown: Vec<_> = statement.unknown_functions().map(|f| (f.name.clone(), f.arguments)).collect();
        assert_eq!(unknown, [(name("f"), 2)], "{text}");
        assert!(!statement.is_known(), "{text}");
    }
    // Not run at all.
    assert!(one("EXPLAIN SELECT f(1, 2)").functions.is_empty());
    // Rare constructs that are not looked into are at least not called known.
    for text in [
        "SELECT json_value(f(1, 2), '$.a')",
        "SELECT * FROM json_table(f(1, 2), '$' COLUMNS (a int)) x",
        "SELECT json_scalar(f(1, 2))",
    ] {
        assert!(!one(text).is_known(), "{text}");
    }
}

#[test]
fn functions_of_the_session() {
    let call = |function, arguments: &[Argument]| Effect::Function { function, arguments: arguments.into() };
    let text = |text: &str| Argument::Constant(text.into());
    for (statement, effect) in [
        ("SELECT nextval('s')", call(SessionFunction::NextValue, &[text("s")])),
        ("SELECT nextval('s'::regclass)", call(SessionFunction::NextValue, &[text("s")])),
        ("SELECT pg_catalog.currval($1)", call(SessionFunction::CurrentValue, &[Argument::Parameter(1)])),
        ("INSERT INTO t VALUES (lastval())", call(SessionFunction::LastValue, &[])),
        ("SELECT setval('s', 42, false)", call(SessionFunction::SetValue, &[text("s"), text("42"), text("false")])),
        (
            "SELECT pg_advisory_lock(id) FROM t",
            call(SessionFunction::AdvisoryLock(LockSpan::Session), &[Argument::Expression]),
        ),
        (
            "SELECT pg_try_advisory_xact_lock_shared(1, -2)",
            call(SessionFunction::AdvisoryLock(LockSpan::Transaction), &[text("1"), text("-2")]),
        ),
        ("SELECT PG_ADVISORY_UNLOCK_ALL()", call(SessionFunction::AdvisoryUnlockAll, &[])),
        ("SELECT pg_notify('c', NULL)", call(SessionFunction::Notify, &[text("c"), Argument::Null])),
        ("SELECT setseed(0.5)", call(SessionFunction::SetSeed, &[text("0.5")])),
        ("SELECT lo_open(1, 2)", call(SessionFunction::LargeObject, &[text("1"), text("2")])),
        ("SELECT pg_backend_pid()", call(SessionFunction::ReadsBackend, &[])),
    ] {
        let facts = one(statement);
        assert_eq!(*facts.effects, [effect], "{statement}");
        assert!(facts.is_known() && !facts.is_plain(), "{statement}");
    }
    // Somebody else's.
    assert!(effects("SELECT mine.nextval('s')").is_empty());
    assert_eq!(one("SELECT mine.nextval('s')").unknown_functions().count(), 1);
    assert_eq!(effects("UPDATE pg_settings SET setting = 'x' WHERE name = 'work_mem'"), [Effect::SettingsView]);
}

#[test]
fn set_config_with_its_constants() {
    let only = |text: &str| {
        let mut all = effects(text);
        all.retain(|effect| !matches!(effect, Effect::Declare { .. }));
        let [Effect::SetConfig { name, value, local, once }] = &all[..] else { panic!("{text}: {all:?}") };
        (name.clone(), value.clone(), local.boolean(), *once)
    };
    let text = |text: &str| Argument::Constant(text.into());
    assert_eq!(only("SELECT set_config('a.b', 'c', false)"), (text("a.b"), text("c"), Some(false), true));
    assert_eq!(
        only("SELECT pg_catalog.set_config('search_path', '', false)"),
        (text("search_path"), text(""), Some(false), true)
    );
    assert_eq!(only("SELECT set_config('a.b', $1, true)"), (text("a.b"), Argument::Parameter(1), Some(true), true));
    assert_eq!(only("SELECT set_config('a.b', 7::text, 't')"), (text("a.b"), text("7"), Some(true), true));
    assert_eq!(only("SELECT set_config('a.b', NULL, 'off'::bool)"), (text("a.b"), Argument::Null, Some(false), true));
    assert_eq!(only("SELECT length(set_config('a.b', 'c', $1))"), (text("a.b"), text("c"), None, true));
    for text in [
        "SELECT set_config('a.b', 'c', false) FROM t",
        "SELECT set_config('a.b', 'c', false) WHERE false",
        "SELECT CASE WHEN x THEN set_config('a.b', 'c', false) END",
        "SELECT set_config('a.b', 'c', false) LIMIT 0",
        "SELECT 1 UNION SELECT set_config('a.b', 'c', false)",
        "SELECT (SELECT set_config('a.b', 'c', false))",
        "WITH x AS (SELECT set_config('a.b', 'c', false)) SELECT 1",
        "SELECT 1 FROM set_config('a.b', 'c', false)",
        "INSERT INTO t SELECT set_config('a.b', 'c', false) FROM u",
        "UPDATE t SET x = set_config('a.b', 'c', false)",
        "DELETE FROM t WHERE set_config('a.b', 'c', false)::bool",
        "INSERT INTO t VALUES (1) RETURNING set_config('a.b', 'c', false)",
        "MERGE INTO t USING u ON true WHEN MATCHED THEN UPDATE SET x = set_config('a.b', 'c', false)",
        "COPY (SELECT set_config('a.b', 'c', false)) TO STDOUT",
        "DECLARE c CURSOR FOR SELECT set_config('a.b', 'c', false)",
        "SELECT set_config(is_local => false, setting_name => 'a.b', new_value => 'c')",
    ] {
        assert!(!only(text).3, "{text}");
    }
    let concatenated = only("SELECT set_config('a.' || 'b', 'c', false)");
    assert_eq!(concatenated.0, Argument::Expression);
}

#[test]
fn parameters() {
    let statement = one("SELECT $2, f($7) FROM t WHERE x IN ($1, $2)");
    assert_eq!(*statement.parameters, [1, 2, 7]);
    assert_eq!(statement.highest_parameter(), 7);
    assert_eq!(one("SELECT 1").highest_parameter(), 0);
}

#[test]
fn what_only_reads() {
    for text in [
        "SELECT 1",
        "VALUES (1)",
        "TABLE t",
        "SHOW ALL",
        "EXPLAIN DELETE FROM t",
        "BEGIN",
        "SET a.b TO 1",
        "FETCH c",
        "LISTEN c",
    ] {
        assert!(one(text).reads_only, "{text}");
    }
    for text in [
        "SELECT 1 FOR UPDATE",
        "SELECT * FROM t FOR KEY SHARE",
        "SELECT * FROM (SELECT * FROM t FOR UPDATE) x",
        "WITH x AS (UPDATE t SET a = 1 RETURNING *) SELECT * FROM x",
        "EXPLAIN ANALYZE DELETE FROM t",
        "SELECT 1 INTO x",
        "LOCK t",
        "REFRESH MATERIALIZED VIEW v",
        "DO ''",
    ] {
        assert!(!one(text).reads_only, "{text}");
    }
}

#[test]
fn plain_statements() {
    for text in [
        "SELECT lower(a) FROM t WHERE b = $1",
        "INSERT INTO t (a) VALUES (now())",
        "SHOW work_mem",
        "LOCK t",
        "EXPLAIN SELECT f()",
    ] {
        assert!(one(text).is_plain(), "{text}");
    }
    for text in ["SELECT f()", "SET a.b TO 1", "COMMIT", "CREATE TABLE t (a int)", "CALL p()"] {
        assert!(!one(text).is_plain(), "{text}");
    }
}

#[test]
fn several_statements() {
    let all = facts(";; BEGIN; SET LOCAL a.b = 'x;y'; /* ; */ SELECT nextval('s');-- ;\n COMMIT;");
    assert_eq!(all.len(), 4);
    assert!(matches!(&all[1].effects[..], [Effect::Set(Set { local: true, .. })]));
    assert!(facts(" -- nothing\n ; ").is_empty());
    let texts: Vec<_> = facts("prepare a as select 1; prepare b (int) as select 2")
        .iter()
        .map(|statement| match &statement.effects[..] {
            [Effect::Prepare { text, types, .. }] => (text.to_string(), types.len()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(texts, [("select 1".to_string(), 0), ("select 2".to_string(), 1)]);
}

#[test]
fn what_cannot_be_had() {
    assert!(matches!(try_facts("selct 1"), Err(Unknown::Refused(_))));
    assert!(matches!(try_facts("select 'open"), Err(Unknown::Refused(_))));
    assert!(matches!(try_facts("select \0 1"), Err(Unknown::Refused(_))));
    let text = format!("select {}1{}", "(".repeat(5000), ")".repeat(5000));
    assert_eq!(try_facts(&text), Err(Unknown::TooDeep));
    let text = format!("select 1 -- {}", "x".repeat(2 << 20));
    assert_eq!(try_facts(&text), Err(Unknown::TooLong));
}

#[test]
fn text_in_another_encoding() {
    let mut outline = Outline::new(Key::new(3, 5));
    // A name in Latin-1.
    let text = b"select * from caf\xe9 where x = '\xe9'; set a.b to 'x'";
    outline.read(text, true);
    let facts = Facts::of(text, &outline, true, Limits::default()).expect("it parses");
    assert_eq!(&*facts.statements()[0].relations[0].name.name, "caf\u{e9}");
    assert_eq!(*facts.statements()[1].effects, [set("a.b", "x")]);
}

#[test]
fn what_may_run_twice() {
    for text in [
        "SELECT a FROM t WHERE id = $1",
        "SELECT count(*), max(lower(a)) FROM t JOIN u USING (id) WHERE b < now()",
        "WITH x AS (SELECT 1) SELECT * FROM x UNION ALL VALUES (2)",
        "TABLE t",
        "SELECT random(), gen_random_uuid()",
    ] {
        assert!(one(text).only_reads(), "{text}");
    }
    for text in [
        "SELECT a FROM t WHERE id = $1 FOR UPDATE",
        "SELECT a FROM t FOR KEY SHARE",
        "WITH x AS (INSERT INTO t VALUES (1) RETURNING a) SELECT * FROM x",
        "WITH x AS (DELETE FROM t RETURNING a) SELECT 1",
        "SELECT a INTO u FROM t",
        "CREATE TABLE u AS SELECT 1",
        "INSERT INTO t VALUES (1)",
        "SELECT mine(a) FROM t",
        "SELECT public.lower(a) FROM t",
        "SELECT nextval('s')",
        "SELECT setval('s', 1)",
        "SELECT pg_notify('a', 'b')",
        "SELECT set_config('a.b', 'c', false)",
        "SELECT pg_advisory_xact_lock(1)",
        "SELECT lo_create(0)",
        "SELECT pg_terminate_backend(1)",
        "SELECT pg_stat_reset()",
        "SELECT pg_backend_pid()",
        "SELECT txid_current()",
        "SELECT query_to_xml('delete from t', true, true, '')",
        "EXPLAIN ANALYZE DELETE FROM t",
        "EXPLAIN SELECT 1",
        "SHOW work_mem",
        "BEGIN",
        "FETCH c",
        "EXECUTE a",
    ] {
        assert!(!one(text).only_reads(), "{text}");
    }
}
