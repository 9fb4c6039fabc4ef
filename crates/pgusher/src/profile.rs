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
    self, Ending, Event, Format, Observer, Options, Plan, Protocol, Provocation, Provoker, Reporter, Stopped,
    Threshold, Verdict, split_statements,
};
use pgusher_measure::server_view::control::Control;
use pgusher_measure::server_view::{DEFAULT_NAME, Place, ServerView, Wanted};
use signal_hook::consts::SIGINT;

use crate::exit::Exit;

mod prewarm;

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
    /// Runs of each statement on each connection [default: 1; with --prewarm 5]
    #[arg(short = 'r', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeat_sql: Option<u32>,
    /// Connections, one after the other [default: 1; with --prewarm 20 rounds]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeat_connect: Option<u32>,
    /// Show every phase, every attempt and the disconnection
    #[arg(long)]
    phases: bool,
    /// Tell the server's queue and fork from its session setup also without TLS (sends an SSLRequest)
    #[arg(long)]
    fork_probe: bool,
    /// Show what the server sees too: backends on this host (CPU, faults, memory), and what the options below add
    #[arg(long)]
    server_view: bool,
    /// Read the server's log (stderr, csvlog or jsonlog): a file of this host, or auto to read it through the server
    #[arg(long, value_name = "FILE|auto", value_parser = |text: &str| Ok::<_, std::convert::Infallible>(Place::of(text)))]
    server_log: Option<Place>,
    /// log_line_prefix of the file, where it is not the one in force
    #[arg(long, value_name = "PREFIX", requires = "server_log")]
    log_line_prefix: Option<String>,
    /// Read pg_stat_statements before and after the runs
    #[arg(long)]
    pg_stat_statements: bool,
    /// What to provoke before each connection; relcache-init removes the server's pg_internal.init (superuser)
    #[arg(long, value_enum, default_value = "none")]
    provoke: ProvokeArg,
    /// Warm fresh connections this way and show what it takes away from a statement's first run; several ways may be given
    #[arg(long, value_enum, value_name = "WAY", conflicts_with_all = [
        "phases", "server_log", "pg_stat_statements", "server_view", "provoke", "fail_if",
    ])]
    prewarm: Vec<WayArg>,
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
    /// One object per line; not with --prewarm
    Jsonl,
    Csv,
    /// Only with --prewarm
    Markdown,
    /// Only with --prewarm
    Html,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum WayArg {
    Parse,
    Bind,
    Explain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ProvokeArg {
    None,
    RelcacheInit,
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

impl TryFrom<FormatArg> for Format {
    type Error = anyhow::Error;

    fn try_from(format: FormatArg) -> anyhow::Result<Self> {
        Ok(match format {
            FormatArg::Text => Format::Text,
            FormatArg::Json => Format::Json,
            FormatArg::Jsonl => Format::Jsonl,
            FormatArg::Csv => Format::Csv,
            FormatArg::Markdown | FormatArg::Html => anyhow::bail!("this format is for --prewarm only"),
        })
    }
}

/// Runs `pgusher profile`.
pub(crate) fn run(args: Args) -> anyhow::Result<Exit> {
    if !args.prewarm.is_empty() {
        return prewarm::run(&args);
    }
    let plan = Plan {
        protocol: args.protocol.into(),
        queries: statements(&args)?,
        runs: args.repeat_sql.unwrap_or(1),
        connections: args.repeat_connect.unwrap_or(1),
    };
    let mut config = config(&args)?;
    let prepared = Prepared::new(&args, &mut config, &plan)?;
    let connector = connector(&args, &config)?;
    for warning in connector.warnings() {
        eprintln!("pgusher: warning: {warning}");
    }
    let options = Options {
        format: args.format.try_into()?,
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
    match measure(connector, plan, Told { reporter, prepared }) {
        Ok((told, interrupted)) => judge(&lock(&told).reporter, interrupted, &args.fail_if),
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

fn config(args: &Args) -> anyhow::Result<Config> {
    let mut params = match args.conninfo.as_ref().or(args.url.as_ref()) {
        Some(text) => Params::parse_or_dbname(text)?,
        None => Params::new(),
    };
    if params.get(Keyword::FallbackApplicationName).is_none() {
        params.set(Keyword::FallbackApplicationName, DEFAULT_NAME);
    }
    Ok(Config::resolve(params, &Environment::of_process())?)
}

fn connector(args: &Args, config: &Config) -> pgusher_client::Result<Connector> {
    let timeout = (args.timeout > 0).then(|| Duration::from_secs(args.timeout));
    Ok(Connector::new(config)?.fork_probe(args.fork_probe).timeout(timeout))
}

/// What goes on beside the measured connections.
#[derive(Default)]
struct Prepared {
    view: Option<ServerView>,
    provoker: Option<Provoker>,
}

impl Prepared {
    fn new(args: &Args, config: &mut Config, plan: &Plan) -> anyhow::Result<Self> {
        let wanted = Wanted {
            log: args.server_log.clone(),
            log_line_prefix: args.log_line_prefix.clone(),
            statements: args.pg_stat_statements,
        };
        let mut prepared = Prepared::default();
        if args.provoke == ProvokeArg::RelcacheInit {
            let control = Control::connect(connector(args, config)?)?;
            prepared.provoker = Some(Provoker::new(Provocation::RelcacheInit, control).map_err(anyhow::Error::msg)?);
        }
        if args.server_view || wanted != Wanted::default() {
            prepared.view = Some(ServerView::begin(config, &wanted, plan, &|config| connector(args, config))?);
        }
        Ok(prepared)
    }
}

/// Who is told of the events: first those who look at the server, while it is still as the event has left it.
struct Told {
    reporter: Reporter,
    prepared: Prepared,
}

impl Told {
    fn finish(&mut self, mut ending: Ending) -> io::Result<()> {
        ending.view = self.prepared.view.as_mut().map(ServerView::finish);
        ending.provoked = self.prepared.provoker.as_ref().map(Provoker::done);
        self.reporter.finish(ending)
    }
}

type Shared = Arc<Mutex<Told>>;

fn lock(told: &Shared) -> MutexGuard<'_, Told> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Telling(Shared);

impl Observer for Telling {
    fn before_connection(&mut self, _number: u32) -> io::Result<()> {
        if let Some(provoker) = &mut lock(&self.0).prepared.provoker {
            provoker.provoke();
        }
        Ok(())
    }

    fn event(&mut self, event: Event) -> io::Result<()> {
        let mut told = lock(&self.0);
        if let Some(view) = &mut told.prepared.view {
            view.observe(&event);
        }
        told.reporter.event(event)
    }
}

/// Measures in a thread of its own, so that SIGINT can end a profile in the middle of a long statement: what was
/// measured until then is written, and the thread ends with the program. This thread sleeps meanwhile.
fn measure(connector: Connector, plan: Plan, mut told: Told) -> Result<(Shared, bool), Stopped> {
    told.reporter.begin()?;
    let told: Shared = Arc::new(Mutex::new(told));
    let interrupted = Arc::new(AtomicBool::new(false));
    let (mut wake, waker) = UnixStream::pair()?;
    signal_hook::flag::register(SIGINT, Arc::clone(&interrupted))?;
    signal_hook::low_level::pipe::register(SIGINT, waker.try_clone()?)?;

    let worker = thread::spawn({
        let told = Arc::clone(&told);
        let mut done = waker;
        move || {
            let result = profile::run(&connector, &plan, &mut Telling(told));
            // Asked before the waker tells, so that this connection is not taken for an interrupted one.
            let facts = result.is_ok().then(|| profile::server_facts(&connector)).flatten();
            let sent = done.write_all(b".");
            result.and(sent.map_err(Stopped::from)).map(|()| facts)
        }
    });
    let mut byte = [0];
    while let Err(error) = wake.read_exact(&mut byte) {
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error.into());
        }
    }
    if interrupted.load(Ordering::Relaxed) {
        lock(&told).finish(Ending { interrupted: true, ..Ending::default() })?;
        return Ok((told, true));
    }
    let server = match worker.join() {
        Ok(result) => result?,
        Err(panic) => std::panic::resume_unwind(panic),
    };
    lock(&told).finish(Ending { server, ..Ending::default() })?;
    Ok((told, false))
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
