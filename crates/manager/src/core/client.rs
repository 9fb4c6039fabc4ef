//! A client's way from its first byte to its first ReadyForQuery.

use super::io::{ConnId, Mail, Output, Question};
use super::{Core, Entropy, MAX_HELD};
use crate::auth::{Facts, Login};
use crate::config::AuthMethod;
use crate::shared::PoolEntry;
use pgusher_auth::{AuthError, Mechanism, Password, ServerExchange, StoredSecret, md5::Md5Hash};
use pgusher_pool::{Micros, Seat, Ticket};
use pgusher_session::settings::{Interned, Settings};
use pgusher_wire::scan::Scanner;
use pgusher_wire::startup::{Startup, Version};
use pgusher_wire::{Frame, Report, TxStatus, backend, frontend, sqlstate};
use std::sync::Arc;

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

/// Why a client keeps its physical connection past the end of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pin {
    /// The pool is in session mode.
    Session,
    /// A prepared statement with a name.
    Prepared,
    /// A setting was changed.
    Setting,
    /// A cursor may outlive its transaction.
    Cursor,
    /// The client listens.
    Listen,
    /// A library was loaded.
    Load,
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
    /// Has a server.
    Seated { server: u32 },
}

/// One connection from an application. Small: there may be ten thousand idle ones.
#[derive(Debug)]
pub struct Client {
    pub(super) serial: u32,
    pub(super) since: Micros,
    pub(super) state: State,
    pub(super) scanner: Scanner,
    /// A message that is cut off.
    pub(super) held: Vec<u8>,
    /// Messages that cannot be looked at yet, because the client waits.
    pub(super) pending: Vec<u8>,
    pub(super) pool: Option<Arc<PoolEntry>>,
    pub(super) settings: Option<Interned>,
    pub(super) pin: Option<Pin>,
    pub(super) key: [u8; 32],
    pub(super) key_len: u8,
    pub(super) origin: Origin,
    pub(super) login: Option<Box<LoginData>>,
    /// What it was sent does not leave; its server is not read meanwhile.
    pub(super) blocked: bool,
    /// It has sent more than the server has answered, and is not read meanwhile.
    pub(super) ahead: bool,
    /// The unnamed statement of the server that it has is its own.
    pub(super) parsed: bool,
    /// It has parsed an unnamed statement and not executed anything since.
    pub(super) unexecuted: bool,
}

/// What only a client that logs in needs.
#[derive(Debug)]
pub(super) struct LoginData {
    user: Box<str>,
    database: Box<str>,
    /// What the server asks for is asked from the client; then what the server said.
    random: Entropy,
    preface: Vec<u8>,
}

