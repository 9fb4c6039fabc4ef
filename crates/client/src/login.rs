//! From an open socket to ReadyForQuery: startup packet, authentication, session setup, each phase timed.
//!
//! When the phases begin and end: `startup` ends with the first authentication request. `authenticate` holds the
//! rounds that wait for the server except the last. `ready` begins when our last authentication message goes out
//! (the server cannot be told apart from there: it verifies, sets up the session and flushes once) or, if the server
//! asks for nothing, with the message that says so. Source: protocol chapter "Start-up".

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pgusher_auth::{
    AuthError, BindingPolicy, CertificateHash, ChannelBinding as Binding, ClientExchange, Credential, Mechanism,
    OfferedMechanisms, Password, RAW_NONCE_LEN, ScramKeys, Step, Transport, md5::Md5Hash,
};
use pgusher_wire::TxStatus;
use pgusher_wire::backend::{Authentication, Message};
use pgusher_wire::frontend;

use crate::channel::Channel;
use crate::config::{AuthMethod, ChannelBinding, Config};
use crate::connector::KeyCache;
use crate::error::{Error, ErrorKind, Result, ServerError};
use crate::phase::{Phase, Phases};
use crate::secret::Secret;

/// What a login needs besides the channel.
pub(crate) struct Login<'a> {
    pub(crate) config: &'a Config,
    pub(crate) startup_packet: &'a [u8],
    pub(crate) password: Option<&'a Secret>,
    pub(crate) scram_keys: Option<&'a ScramKeys>,
    pub(crate) keys: Option<&'a KeyCache>,
}

/// What a login found out.
pub(crate) struct Session {
    pub(crate) parameters: BTreeMap<String, String>,
    pub(crate) pid: u32,
    pub(crate) key: Vec<u8>,
    pub(crate) status: TxStatus,
    pub(crate) auth: &'static str,
}

/// What has been authenticated so far.
pub(crate) struct Progress {
    method: AuthMethod,
    name: &'static str,
    exchange: Option<ClientExchange>,
    /// When our last authentication message went out.
    last_sent: Option<Instant>,
    crypto: Duration,
}

impl Progress {
    /// Nothing has been asked for yet.
    pub(crate) fn new() -> Self {
        Progress { method: AuthMethod::None, name: "trust", exchange: None, last_sent: None, crypto: Duration::ZERO }
    }
}

/// What the transport is for channel binding, given the server's certificate (DER) if it is encrypted.
pub(crate) fn transport(encrypted: bool, certificate: Option<&[u8]>) -> Transport {
    if !encrypted {
        return Transport::Plain;
    }
    let missing = AuthError::ChannelBinding("the server sent no certificate");
    Transport::Tls(certificate.ok_or(missing).and_then(CertificateHash::of_der))
}

