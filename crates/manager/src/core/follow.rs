//! Queries of several clients under way on one physical connection.
//!
//! Where no physical connection is free, a client need not wait until one is, if its query is one that reads only and takes little
//! time: its batch is sent behind that of another client, its leader, which is of the same kind. The backend finds it in its
//! socket as soon as it has answered the leader. It does not go to sleep in between, nobody has to wake it, and neither waits
//! for the worker.
//!
//! What makes that invisible:
//!
//! * Only batches of Bind, Describe and Execute of one statement, with or without its Parse, and Sync: each is a transaction of its
//!   own, and an error in it ends with it. Only statements that the server has prepared, under equal settings.
//! * Only statements that may run twice without anybody being able to tell, whatever functions, views and policies there are
//!   ([`behind::may_repeat`]). So a batch can be sent again elsewhere when something comes between: the leader's client leaves it
//!   with the connection in doubt, the connection is lost, a cancel request may hit the wrong statement, or the leader takes
//!   longer than expected ([`PATIENCE`]). The replies to the first one are nobody's then.
//! * The ledger is the leader's alone. A follower's messages are booked when the leader's ReadyForQuery has come and the connection
//!   is the follower's. The leader is not read until then.
//! * Batches whose clients have gone, or gone elsewhere, are strays. The leader leaves them behind when it has been answered, and
//!   they are left to run out on a connection that is nobody's, for a second (`strays`). Nothing of its own is ever sent behind one: it
//!   would wait for locks of others, and its cancel request could come late.
//! * Nobody is overtaken: clients follow only while nobody waits in the queue, or from its front.

use super::Core;
use super::behind;
use super::client::{self, Client, Discard, State};
use super::effects;
use super::io::{Bytes, ConnId, Output};
use super::sequences::Memory;
use super::server::{Server, State as ServerState};
use super::statements::facts_of;
use crate::shared::PoolEntry;
use pgusher_pool::{Micros, Seat};
use pgusher_session::ledger::{Given, Mark};
use pgusher_session::plan::Reading;
use pgusher_session::statements::{Key, Placed, Presence, Statement, Unnamed};
use pgusher_wire::{Frame, HEADER_LEN, TxStatus, frontend};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A leader that takes longer is left by its followers.
pub const PATIENCE: Duration = Duration::from_millis(20);
/// A statement takes little time if each run, of the last few, took no longer than this.
const QUICK: Duration = Duration::from_millis(5);
/// So many runs.
const QUICK_RUNS: u8 = 8;
/// Followers of one leader at most.
const MAX_FOLLOWERS: usize = 8;
/// Statements whose pace is known.
const MAX_PACES: usize = 10_000;
/// Leaders that are looked at for one follower.
const MAX_LOOKED_AT: usize = 16;

/// A statement in a database.
type Id = (Key, usize);

/// What a worker knows of clients that may follow others.
#[derive(Debug, Default)]
pub(super) struct Following {
    /// Followers that there are, those that have gone included.
    pub(super) count: usize,
    paces: HashMap<Id, Pace>,
    /// Servers with a leader; some have none any more.
    leaders: VecDeque<Seat>,
}

/// What is known of a statement.
#[derive(Debug, Default)]
struct Pace {
    /// Quick runs in a row.
    quick: u8,
    /// It may be run twice, by the knowledge of the definitions with this serial number.
    repeats: bool,
    judged_by: u64,
}

/// The batch of a server's client.
#[derive(Debug)]
pub(super) struct Lead {
    id: Id,
    since: Micros,
    /// Others may be sent behind it.
    quick: bool,
}

/// A batch that was sent behind another client's.
#[derive(Debug)]
pub(super) struct Follower {
    /// `None`: the replies are nobody's any more.
    pub(super) client: Option<Seat>,
    /// What the client sent.
    pub(super) bytes: Vec<u8>,
    /// When it has begun to wait.
    pub(super) since: Micros,
    batch: Batch,
}

/// One statement, bound, executed and synced, and nothing else.
#[derive(Debug, Clone)]
pub(super) struct Batch {
    statement: Arc<Statement>,
    id: Id,
    /// It begins with the Parse of the unnamed statement.
    parses: bool,
    /// The portal is described.
    describes: bool,
    /// Where the Bind begins, and the length of the statement's name in it.
    bind: (usize, usize),
    /// The statement has been quick.
    quick: bool,
    /// Changes of definitions that had been seen.
    changes: u32,
}

