//! The doctor against real servers: each finding is provoked and found with its evidence; a healthy server has none; what
//! cannot be examined is said.

mod away;
mod catalogs;
mod clients;
mod healthy;
mod network;
mod rights;
mod settings;
mod statements;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pgusher_client::conninfo::{Environment, Params};
use pgusher_client::{Config, Connection, Connector};
use pgusher_embedded::{Builder, Server};
use pgusher_measure::doctor::{self, Cost, Diagnosis, Finding, Id, Options, Severity, Thresholds};

/// A server with the settings that this program recommends.
fn sound() -> Builder {
    Server::builder()
        .max_connections(100)
        .setting("shared_preload_libraries", "pg_stat_statements")
        .setting("pg_stat_statements.track_planning", "on")
        .setting("jit", "off")
}

/// The same, started, with the extension in the database.
fn start(builder: Builder) -> Server {
    let server = builder.start().expect("a server");
    server.psql("postgres", "create extension pg_stat_statements").expect("the extension");
    server
}

fn config(conninfo: &str) -> Config {
    Config::resolve(Params::parse(conninfo).expect("a connection string"), &Environment::empty()).expect("a config")
}

fn options() -> Options {
    Options { connections: 12, watch: Duration::from_millis(600), ..Options::default() }
}

fn examine(conninfo: &str, options: &Options) -> Diagnosis {
    doctor::run(&config(conninfo), options, &AtomicBool::new(false), &mut |_| {}).expect("a diagnosis")
}

/// As the superuser over TCP.
fn look(server: &Server, options: &Options) -> Diagnosis {
    examine(&server.conninfo("postgres", server.superuser()), options)
}

fn with(thresholds: Thresholds) -> Options {
    Options { thresholds, ..options() }
}

/// The finding, with what every finding must have.
fn found(diagnosis: &Diagnosis, id: Id) -> &Finding {
    let finding = diagnosis.findings.iter().find(|f| f.id == id);
    let finding = finding.unwrap_or_else(|| panic!("no {id} in {}", doctor::text(diagnosis)));
    assert!(!finding.evidence.is_empty() && !finding.cures.is_empty(), "{finding:?}");
    assert!(finding.evidence.iter().all(|e| !e.value.is_empty() && !e.source.is_empty()), "{finding:?}");
    finding
}

fn evidence<'a>(finding: &'a Finding, name: &str) -> &'a str {
    let of = finding.evidence.iter().find(|e| e.name == name);
    &of.unwrap_or_else(|| panic!("no evidence {name} in {finding:?}")).value
}

fn ids(diagnosis: &Diagnosis) -> Vec<(Id, Severity)> {
    diagnosis.findings.iter().map(|f| (f.id, f.severity)).collect()
}

fn measured(finding: &Finding) -> f64 {
    match &finding.cost {
        Cost::Measured { cost_us, .. } => *cost_us,
        Cost::NotMeasured { reason } => panic!("{} was not measured: {reason}", finding.id),
    }
}

fn reason<'a>(diagnosis: &'a Diagnosis, what: &str) -> &'a str {
    let of = diagnosis.not_examined.iter().find(|n| n.what == what);
    &of.unwrap_or_else(|| panic!("{what} is not among {:?}", diagnosis.not_examined)).reason
}

fn connect(conninfo: &str) -> Connection {
    Connector::new(&config(conninfo)).expect("a connector").connect().expect("a connection").0
}

/// `n` connections that stay until the list is dropped.
fn crowd(conninfo: &str, n: usize) -> Vec<Connection> {
    (0..n).map(|_| connect(conninfo)).collect()
}

/// Does something again and again until it is dropped.
struct Busy {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Busy {
    fn with(mut work: impl FnMut() + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                work();
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
