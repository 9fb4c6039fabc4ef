//! LISTEN and NOTIFY without a physical connection of one's own. `hub` has the connection that listens for all; here is what a
//! client sees of it, which is what it would see on a connection of its own (src/backend/commands/async.c).
//!
//! # What is kept
//! * LISTEN and UNLISTEN count at COMMIT and are undone with the transaction. They run on the client's physical connection, so
//!   that tags and errors are the server's own; that connection gets an UNLISTEN * before somebody else has it, and what it
//!   notifies itself is not passed on.
//! * A notification that is committed after a LISTEN is never missed: before a LISTEN goes to the server, the connection that
//!   listens for all has confirmed that it listens. Nor does one from before come: what has arrived by then is forgotten, and
//!   again before each further statement of a transaction that has a LISTEN in it.
//! * Notifications come between transactions only, in front of ReadyForQuery, in the order in which they were committed, and a
//!   transaction's own are among them. So the end of each transaction of a client that listens, from its ReadyForQuery on, is held
//!   back until everything has arrived that was committed before. The client keeps its physical connection meanwhile.
//! * Its own notifications show the process id that it was told as its own, others any that is not. They are told apart by the
//!   process id of its physical connection: nobody else can notify there as long as the client has it. What an earlier client
//!   has notified there must have arrived before this one begins, so its first statement waits for that, unless the earlier one
//!   listened as well.
//! * For the same reason what a client that listens pipelines goes to the server one transaction after the other.
//! * What cannot be delivered is not lost in silence. If the connection that listens for all ends, those that listen are closed
//!   with an error, as a connection of their own would have ended. So are clients with more than [`MAX_UNSENT`] bytes of
//!   notifications that they do not take, or do not end their transaction for.
//!
//! A text that asks which channels the session listens to, or calls what may change them, finds them on its physical connection:
//! they are put there in front of it, and the server is asked for them afterwards. That works outside of a transaction block, for
//! a Query and for a statement that is parsed then.
//!
//! # What is not followed
//! LISTEN in a function or a DO block, in a text that cannot be read, of a channel whose name is not plain ASCII or may have been
//! cut off, or with a client_encoding that is not the database's: the server is asked, and the client keeps its physical
//! connection until UNLISTEN, as it does when no connection that listens for all can be had.

use super::client::{Client, State};
use super::hub::{Note, When, Word, parse};
use super::io::{Bytes, ConnId, Output};
use super::server::{Server, State as ServerState};
use super::{Core, effects};
use pgusher_pool::Seat;
use pgusher_session::listening::Listening;
use pgusher_session::plan::{Plan, Read};
use pgusher_session::{Aspects, Pins};
use pgusher_wire::scan::Head;
use pgusher_wire::{HEADER_LEN, Report, TxStatus, frontend, sqlstate};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// Bytes of notifications that wait for one client, at most.
pub(super) const MAX_UNSENT: usize = 1024 * 1024;
/// Bytes that are held back before the server is no longer read.
const MAX_HELD_BACK: usize = 256 * 1024;
/// Channels of one client that are followed. The others keep it on its server.
const MAX_CHANNELS: usize = 10_000;
/// NAMEDATALEN - 1: names that are longer are cut off.
const MAX_NAME: usize = 62;

/// The local clients of one database that listen, by channel.
pub(super) type Desk = HashMap<Box<str>, Vec<u32>>;

/// What a client has that listens.
#[derive(Debug, Default)]
pub(super) struct Ears {
    pub(super) listening: Listening,
    /// What is listened to on its behalf: its channels, and those that its transaction may make its.
    registered: BTreeSet<Box<str>>,
    /// What it has asked for and not been confirmed.
    asking: Vec<Box<str>>,
    notes: VecDeque<(Arc<Note>, bool)>,
    /// Bytes of `notes`.
    unsent: usize,
    before: Before,
    hold: Option<Hold>,
}

/// Whether a message may go to the server.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Before {
    #[default]
    Nothing,
    /// One waits for an answer.
    Asked,
    /// The answer is there.
    Heard,
}

/// What a client gets when everything has arrived that comes before it.
#[derive(Debug, Default)]
struct Hold {
    bytes: Vec<u8>,
    /// Where in it the next ReadyForQuery is, to which the answer that is awaited says nothing.
    next: Option<usize>,
}

impl Client {
    #[inline]
    pub(super) fn ears(&mut self) -> Option<&mut Ears> {
        self.more.as_mut().and_then(|more| more.ears.as_deref_mut())
    }

