//! What a real database's definitions may do: each way from a plain statement to a function, one database for each, and databases
//! in which no way leads to a function that changes sessions.

use std::fmt::Write as _;
use std::sync::OnceLock;

use pgusher_embedded::Server;
use pgusher_session::knowledge::{Knowledge, MAX_FUNCTIONS, ReadError, Reader, question};

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::builder().start().unwrap())
}

/// Runs each text in a transaction of its own.
fn run(database: &str, sql: &str) {
    server().psql(database, sql).unwrap();
}

fn database(name: &str, sql: &str) {
    run("postgres", &format!("create database {name}"));
    run(name, sql);
}

/// The body of a DataRow.
fn data_row(columns: &[Option<&str>]) -> Vec<u8> {
    let mut body = u16::try_from(columns.len()).unwrap().to_be_bytes().to_vec();
    for column in columns {
        match column {
            Some(text) => {
                body.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
                body.extend(text.as_bytes());
            }
            None => body.extend((-1i32).to_be_bytes()),
        }
    }
    body
}

/// Asks, behind `before`, and counts the rows.
fn ask(database: &str, before: &str, known: Option<&Knowledge>) -> (Knowledge, usize) {
    let sql = format!("{before}{}", question(known.map(|known| known.version)));
    let answer = server().psql(database, &sql).unwrap();
    let mut reader = Reader::new();
    for line in answer.lines() {
        let columns: Vec<_> = line.split('|').map(|text| Some(text).filter(|text| !text.is_empty())).collect();
        reader.row(&data_row(&columns)).unwrap();
    }
    (reader.finish(known).unwrap(), answer.lines().count())
}

fn known(database: &str) -> Knowledge {
    ask(database, "", None).0
}

fn relations(knowledge: &Knowledge) -> Vec<&str> {
    let mut names: Vec<_> = knowledge.relations().collect();
    names.sort_unstable();
    names
}

const SETS: &str = "
    create function sets() returns trigger language plpgsql as
      $$begin perform set_config('app.last', new.id::text, false); return new; end$$;
    create function sets(x int) returns int language sql as $$select length(set_config('app.x', 'y', false))$$;
    create function calls(x int) returns int language plpgsql as $$begin return sets(x); end$$;
    create function fine(x int) returns int language plpgsql as $$begin return abs(x); end$$;
    create table t (id int, other int); create table u (id int);
    create trigger fine before update on u for each row execute function suppress_redundant_updates_trigger();
";

