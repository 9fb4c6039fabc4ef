//! The hot path: bytes of a client to its server and back.
//!
//! Only the heads of messages are looked at, and the few bodies that say something about the session. A run of messages
//! leaves in one piece from the buffer that it was read into.

use super::Core;
use super::client::{Discard, Pin, State};
use super::io::{Bytes, ConnId, Output};
use super::server::State as ServerState;
use pgusher_wire::scan::Scanner;
use pgusher_wire::{Report, TxStatus, backend, frontend, sqlstate};
use std::ops::Range;

/// Where the bytes of a call are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// In the driver's buffer.
    Input,
    /// In a buffer of the core's: they are copied.
    Copy,
}

/// A client's ledger may have this many open entries before it is not read any further.
const MAX_LEDGER: usize = 4096;

/// Bytes of a body that are looked at, of a client's messages: which statement they use.
#[inline]
fn client_need(tag: u8) -> usize {
    match tag {
        frontend::PARSE => 1,
        frontend::DESCRIBE => 2,
        // The name of the portal, at its longest, and the first byte of the statement's.
        frontend::BIND => 66,
        _ => 0,
    }
}

/// Does this Bind or Describe use the unnamed statement?
#[inline]
fn uses_unnamed(tag: u8, body: &[u8]) -> bool {
    match tag {
        frontend::DESCRIBE => matches!(body, [b'S', 0, ..]),
        frontend::BIND => {
            let portal = body.iter().position(|b| *b == 0);
            portal.is_some_and(|end| body.get(end + 1) == Some(&0))
        }
        _ => false,
    }
}

/// Bytes of a body that are looked at, of a server's messages.
#[inline]
fn server_need(tag: u8) -> usize {
    match tag {
        backend::READY_FOR_QUERY => 1,
        backend::COMMAND_COMPLETE => 16,
        _ => 0,
    }
}

impl Core {
    /// Bytes have arrived from a client. `buf` begins with what [`client_held`](Self::client_held) gave.
    #[inline]
    pub fn client_bytes(&mut self, slot: u32, buf: &[u8]) {
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        if !client.held.is_empty() {
            client.held = Vec::new();
        }
        match client.state {
            State::Idle | State::Seated { .. } => self.session_bytes(slot, buf, Source::Input),
            _ => self.login_bytes(slot, buf),
        }
    }

    /// As [`client_bytes`](Self::client_bytes), for bytes that the core has kept.
    pub(super) fn client_copy(&mut self, slot: u32, buf: &[u8]) {
        match self.clients.get(slot as usize).map(|c| &c.state) {
            Some(State::Idle | State::Seated { .. }) => self.session_bytes(slot, buf, Source::Copy),
            Some(_) => self.login_bytes(slot, buf),
            None => {}
        }
    }

