//! What is known of a database's definitions, how long it is believed, and whose turn it is to ask.
//!
//! Plain statements are judged by it (see [`pgusher_session::knowledge`]). It is asked again before it is too old, because others
//! may change definitions past pgusher; and a change that was seen ends it at once. Between a change and the next answer nothing is
//! known, so that what has been done meanwhile is looked at when the answer is there.

use crate::database::Database;
use arc_swap::ArcSwapOption;
use pgusher_pool::Micros;
use pgusher_session::knowledge::Knowledge;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// A physical connection that becomes free asks again after this time.
pub(crate) const REFRESHED: Duration = Duration::from_secs(10);
/// An answer is believed for so long.
const BELIEVED: Duration = Duration::from_secs(15);
/// After a question, the next one waits for so long, unless a client waits for a physical connection.
const CALM: Duration = Duration::from_secs(1);

/// An answer.
#[derive(Debug)]
pub struct Taken {
    /// What it says.
    pub knowledge: Knowledge,
    /// Tells it from all other answers; never 0.
    pub serial: u64,
    /// The count of changes when it was asked.
    changes: u32,
}

/// What is known of the definitions of one database.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    /// Counts the changes that were seen.
    changes: AtomicU32,
    /// The count of changes at which nothing in the database changes sessions behind a statement, and one more; 0: none.
    innocent: AtomicU64,
    believed_until: AtomicU64,
    taken: ArcSwapOption<Taken>,
    asking: AtomicBool,
    begun: AtomicU64,
    failed: AtomicBool,
}

impl Definitions {
    #[inline]
    pub(crate) fn changes(&self) -> u32 {
        self.changes.load(Ordering::Acquire)
    }

    /// Somebody has changed a definition.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Is it certain that nothing in the database changes sessions behind a plain statement?
    #[inline]
    pub(crate) fn is_innocent(&self, changes: u32, now: Micros) -> bool {
        self.innocent.load(Ordering::Acquire) == u64::from(changes) + 1
            && now.0 < self.believed_until.load(Ordering::Relaxed)
    }

    /// What is known and believed.
    pub(crate) fn current(&self, now: Micros) -> Option<Arc<Taken>> {
        self.unchanged().filter(|_| now.0 < self.believed_until.load(Ordering::Relaxed))
    }

    /// What is known and believed, asked when so many changes had been seen, or later.
    pub(crate) fn since(&self, changes: u32, now: Micros) -> Option<Arc<Taken>> {
        let later = |taken: &Arc<Taken>| taken.changes.wrapping_sub(changes) as i32 >= 0;
        self.taken.load_full().filter(|taken| later(taken) && now.0 < self.believed_until.load(Ordering::Relaxed))
    }

    /// What was known at the last change that was seen, or later.
    pub(crate) fn unchanged(&self) -> Option<Arc<Taken>> {
        self.taken.load_full().filter(|taken| taken.changes == self.changes())
    }

    /// The last answer, however old.
    pub(crate) fn last(&self) -> Option<Arc<Taken>> {
        self.taken.load_full()
    }

    /// Was the question asked only just now?
    pub(crate) fn is_calm(&self, now: Micros) -> bool {
        now < Micros(self.begun.load(Ordering::Relaxed)).plus(CALM)
    }

    /// Has the last question failed?
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}

/// The right to ask, which only one at a time has. If it is given up without an answer, the question has failed.
#[derive(Debug)]
pub struct Turn {
    database: Arc<Database>,
    changes: u32,
    begun: Micros,
    answered: bool,
}

impl Turn {
    /// `None` if somebody else is asking.
    pub(crate) fn take(database: &Arc<Database>, now: Micros) -> Option<Self> {
        let definitions = &database.definitions;
        if definitions.asking.swap(true, Ordering::AcqRel) {
            return None;
        }
        definitions.begun.store(now.0, Ordering::Relaxed);
        Some(Self { database: database.clone(), changes: definitions.changes(), begun: now, answered: false })
    }

    /// The answer.
    pub(crate) fn answer(mut self, knowledge: Knowledge) {
        self.answered = true;
        let definitions = &self.database.definitions;
        let innocent = if knowledge.is_innocent() { u64::from(self.changes) + 1 } else { 0 };
        static SERIAL: AtomicU64 = AtomicU64::new(1);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        definitions.taken.store(Some(Arc::new(Taken { knowledge, serial, changes: self.changes })));
        definitions.believed_until.store(self.begun.plus(BELIEVED).0, Ordering::Relaxed);
        definitions.innocent.store(innocent, Ordering::Release);
        definitions.failed.store(false, Ordering::Relaxed);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let definitions = &self.database.definitions;
        if !self.answered {
            definitions.failed.store(true, Ordering::Relaxed);
        }
        definitions.asking.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn one_asks_at_a_time_and_a_change_ends_what_is_known() {
        let database = Arc::new(Database::default());
        let definitions = &database.definitions;
        let turn = Turn::take(&database, Micros(SECOND)).expect("nobody asks");
        assert!(Turn::take(&database, Micros(SECOND)).is_none());
        assert!(definitions.current(Micros(SECOND)).is_none() && !definitions.is_innocent(0, Micros(SECOND)));
        turn.answer(Knowledge::default());
        assert!(definitions.is_innocent(0, Micros(SECOND)) && !definitions.has_failed());
        assert!(!definitions.is_innocent(0, Micros(17 * SECOND)), "it is old");
        definitions.changed();
        assert!(!definitions.is_innocent(definitions.changes(), Micros(SECOND)));
        assert!(definitions.unchanged().is_none() && definitions.last().is_some());
        // A change while the question was under way.
        let turn = Turn::take(&database, Micros(2 * SECOND)).expect("nobody asks");
        definitions.changed();
        turn.answer(Knowledge::default());
        assert!(definitions.current(Micros(2 * SECOND)).is_none());
        // It is an answer for what was over before it was asked.
        let before = definitions.changes().wrapping_sub(1);
        assert!(definitions.since(before, Micros(2 * SECOND)).is_some());
        assert!(definitions.since(before, Micros(18 * SECOND)).is_none(), "it is old");
        assert!(definitions.since(definitions.changes(), Micros(2 * SECOND)).is_none());
        drop(Turn::take(&database, Micros(3 * SECOND)));
        assert!(definitions.has_failed() && definitions.is_calm(Micros(3 * SECOND)));
        assert!(!definitions.is_calm(Micros(4 * SECOND)));
    }
}
