//! A physical connection's way from connecting to its first ReadyForQuery.

use super::Core;
use super::audit::Audit;
use super::effects::Flight;
use super::follow::{Follower, Lead};
use super::io::{ConnId, Output};
use super::knowing::{Knowing, Purpose};
use super::replication::Walsender;
use super::sequences::Memory;
use super::server_login::LoginState;
use super::statements::names::Attempts;
use crate::auth::NO_DATABASE;
use crate::config::StatementReuse;
use crate::shared::{PoolEntry, ServerAddress, Welcome};
use pgusher_auth::{RAW_NONCE_LEN, Transport};
use pgusher_pool::{Closed, Micros};
use pgusher_session::Ledger;
use pgusher_session::settings::Interned;
use pgusher_session::statements::Shelf;
use pgusher_wire::backend::{self};
use pgusher_wire::scan::Scanner;
use pgusher_wire::startup::{Version, write_startup};
use pgusher_wire::{Report, frontend, sqlstate};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// What a physical connection does.
#[derive(Debug)]
pub(super) enum State {
    /// The socket connects.
    Connecting,
    /// Messages of the login.
    Login(Box<LoginState>),
    /// In the pool, or promised to a client of another worker.
    Idle,
    /// Settings are put on it for this client, who may be in the middle of its login.
    Replaying { client: u32 },
    /// This client has it.
    Seated { client: u32 },
    /// It is cleaned for the next client.
    Resetting { step: Reset },
    /// It is asked what this client has done to its session.
    Auditing { client: u32 },
    /// It is asked what the database's definitions do.
    Knowing(Box<Knowing>),
    /// Its statement is over, but a cancel request for it is still under way.
    BeingCancelled,
    /// It listens for all clients of its database.
    Listening,
    /// It is this client's walsender.
    Replicating { client: u32 },
}

impl State {
    /// Whose it is.
    pub(super) fn client(&self) -> Option<u32> {
        if let Self::Seated { client } = self { Some(*client) } else { None }
    }
}

/// How a connection is cleaned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reset {
    /// ROLLBACK was sent; after it, the session's state is discarded if `discard`.
    Rollback { discard: bool },
    /// DISCARD ALL was sent.
    Discard,
    /// Statements that must not stay were deallocated.
    Tidy,
    /// UNLISTEN * was sent.
    Unlisten,
    /// All settings were sent back to where the session began.
    Settings,
    /// It was asked how long a new session may be idle.
    Limit,
    /// That limit was lifted.
    Eased,
    /// Batches are under way whose clients have gone elsewhere.
    Strays,
}

