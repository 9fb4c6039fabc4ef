//! The pool beside a model of everybody who uses it: several workers, clients that come, wait, leave and give back, and
//! connections that open, fail, close and idle.

use pgusher_pool::{Acquire, Closed, Counts, Micros, Pool, Release, Seat, Ticket, WorkerId};
use proptest::collection::vec;
use proptest::prelude::*;

/// So much longer may a client of another worker have waited than the one that is served.
const SLACK: u64 = 1_000;

#[allow(dead_code, reason = "the fields are printed when a case fails")]
#[derive(Debug, Clone)]
enum Step {
    Acquire(u8),
    /// The promised connection of another worker was closed meanwhile; the client asks again, some steps later.
    Lose(usize),
    AcquireAgain(usize),
    Release(usize),
    Close(usize),
    CloseIdle(usize),
    TakeIdle(u8, u64),
    Opened(usize, u8),
    OpenFails,
    Leave(usize),
    Expire(u8, u64),
    Pass(u64),
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    client: Seat,
    ticket: Ticket,
    since: Micros,
}

struct Model {
    pool: Pool,
    limit: usize,
    now: Micros,
    serial: u32,
    /// By worker, in the order in which they are to be served.
    queues: Vec<Vec<Waiting>>,
    using: Vec<(Seat, Seat)>,
    /// Clients whose promised connection is gone, and since when they have asked for one.
    lost: Vec<(Seat, Micros)>,
    idle: Vec<(Seat, Micros)>,
    opening: usize,
}

fn pick<T>(list: &[T], n: usize) -> Option<usize> {
    (!list.is_empty()).then(|| n % list.len())
}

impl Model {
    fn new(workers: usize, limit: usize) -> Self {
        Self {
            pool: Pool::new(workers, limit),
            limit,
            now: Micros(10_000),
            serial: 0,
            queues: vec![Vec::new(); workers],
            using: Vec::new(),
            lost: Vec::new(),
            idle: Vec::new(),
            opening: 0,
        }
    }

    fn seat(&mut self, worker: u8) -> Seat {
        self.serial += 1;
        Seat { worker: WorkerId(worker % self.queues.len() as u8), slot: self.serial, serial: self.serial }
    }

    fn waiting(&self) -> impl Iterator<Item = &Waiting> {
        self.queues.iter().flatten()
    }

    fn acquired(&mut self, client: Seat, since: Micros, acquire: Acquire, first: bool) {
        match acquire {
            Acquire::Local(server) | Acquire::Remote(server) => {
                assert_eq!(matches!(acquire, Acquire::Local(_)), server.worker == client.worker);
                assert!(first || self.waiting().next().is_none(), "clients that wait come first");
                let at = self.idle.iter().position(|i| i.0 == server).expect("it was idle");
                self.idle.remove(at);
                self.using.push((client, server));
            }
            Acquire::Open(ticket) | Acquire::Wait(ticket) => {
                assert!(self.idle.is_empty(), "waits although a connection is idle");
                let waiting = Waiting { client, ticket, since };
                let queue = &mut self.queues[usize::from(client.worker.0)];
                queue.insert(if first { 0 } else { queue.len() }, waiting);
                if matches!(acquire, Acquire::Open(_)) {
                    self.opening += 1;
                }
            }
        }
    }

    fn released(&mut self, server: Seat, release: Release) {
        match release {
            Release::Idle => {
                assert!(self.waiting().next().is_none(), "idle although somebody waits");
                self.idle.push((server, self.now));
            }
            Release::Give { client, since } => {
                let queue = &mut self.queues[usize::from(client.worker.0)];
                let head = queue.remove(0);
                assert_eq!((head.client, head.since), (client, since), "the first of its worker");
                // A client that asks again stands in front of some that have waited longer, so only heads are compared.
                for other in self.queues.iter().filter_map(|q| q.first()) {
                    assert!(since.0 <= other.since.0 + SLACK || other.client.worker == client.worker);
                }
                self.using.push((client, server));
            }
        }
    }

