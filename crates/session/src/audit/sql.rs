//! The text of an inquiry.
//!
//! It runs under whatever the client has set. So all names are qualified, operators too, and syntax that looks an operator up by
//! its bare name (IN, NULLIF, BETWEEN, CASE with an operand) is not used. The text is ASCII, so that client_encoding does
//! not matter; texts come back as the hexadecimal digits of their bytes in UTF-8 for the same reason. Lists are one constant each,
//! so that the server's statistics see one statement.

use super::{Aspects, Inquiry, MAX_TEXT, MAX_VALUE};
use std::fmt::Write;

/// Settings that belong to a transaction. They are shown as the session's own after they have been set once.
pub(super) const OF_TRANSACTIONS: [&str; 3] =
    ["transaction_isolation", "transaction_read_only", "transaction_deferrable"];

impl Inquiry<'_> {
    /// The text of a simple Query, of two statements and one result set. It leaves nothing in the session.
    pub fn sql(&self) -> String {
        let mut parts = Parts(String::new());
        let asked = |aspect| self.aspects.contains(aspect);
        if asked(Aspects::SETTINGS) {
            self.settings(&mut parts);
        }
        if asked(Aspects::TEMPORARY) {
            // Every object depends on its schema, and there is an index by what is depended on.
            parts.exists(
                't',
                "pg_catalog.pg_my_temp_schema() OPERATOR(pg_catalog.<>) 0::pg_catalog.oid AND EXISTS (SELECT 1 \
                 FROM pg_catalog.pg_depend AS d \
                 WHERE d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_namespace'::pg_catalog.regclass \
                 AND d.refobjid OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema())",
            );
        }
        if asked(Aspects::LOCKS) {
            // Outside of a transaction block there are no others than the session's.
            parts.exists(
                'l',
                "EXISTS (SELECT 1 FROM pg_catalog.pg_locks AS l WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' \
                 AND l.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid())",
            );
        }
        if asked(Aspects::CURSORS) {
            parts.exists('h', "EXISTS (SELECT 1 FROM pg_catalog.pg_cursors AS h WHERE h.is_holdable)");
        }
        if asked(Aspects::CHANNELS) {
            parts.add('c', ["c", "NULL", "NULL", "NULL", "0", "NULL", "NULL"]);
            parts.text("FROM pg_catalog.pg_listening_channels() AS c");
        }
        if asked(Aspects::PREPARED) {
            parts.add('q', ["q.name", "NULL", "NULL", "q.statement", &MAX_TEXT.to_string(), "NULL", "q.from_sql"]);
            parts.text(
                "FROM pg_catalog.pg_prepared_statements AS q WHERE NOT pg_catalog.starts_with(q.name, 'pgusher_')",
            );
        }
        if asked(Aspects::FUNCTIONS) && !self.functions.is_empty() {
            self.functions(&mut parts);
        }
        if parts.0.is_empty() {
            parts.exists('n', "false");
        }
        // The isolation level: a session whose default is serializable could not ask on a standby, and would wait for a safe
        // snapshot if it is deferrable and read-only as well. SET TRANSACTION would be seen in pg_settings ever after. Text in SQL_ASCII has no encoding to convert from.
        format!(
            "SET LOCAL transaction_isolation='read committed';/* pgusher: what the session holds */SELECT x.k,{},{},{},\
             CASE WHEN pg_catalog.octet_length(x.d) OPERATOR(pg_catalog.<=) x.m THEN {} END,x.d IS NULL,x.e,x.f \
             FROM ({}) AS x,(SELECT CASE WHEN pg_catalog.getdatabaseencoding() OPERATOR(pg_catalog.=) 'SQL_ASCII' \
             THEN 'SQL_ASCII' ELSE 'UTF8' END::pg_catalog.name AS encoding) AS y",
            hex("x.a"),
            hex("x.b"),
            hex("x.c"),
            hex("x.d"),
            parts.0
        )
    }

    fn settings(&self, parts: &mut Parts) {
        let limit = MAX_VALUE.to_string();
        let (mut custom, mut asked): (Vec<&str>, Vec<&str>) =
            self.known.iter().map(|(name, _)| name).partition(|name| name.contains('.'));
        custom.extend(self.placeholders.iter().map(AsRef::as_ref).filter(|name: &&str| name.contains('.')));
        asked.extend(&custom);
        // Settings that are known come back though they have their default, to tell them from those that the role may not see.
        let value = "CASE WHEN s.source OPERATOR(pg_catalog.=) 'session' THEN pg_catalog.current_setting(s.name) END";
        let own = "s.source OPERATOR(pg_catalog.=) 'session'";
        parts.add('s', ["s.name", "s.setting", "NULL", value, &limit, "s.vartype", own]);
        parts.text("FROM pg_catalog.pg_settings AS s WHERE s.name OPERATOR(pg_catalog.<>) ALL (");
        parts.array(OF_TRANSACTIONS.into_iter(), "pg_catalog.text[]");
        parts.text(") AND (s.source OPERATOR(pg_catalog.=) 'session'");
        if !asked.is_empty() {
            parts.text(" OR pg_catalog.lower(s.name COLLATE pg_catalog.\"C\") OPERATOR(pg_catalog.=) ANY (");
            let lower: Vec<String> = asked.iter().map(|name| name.to_ascii_lowercase()).collect();
            parts.array(lower.iter().map(String::as_str), "pg_catalog.text[]");
            parts.text(")");
        }
        parts.text(")");
        if !custom.is_empty() {
            parts.add('p', ["p.n", "NULL", "NULL", "p.v", &limit, "NULL", "NULL"]);
            parts.text("FROM (SELECT n, pg_catalog.current_setting(n, true) AS v FROM pg_catalog.unnest(");
            parts.array(custom.into_iter(), "pg_catalog.text[]");
            parts.text(") AS n) AS p WHERE p.v IS NOT NULL");
        }
        parts.add('r', ["NULL", "NULL", "NULL", "r.v", &limit, "NULL", "NULL"]);
        parts.text(
            "FROM (SELECT pg_catalog.current_setting('role') AS v) AS r WHERE r.v OPERATOR(pg_catalog.<>) 'none'",
        );
        // By name and not by the backend's user in pg_stat_get_activity, which costs twice as much as an empty statement.
        parts.add('a', ["NULL", "NULL", "NULL", "session_user::pg_catalog.text", &limit, "NULL", "NULL"]);
        parts.text("WHERE session_user OPERATOR(pg_catalog.<>) ");
        parts.constant(self.login);
        parts.text("::pg_catalog.name");
    }

    fn functions(&self, parts: &mut Parts) {
        parts.add(
            'f',
            [
                "n.nspname::pg_catalog.text",
                "p.proname::pg_catalog.text",
                "l.lanname::pg_catalog.text",
                "p.prosrc",
                &MAX_TEXT.to_string(),
                "p.prokind::pg_catalog.text",
                "p.proconfig IS NOT NULL",
            ],
        );
        parts.text(
            "FROM pg_catalog.pg_proc AS p \
             JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) p.pronamespace \
             JOIN pg_catalog.pg_language AS l ON l.oid OPERATOR(pg_catalog.=) p.prolang \
             WHERE n.nspname OPERATOR(pg_catalog.<>) ALL ('{pg_catalog,information_schema}'::pg_catalog.name[]) \
             AND p.proname OPERATOR(pg_catalog.=) ANY (",
        );
        parts.array(self.functions.iter().map(AsRef::as_ref), "pg_catalog.name[]");
        parts.text(")");
    }
}

