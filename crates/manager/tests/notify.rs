//! LISTEN and NOTIFY through the manager: many clients listen on few physical connections, and each hears what it would hear on a
//! connection of its own.

mod support;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::*;

/// A notification: process id, channel, payload.
type Heard = (u32, String, String);

fn heard(body: &[u8]) -> Heard {
    let pid = u32::from_be_bytes(body[..4].try_into().unwrap());
    let mut texts = body[4..].split(|b| *b == 0).map(|text| String::from_utf8(text.to_vec()).unwrap());
    (pid, texts.next().unwrap(), texts.next().unwrap())
}

/// The next notification. Nothing else may come before it.
fn next(client: &mut Client) -> Heard {
    let (tag, body) = client.message().expect("a notification");
    assert_eq!(char::from(tag), 'A');
    heard(&body)
}

/// Runs a statement; its tags, and the notifications among them.
fn run(client: &mut Client, sql: &str) -> (String, Vec<Heard>) {
    client.start(sql);
    let (mut tags, mut notes) = (String::new(), Vec::new());
    loop {
        let (tag, body) = client.message().expect("a reply");
        match tag {
            b'A' => notes.push(heard(&body)),
            b'N' | b'S' => continue,
            _ => {}
        }
        tags.push(char::from(tag));
        if tag == b'Z' {
            return (tags, notes);
        }
    }
}

fn pid(client: &Client) -> u32 {
    u32::from_be_bytes(client.key[..4].try_into().unwrap())
}

fn payload(payload: &str) -> (String, String) {
    ("c".into(), payload.into())
}

#[test]
fn listeners_keep_no_connection() {
    with_one_and_two(|workers| {
        let database = format!("notify_many_{workers}");
        support::database(&database);
        let manager = manager(server(), workers, 1);
        let mut clients: Vec<Client> = (0..100).map(|_| Client::new(&manager, &database)).collect();
        for client in &mut clients {
            assert_eq!(run(client, "listen c").0, "CZ");
        }
        let mut notifier = Client::new(&manager, &database);
        for n in 0..20 {
            notifier.query(&format!("notify c, '{n}'"));
        }
        for client in &mut clients {
            let heard: Vec<_> = (0..20).map(|_| next(client)).map(|(_, c, p)| (c, p)).collect();
            assert_eq!(heard, (0..20).map(|n| payload(&n.to_string())).collect::<Vec<_>>());
            assert!(client.is_silent(Duration::ZERO));
        }
        // One for the pool and one that listens.
        assert_eq!(backends(&database, "true"), 2);
        for client in &mut clients {
            client.query("unlisten c");
        }
        notifier.query("notify c, 'nobody'");
        assert!(clients.iter_mut().all(|client| client.is_silent(Duration::from_millis(1))));
    });
}

#[test]
fn its_own_come_with_its_own_number() {
    with_one_and_two(|workers| {
        let database = format!("notify_own_{workers}");
        support::database(&database);
        let manager = manager(server(), workers, 1);
        let (mut a, mut b) = (Client::new(&manager, &database), Client::new(&manager, &database));
        for client in [&mut a, &mut b] {
            client.query("listen c");
        }
        for n in 0..50 {
            let (tags, notes) = run(&mut a, &format!("notify c, 'a{n}'"));
            // In front of ReadyForQuery, behind the command's own reply.
            assert_eq!((tags.as_str(), notes), ("CAZ", vec![(pid(&a), "c".into(), format!("a{n}"))]));
            let (other, _, text) = next(&mut b);
            assert!(other != pid(&b) && text == format!("a{n}"), "{other}");
            // Somebody who does not listen has the same physical connection in between.
            let mut c = Client::new(&manager, &database);
            c.query("notify c, 'other'");
            let (tags, notes) = run(&mut a, "select 1");
            let seen = if notes.is_empty() { next(&mut a) } else { notes[0].clone() };
            assert!(seen.0 != pid(&a) && seen.2 == "other", "{tags} {seen:?}");
            next(&mut b);
        }
    });
}

