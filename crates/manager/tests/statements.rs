//! The unnamed prepared statement in transaction pooling: it is its client's, and never a neighbour's.

mod support;

use pgusher_wire::frontend::{self, SYNC_BYTES, Target};
use support::*;

fn parse(name: &str, sql: &str) -> Vec<u8> {
    let mut out = Vec::new();
    frontend::write_parse(&mut out, name.as_bytes(), sql.as_bytes(), &[]);
    out
}

/// Binds the unnamed statement and executes it.
fn run() -> Vec<u8> {
    let mut out = Vec::new();
    frontend::write_bind(&mut out, b"", b"", &[]);
    frontend::write_execute(&mut out, b"", 0);
    out.extend(SYNC_BYTES);
    out
}

fn describe() -> Vec<u8> {
    let mut out = Vec::new();
    frontend::write_describe(&mut out, Target::Statement, b"");
    out.extend(SYNC_BYTES);
    out
}

fn exchange(client: &mut Client, messages: &[&[u8]]) -> Reply {
    client.send(&messages.concat());
    client.reply()
}

/// A client leaves an unnamed statement on the only connection. Another one that binds or describes without a statement of
/// its own is refused; the first one's later Bind, after the other's statement, is refused as well.
#[test]
fn nobody_runs_a_neighbours_statement() {
    let db = database("unnamed");
    for workers in [1, 2] {
        let manager = manager(server(), workers, 1);
        let mut one = Client::new(&manager, db);
        let left = exchange(&mut one, &[&batch("select 'one'"), &SYNC_BYTES]);
        assert_eq!(left.value(), "one");
        for messages in [run(), describe(), [describe(), run()].concat()] {
            let mut two = Client::new(&manager, db);
            let reply = exchange(&mut two, &[&messages]);
            assert_eq!((reply.state(), reply.values.len()), ("26000", 0), "{reply:?}");
            assert!(!reply.tags.contains('T') && !reply.tags.contains('t'), "{reply:?}");
        }
        let mut two = Client::new(&manager, db);
        assert_eq!(exchange(&mut two, &[&batch("select 'two'"), &SYNC_BYTES]).value(), "two");
        assert_eq!(exchange(&mut one, &[&run()]).value(), "one", "its own, as on a connection of its own");
        // In a transaction of its own, and behind a query.
        let mut three = Client::new(&manager, db);
        assert_eq!(three.query("begin").status, b'T');
        let reply = exchange(&mut three, &[&run()]);
        assert_eq!((reply.state(), reply.values.len()), ("26000", 0), "{reply:?}");
        assert_eq!(three.query("rollback").status, b'I');
        let mut four = Client::new(&manager, db);
        four.send(&[query("select 'four'"), run()].concat());
        let reply = four.reply();
        if reply.errors.is_empty() {
            assert_eq!(reply.value(), "four");
            assert_eq!(four.reply().state(), "26000");
        } else {
            assert_eq!((reply.state(), reply.values.len()), ("26000", 0), "{reply:?}");
        }
        // The connection is whole, and there is one.
        assert_eq!(exchange(&mut two, &[&batch("select 'again'"), &SYNC_BYTES]).value(), "again");
        assert_eq!(backends(db, "true"), 1);
    }
}

/// Parse and Sync, and Bind only later, as drivers prepare: others use the connection meanwhile.
#[test]
fn a_statement_for_later_is_kept() {
    let db = database("later");
    for workers in [1, 2] {
        let manager = manager(server(), workers, 1);
        for with_describe in [false, true] {
            let mut one = Client::new(&manager, db);
            let mut two = Client::new(&manager, db);
            let described = if with_describe { describe() } else { SYNC_BYTES.to_vec() };
            let reply = exchange(&mut one, &[&parse("", "select 'one'"), &described]);
            assert_eq!(reply.tags, if with_describe { "1tTZ" } else { "1Z" });
            for _ in 0..3 {
                assert_eq!(exchange(&mut two, &[&batch("select 'two'"), &SYNC_BYTES]).value(), "two");
                assert_eq!(exchange(&mut one, &[&run()]).value(), "one");
            }
        }
        // Inside a transaction, for as long as it lasts.
        let mut one = Client::new(&manager, db);
        one.query("begin");
        exchange(&mut one, &[&parse("", "select 'inside'"), &SYNC_BYTES]);
        assert_eq!(exchange(&mut one, &[&run()]).value(), "inside");
        assert_eq!(one.query("commit").status, b'I');
    }
}

/// The server skips a Parse that follows an error in its batch: the unnamed statement that it has is still the neighbour's.
#[test]
fn a_skipped_parse_makes_no_statement() {
    let db = database("skipped");
    for workers in [1, 2] {
        let manager = manager(server(), workers, 1);
        let mut one = Client::new(&manager, db);
        assert_eq!(exchange(&mut one, &[&batch("select 'one'"), &SYNC_BYTES]).value(), "one");
        // The first Parse fails and, because it has a name, leaves the unnamed statement alone.
        let mut two = Client::new(&manager, db);
        let reply = exchange(&mut two, &[&parse("named", "no sql"), &parse("", "select 'two'"), &SYNC_BYTES]);
        assert_eq!(reply.state(), "42601", "{reply:?}");
        let reply = exchange(&mut two, &[&run()]);
        assert_eq!((reply.state(), reply.values.len()), ("26000", 0), "{reply:?}");
        drop(two);

        // The same in one write, so that the error is not known when Bind comes.
        assert_eq!(exchange(&mut one, &[&batch("select 'one'"), &SYNC_BYTES]).value(), "one");
        let mut two = Client::new(&manager, db);
        two.send(&[parse("named", "no sql"), parse("", "select 'two'"), SYNC_BYTES.to_vec(), run()].concat());
        assert_eq!(two.reply().state(), "42601");
        let reply = two.reply();
        assert_eq!((reply.state(), reply.values.len()), ("26000", 0), "{reply:?}");
    }
}
