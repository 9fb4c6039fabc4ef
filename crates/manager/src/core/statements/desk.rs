//! What is done to each message that names a statement.

use super::super::sequences;
use super::super::server::Server;
use super::deallocate::{NOBODY, deallocated, forget_nobody};
use super::{Edit, MAX_SENT_NAME, Sharing, cut, names, whole, write_parse_tail};
use pgusher_session::Pins;
use pgusher_session::ledger::{Given, Mark};
use pgusher_session::plan::{Plan, Reading};
use pgusher_session::statements::{Change, Key, Library, Own, Placed, Presence, Statement, Unnamed};
use pgusher_wire::TxStatus;
use pgusher_wire::frontend::{self, Target};
use pgusher_wire::scan::Head;
use std::sync::Arc;

/// The parts that a translation works on.
pub(super) struct Desk<'a> {
    pub(super) server: &'a mut Server,
    pub(super) own: &'a mut Own,
    pub(super) library: &'a mut Library,
    pub(super) patch: &'a mut Vec<u8>,
    pub(super) sharing: Sharing,
    pub(super) settings: u64,
    pub(super) version: u32,
    /// In seconds.
    pub(super) now: u64,
    /// How the session's texts are read.
    pub(super) reading: Option<Reading>,
    /// What the statement does that was bound.
    pub(super) bound: Bound,
    /// Why the client keeps its server.
    pub(super) pins: &'a mut Pins,
    /// SQL may have prepared statements in this session.
    pub(super) has_sql_names: bool,
    /// What definitions do behind it matters: it is to be kept in `statement`.
    pub(super) wanted: bool,
    pub(super) statement: Option<Arc<Statement>>,
}

/// What is known of a statement that was bound.
#[derive(Debug)]
pub(super) enum Bound {
    /// It leaves the session as it is.
    Plain,
    /// It ends a transaction.
    End,
    /// It does this.
    Plan(Arc<Plan>),
    /// It was not prepared here: PREPARE has made it.
    Elsewhere,
}

