//! Remembers the keys of recent derivations, so that a client that connects again and again costs one
//! PBKDF2 and not thousands. Bounded; holds no password in clear. Not thread-safe by itself: give each
//! thread its own, or put it behind a lock that is not held while deriving.

use std::collections::BTreeMap;
use std::fmt;

use zeroize::Zeroizing;

use crate::scram::digest::{Key, hmac};
use crate::{Derivation, ScramKeys};

/// Keys by (password, salt, iterations), the least recently used ones given up by the clock method.
///
/// A password is only present as HMAC-SHA-256 under a key of this process, which is worthless
/// elsewhere. Keys are wiped when they are evicted, replaced or dropped.
pub struct DerivationCache {
    secret: Key,
    capacity: usize,
    /// Digest to slot. Ordered instead of hashed: no random state is needed and the digests are
    /// already unpredictable to a client.
    index: BTreeMap<[u8; 32], usize>,
    slots: Vec<Slot>,
    hand: usize,
    stats: CacheStats,
}

struct Slot {
    digest: [u8; 32],
    keys: ScramKeys,
    /// Used since the hand passed last.
    used: bool,
}

/// What a cache has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheStats {
    /// Lookups that found keys.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Entries given up for newer ones.
    pub evictions: u64,
}

impl DerivationCache {
    /// A cache for at most `capacity` entries (0 switches it off), about 200 bytes each. `random` must
    /// come from a cryptographically secure source and be new for every process.
    #[must_use]
    pub fn new(capacity: usize, random: [u8; 32]) -> Self {
        Self {
            secret: Zeroizing::new(random),
            capacity,
            index: BTreeMap::new(),
            slots: Vec::new(),
            hand: 0,
            stats: CacheStats::default(),
        }
    }

    /// The keys that this derivation would give, if they are known.
    pub fn get(&mut self, derivation: &Derivation) -> Option<ScramKeys> {
        let digest = self.digest(derivation);
        let slot = self.index.get(&*digest).copied();
        match slot.and_then(|slot| self.slots.get_mut(slot)) {
            Some(slot) => {
                slot.used = true;
                self.stats.hits += 1;
                Some(slot.keys.clone())
            }
            None => {
                self.stats.misses += 1;
                None
            }
        }
    }

    /// Keeps the result of a derivation. Only keep what a login has proved right, or a client that
    /// guesses passwords pushes out everybody else's keys.
    pub fn insert(&mut self, derivation: &Derivation, keys: ScramKeys) {
        if self.capacity == 0 {
            return;
        }
        let digest = *self.digest(derivation);
        let known = self.index.get(&digest).copied();
        if let Some(slot) = known.and_then(|slot| self.slots.get_mut(slot)) {
            slot.keys = keys;
            return;
        }
        let slot = Slot { digest, keys, used: false };
        if self.slots.len() < self.capacity {
            self.index.insert(digest, self.slots.len());
            self.slots.push(slot);
            return;
        }
        let victim = self.victim();
        if let Some(place) = self.slots.get_mut(victim) {
            self.index.remove(&place.digest);
            self.index.insert(digest, victim);
            *place = slot;
            self.stats.evictions += 1;
        }
    }

    /// Forgets everything, for instance after passwords were changed.
    pub fn clear(&mut self) {
        self.index.clear();
        self.slots.clear();
        self.hand = 0;
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// There are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Counts since the start.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        self.stats
    }

    /// The first slot, from the hand on, that was not used since the hand passed it. At most two
    /// rounds, because the first one clears every mark.
    fn victim(&mut self) -> usize {
        loop {
            let at = self.hand;
            self.hand = (self.hand + 1) % self.slots.len().max(1);
            match self.slots.get_mut(at) {
                Some(slot) if slot.used => slot.used = false,
                Some(_) | None => return at,
            }
        }
    }

    fn digest(&self, derivation: &Derivation) -> Key {
        let password = derivation.password().as_bytes();
        let parameters = derivation.parameters();
        // The lengths keep (password, salt) pairs apart whose bytes run together the same way.
        hmac(
            &self.secret,
            &[
                &(password.len() as u64).to_be_bytes(),
                password,
                &(parameters.salt().len() as u64).to_be_bytes(),
                parameters.salt(),
                &parameters.iterations().to_be_bytes(),
            ],
        )
    }
}

impl fmt::Debug for DerivationCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DerivationCache")
            .field("capacity", &self.capacity)
            .field("len", &self.slots.len())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{CacheStats, DerivationCache};
    use crate::{Derivation, KeyParameters, ScramKeys};

    fn derivation(password: &str, salt: &str, iterations: u32) -> Derivation {
        let parameters = KeyParameters::new(salt, iterations).expect("in range");
        Derivation::new(password.into(), parameters).expect("in range")
    }

    fn keys(n: u8) -> ScramKeys {
        ScramKeys::new([n; 32], [n; 32])
    }

    fn found(cache: &mut DerivationCache, derivation: &Derivation) -> Option<u8> {
        cache.get(derivation).map(|keys| keys.client_key()[0])
    }

    #[test]
    fn tells_inputs_apart() {
        let mut cache = DerivationCache::new(8, [1; 32]);
        cache.insert(&derivation("ab", "c", 1), keys(1));
        assert_eq!(found(&mut cache, &derivation("ab", "c", 1)), Some(1));
        for other in
            [derivation("a", "bc", 1), derivation("abc", "d", 1), derivation("ab", "c", 2), derivation("AB", "c", 1)]
        {
            assert_eq!(found(&mut cache, &other), None);
        }
    }

    #[test]
    fn is_bounded_and_keeps_what_is_used() {
        let mut cache = DerivationCache::new(4, [1; 32]);
        let often = derivation("often", "salt", 1);
        cache.insert(&often, keys(99));
        for n in 0..100u8 {
            assert_eq!(found(&mut cache, &often), Some(99), "after {n} others");
            cache.insert(&derivation(&n.to_string(), "salt", 1), keys(n));
            assert!(cache.len() <= 4);
            assert_eq!(cache.index.len(), cache.slots.len());
        }
        assert_eq!(found(&mut cache, &derivation("99", "salt", 1)), Some(99));
        assert_eq!(found(&mut cache, &derivation("0", "salt", 1)), None);
        assert_eq!(cache.stats(), CacheStats { hits: 101, misses: 1, evictions: 97 });
    }

    #[test]
    fn replaces_and_clears() {
        let mut cache = DerivationCache::new(2, [1; 32]);
        let one = derivation("one", "salt", 1);
        cache.insert(&one, keys(1));
        cache.insert(&one, keys(2));
        assert_eq!((cache.len(), found(&mut cache, &one)), (1, Some(2)));
        cache.clear();
        assert_eq!((cache.len(), found(&mut cache, &one)), (0, None));
        cache.insert(&one, keys(3));
        assert_eq!(found(&mut cache, &one), Some(3));
    }

    #[test]
    fn capacity_zero_keeps_nothing() {
        let mut cache = DerivationCache::new(0, [1; 32]);
        cache.insert(&derivation("one", "salt", 1), keys(1));
        assert!(cache.is_empty());
    }
}
