//! `pgusher bench storm`: how long it takes to connect many clients, and how that grows with their number.

use std::time::Duration;

use pgusher_measure::demo::server_facts;
use pgusher_measure::report::{Environment, Report, findings};
use pgusher_measure::storm::{
    self, ClientList, DisconnectOrder, Options, Pace, SPARE_FILES, memory_available, raise_file_limit,
};

use crate::exit::Exit;
use crate::interrupt;
use crate::output::OutputArgs;
use crate::place::{Place, TargetArgs};
use crate::progress::Progress;

/// How long it takes to connect N clients, and how that grows with N, direct and managed, in alternating rounds.
///
/// Without any URL it measures a private PostgreSQL and a connection manager of its own, both removed afterwards.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    targets: TargetArgs,
    /// Numbers of clients: a list (512,1024), a range that doubles (256..16384), or one with another factor (100..10000x10).
    #[arg(short, long, value_name = "LIST", default_value = "128..1024")]
    clients: ClientList,
    /// So many connections are under way at the same time; the next one begins when one is ready [default: 128].
    #[arg(short, long, value_name = "N", group = "pace", value_parser = clap::value_parser!(u32).range(1..))]
    window: Option<u32>,
    /// All connections begin at once.
    #[arg(long, group = "pace")]
    burst: bool,
    /// So many connections begin per second, whatever becomes of them (open loop). Latency counts from the intended begin.
    #[arg(short = 'R', long, value_name = "PER SECOND", group = "pace", value_parser = rate)]
    rate: Option<f64>,
    /// Threads that drive the connections. Not the number that are under way: that is the window.
    #[arg(short = 'j', long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    /// Rounds of each number and side. The first one is shown apart.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// In which order the connections of a round are ended.
    #[arg(long, value_enum, default_value_t = Order::Fifo)]
    disconnect: Order,
    /// Seed of the random order.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Each connection runs this statement once when it is ready.
    #[arg(long, value_name = "SQL")]
    statement: Option<String>,
    /// Larger numbers are measured through the manager only [default: what the server allows; 2048 on a private server].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    direct_max: Option<u32>,
    /// How long one connection may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 120.0, value_parser = seconds)]
    timeout: f64,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Order {
    /// The one that was ready first is ended first.
    Fifo,
    /// The one that was ready last is ended first.
    Lifo,
    /// By chance, see --seed.
    Random,
}

impl From<Order> for DisconnectOrder {
    fn from(order: Order) -> Self {
        match order {
            Order::Fifo => Self::Fifo,
            Order::Lifo => Self::Lifo,
            Order::Random => Self::Random,
        }
    }
}

/// Connections under way unless something else was asked for.
const WINDOW: u32 = 128;
/// Clients that a private server takes directly unless something else was asked for.
const PRIVATE_DIRECT: u32 = 2048;
/// Memory that a backend of a private server may need, with its page tables.
const PER_BACKEND: u64 = 4 << 20;
/// Connections of a private server besides the clients: the manager's, ours, the superuser's.
const BESIDE: u32 = 100;
/// How long a server may take to become empty after a round.
const SETTLE: Duration = Duration::from_secs(60);

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.01..=1e6).contains(&rate) => Ok(rate),
        _ => Err("a number of connections per second from 0.01 to 1,000,000 is needed".to_owned()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.1..=86_400.0).contains(&s) => Ok(s),
        _ => Err("a number of seconds from 0.1 to 86,400 is needed".to_owned()),
    }
}

/// Runs `pgusher bench storm`.
pub(crate) fn run(args: Args) -> anyhow::Result<Exit> {
    args.output.check()?;
    // Before the manager is started, which inherits the limit.
    raise_file_limit(args.clients.largest())?;
    let stop = interrupt::flag()?;
    let mut progress = Progress::new();
    progress.set("preparing");
    let private = args.targets.is_private().then(|| PrivateDirect::of(&args, memory_available()));
    let allowed = private.as_ref().map_or(0, |p| p.clients.saturating_add(BESIDE));
    // Clients come from several loopback addresses when they are too many for one.
    let builder =
        |server: pgusher_embedded::Builder| server.max_connections(allowed).hba("host all all 127.0.0.0/8 trust");
    let most = args.clients.largest().saturating_add(SPARE_FILES);
    let mut place = Place::open_with(&args.targets, builder, &["--max-clients".to_owned(), most.to_string()])?;
    let mut environment = Environment::here();
    if let Ok(mut connection) = place.connect() {
        environment.server = server_facts(&mut connection).ok();
        connection.terminate().ok();
    }
    environment.targets = place.describe();
    let options = Options {
        clients: args.clients.as_slice().to_vec(),
        direct_max: private.as_ref().map(|p| p.clients).or(args.direct_max),
        pace: match (args.burst, args.rate) {
            (true, _) => Pace::Burst,
            (false, Some(per_second)) => Pace::Rate { per_second },
            (false, None) => Pace::Window { in_flight: args.window.unwrap_or(WINDOW) },
        },
        threads: args.threads,
        rounds: args.rounds,
        disconnect: args.disconnect.into(),
        seed: args.seed,
        statement: args.statement.clone(),
        timeout: Duration::from_secs_f64(args.timeout),
        settle: SETTLE,
        manager_pid: place.manager_pid(),
    };
    let targets = std::mem::take(&mut place.targets);
    let mut result = storm::run(&options, targets, &stop, &mut |line| progress.set(line))?;
    drop(progress);
    result.notes.append(&mut place.notes);
    result.notes.extend(private.and_then(|p| p.note));
    let mut report = Report::new("Connecting many clients", environment);
    report.storm = Some(result);
    report.findings = findings(&report);
    args.output.write(&report, "")
}

/// How many clients a private server takes directly.
struct PrivateDirect {
    clients: u32,
    note: Option<String>,
}

impl PrivateDirect {
    /// What was asked for, or [`PRIVATE_DIRECT`], as far as half of the free memory goes.
    fn of(args: &Args, memory: Option<u64>) -> Self {
        let wanted = args.direct_max.unwrap_or(PRIVATE_DIRECT).min(args.clients.largest());
        let memory = memory.unwrap_or(u64::MAX);
        let fit = u32::try_from(memory / 2 / PER_BACKEND).unwrap_or(u32::MAX).max(1);
        let note = (wanted > fit).then(|| {
            format!("the memory of this machine ({} MiB free) allows {fit} direct connections at most", memory >> 20)
        });
        Self { clients: wanted.min(fit), note }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Whole {
        #[command(flatten)]
        args: Args,
    }

    fn args(words: &[&str]) -> Result<Args, clap::Error> {
        Whole::try_parse_from(std::iter::once("storm").chain(words.iter().copied())).map(|whole| whole.args)
    }

    #[test]
    fn one_pace_at_a_time() {
        assert!(args(&["--burst"]).is_ok());
        assert!(args(&["--burst", "--window", "5"]).is_err());
        assert!(args(&["--rate", "5", "--window", "5"]).is_err());
        assert!(args(&["--rate", "0"]).is_err());
        assert!(args(&["--clients", "8..4"]).is_err());
    }

    #[test]
    fn memory_bounds_a_private_server() {
        let args = args(&["-c", "256..16384"]).expect("right");
        let plenty = PrivateDirect::of(&args, Some(64 << 30));
        assert_eq!((plenty.clients, plenty.note.is_none()), (PRIVATE_DIRECT, true));
        let little = PrivateDirect::of(&args, Some(1 << 30));
        assert_eq!((little.clients, little.note.is_some()), (128, true));
    }
}