impl Login<'_> {
    /// Logs in. `phases` holds what was measured also when it fails.
    pub(crate) fn run(&self, channel: &mut Channel, phases: &mut Phases) -> Result<Session> {
        let sent = Instant::now();
        channel.send(self.startup_packet).map_err(|error| error.in_phase(Phase::Startup))?;
        let mut progress = Progress::new();
        let result = self.authenticate(channel, phases, &mut progress, sent);
        if !progress.crypto.is_zero() {
            phases.client_crypto = Some(progress.crypto);
        }
        result?;
        let began = progress.last_sent.unwrap_or_else(|| channel.arrived());
        let mut session = Session {
            parameters: BTreeMap::new(),
            pid: 0,
            key: Vec::new(),
            status: TxStatus::Idle,
            auth: progress.name,
        };
        let result = set_up(channel, &mut session).map_err(|error| error.in_phase(Phase::Ready));
        phases.ready = Some(channel.arrived().saturating_duration_since(began));
        result.map(|()| session)
    }

    fn authenticate(
        &self,
        channel: &mut Channel,
        phases: &mut Phases,
        progress: &mut Progress,
        sent: Instant,
    ) -> Result<()> {
        let mut reply = Vec::new();
        loop {
            let phase = if phases.startup.is_none() { Phase::Startup } else { Phase::Authenticate };
            let at = channel.wait().map_err(|error| error.in_phase(phase))?;
            let arrived = channel.arrived();
            let message = Message::parse(channel.frame(at)).map_err(|error| {
                Error::protocol(error.to_string()).advice("is this a PostgreSQL server?").in_phase(phase)
            })?;
            let Some(request) = self.request_of(message).map_err(|error| error.in_phase(phase))? else {
                continue;
            };
            if phases.startup.is_none() {
                phases.startup = Some(arrived.saturating_duration_since(sent));
            } else if let (Some(last), Authentication::SaslContinue(_)) = (progress.last_sent, &request) {
                *phases.authenticate.get_or_insert_default() += arrived.saturating_duration_since(last);
            }
            if matches!(request, Authentication::Ok) {
                return self.accept(progress).map_err(|error| error.in_phase(Phase::Authenticate));
            }
            reply.clear();
            let crypto = Instant::now();
            let seen = || transport(channel.is_tls(), channel.server_certificate());
            let answer = self.answer(request, &seen, progress, &mut reply);
            progress.crypto += crypto.elapsed();
            answer.map_err(|error| error.in_phase(Phase::Authenticate))?;
            if !reply.is_empty() {
                progress.last_sent = Some(Instant::now());
                let sent = channel.send(&reply);
                zeroize::Zeroize::zeroize(&mut reply);
                sent.map_err(|error| error.in_phase(Phase::Authenticate))?;
            }
        }
    }

    /// What a message asks for while the client authenticates; `None`: nothing.
    pub(crate) fn request_of<'a>(&self, message: Message<'a>) -> Result<Option<Authentication<'a>>> {
        match message {
            Message::Authentication(request) => Ok(Some(request)),
            Message::Error(fields) => Err(Error::from_server(ServerError::from_fields(&fields))),
            Message::Notice(_) => Ok(None),
            Message::NegotiateProtocolVersion { newest_minor, .. } => {
                let minor = newest_minor & 0xffff;
                if minor < u32::from(self.config.protocol.0.minor) {
                    return Err(Error::protocol(format!("the server speaks protocol 3.{minor} at most"))
                        .advice("lower min_protocol_version"));
                }
                Ok(None)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Writes the answer to an authentication request, if it needs one.
    pub(crate) fn answer(
        &self,
        request: Authentication<'_>,
        transport: &dyn Fn() -> Transport,
        progress: &mut Progress,
        reply: &mut Vec<u8>,
    ) -> Result<()> {
        match request {
            Authentication::Ok => Ok(()),
            Authentication::CleartextPassword => {
                self.begin(progress, AuthMethod::Password, "password")?;
                frontend::write_password(reply, self.password()?.expose().as_bytes());
                Ok(())
            }
            Authentication::Md5Password { salt } => {
                self.begin(progress, AuthMethod::Md5, "md5")?;
                let password = Password::new(self.password()?.expose().as_bytes());
                let hash = Md5Hash::from_password(self.config.user.as_bytes(), &password);
                frontend::write_password(reply, hash.response(&salt).as_slice());
                Ok(())
            }
            Authentication::Sasl(mechanisms) => {
                let offered = OfferedMechanisms::from_names(mechanisms.iter());
                if !offered.scram && !offered.scram_plus {
                    let names: Vec<_> = mechanisms.iter().map(String::from_utf8_lossy).collect();
                    return Err(Error::new(
                        ErrorKind::Authentication,
                        format!("the server wants {}, which is not supported", names.join(", ")),
                    )
                    .advice("only SCRAM-SHA-256, md5, password and trust are"));
                }
                let exchange = self.exchange(offered, transport())?;
                let mechanism = exchange.mechanism();
                let name = match mechanism {
                    Mechanism::ScramSha256 => "scram-sha-256",
                    Mechanism::ScramSha256Plus => "scram-sha-256-plus",
                };
                self.begin(progress, AuthMethod::ScramSha256, name)?;
                frontend::write_sasl_initial(reply, mechanism.name(), &exchange.first_message());
                progress.exchange = Some(exchange);
                Ok(())
            }
            Authentication::SaslContinue(data) => {
                let exchange = progress.exchange.as_mut().ok_or_else(out_of_turn)?;
                let response = match exchange.on_server_first(data).map_err(auth_error)? {
                    Step::Send(response) => response,
                    Step::Derive(derivation) => {
                        let keys = match self.keys {
                            Some(cache) => cache.keys(&derivation),
                            None => derivation.run(),
                        };
                        exchange.on_keys(&keys).map_err(auth_error)?
                    }
                };
                frontend::write_sasl_response(reply, &response);
                Ok(())
            }
            Authentication::SaslFinal(data) => {
                progress.exchange.as_mut().ok_or_else(out_of_turn)?.on_server_final(data).map_err(auth_error)
            }
            Authentication::Other(kind) => {
                let name = match kind {
                    2 => "Kerberos V5",
                    7 | 8 => "GSSAPI",
                    9 => "SSPI",
                    _ => "an unknown authentication method",
                };
                Err(Error::new(ErrorKind::Authentication, format!("the server wants {name}, which is not supported"))
                    .advice("only SCRAM-SHA-256, md5, password and trust are"))
            }
        }
    }

    fn exchange(&self, offered: OfferedMechanisms, transport: Transport) -> Result<ClientExchange> {
        let policy = match self.config.channel_binding {
            ChannelBinding::Disable => BindingPolicy::Disable,
            ChannelBinding::Prefer => BindingPolicy::Prefer,
            ChannelBinding::Require => BindingPolicy::Require,
        };
        let binding = Binding::choose(offered, transport, policy).map_err(auth_error)?;
        let credential = match self.scram_keys {
            Some(keys) => Credential::Keys { keys: keys.clone(), made_with: None },
            None => Credential::Password(Password::new(self.password()?.expose().as_bytes())),
        };
        let mut nonce = [0; RAW_NONCE_LEN];
        rustls::crypto::ring::default_provider()
            .secure_random
            .fill(&mut nonce)
            .map_err(|_| Error::new(ErrorKind::Authentication, "the system gives no random numbers"))?;
        Ok(ClientExchange::new(credential, binding, &nonce))
    }

    /// Notes the method after checking that it is acceptable, before anything secret is sent.
    fn begin(&self, progress: &mut Progress, method: AuthMethod, name: &'static str) -> Result<()> {
        if progress.method != AuthMethod::None {
            return Err(out_of_turn());
        }
        self.check_method(method)?;
        if self.config.channel_binding == ChannelBinding::Require && method != AuthMethod::ScramSha256 {
            return Err(Error::new(
                ErrorKind::Authentication,
                format!("channel binding is required, but the server wants {name}"),
            ));
        }
        progress.method = method;
        progress.name = name;
        Ok(())
    }

    fn check_method(&self, method: AuthMethod) -> Result<()> {
        if self.config.require_auth.allows(method) {
            return Ok(());
        }
        let text = match method {
            AuthMethod::None => "require_auth forbids that the server asks for no authentication".to_owned(),
            method => format!("require_auth forbids the method that the server wants: {}", method.name()),
        };
        Err(Error::new(ErrorKind::Authentication, text))
    }

    /// The server says that we are in. Whether we believe it.
    pub(crate) fn accept(&self, progress: &Progress) -> Result<()> {
        let refuse = |text| Err(Error::new(ErrorKind::Authentication, text));
        if progress.method == AuthMethod::None {
            self.check_method(AuthMethod::None)?;
        }
        if progress.exchange.as_ref().is_some_and(|exchange| !exchange.is_done()) {
            return refuse("the server ended the SCRAM exchange without proving that it knows the password");
        }
        let bound = progress.exchange.as_ref().is_some_and(ClientExchange::is_channel_bound);
        if self.config.channel_binding == ChannelBinding::Require && !bound {
            return refuse("channel binding is required, but the server authenticated the client without it");
        }
        Ok(())
    }

    fn password(&self) -> Result<&Secret> {
        self.password.ok_or_else(|| {
            Error::new(ErrorKind::Authentication, "the server wants a password, but none was supplied")
                .advice("set PGPASSWORD, a password file (~/.pgpass) or password in the connection string")
        })
    }
}

/// Reads what follows AuthenticationOk up to ReadyForQuery.
fn set_up(channel: &mut Channel, session: &mut Session) -> Result<()> {
    loop {
        let at = channel.wait()?;
        let message = Message::parse(channel.frame(at)).map_err(|error| Error::protocol(error.to_string()))?;
        match message {
            Message::ParameterStatus { name, value } => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                session.parameters.insert(text(name), text(value));
            }
            Message::BackendKeyData { pid, key } => {
                session.pid = pid;
                session.key = key.to_vec();
            }
            Message::ReadyForQuery(status) => {
                session.status = status;
                return Ok(());
            }
            Message::Notice(_) | Message::NegotiateProtocolVersion { .. } => {}
            Message::Error(fields) => {
                return Err(Error::from_server(ServerError::from_fields(&fields)));
            }
            other => return Err(unexpected(&other)),
        }
    }
}

pub(crate) fn unexpected(message: &Message<'_>) -> Error {
    // Only the kind: the content may be anything.
    let text = format!("{message:?}");
    let kind = text.split([' ', '(', '{']).next().unwrap_or_default();
    Error::protocol(format!("unexpected {kind} during login"))
}

fn out_of_turn() -> Error {
    Error::new(ErrorKind::Authentication, "the server sent an authentication message out of turn")
}

fn auth_error(error: AuthError) -> Error {
    Error::new(ErrorKind::Authentication, error.to_string())
}
