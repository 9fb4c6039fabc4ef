//! Prepared statements of clients, and of the servers that carry them out.
//!
//! A client's statement is a text with parameter types. A server has it under a name that is made of both and of the settings
//! under which they were parsed, so that all clients that prepare the same share it. [`Own`] is what a client believes to have
//! prepared, [`Shelf`] is what a server has. When a client's message names a statement that its server of the moment does not
//! have, it is put there first.
//!
//! A Parse is booked when it is sent, and may fail, or be discarded because of an error in front of it. Each leaves a [`Note`],
//! in the order of the [ledger's](crate::ledger) marks, that says how to take it back.

use std::collections::{HashMap, VecDeque};
use std::hash::Hasher;
use std::sync::Arc;

use siphasher::sip128::{Hasher128, SipHasher13};

/// The most bytes of a statement's name that count, as in the server (NAMEDATALEN).
pub const MAX_NAME: usize = 63;
/// Statements of one client that have names, at most, and the bytes of their texts. Further ones are not shared.
const MAX_NAMES: usize = 10_000;
const MAX_NAMED_BYTES: usize = 16 << 20;

/// Names a statement on all servers. Two different ones do not collide: the hash has a secret key and 128 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(u128);

impl Key {
    /// The same statement under other settings is another one: names are looked up by `search_path`, constants are read by
    /// `DateStyle`. `settings` is [`Settings::planning`](crate::Settings::planning).
    #[must_use]
    pub fn under(self, settings: u64) -> Self {
        Self(self.0 ^ u128::from(settings))
    }

    /// Its name on a server.
    pub fn name(self) -> [u8; 40] {
        let mut name = *b"pgusher_00000000000000000000000000000000";
        for (place, i) in name.iter_mut().skip(8).zip((0..32).rev()) {
            let digit = (self.0 >> (4 * i)) as u8 & 15;
            *place = if digit < 10 { b'0' + digit } else { b'a' + digit - 10 };
        }
        name
    }
}

/// A statement as a client prepared it.
#[derive(Debug, PartialEq, Eq)]
pub struct Statement {
    /// Without the settings.
    pub key: Key,
    /// What follows the name in a Parse message: the text, its zero byte, and the parameter types.
    pub tail: Box<[u8]>,
    /// See [`stirs`].
    pub stirs: bool,
}

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

/// May the text, up to a zero byte, change what names or constants in later statements stand for? A table that is made of a
/// query's rows is told by no command tag, and a setting's comes too late for what follows in a pipeline.
pub fn stirs(text: &[u8]) -> bool {
    let text = text.split(|b| *b == 0).next().unwrap_or_default().trim_ascii_start();
    let begins = |word: &[u8]| text.get(..word.len()).is_some_and(|first| first.eq_ignore_ascii_case(word));
    let has = |word: &[u8]| text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word));
    if begins(b"select") || begins(b"with") {
        return has(b"into") || has(b"set_config");
    }
    const HARMLESS: [&[u8]; 16] = [
        b"insert",
        b"update",
        b"delete",
        b"merge",
        b"begin",
        b"start",
        b"commit",
        b"end",
        b"savepoint",
        b"release",
        b"copy",
        b"fetch",
        b"values",
        b"show",
        b"declare",
        b"truncate",
    ];
    let harmless = text.is_empty() || HARMLESS.iter().any(|word| begins(word)) || (begins(b"rollback") && !has(b"to"));
    // Several statements: the others may be of another kind.
    !harmless || has(b";")
}

/// Does the text hold a constant such as 'now' or 'tomorrow', which the server reads when it parses the statement
/// (src/backend/utils/adt/datetime.c)? In doubt, yes.
fn is_of_its_moment(tail: &[u8]) -> bool {
    let text = tail.split(|b| *b == 0).next().unwrap_or_default();
    if text.contains(&b'\\') {
        // It may be spelled with escapes.
        return true;
    }
    let in_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'$' || b >= 0x80;
    let mut rest = text;
    while let Some(begin) = rest.iter().position(|b| in_word(*b)) {
        let from = rest.get(begin..).unwrap_or_default();
        let end = from.iter().position(|b| !in_word(*b)).unwrap_or(from.len());
        let (word, behind) = from.split_at(end);
        rest = behind;
        let is = |w: &[u8]| word.eq_ignore_ascii_case(w);
        // now() is a function, which is called when the statement is carried out.
        if is(b"today")
            || is(b"tomorrow")
            || is(b"yesterday")
            || (is(b"now") && behind.trim_ascii_start().first() != Some(&b'('))
        {
            return true;
        }
    }
    false
}

