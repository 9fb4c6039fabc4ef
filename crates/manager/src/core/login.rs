//! A client proves its identity: which proof is asked for, and what is made of the answer.

use super::Core;
use super::client::{State, Step, draining};
use super::io::{ConnId, Output, Question};
use crate::auth::{Asked, Facts, Login};
use crate::config::AuthMethod;
use pgusher_auth::{AuthError, Mechanism, Password, ServerExchange, StoredSecret, md5::Md5Hash};
use pgusher_pool::{Micros, Seat};
use pgusher_session::Pins;
use pgusher_wire::{Frame, Report, backend, frontend, sqlstate};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Core {
    pub(super) fn begin_authentication(&mut self, slot: u32, user: &str, database: &str) {
        let shared = self.shared.clone();
        let listed = || shared.users.get(user.as_bytes());
        let facts = match shared.config.auth {
            AuthMethod::Trust => Facts::Trust,
            AuthMethod::ScramSha256 => match listed() {
                Some(StoredSecret::Scram(verifier)) => Facts::Scram { verifier: verifier.clone(), login: None },
                _ => Facts::Nobody(shared.unknown),
            },
            AuthMethod::Md5 => match listed() {
                Some(StoredSecret::Scram(verifier)) => Facts::Scram { verifier: verifier.clone(), login: None },
                Some(secret) => match secret.md5_hash(user.as_bytes()) {
                    Some(hash) => Facts::Md5(hash),
                    None => Facts::Nobody(shared.unknown),
                },
                None => Facts::Nobody(shared.unknown),
            },
            AuthMethod::Plain => match listed() {
                Some(secret) => Facts::Plain(secret.clone()),
                None => Facts::Nobody(shared.unknown),
            },
            AuthMethod::Server => {
                let (known, moves) = (shared.known.load(), shared.upstream.moves());
                match known.get(&(Box::from(user), Box::from(database))).and_then(|known| known.for_login(moves)) {
                    Some(facts) => facts,
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
        // What SCRAM-SHA-256-PLUS binds to, where the client speaks TLS.
        let tls = shared.config.client_tls.as_ref().filter(|_| client.secured);
        let binding = tls.and_then(|tls| tls.binding().cloned());
        let mechanisms: &[&str] = match binding {
            Some(_) => &[Mechanism::ScramSha256Plus.name(), Mechanism::ScramSha256.name()],
            None => &[Mechanism::ScramSha256.name()],
        };
        let mut ask = Vec::new();
        match facts {
            Facts::Trust => return self.authenticated(slot, None, Vec::new()),
            Facts::Accepted(proof) => return self.authenticated(slot, Some(proof), Vec::new()),
            Facts::Refuse(report) => return self.refuse(slot, &report),
            Facts::Scram { verifier, login } => {
                let exchange = Box::new(ServerExchange::new(verifier, binding, &nonce));
                client.state = State::Scram { exchange, login, started: false };
                backend::write_authentication_sasl(&mut ask, mechanisms);
            }
            Facts::Nobody(Asked::Scram) => {
                let mock = ServerExchange::mock(&shared.mock, login.user.as_bytes(), 4096, binding, &nonce);
                match mock {
                    Ok(exchange) => {
                        client.state = State::Scram { exchange: Box::new(exchange), login: None, started: false };
                    }
                    Err(e) => return self.refuse_login(slot, &e),
                }
                backend::write_authentication_sasl(&mut ask, mechanisms);
            }
            Facts::Nobody(Asked::Md5) => {
                // The cancel key is not known to anybody before the login has succeeded.
                let hash = Md5Hash::from_password(login.user.as_bytes(), &Password::new(client.key.to_vec()));
                client.state = State::Md5 { hash, salt };
                backend::write_authentication_md5(&mut ask, salt);
            }
            Facts::Nobody(Asked::Plain) => {
                client.state = State::Plain { secret: Box::new(shared.nobodys.clone()) };
                backend::write_authentication_cleartext(&mut ask);
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

    pub(super) fn password_bytes(&mut self, slot: u32, rest: &mut &[u8]) -> Step {
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
        self.out.push_back(Output::Wipe);
        match self.password(slot, frame.body) {
            Ok(()) => Step::Go,
            Err(e) => {
                if e == AuthError::WrongPassword {
                    self.doubt(slot);
                }
                self.refuse_login(slot, &e);
                Step::Gone
            }
        }
    }

    /// A proof has failed: what is known of the user may be out of date.
    fn doubt(&mut self, slot: u32) {
        if self.shared.config.auth != AuthMethod::Server {
            return;
        }
        if let Some(login) = self.clients.get(slot as usize).and_then(|c| c.login.as_ref()) {
            let (user, database) = (login.user.clone(), login.database.clone());
            self.out.push_back(Output::Ask(Question::Doubt { user, database }));
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
                if matches!(**secret, StoredSecret::Scram(_)) {
                    let secret = secret.clone();
                    client.state = State::AwaitFacts;
                    let client = self.client_seat(slot);
                    self.out.push_back(Output::Ask(Question::Check { client, user, password, secret }));
                    return Ok(());
                }
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
        let replication = login.replication.take();
        let pool = match replication {
            Some(_) => Some(shared.pool_apart(&login.database, &login.user)),
            None => shared.pool(&login.database, &login.user),
        };
        let Some(pool) = pool else {
            let report = Report::fatal(sqlstate::TOO_MANY_CONNECTIONS, "too many pools")
                .hint("Raise max_pools, or connect with fewer different databases and users.");
            return self.refuse(slot, &report);
        };
        let configured = shared.config.login_for(&login.user);
        let best = match (configured, proof) {
            // A password or keys work wherever a hash does, and further.
            (Some(Login::Md5(_)), Some(proof)) => Some(proof),
            (configured, proof) => configured.or(proof),
        };
        match best {
            Some(proof) => pool.login.store(Some(Arc::new(proof))),
            None if shared.config.auth == AuthMethod::Server => pool.login.store(None),
            None => {}
        }
        pool.refused.store(false, Ordering::Relaxed);
        client.pool = Some(pool.clone());
        if shared.config.pool_mode.is_session() {
            client.pins = Pins::SESSION;
        }
        if self.draining {
            return self.refuse(slot, &draining());
        }
        if let Some(wanted) = replication {
            return self.open_walsender(slot, &pool, wanted);
        }
        let Some(settings) = &client.settings else { return };
        match pool.greeting(settings) {
            Some(welcome) => self.welcome(slot, &welcome),
            None => {
                self.want_server(slot, true);
            }
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
}
