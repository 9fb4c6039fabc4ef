//! `pgusher bench reconnect`: what a connection for each transaction costs, direct and through the manager.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use pgusher_measure::demo::server_facts;
use pgusher_measure::reconnect::{self, Limit, Mode, Options, Protocol};
use pgusher_measure::report::{Environment, Report, findings};
use pgusher_measure::script::Script;

use crate::exit::Exit;
use crate::interrupt;
use crate::output::OutputArgs;
use crate::place::{Place, TargetArgs};
use crate::progress::Progress;

/// Static connections against a connection per transaction, direct and managed, in alternating rounds.
///
/// Without any URL it measures a private PostgreSQL and a connection manager of its own, both removed afterwards.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    targets: TargetArgs,
    /// Clients, each with a thread of its own.
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clients: u32,
    /// At most so many clients connect at the same time, as with pgbench's threads; the wait for one's turn is not part of
    /// the connect time [default: all].
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    jobs: Option<u32>,
    /// Seconds of each round [default: 5].
    #[arg(short = 'T', long, value_name = "SECONDS", conflicts_with = "transactions", value_parser = seconds)]
    time: Option<f64>,
    /// Transactions of each client in each round, instead of -T.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    transactions: Option<u64>,
    /// A line of progress every so many seconds.
    #[arg(short = 'P', long, value_name = "SECONDS", value_parser = seconds)]
    progress: Option<f64>,
    /// Begin so many transactions per second, whatever becomes of the ones before (open loop). Times then count from the
    /// moment when a transaction was meant to begin [default: closed loop].
    #[arg(short = 'R', long, value_name = "TPS", value_parser = rate)]
    rate: Option<f64>,
    /// Count transactions that take longer; with -R, don't begin one that is later than this.
    #[arg(short = 'L', long, value_name = "MS", value_parser = milliseconds)]
    latency_limit: Option<f64>,
    /// Print histograms of all times as well (text only; they are always in JSON).
    #[arg(long)]
    histogram: bool,
    /// Rounds of each combination.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Only this way of connecting.
    #[arg(long, value_enum)]
    mode: Option<ModeArg>,
    /// How statements are sent.
    #[arg(short = 'M', long, value_enum, default_value_t = ProtocolArg::Simple)]
    protocol: ProtocolArg,
    /// The transaction, in pgbench's script language [default: pgbench's select-only].
    #[arg(short, long, value_name = "SCRIPT")]
    file: Option<PathBuf>,
    /// Scale of pgbench_accounts: 100,000 rows each [default: as found; 1 where it is made].
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..=20_000))]
    scale: Option<i64>,
    /// Make pgbench_accounts first. One that exists is dropped.
    #[arg(long)]
    init: bool,
    /// A disconnect lasts until the server has closed its side as well (the backend has ended).
    #[arg(long)]
    wait_exit: bool,
    /// Compute the key of a SCRAM password anew for each connection, as libpq does.
    #[arg(long)]
    no_scram_cache: bool,
    /// Seed of the clients' random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ModeArg {
    /// One connection per client and round.
    Static,
    /// One connection per transaction.
    Reconnect,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ProtocolArg {
    /// Simple query.
    Simple,
    /// Parse, Bind, Describe, Execute and Sync in one go.
    Extended,
    /// Each statement is prepared once in each connection, at its first use, and then bound and executed.
    Prepared,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.05..=1e6).contains(&s) => Ok(s),
        _ => Err("a number of seconds from 0.05 on is needed".to_owned()),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.001..=1e7).contains(&rate) => Ok(rate),
        _ => Err("a number of transactions per second from 0.001 to 10,000,000 is needed".to_owned()),
    }
}

fn milliseconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ms) if (0.001..=3.6e6).contains(&ms) => Ok(ms),
        _ => Err("a number of milliseconds from 0.001 to 3,600,000 is needed".to_owned()),
    }
}

/// Runs `pgusher bench reconnect`.
pub(crate) fn run(args: Args) -> anyhow::Result<Exit> {
    args.output.check()?;
    let stop = interrupt::flag()?;
    let mut progress = Progress::new();
    progress.set("preparing");
    let mut place = Place::open(&args.targets, |server| server.max_connections(args.clients.saturating_add(100)))?;
    let mut connection = place.connect()?;
    let mut environment = Environment::here();
    environment.server = server_facts(&mut connection).ok();
    let script = script(&args, &mut connection, place.is_private())?;
    connection.terminate().ok();
    environment.targets = place.describe();
    let options = Options {
        clients: args.clients,
        connecting_at_once: args.jobs,
        limit: match args.transactions {
            Some(n) => Limit::Transactions(n),
            None => Limit::Time(Duration::from_secs_f64(args.time.unwrap_or(5.0))),
        },
        rounds: args.rounds,
        modes: match args.mode {
            None => Mode::ALL.to_vec(),
            Some(ModeArg::Static) => vec![Mode::Static],
            Some(ModeArg::Reconnect) => vec![Mode::Reconnect],
        },
        protocol: match args.protocol {
            ProtocolArg::Simple => Protocol::Simple,
            ProtocolArg::Extended => Protocol::Extended,
            ProtocolArg::Prepared => Protocol::Prepared,
        },
        script,
        wait_for_exit: args.wait_exit,
        reuse_keys: !args.no_scram_cache,
        progress_every: Some(args.progress.map_or(Duration::from_secs(1), Duration::from_secs_f64)),
        seed: args.seed,
        rate: args.rate,
        latency_limit: args.latency_limit.map(|ms| Duration::from_secs_f64(ms / 1e3)),
    };
    let targets = std::mem::take(&mut place.targets);
    let asked_for = args.progress.is_some();
    let mut result = reconnect::run(&options, targets, &stop, &mut |line| {
        if asked_for { progress.line(line) } else { progress.set(line) }
    })?;
    drop(progress);
    result.notes.append(&mut place.notes);
    let histograms = if args.histogram { reconnect::histograms(&result) } else { String::new() };
    args.output.write(&report(result, environment), &histograms)
}

fn report(result: reconnect::Reconnect, environment: Environment) -> Report {
    let mut report = Report::new("Static connections and reconnecting", environment);
    report.reconnect = Some(result);
    report.findings = findings(&report);
    report
}

/// The transaction; makes its table where that was asked for or the server is private.
fn script(args: &Args, connection: &mut pgusher_client::Connection, private: bool) -> anyhow::Result<Script> {
    if args.init || (private && args.file.is_none()) {
        reconnect::initialize(connection, args.scale.unwrap_or(1)).context("cannot make pgbench_accounts")?;
    }
    if let Some(path) = &args.file {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let scale = args.scale.unwrap_or(1);
        return Ok(Script::parse(&path.display().to_string(), &text, &[("scale", scale)])?);
    }
    if !reconnect::accounts_exist(connection)? {
        bail!("there is no table pgbench_accounts; make it with --init, or bring a script with -f");
    }
    let scale = match args.scale {
        Some(scale) => scale,
        None => reconnect::scale_of(connection)?,
    };
    Ok(Script::select_only(scale))
}
