//! What a pool has learned of how its clients use `currval` and `lastval`.
//!
//! It only ever learns more. What it has learned decides what is done when a client may get a number from a sequence; see
//! `core/sequences.rs`.

use crate::config::SequenceMode;
use std::sync::atomic::{AtomicU8, Ordering};

/// How the clients of a pool use what a backend remembers of sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SequenceUse {
    /// Not at all, as far as has been seen.
    Unseen,
    /// They read in the transaction that has got the number.
    Within,
    /// They read in later transactions as well.
    Across,
}

/// What a pool has learned; shared by all workers.
#[derive(Debug)]
pub struct Lesson(AtomicU8);

impl Lesson {
    /// What is known at the start.
    pub fn new(mode: SequenceMode) -> Self {
        let known = match mode {
            SequenceMode::Learn => SequenceUse::Unseen,
            SequenceMode::Pin => SequenceUse::Across,
        };
        Self(AtomicU8::new(known as u8))
    }

    /// What is known.
    #[inline]
    pub fn get(&self) -> SequenceUse {
        match self.0.load(Ordering::Relaxed) {
            0 => SequenceUse::Unseen,
            1 => SequenceUse::Within,
            _ => SequenceUse::Across,
        }
    }

    /// This was seen. `true`: it was not known before.
    pub fn learn(&self, seen: SequenceUse) -> bool {
        self.0.fetch_max(seen as u8, Ordering::Relaxed) < seen as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_learns_and_does_not_forget() {
        let lesson = Lesson::new(SequenceMode::Learn);
        assert_eq!(lesson.get(), SequenceUse::Unseen);
        assert!(lesson.learn(SequenceUse::Across));
        assert!(!lesson.learn(SequenceUse::Within) && !lesson.learn(SequenceUse::Across));
        assert_eq!(lesson.get(), SequenceUse::Across);
        assert_eq!(Lesson::new(SequenceMode::Pin).get(), SequenceUse::Across);
    }
}