    /// Does it listen, or is it about to?
    #[inline]
    pub(super) fn has_ears(&self) -> bool {
        self.more.as_ref().is_some_and(|more| more.ears.is_some())
    }

    /// Is the end of its transaction held back?
    #[inline]
    pub(super) fn is_held_back(&self) -> bool {
        self.more.as_ref().and_then(|more| more.ears.as_deref()).is_some_and(|ears| ears.hold.is_some())
    }

    /// Does a message of its wait until something has been heard?
    pub(super) fn waits_to_hear(&self) -> bool {
        let ears = self.more.as_ref().and_then(|more| more.ears.as_deref());
        ears.is_some_and(|ears| ears.before == Before::Asked)
    }

    /// Is this channel listened to for it elsewhere than on its own server?
    pub(super) fn follows(&self, channel: &str) -> bool {
        let ears = self.more.as_ref().and_then(|more| more.ears.as_deref());
        ears.is_some_and(|ears| ears.registered.contains(channel))
    }
}

/// The name of an encoding, as it can be compared.
pub(super) fn canonical(encoding: &str) -> String {
    let name: String = encoding.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    if name == "unicode" { "utf8".into() } else { name }
}

/// The encoding that a client of this server has that has not chosen one.
pub(super) fn default_encoding(server: &Server) -> String {
    let parameters = server.welcome.as_ref().map_or(&[][..], |welcome| &welcome.parameters);
    let encoding = parameters.iter().find(|(name, _)| name == b"client_encoding");
    encoding.and_then(|(_, value)| std::str::from_utf8(value).ok()).map(canonical).unwrap_or_default()
}

fn can_follow(client: &Client, server: &Server, channel: &str) -> bool {
    let encoding = client.settings.as_ref().and_then(|settings| settings.get("client_encoding"));
    let same = encoding.is_none_or(|encoding| canonical(encoding) == default_encoding(server));
    same && channel.is_ascii() && !channel.is_empty() && channel.len() <= MAX_NAME
}

impl Core {
    /// A statement is about to be sent. Must it wait until something has been heard, or is listened to?
    #[inline]
    pub(super) fn must_hear(&mut self, client: u32, server: u32, plan: Option<&Plan>) -> bool {
        let Some(c) = self.clients.get(client as usize) else { return false };
        if !c.has_ears() && plan.is_none_or(|plan| plan.channels.is_empty()) {
            return false;
        }
        self.must_hear_first(client, server, plan)
    }

    fn must_hear_first(&mut self, client: u32, server: u32, plan: Option<&Plan>) -> bool {
        let seat = self.client_seat(client);
        let (Some(c), Some(s)) = (self.clients.get_mut(client as usize), self.servers.get_mut(server as usize)) else {
            return false;
        };
        if c.has_ears() && s.ledger.owes_ready() && !self.draining {
            // What it notifies itself comes with the replies to this message and not with those before.
            return true;
        }
        let wanted: Vec<Box<str>> = plan.map_or(&[][..], |plan| &plan.channels).to_vec();
        let followed = wanted.into_iter().filter(|channel| can_follow(c, s, channel)).collect::<Vec<_>>();
        if self.draining || (!c.has_ears() && (followed.is_empty() || c.pins.intersects(Pins::LISTEN))) {
            return false;
        }
        let database = s.pool.database.clone();
        let pool = s.pool.clone();
        let more = c.more();
        let ears = more.ears.get_or_insert_default();
        if ears.before == Before::Heard {
            ears.before = Before::Nothing;
            return false;
        }
        let mut channels: Vec<Box<str>> = followed.into_iter().filter(|c| !ears.registered.contains(c)).collect();
        channels.sort();
        channels.dedup();
        channels.truncate(MAX_CHANNELS.saturating_sub(ears.registered.len()));
        if channels.is_empty() && !ears.listening.is_pending() && !s.unheard {
            if ears.registered.is_empty() {
                more.ears = None;
            }
            return false;
        }
        ears.before = Before::Asked;
        ears.asking.clone_from(&channels);
        ears.registered.extend(channels.iter().cloned());
        let desk = self.desks.entry(database.clone()).or_default();
        for channel in &channels {
            desk.entry(channel.clone()).or_default().push(client);
        }
        let home = self.home_of(&database);
        self.tell(home, Word::Ask { pool, client: seat, when: When::Before, channels });
        true
    }

