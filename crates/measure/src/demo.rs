//! Everything once, in about a minute: first and later connections, the three protocols, and reconnecting, direct
//! and through the manager, on a private PostgreSQL.
//!
//! The order: the table is made and the server restarted, so that the first connection really is the first after a
//! start; then the same for the managed side with a manager of its own; the other experiments alternate between
//! the sides. What fails is counted and the rest goes on; without a manager the direct half is measured alone.

mod connections;
mod protocols;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pgusher_client::{Config, Connector};
use pgusher_embedded::Server;

pub use connections::connections;
pub use protocols::protocols;

use crate::manager_process::ManagerProcess;
use crate::reconnect::{self, Limit, Mode, Protocol};
use crate::report::{Environment, Report, ServerFacts, findings};
use crate::script::Script;
use crate::target::{Side, Target};

const DATABASE: &str = "postgres";
const USER: &str = "postgres";

/// How the sides are reached.
const DIRECT: &str = "TCP over loopback, trust, no TLS";
const MANAGED: &str = "TCP over loopback, trust, no TLS; from the manager a Unix socket";

/// How long after a restart the first client comes, on either side.
const COME_BACK: Duration = Duration::from_millis(200);

/// What a person may choose.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program whose `serve` is the manager.
    pub program: PathBuf,
    /// Clients of the reconnect experiment.
    pub clients: u32,
    /// Length of each of its rounds.
    pub round: Duration,
    /// Rounds of each of its four combinations.
    pub rounds: u32,
    /// Connections in each series of connections.
    pub connections: u32,
    /// Fresh connections per protocol and side.
    pub sessions: u32,
    /// Runs of the statement in each of those.
    pub runs: u32,
}

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The private server.
    #[error("the private PostgreSQL: {0}")]
    Server(#[from] pgusher_embedded::Error),
    /// Reaching it.
    #[error(transparent)]
    Client(#[from] pgusher_client::Error),
    /// The reconnect experiment.
    #[error(transparent)]
    Reconnect(#[from] reconnect::Error),
}

/// One step of the way, for people: which, of how many, and what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// From 1.
    pub number: u32,
    /// How many there are.
    pub of: u32,
    /// What happens now.
    pub what: &'static str,
}

const STEPS: [&str; 6] = [
    "starting a private PostgreSQL and filling a table",
    "restarting it; connections, direct",
    "restarting it with a connection manager in front; connections, managed",
    "the three protocols, first and later runs",
    "reconnecting, direct and managed in turn",
    "cleaning up",
];

/// Runs it all. After `stop` was set, what has been measured so far is returned soon. `step` is told the beginning of
/// each step, `detail` what goes on within one.
///
/// # Errors
/// [`Error`] if the private server cannot be started or used at all.
pub fn run(
    options: &Options,
    stop: &Arc<AtomicBool>,
    step: &mut dyn FnMut(Step),
    detail: &mut dyn FnMut(&str),
) -> Result<Report, Error> {
    let mut begin = |number: usize| {
        let goes_on = !stop.load(Ordering::Relaxed);
        if goes_on || number == STEPS.len() {
            let what = STEPS.get(number - 1).copied().unwrap_or("");
            step(Step { number: number as u32, of: STEPS.len() as u32, what });
        }
        goes_on
    };
    let mut report = Report::new("Where PostgreSQL's connection time goes", Environment::here());
    begin(1);
    let mut server = Server::builder().start()?;
    let direct = server_conninfo(&server);
    if !stop.load(Ordering::Relaxed) {
        report.environment.server = Some(prepare(&direct)?);
    }
    report.environment.targets.insert("direct".to_owned(), DIRECT.to_owned());
    let mut series = |conninfo: &str, side| -> Result<(), Error> {
        thread::sleep(COME_BACK);
        // The probe tells the wait for the server's fork from the session's start.
        let connector = connector(conninfo)?.fork_probe(true);
        report.connections.push(connections(&connector, side, options.connections, stop));
        Ok(())
    };
    if begin(2) {
        server.restart()?;
        series(&direct, Side::Direct)?;
    }
    let mut manager = None;
    if begin(3) {
        server.restart()?;
        match ManagerProcess::start(&options.program, &server.socket_conninfo(DATABASE, USER)) {
            Ok(started) => {
                series(&started.conninfo(DATABASE, USER), Side::Managed)?;
                report.environment.targets.insert("managed".to_owned(), MANAGED.to_owned());
                manager = Some(started);
            }
            Err(error) => report.notes.push(format!("The managed side was not measured: {error}.")),
        }
    }
    let mut sides = vec![(Side::Direct, direct)];
    sides.extend(manager.as_ref().map(|m| (Side::Managed, m.conninfo(DATABASE, USER))));
    if begin(4) {
        let connectors = sides.iter().map(|(side, c)| Ok((*side, connector(c)?))).collect::<Result<Vec<_>, Error>>()?;
        report.protocols = protocols(&connectors, options.sessions, options.runs, stop);
    }
    if begin(5) {
        let targets = sides
            .iter()
            .map(|(side, c)| Ok(Target { side: *side, connector: connector(c)? }))
            .collect::<Result<Vec<_>, Error>>()?;
        report.reconnect = Some(reconnect::run(&reconnecting(options), targets, stop, detail)?);
    }
    begin(STEPS.len());
    if stop.load(Ordering::Relaxed) {
        report.notes.push("It was interrupted; this is what was measured until then.".to_owned());
    }
    report.findings = findings(&report);
    drop(manager);
    drop(server);
    Ok(report)
}

fn server_conninfo(server: &Server) -> String {
    format!("{} sslmode=disable", server.conninfo(DATABASE, USER))
}

fn connector(conninfo: &str) -> Result<Connector, Error> {
    Ok(Connector::new(&Config::from_conninfo(conninfo)?)?)
}

/// Makes the table and asks the server what it is.
fn prepare(conninfo: &str) -> Result<ServerFacts, Error> {
    let (mut connection, _) = connector(conninfo)?.connect()?;
    reconnect::initialize(&mut connection, 1)?;
    server_facts(&mut connection).map_err(Error::from)
}

/// What the server says of itself.
///
/// # Errors
/// When it cannot be asked.
pub fn server_facts(connection: &mut pgusher_client::Connection) -> pgusher_client::Result<ServerFacts> {
    let rows = connection.query_rows(ServerFacts::QUERY, &[])?;
    Ok(ServerFacts::of(rows.iter().filter_map(|row| match row {
        [Some(name), Some(value)] => Some((name.clone(), value.clone())),
        _ => None,
    })))
}

fn reconnecting(options: &Options) -> reconnect::Options {
    reconnect::Options {
        clients: options.clients,
        connecting_at_once: None,
        limit: Limit::Time(options.round),
        rounds: options.rounds,
        modes: Mode::ALL.to_vec(),
        protocol: Protocol::Simple,
        script: Script::select_only(1),
        wait_for_exit: false,
        reuse_keys: true,
        progress_every: Some(Duration::from_secs(1)),
        seed: 1,
        rate: None,
        latency_limit: None,
    }
}
