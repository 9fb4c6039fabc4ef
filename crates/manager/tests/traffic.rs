//! Ordinary traffic through a manager: PostgreSQL's own programs, shared pools, pipelining, COPY.

mod support;

use pgusher_wire::frontend;
use std::io::Write;
use std::time::Duration;
use support::*;

#[test]
fn programs_of_postgresql() {
    let db = database("programs");
    for workers in [1, 2] {
        let manager = manager(server(), workers, 3);
        let run = |name: &str, args: &[&str]| {
            let ended = program(&manager, name, db, args);
            assert!(ended.ok, "{workers} workers: {name} {args:?}: {}", ended.err);
            ended
        };
        assert_eq!(run("psql", &["-XAtc", "select 1"]).out, "1\n");
        run("pgbench", &["-i", "-q", "-s", "1"]);
        for mode in [
            &["-S", "-M", "simple"][..],
            &["-S", "-M", "extended"],
            &["-S", "-M", "prepared"],
            &["-M", "simple"],
            &["-M", "extended"],
            &["-M", "prepared"],
        ] {
            // A client with a named statement keeps its connection, and pgbench closes all clients at the very end: with
            // "prepared" there can be no more of them than connections.
            let clients = if mode.contains(&"prepared") { 3 } else { 12 };
            let count = clients.to_string();
            let args = [mode, &["-n", "-j", "2", "-t", "30", "-c", &count]].concat();
            let ended = run("pgbench", &args);
            let all = clients * 30;
            assert!(ended.out.contains(&format!("actually processed: {all}/{all}")), "{args:?}: {}", ended.out);
            assert!(ended.out.contains("failed transactions: 0 "), "{args:?}: {}", ended.out);
        }
        let ended = run("pgbench", &["-n", "-S", "-C", "-c", "4", "-t", "10"]);
        assert!(ended.out.contains("actually processed: 40/40"), "{}", ended.out);
        let dump = run("pg_dump", &[]).out;
        assert!(dump.contains("COPY public.pgbench_accounts"));
        assert!(dump.lines().count() > 100_000);
        let count = backends(db, "backend_type = 'client backend'");
        assert!((1..=3).contains(&count), "{count} backends");
    }
}

/// A pool of 1: a transaction makes the others wait, and they are served in the order in which they came.
#[test]
fn transactions_take_turns() {
    let db = database("turns");
    for workers in [1, 2] {
        let manager = manager(server(), workers, 1);
        let mut first = Client::new(&manager, db);
        let mut waiting: Vec<Client> = (0..4).map(|_| Client::new(&manager, db)).collect();
        first.query("drop table if exists t; create table t (id serial, who int)");
        assert_eq!(first.query("begin").status, b'T');
        for (i, client) in waiting.iter_mut().enumerate() {
            client.start(&format!("insert into t (who) values ({i}) returning who"));
            assert!(client.is_silent(Duration::from_millis(100)));
        }
        assert_eq!(first.query("select 'mine'").value(), "mine");
        assert_eq!(first.query("commit").status, b'I');
        for (i, client) in waiting.iter_mut().enumerate() {
            assert_eq!(client.reply().value(), i.to_string());
        }
        let order = first.query("select string_agg(who::text, ',' order by id) from t");
        if workers == 1 {
            assert_eq!(order.value(), "0,1,2,3");
        } else {
            assert_eq!(order.value().len(), 7);
        }
        assert_eq!(backends(db, "backend_type = 'client backend'"), 1);
    }
}

