//! The thread that moves bytes between sockets and the core of one worker.
//!
//! A readiness loop over edge-triggered epoll (or kqueue). Sockets are registered for reading once; interest in writing is
//! registered only while something could not be written. A read that does not fill the buffer has emptied the socket, so in
//! the steady state a message costs one read and one write.
//!
//! Here are the loop and its events; `reading` is the way from a socket to the core, `writing` the way back, `connecting` how
//! connections begin and `lingering` how they end; `securing` puts TLS (`tls`) between socket and core; `sockets` knows which is which.

mod connecting;
mod lingering;
mod listener;
mod mailbox;
mod reading;
mod securing;
mod socket;
mod sockets;
mod tls;
mod writing;

pub use listener::Listener;
pub use mailbox::{Letter, Mailbox, Post};

use crate::control::Questions;
use crate::core::{ConnId, Core, Entropy, MAX_HELD, PATIENCE};
use crate::shared::{ServerAddress, Shared};
use crate::tls::Encryption;
use mio::{Events, Interest, Poll};
use pgusher_pool::{Micros, WorkerId};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use reading::READ_SIZE;
use sockets::{Sockets, Source};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tls::Sealed;

const TICK: Duration = Duration::from_secs(1);

/// One worker thread's state.
pub struct Worker {
    core: Core,
    shared: Arc<Shared>,
    poll: Poll,
    listeners: Vec<Listener>,
    sockets: Sockets,
    mailbox: Mailbox,
    post: Arc<Post>,
    questions: Questions,
    /// Held bytes in front, then what was read.
    scratch: Box<[u8]>,
    /// Ciphertext that was read; empty until there is TLS.
    incoming: Vec<u8>,
    /// Ciphertext that is written.
    sealed: Sealed,
    /// Where the buffer that the core was given begins.
    base: usize,
    random: StdRng,
    epoch: Instant,
    /// Connections that may have more to read.
    again: Vec<Source>,
    /// Connections whose socket broke while it was written.
    lost: Vec<ConnId>,
    /// Connections that have left since the poll: events of theirs are not about those that have their numbers now.
    left: Vec<ConnId>,
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
            listener.register(poll.registry(), Source::Listener(index as u32).token())?;
        }
        post.attach(me, mio::Waker::new(poll.registry(), Source::Mailbox.token())?);
        Ok(Self {
            core: Core::new(me, shared.clone()),
            shared,
            poll,
            listeners,
            sockets: Sockets::default(),
            mailbox,
            post,
            questions,
            scratch: vec![0; MAX_HELD + READ_SIZE].into_boxed_slice(),
            incoming: Vec::new(),
            sealed: Sealed::default(),
            base: MAX_HELD,
            random: StdRng::from_os_rng(),
            epoch: Instant::now(),
            again: Vec::new(),
            lost: Vec::new(),
            left: Vec::new(),
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
        let mut next_look = Instant::now();
        while !self.stop {
            let timeout = if !self.again.is_empty() {
                Duration::ZERO
            } else if !self.retry.is_empty() {
                Duration::from_millis(5)
            } else if self.core.has_followers() {
                PATIENCE / 2
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
            self.left.clear();
            for event in &events {
                self.event(event);
            }
            for source in std::mem::take(&mut self.again) {
                self.go_on(source);
            }
            for (conn, address) in std::mem::take(&mut self.retry) {
                // Only Unix sockets are tried again, and those are never encrypted.
                self.connect(conn, address, Encryption::Plain);
            }
            self.settle();
            if self.core.has_followers() && now >= next_look {
                next_look = now + PATIENCE / 2;
                self.core.look_after_followers();
                self.settle();
            }
            if now >= next_tick {
                next_tick = now + TICK;
                self.again.extend((0..self.listeners.len()).map(|i| Source::Listener(i as u32)));
                self.core.tick();
                self.sockets.lingering.tick();
                self.settle();
            }
            if self.draining && self.core.client_count() == 0 && self.sockets.lingering.is_empty() {
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
        let conn = match Source::of(event.token()) {
            Some(Source::Conn(conn)) => conn,
            Some(Source::Mailbox) => return self.letters(),
            Some(Source::Listener(index)) => return self.accept(index),
            Some(Source::Lingering(slot)) => return self.sockets.lingering.event(slot, event),
            None => return,
        };
        if self.left.contains(&conn) {
            return;
        }
        if event.is_writable() {
            self.writable(conn);
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            let Some(io) = self.sockets.get(conn) else { return };
            io.readable = true;
            io.ended |= event.is_read_closed() || event.is_error();
            self.read(conn);
        }
    }

    /// What was interrupted so that others got their turn.
    fn go_on(&mut self, source: Source) {
        match source {
            Source::Conn(conn) => self.read(conn),
            Source::Listener(index) => self.accept(index),
            Source::Mailbox | Source::Lingering(_) => {}
        }
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
                    let conn = ConnId::Server(slot);
                    let token = Source::Conn(conn).token();
                    // What arrived while the socket was on its way is an event of the new registration.
                    if let Err(e) = self.poll.registry().register(&mut io.socket, token, Interest::READABLE) {
                        tracing::error!("cannot take a socket over: {e}");
                        self.lost.push(conn);
                    }
                    self.sockets.put(conn, io);
                }
                Letter::Stop => self.stop = true,
            }
            self.settle();
        }
    }
}
