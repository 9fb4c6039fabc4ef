//! Queries that follow others on one physical connection (`multiplex = "reads"`): each client gets its own replies, whatever happens
//! to those around it.

mod support;

use pgusher_manager::Manager;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::batch::begin;
use support::*;

fn multiplexing(workers: usize, pool: usize) -> Manager {
    manager_with(server(), "multiplex = \"reads\"", &overrides(workers, pool))
}

fn tables(name: &str) -> &str {
    let db = database(name);
    let sql = "create table t as select i as id, 'v' || i as v from generate_series(1, 1000) i; create index on t (id); \
               create table u as select * from t; create index on u (id); analyze; create table log (n int)";
    server().psql(db, sql).unwrap();
    db
}

/// A number that looks random, below `limit`.
fn draw(state: &mut u64, limit: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % limit
}

const OF_T: &str = "select v from t where id = $1::int";
const OF_U: &str = "select v from u where id = $1::int";

fn ask(client: &mut Client, sql: &str, id: u64) {
    client.send(&begin().parse("", sql).bind_with("", &[&id.to_string()]).execute().sync().0);
}

/// Runs the statements until they count as quick, beside each other.
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

#[test]
fn each_gets_its_own_replies() {
    let db = tables("follow_own");
    with_one_and_two(|workers| {
        let manager = &multiplexing(workers, 2 * workers);
        warm(manager, db);
        let followed = manager.followed();
        std::thread::scope(|scope| {
            for thread in 1..=10u64 {
                scope.spawn(move || {
                    let mut state = thread * 7919;
                    let mut client = Client::new(manager, db);
                    assert_eq!(begin().parse("named", OF_U).sync().run(&mut client).tags, "1Z");
                    for round in 0..400u64 {
                        let id = 1 + draw(&mut state, 1000);
                        let value = id.to_string();
                        match draw(&mut state, 20) {
                            0 => {
                                let sql = "select 1 / $1::int";
                                let batch = begin().parse("", sql).bind_with("", &["0"]).execute().sync();
                                assert_eq!(batch.run(&mut client).state(), "22012");
                            }
                            1 => {
                                assert_eq!(client.query("begin").status, b'T');
                                let batch = begin().parse("", OF_T).bind_with("", &[&value]).execute().sync();
                                let reply = batch.run(&mut client);
                                assert_eq!((reply.value(), reply.status), (&*format!("v{id}"), b'T'));
                                assert_eq!(client.query("commit").status, b'I');
                            }
                            2 => {
                                // Two batches at once.
                                let batch = begin().parse("", OF_T).bind_with("", &[&value]).execute().sync();
                                let batch = batch.bind_with("named", &["7"]).execute().sync();
                                client.send(&batch.0);
                                assert_eq!(client.reply().value(), format!("v{id}"));
                                assert_eq!(client.reply().value(), "v7");
                            }
                            3 if round % 4 == 0 => {
                                // It leaves without waiting for its reply.
                                ask(&mut client, OF_T, id);
                                client = Client::new(manager, db);
                                assert_eq!(begin().parse("named", OF_U).sync().run(&mut client).tags, "1Z");
                            }
                            4 => {
                                // In two pieces, and the second one late.
                                let bytes = begin().parse("", OF_T).bind_with("", &[&value]).execute().sync().0;
                                let (a, b) = bytes.split_at(draw(&mut state, bytes.len() as u64) as usize);
                                client.send(a);
                                std::thread::sleep(Duration::from_millis(1));
                                client.send(b);
                                let reply = client.reply();
                                assert_eq!((reply.value(), &*reply.tags), (&*format!("v{id}"), "12DCZ"));
                            }
                            5 if thread == 3 => {
                                assert_eq!(client.query("set work_mem = '5MB'").state(), "");
                            }
                            6 => {
                                assert_eq!(client.query(&format!("insert into log values ({round})")).state(), "");
                            }
                            7..12 => {
                                let reply = begin().bind_with("named", &[&value]).execute().sync().run(&mut client);
                                assert_eq!((reply.value(), &*reply.tags), (&*format!("v{id}"), "2DCZ"));
                            }
                            12..14 => {
                                // The next batch is there before the reply to the first.
                                ask(&mut client, OF_T, id);
                                ask(&mut client, OF_U, 5);
                                assert_eq!(client.reply().value(), format!("v{id}"));
                                assert_eq!(client.reply().value(), "v5");
                            }
                            _ => {
                                ask(&mut client, OF_T, id);
                                let reply = client.reply();
                                assert_eq!((reply.value(), &*reply.tags), (&*format!("v{id}"), "12DCZ"));
                            }
                        }
                    }
                    if thread == 3 {
                        assert_eq!(client.query("show work_mem").value(), "5MB");
                    }
                });
            }
        });
        assert!(manager.followed() > followed + 100, "{} then {}", followed, manager.followed());
    });
}

