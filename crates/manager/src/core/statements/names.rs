//! Statements under the client's own names, for SQL that names them: EXECUTE, EXPLAIN EXECUTE, PREPARE.
//!
//! They are put on the server in front of that SQL, and removed before another client gets the server. PREPARE of a name that the
//! protocol has given finds it taken that way, as it must.

use super::super::server::Server;
use super::desk::Desk;
use super::write_parse_tail;
use pgusher_session::ledger::Mark;
use pgusher_session::plan::Plan;
use pgusher_session::statements::{Change, Own, Placed};
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
    own.is_some_and(|own| own.get(name.as_bytes()).is_some()) || is_litter(server, name)
}

/// Puts the statements that a Query names on the server, before the Query is booked.
pub(super) fn put_first(plan: &Plan, own: Option<&Own>, server: &mut Server, patch: &mut Vec<u8>) {
    for name in &plan.names {
        if is_concerned(name, own, server) {
            frontend::write_close(patch, Target::Statement, name.as_bytes());
        }
        if let Some(statement) = own.and_then(|own| own.get(name.as_bytes())) {
            write_parse_tail(patch, name.as_bytes(), &statement.tail);
            litter(server, name);
        } else {
            cleared(server, name);
        }
    }
    patch.extend_from_slice(&SYNC_BYTES);
    server.ledger.own_attempt();
}

fn is_litter(server: &Server, name: &str) -> bool {
    server.litter.iter().any(|litter| **litter == *name.as_bytes())
}

fn litter(server: &mut Server, name: &str) {
    if !is_litter(server, name) {
        server.litter.push(name.as_bytes().into());
    }
}

/// It is removed. What PREPARE puts in its place is the client's.
fn cleared(server: &mut Server, name: &str) {
    server.litter.retain(|litter| **litter != *name.as_bytes());
}

impl Desk<'_> {
    /// The same in front of a Parse, Bind or Describe of such SQL.
    #[inline]
    pub(super) fn put_named(&mut self, plan: Option<&Plan>) {
        let Some(plan) = plan.filter(|plan| !plan.names.is_empty()) else { return };
        if self.server.ledger.status() == TxStatus::Failed {
            return;
        }
        for name in &plan.names {
            let statement = self.own.get(name.as_bytes()).cloned();
            if statement.is_some() || is_litter(self.server, name) {
                self.write_close(name.as_bytes());
                self.mark(Mark::Own, Change::Nothing, Placed::Nothing);
            }
            if let Some(statement) = statement {
                write_parse_tail(self.patch, name.as_bytes(), &statement.tail);
                self.mark(Mark::Own, Change::Nothing, Placed::Nothing);
                litter(self.server, name);
            } else {
                cleared(self.server, name);
            }
        }
    }
}