/// Eight threads, each with a marker of its own: nobody sees another's answer, and transactions stay whole.
#[test]
fn replies_are_never_mixed() {
    let db = database("mixed");
    for workers in [1, 2] {
        let manager = manager(server(), workers, 3);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let manager = &manager;
                scope.spawn(move || {
                    let mut client = Client::new(manager, db);
                    for i in 0..400 {
                        let marker = format!("{thread}-{i}");
                        match i % 3 {
                            0 => assert_eq!(client.query(&format!("select '{marker}'")).value(), marker),
                            1 => {
                                let mut bytes = batch(&format!("select '{marker}'"));
                                bytes.extend(frontend::SYNC_BYTES);
                                client.send(&bytes);
                                assert_eq!(client.reply().value(), marker);
                            }
                            _ => {
                                client.query(&format!("begin; set local application_name = '{marker}'"));
                                let pid = client.query("select pg_backend_pid()").value().to_owned();
                                let name = "select current_setting('application_name')";
                                assert_eq!(client.query(name).value(), marker);
                                assert_eq!(client.query("select pg_backend_pid()").value(), pid);
                                assert_eq!(client.query("commit").status, b'I');
                            }
                        }
                    }
                });
            }
        });
        let count = backends(db, "backend_type = 'client backend'");
        assert!((1..=3).contains(&count), "{count} backends");
    }
}

#[test]
fn pipelines() {
    let db = database("pipelines");
    for workers in [1, 2] {
        let manager = manager(server(), workers, 3);
        let mut client = Client::new(&manager, db);

        // Queries in one write, one of them opens a transaction.
        let sql = ["select 1", "begin", "select 2", "commit", "select 1/0", "select 3"];
        client.send(&sql.iter().flat_map(|s| query(s)).collect::<Vec<_>>());
        let replies: Vec<_> = sql.iter().map(|_| client.reply()).collect();
        assert_eq!(replies.iter().map(|r| r.status).collect::<Vec<_>>(), b"ITTIII");
        assert_eq!(replies[2].value(), "2");
        assert_eq!(replies[4].state(), "22012");
        assert_eq!(replies[5].value(), "3");

        // Batches back to back.
        let mut bytes = Vec::new();
        for i in 0..200 {
            bytes.extend(batch(&format!("select {i}")));
            bytes.extend(frontend::SYNC_BYTES);
        }
        client.send(&bytes);
        for i in 0..200 {
            let reply = client.reply();
            assert_eq!(reply.tags, "12TDCZ");
            assert_eq!(reply.value(), i.to_string());
        }

        // An error in the middle of a batch: what follows is skipped up to Sync.
        let bytes = [batch("select 1"), batch("select 1/0"), batch("select 2"), frontend::SYNC_BYTES.to_vec()];
        client.send(&[bytes.concat(), query("select 'next'")].concat());
        let reply = client.reply();
        assert_eq!((reply.values.as_slice(), reply.state()), (&["1".to_owned()][..], "22012"));
        assert_eq!(client.reply().value(), "next");

        // A Query between the error and Sync is skipped too: one ReadyForQuery.
        let bytes = [batch("select 1/0"), query("select 'skipped'"), frontend::SYNC_BYTES.to_vec()];
        client.send(&bytes.concat());
        let reply = client.reply();
        assert_eq!((reply.state(), reply.values.len()), ("22012", 0));
        assert_eq!(client.query("select 'after'").value(), "after");

        // Flush: the answers come without a Sync.
        client.send(&[batch("select 'flushed'"), frontend::FLUSH_BYTES.to_vec()].concat());
        assert_eq!(client.until(b'C').values, ["flushed"]);
        assert!(client.is_silent(Duration::from_millis(100)));
        client.send(&frontend::SYNC_BYTES);
        assert_eq!(client.reply().tags, "Z");

        // Every byte in its own write.
        let bytes = [query("select 'bytes'"), batch("select 'single'"), frontend::SYNC_BYTES.to_vec()];
        for byte in bytes.concat() {
            client.send(&[byte]);
        }
        assert_eq!(client.reply().value(), "bytes");
        assert_eq!(client.reply().value(), "single");
    }
}