enum Step {
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
            pin: None,
            key,
            key_len: 4,
            origin,
            login: Some(Box::new(LoginData {
                user: "".into(),
                database: "".into(),
                random: *random,
                preface: Vec::new(),
            })),
            blocked: false,
            ahead: false,
            parsed: false,
            unexecuted: false,
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
                State::AwaitFacts | State::Waiting { .. } | State::Promised { .. } => Step::Stop,
                State::Idle | State::Seated { .. } => {
                    // The login is over; what came with its last message is the first of the session.
                    if !rest.is_empty() {
                        let rest = rest.to_vec();
                        self.session_bytes(slot, &rest, super::relay::Source::Copy);
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
            | State::PlainForServer => client.held = rest.to_vec(),
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
                if *encryption_asked > 2 || !rest.is_empty() {
                    self.drop_client(slot);
                    return Step::Gone;
                }
                self.send(ConnId::Client(slot), vec![b'N']);
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
        if !matches!(text(b"replication")?, "" | "false" | "off" | "no" | "0") {
            return Err(Report::fatal(
                sqlstate::FEATURE_NOT_SUPPORTED,
                "replication connections are not supported yet",
            )
            .hint("Connect to the server directly."));
        }
        let settings = Settings::from_startup(parameters.clone())
            .map_err(|e| Report::fatal(sqlstate::FEATURE_NOT_SUPPORTED, e.to_string()))?;
        let settings = self.shared.interner.intern(settings);

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
        client.settings = Some(settings);
        client.state = State::AwaitFacts;
        if let Some(login) = client.login.as_mut() {
            login.user = user.into();
            login.database = database.into();
            login.preface = preface;
        }
        self.begin_authentication(slot, user, database);
        Ok(())
    }

    fn begin_authentication(&mut self, slot: u32, user: &str, database: &str) {
        let shared = self.shared.clone();
        let listed = || shared.users.get(user.as_bytes());
        let facts = match shared.config.auth {
            AuthMethod::Trust => Facts::Trust,
            AuthMethod::ScramSha256 => match listed() {
                Some(StoredSecret::Scram(verifier)) => Facts::Scram { verifier: verifier.clone(), login: None },
                _ => Facts::Nobody,
            },
            AuthMethod::Md5 => match listed() {
                Some(StoredSecret::Scram(verifier)) => Facts::Scram { verifier: verifier.clone(), login: None },
                Some(secret) => match secret.md5_hash(user.as_bytes()) {
                    Some(hash) => Facts::Md5(hash),
                    None => Facts::Nobody,
                },
                None => Facts::Nobody,
            },
            AuthMethod::Plain => match listed() {
                Some(secret) => Facts::Plain(secret.clone()),
                None => Facts::Nobody,
            },
            AuthMethod::Server => {
                let known = shared.known.load();
                match known.get(&(Box::from(user), Box::from(database))) {
                    Some(facts) => facts.clone(),
                    None => {
                        self.ask_facts(slot, None);
                        return;
                    }
                }
            }
        };
        let client = self.client_seat(slot);
        self.facts(client, facts);
    }

    fn ask_facts(&mut self, slot: u32, password: Option<Password>) {
        let seat = self.client_seat(slot);
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        client.state = State::AwaitFacts;
        let Some(login) = client.login.as_ref() else {
            return;
        };
        self.out.push_back(Output::Ask(Question::Facts {
            client: seat,
            user: login.user.clone(),
            database: login.database.clone(),
            origin: client.origin,
            password,
        }));
    }

    /// It is known how the client must prove its identity.
    pub(super) fn facts(&mut self, seat: Seat, facts: Facts) {
        let shared = self.shared.clone();
        let slot = seat.slot;
        let Some(client) = self.client_in(seat) else {
            return;
        };
        let Some(login) = client.login.as_ref() else {
            return;
        };
        let mut nonce = [0; pgusher_auth::RAW_NONCE_LEN];
        nonce.copy_from_slice(&login.random[32..50]);
        let salt = [login.random[50], login.random[51], login.random[52], login.random[53]];
        let mut ask = Vec::new();
        match facts {
            Facts::Trust => return self.authenticated(slot, None, Vec::new()),
            Facts::Accepted(proof) => return self.authenticated(slot, Some(proof), Vec::new()),
            Facts::Refuse(report) => return self.refuse(slot, &report),
            Facts::Scram { verifier, login } => {
                let exchange = Box::new(ServerExchange::new(verifier, None, &nonce));
                client.state = State::Scram { exchange, login, started: false };
                backend::write_authentication_sasl(&mut ask, &[Mechanism::ScramSha256.name()]);
            }
            Facts::Nobody => {
                let user = login.user.clone();
                match ServerExchange::mock(&shared.mock, user.as_bytes(), 4096, None, &nonce) {
                    Ok(exchange) => {
                        client.state = State::Scram { exchange: Box::new(exchange), login: None, started: false };
                    }
                    Err(e) => return self.refuse_login(slot, &e),
                }
                backend::write_authentication_sasl(&mut ask, &[Mechanism::ScramSha256.name()]);
            }
            Facts::Md5(hash) => {
                client.state = State::Md5 { hash, salt };
                backend::write_authentication_md5(&mut ask, salt);
            }
            Facts::Plain(secret) => {
                client.state = State::Plain { secret: Box::new(secret) };
                backend::write_authentication_cleartext(&mut ask);
            }
            Facts::AskServer => {
                client.state = State::PlainForServer;
                backend::write_authentication_cleartext(&mut ask);
            }
        }
        if let Some(login) = self.clients.get_mut(slot as usize).and_then(|c| c.login.as_mut()) {
            let preface = std::mem::take(&mut login.preface);
            ask.splice(0..0, preface);
        }
        self.send(ConnId::Client(slot), ask);
        self.resume_client(slot);
    }

    fn password_bytes(&mut self, slot: u32, rest: &mut &[u8]) -> Step {
        let frame = match Frame::parse(rest) {
            Ok(Some((frame, used))) if frame.tag == frontend::PASSWORD => {
                *rest = rest.get(used..).unwrap_or_default();
                frame
            }
            Ok(None) if rest.first().is_none_or(|t| *t == frontend::PASSWORD) => return Step::Stop,
            _ => {
                // A client that has no password to give closes, or says Terminate.
                self.drop_client(slot);
                return Step::Gone;
            }
        };
        match self.password(slot, frame.body) {
            Ok(()) => Step::Go,
            Err(e) => {
                self.refuse_login(slot, &e);
                Step::Gone
            }
        }
    }

    fn password(&mut self, slot: u32, body: &[u8]) -> Result<(), AuthError> {
        let protocol = |_| AuthError::Protocol("malformed password message");
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return Ok(());
        };
        let user = client.login.as_ref().map(|l| l.user.clone()).unwrap_or_default();
        match &mut client.state {
            State::Scram { exchange, started: started @ false, .. } => {
                let (mechanism, response) = frontend::parse_sasl_initial(body).map_err(protocol)?;
                let mechanism = Mechanism::from_name(mechanism)?;
                let mut out = Vec::new();
                match response {
                    Some(response) => {
                        *started = true;
                        let first = exchange.on_client_first(mechanism, response)?;
                        backend::write_authentication_sasl_continue(&mut out, &first);
                    }
                    None => {
                        return Err(AuthError::Protocol("SASLInitialResponse without a response"));
                    }
                }
                self.send(ConnId::Client(slot), out);
            }
            State::Scram { exchange, login, .. } => {
                let accepted = exchange.on_client_final(body)?;
                let login = login.take().unwrap_or(Login::Keys { keys: accepted.keys, made_with: accepted.parameters });
                let mut out = Vec::new();
                backend::write_authentication_sasl_final(&mut out, &accepted.server_final);
                self.authenticated(slot, Some(login), out);
            }
            State::Md5 { hash, salt } => {
                hash.verify_response(salt, frontend::parse_password(body).map_err(protocol)?)?;
                let login = Login::Md5(hash.clone());
                self.authenticated(slot, Some(login), Vec::new());
            }
            State::Plain { secret } => {
                let password = Password::new(frontend::parse_password(body).map_err(protocol)?);
                secret.verify_plain(user.as_bytes(), &password)?;
                self.authenticated(slot, Some(Login::Password(password)), Vec::new());
            }
            State::PlainForServer => {
                let password = Password::new(frontend::parse_password(body).map_err(protocol)?);
                if password.is_empty() {
                    return Err(AuthError::WrongPassword);
                }
                self.ask_facts(slot, Some(password));
            }
            _ => {}
        }
        Ok(())
    }