    /// The same, for an Execute or a FunctionCall.
    #[inline]
    pub(super) fn must_hear_call(&mut self, client: u32, server: u32, head: &Head<'_>) -> bool {
        let Some(more) = self.clients.get(client as usize).and_then(|c| c.more.as_ref()) else { return false };
        if self.servers.get(server as usize).is_none_or(|s| s.ledger.is_discarding()) {
            return false;
        }
        let plan = if head.tag == frontend::EXECUTE && !more.portals.is_empty() {
            let portal = head.body.split(|b| *b == 0).next().unwrap_or_default();
            more.portals.get(portal).cloned()
        } else {
            None
        };
        self.must_hear(client, server, plan.as_deref())
    }

    /// A text is about to be sent that asks which channels the session listens to, or that may change them in a way that only
    /// the server can tell. Then its server gets them first: what is to be sent in front is in `patch`.
    pub(super) fn puts_channels(&mut self, client: u32, server: u32, head: &Head<'_>) -> bool {
        let (Some(c), Some(s)) = (self.clients.get_mut(client as usize), self.servers.get_mut(server as usize)) else {
            return false;
        };
        if !c.has_ears() || s.has_channels || !s.ledger.is_clean_but_for_own() {
            return false;
        }
        let text = match head.tag {
            frontend::QUERY => head.body.strip_suffix(b"\0").unwrap_or(head.body),
            frontend::PARSE => head.body.split(|b| *b == 0).nth(1).unwrap_or_default(),
            _ => return false,
        };
        let due = !head.is_complete() || memchr::memmem::find(text, b"pg_listening_channels").is_some() || {
            match effects::read(&mut self.library, c, s, text) {
                Read::Plan(plan) => may_change(s, &plan),
                Read::Plain { advances: _ } | Read::Begin | Read::End => false,
            }
        };
        let Some(ears) = c.ears().filter(|ears| due && !ears.listening.channels().is_empty()) else { return false };
        let mut sql = String::new();
        for channel in ears.listening.channels() {
            sql.push_str(&format!("LISTEN \"{}\";", channel.replace('"', "\"\"")));
        }
        s.listens = true;
        s.has_channels = true;
        s.shelf.set_unnamed(None);
        s.ledger.own(false);
        frontend::write_query(&mut self.patch, sql.as_bytes());
        true
    }

    /// A transaction of this client's is over, and its ReadyForQuery is about to go to it: what has been sent so far ends right
    /// before it.
    pub(super) fn hold_back(&mut self, client: u32, server: u32) {
        let seat = self.client_seat(client);
        let draining = self.draining;
        let (Some(c), Some(s)) = (self.clients.get_mut(client as usize), self.servers.get(server as usize)) else {
            return;
        };
        let pool = s.pool.clone();
        let Some(ears) = c.ears() else { return };
        if let Some(hold) = &mut ears.hold {
            hold.next.get_or_insert(hold.bytes.len());
            return;
        }
        if draining {
            return self.send_notes(client);
        }
        if ears.listening.channels().is_empty() {
            return self.prune(client);
        }
        ears.hold = Some(Hold::default());
        self.holding += 1;
        let home = self.home_of(&pool.database);
        self.tell(home, Word::Ask { pool, client: seat, when: When::After, channels: Vec::new() });
    }

    /// Keeps what is sent to a client if it is held back. `false`: it is not.
    #[cold]
    pub(super) fn keep_back(&mut self, client: u32, parts: [&[u8]; 2]) -> bool {
        let Some(c) = self.clients.get_mut(client as usize) else { return false };
        let state = match c.state {
            State::Seated { server } => Some(server),
            _ => None,
        };
        let Some(hold) = c.ears().and_then(|ears| ears.hold.as_mut()) else { return false };
        for part in parts {
            hold.bytes.extend_from_slice(part);
        }
        if let (true, Some(server)) = (hold.bytes.len() > MAX_HELD_BACK, state) {
            self.out.push_back(Output::Pause(ConnId::Server(server)));
        }
        true
    }

    /// What was to be heard has arrived.
    pub(super) fn heard(&mut self, seat: Seat, when: When, done: bool) {
        if self.client_in(seat).is_none() {
            return;
        }
        match when {
            When::Before => self.heard_before(seat.slot, done),
            When::After => self.heard_after(seat.slot, done),
        }
    }

