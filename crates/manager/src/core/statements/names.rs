//! Statements under the client's own names, for SQL that names them: EXECUTE, EXPLAIN EXECUTE, PREPARE, DEALLOCATE.
//!
//! They are put on the server in front of that SQL, and removed before another client gets the server. PREPARE of a name that the
//! protocol has given finds it taken that way, as it must.

use super::super::server::Server;
use super::desk::Desk;
use super::write_parse_tail;
use pgusher_session::ledger::Mark;
use pgusher_session::plan::Plan;
use pgusher_session::statements::{Change, Own, Placed, short};
use pgusher_wire::TxStatus;
use pgusher_wire::frontend::{self, SYNC_BYTES, Target};

/// Is anything to be sent in front of a Query that names statements?
pub(super) fn look(plan: &Plan, own: Option<&Own>, server: &Server) -> First {
    if !plan.names.iter().any(|name| is_concerned(name, own, server)) {
        First::Nothing
    } else if server.ledger.owes_ready() {
        // What its names stand for is known when the server has answered.
        First::Wait
    } else if !server.ledger.is_quiet() || server.ledger.status() == TxStatus::Failed {
        First::Nothing
    } else {
        First::Put
    }
}

/// What comes before a Query that names statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum First {
    /// Nothing.
    Nothing,
    /// Replies to what was sent before.
    Wait,
    /// The statements.
    Put,
}

fn is_concerned(name: &str, own: Option<&Own>, server: &Server) -> bool {
    own.is_some_and(|own| own.get(name.as_bytes()).is_some()) || is_litter(server, name.as_bytes())
}

/// Puts the statements that a Query names on the server, before the Query is booked.
pub(super) fn put_first(plan: &Plan, own: Option<&Own>, server: &mut Server, patch: &mut Vec<u8>) {
    // All that is to go goes first: what stands behind a Parse that fails is not looked at.
    for name in plan.names.iter().filter(|name| is_concerned(name, own, server)) {
        frontend::write_close(patch, Target::Statement, name.as_bytes());
    }
    for name in &plan.names {
        if let Some(statement) = own.and_then(|own| own.get(name.as_bytes())) {
            write_parse_tail(patch, name.as_bytes(), &statement.tail);
            litter(server, name.as_bytes());
        } else {
            cleared(server, name.as_bytes());
        }
    }
    patch.extend_from_slice(&SYNC_BYTES);
    server.ledger.own_attempt();
}

/// Is there something under this name that is to be removed before another client gets the server?
pub(in crate::core) fn is_litter(server: &Server, name: &[u8]) -> bool {
    server.litter.iter().any(|litter| **litter == *short(name))
}

/// There may be something under this name from here on.
pub(super) fn litter(server: &mut Server, name: &[u8]) {
    if !is_litter(server, name) {
        server.litter.push(short(name).into());
    }
}

/// It is removed, or the client's own: what PREPARE puts in its place is the client's.
pub(in crate::core) fn cleared(server: &mut Server, name: &[u8]) {
    server.litter.retain(|litter| **litter != *short(name));
}

/// Removes what is on the server under this name and is not the client's, before the client's own change to the name. If the message is
/// discarded, it is there still: see [`Placed::Swept`].
pub(super) fn sweep(server: &mut Server, own: &Own, name: &[u8], patch: &mut Vec<u8>) {
    if !is_litter(server, name) {
        return;
    }
    cleared(server, name);
    frontend::write_close(patch, Target::Statement, name);
    server.ledger.marked(Mark::Own);
    // A later batch has to wait for what becomes of it.
    let before = own.get(name).cloned();
    let name: Box<[u8]> = short(name).into();
    server.shelf.note(Change::Name { name: name.clone(), before }, Placed::Swept(name));
}

impl Desk<'_> {
    /// Does it depend on replies to an earlier batch what the names in such SQL stand for?
    #[inline]
    pub(super) fn is_open_named(&self, plan: Option<&Plan>) -> bool {
        plan.is_some_and(|plan| plan.names.iter().any(|name| self.is_open(name.as_bytes())))
    }

    /// The same in front of a Parse, Bind or Describe of such SQL.
    #[inline]
    pub(super) fn put_named(&mut self, plan: Option<&Plan>) {
        let Some(plan) = plan.filter(|plan| !plan.names.is_empty()) else { return };
        if self.server.ledger.status() == TxStatus::Failed {
            return;
        }
        for name in &plan.names {
            let name = name.as_bytes();
            let Some(statement) = self.own.get(name).cloned() else {
                sweep(self.server, self.own, name, self.patch);
                continue;
            };
            self.write_close(name);
            self.mark(Mark::Own, Change::Nothing, Placed::Nothing);
            write_parse_tail(self.patch, name, &statement.tail);
            self.mark(Mark::Own, Change::Nothing, Placed::Nothing);
            litter(self.server, name);
        }
    }
}