/// What a client's messages are to the server that it has.
pub(super) enum Leads {
    /// Others follow it: they are kept.
    Held,
    /// Others may follow when they have been sent.
    With(Batch),
    /// Nothing.
    No,
}

/// Where a client's batch goes.
pub(super) enum Place {
    /// To this server.
    Server(u32),
    /// It was sent behind another one.
    Followed,
}

impl Core {
    /// Are there clients whose batches were sent behind others? They have to be [looked after](Self::look_after_followers).
    #[inline]
    pub fn has_followers(&self) -> bool {
        self.follows.as_ref().is_some_and(|follows| follows.count > 0)
    }

    /// Followers of those that take longer than [`PATIENCE`] go elsewhere. To be called about as often.
    pub fn look_after_followers(&mut self) {
        let late = |s: &Server| !s.followers.is_empty() && self.now.since(s.handed) > PATIENCE;
        let late: Vec<u32> = self.servers.iter().filter(|(_, s)| late(s)).map(|(slot, _)| slot as u32).collect();
        for server in late {
            self.disband(server);
        }
    }

    /// A client that may have a server has sent something.
    #[inline]
    pub(super) fn leads_with(&mut self, slot: u32, buf: &[u8]) -> Leads {
        let Some(c) = self.clients.get_mut(slot as usize) else { return Leads::No };
        let State::Seated { server } = c.state else { return Leads::No };
        let Some(s) = self.servers.get_mut(server as usize) else { return Leads::No };
        if s.strays || !s.followers.is_empty() {
            c.pending.extend_from_slice(buf);
            self.pause(slot);
            return Leads::Held;
        }
        // If there was a batch, it is no longer the last.
        if s.lead.take().is_some() || !matches!(s.state, ServerState::Seated { .. }) || !s.ledger.is_clean() {
            return Leads::No;
        }
        self.quick_read(slot, buf).map_or(Leads::No, Leads::With)
    }

    /// Are these messages one batch that may follow, or lead, once its statement has been quick for a while?
    pub(super) fn quick_read(&mut self, slot: u32, buf: &[u8]) -> Option<Batch> {
        self.follows.as_ref()?;
        let c = self.clients.get(slot as usize).filter(|c| is_plain(c))?;
        let pool = c.pool.as_ref()?;
        let mut at = 0;
        let mut next = || {
            let (frame, used) = Frame::parse(buf.get(at..)?).ok()??;
            at += used;
            Some((frame, at - used))
        };
        let (mut frame, mut start) = next()?;
        let mut parsed = None;
        if frame.tag == frontend::PARSE {
            let tail = frame.body.strip_prefix(b"\0")?;
            let text = tail.split(|b| *b == 0).next()?;
            if effects::reading_in(c, pool, text) != Some(Reading::default()) {
                return None;
            }
            parsed = Some(self.library.kept(tail)?.clone());
            (frame, start) = next()?;
        }
        let name = frame.body.strip_prefix(b"\0").filter(|_| frame.tag == frontend::BIND)?;
        let name = name.get(..memchr::memchr(0, name)?)?;
        let bind = (start, name.len());
        let parses = parsed.is_some();
        let statement = match parsed {
            Some(statement) => name.is_empty().then_some(statement)?,
            None => c.own.as_ref()?.find(name)?.clone(),
        };
        if statement.plan.is_some() || statement.ends || statement.advances {
            return None;
        }
        (frame, _) = next()?;
        let describes = frame.tag == frontend::DESCRIBE;
        if describes {
            if frame.body != b"P\0" {
                return None;
            }
            (frame, _) = next()?;
        }
        // The unnamed portal, all rows.
        if (frame.tag, frame.body) != (frontend::EXECUTE, &[0; 5]) || next()?.0.tag != frontend::SYNC || at != buf.len()
        {
            return None;
        }
        let changes = pool.definition_changes();
        let id = (statement.key, pool.database_id());
        let pool = pool.clone();
        let quick = self.pace_of(&pool, &statement, id)?;
        Some(Batch { statement, id, parses, describes, bind, quick, changes })
    }

