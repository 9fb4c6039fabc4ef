//! New connections: those that clients make to us, and those that we make to servers.

use super::Worker;
use super::socket::{Io, Layer, Socket, Wanted};
use super::sockets::Source;
use crate::core::{ConnId, Origin};
use crate::shared::ServerAddress;
use crate::tls::Encryption;
use mio::Interest;
use pgusher_auth::Transport;
use pgusher_wire::{Report, sqlstate};
use std::io;
use std::sync::Arc;

impl Worker {
    pub(super) fn connect(&mut self, conn: ConnId, address: Arc<ServerAddress>, encryption: Encryption) {
        let socket = match Socket::connect(&address) {
            Ok(socket) => socket,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                // The queue of a Unix socket is full: the server has not accepted the connections before this one yet.
                self.retry.push((conn, address));
                return;
            }
            Err(e) => return self.connect_failed(conn, &e),
        };
        let at_once = socket.is_unix();
        let mut io = Io::new(socket);
        io.connecting = !at_once;
        if encryption != Encryption::Plain {
            match self.shared.config.server.tls.name(&address) {
                Ok(name) => {
                    io.layer = Layer::Wanted(Box::new(Wanted { name, optional: encryption == Encryption::IfOffered }));
                }
                Err(e) => return self.tls_failed(conn, &e.to_string()),
            }
        }
        let interest = if at_once { Interest::READABLE } else { Interest::READABLE | Interest::WRITABLE };
        if let Err(e) = self.poll.registry().register(&mut io.socket, Source::Conn(conn).token(), interest) {
            return self.connect_failed(conn, &e);
        }
        self.sockets.put(conn, io);
        if at_once {
            self.connected(conn);
        }
    }

    pub(super) fn connected(&mut self, conn: ConnId) {
        if let Some(io) = self.sockets.get(conn).filter(|io| io.connecting) {
            io.connecting = false;
            self.listen_only(conn);
        }
        match self.sockets.get(conn).map(|io| &io.layer) {
            Some(Layer::Wanted(_)) => self.ask_for_tls(conn),
            _ => self.may_speak(conn, Transport::Plain),
        }
    }

    /// The core may speak to the server now.
    pub(super) fn may_speak(&mut self, conn: ConnId, transport: Transport) {
        let random = self.entropy();
        match conn {
            ConnId::Client(_) => {}
            ConnId::Server(slot) => self.core.server_connected(slot, &random, transport),
            ConnId::Cancel(slot) => self.core.cancel_connected(slot),
        }
        self.settle();
    }

    pub(super) fn connect_failed(&mut self, conn: ConnId, error: &io::Error) {
        match conn {
            ConnId::Client(_) => {}
            ConnId::Server(slot) => self.core.server_connect_failed(slot, error),
            ConnId::Cancel(slot) => self.core.cancel_closed(slot),
        }
        self.settle();
    }

    pub(super) fn accept(&mut self, index: u32) {
        // With several workers each takes one at a time, so that the others get their share.
        let turns = if self.shared.config.workers > 1 { 1 } else { 256 };
        for _ in 0..turns {
            let Some(listener) = self.listeners.get(index as usize) else {
                return;
            };
            match listener.accept() {
                Ok((socket, origin)) => self.accepted(socket, origin),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {}
                Err(e) => {
                    // Out of file descriptors: clients that are connected go on, new ones wait in the system's queue.
                    // The next tick tries again.
                    tracing::warn!("cannot accept a connection: {e}");
                    return;
                }
            }
        }
        self.again.push(Source::Listener(index));
    }

    fn accepted(&mut self, socket: Socket, origin: Origin) {
        let mut io = Io::new(socket);
        if !self.shared.admit_client() {
            let report = Report::fatal(sqlstate::TOO_MANY_CONNECTIONS, "sorry, too many clients already")
                .hint("Raise max_clients in pgusher's configuration.");
            io.write(&report.to_bytes());
            return;
        }
        if self.shared.config.client_tls.is_some() && origin == Origin::Tcp {
            io.layer = Layer::Unknown;
        }
        let random = self.entropy();
        let slot = self.core.accepted(origin, &random);
        let conn = ConnId::Client(slot);
        let registered = self.poll.registry().register(&mut io.socket, Source::Conn(conn).token(), Interest::READABLE);
        self.sockets.put(conn, io);
        if let Err(e) = registered {
            tracing::error!("cannot register a socket: {e}");
            self.hung_up(conn);
        }
    }
}
