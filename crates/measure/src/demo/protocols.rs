//! The same statement in the three protocols, several times in each of several fresh connections.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pgusher_client::{Connection, Connector, Reply, Result};

use super::connections::STATEMENT;
use crate::failure::{Failure, Failures, Step};
use crate::report::ProtocolSeries;
use crate::target::Side;

/// The three protocols of a statement.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// Query.
    Simple,
    /// Parse + Describe + Sync, then Bind + Execute + Sync, each time.
    Extended,
    /// The same, but parsed once by name; the first run includes that.
    Prepared,
}

const WAYS: [(Way, &str); 3] = [(Way::Simple, "simple"), (Way::Extended, "extended"), (Way::Prepared, "prepared")];

/// Measures every protocol on every side, in turn: each round makes one fresh connection for each of them.
pub fn protocols(sides: &[(Side, Connector)], sessions: u32, runs: u32, stop: &AtomicBool) -> Vec<ProtocolSeries> {
    let mut all = Vec::new();
    for (way, name) in WAYS {
        for (side, connector) in sides {
            let series = ProtocolSeries {
                side: *side,
                protocol: name.to_owned(),
                statement: STATEMENT.to_owned(),
                runs_us: Vec::new(),
                failures: Vec::new(),
            };
            all.push((way, connector, series, Failures::default()));
        }
    }
    for _ in 0..sessions {
        for (way, connector, series, failures) in &mut all {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            match session(connector, *way, runs) {
                Ok(times) => series.runs_us.push(times),
                Err(failure) => failures.count(failure),
            }
        }
    }
    all.into_iter()
        .map(|(_, _, mut series, failures)| {
            series.failures = failures.counts();
            series
        })
        .collect()
}

/// The runs of one fresh connection, microseconds. A session with a failing run is not used at all.
fn session(connector: &Connector, way: Way, runs: u32) -> std::result::Result<Vec<f64>, Failure> {
    let (mut connection, _) = connector.connect().map_err(|e| Failure::of(Step::Connect, &e))?;
    let mut times = Vec::new();
    for number in 1..=runs {
        let took = run(&mut connection, way, number).map_err(|e| Failure::of(Step::Transaction, &e))?;
        times.push(took.as_secs_f64() * 1e6);
    }
    // Waits for the backend's end, so that it does not disturb the next session.
    connection.terminate().map_err(|e| Failure::of(Step::Disconnect, &e))?;
    Ok(times)
}

fn run(connection: &mut Connection, way: Way, number: u32) -> Result<Duration> {
    let ready = |reply: Result<Reply>| reply.and_then(Reply::into_result).map(|r| r.ready);
    match way {
        Way::Simple => ready(connection.simple_query(STATEMENT)),
        Way::Extended => {
            let parse = ready(connection.parse_describe_sync("", STATEMENT))?;
            Ok(parse + ready(connection.bind_execute_sync("", &[]))?)
        }
        Way::Prepared => {
            let parse = match number {
                1 => ready(connection.parse_describe_sync("s1", STATEMENT))?,
                _ => Duration::ZERO,
            };
            Ok(parse + ready(connection.bind_execute_sync("s1", &[]))?)
        }
    }
}