    pub(super) fn session_bytes(&mut self, slot: u32, buf: &[u8], source: Source) {
        let mut pos = 0;
        let mut run = 0;
        loop {
            let Some(client) = self.clients.get_mut(slot as usize) else {
                return;
            };
            let head = match client.scanner.next(buf, &mut pos, client_need) {
                Ok(Some(head)) => head,
                Ok(None) => break,
                Err(e) => return self.bad_client(slot, &e.to_string()),
            };
            let server = match client.state {
                State::Seated { server } => server,
                _ => {
                    // Whatever lies before this message belongs to COPY data that nobody wants any more.
                    run = head.start;
                    match head.tag {
                        frontend::TERMINATE => return self.drop_client(slot),
                        frontend::COPY_DATA | frontend::COPY_DONE | frontend::COPY_FAIL => {
                            // The server has ended COPY with an error already. It would ignore them, too.
                            run = pos;
                            continue;
                        }
                        _ => {}
                    }
                    let (tag, begin) = (head.tag, head.start);
                    if client.discard != Discard::Nothing {
                        run = pos;
                        self.discard(slot, tag);
                        continue;
                    }
                    if !is_request(tag) {
                        return self.bad_client(slot, &format!("invalid frontend message type {tag}"));
                    }
                    match self.want_server(slot, false) {
                        Some(server) => server,
                        None => {
                            // It waits. The message is looked at again when there is a server.
                            if let Some(client) = self.clients.get_mut(slot as usize) {
                                client.scanner = Scanner::new();
                                let rest = buf.get(begin..).unwrap_or_default();
                                client.pending.splice(0..0, rest.iter().copied());
                            }
                            return;
                        }
                    }
                }
            };
            let Some(s) = self.servers.get_mut(server as usize) else {
                return;
            };
            match head.tag {
                frontend::QUERY => s.ledger.sent(head.tag),
                frontend::TERMINATE => {
                    self.forward(ConnId::Server(server), source, buf, run..head.start);
                    return self.drop_client(slot);
                }
                frontend::PARSE => {
                    s.ledger.sent(head.tag);
                    if head.body.first().is_some_and(|b| *b != 0) {
                        self.pin(slot, Pin::Prepared);
                    } else if let Some(client) = self.clients.get_mut(slot as usize) {
                        (client.parsed, client.unexecuted) = (true, true);
                    }
                }
                frontend::SYNC => {
                    s.ledger.sent(head.tag);
                    // It was prepared for later: the server is kept, because another client would replace the statement.
                    if self.clients.get(slot as usize).is_some_and(|c| c.unexecuted) {
                        self.pin(slot, Pin::Prepared);
                    }
                }
                frontend::BIND | frontend::DESCRIBE if uses_unnamed(head.tag, head.body) => {
                    s.ledger.sent(head.tag);
                    if self.clients.get(slot as usize).is_some_and(|c| !c.parsed) {
                        let report = Report::fatal("26000", "unnamed prepared statement does not exist")
                            .detail("In transaction pooling the unnamed statement ends with its transaction.")
                            .hint("Parse it in the same batch, give it a name, or use session pooling.");
                        return self.refuse(slot, &report);
                    }
                }
                frontend::EXECUTE => {
                    s.ledger.sent(head.tag);
                    if let Some(client) = self.clients.get_mut(slot as usize) {
                        client.unexecuted = false;
                    }
                }
                tag if is_request(tag) => s.ledger.sent(tag),
                frontend::COPY_DATA => {}
                frontend::COPY_DONE | frontend::COPY_FAIL => s.ledger.sent(head.tag),
                tag => {
                    return self.bad_client(slot, &format!("invalid frontend message type {tag}"));
                }
            }
        }
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        if let Some(tail) = buf.get(pos..).filter(|t| !t.is_empty()) {
            client.held = tail.to_vec();
        }
        let State::Seated { server } = client.state else {
            return;
        };
        self.forward(ConnId::Server(server), source, buf, run..pos);
        let Some(s) = self.servers.get(server as usize) else {
            return;
        };
        if s.ledger.len() > MAX_LEDGER {
            if !s.ledger.owes_ready() {
                // Nothing among it makes the server send what it has got, so the client would wait for ever.
                return self.bad_client(slot, "too many messages without a Sync");
            }
            if let Some(client) = self.clients.get_mut(slot as usize) {
                client.ahead = true;
            }
            self.out.push_back(Output::Pause(ConnId::Client(slot)));
        } else if s.ledger.is_empty() {
            // Only what the server ignores was sent.
            self.part_if_done(slot);
        }
    }

    /// A message of a statement that was refused before the server saw it. The reply ends as the server's would: with
    /// ReadyForQuery for a Query, at the next Sync otherwise.
    fn discard(&mut self, slot: u32, tag: u8) {
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        let ends = match tag {
            frontend::SYNC => true,
            frontend::QUERY | frontend::FUNCTION_CALL => client.discard == Discard::Next,
            _ => false,
        };
        if ends {
            client.discard = Discard::Nothing;
            let mut out = Vec::with_capacity(6);
            backend::write_ready_for_query(&mut out, TxStatus::Idle);
            self.send(ConnId::Client(slot), out);
        } else if is_request(tag) && tag != frontend::FLUSH {
            client.discard = Discard::UntilSync;
        }
    }