impl Desk<'_> {
    pub(super) fn keep(&mut self, tag: u8) -> Edit {
        self.server.ledger.sent(tag);
        Edit::Keep
    }

    /// Whether an earlier batch, which has not been answered, has defined the name cannot be known.
    #[inline]
    pub(super) fn is_open(&self, name: &[u8]) -> bool {
        self.server.ledger.owes_ready() && self.server.shelf.is_open(name)
    }

    pub(super) fn key(&self, statement: &Statement) -> Key {
        statement.key.under(self.settings)
    }

    /// `None`: the statement cannot be shared, and the client must keep this server.
    pub(super) fn parse(&mut self, head: &Head<'_>) -> Option<Edit> {
        if !head.is_complete() {
            if head.body.first() != Some(&0) {
                let name = cut(head.body).map_or(&[][..], |(name, _)| name);
                if self.is_open(name) {
                    return Some(Edit::Wait);
                }
                self.discard_ahead(&sequences::Bind::Unknown, false);
                self.sweep(name);
                return None;
            }
            self.discard_ahead(&sequences::Bind::Unknown, true);
            let change = self.own.set_unnamed(Unnamed::There);
            self.server.shelf.set_unnamed(None);
            self.mark(Mark::Passed, change, Placed::Unnamed);
            return Some(Edit::Replace(0));
        }
        let Some((name, tail)) = cut(head.body) else { return Some(self.keep(head.tag)) };
        if !name.is_empty() && self.is_open(name) {
            return Some(Edit::Wait);
        }
        if name.is_empty() {
            return Some(self.parse_unnamed(head, tail));
        }
        if self.own.get(name).is_none() && (self.own.is_full() || name.len() > MAX_SENT_NAME) {
            self.discard_ahead(&sequences::Bind::Unknown, false);
            self.sweep(name);
            return None;
        }
        if self.own.get(name).is_some() {
            // The server must say that the name is taken. So it is made to be.
            self.write_close(name);
            self.mark(Mark::Own, Change::Nothing, Placed::Nothing);
            frontend::write_parse(self.patch, name, b"", &[]);
            self.mark(Mark::Own, Change::Nothing, Placed::Nothing);
            names::litter(self.server, name);
            self.keep(head.tag);
            return Some(Edit::Replace(0));
        }
        let (statement, _) = self.library.statement(tail, self.reading);
        if self.is_open_named(statement.plan.as_deref()) {
            return Some(Edit::Wait);
        }
        let key = self.key(&statement);
        let failed = self.server.ledger.status() == TxStatus::Failed;
        self.parse_ahead(statement.plan.as_deref(), false);
        self.put_named(statement.plan.as_deref());
        let presence = self.server.shelf.look(key, self.version);
        let change = self.own.set(name, Some(statement.clone()));
        let is_here = presence == Presence::Here && !failed;
        if !is_here {
            self.make_room();
            if presence != Presence::Missing {
                self.remove(key);
            }
        }
        if self.has_sql_names {
            if !is_here {
                // A mistake in the text is told before one in the name.
                self.put(key, &statement, Mark::Own, Change::Nothing);
            }
            self.parse_if_free(name, change);
        } else if is_here {
            self.mark(Mark::Given(Given::Parse), change, Placed::Nothing);
        } else {
            self.put(key, &statement, Mark::Passed, change);
        }
        Some(Edit::Replace(whole(head)))
    }

    /// The server has the statement. Whether the client's name for it is free, only the server can say.
    fn parse_if_free(&mut self, name: &[u8], change: Change) {
        frontend::write_parse(self.patch, name, b"", &[]);
        self.mark(Mark::Passed, change, Placed::Nothing);
        // Of a name that is taken, this is discarded.
        self.write_close(name);
        self.mark(Mark::Own, Change::Nothing, Placed::Nothing);
    }

    fn parse_unnamed(&mut self, head: &Head<'_>, tail: &[u8]) -> Edit {
        let failed = self.server.ledger.status() == TxStatus::Failed;
        if self.own.has_names() && !failed {
            if let Some(name) = deallocated(tail).filter(|name| self.own.get(name).is_some()) {
                // Whether the transaction has failed is known when the server has answered.
                if self.server.ledger.owes_ready() {
                    return Edit::Wait;
                }
                return self.parse_deallocate(head, tail, &name);
            }
        }
        let (statement, seen) = self.library.statement(tail, self.reading);
        if self.is_open_named(statement.plan.as_deref()) {
            return Edit::Wait;
        }
        let key = self.key(&statement);
        self.parse_ahead(statement.plan.as_deref(), true);
        self.put_named(statement.plan.as_deref());
        if seen && self.sharing.unnamed && !failed {
            let presence = self.server.shelf.look(key, self.version);
            if presence == Presence::Here {
                let change = self.own.set_unnamed(Unnamed::Statement(statement));
                self.mark(Mark::Given(Given::Parse), change, Placed::Nothing);
                return Edit::Replace(whole(head));
            }
            self.make_room();
            if presence == Presence::Stale {
                self.remove(key);
            }
            if self.server.shelf.len() < self.sharing.limit {
                let change = self.own.set_unnamed(Unnamed::Statement(statement.clone()));
                self.put(key, &statement, Mark::Passed, change);
                return Edit::Replace(whole(head));
            }
        }
        let change = self.own.set_unnamed(Unnamed::Statement(statement));
        self.server.shelf.set_unnamed(Some(key));
        self.mark(Mark::Passed, change, Placed::Unnamed);
        // Own messages may have been written already.
        Edit::Replace(0)
    }

    /// DEALLOCATE of a shared statement, by the extended protocol.
    fn parse_deallocate(&mut self, head: &Head<'_>, tail: &[u8], name: &[u8]) -> Edit {
        names::sweep(self.server, self.own, name, self.patch);
        let forgotten = self.own.set(name, None);
        forget_nobody(self.server, self.patch, forgotten);
        let (statement, _) = self.library.statement(tail, self.reading);
        let key = self.key(&statement);
        self.server.shelf.set_unnamed(Some(key));
        let change = self.own.set_unnamed(Unnamed::Statement(statement));
        frontend::write_parse(self.patch, b"", &[b"DEALLOCATE ", NOBODY].concat(), &[]);
        self.mark(Mark::Passed, change, Placed::Unnamed);
        Edit::Replace(whole(head))
    }

    pub(super) fn bind(&mut self, head: &Head<'_>) -> Edit {
        let names = cut(head.body).and_then(|(portal, rest)| Some((portal, cut(rest)?.0)));
        let Some((portal, name)) = names else {
            // Names that are too long are not followed.
            self.bound = Bound::Elsewhere;
            sequences::before_bind(self.pins, self.server, &sequences::Bind::Unknown, self.patch);
            self.keep(head.tag);
            return Edit::Replace(0);
        };
        if self.is_open(name) {
            return Edit::Wait;
        }
        let statement = self.own.find(name).cloned();
        let statement = statement.as_ref();
        let plan = statement.and_then(|statement| statement.plan.as_ref());
        if self.is_open_named(plan.map(|plan| &**plan)) {
            return Edit::Wait;
        }
        let unknown = !name.is_empty() || matches!(self.own.unnamed, Unnamed::There);
        let (bound, bind) = match (plan, statement) {
            (Some(plan), _) => (Bound::Plan(plan.clone()), sequences::Bind::Plan(plan)),
            (None, Some(statement)) => {
                let bound = if statement.ends { Bound::End } else { Bound::Plain };
                (bound, if statement.advances { sequences::Bind::Advances } else { sequences::Bind::Nothing })
            }
            (None, None) => {
                let bound = if name.is_empty() { Bound::Plain } else { Bound::Elsewhere };
                (bound, if unknown { sequences::Bind::Unknown } else { sequences::Bind::Nothing })
            }
        };
        self.discard_ahead(&bind, false);
        self.put_named(plan.map(|plan| &**plan));
        let found = self.resolve(name, statement);
        self.bound = bound;
        if self.wanted {
            self.statement = statement.cloned();
        }
        sequences::before_bind(self.pins, self.server, &bind, self.patch);
        self.server.ledger.sent(head.tag);
        let Some(key) = found else { return Edit::Replace(0) };
        let new = key.name();
        let length = 4 + head.body_len - name.len() + new.len();
        self.patch.push(frontend::BIND);
        self.patch.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
        self.patch.extend_from_slice(portal);
        self.patch.push(0);
        self.patch.extend_from_slice(&new);
        self.patch.push(0);
        Edit::Replace(pgusher_wire::HEADER_LEN + portal.len() + 1 + name.len() + 1)
    }

    pub(super) fn describe(&mut self, head: &Head<'_>) -> Edit {
        let name = head.body.strip_prefix(b"S").filter(|_| head.is_complete()).and_then(cut);
        let Some((name, _)) = name else { return self.keep(head.tag) };
        if self.is_open(name) {
            return Edit::Wait;
        }
        let statement = self.own.find(name).cloned();
        let statement = statement.as_ref();
        let plan = statement.and_then(|statement| statement.plan.as_deref());
        if self.is_open_named(plan) {
            return Edit::Wait;
        }
        self.put_named(plan);
        let (found, looked_at) = self.resolve_to_describe(name, statement);
        let Some(key) = found else {
            self.server.ledger.sent(head.tag);
            return Edit::Replace(0);
        };
        if looked_at {
            self.mark(Mark::Described, Change::Nothing, Placed::Described(key, self.version));
        } else {
            self.server.ledger.sent(head.tag);
        }
        frontend::write_describe(self.patch, Target::Statement, &key.name());
        Edit::Replace(whole(head))
    }

    pub(super) fn close(&mut self, head: &Head<'_>) -> Edit {
        let name = head.body.strip_prefix(b"S").filter(|_| head.is_complete()).and_then(cut);
        let Some((name, _)) = name else { return self.keep(head.tag) };
        if self.is_open(name) {
            return Edit::Wait;
        }
        let change = match (name.is_empty(), self.own.get(name).is_some()) {
            (true, _) if !matches!(self.own.unnamed, Unnamed::There) => self.own.set_unnamed(Unnamed::None),
            (false, true) => {
                names::sweep(self.server, self.own, name, self.patch);
                self.own.set(name, None)
            }
            _ => return self.keep(head.tag),
        };
        self.mark(Mark::Given(Given::Close), change, Placed::Nothing);
        Edit::Replace(whole(head))
    }

    /// A Parse may begin the batch that binds its statement.
    #[inline]
    fn parse_ahead(&mut self, plan: Option<&Plan>, unnamed: bool) {
        if let Some(plan) = plan.filter(|plan| plan.heeds_batch) {
            self.discard_ahead(&sequences::Bind::Plan(plan), unnamed);
        }
    }

    /// See [`sequences::before_batch`]. A Query ends the unnamed statement: one that is kept nowhere else stays, unless it is
    /// replaced just now.
    #[inline]
    fn discard_ahead(&mut self, bind: &sequences::Bind<'_>, replaces_unnamed: bool) {
        if replaces_unnamed || !matches!(self.own.unnamed, Unnamed::There) {
            sequences::before_batch(self.server, bind, self.patch);
        }
    }

    /// Does a Close name a statement that the protocol has not prepared?
    pub(super) fn is_of_sql(&self, head: &Head<'_>) -> bool {
        let name = head.body.strip_prefix(b"S").and_then(cut);
        name.is_some_and(|(name, _)| !name.is_empty() && self.own.get(name).is_none())
    }

    /// As [`resolve`](Self::resolve), and whether what the server says of the statement is to be looked at.
    fn resolve_to_describe(&mut self, name: &[u8], statement: Option<&Arc<Statement>>) -> (Option<Key>, bool) {
        if let Some(key) = statement.map(|statement| self.key(statement)) {
            if let (Presence::Here, due) = self.server.shelf.look_to_describe(key, self.version, self.now) {
                return (Some(key), due);
            }
        }
        let found = self.resolve(name, statement);
        // It was put there just now.
        let due = found.is_some_and(|key| self.server.shelf.look_to_describe(key, self.version, self.now).1);
        (found, due)
    }

    /// Makes sure that the server has the statement that the client calls so. `None`: it has it under the client's own name,
    /// or will say itself that there is none.
    fn resolve(&mut self, name: &[u8], statement: Option<&Arc<Statement>>) -> Option<Key> {
        if !name.is_empty() {
            let Some(statement) = statement else {
                self.sweep(name);
                return None;
            };
            let key = self.key(statement);
            match self.server.shelf.look(key, self.version) {
                Presence::Here => return Some(key),
                Presence::Stale => self.remove(key),
                Presence::Missing => self.make_room(),
            }
            self.put(key, statement, Mark::Own, Change::Nothing);
            return Some(key);
        }
        match (statement, &self.own.unnamed) {
            (None, Unnamed::There | Unnamed::Statement(_)) => {}
            (None, Unnamed::None) => {
                // There may be a neighbour's.
                self.write_close(b"");
                self.server.shelf.set_unnamed(None);
                self.mark(Mark::Own, Change::Nothing, Placed::Unnamed);
            }
            (Some(statement), _) => {
                let key = self.key(statement);
                if self.server.shelf.look(key, self.version) == Presence::Here {
                    return Some(key);
                }
                // It may be there from long ago, and fit the catalogs no more. Then one was put there just now, see above.
                if self.server.shelf.is_unnamed(key) {
                    return None;
                }
                write_parse_tail(self.patch, b"", &statement.tail);
                self.server.shelf.set_unnamed(Some(key));
                self.mark(Mark::Own, Change::Nothing, Placed::Unnamed);
            }
        }
        None
    }

    /// What is on the server under this name, and is not the client's, is removed.
    fn sweep(&mut self, name: &[u8]) {
        if self.own.get(name).is_none() {
            names::sweep(self.server, self.own, name, self.patch);
        }
    }

    pub(super) fn mark(&mut self, mark: Mark, change: Change, placed: Placed) {
        self.server.ledger.marked(mark);
        self.server.shelf.note(change, placed);
    }

    fn put(&mut self, key: Key, statement: &Arc<Statement>, mark: Mark, change: Change) {
        if self.server.shelf.is_unsettled(key) {
            // It may be here still, or again.
            self.write_close(&key.name());
            self.mark(Mark::Own, Change::Nothing, Placed::Nothing);
        }
        write_parse_tail(self.patch, &key.name(), &statement.tail);
        let placed = self.server.shelf.put(key, self.version);
        self.mark(mark, change, placed);
    }

    fn remove(&mut self, key: Key) {
        self.write_close(&key.name());
        let placed = self.server.shelf.remove(key);
        self.mark(Mark::Own, Change::Nothing, placed);
    }

    /// Removes what has not been used for long, if there is much.
    fn make_room(&mut self) {
        while let Some(key) = self.server.shelf.superfluous(self.sharing.limit) {
            self.remove(key);
        }
    }

    pub(super) fn write_close(&mut self, name: &[u8]) {
        frontend::write_close(self.patch, Target::Statement, name);
    }
}
