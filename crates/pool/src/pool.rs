//! One pool: idle connections by worker, the queue, the limit.

use crate::types::{Micros, Seat, Ticket, WorkerId};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A connection that becomes free goes to a waiting client of its own worker, unless a client of another worker has waited
/// longer by more than this. Moving a connection costs some system calls and a wake-up; a strict order would move every
/// other one when a pool is saturated, for a difference that nobody can see.
const HOME_ADVANTAGE: Duration = Duration::from_millis(1);

/// What a client that asks for a physical connection gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acquire {
    /// An idle connection of the client's own worker.
    Local(Seat),
    /// An idle connection of another worker, who must be asked to hand it over.
    Remote(Seat),
    /// None is free. The client waits with this ticket, and the worker opens one more connection.
    Open(Ticket),
    /// None is free and no more may be opened. The client waits with this ticket.
    Wait(Ticket),
}

/// What happens to a connection that has become free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// It is idle.
    Idle,
    /// It goes to this client, which has waited since then.
    Give {
        /// The client.
        client: Seat,
        /// When it began to wait.
        since: Micros,
    },
}

/// What happens after a connection has been closed, or could not be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// Nothing.
    Fine,
    /// Clients wait and there is room: open a connection in its place.
    Open,
}

/// How a pool stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Connections that exist or are being opened.
    pub total: usize,
    /// Those that are being opened.
    pub opening: usize,
    /// Those that nobody uses.
    pub idle: usize,
    /// Clients that wait.
    pub waiting: usize,
}

#[derive(Debug, Clone, Copy)]
struct Idle {
    seat: Seat,
    since: Micros,
}

#[derive(Debug, Clone, Copy)]
struct Waiter {
    ticket: Ticket,
    since: Micros,
    /// `None` once the client has left the queue.
    client: Option<Seat>,
}

#[derive(Debug, Default)]
struct Home {
    /// The most recently used one last, so that a few connections stay busy and the others can be closed.
    idle: Vec<Idle>,
    /// In order of tickets.
    waiting: VecDeque<Waiter>,
}

impl Home {
    /// The client that has waited longest, of those that still wait.
    fn head(&mut self) -> Option<Waiter> {
        while let Some(waiter) = self.waiting.front() {
            if waiter.client.is_some() {
                return Some(*waiter);
            }
            self.waiting.pop_front();
        }
        None
    }
}

#[derive(Debug)]
struct Inner {
    homes: Vec<Home>,
    limit: usize,
    total: usize,
    opening: usize,
    idle: usize,
    waiting: usize,
    next_ticket: u64,
    /// Idle connections are taken at random, drawn from this; `None`: the one that was used last.
    scatter: Option<Scatter>,
}

/// A sequence of numbers that looks random: a counter, mixed (SplitMix64, Steele, Lea and Flood 2014).
#[derive(Debug)]
struct Scatter(u64);

impl Scatter {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// The physical connections of one (database, user).
#[derive(Debug)]
pub struct Pool {
    inner: Mutex<Inner>,
}

impl Pool {
    /// An empty pool for `workers` worker threads, with at most `limit` connections.
    pub fn new(workers: usize, limit: usize) -> Self {
        Self::build(workers, limit, None)
    }

    /// As [`new`](Self::new), but each client that asks gets any idle connection, of any worker, chosen at random; never the
    /// one that became free last, as long as there is another. For tests of what must not depend on the connection.
    pub fn scattering(workers: usize, limit: usize, seed: u64) -> Self {
        Self::build(workers, limit, Some(Scatter(seed)))
    }