#[test]
fn a_leader_that_is_held_up_holds_nobody_up() {
    let db = tables("follow_held");
    with_one_and_two(|workers| {
        let manager = multiplexing(workers, 2);
        warm(&manager, db);
        for _ in 0..5 {
            let mut clients: Vec<Client> = (0..6).map(|_| Client::new(&manager, db)).collect();
            let mut other = Client::new(&manager, db);
            other.query("begin");
            other.query("select 1");
            // Past the manager.
            let lock = "begin; lock table t in access exclusive mode; select pg_sleep(0.7); commit";
            std::thread::scope(|scope| {
                scope.spawn(|| server().psql(db, lock).unwrap());
                std::thread::sleep(Duration::from_millis(200));
                let (leader, followers) = clients.split_first_mut().unwrap();
                ask(leader, OF_T, 1);
                for (follower, id) in followers.iter_mut().zip(10..) {
                    ask(follower, OF_U, id);
                }
                std::thread::sleep(Duration::from_millis(50));
                assert_eq!(other.query("commit").state(), "");
                for (follower, id) in followers.iter_mut().zip(10..) {
                    assert_eq!(follower.reply().value(), format!("v{id}"));
                }
                assert_eq!(leader.reply().value(), "v1");
                for (client, id) in clients.iter_mut().zip(20..) {
                    ask(client, OF_U, id);
                    assert_eq!(client.reply().value(), format!("v{id}"));
                }
            });
        }
    });
}

#[test]
fn a_cancel_request_hits_nobody_else() {
    let db = tables("follow_cancel");
    with_one_and_two(|workers| {
        let manager = &multiplexing(workers, workers);
        warm(manager, db);
        let stop = &AtomicBool::new(false);
        let cancelled = &AtomicU64::new(0);
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..=4u64)
                .map(|thread| {
                    scope.spawn(move || {
                        let mut client = Client::new(manager, db);
                        let mut rounds = 0u64;
                        while !stop.load(Ordering::Relaxed) {
                            ask(&mut client, OF_T, thread);
                            assert_eq!(client.reply().value(), format!("v{thread}"));
                            rounds += 1;
                        }
                        rounds
                    })
                })
                .collect();
            let hit: Vec<_> = (11..=13u64)
                .map(|thread| {
                    scope.spawn(move || {
                        let mut client = Client::new(manager, db);
                        let key = client.key.clone();
                        for round in 0..60 {
                            ask(&mut client, OF_U, thread);
                            if round % 3 > 0 {
                                std::thread::sleep(Duration::from_micros(round * 20));
                            }
                            cancel(manager, &key);
                            let reply = client.reply();
                            assert!(reply.state() == "57014" || reply.value() == format!("v{thread}"), "{reply:?}");
                            cancelled.fetch_add(u64::from(reply.state() == "57014"), Ordering::Relaxed);
                            // The request was for a statement that is over: it does not hit the next one.
                            ask(&mut client, OF_U, thread + 1);
                            let reply = client.reply();
                            assert_eq!(reply.value(), format!("v{}", thread + 1));
                        }
                    })
                })
                .collect();
            for thread in hit {
                thread.join().unwrap();
            }
            stop.store(true, Ordering::Relaxed);
            for thread in others {
                assert!(thread.join().unwrap() > 10);
            }
        });
        assert!(cancelled.load(Ordering::Relaxed) > 0);
    });
}

