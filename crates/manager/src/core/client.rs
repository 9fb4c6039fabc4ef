//! A client's way from its first byte to its first ReadyForQuery.

use super::effects::More;
use super::io::{ConnId, Mail, Output};
use super::replication::Wanted;
use super::server::State as ServerState;
use super::{Core, Entropy, MAX_HELD};
use crate::auth::{Login, NO_DATABASE};
use crate::shared::{PoolEntry, Welcome};
use pgusher_auth::{ServerExchange, StoredSecret, md5::Md5Hash};
use pgusher_pool::{Micros, Seat, Ticket};
use pgusher_session::settings::{Interned, Interner, Settings};
use pgusher_session::statements::{Own, Unnamed};
use pgusher_session::{Aspects, Pins};
use pgusher_wire::scan::Scanner;
use pgusher_wire::startup::{Startup, Version};
use pgusher_wire::{Report, TxStatus, backend, sqlstate};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zeroize::Zeroize;

/// Where a client comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// TCP.
    Tcp,
    /// A Unix socket; the user id of the process at the other end, if the system tells it.
    Unix {
        /// Its user id.
        uid: Option<u32>,
    },
}

/// What a client does.
#[derive(Debug)]
pub(super) enum State {
    /// Nothing but a startup packet may come. `ssl_asked`: it has asked for encryption already.
    Startup { encryption_asked: u8 },
    /// The control side has been asked how the client must prove its identity.
    AwaitFacts,
    /// A SCRAM exchange; `started` after its first message.
    Scram { exchange: Box<ServerExchange>, login: Option<Login>, started: bool },
    /// An md5 hash is awaited.
    Md5 { hash: Md5Hash, salt: [u8; 4] },
    /// A password is awaited, to be checked against a secret.
    Plain { secret: Box<StoredSecret> },
    /// A password is awaited, to be judged by the server.
    PlainForServer,
    /// Between transactions.
    Idle,
    /// In its pool's queue. `login`: only to learn what a server says of itself.
    Waiting { ticket: Ticket, login: bool },
    /// A server of another worker is on its way.
    Promised { login: bool },
    /// Its batch was sent behind another client's.
    Following { server: u32 },
    /// Has a server.
    Seated { server: u32 },
    /// Has a walsender of its own; `ready`: and the walsender has logged in.
    Replicating { server: u32, ready: bool },
}

/// Which messages of a client without a server are discarded: those of a statement that was refused before the server saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Discard {
    /// None.
    Nothing,
    /// The next request is the refused one.
    Next,
    /// As the server does after an error in the extended protocol: everything up to the next Sync.
    UntilSync,
}

/// One connection from an application. Small: there may be ten thousand idle ones.
#[derive(Debug)]
pub struct Client {
    pub(super) serial: u32,
    /// When it has connected; once it has logged in, when it was heard or answered last without a server.
    pub(super) since: Micros,
    pub(super) state: State,
    pub(super) scanner: Scanner,
    /// A message that is cut off.
    pub(super) held: Vec<u8>,
    /// Messages that cannot be looked at yet, because the client waits.
    pub(super) pending: Vec<u8>,
    pub(super) pool: Option<Arc<PoolEntry>>,
    /// The settings that it means to have.
    pub(super) settings: Option<Interned>,
    /// The settings that it began with.
    pub(super) began: Option<Interned>,
    /// Why it keeps its server past the end of a transaction.
    pub(super) pins: Pins,
    /// What the server has to be asked before another client gets it.
    pub(super) doubts: Aspects,
    /// It has done something while it was not known what the database's definitions do.
    pub(super) unsure: bool,
    /// The count of changes of definitions when its last transaction was over.
    pub(super) changes: u32,
    /// It is not read until it has been judged, because others wait for a server.
    pub(super) parked: bool,
    /// A definition may have done something behind its statements.
    pub(super) behind: bool,
    pub(super) more: Option<Box<More>>,
    /// It is one of its pool's pinned clients.
    pub(super) counted: bool,
    pub(super) key: [u8; 32],
    pub(super) key_len: u8,
    pub(super) origin: Origin,
    /// It speaks TLS.
    pub(super) secured: bool,
    pub(super) login: Option<Box<LoginData>>,
    /// What it was sent does not leave; its server is not read meanwhile.
    pub(super) blocked: bool,
    /// It has sent more than the server has answered, and is not read meanwhile.
    pub(super) ahead: bool,
    /// Its prepared statements, once it has had any.
    pub(super) own: Option<Box<Own>>,
    /// A message waits for the replies to those before it.
    pub(super) settling: bool,
    /// It has sent a Query that may discard its prepared statements.
    pub(super) discards: bool,
    /// What it sends is ignored for a while.
    pub(super) discard: Discard,
    /// It has asked to cancel a statement that waits for settings to be put on its server.
    pub(super) cancelled: bool,
}

