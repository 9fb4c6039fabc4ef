//! Logs in to the server once, to learn what it asks a user for, or whether it accepts a password or the keys made of one.
//!
//! Blocking, with a limit in time. The connection is closed again; nothing is executed on it but the question by what the server
//! has recognised us, if it has asked for nothing.

use super::link::Link;
use crate::auth::{Asked, Login, NO_DATABASE};
use crate::shared::ServerAddress;
use crate::tls::{Encryption, Servers};
use pgusher_auth::scram::Step;
use pgusher_auth::{
    ClientExchange, Credential, KeyParameters, Mechanism, OfferedMechanisms, RAW_NONCE_LEN, ScramKeys, Transport,
    md5::Md5Hash,
};
use pgusher_wire::backend::{Authentication, Message};
use pgusher_wire::startup::{Version, write_startup};
use pgusher_wire::{Frame, Report, frontend, sqlstate};
use rand::RngCore;
use std::io;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// What the server said.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It let us in without asking for anything.
    NotAsked(WhoWeAre),
    /// It asked for a password in this way, and none was given.
    Asked(Asked),
    /// It accepted the password; the keys made of it, if it asked for SCRAM.
    Accepted(Option<(ScramKeys, KeyParameters)>),
}

/// Whom the server takes us for when it has asked for nothing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WhoWeAre {
    /// Anybody: it trusts the address that we come from.
    Anybody,
    /// It has recognised us, in this way (`ident:...`, `peer:...`), which says nothing of a client.
    Recognised(String),
    /// It cannot say (PostgreSQL 15 and earlier, and physical replication).
    Unknown,
}

/// Logs in as `user` to `database`, or for physical replication if there is [none](NO_DATABASE), with a password or with keys if there are any; once more with or without TLS where
/// sslmode=prefer or allow wants it.
///
/// # Errors
/// What to tell the client: the server's own error, or that it cannot be reached.
pub(super) fn login(
    address: &ServerAddress,
    tls: &Servers,
    user: &str,
    database: &str,
    proof: Option<&Login>,
    timeout: Duration,
) -> Result<Outcome, Report> {
    let target = Target { address, tls, user, database, proof, deadline: Instant::now() + timeout };
    let mut other = None;
    let outcome = attempt(&target, tls.first(address), &mut other);
    match other {
        Some(encryption) if outcome.is_err() => attempt(&target, encryption, &mut None),
        _ => outcome,
    }
}

struct Target<'a> {
    address: &'a ServerAddress,
    tls: &'a Servers,
    user: &'a str,
    database: &'a str,
    proof: Option<&'a Login>,
    deadline: Instant,
}

/// Logs in once. `other` is the encryption to try next if what went wrong may be a matter of that.
fn attempt(target: &Target<'_>, encryption: Encryption, other: &mut Option<Encryption>) -> Result<Outcome, Report> {
    let Target { address, tls, user, database, proof, deadline } = *target;
    let unreachable = |e: io::Error| {
        Report::fatal(sqlstate::UNABLE_TO_CONNECT, format!("cannot connect to the PostgreSQL server at {address}"))
            .detail(e.to_string())
            .hint("Is the server running, and is the address in pgusher's configuration right?")
    };
    let mut link = Link::connect(address, deadline).map_err(unreachable)?;
    if encryption != Encryption::Plain {
        *other = tls.second(address, true);
        link.secure(tls, address, encryption).map_err(unreachable)?;
        *other = None;
    }
    let transport = link.transport();
    let mut out = Zeroizing::new(Vec::new());
    let physical = database == NO_DATABASE;
    let kind: (&[u8], &[u8]) = if physical { (b"replication", b"true") } else { (b"database", database.as_bytes()) };
    let parameters: [(&[u8], &[u8]); 2] = [(b"user", user.as_bytes()), kind];
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
                if report.sqlstate.starts_with("28") {
                    // pg_hba.conf may want the other kind of connection.
                    *other = tls.second(address, transport != Transport::Plain);
                }
                return Err(report);
            }
            // AuthenticationOk alone does not say that the database exists: the server says so before it is ready.
            Message::ReadyForQuery(_) => {
                let outcome = if asked {
                    Outcome::Accepted(keys)
                } else if physical {
                    // It takes no SQL with which it could be asked.
                    Outcome::NotAsked(WhoWeAre::Unknown)
                } else {
                    Outcome::NotAsked(who_we_are(&mut link).map_err(unreachable)?)
                };
                let _ = link.send(&frontend::TERMINATE_BYTES);
                return Ok(outcome);
            }
            _ => continue,
        };
        if matches!(request, Authentication::Ok) {
            if exchange.as_ref().is_some_and(|e| !e.is_done()) {
                return Err(protocol("the server did not prove that it knows the password".into()));
            }
            if tls.needs_binding() && !exchange.as_ref().is_some_and(ClientExchange::is_channel_bound) {
                return Err(unbound());
            }
            continue;
        }
        if tls.needs_binding()
            && matches!(request, Authentication::CleartextPassword | Authentication::Md5Password { .. })
        {
            return Err(unbound());
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
                let offered = OfferedMechanisms::from_names(mechanisms.iter());
                let binding = tls.bind(offered, &transport).map_err(failed)?;
                let mut nonce = [0; RAW_NONCE_LEN];
                rand::rng().fill_bytes(&mut nonce);
                let credential = match proof {
                    Login::Password(password) => Credential::Password(password.clone()),
                    Login::Keys { keys, made_with } => {
                        Credential::Keys { keys: keys.clone(), made_with: Some(made_with.clone()) }
                    }
                    Login::Md5(_) => return Err(useless()),
                };
                let new = ClientExchange::new(credential, binding, &nonce);
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

fn unbound() -> Report {
    let text = "the connection string asks for channel binding, and the server does not ask for a proof that is bound";
    Report::fatal(sqlstate::INVALID_AUTHORIZATION, text)
}

/// Asks the server by what it has recognised us. SYSTEM_USER is a word of the grammar, so that no object of a database can take
/// its place. Source: PostgreSQL documentation, "Session Information Functions", since version 16.
fn who_we_are(link: &mut Link) -> io::Result<WhoWeAre> {
    let invalid = |e| io::Error::new(io::ErrorKind::InvalidData, e);
    let mut out = Vec::new();
    frontend::write_query(&mut out, b"SELECT system_user");
    link.send(&out)?;
    let mut found = WhoWeAre::Unknown;
    loop {
        let (tag, body) = link.message()?;
        match Message::parse(Frame { tag, body: &body }).map_err(invalid)? {
            Message::DataRow(row) => {
                found = match row.columns().next().flatten() {
                    // "method:identity".
                    Some(name) if name.contains(&b':') => {
                        WhoWeAre::Recognised(String::from_utf8_lossy(name).into_owned())
                    }
                    Some(_) => WhoWeAre::Unknown,
                    None => WhoWeAre::Anybody,
                };
            }
            Message::ReadyForQuery(_) => return Ok(found),
            _ => {}
        }
    }
}