/// What a client has prepared.
#[derive(Debug, Default)]
pub struct Own {
    named: HashMap<Box<[u8]>, Arc<Statement>>,
    /// Bytes of all texts that were given names since there were none.
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
fn short(name: &[u8]) -> &[u8] {
    name.get(..MAX_NAME).unwrap_or(name)
}

impl Own {
    /// The statement with this name.
    pub fn get(&self, name: &[u8]) -> Option<&Arc<Statement>> {
        self.named.get(short(name))
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
        let before = match statement {
            Some(statement) => {
                self.bytes += statement.tail.len();
                self.named.insert(name.clone(), statement)
            }
            None => {
                let before = self.named.remove(&name);
                let freed = before.as_ref().map_or(0, |s| s.tail.len());
                self.bytes = if self.named.is_empty() { 0 } else { self.bytes.saturating_sub(freed) };
                before
            }
        };
        Change::Name { name, before }
    }

    /// Replaces the unnamed statement. Returns how to take it back.
    pub fn set_unnamed(&mut self, unnamed: Unnamed) -> Change {
        Change::Unnamed { before: std::mem::replace(&mut self.unnamed, unnamed) }
    }

    /// DEALLOCATE ALL, DISCARD ALL: names are forgotten.
    pub fn forget_names(&mut self) {
        self.named = HashMap::new();
        self.bytes = 0;
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
}

/// What a message changed on a server.
#[derive(Debug, Clone, Copy)]
pub enum Placed {
    /// Nothing.
    Nothing,
    /// A statement was put there.
    Put(Key),
    /// A statement was removed.
    Removed(Key, Slot),
    /// The unnamed statement was replaced or removed.
    Unnamed,
}

/// What a mark in the ledger stands for.
#[derive(Debug)]
pub struct Note {
    /// For the client.
    pub change: Change,
    /// For the server.
    pub placed: Placed,
    /// The batch that it belongs to.
    batch: u32,
}

/// A statement on a server.
#[derive(Debug, Clone, Copy)]
pub struct Slot {
    /// Parsed when the catalogs were in this state.
    version: u32,
    used: u64,
    /// The batch in which it was put here.
    batch: u32,
    /// How often all statements of the server had been discarded by then.
    era: u32,
    /// The server has said that it is here.
    settled: bool,
}

/// The statements that a server has.
#[derive(Debug, Default)]
pub struct Shelf {
    prepared: HashMap<Key, Slot>,
    unnamed: Option<Key>,
    notes: VecDeque<Note>,
    /// Counts Syncs. An error ends its own batch only, so what an earlier one did is not certain before its replies are there.
    batch: u32,
    /// Counts the times that all statements may have been discarded.
    era: u32,
    clock: u64,
    begun: u64,
}

/// Does a server have a statement?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Yes.
    Here,
    /// Yes, but it may no longer fit the catalogs; or it is not known yet whether it could be put here.
    Stale,
    /// No.
    Missing,
}

impl Shelf {
    /// A client begins to use the server: what it uses from here on is not removed.
    #[inline]
    pub fn begin(&mut self) {
        self.begun = self.clock;
    }

    /// Is the statement here, parsed in the catalogs' present state? It counts as used.
    #[inline]
    pub fn look(&mut self, key: Key, version: u32) -> Presence {
        match self.prepared.get_mut(&key) {
            Some(slot) => {
                self.clock += 1;
                slot.used = self.clock;
                let certain = slot.settled || slot.batch == self.batch;
                if slot.version == version && slot.era == self.era && certain {
                    Presence::Here
                } else {
                    Presence::Stale
                }
            }
            None => Presence::Missing,
        }
    }

