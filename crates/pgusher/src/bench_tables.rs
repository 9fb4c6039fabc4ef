//! `pgusher bench tables`: what the number of tables in use changes, directly, through the manager and through any proxy.

use std::time::Duration;

use anyhow::{Context, bail};
use pgusher_client::conninfo::Keyword;
use pgusher_client::{Config, Connector};
use pgusher_measure::demo::server_facts;
use pgusher_measure::reconnect::Mode;
use pgusher_measure::report::{Environment, Report, findings};
use pgusher_measure::tables::{self, Options, Subject};
use pgusher_measure::target::Side;

use crate::exit::Exit;
use crate::interrupt;
use crate::output::OutputArgs;
use crate::place::{self, Place, TargetArgs};
use crate::progress::Progress;

/// How the number of tables in use matters: SELECTs over 1, 2, 4 ... 256 empty tables, directly and through the manager
/// or any other proxy, in alternating runs.
///
/// Without any URL it measures a private PostgreSQL and a connection manager of its own, both removed afterwards.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The server, measured directly: a connection string as libpq takes it.
    #[arg(value_name = "CONNINFO")]
    server: Option<String>,
    /// The same as CONNINFO.
    #[arg(short = 'd', long = "url", value_name = "CONNINFO", conflicts_with = "server")]
    url: Option<String>,
    /// The same database through a connection manager or any other proxy; may be given several times with names.
    #[arg(long, value_name = "[NAME=]CONNINFO")]
    through: Vec<String>,
    /// Allow the empty tables to be made on a server that you name, in the schema pgusher_tables, which is dropped
    /// afterwards.
    #[arg(long)]
    init: bool,
    /// Numbers of tables.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4,8,16,32,64,128,256",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    tables: Vec<u32>,
    /// Clients, each with a thread of its own.
    #[arg(short, long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clients: u32,
    /// Seconds of each run.
    #[arg(short = 'T', long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    time: f64,
    /// Runs of each combination.
    #[arg(long, visible_alias = "runs", value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Whether clients make a new connection for each transaction, as pgbench -C, or keep theirs.
    #[arg(long, value_enum, default_value_t = ModeArg::Reconnect)]
    mode: ModeArg,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ModeArg {
    /// A new connection for each transaction.
    Reconnect,
    /// One connection per client and run.
    Static,
    /// One after the other.
    Both,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.05..=1e6).contains(&s) => Ok(s),
        _ => Err("a number of seconds from 0.05 on is needed".to_owned()),
    }
}

/// Runs `pgusher bench tables`.
pub(crate) fn run(args: Args) -> anyhow::Result<Exit> {
    args.output.check()?;
    let direct = args.server.as_ref().or(args.url.as_ref());
    let private = direct.is_none() && args.through.is_empty();
    if !private && !args.init {
        bail!(
            "this makes empty tables on the server that you name, in the schema pgusher_tables, and drops them afterwards; \
             say --init to allow that"
        );
    }
    let named = named(direct, &args.through)?;
    let stop = interrupt::flag()?;
    let mut progress = Progress::new();
    progress.set("preparing");
    let mut environment = Environment::here();
    let mut notes = Vec::new();
    let (mut place, subjects) = if private {
        let (place, subjects) = private_place(args.clients, &mut notes)?;
        (Some(place), subjects)
    } else {
        (None, named)
    };
    let first = subjects.first().context("no server to measure")?;
    let (mut connection, _) = first.connector.connect()?;
    environment.server = server_facts(&mut connection).ok();
    connection.terminate().ok();
    environment.targets = subjects.iter().map(|s| (s.name.clone(), place::describe(&s.connector, private))).collect();
    let options = Options {
        clients: args.clients,
        length: Duration::from_secs_f64(args.time),
        rounds: args.rounds,
        modes: match args.mode {
            ModeArg::Reconnect => vec![Mode::Reconnect],
            ModeArg::Static => vec![Mode::Static],
            ModeArg::Both => Mode::ALL.to_vec(),
        },
        tables: sorted(&args.tables),
        remove: !private,
    };
    let mut renew = |name: &str| match &mut place {
        Some(place) if name == Side::Managed.to_string() => {
            place.stop_manager();
            place.start_manager().map(Some).map_err(|error| format!("{error:#}"))
        }
        _ => Ok(None),
    };
    let mut result = tables::run(&options, subjects, &mut renew, &stop, &mut |line| progress.set(line))?;
    drop(progress);
    result.notes.append(&mut notes);
    let incomplete = result.incomplete;
    let exit = args.output.write(&report(result, environment), "")?;
    Ok(if incomplete && exit == Exit::Ok { Exit::SomeFailed } else { exit })
}