    /// Has the statement been quick? `None`: it must not be run twice.
    fn pace_of(&mut self, pool: &PoolEntry, statement: &Statement, id: Id) -> Option<bool> {
        let taken = pool.definitions(self.now)?;
        let follows = self.follows.as_mut()?;
        if follows.paces.len() > MAX_PACES {
            follows.paces.clear();
        }
        let pace = follows.paces.entry(id).or_default();
        if pace.judged_by != taken.serial {
            let facts = facts_of(&mut self.library, statement);
            pace.repeats = facts.is_some_and(|facts| behind::may_repeat(&taken.knowledge, &facts));
            pace.judged_by = taken.serial;
        }
        pace.repeats.then_some(pace.quick >= QUICK_RUNS)
    }

    /// As [`want_server`](Self::want_server), for a client that may follow another. `buf` is its batch.
    pub(super) fn want_server_or_follow(&mut self, slot: u32, batch: &Batch, buf: &[u8]) -> Option<Place> {
        let seat = self.client_seat(slot);
        let pool = self.clients.get(slot as usize)?.pool.clone()?;
        if batch.quick {
            match pool.seats.acquire_or_follow(seat, self.now) {
                Some(acquired) => return self.acquired(slot, &pool, acquired, false).map(Place::Server),
                None => {
                    if let Some(server) = self.find_leader(slot, batch, &pool) {
                        self.follow(slot, server, batch, buf, self.now);
                        return Some(Place::Followed);
                    }
                }
            }
        }
        self.want_server(slot, false).map(Place::Server)
    }

    /// A client's batch, and nothing else, is under way on its server. Clients at the front of the queue may follow it.
    pub(super) fn lead(&mut self, slot: u32, server: u32, batch: &Batch) {
        let seated = |c: &Client| matches!(c.state, State::Seated { server: other } if other == server);
        let here = self.clients.get(slot as usize).is_some_and(seated);
        let Some(s) = self.servers.get_mut(server as usize).filter(|s| here && s.ledger.owes_ready()) else { return };
        s.lead = Some(Lead { id: batch.id, since: self.now, quick: batch.quick });
        s.handed = self.now;
        let pool = s.pool.clone();
        self.is_leader(server);
        if !batch.quick {
            return;
        }
        while let Some((seat, ticket, since)) = pool.seats.head(self.me) {
            let waits = |c: &&mut Client| matches!(c.state, State::Waiting { login: false, .. });
            let Some(bytes) = self.client_in(seat).filter(waits).map(|c| c.pending.clone()) else { return };
            let Some(batch) = self.quick_read(seat.slot, &bytes).filter(|batch| batch.quick) else { return };
            if !self.may_follow(seat.slot, server, &batch) || !pool.seats.leave(seat, ticket) {
                return;
            }
            if let Some(c) = self.client_in(seat) {
                c.pending = Vec::new();
            }
            self.follow(seat.slot, server, &batch, &bytes, since);
        }
    }

    fn is_leader(&mut self, server: u32) {
        let seat = self.server_seat(server);
        let (Some(s), Some(follows)) = (self.servers.get_mut(server as usize), self.follows.as_mut()) else { return };
        if !s.lead.as_ref().is_some_and(|lead| lead.quick) || std::mem::replace(&mut s.lined_up, true) {
            return;
        }
        follows.leaders.push_back(seat);
        if follows.leaders.len() > 2 * self.servers.len() {
            // Some have been closed.
            let here = |seat: &Seat| self.servers.get(seat.slot as usize).is_some_and(|s| s.serial == seat.serial);
            follows.leaders.retain(here);
        }
    }

    /// A server behind whose client's batch this one may be sent. They take turns.
    fn find_leader(&mut self, slot: u32, batch: &Batch, pool: &Arc<PoolEntry>) -> Option<u32> {
        for _ in 0..MAX_LOOKED_AT {
            let seat = self.follows.as_mut()?.leaders.pop_front()?;
            let Some(s) = self.servers.get_mut(seat.slot as usize).filter(|s| s.serial == seat.serial) else {
                continue;
            };
            if s.lead.is_none() {
                s.lined_up = false;
                continue;
            }
            let found = Arc::ptr_eq(&s.pool, pool) && self.may_follow(slot, seat.slot, batch);
            self.follows.as_mut()?.leaders.push_back(seat);
            if found {
                return Some(seat.slot);
            }
        }
        None
    }

