//! Joins clients and servers, and parts them again.

use super::audit::TIMEOUT;
use super::client::{Client, State, draining};
use super::io::{ConnId, Mail, Output};
use super::knowing::Purpose;
use super::server::{Reset, Server, State as ServerState};
use super::{Core, MAX_HELD};
use crate::shared::{PoolEntry, Welcome};
use pgusher_pool::{Acquire, Closed, Release};
use pgusher_pool::{Micros, Seat};
use pgusher_session::Pins;
use pgusher_session::settings::Interned;
use pgusher_wire::backend::Message;
use pgusher_wire::{Report, TxStatus, backend, frontend, sqlstate};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Settings are put on a server so often again if a limit in time has met it.
const MAX_TRIES: u8 = 3;

impl Core {
    /// A client needs a server. `login`: only to learn what the server says of itself. Returns the server if there is one
    /// at once and nothing has to be done to it first.
    #[inline]
    pub(super) fn want_server(&mut self, slot: u32, login: bool) -> Option<u32> {
        let seat = self.client_seat(slot);
        let client = self.clients.get_mut(slot as usize)?;
        let pool = client.pool.clone()?;
        match pool.seats.acquire(seat, self.now) {
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
                self.open_server(&pool);
            }
            Acquire::Wait(ticket) => {
                client.state = State::Waiting { ticket, login };
                self.wanted = !self.unjudged.is_empty();
                self.pause(slot);
            }
        }
        None
    }

    fn pause(&mut self, client: u32) {
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
        let slot = self.servers.insert(Server { serial, ..server }) as u32;
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

    /// A client that logs in learns what the server says of itself, and of the settings that it wants to begin with.
    fn seat_for_login(&mut self, server: u32, client: u32) {
        let (Some(s), Some(c)) = (self.servers.get_mut(server as usize), self.clients.get_mut(client as usize)) else {
            return;
        };
        let (Some(settings), Some(welcome)) = (&c.settings, s.welcome.clone()) else { return };
        let known = if settings.is_empty() { Some(welcome.clone()) } else { s.pool.greeting(settings) };
        if let Some(welcome) = known {
            self.release_server(server);
            return self.welcome(client, &welcome);
        }
        let mut sql = settings.replay(&s.settings);
        let mut separator = if sql.is_empty() { "SELECT " } else { ";SELECT " };
        for (name, _) in &welcome.parameters {
            // The server's own names, which need no quotes within.
            sql.push_str(separator);
            sql.push_str("pg_catalog.current_setting('");
            sql.push_str(&String::from_utf8_lossy(name).replace('\'', ""));
            sql.push_str("')");
            separator = ",";
        }
        leave_names(s, settings);
        c.state = State::Seated { server };
        s.state = ServerState::Replaying { client };
        s.error = None;
        s.row = None;
        s.shelf.set_unnamed(None);
        s.ledger.sent(frontend::QUERY);
        let mut out = Vec::with_capacity(sql.len() + 6);
        frontend::write_query(&mut out, sql.as_bytes());
        self.send(ConnId::Server(server), out);
    }

    /// The server has said what becomes of the settings that a client wants to begin with.
    fn checked_for_login(&mut self, server: u32, client: u32) {
        let (Some(s), Some(c)) = (self.servers.get_mut(server as usize), self.clients.get_mut(client as usize)) else {
            return;
        };
        c.state = State::Idle;
        let (Some(settings), Some(welcome)) = (c.settings.clone(), s.welcome.clone()) else { return };
        if let Some(error) = s.error.take() {
            let fields = pgusher_wire::ErrorFields::new(&error);
            let report = Report::fatal_of(&fields, sqlstate::INTERNAL_ERROR);
            // They were set in one transaction, which is undone.
            self.release_server(server);
            return self.refuse(client, &report);
        }
        s.settings = settings.clone();
        let mut values = Vec::new();
        if let Some(row) = s.row.take() {
            if let Ok(Message::DataRow(row)) =
                Message::parse(pgusher_wire::Frame { tag: backend::DATA_ROW, body: &row })
            {
                values.extend(row.columns().map(|column| column.map(<[u8]>::to_vec)));
            }
        }
        let names = welcome.parameters.iter();
        let parameters = names.zip(values).map(|((name, old), new)| (name.clone(), new.unwrap_or_else(|| old.clone())));
        let parameters: Vec<_> = parameters.collect();
        if parameters.len() != welcome.parameters.len() {
            return self.broken_server(server);
        }
        let greeting = Arc::new(Welcome { parameters });
        s.pool.greeted(&settings, greeting.clone());
        self.release_server(server);
        self.welcome(client, &greeting);
    }

    /// The client is about to send something. Does its server lack a setting that the session began with? Then it is put
    /// there: what has to be sent in front is in `patch`, or it is sent already and the client has to wait.
    #[inline]
    pub(super) fn disagrees(&mut self, client: u32, server: u32) -> Option<Replay> {
        let settings = self.clients.get(client as usize)?.settings.as_ref()?;
        let s = self.servers.get_mut(server as usize)?;
        if s.settings.same(settings) || !s.ledger.is_quiet() || s.ledger.status() == TxStatus::Failed {
            return None;
        }
        if settings.replays_surely(&s.settings) {
            replay_ahead(s, settings, false, &mut self.patch);
            return Some(Replay::Ahead);
        }
        let mut out = Vec::new();
        replay_first(s, client, settings, &mut out);
        self.pause(client);
        self.send(ConnId::Server(server), out);
        Some(Replay::First)
    }

    /// The settings are on the server, or could not be put there.
    pub(super) fn replayed(&mut self, server: u32, client: u32) {
        if self.tries_again(server, client) {
            return;
        }
        if self.clients.get(client as usize).is_some_and(|c| c.login.is_some()) {
            return self.checked_for_login(server, client);
        }
        let (Some(s), Some(c)) = (self.servers.get_mut(server as usize), self.clients.get_mut(client as usize)) else {
            return;
        };
        if let Some(error) = s.error.take() {
            let fields = pgusher_wire::ErrorFields::new(&error);
            let state = fields.sqlstate().unwrap_or(sqlstate::INTERNAL_ERROR);
            let mut report = Report::fatal(state.to_owned(), fields.message());
            report.detail = Some("This is what the server says of a setting of this session.".into());
            c.state = State::Idle;
            self.refuse(client, &report);
            // Which of the settings it has is not known.
            self.close_server(server);
            return;
        }
        if let Some(settings) = &c.settings {
            s.settings = settings.clone();
        }
        s.state = ServerState::Seated { client };
        if std::mem::take(&mut c.cancelled) && !c.keeps_server() && c.doubts.is_empty() && s.ledger.is_clean() {
            self.release_server(server);
            return self.refuse_statement(client);
        }
        self.resume_client(client);
    }

    /// Settings are put on a server in one transaction, under the limits in time that the session before has left there. If such a limit
    /// has ended it, it is lifted first, and then they are put there again: nothing of the client's has been sent yet.
    fn tries_again(&mut self, server: u32, client: u32) -> bool {
        let (Some(s), Some(c)) = (self.servers.get_mut(server as usize), self.clients.get_mut(client as usize)) else {
            return false;
        };
        let ended = s
            .error
            .as_deref()
            .is_some_and(|error| pgusher_wire::ErrorFields::new(error).sqlstate() == Some(sqlstate::QUERY_CANCELED));
        if ended && s.tries < MAX_TRIES {
            s.tries += 1;
            s.easing = true;
            s.error = None;
            s.ledger.sent(frontend::QUERY);
            let mut out = Vec::new();
            frontend::write_query(&mut out, b"SET statement_timeout=0");
            self.send(ConnId::Server(server), out);
            return true;
        }
        if !std::mem::take(&mut s.easing) {
            s.tries = 0;
            return false;
        }
        if s.error.is_some() {
            s.tries = 0;
            return false;
        }
        if let Ok(eased) = s.settings.with(TIMEOUT, "0") {
            s.settings = self.shared.interner.intern(eased);
        }
        if c.login.is_some() {
            self.seat_for_login(server, client);
        } else if let Some(settings) = &c.settings {
            let mut out = Vec::new();
            replay_first(s, client, settings, &mut out);
            self.send(ConnId::Server(server), out);
        }
        true
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
            c.unsure |= changes != s.pool.definition_changes();
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
        let lifetime = self.shared.config.timeouts.server_lifetime();
        if self.draining
            || self.now.since(s.opened) > lifetime
            || s.moves != self.shared.upstream.moves()
            || s.generation != self.shared.generation()
            || s.pool_generation != s.pool.generation()
            || s.pool.seats.is_over_limit()
        {
            s.state = ServerState::Idle;
            self.close_server(slot);
            return;
        }
        if s.nameless {
            return self.reset(slot, Reset::Settings, AS_IT_BEGAN);
        }
        if self.know_when_old(slot) {
            return;
        }
        let Some(s) = self.servers.get_mut(slot as usize) else {
            return;
        };
        s.state = ServerState::Idle;
        let release = s.pool.seats.release(seat, self.now);
        self.released(slot, release);
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
            State::Replicating { server, .. } => self.close_walsender(server),
            _ => {}
        }
    }

    /// A server whose client is gone. `boundary`: the last message that it was sent was sent whole.
    pub(super) fn vacate(&mut self, slot: u32, boundary: bool, discard: bool) {
        let Some(s) = self.servers.get_mut(slot as usize) else {
            return;
        };
        s.tainted |= discard || s.listens || s.nameless;
        s.unheard = true;
        s.judged = None;
        if let ServerState::Knowing(knowing) = &mut s.state {
            // The answer is of use to others.
            knowing.purpose = Purpose::Gone;
            return self.out.push_back(Output::Resume(ConnId::Server(slot)));
        }
        if matches!(s.state, ServerState::Auditing { .. }) && !s.ledger.is_quiet() && s.cancels == 0 && !self.draining {
            // The answer concerns nobody any more.
            if let Some(audit) = s.audit.take() {
                (s.held, s.leftovers) = (audit.bytes, audit.leftovers);
            }
            if s.held.len() > MAX_HELD / 2 {
                return self.close_server(slot);
            }
            s.tainted = true;
            s.error = None;
            s.state = ServerState::Resetting { step: Reset::Rollback { discard: true } };
            return self.out.push_back(Output::Resume(ConnId::Server(slot)));
        }
        // It may have been stopped for a client that took its replies too slowly.
        self.out.push_back(Output::Resume(ConnId::Server(slot)));
        let quiet = boundary && s.ledger.is_quiet() && s.scanner.at_boundary() && s.held.is_empty() && !s.blocked;
        let usable = quiet && !self.draining && matches!(s.state, ServerState::Seated { .. });
        if !usable {
            if s.ledger.is_busy() {
                // The backend would go on with the statement until it writes to us.
                self.cancel_server(slot);
            }
            return self.close_server(slot);
        }
        if s.cancels > 0 {
            return self.close_server(slot);
        }
        if s.ledger.is_clean() && !s.tainted {
            return if s.litter.is_empty() { self.release_server(slot) } else { self.tidy(slot) };
        }
        let (step, sql): (Reset, &[u8]) = if s.ledger.is_clean() {
            (Reset::Discard, b"DISCARD ALL")
        } else {
            (Reset::Rollback { discard: s.tainted }, b"ROLLBACK")
        };
        self.reset(slot, step, sql);
    }

    /// Removes statements that a client's mistake has left under its own names.
    fn tidy(&mut self, slot: u32) {
        let Some(s) = self.servers.get_mut(slot as usize) else {
            return;
        };
        s.state = ServerState::Resetting { step: Reset::Tidy };
        s.error = None;
        let mut out = Vec::new();
        // By messages and not by DEALLOCATE, which fails if the client's mistake was discarded.
        for name in std::mem::take(&mut s.litter) {
            s.ledger.sent(frontend::CLOSE);
            frontend::write_close(&mut out, frontend::Target::Statement, &name);
        }
        s.ledger.sent(frontend::SYNC);
        s.shelf.synced();
        out.extend_from_slice(&frontend::SYNC_BYTES);
        self.send(ConnId::Server(slot), out);
    }

    fn reset(&mut self, slot: u32, step: Reset, sql: &[u8]) {
        let Some(s) = self.servers.get_mut(slot as usize) else {
            return;
        };
        s.state = ServerState::Resetting { step };
        s.error = None;
        s.shelf.set_unnamed(None);
        s.ledger.sent(frontend::QUERY);
        let mut out = Vec::with_capacity(32);
        frontend::write_query(&mut out, sql);
        self.send(ConnId::Server(slot), out);
    }

    /// A step of cleaning is done.
    pub(super) fn reset_done(&mut self, slot: u32, step: Reset) {
        let Some(s) = self.servers.get_mut(slot as usize) else {
            return;
        };
        if s.error.take().is_some() || !s.ledger.is_clean() {
            return self.close_server(slot);
        }
        s.done_steps = 0;
        s.defining = false;
        match step {
            Reset::Rollback { discard: true } => self.reset(slot, Reset::Discard, b"DISCARD ALL"),
            Reset::Rollback { discard: false } => {
                if std::mem::take(&mut s.stirred) {
                    s.shelf.stir();
                }
                s.changed_defaults = false;
                s.unread = false;
                if std::mem::take(&mut s.changed_definitions) {
                    s.pool.definition_changed();
                }
                if std::mem::take(&mut s.changed_catalog) {
                    // What its statements refer to may never have been.
                    s.pool.catalog_changed();
                }
                if s.litter.is_empty() { self.release_server(slot) } else { self.tidy(slot) }
            }
            Reset::Unlisten => {
                s.listens = false;
                s.has_channels = false;
                if s.litter.is_empty() { self.release_server(slot) } else { self.tidy(slot) }
            }
            Reset::Tidy => self.release_server(slot),
            Reset::Settings => {
                s.nameless = false;
                s.settings = self.shared.no_settings.clone();
                self.release_server(slot);
            }
            Reset::Discard => {
                s.tainted = false;
                s.nameless = false;
                s.listens = false;
                s.has_channels = false;
                s.shelf.clear();
                s.litter.clear();
                s.settings = self.shared.no_settings.clone();
                self.release_server(slot);
            }
        }
    }

    /// A server's socket is gone.
    pub fn server_closed(&mut self, slot: u32) {
        let Some(s) = self.servers.get(slot as usize) else {
            return;
        };
        let client = match &s.state {
            ServerState::Replaying { client } | ServerState::Seated { client } | ServerState::Auditing { client } => {
                Some(*client)
            }
            ServerState::Knowing(knowing) => match knowing.purpose {
                Purpose::Client(client) => Some(client),
                Purpose::Opened | Purpose::Release | Purpose::Gone => None,
            },
            _ => None,
        };
        match (&s.state, client) {
            _ if s.is_opening() => {
                let error = std::io::Error::new(std::io::ErrorKind::ConnectionReset, "closed while logging in");
                self.server_connect_failed(slot, &error);
            }
            (ServerState::Idle, _) => self.lost_idle(slot),
            (ServerState::Replicating { client }, _) => self.walsender_closed(slot, *client),
            (ServerState::Listening, _) => {
                self.hub_lost(slot);
                self.close_lost(slot);
            }
            (_, None) => self.close_lost(slot),
            (_, Some(client)) => {
                let farewell = s.farewell;
                self.close_lost(slot);
                if farewell {
                    // The client knows why.
                    if let Some(c) = self.clients.get_mut(client as usize) {
                        c.state = State::Idle;
                    }
                    return self.drop_client(client);
                }
                if let Some(c) = self.clients.get_mut(client as usize) {
                    c.state = State::Idle;
                }
                let report = Report::fatal(
                    sqlstate::CONNECTION_FAILURE,
                    "the PostgreSQL server closed the connection unexpectedly",
                )
                .detail("The server process ended before or while processing the request.")
                .hint("What the statement did is not known. Connect again.");
                self.refuse(client, &report);
            }
        }
    }

    fn close_lost(&mut self, slot: u32) {
        let Some(s) = self.servers.try_remove(slot as usize) else {
            return;
        };
        self.out.push_back(Output::Close(ConnId::Server(slot)));
        match s.pool.seats.closed() {
            Closed::Fine => {}
            Closed::Open => {
                self.open_server(&s.pool);
            }
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

/// As DISCARD ALL treats settings (src/backend/commands/discard.c): RESET ALL leaves the role as it is.
const AS_IT_BEGAN: &[u8] = b"SET SESSION AUTHORIZATION DEFAULT;RESET ALL";

/// How settings get to a server that lacks them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replay {
    /// In front of the client's message, without waiting.
    Ahead,
    /// Before the client's message is sent.
    First,
}

/// Writes what makes a server agree, to be sent in front of a client's message, or at the `ends` of its unit: see
/// [`Ledger::own`](pgusher_session::Ledger::own).
pub(super) fn replay_ahead(s: &mut Server, settings: &Interned, ends: bool, out: &mut Vec<u8>) {
    let mut sql = settings.replay(&s.settings);
    if !ends && s.ledger.status() == TxStatus::Idle {
        // If one of them fails, the transaction stays open and refuses what follows, instead of running it with other settings.
        sql = format!("BEGIN;{sql}COMMIT");
    }
    leave_names(s, settings);
    s.settings = settings.clone();
    s.shelf.set_unnamed(None);
    s.ledger.own(ends);
    frontend::write_query(out, sql.as_bytes());
}

/// The same, for what the server may refuse.
fn replay_first(s: &mut Server, client: u32, settings: &Interned, out: &mut Vec<u8>) {
    let sql = settings.replay(&s.settings);
    leave_names(s, settings);
    s.state = ServerState::Replaying { client };
    s.error = None;
    s.shelf.set_unnamed(None);
    s.ledger.sent(frontend::QUERY);
    frontend::write_query(out, sql.as_bytes());
}

fn leave_names(s: &mut Server, settings: &Interned) {
    for (name, _) in settings.iter() {
        s.leaves(name);
    }
}