/// What is made, and which relations are in doubt then; `*` stands for everywhere.
const WAYS: &[(&str, &str, &str)] = &[
    ("trigger", "create trigger x before insert on t for each row execute function sets()", "t"),
    (
        "trigger_when",
        "create trigger x before update on t for each row when (calls(new.id) > 1)
           execute function suppress_redundant_updates_trigger()",
        "t",
    ),
    (
        "instead_of",
        "create view v as select * from u; create trigger x instead of insert on v for each row execute function sets()",
        "v",
    ),
    ("rule", "create rule x as on insert to t do also select calls(new.id)", "t"),
    ("rule_builtin", "create rule x as on insert to t do also select set_config('a.b', 'c', false)", "t"),
    ("rule_settings", "create rule x as on insert to t do also update pg_settings set setting = '1' where name = 'x'", "t"),
    (
        "rule_other",
        "create trigger x before insert on t for each row execute function sets();
         create rule x as on delete to u do also insert into t values (old.id)",
        "t u",
    ),
    ("view", "create view v as select calls(id) from t; create view w as select * from v", "v w"),
    ("view_builtin", "create view v as select set_config('app.x', 'y', true); create view w as select * from v", "v w"),
    (
        "view_of_table",
        "create trigger x before insert on t for each row execute function sets(); create view v as select * from t",
        "t v",
    ),
    ("default_", "alter table t alter other set default calls(1)", "t"),
    ("default_builtin", "alter table t alter other set default length(set_config('app.x', 'y', false))", "t"),
    ("default_lock", "alter table t alter other set default pg_try_advisory_lock(1)::int", "t"),
    (
        "generated",
        "create function g(x int) returns int immutable language plpgsql as $$begin perform sets(x); return x; end$$;
         alter table t add g int generated always as (g(other)) stored",
        "t",
    ),
    ("check_", "alter table t add check (calls(id) > 0)", "t"),
    ("domain_check", "create domain d as int check (calls(value) > 0)", "*"),
    ("domain_default", "create domain d as int default calls(1)", "*"),
    ("policy", "alter table t enable row level security; create policy p on t using (calls(id) > 0)", "t"),
    (
        "policy_of_other",
        "create view v as select calls(id) from u;
         create policy p on t using (id in (select calls from v))",
        "t v",
    ),
    (
        "index_expression",
        "create function g(x int) returns int immutable language plpgsql as $$begin perform sets(x); return x; end$$;
         create index on t (g(other))",
        "t",
    ),
    (
        "operator_",
        "create function o(a t, b t) returns boolean language plpgsql as $$begin perform sets(1); return true; end$$;
         create operator === (leftarg = t, rightarg = t, function = o)",
        "*",
    ),
    (
        "cast_",
        "create type y as (a int, b int);
         create function c(a y, b int default 1) returns int language plpgsql as $$begin return sets(1); end$$;
         create function c2(a y, b int, c boolean) returns int language plpgsql as $$begin return sets(1); end$$;
         drop function c; create cast (y as int) with function c2(y, int, boolean)",
        "*",
    ),
    ("notation", "create function full_name(a t) returns int language sql as $$select calls(a.id)$$", "*"),
    (
        "aggregate_",
        "create function step(a int, b int) returns int language plpgsql as $$begin return sets(a); end$$;
         create aggregate agg(int) (sfunc = step, stype = int); create view v as select agg(id) from t",
        "v",
    ),
    (
        "sql_standard_body",
        "create function g(x int) returns int begin atomic select length(set_config('app.x', 'y', false)); end;
         create view v as select g(id) from t",
        "v",
    ),
    (
        "sql_standard_return",
        "create function g(x int default 3) returns int language sql return calls(x); create view v as select g(id) from t",
        "v",
    ),
    (
        "argument_default",
        "create function g(x int default calls(1)) returns int language sql as 'select x';
         alter table t alter other set default g()",
        "t",
    ),
    (
        "argument_default_builtin",
        "create function g(x text default set_config('app.x', 'y', false)) returns int language sql as 'select 1';
         create function h() returns int language sql as 'select g()';
         alter table t alter other set default h()",
        "t",
    ),
    (
        "partition",
        "create table p (id int) partition by range (id); create table p1 partition of p for values from (0) to (9);
         create trigger x before insert on p1 for each row execute function sets()",
        "p p1",
    ),
    (
        "partition_of",
        "create table p (id int) partition by range (id); create table p1 partition of p for values from (0) to (9);
         create trigger x after insert on p for each row execute function sets()",
        "p p1",
    ),
    (
        "inherits",
        "create table c () inherits (u); create trigger x before update on c for each row execute function sets()",
        "c u",
    ),
    (
        "cascade_",
        "alter table t add primary key (id); create table c (id int references t on delete cascade);
         create trigger x before delete on c for each row execute function sets()",
        "c t",
    ),
    (
        "other_trigger",
        "create trigger x before insert on t for each row execute function sets();
         create function logs() returns trigger language plpgsql as $$begin insert into public.t values (1); return new; end$$;
         create trigger x before insert on u for each row execute function logs()",
        "t u",
    ),
    (
        "any_relation",
        "create trigger x before insert on t for each row execute function sets();
         create function logs() returns trigger language plpgsql as
           $$begin execute format('insert into %I values (1)', tg_argv[0]); return new; end$$;
         create trigger x before insert on u for each row execute function logs('t')",
        "t u",
    ),
    (
        "hidden_builtin",
        "create function lower(x int) returns int language sql as 'select sets(x)';
         create function logs() returns trigger language plpgsql as $$begin perform lower(1); return new; end$$;
         create trigger x before insert on u for each row execute function logs()",
        "u",
    ),
    (
        "quoted_names",
        "create schema \"S|x\"; create table \"S|x\".\"Ta\u{df}|'\" (id int);
         create trigger x before insert on \"S|x\".\"Ta\u{df}|'\" for each row execute function sets()",
        "Ta\u{df}|'",
    ),
];

