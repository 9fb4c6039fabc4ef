//! Prepared statements: the client's names are put in the place of the server's, and a statement is put on a server before it
//! is used there.
//!
//! A client's Parse of a statement that its server of the moment has already is answered here. One that the server does not
//! have is sent under the name that all clients share. The unnamed statement is treated the same from the second time on that
//! its text is seen; before that it passes as it is, because a text that holds constants comes only once.

use super::Core;
use super::behind;
use super::client::Client;
use super::effects;
use super::sequences;
use super::server::Server;
use pgusher_session::ledger::{Event, Given, Mark};
use pgusher_session::plan::{Plan, Read, Reading};
use pgusher_session::statements::{Change, Key, Library, Note, Own, Placed, Presence, Statement, Unnamed};
use pgusher_session::{Aspects, Pins};
use pgusher_wire::frontend::{self, Target};
use pgusher_wire::scan::Head;
use pgusher_wire::{TxStatus, backend};
use std::sync::Arc;

/// A statement of ours that DEALLOCATE is turned to when the client means one of its shared ones.
const NOBODY: &[u8] = b"pgusher_nobody";

/// What has to be done to a client's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edit {
    /// Nothing.
    Keep,
    /// What was written for it goes in the place of so many of its first bytes, header included.
    Replace(usize),
    /// It has to wait for the replies to what was sent before.
    Wait,
}

/// How the statements of a pool are shared.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sharing {
    /// Unnamed ones as well.
    pub(super) unnamed: bool,
    /// Statements of one server, from where on unused ones make room.
    pub(super) limit: usize,
}

/// The parts that a translation works on.
struct Desk<'a> {
    server: &'a mut Server,
    own: &'a mut Own,
    library: &'a mut Library,
    patch: &'a mut Vec<u8>,
    sharing: Sharing,
    settings: u64,
    version: u32,
    /// How the session's texts are read.
    reading: Option<Reading>,
    /// What the statement does that was bound.
    bound: Bound,
    /// Why the client keeps its server.
    pins: &'a mut Pins,
    /// What definitions do behind it matters: it is to be kept in `statement`.
    wanted: bool,
    statement: Option<Arc<Statement>>,
}

/// What is known of a statement that was bound.
#[derive(Debug)]
enum Bound {
    /// It leaves the session as it is.
    Plain,
    /// It ends a transaction.
    End,
    /// It does this.
    Plan(Arc<Plan>),
    /// It was not prepared here: PREPARE has made it.
    Elsewhere,
}