/// One physical connection.
#[derive(Debug)]
pub struct Server {
    pub(super) serial: u32,
    pub(super) state: State,
    pub(super) ledger: Ledger,
    pub(super) scanner: Scanner,
    /// A message that is cut off.
    pub(super) held: Vec<u8>,
    pub(super) pool: Arc<PoolEntry>,
    /// Where it was connected to, which a cancel request for it must go to as well.
    pub(super) address: Arc<ServerAddress>,
    /// The count of [`Upstream::moves`](crate::shared::Upstream::moves) at that time.
    pub(super) moves: u32,
    /// It speaks TLS.
    pub(super) encrypted: bool,
    /// It has been tried with and without TLS.
    pub(super) retried: bool,
    /// The last row of a reply to a statement of our own.
    pub(super) row: Option<Vec<u8>>,
    /// What it has said of itself at its login.
    pub(super) welcome: Option<Arc<Welcome>>,
    /// The settings that it has.
    pub(super) settings: Interned,
    /// A session's state is on it that settings do not cover.
    pub(super) tainted: bool,
    pub(super) pid: u32,
    pub(super) key: Vec<u8>,
    pub(super) opened: Micros,
    /// Cancel requests for it that are under way.
    pub(super) cancels: u16,
    /// What it was sent does not leave; its client is not read meanwhile.
    pub(super) blocked: bool,
    /// The prepared statements that it has.
    pub(super) shelf: Shelf,
    /// The server's description of a statement, as far as it has come, and whether that is all of it.
    pub(super) sketch: Vec<u8>,
    pub(super) sketched: bool,
    /// Executes of DISCARD ALL and the like that are under way and have been counted already.
    pub(super) discards_booked: u32,
    /// Names of statements that must be removed before another client gets it.
    pub(super) litter: Vec<Box<[u8]>>,
    /// Statements that are put there under names of the client's own.
    pub(super) attempts: Attempts,
    /// Its transaction may have changed what names and constants stand for.
    pub(super) stirred: bool,
    /// A statement under way, or one of its transaction, may have defined functions.
    pub(super) defining: bool,
    /// Its transaction has changed the catalogs.
    pub(super) changed_catalog: bool,
    /// Its transaction has changed what new sessions begin with.
    pub(super) changed_defaults: bool,
    /// Its transaction has changed definitions that may do something behind plain statements.
    pub(super) changed_definitions: bool,
    /// A text was sent that was not read.
    pub(super) unread: bool,
    /// What was not read may have made custom settings, of which only their names would tell.
    pub(super) nameless: bool,
    /// How many changes of definitions had been seen when a statement of the client was judged.
    pub(super) judged: Option<u32>,
    /// The count of [`Shared::generation`](crate::shared::Shared::generation) when it was opened.
    pub(super) generation: u32,
    /// The count of [`PoolEntry::generation`] when it was opened.
    pub(super) pool_generation: u32,
    /// How often settings were tried to be put on it for its client, in spite of an earlier limit in time.
    pub(super) tries: u8,
    /// That limit is being lifted.
    pub(super) easing: bool,
    /// What went wrong while settings were put on it: the body of the ErrorResponse.
    pub(super) error: Option<Vec<u8>>,
    /// Statements that were sent and do something to their session, in order.
    pub(super) flights: VecDeque<Flight>,
    /// Statements of the unit that is being sent.
    pub(super) sent_steps: u32,
    /// Statements of the unit that is being answered that have completed.
    pub(super) done_steps: u32,
    /// Names of settings that earlier clients have made: a custom one stays for ever, without a value.
    pub(super) leftovers: Vec<Box<str>>,
    /// What is asked of it about its session.
    pub(super) audit: Option<Box<Audit>>,
    /// The rest of a message that is still to come is not for the client.
    pub(super) swallowing: bool,
    /// It has told its client that it ends the connection.
    pub(super) farewell: bool,
    /// A cancel request waits for our own messages to be done.
    pub(super) cancel_due: bool,
    /// It is to listen for all clients of its database.
    pub(super) listens_for_all: bool,
    /// It is a walsender, for this client.
    pub(super) walsender: Option<Box<Walsender>>,
    /// It may listen to what its client listens to.
    pub(super) listens: bool,
    /// It was made to listen to all that its client listens to.
    pub(super) has_channels: bool,
    /// Clients that do not listen have used it: what they have notified may still be on its way.
    pub(super) unheard: bool,
    /// How long a new session on it may be idle; zero: for ever, `None`: that is not known yet.
    pub(super) idle_default: Option<Duration>,
    /// What it remembers of sequences.
    pub(super) sequences: Memory,
    /// What its client's batch is, if others may be sent behind it.
    pub(super) lead: Option<Lead>,
    /// It is among those that are looked at for followers.
    pub(super) lined_up: bool,
    /// When its client's turn began, if others follow it.
    pub(super) handed: Micros,
    /// Batches of other clients that were sent behind its client's.
    pub(super) followers: VecDeque<Follower>,
    /// Behind its client's batch are others whose clients have gone elsewhere.
    pub(super) strays: bool,
}

impl Server {
    /// What names and constants stand for may be another matter from here on, and again at the end of the transaction.
    pub(super) fn stir(&mut self) {
        self.shelf.stir();
        self.stirred = true;
    }

    /// Has its transaction changed something that others see, or that outlasts it?
    #[inline]
    pub(super) fn has_changed(&self) -> bool {
        self.changed_catalog || self.stirred || self.defining || self.changed_defaults || self.changed_definitions
    }

    /// Has the pool not got it yet?
    pub(super) fn is_opening(&self) -> bool {
        match &self.state {
            State::Connecting | State::Login(_) | State::Resetting { step: Reset::Limit } => true,
            State::Knowing(knowing) => knowing.purpose == Purpose::Opened,
            _ => false,
        }
    }

    /// How much of what has arrived belongs to a message that the client does not see.
    #[inline]
    pub(super) fn swallowed_rest(&mut self, arrived: usize) -> usize {
        if !self.swallowing {
            return 0;
        }
        let rest = self.scanner.remaining();
        self.swallowing = rest > arrived;
        rest.min(arrived)
    }

    /// A setting was made on it.
    pub(super) fn leaves(&mut self, name: &str) {
        const MOST: usize = 256;
        if name.contains('.')
            && !name.starts_with("pgusher.")
            && self.leftovers.len() < MOST
            && self.leftovers.iter().all(|other| **other != *name)
        {
            self.leftovers.push(name.into());
        }
    }
}

