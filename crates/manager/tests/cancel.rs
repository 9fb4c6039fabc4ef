//! Cancel requests: the right key ends a query, a wrong one nothing, and a neighbour on the same pool is never hit.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::*;

#[test]
fn right_and_wrong_keys() {
    let db = database("keys");
    for workers in [1, 2] {
        let manager = manager(server(), workers, 2);
        let mut client = Client::new(&manager, db);
        let key = client.key.clone();

        let mut wrong = key.clone();
        *wrong.last_mut().unwrap() ^= 1;
        client.start("select pg_sleep(0.5), 'slept'");
        eventually(Duration::from_secs(5), "the query runs", || {
            backends(db, "query like '%pg_sleep%' and state = 'active'") == 1
        });
        cancel(&manager, &wrong);
        assert_eq!(client.reply().state(), "");

        let begun = Instant::now();
        client.start("select pg_sleep(15)");
        eventually(Duration::from_secs(5), "the query runs", || {
            backends(db, "query like '%pg_sleep%' and state = 'active'") == 1
        });
        cancel(&manager, &key);
        assert_eq!(client.reply().state(), "57014");
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert_eq!(client.query("select 'alive'").value(), "alive");
        // Nothing runs: nothing happens, now or to the next query.
        cancel(&manager, &key);
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(client.query("select 'still'").value(), "still");
    }
}

#[test]
fn neighbours_are_not_hit() {
    let db = database("neighbours");
    for workers in [1, 2] {
        let manager = manager(server(), workers, 2);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let neighbour = scope.spawn(|| {
                let mut client = Client::new(&manager, db);
                let mut n = 0;
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(client.query("select 'n' from pg_sleep(0.001)").value(), "n");
                    n += 1;
                }
                n
            });
            let mut client = Client::new(&manager, db);
            let key = client.key.clone();
            let mut cancelled = 0;
            for round in 0u64..50 {
                // Now and then the query ends just when the cancel request comes.
                let seconds = if round % 2 == 0 { "5" } else { "0.004" };
                client.start(&format!("select 'c' from pg_sleep({seconds})"));
                std::thread::sleep(Duration::from_millis(if round % 2 == 0 { 10 } else { round % 5 }));
                cancel(&manager, &key);
                match client.reply().state() {
                    "57014" => cancelled += 1,
                    state => assert_eq!(state, ""),
                }
            }
            stop.store(true, Ordering::Relaxed);
            assert!(neighbour.join().unwrap() > 50);
            assert!(cancelled >= 20, "{cancelled} of 25");
        });
    }
}
