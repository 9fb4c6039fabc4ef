//! Statements under the client's own names, for SQL that names them: EXECUTE, EXPLAIN EXECUTE, PREPARE, DEALLOCATE.
//!
//! They are put on the server in front of that SQL, and removed before another client gets the server. PREPARE of a name that the
//! protocol has given finds it taken that way, as it must.
//!
//! A statement may no longer fit the catalogs, so that it cannot be put there. On a direct connection it would be there all the same,
//! and fail when it is executed. So in front of a Query or a batch it is put there in a unit of its own, whose error is kept from the
//! client; and when the server says behind it that there is no such statement, the client is given that error instead.

use super::super::Core;
use super::super::server::Server;
use super::deallocate::NOBODY;
use super::desk::Desk;
use super::write_parse_tail;
use pgusher_session::ledger::Mark;
use pgusher_session::plan::Plan;
use pgusher_session::statements::{Change, Key, Own, Placed, Statement, short};
use pgusher_wire::frontend::{self, SYNC_BYTES, Target};
use pgusher_wire::scan::Head;
use pgusher_wire::{ErrorFields, TxStatus, backend, sqlstate};
use std::collections::VecDeque;

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

/// Statements that are put on a server in front of what names them.
#[derive(Debug, Default)]
pub(in crate::core) struct Attempts {
    /// Units of ours that are under way, with the names that they put there; empty for a savepoint.
    under_way: VecDeque<Box<[u8]>>,
    /// Names that could not be put there, with the bodies of the server's errors; up to the end of the client's transaction.
    failed: Vec<(Box<[u8]>, Vec<u8>)>,
    /// Those that were put there in front of this unit.
    put: Vec<(Box<[u8]>, Key)>,
    unit: u32,
}

impl Attempts {
    /// Is one under way?
    #[inline]
    pub(in crate::core) fn is_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// The server is ready for the next query.
    #[inline]
    pub(in crate::core) fn ready(&mut self, status: TxStatus) {
        if status == TxStatus::Idle {
            self.failed.clear();
        }
    }

    /// Is this what the client is to be told instead of an error? The body of an ErrorResponse.
    pub(in crate::core) fn instead_of(&self, fields: &ErrorFields<'_>) -> Option<&[u8]> {
        if self.failed.is_empty() || fields.sqlstate() != Some(sqlstate::INVALID_STATEMENT_NAME) {
            return None;
        }
        let message = fields.message();
        let named = self.failed.iter().filter(|(name, _)| message.contains(&*String::from_utf8_lossy(name)));
        named.max_by_key(|(name, _)| name.len()).map(|(_, error)| &**error)
    }

    fn begin(&mut self, name: &[u8]) {
        self.under_way.push_back(short(name).into());
    }
}

impl Server {
    /// A message has come while an attempt was under way. To be called before it is booked.
    pub(in crate::core) fn attempted(&mut self, head: &Head<'_>) {
        if !self.ledger.is_attempt() {
            return;
        }
        if head.tag == backend::READY_FOR_QUERY {
            self.attempts.under_way.pop_front();
        } else if let (true, Some(name)) =
            (head.tag == backend::ERROR_RESPONSE && head.is_complete(), self.attempts.under_way.front())
        {
            if !name.is_empty() {
                self.attempts.failed.push((name.clone(), head.body.to_vec()));
            }
        }
    }
}