    /// A statement is put here.
    pub fn put(&mut self, key: Key, version: u32) -> Placed {
        self.clock += 1;
        let slot = Slot { version, used: self.clock, batch: self.batch, era: self.era, settled: false };
        self.prepared.insert(key, slot);
        Placed::Put(key)
    }

    /// A statement is removed.
    pub fn remove(&mut self, key: Key) -> Placed {
        self.prepared.remove(&key).map_or(Placed::Nothing, |slot| Placed::Removed(key, slot))
    }

    /// The statement that has not been used for the longest time and not by the present client, if there are `limit` or more.
    pub fn superfluous(&self, limit: usize) -> Option<Key> {
        if self.prepared.len() < limit {
            return None;
        }
        let oldest = self.prepared.iter().min_by_key(|(_, slot)| slot.used)?;
        (oldest.1.used <= self.begun).then_some(*oldest.0)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.prepared.len()
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.prepared.is_empty()
    }

    /// The server has discarded all of them, or will soon. What is under way may come behind that, and be there after all.
    pub fn clear(&mut self) {
        self.era = self.era.wrapping_add(1);
        self.unnamed = None;
        if self.notes.is_empty() {
            self.prepared = HashMap::new();
        }
    }

    /// What names and constants stand for may have changed: all are to be parsed again.
    pub fn stir(&mut self) {
        self.era = self.era.wrapping_add(1);
    }

    /// A Sync was sent.
    #[inline]
    pub fn synced(&mut self) {
        self.batch = self.batch.wrapping_add(1);
        // What a later batch uses is put here again if it has made room.
        self.begin();
    }

    /// The unnamed statement is this one, or not known.
    #[inline]
    pub fn set_unnamed(&mut self, key: Option<Key>) {
        self.unnamed = key;
    }

    /// Is this the unnamed statement?
    pub fn is_unnamed(&self, key: Key) -> bool {
        self.unnamed == Some(key)
            && !self.notes.iter().any(|n| n.batch != self.batch && matches!(n.placed, Placed::Unnamed))
    }

    /// Does it depend on replies to an earlier batch what the client's `name` stands for?
    pub fn is_open(&self, name: &[u8]) -> bool {
        self.notes.iter().filter(|n| n.batch != self.batch).any(|n| match &n.change {
            Change::Nothing => false,
            Change::Name { name: other, .. } => **other == *short(name),
            Change::Unnamed { .. } => name.is_empty(),
        })
    }

    /// Does it depend on replies to an earlier batch whether a statement is here that [`look`](Self::look) finds missing?
    pub fn is_unsettled(&self, key: Key) -> bool {
        self.notes.iter().filter(|n| n.batch != self.batch).any(|n| match n.placed {
            Placed::Put(other) | Placed::Removed(other, _) => other == key,
            Placed::Nothing | Placed::Unnamed => false,
        })
    }

    /// The client's unnamed statement has ended, whatever becomes of its earlier batches.
    pub fn forget_unnamed(&mut self) {
        for note in self.notes.iter_mut().filter(|n| n.batch != self.batch) {
            if matches!(note.change, Change::Unnamed { .. }) {
                note.change = Change::Nothing;
            }
        }
    }

    /// A mark was booked.
    pub fn note(&mut self, change: Change, placed: Placed) {
        self.notes.push_back(Note { change, placed, batch: self.batch });
    }

    /// The oldest mark is settled; if it was done, it stays.
    #[inline]
    pub fn settle(&mut self, done: bool) -> Option<Note> {
        let note = self.notes.pop_front()?;
        if let (Placed::Put(key), true) = (note.placed, done) {
            if let Some(slot) = self.prepared.get_mut(&key).filter(|slot| slot.batch == note.batch) {
                slot.settled = true;
            }
        }
        Some(note)
    }

