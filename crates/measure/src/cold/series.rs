//! Connections one after the other, each with a statement that is sent twice.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pgusher_client::{Connection, Connector, Reply};

use super::model::{Kept, Sample};
use crate::backend::{self, Spent};
use crate::failure::{Failure, Failures, Step};

/// How long a server that was restarted may refuse connections.
const COME_UP: Duration = Duration::from_secs(60);

/// Time between two attempts meanwhile.
const KNOCK: Duration = Duration::from_millis(20);

/// What is done.
pub(super) struct Series<'a> {
    pub(super) connector: &'a Connector,
    pub(super) statement: &'a str,
    pub(super) connections: u32,
    /// Whether a first connection that is refused because the server is not up yet is tried again, uncounted. Such a
    /// refusal comes before a backend looks at its caches, so the one that is let in is still the first.
    pub(super) patient: bool,
    /// Whether the backend's own figures can be read on this machine.
    pub(super) backends_are_here: bool,
}

impl Series<'_> {
    /// Makes the connections, and waits after each until the server has closed its side, so that no connection is
    /// measured while the last one's backend still ends.
    pub(super) fn run(&self, failures: &mut Failures, stop: &AtomicBool) -> Vec<Sample> {
        let mut samples: Vec<Sample> = Vec::new();
        for _ in 0..self.connections {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let (begun, result) = self.connect(samples.is_empty(), stop);
            match result {
                Err(error) => failures.count(Failure::of(Step::Connect, &error)),
                Ok(connection) => {
                    let connect_us = us(begun.elapsed());
                    let number = samples.len() as u32 + 1;
                    samples.push(self.statements(
                        connection,
                        Sample { number, connect_us, ..Sample::default() },
                        failures,
                    ));
                }
            }
        }
        samples
    }

    fn connect(&self, first: bool, stop: &AtomicBool) -> (Instant, pgusher_client::Result<Connection>) {
        let limit = Instant::now() + COME_UP;
        loop {
            let begun = Instant::now();
            let result = self.connector.connect();
            match result {
                Err(error) if self.patient && first && is_starting(&error) && Instant::now() < limit => {
                    if stop.load(Ordering::Relaxed) {
                        return (begun, Err(error));
                    }
                    thread::sleep(KNOCK);
                }
                result => return (begun, result.map(|(connection, _)| connection)),
            }
        }
    }

    fn statements(&self, mut connection: Connection, mut sample: Sample, failures: &mut Failures) -> Sample {
        if let Some(Spent { cpu_us, minor_faults }) = self.spent(&connection) {
            sample.backend_cpu_us = Some(cpu_us);
            sample.backend_minor_faults = Some(minor_faults);
        }
        for place in [&mut sample.query_us, &mut sample.again_us] {
            match connection.simple_query(self.statement).and_then(Reply::into_result) {
                Ok(reply) => *place = Some(us(reply.ready)),
                Err(error) => {
                    failures.count(Failure::of(Step::Transaction, &error));
                    break;
                }
            }
        }
        if connection.is_usable() {
            if let Err(error) = connection.terminate() {
                failures.count(Failure::of(Step::Disconnect, &error));
            }
        }
        sample
    }

    fn spent(&self, connection: &Connection) -> Option<Spent> {
        self.backends_are_here.then(|| backend::spent(connection.backend_pid())).flatten()
    }
}

/// Whether the server is about to come up: nobody listens, the socket is not there, or it says so itself (57P03).
fn is_starting(error: &pgusher_client::Error) -> bool {
    let refused = error
        .io_error()
        .is_some_and(|e| matches!(e.kind(), std::io::ErrorKind::ConnectionRefused | std::io::ErrorKind::NotFound));
    refused || error.sqlstate() == Some("57P03")
}

/// The statement of a client that was there before.
pub(super) fn ask_kept(mut connection: Connection, statement: &str) -> Kept {
    match connection.simple_query(statement).and_then(Reply::into_result) {
        Ok(reply) => Kept { query_us: Some(us(reply.ready)), error: None },
        Err(error) => Kept { query_us: None, error: Some(error.to_string()) },
    }
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
