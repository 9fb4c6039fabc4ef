//! Remembers what was found out about texts, so that a text seen before costs one hash and one comparison, and a text that differs
//! from one seen before only in its constants costs one pass and no parse.
//!
//! One cache belongs to one thread: it takes no lock and shares nothing but the facts, which are counted references. Both its
//! maps are bounded, by entries and by bytes. What has not been used for a while goes first: entries live in two generations,
//! a hit in the old one moves to the young one, and when the young one is full the old one is dropped in one piece. That costs
//! the same for each new entry and keeps no list of uses.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use foldhash::quality::FixedState;

use crate::facts::{Facts, Limits, Unknown};
use crate::fingerprint::{Fingerprint, Key};
use crate::mentions::Mentions;
use crate::outline::{Outline, Part};
use crate::quick::Quick;

/// The bounds of a [`Cache`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Texts, and as many fingerprints, at most.
    pub entries: usize,
    /// Bytes of texts and facts, at most, as far as they are known.
    pub bytes: usize,
    /// Longer texts are judged each time they come.
    pub text: usize,
    /// What is given to the parser.
    pub parse: Limits,
}

impl Default for Bounds {
    /// 4,096 entries, 16 MiB, texts of up to 64 KiB.
    fn default() -> Self {
        Self { entries: 4096, bytes: 16 << 20, text: 64 << 10, parse: Limits::default() }
    }
}

/// What a session has to know of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The text's fingerprint.
    pub fingerprint: Fingerprint,
    /// What is certain without facts.
    pub quick: Quick,
    /// The words in it that change sessions.
    pub mentions: Mentions,
    /// Its statements: how each begins, and where it ends. As many as there are facts.
    pub parts: Box<[Part]>,
    /// The facts; `None` where [`Verdict::quick`] suffices. They may have come from another text of the same fingerprint, when no
    /// constant is part of them.
    pub facts: Option<Result<Arc<Facts>, Unknown>>,
}

/// How often what was asked: for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The text was known.
    pub texts: u64,
    /// One pass was enough: no facts were needed.
    pub plain: u64,
    /// The facts of a text with the same fingerprint held.
    pub fingerprints: u64,
    /// The parser was asked.
    pub parses: u64,
}

/// The cache of one thread.
#[derive(Debug)]
pub struct Cache {
    bounds: Bounds,
    outline: Outline,
    hasher: FixedState,
    texts: Generations<u64, Known>,
    facts: Generations<Fingerprint, Arc<Facts>>,
    counts: Counts,
}

#[derive(Clone, Debug)]
struct Known {
    text: Box<[u8]>,
    standard_strings: bool,
    verdict: Arc<Verdict>,
}

impl Cache {
    /// An empty one. All caches of a process may share a key; it has to be secret to keep texts from being made to collide.
    #[must_use]
    pub fn new(key: Key, bounds: Bounds) -> Self {
        let hasher = FixedState::with_seed(key.seed());
        Self {
            bounds,
            outline: Outline::new(key),
            texts: Generations::new(&hasher, bounds.entries, bounds.bytes / 2),
            facts: Generations::new(&hasher, bounds.entries, bounds.bytes / 2),
            hasher,
            counts: Counts::default(),
        }
    }

