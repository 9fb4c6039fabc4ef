//! What is known of one database: whether its catalogs have changed, and what its functions and definitions do to sessions.

use crate::definitions::Definitions;
use pgusher_pool::Micros;
use pgusher_session::routine::Routine;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What is known of a function is believed for so long: it may be replaced by somebody who does not connect through here.
const BELIEVED: Duration = Duration::from_secs(30);
/// Functions that are remembered, at most.
const MAX_ROUTINES: usize = 10_000;

/// What is known of one database.
#[derive(Debug, Default)]
pub(crate) struct Database {
    /// Counts the changes of its catalogs that were seen.
    version: AtomicU32,
    /// The time in microseconds, as the workers have told it last; exact to a second or two.
    now: AtomicU64,
    routines: Mutex<HashMap<Box<str>, Known>>,
    /// What its definitions do behind plain statements.
    pub(crate) definitions: Definitions,
}

#[derive(Debug)]
struct Known {
    routine: Arc<Routine>,
    version: u32,
    since: Micros,
}

impl Database {
    /// Changes with each change of the catalogs that is known.
    #[inline]
    pub(crate) fn version(&self) -> u32 {
        self.version.load(Ordering::Relaxed)
    }

    /// The catalogs have changed.
    pub(crate) fn changed(&self) {
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    /// A worker tells the time, about once a second. Clocks of workers may differ a little: the latest counts.
    pub(crate) fn tick(&self, now: Micros) {
        self.now.fetch_max(now.0, Ordering::Relaxed);
    }

    fn now(&self) -> Micros {
        Micros(self.now.load(Ordering::Relaxed))
    }

    /// What a function of this name does to its session, if it is known.
    pub(crate) fn routine(&self, name: &str) -> Option<Arc<Routine>> {
        let version = self.version();
        let mut routines = self.routines.lock().unwrap_or_else(PoisonError::into_inner);
        let known = routines.get(name)?;
        if known.version != version || self.now().since(known.since) > BELIEVED {
            routines.remove(name);
            return None;
        }
        Some(known.routine.clone())
    }

    /// What was found out about a function; `version` is that of the catalogs when it was asked.
    pub(crate) fn learn(&self, name: &str, routine: Routine, version: u32) {
        let mut routines = self.routines.lock().unwrap_or_else(PoisonError::into_inner);
        if routines.len() >= MAX_ROUTINES {
            routines.clear();
        }
        routines.insert(name.into(), Known { routine: Arc::new(routine), version, since: self.now() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_believed_for_half_a_minute() {
        let database = Database::default();
        let start = Duration::from_secs(3_600);
        database.tick(Micros(0).plus(start));
        database.learn("f", Routine::default(), database.version());
        database.tick(Micros(0).plus(start + BELIEVED));
        // The clock of another worker is behind.
        database.tick(Micros(0));
        assert!(database.routine("f").is_some());
        database.tick(Micros(1).plus(start + BELIEVED));
        assert!(database.routine("f").is_none());
    }

    #[test]
    fn what_is_known_ends_with_a_change_of_the_catalogs() {
        let database = Database::default();
        assert!(database.routine("f").is_none());
        database.learn("f", Routine::default(), database.version());
        assert!(database.routine("f").is_some());
        database.changed();
        assert!(database.routine("f").is_none());
        // What was asked before the change says nothing of the time after it.
        database.learn("f", Routine::default(), database.version().wrapping_sub(1));
        assert!(database.routine("f").is_none());
    }
}