/// The digits of a text's bytes.
fn hex(text: &str) -> String {
    format!("pg_catalog.encode(pg_catalog.convert_to({text},y.encoding),'hex')")
}

/// Queries of equal columns, one after the other.
struct Parts(String);

impl Parts {
    /// Begins a query with its kind and the expressions for: three short texts, a long one, the most bytes of it, one more in
    /// plain ASCII, and a truth value.
    fn add(&mut self, kind: char, [a, b, c, d, m, e, f]: [&str; 7]) {
        // The types of columns that are NULL in all queries would be unknown.
        let begin = if self.0.is_empty() { "" } else { " UNION ALL " };
        let null = |text: &'static str, expression: &str| {
            if expression == "NULL" { format!("NULL::{text}") } else { expression.to_owned() }
        };
        let [a, b, c, d, e] = [a, b, c, d, e].map(|expression| null("pg_catalog.text", expression));
        let f = null("pg_catalog.bool", f);
        let _ = write!(
            self.0,
            "{begin}SELECT '{kind}'::pg_catalog.text AS k,{a} AS a,{b} AS b,{c} AS c,{d} AS d,{m} AS m,{e} AS e,{f} AS f "
        );
    }

    /// A query of one row without values if `condition` is true.
    fn exists(&mut self, kind: char, condition: &str) {
        self.add(kind, ["NULL", "NULL", "NULL", "NULL", "0", "NULL", "NULL"]);
        self.text("WHERE ");
        self.text(condition);
    }

    fn text(&mut self, text: &str) {
        self.0.push_str(text);
    }

    /// An array of names as one constant. A name with a zero byte is no name.
    fn array<'a>(&mut self, names: impl Iterator<Item = &'a str>, kind: &str) {
        let mut array = String::from("{");
        for name in names.filter(|name| !name.contains('\0')) {
            array.push_str(if array.len() > 1 { ",\"" } else { "\"" });
            for c in name.chars() {
                if c == '"' || c == '\\' {
                    array.push('\\');
                }
                array.push(c);
            }
            array.push('"');
        }
        array.push('}');
        self.constant(&array);
        self.text("::");
        self.text(kind);
    }

    /// A string that means the same whatever standard_conforming_strings and client_encoding are.
    fn constant(&mut self, value: &str) {
        if !value.is_ascii() {
            self.text("pg_catalog.convert_from(pg_catalog.decode('");
            for byte in value.bytes() {
                let _ = write!(self.0, "{byte:02x}");
            }
            self.text("','hex'),'UTF8')");
            return;
        }
        self.text(if value.contains('\\') { "E'" } else { "'" });
        for c in value.chars() {
            if c == '\'' || c == '\\' {
                self.0.push(c);
            }
            self.0.push(c);
        }
        self.0.push('\'');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    fn constant(value: &str) -> String {
        let mut parts = Parts(String::new());
        parts.constant(value);
        parts.0
    }

    #[test]
    fn constants_mean_the_same_everywhere() {
        assert_eq!(constant("it's"), "'it''s'");
        assert_eq!(constant("a\\'b"), "E'a\\\\''b'");
        assert_eq!(constant("é"), "pg_catalog.convert_from(pg_catalog.decode('c3a9','hex'),'UTF8')");
    }

    #[test]
    fn arrays_quote_each_name() {
        let mut parts = Parts(String::new());
        parts.array(["a", "b\"c", "d\0", "e\\", "null", ""].into_iter(), "x[]");
        assert_eq!(parts.0, r#"E'{"a","b\\"c","e\\\\","null",""}'::x[]"#);
    }

    #[test]
    fn only_what_is_wanted_is_asked() {
        let settings = Settings::default();
        let names = ["f".into()];
        let marks = [
            (Aspects::SETTINGS, "pg_settings"),
            (Aspects::TEMPORARY, "pg_my_temp_schema"),
            (Aspects::LOCKS, "pg_locks"),
            (Aspects::CHANNELS, "pg_listening_channels"),
            (Aspects::PREPARED, "pg_prepared_statements"),
            (Aspects::CURSORS, "pg_cursors"),
            (Aspects::FUNCTIONS, "pg_proc"),
        ];
        for (aspects, _) in marks.into_iter().chain([(Aspects::NONE, ""), (Aspects::ALL.union(Aspects::FUNCTIONS), "")])
        {
            let inquiry =
                Inquiry { aspects, known: &settings, login: "u", placeholders: &[], leftovers: &[], functions: &names };
            let sql = inquiry.sql();
            for (aspect, mark) in marks {
                assert_eq!(sql.contains(mark), aspects.contains(aspect), "{mark} in {sql}");
            }
            assert!(!sql.contains("unnest"), "no placeholder is known");
        }
    }

    /// Without its constants.
    fn bare(sql: &str) -> String {
        sql.split('\'').step_by(2).collect()
    }

    #[test]
    fn nothing_is_looked_up_by_its_bare_name() {
        let known = Settings::from_pairs(vec![("app.a".into(), "1".into()), ("b".into(), "2".into())]).expect("small");
        let functions = ["f".into()];
        let inquiry = Inquiry {
            aspects: Aspects::ALL.union(Aspects::FUNCTIONS),
            known: &known,
            login: "u",
            placeholders: &[],
            leftovers: &[],
            functions: &functions,
        };
        let sql = bare(&inquiry.sql());
        let (_, mut select) = sql.split_once(';').expect("two statements");
        let mut without_operators = String::new();
        while let Some((before, after)) = select.split_once("OPERATOR(pg_catalog.") {
            without_operators.push_str(before);
            select = after.split_once(')').expect("an end").1;
        }
        without_operators.push_str(select);
        assert!(!without_operators.contains(['=', '<', '>', '|', '~']), "{without_operators}");
        let syntax = ["EXISTS", "ANY", "ALL", "AND", "SELECT", "FROM", "AS", "OR", ",", "WHERE"];
        for (i, _) in without_operators.match_indices('(') {
            let before = without_operators.get(..i).expect("ASCII").trim_end();
            let word = before.rsplit([' ', '(', ',']).next().expect("one");
            assert!(word.starts_with("pg_catalog.") || word.is_empty() || syntax.contains(&word), "{word} in {before}");
        }
        for (i, _) in without_operators.match_indices("::") {
            let kind = without_operators.get(i + 2..).expect("ASCII");
            assert!(kind.starts_with("pg_catalog."), "{kind}");
        }
        for word in [" IN ", "NULLIF", "BETWEEN", "LIKE", "DISTINCT", "USING", "ORDER"] {
            assert!(!sql.contains(word), "{word}");
        }
    }

    #[test]
    fn the_text_is_ascii() {
        let known = Settings::from_pairs(vec![("app.é".into(), "ü".into()), ("ß".into(), "x".into())]).expect("small");
        let (placeholders, functions) = (["größe.x".into()], ["größe".into()]);
        let inquiry = Inquiry {
            aspects: Aspects::ALL.union(Aspects::FUNCTIONS),
            known: &known,
            login: "jörg",
            placeholders: &placeholders,
            leftovers: &[],
            functions: &functions,
        };
        assert!(inquiry.sql().is_ascii());
    }
}
