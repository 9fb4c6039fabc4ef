//! How long physical connections and pools live: unused and old connections are closed, nobody is disturbed by that, and pools
//! that nobody uses make room for others.

mod support;

use std::time::{Duration, Instant};
use support::*;

const SOON: Duration = Duration::from_secs(5);

fn pid(client: &mut Client) -> String {
    client.query("select pg_backend_pid()").value().to_owned()
}

#[test]
fn unused_connections_are_closed() {
    with_one_and_two(|workers| {
        let name = format!("unused{workers}");
        let db = database(&name);
        let manager = manager_with(server(), "[timeouts]\nserver_idle = 1\n", &overrides(workers, 3));
        let mut clients: Vec<Client> = (0..3).map(|_| Client::new(&manager, db)).collect();
        for client in &mut clients {
            assert_eq!(client.query("begin").status, b'T');
        }
        assert_eq!(backends(db, "true"), 3);
        let begun = Instant::now();
        // Two end, one goes on for longer than the limit.
        for client in &mut clients[1..] {
            assert_eq!(client.query("commit").status, b'I');
        }
        let kept = pid(&mut clients[0]);
        assert!(begun.elapsed() > Duration::from_millis(500) || backends(db, "true") == 3, "not at once");
        eventually(SOON, "the two are closed", || backends(db, "true") == 1);
        assert!(begun.elapsed() > Duration::from_millis(900), "{:?}", begun.elapsed());
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(pid(&mut clients[0]), kept);
        assert_eq!(clients[0].query("commit").status, b'I');
        eventually(SOON, "the last one is closed", || backends(db, "true") == 0);
        // The clients are still there.
        for client in &mut clients {
            assert_eq!(client.query("select 'back'").value(), "back");
        }
        // One that is used now and then stays.
        let used = pid(&mut clients[0]);
        let mut last = Instant::now();
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(400));
            let now = pid(&mut clients[0]);
            // A busy machine may have let the limit pass.
            if now != used {
                assert!(last.elapsed() > Duration::from_millis(900), "{:?}", last.elapsed());
                break;
            }
            last = Instant::now();
        }
    });
}

#[test]
fn old_connections_are_closed() {
    with_one_and_two(|workers| {
        let name = format!("old{workers}");
        let db = database(&name);
        let manager = manager_with(server(), "[timeouts]\nserver_lifetime = 2\n", &overrides(workers, 1));
        let mut client = Client::new(&manager, db);
        let first = pid(&mut client);
        assert_eq!(pid(&mut client), first);
        // A transaction that outlives it keeps it to its end, and so does a statement.
        assert_eq!(client.query("begin").status, b'T');
        std::thread::sleep(Duration::from_millis(2200));
        assert_eq!(pid(&mut client), first);
        assert_eq!(client.query("select 'late' from pg_sleep(0.2)").value(), "late");
        assert_eq!(client.query("commit").status, b'I');
        let second = pid(&mut client);
        assert_ne!(second, first);
        eventually(SOON, "the old one is gone", || backends(db, &format!("pid = {first}")) == 0);
        // Somebody who waits gets the new one.
        let mut other = Client::new(&manager, db);
        assert_eq!(client.query("begin").status, b'T');
        other.start("select pg_backend_pid()");
        std::thread::sleep(Duration::from_millis(2200));
        assert_eq!(client.query("commit").status, b'I');
        assert_ne!(other.reply().value(), second);
        assert_eq!(backends(db, "true"), 1);
    });
}

/// Limits of 0 mean none.
#[test]
fn no_limit() {
    let db = database("nolimit");
    let toml =
        "[timeouts]\nserver_idle = 0\nserver_lifetime = 0\nquery_wait = 0\nclient_login = 0\nserver_connect = 0\n";
    let manager = manager_with(server(), toml, &overrides(2, 1));
    let mut client = Client::new(&manager, db);
    let mut other = Client::new(&manager, db);
    let first = pid(&mut client);
    assert_eq!(client.query("begin").status, b'T');
    other.start("select pg_backend_pid()");
    std::thread::sleep(Duration::from_millis(2200));
    assert_eq!(client.query("commit").status, b'I');
    assert_eq!(other.reply().value(), first);
}

/// Pools of databases that are in use keep their places; one that nobody uses any more makes room.
#[test]
fn pools_make_room() {
    with_one_and_two(|workers| {
        let names: Vec<String> = (0..4).map(|i| format!("pools{workers}{i}")).collect();
        for name in &names {
            database(name);
        }
        let manager = manager_with(server(), "max_pools = 2\n[timeouts]\nserver_idle = 1\n", &overrides(workers, 2));
        let login = |name: &str| Client::login(&manager, &[("user", "postgres"), ("database", name)]);
        let mut first = login(&names[0]).unwrap();
        let mut second = login(&names[1]).unwrap();
        // All are in use, whatever their clients do.
        assert_eq!(first.query("begin").status, b'T');
        for _ in 0..3 {
            let refused = login(&names[2]).err().unwrap();
            assert_eq!(refused.state(), "53300", "{refused:?}");
            assert!(refused.errors[0].1.contains("max_pools"), "{refused:?}");
        }
        std::thread::sleep(Duration::from_millis(1500));
        assert_eq!(
            login(&names[2]).err().unwrap().state(),
            "53300",
            "clients without connections hold their pool, too"
        );
        assert_eq!(second.query("select 'second'").value(), "second");
        assert_eq!(login(&names[0]).unwrap().query("select 'more'").value(), "more");
        // The second one's client leaves: there is room once its connections are closed.
        drop(second);
        let mut third = None;
        eventually(SOON, "room for the third", || {
            third = login(&names[2]).ok();
            third.is_some()
        });
        assert_eq!(third.as_mut().unwrap().query("select current_database()").value(), names[2]);
        assert_eq!(first.query("select current_database()").value(), names[0]);
        assert_eq!(login(&names[1]).err().unwrap().state(), "53300");
        assert_eq!(first.query("commit").status, b'I');
        drop((first, third));
        // Others, one after another.
        for name in [&names[3], &names[1]] {
            let mut client = None;
            eventually(SOON, name, || {
                client = login(name).ok();
                client.is_some()
            });
            assert_eq!(client.unwrap().query("select current_database()").value(), *name);
        }
        let like = format!("select count(*) from pg_stat_activity where datname like 'pools{workers}%'");
        eventually(SOON, "no connection is left", || server().psql("postgres", &like).unwrap() == "0");
    });
}

/// The least used pool without clients makes room at once, although its connections are still open.
#[test]
fn idle_pools_make_room_at_once() {
    with_one_and_two(|workers| {
        let names: Vec<String> = (0..4).map(|i| format!("evict{workers}{i}")).collect();
        for name in &names {
            database(name);
        }
        let manager = manager_with(server(), "max_pools = 2\n", &overrides(workers, 2));
        let login = |name: &str| Client::login(&manager, &[("user", "postgres"), ("database", name)]);
        for name in names.iter().chain(names.iter()) {
            let mut client = None;
            eventually(SOON, name, || {
                client = login(name).ok();
                client.is_some()
            });
            assert_eq!(client.unwrap().query("select current_database()").value(), *name);
        }
        let like = format!("select count(*) from pg_stat_activity where datname like 'evict{workers}%'");
        eventually(SOON, "only those of two pools are left", || {
            server().psql("postgres", &like).unwrap().parse::<usize>().unwrap() <= 4
        });
    });
}
