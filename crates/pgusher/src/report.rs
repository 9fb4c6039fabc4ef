//! `pgusher report`: results that were written as JSON, rendered; several runs of the same experiment compared.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, bail};
use pgusher_measure::report::{self, Collected, Document, Run};

use crate::exit::Exit;
use crate::files;
use crate::output::colours;

/// Render results that were written with --format json, and compare runs of the same experiment.
///
/// The first file that has an experiment is the baseline of the others that have it too.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What experiments have written with --format json, or demo with --json; - is standard input.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// How it is rendered.
    #[arg(long, value_enum, default_value_t = Format::Html)]
    format: Format,
    /// Write to this file [default: a new pgusher-report-TIME.html in this folder; standard output for other formats].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite the output if it exists.
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A self-contained page with plots.
    Html,
    /// Tables and sentences for a document.
    Markdown,
    /// Tables and sentences.
    Text,
    /// The report, or all of them with their comparison.
    Json,
}

/// Runs `pgusher report`.
pub(crate) fn run(args: Args) -> anyhow::Result<Exit> {
    let mut runs = Vec::new();
    let mut failed = false;
    for path in &args.files {
        let (found, error) = match contents(path) {
            Ok(text) => report::read(&text),
            Err(error) => {
                eprintln!("pgusher: error: {error:#}");
                failed = true;
                continue;
            }
        };
        if let Some(error) = error {
            eprintln!("pgusher: error: {}: {error}", shown(path));
            failed = true;
        }
        let several = found.len() > 1;
        for (number, report) in (1..).zip(found) {
            let name = if several { format!("{} ({number})", shown(path)) } else { shown(path) };
            runs.push(Run { name, report });
        }
    }
    if runs.is_empty() {
        bail!("no file held a report");
    }
    short_names(&mut runs);
    write(&args, &runs)?;
    Ok(if failed { Exit::SomeFailed } else { Exit::Ok })
}

fn contents(path: &Path) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    if path.as_os_str() == "-" {
        std::io::stdin().lock().read_to_end(&mut bytes).context("cannot read standard input")?;
    } else {
        bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    }
    String::from_utf8(bytes).map_err(|_| anyhow::anyhow!("{}: it is not JSON: it is not even text", shown(path)))
}

fn shown(path: &Path) -> String {
    if path.as_os_str() == "-" { "standard input".to_owned() } else { path.display().to_string() }
}

/// Names without their folders, where that leaves them different; and a number behind a name that comes again.
fn short_names(runs: &mut [Run]) {
    let short = |name: &str| name.rsplit('/').next().unwrap_or(name).to_owned();
    let (full, mut names): (HashSet<String>, Vec<String>) =
        (runs.iter().map(|r| r.name.clone()).collect(), runs.iter().map(|r| short(&r.name)).collect());
    names.sort();
    names.dedup();
    if names.len() == full.len() {
        runs.iter_mut().for_each(|run| run.name = short(&run.name));
    }
    let mut seen: HashMap<String, u32> = HashMap::new();
    for run in runs {
        let times = seen.entry(run.name.clone()).or_insert(0);
        *times += 1;
        if *times > 1 {
            run.name = format!("{} [{times}]", run.name);
        }
    }
}

fn write(args: &Args, runs: &[Run]) -> anyhow::Result<()> {
    let document = Document::of_runs(runs);
    let text = match (args.format, runs) {
        (Format::Html, _) => report::page_document(&document),
        (Format::Markdown, _) => report::markdown_document(&document),
        (Format::Text, _) => report::text_document(&document, args.output.is_none() && colours()),
        (Format::Json, [one]) => one.report.json()?,
        (Format::Json, _) => serde_json::to_string_pretty(&Collected::of(runs))? + "\n",
    };
    if args.format != Format::Html || args.output.is_some() {
        return files::write(args.output.as_deref(), args.force, &text);
    }
    let time: String = report::timestamp(SystemTime::now()).chars().filter(char::is_ascii_digit).collect();
    let (path, mut file) = files::create_somewhere(&format!("pgusher-report-{time}"), "html")?;
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
    files::write(None, false, &format!("report: {}\n", path.display()))
}