impl Core {
    /// Opens one more physical connection. The pool has counted it already.
    pub(super) fn open_server(&mut self, pool: &Arc<PoolEntry>) -> u32 {
        pool.tick(self.now);
        let serial = self.next_serial();
        let moves = self.shared.upstream.moves();
        let address = self.shared.upstream.address();
        let slot = self.servers.insert(Server {
            serial,
            state: State::Connecting,
            ledger: Ledger::new(),
            scanner: Scanner::new(),
            held: Vec::new(),
            pool: pool.clone(),
            address: address.clone(),
            moves,
            encrypted: false,
            retried: false,
            row: None,
            welcome: None,
            settings: self.shared.no_settings.clone(),
            tainted: false,
            pid: 0,
            key: Vec::new(),
            opened: self.now,
            cancels: 0,
            blocked: false,
            shelf: Shelf::default(),
            sketch: Vec::new(),
            sketched: false,
            discards_booked: 0,
            litter: Vec::new(),
            attempts: Attempts::default(),
            stirred: false,
            defining: false,
            changed_catalog: false,
            changed_defaults: false,
            changed_definitions: false,
            unread: false,
            nameless: false,
            judged: None,
            generation: self.shared.generation(),
            pool_generation: pool.generation(),
            tries: 0,
            easing: false,
            error: None,
            flights: VecDeque::new(),
            sent_steps: 0,
            done_steps: 0,
            leftovers: Vec::new(),
            audit: None,
            swallowing: false,
            farewell: false,
            cancel_due: false,
            listens_for_all: false,
            walsender: None,
            listens: false,
            has_channels: false,
            unheard: false,
            idle_default: None,
            sequences: Memory::default(),
            lead: None,
            handed: self.now,
            lined_up: false,
            followers: VecDeque::new(),
            strays: false,
        });
        let conn = ConnId::Server(slot as u32);
        let encryption = self.shared.config.server.tls.first(&address);
        self.out.push_back(Output::Connect { conn, address, encryption });
        slot as u32
    }

    /// The socket of a server has connected, and the handshake is over if there is TLS. `random` is for the login.
    pub fn server_connected(&mut self, slot: u32, random: &super::Entropy, transport: Transport) {
        let Some(server) = self.servers.get_mut(slot as usize) else {
            return;
        };
        let mut nonce = [0; RAW_NONCE_LEN];
        nonce.copy_from_slice(&random[..RAW_NONCE_LEN]);
        server.encrypted = transport != Transport::Plain;
        server.state = State::Login(Box::new(LoginState::new(nonce, transport)));
        let mut out = Vec::with_capacity(128);
        let mut parameters: Vec<(&[u8], &[u8])> = vec![(b"user", server.pool.user.as_bytes())];
        if *server.pool.database != *NO_DATABASE {
            parameters.push((b"database", server.pool.database.as_bytes()));
        }
        let pin = match (&server.walsender, self.shared.config.pool_mode.is_session()) {
            (Some(_), _) => "replication",
            (None, true) => "session",
            (None, false) => "none",
        };
        let mut options = format!("-c pgusher.version={} -c pgusher.pin={pin}", env!("CARGO_PKG_VERSION")).into_bytes();
        match server.walsender.as_deref().map(|walsender| &walsender.wanted) {
            Some(wanted) => {
                parameters.push((b"replication", &wanted.kind));
                let own = wanted.parameters.iter().filter(|(name, _)| name != b"options");
                parameters.extend(own.map(|(name, value)| (name.as_slice(), value.as_slice())));
                if let Some((_, own)) = wanted.parameters.iter().rfind(|(name, _)| name == b"options") {
                    options.push(b' ');
                    options.extend_from_slice(own);
                }
            }
            None if self.shared.config.statement_reuse == StatementReuse::CustomPlans => {
                options.extend_from_slice(b" -c plan_cache_mode=force_custom_plan");
            }
            None => {}
        }
        parameters.push((b"options", &options));
        if server.listens_for_all {
            parameters.push((b"application_name", b"pgusher listens"));
        }
        write_startup(&mut out, Version::V3_0, parameters);
        self.send(ConnId::Server(slot), out);
    }

