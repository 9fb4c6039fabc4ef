//! Prepared statements: the client's names are put in the place of the server's, and a statement is put on a server before it
//! is used there.
//!
//! A client's Parse of a statement that its server of the moment has already is answered here. One that the server does not
//! have is sent under the name that all clients share. The unnamed statement is treated the same from the second time on that
//! its text is seen; before that it passes as it is, because a text that holds constants comes only once.
//!
//! Rooms: `desk` is what is done to each message, `deallocate` is DEALLOCATE of one of the client's names, `names` puts statements
//! under the client's own names for SQL's EXECUTE, `alone` answers a client that has no server, `learned` is what it answers with.

mod alone;
mod deallocate;
mod desk;
mod learned;
pub(super) mod names;

use super::Core;
use super::behind;
use super::client::Client;
use super::effects;
use super::sequences;
use super::server::Server;
pub(super) use deallocate::forget_all;

use deallocate::{deallocated, forget_nobody};
use desk::{Bound, Desk};
use pgusher_session::ledger::{Event, Given};
use pgusher_session::plan::{Plan, Read, Reading};
use pgusher_session::statements::{Change, Library, Note, Own, Placed, Statement, Unnamed};
use pgusher_session::{Aspects, Pins};
use pgusher_sql::Facts;
use pgusher_wire::frontend;
use pgusher_wire::scan::Head;
use pgusher_wire::{TxStatus, backend};
use std::sync::Arc;

/// A statement with a longer name is not shared: the names of a Bind are looked at as far as this goes for both.
const MAX_SENT_NAME: usize = 900;

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
        let mut settings = c.planning();
        let mut sharing = self.sharing;
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
            now: self.now.0 / 1_000_000,
            bound: Bound::Plain,
            has_sql_names: c.pins.intersects(Pins::PREPARED) || c.doubts.contains(Aspects::PREPARED) || c.unsure,
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
                    // It stays there under the client's own name.
                    desk.keep(head.tag);
                    effects::note(c, s, &Arc::new(Plan::unknown_text(text)));
                    Edit::Replace(0)
                }
            },
            frontend::BIND => {
                desk.wanted = !behind::is_innocent(desk.server, self.now);
                let edit = desk.bind(head);
                let bound = std::mem::replace(&mut desk.bound, Bound::Plain);
                let (wanted, statement) = (desk.wanted, desk.statement.take());
                if edit != Edit::Wait {
                    if wanted && !matches!(bound, Bound::End) {
                        let facts = statement.as_deref().and_then(|statement| facts_of(&mut self.library, statement));
                        behind::of_statement(c, s, self.now, facts.as_deref());
                    }
                    portal_bound(c, s, head, bound);
                }
                edit
            }
            frontend::DESCRIBE => desk.describe(head),
            frontend::CLOSE => {
                let closes_sql = desk.pins.intersects(Pins::PREPARED) && desk.is_of_sql(head);
                let edit = desk.close(head);
                if closes_sql {
                    c.doubts |= Aspects::PREPARED;
                }
                edit
            }
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
                    // Whether there is one, and whether the transaction has failed, is known when the server has answered.
                    Some(name)
                        if s.ledger.owes_ready()
                            && (c.discards || own.get(&name).is_some() || s.shelf.is_open(&name)) =>
                    {
                        return Edit::Wait;
                    }
                    Some(name) if own.get(&name).is_some() && s.ledger.status() != TxStatus::Failed => {
                        names::sweep(s, own, &name, &mut self.patch);
                        own.set(&name, None);
                        forget_nobody(s, &mut self.patch, Change::Nothing);
                        frontend::write_query(&mut self.patch, &[b"DEALLOCATE ", deallocate::NOBODY].concat());
                        Edit::Replace(head.body_len + pgusher_wire::HEADER_LEN)
                    }
                    _ => Edit::Keep,
                }
            }
        };
        let first = match &read {
            Read::Plan(plan) if edit == Edit::Keep && !plan.names.is_empty() => names::look(plan, c.own.as_deref(), s),
            _ => names::First::Nothing,
        };
        if first == names::First::Wait {
            return Edit::Wait;
        }
        // It was turned to a statement of ours.
        let is_another = edit != Edit::Keep;
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
        if !matches!(read, Read::Begin | Read::End) && !is_another && !behind::is_innocent(s, self.now) {
            let reading = effects::reading(c, s, text).filter(|_| head.is_complete());
            let facts = reading.and_then(|reading| self.library.facts(text, reading));
            behind::of_statement(c, s, self.now, facts.as_deref());
        }
        let edit = match &read {
            Read::Plan(plan) if first == names::First::Put => {
                let settings = c.planning();
                let key = |statement: &Statement| statement.key.under(settings);
                names::put_first(plan, c.own.as_deref(), s, key, &mut self.patch);
                Edit::Replace(0)
            }
            _ => edit,
        };
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
        let mut events = std::mem::take(s.ledger.events());
        for event in events.drain(..) {
            let done = matches!(event, Event::Done | Event::Give(_));
            let Some(note) = s.shelf.settle(done) else { continue };
            if matches!(note.change, Change::All { .. }) && !done {
                s.discards_booked = s.discards_booked.saturating_sub(1);
            }
            match event {
                Event::Done => learned::learn(s, &note, self.now),
                Event::Give(Given::Parse) => given.extend_from_slice(&backend::PARSE_COMPLETE_BYTES),
                Event::Give(Given::Close) => given.extend_from_slice(&backend::CLOSE_COMPLETE_BYTES),
                Event::Failed => undone.push((note, true)),
                Event::Undone => undone.push((note, false)),
            }
        }
        // Its memory is used again.
        *s.ledger.events() = events;
        let mut nobody = Own::default();
        let own = c.own.as_deref_mut().unwrap_or(&mut nobody);
        while let Some((note, failed)) = undone.pop() {
            if matches!(note.placed, Placed::Sequences) {
                s.sequences.own = false;
            }
            if let Placed::Swept(name) = &note.placed {
                names::litter(s, name);
            }
            s.shelf.take_back(note, failed, own);
        }
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

/// What a statement names.
pub(super) fn facts_of(library: &mut Library, statement: &Statement) -> Option<Arc<Facts>> {
    // One that is shared was read in the usual way.
    library.facts(statement.tail.split(|b| *b == 0).next()?, Reading::default())
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