#[test]
fn big_messages_and_a_slow_reader() {
    let db = database("big");
    for workers in [1, 2] {
        let manager = manager(server(), workers, 2);
        let mut client = Client::new(&manager, db);
        let text = "x".repeat(1 << 20);
        assert_eq!(client.query(&format!("select length('{text}')")).value(), (1 << 20).to_string());

        client.start("select repeat('y', 1000) from generate_series(1, 5000)");
        let mut neighbour = Client::new(&manager, db);
        for i in 0..20 {
            assert_eq!(neighbour.query(&format!("select {i}")).value(), i.to_string());
            std::thread::sleep(Duration::from_millis(20));
        }
        let reply = client.reply();
        assert_eq!((reply.values.len(), reply.volume), (5000, 5000 * 1006));
        // One message of 5 MB.
        client.start("select repeat('z', 5000000)");
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(client.reply().volume, 5_000_006);
        assert_eq!(client.query("select 'same'").value(), "same");
    }
}

#[test]
fn copy() {
    let db = database("copying");
    for workers in [1, 2] {
        let manager = manager(server(), workers, 1);
        let mut client = Client::new(&manager, db);
        let mut other = Client::new(&manager, db);
        client.query("drop table if exists c; create table c (id int)");
        let data = |line: &str| {
            let mut out = Vec::new();
            frontend::write_copy_data(&mut out, line.as_bytes());
            out
        };

        // In, while another client waits for the only connection.
        client.start("copy c from stdin");
        assert_eq!(client.until(b'G').tags, "G");
        other.start("select count(*) from c");
        for i in 0..1000 {
            client.send(&data(&format!("{i}\n")));
        }
        assert!(other.is_silent(Duration::from_millis(50)));
        client.send(&frontend::COPY_DONE_BYTES);
        let reply = client.reply();
        assert_eq!((reply.done[0].as_str(), reply.status), ("COPY 1000", b'I'));
        assert_eq!(other.reply().value(), "1000");

        // Out.
        let reply = client.query("copy c to stdout");
        assert_eq!((reply.done[0].as_str(), reply.volume), ("COPY 1000", 10 + 180 + 2700 + 1000));

        // Everything in one write, another query behind it.
        let bytes =
            [query("copy c from stdin"), data("7\n"), frontend::COPY_DONE_BYTES.to_vec(), query("select 'behind'")];
        client.send(&bytes.concat());
        assert_eq!(client.reply().done, ["COPY 1"]);
        assert_eq!(client.reply().value(), "behind");

        // Fails midway; CopyData and CopyDone that come late mean nothing.
        client.start("copy c from stdin");
        client.until(b'G');
        client.send(&data("not a number\n"));
        let reply = client.reply();
        assert_eq!((reply.state(), reply.status), ("22P02", b'I'));
        client.stream.write_all(&[data("1\n"), data("2\n"), frontend::COPY_DONE_BYTES.to_vec()].concat()).unwrap();
        assert_eq!(client.query("select 'late'").value(), "late");
        assert_eq!(other.query("select 'other'").value(), "other");

        // The client gives up.
        client.start("copy c from stdin");
        client.until(b'G');
        let mut fail = data("8\n");
        frontend::write_copy_fail(&mut fail, b"enough");
        client.send(&fail);
        assert_eq!(client.reply().state(), "57014");

        // In the extended protocol, in and out.
        let copy_in = [batch("copy c from stdin"), frontend::FLUSH_BYTES.to_vec()];
        client.send(&copy_in.concat());
        client.until(b'G');
        client.send(&[data("9\n"), frontend::COPY_DONE_BYTES.to_vec(), frontend::SYNC_BYTES.to_vec()].concat());
        let reply = client.reply();
        assert_eq!((reply.done[0].as_str(), reply.status), ("COPY 1", b'I'));
        client.send(&[batch("copy c to stdout"), frontend::SYNC_BYTES.to_vec()].concat());
        assert_eq!(client.reply().done, ["COPY 1002"]);
        assert_eq!(other.query("select count(*) from c").value(), "1002");
    }
}
