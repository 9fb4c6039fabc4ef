//! The bookkeeping of a round, against a door that is made of sleeps.

use super::*;
use std::sync::atomic::{AtomicU32, AtomicU64};

#[derive(Default)]
struct FakeDoor {
    connect_takes: Duration,
    transaction_takes: Duration,
    close_takes: Duration,
    /// Every so many connects fail.
    refuse_every: Option<u64>,
    /// Every so many transactions fail, and whether the connection breaks with it.
    fail_every: Option<(u64, bool)>,
    connects: AtomicU64,
    transactions: Arc<AtomicU64>,
    inside: AtomicU32,
    most_inside: AtomicU32,
}

struct FakeVisit {
    transaction_takes: Duration,
    close_takes: Duration,
    fail_every: Option<(u64, bool)>,
    transactions: Arc<AtomicU64>,
    broken: bool,
}

fn failure(step: Step) -> Failure {
    Failure { step, cause: "57P01".to_owned(), message: "ended".to_owned() }
}

impl Door for FakeDoor {
    type Visit = FakeVisit;

    fn connect(&self) -> Result<FakeVisit, Failure> {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_inside.fetch_max(inside, Ordering::SeqCst);
        thread::sleep(self.connect_takes);
        self.inside.fetch_sub(1, Ordering::SeqCst);
        let number = self.connects.fetch_add(1, Ordering::SeqCst) + 1;
        if self.refuse_every.is_some_and(|n| number % n == 0) {
            return Err(failure(Step::Connect));
        }
        Ok(FakeVisit {
            transaction_takes: self.transaction_takes,
            close_takes: self.close_takes,
            fail_every: self.fail_every,
            transactions: Arc::clone(&self.transactions),
            broken: false,
        })
    }
}

impl Visit for FakeVisit {
    fn transaction(&mut self, _: &Script, _: &mut Variables) -> Result<(), Failure> {
        assert!(!self.broken, "a broken connection is used again");
        thread::sleep(self.transaction_takes);
        let number = self.transactions.fetch_add(1, Ordering::SeqCst) + 1;
        match self.fail_every {
            Some((n, breaks)) if number % n == 0 => {
                self.broken = breaks;
                Err(failure(Step::Transaction))
            }
            _ => Ok(()),
        }
    }

    fn usable(&mut self) -> bool {
        !self.broken
    }

    fn close(self) -> Result<(), Failure> {
        thread::sleep(self.close_takes);
        Ok(())
    }
}

fn plan(mode: Mode, clients: u32, limit: Limit) -> Plan {
    Plan {
        clients,
        connecting_at_once: None,
        limit,
        mode,
        script: Script::parse("test", "select 1;", &[]).expect("well-formed"),
        seed: 1,
        progress_every: None,
        rate: None,
        latency_limit: None,
    }
}

