//! `pgusher profile`: where the time of one connection and of one statement goes.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use pgusher_client::conninfo::{Environment, Keyword, Params};
use pgusher_client::{Config, Connector};
use pgusher_measure::profile::{
    self, Format, Options, Plan, Protocol, Reporter, Stopped, Threshold, Verdict, split_statements,
};
use signal_hook::consts::SIGINT;

use crate::exit::Exit;

/// Time each phase of connections and statements.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What is not in the connection string comes from PG* variables, the service file and the password file, as with psql.

Phases for --fail-if: create_connection resolve connect queue_fork tls startup authenticate client_crypto ready
session_check prepare parse_describe_sync bind_execute_sync simple_query extended pipelined first_byte last_row
disconnect. Statistics: first second min median mean p90 p95 p99 max stddev worst; all but first, second and worst are
of the third and later runs.")]
pub(crate) struct Args {
    /// Connection string (key/value or URI), or the name of a database
    #[arg(value_name = "CONNINFO", conflicts_with = "url")]
    conninfo: Option<String>,
    /// Connection string, as connection-profiler takes it
    #[arg(short = 'u', long, value_name = "CONNINFO")]
    url: Option<String>,
    /// Statement to run; may be given several times; without any, only connections are timed
    #[arg(short = 'q', long = "query", value_name = "SQL")]
    queries: Vec<String>,
    /// File of statements separated by semicolons, run after those of -q; - is standard input
    #[arg(short = 'f', long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Protocol for statements
    #[arg(short = 'p', long, value_enum, default_value = "simple")]
    protocol: ProtocolArg,
    /// Runs of each statement on each connection
    #[arg(short = 'r', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat_sql: u32,
    /// Connections, one after the other
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat_connect: u32,
    /// Show every phase, every attempt and the disconnection
    #[arg(long)]
    phases: bool,
    /// Tell the server's queue and fork from its session setup also without TLS (sends an SSLRequest)
    #[arg(long)]
    fork_probe: bool,
    /// Longest wait for any answer, in seconds; 0 waits for ever
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
    /// Format of the output
    #[arg(long, value_enum, default_value = "text")]
    format: FormatArg,
    /// Write the output to a file
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// End with exit code 3 if this is so, as in create_connection.p99>20ms; may be given several times
    #[arg(long, value_name = "EXPRESSION")]
    fail_if: Vec<Threshold>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ProtocolArg {
    Simple,
    Extended,
    Prepared,
    Pipelined,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormatArg {
    Text,
    Json,
    Jsonl,
    Csv,
}

impl From<ProtocolArg> for Protocol {
    fn from(protocol: ProtocolArg) -> Self {
        match protocol {
            ProtocolArg::Simple => Protocol::Simple,
            ProtocolArg::Extended => Protocol::Extended,
            ProtocolArg::Prepared => Protocol::Prepared,
            ProtocolArg::Pipelined => Protocol::Pipelined,
        }
    }
}

impl From<FormatArg> for Format {
    fn from(format: FormatArg) -> Self {
        match format {
            FormatArg::Text => Format::Text,
            FormatArg::Json => Format::Json,
            FormatArg::Jsonl => Format::Jsonl,
            FormatArg::Csv => Format::Csv,
        }
    }
}

/// Runs `pgusher profile`.
pub(crate) fn run(args: Args) -> anyhow::Result<Exit> {
    let plan = Plan {
        protocol: args.protocol.into(),
        queries: statements(&args)?,
        runs: args.repeat_sql,
        connections: args.repeat_connect,
    };
    let connector = connector(&args)?;
    for warning in connector.warnings() {
        eprintln!("pgusher: warning: {warning}");
    }
    let options = Options {
        format: args.format.into(),
        phases: args.phases,
        sslmode: connector.config().tls.mode.name(),
        setup_us: connector.setup_time().as_secs_f64() * 1e6,
    };
    let out: Box<dyn Write + Send> = match &args.output {
        Some(path) => {
            let file = File::create(path).with_context(|| format!("cannot write to \"{}\"", path.display()))?;
            Box::new(BufWriter::new(file))
        }
        None => Box::new(BufWriter::new(io::stdout())),
    };
    let reporter = Reporter::new(out, options, plan.clone());
    match measure(connector, plan, reporter) {
        Ok((reporter, interrupted)) => judge(&lock(&reporter), interrupted, &args.fail_if),
        Err(Stopped::NoConnection(error)) => Err(error.into()),
        // The reader of a pipe has seen enough.
        Err(Stopped::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Exit::Ok),
        Err(Stopped::Output(error)) => Err(error).context("cannot write the output"),
    }
}

fn statements(args: &Args) -> anyhow::Result<Vec<String>> {
    let mut list = args.queries.clone();
    if let Some(path) = &args.file {
        let mut text = String::new();
        let read = if path.as_os_str() == "-" {
            io::stdin().read_to_string(&mut text)
        } else {
            File::open(path).and_then(|mut file| file.read_to_string(&mut text))
        };
        read.with_context(|| format!("cannot read \"{}\"", path.display()))?;
        list.extend(split_statements(&text).with_context(|| format!("\"{}\"", path.display()))?);
    }
    Ok(list)
}

fn connector(args: &Args) -> anyhow::Result<Connector> {
    let mut params = match args.conninfo.as_ref().or(args.url.as_ref()) {
        Some(text) => Params::parse_or_dbname(text)?,
        None => Params::new(),
    };
    if params.get(Keyword::FallbackApplicationName).is_none() {
        params.set(Keyword::FallbackApplicationName, "pgusher profile");
    }
    let config = Config::resolve(params, &Environment::of_process())?;
    let timeout = (args.timeout > 0).then(|| Duration::from_secs(args.timeout));
    Ok(Connector::new(&config)?.fork_probe(args.fork_probe).timeout(timeout))
}

type Shared = Arc<Mutex<Reporter>>;

fn lock(reporter: &Shared) -> MutexGuard<'_, Reporter> {
    reporter.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Measures in a thread of its own, so that SIGINT can end a profile in the middle of a long statement: what was
/// measured until then is written, and the thread ends with the program. This thread sleeps meanwhile.
fn measure(connector: Connector, plan: Plan, mut reporter: Reporter) -> Result<(Shared, bool), Stopped> {
    reporter.begin()?;
    let reporter: Shared = Arc::new(Mutex::new(reporter));
    let interrupted = Arc::new(AtomicBool::new(false));
    let (mut wake, waker) = UnixStream::pair()?;
    signal_hook::flag::register(SIGINT, Arc::clone(&interrupted))?;
    signal_hook::low_level::pipe::register(SIGINT, waker.try_clone()?)?;

    let worker = thread::spawn({
        let reporter = Arc::clone(&reporter);
        let mut done = waker;
        move || {
            let result = profile::run(&connector, &plan, &mut |event| lock(&reporter).event(event));
            // Asked before the waker tells, so that this connection is not taken for an interrupted one.
            let facts = result.is_ok().then(|| profile::server_facts(&connector)).flatten();
            let told = done.write_all(b".");
            result.and(told.map_err(Stopped::from)).map(|()| facts)
        }
    });
    let mut byte = [0];
    while let Err(error) = wake.read_exact(&mut byte) {
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error.into());
        }
    }
    if interrupted.load(Ordering::Relaxed) {
        lock(&reporter).finish(None, true)?;
        return Ok((reporter, true));
    }
    let facts = match worker.join() {
        Ok(result) => result?,
        Err(panic) => std::panic::resume_unwind(panic),
    };
    lock(&reporter).finish(facts, false)?;
    Ok((reporter, false))
}

fn judge(reporter: &Reporter, interrupted: bool, thresholds: &[Threshold]) -> anyhow::Result<Exit> {
    if interrupted {
        return Ok(Exit::Interrupted);
    }
    let summary = reporter.collector().summary();
    let mut violated = false;
    for threshold in thresholds {
        match threshold.judge(&summary) {
            Verdict::Kept => {}
            Verdict::Violated(text) | Verdict::NoSamples(text) => {
                eprintln!("pgusher: threshold: {text}");
                violated = true;
            }
        }
    }
    Ok(match (reporter.collector().failed() > 0, violated) {
        (true, _) => Exit::SomeFailed,
        (false, true) => Exit::Threshold,
        (false, false) => Exit::Ok,
    })
}