impl Core {
    /// Books a Parse, Bind, Describe or Close, and writes to `patch` what has to be sent in front of it or in its place.
    pub(super) fn translate(&mut self, client: u32, server: u32, head: &Head<'_>) -> Edit {
        let (Some(c), Some(s)) = (self.clients.get_mut(client as usize), self.servers.get_mut(server as usize)) else {
            return Edit::Keep;
        };
        if s.ledger.is_discarding() {
            return Edit::Keep;
        }
        if c.discards {
            // What its names stand for is known when the server has answered.
            if s.ledger.owes_ready() {
                return Edit::Wait;
            }
            c.discards = false;
        }
        if s.is_in_flux() {
            // What is parsed now is parsed behind it, or not, if it fails.
            s.stir();
        }
        let text = if head.tag == frontend::PARSE { head.body } else { &[] };
        let text = text.split(|b| *b == 0).nth(1).unwrap_or_default();
        let reading = effects::reading(c, s, text);
        let version = s.pool.catalog_version();
        let mut settings = c.settings.as_ref().map_or(0, |s| s.planning());
        let mut sharing = self.sharing;
        if let Some(track) = c.track() {
            settings ^= track.local();
        }
        if c.pins.intersects(PRIVATE) {
            // Its temporary tables may hide others: what others have parsed is not for it, and the other way round.
            sharing.unnamed = false;
            settings ^= (u64::from(c.serial) << 1 | 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        let mut desk = Desk {
            server: s,
            own: c.own.get_or_insert_default(),
            library: &mut self.library,
            patch: &mut self.patch,
            sharing,
            settings,
            version,
            reading,
            bound: Bound::Plain,
            pins: &mut c.pins,
            wanted: false,
            statement: None,
        };
        match head.tag {
            frontend::PARSE => match desk.parse(head) {
                Some(edit) => {
                    if !head.is_complete() {
                        effects::note(c, s, &Arc::new(Plan::unknown_text(text)));
                    }
                    edit
                }
                None => {
                    let edit = desk.keep(head.tag);
                    // It stays there under the client's own name.
                    effects::note(c, s, &Arc::new(Plan::unknown_text(text)));
                    edit
                }
            },
            frontend::BIND => {
                let changes = desk.server.pool.definition_changes();
                desk.wanted = !desk.server.pool.is_innocent(changes, self.now);
                let edit = desk.bind(head);
                let bound = std::mem::replace(&mut desk.bound, Bound::Plain);
                let statement = desk.statement.take();
                if edit != Edit::Wait {
                    if !matches!(bound, Bound::End) {
                        let library = &mut self.library;
                        behind::of_statement(c, s, self.now, |_, _| {
                            // One that is shared was read in the usual way.
                            let tail = &statement.as_ref()?.tail;
                            library.facts(tail.split(|b| *b == 0).next()?, Reading::default())
                        });
                    }
                    portal_bound(c, s, head, bound);
                }
                edit
            }
            frontend::DESCRIBE => desk.describe(head),
            frontend::CLOSE => desk.close(head),
            tag => desk.keep(tag),
        }
    }

    /// A Query ends the unnamed statement. One that deallocates a shared statement is turned to another.
    #[inline]
    pub(super) fn query_seen(&mut self, client: u32, server: u32, head: &Head<'_>) -> Edit {
        let (Some(c), Some(s)) = (self.clients.get_mut(client as usize), self.servers.get_mut(server as usize)) else {
            return Edit::Keep;
        };
        if s.ledger.is_discarding() {
            return Edit::Keep;
        }
        s.shelf.set_unnamed(None);
        let text = head.body.strip_suffix(b"\0").unwrap_or(head.body);
        let read = if head.is_complete() {
            effects::read(&mut self.library, c, s, text)
        } else {
            // The names of settings in what can be seen of it.
            Read::Plan(Arc::new(Plan::unknown_text(text)))
        };
        let plan = if let Read::Plan(plan) = &read { Some(&**plan) } else { None };
        if self.must_hear(client, server, plan) {
            return Edit::Wait;
        }
        let (Some(c), Some(s)) = (self.clients.get_mut(client as usize), self.servers.get_mut(server as usize)) else {
            return Edit::Keep;
        };
        let edit = match c.own.as_deref_mut() {
            None => Edit::Keep,
            Some(own) => {
                own.unnamed = Unnamed::None;
                s.shelf.forget_unnamed();
                let may_deallocate = head.is_complete() && (own.has_names() || s.ledger.owes_ready());
                let name = if may_deallocate { deallocated(head.body) } else { None };
                match name {
                    // Whether there is one is known when the server has answered.
                    Some(name) if s.ledger.owes_ready() && (c.discards || s.shelf.is_open(&name)) => return Edit::Wait,
                    Some(name) if own.get(&name).is_some() && s.ledger.status() != TxStatus::Failed => {
                        own.set(&name, None);
                        forget_nobody(s, &mut self.patch);
                        frontend::write_query(&mut self.patch, &[b"DEALLOCATE ", NOBODY].concat());
                        Edit::Replace(head.body_len + pgusher_wire::HEADER_LEN)
                    }
                    _ => Edit::Keep,
                }
            }
        };
        let edit = match edit {
            Edit::Keep => match sequences::before_query(&mut c.pins, s, &read, head, &mut self.patch) {
                Edit::Wait => return Edit::Wait,
                Edit::Replace(n) if n > 0 => {
                    s.sent_steps = 0;
                    s.ledger.sent(head.tag);
                    return Edit::Replace(n);
                }
                edit => edit,
            },
            edit => edit,
        };
        if !matches!(read, Read::Begin | Read::End) && edit == Edit::Keep {
            let (library, whole) = (&mut self.library, head.is_complete());
            behind::of_statement(c, s, self.now, |c, s| {
                effects::reading(c, s, text).filter(|_| whole).and_then(|reading| library.facts(text, reading))
            });
        }
        match read {
            Read::Plain { .. } | Read::Begin => {}
            Read::End if c.track().is_some() || !s.flights.is_empty() => effects::note_end(s),
            Read::End => {}
            Read::Plan(plan) => effects::note(c, s, &plan),
        }
        s.sent_steps = 0;
        s.ledger.sent(head.tag);
        edit
    }

    /// Looks at what became of marks. Writes the replies that are to be given to `given`.
    pub(super) fn marks_settled(&mut self, client: u32, server: u32, given: &mut Vec<u8>) {
        let (Some(c), Some(s)) = (self.clients.get_mut(client as usize), self.servers.get_mut(server as usize)) else {
            return;
        };
        let mut undone: Vec<(Note, bool)> = Vec::new();
        for event in s.ledger.events().drain(..) {
            let done = matches!(event, Event::Done | Event::Give(_));
            let Some(note) = s.shelf.settle(done) else { continue };
            match event {
                Event::Done => {}
                Event::Give(Given::Parse) => given.extend_from_slice(&backend::PARSE_COMPLETE_BYTES),
                Event::Give(Given::Close) => given.extend_from_slice(&backend::CLOSE_COMPLETE_BYTES),
                Event::Failed => undone.push((note, true)),
                Event::Undone => undone.push((note, false)),
            }
        }
        let mut nobody = Own::default();
        let own = c.own.as_deref_mut().unwrap_or(&mut nobody);
        while let Some((note, failed)) = undone.pop() {
            if matches!(note.placed, Placed::Sequences) {
                s.sequences.own = false;
            }
            s.shelf.take_back(note, failed, own);
        }
    }
}

impl Desk<'_> {
    fn keep(&mut self, tag: u8) -> Edit {
        self.server.ledger.sent(tag);
        Edit::Keep
    }

    /// Whether an earlier batch, which has not been answered, has defined the name cannot be known.
    #[inline]
    fn is_open(&self, name: &[u8]) -> bool {
        self.server.ledger.owes_ready() && self.server.shelf.is_open(name)
    }

    fn key(&self, statement: &Statement) -> Key {
        statement.key.under(self.settings)
    }

    /// `None`: the statement cannot be shared, and the client must keep this server.
    fn parse(&mut self, head: &Head<'_>) -> Option<Edit> {
        if !head.is_complete() {
            if head.body.first() != Some(&0) {
                return None;
            }
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
        if self.own.is_full() {
            return None;
        }
        if self.own.get(name).is_some() {
            // The server must say that the name is taken. So it is made to be.
            self.write_close(name);
            self.mark(Mark::Own, Change::Nothing, Placed::Nothing);
            frontend::write_parse(self.patch, name, b"", &[]);
            self.mark(Mark::Own, Change::Nothing, Placed::Nothing);
            self.server.litter.push(name.into());
            self.keep(head.tag);
            return Some(Edit::Replace(0));
        }
        let (statement, _) = self.library.statement(tail, self.reading);
        let key = self.key(&statement);
        let failed = self.server.ledger.status() == TxStatus::Failed;
        let presence = self.server.shelf.look(key, self.version);
        let change = self.own.set(name, Some(statement.clone()));
        if presence == Presence::Here && !failed {
            self.mark(Mark::Given(Given::Parse), change, Placed::Nothing);
        } else {
            self.make_room();
            if presence != Presence::Missing {
                self.remove(key);
            }
            self.put(key, &statement, Mark::Passed, change);
        }
        Some(Edit::Replace(whole(head)))
    }

    fn parse_unnamed(&mut self, head: &Head<'_>, tail: &[u8]) -> Edit {
        let failed = self.server.ledger.status() == TxStatus::Failed;
        if self.own.has_names() && !failed {
            if let Some(name) = deallocated(tail).filter(|name| self.own.get(name).is_some()) {
                return self.parse_deallocate(head, tail, &name);
            }
        }
        let (statement, seen) = self.library.statement(tail, self.reading);
        let key = self.key(&statement);
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
        self.own.set(name, None);
        forget_nobody(self.server, self.patch);
        let (statement, _) = self.library.statement(tail, self.reading);
        let key = self.key(&statement);
        self.server.shelf.set_unnamed(Some(key));
        let change = self.own.set_unnamed(Unnamed::Statement(statement));
        frontend::write_parse(self.patch, b"", &[b"DEALLOCATE ", NOBODY].concat(), &[]);
        self.mark(Mark::Passed, change, Placed::Unnamed);
        Edit::Replace(whole(head))
    }

    fn bind(&mut self, head: &Head<'_>) -> Edit {
        let Some((portal, (name, _))) = cut(head.body).and_then(|(portal, rest)| Some((portal, cut(rest)?))) else {
            // Names that are too long are not followed.
            self.bound = Bound::Elsewhere;
            return self.keep(head.tag);
        };
        if self.is_open(name) {
            return Edit::Wait;
        }
        let found = self.resolve(name);
        let statement = match (&self.own.unnamed, name) {
            (Unnamed::Statement(statement), b"") => Some(statement),
            _ => self.own.get(name),
        };
        if self.wanted {
            self.statement = statement.cloned();
        }
        self.bound = match statement {
            Some(statement) => match &statement.plan {
                Some(plan) => Bound::Plan(plan.clone()),
                None if statement.ends => Bound::End,
                None => Bound::Plain,
            },
            None if name.is_empty() => Bound::Plain,
            None => Bound::Elsewhere,
        };
        let bind = match statement.map(|statement| &**statement) {
            Some(Statement { plan: Some(plan), .. }) => sequences::Bind::Plan(plan),
            Some(statement) if statement.advances => sequences::Bind::Advances,
            Some(_) => sequences::Bind::Nothing,
            None if name.is_empty() && matches!(self.own.unnamed, Unnamed::None) => sequences::Bind::Nothing,
            None => sequences::Bind::Unknown,
        };
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

    fn describe(&mut self, head: &Head<'_>) -> Edit {
        let name = head.body.strip_prefix(b"S").filter(|_| head.is_complete()).and_then(cut);
        let Some((name, _)) = name else { return self.keep(head.tag) };
        if self.is_open(name) {
            return Edit::Wait;
        }
        let found = self.resolve(name);
        self.server.ledger.sent(head.tag);
        let Some(key) = found else { return Edit::Replace(0) };
        frontend::write_describe(self.patch, Target::Statement, &key.name());
        Edit::Replace(whole(head))
    }

    fn close(&mut self, head: &Head<'_>) -> Edit {
        let name = head.body.strip_prefix(b"S").filter(|_| head.is_complete()).and_then(cut);
        let Some((name, _)) = name else { return self.keep(head.tag) };
        if self.is_open(name) {
            return Edit::Wait;
        }
        let change = match (name.is_empty(), self.own.get(name).is_some()) {
            (true, _) if !matches!(self.own.unnamed, Unnamed::There) => self.own.set_unnamed(Unnamed::None),
            (false, true) => self.own.set(name, None),
            _ => return self.keep(head.tag),
        };
        self.mark(Mark::Given(Given::Close), change, Placed::Nothing);
        Edit::Replace(whole(head))
    }

    /// Makes sure that the server has the statement that the client calls so. `None`: it has it under the client's own name,
    /// or will say itself that there is none.
    fn resolve(&mut self, name: &[u8]) -> Option<Key> {
        if !name.is_empty() {
            let Some(statement) = self.own.get(name).cloned() else {
                if self.server.litter.iter().any(|litter| **litter == *name) {
                    // What is there under this name is not the client's.
                    self.write_close(name);
                    self.mark(Mark::Own, Change::Nothing, Placed::Nothing);
                }
                return None;
            };
            let key = self.key(&statement);
            match self.server.shelf.look(key, self.version) {
                Presence::Here => return Some(key),
                Presence::Stale => self.remove(key),
                Presence::Missing => self.make_room(),
            }
            self.put(key, &statement, Mark::Own, Change::Nothing);
            return Some(key);
        }
        match &self.own.unnamed {
            Unnamed::There => {}
            Unnamed::None => {
                // There may be a neighbour's.
                self.write_close(b"");
                self.server.shelf.set_unnamed(None);
                self.mark(Mark::Own, Change::Nothing, Placed::Unnamed);
            }
            Unnamed::Statement(statement) => {
                let statement = statement.clone();
                let key = self.key(&statement);
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

    fn mark(&mut self, mark: Mark, change: Change, placed: Placed) {
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

    fn write_close(&mut self, name: &[u8]) {
        frontend::write_close(self.patch, Target::Statement, name);
    }
}

fn whole(head: &Head<'_>) -> usize {
    pgusher_wire::HEADER_LEN + head.body_len
}

/// A string and what is behind its zero byte.
fn cut(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr(0, body)?;
    Some((body.get(..end)?, body.get(end + 1..)?))
}

/// A Parse message from its name and everything behind it.
fn write_parse_tail(out: &mut Vec<u8>, name: &[u8], tail: &[u8]) {
    let length = 4 + name.len() + 1 + tail.len();
    out.push(frontend::PARSE);
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(name);
    out.push(0);
    out.extend_from_slice(tail);
}

/// Makes sure that there is a statement for [`NOBODY`] to be deallocated. Neither message can fail.
fn forget_nobody(server: &mut Server, patch: &mut Vec<u8>) {
    frontend::write_close(patch, Target::Statement, NOBODY);
    frontend::write_parse(patch, NOBODY, b"", &[]);
    for _ in 0..2 {
        server.ledger.marked(Mark::Own);
        server.shelf.note(Change::Nothing, Placed::Nothing);
    }
}

/// The name in a text that is nothing but DEALLOCATE [PREPARE] name, up to a zero byte; as the server would read it.
fn deallocated(text: &[u8]) -> Option<Vec<u8>> {
    let text = cut(text)?.0.trim_ascii();
    let text = text.strip_suffix(b";").unwrap_or(text).trim_ascii_end();
    let mut rest = keyword(text, b"deallocate")?;
    if let Some(behind) = keyword(rest, b"prepare") {
        rest = behind;
    }
    if let Some(quoted) = rest.strip_prefix(b"\"") {
        let inner = quoted.strip_suffix(b"\"")?;
        let mut name = Vec::with_capacity(inner.len());
        let mut bytes = inner.iter();
        while let Some(b) = bytes.next() {
            if *b == b'"' && bytes.next() != Some(&b'"') {
                return None;
            }
            name.push(*b);
        }
        return Some(name);
    }
    let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$') || *b >= 0x80;
    (!rest.is_empty() && !rest.eq_ignore_ascii_case(b"all") && rest.iter().all(plain))
        .then(|| rest.to_ascii_lowercase())
}

/// Pins with which names may stand for something else than for other clients.
const PRIVATE: Pins = Pins::TEMPORARY.union(Pins::SETTING).union(Pins::SESSION).union(Pins::LIBRARY);

/// Notes what an Execute of the portal will do.
fn portal_bound(client: &mut Client, server: &Server, head: &Head<'_>, bound: Bound) {
    let portal = cut(head.body).map_or(&[][..], |(portal, _)| portal);
    let plan = match bound {
        Bound::Plain => None,
        Bound::End if client.track().is_none() && server.flights.is_empty() => None,
        Bound::End => Some(Arc::new(Plan { changes_meaning: true, ..Plan::default() })),
        Bound::Plan(plan) => Some(plan),
        Bound::Elsewhere => {
            let doubts = Aspects::ALL.without(Aspects::PREPARED);
            Some(Arc::new(Plan { doubts, stirs: true, ..Plan::default() }))
        }
    };
    effects::bound(client, portal, plan);
}

/// What is behind a keyword and white space.
fn keyword<'a>(text: &'a [u8], word: &[u8]) -> Option<&'a [u8]> {
    let (first, rest) = text.split_at_checked(word.len())?;
    let behind = rest.trim_ascii_start();
    (first.eq_ignore_ascii_case(word) && (behind.len() < rest.len() || behind.first() == Some(&b'"'))).then_some(behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_deallocated() {
        let name = |sql: &str| {
            deallocated(&[sql.as_bytes(), b"\0"].concat()).map(|n| String::from_utf8_lossy(&n).into_owned())
        };
        assert_eq!(name("DEALLOCATE _pg3_0").as_deref(), Some("_pg3_0"));
        assert_eq!(name(" deallocate prepare  Abc ;").as_deref(), Some("abc"));
        assert_eq!(name("deallocate\"A\"\"b\"").as_deref(), Some("A\"b"));
        assert_eq!(name("deallocate all"), None);
        assert_eq!(name("deallocate a; select 1"), None);
        assert_eq!(name("deallocated"), None);
        assert_eq!(name("deallocate \"a\" b\""), None);
        assert_eq!(name(""), None);
    }
}
