//! Physical connections ahead of need: each pool that keeps some open gets them back after they were lost, so that it is
//! pgusher that waits for a new backend and not a client; also for the first one after a restart of PostgreSQL, which has to
//! read everything anew.
//!
//! Here it is only decided when a worker tries; how many there are and who gets them is the pool's business.

use crate::core::Mail;
use crate::shared::{PoolEntry, Shared, UserKey};
use crate::worker::{Letter, Post};
use pgusher_pool::WorkerId;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long it waits after the first attempt that brought nothing. It doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// And no longer than this.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// The attempts of the pools that have fewer connections than they should.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    lacking: HashMap<UserKey, Attempts>,
    next_worker: usize,
}

#[derive(Debug)]
struct Attempts {
    next: Instant,
    pause: Duration,
}

impl Ahead {
    /// Looks at all pools once. To be called a few times a second.
    pub(super) fn look(&mut self, shared: &Shared, post: &Post) {
        if shared.draining.load(Ordering::Relaxed) {
            return;
        }
        let config = &shared.config;
        if let Some(database) = &config.server.database {
            let user = config.server.user();
            if config.kept_open(database, user) > 0 {
                // The pool of the connection string exists without a client.
                shared.pool(database, user);
            }
        }
        let now = Instant::now();
        let pools = shared.pools();
        self.lacking.retain(|(user, database), _| pools.iter().any(|p| p.user == *user && p.database == *database));
        for pool in pools {
            let kept_open = config.kept_open(&pool.database, &pool.user);
            // A pool that has never had a connection may be for a database that does not exist.
            let known = pool.welcome.load().is_some() || config.is_own(&pool.database, &pool.user);
            if kept_open > 0 && known {
                self.look_at(&pool, kept_open, now, config.workers, post);
            }
        }
    }

    fn look_at(&mut self, pool: &Arc<PoolEntry>, kept_open: usize, now: Instant, workers: usize, post: &Post) {
        let key = (pool.user.clone(), pool.database.clone());
        let counts = pool.seats.counts();
        if counts.total >= kept_open {
            // Only those that have been opened show that the server is well.
            if counts.opening == 0 {
                self.lacking.remove(&key);
            }
            return;
        }
        if pool.refused.load(Ordering::Relaxed) {
            return;
        }
        let attempts = self.lacking.entry(key).or_insert(Attempts { next: now, pause: FIRST_PAUSE });
        if now < attempts.next {
            return;
        }
        attempts.next = now + attempts.pause;
        attempts.pause = (attempts.pause * 2).min(LONGEST_PAUSE);
        for _ in counts.total..kept_open {
            let worker = WorkerId(u8::try_from(self.next_worker % workers).unwrap_or(0));
            self.next_worker = self.next_worker.wrapping_add(1);
            post.send(worker, Letter::Core(Mail::Ensure { pool: pool.clone(), kept_open }));
        }
    }
}