/// Puts the statements that a Query or a batch names on the server, before its first message is booked. `key` says which
/// statement it is for the present settings.
pub(super) fn put_first(
    plan: &Plan,
    own: Option<&Own>,
    server: &mut Server,
    key: impl Fn(&Statement) -> Key,
    patch: &mut Vec<u8>,
) {
    server.attempts.failed.retain(|(failed, _)| !plan.names.iter().any(|name| **failed == *short(name.as_bytes())));
    server.attempts.put.clear();
    // What fails would end the transaction.
    let is_open = server.ledger.status() == TxStatus::Transaction && !plan.executes.is_empty();
    if is_open {
        write_unit(server, b"", patch, |patch| write_own(patch, b"SAVEPOINT pgusher"));
    }
    for name in &plan.names {
        if !is_concerned(name, own, server) {
            continue;
        }
        let name = name.as_bytes();
        let Some(statement) = own.and_then(|own| own.get(name)) else {
            write_unit(server, name, patch, |patch| frontend::write_close(patch, Target::Statement, name));
            cleared(server, name);
            continue;
        };
        let is_executed = plan.executes.iter().any(|executed| executed.as_bytes() == name);
        write_unit(server, name, patch, |patch| {
            frontend::write_close(patch, Target::Statement, name);
            if is_executed {
                write_parse_tail(patch, name, &statement.tail);
            } else {
                // It is named only: this cannot fail.
                frontend::write_parse(patch, name, b"", &[]);
            }
        });
        litter(server, name);
        server.attempts.put.push((short(name).into(), key(statement)));
    }
    if is_open {
        write_unit(server, b"", patch, |patch| {
            write_own(patch, b"ROLLBACK TO SAVEPOINT pgusher");
            write_own(patch, b"RELEASE SAVEPOINT pgusher");
        });
    }
    server.attempts.unit = server.ledger.unit();
}

/// Messages of ours up to a Sync.
fn write_unit(server: &mut Server, name: &[u8], patch: &mut Vec<u8>, messages: impl FnOnce(&mut Vec<u8>)) {
    messages(patch);
    patch.extend_from_slice(&SYNC_BYTES);
    server.ledger.own_attempt();
    server.attempts.begin(name);
}

/// A statement of ours that leaves the unnamed statement and portal as they are.
fn write_own(patch: &mut Vec<u8>, sql: &[u8]) {
    frontend::write_close(patch, Target::Statement, NOBODY);
    frontend::write_parse(patch, NOBODY, sql, &[]);
    frontend::write_bind(patch, NOBODY, NOBODY, &[]);
    frontend::write_execute(patch, NOBODY, 0);
    frontend::write_close(patch, Target::Portal, NOBODY);
    frontend::write_close(patch, Target::Statement, NOBODY);
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

impl Core {
    /// The server has an error for the client. Is another one given in its place, because a statement could not be put there? It is in
    /// `patch` then, behind what comes before it.
    pub(in crate::core) fn gives_instead(&mut self, client: u32, slot: u32, body: &[u8]) -> bool {
        let Some(s) = self.servers.get(slot as usize) else { return false };
        let Some(error) = s.attempts.instead_of(&ErrorFields::new(body)).map(<[u8]>::to_vec) else { return false };
        let mut given = std::mem::take(&mut self.patch);
        self.marks_settled(client, slot, &mut given);
        given.push(backend::ERROR_RESPONSE);
        given.extend_from_slice(&u32::try_from(error.len() + 4).unwrap_or(u32::MAX).to_be_bytes());
        given.extend_from_slice(&error);
        self.patch = given;
        true
    }
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
        if self.server.ledger.is_quiet() || self.server.ledger.is_clean_but_for_own() {
            if plan.names.iter().any(|name| is_concerned(name, Some(self.own), self.server)) {
                let settings = self.settings;
                put_first(plan, Some(self.own), self.server, |statement| statement.key.under(settings), self.patch);
            }
            return;
        }
        for name in &plan.names {
            let name = name.as_bytes();
            let Some(statement) = self.own.get(name).cloned() else {
                sweep(self.server, self.own, name, self.patch);
                continue;
            };
            let attempts = &self.server.attempts;
            let put = attempts.put.iter().any(|(other, key)| **other == *short(name) && *key == self.key(&statement));
            if put && attempts.unit == self.server.ledger.unit() {
                continue;
            }
            self.write_close(name);
            self.mark(Mark::Own, Change::Nothing, Placed::Nothing);
            write_parse_tail(self.patch, name, &statement.tail);
            self.mark(Mark::Own, Change::Nothing, Placed::Nothing);
            litter(self.server, name);
        }
    }
}