fn report(result: tables::Tables, environment: Environment) -> Report {
    let mut report = Report::new("Tables in use", environment);
    report.tables = Some(result);
    report.findings = findings(&report);
    report
}

fn sorted(tables: &[u32]) -> Vec<u32> {
    let mut tables = tables.to_vec();
    tables.sort_unstable();
    tables.dedup();
    tables
}

/// A private server that counts statements, if it can, and the manager in front of it.
fn private_place(clients: u32, notes: &mut Vec<String>) -> anyhow::Result<(Place, Vec<Subject>)> {
    let nobody = TargetArgs::default();
    let mut place = Place::open(&nobody, |server| server.max_connections(clients.saturating_add(100)))?;
    notes.append(&mut place.notes);
    if let Some(server) = place.private_server() {
        let available = "select 1 from pg_available_extensions where name = 'pg_stat_statements'";
        if server.psql("postgres", available)? == "1" {
            server.alter_system("shared_preload_libraries", "pg_stat_statements")?;
            server.restart()?;
            server.psql("postgres", "create extension pg_stat_statements")?;
        }
    }
    let subject = |target: pgusher_measure::target::Target| Subject {
        name: target.side.to_string(),
        direct: target.side == Side::Direct,
        connector: target.connector,
    };
    let subjects = std::mem::take(&mut place.targets).into_iter().map(subject).collect();
    Ok((place, subjects))
}

/// The targets that were given, with their names.
fn named(direct: Option<&String>, through: &[String]) -> anyhow::Result<Vec<Subject>> {
    let mut subjects: Vec<Subject> = Vec::new();
    let given = direct.map(|conninfo| ("direct", conninfo.as_str(), true));
    for (name, conninfo, direct) in given.into_iter().chain(through.iter().map(|text| with_name(text))) {
        if subjects.iter().any(|s| s.name == name) {
            bail!("there are two targets named {name}; give each --through a name of its own: --through NAME=CONNINFO");
        }
        let config = Config::from_conninfo(conninfo).with_context(|| format!("target {name}"))?;
        let connector = Connector::new(&config).with_context(|| format!("target {name}"))?;
        connector.warnings().iter().for_each(|warning| eprintln!("pgusher: warning: {warning}"));
        subjects.push(Subject { name: name.to_owned(), connector, direct });
    }
    Ok(subjects)
}

/// `NAME=CONNINFO`, or `CONNINFO` of something named `managed`. A name is a word that is no keyword of a connection string.
fn with_name(text: &str) -> (&str, &str, bool) {
    let managed = ("managed", text, false);
    let Some((name, conninfo)) = text.split_once('=') else {
        return managed;
    };
    let word = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    let keyword = Keyword::ALL.iter().any(|k| k.name() == name);
    if word && !keyword { (name, conninfo, false) } else { managed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_targets() {
        for (text, name, conninfo) in [
            ("postgres://x/y?host=z", "managed", "postgres://x/y?host=z"),
            ("host=x port=1", "managed", "host=x port=1"),
            ("pgbouncer=host=x port=1", "pgbouncer", "host=x port=1"),
            ("pool-2=postgres://x/y?host=z", "pool-2", "postgres://x/y?host=z"),
        ] {
            assert_eq!(with_name(text), (name, conninfo, false));
        }
        let twice = ["host=x".to_owned(), "host=y".to_owned()];
        let error = named(None, &twice).err().expect("two of one name");
        assert!(error.to_string().contains("two targets named managed"), "{error}");
    }
}