    /// How often what was asked.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Bytes of texts and facts that are held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.texts.bytes() + self.facts.bytes()
    }

    /// What is known of a text, found out if need be. `standard_strings` is the session's `standard_conforming_strings`.
    pub fn judge(&mut self, text: &[u8], standard_strings: bool) -> Arc<Verdict> {
        let hash = self.hash(text, standard_strings);
        if let Some(known) = self.texts.get(&hash) {
            // The text itself decides: a hash is no proof.
            if *known.text == *text && known.standard_strings == standard_strings {
                self.counts.texts += 1;
                return Arc::clone(&known.verdict);
            }
        }
        let verdict = Arc::new(self.find_out(text, standard_strings));
        if text.len() <= self.bounds.text {
            let facts = match &verdict.facts {
                Some(Ok(facts)) if facts.text_bound() => facts.size(),
                Some(Ok(_) | Err(_)) | None => 0,
            };
            let size = text.len() + size_of::<Known>() + size_of::<Verdict>() + size_of_val(&*verdict.parts) + facts;
            let known = Known { text: text.into(), standard_strings, verdict: Arc::clone(&verdict) };
            self.texts.put(hash, known, size);
        }
        verdict
    }

    /// What is certain of a text without facts. Remembers nothing: a short text that holds constants comes once, and is read faster
    /// than it is kept.
    #[inline]
    pub fn glance(&mut self, text: &[u8], standard_strings: bool) -> Quick {
        self.outline.read(text, standard_strings);
        self.outline.quick()
    }

    /// The facts of a text, also of one that is judged without them: which relations and functions it names. They are kept by the
    /// fingerprint.
    ///
    /// # Errors
    /// [`Unknown`]: the text cannot be parsed, or is too long or too deep to be.
    pub fn facts(&mut self, text: &[u8], standard_strings: bool) -> Result<Arc<Facts>, Unknown> {
        let verdict = self.judge(text, standard_strings);
        if let Some(facts) = &verdict.facts {
            return facts.clone();
        }
        if let Some(facts) = self.facts.get(&verdict.fingerprint) {
            return Ok(Arc::clone(facts));
        }
        self.outline.read(text, standard_strings);
        self.facts_of(text, verdict.fingerprint, standard_strings)
    }

    fn hash(&self, text: &[u8], standard_strings: bool) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(text);
        hasher.write_usize(text.len() << 1 | usize::from(standard_strings));
        hasher.finish()
    }

    fn find_out(&mut self, text: &[u8], standard_strings: bool) -> Verdict {
        self.outline.read(text, standard_strings);
        let fingerprint = self.outline.fingerprint();
        let quick = self.outline.quick();
        let facts = (quick == Quick::NeedsFacts).then(|| self.facts_of(text, fingerprint, standard_strings));
        if facts.is_none() {
            self.counts.plain += 1;
        }
        Verdict { fingerprint, quick, mentions: self.outline.mentions(), parts: self.outline.parts().into(), facts }
    }

    fn facts_of(
        &mut self,
        text: &[u8],
        fingerprint: Fingerprint,
        standard_strings: bool,
    ) -> Result<Arc<Facts>, Unknown> {
        if let Some(facts) = self.facts.get(&fingerprint) {
            self.counts.fingerprints += 1;
            return Ok(Arc::clone(facts));
        }
        self.counts.parses += 1;
        let facts = Arc::new(Facts::of(text, &self.outline, standard_strings, self.bounds.parse)?);
        if !facts.text_bound() {
            self.facts.put(fingerprint, Arc::clone(&facts), facts.size() + size_of::<Fingerprint>());
        }
        Ok(facts)
    }
}

/// A bounded map of two generations.
#[derive(Debug)]
struct Generations<K, V> {
    young: HashMap<K, (V, usize), FixedState>,
    old: HashMap<K, (V, usize), FixedState>,
    young_bytes: usize,
    old_bytes: usize,
    /// Of one generation.
    entries: usize,
    bytes: usize,
}

impl<K: std::hash::Hash + Eq + Copy, V> Generations<K, V> {
    fn new(hasher: &FixedState, entries: usize, bytes: usize) -> Self {
        Self {
            young: HashMap::with_hasher(hasher.clone()),
            old: HashMap::with_hasher(hasher.clone()),
            young_bytes: 0,
            old_bytes: 0,
            entries: (entries / 2).max(1),
            bytes: bytes / 2,
        }
    }

    fn bytes(&self) -> usize {
        self.young_bytes + self.old_bytes
    }

    fn get(&mut self, key: &K) -> Option<&V> {
        if !self.young.contains_key(key) {
            let (value, size) = self.old.remove(key)?;
            self.old_bytes -= size;
            self.put(*key, value, size);
        }
        self.young.get(key).map(|(value, _)| value)
    }

