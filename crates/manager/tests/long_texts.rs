//! What a text costs that is too long to be read: its session is asked about, and its connection's settings are sent back to where
//! they began. Measured, see docs/decisions.md:
//! `cargo test -p pgusher-manager --test long_texts -- --ignored --nocapture`.

mod support;

use std::time::{Duration, Instant};
use support::*;

const ROUNDS: usize = 300;
/// The first ones are not counted.
const WARM: usize = 20;
/// A text that arrives at once is read although it is long. So its end comes so much later.
const PAUSE: Duration = Duration::from_millis(1);

fn median(times: &[Duration]) -> Duration {
    let mut times = times.get(WARM..).unwrap_or_default().to_vec();
    times.sort();
    times[times.len() / 2]
}

/// A statement whose text has so many KiB.
fn text(kib: usize) -> Vec<u8> {
    query(&format!("select length('{}')", "x".repeat(kib * 1024 - 20)))
}

fn timed(action: impl FnOnce() -> Reply) -> Duration {
    let begun = Instant::now();
    assert!(action().errors.is_empty());
    begun.elapsed()
}

#[test]
#[ignore = "a measurement"]
fn cost() {
    let db = database("long_texts_cost");
    let manager = manager(server(), 1, 1);
    let (mut one, mut next) = (Client::new(&manager, db), Client::new(&manager, db));
    let texts = [("11 KiB", text(11)), ("13 KiB", text(13))];
    let (mut own, mut others) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
    for _ in 0..WARM + ROUNDS {
        for (((_, text), own), others) in texts.iter().zip(&mut own).zip(&mut others) {
            let (first, last) = text.split_at(text.len() - 512);
            one.send(first);
            std::thread::sleep(PAUSE);
            own.push(timed(|| {
                one.send(last);
                one.reply()
            }));
            // It waits for the one connection.
            others.push(timed(|| next.query("select 1")));
        }
    }
    for (((what, _), own), others) in texts.iter().zip(own).zip(others) {
        println!("{what}: {:?}; the next client's select 1: {:?}", median(&own), median(&others));
    }
    // What the server alone needs for the settings.
    assert_eq!(one.query("begin").status, b'T');
    for sql in ["select 1", "set session authorization default;reset all"] {
        let times: Vec<Duration> = (0..WARM + ROUNDS).map(|_| timed(|| one.query(sql))).collect();
        println!("{sql}: {:?}", median(&times));
    }
}
