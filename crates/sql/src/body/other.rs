//! Functions that are no SQL: by the name of a symbol, or by the words that occur.

use super::collect::Found;

/// `internal` and C: the symbol is all there is.
pub(super) fn symbol(symbol: &str, found: &mut Found) {
    let name = symbol.trim();
    if !named(name, found) {
        let facts = &mut found.facts;
        match name {
            "set_config_by_name" => found.sets_anything(),
            "nextval_oid" | "setval_oid" | "setval3_oid" | "setval_and_iscalled" => facts.sequence_writes = true,
            "currval_oid" => facts.sequence_reads = true,
            "lastval" => facts.sequence_reads = true,
            "setseed" => facts.seed = true,
            // A handler or validator of a language, a trigger in C, a type's function: nothing is known to stay.
            _ => {
                let advisory = name.starts_with("pg_advisory_") || name.starts_with("pg_try_advisory_");
                facts.locks |= advisory && !name.contains("_xact_");
            }
        }
    }
}

/// Functions of well-known extensions that change the session, by their names. `false` if it is none of them.
pub(super) fn named(name: &str, found: &mut Found) -> bool {
    let facts = &mut found.facts;
    match name {
        // pg_trgm
        "set_limit" => {
            facts.settings = true;
            found.placeholder("pg_trgm.similarity_threshold");
        }
        "set_user" | "reset_user" | "set_session_auth" => found.sets_anything(),
        // Temporary slots belong to a session.
        "pg_create_logical_replication_slot"
        | "pg_create_physical_replication_slot"
        | "pg_copy_logical_replication_slot"
        | "pg_copy_physical_replication_slot" => facts.opaque = true,
        _ if ["dblink", "pgv_", "hypopg"].iter().any(|prefix| name.starts_with(prefix)) => facts.foreign = true,
        _ => return false,
    }
    true
}

/// Words with which a language reaches the server, keeps something for later calls, or makes such a word at run time.
const MATTERS: [&str; 26] = [
    "spi",
    "plpy",
    "plv8",
    "execute",
    "exec",
    "eval",
    "prepare",
    "cursor",
    "query",
    "_shared",
    "globalthis",
    "__",
    "getattr",
    "set_config",
    "sql",
    "listen",
    "temp",
    "lock",
    "connect",
    "subtransaction",
    "require",
    "import",
    "load",
    "pg.",
    "pg_",
    "::",
];

/// What PL/Python has that does nothing but talk or quote.
const TALK: [&str; 9] = [
    "plpy.notice",
    "plpy.info",
    "plpy.warning",
    "plpy.error",
    "plpy.fatal",
    "plpy.log",
    "plpy.debug",
    "plpy.quote_",
    "plv8.elog",
];

/// Any other language.
pub(super) fn language(body: &str, found: &mut Found) {
    found.placeholders_in(body);
    let mut text = body.to_ascii_lowercase();
    for talk in TALK {
        text = text.replace(talk, "");
    }
    let kept = |word: &str| matches!(word, "gd" | "sd" | "set");
    let matters = MATTERS.iter().any(|word| text.contains(word))
        || text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(kept);
    if matters || body.trim().is_empty() || body.len() > super::MAX_BODY {
        found.unknown_text();
    }
}