impl Client {
    /// Gives the buffer of a cut-off message back. During the login it may have held a password.
    pub(super) fn forget_held(&mut self) {
        if self.login.is_some() {
            self.held.zeroize();
        }
        self.held = Vec::new();
    }

    /// Must it keep its server past the end of a transaction?
    #[inline]
    pub(super) fn keeps_server(&self) -> bool {
        !self.pins.is_empty() || self.has_long_statement()
    }

    /// Its pins, as they are shown.
    pub(super) fn shown_pins(&self) -> Pins {
        if self.has_long_statement() { self.pins.union(Pins::STATEMENT) } else { self.pins }
    }

    /// Makes its pins a setting, so that SHOW tells them.
    pub(super) fn show_pins(&mut self, interner: &Interner) {
        const NAME: &str = "pgusher.pin";
        let Some(settings) = &self.settings else { return };
        let pins = self.shown_pins();
        let text = pins.to_string();
        let shown = if pins.is_empty() { None } else { Some(text.as_str()) };
        if settings.get(NAME) == shown {
            return;
        }
        let _ = self.more();
        let Some(settings) = &self.settings else { return };
        let changed = match shown {
            Some(text) => settings.with(NAME, text).ok(),
            None => Some(settings.without(NAME)),
        };
        self.settings = changed.map(|changed| interner.intern(changed)).or_else(|| self.settings.take());
    }