#[test]
fn transactions() {
    let database = database("notify_transactions");
    let manager = manager(server(), 1, 2);
    let (mut a, mut b) = (Client::new(&manager, database), Client::new(&manager, database));
    // LISTEN counts at COMMIT, and what was committed before does not come.
    for sql in ["begin", "listen c"] {
        a.query(sql);
    }
    b.query("notify c, 'before'");
    let (tags, _) = run(&mut a, "notify c, 'own'");
    assert_eq!(tags, "CZ");
    let (tags, notes) = run(&mut a, "commit");
    assert_eq!((tags.as_str(), notes.len()), ("CAZ", 1));
    assert_eq!(notes[0], (pid(&a), "c".into(), "own".into()));
    b.query("notify c, 'after'");
    assert_eq!(next(&mut a).2, "after");
    // Nothing comes within a transaction.
    a.query("begin");
    b.query("notify c, 'wait'");
    assert!(a.is_silent(Duration::from_millis(100)));
    assert_eq!(run(&mut a, "select 1").0, "TDCZ");
    let (tags, notes) = run(&mut a, "rollback");
    assert_eq!((tags.as_str(), notes[0].2.as_str()), ("CAZ", "wait"));
    // UNLISTEN is undone by ROLLBACK, and by ROLLBACK TO.
    for sql in
        ["begin", "unlisten *", "rollback", "begin", "savepoint s", "unlisten c", "listen d", "rollback to s", "commit"]
    {
        a.query(sql);
    }
    b.query("notify d, 'no'");
    b.query("notify c, 'still'");
    assert_eq!(next(&mut a).2, "still");
    // A LISTEN that is undone.
    for sql in ["begin", "listen d", "rollback", "listen d; select 1/0"] {
        a.query(sql);
    }
    b.query("notify d, 'no'");
    b.query("notify c, 'yes'");
    assert_eq!(next(&mut a).2, "yes");
    a.query("discard all");
    b.query("notify c, 'no'");
    assert!(a.is_silent(Duration::from_millis(100)));
}

#[test]
fn functions_and_questions_find_the_channels() {
    let database = database("notify_functions");
    let manager = manager(server(), 1, 1);
    let (mut a, mut b) = (Client::new(&manager, database), Client::new(&manager, database));
    a.query(
        "create function un(text) returns void language plpgsql as $$begin execute format('unlisten %I', $1); end$$",
    );
    a.query("listen c");
    a.query("listen \"D \"\"x\"");
    b.query("select 1");
    let reply = a.query("select * from pg_listening_channels() order by 1");
    assert_eq!(reply.values, ["D \"x", "c"]);
    a.query("select un('c')");
    b.query("notify c, 'no'");
    b.query("notify \"D \"\"x\", 'yes'");
    assert_eq!(next(&mut a).1, "D \"x");
    a.query("do $$begin execute 'unlisten *'; end$$");
    b.query("notify \"D \"\"x\", 'no'");
    assert!(a.is_silent(Duration::from_millis(100)));
    // No physical connection listens for nobody.
    assert!(b.query("select * from pg_listening_channels()").values.is_empty());
}

