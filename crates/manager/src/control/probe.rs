//! Logs in to the server once, to learn what it asks a user for, or whether it accepts a password or the keys made of one.
//!
//! Blocking, with a limit in time. The connection is closed again; nothing is executed on it.

use crate::auth::{Asked, Login};
use crate::shared::ServerAddress;
use pgusher_auth::scram::Step;
use pgusher_auth::{
    ChannelBinding, ClientExchange, Credential, KeyParameters, Mechanism, RAW_NONCE_LEN, ScramKeys, md5::Md5Hash,
};
use pgusher_wire::backend::{Authentication, Message};
use pgusher_wire::startup::{Version, write_startup};
use pgusher_wire::{Frame, Report, frontend, sqlstate};
use rand::RngCore;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// A login message is not larger than this.
const MAX_LEN: usize = 64 * 1024;

/// What the server said.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It let us in without asking for anything.
    NotAsked,
    /// It asked for a password in this way, and none was given.
    Asked(Asked),
    /// It accepted the password; the keys made of it, if it asked for SCRAM.
    Accepted(Option<(ScramKeys, KeyParameters)>),
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

struct Link {
    stream: Stream,
    buf: Zeroizing<Vec<u8>>,
    deadline: Instant,
}

impl Link {
    fn connect(address: &ServerAddress, timeout: Duration) -> io::Result<Self> {
        let stream = match address {
            ServerAddress::Tcp { address, .. } => Stream::Tcp(TcpStream::connect_timeout(address, timeout)?),
            ServerAddress::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
        };
        Ok(Self { stream, buf: Zeroizing::default(), deadline: Instant::now() + timeout })
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let left = self.left()?;
        match &mut self.stream {
            Stream::Tcp(s) => s.set_write_timeout(Some(left)).and_then(|()| s.write_all(bytes)),
            Stream::Unix(s) => s.set_write_timeout(Some(left)).and_then(|()| s.write_all(bytes)),
        }
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }

    /// The next whole message: its type and body.
    fn message(&mut self) -> io::Result<(u8, Zeroizing<Vec<u8>>)> {
        loop {
            let parsed = Frame::parse(&self.buf).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
            if let Some((frame, used)) = parsed {
                let message = (frame.tag, Zeroizing::new(frame.body.to_vec()));
                self.buf.drain(..used);
                return Ok(message);
            }
            if self.buf.len() > MAX_LEN {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a login message is too long"));
            }
            let left = self.left()?;
            let mut chunk = Zeroizing::new([0; 4096]);
            let n = match &mut self.stream {
                Stream::Tcp(s) => s.set_read_timeout(Some(left)).and_then(|()| s.read(&mut *chunk)),
                Stream::Unix(s) => s.set_read_timeout(Some(left)).and_then(|()| s.read(&mut *chunk)),
            }?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.buf.extend_from_slice(chunk.get(..n).unwrap_or_default());
        }
    }
}

