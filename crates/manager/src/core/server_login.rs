//! A login to a server, from its first message to ReadyForQuery: what it asks for is answered, what it says of itself is kept.

use super::flow::Source;
use super::io::{Bytes, ConnId, Output, Question};
use super::server::{Server, State};
use super::{Core, MAX_HELD};
use crate::auth::{Login, speaks_against_server};
use crate::shared::Welcome;
use pgusher_auth::scram::Step;
use pgusher_auth::{
    AuthError, ClientExchange, Credential, OfferedMechanisms, Password, RAW_NONCE_LEN, ScramKeys, Transport,
};
use pgusher_pool::Seat;
use pgusher_wire::backend::{Authentication, Message};
use pgusher_wire::{Frame, Report, frontend, sqlstate};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zeroize::Zeroizing;

/// What is kept during a login.
#[derive(Debug)]
pub(super) struct LoginState {
    nonce: [u8; RAW_NONCE_LEN],
    transport: Transport,
    exchange: Option<ClientExchange>,
    parameters: Vec<(Vec<u8>, Vec<u8>)>,
    ready: bool,
}

impl LoginState {
    pub(super) fn new(nonce: [u8; RAW_NONCE_LEN], transport: Transport) -> Self {
        Self { nonce, transport, exchange: None, parameters: Vec::new(), ready: false }
    }
}

impl Core {
    pub(super) fn server_login_bytes(&mut self, slot: u32, buf: &[u8]) {
        let mut rest = buf;
        loop {
            match Frame::parse(rest) {
                Ok(Some((frame, used))) => {
                    rest = rest.get(used..).unwrap_or_default();
                    if !self.login_message(slot, frame) {
                        return self.behind_login(slot, rest);
                    }
                    if self.servers.get(slot as usize).is_none_or(|s| !matches!(s.state, State::Login(_))) {
                        return;
                    }
                }
                Ok(None) if rest.len() < MAX_HELD => break,
                Ok(None) | Err(_) => {
                    let text = "the server at the other end does not speak the PostgreSQL protocol";
                    return self.login_failed(slot, Report::fatal(sqlstate::PROTOCOL_VIOLATION, text));
                }
            }
        }
        if let Some(server) = self.servers.get_mut(slot as usize) {
            server.held = rest.to_vec();
        }
    }

    /// What a server has said behind the end of its login, in the same breath: a parameter, or that it ends.
    fn behind_login(&mut self, slot: u32, rest: &[u8]) {
        let Some(server) = self.servers.get_mut(slot as usize).filter(|_| !rest.is_empty()) else {
            return;
        };
        match server.state {
            State::Connecting | State::Login(_) => {}
            State::Replicating { client } => self.stream_down(client, rest, Source::Copy),
            _ => server.held = rest.to_vec(),
        }
    }

    /// `false` if the login is over, or the connection gone.
    fn login_message(&mut self, slot: u32, frame: Frame<'_>) -> bool {
        let message = match Message::parse(frame) {
            Ok(message) => message,
            Err(e) => {
                self.login_failed(slot, Report::fatal(sqlstate::PROTOCOL_VIOLATION, format!("server: {e}")));
                return false;
            }
        };
        match message {
            Message::Authentication(request) => match self.authenticate(slot, request) {
                Ok(()) => true,
                Err(report) => {
                    self.login_failed(slot, report);
                    false
                }
            },
            Message::ParameterStatus { name, value } => {
                if let Some(Server { state: State::Login(login), .. }) = self.servers.get_mut(slot as usize) {
                    login.parameters.push((name.to_vec(), value.to_vec()));
                }
                true
            }
            Message::BackendKeyData { pid, key } => {
                if let Some(server) = self.servers.get_mut(slot as usize) {
                    server.pid = pid;
                    server.key = key.to_vec();
                }
                true
            }
            Message::ReadyForQuery(_) => {
                self.server_ready(slot);
                false
            }
            Message::Error(fields) => {
                let state = fields.sqlstate().unwrap_or(sqlstate::CONNECTION_EXCEPTION).to_owned();
                let report = server_report(&state, &fields);
                // pg_hba.conf may want the other kind of connection.
                let encrypted = self.servers.get(slot as usize).is_some_and(|s| s.encrypted);
                if !state.starts_with("28") || !self.try_otherwise(slot, encrypted) {
                    self.login_failed(slot, report);
                }
                false
            }
            Message::Notice(_) | Message::NegotiateProtocolVersion { .. } => true,
            _ => {
                let text = format!("unexpected message {:?} while logging in to the server", char::from(frame.tag));
                self.login_failed(slot, Report::fatal(sqlstate::PROTOCOL_VIOLATION, text));
                false
            }
        }
    }