    fn may_follow(&mut self, slot: u32, server: u32, batch: &Batch) -> bool {
        let due = self.servers.get(server as usize).is_none_or(|s| self.is_due(s));
        let (Some(c), Some(s)) = (self.clients.get(slot as usize), self.servers.get_mut(server as usize)) else {
            return false;
        };
        let ServerState::Seated { client: leader } = s.state else { return false };
        let key = batch.statement.key.under(c.planning());
        let version = s.pool.catalog_version();
        // What the leader is bound to is looked at again when its ReadyForQuery is there.
        !due && !self.draining
            && s.lead.as_ref().is_some_and(|lead| lead.quick && self.now.since(lead.since) <= QUICK)
            && s.followers.len() < MAX_FOLLOWERS
            && c.settings.as_ref().is_some_and(|settings| s.settings.same(settings))
            && s.ledger.status() == TxStatus::Idle
            && !(s.ledger.is_discarding() || s.ledger.reads_copy() || s.blocked || s.strays)
            && is_undisturbed(s)
            && s.shelf.look(key, version) == Presence::Here
            && self.clients.get(leader as usize).is_some_and(|c| is_plain(c) && c.pending.is_empty())
    }

    /// Sends a client's batch behind that of the server's client. It has waited since then.
    fn follow(&mut self, slot: u32, server: u32, batch: &Batch, buf: &[u8], since: Micros) {
        let seat = self.client_seat(slot);
        let (Some(c), Some(s)) = (self.clients.get_mut(slot as usize), self.servers.get_mut(server as usize)) else {
            return;
        };
        let name = batch.statement.key.under(c.planning()).name();
        let (start, named) = batch.bind;
        let Some(Ok(Some((bind, _)))) = buf.get(start..).map(Frame::parse) else { return };
        let begin = self.composed.len();
        // Type, length, the unnamed portal.
        self.composed.push(frontend::BIND);
        let length = u32::try_from(4 + bind.body.len() - named + name.len()).unwrap_or(u32::MAX);
        self.composed.extend_from_slice(&length.to_be_bytes());
        self.composed.push(0);
        self.composed.extend_from_slice(&name);
        self.composed.extend_from_slice(buf.get(start + HEADER_LEN + 1 + named..).unwrap_or_default());
        let bytes = Bytes::Composed(begin..self.composed.len());
        c.state = State::Following { server };
        c.scanner = pgusher_wire::scan::Scanner::new();
        s.followers.push_back(Follower { client: Some(seat), bytes: buf.to_vec(), batch: batch.clone(), since });
        let leader = s.state.client();
        if let Some(follows) = self.follows.as_mut() {
            follows.count += 1;
        }
        self.shared.followed.fetch_add(1, Ordering::Relaxed);
        self.out.push_back(Output::Send { to: ConnId::Server(server), bytes });
        self.pause(slot);
        if let Some(leader) = leader {
            self.pause(leader);
        }
    }

    /// A ReadyForQuery has come from a server. Is it to be handed over to a follower, or left to strays?
    pub(super) fn lap(&mut self, server: u32) -> bool {
        let Some(s) = self.servers.get_mut(server as usize) else { return false };
        if s.ledger.is_clean() && std::mem::take(&mut s.strays) {
            // Its client had to stay until they were over.
            let leader = s.state.client();
            self.resume_later(leader);
            return false;
        }
        let answered = |s: &&mut Server| s.ledger.is_clean() || (s.strays && s.ledger.is_clean_but_for_own());
        let Some(s) = self.servers.get_mut(server as usize).filter(answered) else { return false };
        let lead = s.lead.take();
        let goes_on = s.strays || !s.followers.is_empty();
        self.note_pace(lead);
        goes_on
    }