#[test]
fn nothing_is_lost_or_repeated() {
    with_one_and_two(|workers| {
        let database = format!("notify_load_{workers}");
        support::database(&database);
        let manager = manager(server(), workers, 3);
        let done = AtomicBool::new(false);
        const EACH: usize = 300;
        std::thread::scope(|scope| {
            let mut steady: Vec<Client> = (0..4).map(|_| Client::new(&manager, &database)).collect();
            for client in &mut steady {
                client.query("listen c");
            }
            let writers: Vec<_> = (0..3)
                .map(|w| {
                    let (manager, database) = (&manager, &database);
                    scope.spawn(move || {
                        let mut client = Client::new(manager, database);
                        for n in 0..EACH {
                            let sql = format!("notify c, '{w} {n}'");
                            let sql = if n % 3 == 0 { format!("begin; {sql}; select 1; commit") } else { sql };
                            assert_eq!(client.query(&sql).status, b'I');
                        }
                    })
                })
                .collect();
            for i in 0..3 {
                let (manager, database, done) = (&manager, &database, &done);
                scope.spawn(move || {
                    let mut client = Client::new(manager, database);
                    let mut round = 0;
                    while !done.load(Ordering::Relaxed) {
                        round += 1;
                        let mut seen: HashMap<String, usize> = HashMap::new();
                        let mut check = |notes: Vec<Heard>| {
                            for (_, _, text) in notes {
                                let (writer, n) = text.split_once(' ').unwrap();
                                if writer == "me" {
                                    continue;
                                }
                                let n: usize = n.parse().unwrap();
                                if let Some(last) = seen.insert(writer.into(), n) {
                                    assert_eq!(n, last + 1, "of {writer}");
                                }
                            }
                        };
                        check(run(&mut client, "listen c").1);
                        for _ in 0..5 {
                            check(run(&mut client, "select pg_sleep(0.002)").1);
                        }
                        let (_, notes) = run(&mut client, &format!("notify c, 'me {i}{round}'"));
                        assert!(
                            notes.iter().any(|n| n.0 == pid(&client) && n.2 == format!("me {i}{round}")),
                            "{notes:?}"
                        );
                        check(notes);
                        // Nothing comes behind it.
                        let (tags, notes) = run(&mut client, "unlisten c");
                        assert!(tags.ends_with("CZ"), "{tags}");
                        check(notes);
                    }
                });
            }
            for writer in writers {
                writer.join().unwrap();
            }
            done.store(true, Ordering::Relaxed);
            for client in &mut steady {
                let mut seen = [0; 3];
                while seen.iter().sum::<usize>() < 3 * EACH {
                    let (_, _, text) = next(client);
                    let (writer, n) = text.split_once(' ').unwrap();
                    if writer == "me" {
                        continue;
                    }
                    let writer: usize = writer.parse().unwrap();
                    assert_eq!(n.parse::<usize>().unwrap(), seen[writer], "of {writer}");
                    seen[writer] += 1;
                }
            }
        });
    });
}

#[test]
fn listeners_end_with_the_connection_that_listens() {
    with_one_and_two(|workers| {
        let database = format!("notify_lost_{workers}");
        support::database(&database);
        let manager = manager(server(), workers, 2);
        let mut clients: Vec<Client> = (0..4).map(|_| Client::new(&manager, &database)).collect();
        for client in clients.iter_mut().take(3) {
            client.query("listen c");
        }
        clients[3].query("select 1");

        let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() \
                   and application_name = 'pgusher listens'";
        let killed = server().psql(&database, end).unwrap();
        assert_eq!(killed, "1");
        for client in clients.iter_mut().take(3) {
            let reply = client.reply();
            assert_eq!((reply.state(), reply.status), ("08006", 0), "{reply:?}");
        }
        assert_eq!(clients[3].query("select 1").value(), "1");
        // The next one that listens gets a new one.
        clients[3].query("listen c");
        let (_, notes) = run(&mut clients[3], "notify c, 'again'");
        assert_eq!(notes.len(), 1);
    });
}

#[test]
fn a_client_that_does_not_take_its_notifications_is_closed() {
    let database = database("notify_slow");
    let manager = manager(server(), 1, 2);
    let (mut a, mut b) = (Client::new(&manager, database), Client::new(&manager, database));
    a.query("listen c");
    a.query("begin");
    for n in 0..200 {
        b.query(&format!("select pg_notify('c', rpad('{n}', 7000, 'x'))"));
    }
    let reply = a.reply();
    assert_eq!((reply.state(), reply.status), ("54000", 0), "{reply:?}");
    // Nor does one that listens and reads nothing make memory grow.
    let mut c = Client::new(&manager, database);
    c.query("listen c");
    for n in 0..3_000 {
        if b.query(&format!("select pg_notify('c', rpad('{n}', 7000, 'x'))")).status != b'I' {
            panic!("the notifier was disturbed");
        }
    }
    let reply = c.reply();
    assert_eq!((reply.state(), reply.status), ("54000", 0), "{:?}", reply.errors);
    // The others go on.
    b.query("listen c");
    assert_eq!(run(&mut b, "notify c, 'x'").1.len(), 1);
}