    fn authenticate(&mut self, slot: u32, request: Authentication<'_>) -> Result<(), Report> {
        let seat = self.server_seat(slot);
        let Some(server) = self.servers.get_mut(slot as usize) else {
            return Ok(());
        };
        let user = server.pool.user.clone();
        let credential = server.pool.login.load_full();
        let tls = &self.shared.config.server.tls;
        let State::Login(login) = &mut server.state else {
            return Ok(());
        };
        if tls.needs_binding() {
            let bound = match &request {
                Authentication::Ok => login.exchange.as_ref().is_some_and(ClientExchange::is_channel_bound),
                Authentication::Sasl(_) | Authentication::SaslContinue(_) | Authentication::SaslFinal(_) => true,
                _ => false,
            };
            if !bound {
                let text = "the connection string asks for channel binding, and the server lets us in without";
                return Err(Report::fatal(sqlstate::INVALID_AUTHORIZATION, text));
            }
        }
        let missing = || {
            Report::fatal(
                sqlstate::INVALID_PASSWORD,
                format!("the server asks for a password for user \"{user}\", and pgusher has none"),
            )
            .hint("Give the user a password in pgusher's configuration, or let pgusher ask clients for it (auth = \"server\").")
        };
        let failed = |e: AuthError| {
            Report::fatal(sqlstate::INVALID_PASSWORD, format!("pgusher could not log in as user \"{user}\": {e}"))
        };
        let mut out = Vec::new();
        match request {
            Authentication::Ok => {
                if let Some(exchange) = &login.exchange {
                    if !exchange.is_done() {
                        return Err(failed(AuthError::ServerNotAuthentic));
                    }
                }
            }
            Authentication::CleartextPassword => match credential.as_deref() {
                Some(Login::Password(password)) => frontend::write_password(&mut out, password.as_bytes()),
                _ => return Err(missing()),
            },
            Authentication::Md5Password { salt } => {
                let hash = match credential.as_deref() {
                    Some(Login::Md5(hash)) => hash.clone(),
                    Some(Login::Password(password)) => {
                        pgusher_auth::md5::Md5Hash::from_password(user.as_bytes(), password)
                    }
                    _ => return Err(missing()),
                };
                frontend::write_password(&mut out, hash.response(&salt).as_slice());
            }
            Authentication::Sasl(mechanisms) => {
                let offered = OfferedMechanisms::from_names(mechanisms.iter());
                let binding = tls.bind(offered, &login.transport).map_err(failed)?;
                let credential = match credential.as_deref() {
                    Some(Login::Password(password)) => Credential::Password(Password::new(password.as_bytes())),
                    Some(Login::Keys { keys, made_with }) => {
                        Credential::Keys { keys: keys.clone(), made_with: Some(made_with.clone()) }
                    }
                    _ => return Err(missing()),
                };
                let exchange = ClientExchange::new(credential, binding, &login.nonce);
                frontend::write_sasl_initial(&mut out, exchange.mechanism().name(), &exchange.first_message());
                login.exchange = Some(exchange);
            }
            Authentication::SaslContinue(data) => {
                let exchange = login.exchange.as_mut().ok_or_else(missing)?;
                match exchange.on_server_first(data).map_err(failed)? {
                    Step::Send(response) => frontend::write_sasl_response(&mut out, &response),
                    Step::Derive(derivation) => {
                        let derivation = Box::new(derivation);
                        self.out.push_back(Output::Ask(Question::Derive { server: seat, derivation }));
                    }
                }
            }
            Authentication::SaslFinal(data) => {
                login.exchange.as_mut().ok_or_else(missing)?.on_server_final(data).map_err(failed)?;
            }
            Authentication::Other(kind) => {
                let text = format!("the server asks for authentication method {kind}, which pgusher does not speak");
                return Err(Report::fatal(sqlstate::FEATURE_NOT_SUPPORTED, text)
                    .hint("Methods that work: trust, password, md5, scram-sha-256."));
            }
        }
        if !out.is_empty() {
            self.out.push_back(Output::Send { to: ConnId::Server(slot), bytes: Bytes::Secret(Zeroizing::new(out)) });
        }
        Ok(())
    }

