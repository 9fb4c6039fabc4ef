//! Letters between workers and from the control side. A letter wakes the worker that it is for.

use super::socket::Io;
use crate::core::{Mail, Server};
use pgusher_pool::{Micros, Seat, WorkerId};
use std::io;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Something for a worker.
#[derive(Debug)]
pub enum Letter {
    /// For its core.
    Core(Mail),
    /// A physical connection moves here.
    Server {
        /// What the core knows of it.
        state: Box<Server>,
        /// Its socket.
        io: Box<Io>,
        /// The client that it is for.
        client: Seat,
        /// Since when that client has waited.
        since: Micros,
    },
    /// End at once.
    Stop,
}

/// Where a worker finds its letters.
#[derive(Debug)]
pub struct Mailbox {
    letters: Receiver<Letter>,
}

/// The sending side of a mailbox.
#[derive(Debug)]
pub struct Slot {
    letters: Sender<Letter>,
    waker: OnceLock<mio::Waker>,
}

impl Mailbox {
    /// An empty mailbox and its slot.
    ///
    /// # Errors
    /// None today.
    pub fn new() -> io::Result<(Self, Slot)> {
        let (sender, receiver) = channel();
        Ok((Self { letters: receiver }, Slot { letters: sender, waker: OnceLock::new() }))
    }

    pub(super) fn take(&self) -> Option<Letter> {
        self.letters.try_recv().ok()
    }
}

/// All mailboxes.
#[derive(Debug)]
pub struct Post {
    slots: Vec<Slot>,
}

impl Post {
    /// The post office of these workers.
    pub fn new(slots: Vec<Slot>) -> Self {
        Self { slots }
    }

    pub(super) fn attach(&self, worker: WorkerId, waker: mio::Waker) {
        if let Some(slot) = self.slots.get(usize::from(worker.0)) {
            let _ = slot.waker.set(waker);
        }
    }

    /// Sends a letter. One to a worker that has ended is lost.
    pub fn send(&self, to: WorkerId, letter: Letter) {
        let Some(slot) = self.slots.get(usize::from(to.0)) else {
            return;
        };
        if slot.letters.send(letter).is_ok() {
            if let Some(waker) = slot.waker.get() {
                if let Err(e) = waker.wake() {
                    tracing::error!("cannot wake a worker: {e}");
                }
            }
        }
    }
}
