//! The physical connections of one (database, user), the clients that wait for them, and the limits. No I/O, no clock.
//!
//! A [`Pool`] is shared by all worker threads: its limit and its order, first come first served, hold for the whole
//! process. It holds no connections itself, only where they are: each connection belongs to the worker that used it last,
//! and moves when a client of another worker has waited longer. Every operation takes one short lock; nothing is done
//! under it but moving a few numbers.
//!
//! The pool decides, the worker acts: each operation returns what must happen next.

mod pool;
mod types;

pub use pool::{Acquire, Closed, Counts, Pool, Release};
pub use types::{Micros, Seat, Ticket, WorkerId};
