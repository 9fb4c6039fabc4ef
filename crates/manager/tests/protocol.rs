//! The first messages of a connection: which version of the protocol is spoken, which cancel key belongs to it; and bytes that
//! are no protocol at all.

mod support;

use pgusher_wire::frontend;
use pgusher_wire::startup::Version;
use std::io::Read;
use std::time::Duration;
use support::*;

/// Logs in with this version; the NegotiateProtocolVersion that came first, if any, and what else came.
fn negotiated(client: &mut Client, version: Version, parameters: &[(&str, &str)]) -> (Option<Vec<u8>>, Reply) {
    client.send(&startup(version, parameters));
    let (tag, body) = client.message().unwrap();
    let first = match tag {
        b'v' => {
            let after = client.message().unwrap();
            assert_eq!(after.0, b'R', "authentication follows");
            Some(body)
        }
        b'R' => None,
        tag => panic!("message {tag} at first: {body:?}"),
    };
    (first, client.reply())
}

fn negotiation(minor: u32, unknown: &[&str]) -> Vec<u8> {
    let mut body = ((3 << 16) | minor).to_be_bytes().to_vec();
    body.extend(u32::try_from(unknown.len()).unwrap().to_be_bytes());
    for name in unknown {
        body.extend(name.as_bytes());
        body.push(0);
    }
    body
}

#[test]
fn versions_and_cancel_keys() {
    let db = database("versions");
    let who = [("user", "postgres"), ("database", db)];
    let option = [who[0], who[1], ("_pq_.tomorrow", "1")];
    let minor = |minor| Version { major: 3, minor };
    for workers in [1, 2] {
        let manager = manager(server(), workers, 2);
        for (version, parameters, answer, key_len) in [
            (minor(0), &who[..], None, 4),
            (minor(2), &who, None, 32),
            // Later than we know: down to the newest that we do.
            (minor(3), &who, Some(negotiation(2, &[])), 32),
            (minor(9999), &who, Some(negotiation(2, &[])), 32),
            // Options that we do not know.
            (minor(0), &option, Some(negotiation(0, &["_pq_.tomorrow"])), 4),
            (minor(2), &option, Some(negotiation(2, &["_pq_.tomorrow"])), 32),
            (minor(9999), &option, Some(negotiation(2, &["_pq_.tomorrow"])), 32),
        ] {
            let mut client = Client::raw(&manager);
            let (first, reply) = negotiated(&mut client, version, parameters);
            assert_eq!((reply.state(), reply.status), ("", b'I'), "{version:?}: {reply:?}");
            assert_eq!(first, answer, "{version:?}");
            assert_eq!(client.key.len(), 4 + key_len, "{version:?}");

            // The whole key cancels; a part of it does not.
            client.start("select pg_sleep(15), 'cancelled'");
            eventually(Duration::from_secs(5), "the query runs", || {
                backends(db, "query like '%cancelled%' and state = 'active'") == 1
            });
            let key = client.key.clone();
            if key_len > 4 {
                cancel(&manager, &key[..8]);
                cancel(&manager, &key[..key.len() - 1]);
                let mut wrong = key.clone();
                wrong[35] ^= 0x80;
                cancel(&manager, &wrong);
                assert!(client.is_silent(Duration::from_millis(50)));
            }
            cancel(&manager, &key);
            assert_eq!(client.reply().state(), "57014");
            assert_eq!(client.query("select 'after'").value(), "after");
        }
        // Two keys of the same client are not guessed from one another.
        let keys: Vec<Vec<u8>> = (0..2).map(|_| Client::new(&manager, db).key[4..].to_vec()).collect();
        assert_ne!(keys[0], keys[1]);

        for version in [Version { major: 2, minor: 0 }, Version { major: 4, minor: 0 }] {
            let mut client = Client::raw(&manager);
            client.send(&startup(version, &who));
            let reply = client.reply();
            assert_eq!((reply.state(), reply.status), ("0A000", 0), "{reply:?}");
            assert!(reply.errors[0].1.contains("3.2"), "{reply:?}");
        }
    }
}

