//! One thread of a round: begins its connections when the pace says so, and moves each on when its socket is ready.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use pgusher_client::Phase;

use super::pace::Pace;
use super::session::{Door, Session, State, Times, of_io};
use super::source::Sources;
use crate::failure::Failures;

/// What all threads of a round share.
pub(super) struct Plan<'a> {
    pub(super) door: Door<'a>,
    pub(super) clients: u32,
    pub(super) threads: u32,
    pub(super) pace: Pace,
    /// How long one connection may take.
    pub(super) timeout: Duration,
    pub(super) sources: Sources,
    pub(super) stop: &'a AtomicBool,
    /// Connections that are ready, for people who wait.
    pub(super) ready: AtomicU32,
}

/// What one thread did.
#[derive(Default)]
pub(super) struct Tally {
    /// Connections that are ready, in no order.
    pub(super) held: Vec<Session>,
    pub(super) failures: Failures,
    pub(super) failed: u32,
    /// connect() calls that found the backlog full and were made again.
    pub(super) retries: u64,
}

/// A full backlog is tried again after this, doubling up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(64);
/// How long an interruption may go unnoticed, and how late a time limit may strike.
const GRAIN: Duration = Duration::from_millis(50);
/// So many connections are begun before answers are looked at again.
const AT_ONCE: u32 = 64;
/// The event queue's resolution. Nearer moments are slept for.
const TICK: Duration = Duration::from_millis(1);
const READ_BUFFER: usize = 16 * 1024;

/// A connection whose connect() must be called again.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Again {
    at: Duration,
    slot: u32,
    times: u32,
    intended: Duration,
    begun: Duration,
}

pub(super) struct Worker<'a> {
    plan: &'a Plan<'a>,
    thread: u32,
    poll: Poll,
    start: Instant,
    /// By slot; a slot without a session has not begun, failed, or waits in `again`.
    sessions: Vec<Option<Session>>,
    /// Slots of sessions under way are found by their state here.
    waiting: Vec<bool>,
    in_flight: u32,
    next: u32,
    again: BinaryHeap<Reverse<Again>>,
    looked: Duration,
    buffer: Vec<u8>,
    tally: Tally,
}

impl<'a> Worker<'a> {
    pub(super) fn new(plan: &'a Plan<'a>, thread: u32, poll: Poll, start: Instant) -> Self {
        let slots = (plan.clients + plan.threads - 1 - thread) / plan.threads;
        let mut sessions = Vec::new();
        sessions.resize_with(slots as usize, || None);
        Self {
            plan,
            thread,
            poll,
            start,
            sessions,
            waiting: vec![false; slots as usize],
            in_flight: 0,
            next: 0,
            again: BinaryHeap::new(),
            looked: Duration::ZERO,
            buffer: vec![0; READ_BUFFER],
            tally: Tally::default(),
        }
    }