    fn build(workers: usize, limit: usize, scatter: Option<Scatter>) -> Self {
        let homes = std::iter::repeat_with(Home::default).take(workers).collect();
        let inner = Inner { homes, limit, total: 0, opening: 0, idle: 0, waiting: 0, next_ticket: 0, scatter };
        Self { inner: Mutex::new(inner) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client asks for a connection. Clients that wait already come first.
    pub fn acquire(&self, client: Seat, now: Micros) -> Acquire {
        let mut inner = self.lock();
        if inner.waiting == 0 {
            if let Some(taken) = inner.take(client.worker) {
                return taken;
            }
        }
        let ticket = Ticket(inner.next_ticket);
        inner.next_ticket += 1;
        inner.enqueue(client.worker, Waiter { ticket, since: now, client: Some(client) });
        if inner.may_open() { Acquire::Open(ticket) } else { Acquire::Wait(ticket) }
    }

    /// As [`acquire`](Self::acquire), for a client that would rather follow another one on its connection than wait. `None`: it
    /// would have to wait, and nobody else does; the client is not in the queue.
    pub fn acquire_or_follow(&self, client: Seat, now: Micros) -> Option<Acquire> {
        let mut inner = self.lock();
        if inner.waiting == 0 {
            if let Some(taken) = inner.take(client.worker) {
                return Some(taken);
            }
            if inner.total >= inner.limit {
                return None;
            }
        }
        drop(inner);
        Some(self.acquire(client, now))
    }

    /// A client that was promised a connection did not get it, because the connection was closed meanwhile: it gets an idle
    /// one, or waits again, in front of all others of its worker.
    pub fn acquire_again(&self, client: Seat, since: Micros) -> Acquire {
        let mut inner = self.lock();
        // Another connection may have become idle meanwhile. Nobody would ever give it to a client that waits beside it.
        if let Some(taken) = inner.take(client.worker) {
            return taken;
        }
        // Tickets only order the queue of one worker; a ticket that was drawn twice at its front does no harm.
        let ticket = inner.home(client.worker).waiting.front().map_or(Ticket(u64::MAX / 2), |w| w.ticket);
        let ticket = if ticket.0 == u64::MAX / 2 {
            inner.next_ticket += 1;
            Ticket(inner.next_ticket - 1)
        } else {
            ticket
        };
        inner.waiting += 1;
        inner.home(client.worker).waiting.push_front(Waiter { ticket, since, client: Some(client) });
        if inner.may_open() { Acquire::Open(ticket) } else { Acquire::Wait(ticket) }
    }

    /// The client of `worker` that has waited longest, and since when, if nobody of another worker has waited longer.
    pub fn head(&self, worker: WorkerId) -> Option<(Seat, Ticket, Micros)> {
        let mut inner = self.lock();
        if inner.waiting == 0 {
            return None;
        }
        let head = inner.home(worker).head()?;
        let others = inner.homes.iter_mut().filter_map(Home::head).any(|other| other.since < head.since);
        if others { None } else { head.client.map(|client| (client, head.ticket, head.since)) }
    }

    /// A client leaves the queue. `false` if it is not in it: it has been given a connection already.
    pub fn leave(&self, client: Seat, ticket: Ticket) -> bool {
        let mut inner = self.lock();
        let waiting = &mut inner.home(client.worker).waiting;
        let first = waiting.partition_point(|w| w.ticket < ticket);
        let found = waiting
            .iter_mut()
            .skip(first)
            .take_while(|w| w.ticket == ticket)
            .find(|w| w.client == Some(client))
            .is_some_and(|w| w.client.take().is_some());
        if found {
            inner.waiting -= 1;
        }
        found
    }

    /// The clients of `worker` that have waited since before `deadline`. They leave the queue.
    pub fn expire(&self, worker: WorkerId, deadline: Micros) -> Vec<Seat> {
        let mut inner = self.lock();
        let mut expired = Vec::new();
        while let Some(head) = inner.home(worker).head().filter(|w| w.since < deadline) {
            inner.home(worker).waiting.pop_front();
            inner.waiting -= 1;
            expired.extend(head.client);
        }
        expired
    }

    /// A connection has become free. It belongs to the worker in its seat.
    pub fn release(&self, server: Seat, now: Micros) -> Release {
        self.lock().release(server, now)
    }

    /// A connection that [`Acquire::Open`] or [`Closed::Open`] asked for is ready.
    pub fn opened(&self, server: Seat, now: Micros) -> Release {
        let mut inner = self.lock();
        inner.opening = inner.opening.saturating_sub(1);
        inner.release(server, now)
    }

    /// A connection that was in use has been closed.
    pub fn closed(&self) -> Closed {
        let mut inner = self.lock();
        inner.total = inner.total.saturating_sub(1);
        inner.replace()
    }

    /// Clients may wait although there is room, because a connection could not be opened: try again.
    pub fn reopen(&self) -> Closed {
        self.lock().replace()
    }

    /// An idle connection has been closed. `false` if it is not idle here: it has been promised to somebody, and the worker
    /// learns of that by a message.
    pub fn closed_idle(&self, server: Seat) -> bool {
        let mut inner = self.lock();
        let idle = &mut inner.home(server.worker).idle;
        let Some(at) = idle.iter().rposition(|i| i.seat == server) else {
            return false;
        };
        idle.remove(at);
        inner.idle -= 1;
        inner.total = inner.total.saturating_sub(1);
        true
    }

    /// A connection could not be opened. If there is no other one, nor one on its way, nobody can be served: the clients
    /// that wait are returned, and leave the queue.
    pub fn open_failed(&self) -> Vec<Seat> {
        let mut inner = self.lock();
        inner.opening = inner.opening.saturating_sub(1);
        inner.total = inner.total.saturating_sub(1);
        if inner.total > 0 {
            return Vec::new();
        }
        inner.waiting = 0;
        inner.homes.iter_mut().flat_map(|h| h.waiting.drain(..)).filter_map(|w| w.client).collect()
    }

    /// A connection could not be opened, and another attempt follows soon ([`reopen`](Self::reopen)): the clients that wait
    /// go on waiting.
    pub fn open_postponed(&self) {
        let mut inner = self.lock();
        inner.opening = inner.opening.saturating_sub(1);
        inner.total = inner.total.saturating_sub(1);
    }

    /// Reserves room for one more connection if there are fewer than `wanted`, whether or not somebody waits for it. On
    /// `true` the caller opens it and says [`opened`](Self::opened) or [`open_failed`](Self::open_failed).
    pub fn ensure(&self, wanted: usize) -> bool {
        let mut inner = self.lock();
        let room = inner.total < wanted.min(inner.limit);
        if room {
            inner.total += 1;
            inner.opening += 1;
        }
        room
    }

    /// The idle connections of `worker` that have been idle since before `deadline`. They are no longer idle and still
    /// count until [`closed`](Self::closed).
    pub fn take_idle(&self, worker: WorkerId, deadline: Micros) -> Vec<Seat> {
        self.take_idle_above(0, worker, deadline)
    }

    /// As [`take_idle`](Self::take_idle), but `keep` connections of all workers together are left.
    pub fn take_idle_above(&self, keep: usize, worker: WorkerId, deadline: Micros) -> Vec<Seat> {
        let mut inner = self.lock();
        let spare = inner.total.saturating_sub(keep);
        let idle = &mut inner.home(worker).idle;
        let n = idle.iter().position(|i| i.since >= deadline).unwrap_or(idle.len()).min(spare);
        let taken: Vec<Seat> = idle.drain(..n).map(|i| i.seat).collect();
        inner.idle -= taken.len();
        taken
    }

    /// Takes an idle connection out, which counts until [`closed`](Self::closed). `false` if it is not idle here any more.
    pub fn take(&self, server: Seat) -> bool {
        let mut inner = self.lock();
        let idle = &mut inner.home(server.worker).idle;
        let Some(at) = idle.iter().rposition(|i| i.seat == server) else {
            return false;
        };
        idle.remove(at);
        inner.idle -= 1;
        true
    }

    /// Changes the limit. Connections above it are closed as they become free.
    pub fn set_limit(&self, limit: usize) {
        self.lock().limit = limit;
    }

    /// Are there more connections than the limit allows?
    pub fn is_over_limit(&self) -> bool {
        let inner = self.lock();
        inner.total > inner.limit
    }

    /// How the pool stands.
    pub fn counts(&self) -> Counts {
        let inner = self.lock();
        Counts { total: inner.total, opening: inner.opening, idle: inner.idle, waiting: inner.waiting }
    }
}

impl Inner {
    fn home(&mut self, worker: WorkerId) -> &mut Home {
        let index = usize::from(worker.0);
        if index >= self.homes.len() {
            self.homes.resize_with(index + 1, Home::default);
        }
        &mut self.homes[index]
    }

    /// An idle connection for a client of `worker`, of its own worker if there is one.
    fn take(&mut self, worker: WorkerId) -> Option<Acquire> {
        if self.idle == 0 {
            return None;
        }
        if self.scatter.is_some() {
            return self.take_any(worker);
        }
        let taken = match self.home(worker).idle.pop() {
            Some(idle) => Acquire::Local(idle.seat),
            None => Acquire::Remote(self.homes.iter_mut().find_map(|h| h.idle.pop())?.seat),
        };
        self.idle -= 1;
        Some(taken)
    }

    /// Any idle connection but the one that became free last, if there is a choice.
    #[cold]
    fn take_any(&mut self, worker: WorkerId) -> Option<Acquire> {
        let mut places: Vec<(Micros, usize, usize)> = Vec::with_capacity(self.idle);
        for (home, idle) in self.homes.iter().map(|h| &h.idle).enumerate() {
            places.extend(idle.iter().enumerate().map(|(at, i)| (i.since, home, at)));
        }
        let newest = (0..places.len()).max_by_key(|i| places.get(*i))?;
        if places.len() > 1 {
            places.swap_remove(newest);
        }
        let drawn = self.scatter.as_mut()?.next() % u64::try_from(places.len()).ok()?;
        let (_, home, at) = *places.get(usize::try_from(drawn).ok()?)?;
        let seat = self.homes.get_mut(home)?.idle.remove(at).seat;
        self.idle -= 1;
        Some(if seat.worker == worker { Acquire::Local(seat) } else { Acquire::Remote(seat) })
    }

    fn enqueue(&mut self, worker: WorkerId, waiter: Waiter) {
        self.waiting += 1;
        self.home(worker).waiting.push_back(waiter);
    }

    /// Reserves room for one more connection. Never more are opened than clients wait.
    fn may_open(&mut self) -> bool {
        let may = self.total < self.limit && self.opening < self.waiting;
        if may {
            self.total += 1;
            self.opening += 1;
        }
        may
    }

    fn replace(&mut self) -> Closed {
        if self.may_open() { Closed::Open } else { Closed::Fine }
    }

    fn release(&mut self, server: Seat, now: Micros) -> Release {
        if self.waiting == 0 {
            self.idle += 1;
            self.home(server.worker).idle.push(Idle { seat: server, since: now });
            return Release::Idle;
        }
        let own = usize::from(server.worker.0);
        let mut best: Option<(usize, Waiter)> = None;
        for index in 0..self.homes.len() {
            let Some(head) = self.homes[index].head() else {
                continue;
            };
            let since = if index == own { head.since } else { head.since.plus(HOME_ADVANTAGE) };
            let longer = best.is_none_or(|(i, b)| {
                let best_since = if i == own { b.since } else { b.since.plus(HOME_ADVANTAGE) };
                (since, index != own) < (best_since, i != own)
            });
            if longer {
                best = Some((index, head));
            }
        }
        match best {
            Some((index, Waiter { client: Some(client), since, .. })) => {
                self.homes[index].waiting.pop_front();
                self.waiting -= 1;
                Release::Give { client, since }
            }
            _ => {
                // The count and the queues disagree; count anew rather than lose the connection.
                self.waiting = self.homes.iter().map(|h| h.waiting.iter().filter(|w| w.client.is_some()).count()).sum();
                self.idle += 1;
                self.home(server.worker).idle.push(Idle { seat: server, since: now });
                Release::Idle
            }
        }
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