    fn heard_before(&mut self, slot: u32, done: bool) {
        let Some(c) = self.clients.get_mut(slot as usize) else { return };
        let state = match c.state {
            State::Seated { server } => Some(server),
            _ => None,
        };
        let Some(ears) = c.ears().filter(|ears| ears.before == Before::Asked) else { return };
        ears.before = Before::Heard;
        // Those of channels that it does not listen to yet were committed before it did.
        ears.forget_others();
        let asking = std::mem::take(&mut ears.asking);
        if !done {
            self.unregister(slot, &asking);
        }
        let Some(server) = state else { return };
        if let Some(s) = self.servers.get_mut(server as usize).filter(|_| done) {
            s.unheard = false;
        }
        self.settled(server, slot);
    }

    fn heard_after(&mut self, slot: u32, done: bool) {
        let seat = self.client_seat(slot);
        let Some(c) = self.clients.get_mut(slot as usize) else { return };
        if !c.is_held_back() {
            return;
        }
        if !done {
            return self.refuse(slot, &deaf());
        }
        self.send_notes(slot);
        let Some(c) = self.clients.get_mut(slot as usize) else { return };
        let (state, blocked) = (&c.state, c.blocked);
        let server = if let State::Seated { server } = state { Some(*server) } else { None };
        let Some(hold) = c.ears().and_then(|ears| ears.hold.as_mut()) else { return };
        if let Some(next) = hold.next.take() {
            let rest = hold.bytes.split_off(next.min(hold.bytes.len()));
            let first = std::mem::replace(&mut hold.bytes, rest);
            self.push(slot, first);
            if let Some(pool) = self.clients.get(slot as usize).and_then(|c| c.pool.clone()) {
                let home = self.home_of(&pool.database);
                self.tell(home, Word::Ask { pool, client: seat, when: When::After, channels: Vec::new() });
            }
            return;
        }
        self.let_go(slot);
        if let Some(server) = server {
            if let Some(s) = self.servers.get_mut(server as usize) {
                s.unheard = false;
            }
            if !blocked {
                self.out.push_back(Output::Resume(ConnId::Server(server)));
            }
        }
        self.prune(slot);
        if let (true, Some(server)) = (self.clients.get(slot as usize).is_some_and(|c| c.settling), server) {
            self.settled(server, slot);
        }
        self.part_if_done(slot);
    }

    /// What is held back goes to the client.
    pub(super) fn let_go(&mut self, slot: u32) {
        let Some(c) = self.clients.get_mut(slot as usize) else { return };
        if let Some(hold) = c.ears().and_then(|ears| ears.hold.take()) {
            self.holding = self.holding.saturating_sub(1);
            self.push(slot, hold.bytes);
        }
    }

