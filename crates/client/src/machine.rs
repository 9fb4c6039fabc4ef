//! The login as a state machine without I/O: bytes in, bytes out. For programs that hold thousands of connections on a
//! few threads and own their sockets; [`Connector::connect`] is the blocking way, with the same rules.
//!
//! The caller gives what it received to [`LoginMachine::receive`] and sends what that appends to `out`. TLS is inside,
//! so the bytes are those of the wire. One address and one attempt: what sslmode allows after a failure, and the search
//! for a host, are the blocking connector's, whose connection shows the way ([`Connection::destination`]).
//!
//! [`Connection::destination`]: crate::Connection::destination

use std::io::{Read, Write};

use pgusher_wire::backend::{Authentication, Message};
use pgusher_wire::{Frame, frontend, startup};
use rustls::ClientConnection;

use crate::channel::not_the_protocol;
use crate::config::{SslMode, SslNegotiation};
use crate::connector::Connector;
use crate::error::{Error, ErrorKind, Result, ServerError};
use crate::login::{Progress, transport, unexpected};
use crate::phase::Phase;
use crate::socket::Destination;
use crate::tls;

/// One session from its first byte on. See the module's description.
pub struct LoginMachine {
    stage: Stage,
    host: usize,
    tls: Option<Box<ClientConnection>>,
    progress: Option<Progress>,
    inbox: Vec<u8>,
    pid: u32,
    failed: Option<ServerError>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// An SSLRequest is out.
    AskedForTls,
    Handshake,
    /// The startup packet is out.
    Startup,
    /// The server has asked for something.
    Authenticate,
    /// AuthenticationOk has come.
    SetUp,
    /// Nothing is under way.
    Ready,
    /// A statement is under way.
    Statement,
}

impl LoginMachine {
    /// Begins: appends the first bytes to send, which is possible as soon as the socket is connected.
    pub fn begin(connector: &Connector, destination: &Destination, out: &mut Vec<u8>) -> Result<LoginMachine> {
        let mut machine = LoginMachine {
            stage: Stage::Startup,
            host: destination.host,
            tls: None,
            progress: Some(Progress::new()),
            inbox: Vec::new(),
            pid: 0,
            failed: None,
        };
        let options = &connector.config().tls;
        let wants_tls = destination.ip().is_some() && !matches!(options.mode, SslMode::Disable | SslMode::Allow);
        if !wants_tls {
            machine.startup(connector, destination, out)?;
        } else if options.negotiation == SslNegotiation::Direct {
            machine.start_tls(connector, destination, out)?;
        } else {
            out.extend_from_slice(&startup::SSL_REQUEST_BYTES);
            machine.stage = Stage::AskedForTls;
        }
        Ok(machine)
    }

    /// Whether the session waits for a statement.
    pub fn is_ready(&self) -> bool {
        self.stage == Stage::Ready
    }

    /// The process id of the backend (or what stands for it), from the login on.
    pub fn backend_pid(&self) -> u32 {
        self.pid
    }

    /// What is waited for.
    pub fn phase(&self) -> Phase {
        match self.stage {
            Stage::AskedForTls => Phase::QueueFork,
            Stage::Handshake => Phase::Tls,
            Stage::Startup => Phase::Startup,
            Stage::Authenticate => Phase::Authenticate,
            Stage::SetUp => Phase::Ready,
            Stage::Ready | Stage::Statement => Phase::Statement,
        }
    }

    /// Takes bytes from the server. An error ends the session; it names the phase.
    pub fn receive(
        &mut self,
        connector: &Connector,
        destination: &Destination,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let result = self.take(connector, destination, bytes, out);
        result.map_err(|error| error.in_phase(self.phase()).at_target(&destination.shown))
    }

    /// Begins a statement in the simple protocol. Only when ready.
    pub fn query(&mut self, sql: &str, out: &mut Vec<u8>) -> Result<()> {
        if self.stage != Stage::Ready || sql.contains('\0') {
            return Err(Error::new(ErrorKind::Usage, "a statement cannot be sent now"));
        }
        let mut message = Vec::with_capacity(sql.len() + 6);
        frontend::write_query(&mut message, sql.as_bytes());
        self.stage = Stage::Statement;
        self.failed = None;
        self.write(&message, out)
    }

    /// The error of the last statement, if it failed. The session goes on.
    pub fn statement_error(&self) -> Option<&ServerError> {
        self.failed.as_ref()
    }

    /// Says goodbye.
    pub fn terminate(&mut self, out: &mut Vec<u8>) -> Result<()> {
        self.write(&frontend::TERMINATE_BYTES, out)
    }

    /// Gives memory back that an idle session does not need.
    pub fn shrink(&mut self) {
        if self.inbox.is_empty() {
            self.inbox = Vec::new();
        }
    }

    fn take(
        &mut self,
        connector: &Connector,
        destination: &Destination,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        if self.stage == Stage::AskedForTls {
            return self.tls_answer(connector, destination, bytes, out);
        }
        let Some(tls) = &mut self.tls else {
            self.inbox.extend_from_slice(bytes);
            return self.messages(connector, out);
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            tls.read_tls(&mut rest).map_err(Error::io)?;
            let state = match tls.process_new_packets() {
                Ok(state) => state,
                Err(error) => {
                    // The alert tells the server why.
                    let _ = flush(tls, out);
                    return Err(tls::handshake_error(&error));
                }
            };
            let have = self.inbox.len();
            self.inbox.resize(have + state.plaintext_bytes_to_read(), 0);
            tls.reader().read_exact(self.inbox.get_mut(have..).unwrap_or(&mut [])).map_err(Error::io)?;
        }
        flush(tls, out)?;
        if self.stage == Stage::Handshake && !tls.is_handshaking() {
            if connector.config().tls.negotiation == SslNegotiation::Direct && tls.alpn_protocol() != Some(tls::ALPN) {
                return Err(Error::new(ErrorKind::Tls, "direct TLS was established without ALPN"));
            }
            self.startup(connector, destination, out)?;
        }
        self.messages(connector, out)
    }

