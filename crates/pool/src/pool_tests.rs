//! Who gets which seat, and who waits.

use super::*;

fn seat(worker: u8, slot: u32) -> Seat {
    Seat { worker: WorkerId(worker), slot, serial: slot }
}

#[test]
fn opens_up_to_the_limit_then_queues_in_order() {
    let pool = Pool::new(1, 2);
    assert!(matches!(pool.acquire(seat(0, 1), Micros(1)), Acquire::Open(_)));
    assert!(matches!(pool.acquire(seat(0, 2), Micros(2)), Acquire::Open(_)));
    assert!(matches!(pool.acquire(seat(0, 3), Micros(3)), Acquire::Wait(_)));
    let server = seat(0, 100);
    for (client, since) in [(1, 1), (2, 2), (3, 3)] {
        let given = if client < 3 { pool.opened(server, Micros(9)) } else { pool.release(server, Micros(9)) };
        assert_eq!(given, Release::Give { client: seat(0, client), since: Micros(since) });
    }
    assert_eq!(pool.release(server, Micros(10)), Release::Idle);
    assert_eq!(pool.acquire(seat(0, 4), Micros(11)), Acquire::Local(server));
    assert_eq!(pool.counts(), Counts { total: 2, opening: 0, idle: 0, waiting: 0 });
}

#[test]
fn keeps_some_ready_whether_or_not_anybody_waits() {
    let pool = Pool::new(2, 3);
    assert!(pool.ensure(2) && pool.ensure(2) && !pool.ensure(2));
    // Those that are on their way serve the clients that come meanwhile.
    assert!(matches!(pool.acquire(seat(0, 1), Micros(1)), Acquire::Wait(_)));
    assert_eq!(pool.opened(seat(0, 7), Micros(2)), Release::Give { client: seat(0, 1), since: Micros(1) });
    assert_eq!(pool.opened(seat(1, 8), Micros(2)), Release::Idle);
    assert_eq!(pool.release(seat(0, 7), Micros(3)), Release::Idle);
    assert_eq!(pool.counts(), Counts { total: 2, opening: 0, idle: 2, waiting: 0 });
    // All are old; one is kept.
    assert_eq!(pool.take_idle_above(1, WorkerId(0), Micros(99)), vec![seat(0, 7)]);
    assert_eq!(pool.closed(), Closed::Fine);
    assert_eq!(pool.take_idle_above(1, WorkerId(1), Micros(99)), vec![]);
    // Never more than the limit.
    assert!(pool.ensure(99) && pool.ensure(99) && !pool.ensure(99));
}

#[test]
fn scatters_clients_over_all_idle_connections() {
    let pool = Pool::scattering(2, 6, 7);
    for slot in 0..6 {
        assert!(pool.ensure(6));
        assert_eq!(pool.opened(seat((slot % 2) as u8, slot), Micros(u64::from(slot))), Release::Idle);
    }
    let mut used = std::collections::HashSet::new();
    let mut last = None;
    for time in 10..200 {
        let server = match pool.acquire(seat(0, 77), Micros(time)) {
            Acquire::Local(server) if server.worker == WorkerId(0) => server,
            Acquire::Remote(server) if server.worker == WorkerId(1) => server,
            other => panic!("{other:?}"),
        };
        assert_ne!(last, Some(server));
        used.insert(server);
        last = Some(server);
        pool.release(server, Micros(time));
    }
    assert_eq!(used.len(), 6);
    assert_eq!(pool.counts(), Counts { total: 6, opening: 0, idle: 6, waiting: 0 });
    // The only one there is.
    let pool = Pool::scattering(1, 1, 7);
    assert!(pool.ensure(1));
    pool.opened(seat(0, 1), Micros(1));
    assert_eq!(pool.acquire(seat(0, 2), Micros(2)), Acquire::Local(seat(0, 1)));
}

#[test]
fn a_postponed_attempt_leaves_the_queue_as_it_is() {
    let pool = Pool::new(1, 1);
    assert!(matches!(pool.acquire(seat(0, 1), Micros(1)), Acquire::Open(_)));
    pool.open_postponed();
    assert_eq!(pool.counts(), Counts { total: 0, opening: 0, idle: 0, waiting: 1 });
    assert_eq!(pool.reopen(), Closed::Open);
    assert_eq!(pool.open_failed(), vec![seat(0, 1)]);
}

#[test]
fn a_client_that_left_is_passed_over() {
    let pool = Pool::new(1, 1);
    let Acquire::Open(ticket) = pool.acquire(seat(0, 1), Micros(1)) else { panic!("opens") };
    assert!(matches!(pool.acquire(seat(0, 2), Micros(2)), Acquire::Wait(_)));
    assert!(pool.leave(seat(0, 1), ticket) && !pool.leave(seat(0, 1), ticket));
    assert_eq!(pool.opened(seat(0, 9), Micros(3)), Release::Give { client: seat(0, 2), since: Micros(2) });
    assert_eq!(pool.counts().waiting, 0);
}