#[test]
fn each_way_is_found() {
    let mut wrong = Vec::new();
    for (name, sql, expected) in WAYS {
        database(name, SETS);
        let before = known(name);
        assert!(before.is_innocent() && relations(&before).is_empty(), "{name}: {before:?}");
        run(name, sql);
        let after = known(name);
        let found = if after.everywhere { "*".to_owned() } else { relations(&after).join(" ") };
        if found != *expected || after.is_innocent() || before.version == after.version {
            wrong.push(format!("{name}: {found} instead of {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_known_of_functions_and_relations() {
    database("api", &format!("{SETS} create trigger x before insert on t for each row execute function sets()"));
    let knowledge = known("api");
    assert!(knowledge.touches(["u", "t"].into_iter()) && !knowledge.touches(["u"].into_iter()));
    assert_eq!(
        ["sets", "calls", "fine", "lower"].map(|name| knowledge.function(name)),
        [Some(true), Some(true), Some(false), None]
    );
}

#[test]
fn settings_that_definitions_make() {
    database(
        "made",
        &format!(
            "{SETS} create function named(x text) returns text language plpgsql as $$begin return set_config(x, 'y', false); end$$;
             create function other() returns text language sql as $$select set_config('app.elsewhere', 'y', false)$$"
        ),
    );
    // Nothing reaches them yet.
    assert!(known("made").placeholders().is_empty());
    run(
        "made",
        "create trigger x before insert on t for each row execute function sets();
         create rule r as on insert to u do also select set_config('App.Rule', new.id::text, false)",
    );
    let knowledge = known("made");
    let names: Vec<&str> = knowledge.placeholders().iter().map(AsRef::as_ref).collect();
    assert!(
        names.contains(&"app.last") && names.contains(&"app.rule") && !names.contains(&"app.elsewhere"),
        "{names:?}"
    );
    assert!(!knowledge.nameless && !knowledge.hides);
    run(
        "made",
        "create function caller() returns text language plpgsql as $$begin return named('app.given'); end$$;
         create view v as select caller();
         create function lower(x t) returns text language sql as $$select set_config('app.low', 'y', false)$$",
    );
    let knowledge = known("made");
    assert!(knowledge.nameless && knowledge.hides);
    assert!(knowledge.placeholders().iter().any(|name| **name == *"app.given"));
}

#[test]
fn event_triggers() {
    database(
        "events",
        "create function log_ddl() returns event_trigger language plpgsql as $$begin insert into l values (tg_tag); end$$;
         create table l (x text); create event trigger e on ddl_command_end execute function log_ddl()",
    );
    assert!(known("events").is_innocent());
    run(
        "events",
        "create function sets_ddl() returns event_trigger language plpgsql as $$begin set app.x = 1; end$$;
         create event trigger f on ddl_command_end execute function sets_ddl()",
    );
    let knowledge = known("events");
    assert!(knowledge.definitions && !knowledge.login && !knowledge.everywhere && !knowledge.is_innocent());
}

/// Tables with the usual columns and triggers.
fn ordinary(tables: usize, functions: usize) -> String {
    let mut sql = "
        create table audit_log (id bigserial primary key, tab text, op text, old jsonb, new jsonb, at timestamptz default now());
        create function set_updated_at() returns trigger language plpgsql as
          $$begin new.updated_at = now(); return new; end$$;
        create function audit() returns trigger language plpgsql as $$
          begin
            if tg_op = 'DELETE' then
              insert into audit_log (tab, op, old) values (tg_table_name, tg_op, to_jsonb(old)); return old;
            end if;
            insert into audit_log (tab, op, new) values (tg_table_name, tg_op, to_jsonb(new));
            perform pg_notify('changes', tg_table_name); return new;
          end$$;
        create function tenant() returns uuid stable language sql as
          $$select nullif(current_setting('app.tenant', true), '')::uuid$$;
        create function valid_email(x text) returns boolean immutable language sql as $$select x ~ '@'$$;
        create domain email as text check (valid_email(value));
    "
    .to_owned();
    for n in 0..tables {
        write!(
            sql,
            "create table t{n} (id serial primary key, tenant uuid not null default tenant(), mail email, name text not null
               default '', updated_at timestamptz not null default now(), parent int {},
               check (length(name) < 100));
             create index on t{n} (lower(name));
             create trigger a before update on t{n} for each row execute function set_updated_at();
             create trigger b after insert or update or delete on t{n} for each row execute function audit();
             create view v{n} as select id, upper(name) from t{n} where tenant = tenant();
             create policy p on t{n} using (tenant = tenant());",
            if n == 0 { String::new() } else { format!("references t{} on delete cascade", n - 1) }
        )
        .unwrap();
    }
    for n in 0..functions {
        write!(
            sql,
            "create function f{n}(a int, b text) returns int language plpgsql as $$
               declare n int := 0; r record;
               begin
                 for r in select id, name from t0 where name = b loop
                   if r.id > a then n := n + f{n}(r.id, lower(b)); else update t0 set name = b where id = r.id; end if;
                 end loop;
                 return coalesce(n, 0);
               exception when unique_violation then raise notice 'not again: %', b; return 0;
               end$$;"
        )
        .unwrap();
    }
    sql
}

/// As psql reads a file: a command line has an end.
fn run_file(database: &str, sql: &str) {
    use std::io::Write as _;
    let mut child = server()
        .client("psql")
        .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-1", "-d", database, "-f", "-"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(sql.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn an_ordinary_database_is_innocent() {
    database("ordinary", "");
    run_file("ordinary", &ordinary(40, 40));
    let knowledge = known("ordinary");
    assert!(knowledge.is_innocent() && !knowledge.touches(["t0", "v0", "audit_log"].into_iter()), "{knowledge:?}");
    assert_eq!(knowledge.function("audit"), Some(false));
}

#[test]
fn many_functions() {
    database("many", "");
    run_file("many", &ordinary(1, 3_000));
    let (knowledge, rows) = ask("many", "", None);
    assert!(knowledge.is_innocent() && !knowledge.too_many && rows > 3_000);
    // One among them that calls one that sets.
    run("many", "create function sets() returns int language plpgsql as $$begin set app.x = 1; return 1; end$$");
    run(
        "many",
        "create or replace function f7(a int, b text) returns int language plpgsql as $$begin return sets(); end$$;
         alter table t0 alter parent set default f8(1, '')",
    );
    assert!(known("many").is_innocent());
    run("many", "alter table t0 alter parent set default f7(1, '')");
    assert_eq!(relations(&known("many")), ["t0", "v0"]);
    // Too many.
    let more = MAX_FUNCTIONS;
    run(
        "many",
        &format!(
            "do $$begin for n in 1..{more} loop execute format('create function m%s() returns int language sql as ''select 1''', n); end loop; end$$"
        ),
    );
    let (knowledge, rows) = ask("many", "", None);
    assert!(knowledge.too_many && knowledge.everywhere && rows < 10);
    assert!(ask("many", "", Some(&knowledge)).0.too_many);
}

#[test]
fn an_unchanged_database_answers_briefly() {
    database("unchanged", &format!("{SETS} create trigger x before insert on t for each row execute function sets()"));
    let first = known("unchanged");
    let (second, rows) = ask("unchanged", "", Some(&first));
    assert_eq!((&first, rows), (&second, 2));
    for change in [
        "create table more (id int); insert into more values (1)",
        "alter table t rename to renamed",
        "create or replace function sets(x int) returns int language sql as $$select 1$$",
        "alter table u alter id set default 7",
        "drop trigger x on renamed",
    ] {
        run("unchanged", change);
        let (after, rows) = ask("unchanged", "", Some(&second));
        assert!(rows > 2 && after.version != second.version, "{change}");
        assert_eq!(ask("unchanged", "", Some(&after)).1, 2, "{change}");
    }
    let mut reader = Reader::new();
    reader.row(&data_row(&[Some("d"), Some("0"), Some("UTF8"), None, None])).unwrap();
    assert_eq!(reader.finish(None), Err(ReadError::Incomplete));
}

#[test]
fn defaults_are_stamped() {
    database("stamped", "");
    run("postgres", "create role stamped_role login");
    let none = known("stamped");
    assert_eq!(none.defaults, 0);
    run("postgres", "alter database stamped set work_mem = '5MB'");
    let one = known("stamped");
    assert_ne!(one.defaults, 0);
    run("postgres", "alter database stamped set work_mem = '6MB'; alter role stamped_role set work_mem = '1MB'");
    let two = ask("stamped", "", Some(&one)).0;
    assert_ne!(one.defaults, two.defaults);
    run("postgres", "alter role stamped_role in database stamped set work_mem = '2MB'");
    assert_eq!(known("stamped").defaults, two.defaults, "another role's");
    let before = "set session authorization stamped_role;";
    assert_ne!(ask("stamped", before, None).0.defaults, two.defaults);
}

#[test]
fn neither_search_path_nor_encodings_matter() {
    database(
        "hostile",
        &format!(
            "{SETS} create trigger x before insert on t for each row execute function sets();
             create schema evil;
             create function evil.lower(x text) returns text language sql as $$select 'evil'$$;
             create function evil.wrong(a oid, b oid) returns boolean language sql as $$select 1 / 0 = 1$$;
             create operator evil.= (leftarg = oid, rightarg = oid, function = evil.wrong);
             create operator evil.>= (leftarg = oid, rightarg = oid, function = evil.wrong);
             create operator evil.<> (leftarg = oid, rightarg = oid, function = evil.wrong);
             create table evil.pg_proc (oid oid)"
        ),
    );
    let plain = known("hostile");
    for before in [
        "set search_path = evil, pg_catalog; set standard_conforming_strings = off; set client_encoding = 'SQL_ASCII';",
        "set search_path = ''; set client_encoding = 'LATIN1'; set bytea_output = escape; set extra_float_digits = 0;",
        "begin read only;",
    ] {
        assert_eq!(ask("hostile", before, None).0, plain, "{before}");
    }
    assert_eq!(relations(&plain), ["t"]);
    run("postgres", "create database latin template template0 encoding 'LATIN1' locale 'C'");
    run(
        "latin",
        &format!(
            "set client_encoding = 'UTF8'; {SETS} create table \"t\u{e4}t\" (id int);
        create trigger x before insert on \"t\u{e4}t\" for each row execute function sets()"
        ),
    );
    assert!(known("latin").everywhere);
}

#[test]
fn rows_of_another_form_are_refused() {
    let mut body = data_row(&[Some("f"), Some("1"), Some("61"), Some("73716c"), Some("6")]);
    assert_eq!(Reader::new().row(&body), Err(ReadError::Row));
    body.truncate(9);
    assert_eq!(Reader::new().row(&body), Err(ReadError::Row));
    assert_eq!(Reader::new().row(&[]), Err(ReadError::Row));
    assert_eq!(Reader::new().row(&data_row(&[Some("z"), None, None, None, None])), Err(ReadError::Row));
    assert_eq!(Reader::new().row(&data_row(&[Some("p"), Some("1"), None, None, None])), Err(ReadError::Row));
}

/// Prints what the question costs: `cargo test -p pgusher-session --test knowledge cost -- --ignored --nocapture`. The time of
/// psql itself is taken off.
#[test]
#[ignore = "a measurement"]
fn cost() {
    use std::time::Instant;
    fn median(mut work: impl FnMut() -> usize) -> (f64, usize) {
        let mut times: Vec<(f64, usize)> = (0..15)
            .map(|_| {
                let start = Instant::now();
                let found = work();
                (start.elapsed().as_secs_f64() * 1e3, found)
            })
            .collect();
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
        times[7]
    }
    database("cost_empty", "");
    database("cost_full", "");
    run_file("cost_full", &ordinary(500, 500));
    run("cost_full", "vacuum analyze");
    for name in ["cost_empty", "cost_full"] {
        let first = known(name);
        let bare = median(|| server().psql(name, "select 1").unwrap().len()).0;
        for (what, version) in [("all", None), ("unchanged", Some(first.version))] {
            let sql = question(version);
            let (time, bytes) = median(|| server().psql(name, &sql).unwrap().len());
            println!("{name} {what}: {:.1} ms on the server, {bytes} bytes", time - bare);
        }
        let answer = server().psql(name, &question(None)).unwrap();
        let rows: Vec<Vec<u8>> = answer
            .lines()
            .map(|line| {
                let columns: Vec<_> = line.split('|').map(|text| Some(text).filter(|text| !text.is_empty())).collect();
                data_row(&columns)
            })
            .collect();
        let (time, _) = median(|| {
            let mut reader = Reader::new();
            rows.iter().for_each(|row| reader.row(row).unwrap());
            reader.finish(None).unwrap().relations().count()
        });
        println!("{name}: {time:.2} ms to read {} rows", rows.len());
    }
}

#[test]
fn which_queries_run_functions_of_the_users() {
    let nothing = || std::iter::empty();
    database(
        "code",
        "create function f(i int) returns int language sql volatile as 'select i'; \
         create table plain (i int primary key); \
         create table child (i int references plain); \
         create view over_function as select f(i) from plain; \
         create view over_view as select * from over_function; \
         create view over_table as select * from plain; \
         create table guarded (i int); \
         create policy p on guarded using (f(i) > 0); \
         create table filled (i int default f(1)); \
         create table parts (i int) partition by range (i); \
         create table part partition of parts for values from (0) to (9); \
         create table checked (i int check (f(i) > 0))",
    );
    let knowledge = known("code");
    for name in ["over_function", "over_view", "guarded", "checked"] {
        assert!(knowledge.runs_code([name].into_iter(), nothing()), "{name}");
    }
    for name in ["plain", "child", "over_table", "parts", "part", "pg_class"] {
        assert!(!knowledge.runs_code([name].into_iter(), nothing()), "{name}");
    }
    assert!(knowledge.runs_code(nothing(), ["f"].into_iter()));
    assert!(!knowledge.runs_code(nothing(), ["lower"].into_iter()));
    // None of these changes a session.
    assert!(knowledge.is_innocent());
    // What is bound to no relation may be behind any query.
    for (name, sql) in [
        ("code_operator", "create operator === (function = g, leftarg = int, rightarg = int)"),
        (
            "code_cast",
            "create type pair as (a int, b int); create function h(pair) returns text language sql as 'select 1::text'; \
                       create cast (pair as text) with function h(pair)",
        ),
        ("code_domain", "create domain d as int check (g(value, 1))"),
        ("code_notation", "create table t (i int); create function n(t) returns int language sql as 'select 1'"),
    ] {
        let function =
            "create function g(int, int) returns bool language sql as 'select $1 = $2'; create table other (i int)";
        database(name, &format!("{function}; {sql}"));
        assert!(known(name).runs_code(["other"].into_iter(), nothing()), "{name}");
    }
}

#[test]
fn what_cannot_be_run_twice_is_known() {
    let sql = "create table t (id serial primary key, v text); create sequence s; \
               create view plain as select id, abs(id), now() from t; \
               create view draws as select nextval('s') as n; create view fetches as select n from draws; \
               create view tells as select pg_notify('a', v)::text as n from t; \
               create table guarded (id int); alter table guarded enable row level security; \
               create policy p on guarded using (nextval('s') > 0); create view behind as select id from guarded; \
               create foreign data wrapper w; create server f foreign data wrapper w; create foreign table far (id int) server f";
    database("twice", sql);
    let known = known("twice");
    assert!(known.is_innocent(), "{known:?}");
    let runs = |name: &str| known.runs_code(std::iter::once(name), std::iter::empty());
    for name in ["t", "plain"] {
        assert!(!runs(name), "{name}");
    }
    for name in ["draws", "fetches", "tells", "guarded", "behind", "far"] {
        assert!(runs(name), "{name}");
    }
}