    fn tls_answer(
        &mut self,
        connector: &Connector,
        destination: &Destination,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        match bytes {
            [] => Ok(()),
            b"S" => self.start_tls(connector, destination, out),
            b"N" if !connector.config().tls.mode.requires_tls() => self.startup(connector, destination, out),
            b"N" => Err(Error::new(ErrorKind::Tls, "the server does not support TLS, but it is required")),
            _ => Err(Error::protocol("unexpected answer to the SSL request")),
        }
    }

    fn start_tls(&mut self, connector: &Connector, destination: &Destination, out: &mut Vec<u8>) -> Result<()> {
        let name = connector.target(destination)?.server_name.clone();
        let (Some(config), Some(name)) = (connector.tls_config(), name) else {
            return Err(Error::config("TLS is not configured"));
        };
        let mut tls =
            Box::new(ClientConnection::new(config.clone(), name).map_err(|error| tls::handshake_error(&error))?);
        flush(&mut tls, out)?;
        self.tls = Some(tls);
        self.stage = Stage::Handshake;
        Ok(())
    }

    fn startup(&mut self, connector: &Connector, destination: &Destination, out: &mut Vec<u8>) -> Result<()> {
        let login = connector.login(connector.target(destination)?);
        self.stage = Stage::Startup;
        self.write(login.startup_packet, out)
    }

    /// Appends a message as it goes over the wire.
    fn write(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<()> {
        match &mut self.tls {
            None => out.extend_from_slice(message),
            Some(tls) => {
                tls.writer().write_all(message).map_err(Error::io)?;
                flush(tls, out)?;
            }
        }
        Ok(())
    }

    /// Works through the whole messages that have come.
    fn messages(&mut self, connector: &Connector, out: &mut Vec<u8>) -> Result<()> {
        let inbox = std::mem::take(&mut self.inbox);
        let mut used = 0;
        while let Some((frame, length)) =
            Frame::parse(inbox.get(used..).unwrap_or(&[])).map_err(|error| not_the_protocol(&error.to_string()))?
        {
            used += length;
            let message = Message::parse(frame).map_err(|error| Error::protocol(error.to_string()))?;
            self.message(connector, message, out)?;
        }
        self.inbox = inbox;
        self.inbox.drain(..used);
        Ok(())
    }

    fn message(&mut self, connector: &Connector, message: Message<'_>, out: &mut Vec<u8>) -> Result<()> {
        match (self.stage, message) {
            (Stage::Startup | Stage::Authenticate, message) => self.authenticate(connector, message, out),
            (Stage::SetUp, Message::BackendKeyData { pid, .. }) => {
                self.pid = pid;
                Ok(())
            }
            (Stage::SetUp | Stage::Statement, Message::ReadyForQuery(_)) => {
                self.stage = Stage::Ready;
                Ok(())
            }
            (Stage::Statement, Message::Error(fields)) => {
                let error = ServerError::from_fields(&fields);
                if error.is_fatal() {
                    return Err(Error::from_server(error));
                }
                self.failed = Some(error);
                Ok(())
            }
            (_, Message::Error(fields)) => Err(Error::from_server(ServerError::from_fields(&fields))),
            (_, Message::Notice(_) | Message::ParameterStatus { .. } | Message::Notification { .. }) => Ok(()),
            (Stage::SetUp, Message::NegotiateProtocolVersion { .. }) => Ok(()),
            (Stage::Statement, Message::CopyIn { .. } | Message::CopyBoth { .. }) => {
                Err(Error::new(ErrorKind::Usage, "COPY from the client is not supported"))
            }
            // Rows and their description are of no interest.
            (Stage::Statement, _) => Ok(()),
            (_, other) => Err(unexpected(&other)),
        }
    }

    fn authenticate(&mut self, connector: &Connector, message: Message<'_>, out: &mut Vec<u8>) -> Result<()> {
        let Some(target) = connector.target_at(self.host) else {
            return Err(Error::config("the session belongs to another connector"));
        };
        let login = connector.login(target);
        let Some(request) = login.request_of(message)? else { return Ok(()) };
        let Some(progress) = &mut self.progress else { return Err(Error::protocol("authentication after its end")) };
        if matches!(request, Authentication::Ok) {
            login.accept(progress)?;
            self.stage = Stage::SetUp;
            self.progress = None;
            return Ok(());
        }
        let tls = self.tls.as_deref();
        let seen = || {
            let certificate = tls.and_then(|tls| tls.peer_certificates()?.first());
            transport(tls.is_some(), certificate.map(|certificate| certificate.as_ref()))
        };
        let mut reply = Vec::new();
        login.answer(request, &seen, progress, &mut reply)?;
        self.stage = Stage::Authenticate;
        let written = self.write(&reply, out);
        zeroize::Zeroize::zeroize(&mut reply);
        written
    }
}

fn flush(tls: &mut ClientConnection, out: &mut Vec<u8>) -> Result<()> {
    while tls.wants_write() {
        tls.write_tls(out).map_err(Error::io)?;
    }
    Ok(())
}
