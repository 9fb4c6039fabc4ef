//! The thread that moves bytes between sockets and the core of one worker.
//!
//! A readiness loop over edge-triggered epoll (or kqueue). Sockets are registered for reading once; interest in writing is
//! registered only while something could not be written. A read that does not fill the buffer has emptied the socket, so in
//! the steady state a message costs one read and one write.

mod listener;
mod mailbox;
mod socket;

pub use listener::Listener;
pub use mailbox::{Letter, Mailbox, Post};

use crate::control::Questions;
use crate::core::{Bytes, ConnId, Core, Entropy, MAX_HELD, Output};
use crate::shared::{ServerAddress, Shared};
use mio::{Events, Interest, Poll, Token};
use pgusher_pool::{Micros, WorkerId};
use pgusher_wire::{Report, sqlstate};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use socket::{Io, Progress, Socket};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Bytes that one read takes at most.
const READ_SIZE: usize = 64 * 1024;
/// Reads of one connection in a row, before the others get their turn.
const READS_IN_A_ROW: usize = 8;
/// Connections that are closed as soon as the last bytes have left, at most.
const MAX_LINGERING: usize = 1024;
/// Ticks after which they are closed in any case.
const MAX_LINGERING_TICKS: u8 = 10;
const WAKE: Token = Token(usize::MAX);
const TICK: Duration = Duration::from_secs(1);

/// Which table a token's slot is in: the token's lowest three bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Listener = 0,
    Client = 1,
    Server = 2,
    Cancel = 3,
    Lingering = 4,
}

fn token(kind: Kind, slot: u32) -> Token {
    Token(((slot as usize) << 3) | kind as usize)
}

fn token_of(conn: ConnId) -> Token {
    match conn {
        ConnId::Client(slot) => token(Kind::Client, slot),
        ConnId::Server(slot) => token(Kind::Server, slot),
        ConnId::Cancel(slot) => token(Kind::Cancel, slot),
    }
}

/// The sockets of one kind, by slot.
#[derive(Default)]
struct Table(Vec<Option<Io>>);

impl Table {
    #[inline]
    fn get(&mut self, slot: u32) -> Option<&mut Io> {
        self.0.get_mut(slot as usize).and_then(Option::as_mut)
    }

    fn put(&mut self, slot: u32, io: Io) {
        let slot = slot as usize;
        if slot >= self.0.len() {
            self.0.resize_with(slot + 1, || None);
        }
        if let Some(place) = self.0.get_mut(slot) {
            *place = Some(io);
        }
    }

    fn take(&mut self, slot: u32) -> Option<Io> {
        self.0.get_mut(slot as usize).and_then(Option::take)
    }
}

/// One worker thread's state.
pub struct Worker {
    core: Core,
    shared: Arc<Shared>,
    poll: Poll,
    listeners: Vec<Listener>,
    clients: Table,
    servers: Table,
    cancels: Table,
    lingering: Table,
    lingering_count: usize,
    mailbox: Mailbox,
    post: Arc<Post>,
    questions: Questions,
    /// Held bytes in front, then what was read.
    scratch: Box<[u8]>,
    /// Where the buffer that the core was given begins.
    base: usize,
    random: StdRng,
    epoch: Instant,
    /// Connections that may have more to read.
    again: Vec<Token>,
    /// Connections whose socket broke while it was written.
    lost: Vec<ConnId>,
    /// Connections that have more pending than they should.
    full: Vec<ConnId>,
    /// Connections that are tried again soon: the server's queue was full.
    retry: Vec<(ConnId, Arc<ServerAddress>)>,
    draining: bool,
    stop: bool,
}

