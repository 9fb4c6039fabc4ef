//! What functions may do to a session: realistic ones, each with the flags it must have, and text that is no function at all.

use pgusher_sql::body::{BodyFacts, Definition, facts_of, facts_of_do};
use proptest::prelude::*;
use proptest::sample::select;

fn facts(language: &str, body: &str) -> BodyFacts {
    facts_of(Definition { language, body, configured: false })
}

/// The names of the flags that are set.
fn flags(facts: &BodyFacts) -> String {
    let all = [
        (facts.settings, "settings"),
        (facts.local, "local"),
        (facts.unknown_names, "unknown_names"),
        (facts.temporary, "temporary"),
        (facts.locks, "locks"),
        (facts.channels, "channels"),
        (facts.cursors, "cursors"),
        (facts.prepared, "prepared"),
        (facts.load, "load"),
        (facts.sequence_reads, "sequence_reads"),
        (facts.sequence_writes, "sequence_writes"),
        (facts.seed, "seed"),
        (facts.definition, "definition"),
        (facts.foreign, "foreign"),
        (facts.opaque, "opaque"),
    ];
    let set: Vec<&str> = all.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
    assert_eq!(facts.harmless, set.is_empty());
    set.join(" ")
}

fn has(list: &[Box<str>], name: &str) -> bool {
    list.iter().any(|n| **n == *name)
}