    fn push(&mut self, slot: u32, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.out.push_back(Output::Send { to: ConnId::Client(slot), bytes: Bytes::Owned(bytes) });
        }
    }

    /// The transaction is over: what it has not made the client's is no longer listened to.
    pub(super) fn prune(&mut self, slot: u32) {
        let Some(c) = self.clients.get_mut(slot as usize) else { return };
        if let State::Seated { server } = c.state {
            if self.servers.get(server as usize).is_some_and(|s| !s.ledger.is_clean()) {
                return;
            }
        }
        let Some(c) = self.clients.get_mut(slot as usize) else { return };
        let Some(ears) = c.ears() else { return };
        if ears.before != Before::Nothing || ears.hold.is_some() || ears.listening.is_pending() {
            return;
        }
        ears.forget_others();
        let unneeded: Vec<Box<str>> = ears.registered.difference(ears.listening.channels()).cloned().collect();
        if ears.listening.channels().is_empty() {
            if let Some(more) = c.more.as_mut() {
                more.ears = None;
            }
        }
        if !unneeded.is_empty() {
            self.unregister(slot, &unneeded);
        }
    }

    /// These are no longer listened to for this client.
    fn unregister(&mut self, slot: u32, channels: &[Box<str>]) {
        let Some(c) = self.clients.get_mut(slot as usize) else { return };
        let Some(pool) = c.pool.clone() else { return };
        if let Some(ears) = c.ears() {
            for channel in channels {
                ears.registered.remove(channel);
            }
        }
        self.leave_desk(slot, &pool.database, channels.iter());
    }

    fn leave_desk<'a>(&mut self, slot: u32, database: &str, channels: impl Iterator<Item = &'a Box<str>>) {
        let (home, me) = (self.home_of(database), self.me);
        for channel in channels {
            let Some(desk) = self.desks.get_mut(database) else { return };
            let Some(clients) = desk.get_mut(channel) else { continue };
            clients.retain(|client| *client != slot);
            if clients.is_empty() {
                desk.remove(channel);
                if desk.is_empty() {
                    self.desks.remove(database);
                }
                let word = Word::Drop { database: database.into(), worker: me, channel: channel.clone() };
                self.tell(home, word);
            }
        }
    }

    /// A client is about to be gone.
    pub(super) fn stop_hearing(&mut self, slot: u32) {
        self.let_go(slot);
        let Some(c) = self.clients.get_mut(slot as usize) else { return };
        let Some(ears) = c.more.as_mut().and_then(|more| more.ears.take()) else { return };
        if let Some(pool) = c.pool.clone() {
            self.leave_desk(slot, &pool.database, ears.registered.iter());
        }
    }

    /// Somebody has notified.
    pub(super) fn notified(&mut self, database: &str, note: &Arc<Note>) {
        let Some(slots) = self.desks.get(database).and_then(|desk| desk.get(&note.channel)) else { return };
        for slot in slots.clone() {
            self.note(slot, note);
        }
    }

    fn note(&mut self, slot: u32, note: &Arc<Note>) {
        let Some(c) = self.clients.get_mut(slot as usize) else { return };
        let own = match c.state {
            State::Seated { server } => {
                self.servers.get(server as usize).is_some_and(|s| s.pid == note.pid && !s.unheard)
            }
            _ => false,
        };
        let Some(ears) = c.ears() else { return };
        ears.unsent += note.message.len();
        ears.notes.push_back((note.clone(), own));
        let unsent = ears.unsent;
        self.send_notes_at_rest(slot);
        if unsent > MAX_UNSENT
            && self.clients.get_mut(slot as usize).and_then(Client::ears).is_some_and(|e| e.unsent > MAX_UNSENT)
        {
            let report = Report::fatal(
                sqlstate::PROGRAM_LIMIT_EXCEEDED,
                format!("more than {MAX_UNSENT} bytes of notifications wait for this client"),
            )
            .detail("It does not read what it is sent, or its transaction takes too long.")
            .hint("Connect again, LISTEN again, and look at what the notifications were about.");
            self.refuse(slot, &report);
        }
    }

    /// Sends a client its notifications if it is between transactions and takes them.
    pub(super) fn send_notes_at_rest(&mut self, slot: u32) {
        let Some(c) = self.clients.get(slot as usize) else { return };
        // A message that waits has begun, as far as the client can tell.
        if c.blocked || !c.has_ears() || c.is_held_back() || !c.pending.is_empty() {
            return;
        }
        let at_rest = match c.state {
            State::Idle | State::Waiting { .. } | State::Promised { .. } => true,
            State::Seated { server } => self.servers.get(server as usize).is_some_and(|s| match s.state {
                ServerState::Seated { .. } => s.ledger.is_clean() && s.scanner.at_boundary() && s.held.is_empty(),
                // The client's message has not been sent yet, or has been answered.
                ServerState::Replaying { .. } | ServerState::Auditing { .. } | ServerState::Knowing(_) => {
                    s.ledger.status() == TxStatus::Idle
                }
                _ => false,
            }),
            _ => false,
        };
        if at_rest {
            self.send_notes(slot);
        }
    }

    fn send_notes(&mut self, slot: u32) {
        let pid = self.cancel_pid(slot);
        let Some(c) = self.clients.get_mut(slot as usize) else { return };
        let chosen = c.settings.as_ref().and_then(|settings| settings.get("client_encoding")).map(canonical);
        let Some(ears) = c.ears() else { return };
        let mut out = Vec::new();
        let mut unreadable = false;
        ears.unsent = 0;
        for (note, own) in std::mem::take(&mut ears.notes) {
            if !ears.listening.hears(&note.channel) {
                continue;
            }
            if let (Some(encoding), Some(chosen)) = (&note.encoding, &chosen) {
                unreadable |= **encoding != **chosen;
            }
            let shown = match (own, note.pid == pid) {
                (true, _) => pid,
                (false, true) => pid.wrapping_add(1),
                (false, false) => note.pid,
            };
            let (head, rest) = note.message.split_at(HEADER_LEN.min(note.message.len()));
            out.extend_from_slice(head);
            out.extend_from_slice(&shown.to_be_bytes());
            out.extend_from_slice(rest.get(4..).unwrap_or_default());
        }
        if unreadable {
            let report = Report::fatal(
                sqlstate::FEATURE_NOT_SUPPORTED,
                "a notification came that cannot be converted to this session's client_encoding",
            )
            .hint("Set client_encoding when connecting, or before LISTEN.");
            return self.refuse(slot, &report);
        }
        self.push(slot, out);
    }

    /// The connection that listened for all clients of a database is gone.
    pub(super) fn deafened(&mut self, database: &str) {
        let Some(desk) = self.desks.get(database) else { return };
        let mut slots: Vec<u32> = desk.values().flatten().copied().collect();
        slots.sort_unstable();
        slots.dedup();
        for slot in slots {
            let Some(ears) = self.clients.get_mut(slot as usize).and_then(Client::ears) else { continue };
            let only_asks = ears.before == Before::Asked && ears.registered.len() == ears.asking.len();
            // One that only asks is answered, and goes on without.
            if !only_asks || ears.hold.is_some() {
                self.refuse(slot, &deaf());
            }
        }
    }

    /// The manager shuts down: nobody answers any more.
    pub(super) fn stop_holding(&mut self) {
        let slots: Vec<u32> = self.clients.iter().filter(|(_, c)| c.has_ears()).map(|(slot, _)| slot as u32).collect();
        for slot in slots {
            if self.clients.get(slot as usize).is_some_and(Client::waits_to_hear) {
                self.heard_before(slot, false);
            }
            if self.clients.get(slot as usize).is_some_and(Client::is_held_back) {
                self.send_notes(slot);
                self.let_go(slot);
                if let Some(State::Seated { server }) = self.clients.get(slot as usize).map(|c| &c.state) {
                    let server = *server;
                    self.out.push_back(Output::Resume(ConnId::Server(server)));
                    self.settled(server, slot);
                }
            }
        }
    }
}

