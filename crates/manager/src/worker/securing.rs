//! Between a socket that is not plain and the core: agrees on TLS, opens what is read. Sealing what is written is done where it
//! is written.

use super::Worker;
use super::reading::READ_SIZE;
use super::socket::{Layer, Progress, Received};
use super::tls::{MAX_HELD as MAX_RECORDS, Session};
use crate::core::{ConnId, MAX_HELD};
use pgusher_auth::Transport;
use pgusher_wire::startup::SSL_REQUEST_BYTES;

/// The first byte of TLS: a record of the handshake. The first byte of a startup packet, which is shorter than 16 MiB, is zero.
const HANDSHAKE: u8 = 0x16;

impl Worker {
    /// The core has agreed to speak TLS with a client that asked for it.
    pub(super) fn start_tls(&mut self, conn: ConnId) {
        self.begin_with_client(conn, false);
    }

    /// The socket to a server has connected, and TLS is wanted.
    pub(super) fn ask_for_tls(&mut self, conn: ConnId) {
        if self.shared.config.server.tls.is_direct() {
            return self.begin_with_server(conn);
        }
        let Some(io) = self.sockets.get(conn) else { return };
        let progress = io.write(&SSL_REQUEST_BYTES);
        self.held_up(conn, progress);
        self.settle();
    }

    /// Reads from a socket that is not plain, or not known to be.
    #[inline(never)]
    pub(super) fn read_secured(&mut self, conn: ConnId) {
        let Some(io) = self.sockets.get(conn) else { return };
        match &io.layer {
            Layer::Plain => {}
            Layer::Unknown => self.read_first(conn),
            Layer::Wanted(_) => self.read_answer(conn),
            Layer::Tls(session) if session.ended => self.hung_up(conn),
            Layer::Tls(_) => self.read_tls(conn),
        }
    }

    /// The first bytes of a client: TLS, or a startup packet.
    fn read_first(&mut self, conn: ConnId) {
        let (Some(io), Some(space)) = (self.sockets.get(conn), self.scratch.get_mut(MAX_HELD..)) else {
            return;
        };
        let n = match io.receive(space) {
            Received::Bytes(n) => n,
            Received::Nothing => return,
            Received::End => return self.hung_up(conn),
        };
        if space.first() != Some(&HANDSHAKE) {
            io.layer = Layer::Plain;
            return self.present(conn, n);
        }
        self.incoming.resize(READ_SIZE, 0);
        if let (Some(to), Some(from)) = (self.incoming.get_mut(..n), space.get(..n)) {
            to.copy_from_slice(from);
        }
        if self.begin_with_client(conn, true) {
            self.open(conn, n);
        }
    }

    /// What a server says to an SSLRequest (protocol chapter, "SSL Session Encryption").
    fn read_answer(&mut self, conn: ConnId) {
        let (Some(io), Some(space)) = (self.sockets.get(conn), self.scratch.get_mut(MAX_HELD..)) else {
            return;
        };
        let n = match io.receive(space) {
            Received::Bytes(n) => n,
            Received::Nothing => return,
            Received::End => return self.tls_failed(conn, "the server ended the connection when it was asked for TLS"),
        };
        let optional = matches!(&io.layer, Layer::Wanted(wanted) if wanted.optional);
        match space.get(..n) {
            Some(b"S") => self.begin_with_server(conn),
            Some(b"N") if optional => {
                io.layer = Layer::Plain;
                self.may_speak(conn, Transport::Plain);
            }
            Some(b"N") => self.tls_failed(conn, "the server does not support TLS, but sslmode asks for it"),
            // Bytes behind the answer were sent by somebody who cannot speak TLS (CVE-2021-23222).
            Some([b'S', ..]) => self.tls_failed(conn, "unencrypted data came behind the server's answer"),
            _ => self.tls_failed(conn, "the server answered with an error when it was asked for TLS"),
        }
    }

    fn begin_with_client(&mut self, conn: ConnId, direct: bool) -> bool {
        let (Some(io), Some(tls)) = (self.sockets.get(conn), &self.shared.config.client_tls) else {
            return false;
        };
        match Session::to_client(tls.config(), direct) {
            Ok(session) => {
                io.layer = Layer::Tls(Box::new(session));
                true
            }
            Err(e) => {
                tracing::error!("cannot begin TLS with a client: {e}");
                self.hung_up(conn);
                false
            }
        }
    }

