//! Asks a physical connection what the database's definitions do behind plain statements, between two clients.
//!
//! It is asked when it has just been opened and nothing is known, when it becomes free and what is known is getting old, and before
//! a client leaves it that has done something while nothing was known. The answer is read by the control side, because it may
//! take long; the connection waits for that. A client that could not be judged, while somebody else asks or has asked just now,
//! keeps its physical connection until the answer is there. While others wait for a connection it is not read meanwhile: else clients
//! that change definitions all the time would make each other's answers old, and never part from their connections.

use super::Core;
use super::client::State;
use super::io::{ConnId, Output, Question};
use super::listening;
use super::server::State as ServerState;
use crate::definitions::{Taken, Turn};
use crate::shared::PoolEntry;
use pgusher_pool::Seat;
use pgusher_session::Aspects;
use pgusher_session::knowledge::{MAX_BYTES, question};
use pgusher_wire::{Frame, TxStatus, backend, frontend};
use std::sync::Arc;

/// Bytes of an answer that are kept. More is taken for too much to know.
const MAX_KEPT: usize = 4 * MAX_BYTES;

/// Why it is asked now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The connection has just been opened.
    Opened,
    /// It becomes free.
    Release,
    /// What this client has done on it cannot be judged otherwise.
    Client(u32),
    /// That client is gone.
    Gone,
}

/// A question that is under way.
#[derive(Debug)]
pub(super) struct Knowing {
    pub(super) purpose: Purpose,
    /// The messages of the answer.
    bytes: Vec<u8>,
    /// Bytes of them that have been looked at.
    read: usize,
    cut: bool,
    failed: bool,
    known: Option<Arc<Taken>>,
    /// Until the control side has it.
    turn: Option<Turn>,
}

/// An answer, to be read by the control side.
#[derive(Debug)]
pub struct Rows {
    /// The pool of the connection that was asked.
    pub pool: Arc<PoolEntry>,
    /// The connection. It waits.
    pub server: Seat,
    /// The messages of the answer, whole.
    pub bytes: Vec<u8>,
    /// There were more than are here.
    pub cut: bool,
    /// The session was that of the pool's role.
    pub own: bool,
    /// What was known when it was asked.
    pub known: Option<Arc<Taken>>,
    /// The right to answer.
    pub turn: Turn,
}

impl Core {
    /// A server has logged in: is it asked before anybody gets it?
    pub(super) fn know_when_opened(&mut self, slot: u32) -> bool {
        let never = self.servers.get(slot as usize).is_some_and(|s| s.pool.question_due(pgusher_pool::Micros(0)));
        never && self.know(slot, Purpose::Opened)
    }

    /// A server becomes free: is it asked first, because what is known is getting old?
    #[inline]
    pub(super) fn know_when_old(&mut self, slot: u32) -> bool {
        match self.servers.get(slot as usize) {
            Some(s) if self.shares && s.pool.question_due(self.now) => {
                s.pool.seats.counts().waiting == 0 && self.know(slot, Purpose::Release)
            }
            _ => false,
        }
    }

    /// A client's transaction is over. What it has done while nothing was known is judged, if that is possible by now.
    pub(super) fn judge(&mut self, client: u32, server: u32) {
        let (Some(c), Some(s)) = (self.clients.get_mut(client as usize), self.servers.get_mut(server as usize)) else {
            return;
        };
        if !c.unsure || c.is_bound() {
            return;
        }
        if let Some(taken) = s.pool.definitions_since(c.changes, self.now) {
            c.unsure = false;
            if !taken.knowledge.is_innocent() {
                c.doubts |= Aspects::ALL;
                c.behind = true;
            }
        } else if s.pool.is_calm(self.now) && s.pool.question_failed() {
            // What definitions set cannot be named then.
            c.unsure = false;
            c.doubts |= Aspects::ALL;
        }
    }

    /// Could it not be judged? Then it keeps its server until that is possible.
    pub(super) fn waits_for_judgement(&mut self, client: u32, server: u32) -> bool {
        let (Some(c), Some(s)) = (self.clients.get_mut(client as usize), self.servers.get_mut(server as usize)) else {
            return false;
        };
        if !c.unsure || c.is_bound() {
            return false;
        }
        let calm = s.pool.is_calm(self.now);
        let wanted = s.pool.seats.counts().waiting > 0;
        if (!calm || wanted) && self.know(server, Purpose::Client(client)) {
            self.out.push_back(Output::Pause(ConnId::Client(client)));
            return true;
        }
        let seat = self.client_seat(client);
        if !self.unjudged.contains(&seat) {
            self.unjudged.push(seat);
        }
        if let Some(c) = self.clients.get_mut(client as usize).filter(|c| wanted && !c.parked) {
            c.parked = true;
            self.out.push_back(Output::Pause(ConnId::Client(client)));
        }
        true
    }

    /// Clients that could not be judged are looked at again.
    pub(super) fn judge_again(&mut self) {
        for seat in std::mem::take(&mut self.unjudged) {
            if self.client_in(seat).is_some_and(|c| matches!(c.state, State::Seated { .. })) {
                self.part_if_done(seat.slot);
            }
            self.unpark(seat);
        }
    }

