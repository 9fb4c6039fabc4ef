//! Findings about the way to the server.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use pgusher_measure::doctor::{Id, Severity, Thresholds};

use crate::{evidence, examine, found, ids, measured, options, sound, start, with};

#[test]
fn addresses_that_do_not_answer() {
    let server = start(sound());
    let closed = pgusher_embedded::free_port().expect("a port");
    let conninfo = format!("host=127.0.0.1,127.0.0.1 port={closed},{} user=postgres dbname=postgres", server.port());
    let diagnosis = examine(&conninfo, &options());
    let finding = found(&diagnosis, Id::AttemptsWasted);
    assert!(evidence(finding, &format!("127.0.0.1:{closed}")).contains("refused"), "{finding:?}");
    assert!(measured(finding) > 0.0);
}

#[test]
fn a_slow_look_up_of_the_servers_name() {
    let server = start(sound());
    // How slow is a matter of this machine's resolver, so the threshold is lowered and not the resolver slowed down.
    let thresholds = Thresholds { name_lookup_us: 0.5, ..Thresholds::default() };
    let conninfo = format!("host=localhost port={} user=postgres dbname=postgres", server.port());
    let diagnosis = examine(&conninfo, &with(thresholds));
    let finding = found(&diagnosis, Id::SlowNameLookup);
    assert!(measured(finding) > 0.5 && evidence(finding, "look-ups") == "3", "{finding:?}");
}

/// Passes bytes on, each block so much later.
fn far_away(port: u16, delay: Duration) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let own = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return };
            for (mut from, mut to) in [(client.try_clone(), server.try_clone()), (Ok(server), Ok(client))]
                .map(|(a, b)| (a.expect("a socket"), b.expect("a socket")))
            {
                to.set_nodelay(true).expect("an option");
                thread::spawn(move || {
                    let mut buffer = [0; 65_536];
                    while let Ok(n @ 1..) = from.read(&mut buffer) {
                        thread::sleep(delay);
                        if to.write_all(&buffer[..n]).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
    own
}

#[test]
fn a_network_that_is_most_of_a_connection() {
    let server = start(sound());
    let port = far_away(server.port(), Duration::from_millis(15));
    let conninfo = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres");
    // On a busy machine the server's own part can be more than the network's.
    let seen = (0..5)
        .map(|_| examine(&conninfo, &options()))
        .find(|d| d.findings.iter().any(|f| f.id == Id::NetworkRoundTrips));
    let diagnosis = seen.expect("the finding");
    let finding = found(&diagnosis, Id::NetworkRoundTrips);
    assert!(measured(finding) > 30_000.0, "two directions of 15 ms, more than once: {finding:?}");
}

/// An address of this machine that is not the loopback; no packet is sent to find it.
fn own_address() -> Option<String> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("198.51.100.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then(|| address.to_string())
}

#[test]
fn plain_connections_over_the_network() {
    let Some(address) = own_address() else {
        eprintln!("this machine has no address but the loopback");
        return;
    };
    let server = start(sound().setting("listen_addresses", "*").hba("host all all all trust"));
    let conninfo = format!("host={address} port={} user=postgres dbname=postgres", server.port());
    let diagnosis = examine(&conninfo, &options());
    let finding = found(&diagnosis, Id::SslOff);
    assert_eq!((finding.severity, evidence(finding, "ssl")), (Severity::Warning, "off"));
    let local = examine(&server.conninfo("postgres", "postgres"), &options());
    assert!(ids(&local).iter().all(|(id, _)| *id != Id::SslOff), "not within the machine");
}
