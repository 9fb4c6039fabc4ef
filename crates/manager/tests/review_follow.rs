//! What may go wrong around queries that follow others on one physical connection (`multiplex = "reads"`): a leader must not be
//! touched by what was sent behind it.

mod support;

use pgusher_manager::Manager;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};
use support::batch::begin;
use support::*;

const OF_T: &str = "select v from t where id = $1::int";
const OF_U: &str = "select v from u where id = $1::int";

fn multiplexing(workers: usize, pool: usize) -> Manager {
    manager_with(server(), "multiplex = \"reads\"", &overrides(workers, pool))
}

fn tables(name: &str) -> &str {
    let db = database(name);
    let sql = "create table t as select i as id, 'v' || i as v from generate_series(1, 1000) i; create index on t (id); \
               create table u as select * from t; create index on u (id); analyze";
    server().psql(db, sql).unwrap();
    db
}

fn ask(client: &mut Client, sql: &str, id: u64) {
    client.send(&begin().parse("", sql).bind_with("", &[&id.to_string()]).execute().sync().0);
}

/// Runs the statements until they count as quick, one client after the other and then beside each other.
fn warm(manager: &Manager, db: &str) {
    let end = Instant::now() + Duration::from_secs(20);
    let before = manager.followed();
    while manager.followed() < before + 20 {
        assert!(Instant::now() < end, "no query has followed another");
        std::thread::scope(|scope| {
            for id in 1..8 {
                scope.spawn(move || {
                    let mut client = Client::new(manager, db);
                    for _ in 0..20 {
                        for sql in [OF_T, OF_U] {
                            ask(&mut client, sql, id);
                            assert_eq!(client.reply().value(), format!("v{id}"));
                        }
                    }
                });
            }
        });
    }
}

/// Holds a table locked, past the manager, until the sender is dropped. It is locked when this returns.
fn locked<'scope>(scope: &'scope std::thread::Scope<'scope, '_>, db: &'scope str, table: &'scope str) -> Sender<()> {
    let (done, until) = channel::<()>();
    let (there, ready) = channel();
    scope.spawn(move || {
        let manager = manager(server(), 1, 1);
        let mut client = Client::new(&manager, db);
        assert_eq!(client.query(&format!("begin; lock table {table} in access exclusive mode")).state(), "");
        there.send(()).unwrap();
        let _ = until.recv();
        assert_eq!(client.query("commit").status, b'I');
    });
    ready.recv().unwrap();
    done
}

/// A leader whose query takes long has lost its follower, whose query goes on waiting on the leader's physical connection. Then the
/// leader is answered.
fn with_a_stray(db: &str, then: impl Fn(&Manager, &mut Client)) {
    let manager = &multiplexing(1, 3);
    for round in 0.. {
        assert!(round < 10, "no query has followed another");
        warm(manager, db);
        let mut held: Vec<Client> = (0..2).map(|_| Client::new(manager, db)).collect();
        for client in &mut held {
            assert_eq!(client.query("begin").status, b'T');
        }
        let (mut leader, mut follower) = (Client::new(manager, db), Client::new(manager, db));
        let followed = std::thread::scope(|scope| {
            let (t, u) = (locked(scope, db, "t"), locked(scope, db, "u"));
            let before = manager.followed();
            ask(&mut leader, OF_T, 1);
            ask(&mut follower, OF_U, 2);
            std::thread::sleep(Duration::from_millis(150));
            drop(t);
            assert_eq!(leader.reply().value(), "v1");
            // One of them is for the follower, who waits for the lock there.
            for client in &mut held {
                assert_eq!(client.query("commit").status, b'I');
            }
            let followed = manager.followed() > before;
            if followed {
                then(manager, &mut leader);
            }
            drop(u);
            assert_eq!(follower.reply().value(), "v2");
            followed
        });
        if followed {
            return;
        }
    }
}

#[test]
fn a_leader_does_not_wait_for_what_was_sent_behind_it() {
    let db = tables("review_follow_wait");
    with_a_stray(db, |_, leader| {
        for id in 3..6 {
            ask(leader, OF_T, id);
            // The lock is held until this is over: it would never come.
            assert!(!leader.is_silent(Duration::from_secs(5)), "the leader waits for a lock that it did not ask for");
            assert_eq!(leader.reply().value(), format!("v{id}"));
        }
    });
}

#[test]
fn a_late_cancel_request_of_a_leader_does_not_hit_its_next_statement() {
    let db = tables("review_follow_cancel");
    with_a_stray(db, |manager, leader| {
        // Its statement is over.
        cancel(manager, &leader.key.clone());
        leader.start("select 'next' from pg_sleep(0.3)");
        assert!(!leader.is_silent(Duration::from_secs(5)), "the leader waits for a lock that it did not ask for");
        assert_eq!(leader.reply().value(), "next");
    });
}

#[test]
fn what_was_sent_behind_a_leader_does_not_keep_its_connection_for_ever() {
    let db = tables("review_follow_kept");
    with_a_stray(db, |_, _| {
        // One waits for the lock as a client of its own.
        let waiting = "wait_event_type = 'Lock' and application_name = ''";
        eventually(Duration::from_secs(10), "the stray to end", || backends("review_follow_kept", waiting) <= 1);
    });
}

