//! The few types that name things in a pool.

use std::time::Duration;

/// Microseconds since some fixed moment of a monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Micros(pub u64);

impl Micros {
    /// How long ago `earlier` was; zero if it lies ahead.
    #[inline]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// The moment `after` this one.
    #[inline]
    #[must_use]
    pub fn plus(self, after: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(after.as_micros()).unwrap_or(u64::MAX)))
    }
}

/// A worker thread, counted from zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerId(pub u8);

/// A connection at a worker. The serial number tells it from a later one in the same slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Seat {
    /// The worker that the connection belongs to.
    pub worker: WorkerId,
    /// Its place there.
    pub slot: u32,
    /// Counts the connections of that worker.
    pub serial: u32,
}

/// A place in the queue of a pool. Lower numbers were drawn earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);