    #[inline]
    fn forward(&mut self, to: ConnId, source: Source, buf: &[u8], range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let bytes = match source {
            Source::Input => Bytes::Input(range),
            Source::Copy => Bytes::Owned(buf.get(range).unwrap_or_default().to_vec()),
        };
        self.out.push_back(Output::Send { to, bytes });
    }

    fn bad_client(&mut self, slot: u32, what: &str) {
        self.refuse(slot, &Report::fatal(sqlstate::PROTOCOL_VIOLATION, what));
    }

    /// Bytes have arrived from a server. `buf` begins with what [`server_held`](Self::server_held) gave.
    #[inline]
    pub fn server_bytes(&mut self, slot: u32, buf: &[u8]) {
        let Some(server) = self.servers.get_mut(slot as usize) else {
            return;
        };
        if !server.held.is_empty() {
            server.held = Vec::new();
        }
        match server.state {
            ServerState::Seated { client } => self.relay(slot, client, buf),
            ServerState::Login(_) => self.server_login_bytes(slot, buf),
            ServerState::Idle | ServerState::Connecting => self.idle_server_bytes(slot, buf),
            ServerState::Replaying { .. } | ServerState::Resetting { .. } | ServerState::BeingCancelled => {
                self.own_replies(slot, buf);
            }
        }
    }

    fn relay(&mut self, slot: u32, client: u32, buf: &[u8]) {
        let Some(server) = self.servers.get_mut(slot as usize) else {
            return;
        };
        let mut pos = 0;
        let mut pin = None;
        loop {
            let head = match server.scanner.next(buf, &mut pos, server_need) {
                Ok(Some(head)) => head,
                Ok(None) => break,
                Err(_) => return self.broken_server(slot),
            };
            let mut status = TxStatus::Idle;
            match head.tag {
                backend::READY_FOR_QUERY => match head.body.first().and_then(|b| TxStatus::from_byte(*b)) {
                    Some(s) => status = s,
                    None => return self.broken_server(slot),
                },
                backend::COMMAND_COMPLETE => pin = pin.or(pin_of(head.body)),
                _ => {}
            }
            if server.ledger.received(head.tag, status).is_err() {
                return self.broken_server(slot);
            }
        }
        if let Some(tail) = buf.get(pos..).filter(|t| !t.is_empty()) {
            server.held = tail.to_vec();
        }
        let short = server.ledger.len() < MAX_LEDGER / 2;
        self.forward(ConnId::Client(client), Source::Input, buf, 0..pos);
        if let Some(pin) = pin {
            self.pin(client, pin);
        }
        if short {
            if let Some(c) = self.clients.get_mut(client as usize).filter(|c| c.ahead) {
                c.ahead = false;
                self.out.push_back(Output::Resume(ConnId::Client(client)));
            }
        }
        self.part_if_done(client);
    }

    /// Replies to statements of our own: they are consumed, and only changed settings are passed on.
    fn own_replies(&mut self, slot: u32, buf: &[u8]) {
        let mut pos = 0;
        loop {
            let Some(server) = self.servers.get_mut(slot as usize) else {
                return;
            };
            let need = |tag| match tag {
                backend::ERROR_RESPONSE | backend::PARAMETER_STATUS => 8 * 1024,
                tag => server_need(tag),
            };
            let head = match server.scanner.next(buf, &mut pos, need) {
                Ok(Some(head)) => head,
                Ok(None) => break,
                Err(_) => return self.broken_server(slot),
            };
            let status = head.body.first().and_then(|b| TxStatus::from_byte(*b)).unwrap_or(TxStatus::Failed);
            if server.ledger.received(head.tag, status).is_err() {
                return self.broken_server(slot);
            }
            match head.tag {
                backend::ERROR_RESPONSE => server.error = Some(head.body.to_vec()),
                backend::PARAMETER_STATUS => {
                    if let (ServerState::Replaying { client }, true) = (&server.state, head.is_complete()) {
                        let to = ConnId::Client(*client);
                        self.forward(to, Source::Input, buf, head.start..pos);
                    }
                }
                backend::READY_FOR_QUERY if server.ledger.is_quiet() => {
                    // Nothing was asked for behind it; a notice that comes with it is nobody's.
                    if pos != buf.len() {
                        return self.server_closed(slot);
                    }
                    match server.state {
                        ServerState::Replaying { client } => self.replayed(slot, client),
                        ServerState::Resetting { step } => self.reset_done(slot, step),
                        _ => {}
                    }
                    return;
                }
                _ => {}
            }
        }
        if let Some(server) = self.servers.get_mut(slot as usize) {
            server.held = buf.get(pos..).unwrap_or_default().to_vec();
        }
    }

