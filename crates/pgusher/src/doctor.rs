//! `pgusher doctor`: what makes this server's connections slow, with the evidence and the setting that mends it.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use pgusher_client::Config;
use pgusher_client::conninfo::{Environment as Surroundings, Params};
use pgusher_measure::doctor::{self, Diagnosis, Options, Severity};
use pgusher_measure::report::{Environment, Experiment, Report};

use crate::exit::Exit;
use crate::{files, interrupt};

/// Say what makes a server's connections slow, or is about to make them fail, and what mends it.
///
/// Looks over one read-only connection and opens a bounded number of others to time them. Changes nothing on the server
/// without --provoke.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What is not in the connection string comes from PG* variables, the service file and the password file, as with psql.
A role with pg_monitor sees all that matters; what a role may not see is listed, and the rest goes on.

Exit codes: 0 nothing as bad as --fail-on; 1 wrong options, or no connection to look with; 2 the server went away
meanwhile; 3 a finding as bad as --fail-on; 130 interrupted.")]
pub(crate) struct Args {
    /// Connection string (key/value or URI), or the name of a database
    #[arg(value_name = "CONNINFO", conflicts_with = "url")]
    conninfo: Option<String>,
    /// The same as CONNINFO
    #[arg(short = 'd', long = "url", value_name = "CONNINFO")]
    url: Option<String>,
    /// At most so many connections are opened to measure, one after the other; 0: only look
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(..=1000))]
    connections: u32,
    /// How long the server's counters are watched
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, value_parser = seconds)]
    watch: f64,
    /// Also measure connections that find no pg_internal.init: rebuilds the index of a table of four rows
    /// (REINDEX INDEX pg_catalog.pg_am_oid_index) three times, which removes that file; needs a superuser
    #[arg(long)]
    provoke: bool,
    /// End with exit code 3 if there is a finding at least as bad
    #[arg(long, value_enum, default_value = "critical")]
    fail_on: FailOn,
    /// Format of the output
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Write the result to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite FILE if it exists
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FailOn {
    /// Never.
    Never,
    /// Critical findings only.
    Critical,
    /// Warnings and critical findings.
    Warning,
    /// Any finding.
    Notice,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// All of it, for programs.
    Json,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.0..=3600.0).contains(&s) => Ok(s),
        _ => Err("a number of seconds from 0 to 3600 is needed".to_owned()),
    }
}

/// Runs `pgusher doctor`.
pub(crate) fn run(args: Args) -> anyhow::Result<Exit> {
    if let Some(path) = &args.output {
        files::check(path, args.force)?;
    }
    let config = config(&args)?;
    let options = Options {
        connections: args.connections,
        watch: Duration::from_secs_f64(args.watch),
        provoke: args.provoke,
        ..Options::default()
    };
    let stop = interrupt::flag()?;
    let environment = Environment::here();
    let told = io::stderr().is_terminal();
    let diagnosis = doctor::run(&config, &options, &stop, &mut |step| {
        if told {
            eprintln!("pgusher: {step}");
        }
    })?;
    let exit = exit(&diagnosis, args.fail_on);
    let text = match args.format {
        Format::Text => doctor::text(&diagnosis),
        Format::Json => serde_json::to_string_pretty(&report(diagnosis, environment))? + "\n",
    };
    files::write(args.output.as_deref(), args.force, &text)?;
    Ok(exit)
}

fn config(args: &Args) -> anyhow::Result<Config> {
    let params = match args.conninfo.as_ref().or(args.url.as_ref()) {
        Some(text) => Params::parse_or_dbname(text)?,
        None => Params::new(),
    };
    Ok(Config::resolve(params, &Surroundings::of_process())?)
}

fn report(diagnosis: Diagnosis, mut environment: Environment) -> Report {
    environment.targets.insert("direct".to_owned(), diagnosis.reached.target.clone());
    let mut report = Report::new("Doctor", environment);
    report.findings = diagnosis.findings();
    report.doctor = Some(diagnosis);
    report
}

/// What failed comes before what was found: a run that ended early may have missed the worst.
fn exit(diagnosis: &Diagnosis, fail_on: FailOn) -> Exit {
    let limit = match fail_on {
        FailOn::Never => None,
        FailOn::Critical => Some(Severity::Critical),
        FailOn::Warning => Some(Severity::Warning),
        FailOn::Notice => Some(Severity::Notice),
    };
    let bad = limit.is_some_and(|limit| diagnosis.worst() >= Some(limit));
    match (diagnosis.interrupted, diagnosis.lost.is_some(), bad) {
        (true, _, _) => Exit::Interrupted,
        (false, true, _) => Exit::SomeFailed,
        (false, false, true) => Exit::Threshold,
        (false, false, false) => Exit::Ok,
    }
}