fn go(door: FakeDoor, plan: &Plan) -> (Outcome, Arc<FakeDoor>) {
    let door = Arc::new(door);
    let outcome = run(&door, plan, &Arc::default(), |_| {}).expect("threads");
    (outcome, door)
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_connection_per_transaction() {
    let (outcome, door) = go(FakeDoor::default(), &plan(Mode::Reconnect, 3, Limit::Transactions(50)));
    let t = &outcome.tally;
    assert_eq!((t.connect.len(), t.transaction.len(), t.disconnect.len()), (150, 150, 150));
    assert_eq!(door.connects.load(Ordering::SeqCst), 150);
}

#[test]
fn a_connection_per_client() {
    let (outcome, _) = go(FakeDoor::default(), &plan(Mode::Static, 3, Limit::Transactions(50)));
    let t = &outcome.tally;
    assert_eq!((t.connect.len(), t.transaction.len(), t.disconnect.len()), (3, 150, 3));
}

#[test]
fn each_phase_gets_its_own_time() {
    let door =
        FakeDoor { connect_takes: 8 * MS, transaction_takes: 2 * MS, close_takes: 4 * MS, ..FakeDoor::default() };
    let (outcome, _) = go(door, &plan(Mode::Reconnect, 1, Limit::Transactions(10)));
    let median = |h: &Histogram| h.quantile(0.5) / 1e3;
    let t = &outcome.tally;
    assert!((8.0..12.0).contains(&median(&t.connect)), "{}", median(&t.connect));
    assert!((2.0..6.0).contains(&median(&t.transaction)), "{}", median(&t.transaction));
    assert!((4.0..8.0).contains(&median(&t.disconnect)), "{}", median(&t.disconnect));
    assert!(t.connecting >= 120 * MS && t.connecting + 20 * MS <= outcome.wall);
}

#[test]
fn one_clients_connect_does_not_stop_the_others() {
    let door = FakeDoor { connect_takes: 40 * MS, ..FakeDoor::default() };
    let (outcome, door) = go(door, &plan(Mode::Reconnect, 8, Limit::Transactions(1)));
    assert!(outcome.wall < 200 * MS, "{:?}", outcome.wall);
    assert!(door.most_inside.load(Ordering::SeqCst) > 1);
}

#[test]
fn the_turnstile_bounds_who_connects_and_its_wait_is_not_connect_time() {
    let mut plan = plan(Mode::Reconnect, 6, Limit::Transactions(1));
    plan.connecting_at_once = Some(2);
    let (outcome, door) = go(FakeDoor { connect_takes: 20 * MS, ..FakeDoor::default() }, &plan);
    assert!(door.most_inside.load(Ordering::SeqCst) <= 2);
    assert!(outcome.wall >= 60 * MS);
    assert!(outcome.tally.connect.quantile(0.5) < 40_000.0);
    // More than six connects of 20 ms: the wait is in it. How much more depends on when the threads start.
    assert!(outcome.tally.connecting >= 140 * MS, "{:?}", outcome.tally.connecting);
}

#[test]
fn failures_are_counted_and_the_rest_goes_on() {
    let door = FakeDoor { fail_every: Some((5, false)), ..FakeDoor::default() };
    let (outcome, door) = go(door, &plan(Mode::Static, 2, Limit::Transactions(50)));
    assert_eq!((outcome.tally.transaction.len(), outcome.failed(Step::Transaction)), (80, 20));
    assert_eq!(door.connects.load(Ordering::SeqCst), 2);
}

#[test]
fn a_broken_static_connection_is_replaced() {
    let door = FakeDoor { fail_every: Some((10, true)), ..FakeDoor::default() };
    let (outcome, door) = go(door, &plan(Mode::Static, 1, Limit::Transactions(35)));
    assert_eq!(outcome.failed(Step::Transaction), 3);
    assert_eq!(door.connects.load(Ordering::SeqCst), 4);
}

#[test]
fn refused_connections_are_counted_and_end_with_the_limit() {
    let door = FakeDoor { refuse_every: Some(1), ..FakeDoor::default() };
    let (outcome, _) = go(door, &plan(Mode::Reconnect, 2, Limit::Time(30 * MS)));
    assert!(outcome.failed(Step::Connect) >= 2);
    assert_eq!((outcome.tally.connect.len(), outcome.tally.transaction.len()), (0, 0));
    assert!(outcome.wall < 300 * MS, "{:?}", outcome.wall);
}

#[test]
fn it_ends_when_told_to_and_says_who_is_missing() {
    let door = Arc::new(FakeDoor { transaction_takes: Duration::from_secs(60), ..FakeDoor::default() });
    let stop = Arc::new(AtomicBool::new(true));
    let begun = Instant::now();
    // Nobody begins when it is stopped before the start.
    let outcome = run(&door, &plan(Mode::Static, 2, Limit::Transactions(5)), &stop, |_| {}).expect("threads");
    assert_eq!((outcome.missing, outcome.tally.transaction.len()), (0, 0));
    let stop = Arc::new(AtomicBool::new(false));
    let later = Arc::clone(&stop);
    thread::spawn(move || {
        thread::sleep(50 * MS);
        later.store(true, Ordering::Relaxed);
    });
    let outcome = run(&door, &plan(Mode::Static, 2, Limit::Transactions(5)), &stop, |_| {}).expect("threads");
    assert_eq!(outcome.missing, 2);
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn progress_comes_in_intervals() {
    let mut plan = plan(Mode::Static, 2, Limit::Time(400 * MS));
    plan.progress_every = Some(100 * MS);
    let door = Arc::new(FakeDoor { transaction_takes: 2 * MS, ..FakeDoor::default() });
    let mut seen = Vec::new();
    let outcome = run(&door, &plan, &Arc::default(), |i| seen.push(i)).expect("threads");
    assert!((1..=4).contains(&seen.len()), "{}", seen.len());
    let total: u64 = seen.iter().map(|i| i.transactions).sum();
    assert!(total > 0 && total <= outcome.tally.transaction.len());
    assert!(seen.iter().all(|i| i.transactions == 0 || (2000.0..50_000.0).contains(&i.mean_us)));
    assert!(seen[0].line().starts_with("progress: 0."), "{}", seen[0].line());
}

#[test]
fn an_open_loop_counts_from_the_moment_that_was_meant() {
    // One client at 200 a second, each of 20 ms: it can do 50 and falls behind more and more.
    let mut plan = plan(Mode::Static, 1, Limit::Transactions(20));
    plan.rate = Some(200.0);
    let (outcome, _) = go(FakeDoor { transaction_takes: 20 * MS, ..FakeDoor::default() }, &plan);
    let t = &outcome.tally;
    assert_eq!((t.transaction.len(), t.response.len(), t.lag.len()), (20, 20, 20));
    assert!(t.response.quantile(1.0) > 3.0 * t.transaction.quantile(0.5), "{}", t.response.quantile(1.0));
    assert!(t.lag.quantile(1.0) + 15_000.0 < t.response.quantile(1.0));
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let mut plan = plan(Mode::Reconnect, 8, Limit::Time(1000 * MS));
    plan.rate = Some(200.0);
    let (outcome, door) = go(FakeDoor::default(), &plan);
    let n = outcome.tally.transaction.len();
    // Poisson: 200 with a deviation of 14.
    assert!((130..=270).contains(&n), "{n}");
    assert_eq!(door.connects.load(Ordering::SeqCst), n);
    assert!(outcome.wall >= 500 * MS);
}

#[test]
fn what_is_later_than_the_limit_is_skipped_and_counted() {
    let mut plan = plan(Mode::Static, 1, Limit::Transactions(40));
    (plan.rate, plan.latency_limit) = (Some(1000.0), Some(30 * MS));
    let (outcome, _) = go(FakeDoor { transaction_takes: 20 * MS, ..FakeDoor::default() }, &plan);
    let t = &outcome.tally;
    assert_eq!(t.skipped + t.transaction.len(), 40);
    assert!(t.skipped > 10, "{}", t.skipped);
    assert!(t.late > 0 && t.late <= t.transaction.len());
}

#[test]
fn an_open_loop_can_be_stopped_while_it_waits() {
    let mut plan = plan(Mode::Static, 1, Limit::Transactions(5));
    plan.rate = Some(0.001);
    let stop = Arc::new(AtomicBool::new(false));
    let later = Arc::clone(&stop);
    thread::spawn(move || {
        thread::sleep(50 * MS);
        later.store(true, Ordering::Relaxed);
    });
    let outcome = run(&Arc::new(FakeDoor::default()), &plan, &stop, |_| {}).expect("threads");
    assert_eq!((outcome.missing, outcome.tally.transaction.len()), (0, 0));
    assert!(outcome.wall < Duration::from_secs(3));
}

#[test]
fn lines_of_progress_are_those_of_pgbench() {
    let interval = Interval {
        since_start: 5 * Duration::from_secs(1),
        length: Duration::from_secs(1),
        transactions: 1234,
        failed: 2,
        mean_us: 810.4,
        stddev_us: 55.0,
        lag_us: None,
        skipped: None,
    };
    assert_eq!(interval.line(), "progress: 5.0 s, 1234.0 tps, lat 0.810 ms stddev 0.055, 2 failed");
    let interval = Interval { lag_us: Some(1500.0), skipped: Some(3), ..interval };
    assert!(interval.line().ends_with(", 2 failed, lag 1.500 ms, 3 skipped"), "{}", interval.line());
}
