//! The texts that a worker has seen: one copy of each that comes again, and nothing but the hash of one that came once.

use super::text::{is_of_its_moment, stirs};
use super::{Key, Statement};
use siphasher::sip128::{Hasher128, SipHasher13};
use std::collections::HashMap;
use std::hash::Hasher;
use std::sync::Arc;

/// Which statements have been seen by a worker; keeps one copy of each text in use.
#[derive(Debug)]
pub struct Library {
    secret: SipHasher13,
    known: HashMap<Key, Option<Arc<Statement>>>,
    bytes: usize,
    private: u64,
}

/// Texts that a library keeps, at most, and their bytes.
const MAX_KNOWN: usize = 20_000;
const MAX_KNOWN_BYTES: usize = 32 << 20;

impl Library {
    /// An empty library. All workers must have the same `secret`, which nobody else may know, and a number of their own.
    pub fn new(secret: [u8; 16], worker: u16) -> Self {
        // Statements that are not shared must not meet those of another worker either.
        let private = u64::from(worker) << 48;
        Self { secret: SipHasher13::new_with_key(&secret), known: HashMap::new(), bytes: 0, private }
    }

    fn key(&self, tail: &[u8]) -> Key {
        let mut hasher = self.secret;
        hasher.write(tail);
        Key(hasher.finish128().as_u128())
    }

    /// The statement with this text and these types. `seen`: it has been asked for before.
    pub fn statement(&mut self, tail: &[u8]) -> (Arc<Statement>, bool) {
        let key = self.key(tail);
        if let Some(Some(statement)) = self.known.get(&key) {
            return (statement.clone(), true);
        }
        if is_of_its_moment(tail) {
            // Its constants are read when it is parsed: another one's are too old.
            self.private += 1;
            let mut hasher = self.secret;
            hasher.write_u128(key.0);
            hasher.write_u64(self.private);
            let key = Key(hasher.finish128().as_u128());
            return (Arc::new(Statement { key, tail: tail.into(), stirs: stirs(tail) }), false);
        }
        let statement = Arc::new(Statement { key, tail: tail.into(), stirs: stirs(tail) });
        // A text that comes only once, because it holds constants, is not kept; only its hash is.
        let seen = self.known.contains_key(&key);
        self.known.insert(key, seen.then(|| statement.clone()));
        if seen {
            self.bytes += tail.len();
        }
        self.tidy();
        (statement, seen)
    }

    /// Forgets what nobody uses when there is too much.
    fn tidy(&mut self) {
        if self.known.len() <= MAX_KNOWN && self.bytes <= MAX_KNOWN_BYTES {
            return;
        }
        self.known.retain(|_, place| place.as_ref().is_some_and(|s| Arc::strong_count(s) > 1));
        if self.known.len() > MAX_KNOWN / 2 || self.bytes > MAX_KNOWN_BYTES / 2 {
            // In use by very many clients: they keep their copies, new ones get copies of their own.
            self.known.clear();
        }
        self.bytes = self.known.values().flatten().map(|s| s.tail.len()).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library() -> Library {
        Library::new([7; 16], 0)
    }

    #[test]
    fn equal_texts_have_equal_keys_in_all_libraries() {
        let (a, seen) = library().statement(b"select 1\0\0\0");
        assert!(!seen);
        let mut other = library();
        let (b, _) = other.statement(b"select 1\0\0\0");
        assert_eq!(a.key, b.key);
        let (c, seen) = other.statement(b"select 1\0\0\0");
        assert!(seen && c.key == a.key);
        assert_ne!(other.statement(b"select 2\0\0\0").0.key, a.key);
        assert_ne!(a.key.under(1), a.key);
        let name = a.key.name();
        assert!(name.starts_with(b"pgusher_") && name[8..].iter().all(u8::is_ascii_hexdigit));
    }

    #[test]
    fn constants_of_the_moment_are_not_shared() {
        let mut library = library();
        let (a, _) = library.statement(b"select 'now'\0\0\0");
        let (b, seen) = library.statement(b"select 'now'\0\0\0");
        assert!(a.key != b.key && !seen);
    }
}
