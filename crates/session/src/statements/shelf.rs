//! What one server has prepared, and what is under way to it.

use super::Key;
use super::own::{self, Change, Own, Unnamed};
use std::collections::{HashMap, VecDeque};

/// What a message changed on a server.
#[derive(Debug, Clone)]
pub enum Placed {
    /// Nothing.
    Nothing,
    /// A statement was put there.
    Put(Key),
    /// A statement was removed.
    Removed(Key, Slot),
    /// The unnamed statement was replaced or removed.
    Unnamed,
    /// What the server remembers of sequences was discarded.
    Sequences,
    /// Nothing, but the server was asked to describe a statement when the catalogs were in this state.
    Described(Key, u32),
    /// What was there under this name of a client's was removed.
    Swept(Box<[u8]>),
}

/// What a mark in the ledger stands for.
#[derive(Debug)]
pub struct Note {
    /// For the client.
    pub change: Change,
    /// For the server.
    pub placed: Placed,
    /// The batch that it belongs to.
    pub batch: u32,
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
    /// When its description was asked for last, in seconds.
    described: Option<u64>,
}

/// A description is looked at so often, in seconds.
const DESCRIBED_EVERY: u64 = 10;

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
        self.find(key, version).map_or(Presence::Missing, |(_, presence)| presence)
    }

    /// As [`look`](Self::look), for a Describe. Is what the server says of it to be looked at as well? Not each time. `now` is in
    /// seconds.
    pub fn look_to_describe(&mut self, key: Key, version: u32, now: u64) -> (Presence, bool) {
        let Some((slot, presence)) = self.find(key, version) else { return (Presence::Missing, false) };
        let due = presence == Presence::Here && slot.described.is_none_or(|last| now >= last + DESCRIBED_EVERY);
        if due {
            slot.described = Some(now);
        }
        (presence, due)
    }

    #[inline]
    fn find(&mut self, key: Key, version: u32) -> Option<(&mut Slot, Presence)> {
        let slot = self.prepared.get_mut(&key)?;
        self.clock += 1;
        slot.used = self.clock;
        let certain = slot.settled || slot.batch == self.batch;
        let here = slot.version == version && slot.era == self.era && certain;
        Some((slot, if here { Presence::Here } else { Presence::Stale }))
    }

    /// A statement is put here.
    pub fn put(&mut self, key: Key, version: u32) -> Placed {
        self.clock += 1;
        let slot =
            Slot { version, used: self.clock, batch: self.batch, era: self.era, settled: false, described: None };
        self.prepared.insert(key, slot);
        Placed::Put(key)
    }

    /// The state of the catalogs in which a statement of this batch was parsed; `None` if what it means may have changed since.
    pub fn parsed_in(&self, key: Key, batch: u32) -> Option<u32> {
        let slot = self.prepared.get(&key)?;
        (slot.settled && slot.batch == batch && slot.era == self.era).then_some(slot.version)
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
            Change::Name { name: other, .. } => **other == *own::short(name),
            Change::All { .. } => !name.is_empty(),
            Change::Unnamed { .. } => name.is_empty(),
        })
    }

    /// Does it depend on replies to an earlier batch whether a statement is here that [`look`](Self::look) finds missing?
    pub fn is_unsettled(&self, key: Key) -> bool {
        self.notes.iter().filter(|n| n.batch != self.batch).any(|n| match n.placed {
            Placed::Put(other) | Placed::Removed(other, _) => other == key,
            Placed::Nothing | Placed::Unnamed | Placed::Described(..) | Placed::Sequences | Placed::Swept(_) => false,
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
        if let (Placed::Put(key), true) = (&note.placed, done) {
            if let Some(slot) = self.prepared.get_mut(key).filter(|slot| slot.batch == note.batch) {
                slot.settled = true;
            }
        }
        Some(note)
    }

    /// Takes back what the message of a note did. `failed`: the server has tried it. To be called for the latest of several
    /// notes first.
    pub fn take_back(&mut self, note: Note, failed: bool, own: &mut Own) {
        match note.placed {
            // The caller has to know that sequences were not discarded, and what was not removed.
            Placed::Nothing | Placed::Described(..) | Placed::Sequences | Placed::Swept(_) => {}
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
            Change::All { before } => {
                for (name, statement) in before {
                    let later = self.notes.iter_mut().find_map(|n| match &mut n.change {
                        Change::Name { name: other, before } if *other == name => Some(before),
                        _ => None,
                    });
                    match later {
                        Some(place) => *place = Some(statement),
                        None => own.take_back(Change::Name { name, before: Some(statement) }),
                    }
                }
            }
            Change::Name { name, before } => {
                let later = self.notes.iter_mut().find_map(|n| match &mut n.change {
                    Change::Name { name: other, before } if *other == name => Some(before),
                    _ => None,
                });
                match later {
                    Some(place) => *place = before,
                    None => {
                        own.set(&name, before);
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
    use crate::statements::Library;

    fn library() -> Library {
        Library::new([7; 16], 0)
    }

    #[test]
    fn a_failed_parse_is_taken_back() {
        let (mut own, mut shelf, mut library) = (Own::default(), Shelf::default(), library());
        let (a, _) = library.statement(b"a\0\0\0", Some(Default::default()));
        let (b, _) = library.statement(b"b\0\0\0", Some(Default::default()));
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
        let note = shelf.settle(false).expect("noted");
        shelf.take_back(note, true, &mut own);
        assert_eq!(own.get(b"x"), None);
        assert_eq!(shelf.look(b.key, 0), Presence::Stale);
    }

    #[test]
    fn what_is_in_use_is_not_removed() {
        let (mut shelf, mut library) = (Shelf::default(), library());
        let keys: Vec<Key> =
            (0..4).map(|i| library.statement(format!("s{i}").as_bytes(), Some(Default::default())).0.key).collect();
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
