//! A server that takes its time to judge a password: that must hold up nobody else's login.

mod support;

use pgusher_embedded::Server;
use pgusher_manager::{AuthMethod, Overrides};
use pgusher_wire::frontend;
use pgusher_wire::startup::Version;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::gate::{Gate, Treatment};
use support::*;

#[test]
fn who_guesses_passwords_holds_up_nobody_else() {
    let server = Server::builder()
        .hba("host all postgres 127.0.0.1/32 trust")
        .hba("host all guest 127.0.0.1/32 trust")
        .hba("host all all 127.0.0.1/32 password")
        .start()
        .unwrap();
    server.psql("postgres", "create role guest login; create role clear login password 'x'").unwrap();
    let slow = Arc::new(AtomicBool::new(false));
    let is_slow = slow.clone();
    let gate =
        Gate::new(&server, move |_| if is_slow.load(Ordering::Relaxed) { Treatment::Hold } else { Treatment::Pass });
    let overrides = Overrides { auth: Some(AuthMethod::Server), ..overrides(1, 2) };
    let manager = manager_at(&gate.conninfo(), "", &overrides);
    let parameters = [("user", "clear"), ("database", "postgres")];
    let mut guessing: Vec<Client> = Vec::new();
    for _ in 0..20 {
        let mut client = Client::raw(&manager);
        client.send(&startup(Version::V3_0, &parameters));
        assert_eq!(client.message(), Some((b'R', vec![0, 0, 0, 3])));
        guessing.push(client);
    }
    slow.store(true, Ordering::Relaxed);
    for client in &mut guessing {
        let mut password = Vec::new();
        frontend::write_password(&mut password, b"wrong");
        client.send(&password);
    }
    eventually(PATIENCE, "passwords are judged", || gate.held() > 1);
    std::thread::sleep(Duration::from_millis(200));
    let held = gate.held();
    slow.store(false, Ordering::Relaxed);
    let begun = Instant::now();
    let mut guest = Client::login(&manager, &[("user", "guest"), ("database", "postgres")]).unwrap();
    assert_eq!(guest.query("select current_user").value(), "guest");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    // They are judged one after the other, a few at a time.
    assert!((2..=8).contains(&held), "{held}");
    gate.open();
    for mut client in guessing {
        assert_eq!(client.until(b'Z').state(), "28P01");
    }
}