    /// TLS with a server could not be agreed on.
    pub fn server_tls_failed(&mut self, slot: u32, error: &str) {
        let Some(server) = self.servers.get(slot as usize) else {
            return;
        };
        let text = format!("cannot speak TLS with the PostgreSQL server at {}", server.address);
        let report = Report::fatal(sqlstate::UNABLE_TO_CONNECT, text)
            .detail(error)
            .hint("sslmode and sslrootcert of the connection string say what is asked of the server.");
        if !self.try_otherwise(slot, true) {
            self.login_failed(slot, report);
        }
    }

    /// Tries once more, with or without TLS, where sslmode=prefer or allow wants it. `true`: under way.
    pub(super) fn try_otherwise(&mut self, slot: u32, was_encrypted: bool) -> bool {
        let Some(server) = self.servers.get_mut(slot as usize).filter(|s| !s.retried) else {
            return false;
        };
        let Some(encryption) = self.shared.config.server.tls.second(&server.address, was_encrypted) else {
            return false;
        };
        server.retried = true;
        server.encrypted = false;
        server.state = State::Connecting;
        server.held = Vec::new();
        let conn = ConnId::Server(slot);
        let address = server.address.clone();
        self.out.push_back(Output::Close(conn));
        self.out.push_back(Output::Connect { conn, address, encryption });
        true
    }

    /// The socket of a server could not connect.
    pub fn server_connect_failed(&mut self, slot: u32, error: &std::io::Error) {
        let Some(server) = self.servers.get(slot as usize) else {
            return;
        };
        let report = Report::fatal(
            sqlstate::UNABLE_TO_CONNECT,
            format!("cannot connect to the PostgreSQL server at {}", server.address),
        )
        .detail(error.to_string())
        .hint("Is the server running, and is the address in pgusher's configuration right?");
        self.login_failed(slot, report);
    }

    /// Bytes that must be put in front of those that are read next from a server.
    #[inline]
    pub fn server_held(&self, slot: u32) -> &[u8] {
        self.servers.get(slot as usize).map_or(&[], |s| &s.held)
    }

    pub(super) fn expire_connects(&mut self, before: Micros) {
        let late: Vec<u32> = self
            .servers
            .iter()
            .filter(|(_, s)| s.is_opening() && s.opened < before)
            .map(|(slot, _)| slot as u32)
            .collect();
        for slot in late {
            let error = std::io::Error::new(std::io::ErrorKind::TimedOut, "timed out");
            self.server_connect_failed(slot, &error);
        }
    }

    /// Closes a connection that is not the pool's any more and that nobody sits on.
    pub(super) fn close_server(&mut self, slot: u32) {
        let Some(server) = self.servers.try_remove(slot as usize) else {
            return;
        };
        if matches!(server.state, State::Idle) && server.scanner.at_boundary() {
            self.send(ConnId::Server(slot), frontend::TERMINATE_BYTES.to_vec());
        }
        self.out.push_back(Output::Close(ConnId::Server(slot)));
        self.scattered(server.followers);
        match server.pool.seats.closed() {
            Closed::Fine => {}
            Closed::Open => {
                self.open_server(&server.pool);
            }
        }
    }

    /// A message from a server that belongs to no client: it closes, or reports a changed setting.
    pub(super) fn idle_server_bytes(&mut self, slot: u32, buf: &[u8]) {
        let Some(server) = self.servers.get_mut(slot as usize) else {
            return;
        };
        let mut pos = 0;
        loop {
            let tag = match server.scanner.next(buf, &mut pos, |_| 0) {
                Ok(Some(head)) => head.tag,
                // A message that is cut off would reach the next client in part: not worth the risk.
                Ok(None) if pos == buf.len() && server.scanner.at_boundary() => return,
                Ok(None) | Err(_) => return self.lost_idle(slot),
            };
            match tag {
                backend::PARAMETER_STATUS | backend::NOTICE_RESPONSE | backend::NOTIFICATION_RESPONSE => {}
                // ErrorResponse: the server ends the connection. Anything else: nobody asked for it.
                _ => {
                    self.lost_idle(slot);
                    return;
                }
            }
        }
    }

    /// An idle server is gone, or no good.
    pub(super) fn lost_idle(&mut self, slot: u32) {
        let seat = self.server_seat(slot);
        let Some(server) = self.servers.get(slot as usize) else {
            return;
        };
        // If the pool has promised it to somebody, the request to hand it over finds it gone.
        if server.pool.seats.closed_idle(seat) {
            self.servers.try_remove(slot as usize);
            self.out.push_back(Output::Close(ConnId::Server(slot)));
        } else {
            self.close_server(slot);
        }
    }
}