    /// Runs until each of its connections is ready or has failed, or the round is interrupted.
    pub(super) fn run(mut self) -> io::Result<Tally> {
        let mut events = Events::with_capacity(1024);
        while self.in_flight > 0 || (self.next as usize) < self.sessions.len() {
            if self.plan.stop.load(Ordering::Relaxed) {
                break;
            }
            self.begin_due();
            self.try_again();
            let wait = self.pause();
            match self.poll.poll(&mut events, Some(wait)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            for event in &events {
                self.advance(event.token().0);
            }
            self.expire();
        }
        self.tally.held = self.sessions.into_iter().flatten().filter(|s| s.times.ready.is_some()).collect();
        Ok(self.tally)
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// The place of a slot among all clients of the round.
    fn place(&self, slot: u32) -> u32 {
        self.thread + slot * self.plan.threads
    }

    fn intended(&self, slot: u32) -> Option<Duration> {
        self.plan.pace.intended(self.place(slot))
    }

    fn begin_due(&mut self) {
        let share = self.plan.pace.share(self.thread, self.plan.threads);
        for _ in 0..AT_ONCE {
            if self.next as usize >= self.sessions.len() || self.in_flight >= share {
                return;
            }
            let now = self.now();
            let intended = self.intended(self.next).unwrap_or(now);
            if intended > now {
                return;
            }
            let slot = self.next;
            self.next += 1;
            self.in_flight += 1;
            self.connect(Again { at: now, slot, times: 0, intended, begun: now });
        }
    }

    fn try_again(&mut self) {
        let now = self.now();
        while self.again.peek().is_some_and(|Reverse(again)| again.at <= now) {
            if let Some(Reverse(again)) = self.again.pop() {
                self.connect(again);
            }
        }
    }

    /// How long to wait for events: until something is to be done.
    fn pause(&self) -> Duration {
        let now = self.now();
        let room = self.in_flight < self.plan.pace.share(self.thread, self.plan.threads);
        let next = ((self.next as usize) < self.sessions.len() && room)
            .then(|| self.intended(self.next).unwrap_or(Duration::ZERO));
        let again = self.again.peek().map(|Reverse(again)| again.at);
        let due = next.into_iter().chain(again).min().map_or(GRAIN, |at| at.saturating_sub(now));
        if due > Duration::ZERO && due < TICK {
            // The event queue would round up.
            std::thread::sleep(due);
            return Duration::ZERO;
        }
        due.min(GRAIN)
    }

    fn connect(&mut self, again: Again) {
        let slot = again.slot;
        let times = Times { intended: again.intended, begun: again.begun, ..Times::default() };
        let failure = match self.open(slot) {
            Ok(socket) => match Session::new(&self.plan.door, socket, times) {
                Ok(session) => {
                    if let Some(place) = self.sessions.get_mut(slot as usize) {
                        *place = Some(session);
                    }
                    self.wait_for(slot, true);
                    return;
                }
                Err(failure) => failure,
            },
            Err(error) if self.is_passing(&error) && self.now() < again.begun + self.plan.timeout => {
                self.tally.retries += 1;
                let pause = FIRST_PAUSE.saturating_mul(1 << again.times.min(6)).min(LONGEST_PAUSE);
                self.again.push(Reverse(Again { at: self.now() + pause, times: again.times + 1, ..again }));
                return;
            }
            Err(error) => of_io(&self.plan.door, Phase::Connect, &error),
        };
        self.failed(failure);
    }

    /// A Unix socket whose backlog is full says "try again" where TCP waits by itself; and ports may be left elsewhere.
    fn is_passing(&self, error: &io::Error) -> bool {
        match error.kind() {
            io::ErrorKind::WouldBlock => true,
            io::ErrorKind::AddrNotAvailable => self.plan.sources.out_of_ports(),
            _ => false,
        }
    }

    fn open(&self, slot: u32) -> io::Result<socket2::Socket> {
        let (socket, address) = self.plan.door.destination.socket(self.plan.door.connector.config())?;
        self.plan.sources.bind(&socket, self.place(slot))?;
        match socket.connect(&address) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut SourceFd(&socket.as_raw_fd()), Token(slot as usize), interest)?;
        Ok(socket)
    }

    fn advance(&mut self, slot: usize) {
        if !self.waiting.get(slot).copied().unwrap_or(false) {
            // It is held, and an end by the server is found when it is said goodbye to.
            return;
        }
        let Some(Some(session)) = self.sessions.get_mut(slot) else { return };
        let start = self.start;
        let was_ready = session.times.ready.is_some();
        let result = session.advance(&self.plan.door, &mut self.buffer, &|| start.elapsed());
        if !was_ready && session.times.ready.is_some() {
            self.plan.ready.fetch_add(1, Ordering::Relaxed);
        }
        match result {
            Ok(State::Waiting) => {}
            Ok(State::Done) => {
                self.in_flight -= 1;
                self.wait_for(slot as u32, false);
            }
            Err(failure) => self.end(slot, failure),
        }
    }

    /// A session that failed is closed at once, unless it had become ready: a failed statement leaves a client.
    fn end(&mut self, slot: usize, failure: crate::failure::Failure) {
        self.wait_for(slot as u32, false);
        let ready = self.sessions.get(slot).and_then(Option::as_ref).is_some_and(|s| s.times.ready.is_some());
        if ready {
            self.in_flight -= 1;
            self.tally.failures.count(failure);
            return;
        }
        if let Some(session) = self.sessions.get_mut(slot) {
            *session = None;
        }
        self.failed(failure);
    }

    fn failed(&mut self, failure: crate::failure::Failure) {
        self.in_flight -= 1;
        self.tally.failed += 1;
        self.tally.failures.count(failure);
    }

    fn wait_for(&mut self, slot: u32, waiting: bool) {
        if let Some(place) = self.waiting.get_mut(slot as usize) {
            *place = waiting;
        }
    }

    /// Ends connections that take too long.
    fn expire(&mut self) {
        let now = self.now();
        if now < self.looked + GRAIN {
            return;
        }
        self.looked = now;
        for slot in 0..self.next as usize {
            if !self.waiting.get(slot).copied().unwrap_or(false) {
                continue;
            }
            let late = |s: &&Session| now >= s.times.begun + self.plan.timeout;
            let Some(session) = self.sessions.get(slot).and_then(Option::as_ref).filter(late) else { continue };
            let failure = session.timed_out(&self.plan.door, self.plan.timeout);
            self.end(slot, failure);
        }
    }
}
