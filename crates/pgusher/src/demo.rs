//! `pgusher demo`: everything once on a private PostgreSQL, a table, and an HTML report.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use pgusher_measure::demo::{self, Options, Step};
use pgusher_measure::report::{self, Report};

use crate::exit::Exit;
use crate::output::colours;
use crate::progress::Progress;
use crate::{files, interrupt};

/// See it all in about a minute, on a private PostgreSQL that is started and removed again.
///
/// Measures first and later connections, the three protocols and reconnecting, each direct and through the connection
/// manager; prints a table and writes an HTML report.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The HTML report [default: a new pgusher-demo-TIME.html in this folder].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The numbers as JSON as well.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Overwrite files that exist.
    #[arg(long)]
    force: bool,
    /// Clients of the reconnect experiment.
    #[arg(short, long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=200))]
    clients: u32,
    /// Seconds of each of its twenty rounds.
    #[arg(short = 'T', long, value_name = "SECONDS", default_value_t = 2.0, value_parser = seconds)]
    time: f64,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.1..=3600.0).contains(&s) => Ok(s),
        _ => Err("a number of seconds from 0.1 to 3600 is needed".to_owned()),
    }
}

/// Runs `pgusher demo`.
pub(crate) fn run(args: Args) -> anyhow::Result<Exit> {
    // Said before the minute, not after it.
    for path in [&args.output, &args.json].into_iter().flatten() {
        files::check(path, args.force)?;
    }
    let stop = interrupt::flag()?;
    let options = Options {
        program: std::env::current_exe().context("cannot find this program's own file")?,
        clients: args.clients,
        round: Duration::from_secs_f64(args.time),
        rounds: 5,
        connections: 40,
        sessions: 20,
        runs: 8,
    };
    let mut progress = Progress::new();
    let mut step = |step: Step| progress.step(&format!("{}/{} {}", step.number, step.of, step.what));
    let result = demo::run(&options, &stop, &mut step, &mut |_| {});
    drop(progress);
    let interrupted = stop.load(Ordering::Relaxed);
    let report = match result {
        Ok(report) => report,
        Err(_) if interrupted => {
            eprintln!("pgusher: interrupted");
            return Ok(Exit::Interrupted);
        }
        Err(error) => return Err(error.into()),
    };
    let measured = !report.connections.is_empty();
    if measured {
        files::write(None, false, &format!("\n{}", report::text_at_a_glance(&report, colours())))?;
        let path = write_page(&report, args.output.as_deref(), args.force)?;
        files::write(None, false, &format!("\nreport: {}\n", path.display()))?;
        if let Some(path) = &args.json {
            files::write(Some(path), args.force, &report.json()?)?;
        }
    } else if interrupted {
        eprintln!("pgusher: interrupted before anything was measured");
    }
    Ok(match (interrupted, failed(&report)) {
        (true, _) => Exit::Interrupted,
        (false, true) => Exit::SomeFailed,
        (false, false) => Exit::Ok,
    })
}

/// Whether anything that was asked for was not measured.
fn failed(report: &Report) -> bool {
    !report.notes.is_empty() || report.any_failure()
}

fn write_page(report: &Report, output: Option<&Path>, force: bool) -> anyhow::Result<PathBuf> {
    let (path, mut file) = match output {
        Some(path) => (path.to_owned(), files::create(path, force)?),
        None => {
            let time: String = report.environment.started_at.chars().filter(char::is_ascii_digit).collect();
            files::create_somewhere(&format!("pgusher-demo-{time}"), "html")?
        }
    };
    file.write_all(report::page(report).as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