    /// A batch is over, or its end is not waited for any longer.
    pub(super) fn note_pace(&mut self, lead: Option<Lead>) {
        let (Some(lead), Some(follows)) = (lead, self.follows.as_mut()) else { return };
        if let Some(pace) = follows.paces.get_mut(&lead.id) {
            let quick = self.now.since(lead.since) <= QUICK;
            pace.quick = if quick { pace.quick.saturating_add(1) } else { 0 };
        }
    }

    pub(super) fn resume_later(&mut self, client: Option<u32>) {
        if let Some(client) = client {
            let seat = self.client_seat(client);
            self.resumes.push_back(seat);
        }
    }

    /// The transaction of the server's client is over, and others follow it, or strays do. Returns whose replies come next; `None`:
    /// they are nobody's.
    pub(super) fn hand_over(&mut self, server: u32, leader: u32) -> Option<u32> {
        let draining = self.draining;
        let (Some(c), Some(s)) = (self.clients.get_mut(leader as usize), self.servers.get_mut(server as usize)) else {
            return None;
        };
        let unchanged = s.judged.is_none_or(|changes| changes == s.pool.definition_changes());
        let leaves = unchanged && !draining && is_plain(c) && !c.counted && c.scanner.at_boundary() && is_unchanged(s);
        let follows = leaves && !s.strays && is_undisturbed(s);
        let next = s.followers.front().and_then(|next| next.client);
        let Some(follower) = next.filter(|seat| follows && self.client_in(*seat).is_some()) else {
            self.disband(server);
            if leaves {
                self.leave_to_strays(server, leader);
            } else if draining {
                self.refuse(leader, &client::draining());
            } else {
                return Some(leader);
            }
            return None;
        };
        let next = self.servers.get_mut(server as usize)?.followers.pop_front()?;
        if let Some(follows) = self.follows.as_mut() {
            follows.count -= 1;
        }
        if let Some(c) = self.clients.get_mut(leader as usize) {
            c.state = State::Idle;
            c.since = self.now;
        }
        self.resume_later(Some(leader));
        self.seat_follower(server, follower.slot, next.batch);
        Some(follower.slot)
    }

    /// A follower gets the server that has its batch already: what was sent is booked.
    fn seat_follower(&mut self, server: u32, client: u32, batch: Batch) {
        let (Some(c), Some(s)) = (self.clients.get_mut(client as usize), self.servers.get_mut(server as usize)) else {
            return;
        };
        c.state = State::Seated { server };
        s.state = ServerState::Seated { client };
        s.handed = self.now;
        s.unheard = true;
        s.sequences = Memory::default();
        s.judged = Some(batch.changes);
        s.shelf.begin();
        if batch.parses {
            let change = c.own.get_or_insert_default().set_unnamed(Unnamed::Statement(batch.statement));
            s.ledger.marked(Mark::Given(Given::Parse));
            s.shelf.note(change, Placed::Nothing);
        }
        s.ledger.sent(frontend::BIND);
        if batch.describes {
            s.ledger.sent(frontend::DESCRIBE);
        }
        s.ledger.sent(frontend::EXECUTE);
        s.ledger.sent(frontend::SYNC);
        s.shelf.synced();
        s.lead = Some(Lead { id: batch.id, since: self.now, quick: batch.quick });
        if s.followers.is_empty() {
            // It was not read while it followed.
            let seat = self.client_seat(client);
            self.resumes.push_back(seat);
        }
        self.is_leader(server);
    }
}

/// Is nothing of the client's in the way of a change of servers?
fn is_plain(c: &Client) -> bool {
    let plain = c.more.as_ref().is_none_or(|more| more.is_plain());
    plain
        && c.doubts.is_empty()
        && !c.keeps_server()
        && c.discard == Discard::Nothing
        && !(c.unsure || c.behind || c.blocked || c.ahead || c.settling || c.discards || c.cancelled)
}

/// Has nothing been done on the server that outlasts a plain query?
fn is_undisturbed(s: &Server) -> bool {
    is_unchanged(s) && !s.cancel_due && s.cancels == 0
}

/// The same, but it may be about to be cancelled.
fn is_unchanged(s: &Server) -> bool {
    s.flights.is_empty()
        && !s.has_changed()
        && s.litter.is_empty()
        && !(s.listens || s.nameless || s.tainted || s.unread || s.farewell)
}
