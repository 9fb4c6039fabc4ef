//! What a statement of SQL does to the session it runs in. No I/O, no clock, no random numbers.
//!
//! Three questions, from cheap to dear:
//!
//! 1. [`Outline::read`] passes once over a text: its [`Fingerprint`], where its statements begin and end, and what is certain of
//!    them ([`Quick`]). Most statements need no more.
//! 2. [`Facts::of`] asks PostgreSQL's own grammar: kind, effects on the session, relations, functions, parameters.
//! 3. [`Cache::judge`] does both and remembers: by the exact text first, by the fingerprint second.
//!
//! ```
//! use pgusher_sql::{Bounds, Cache, Effect, Key, Quick};
//!
//! let mut cache = Cache::new(Key::new(7, 11), Bounds::default());
//! assert_eq!(cache.judge(b"select lower(name) from people where id = 7", true).quick, Quick::PlainRead);
//!
//! let verdict = cache.judge(b"SET LOCAL search_path TO Sales, \"$user\"", true);
//! let Some(Ok(facts)) = &verdict.facts else { panic!("a SET needs facts") };
//! let Effect::Set(set) = &facts.statements()[0].effects[0] else { panic!("it sets") };
//! assert_eq!(set.replay(), "SET LOCAL search_path TO 'sales', '$user'");
//! ```
//!
//! What a function's body does is read by [`body`]. Not for: what names resolve to, what triggers and defaults do. That is the
//! relation cache's.

pub mod body;
mod cache;
mod depth;
mod facts;
mod fingerprint;
mod functions;
mod mentions;
mod outline;
mod quick;
mod scan;
mod words;

pub use cache::{Bounds, Cache, Counts, Verdict};
pub use facts::{
    Access, Argument, Copy, CopyEnd, Definition, Discard, Effect, Facts, Function, Inside, Isolation, Kind, Limits,
    Modes, Name, ObjectKind, OnCommit, Relation, Set, Statement, Temporary, Transaction, Unknown, Utility, Value, Verb,
    is_identifier_list,
};
pub use fingerprint::{Fingerprint, Key};
pub use functions::{LockSpan, SessionFunction, is_harmless};
pub use mentions::{Mention, Mentions};
pub use outline::{Outline, Part};
pub use quick::Quick;
pub use scan::{Scanner, Token, TokenKind, encoding_keeps_ascii_apart};
pub use words::Word;