/// xorshift64*.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.roll()).unwrap() % limit
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most)).map(|_| self.roll().to_le_bytes()[0]).collect()
    }

    /// Bytes at random, or messages with a sound frame and nonsense in it, or sound messages in an order that makes none.
    fn messages(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        for _ in 0..1 + self.below(6) {
            match self.below(6) {
                0 => out.extend(self.bytes(300)),
                1 | 2 => {
                    let tags = b"QPBDECSHFdcfXp";
                    let tag = tags[self.below(tags.len())];
                    let body = self.bytes(60);
                    out.push(tag);
                    out.extend(u32::try_from(body.len() + 4).unwrap().to_be_bytes());
                    out.extend(body);
                }
                3 => out.extend(query("begin; select repeat('x', 100000)")),
                4 => out.extend(query("copy (select generate_series(1, 1000)) to stdout; copy pg_class from stdin")),
                _ => {
                    let mut batch = batch("select 1 from generate_series(1, 100)");
                    frontend::write_close(&mut batch, frontend::Target::Statement, b"nothing");
                    let end = self.below(batch.len());
                    out.extend(&batch[..end]);
                }
            }
        }
        out
    }
}

/// Hundreds of connections that send nonsense in pieces, before and after a valid login. Some leave at once, some wait for what
/// is said to them. The others are served all the time, and afterwards every place is free again.
#[test]
fn noise() {
    let db = database("noise");
    for workers in [1, 2] {
        // Room for one more than those that live at the same time: a client that is counted and gone would soon be missed.
        let toml = "max_clients = 8\n[timeouts]\nclient_login = 2\n";
        let manager = manager_with(server(), toml, &overrides(workers, 3));
        let mut good = Client::new(&manager, db);
        std::thread::scope(|scope| {
            for thread in 1..=3u64 {
                let manager = &manager;
                scope.spawn(move || {
                    let mut dice = Dice(0x5eed * thread + workers as u64);
                    for round in 0..100 {
                        let mut client = if round % 3 == 0 { Some(Client::raw(manager)) } else { None };
                        if client.is_none() {
                            // The one before may not have been counted out yet.
                            eventually(PATIENCE, "room for one more", || {
                                client = Client::login(manager, &[("user", "postgres"), ("database", db)]).ok();
                                client.is_some()
                            });
                        }
                        let mut client = client.unwrap();
                        let bytes = dice.messages();
                        let mut rest = &bytes[..];
                        while !rest.is_empty() {
                            use std::io::Write;
                            let (piece, after) = rest.split_at(1 + dice.below(rest.len()));
                            // It may have been closed in between.
                            if client.stream.write_all(piece).is_err() {
                                break;
                            }
                            rest = after;
                            if dice.below(4) == 0 {
                                std::thread::yield_now();
                            }
                        }
                        if dice.below(2) == 0 {
                            let _ = client.stream.shutdown(std::net::Shutdown::Write);
                            let mut all = Vec::new();
                            let _ = client.stream.read_to_end(&mut all);
                        }
                    }
                });
            }
            for i in 0..100 {
                assert_eq!(good.query(&format!("select {i}")).value(), i.to_string());
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let mut places: Vec<Client> = Vec::new();
        eventually(Duration::from_secs(10), "all places are free", || {
            places.clear();
            places
                .extend((0..7).map_while(|_| Client::login(&manager, &[("user", "postgres"), ("database", db)]).ok()));
            places.len() == 7
        });
        let beyond = Client::login(&manager, &[("user", "postgres"), ("database", db)]);
        assert_eq!(beyond.err().map(|r| r.state().to_owned()).as_deref(), Some("53300"));
        assert_eq!(good.query("select 'good'").value(), "good");
        // The whole pool can be used, and nothing is left open in it.
        for client in &mut places[..3] {
            assert_eq!(client.query("begin").status, b'T');
        }
        for client in &mut places[..3] {
            assert_eq!(client.query("commit").status, b'I');
        }
        eventually(Duration::from_secs(5), "no transaction is open", || backends(db, "xact_start is not null") == 0);
        assert_eq!(backends(db, "true"), 3);
    }
}