    fn begin_with_server(&mut self, conn: ConnId) {
        let tls = &self.shared.config.server.tls;
        let (Some(io), Some(config)) = (self.sockets.get(conn), tls.config()) else {
            return;
        };
        let Layer::Wanted(wanted) = std::mem::replace(&mut io.layer, Layer::Plain) else {
            return;
        };
        self.sealed.clear();
        match Session::to_server(config, wanted.name, tls.is_direct(), &mut self.sealed) {
            Ok(session) => {
                io.layer = Layer::Tls(Box::new(session));
                let progress = io.write(self.sealed.as_slice());
                self.held_up(conn, progress);
                self.settle();
            }
            Err(e) => self.tls_failed(conn, &e.to_string()),
        }
    }

    /// Reads ciphertext behind the part of a record that was kept.
    fn read_tls(&mut self, conn: ConnId) {
        self.incoming.resize(READ_SIZE, 0);
        let Some(io) = self.sockets.get(conn) else { return };
        let Layer::Tls(session) = &mut io.layer else { return };
        let held = session.held.len();
        if held > MAX_RECORDS {
            return self.broken(conn, "a message of the TLS handshake is too long");
        }
        if let Some(front) = self.incoming.get_mut(..held) {
            front.copy_from_slice(&session.held);
        }
        let Some(space) = self.incoming.get_mut(held..) else {
            return;
        };
        match io.receive(space) {
            Received::Bytes(n) => self.open(conn, held + n),
            Received::Nothing => {}
            Received::End => self.broken(conn, "the other side ended the connection"),
        }
    }

    /// Opens ciphertext, and gives the core what is in it.
    fn open(&mut self, conn: ConnId, n: usize) {
        let (Some(io), Some(incoming), Some(plain)) =
            (self.sockets.get(conn), self.incoming.get_mut(..n), self.scratch.get_mut(MAX_HELD..))
        else {
            return;
        };
        let Layer::Tls(session) = &mut io.layer else { return };
        self.sealed.clear();
        let opened = session.open(incoming, plain, &mut self.sealed);
        let reason = opened.as_ref().err().map(ToString::to_string);
        let opened = opened.unwrap_or_default();
        let rest = incoming.get(opened.used..).unwrap_or_default();
        session.held.clear();
        if rest.is_empty() {
            session.held = Vec::new();
        } else {
            session.held.extend_from_slice(rest);
        }
        session.ended |= opened.ended;
        let ended = session.ended;
        let established = reason.is_none() && session.has_become_established();
        let (named, transport) = match established {
            true => (session.names_protocol(), session.transport()),
            false => (true, Transport::Plain),
        };
        if ended {
            // To be noticed once the core has seen what came before.
            io.readable = true;
            io.ended = true;
        }
        let sealed = self.sealed.as_slice();
        let progress = if sealed.is_empty() { Progress::Done } else { io.write(sealed) };
        if let Some(reason) = reason {
            return self.broken(conn, &reason);
        }
        if progress == Progress::Broken {
            return self.broken(conn, "the other side does not read any more");
        }
        self.held_up(conn, progress);
        if !named {
            return self.broken(conn, "direct TLS without the ALPN name \"postgresql\"");
        }
        match conn {
            ConnId::Client(slot) if established => self.core.client_secured(slot),
            ConnId::Server(_) | ConnId::Cancel(_) if established => {
                if opened.plain > 0 {
                    return self.broken(conn, "the server spoke before it was spoken to");
                }
                return self.may_speak(conn, transport);
            }
            _ => {}
        }
        if opened.plain > 0 { self.present(conn, opened.plain) } else { self.settle() }
    }

    /// TLS has come to an end that nobody meant.
    fn broken(&mut self, conn: ConnId, reason: &str) {
        let Some(io) = self.sockets.get(conn) else { return };
        let established = matches!(&io.layer, Layer::Tls(session) if session.established);
        match conn {
            ConnId::Server(_) | ConnId::Cancel(_) if !established => self.tls_failed(conn, reason),
            ConnId::Client(_) if !established => {
                tracing::info!("TLS with a client failed: {reason}");
                self.hung_up(conn);
            }
            _ => {
                tracing::debug!("TLS has ended: {reason}");
                self.hung_up(conn);
            }
        }
    }

    /// TLS with a server could not be agreed on.
    pub(super) fn tls_failed(&mut self, conn: ConnId, reason: &str) {
        match conn {
            ConnId::Client(slot) => self.core.client_closed(slot),
            ConnId::Server(slot) => self.core.server_tls_failed(slot, reason),
            ConnId::Cancel(slot) => {
                tracing::warn!("cannot pass a cancel request on: {reason}");
                self.core.cancel_closed(slot);
            }
        }
        self.settle();
    }
}