/// Logs in as `user` to `database`, with a password or with keys if there are any.
///
/// # Errors
/// What to tell the client: the server's own error, or that it cannot be reached.
pub(super) fn login(
    address: &ServerAddress,
    user: &str,
    database: &str,
    proof: Option<&Login>,
    timeout: Duration,
) -> Result<Outcome, Report> {
    let unreachable = |e: io::Error| {
        Report::fatal(sqlstate::UNABLE_TO_CONNECT, format!("cannot connect to the PostgreSQL server at {address}"))
            .detail(e.to_string())
            .hint("Is the server running, and is the address in pgusher's configuration right?")
    };
    let mut link = Link::connect(address, timeout).map_err(unreachable)?;
    let mut out = Zeroizing::new(Vec::new());
    let parameters: [(&[u8], &[u8]); 2] = [(b"user", user.as_bytes()), (b"database", database.as_bytes())];
    write_startup(&mut out, Version::V3_0, parameters);
    link.send(&out).map_err(unreachable)?;

    let mut exchange: Option<ClientExchange> = None;
    let mut keys = None;
    let mut asked = false;
    loop {
        let (tag, body) = link.message().map_err(unreachable)?;
        let protocol = |what: String| Report::fatal(sqlstate::PROTOCOL_VIOLATION, what);
        let message =
            Message::parse(Frame { tag, body: &body }).map_err(|e| protocol(format!("from the server: {e}")))?;
        let request = match message {
            Message::Authentication(request) => request,
            Message::Error(fields) => {
                let state = fields.sqlstate().unwrap_or(sqlstate::CONNECTION_EXCEPTION).to_owned();
                let mut report = Report::fatal(state, fields.message());
                report.detail = fields.text(b'D');
                report.hint = fields.text(b'H');
                return Err(report);
            }
            // AuthenticationOk alone does not say that the database exists: the server says so before it is ready.
            Message::ReadyForQuery(_) => {
                let _ = link.send(&frontend::TERMINATE_BYTES);
                return Ok(if asked { Outcome::Accepted(keys) } else { Outcome::NotAsked });
            }
            _ => continue,
        };
        if matches!(request, Authentication::Ok) {
            if exchange.as_ref().is_some_and(|e| !e.is_done()) {
                return Err(protocol("the server did not prove that it knows the password".into()));
            }
            continue;
        }
        if let Authentication::Other(kind) = request {
            let text = format!("the server asks for authentication method {kind}, which pgusher does not speak");
            return Err(Report::fatal(sqlstate::FEATURE_NOT_SUPPORTED, text)
                .hint("Methods that work: trust, password, md5, scram-sha-256."));
        }
        asked = true;
        let Some(proof) = proof else {
            return match request {
                Authentication::CleartextPassword => Ok(Outcome::Asked(Asked::Plain)),
                Authentication::Md5Password { .. } => Ok(Outcome::Asked(Asked::Md5)),
                Authentication::Sasl(offered) if offered.contains(Mechanism::ScramSha256.name()) => {
                    Ok(Outcome::Asked(Asked::Scram))
                }
                _ => Err(protocol("the server offers no SASL mechanism that pgusher knows".into())),
            };
        };
        let mut out = Zeroizing::new(Vec::new());
        let failed = |e: pgusher_auth::AuthError| {
            Report::fatal(e.sqlstate(), format!("password authentication failed for user \"{user}\": {e}"))
        };
        let useless = || {
            let text = "the server asks for a password in another way than pgusher has one";
            Report::fatal(sqlstate::INVALID_PASSWORD, text)
        };
        match request {
            Authentication::CleartextPassword => match proof {
                Login::Password(password) => frontend::write_password(&mut out, password.as_bytes()),
                Login::Keys { .. } | Login::Md5(_) => return Err(useless()),
            },
            Authentication::Md5Password { salt } => {
                let hash = match proof {
                    Login::Password(password) => Md5Hash::from_password(user.as_bytes(), password),
                    Login::Md5(hash) => hash.clone(),
                    Login::Keys { .. } => return Err(useless()),
                };
                frontend::write_password(&mut out, hash.response(&salt).as_slice());
            }
            Authentication::Sasl(mechanisms) => {
                if !mechanisms.contains(Mechanism::ScramSha256.name()) {
                    return Err(protocol("the server offers no SASL mechanism that pgusher knows".into()));
                }
                let mut nonce = [0; RAW_NONCE_LEN];
                rand::rng().fill_bytes(&mut nonce);
                let credential = match proof {
                    Login::Password(password) => Credential::Password(password.clone()),
                    Login::Keys { keys, made_with } => {
                        Credential::Keys { keys: keys.clone(), made_with: Some(made_with.clone()) }
                    }
                    Login::Md5(_) => return Err(useless()),
                };
                let new = ClientExchange::new(credential, ChannelBinding::None, &nonce);
                frontend::write_sasl_initial(&mut out, new.mechanism().name(), &new.first_message());
                exchange = Some(new);
            }
            Authentication::SaslContinue(data) => {
                let exchange = exchange.as_mut().ok_or_else(|| protocol("SASL out of turn".into()))?;
                match exchange.on_server_first(data).map_err(failed)? {
                    Step::Send(response) => frontend::write_sasl_response(&mut out, &Zeroizing::new(response)),
                    Step::Derive(derivation) => {
                        let derived = derivation.run();
                        let response = Zeroizing::new(exchange.on_keys(&derived).map_err(failed)?);
                        frontend::write_sasl_response(&mut out, &response);
                        keys = Some((derived, derivation.parameters().clone()));
                    }
                }
            }
            Authentication::SaslFinal(data) => {
                let exchange = exchange.as_mut().ok_or_else(|| protocol("SASL out of turn".into()))?;
                exchange.on_server_final(data).map_err(failed)?;
            }
            Authentication::Ok | Authentication::Other(_) => {}
        }
        if !out.is_empty() {
            link.send(&out).map_err(unreachable)?;
        }
    }
}