    /// Keeps a value of this size, unless it alone is more than a generation may hold.
    fn put(&mut self, key: K, value: V, size: usize) {
        if size > self.bytes {
            return;
        }
        if self.young.len() >= self.entries || self.young_bytes + size > self.bytes {
            self.old = std::mem::replace(&mut self.young, HashMap::with_hasher(self.old.hasher().clone()));
            self.old_bytes = std::mem::take(&mut self.young_bytes);
        }
        if let Some((_, replaced)) = self.young.insert(key, (value, size)) {
            self.young_bytes -= replaced;
        }
        // The same key in the old generation would be found no more, but its bytes would count.
        if let Some((_, shadowed)) = self.old.remove(&key) {
            self.old_bytes -= shadowed;
        }
        self.young_bytes += size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(bounds: Bounds) -> Cache {
        Cache::new(Key::new(1, 2), bounds)
    }

    #[test]
    fn a_text_is_found_again_and_a_fingerprint_saves_a_parse() {
        let mut cache = cache(Bounds::default());
        let first = cache.judge(b"select f(1)", true);
        assert!(Arc::ptr_eq(&first, &cache.judge(b"select f(1)", true)));
        let second = cache.judge(b"SELECT f( 2 ) -- same", true);
        assert_eq!((first.fingerprint, &first.facts), (second.fingerprint, &second.facts));
        assert_eq!((second.parts[0].start, second.parts[0].end), (0, 13));
        assert_eq!(cache.counts(), Counts { texts: 1, plain: 0, fingerprints: 1, parses: 1 });
        assert!(cache.judge(b"select lower('A')", true).facts.is_none());
        assert_eq!(cache.counts().plain, 1);
    }

    #[test]
    fn a_plain_text_has_facts_for_those_who_ask() {
        let mut cache = cache(Bounds::default());
        let text = b"insert into sales.orders (id) select id from carts where id = 7";
        assert!(cache.judge(text, true).facts.is_none());
        let facts = cache.facts(text, true).unwrap();
        let names: Vec<&str> = facts.statements()[0].relations.iter().map(|relation| &*relation.name.name).collect();
        assert_eq!(names, ["carts", "orders"]);
        let other = b"insert into sales.orders (id) select id from carts where id = 8";
        assert!(Arc::ptr_eq(&facts, &cache.facts(other, true).unwrap()));
        assert_eq!(cache.counts().parses, 1);
        assert!(cache.facts(b"select from where", true).is_err());
    }

    #[test]
    fn a_constant_that_matters_is_never_shared() {
        let mut cache = cache(Bounds::default());
        for (one, other) in [
            ("set app.tenant to '1'", "set app.tenant to '2'"),
            ("select set_config('a.b', '1', false)", "select set_config('a.b', '2', false)"),
            ("do 'begin end'", "do 'begin null; end'"),
            ("load 'a'", "load 'b'"),
            ("prepare p as select 1", "prepare p as select 2"),
            ("prepare transaction 'a'", "prepare transaction 'b'"),
            ("select pg_advisory_lock(1)", "select pg_advisory_lock(2)"),
            ("set transaction snapshot '1'", "set transaction snapshot '2'"),
        ] {
            let first = cache.judge(one.as_bytes(), true);
            let second = cache.judge(other.as_bytes(), true);
            assert_eq!(first.fingerprint, second.fingerprint, "{one}");
            assert_ne!(first.facts, second.facts, "{one}");
        }
        assert_eq!(cache.counts().fingerprints, 0);
    }

    #[test]
    fn the_meaning_of_backslashes_is_part_of_a_text() {
        let mut cache = cache(Bounds::default());
        let text = br"select 'a\', f(1), '";
        assert_ne!(cache.judge(text, true).fingerprint, cache.judge(text, false).fingerprint);
        assert_eq!(cache.counts().texts, 0);
    }

    #[test]
    fn bounds_hold() {
        let bounds = Bounds { entries: 64, bytes: 64 << 10, text: 1 << 10, ..Bounds::default() };
        let mut cache = cache(bounds);
        for number in 0..2000 {
            // A new name each time: a new fingerprint.
            cache.judge(format!("select f{number}(1) {}", "x".repeat(number % 500)).as_bytes(), true);
            assert!(cache.bytes() <= bounds.bytes, "{}", cache.bytes());
            assert!(cache.texts.young.len() + cache.texts.old.len() <= bounds.entries);
            assert!(cache.facts.young.len() + cache.facts.old.len() <= bounds.entries);
        }
        cache.judge(format!("select f(1) {}", "x".repeat(2 << 10)).as_bytes(), true);
        assert!(cache.texts.young.values().all(|(known, _)| known.text.len() <= bounds.text));
        let counted: usize = cache.texts.young.values().chain(cache.texts.old.values()).map(|(_, size)| size).sum();
        assert_eq!(counted, cache.texts.bytes());
    }

    #[test]
    fn what_is_used_stays() {
        let mut cache = cache(Bounds { entries: 8, ..Bounds::default() });
        let favourite = cache.judge(b"select favourite(1)", true);
        for number in 0..100 {
            cache.judge(format!("select other{number}(1)").as_bytes(), true);
            assert!(Arc::ptr_eq(&favourite, &cache.judge(b"select favourite(1)", true)));
        }
    }
}