    /// It is none of its pool's pinned clients any more.
    pub(super) fn uncount(&mut self) {
        if std::mem::take(&mut self.counted) {
            if let Some(pool) = &self.pool {
                pool.pinned.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Is its unnamed statement one that is only on its server?
    #[inline]
    pub(super) fn has_long_statement(&self) -> bool {
        self.own.as_deref().is_some_and(|own| matches!(own.unnamed, Unnamed::There))
    }
}

/// What only a client that logs in needs.
#[derive(Debug)]
pub(super) struct LoginData {
    pub(super) user: Box<str>,
    pub(super) database: Box<str>,
    /// For the salt and the nonce of its proof.
    pub(super) random: Entropy,
    /// What goes in front of the next message to it.
    pub(super) preface: Vec<u8>,
    /// It asks for a walsender.
    pub(super) replication: Option<Wanted>,
}

/// What follows a message of the login.
pub(super) enum Step {
    /// Look at the next message.
    Go,
    /// The rest must wait, or more bytes are needed.
    Stop,
    /// The client is gone.
    Gone,
}

impl Core {
    /// A client has connected. Returns its slot.
    pub fn accepted(&mut self, origin: Origin, random: &Entropy) -> u32 {
        let serial = self.next_serial();
        let mut key = [0; 32];
        key.copy_from_slice(&random[..32]);
        let client = Client {
            serial,
            since: self.now,
            state: State::Startup { encryption_asked: 0 },
            scanner: Scanner::new(),
            held: Vec::new(),
            pending: Vec::new(),
            pool: None,
            settings: None,
            began: None,
            pins: Pins::NONE,
            doubts: Aspects::NONE,
            unsure: false,
            changes: 0,
            parked: false,
            behind: false,
            more: None,
            counted: false,
            key,
            key_len: 4,
            origin,
            secured: false,
            login: Some(Box::new(LoginData {
                user: "".into(),
                database: "".into(),
                random: *random,
                preface: Vec::new(),
                replication: None,
            })),
            blocked: false,
            ahead: false,
            own: None,
            settling: false,
            discards: false,
            discard: Discard::Nothing,
            cancelled: false,
        };
        self.clients.insert(client) as u32
    }

    /// Bytes that must be put in front of those that are read next from a client.
    #[inline]
    pub fn client_held(&self, slot: u32) -> &[u8] {
        self.clients.get(slot as usize).map_or(&[], |c| &c.held)
    }

    /// Does the client log in, or wait for something that is not its server? Then its bytes are kept.
    pub(super) fn login_bytes(&mut self, slot: u32, buf: &[u8]) {
        let mut rest = buf;
        loop {
            let Some(client) = self.clients.get(slot as usize) else {
                return;
            };
            let step = match &client.state {
                State::Startup { .. } => self.startup_bytes(slot, &mut rest),
                State::Scram { .. } | State::Md5 { .. } | State::Plain { .. } | State::PlainForServer => {
                    self.password_bytes(slot, &mut rest)
                }
                State::AwaitFacts | State::Waiting { .. } | State::Promised { .. } | State::Following { .. } => {
                    Step::Stop
                }
                State::Replicating { ready: false, .. } => Step::Stop,
                State::Replicating { server, ready: true } => {
                    let server = *server;
                    return self.stream_up(server, rest, super::flow::Source::Copy);
                }
                State::Idle | State::Seated { .. } => {
                    // The login is over; what came with its last message is the first of the session.
                    if !rest.is_empty() {
                        let rest = rest.to_vec();
                        self.session_bytes(slot, &rest, super::flow::Source::Copy);
                    }
                    return;
                }
            };
            match step {
                Step::Go => {}
                Step::Gone => return,
                Step::Stop => break,
            }
        }
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        match client.state {
            State::Startup { .. }
            | State::Scram { .. }
            | State::Md5 { .. }
            | State::Plain { .. }
            | State::PlainForServer => {
                let asked = !matches!(client.state, State::Startup { .. });
                client.forget_held();
                client.held = rest.to_vec();
                if asked {
                    self.out.push_back(Output::Wipe);
                }
            }
            _ => {
                client.pending.extend_from_slice(rest);
                self.out.push_back(Output::Pause(ConnId::Client(slot)));
            }
        }
        if self.clients.get(slot as usize).is_some_and(|c| c.held.len() >= MAX_HELD) {
            self.refuse(slot, &Report::fatal(sqlstate::PROTOCOL_VIOLATION, "the login message is too long"));
        }
    }

    fn startup_bytes(&mut self, slot: u32, rest: &mut &[u8]) -> Step {
        let (message, used) = match Startup::parse(rest) {
            Ok(Some(parsed)) => parsed,
            Ok(None) => return Step::Stop,
            Err(_) => {
                // Not a PostgreSQL client: an answer would only be noise to it.
                self.drop_client(slot);
                return Step::Gone;
            }
        };
        let (packet, after) = rest.split_at(used);
        let _ = packet;
        *rest = after;
        match message {
            Startup::SslRequest | Startup::GssEncRequest => {
                let Some(client) = self.clients.get_mut(slot as usize) else {
                    return Step::Gone;
                };
                let State::Startup { encryption_asked } = &mut client.state else {
                    return Step::Gone;
                };
                *encryption_asked += 1;
                // One for each kind. Anything sent behind the question, before its answer, was meant to be encrypted.
                if *encryption_asked > 2 || !rest.is_empty() || client.secured {
                    self.drop_client(slot);
                    return Step::Gone;
                }
                // On a Unix socket there is nobody to hide from.
                let tls = matches!(message, Startup::SslRequest)
                    && client.origin == Origin::Tcp
                    && self.shared.config.client_tls.is_some();
                self.send(ConnId::Client(slot), vec![if tls { b'S' } else { b'N' }]);
                if tls {
                    self.out.push_back(Output::StartTls(ConnId::Client(slot)));
                }
                Step::Go
            }
            Startup::Cancel { pid, key } => {
                self.cancel_requested(pid, key);
                self.drop_client(slot);
                Step::Gone
            }
            Startup::Session { version, parameters } => {
                if version.major != 3 {
                    let text = format!("unsupported frontend protocol {}.{}", version.major, version.minor);
                    let report = Report::fatal(sqlstate::FEATURE_NOT_SUPPORTED, text)
                        .hint("pgusher speaks versions 3.0 and 3.2 of the protocol.");
                    self.refuse(slot, &report);
                    return Step::Gone;
                }
                if self.needs_tls(slot) {
                    let report =
                        Report::fatal(sqlstate::INVALID_AUTHORIZATION, "pgusher accepts encrypted connections only")
                            .hint("Connect with sslmode=require, or a stronger one.");
                    self.refuse(slot, &report);
                    return Step::Gone;
                }
                match self.session_requested(slot, version, parameters.iter()) {
                    Ok(()) => Step::Go,
                    Err(report) => {
                        self.refuse(slot, &report);
                        Step::Gone
                    }
                }
            }
        }
    }

    /// The TLS handshake with a client is over.
    pub fn client_secured(&mut self, slot: u32) {
        if let Some(client) = self.clients.get_mut(slot as usize) {
            client.secured = true;
        }
    }

    /// Is this client one that must speak TLS and does not?
    fn needs_tls(&self, slot: u32) -> bool {
        let required = self.shared.config.client_tls.as_ref().is_some_and(crate::tls::Clients::is_required);
        required && self.clients.get(slot as usize).is_some_and(|c| !c.secured && c.origin == Origin::Tcp)
    }

    fn session_requested<'a>(
        &mut self,
        slot: u32,
        version: Version,
        parameters: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    ) -> Result<(), Report> {
        let text = |name: &[u8]| {
            let value = parameters.clone().filter(|(n, _)| *n == name).last().map(|(_, v)| v).unwrap_or_default();
            std::str::from_utf8(value)
                .map_err(|_| Report::fatal(sqlstate::INVALID_AUTHORIZATION, "a name is not valid UTF-8"))
        };
        let user = text(b"user")?;
        if user.is_empty() {
            return Err(Report::fatal(
                sqlstate::INVALID_AUTHORIZATION,
                "no PostgreSQL user name specified in startup packet",
            ));
        }
        let database = match text(b"database")? {
            "" => user,
            name => name,
        };
        let replication = Wanted::from_startup(parameters.clone())?;
        // A physical walsender belongs to no database, whatever is asked for.
        let physical = replication.as_ref().is_some_and(|wanted| !wanted.is_logical());
        let database = if physical { NO_DATABASE } else { database };
        let settings = if replication.is_some() {
            // They go to the walsender as they are.
            self.shared.no_settings.clone()
        } else {
            let settings = Settings::from_startup(parameters.clone())
                .map_err(|e| Report::fatal(sqlstate::FEATURE_NOT_SUPPORTED, e.to_string()))?;
            self.shared.interner.intern(settings)
        };

        let newest = Version::V3_2;
        let unknown: Vec<&[u8]> = parameters.map(|(n, _)| n).filter(|n| n.starts_with(b"_pq_.")).collect();
        let mut preface = Vec::new();
        if version > newest || !unknown.is_empty() {
            backend::write_negotiate_protocol_version(&mut preface, version.min(newest), &unknown);
        }
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return Ok(());
        };
        client.key_len = if version >= Version::V3_2 { 32 } else { 4 };
        client.began = Some(settings.clone());
        client.settings = Some(settings);
        client.state = State::AwaitFacts;
        if let Some(login) = client.login.as_mut() {
            login.user = user.into();
            login.database = database.into();
            login.preface = preface;
            login.replication = replication;
        }
        self.begin_authentication(slot, user, database);
        Ok(())
    }

    /// Tells the client that it may begin, and what a server has said of itself.
    pub(super) fn welcome(&mut self, slot: u32, welcome: &Welcome) {
        let pid = self.cancel_pid(slot);
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        let Some(settings) = &client.settings else { return };
        let mut out = client.login.take().map(|l| l.preface).unwrap_or_default();
        out.reserve(640);
        backend::write_authentication_ok(&mut out);
        for (name, value) in &welcome.parameters {
            let own = if name == b"application_name" { settings.get("application_name") } else { None };
            backend::write_parameter_status(&mut out, name, own.map_or(value.as_slice(), str::as_bytes));
        }
        backend::write_parameter_status(&mut out, b"pgusher.version", env!("CARGO_PKG_VERSION").as_bytes());
        let key = client.key.get(..usize::from(client.key_len)).unwrap_or_default();
        backend::write_backend_key_data(&mut out, pid, key);
        backend::write_ready_for_query(&mut out, TxStatus::Idle);
        client.since = self.now;
        client.state = match client.state {
            State::Replicating { server, .. } => State::Replicating { server, ready: true },
            _ => State::Idle,
        };
        client.held = Vec::new();
        self.send(ConnId::Client(slot), out);
        self.resume_client(slot);
    }

    /// What a client was told as its process id: where to find it again. Never zero or negative.
    pub(super) fn cancel_pid(&self, slot: u32) -> u32 {
        ((u32::from(self.me.0) << 24) | (slot & 0x00ff_ffff)) + 1
    }

    /// Looks at what the client sent while it waited, and reads on.
    pub(super) fn resume_client(&mut self, slot: u32) {
        self.out.push_back(Output::Resume(ConnId::Client(slot)));
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        if !client.pending.is_empty() {
            let pending = std::mem::take(&mut client.pending);
            self.client_copy(slot, &pending);
        }
    }

    /// Says why, and closes.
    pub(super) fn refuse(&mut self, slot: u32, report: &Report) {
        self.let_go(slot);
        let mut out = Vec::new();
        if let Some(client) = self.clients.get_mut(slot as usize).filter(|client| client.pool.is_some()) {
            if let Some(login) = client.login.take() {
                // It has proved its identity. The server says so as well, before it looks at anything else.
                out = login.preface;
                backend::write_authentication_ok(&mut out);
            }
        }
        out.extend_from_slice(&report.to_bytes());
        self.send(ConnId::Client(slot), out);
        self.drop_client(slot);
    }

    pub(super) fn drain_client(&mut self, slot: u32) {
        if let Some(State::Replicating { ready, .. }) = self.clients.get(slot as usize).map(|c| &c.state) {
            let ready = *ready;
            return self.drain_walsender(slot, ready);
        }
        if self.clients.get(slot as usize).is_some_and(|c| !matches!(c.state, State::Seated { .. })) {
            self.refuse(slot, &draining());
        } else {
            self.part_if_done(slot);
        }
    }

    /// Another worker or the control side could not provide a server.
    pub(super) fn no_server(&mut self, seat: Seat, report: &Report) {
        if self.client_in(seat).is_some_and(|c| matches!(c.state, State::Waiting { .. } | State::Promised { .. })) {
            self.refuse(seat.slot, report);
        }
    }

    pub(super) fn tell_no_server(&mut self, client: Seat, report: &Arc<Report>) {
        if client.worker == self.me {
            self.no_server(client, report);
        } else {
            let mail = Mail::NoServer { client, report: report.clone() };
            self.out.push_back(Output::Mail(client.worker, mail));
        }
    }
}

/// What clients are told at shutdown.
pub(super) fn draining() -> Report {
    Report::fatal(sqlstate::ADMIN_SHUTDOWN, "terminating connection due to administrator command")
        .detail("pgusher is shutting down.")
}

impl Core {
    /// A client that is not read has hung up. Is it gone? Otherwise that is seen when it is read again, which is soon.
    pub fn is_gone(&self, slot: u32) -> bool {
        self.clients.get(slot as usize).is_some_and(|c| match c.state {
            State::Waiting { .. }
            | State::Promised { .. }
            | State::Following { .. }
            | State::AwaitFacts
            | State::Replicating { .. } => true,
            // Its server works for it, as long as it likes. A client that is read is gone then, too. The replies to messages
            // of our own do not take long, and the server is still good afterwards.
            State::Seated { server } => {
                self.servers.get(server as usize).is_some_and(|s| matches!(s.state, ServerState::Seated { .. }))
            }
            _ => false,
        })
    }
}