    fn closed(&mut self) {
        if self.pool.closed() == Closed::Open {
            self.opening += 1;
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Acquire(worker) => {
                let client = self.seat(worker);
                let acquire = self.pool.acquire(client, self.now);
                self.acquired(client, self.now, acquire, false);
            }
            Step::Lose(n) => {
                if let Some(n) = pick(&self.using, n) {
                    let (client, _) = self.using.remove(n);
                    self.lost.push((client, self.now));
                    self.closed();
                }
            }
            Step::AcquireAgain(n) => {
                if let Some(n) = pick(&self.lost, n) {
                    let (client, since) = self.lost.remove(n);
                    let acquire = self.pool.acquire_again(client, since);
                    self.acquired(client, since, acquire, true);
                }
            }
            Step::Release(n) => {
                if let Some(n) = pick(&self.using, n) {
                    let (client, mut server) = self.using.remove(n);
                    // A connection belongs to the worker that used it last.
                    server.worker = client.worker;
                    let release = self.pool.release(server, self.now);
                    self.released(server, release);
                }
            }
            Step::Close(n) => {
                if let Some(n) = pick(&self.using, n) {
                    self.using.remove(n);
                    self.closed();
                }
            }
            Step::CloseIdle(n) => {
                if let Some(n) = pick(&self.idle, n) {
                    let (server, _) = self.idle.remove(n);
                    assert!(self.pool.closed_idle(server));
                    assert!(!self.pool.closed_idle(server), "twice");
                }
            }
            Step::TakeIdle(worker, age) => {
                let worker = WorkerId(worker % self.queues.len() as u8);
                let deadline = Micros(self.now.0.saturating_sub(age));
                let taken = self.pool.take_idle(worker, deadline);
                let expected: Vec<Seat> =
                    self.idle.iter().filter(|(s, t)| s.worker == worker && *t < deadline).map(|i| i.0).collect();
                assert_eq!(taken, expected);
                self.idle.retain(|(s, _)| !taken.contains(s));
                for _ in taken {
                    self.closed();
                }
            }
            Step::Opened(_, worker) => {
                if self.opening > 0 {
                    self.opening -= 1;
                    let server = self.seat(worker);
                    let release = self.pool.opened(server, self.now);
                    self.released(server, release);
                }
            }
            Step::OpenFails => {
                if self.opening > 0 {
                    self.opening -= 1;
                    let mut refused = self.pool.open_failed();
                    let nothing_left = self.opening + self.using.len() + self.idle.len() == 0;
                    let mut expected = Vec::new();
                    if nothing_left {
                        expected.extend(self.queues.iter_mut().flat_map(|q| q.drain(..)).map(|w| w.client));
                    }
                    let order = |s: &Seat| (s.worker, s.slot);
                    expected.sort_by_key(order);
                    refused.sort_by_key(order);
                    assert_eq!(refused, expected, "refused only if nobody can be served, and then all");
                }
            }
            Step::Leave(n) => {
                let all: Vec<Waiting> = self.waiting().copied().collect();
                if let Some(n) = pick(&all, n) {
                    let Waiting { client, ticket, .. } = all[n];
                    assert!(self.pool.leave(client, ticket));
                    assert!(!self.pool.leave(client, ticket), "twice");
                    self.queues[usize::from(client.worker.0)].retain(|w| w.client != client);
                }
            }
            Step::Expire(worker, age) => {
                let index = usize::from(worker) % self.queues.len();
                let deadline = Micros(self.now.0.saturating_sub(age));
                let queue = &mut self.queues[index];
                let n = queue.iter().position(|w| w.since >= deadline).unwrap_or(queue.len());
                let expected: Vec<Seat> = queue.drain(..n).map(|w| w.client).collect();
                assert_eq!(self.pool.expire(WorkerId(index as u8), deadline), expected);
            }
            Step::Pass(time) => self.now = Micros(self.now.0 + time),
        }
        self.check();
    }

    fn check(&self) {
        let counts = Counts {
            total: self.opening + self.using.len() + self.idle.len(),
            opening: self.opening,
            idle: self.idle.len(),
            waiting: self.waiting().count(),
        };
        assert_eq!(self.pool.counts(), counts);
        assert!(counts.total <= self.limit && !self.pool.is_over_limit(), "{counts:?} over {}", self.limit);
        assert!(counts.idle == 0 || counts.waiting == 0, "somebody waits beside an idle connection");
    }

    /// Connections open, clients give back until nobody wants one: nobody may be left behind.
    fn end(&mut self) {
        while !self.lost.is_empty() {
            self.step(&Step::AcquireAgain(0));
        }
        let mut rounds = 0;
        while self.opening + self.using.len() > 0 {
            self.step(&Step::Pass(10));
            self.step(&Step::Opened(0, rounds as u8));
            self.step(&Step::Release(0));
            rounds += 1;
            assert!(rounds < 10_000, "does not come to an end");
        }
        if self.idle.is_empty() && self.opening == 0 && self.waiting().next().is_none() {
            return assert_eq!(self.pool.counts(), Counts::default());
        }
        assert_eq!(self.waiting().count(), 0, "left waiting with nothing under way");
        let idle = self.idle.len();
        assert_eq!(self.pool.counts(), Counts { total: idle, opening: 0, idle, waiting: 0 });
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => any::<u8>().prop_map(Step::Acquire),
        1 => any::<usize>().prop_map(Step::Lose),
        2 => any::<usize>().prop_map(Step::AcquireAgain),
        8 => any::<usize>().prop_map(Step::Release),
        1 => any::<usize>().prop_map(Step::Close),
        1 => any::<usize>().prop_map(Step::CloseIdle),
        1 => (any::<u8>(), 0u64..3_000).prop_map(|(w, age)| Step::TakeIdle(w, age)),
        4 => (any::<usize>(), any::<u8>()).prop_map(|(n, w)| Step::Opened(n, w)),
        1 => Just(Step::OpenFails),
        2 => any::<usize>().prop_map(Step::Leave),
        1 => (any::<u8>(), 500u64..5_000).prop_map(|(w, age)| Step::Expire(w, age)),
        5 => (0u64..1_500).prop_map(Step::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_pool_agrees_with_the_model(workers in 1usize..5, limit in 1usize..6, steps in vec(step(), 0..150)) {
        let mut model = Model::new(workers, limit);
        for step in &steps {
            model.step(step);
        }
        model.end();
    }
}
