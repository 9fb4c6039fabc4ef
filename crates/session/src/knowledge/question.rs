//! The query that asks a database for its definitions.
//!
//! It must mean the same under any `search_path`, so all names and operators are qualified; the operators of the template are
//! qualified by [`qualify`]. What uses an operator without naming it (IN, IS DISTINCT FROM, BETWEEN, USING, a short CASE) is not
//! used. There is no backslash, so `standard_conforming_strings` does not matter. Names and bodies come as hexadecimal digits
//! of their bytes in the database's encoding, so the client encoding does not matter.
//!
//! Its rows have five columns of text; the first says what the row is:
//!
//! | kind | second | third | fourth | fifth |
//! |---|---|---|---|---|
//! | `d` | hash of the defaults | encoding of the database | | |
//! | `v` | hash of the definitions' versions | | | |
//! | `x` | there are too many functions; none follow | | | |
//! | `f` | function | name | language | body, behind `.` if it can be called like a column |
//! | `r` | function, or 0 for a built-in one that changes sessions | relation that reaches it; empty if none does | for a built-in one: the constants of the definition, each the numbers of its bytes | |
//! | `c` | relation, foreign or with a rule or policy that calls a volatile function in C | | | |
//! | `w` | function | event of its event trigger | | |
//! | `p` | function | another function that it calls by its definition | | |
//! | `q` | function whose argument defaults call a built-in one that changes sessions | | | |
//! | `e` | relation | another relation that its use may reach | | |

use super::reader::{MAX_BYTES, MAX_FUNCTIONS};

/// The least OID of an object that is not PostgreSQL's own (FirstNormalObjectId in access/transam.h).
const FIRST: &str = "'16384'::pg_catalog.oid";

/// The text of the query, for one simple Query on a connection that is in no transaction. For itself it switches compilation (`jit`)
/// off, which takes ten times as long as the query, and the session's `statement_timeout`, and it waits for no safe snapshot. With the version of an earlier answer, rows of functions and relations come only
/// if something has changed since.
#[must_use]
pub fn question(known: Option<u64>) -> String {
    let known = known.map_or_else(
        || "null".into(),
        |version| format!("'{}'::pg_catalog.int8", i64::from_ne_bytes(version.to_ne_bytes())),
    );
    let text = TEMPLATE
        .replace("$FIRST", FIRST)
        .replace("$KNOWN", &known)
        .replace("$FUNCTIONS", &MAX_FUNCTIONS.to_string())
        .replace("$BYTES", &MAX_BYTES.to_string());
    qualify(&expand(&text, "HEX", |inside| {
        format!(
            "pg_catalog.encode(pg_catalog.convert_to({inside}::pg_catalog.text, pg_catalog.getdatabaseencoding()), 'hex')"
        )
    }))
}

/// Puts the schema of PostgreSQL's own operators in front of each.
fn qualify(text: &str) -> String {
    let mut out = text.to_owned();
    for operator in ["=", "<>", ">=", "<=", ">", "-", "~"] {
        out = out.replace(&format!(" {operator} "), &format!(" OPERATOR(pg_catalog.{operator}) "));
    }
    expand(&expand(&out, "VERSIONS", versions), "CLASS", |table| format!("'pg_catalog.{table}'::pg_catalog.regclass"))
}

/// The sum of hashes that changes with each row that comes, goes or gets a new version.
fn versions(table: &str) -> String {
    format!(
        "(SELECT pg_catalog.sum(pg_catalog.hashtextextended(pg_catalog.concat(t.tableoid, '.', t.ctid, '.', t.xmin), 0)) \
         FROM pg_catalog.{table} t)"
    )
}

/// Replaces `NAME(inside)`; there are no parentheses within.
fn expand(text: &str, name: &str, with: impl Fn(&str) -> String) -> String {
    let open = format!("{name}(");
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(&open) {
        out.push_str(before);
        let (inside, behind) = behind.split_once(')').unwrap_or((behind, ""));
        out.push_str(&with(inside));
        rest = behind;
    }
    out.push_str(rest);
    out
}

/// Written with plain operators between blanks.
const TEMPLATE: &str = include_str!("question.sql");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_depends_on_the_session() {
        let text = question(Some(u64::MAX));
        assert!(!text.contains('\\') && !text.contains('$') && text.contains("'-1'::pg_catalog.int8"));
        for operator in
            [" = ", " <> ", " >= ", " IN ", " BETWEEN ", " LIKE ", "USING", "DISTINCT", " + ", "||", "::text"]
        {
            assert!(!text.contains(operator), "{operator}");
        }
        // Each name behind FROM and JOIN is qualified, or one of the query's own.
        for behind in text.split("FROM ").skip(1).chain(text.split("JOIN ").skip(1)) {
            let name: String = behind.chars().take_while(|c| !c.is_whitespace() && *c != ')').collect();
            let own = ["stamp", "changed", "funcs", "size", "fits", "danger", "defined", "reached", "edges"];
            assert!(name.starts_with("pg_catalog.") || own.contains(&name.as_str()), "{name}");
        }
    }
}