impl Ears {
    /// Forgets notifications of channels that are not listened to.
    fn forget_others(&mut self) {
        let listening = &self.listening;
        self.notes.retain(|(note, _)| listening.hears(&note.channel));
        self.unsent = self.notes.iter().map(|(note, _)| note.message.len()).sum();
    }
}

/// Does a notification of a client's own server come to the client from elsewhere?
pub(super) fn comes_from_elsewhere(client: Option<&Client>, body: &[u8]) -> bool {
    client.is_some_and(|c| c.has_ears() && parse(body).is_some_and(|(_, channel)| c.follows(channel)))
}

/// Channels that are about to be listened to. `false`: some of them are not followed, and the server has to be asked.
pub(super) fn noted(client: &Client, server: &mut Server, plan: &Plan) -> bool {
    if plan.channels.is_empty() {
        return true;
    }
    server.listens = true;
    plan.channels.iter().all(|channel| client.follows(channel))
}

/// May a text change the session's channels in a way that is not followed?
fn may_change(server: &Server, plan: &Plan) -> bool {
    let known = |name: &str| {
        let routine = server.pool.routine(name);
        routine.is_some_and(|routine| !routine.doubts.contains(Aspects::CHANNELS) && routine.calls.is_empty())
    };
    plan.doubts.contains(Aspects::CHANNELS) || !plan.functions.iter().all(|name| known(name))
}

/// The server was asked which channels it listens to. If it had all of the client's before, they are those that it has now.
/// Whether it has others.
pub(super) fn adopt(client: &mut Client, server: &Server, found: &[String]) -> bool {
    let Some(ears) = client.ears() else { return !found.is_empty() };
    if server.has_channels {
        ears.listening.retain(|channel| found.iter().any(|other| **other == *channel));
    }
    found.iter().any(|channel| !ears.listening.hears(channel))
}

/// A statement with this action has completed.
pub(super) fn act(client: &mut Client, action: &pgusher_session::plan::Action) {
    use pgusher_session::plan::Action;
    let Some(ears) = client.ears() else { return };
    match action {
        Action::Listen(channel) if !ears.registered.contains(channel) => {}
        action => ears.listening.act(action),
    }
}

fn deaf() -> Report {
    Report::fatal(sqlstate::CONNECTION_FAILURE, "the connection that listens for this session was lost")
        .detail("Notifications may have been missed. pgusher listens for all clients of a database on one connection to the server.")
        .hint("Connect again, LISTEN again, and look at what the notifications were about.")
}
