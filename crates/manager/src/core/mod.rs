//! The core of one worker: a state machine that seats clients on servers. It does no I/O.
//!
//! # Contract
//! The driver tells the core one thing at a time: bytes that arrived ([`Core::client_bytes`], [`Core::server_bytes`]), a
//! connection that was accepted, made, lost or became writable again, a message from elsewhere ([`Core::mail`]), and the
//! time ([`Core::tick`]). After each of these calls, and before the next one, the driver drains the outputs with
//! [`Core::poll`] and carries them out in order. [`Bytes::Input`] refers to the buffer of the call that was just made, so
//! that bytes which need no rewriting leave from the buffer that they were read into.
//!
//! What the core cannot use yet of the bytes, because a message is cut off, it keeps ([`Core::client_held`],
//! [`Core::server_held`]); the driver puts those bytes in front of the ones that it reads next. They never exceed
//! [`MAX_HELD`].
//!
//! The core opens no socket, reads no clock, starts no thread and draws no random number: time and random bytes are
//! passed in. Cores share nothing but the pools and immutable values in [`Shared`], and talk by [`Mail`].
//!
//! Rooms: `client` takes clients in, `login` asks them who they are, `server` opens and closes servers, `server_login` logs
//! in to them, `relay` is the hot path between the two, `effects` follows what statements do to their sessions, `audit` asks
//! the server where that cannot be known, `knowing` asks it what definitions do behind statements, `behind` judges by that,
//! `statements` carries prepared statements from server to server, `hub` listens for all clients of a database and
//! `listening` gives them what it hears, `flow` lets bytes leave, `follow` sends a client's query behind another client's, `strays`
//! ends those whose clients have gone, `own` reads replies to the manager's own statements, `seat` joins clients and servers and
//! parts them, `replay` puts a session's settings on its server, `resets` does so after RESET in session mode, `cleaning` makes
//! servers clean, `idling` closes clients that are idle for too long, `cancel` passes cancel requests on, `replication` gives a
//! client a walsender of its own.

mod audit;
mod behind;
mod cancel;
mod cleaning;
mod client;
mod effects;
mod flow;
mod follow;
mod hub;
mod idling;
mod io;
mod knowing;
mod listening;
mod login;
mod own;
mod relay;
mod replay;
mod replication;
mod resets;
mod seat;
mod sequences;
mod server;
mod server_login;
mod statements;
mod strays;

pub use client::{Client, Origin};
pub use follow::PATIENCE;
pub use hub::{Note, When, Word};
pub use io::{Bytes, ConnId, Mail, Output, Question};
pub use knowing::Rows;
pub use server::Server;

use crate::config::{Multiplex, StatementReuse};
use crate::shared::Shared;
use cancel::Cancel;
use pgusher_pool::{Closed, Micros, Seat, WorkerId};
use pgusher_session::statements::Library;
use slab::Slab;
use statements::Sharing;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The most bytes of a cut-off message that the core asks to be presented again.
pub const MAX_HELD: usize = 16 * 1024;

/// Random bytes that the driver draws for each connection: cancel key, SCRAM nonce, md5 salt.
pub type Entropy = [u8; 64];

/// The state of one worker.
pub struct Core {
    me: WorkerId,
    shared: Arc<Shared>,
    now: Micros,
    clients: Slab<Client>,
    servers: Slab<Server>,
    cancels: Slab<Cancel>,
    serial: u32,
    out: VecDeque<Output>,
    /// Servers that are promised to clients of this worker. Each is seated in a turn of its own: one may lead to the next.
    gives: VecDeque<(Seat, Seat, Micros)>,
    draining: bool,
    /// Clients' prepared statements are carried from server to server.
    shares: bool,
    sharing: Sharing,
    library: Library,
    /// Clients that keep their servers until it is known what the database's definitions do.
    unjudged: Vec<Seat>,
    /// Somebody waits for a server: they are looked at again.
    wanted: bool,
    /// What is to be sent instead of a message, or in front of it.
    patch: Vec<u8>,
    /// See [`Core::composed`].
    composed: Vec<u8>,
    /// Connections that listen for all clients of a database.
    hubs: HashMap<Box<str>, hub::Hub>,
    /// Clients that listen, by database.
    desks: HashMap<Box<str>, listening::Desk>,
    /// Clients whose replies are held back.
    holding: usize,
    /// Queries may follow those of other clients.
    follows: Option<follow::Following>,
    /// Clients that are read again, and what they have sent meanwhile is looked at.
    resumes: VecDeque<Seat>,
}

impl Core {
    /// A worker without connections.
    pub fn new(me: WorkerId, shared: Arc<Shared>) -> Self {
        let config = &shared.config;
        let sharing =
            Sharing { unnamed: config.statement_reuse != StatementReuse::Off, limit: config.statements_per_server };
        Self {
            shares: !config.pool_mode.is_session(),
            sharing,
            library: Library::new(shared.secret, u16::from(me.0)),
            unjudged: Vec::new(),
            wanted: false,
            patch: Vec::new(),
            composed: Vec::new(),
            hubs: HashMap::new(),
            desks: HashMap::new(),
            holding: 0,
            follows: (config.multiplex == Multiplex::Reads && !config.pool_mode.is_session()).then(Default::default),
            resumes: VecDeque::new(),
            me,
            shared,
            now: Micros(0),
            clients: Slab::new(),
            servers: Slab::new(),
            cancels: Slab::new(),
            serial: 0,
            out: VecDeque::new(),
            gives: VecDeque::new(),
            draining: false,
        }
    }