    /// Takes back what the message of a note did. `failed`: the server has tried it. To be called for the latest of several
    /// notes first.
    pub fn take_back(&mut self, note: Note, failed: bool, own: &mut Own) {
        match note.placed {
            Placed::Nothing => {}
            // An older one may be here, if its removal was taken back as well: to be closed before it is put here again. A
            // later batch may have put it here already, its own note says what became of that.
            Placed::Put(key) => {
                if let Some(slot) = self.prepared.get_mut(&key).filter(|slot| slot.batch == note.batch) {
                    slot.settled = false;
                }
            }
            Placed::Removed(key, slot) => {
                self.prepared.entry(key).or_insert(slot);
            }
            Placed::Unnamed => self.unnamed = None,
        }
        match note.change {
            Change::Nothing => {}
            Change::Name { name, before } => {
                let later = self.notes.iter_mut().find_map(|n| match &mut n.change {
                    Change::Name { name: other, before } if *other == name => Some(before),
                    _ => None,
                });
                match (later, before) {
                    (Some(place), before) => *place = before,
                    (None, Some(before)) => {
                        own.named.insert(name, before);
                    }
                    (None, None) => {
                        own.named.remove(&name);
                    }
                }
            }
            Change::Unnamed { before } => {
                // The server drops the old one before it looks at the new one.
                let before = if failed { Unnamed::None } else { before };
                let later = self.notes.iter_mut().find_map(|n| match &mut n.change {
                    Change::Unnamed { before } => Some(before),
                    _ => None,
                });
                match later {
                    Some(place) => *place = before,
                    None => own.unnamed = before,
                }
            }
        }
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
        for text in [
            "select 'now'",
            "select ' NOW '::date",
            "select 'Today 10:00'",
            "x 'yesterday'",
            "select timestamp 'tomorrow'",
            "select U&'n\\006fw'::date",
        ] {
            assert!(is_of_its_moment(text.as_bytes()), "{text}");
            let mut library = library();
            let (a, _) = library.statement(text.as_bytes());
            let (b, seen) = library.statement(text.as_bytes());
            assert!(a.key != b.key && !seen, "{text}");
        }
        for text in [
            "select now()",
            "select now ()",
            "select known, snow, tomorrows_x from t",
            "",
            "n",
            "insert into t values ($1)",
        ] {
            assert!(!is_of_its_moment(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn what_changes_the_meaning_of_others() {
        for text in [
            "create table t as select 1",
            "select * into t from u",
            "WITH x AS (select 1) select * INTO y from x",
            "set local datestyle = 'german'",
            "select set_config('timezone', 'utc', true)",
            "begin; set timezone = 'utc'",
            "rollback to a",
            "-- a remark\nselect 1",
            "do $$ $$",
        ] {
            assert!(stirs(text.as_bytes()), "{text}");
        }
        for text in ["select 1", " insert into t values ($1)", "begin", "ROLLBACK", "", "update t set a = 1"] {
            assert!(!stirs(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_failed_parse_is_taken_back() {
        let (mut own, mut shelf, mut library) = (Own::default(), Shelf::default(), library());
        let (a, _) = library.statement(b"a\0\0\0");
        let (b, _) = library.statement(b"b\0\0\0");
        // Two batches in a pipeline set the same name; the first one fails.
        let placed = shelf.put(a.key, 0);
        shelf.note(own.set(b"x", Some(a.clone())), placed);
        let placed = shelf.put(b.key, 0);
        shelf.note(own.set(b"x", Some(b.clone())), placed);
        let note = shelf.settle(false).expect("noted");
        shelf.take_back(note, true, &mut own);
        shelf.synced();
        assert_eq!(shelf.look(a.key, 0), Presence::Stale);
        assert_eq!(own.get(b"x"), Some(&b));
        assert_eq!(own.get(b"x"), Some(&b));
        let note = shelf.settle(false).expect("noted");
        shelf.take_back(note, true, &mut own);
        assert_eq!(own.get(b"x"), None);
        assert_eq!(shelf.look(b.key, 0), Presence::Stale);
    }

    #[test]
    fn what_is_in_use_is_not_removed() {
        let (mut shelf, mut library) = (Shelf::default(), library());
        let keys: Vec<Key> = (0..4).map(|i| library.statement(format!("s{i}").as_bytes()).0.key).collect();
        for key in &keys {
            shelf.put(*key, 0);
        }
        shelf.begin();
        assert_eq!(shelf.superfluous(5), None);
        assert_eq!(shelf.superfluous(4), Some(keys[0]));
        for key in &keys {
            shelf.look(*key, 0);
        }
        assert_eq!(shelf.superfluous(4), None);
        assert_eq!(shelf.look(keys[0], 1), Presence::Stale);
    }
}