    /// The client is who it says. `out` is what goes in front of AuthenticationOk.
    fn authenticated(&mut self, slot: u32, proof: Option<Login>, out: Vec<u8>) {
        let shared = self.shared.clone();
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        let Some(login) = client.login.as_mut() else {
            return;
        };
        let mut first = std::mem::take(&mut login.preface);
        first.extend_from_slice(&out);
        login.preface = first;
        let Some(pool) = shared.pool(&login.database, &login.user) else {
            let report = Report::fatal(sqlstate::TOO_MANY_CONNECTIONS, "too many pools")
                .hint("Raise max_pools, or connect with fewer different databases and users.");
            return self.refuse(slot, &report);
        };
        let configured = shared.config.login_for(&login.user);
        match configured.or(proof) {
            Some(proof) => pool.login.store(Some(Arc::new(proof))),
            None if shared.config.auth == AuthMethod::Server => pool.login.store(None),
            None => {}
        }
        client.pool = Some(pool.clone());
        if shared.config.pool_mode.is_session() {
            client.pin = Some(Pin::Session);
        }
        if self.draining {
            return self.refuse(slot, &draining());
        }
        if pool.welcome.load().is_some() {
            self.welcome(slot);
        } else {
            self.want_server(slot, true);
        }
    }

    /// Tells the client that it may begin.
    pub(super) fn welcome(&mut self, slot: u32) {
        let pid = self.cancel_pid(slot);
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        let (Some(pool), Some(settings)) = (&client.pool, &client.settings) else {
            return;
        };
        let Some(welcome) = pool.welcome.load_full() else {
            self.want_server(slot, true);
            return;
        };
        let mut out = client.login.take().map(|l| l.preface).unwrap_or_default();
        out.reserve(640);
        backend::write_authentication_ok(&mut out);
        for (name, value) in &welcome.parameters {
            let own = std::str::from_utf8(name).ok().and_then(|n| settings.get(n));
            backend::write_parameter_status(&mut out, name, own.map_or(value.as_slice(), str::as_bytes));
        }
        let key = client.key.get(..usize::from(client.key_len)).unwrap_or_default();
        backend::write_backend_key_data(&mut out, pid, key);
        backend::write_ready_for_query(&mut out, TxStatus::Idle);
        client.state = State::Idle;
        client.held = Vec::new();
        self.send(ConnId::Client(slot), out);
        self.resume_client(slot);
    }

