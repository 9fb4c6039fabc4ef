//! Cancel requests for statements that the server has not seen yet: they end at once, and the connection goes on.

mod support;

use pgusher_wire::frontend;
use std::time::{Duration, Instant};
use support::*;

#[test]
fn a_statement_that_waits_for_a_connection_is_cancelled() {
    let db = database("cancel_waiting");
    for workers in [1, 2] {
        let manager = manager(server(), workers, 1);
        let mut holder = Client::new(&manager, db);
        assert_eq!(holder.query("begin").status, b'T');
        let mut client = Client::new(&manager, db);

        let mut batch_and_sync = batch("select 1");
        batch_and_sync.extend_from_slice(&frontend::SYNC_BYTES);
        for (messages, what) in [
            (query("select 1"), "a Query"),
            (batch_and_sync, "a batch"),
            // The Sync comes only after the cancel request.
            (batch("select 1"), "a batch without its end"),
            (query(&format!("select '{}'", "x".repeat(300_000))), "a Query that is longer than any buffer"),
        ] {
            client.send(&messages);
            assert!(client.is_silent(Duration::from_millis(150)), "{what} waits");
            let begun = Instant::now();
            cancel(&manager, &client.key.clone());
            if what == "a batch without its end" {
                assert_eq!(client.message().unwrap().0, b'E');
                assert!(client.is_silent(Duration::from_millis(50)), "ReadyForQuery only for a Sync");
                // In that state the server ignores a Query as well.
                client.start("select 2");
                let mut sync = Vec::new();
                sync.extend_from_slice(&frontend::SYNC_BYTES);
                client.send(&sync);
                assert_eq!(client.reply().tags, "Z", "{what}");
            } else {
                let reply = client.reply();
                assert_eq!((reply.state(), reply.status, &*reply.tags), ("57014", b'I', "EZ"), "{what}");
            }
            assert!(begun.elapsed() < Duration::from_secs(5));
        }

        // What was sent behind the cancelled statement is carried out.
        client.start("select 'cancelled'");
        client.start("select 'next'");
        assert!(client.is_silent(Duration::from_millis(100)));
        cancel(&manager, &client.key.clone());
        assert_eq!(client.reply().state(), "57014");
        assert!(client.is_silent(Duration::from_millis(100)));
        assert_eq!(holder.query("commit").status, b'I');
        assert_eq!(client.reply().value(), "next");
        assert_eq!(holder.query("select 'holder'").value(), "holder");
        assert_eq!(backends(db, "true"), 1);
    }
}

#[test]
fn a_statement_whose_settings_are_being_put_on_its_connection_is_cancelled() {
    let db = database("cancel_replay");
    let manager = manager(server(), 1, 1);
    let mut plain = Client::new(&manager, db);
    assert_eq!(plain.query("select 1").value(), "1");
    let parameters = [("user", "postgres"), ("database", db), ("application_name", "other")];
    let mut client = Client::login(&manager, &parameters).unwrap();
    // Replay takes well under a millisecond; whichever side of it the request arrives on, the client's stream stays in order.
    for round in 0..200 {
        assert_eq!(plain.query("select 'p'").value(), "p");
        client.start("select 'c' from pg_sleep(0.002)");
        if round % 3 != 0 {
            std::thread::sleep(Duration::from_micros(50 * (round % 7)));
        }
        cancel(&manager, &client.key.clone());
        let reply = client.reply();
        assert!(matches!(reply.state(), "" | "57014"), "{reply:?}");
        assert_eq!(reply.status, b'I');
        if reply.state().is_empty() {
            assert_eq!(reply.value(), "c");
        }
    }
    assert_eq!(client.query("show application_name").value(), "other");
}