/// Body, flags, calls.
type Row = (&'static str, &'static str, &'static str);

const PLPGSQL: &[Row] = &[
    ("BEGIN NEW.updated_at = now(); RETURN NEW; END", "", ""),
    ("BEGIN\n  NEW.updated_at := clock_timestamp();\n  RETURN NEW;\nEND;", "", ""),
    (
        "BEGIN
           IF TG_OP = 'DELETE' THEN
             INSERT INTO audit_log (table_name, op, old_row, who) VALUES (TG_TABLE_NAME, TG_OP, row_to_json(OLD), current_user);
             RETURN OLD;
           ELSIF (TG_OP = 'UPDATE') THEN
             INSERT INTO audit.log(table_name, op, new_row) SELECT TG_TABLE_NAME, 'U', to_jsonb(NEW.*);
             RETURN NEW;
           END IF;
           RETURN NULL;
         END",
        "",
        "",
    ),
    // PostgreSQL's documentation: emp_stamp, emp_audit, cs_refresh_mviews, merge_db, in spirit.
    (
        "BEGIN
           IF NEW.empname IS NULL THEN RAISE EXCEPTION 'empname cannot be null'; END IF;
           IF NEW.salary < 0 THEN RAISE EXCEPTION '% cannot have a negative salary', NEW.empname; END IF;
           NEW.last_date := current_timestamp; NEW.last_user := current_user; RETURN NEW;
         END;",
        "",
        "",
    ),
    (
        "DECLARE delta numeric(15,2); t record; curs CURSOR FOR SELECT * FROM tenk1;
         BEGIN
           <<insert_update>>
           LOOP
             UPDATE sales_summary SET amount_sold = amount_sold + delta, units = units + 1 WHERE time_key = delta;
             EXIT insert_update WHEN found;
             BEGIN
               INSERT INTO sales_summary (time_key, amount_sold) VALUES (delta, coalesce(delta, 0));
               EXIT insert_update;
             EXCEPTION WHEN UNIQUE_VIOLATION THEN
               -- SET nothing; LISTEN to nothing
             END;
           END LOOP insert_update;
           FOR t IN SELECT a.id, b.x[1] FROM a JOIN LATERAL b(id, x) ON (true) LOOP PERFORM length(t.x::text); END LOOP;
           OPEN curs; FETCH curs INTO t; CLOSE curs;
           RETURN NULL;
         END",
        "",
        "b",
    ),
    ("BEGIN RETURN (SELECT id FROM tenants WHERE id = current_setting('app.tenant', true)::uuid); END", "", ""),
    ("BEGIN PERFORM set_config('app.tenant', p_tenant::text, false); END", "settings", ""),
    ("BEGIN PERFORM pg_catalog.set_config('app.tenant', p, true); END", "local", ""),
    ("BEGIN PERFORM set_config('app.tenant', p, p_local); END", "settings", ""),
    ("BEGIN PERFORM set_config(p_name, p, true); END", "local unknown_names", ""),
    ("BEGIN PERFORM set_config(setting_name => 'a.b', new_value => 'x', is_local => true); END", "settings unknown_names", ""),
    ("BEGIN PERFORM util.set_config('a'); END", "", "set_config"),
    ("BEGIN SET LOCAL search_path = public, pg_temp; RETURN 1; END", "local", ""),
    ("BEGIN SET search_path TO x; END", "settings", ""),
    ("BEGIN IF a THEN SET work_mem = '1MB'; END IF; END", "settings", ""),
    ("BEGIN /* c */ <<b>> SET app.x TO 'y'; END", "settings", ""),
    ("DECLARE a int; BEGIN LOOP RESET ALL; END LOOP; END", "settings", ""),
    ("BEGIN SET ROLE nobody; END", "settings", ""),
    ("BEGIN SET TRANSACTION READ ONLY; SET CONSTRAINTS ALL DEFERRED; END", "local", ""),
    ("BEGIN UPDATE t SET a = 1; UPDATE ONLY s.t AS x SET (a, b) = (1, 2) WHERE x.c = 3; END", "", "set"),
    ("BEGIN INSERT INTO t (a) VALUES (1) ON CONFLICT (a) DO UPDATE SET a = excluded.a; END", "", ""),
    ("BEGIN MERGE INTO t USING s ON (t.a = s.a) WHEN MATCHED THEN UPDATE SET b = 1; END", "", ""),
    ("BEGIN UPDATE pg_settings SET setting = '1' WHERE name = 'x'; END", "settings unknown_names", ""),
    ("DECLARE lock boolean; comment text := 'x'; BEGIN lock := true; reset = 1; load := 2; listen[1] := 3; END", "", ""),
    ("BEGIN CREATE TEMP TABLE IF NOT EXISTS scratch (id int) ON COMMIT DROP; END", "temporary definition", ""),
    ("BEGIN CREATE TABLE pg_temp.x AS SELECT f(1); END", "temporary definition", "f"),
    ("BEGIN NEW.temp := 1; SELECT temp INTO v FROM weather WHERE temp > 3; END", "", ""),
    ("BEGIN PERFORM pg_advisory_lock(1); END", "locks", ""),
    ("BEGIN PERFORM pg_advisory_xact_lock(hashtext('x')); LOCK TABLE t IN EXCLUSIVE MODE; END", "", ""),
    ("BEGIN LISTEN jobs; END", "channels", ""),
    ("BEGIN NOTIFY jobs; PERFORM pg_notify('jobs', NEW.id::text); RETURN NEW; END", "", ""),
    ("BEGIN NEW.id := nextval('s'); END", "sequence_writes", ""),
    ("BEGIN RETURN currval('s') + lastval(); END", "sequence_reads", ""),
    ("BEGIN PERFORM setseed(0.5); END", "seed", ""),
    ("BEGIN PERFORM ext.dblink_connect('c', 'x'); END", "foreign", ""),
    ("BEGIN PERFORM public.set_limit(0.3); END", "settings", ""),
    ("BEGIN LOAD 'auto_explain'; END", "load", ""),
    ("BEGIN PERFORM my_helper(NEW.id), other.thing (1); RETURN public.lower('x'); END", "", "lower my_helper thing"),
    ("BEGIN CALL refresh(1); END", "", "refresh"),
    ("BEGIN RETURN QUERY (SELECT 1); RETURN QUERY EXECUTE 'SELECT 1'; END", "", ""),
    ("BEGIN RETURN query(1); SELECT query(1) INTO x; END", "", "query"),
    ("DECLARE c CURSOR WITH HOLD FOR SELECT 1; BEGIN END", "cursors", ""),
    // Text that is run.
    ("BEGIN EXECUTE 'SELECT count(*) FROM ' || quote_ident(t) INTO n; RETURN n; END", "", ""),
    ("BEGIN EXECUTE 'SELECT count(*) FROM ' || t INTO n; END", "unknown_names opaque", ""),
    ("BEGIN EXECUTE format('INSERT INTO %I.%I (a, b) VALUES ($1.*)', s, t) USING NEW; END", "", ""),
    ("BEGIN EXECUTE format('UPDATE %I SET %2$I = %3$L WHERE id = $1', t, c, v) USING NEW.id; END", "", ""),
    ("BEGIN EXECUTE format('SELECT %s', x); END", "unknown_names opaque", ""),
    ("BEGIN EXECUTE format('SELECT * FROM %s', x::regclass); EXECUTE 'TRUNCATE ' || TG_TABLE_NAME; END", "", ""),
    ("BEGIN EXECUTE format('SELECT %I(1)', f); END", "unknown_names opaque", ""),
    ("BEGIN EXECUTE format('SET %I = %L', n, v); END", "settings unknown_names", ""),
    ("BEGIN EXECUTE format('SET app.%I = %L', n, v); END", "settings unknown_names", ""),
    ("BEGIN EXECUTE format('SET LOCAL app.tenant = %L', v); END", "local", ""),
    ("BEGIN EXECUTE 'SET LOCAL ROLE ' || quote_ident(r); END", "local unknown_names", ""),
    ("BEGIN EXECUTE $q$SELECT set_config('a.b', 'c', false)$q$; END", "settings", ""),
    ("BEGIN EXECUTE 'SELECT set_config(' || quote_literal(n) || ', $1, true)' USING v; END", "local unknown_names", ""),
    ("BEGIN EXECUTE 'DO $x$ BEGIN LISTEN a; END $x$'; END", "channels", ""),
    ("BEGIN EXECUTE E'SELECT \\'x\\''; EXECUTE E'\\x41'; END", "unknown_names opaque", ""),
    ("BEGIN EXECUTE 'PREPARE p AS SELECT 1'; EXECUTE 'EXECUTE p'; END", "unknown_names prepared opaque", ""),
    ("BEGIN EXECUTE 'DECLARE c CURSOR WITH HOLD FOR SELECT 1'; END", "cursors", ""),
    ("BEGIN EXECUTE 'SELECT 1 INTO TEMP t'; END", "temporary", ""),
    (
        "BEGIN FOR r IN EXECUTE 'SELECT helper(1)' LOOP NULL; END LOOP; OPEN c FOR EXECUTE 'LISTEN x'; END",
        "channels",
        "helper",
    ),
    (
        "DECLARE v_sql text; BEGIN
           v_sql := 'SELECT count(*) FROM ' || quote_ident(t);
           IF x THEN v_sql := v_sql || ' WHERE a = ' || quote_literal(y); END IF;
           FOR r IN EXECUTE v_sql LOOP NULL; END LOOP; EXECUTE v_sql INTO n USING m;
         END",
        "",
        "",
    ),
    ("DECLARE v text; BEGIN v := 'SE'; v := v || 'T a = 1'; EXECUTE v; END", "settings", ""),
    ("DECLARE v text; BEGIN v := 'SELECT 1'; SELECT body INTO v FROM scripts; EXECUTE v; END", "unknown_names opaque", ""),
    ("DECLARE v text := 'SELECT 1'; BEGIN FOR v IN SELECT x FROM y LOOP EXECUTE v; END LOOP; END", "unknown_names opaque", ""),
    ("BEGIN v := 'SELECT 1'; EXECUTE v; END", "unknown_names opaque", ""),
    ("DECLARE v text := 'SELECT 1'; w ALIAS FOR v; BEGIN w := p; EXECUTE v; END", "unknown_names opaque", ""),
    ("BEGIN EXECUTE v; DECLARE v text; BEGIN v := 'SELECT 1'; END; END", "unknown_names opaque", ""),
    ("BEGIN EXECUTE 'SET a = 1; ' OPERATOR(pg_catalog.||) t::regclass; END", "unknown_names opaque", "operator"),
    ("BEGIN EXECUTE 'SELECT 1' || CASE WHEN a THEN 'x' END; EXECUTE (SELECT x FROM y); END", "unknown_names opaque", ""),
    ("BEGIN UPDATE pg_catalog.\"pg_settings\" SET setting = 1; END", "settings unknown_names", ""),
    ("BEGIN INSERT INTO \"pg_temp\".x VALUES (1); END", "temporary", ""),
    ("BEGIN MERGE INTO t USING s ON (t.a = s.a) WHEN MATCHED THEN DO NOTHING; END", "", ""),
    ("#variable_conflict use_column\nBEGIN CASE x WHEN 1 THEN SET a.b = 1; ELSE NULL; END CASE; END", "settings", ""),
    // A maker of partitions.
    (
        "DECLARE part text; BEGIN
           part := 'm_' || to_char(NEW.at, 'YYYY_MM');
           IF to_regclass(part) IS NULL THEN
             EXECUTE format('CREATE TABLE %I PARTITION OF m FOR VALUES FROM (%L) TO (%L)', part, a, b);
           END IF;
           EXECUTE format('INSERT INTO %I SELECT ($1).*', part) USING NEW; RETURN NULL;
         END",
        "definition",
        "",
    ),
    (
        "BEGIN CREATE TRIGGER x BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f(); GRANT EXECUTE ON FUNCTION f(int) TO u; END",
        "definition",
        "",
    ),
    ("BEGIN PERFORM 'x", "opaque", ""),
    ("BEGIN PERFORM U&\"f\"(1); END", "unknown_names opaque", ""),
    ("BEGIN PERFORM query_to_xml('SELECT set_config(''a.b'', ''c'', false)', true, true, ''); END", "settings", ""),
    ("BEGIN PERFORM query_to_xml(q, true, true, ''); END", "unknown_names opaque", ""),
    // With standard_conforming_strings off, the second constant is the statement.
    ("BEGIN PERFORM '\\'; SET a = 1; --'; END", "settings", ""),
];

const SQL: &[Row] = &[
    ("SELECT current_setting('app.tenant_id', true)::int", "", ""),
    ("SELECT set_config('app.tenant_id', $1, false)", "settings", ""),
    ("SELECT auth.uid() = owner FROM docs WHERE docs.id = $1", "", "uid"),
    ("UPDATE t SET a = $1 WHERE id = $2; SELECT 1", "", ""),
    ("INSERT INTO t (a, b) VALUES ($1, lower($2)) RETURNING id", "", ""),
    ("WITH x (a, b) AS (SELECT 1, 2) SELECT a FROM x", "", ""),
    ("SET LOCAL statement_timeout = 1; SELECT 1", "local", ""),
    ("SELECT 1; SET search_path = a", "settings", ""),
    ("SELECT set FROM execute", "", ""),
    ("BEGIN ATOMIC\n SELECT set_config('a.b'::text, 'x'::text, true) AS set_config;\nEND", "local", ""),
    ("RETURN (x + helper(x))", "", "helper"),
    ("SELECT * INTO TEMPORARY x FROM y", "temporary", ""),
    ("CREATE TABLE x AS EXECUTE p(1)", "unknown_names prepared definition opaque", "p"),
    ("DO LANGUAGE plpython3u 'plpy.execute(x)'", "unknown_names opaque", ""),
    (
        "SELECT string_agg(x, ',') WITHIN GROUP (ORDER BY a) FILTER (WHERE b) OVER (w) FROM json_to_recordset($1) AS r(a int)",
        "",
        "",
    ),
    ("DISCARD TEMP", "temporary prepared sequence_writes", ""),
];

const OTHERS: &[(&str, &str, &str)] = &[
    ("internal", "int4pl", ""),
    ("internal", "set_config_by_name", "settings unknown_names"),
    ("c", "gin_extract_value_trgm", ""),
    ("c", "set_limit", "settings"),
    ("c", "dblink_connect", "foreign"),
    ("plpython3u", "return a + b", ""),
    ("plpython3u", "plpy.notice('x')\nreturn 1", ""),
    ("plpython3u", "plpy.execute('select 1')", "unknown_names opaque"),
    ("plpython3u", "SD['n'] = 1", "unknown_names opaque"),
    ("plperl", "return $_[0] * 2;", ""),
    ("plperl", "spi_exec_query('select 1');", "unknown_names opaque"),
    ("plv8", "return x.toUpperCase();", ""),
    ("plv8", "plv8.execute('x')", "unknown_names opaque"),
    ("nothing_known", "", "unknown_names opaque"),
];

#[test]
fn functions() {
    let mut wrong = Vec::new();
    for (language, rows) in [("plpgsql", PLPGSQL), ("sql", SQL)] {
        for (body, expected, calls) in rows {
            let facts = facts(language, body);
            if flags(&facts) != *expected || facts.calls.join(" ") != *calls {
                wrong.push(format!("{:?} {:?}: {body}", flags(&facts), facts.calls));
            }
        }
    }
    for (language, body, expected) in OTHERS {
        let flags = flags(&facts(language, body));
        if flags != *expected {
            wrong.push(format!("{flags:?}: {language}: {body}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn names_of_settings_are_found_wherever_they_stand() {
    let found = facts("plpgsql", "BEGIN PERFORM helper('app.Tenant', $$x a.b.c$$); SET Other.Name = 1; END");
    for name in ["app.tenant", "a.b.c", "other.name"] {
        assert!(has(&found.placeholders, name), "{name} in {:?}", found.placeholders);
    }
    assert!(has(&facts("sql", "SELECT set_config('my.odd-name', 'x', true)").placeholders, "my.odd-name"));
    assert!(has(&facts("plpgsql", "BEGIN EXECUTE 'SET deep.name = 1'; END").placeholders, "deep.name"));
}

#[test]
fn relations_are_among_the_names() {
    let found = facts("plpgsql", "BEGIN INSERT INTO s.Log VALUES (1); EXECUTE 'DELETE FROM \"Old\"'; END");
    assert!(has(&found.names, "log") && has(&found.names, "Old") && !found.any_relation);
    assert!(facts("plpgsql", "BEGIN EXECUTE format('DELETE FROM %I', t); END").any_relation);
    assert!(facts("plpgsql", "BEGIN EXECUTE x; END").any_relation);
}

#[test]
fn built_in_functions_may_be_hidden() {
    let found = facts("sql", "SELECT log(1), pg_catalog.lower('x')");
    assert!(has(&facts("sql", "SELECT pg_notify('a', 'b')").builtins, "pg_notify"));
    assert!(has(&found.builtins, "log") && !has(&found.builtins, "lower") && found.calls.is_empty());
}

#[test]
fn long_and_deep_bodies_are_opaque() {
    assert!(facts("plpgsql", &format!("BEGIN {} END", "a := 1; ".repeat(40_000))).opaque);
    let mut deep = "SELECT 1".to_owned();
    for _ in 0..6 {
        deep = format!("EXECUTE '{}'", deep.replace('\'', "''"));
    }
    assert!(facts("plpgsql", &format!("BEGIN {deep}; END")).opaque);
    let parens = format!("BEGIN EXECUTE {}'SELECT 1'{}; END", "(".repeat(100_000), ")".repeat(100_000));
    assert!(facts("plpgsql", &parens).opaque);
}

#[test]
fn do_blocks_are_read_in_the_same_way() {
    assert!(facts_of_do("plpgsql", "BEGIN UPDATE t SET a = 1; END").harmless);
    assert!(facts_of_do("plpgsql", "BEGIN PERFORM set_config('a.b', 'c', false); END").settings);
}

const WORDS: &[&str] = &[
    "begin",
    "end",
    ";",
    "set",
    "local",
    "execute",
    "format",
    "(",
    ")",
    "||",
    "'",
    "''",
    "'%I %s %1$L'",
    "$$",
    "$x$",
    "\\",
    "set_config",
    ",",
    "true",
    "do",
    "language",
    "::",
    "regclass",
    "into",
    "using",
    "loop",
    "for",
    "v",
    ":=",
    "text",
    "declare",
    ".",
    "\"",
    "U&\"",
    "E'",
    "pg_settings",
    "update",
    "--",
    "\n",
    "/*",
    "*/",
    "%",
    "[",
    "]",
    "é",
    "create",
    "temp",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_text_has_facts(text in "\\PC{0,200}", language in select(vec!["sql", "plpgsql", "c", "plperl"])) {
        let _ = facts(language, &text);
    }

    #[test]
    fn words_in_any_order_have_facts(words in proptest::collection::vec(select(WORDS), 0..60)) {
        for separator in [" ", ""] {
            let _ = facts("plpgsql", &words.join(separator));
            let _ = facts("sql", &words.join(separator));
        }
    }

    /// What is behind a harmless function does not hide what comes next.
    #[test]
    fn a_set_is_found_behind_any_function(row in 0..PLPGSQL.len()) {
        let body = PLPGSQL[row].0;
        prop_assume!(!body.contains("'x") || body.ends_with("END"));
        let facts = facts("plpgsql", &format!("{body}; SET app.here = 1;"));
        prop_assert!(facts.settings || facts.opaque);
    }
}
