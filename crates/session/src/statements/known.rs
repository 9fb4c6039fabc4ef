//! What is known of the statements of a pool without asking a server: that they can be parsed, and how the server describes them.
//!
//! It holds for one state of the catalogs. What has not been used for long makes room.

use super::Key;
use std::collections::HashMap;
use std::sync::Arc;

/// Statements that have been used lately, at most. As many older ones are kept.
const MAX_STATEMENTS: usize = 4_000;
/// Bytes of their descriptions.
const MAX_BYTES: usize = 1 << 20;
/// A longer description is not kept.
const MAX_DESCRIPTION: usize = 8 << 10;
/// A description is believed for so many seconds: the catalogs may change where nobody sees it.
const MAX_AGE: u64 = 30;

/// Statements that the server has parsed, for one role of one database.
#[derive(Debug, Default)]
pub struct Known {
    version: u32,
    young: HashMap<Key, Option<Description>>,
    old: HashMap<Key, Option<Description>>,
    /// Of the descriptions in `young`.
    bytes: usize,
}

/// What a server says to Describe of a statement.
#[derive(Debug, Clone)]
struct Description {
    messages: Arc<[u8]>,
    /// Seconds.
    learned: u64,
}

impl Known {
    /// The server has parsed a statement. `version` is that of the catalogs at that time, `current` the present one.
    pub fn parsed(&mut self, key: Key, version: u32, current: u32) {
        if version == current {
            self.turn_to(current);
            if self.find(key).is_none() {
                self.insert(key, None);
            }
        }
    }

    /// The server has described a statement, with these messages. `now` is in seconds.
    pub fn described(&mut self, key: Key, messages: &[u8], version: u32, current: u32, now: u64) {
        if version != current || messages.len() > MAX_DESCRIPTION {
            return;
        }
        self.turn_to(current);
        if self.find(key).is_some() {
            self.insert(key, Some(Description { messages: messages.into(), learned: now }));
        }
    }

    /// Can the statement be parsed, in the present state of the catalogs?
    pub fn is_parsed(&mut self, key: Key, current: u32) -> bool {
        self.turn_to(current);
        self.find(key).is_some()
    }

    /// How the server describes a statement: ParameterDescription, and RowDescription or NoData.
    pub fn description(&mut self, key: Key, current: u32, now: u64) -> Option<Arc<[u8]>> {
        self.turn_to(current);
        let description = self.find(key)?.as_ref()?;
        (now < description.learned + MAX_AGE).then(|| description.messages.clone())
    }

    fn turn_to(&mut self, version: u32) {
        if self.version != version {
            *self = Self { version, ..Self::default() };
        }
    }

    fn find(&mut self, key: Key) -> Option<&Option<Description>> {
        if let Some(found) = self.old.remove(&key) {
            // What is used stays.
            self.insert(key, found);
        }
        self.young.get(&key)
    }

    fn insert(&mut self, key: Key, description: Option<Description>) {
        let size = |d: &Option<Description>| d.as_ref().map_or(0, |d| d.messages.len());
        if self.young.len() >= MAX_STATEMENTS || self.bytes + size(&description) > MAX_BYTES {
            self.old = std::mem::take(&mut self.young);
            self.bytes = 0;
        }
        self.old.remove(&key);
        self.bytes += size(&description);
        let before = self.young.insert(key, description);
        self.bytes -= before.map_or(0, |before| size(&before));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_for_one_state_of_the_catalogs_and_for_a_while() {
        let mut known = Known::default();
        let (a, b) = (Key(1), Key(2));
        known.parsed(a, 1, 1);
        known.parsed(b, 0, 1);
        assert!(known.is_parsed(a, 1) && !known.is_parsed(b, 1));
        known.described(b, b"none", 1, 1, 0);
        known.described(a, b"late", 0, 1, 0);
        assert!(known.description(a, 1, 0).is_none() && known.description(b, 1, 0).is_none());
        known.described(a, b"tT", 1, 1, 5);
        assert_eq!(known.description(a, 1, 4 + MAX_AGE).as_deref(), Some(&b"tT"[..]));
        assert!(known.description(a, 1, 5 + MAX_AGE).is_none() && known.is_parsed(a, 1));
        assert!(!known.is_parsed(a, 2) && known.description(a, 2, 5).is_none());
    }

    #[test]
    fn it_is_bounded_and_keeps_what_is_used() {
        let mut known = Known::default();
        let long = vec![b't'; MAX_DESCRIPTION];
        for i in 0..20_000_u128 {
            known.parsed(Key(i), 0, 0);
            known.described(Key(i), &long, 0, 0, 0);
            assert!(known.is_parsed(Key(0), 0), "{i}");
            assert!(known.bytes <= MAX_BYTES && known.young.len() <= MAX_STATEMENTS);
        }
        let sum = |map: &HashMap<Key, Option<Description>>| map.values().flatten().map(|d| d.messages.len()).sum();
        let (young, old): (usize, usize) = (sum(&known.young), sum(&known.old));
        assert_eq!(young, known.bytes);
        assert!(old <= MAX_BYTES);
        known.described(Key(0), &[b't'; MAX_DESCRIPTION + 1], 0, 0, 9);
        assert!(known.description(Key(0), 0, MAX_AGE).is_none());
    }
}
