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
use std::time::Duration;

use pgusher_client::{Config, Connector};
use pgusher_embedded::Server;

pub use connections::connections;
pub use protocols::protocols;

use crate::manager_process::ManagerProcess;
use crate::reconnect::{self, Limit, Mode, Protocol, Side, Target};
use crate::report::{Environment, Report, SCHEMA_VERSION, ServerFacts, findings};
use crate::script::Script;

const DATABASE: &str = "postgres";
const USER: &str = "postgres";

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
        let (of, what) = (
            STEPS.len() as u32,
            STEPS.get(number - 1).copied().unwrap_or(""),
        );
        step(Step {
            number: number as u32,
            of,
            what,
        });
        !stop.load(Ordering::Relaxed)
    };
    let mut report = Report {
        schema_version: SCHEMA_VERSION,
        title: "Where PostgreSQL's connection time goes".to_owned(),
        environment: Environment::here(),
        findings: Vec::new(),
        connections: Vec::new(),
        protocols: Vec::new(),
        reconnect: None,
        notes: Vec::new(),
    };
    begin(1);
    let mut server = Server::builder().start()?;
    report.environment.server = Some(prepare(&server)?);
    let direct = || connector(&format!("{} sslmode=disable", server_conninfo(&server)));
    report.environment.targets.insert(
        "direct".to_owned(),
        "TCP over loopback, trust, no TLS".to_owned(),
    );
    let direct = direct()?;
    if begin(2) {
        server.restart()?;
        report.connections.push(connections(
            &direct,
            Side::Direct,
            options.connections,
            stop,
        ));
    }
    let mut manager = None;
    if begin(3) {
        server.restart()?;
        match ManagerProcess::start(&options.program, &server.socket_conninfo(DATABASE, USER)) {
            Ok(started) => {
                let how = "TCP over loopback, trust, no TLS; from the manager a Unix socket";
                report
                    .environment
                    .targets
                    .insert("managed".to_owned(), how.to_owned());
                let managed = connector(&started.conninfo(DATABASE, USER))?;
                report.connections.push(connections(
                    &managed,
                    Side::Managed,
                    options.connections,
                    stop,
                ));
                manager = Some((started, managed));
            }
            Err(error) => report
                .notes
                .push(format!("The managed side was not measured: {error}.")),
        }
    }
    let managed = manager.as_ref().map(|(_, connector)| connector);
    if begin(4) {
        let sides = [(Side::Direct, Some(&direct)), (Side::Managed, managed)];
        let sides: Vec<(Side, &Connector)> = sides
            .into_iter()
            .filter_map(|(s, c)| Some((s, c?)))
            .collect();
        report.protocols = protocols(&sides, options.sessions, options.runs, stop);
    }
    if begin(5) {
        report.reconnect = Some(reconnecting(
            options,
            &server,
            manager.as_ref().map(|(m, _)| m),
            stop,
            detail,
        )?);
    }
    begin(6);
    if stop.load(Ordering::Relaxed) {
        report
            .notes
            .push("It was interrupted; this is what was measured until then.".to_owned());
    }
    report.findings = findings(&report);
    drop(manager);
    drop(server);
    Ok(report)
}

fn server_conninfo(server: &Server) -> String {
    server.conninfo(DATABASE, USER)
}

fn connector(conninfo: &str) -> Result<Connector, Error> {
    Ok(Connector::new(&Config::from_conninfo(conninfo)?)?)
}

/// Makes the table and asks the server what it is.
fn prepare(server: &Server) -> Result<ServerFacts, Error> {
    let (mut connection, _) =
        connector(&format!("{} sslmode=disable", server_conninfo(server)))?.connect()?;
    reconnect::initialize(&mut connection, 1)?;
    server_facts(&mut connection).map_err(Error::from)
}

/// What the server says of itself.
///
/// # Errors
/// When it cannot be asked.
pub fn server_facts(
    connection: &mut pgusher_client::Connection,
) -> pgusher_client::Result<ServerFacts> {
    let rows = connection.query_rows(ServerFacts::QUERY, &[])?;
    Ok(ServerFacts::of(rows.iter().filter_map(|row| match row {
        [Some(name), Some(value)] => Some((name.clone(), value.clone())),
        _ => None,
    })))
}

fn reconnecting(
    options: &Options,
    server: &Server,
    manager: Option<&ManagerProcess>,
    stop: &Arc<AtomicBool>,
    detail: &mut dyn FnMut(&str),
) -> Result<reconnect::Reconnect, Error> {
    let direct = connector(&format!("{} sslmode=disable", server_conninfo(server)))?;
    let mut targets = vec![Target {
        side: Side::Direct,
        connector: direct,
    }];
    if let Some(manager) = manager {
        targets.push(Target {
            side: Side::Managed,
            connector: connector(&manager.conninfo(DATABASE, USER))?,
        });
    }
    let options = reconnect::Options {
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
    };
    Ok(reconnect::run(&options, targets, stop, detail)?)
}
