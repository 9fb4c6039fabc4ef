//! The channels of one session: those that it listens to, and what its transaction is about to change.
//!
//! LISTEN and UNLISTEN count at COMMIT, in the order in which they were given, and are undone by ROLLBACK and by ROLLBACK TO
//! (src/backend/commands/async.c: `pendingActions`, one list for each subtransaction).

use crate::plan::Action;
use pgusher_wire::TxStatus;
use std::collections::BTreeSet;

/// Channels, and what is to become of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listening {
    channels: BTreeSet<Box<str>>,
    pending: Vec<Pending>,
    /// Savepoints, each with what was pending when it was made.
    saves: Vec<(Box<str>, usize)>,
    failed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pending {
    Listen(Box<str>),
    Unlisten(Box<str>),
    UnlistenAll,
}

impl Listening {
    /// A statement with this action has completed.
    pub fn act(&mut self, action: &Action) {
        let pending = match action {
            Action::Listen(channel) => Pending::Listen(channel.clone()),
            Action::Unlisten(Some(channel)) => Pending::Unlisten(channel.clone()),
            Action::Unlisten(None) | Action::DiscardAll => Pending::UnlistenAll,
            Action::Savepoint(name) => {
                // Going back to one that was made before the first change is going back to nothing pending.
                if !self.pending.is_empty() {
                    self.saves.push((name.clone(), self.pending.len()));
                }
                return;
            }
            Action::Release(name) => {
                if let Some(at) = self.saves.iter().rposition(|(save, _)| save == name) {
                    self.saves.truncate(at);
                }
                return;
            }
            Action::RollbackTo(name) => {
                self.failed = false;
                match self.saves.iter().rposition(|(save, _)| save == name) {
                    Some(at) => {
                        self.pending.truncate(self.saves.get(at).map_or(0, |(_, len)| *len));
                        self.saves.truncate(at + 1);
                    }
                    None => {
                        self.pending.clear();
                        self.saves.clear();
                    }
                }
                return;
            }
            _ => return,
        };
        if self.pending.last() != Some(&pending) {
            self.pending.push(pending);
        }
    }

    /// The transaction has been committed.
    pub fn commit(&mut self) {
        for pending in self.pending.drain(..) {
            match pending {
                Pending::Listen(channel) => {
                    self.channels.insert(channel);
                }
                Pending::Unlisten(channel) => {
                    self.channels.remove(&channel);
                }
                Pending::UnlistenAll => self.channels.clear(),
            }
        }
        self.saves.clear();
        self.failed = false;
    }

    /// The transaction has been undone.
    pub fn rollback(&mut self) {
        self.pending.clear();
        self.saves.clear();
        self.failed = false;
    }

    /// A statement has failed.
    pub fn fail(&mut self) {
        self.failed = true;
    }

    /// The server is ready for the next query.
    pub fn ready(&mut self, status: TxStatus) {
        if status == TxStatus::Idle {
            if self.failed { self.rollback() } else { self.commit() }
        }
    }

    /// Does the session listen to this channel?
    #[must_use]
    pub fn hears(&self, channel: &str) -> bool {
        self.channels.contains(channel)
    }

    /// Only these are left of what it listens to.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.channels.retain(|channel| keep(channel));
    }

    /// The channels that it listens to.
    #[must_use]
    pub fn channels(&self) -> &BTreeSet<Box<str>> {
        &self.channels
    }

    /// Is its transaction about to change them?
    #[must_use]
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(name: &str) -> Action {
        Action::Listen(name.into())
    }

    fn names(listening: &Listening) -> Vec<&str> {
        listening.channels().iter().map(AsRef::as_ref).collect()
    }

    #[test]
    fn count_at_commit_in_their_order() {
        let mut l = Listening::default();
        l.act(&listen("a"));
        assert!(!l.hears("a") && l.is_pending());
        l.ready(TxStatus::Transaction);
        assert!(!l.hears("a"));
        l.act(&Action::Unlisten(None));
        l.act(&listen("b"));
        l.act(&listen("b"));
        l.act(&listen("c"));
        l.act(&Action::Unlisten(Some("c".into())));
        l.ready(TxStatus::Idle);
        assert_eq!(names(&l), ["b"]);
        l.act(&Action::DiscardAll);
        l.commit();
        assert_eq!(l, Listening::default());
    }

    #[test]
    fn are_undone() {
        let mut l = Listening::default();
        l.act(&listen("a"));
        l.fail();
        l.ready(TxStatus::Idle);
        assert!(names(&l).is_empty() && !l.is_pending());
        l.act(&listen("kept"));
        l.commit();
        l.act(&Action::Unlisten(Some("kept".into())));
        l.rollback();
        assert_eq!(names(&l), ["kept"]);
    }

    #[test]
    fn savepoints() {
        let mut l = Listening::default();
        l.act(&Action::Savepoint("s".into()));
        l.act(&listen("a"));
        l.act(&Action::Savepoint("s".into()));
        l.act(&listen("b"));
        l.fail();
        l.act(&Action::RollbackTo("s".into()));
        l.act(&listen("c"));
        l.act(&Action::RollbackTo("s".into()));
        l.act(&listen("d"));
        let mut committed = l.clone();
        committed.ready(TxStatus::Idle);
        assert_eq!(names(&committed), ["a", "d"]);
        // The outer one of that name was made before the first change.
        l.act(&Action::Release("s".into()));
        l.act(&Action::RollbackTo("s".into()));
        l.commit();
        assert!(names(&l).is_empty());
    }
}
