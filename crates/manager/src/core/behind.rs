//! What the database's definitions do to a session behind a statement: triggers, rules, views, defaults and the like.
//!
//! Where nothing in the database changes sessions, this is two comparisons for each statement. Elsewhere the relations that the
//! statement names are looked up; if one is in doubt, the physical connection is asked about its session behind the transaction, as
//! after an unknown function. If nothing is known at the moment, the client is judged when its transaction is over (`knowing`).

use super::client::Client;
use super::server::Server;
use pgusher_pool::Micros;
use pgusher_session::Aspects;
use pgusher_session::knowledge::Knowledge;
use pgusher_sql::{Effect, Facts, Kind, Utility, is_harmless};

/// A statement is about to be sent. Is it certain that no definition changes sessions behind it?
#[inline]
pub(super) fn is_innocent(server: &mut Server, now: Micros) -> bool {
    let changes = server.pool.definition_changes();
    server.judged.get_or_insert(changes);
    server.pool.is_innocent(changes, now)
}

/// Does no definition change sessions, as far as was known last? Then a plain table more changes nothing about that.
pub(super) fn is_known_innocent(server: &Server) -> bool {
    server.pool.definitions_unchanged().is_some_and(|taken| taken.knowledge.is_innocent())
}

/// A statement is about to be sent behind which that is not certain. `facts` says what it names; `None`: it cannot be read.
#[cold]
pub(super) fn of_statement(client: &mut Client, server: &mut Server, now: Micros, facts: Option<&Facts>) {
    let Some(taken) = server.pool.definitions(now) else {
        client.unsure = true;
        return server.stir();
    };
    let known = &taken.knowledge;
    if facts.is_none_or(|facts| facts.statements().iter().any(|statement| in_doubt(known, statement))) {
        doubt(client, server);
    }
}

/// Is a statement certain to read only, whatever definitions there are, so that nobody can tell whether it ran once or twice?
#[cold]
pub(super) fn may_repeat(known: &Knowledge, facts: &Facts) -> bool {
    let [statement] = facts.statements() else { return false };
    let relations = statement.relations.iter().map(|relation| &*relation.name.name);
    let functions = statement.functions.iter().map(|function| &*function.name.name);
    statement.only_reads() && !in_doubt(known, statement) && !known.runs_code(relations, functions)
}

fn in_doubt(known: &Knowledge, statement: &pgusher_sql::Statement) -> bool {
    let defines =
        matches!(statement.kind, Kind::Utility(Utility::Definition | Utility::CreateTableAs | Utility::Maintenance));
    // Functions of other names are looked up with all that is known of their bodies.
    let hidden = statement.functions.iter().map(|function| &*function.name.name);
    // What PREPARE has made is not known.
    let executes = statement.effects.iter().any(|effect| matches!(effect, Effect::Execute { .. }));
    executes
        || known.touches(statement.relations.iter().map(|relation| &*relation.name.name))
        || (known.definitions && defines)
        || (known.hides && hidden.into_iter().any(|name| is_harmless(name) && known.function(name) == Some(true)))
}

/// A function or a block of code that names these relations, and calls these functions of PostgreSQL's own, is about to run.
pub(super) fn of_code(
    client: &mut Client,
    server: &mut Server,
    names: &[Box<str>],
    builtins: &[Box<str>],
    any_relation: bool,
    defines: bool,
) {
    if names.is_empty() && builtins.is_empty() && !any_relation {
        return;
    }
    // If nothing is known, or it is old, the statement itself is not judged yet either.
    let Some(taken) = server.pool.definitions_unchanged() else { return };
    let known = &taken.knowledge;
    if known.is_innocent() {
        return;
    }
    let hidden = builtins.iter().chain(names).any(|name| known.hides && known.function(name) == Some(true));
    if hidden
        || (any_relation && known.doubts_relations())
        || (defines && known.definitions)
        || known.touches(names.iter().map(AsRef::as_ref))
    {
        doubt(client, server);
    }
}

/// Anything may have happened to the session.
fn doubt(client: &mut Client, server: &mut Server) {
    client.doubts |= Aspects::ALL;
    client.behind = true;
    server.stir();
}
