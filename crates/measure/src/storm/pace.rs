//! When connections begin: all at once, so many at a time, or so many per second.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// When connections begin.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "mode")]
pub enum Pace {
    /// All at once, as fast as the threads can send.
    Burst,
    /// The next one when fewer than `in_flight` are under way. A closed loop: a slow server is asked less.
    Window {
        /// How many may be under way.
        in_flight: u32,
    },
    /// Evenly spaced, whatever the server does. An open loop: latency counts from the intended start.
    Rate {
        /// How many.
        per_second: f64,
    },
}

impl Pace {
    /// How many of the connections under way one of `threads` threads may have; all of them without a window.
    pub(super) fn share(self, thread: u32, threads: u32) -> u32 {
        match self {
            Self::Window { in_flight } => in_flight / threads + u32::from(thread < in_flight % threads),
            Self::Burst | Self::Rate { .. } => u32::MAX,
        }
    }

    /// How many threads make sense.
    pub(super) fn threads(self, wanted: u32, clients: u32) -> u32 {
        let most = match self {
            Self::Window { in_flight } => in_flight.min(clients),
            Self::Burst | Self::Rate { .. } => clients,
        };
        wanted.clamp(1, most.max(1))
    }

    /// When the connection at this place (from 0) is to begin, from the start of the round; `None`: as soon as possible.
    pub(super) fn intended(self, place: u32) -> Option<Duration> {
        match self {
            Self::Rate { per_second } => Some(Duration::from_secs_f64(f64::from(place) / per_second)),
            Self::Burst | Self::Window { .. } => None,
        }
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Burst => f.write_str("all at once"),
            Self::Window { in_flight } => write!(f, "{in_flight} in flight"),
            Self::Rate { per_second } => write!(f, "{per_second} per second (open loop)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_shared_out_whole() {
        for (in_flight, wanted, clients) in [(64, 2, 1000), (5, 3, 1000), (1, 8, 10), (100, 4, 2)] {
            let pace = Pace::Window { in_flight };
            let threads = pace.threads(wanted, clients);
            let shares: Vec<u32> = (0..threads).map(|t| pace.share(t, threads)).collect();
            assert_eq!(shares.iter().sum::<u32>(), in_flight);
            assert!(shares.iter().all(|s| *s > 0), "{shares:?}");
        }
        assert_eq!(Pace::Burst.threads(8, 3), 3);
        assert_eq!(Pace::Burst.threads(0, 3), 1);
    }

    #[test]
    fn a_rate_is_even() {
        let pace = Pace::Rate { per_second: 200.0 };
        assert_eq!(pace.intended(0), Some(Duration::ZERO));
        assert_eq!(pace.intended(200), Some(Duration::from_secs(1)));
        assert_eq!(Pace::Burst.intended(5), None);
    }
}
