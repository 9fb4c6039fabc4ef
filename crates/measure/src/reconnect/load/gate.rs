//! Where clients wait for each other: the common start, and the number that may connect at the same time.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Releases all clients at the same moment.
#[derive(Default)]
pub(super) struct Start {
    signal: Mutex<Option<Signal>>,
    changed: Condvar,
}

#[derive(Clone, Copy)]
pub(super) enum Signal {
    Go(Instant),
    GoHome,
}

impl Start {
    pub(super) fn set(&self, signal: Signal) {
        *lock(&self.signal) = Some(signal);
        self.changed.notify_all();
    }

    pub(super) fn wait(&self) -> Option<Instant> {
        let guard =
            self.changed.wait_while(lock(&self.signal), |s| s.is_none()).unwrap_or_else(PoisonError::into_inner);
        match *guard {
            Some(Signal::Go(start)) => Some(start),
            Some(Signal::GoHome) | None => None,
        }
    }
}

/// Lets a number of clients connect at the same time.
pub(super) struct Turnstile {
    free: Mutex<u32>,
    changed: Condvar,
}

impl Turnstile {
    pub(super) fn new(places: u32) -> Self {
        Self { free: Mutex::new(places.max(1)), changed: Condvar::new() }
    }

    pub(super) fn enter(&self) -> Pass<'_> {
        let mut free =
            self.changed.wait_while(lock(&self.free), |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Pass(self)
    }
}

pub(super) struct Pass<'a>(&'a Turnstile);

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        *lock(&self.0.free) += 1;
        self.0.changed.notify_one();
    }
}

/// A panic of another client must not take this one along.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