    /// A client is read again if it has been judged, or nobody waits for its server any more.
    fn unpark(&mut self, seat: Seat) {
        let Some(c) = self.clients.get_mut(seat.slot as usize).filter(|c| c.serial == seat.serial && c.parked) else {
            return;
        };
        let wanted = c.pool.as_ref().is_some_and(|pool| pool.seats.counts().waiting > 0);
        if wanted && self.unjudged.contains(&seat) {
            return;
        }
        c.parked = false;
        let server = if let State::Seated { server } = c.state { self.servers.get(server as usize) } else { None };
        // Else it goes on when the question that is asked now has been answered.
        if server.is_none_or(|s| matches!(s.state, ServerState::Seated { .. })) {
            self.resume_client(seat.slot);
        }
    }

    /// Asks, if nobody else does.
    fn know(&mut self, slot: u32, purpose: Purpose) -> bool {
        let Some(s) = self.servers.get_mut(slot as usize) else {
            return false;
        };
        if !self.shares || self.draining || s.cancels > 0 {
            return false;
        }
        let Some((turn, known)) = s.pool.begin_question(self.now) else {
            return false;
        };
        let sql = question(known.as_ref().map(|taken| taken.knowledge.version));
        s.state = ServerState::Knowing(Box::new(Knowing {
            purpose,
            bytes: Vec::new(),
            read: 0,
            cut: false,
            failed: false,
            known,
            turn: Some(turn),
        }));
        s.shelf.set_unnamed(None);
        s.ledger.sent(frontend::QUERY);
        let mut out = Vec::with_capacity(sql.len() + 6);
        frontend::write_query(&mut out, sql.as_bytes());
        self.send(ConnId::Server(slot), out);
        true
    }

    /// A part of the answer.
    pub(super) fn knowing_bytes(&mut self, slot: u32, buf: &[u8]) {
        let Some(s) = self.servers.get_mut(slot as usize) else {
            return;
        };
        let ServerState::Knowing(knowing) = &mut s.state else { return };
        knowing.bytes.extend_from_slice(buf);
        loop {
            let Some(s) = self.servers.get_mut(slot as usize) else {
                return;
            };
            let ServerState::Knowing(knowing) = &mut s.state else { return };
            let rest = knowing.bytes.get(knowing.read..).unwrap_or_default();
            let (frame, used) = match Frame::parse(rest) {
                Ok(Some(parsed)) => parsed,
                Ok(None) if rest.len() <= MAX_KEPT => return,
                Ok(None) | Err(_) => return self.broken_server(slot),
            };
            let status = frame.body.first().and_then(|b| TxStatus::from_byte(*b)).unwrap_or(TxStatus::Failed);
            let tag = frame.tag;
            if s.ledger.received(tag, status).is_err() {
                return self.broken_server(slot);
            }
            let mut notification = None;
            if let (backend::NOTIFICATION_RESPONSE, Purpose::Client(client)) = (tag, knowing.purpose) {
                if !listening::comes_from_elsewhere(self.clients.get(client as usize), frame.body) {
                    notification = Some((client, rest.get(..used).unwrap_or_default().to_vec()));
                }
            }
            knowing.failed |= tag == backend::ERROR_RESPONSE;
            knowing.cut |= knowing.read + used > MAX_KEPT;
            if knowing.cut {
                knowing.bytes.drain(knowing.read..knowing.read + used);
            } else {
                knowing.read += used;
            }
            let whole = knowing.read == knowing.bytes.len();
            let done = tag == backend::READY_FOR_QUERY && s.ledger.is_clean();
            if let Some((client, message)) = notification {
                self.send(ConnId::Client(client), message);
            }
            if done {
                return if whole { self.rows_complete(slot) } else { self.server_closed(slot) };
            }
        }
    }

    /// The answer is complete: the control side reads it.
    fn rows_complete(&mut self, slot: u32) {
        let server = self.server_seat(slot);
        let Some(s) = self.servers.get_mut(slot as usize) else {
            return;
        };
        let own = s.settings.get("session_authorization").is_none();
        let ServerState::Knowing(knowing) = &mut s.state else { return };
        knowing.read = 0;
        let (bytes, cut, known) = (std::mem::take(&mut knowing.bytes), knowing.cut, knowing.known.take());
        match knowing.turn.take() {
            Some(turn) if !knowing.failed => {
                let rows = Rows { pool: s.pool.clone(), server, bytes, cut, own, known, turn };
                self.out.push_back(Output::Ask(Question::Definitions(Box::new(rows))));
            }
            turn => {
                if turn.is_some() {
                    let database = &s.pool.database;
                    tracing::warn!(%database, "what the definitions of the database do could not be asked");
                }
                drop(turn);
                self.known(server);
                self.judge_again();
            }
        }
    }

    /// The answer of this server has been read, or could not be.
    pub(super) fn known(&mut self, server: Seat) {
        let slot = server.slot;
        let Some(s) = self.servers.get_mut(slot as usize).filter(|s| s.serial == server.serial) else {
            return;
        };
        let ServerState::Knowing(knowing) = &s.state else { return };
        if !s.ledger.is_clean() {
            return;
        }
        s.done_steps = 0;
        match knowing.purpose {
            Purpose::Opened => {
                s.state = ServerState::Idle;
                let release = s.pool.seats.opened(server, self.now);
                self.released(slot, release);
            }
            Purpose::Release => self.release_server(slot),
            Purpose::Client(client) => {
                s.state = ServerState::Seated { client };
                self.go_on(client, slot);
            }
            Purpose::Gone => {
                s.state = ServerState::Seated { client: u32::MAX };
                self.vacate(slot, true, true);
            }
        }
    }
}