#[test]
fn a_statement_that_held_its_followers_up_is_not_quick() {
    let db = tables("review_follow_pace");
    let manager = &multiplexing(1, 1);
    for round in 0.. {
        assert!(round < 10, "no query has followed another");
        warm(manager, db);
        let (mut leader, mut follower) = (Client::new(manager, db), Client::new(manager, db));
        let before = manager.followed();
        std::thread::scope(|scope| {
            let t = locked(scope, db, "t");
            ask(&mut leader, OF_T, 1);
            ask(&mut follower, OF_U, 2);
            std::thread::sleep(Duration::from_millis(150));
            drop(t);
            assert_eq!(leader.reply().value(), "v1");
            assert_eq!(follower.reply().value(), "v2");
        });
        if manager.followed() == before {
            continue;
        }
        let before = manager.followed();
        for id in 1..7 {
            ask(&mut leader, OF_T, id);
            ask(&mut follower, OF_U, id);
            assert_eq!(leader.reply().value(), format!("v{id}"));
            assert_eq!(follower.reply().value(), format!("v{id}"));
        }
        assert_eq!(manager.followed(), before, "it follows one that takes long");
        return;
    }
}

#[test]
fn locks_cancels_and_ends_among_followers_disturb_nobody() {
    let db = tables("review_follow_chaos");
    with_one_and_two(|workers| {
        let manager = &multiplexing(workers, 2);
        warm(manager, db);
        let end = Instant::now() + Duration::from_secs(6);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while Instant::now() < end {
                    for table in ["t", "u"] {
                        let lock = locked(scope, db, table);
                        std::thread::sleep(Duration::from_millis(60));
                        drop(lock);
                        std::thread::sleep(Duration::from_millis(150));
                    }
                }
            });
            for thread in 1..=8u64 {
                scope.spawn(move || {
                    let mut client = Client::new(manager, db);
                    let mut round = thread;
                    while Instant::now() < end {
                        round += 7;
                        let (sql, id) = (if round % 3 == 0 { OF_U } else { OF_T }, 1 + round % 1000);
                        ask(&mut client, sql, id);
                        match round % 61 {
                            0 => {
                                client = Client::new(manager, db);
                                continue;
                            }
                            1 => cancel(manager, &client.key.clone()),
                            2 => std::thread::sleep(Duration::from_millis(3)),
                            _ => {}
                        }
                        let reply = client.reply();
                        let cancelled = round % 61 == 1 && reply.state() == "57014";
                        assert!(cancelled || reply.value() == format!("v{id}"), "{reply:?}");
                        if cancelled {
                            assert_eq!((reply.status, reply.values.len()), (b'I', 0));
                        }
                    }
                });
            }
        });
        eventually(Duration::from_secs(5), "its connections to be free", || {
            let mut clients: Vec<Client> = (0..2).map(|_| Client::new(manager, db)).collect();
            clients.iter_mut().all(|client| client.query("begin").status == b'T')
        });
    });
}

#[test]
fn a_drain_ends_leaders_and_followers() {
    let db = tables("review_follow_drain");
    for workers in [1, 2] {
        let manager = &multiplexing(workers, 2);
        warm(manager, db);
        std::thread::scope(|scope| {
            let clients: Vec<Client> = (0..8).map(|_| Client::new(manager, db)).collect();
            let lock = locked(scope, db, "t");
            let threads: Vec<_> = (1..=8u64)
                .zip(clients)
                .map(|(thread, mut client)| {
                    scope.spawn(move || {
                        loop {
                            ask(&mut client, if thread < 3 { OF_T } else { OF_U }, thread);
                            let reply = client.reply();
                            if reply.status == 0 {
                                return reply.state().to_owned();
                            }
                            assert_eq!(reply.value(), format!("v{thread}"));
                        }
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_millis(15));
            manager.drain();
            std::thread::sleep(Duration::from_millis(300));
            drop(lock);
            for thread in threads {
                assert_eq!(thread.join().unwrap(), "57P01");
            }
        });
    }
}

#[test]
fn a_table_that_changes_meanwhile_is_no_error_of_a_follower() {
    const ALL_OF_U: &str = "select * from u where id = $1::int";
    let db = tables("review_follow_ddl");
    let manager = &multiplexing(1, 3);
    let mut other = Client::new(manager, db);
    let mut clients: Vec<Client> = (0..4).map(|_| Client::new(manager, db)).collect();
    let mut followed = 0;
    for round in 0..4 {
        warm(manager, db);
        for _ in 0..10 {
            // Quick, and prepared on all connections.
            for client in &mut clients {
                ask(client, ALL_OF_U, 1);
            }
            for client in &mut clients {
                assert_eq!(client.reply().value(), "1");
            }
        }
        let [leader, follower, holder, ..] = &mut clients[..] else { unreachable!() };
        std::thread::scope(|scope| {
            let t = locked(scope, db, "t");
            assert_eq!(holder.query("begin").status, b'T');
            assert_eq!(other.query("begin").status, b'T');
            let before = manager.followed();
            ask(leader, OF_T, 1);
            ask(follower, ALL_OF_U, 2);
            other.start(&format!("alter table u add column c{round} int; commit"));
            std::thread::sleep(Duration::from_millis(7));
            drop(t);
            assert_eq!(leader.reply().value(), "v1");
            assert_eq!(other.reply().status, b'I');
            assert_eq!(holder.query("commit").status, b'I');
            assert_eq!(follower.reply().value(), "2");
            followed += manager.followed() - before;
        });
    }
    assert!(followed > 0);
}
