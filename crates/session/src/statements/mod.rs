//! Prepared statements of clients, and of the servers that carry them out.
//!
//! A client's statement is a text with parameter types. A server has it under a name that is made of both and of the settings
//! under which they were parsed, so that all clients that prepare the same share it. [`Own`] is what a client believes to have
//! prepared, [`Shelf`] is what a server has. When a client's message names a statement that its server of the moment does not
//! have, it is put there first.
//!
//! A Parse is booked when it is sent, and may fail, or be discarded because of an error in front of it. Each leaves a [`Note`],
//! in the order of the [ledger's](crate::ledger) marks, that says how to take it back.

mod known;
mod library;
mod own;
mod shelf;
mod text;

use crate::plan::Plan;
use std::sync::Arc;

pub use known::Known;
pub use library::Library;
pub use own::{Change, MAX_NAME, Own, Unnamed, short};
pub use shelf::{Note, Placed, Presence, Shelf, Slot};

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
    /// What it does to its session; `None`: nothing.
    pub plan: Option<Arc<Plan>>,
    /// It ends a transaction, and does nothing else.
    pub ends: bool,
    /// It may get numbers from sequences; its plan says more, if it has one.
    pub advances: bool,
}
