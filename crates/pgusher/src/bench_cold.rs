//! `pgusher bench cold`: the first connection after a restart or without the init files, and the first query of a
//! connection.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use pgusher_client::Connector;
use pgusher_measure::cold::{self, Event, Options, Surroundings, Work};
use pgusher_measure::demo::server_facts;
use pgusher_measure::report::{Environment, Report, findings};
use pgusher_measure::target::Side;

use crate::exit::Exit;
use crate::interrupt;
use crate::output::OutputArgs;
use crate::place::{Place, TargetArgs};
use crate::progress::Progress;

/// What each connection of a named server asks: a row of a catalog by its key.
const STATEMENT: &str =
    "select relname from pg_catalog.pg_class where oid = 'pg_catalog.pg_class'::pg_catalog.regclass";

/// First connections and first queries, after a restart or after the relation cache init files were removed.
///
/// Without any URL it measures a private PostgreSQL, directly and through a connection manager of its own, both removed
/// afterwards. Nothing is restarted, removed or made on a server that you name unless you ask for it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    targets: TargetArgs,
    /// Connections after each restart or removal, one after the other.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(3..=10_000))]
    connections: u32,
    /// Rounds of each combination.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Restart the private server before the first connection. This and --provoke are the default there.
    #[arg(long)]
    restart: bool,
    /// Remove the init files instead of restarting: REINDEX INDEX pg_catalog.pg_am_oid_index. Needs a superuser.
    #[arg(long)]
    provoke: bool,
    /// Restart the named server with this shell command, which must return when the server is up.
    #[arg(long, value_name = "COMMAND")]
    restart_cmd: Option<String>,
    /// The statement of each connection, instead of one over empty tables.
    #[arg(short, long, value_name = "SQL", conflicts_with_all = ["tables", "objects"])]
    query: Option<String>,
    /// How many tables the statement touches, one after the other [default: 1,16,64]. On a server that you name they
    /// are made in the schema pgusher_cold and dropped afterwards.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(0..=1000))]
    tables: Vec<u32>,
    /// How many tables there are besides, one after the other [default: 0]. Made and dropped like those of --tables.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    objects: Vec<u32>,
    /// Seconds between the restart or removal and the first connection.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.2, value_parser = seconds)]
    pause: f64,
    #[command(flatten)]
    output: OutputArgs,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.0..=3600.0).contains(&s) => Ok(s),
        _ => Err("a number of seconds from 0 to 3600 is needed".to_owned()),
    }
}

/// Runs `pgusher bench cold`.
pub(crate) fn run(args: Args) -> anyhow::Result<Exit> {
    args.output.check()?;
    check_asked(&args)?;
    let stop = interrupt::flag()?;
    let mut progress = Progress::new();
    progress.set("preparing");
    // Autovacuum of a catalog removes the init files, and its workers are backends that write them.
    let mut place = Place::open(&args.targets, |server| server.setting("autovacuum", "off"))?;
    let mut environment = Environment::here();
    let mut connection = place.connect()?;
    environment.server = server_facts(&mut connection).ok();
    connection.terminate().ok();
    environment.targets = place.describe();
    let options = options(&args, &place);
    if args.restart_cmd.is_some() && place.targets.len() > 1 {
        place.notes.push(
            "the manager of --through may have connected to the restarted server before the first direct connection; measure \
             the server alone to be sure"
                .to_owned(),
        );
    }
    let targets = std::mem::take(&mut place.targets);
    let mut notes = std::mem::take(&mut place.notes);
    let mut hands = Hands { place, command: args.restart_cmd.clone() };
    let mut result = cold::run(&options, targets, &mut hands, &stop, &mut |line| progress.set(line))?;
    drop(progress);
    result.notes.append(&mut notes);
    let incomplete = result.incomplete;
    let exit = args.output.write(&report(result, environment), "")?;
    Ok(if incomplete && exit == Exit::Ok { Exit::SomeFailed } else { exit })
}

fn report(result: cold::Cold, environment: Environment) -> Report {
    let mut report = Report::new("First connections and first queries", environment);
    report.cold = Some(result);
    report.findings = findings(&report);
    report
}

/// Nothing happens to a named server that was not asked for.
fn check_asked(args: &Args) -> anyhow::Result<()> {
    match (args.targets.is_private(), &args.restart_cmd) {
        (true, Some(_)) => bail!("--restart-cmd is for a server that you name; a private one needs no command"),
        (false, None) if args.restart => {
            bail!("a server that you name can only be restarted by a command of yours: --restart-cmd")
        }
        (false, None) if !args.provoke => bail!(
            "say how the server is to lose its init files: --provoke removes them without a restart (for a superuser), \
             --restart-cmd COMMAND restarts it"
        ),
        _ => Ok(()),
    }
}

fn options(args: &Args, place: &Place) -> Options {
    let private = place.is_private();
    let both = private && !args.restart && !args.provoke;
    let restart = both || args.restart || args.restart_cmd.is_some();
    let mut events = Vec::new();
    if restart {
        events.push(Event::Restart);
    }
    if restart && private && place.targets.iter().any(|t| t.side == Side::Managed) {
        events.push(Event::RestartWithManager);
    }
    if both || args.provoke {
        events.push(Event::Provoke);
    }
    let or = |list: &[u32], default: &[u32]| if list.is_empty() { default.to_vec() } else { list.to_vec() };
    let makes_tables = private || !args.tables.is_empty() || !args.objects.is_empty();
    let work = match &args.query {
        Some(query) => Work::Statement(query.clone()),
        None if !makes_tables => Work::Statement(STATEMENT.to_owned()),
        None => {
            Work::Tables { touched: or(&args.tables, &[1, 16, 64]), objects: or(&args.objects, &[0]), remove: !private }
        }
    };
    Options {
        connections: args.connections,
        rounds: args.rounds,
        events,
        work,
        pause: Duration::from_secs_f64(args.pause),
    }
}

/// Restarts what is to be restarted.
struct Hands {
    place: Place,
    command: Option<String>,
}

impl Surroundings for Hands {
    fn restart(&mut self) -> Result<(), String> {
        let restarted = match &self.command {
            Some(command) => run_command(command),
            None => self.place.restart_server(),
        };
        restarted.map_err(|error| format!("{error:#}"))
    }

    fn manager(&mut self, runs: bool) -> Result<Option<Connector>, String> {
        if !self.place.is_private() || self.place.has_manager() == runs {
            return Ok(None);
        }
        if runs {
            return self.place.start_manager().map(Some).map_err(|error| format!("{error:#}"));
        }
        self.place.stop_manager();
        Ok(None)
    }
}

/// What it prints goes to standard error. No pipe: the server that it starts would hold the other end of it.
fn run_command(command: &str) -> anyhow::Result<()> {
    let stderr = || -> anyhow::Result<Stdio> {
        use std::os::fd::AsFd;
        Ok(Stdio::from(std::io::stderr().as_fd().try_clone_to_owned()?))
    };
    let status = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(stderr()?)
        .status()
        .context("cannot run sh")?;
    if !status.success() {
        bail!("the command of --restart-cmd failed: {status}");
    }
    Ok(())
}
