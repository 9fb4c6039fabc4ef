//! `idle_session_timeout`: a client that is idle for longer than its session allows is told what the server would tell it, and no
//! physical connection ends because of what a client or a role has set.

mod support;

use std::time::{Duration, Instant};
use support::*;

const TEXT: &str = "terminating connection due to idle-session timeout";

fn limited(client: &mut Client, limit: &str) -> String {
    assert!(client.query(&format!("set idle_session_timeout = '{limit}'")).errors.is_empty());
    client.query("select pg_backend_pid()").value().to_owned()
}

/// The client is closed with the server's own words; how long after the last answer.
fn closed(client: &mut Client) -> Duration {
    let begun = Instant::now();
    let reply = client.reply();
    let error = reply.errors.first().map(|(state, text)| (state.as_str(), text.as_str()));
    assert_eq!((error, reply.tags.as_str()), (Some(("57P05", TEXT)), "E"), "{reply:?}");
    begun.elapsed()
}

#[test]
fn a_client_that_is_idle_for_too_long_is_closed_and_nobody_else() {
    with_one_and_two(|workers| {
        let name = format!("idle_own{workers}");
        let db = database(&name);
        let manager = manager(server(), workers, 1);
        let mut other = Client::new(&manager, db);
        let mut one = Client::new(&manager, db);
        let pid = limited(&mut one, "1500 ms");
        assert!(closed(&mut one) > Duration::from_millis(1400));
        // The physical connection is still there, longer than the limit would have let it.
        std::thread::sleep(Duration::from_secs(2));
        assert_eq!(other.query("select pg_backend_pid()").value(), pid);
        assert_eq!(other.query("show idle_session_timeout").value(), "0");
        // A session that begins with it.
        let parameters = [("user", "postgres"), ("database", db), ("options", "-c idle_session_timeout=2s")];
        let mut second = Client::login(&manager, &parameters).unwrap();
        assert_eq!(second.query("show idle_session_timeout").value(), "2s");
        assert!(closed(&mut second) > Duration::from_millis(1900));
        // One that has not said anything yet.
        let mut third = Client::login(&manager, &parameters).unwrap();
        assert!(closed(&mut third) > Duration::from_millis(1900));
        assert_eq!(other.query("select pg_backend_pid()").value(), pid);
    });
}

#[test]
fn a_transaction_is_not_idle_and_a_limit_of_a_transaction_is_none_of_the_session() {
    let db = database("idle_block");
    let manager = manager(server(), 1, 2);
    let mut one = Client::new(&manager, db);
    limited(&mut one, "2s");
    assert_eq!(one.query("begin").status, b'T');
    let mut two = Client::new(&manager, db);
    two.query("begin; set local idle_session_timeout = 1; commit");
    assert!(one.is_silent(Duration::from_secs(4)));
    assert_eq!(one.query("commit").status, b'I');
    assert_eq!(two.query("select 'there'").value(), "there");
    // What is undone does not count, nor what is reset.
    one.query("begin; set idle_session_timeout = 1; rollback");
    one.query("reset idle_session_timeout");
    assert!(one.is_silent(Duration::from_secs(4)));
    assert_eq!(one.query("show idle_session_timeout").value(), "0");
}

#[test]
fn a_client_that_keeps_its_connection_is_closed_too() {
    let db = database("idle_pinned");
    let manager = manager(server(), 1, 2);
    let mut one = Client::new(&manager, db);
    one.query("create temp table t (n int)");
    limited(&mut one, "1s");
    closed(&mut one);
}

#[test]
fn the_limit_of_a_role_closes_its_clients_and_not_their_connections() {
    server()
        .psql("postgres", "create role idle_role login; alter role idle_role set idle_session_timeout = '4s'")
        .unwrap();
    let db = database("idle_of_role");
    let manager = manager(server(), 2, 1);
    let login = || Client::login(&manager, &[("user", "idle_role"), ("database", db)]).unwrap();
    let mut one = login();
    assert_eq!(one.query("show idle_session_timeout").value(), "4s");
    let pid = one.query("select pg_backend_pid()").value().to_owned();
    assert!(closed(&mut one) > Duration::from_millis(3900));
    std::thread::sleep(Duration::from_secs(4));
    let mut two = login();
    assert_eq!(two.query("select pg_backend_pid()").value(), pid);
    assert_eq!(two.query("show idle_session_timeout").value(), "4s");
    let source = "select source from pg_settings where name = 'idle_session_timeout'";
    assert_eq!(two.query(source).value(), "user");
    // What it says itself counts more.
    two.query("set idle_session_timeout = 0");
    assert!(two.is_silent(Duration::from_secs(6)));
    assert_eq!(two.query("select pg_backend_pid()").value(), pid);
}

/// A long limit is lifted only where the connection has nothing to do.
#[test]
fn a_long_limit_is_lifted_when_the_connection_rests() {
    let db = database("idle_long");
    let manager = manager(server(), 1, 1);
    let mut one = Client::new(&manager, db);
    let pid = limited(&mut one, "20s");
    let last = format!("pid = {pid} and query = 'SET idle_session_timeout=0'");
    eventually(PATIENCE, "it is lifted", || backends(db, &last) == 1);
    // Clients that follow one another have what they have set, each.
    let mut two = Client::new(&manager, db);
    assert_eq!(one.query("show idle_session_timeout").value(), "20s");
    assert_eq!(two.query("show idle_session_timeout").value(), "0");
}
