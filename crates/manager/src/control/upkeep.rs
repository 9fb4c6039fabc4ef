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
/// Remarks that are heard in a row.
const MAX_HEARD: usize = 1024;
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
    nameless: bool,
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
            nameless: false,
        }
    }

    /// Works until nobody can tell it anything any more.
    pub(super) fn run(mut self, remarks: &Receiver<Remark>) {
        let mut looked: Option<Instant> = None;
        loop {
            // However much there is to hear.
            if looked.is_none_or(|at| at.elapsed() >= TURN) {
                self.ahead.look(&self.shared, &self.post);
                looked = Some(Instant::now());
            }
            match remarks.recv_timeout(TURN) {
                Ok(remark) => self.hear(remark),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            for remark in remarks.try_iter().take(MAX_HEARD) {
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
        if choice.candidates.is_empty() {
            // A name server that is silent says nothing about the server.
            if !self.nameless {
                tracing::warn!(reasons = ?choice.reasons, "the server stays at {current}");
            }
            self.nameless = true;
            return;
        }
        self.nameless = false;
        upstream.set_alternatives(choice.candidates.len() > 1);
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

#[cfg(test)]
mod tests {
    use super::super::chooser::LookUp;
    use super::*;
    use crate::config::{Config, Overrides};
    use crate::shared::Upstream;
    use pgusher_auth::{MockSecret, UserList};
    use std::io;
    use std::net::SocketAddr;

    const OLD: LookUp = |_, port| Ok(vec![SocketAddr::from(([10, 0, 0, 1], port))]);
    const NEW: LookUp = |_, port| Ok(vec![SocketAddr::from(([10, 0, 0, 2], port))]);
    const NONE: LookUp = |_, _| Err(io::ErrorKind::NotFound.into());

    fn upkeep(toml: &str) -> Upkeep {
        let toml = format!("server = 'host=db port=1 user=x'\n{toml}");
        let overrides = Overrides { workers: Some(1), ..Overrides::default() };
        let config = Config::from_toml(&toml, &overrides).unwrap();
        let chooser = Chooser::new(&config.server, Duration::from_secs(1)).with_names(OLD);
        let address = chooser.choose(None, false).address.unwrap();
        let upstream = Upstream::new(address, config.server.conninfo.target_session_attrs);
        let shared = Shared::new(config, upstream, UserList::default(), MockSecret::new([0; 32]));
        let mut upkeep = Upkeep::new(Arc::new(shared), Arc::new(Post::new(Vec::new())));
        upkeep.chooser = chooser;
        upkeep
    }

    /// Lets time pass, with names that mean this, and says where the server is then.
    fn after(upkeep: &mut Upkeep, time: Duration, look_up: LookUp) -> (String, u32) {
        let chooser = Chooser::new(&upkeep.shared.config.server, Duration::from_secs(1));
        upkeep.chooser = chooser.with_names(look_up);
        upkeep.checked = Instant::now().checked_sub(time).unwrap();
        upkeep.check_address();
        let upstream = &upkeep.shared.upstream;
        (upstream.address().to_string(), upstream.moves())
    }

    #[test]
    fn names_are_looked_up_again_when_they_are_old() {
        let mut upkeep = upkeep("dns_max_age = 30");
        let (soon, late) = (Duration::from_secs(29), Duration::from_secs(31));
        assert_eq!(after(&mut upkeep, soon, NEW), ("10.0.0.1:1".into(), 0));
        assert_eq!(after(&mut upkeep, late, OLD), ("10.0.0.1:1".into(), 0));
        assert_eq!(after(&mut upkeep, late, NONE), ("10.0.0.1:1".into(), 0));
        assert!(upkeep.nameless && !upkeep.down);
        assert_eq!(after(&mut upkeep, late, NEW), ("10.0.0.2:1".into(), 1));
        assert!(!upkeep.nameless);
    }

    #[test]
    fn or_when_a_connection_fails() {
        let mut upkeep = upkeep("dns_max_age = 0");
        let late = Duration::from_secs(1000);
        assert_eq!(after(&mut upkeep, late, NEW), ("10.0.0.1:1".into(), 0));
        let address = upkeep.shared.upstream.address();
        // Not for what is known already to be the wrong address.
        let elsewhere = ServerAddress::Tcp { address: SocketAddr::from(([9, 9, 9, 9], 1)), name: "db".into() };
        upkeep.hear(Remark::Unreachable(Arc::new(elsewhere)));
        assert_eq!(after(&mut upkeep, late, NEW), ("10.0.0.1:1".into(), 0));
        upkeep.hear(Remark::Unreachable(address));
        assert_eq!(after(&mut upkeep, Duration::ZERO, NEW), ("10.0.0.1:1".into(), 0));
        assert_eq!(after(&mut upkeep, late, NEW), ("10.0.0.2:1".into(), 1));
        assert!(!upkeep.doubted);
    }
}
