//! What has to be seen to from time to time: whether the address of the server is still the right one, and whether each pool
//! has the physical connections that it keeps open ahead of need. What is known of a user whose proof has failed is forgotten.
//!
//! One thread that workers tell what they notice. It is the only one that changes the address.

use super::ahead::Ahead;
use super::chooser::{Choice, Chooser};
use super::known::Doubts;
use crate::core::Mail;
use crate::shared::{ServerAddress, Shared};
use crate::worker::{Letter, Post};
use pgusher_pool::WorkerId;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How often it looks around.
const TURN: Duration = Duration::from_millis(250);
/// A server that fails is looked at again after this time at the earliest.
const CALM: Duration = Duration::from_millis(200);
/// How often it is tried again when no address works.
const DOWN_CHECK: Duration = Duration::from_secs(1);

/// Something that a worker or the control side has noticed.
#[derive(Debug)]
pub(super) enum Remark {
    /// Nobody can log in at this address now.
    Unreachable(Arc<ServerAddress>),
    /// A proof of this user has failed.
    Doubt {
        /// Role.
        user: Box<str>,
        /// Database.
        database: Box<str>,
    },
}

/// The thread's state.
pub(super) struct Upkeep {
    shared: Arc<Shared>,
    post: Arc<Post>,
    chooser: Chooser,
    ahead: Ahead,
    doubts: Doubts,
    checked: Instant,
    doubted: bool,
    down: bool,
}

impl Upkeep {
    pub(super) fn new(shared: Arc<Shared>, post: Arc<Post>) -> Self {
        let chooser = Chooser::new(&shared.config.server, shared.config.timeouts.server_connect());
        Self {
            shared,
            post,
            chooser,
            ahead: Ahead::default(),
            doubts: Doubts::default(),
            checked: Instant::now(),
            doubted: false,
            down: false,
        }
    }

    /// Works until nobody can tell it anything any more.
    pub(super) fn run(mut self, remarks: &Receiver<Remark>) {
        loop {
            self.ahead.look(&self.shared, &self.post);
            match remarks.recv_timeout(TURN) {
                Ok(remark) => self.hear(remark),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            while let Ok(remark) = remarks.try_recv() {
                self.hear(remark);
            }
            self.check_address();
        }
    }

    fn hear(&mut self, remark: Remark) {
        match remark {
            Remark::Unreachable(address) => self.doubted |= address == self.shared.upstream.address(),
            Remark::Doubt { user, database } => self.doubts.about(&self.shared, &user, &database),
        }
    }

    fn check_address(&mut self) {
        let server = &self.shared.config.server;
        let since = self.checked.elapsed();
        let old = server.can_move() && server.dns_max_age.is_some_and(|age| since >= age);
        let due = old || (self.doubted && since >= CALM) || (self.down && since >= DOWN_CHECK);
        if !due {
            return;
        }
        let current = self.shared.upstream.address();
        let choice = self.chooser.choose(Some(&current), self.doubted || self.down);
        self.checked = Instant::now();
        self.doubted = false;
        self.apply(&current, choice);
    }

    fn apply(&mut self, current: &ServerAddress, choice: Choice) {
        let upstream = &self.shared.upstream;
        if !choice.candidates.is_empty() {
            upstream.set_alternatives(choice.candidates.len() > 1);
        }
        let down = choice.address.is_none();
        let was_down = upstream.set_down(down);
        self.down = down;
        match choice.address {
            Some(address) if address != *current => {
                tracing::warn!(reasons = ?choice.reasons, "the server is now at {address}; it was at {current}");
                upstream.move_to(address);
            }
            Some(_) if was_down => tracing::info!("the server at {current} answers again"),
            Some(_) => return,
            None if was_down => return,
            None => tracing::warn!(reasons = ?choice.reasons, "no server of the connection string will do"),
        }
        self.tell_workers(|| Mail::Moved);
    }

    fn tell_workers(&self, mail: impl Fn() -> Mail) {
        for worker in 0..self.shared.config.workers {
            self.post.send(WorkerId(u8::try_from(worker).unwrap_or(u8::MAX)), Letter::Core(mail()));
        }
    }
}