#[test]
fn prefers_its_own_worker_unless_another_has_waited_longer() {
    let pool = Pool::new(2, 1);
    pool.acquire(seat(1, 1), Micros(0));
    pool.acquire(seat(0, 2), Micros(500));
    let server = seat(0, 9);
    assert_eq!(pool.opened(server, Micros(600)), Release::Give { client: seat(0, 2), since: Micros(500) });
    pool.acquire(seat(0, 3), Micros(1_700));
    assert_eq!(pool.release(server, Micros(1_800)), Release::Give { client: seat(1, 1), since: Micros(0) });
}

#[test]
fn an_idle_connection_of_another_worker_is_used() {
    let pool = Pool::new(2, 5);
    pool.acquire(seat(0, 1), Micros(0));
    let server = seat(0, 9);
    pool.opened(server, Micros(1));
    pool.release(server, Micros(2));
    assert_eq!(pool.acquire(seat(1, 2), Micros(3)), Acquire::Remote(server));
    assert!(!pool.closed_idle(server));
}

#[test]
fn a_closed_connection_is_replaced_while_somebody_waits() {
    let pool = Pool::new(1, 1);
    pool.acquire(seat(0, 1), Micros(0));
    pool.opened(seat(0, 9), Micros(1));
    pool.acquire(seat(0, 2), Micros(2));
    assert_eq!(pool.closed(), Closed::Open);
    assert_eq!(pool.open_failed(), vec![seat(0, 2)]);
    assert_eq!(pool.counts(), Counts::default());
}

#[test]
fn waits_too_long() {
    let pool = Pool::new(1, 0);
    pool.acquire(seat(0, 1), Micros(10));
    pool.acquire(seat(0, 2), Micros(20));
    assert_eq!(pool.expire(WorkerId(0), Micros(15)), vec![seat(0, 1)]);
    assert_eq!(pool.counts().waiting, 1);
}

#[test]
fn the_promised_connection_was_gone() {
    let pool = Pool::new(1, 1);
    pool.acquire(seat(0, 1), Micros(0));
    pool.opened(seat(0, 9), Micros(1));
    pool.acquire(seat(0, 2), Micros(2));
    pool.acquire_again(seat(0, 3), Micros(1));
    assert_eq!(pool.release(seat(0, 9), Micros(3)), Release::Give { client: seat(0, 3), since: Micros(1) });
}

#[test]
fn idle_connections_are_taken_oldest_first() {
    let pool = Pool::new(1, 3);
    for slot in 0..3 {
        pool.acquire(seat(0, slot), Micros(0));
    }
    for slot in 10..13 {
        pool.opened(seat(0, slot), Micros(1));
    }
    for slot in 10..13 {
        pool.release(seat(0, slot), Micros(u64::from(slot)));
    }
    assert_eq!(pool.take_idle(WorkerId(0), Micros(12)), vec![seat(0, 10), seat(0, 11)]);
    assert_eq!(pool.counts(), Counts { total: 3, opening: 0, idle: 1, waiting: 0 });
}

#[test]
fn who_would_rather_follow_does_not_wait() {
    let pool = Pool::new(2, 2);
    // There is room for another connection.
    assert!(matches!(pool.acquire_or_follow(seat(0, 1), Micros(1)), Some(Acquire::Open(_))));
    assert_eq!(pool.opened(seat(0, 100), Micros(2)), Release::Give { client: seat(0, 1), since: Micros(1) });
    assert!(matches!(pool.acquire(seat(0, 2), Micros(3)), Acquire::Open(_)));
    assert_eq!(pool.opened(seat(0, 101), Micros(4)), Release::Give { client: seat(0, 2), since: Micros(3) });
    // None is free, and nobody waits.
    assert_eq!(pool.acquire_or_follow(seat(0, 3), Micros(5)), None);
    assert_eq!((pool.counts().waiting, pool.head(WorkerId(0))), (0, None));
    // Somebody waits: no one passes.
    let Acquire::Wait(first) = pool.acquire(seat(1, 4), Micros(6)) else { panic!("it must wait") };
    let Some(Acquire::Wait(second)) = pool.acquire_or_follow(seat(0, 5), Micros(7)) else { panic!("it must wait") };
    // The one that has waited longest is another worker's.
    assert_eq!(pool.head(WorkerId(0)), None);
    assert_eq!(pool.head(WorkerId(1)), Some((seat(1, 4), first, Micros(6))));
    assert!(pool.leave(seat(1, 4), first));
    assert_eq!(pool.head(WorkerId(0)), Some((seat(0, 5), second, Micros(7))));
    // A free one is taken.
    assert!(pool.leave(seat(0, 5), second));
    assert_eq!(pool.release(seat(0, 100), Micros(8)), Release::Idle);
    assert_eq!(pool.acquire_or_follow(seat(0, 6), Micros(9)), Some(Acquire::Local(seat(0, 100))));
}

#[test]
fn one_that_is_taken_out_still_counts() {
    let pool = Pool::new(1, 2);
    assert!(pool.ensure(1));
    pool.opened(seat(0, 7), Micros(1));
    assert!(pool.take(seat(0, 7)) && !pool.take(seat(0, 7)));
    assert_eq!(pool.counts(), Counts { total: 1, opening: 0, idle: 0, waiting: 0 });
    assert_eq!(pool.release(seat(0, 7), Micros(2)), Release::Idle);
    assert_eq!(pool.acquire(seat(0, 1), Micros(3)), Acquire::Local(seat(0, 7)));
    assert!(!pool.take(seat(0, 7)));
}
