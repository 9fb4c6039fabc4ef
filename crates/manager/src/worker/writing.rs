//! From the core to the sockets: carries out what the core wants.

use super::socket::{Layer, Progress};
use super::sockets::Source;
use super::{Letter, Worker};
use crate::core::{Bytes, ConnId, Output};
use mio::Interest;
use std::sync::atomic::Ordering;
use zeroize::Zeroize;

impl Worker {
    /// Carries out what the core wants, and tells it what went wrong meanwhile, until there is nothing left.
    pub(super) fn settle(&mut self) {
        loop {
            while let Some(output) = self.core.poll() {
                self.carry_out(output);
            }
            if let Some(conn) = self.full.pop() {
                if self.sockets.get(conn).is_some_and(|io| io.wants_write) {
                    self.core.blocked(conn);
                }
            } else if let Some(conn) = self.lost.pop() {
                self.closed(conn);
            } else {
                return;
            }
        }
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Send { to, bytes } => self.write(to, bytes),
            Output::Pause(conn) => {
                if let Some(io) = self.sockets.get(conn) {
                    io.paused = true;
                }
            }
            Output::Resume(conn) => {
                if let Some(io) = self.sockets.get(conn).filter(|io| io.paused) {
                    io.paused = false;
                    if io.readable {
                        self.again.push(Source::Conn(conn));
                    }
                }
            }
            Output::Close(conn) => self.close(conn),
            Output::Wipe => self.scratch.zeroize(),
            Output::Connect { conn, address, encryption } => self.connect(conn, address, encryption),
            Output::StartTls(conn) => self.start_tls(conn),
            Output::Mail(worker, mail) => self.post.send(worker, Letter::Core(mail)),
            Output::Ask(question) => match self.questions.ask(question) {
                None => {}
                Some(refusal) => self.core.mail(refusal),
            },
            Output::HandOver { server, client, since } => {
                let io = self.sockets.take(ConnId::Server(server));
                let (Some(state), Some(mut io)) = (self.core.take_server(server), io) else {
                    return;
                };
                self.left.push(ConnId::Server(server));
                if let Err(e) = self.poll.registry().deregister(&mut io.socket) {
                    tracing::error!("cannot hand a socket over: {e}");
                }
                let letter = Letter::Server { state: Box::new(state), io: Box::new(io), client, since };
                self.post.send(client.worker, letter);
            }
        }
    }

    #[inline]
    fn write(&mut self, to: ConnId, bytes: Bytes) {
        let Some(io) = self.sockets.get(to) else { return };
        let bytes = match &bytes {
            Bytes::Owned(bytes) => bytes.as_slice(),
            Bytes::Secret(bytes) => bytes.as_slice(),
            Bytes::Composed(range) => self.core.composed(range.clone()),
            Bytes::Input(range) => {
                let range = self.base + range.start..self.base + range.end;
                self.scratch.get(range).unwrap_or_default()
            }
        };
        let progress = match &mut io.layer {
            Layer::Tls(session) => {
                self.sealed.clear();
                match session.seal(bytes, &mut self.sealed) {
                    Ok(()) => io.write(self.sealed.as_slice()),
                    Err(e) => {
                        tracing::debug!("cannot seal: {e}");
                        Progress::Broken
                    }
                }
            }
            Layer::Plain | Layer::Unknown | Layer::Wanted(_) => io.write(bytes),
        };
        match progress {
            Progress::Done => {}
            Progress::Pending | Progress::Broken => self.held_up(to, progress),
        }
    }

    /// Something that was written has not left.
    pub(super) fn held_up(&mut self, to: ConnId, progress: Progress) {
        let Some(io) = self.sockets.get(to) else { return };
        match progress {
            Progress::Done => {}
            Progress::Broken => self.lost.push(to),
            Progress::Pending => {
                self.full.push(to);
                if !io.wants_write && !io.connecting {
                    io.wants_write = true;
                    let interest = Interest::READABLE | Interest::WRITABLE;
                    let token = Source::Conn(to).token();
                    if let Err(e) = self.poll.registry().reregister(&mut io.socket, token, interest) {
                        tracing::error!("cannot register a socket: {e}");
                        self.lost.push(to);
                    }
                }
            }
        }
    }

    /// The socket takes bytes again, or has connected.
    pub(super) fn writable(&mut self, conn: ConnId) {
        let Some(io) = self.sockets.get(conn) else { return };
        if io.connecting {
            match io.socket.connected() {
                Ok(true) => self.connected(conn),
                Ok(false) => {}
                Err(e) => self.connect_failed(conn, &e),
            }
            return;
        }
        if !io.wants_write {
            return;
        }
        match io.flush() {
            Progress::Pending => {}
            Progress::Done => {
                self.listen_only(conn);
                self.core.drained(conn);
                self.settle();
            }
            Progress::Broken => self.hung_up(conn),
        }
    }

    /// Nothing is left to be written.
    pub(super) fn listen_only(&mut self, conn: ConnId) {
        if let Some(io) = self.sockets.get(conn) {
            io.wants_write = false;
            let token = Source::Conn(conn).token();
            if let Err(e) = self.poll.registry().reregister(&mut io.socket, token, Interest::READABLE) {
                tracing::error!("cannot register a socket: {e}");
            }
        }
    }

    fn close(&mut self, conn: ConnId) {
        let io = self.sockets.take(conn);
        if matches!(conn, ConnId::Client(_)) && io.is_some() {
            self.shared.clients.fetch_sub(1, Ordering::Relaxed);
        }
        self.lost.retain(|lost| *lost != conn);
        self.full.retain(|full| *full != conn);
        self.retry.retain(|(retry, _)| *retry != conn);
        let Some(mut io) = io else { return };
        self.left.push(conn);
        if let Layer::Tls(session) = &mut io.layer {
            self.sealed.clear();
            // What is under way goes first; that a handshake cannot be ended politely changes nothing.
            if session.close(&mut self.sealed).is_ok() {
                io.write(self.sealed.as_slice());
            }
        }
        if io.has_pending() && !io.connecting {
            self.sockets.lingering.put(io, self.poll.registry());
        }
    }
}
