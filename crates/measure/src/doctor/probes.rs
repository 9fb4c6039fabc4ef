//! Connections that are opened only to be timed: one after the other, a bounded number, each with its phases.

use std::time::Duration;

use pgusher_client::{Attempts, Config, Connection, Connector, Error, Phase};

use super::place::minor_faults;
use crate::stats::Distribution;

/// Longest wait for any answer while measuring.
const LIMIT: Duration = Duration::from_secs(20);

/// One connection that succeeded.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Probe {
    /// All attempts together, microseconds.
    pub(super) total_us: f64,
    /// The phases of the attempt that succeeded.
    pub(super) phases: Vec<(Phase, f64)>,
    /// Minor page faults of its backend, right after the login.
    pub(super) faults: Option<f64>,
}

/// An attempt that failed before another one succeeded.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wasted {
    pub(super) target: String,
    pub(super) us: f64,
    pub(super) error: String,
}

/// All of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Probes {
    pub(super) done: Vec<Probe>,
    /// Connections that were refused: SQLSTATE or kind of error, and the message.
    pub(super) refused: Vec<(String, String)>,
    /// Of one connection, the first that had any.
    pub(super) wasted: Vec<Wasted>,
    /// Empty statements on an open connection, microseconds.
    pub(super) round_trips: Vec<f64>,
}

/// A duration in microseconds.
pub(super) fn micros(time: Duration) -> f64 {
    crate::profile::micros(time)
}

/// What connects for measuring.
pub(super) fn connector(config: &Config) -> Result<Connector, Error> {
    Ok(Connector::new(config)?.timeout(Some(LIMIT)))
}

impl Probes {
    /// Opens and closes `n` connections; `each` is told while one is open. Ends with the first that fails.
    pub(super) fn measure(
        &mut self,
        connector: &Connector,
        n: u32,
        same_machine: bool,
        each: &mut dyn FnMut(&Connection) -> bool,
    ) {
        let mut attempts = Attempts::default();
        for _ in 0..n {
            match connector.connect_traced(&mut attempts) {
                Ok(connection) => {
                    let faults = same_machine.then(|| minor_faults(connection.backend_pid())).flatten();
                    self.note(&attempts, faults);
                    let go_on = each(&connection);
                    // Waits for the backend's end, so that two of ours never fill two slots.
                    if connection.terminate().is_err() || !go_on {
                        return;
                    }
                }
                Err(error) => {
                    let cause = error.sqlstate().unwrap_or(error.kind().name()).to_owned();
                    let words = error.server().map_or_else(|| error.to_string(), |server| server.message.clone());
                    self.refused.push((cause, words));
                    return;
                }
            }
        }
    }

    /// Keeps what the attempts of a connection took.
    pub(super) fn note(&mut self, attempts: &Attempts, faults: Option<f64>) {
        let phases = attempts.phases().iter().map(|(phase, time)| (phase, micros(time))).collect();
        self.done.push(Probe { total_us: micros(attempts.total), phases, faults });
        if self.wasted.is_empty() {
            self.wasted = wasted(attempts);
        }
    }

    /// The time of a whole connection.
    pub(super) fn connection(&self) -> Option<Distribution> {
        Distribution::of(&self.done.iter().map(|p| p.total_us).collect::<Vec<_>>())
    }

    /// The time of a phase; none if it did not happen.
    pub(super) fn phase(&self, wanted: Phase) -> Option<Distribution> {
        let times = self.done.iter().flat_map(|p| &p.phases).filter(|(phase, _)| *phase == wanted);
        Distribution::of(&times.map(|(_, us)| *us).collect::<Vec<_>>())
    }

    /// The phases in which the server works, together, of each connection.
    pub(super) fn server(&self) -> Option<Distribution> {
        let server = [Phase::QueueFork, Phase::Startup, Phase::Authenticate, Phase::Ready];
        let sum =
            |p: &Probe| p.phases.iter().filter(|(phase, _)| server.contains(phase)).map(|(_, us)| us).sum::<f64>();
        Distribution::of(&self.done.iter().map(sum).collect::<Vec<_>>())
    }

    /// How many times the network is crossed in both directions during a connection.
    pub(super) fn crossings(&self) -> f64 {
        let Some(probe) = self.done.last() else { return 0.0 };
        let waits = [Phase::Connect, Phase::QueueFork, Phase::Tls, Phase::Startup, Phase::Authenticate, Phase::Ready];
        // Without a question from the server the last phase arrives together with the one before.
        let real = |(phase, us): &&(Phase, f64)| waits.contains(phase) && (*phase != Phase::Ready || *us > 100.0);
        probe.phases.iter().filter(real).count() as f64
    }

    /// A round trip.
    pub(super) fn round_trip(&self) -> Option<Distribution> {
        Distribution::of(&self.round_trips)
    }

    /// Minor page faults of a new backend, median.
    pub(super) fn faults(&self) -> Option<f64> {
        Distribution::of(&self.done.iter().filter_map(|p| p.faults).collect::<Vec<_>>()).map(|d| d.median)
    }

    /// How a median was measured, in words.
    pub(super) fn how(of: &Distribution) -> String {
        format!("median of {} connections from here", of.n)
    }
}

fn wasted(attempts: &Attempts) -> Vec<Wasted> {
    let failed = attempts.iter().filter_map(|attempt| {
        let error = attempt.error.as_ref()?;
        Some(Wasted { target: attempt.target.clone(), us: micros(attempt.phases.total), error: error.text.clone() })
    });
    failed.collect()
}

/// Connects with and without additional startup options in turn; microseconds of each.
pub(super) fn compare(config: &Config, without: &str, pairs: u32) -> Result<(Vec<f64>, Vec<f64>), Error> {
    let with = connector(config)?;
    let without = connector(&with_options(config, without))?;
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for _ in 0..pairs {
        for (connector, times) in [(&with, &mut a), (&without, &mut b)] {
            let (connection, attempts) = connector.connect()?;
            connection.terminate()?;
            times.push(micros(attempts.total));
        }
    }
    Ok((a, b))
}

/// The same target with more in `options`.
pub(super) fn with_options(config: &Config, more: &str) -> Config {
    let mut config = config.clone();
    let known = config.parameters.iter().find(|(name, _)| name == "options").map(|(_, value)| value.as_str());
    let options = match known {
        Some(known) => format!("{known} {more}"),
        None => more.to_owned(),
    };
    config.set_parameter("options", &options);
    config
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgusher_client::conninfo::{Environment, Params};

    #[test]
    fn options_are_added_to_those_that_are_there() {
        let params = Params::parse("host=h user=u options='-c a=b'").expect("parameters");
        let config = Config::resolve(params, &Environment::empty()).expect("config");
        let both = with_options(&config, "-c c=d");
        assert!(both.parameters.contains(&("options".to_owned(), "-c a=b -c c=d".to_owned())));
    }

    #[test]
    fn the_servers_share_is_the_sum_of_its_phases_per_connection() {
        let probe = |ready| Probe {
            total_us: 100.0,
            phases: vec![(Phase::Connect, 50.0), (Phase::Startup, 10.0), (Phase::Ready, ready)],
            faults: Some(500.0),
        };
        let probes = Probes { done: vec![probe(200.0), probe(400.0), probe(300.0)], ..Probes::default() };
        assert_eq!(probes.server().map(|d| d.median), Some(310.0));
        assert_eq!(probes.phase(Phase::Tls), None);
        assert_eq!((probes.crossings(), probes.faults()), (3.0, Some(500.0)));
    }
}
