//! Thousands of clients that log in at once, while the server does not answer yet.

mod support;

use pgusher_manager::{AuthMethod, Manager, Overrides};
use pgusher_wire::startup::{SSL_REQUEST_BYTES, Version};
use std::io::Read;
use std::time::{Duration, Instant};
use support::fake::Fake;
use support::gate::{Gate, Treatment, Visit};
use support::*;

/// A client whose login has been sent, and which a worker has certainly accepted: it has answered a question before it.
fn begins(manager: &Manager, database: &str) -> Client {
    let mut client = Client::raw(manager);
    client.send(&SSL_REQUEST_BYTES);
    let mut answer = [0];
    client.stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"N");
    client.send(&startup(Version::V3_0, &[("user", "postgres"), ("database", database)]));
    client
}

/// The first physical connection of a pool is made while 3,000 clients wait for it to log in: all of them get in, one after
/// another and without one's turn lying inside another's.
#[test]
fn all_wait_for_the_first_connection() {
    let db = database("storm");
    for workers in [1, 2] {
        let gate = Gate::new(server(), |visit| match visit {
            Visit::Login(_) => Treatment::Hold,
            Visit::Cancel(_) => Treatment::Pass,
        });
        let toml = "[timeouts]\nclient_login = 60\nserver_connect = 60\n";
        let manager = manager_at(&gate.conninfo(), toml, &overrides(workers, 2));
        let t = std::time::Instant::now();
        let mut clients: Vec<Client> = (0..3000).map(|_| begins(&manager, db)).collect();
        eventually(Duration::from_secs(5), "the pool's connections are asked for", || gate.held() == 2);
        assert!(clients[2999].is_silent(Duration::from_millis(200)) && clients[0].is_silent(Duration::ZERO));
        eprintln!("{:?}", t.elapsed());
        gate.open();
        for client in &mut clients {
            let reply = client.reply();
            assert_eq!((reply.state(), reply.status), ("", b'I'), "{reply:?}");
        }
        eprintln!("{:?}", t.elapsed()); // They are served, each with its own answer.
        for (i, client) in clients.iter_mut().enumerate().step_by(5) {
            client.start(&format!("select {i}"));
        }
        for (i, client) in clients.iter_mut().enumerate().step_by(5) {
            assert_eq!(client.reply().value(), i.to_string());
        }
        eprintln!("{:?}", t.elapsed());
        assert_eq!(gate.logins(), 2);
        assert!((1..=2).contains(&backends(db, "true")));
    }
}

/// How a client must prove its identity is asked from the server, which does not answer: questions that wait are bounded.
/// Those beyond are told so at once; the others, and later ones, get in as soon as the server answers.
#[test]
fn questions_about_users_are_bounded() {
    let fake = Fake::start();
    let overrides = Overrides { auth: Some(AuthMethod::Server), ..overrides(2, 2) };
    let manager = manager_at(&fake.conninfo(), "[timeouts]\nserver_connect = 60\n", &overrides);
    fake.sleep();
    let count = 1200;
    let mut clients: Vec<Client> = (0..count).map(|_| begins(&manager, "postgres")).collect();
    std::thread::sleep(Duration::from_millis(300));
    let (mut refused, mut waiting) = (Vec::new(), Vec::new());
    for mut client in clients.drain(..) {
        if client.is_silent(Duration::ZERO) { &mut waiting } else { &mut refused }.push(client);
    }
    // A cancel request asks nothing, and is not held up.
    cancel(&manager, &[0; 8]);
    fake.wake();
    for client in &mut refused {
        let reply = client.reply();
        assert_eq!((reply.state(), reply.status), ("53300", 0), "{reply:?}");
        assert!(reply.errors[0].1.contains("hint: "), "{reply:?}");
    }
    assert!((100..count / 2).contains(&refused.len()), "{} of {count} were refused", refused.len());
    // One leaves before its turn.
    drop(waiting.pop());
    for client in &mut waiting {
        let reply = client.reply();
        assert_eq!((reply.state(), reply.status), ("", b'I'), "{reply:?}");
    }
    let mut late = Client::new(&manager, "postgres");
    assert!(late.query("select").errors.is_empty());
    assert!(waiting[0].query("select").errors.is_empty());
    eventually(Duration::from_secs(5), "no more than the pool's connections stay", || fake.open() <= 2);
}

/// Questions that nobody has answered yet do not hold up the end of the manager.
#[test]
fn a_silent_server_does_not_hold_up_the_end() {
    let fake = Fake::start();
    let overrides = Overrides { auth: Some(AuthMethod::Server), ..overrides(1, 2) };
    let manager = manager_at(&fake.conninfo(), "[timeouts]\nserver_connect = 2\n", &overrides);
    fake.sleep();
    let clients: Vec<Client> = (0..12).map(|_| begins(&manager, "postgres")).collect();
    std::thread::sleep(Duration::from_millis(200));
    let begun = Instant::now();
    manager.shut_down(|| true);
    // Those that are being asked may end at their limit in time; those that wait behind them need not be asked at all.
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    drop(clients);
}