impl Worker {
    /// A worker that listens on `listeners`.
    ///
    /// # Errors
    /// The system has no more file descriptors.
    pub fn new(
        me: WorkerId,
        shared: Arc<Shared>,
        post: Arc<Post>,
        questions: Questions,
        mailbox: Mailbox,
        mut listeners: Vec<Listener>,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        for (index, listener) in listeners.iter_mut().enumerate() {
            listener.register(poll.registry(), token(Kind::Listener, index as u32))?;
        }
        post.attach(me, mio::Waker::new(poll.registry(), WAKE)?);
        Ok(Self {
            core: Core::new(me, shared.clone()),
            shared,
            poll,
            listeners,
            clients: Table::default(),
            servers: Table::default(),
            cancels: Table::default(),
            lingering: Table::default(),
            lingering_count: 0,
            mailbox,
            post,
            questions,
            scratch: vec![0; MAX_HELD + READ_SIZE].into_boxed_slice(),
            base: MAX_HELD,
            random: StdRng::from_os_rng(),
            epoch: Instant::now(),
            again: Vec::new(),
            lost: Vec::new(),
            full: Vec::new(),
            retry: Vec::new(),
            draining: false,
            stop: false,
        })
    }

    /// Works until it is told to stop, or until the last client has left after it was told to drain.
    pub fn run(mut self) {
        let mut events = Events::with_capacity(512);
        let mut next_tick = Instant::now() + TICK;
        while !self.stop {
            let timeout = if !self.again.is_empty() {
                Duration::ZERO
            } else if !self.retry.is_empty() {
                Duration::from_millis(5)
            } else {
                next_tick.saturating_duration_since(Instant::now())
            };
            if let Err(e) = self.poll.poll(&mut events, Some(timeout)) {
                if e.kind() != io::ErrorKind::Interrupted {
                    tracing::error!("cannot wait for events: {e}");
                    return;
                }
                continue;
            }
            let now = Instant::now();
            self.core.set_now(self.micros(now));
            for event in &events {
                self.event(event);
            }
            for token in std::mem::take(&mut self.again) {
                self.readable(token);
            }
            for (conn, address) in std::mem::take(&mut self.retry) {
                self.connect(conn, address);
            }
            self.settle();
            if now >= next_tick {
                next_tick = now + TICK;
                self.again.extend((0..self.listeners.len()).map(|i| token(Kind::Listener, i as u32)));
                self.core.tick();
                self.expire_lingering();
                self.settle();
            }
            if self.draining && self.core.client_count() == 0 && self.lingering_count == 0 {
                return;
            }
        }
    }

