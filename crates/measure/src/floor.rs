//! The host's own floor: what a measurement on this machine cannot go below, whatever the server does.
//!
//! Two short experiments of 50 ms each. A loop that does nothing but read the clock shows what a reading costs and, by
//! its longest gap, how long this process was kept from running. A byte that goes to another thread and back over a
//! pair of sockets shows what two system calls and two wake-ups cost, the least that any request to a local server does.

use std::fmt;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::stats::{micros, quantile};

/// How long each of the two lasts.
const LENGTH: Duration = Duration::from_millis(50);

/// What was found. Microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Floor {
    /// What one reading of the clock takes: median over batches of 256.
    pub clock_us: f64,
    /// Median time of a byte to another thread and back over a pair of sockets.
    pub pingpong_us: f64,
    /// The longest time between two readings of the clock in a loop that does nothing else.
    pub worst_gap_us: f64,
}

impl Floor {
    /// Measures it in a tenth of a second. `None` if the system gives no thread or no sockets.
    #[must_use]
    pub fn measure() -> Option<Self> {
        let (clock_us, worst_gap_us) = clock();
        Some(Self { clock_us, pingpong_us: pingpong()?, worst_gap_us })
    }

    /// In words.
    #[must_use]
    pub fn words(&self) -> String {
        format!(
            "clock {}, ping-pong between two threads {}, worst gap {}",
            micros(self.clock_us),
            micros(self.pingpong_us),
            micros(self.worst_gap_us)
        )
    }
}

impl fmt::Display for Floor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the host's own floor: {}", self.words())
    }
}

/// What a reading takes, and the longest gap between two.
fn clock() -> (f64, f64) {
    const BATCH: u32 = 256;
    let begun = Instant::now();
    let (mut last, mut worst, mut batches) = (begun, Duration::ZERO, Vec::new());
    while last.duration_since(begun) < LENGTH {
        let first = last;
        for _ in 0..BATCH {
            let now = Instant::now();
            worst = worst.max(now.duration_since(last));
            last = now;
        }
        batches.push(us(last.duration_since(first)) / f64::from(BATCH));
    }
    batches.sort_unstable_by(f64::total_cmp);
    (quantile(&batches, 0.5), us(worst))
}

/// Median round trip of a byte.
fn pingpong() -> Option<f64> {
    let (mut here, mut there) = UnixStream::pair().ok()?;
    let echo = thread::Builder::new().spawn(move || {
        let mut byte = [0];
        // Ends with the other side.
        while there.read_exact(&mut byte).is_ok() && there.write_all(&byte).is_ok() {}
    });
    let echo = echo.ok()?;
    let (begun, mut trips, mut byte) = (Instant::now(), Vec::new(), [0]);
    while begun.elapsed() < LENGTH {
        let sent = Instant::now();
        if here.write_all(&[1]).and_then(|()| here.read_exact(&mut byte)).is_err() {
            break;
        }
        trips.push(us(sent.elapsed()));
    }
    drop(here);
    echo.join().ok()?;
    trips.sort_unstable_by(f64::total_cmp);
    Some(quantile(&trips, 0.5)).filter(|median| median.is_finite())
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_is_positive_and_in_order() {
        let floor = Floor::measure().expect("threads and sockets");
        assert!(floor.clock_us > 0.0 && floor.clock_us < floor.worst_gap_us, "{floor:?}");
        assert!(floor.pingpong_us > floor.clock_us, "{floor:?}");
        assert!(floor.to_string().starts_with("the host's own floor: clock "), "{floor}");
    }
}
