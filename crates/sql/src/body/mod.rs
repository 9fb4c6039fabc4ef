//! What a function of the user's own can do to the session it runs in, read from its definition. No I/O.
//!
//! The rule is one-sided: every doubt sets a flag. What is said to be harmless is harmless; what is not may be harmless all the
//! same.
//!
//! - **`sql` and `plpgsql`** are read token by token. A word such as SET or LISTEN counts where a statement may begin: at the
//!   start, behind a semicolon, BEGIN, THEN, ELSE, LOOP, ATOMIC or a label. So the SET of an UPDATE is none, and neither is an
//!   assignment to a variable of that name. A name with a parenthesis behind it is a call, unless its place rules that out (the
//!   table of an INSERT, an alias, a type). Calls of PostgreSQL's own functions are judged by their names; all others are
//!   [`BodyFacts::calls`], to be looked up.
//! - **EXECUTE** of plpgsql runs text. Constants, `||`, `format` with `%I` and `%L`, the functions that quote, and `::regclass`
//!   give a text whose statements are known; it is read in turn. A variable that only such texts are assigned to counts as they
//!   do. Anything else makes the function opaque.
//! - **`internal`** and **`c`** functions are judged by the name of their symbol: harmless but for a short list.
//! - **Other languages** are not read. They are harmless when no word occurs with which they could reach the server or keep
//!   something from one call to the next, and opaque otherwise.
//!
//! What ends with the transaction (cursors without HOLD, LOCK, NOTIFY, advisory locks of a transaction, large objects) is harmless,
//! and so is what belongs to the call (settings in the function's definition, which are restored at its end). What a
//! *relation* does that a body names, such as a trigger on it, is not in the body: see [`BodyFacts::names`].

mod collect;
mod dynamic;
mod other;
mod tokens;
mod variable;
mod walk;

use collect::Found;

/// Bytes of a body that is read; a longer one is opaque.
pub const MAX_BODY: usize = 256 * 1024;

/// A function as `pg_proc` has it.
#[derive(Clone, Copy, Debug)]
pub struct Definition<'a> {
    /// The name of its language, as in `pg_language`.
    pub language: &'a str,
    /// `prosrc`. For a body in the form of the SQL standard, whose `prosrc` is empty, its text: `BEGIN ATOMIC ... END` or
    /// `RETURN ...`.
    pub body: &'a str,
    /// Whether it has settings of its own (`proconfig`). They are put back when it ends, so they change nothing here.
    pub configured: bool,
}

/// What a function may do. Each flag is set in any doubt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodyFacts {
    /// None of the flags below is set. The functions in `calls` still have to be looked up.
    pub harmless: bool,
    /// Changes settings of the session: SET, RESET, `set_config`.
    pub settings: bool,
    /// Changes settings up to the end of the transaction: SET LOCAL, `set_config(.., true)`, SET TRANSACTION, SET CONSTRAINTS.
    pub local: bool,
    /// Sets something whose name is made at run time.
    pub unknown_names: bool,
    /// Makes or drops temporary objects.
    pub temporary: bool,
    /// Takes or releases advisory locks of the session.
    pub locks: bool,
    /// LISTEN, UNLISTEN.
    pub channels: bool,
    /// Opens cursors WITH HOLD.
    pub cursors: bool,
    /// PREPARE, DEALLOCATE, EXECUTE of a prepared statement.
    pub prepared: bool,
    /// LOAD.
    pub load: bool,
    /// Reads what `nextval` left in the backend: `currval`, `lastval`.
    pub sequence_reads: bool,
    /// Changes what `currval` and `lastval` answer: `nextval`, `setval`.
    pub sequence_writes: bool,
    /// May write tables: INSERT, UPDATE, DELETE, MERGE, COPY stand in it. Not a doubt about the session by itself.
    pub writes: bool,
    /// `setseed`.
    pub seed: bool,
    /// CREATE, ALTER, DROP, GRANT and the like.
    pub definition: bool,
    /// Keeps connections or other things of an extension in the backend: `dblink` and the like.
    pub foreign: bool,
    /// Cannot be known: another language, a text made at run time, too long, broken.
    pub opaque: bool,
    /// A relation whose name is made at run time may be used: see `names`.
    pub any_relation: bool,
    /// Names called that are neither built-in functions known here nor quoted away, without their schemas, as PostgreSQL folds
    /// them. Sorted. A name that is no function at all may be among them.
    pub calls: Box<[Box<str>]>,
    /// Names of built-in functions called without a schema: a function of the user's own may hide one of these. Sorted.
    pub builtins: Box<[Box<str>]>,
    /// Names of several parts, in lower case, from the text and from its string constants: what may be the name of a custom
    /// setting (`app.tenant`). Sorted.
    pub placeholders: Box<[Box<str>]>,
    /// All names that stand in it, relations among them. Sorted.
    pub names: Box<[Box<str>]>,
}

/// What the function of this definition may do.
#[must_use]
pub fn facts_of(definition: Definition<'_>) -> BodyFacts {
    let Definition { language, body, configured: _ } = definition;
    let mut found = Found::default();
    language_into(language, body, &mut found, 0);
    found.finish()
}

/// What `DO` with this text may do. The language is `plpgsql` unless the statement says otherwise.
#[must_use]
pub fn facts_of_do(language: &str, body: &str) -> BodyFacts {
    facts_of(Definition { language, body, configured: false })
}

/// How deep texts in texts are followed.
const MAX_NESTING: u32 = 4;

fn language_into(language: &str, body: &str, found: &mut Found, nesting: u32) {
    match language {
        "plpgsql" => text_into(walk::Dialect::Plpgsql, body, found, nesting),
        "sql" => text_into(walk::Dialect::Sql, body, found, nesting),
        "internal" | "c" => other::symbol(body, found),
        _ => other::language(body, found),
    }
}

/// Reads a text of statements.
fn text_into(dialect: walk::Dialect, body: &str, found: &mut Found, nesting: u32) {
    if body.len() > MAX_BODY || nesting > MAX_NESTING {
        found.facts.opaque = true;
        return;
    }
    let (tokens, malformed) = tokens::read(body, true);
    if malformed {
        found.facts.opaque = true;
        return;
    }
    walk::walk(dialect, &tokens, found, nesting);
    // With standard_conforming_strings off, the strings end elsewhere: what is there then counts as well.
    if memchr::memmem::find(body.as_bytes(), b"\\'").is_some() {
        let (tokens, malformed) = tokens::read(body, false);
        if !malformed {
            walk::walk(dialect, &tokens, found, nesting);
        }
    }
}