    /// What a client was told as its process id: where to find it again. Never zero or negative.
    fn cancel_pid(&self, slot: u32) -> u32 {
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

    fn refuse_login(&mut self, slot: u32, error: &AuthError) {
        let user =
            self.clients.get(slot as usize).and_then(|c| c.login.as_ref()).map(|l| l.user.clone()).unwrap_or_default();
        let report = match error {
            AuthError::WrongPassword => {
                Report::fatal(sqlstate::INVALID_PASSWORD, format!("password authentication failed for user \"{user}\""))
            }
            other => Report::fatal(other.sqlstate(), other.to_string()),
        };
        self.refuse(slot, &report);
    }

    /// Says why, and closes.
    pub(super) fn refuse(&mut self, slot: u32, report: &Report) {
        self.send(ConnId::Client(slot), report.to_bytes());
        self.drop_client(slot);
    }

    pub(super) fn expire_logins(&mut self, before: Micros) {
        let late: Vec<u32> = self
            .clients
            .iter()
            .filter(|(_, c)| c.login.is_some() && c.since < before)
            .map(|(slot, _)| slot as u32)
            .collect();
        for slot in late {
            let report = Report::fatal(sqlstate::PROTOCOL_VIOLATION, "the login took too long")
                .hint("Raise client_login_timeout if the network is slow.");
            self.refuse(slot, &report);
        }
    }

    pub(super) fn drain_client(&mut self, slot: u32) {
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
    /// Does this client wait for something else than its own server's replies? If it hangs up then, it is gone.
    pub fn client_waits(&self, slot: u32) -> bool {
        self.clients
            .get(slot as usize)
            .is_some_and(|c| matches!(c.state, State::Waiting { .. } | State::Promised { .. } | State::AwaitFacts))
    }
}