#[test]
fn followers_outlive_the_connection_of_their_leader() {
    let db = tables("follow_death");
    // One after the other: each ends all connections to the database.
    for workers in [1, 2] {
        let manager = &multiplexing(workers, 2);
        warm(manager, db);
        let stop = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (1..=8u64)
                .map(|thread| {
                    scope.spawn(move || {
                        let (mut lost, mut rounds) = (0u64, 0u64);
                        let mut client = Client::new(manager, db);
                        while !stop.load(Ordering::Relaxed) {
                            ask(&mut client, OF_T, thread);
                            let reply = client.reply();
                            rounds += 1;
                            if reply.status == 0 {
                                assert!(matches!(reply.state(), "57P01" | "08006"), "{reply:?}");
                                lost += 1;
                                client = Client::new(manager, db);
                            } else {
                                assert_eq!(reply.value(), format!("v{thread}"));
                            }
                        }
                        (lost, rounds)
                    })
                })
                .collect();
            let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                       where application_name = '' and datname = 'follow_death' and backend_type = 'client backend'";
            for _ in 0..20 {
                std::thread::sleep(Duration::from_millis(60));
                server().psql("postgres", end).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
            let (lost, rounds) =
                threads.into_iter().map(|t| t.join().unwrap()).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
            assert!(rounds > 500, "{rounds}");
            // Each end of a connection is seen by its client, and by none of those behind it.
            assert!(lost <= 20 * 2, "{lost} of {rounds}");
        });
    }
}

#[test]
fn what_may_write_is_never_sent_behind_another() {
    let db = tables("follow_writes");
    let sql = "create function noted(i int) returns int language plpgsql volatile as \
               'begin insert into log values (i); return i; end'; \
               create view w as select noted(1) as n; create table x (n int); insert into x values (1); \
               create sequence numbers; create view drawn as select nextval('numbers') as n; \
               create view fetched as select * from drawn";
    server().psql(db, sql).unwrap();
    let manager = &multiplexing(1, 1);
    let statements = [
        "select n from w where $1::int > 0",
        "select noted($1::int)",
        "select n from x where $1::int > 0 for update",
        "select n / n from drawn where $1::int > 0",
        "select n / n from fetched where $1::int > 0",
        "insert into log values ($1::int) returning n",
        "with a as (insert into log values ($1::int) returning n) select n from a",
    ];
    let run = |rounds: usize| {
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    let mut client = Client::new(manager, db);
                    for _ in 0..rounds {
                        for sql in statements {
                            ask(&mut client, sql, 1);
                            assert_eq!(client.reply().value(), "1");
                        }
                    }
                });
            }
        });
    };
    run(60);
    assert_eq!(manager.followed(), 0);
    assert_eq!(server().psql(db, "select count(*) from log").unwrap(), (4 * 6 * 60).to_string());
    // What only reads may be, beside them.
    warm(manager, db);
}

#[test]
fn nothing_follows_unless_it_is_asked_for() {
    let db = tables("follow_off");
    let manager = &manager(server(), 1, 1);
    std::thread::scope(|scope| {
        for id in 1..6 {
            scope.spawn(move || {
                let mut client = Client::new(manager, db);
                for _ in 0..50 {
                    ask(&mut client, OF_T, id);
                    assert_eq!(client.reply().value(), format!("v{id}"));
                }
            });
        }
    });
    assert_eq!(manager.followed(), 0);
}