    /// The next thing for the driver to do.
    #[inline]
    pub fn poll(&mut self) -> Option<Output> {
        loop {
            if let Some(output) = self.out.pop_front() {
                return Some(output);
            }
            if self.wanted {
                self.wanted = false;
                self.judge_again();
                continue;
            }
            if let Some(client) = self.resumes.pop_front() {
                if self.client_in(client).is_some() {
                    self.resume_client(client.slot);
                }
                continue;
            }
            let (server, client, since) = self.gives.pop_front()?;
            self.give(server, client, since);
        }
    }

    /// The time of the calls that follow.
    #[inline]
    pub fn set_now(&mut self, now: Micros) {
        self.now = now;
    }

    /// Clients that are connected to this worker.
    pub fn client_count(&self) -> usize {
        self.clients.len()
    }

    /// Physical connections that belong to this worker.
    pub fn server_count(&self) -> usize {
        self.servers.len()
    }

    fn next_serial(&mut self) -> u32 {
        self.serial = self.serial.wrapping_add(1);
        self.serial
    }

    fn client_seat(&self, slot: u32) -> Seat {
        let serial = self.clients.get(slot as usize).map_or(0, |c| c.serial);
        Seat { worker: self.me, slot, serial }
    }

    fn server_seat(&self, slot: u32) -> Seat {
        let serial = self.servers.get(slot as usize).map_or(0, |s| s.serial);
        Seat { worker: self.me, slot, serial }
    }

    /// The client in `seat`, if it is still the same one.
    fn client_in(&mut self, seat: Seat) -> Option<&mut Client> {
        self.clients.get_mut(seat.slot as usize).filter(|c| c.serial == seat.serial)
    }

    /// Sends bytes of our own.
    fn send(&mut self, to: ConnId, bytes: Vec<u8>) {
        if let (true, ConnId::Client(slot)) = (self.holding > 0, to) {
            if self.keep_back(slot, [&bytes, &[]]) {
                return;
            }
        }
        self.out.push_back(Output::Send { to, bytes: Bytes::Owned(bytes) });
    }

    /// About once a second: limits in time that need no precision.
    pub fn tick(&mut self) {
        let shared = self.shared.clone();
        let timeouts = &shared.config.timeouts;
        let before = |d: Duration| Micros(self.now.0.saturating_sub(u64::try_from(d.as_micros()).unwrap_or(u64::MAX)));
        let (login, wait, idle, connect) = (
            before(timeouts.client_login()),
            before(timeouts.query_wait()),
            before(timeouts.server_idle()),
            before(timeouts.server_connect()),
        );
        self.expire_logins(login);
        self.expire_connects(connect);
        self.expire_cancels(connect);
        self.expire_idle();
        self.ease_at_rest();
        self.end_strays();
        self.tend_hubs();
        self.judge_again();
        for pool in shared.pools() {
            pool.tick(self.now);
            if timeouts.query_wait_s > 0 {
                for client in pool.seats.expire(self.me, wait) {
                    self.wait_expired(client.slot);
                }
            }
            while pool.seats.reopen() == Closed::Open {
                self.open_server(&pool);
            }
            let keep = shared.config.kept_open(&pool.database, &pool.user);
            for server in pool.seats.take_idle_above(keep, self.me, idle) {
                self.close_server(server.slot);
            }
        }
        for pool in shared.retired() {
            for server in pool.seats.take_idle(self.me, Micros(u64::MAX)) {
                self.close_server(server.slot);
            }
        }
    }

    /// Begins to shut down: clients that are between transactions are told so and closed, the others when they get there.
    pub fn drain(&mut self) {
        self.draining = true;
        self.stop_holding();
        let slots: Vec<u32> = self.clients.iter().map(|(slot, _)| slot as u32).collect();
        for slot in slots {
            self.drain_client(slot);
        }
    }

    /// Something from another worker or from the control side.
    pub fn mail(&mut self, mail: Mail) {
        match mail {
            Mail::Fetch { server, client, since } => self.fetch(server, client, since),
            Mail::Missed { client, since } => self.missed(client, since),
            Mail::NoServer { client, report } => self.no_server(client, &report),
            Mail::Cancel { client, key } => self.cancel_client(client, &key),
            Mail::Facts { client, facts } => self.facts(client, facts),
            Mail::Keys { server, keys } => self.derived(server, keys.map(|k| *k)),
            Mail::Known { server } => {
                if server.worker == self.me {
                    self.known(server);
                }
                self.judge_again();
            }
            Mail::Moved => self.moved(),
            Mail::Ensure { pool, kept_open } => self.ensure(&pool, kept_open),
            Mail::Word(word) => self.word(word),
            Mail::Drain => self.drain(),
        }
    }
}