    fn micros(&self, now: Instant) -> Micros {
        // The first hour is skipped so that limits in time can be subtracted from any moment.
        let elapsed = now.saturating_duration_since(self.epoch) + Duration::from_secs(3600);
        Micros(u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX))
    }

    fn entropy(&mut self) -> Entropy {
        let mut bytes = [0; 64];
        self.random.fill_bytes(&mut bytes);
        bytes
    }

    fn event(&mut self, event: &mio::event::Event) {
        let t = event.token();
        if t == WAKE {
            return self.letters();
        }
        let (kind, slot) = (t.0 & 7, (t.0 >> 3) as u32);
        if event.is_writable() {
            self.writable(kind, slot);
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            if let Some(io) = self.table(kind).and_then(|t| t.get(slot)) {
                io.readable = true;
                io.ended |= event.is_read_closed() || event.is_error();
                // A client that has hung up must not keep its place in a queue.
                if io.paused && io.ended && kind == Kind::Client as usize && self.core.client_waits(slot) {
                    self.core.client_closed(slot);
                    return self.settle();
                }
            }
            self.readable(t);
        }
    }

    fn table(&mut self, kind: usize) -> Option<&mut Table> {
        match kind {
            k if k == Kind::Client as usize => Some(&mut self.clients),
            k if k == Kind::Server as usize => Some(&mut self.servers),
            k if k == Kind::Cancel as usize => Some(&mut self.cancels),
            k if k == Kind::Lingering as usize => Some(&mut self.lingering),
            _ => None,
        }
    }

    fn io(&mut self, conn: ConnId) -> Option<&mut Io> {
        match conn {
            ConnId::Client(slot) => self.clients.get(slot),
            ConnId::Server(slot) => self.servers.get(slot),
            ConnId::Cancel(slot) => self.cancels.get(slot),
        }
    }

    fn readable(&mut self, t: Token) {
        let slot = (t.0 >> 3) as u32;
        match t.0 & 7 {
            k if k == Kind::Listener as usize => self.accept(slot as usize),
            k if k == Kind::Client as usize => self.read(ConnId::Client(slot)),
            k if k == Kind::Server as usize => self.read(ConnId::Server(slot)),
            k if k == Kind::Cancel as usize => self.read(ConnId::Cancel(slot)),
            // Nothing that it says matters any more; only whether it is still there.
            k if k == Kind::Lingering as usize && self.lingering.get(slot).is_some_and(|io| io.ended) => {
                self.end_lingering(slot);
            }
            _ => {}
        }
    }

    /// Reads what there is and lets the core look at it.
    fn read(&mut self, conn: ConnId) {
        for _ in 0..READS_IN_A_ROW {
            let (table, slot) = match conn {
                ConnId::Client(slot) => (&mut self.clients, slot),
                ConnId::Server(slot) => (&mut self.servers, slot),
                ConnId::Cancel(slot) => (&mut self.cancels, slot),
            };
            let Some(io) = table.get(slot) else { return };
            if io.paused || !io.readable || io.connecting {
                return;
            }
            let Some(space) = self.scratch.get_mut(MAX_HELD..) else {
                return;
            };
            let n = match io.socket.read(space) {
                Ok(0) => return self.hung_up(conn),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    io.readable = false;
                    return;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return self.hung_up(conn),
            };
            // A short read has emptied the socket. What comes later, the end included, is a new event.
            if n < READ_SIZE && !io.ended {
                io.readable = false;
            }
            self.present(conn, n);
        }
        self.again.push(token_of(conn));
    }

    /// Gives the core the bytes that were read, behind those that it has kept.
    #[inline]
    fn present(&mut self, conn: ConnId, n: usize) {
        let held = match conn {
            ConnId::Client(slot) => self.core.client_held(slot),
            ConnId::Server(slot) => self.core.server_held(slot),
            ConnId::Cancel(_) => return,
        };
        if held.len() > MAX_HELD {
            return self.hung_up(conn);
        }
        self.base = MAX_HELD - held.len();
        if let (Some(front), Some(held)) = (self.scratch.get_mut(self.base..MAX_HELD), held.get(..MAX_HELD - self.base))
        {
            front.copy_from_slice(held);
        }
        let Some(buf) = self.scratch.get(self.base..MAX_HELD + n) else {
            return;
        };
        match conn {
            ConnId::Client(slot) => self.core.client_bytes(slot, buf),
            ConnId::Server(slot) => self.core.server_bytes(slot, buf),
            ConnId::Cancel(_) => {}
        }
        self.settle();
    }

    fn hung_up(&mut self, conn: ConnId) {
        match conn {
            ConnId::Client(slot) => self.core.client_closed(slot),
            ConnId::Server(slot) => self.core.server_closed(slot),
            ConnId::Cancel(slot) => self.core.cancel_closed(slot),
        }
        self.settle();
    }

    fn writable(&mut self, kind: usize, slot: u32) {
        let conn = match kind {
            k if k == Kind::Client as usize => ConnId::Client(slot),
            k if k == Kind::Server as usize => ConnId::Server(slot),
            k if k == Kind::Cancel as usize => ConnId::Cancel(slot),
            k if k == Kind::Lingering as usize => {
                if self.lingering.get(slot).is_some_and(|io| io.flush() != Progress::Pending) {
                    self.end_lingering(slot);
                }
                return;
            }
            _ => return,
        };
        let Some(io) = self.io(conn) else { return };
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

    fn listen_only(&mut self, conn: ConnId) {
        let t = token_of(conn);
        let io = match conn {
            ConnId::Client(slot) => self.clients.get(slot),
            ConnId::Server(slot) => self.servers.get(slot),
            ConnId::Cancel(slot) => self.cancels.get(slot),
        };
        if let Some(io) = io {
            io.wants_write = false;
            if let Err(e) = self.poll.registry().reregister(&mut io.socket, t, Interest::READABLE) {
                tracing::error!("cannot register a socket: {e}");
            }
        }
    }

    /// Carries out what the core wants, and tells it what went wrong meanwhile, until there is nothing left.
    fn settle(&mut self) {
        loop {
            while let Some(output) = self.core.poll() {
                self.carry_out(output);
            }
            if let Some(conn) = self.full.pop() {
                if self.io(conn).is_some_and(|io| io.wants_write) {
                    self.core.blocked(conn);
                }
            } else if let Some(conn) = self.lost.pop() {
                match conn {
                    ConnId::Client(slot) => self.core.client_closed(slot),
                    ConnId::Server(slot) => self.core.server_closed(slot),
                    ConnId::Cancel(slot) => self.core.cancel_closed(slot),
                }
            } else {
                return;
            }
        }
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Send { to, bytes } => self.write(to, bytes),
            Output::Pause(conn) => {
                if let Some(io) = self.io(conn) {
                    io.paused = true;
                }
            }
            Output::Resume(conn) => {
                if let Some(io) = self.io(conn).filter(|io| io.paused) {
                    io.paused = false;
                    if io.readable {
                        self.again.push(token_of(conn));
                    }
                }
            }
            Output::Close(conn) => self.close(conn),
            Output::Connect { conn, address } => self.connect(conn, address),
            Output::Mail(worker, mail) => self.post.send(worker, Letter::Core(mail)),
            Output::Ask(question) => match self.questions.ask(question) {
                None => {}
                Some(refusal) => self.core.mail(refusal),
            },
            Output::HandOver { server, client, since } => {
                let (Some(state), Some(mut io)) = (self.core.take_server(server), self.servers.take(server)) else {
                    return;
                };
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
        let (table, slot) = match to {
            ConnId::Client(slot) => (&mut self.clients, slot),
            ConnId::Server(slot) => (&mut self.servers, slot),
            ConnId::Cancel(slot) => (&mut self.cancels, slot),
        };
        let Some(io) = table.get(slot) else { return };
        let progress = match &bytes {
            Bytes::Owned(bytes) => io.write(bytes),
            Bytes::Input(range) => {
                let range = self.base + range.start..self.base + range.end;
                io.write(self.scratch.get(range).unwrap_or_default())
            }
        };
        match progress {
            Progress::Done => {}
            Progress::Broken => self.lost.push(to),
            Progress::Pending => {
                self.full.push(to);
                if !io.wants_write && !io.connecting {
                    io.wants_write = true;
                    let interest = Interest::READABLE | Interest::WRITABLE;
                    if let Err(e) = self.poll.registry().reregister(&mut io.socket, token_of(to), interest) {
                        tracing::error!("cannot register a socket: {e}");
                        self.lost.push(to);
                    }
                }
            }
        }
    }

    fn close(&mut self, conn: ConnId) {
        let io = match conn {
            ConnId::Client(slot) => {
                let io = self.clients.take(slot);
                if io.is_some() {
                    self.shared.clients.fetch_sub(1, Ordering::Relaxed);
                }
                io
            }
            ConnId::Server(slot) => self.servers.take(slot),
            ConnId::Cancel(slot) => self.cancels.take(slot),
        };
        self.lost.retain(|lost| *lost != conn);
        self.full.retain(|full| *full != conn);
        self.retry.retain(|(retry, _)| *retry != conn);
        let Some(mut io) = io else { return };
        if io.has_pending() && !io.connecting && self.lingering_count < MAX_LINGERING {
            let slot = self.lingering.0.iter().position(Option::is_none).unwrap_or(self.lingering.0.len()) as u32;
            let interest = Interest::READABLE | Interest::WRITABLE;
            if self.poll.registry().reregister(&mut io.socket, token(Kind::Lingering, slot), interest).is_ok() {
                self.lingering.put(slot, io);
                self.lingering_count += 1;
            }
        }
    }

    /// Somebody who does not read for so long will not read any more.
    fn expire_lingering(&mut self) {
        for place in &mut self.lingering.0 {
            if let Some(io) = place {
                io.age += 1;
                if io.age > MAX_LINGERING_TICKS {
                    *place = None;
                    self.lingering_count -= 1;
                }
            }
        }
    }

    fn end_lingering(&mut self, slot: u32) {
        if self.lingering.take(slot).is_some() {
            self.lingering_count -= 1;
        }
    }

    fn connect(&mut self, conn: ConnId, address: Arc<ServerAddress>) {
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
        let interest = if at_once { Interest::READABLE } else { Interest::READABLE | Interest::WRITABLE };
        if let Err(e) = self.poll.registry().register(&mut io.socket, token_of(conn), interest) {
            return self.connect_failed(conn, &e);
        }
        match conn {
            ConnId::Client(_) => {}
            ConnId::Server(slot) => self.servers.put(slot, io),
            ConnId::Cancel(slot) => self.cancels.put(slot, io),
        }
        if at_once {
            self.connected(conn);
        }
    }

    fn connected(&mut self, conn: ConnId) {
        let random = self.entropy();
        if let Some(io) = self.io(conn).filter(|io| io.connecting) {
            io.connecting = false;
            self.listen_only(conn);
        }
        match conn {
            ConnId::Client(_) => {}
            ConnId::Server(slot) => self.core.server_connected(slot, &random),
            ConnId::Cancel(slot) => self.core.cancel_connected(slot),
        }
        self.settle();
    }

    fn connect_failed(&mut self, conn: ConnId, error: &io::Error) {
        match conn {
            ConnId::Client(_) => {}
            ConnId::Server(slot) => self.core.server_connect_failed(slot, error),
            ConnId::Cancel(slot) => self.core.cancel_closed(slot),
        }
        self.settle();
    }

    fn accept(&mut self, index: usize) {
        // With several workers each takes one at a time, so that the others get their share.
        let turns = if self.shared.config.workers > 1 { 1 } else { 256 };
        for _ in 0..turns {
            let Some(listener) = self.listeners.get(index) else {
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
        self.again.push(token(Kind::Listener, index as u32));
    }

    fn accepted(&mut self, socket: Socket, origin: crate::core::Origin) {
        let mut io = Io::new(socket);
        if !self.shared.admit_client() {
            let report = Report::fatal(sqlstate::TOO_MANY_CONNECTIONS, "sorry, too many clients already")
                .hint("Raise max_clients in pgusher's configuration.");
            io.write(&report.to_bytes());
            return;
        }
        let random = self.entropy();
        let slot = self.core.accepted(origin, &random);
        if let Err(e) = self.poll.registry().register(&mut io.socket, token(Kind::Client, slot), Interest::READABLE) {
            tracing::error!("cannot register a socket: {e}");
            self.clients.put(slot, io);
            self.core.client_closed(slot);
            return self.settle();
        }
        self.clients.put(slot, io);
    }

    fn letters(&mut self) {
        while let Some(letter) = self.mailbox.take() {
            match letter {
                Letter::Core(mail) => {
                    if matches!(mail, crate::core::Mail::Drain) {
                        self.draining = true;
                        self.listeners.clear();
                    }
                    self.core.mail(mail);
                }
                Letter::Server { state, io, client, since } => {
                    let mut io = *io;
                    // The slot is known only after the core has taken it; nothing is sent before the outputs are drained.
                    let slot = self.core.server_arrived(*state, client, since);
                    let t = token(Kind::Server, slot);
                    // What arrived while the socket was on its way is an event of the new registration.
                    if let Err(e) = self.poll.registry().register(&mut io.socket, t, Interest::READABLE) {
                        tracing::error!("cannot take a socket over: {e}");
                        self.lost.push(ConnId::Server(slot));
                    }
                    self.servers.put(slot, io);
                }
                Letter::Stop => self.stop = true,
            }
            self.settle();
        }
    }
}
