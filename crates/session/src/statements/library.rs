//! The texts that a worker has seen: one copy of each that comes again, and nothing but the hash of one that came once.

use super::text::is_of_its_moment;
use super::{Key, Statement};
use crate::plan::{Plan, Read, Reader, Reading};
use pgusher_sql::Facts;
use siphasher::sip128::{Hasher128, SipHasher13};
use std::collections::HashMap;
use std::hash::Hasher;
use std::sync::Arc;

/// Which statements have been seen by a worker; keeps one copy of each text in use.
#[derive(Debug)]
pub struct Library {
    secret: SipHasher13,
    reader: Reader,
    known: HashMap<Key, Option<Arc<Statement>>>,
    bytes: usize,
    private: u64,
}

/// What was read in a text, as a [`Statement`] says it.
struct Gist {
    plan: Option<Arc<Plan>>,
    ends: bool,
    advances: bool,
}

/// Texts that a library keeps, at most, and their bytes.
const MAX_KNOWN: usize = 20_000;
const MAX_KNOWN_BYTES: usize = 32 << 20;

impl Library {
    /// An empty library. All workers must have the same `secret`, which nobody else may know, and a number of their own.
    pub fn new(secret: [u8; 16], worker: u16) -> Self {
        // Statements that are not shared must not meet those of another worker either.
        let private = u64::from(worker) << 48;
        let reader = Reader::new(secret);
        Self { secret: SipHasher13::new_with_key(&secret), reader, known: HashMap::new(), bytes: 0, private }
    }

    fn key(&self, tail: &[u8]) -> Key {
        let mut hasher = self.secret;
        hasher.write(tail);
        Key(hasher.finish128().as_u128())
    }

    /// What a text, without its zero byte, does to its session.
    pub fn read(&mut self, text: &[u8], reading: Reading) -> Read {
        self.reader.read(text, reading)
    }

    /// The relations and functions that a text names; `None` if it cannot be read.
    pub fn facts(&mut self, text: &[u8], reading: Reading) -> Option<Arc<Facts>> {
        self.reader.facts(text, reading)
    }

    /// The statement with this text and these types. `seen`: it has been asked for before. `reading`: how the text is to be read;
    /// `None` if that is not known.
    pub fn statement(&mut self, tail: &[u8], reading: Option<Reading>) -> (Arc<Statement>, bool) {
        let key = self.key(tail);
        let usual = reading == Some(Reading::default());
        if let (Some(Some(statement)), true) = (self.known.get(&key), usual) {
            return (statement.clone(), true);
        }
        let Gist { plan, ends, advances } = self.gist(tail, reading);
        let names = plan.as_ref().is_some_and(|plan| !plan.names.is_empty());
        if !usual || names || is_of_its_moment(tail) {
            // Its constants are read when it is parsed: another one's are too old. Or the text means something else elsewhere,
            // as the name in EXECUTE does.
            self.private += 1;
            let mut hasher = self.secret;
            hasher.write_u128(key.0);
            hasher.write_u64(self.private);
            let key = Key(hasher.finish128().as_u128());
            return (Arc::new(Statement { key, tail: tail.into(), plan, ends, advances }), false);
        }
        let statement = Arc::new(Statement { key, tail: tail.into(), plan, ends, advances });
        // A text that comes only once, because it holds constants, is not kept; only its hash is.
        let seen = self.known.contains_key(&key);
        self.known.insert(key, seen.then(|| statement.clone()));
        if seen {
            self.bytes += tail.len();
        }
        self.tidy();
        (statement, seen)
    }

    /// The key of the statement with this text and these types, if it is one that all libraries know by the same key. It does
    /// not count as asked for.
    pub fn find(&self, tail: &[u8], reading: Option<Reading>) -> Option<Key> {
        (reading == Some(Reading::default())).then(|| self.key(tail))
    }

    /// The statement with this text and these types, if a copy is kept. It does not count as asked for.
    pub fn kept(&self, tail: &[u8]) -> Option<&Arc<Statement>> {
        self.known.get(&self.key(tail))?.as_ref()
    }

    fn gist(&mut self, tail: &[u8], reading: Option<Reading>) -> Gist {
        let text = tail.split(|b| *b == 0).next().unwrap_or_default();
        let plain = |ends, advances| Gist { plan: None, ends, advances };
        match reading.map(|reading| self.reader.read(text, reading)) {
            Some(Read::Plain { advances }) => plain(false, advances),
            Some(Read::Begin) => plain(false, false),
            Some(Read::End) => plain(true, false),
            Some(Read::Plan(plan)) => Gist { plan: Some(plan), ends: false, advances: false },
            None => Gist { plan: Some(Arc::new(Plan::unknown_text(text))), ends: false, advances: false },
        }
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
        let (a, seen) = library().statement(b"select 1\0\0\0", Some(Reading::default()));
        assert!(!seen);
        let mut other = library();
        let (b, _) = other.statement(b"select 1\0\0\0", Some(Reading::default()));
        assert_eq!(a.key, b.key);
        let (c, seen) = other.statement(b"select 1\0\0\0", Some(Reading::default()));
        assert!(seen && c.key == a.key);
        assert_ne!(other.statement(b"select 2\0\0\0", Some(Reading::default())).0.key, a.key);
        assert_ne!(a.key.under(1), a.key);
        let name = a.key.name();
        assert!(name.starts_with(b"pgusher_") && name[8..].iter().all(u8::is_ascii_hexdigit));
    }

    #[test]
    fn texts_that_name_statements_are_not_shared() {
        let mut library = library();
        for text in ["execute a\0\0\0", "prepare a as select 1\0\0\0"] {
            let (a, _) = library.statement(text.as_bytes(), Some(Reading::default()));
            let (b, seen) = library.statement(text.as_bytes(), Some(Reading::default()));
            assert!(a.key != b.key && !seen);
            assert_ne!(library.find(text.as_bytes(), Some(Reading::default())), Some(a.key));
        }
        let (a, _) = library.statement(b"select 1\0\0\0", Some(Reading::default()));
        assert_eq!(library.find(b"select 1\0\0\0", Some(Reading::default())), Some(a.key));
        assert_eq!(library.find(b"select 1\0\0\0", None), None);
    }

    #[test]
    fn constants_of_the_moment_are_not_shared() {
        let mut library = library();
        let (a, _) = library.statement(b"select 'now'\0\0\0", Some(Reading::default()));
        let (b, seen) = library.statement(b"select 'now'\0\0\0", Some(Reading::default()));
        assert!(a.key != b.key && !seen);
    }
}
