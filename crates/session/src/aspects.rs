//! What a session can hold that its settings do not tell, as sets of bits: what is to be asked of the server, and what keeps a
//! client on its physical connection.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// What may have changed in a session, as far as the server can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Aspects(u8);

impl Aspects {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// The settings of the session, its role and its session authorization. Costs more than all others together.
    pub const SETTINGS: Self = Self(1);
    /// Objects in the session's temporary schema.
    pub const TEMPORARY: Self = Self(2);
    /// Advisory locks of the session. The question looks at all locks of the server.
    pub const LOCKS: Self = Self(4);
    /// Channels that are listened to.
    pub const CHANNELS: Self = Self(8);
    /// Prepared statements, but for the manager's own.
    pub const PREPARED: Self = Self(16);
    /// Cursors WITH HOLD.
    pub const CURSORS: Self = Self(32);
    /// Definitions of functions.
    pub const FUNCTIONS: Self = Self(64);
    /// All that a statement may change: not the definitions of functions, which are asked by name.
    pub const ALL: Self = Self(63);

    /// Is there none?
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Are all of `other` in it?
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Is one of `other` in it?
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// These without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Those of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// These and those of `other`.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOr for Aspects {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl BitOrAssign for Aspects {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// Why a client keeps its physical connection past the end of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Pins(u16);

impl Pins {
    /// Nothing keeps it.
    pub const NONE: Self = Self(0);
    /// A temporary object; until it is dropped.
    pub const TEMPORARY: Self = Self(Aspects::TEMPORARY.0 as u16);
    /// An advisory lock of the session; until it is released.
    pub const LOCK: Self = Self(Aspects::LOCKS.0 as u16);
    /// It listens; until UNLISTEN.
    pub const LISTEN: Self = Self(Aspects::CHANNELS.0 as u16);
    /// A statement prepared by SQL; until DEALLOCATE.
    pub const PREPARED: Self = Self(Aspects::PREPARED.0 as u16);
    /// A cursor WITH HOLD; until it is closed.
    pub const CURSOR: Self = Self(Aspects::CURSORS.0 as u16);
    /// The pool is in session mode.
    pub const SESSION: Self = Self(1 << 8);
    /// A library was loaded.
    pub const LIBRARY: Self = Self(1 << 9);
    /// The seed of random numbers was set.
    pub const SEED: Self = Self(1 << 10);
    /// It asks for what nextval left behind; until DISCARD SEQUENCES.
    pub const SEQUENCE: Self = Self(1 << 11);
    /// A setting was made whose name is not known, or that is too large to be carried.
    pub const SETTING: Self = Self(1 << 12);
    /// An extension keeps a connection, a backup or the origin of a replication in the session.
    pub const EXTENSION: Self = Self(1 << 13);
    /// A statement too long to be kept is its unnamed statement; until the next one.
    pub const STATEMENT: Self = Self(1 << 14);

    /// Those whose end the server can be asked about.
    const ASKED: u16 = Aspects::ALL.0 as u16;
    /// Those that even DISCARD ALL does not end: the physical connection ends with the client.
    const FOR_GOOD: Self = Self(Self::LIBRARY.0 | Self::SEED.0 | Self::EXTENSION.0);

    /// Is there none?
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those that a statement may leave behind though it fails.
    #[must_use]
    pub const fn lasting_errors(self) -> Self {
        Self(self.0 & Self::FOR_GOOD.0)
    }

    /// Is one of `other` in it?
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Is there one of which the server cannot be asked whether it has ended?
    #[must_use]
    pub const fn is_lasting(self) -> bool {
        self.0 & !Self::ASKED != 0
    }

    /// Does one of them outlast DISCARD ALL?
    #[must_use]
    pub const fn is_for_good(self) -> bool {
        self.0 & Self::FOR_GOOD.0 != 0
    }

    /// What has to be asked to know whether they have all ended.
    #[must_use]
    pub const fn asked(self) -> Aspects {
        Aspects((self.0 & Self::ASKED) as u8)
    }

    /// These, with the answer to what was `asked` in the place of what was known of it.
    #[must_use]
    pub const fn answered(self, asked: Aspects, found: Aspects) -> Self {
        let asked = asked.without(Aspects::SETTINGS.union(Aspects::FUNCTIONS)).0 as u16;
        Self((self.0 & !asked) | (found.0 as u16 & asked))
    }

    /// These without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// These and those of `other`.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Pins {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// As `SHOW pgusher.pin` says it; `none` if there is none.
impl fmt::Display for Pins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [(Pins, &str); 12] = [
            (Pins::SESSION, "session mode"),
            (Pins::TEMPORARY, "temporary table"),
            (Pins::LOCK, "advisory lock"),
            (Pins::LISTEN, "listen"),
            (Pins::PREPARED, "prepared statement"),
            (Pins::CURSOR, "cursor with hold"),
            (Pins::LIBRARY, "library"),
            (Pins::SEED, "random seed"),
            (Pins::SEQUENCE, "sequence"),
            (Pins::SETTING, "setting"),
            (Pins::EXTENSION, "extension"),
            (Pins::STATEMENT, "long statement"),
        ];
        if self.is_empty() {
            return f.write_str("none");
        }
        let names: Vec<&str> = NAMES.iter().filter(|(pin, _)| self.intersects(*pin)).map(|(_, name)| *name).collect();
        f.write_str(&names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_pins_and_begins_others() {
        let mut pins = Pins::TEMPORARY;
        pins |= Pins::LOCK;
        let after = pins.answered(Aspects::ALL, Aspects::LOCKS | Aspects::SETTINGS);
        assert_eq!(after, Pins::LOCK);
        assert_eq!(after.answered(Aspects::SETTINGS, Aspects::NONE), Pins::LOCK);
        assert_eq!(after.answered(Aspects::LOCKS, Aspects::NONE), Pins::NONE);
        assert!(!after.is_lasting() && after.union(Pins::SEED).is_lasting());
        assert_eq!(after.asked(), Aspects::LOCKS);
        assert_eq!(pins.to_string(), "temporary table, advisory lock");
        assert_eq!(Pins::NONE.to_string(), "none");
    }
}
