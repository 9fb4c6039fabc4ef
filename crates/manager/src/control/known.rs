//! What was learned of users lately: written here, read by workers without a lock.
//!
//! An answer is used for [`TRUSTED_FOR`]. Those that logins need are asked anew before they are too old, so that a client of a
//! busy user never waits for that; a proof that fails makes an answer forgotten at once, because the password may have been
//! changed.

use crate::auth::{Facts, Known, TRUSTED_FOR};
use crate::shared::{Shared, UserKey};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An answer of this age is asked anew if it has been used.
const RENEWED_AFTER: Duration = Duration::from_secs(6);
/// An answer that is younger is not doubted: who guesses passwords must not be able to keep us asking.
const BEYOND_DOUBT: Duration = Duration::from_secs(1);
/// Answers that are forgotten in a second because of doubts, at most.
const DOUBTS_PER_SECOND: u32 = 20;
/// Users whose facts are kept, at most. The oldest makes room.
const MAX_KNOWN: usize = 4096;

/// Keeps an answer of the server that was found after so many moves.
pub(super) fn learn(shared: &Shared, user: &str, database: &str, facts: Facts, moves: u32) {
    let key: UserKey = (user.into(), database.into());
    let known = Arc::new(Known::new(facts, moves));
    shared.known.rcu(|all| {
        let mut all = HashMap::clone(all);
        if all.len() >= MAX_KNOWN && !all.contains_key(&key) {
            let oldest = all.iter().max_by_key(|(_, known)| known.age()).map(|(key, _)| key.clone());
            if let Some(oldest) = oldest {
                all.remove(&oldest);
            }
        }
        all.insert(key.clone(), known.clone());
        all
    });
}

/// Forgets what is too old.
pub(super) fn forget_old(shared: &Shared) {
    let old = |known: &Arc<Known>| known.age() > TRUSTED_FOR;
    if shared.known.load().values().any(old) {
        shared.known.rcu(|all| {
            let mut all = HashMap::clone(all);
            all.retain(|_, known| !old(known));
            all
        });
    }
}

/// A user that logins need and of whom it is time to ask again. Each is named once.
pub(super) fn to_renew(shared: &Shared) -> Option<UserKey> {
    let known = shared.known.load();
    known.iter().find(|(_, known)| known.age() > RENEWED_AFTER && known.take_used()).map(|(key, _)| key.clone())
}

/// Limits how often a failed proof makes an answer forgotten.
#[derive(Debug)]
pub(super) struct Doubts {
    second: Instant,
    count: u32,
}

impl Default for Doubts {
    fn default() -> Self {
        Self { second: Instant::now(), count: 0 }
    }
}

impl Doubts {
    /// A proof of this user has failed. What is known of it is forgotten, unless it is new or there were too many doubts.
    pub(super) fn about(&mut self, shared: &Shared, user: &str, database: &str) {
        if self.second.elapsed() >= Duration::from_secs(1) {
            *self = Self::default();
        }
        let key = (Box::from(user), Box::from(database));
        let old = shared.known.load().get(&key).is_some_and(|known| known.age() >= BEYOND_DOUBT);
        if old && self.count < DOUBTS_PER_SECOND {
            self.count += 1;
            shared.forget(user, database);
        }
    }
}
