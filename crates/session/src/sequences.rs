//! What a statement does with what its backend remembers of sequences: the values that `currval` and `lastval` answer.
//!
//! The server keeps them in the backend's private memory. They can neither be asked for nor be put on another backend, because
//! `setval` would change the sequence itself.

use std::ops::BitOrAssign;

/// What a statement may do with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Sequences {
    /// It reads the value of the sequence used last (`lastval`).
    pub last: bool,
    /// It reads the value of a sequence that it names (`currval`), or does in a function what cannot be told.
    pub named: bool,
    /// It may get a number: by `nextval`, by `setval`, or by a column's default or a trigger when it writes a table.
    pub advances: bool,
    /// It may do any of this, for all that is known.
    pub unknown: bool,
}

impl Sequences {
    /// None of it.
    pub const NONE: Self = Self { last: false, named: false, advances: false, unknown: false };
    /// It writes, and no more.
    pub const ADVANCES: Self = Self { advances: true, ..Self::NONE };
    /// It may do anything.
    pub const UNKNOWN: Self = Self { unknown: true, ..Self::NONE };

    /// Does it leave them alone?
    #[must_use]
    pub const fn is_none(self) -> bool {
        !(self.last || self.named || self.advances || self.unknown)
    }

    /// Does it certainly contain a call that reads?
    #[must_use]
    pub const fn reads(self) -> bool {
        self.last || self.named
    }

    /// May it read?
    #[must_use]
    pub const fn may_read(self) -> bool {
        self.reads() || self.unknown
    }

    /// May it get a number?
    #[must_use]
    pub const fn may_advance(self) -> bool {
        self.advances || self.unknown
    }
}

impl BitOrAssign for Sequences {
    fn bitor_assign(&mut self, other: Self) {
        self.last |= other.last;
        self.named |= other.named;
        self.advances |= other.advances;
        self.unknown |= other.unknown;
    }
}
