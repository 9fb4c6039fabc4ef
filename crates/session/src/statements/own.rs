//! What one client believes to have prepared: its names, and its unnamed statement.

use super::Statement;
use std::collections::HashMap;
use std::sync::Arc;

/// The most bytes of a statement's name that count, as in the server (NAMEDATALEN).
pub const MAX_NAME: usize = 63;
/// Statements of one client that have names, at most, and the bytes of their texts. Further ones are not shared.
const MAX_NAMES: usize = 10_000;
const MAX_NAMED_BYTES: usize = 16 << 20;

/// What a client has prepared.
#[derive(Debug, Default)]
pub struct Own {
    named: HashMap<Box<[u8]>, Arc<Statement>>,
    /// Bytes of their texts.
    bytes: usize,
    /// The unnamed statement.
    pub unnamed: Unnamed,
}

/// A client's unnamed statement.
#[derive(Debug, Default, Clone)]
pub enum Unnamed {
    /// There is none.
    #[default]
    None,
    /// Too long to be kept: it is on the server that the client has, and nowhere else.
    There,
    /// This one.
    Statement(Arc<Statement>),
}

/// The part of a name that counts.
#[must_use]
pub fn short(name: &[u8]) -> &[u8] {
    name.get(..MAX_NAME).unwrap_or(name)
}

impl Own {
    /// The statement with this name.
    pub fn get(&self, name: &[u8]) -> Option<&Arc<Statement>> {
        self.named.get(short(name))
    }

    /// The statement with this name, or the unnamed one if the name is empty.
    pub fn find(&self, name: &[u8]) -> Option<&Arc<Statement>> {
        match (&self.unnamed, name) {
            (Unnamed::Statement(statement), b"") => Some(statement),
            (_, b"") => None,
            _ => self.get(name),
        }
    }

    /// Has it any statement with a name?
    pub fn has_names(&self) -> bool {
        !self.named.is_empty()
    }

    /// No further name can be kept.
    pub fn is_full(&self) -> bool {
        self.named.len() >= MAX_NAMES || self.bytes >= MAX_NAMED_BYTES
    }

    /// Sets or removes a name. Returns how to take it back.
    pub fn set(&mut self, name: &[u8], statement: Option<Arc<Statement>>) -> Change {
        let name: Box<[u8]> = short(name).into();
        self.bytes += statement.as_ref().map_or(0, |s| s.tail.len());
        let before = match statement {
            Some(statement) => self.named.insert(name.clone(), statement),
            None => self.named.remove(&name),
        };
        self.bytes -= before.as_ref().map_or(0, |s| s.tail.len());
        Change::Name { name, before }
    }

    /// Replaces the unnamed statement. Returns how to take it back.
    pub fn set_unnamed(&mut self, unnamed: Unnamed) -> Change {
        Change::Unnamed { before: std::mem::replace(&mut self.unnamed, unnamed) }
    }

    /// DEALLOCATE ALL, DISCARD ALL: names are forgotten. Returns how to take it back.
    pub fn forget_names(&mut self) -> Change {
        self.bytes = 0;
        Change::All { before: std::mem::take(&mut self.named).into_iter().collect() }
    }

    /// Takes a change back. To be called for the latest of several first.
    pub fn take_back(&mut self, change: Change) {
        match change {
            Change::Nothing => {}
            Change::Name { name, before } => {
                self.set(&name, before);
            }
            Change::Unnamed { before } => self.unnamed = before,
            Change::All { before } => {
                for (name, statement) in before {
                    self.set(&name, Some(statement));
                }
            }
        }
    }
}

/// How to take back what a client's message changed.
#[derive(Debug, Clone)]
pub enum Change {
    /// Nothing was changed.
    Nothing,
    /// A name was set or removed.
    Name {
        /// Which.
        name: Box<[u8]>,
        /// What it stood for.
        before: Option<Arc<Statement>>,
    },
    /// The unnamed statement was replaced.
    Unnamed {
        /// By this one.
        before: Unnamed,
    },
    /// All names were removed.
    All {
        /// They, and what they stood for.
        before: Vec<(Box<[u8]>, Arc<Statement>)>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::Library;

    #[test]
    fn the_texts_of_one_client_are_bounded() {
        let mut library = Library::new([7; 16], 0);
        let mut own = Own::default();
        let (long, _) = library.statement(&[b'x'; 1 << 20], Some(Default::default()));
        for i in 0..16u8 {
            assert!(!own.is_full());
            own.set(&[i], Some(long.clone()));
        }
        assert!(own.is_full());
        // Replaced, removed, and taken back: each counts once.
        own.set(&[0], Some(long.clone()));
        let Change::Name { name, before } = own.set(&[0], None) else { panic!("a name was removed") };
        assert!(!own.is_full());
        own.set(&name, before);
        assert!(own.is_full());
        let change = own.forget_names();
        assert!(!own.is_full() && own.bytes == 0);
        own.take_back(change);
        assert!(own.is_full());
    }
}