    /// What a server sends makes no sense: nobody may get a byte of it any more.
    fn broken_server(&mut self, slot: u32) {
        tracing::error!("a server sent a reply that nobody asked for; its connection is closed");
        self.server_closed(slot);
    }

    /// A connection's pending bytes have grown so much that its peer must not be read.
    pub fn blocked(&mut self, conn: ConnId) {
        match conn {
            ConnId::Client(slot) => {
                let Some(c) = self.clients.get_mut(slot as usize) else {
                    return;
                };
                c.blocked = true;
                if let State::Seated { server } = c.state {
                    self.out.push_back(Output::Pause(ConnId::Server(server)));
                }
            }
            ConnId::Server(slot) => {
                let Some(s) = self.servers.get_mut(slot as usize) else {
                    return;
                };
                s.blocked = true;
                if let ServerState::Seated { client } = s.state {
                    self.out.push_back(Output::Pause(ConnId::Client(client)));
                }
            }
            ConnId::Cancel(_) => {}
        }
    }

    /// Everything that was pending for a connection has been sent.
    pub fn drained(&mut self, conn: ConnId) {
        match conn {
            ConnId::Client(slot) => {
                let Some(c) = self.clients.get_mut(slot as usize) else {
                    return;
                };
                c.blocked = false;
                if let State::Seated { server } = c.state {
                    self.out.push_back(Output::Resume(ConnId::Server(server)));
                }
            }
            ConnId::Server(slot) => {
                let Some(s) = self.servers.get_mut(slot as usize) else {
                    return;
                };
                s.blocked = false;
                if let ServerState::Seated { client } = s.state {
                    self.out.push_back(Output::Resume(ConnId::Client(client)));
                    self.part_if_done(client);
                }
            }
            ConnId::Cancel(_) => {}
        }
    }
}

/// Is this a message that a server answers, in a session?
#[inline]
fn is_request(tag: u8) -> bool {
    matches!(
        tag,
        frontend::QUERY
            | frontend::PARSE
            | frontend::BIND
            | frontend::DESCRIBE
            | frontend::EXECUTE
            | frontend::CLOSE
            | frontend::SYNC
            | frontend::FLUSH
            | frontend::FUNCTION_CALL
    )
}

/// What a command tag says about state that outlives a transaction.
#[inline]
fn pin_of(tag: &[u8]) -> Option<Pin> {
    match tag {
        [b'S', b'E', b'T', 0, ..] => Some(Pin::Setting),
        [b'S', b'E', b'L', b'E', ..] | [b'I', b'N', b'S', ..] | [b'U', b'P', ..] | [b'D', b'E', b'L', ..] => None,
        tag if tag.starts_with(b"RESET\0") => Some(Pin::Setting),
        tag if tag.starts_with(b"PREPARE\0") => Some(Pin::Prepared),
        tag if tag.starts_with(b"DECLARE CURSOR\0") => Some(Pin::Cursor),
        tag if tag.starts_with(b"LISTEN\0") => Some(Pin::Listen),
        tag if tag.starts_with(b"LOAD\0") => Some(Pin::Load),
        _ => None,
    }
}
