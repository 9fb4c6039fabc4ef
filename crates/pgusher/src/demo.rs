//! `pgusher demo`: everything once on a private PostgreSQL, a table, and an HTML report.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use pgusher_measure::demo::{self, Options, Step};
use pgusher_measure::report::{self, Finding, Report, Tone};

use crate::exit::Exit;
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
    let result = demo::run(&options, &stop, &mut |step| progress.step(step), &mut |_| {});
    progress.end();
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
        files::write(None, false, &text(&report, std::io::stdout().is_terminal() && no_color_unset()))?;
        let path = write_page(&report, args.output.as_deref(), args.force)?;
        files::write(None, false, &format!("\nreport: {}\n", path.display()))?;
        if let Some(path) = &args.json {
            let json = serde_json::to_string_pretty(&report)? + "\n";
            files::write(Some(path), args.force, &json)?;
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

fn no_color_unset() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// Whether anything that was asked for was not measured.
fn failed(report: &Report) -> bool {
    !report.notes.is_empty()
        || report.connections.iter().any(|s| !s.failures.is_empty())
        || report.protocols.iter().any(|s| !s.failures.is_empty())
        || report.reconnect.as_ref().is_some_and(|r| r.any_failure())
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

/// The table and the sentences.
fn text(report: &Report, color: bool) -> String {
    let rows = report::glance(report);
    let width = |of: fn(&report::Glance) -> &str, least: usize| {
        rows.iter().map(|r| of(r).chars().count()).max().unwrap_or(0).max(least)
    };
    let what = width(|r| &r.what, 0);
    let direct = width(|r| &r.direct, "direct".len());
    let managed = width(|r| &r.managed, "managed".len());
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(out, "\n{:what$}  {:>direct$}  {:>managed$}  managed is", "", "direct", "managed");
    for row in &rows {
        let line = format!("{:what$}  {:>direct$}  {:>managed$}  {}", row.what, row.direct, row.managed, row.verdict);
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out.push('\n');
    for Finding { tone, text } in &report.findings {
        let (mark, code) = match tone {
            Tone::Good => ("+", "32"),
            Tone::Neutral => ("=", "0"),
            Tone::Bad => ("-", "31"),
        };
        let _ =
            if color { writeln!(out, "\u{1b}[{code}m{mark}\u{1b}[0m {text}") } else { writeln!(out, "{mark} {text}") };
    }
    for note in &report.notes {
        let _ = writeln!(out, "note: {note}");
    }
    let failures = report
        .connections
        .iter()
        .map(|s| (s.side, &s.failures))
        .chain(report.protocols.iter().map(|s| (s.side, &s.failures)))
        .chain(report.reconnect.iter().flat_map(|r| r.cells.iter().map(|c| (c.side, &c.failures))));
    for (side, list) in failures {
        for failure in list {
            let _ = writeln!(out, "failure: {side}, {failure}");
        }
    }
    out
}

/// What happens now, on standard error: a spinner on a terminal, otherwise a line for each step.
struct Progress {
    started: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            // A template without colours, so that NO_COLOR needs no special case.
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed:>4} {msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self { started: Instant::now(), bar }
    }

    fn step(&self, step: Step) {
        let text = format!("{}/{} {}", step.number, step.of, step.what);
        match &self.bar {
            Some(bar) => bar.set_message(text),
            None => eprintln!("[{:5.1} s] {text}", self.started.elapsed().as_secs_f64()),
        }
    }

    fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
