//! Joins clients and servers, and parts them again.

use super::Core;
use super::cleaning;
use super::client::{Client, State, draining};
use super::io::{ConnId, Mail, Output};
use super::replay::{replay_ahead, replay_first};
use super::server::{Reset, Server, State as ServerState};
use crate::shared::PoolEntry;
use pgusher_pool::{Acquire, Closed, Release};
use pgusher_pool::{Micros, Seat};
use pgusher_session::Pins;
use pgusher_wire::{Report, sqlstate};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Core {
    /// A client needs a server. `login`: only to learn what the server says of itself. Returns the server if there is one
    /// at once and nothing has to be done to it first.
    #[inline]
    pub(super) fn want_server(&mut self, slot: u32, login: bool) -> Option<u32> {
        let seat = self.client_seat(slot);
        let pool = self.clients.get(slot as usize)?.pool.clone()?;
        let acquired = pool.seats.acquire(seat, self.now);
        self.acquired(slot, &pool, acquired, login)
    }

    /// What the pool has said to a client that needs a server. As [`want_server`](Self::want_server).
    #[inline]
    pub(super) fn acquired(&mut self, slot: u32, pool: &Arc<PoolEntry>, acquired: Acquire, login: bool) -> Option<u32> {
        let seat = self.client_seat(slot);
        let client = self.clients.get_mut(slot as usize)?;
        match acquired {
            Acquire::Local(server) => {
                let settings = client.settings.as_ref();
                if let (false, Some(s), Some(settings)) = (login, self.servers.get_mut(server.slot as usize), settings)
                {
                    let agreed = s.settings.same(settings);
                    if agreed || settings.replays_surely(&s.settings) {
                        if !agreed {
                            replay_ahead(s, settings, false, &mut self.patch);
                        }
                        client.state = State::Seated { server: server.slot };
                        s.state = ServerState::Seated { client: slot };
                        s.shelf.begin();
                        return Some(server.slot);
                    }
                }
                self.pause(slot);
                self.seat(server.slot, slot, login);
            }
            Acquire::Remote(server) => {
                client.state = State::Promised { login };
                self.pause(slot);
                let mail = Mail::Fetch { server, client: seat, since: self.now };
                self.out.push_back(Output::Mail(server.worker, mail));
            }
            Acquire::Open(ticket) => {
                client.state = State::Waiting { ticket, login };
                self.pause(slot);
                self.open_server(pool);
            }
            Acquire::Wait(ticket) => {
                client.state = State::Waiting { ticket, login };
                self.wanted = !self.unjudged.is_empty();
                self.pause(slot);
            }
        }
        None
    }

    pub(super) fn pause(&mut self, client: u32) {
        self.out.push_back(Output::Pause(ConnId::Client(client)));
    }

    /// The server that was promised to a client of ours is gone: it waits again, in front.
    pub(super) fn missed(&mut self, seat: Seat, since: Micros) {
        let Some(client) = self.client_in(seat) else {
            return;
        };
        let (State::Promised { login } | State::Waiting { login, .. }) = client.state else {
            return;
        };
        let Some(pool) = client.pool.clone() else {
            return;
        };
        let (ticket, open) = match pool.seats.acquire_again(seat, since) {
            Acquire::Open(ticket) => (ticket, true),
            Acquire::Wait(ticket) => (ticket, false),
            Acquire::Local(server) => {
                self.gives.push_back((server, seat, since));
                return;
            }
            Acquire::Remote(server) => {
                client.state = State::Promised { login };
                self.out.push_back(Output::Mail(server.worker, Mail::Fetch { server, client: seat, since }));
                return;
            }
        };
        client.state = State::Waiting { ticket, login };
        if open {
            self.open_server(&pool);
        }
    }

    /// The pool has promised an idle server of ours to a client of another worker.
    pub(super) fn fetch(&mut self, server: Seat, client: Seat, since: Micros) {
        let here = self.servers.get(server.slot as usize).is_some_and(|s| s.serial == server.serial);
        if here {
            self.out.push_back(Output::HandOver { server: server.slot, client, since });
        } else {
            self.out.push_back(Output::Mail(client.worker, Mail::Missed { client, since }));
        }
    }

    /// Takes a server out, to hand it over to another worker.
    pub fn take_server(&mut self, slot: u32) -> Option<Server> {
        self.servers.try_remove(slot as usize)
    }

    /// A server has arrived from another worker, for `client`. Returns its slot.
    pub fn server_arrived(&mut self, server: Server, client: Seat, since: Micros) -> u32 {
        let serial = self.next_serial();
        let slot = self.servers.insert(Server { serial, lead: None, lined_up: false, ..server }) as u32;
        let server = self.server_seat(slot);
        self.gives.push_back((server, client, since));
        slot
    }

    /// Gives a server to a client of this worker, or to the next one if that client is gone.
    pub(super) fn give(&mut self, server: Seat, client: Seat, since: Micros) {
        if self.servers.get(server.slot as usize).is_none_or(|s| s.serial != server.serial) {
            return self.missed(client, since);
        }
        let server = server.slot;
        let login = match self.client_in(client).map(|c| &c.state) {
            Some(State::Waiting { login, .. } | State::Promised { login, .. }) => *login,
            _ => return self.release_server(server),
        };
        self.seat(server, client.slot, login);
    }

    /// Seats a client on a server that is free; puts the client's settings on it first if they differ.
    fn seat(&mut self, server: u32, client: u32, login: bool) {
        if login {
            return self.seat_for_login(server, client);
        }
        let (Some(s), Some(c)) = (self.servers.get_mut(server as usize), self.clients.get_mut(client as usize)) else {
            return;
        };
        let Some(settings) = &c.settings else { return };
        c.state = State::Seated { server };
        s.shelf.begin();
        if s.settings.same(settings) {
            s.state = ServerState::Seated { client };
            self.resume_client(client);
            return;
        }
        if settings.replays_surely(&s.settings) {
            let mut out = Vec::new();
            replay_ahead(s, settings, false, &mut out);
            s.state = ServerState::Seated { client };
            self.send(ConnId::Server(server), out);
            self.resume_client(client);
            return;
        }
        let mut out = Vec::new();
        replay_first(s, client, settings, &mut out);
        self.send(ConnId::Server(server), out);
    }

    /// Parts a client from its server if its transaction is over and nothing keeps it.
    #[inline]
    pub(super) fn part_if_done(&mut self, client: u32) {
        let Some(c) = self.clients.get_mut(client as usize) else {
            return;
        };
        let State::Seated { server } = c.state else {
            return;
        };
        let Some(s) = self.servers.get_mut(server as usize) else {
            return;
        };
        if !matches!(s.state, ServerState::Seated { .. })
            || !s.ledger.is_clean()
            || !c.scanner.at_boundary()
            || !s.scanner.at_boundary()
            || !s.held.is_empty()
            || s.blocked
        {
            return;
        }
        let hears = c.has_ears();
        if hears && (c.is_held_back() || c.waits_to_hear()) {
            return;
        }
        if self.draining {
            self.refuse(client, &draining());
            return;
        }
        if let Some(changes) = s.judged.take() {
            // Others may have changed a definition before its last statement.
            c.changes = s.pool.definition_changes();
            c.unsure |= changes != c.changes;
        }
        if (c.unsure || !c.doubts.is_empty()) && self.is_kept_for_answers(client, server) {
            return;
        }
        let Some(c) = self.clients.get_mut(client as usize) else {
            return;
        };
        if c.keeps_server() {
            return self.pinned(client);
        }
        if c.counted {
            self.unpinned(client);
        }
        let (Some(c), Some(s)) = (self.clients.get_mut(client as usize), self.servers.get_mut(server as usize)) else {
            return;
        };
        c.state = State::Idle;
        c.since = self.now;
        if let Some(more) = c.more.as_mut() {
            more.portals.clear();
            more.rebound = false;
            more.old_portals = false;
        }
        s.unheard = !hears;
        if s.listens || !s.litter.is_empty() {
            // A cancel request under way would meet the tidying, or the client after it.
            return match (s.cancels > 0, s.listens) {
                (true, _) => self.close_server(server),
                (false, true) => self.reset(server, Reset::Unlisten, b"UNLISTEN *"),
                (false, false) => self.tidy(server),
            };
        }
        if s.cancels > 0 {
            s.state = ServerState::BeingCancelled;
            return;
        }
        self.release_server(server);
    }

    /// A client's transaction is over. What it may have done to its session is asked about in any case, because that may count for
    /// its next statement: what it listens to, what functions have defined. If nobody knows yet what definitions have done behind its
    /// statements, it stays where it is until that is known.
    fn is_kept_for_answers(&mut self, client: u32, server: u32) -> bool {
        self.judge(client, server);
        self.audit_if_due(client, server) || self.waits_for_judgement(client, server)
    }

    /// A question of our own has been answered, and the server is its client's again.
    pub(super) fn go_on(&mut self, client: u32, server: u32) {
        if self.clients.get(client as usize).is_some_and(|c| c.pending.is_empty()) {
            // Nothing has come meanwhile: it may go at once.
            self.part_if_done(client);
        }
        let seated = |c: &Client| matches!(c.state, State::Seated { server: other } if other == server);
        let asked = |s: &Server| matches!(s.state, ServerState::Auditing { .. } | ServerState::Knowing(_));
        if self.clients.get(client as usize).is_some_and(seated) && self.servers.get(server as usize).is_some_and(asked)
        {
            // It goes on when the next question is answered.
            return;
        }
        self.resume_client(client);
    }

    /// A client keeps its server past the end of its transaction.
    fn pinned(&mut self, client: u32) {
        let Some(c) = self.clients.get_mut(client as usize) else {
            return;
        };
        if c.pins.intersects(Pins::SESSION) {
            return;
        }
        c.show_pins(&self.shared.interner);
        if c.counted {
            return;
        }
        let Some(pool) = c.pool.clone() else { return };
        let limit = self.shared.config.max_pinned;
        if pool.pinned.fetch_add(1, Ordering::Relaxed) < limit {
            c.counted = true;
            return;
        }
        pool.pinned.fetch_sub(1, Ordering::Relaxed);
        let report = Report::fatal(
            sqlstate::TOO_MANY_CONNECTIONS,
            format!("{limit} sessions of this user and database keep a physical connection of their own already"),
        )
        .detail(format!("This session would have to keep one because of: {}.", c.shown_pins()))
        .hint("End what keeps the connections, or raise max_pinned and pool_size. See SHOW pgusher.pin.");
        self.refuse(client, &report);
    }

    /// Nothing keeps the client on its server any more.
    fn unpinned(&mut self, client: u32) {
        if let Some(c) = self.clients.get_mut(client as usize) {
            c.uncount();
            c.show_pins(&self.shared.interner);
        }
    }

    /// A server without a client goes back to its pool, or is closed if it is no longer wanted.
    #[inline]
    pub(super) fn release_server(&mut self, slot: u32) {
        let seat = self.server_seat(slot);
        let Some(s) = self.servers.get_mut(slot as usize) else {
            return;
        };
        s.sequences = super::sequences::Memory::default();
        if self.servers.get(slot as usize).is_some_and(|s| self.draining || self.is_due(s)) {
            let Some(s) = self.servers.get_mut(slot as usize) else {
                return;
            };
            s.state = ServerState::Idle;
            self.close_server(slot);
            return;
        }
        let Some(s) = self.servers.get_mut(slot as usize) else {
            return;
        };
        if s.nameless {
            return self.reset(slot, Reset::Settings, cleaning::AS_IT_BEGAN);
        }
        if self.know_when_old(slot) || self.ease_before_rest(slot) {
            return;
        }
        let Some(s) = self.servers.get_mut(slot as usize) else {
            return;
        };
        s.state = ServerState::Idle;
        let release = s.pool.seats.release(seat, self.now);
        self.released(slot, release);
    }

    /// Is a server to be closed when it becomes free?
    pub(super) fn is_due(&self, s: &Server) -> bool {
        self.now.since(s.opened) > self.shared.config.timeouts.server_lifetime()
            || s.moves != self.shared.upstream.moves()
            || s.generation != self.shared.generation()
            || s.pool_generation != s.pool.generation()
            || s.pool.seats.is_over_limit()
    }

    /// Opens a physical connection ahead of need.
    pub(super) fn ensure(&mut self, pool: &Arc<PoolEntry>, kept_open: usize) {
        if !self.draining && pool.seats.ensure(kept_open) {
            self.open_server(pool);
        }
    }

    /// The server is somewhere else now. Connections to where it was are closed as they become free; clients that could not
    /// get one are tried again.
    pub(super) fn moved(&mut self) {
        let shared = self.shared.clone();
        self.tend_hubs();
        for pool in shared.pools() {
            for server in pool.seats.take_idle(self.me, Micros(u64::MAX)) {
                self.release_server(server.slot);
            }
            while pool.seats.reopen() == Closed::Open {
                self.open_server(&pool);
            }
        }
    }

    /// Does what the pool says about a server that has become free.
    pub(super) fn released(&mut self, slot: u32, release: Release) {
        match release {
            Release::Idle => {}
            Release::Give { client, since } if client.worker == self.me => {
                let server = self.server_seat(slot);
                self.gives.push_back((server, client, since));
            }
            Release::Give { client, since } => self.out.push_back(Output::HandOver { server: slot, client, since }),
        }
    }

    /// A client is gone. Its server is made clean, or closed.
    pub fn client_closed(&mut self, slot: u32) {
        self.drop_client(slot);
    }

    /// Forgets a client and closes its socket once everything has been sent.
    pub(super) fn drop_client(&mut self, slot: u32) {
        self.stop_hearing(slot);
        let seat = self.client_seat(slot);
        let Some(mut client) = self.clients.try_remove(slot as usize) else {
            return;
        };
        client.forget_held();
        client.uncount();
        self.out.push_back(Output::Close(ConnId::Client(slot)));
        match client.state {
            State::Waiting { ticket, .. } => {
                if let Some(pool) = &client.pool {
                    // If it is no longer in the queue, a server is on its way, and goes on to the next one.
                    pool.seats.leave(seat, ticket);
                }
            }
            State::Seated { server } => {
                let boundary = client.scanner.at_boundary();
                let discard = client.keeps_server() || !client.doubts.is_empty() || client.unsure;
                if let Some(s) = self.servers.get_mut(server as usize) {
                    s.flights.clear();
                    if let Some(track) = client.track() {
                        // What is left of its transaction is undone.
                        s.settings = track.before().present.clone();
                    }
                }
                if client.pins.is_for_good() {
                    return self.close_server(server);
                }
                self.vacate(server, boundary, discard);
            }
            State::Following { server } => {
                self.stray(server, seat);
            }
            State::Replicating { server, .. } => self.close_walsender(server),
            _ => {}
        }
    }

    /// A client has waited too long for a server.
    pub(super) fn wait_expired(&mut self, slot: u32) {
        let seconds = self.shared.config.timeouts.query_wait_s;
        let report = Report::fatal(
            sqlstate::TOO_MANY_CONNECTIONS,
            format!("no physical connection became free within {seconds} s"),
        )
        .hint("Raise pool_size, make transactions shorter, or raise query_wait_timeout.");
        self.refuse(slot, &report);
    }
}
