//! The fingerprint: a number of 128 bits of the stream of tokens.
//!
//! Texts that differ only in constants, white space, comments, the case of keywords and unquoted names, a semicolon at the end,
//! or the number of equal items in `IN (...)`, `ARRAY[...]` and the rows of `VALUES` (constants are equal) have the same one. It
//! is keyed: two processes give different numbers, so that nobody can prepare two texts that collide.

use crate::words::eights;

/// What texts have in common that differ only in constants and spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub u128);

/// The secret part of all fingerprints and text hashes of a process: from the system's random numbers, drawn by the caller.
#[derive(Clone, Copy)]
pub struct Key {
    first: u64,
    second: u64,
}

impl Key {
    /// A key of two random numbers.
    #[must_use]
    pub const fn new(first: u64, second: u64) -> Self {
        Self { first, second }
    }

    pub(crate) const fn seed(self) -> u64 {
        self.first ^ self.second.rotate_left(32)
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

#[derive(Clone, Copy)]
#[repr(u8)]
pub(crate) enum Tag {
    Name = 1,
    QuotedName,
    UnicodeName,
    Constant,
    Parameter,
    Operator,
    Mark,
    Item,
}

/// Two lanes of keyed, folded multiplications.
#[derive(Clone, Copy)]
pub(crate) struct Hash {
    a: u64,
    b: u64,
    key: Key,
}

#[inline]
fn fold(x: u64, y: u64) -> u64 {
    let product = u128::from(x) * u128::from(y);
    (product as u64) ^ ((product >> 64) as u64)
}

impl Hash {
    pub(crate) fn new(key: Key) -> Self {
        // The keys are made odd and large: a folded multiplication by a small number would forget bits.
        let key = Key { first: key.first | 1 | 1 << 63, second: key.second | 1 | 1 << 62 };
        Self { a: key.second ^ 0x243f_6a88_85a3_08d3, b: key.first ^ 0x1319_8a2e_0370_7344, key }
    }

    fn fresh(&self) -> Self {
        Self { a: self.key.second.rotate_left(17), b: self.key.first.rotate_left(43), key: self.key }
    }

    #[inline]
    pub(crate) fn absorb(&mut self, word: u64) {
        self.a = fold(self.a ^ word, self.key.first).wrapping_add(word.rotate_left(23));
        self.b = fold(self.b ^ word, self.key.second).wrapping_add(word.rotate_left(41));
    }

    #[inline]
    pub(crate) fn start(&mut self, tag: Tag, length: usize) {
        self.absorb((tag as u64) << 56 | length as u64);
    }

    #[inline]
    pub(crate) fn tag(&mut self, tag: Tag) {
        self.start(tag, 0);
    }

    #[inline]
    pub(crate) fn mark(&mut self, mark: u8) {
        self.start(Tag::Mark, usize::from(mark));
    }

    #[inline]
    pub(crate) fn text(&mut self, tag: Tag, text: &[u8], start: usize, end: usize) {
        self.start(tag, end - start);
        eights(text, start, end, |eight| self.absorb(eight));
    }

    pub(crate) fn finish(mut self) -> Fingerprint {
        self.absorb(0x0f0f);
        Fingerprint(u128::from(self.a) << 64 | u128::from(self.b))
    }
}

/// The lists whose equal neighbours count once: items of IN and ARRAY, rows of VALUES. While an item is read, it is hashed on
/// its own; then its hash goes into the hash of what is around it, unless the item before had the same.
#[derive(Clone, Copy, Default)]
pub(crate) struct Lists {
    stack: [Option<List>; 4],
    used: usize,
}

#[derive(Clone, Copy)]
struct List {
    around: Hash,
    level: u32,
    last: Option<Fingerprint>,
    values: bool,
}

impl Lists {
    fn top(&mut self) -> Option<&mut List> {
        self.stack.get_mut(self.used.checked_sub(1)?)?.as_mut()
    }

    pub(crate) fn begin(&mut self, hash: &mut Hash, level: u32, values: bool) {
        if let Some(place) = self.stack.get_mut(self.used) {
            *place = Some(List { around: *hash, level, last: None, values });
            self.used += 1;
            *hash = hash.fresh();
        }
    }

    fn item_done(list: &mut List, hash: &mut Hash) {
        let item = hash.finish();
        if list.last != Some(item) {
            list.around.start(Tag::Item, 0);
            list.around.absorb((item.0 >> 64) as u64);
            list.around.absorb(item.0 as u64);
            list.last = Some(item);
        }
        *hash = hash.fresh();
    }

    /// A comma at this level. True when it only separates items.
    #[inline]
    pub(crate) fn separated(&mut self, hash: &mut Hash, level: u32) -> bool {
        match self.top() {
            Some(list) if list.level == level => {
                Self::item_done(list, hash);
                true
            }
            _ => false,
        }
    }

    /// Whether the list under way is VALUES, and here, outside of its rows, something may end it.
    #[inline]
    pub(crate) fn values_may_end(&self, level: u32) -> bool {
        let Some(top) = self.used.checked_sub(1) else { return false };
        matches!(self.stack.get(top), Some(Some(list)) if list.values && list.level == level)
    }

    pub(crate) fn end(&mut self, hash: &mut Hash) {
        if let Some(mut list) = self.top().copied() {
            Self::item_done(&mut list, hash);
            *hash = list.around;
            self.used -= 1;
        }
    }

    /// A parenthesis or bracket of this level closes.
    #[inline]
    pub(crate) fn closed(&mut self, hash: &mut Hash, level: u32) {
        while self.top().is_some_and(|list| list.level >= level) {
            self.end(hash);
        }
    }

    pub(crate) fn end_all(&mut self, hash: &mut Hash) {
        while self.used > 0 {
            self.end(hash);
        }
    }
}