    /// The control side has derived the keys for a login.
    pub(super) fn derived(&mut self, seat: Seat, keys: Option<ScramKeys>) {
        let Some(server) = self.servers.get_mut(seat.slot as usize).filter(|s| s.serial == seat.serial) else {
            return;
        };
        let State::Login(login) = &mut server.state else {
            return;
        };
        let response = match (&keys, login.exchange.as_mut()) {
            (Some(keys), Some(exchange)) => exchange.on_keys(keys),
            _ => Err(AuthError::WrongPassword),
        };
        match response {
            Ok(response) => {
                let mut out = Vec::new();
                frontend::write_sasl_response(&mut out, &response);
                self.send(ConnId::Server(seat.slot), out);
            }
            Err(e) => self.login_failed(seat.slot, Report::fatal(sqlstate::INVALID_PASSWORD, e.to_string())),
        }
    }

    fn server_ready(&mut self, slot: u32) {
        let Some(server) = self.servers.get_mut(slot as usize) else {
            return;
        };
        let State::Login(login) = &mut server.state else {
            return;
        };
        login.ready = true;
        let parameters = std::mem::take(&mut login.parameters);
        if !self.shared.upstream.is_wanted(&parameters) {
            let wanted = self.shared.upstream.wanted().name();
            let text = format!("the PostgreSQL server at {} is not {wanted}", server.address);
            let report = Report::fatal(sqlstate::UNABLE_TO_CONNECT, text)
                .hint("target_session_attrs of the connection string asks for it.");
            return self.login_failed(slot, report);
        }
        server.held = Vec::new();
        server.opened = self.now;
        let pool = server.pool.clone();
        let welcome = Arc::new(Welcome { parameters });
        server.idle_default = super::idling::limit_at_first(&welcome);
        server.welcome = Some(welcome.clone());
        pool.welcomed(welcome);
        pool.refused.store(false, Ordering::Relaxed);
        if server.listens_for_all {
            return self.hub_ready(slot);
        }
        if server.walsender.is_some() {
            return self.walsender_ready(slot);
        }
        server.state = State::Idle;
        if !self.ask_limit(slot) {
            self.server_opened(slot);
        }
    }

    /// A server can be used, unless there is something to be asked first.
    pub(super) fn server_opened(&mut self, slot: u32) {
        let seat = self.server_seat(slot);
        if self.know_when_opened(slot) {
            return;
        }
        let Some(server) = self.servers.get_mut(slot as usize) else {
            return;
        };
        server.state = State::Idle;
        let release = server.pool.seats.opened(seat, self.now);
        self.released(slot, release);
    }

    /// A server could not be opened.
    pub(super) fn login_failed(&mut self, slot: u32, report: Report) {
        self.hub_lost(slot);
        let Some(server) = self.servers.try_remove(slot as usize) else {
            return;
        };
        self.out.push_back(Output::Close(ConnId::Server(slot)));
        let pool = server.pool;
        let (database, user, state) = (&pool.database, &pool.user, &report.sqlstate);
        if pool.seats.counts().waiting > 0 || !state.starts_with("28") {
            tracing::warn!(%database, %user, sqlstate = %state, "cannot open a physical connection: {}", report.message);
        } else {
            // Ahead of need; the first client may bring what is missing.
            tracing::info!(%database, %user, sqlstate = %state, "no physical connection ahead of need: {}", report.message);
        }
        if report.sqlstate.starts_with("28") {
            // What was kept may be out of date: the password was changed. The next login begins anew.
            pool.login.store(self.shared.config.login_for(&pool.user).map(Arc::new));
            pool.welcome.store(None);
            pool.refused.store(true, Ordering::Relaxed);
            self.shared.forget(&pool.user, &pool.database);
        }
        if speaks_against_server(&report.sqlstate) {
            self.out.push_back(Output::Ask(Question::Unreachable { address: server.address }));
            if self.shared.upstream.may_move() && server.walsender.is_none() {
                pool.seats.open_postponed();
                return;
            }
        }
        if let Some(walsender) = server.walsender {
            return self.no_walsender(&walsender, &report);
        }
        let report = Arc::new(report);
        for client in pool.seats.open_failed() {
            self.tell_no_server(client, &report);
        }
    }
}

/// A server's own error as one of ours.
fn server_report(state: &str, fields: &pgusher_wire::ErrorFields<'_>) -> Report {
    let mut report = Report::fatal_of(fields, sqlstate::INTERNAL_ERROR);
    report.sqlstate = state.to_owned().into();
    report
}
