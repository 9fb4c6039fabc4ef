//! Connections one after the other, with their phases: the first one may pay for what later ones find done.

use std::sync::atomic::{AtomicBool, Ordering};

use pgusher_client::{Connector, Phase};

use crate::failure::{Failure, Failures, Step};
use crate::report::{ConnectionSample, ConnectionSeries, PhaseTime};
use crate::target::Side;

/// A row of a table by its key: what applications do first.
pub(super) const STATEMENT: &str = "select abalance from pgbench_accounts where aid = 4711";

/// Makes `count` connections, each with one statement, and waits after each until the server has closed its side, so
/// that no connection is measured while the last one's backend still ends.
pub fn connections(connector: &Connector, side: Side, count: u32, stop: &AtomicBool) -> ConnectionSeries {
    let mut series = ConnectionSeries {
        side,
        after: match side {
            Side::Direct => "PostgreSQL's start",
            Side::Managed => "PostgreSQL's and the manager's start",
        }
        .to_owned(),
        statement: STATEMENT.to_owned(),
        samples: Vec::new(),
        failures: Vec::new(),
    };
    let mut failures = Failures::default();
    for number in 1..=count {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        match connector.connect() {
            Err(error) => failures.count(Failure::of(Step::Connect, &error)),
            Ok((mut connection, attempts)) => {
                let phases = attempts.last().map(|a| a.phases).unwrap_or_default();
                let us = |d: std::time::Duration| d.as_secs_f64() * 1e6;
                let statement = connection.simple_query(STATEMENT).and_then(pgusher_client::Reply::into_result);
                series.samples.push(ConnectionSample {
                    number,
                    phases: phases
                        .iter()
                        .map(|(phase, time): (Phase, _)| PhaseTime { phase: phase.name().to_owned(), us: us(time) })
                        .collect(),
                    connect_us: us(attempts.total),
                    statement_us: statement.as_ref().ok().map(|reply| us(reply.ready)),
                });
                if let Err(error) = statement {
                    failures.count(Failure::of(Step::Transaction, &error));
                }
                if connection.is_usable() {
                    if let Err(error) = connection.terminate() {
                        failures.count(Failure::of(Step::Disconnect, &error));
                    }
                }
            }
        }
    }
    series.failures = failures.counts();
    series
}
