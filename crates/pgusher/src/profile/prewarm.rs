//! `pgusher profile --prewarm`: what warming a fresh connection takes away from a statement's first run.

use anyhow::{Context, bail};
use pgusher_measure::prewarm::{self, Options, Way};
use pgusher_measure::profile::{Protocol, server_facts};
use pgusher_measure::report::{Environment, Experiment, Report};

use super::{Args, FormatArg, WayArg, config, connector, statements};
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::progress::Progress;
use crate::{files, interrupt};

/// Rounds and runs where none are asked for: enough for an interval, and for a steady state.
const ROUNDS: u32 = 20;
const RUNS: u32 = 5;

/// Runs it.
pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let format = match args.format {
        FormatArg::Text => Format::Text,
        FormatArg::Json => Format::Json,
        FormatArg::Csv => Format::Csv,
        FormatArg::Markdown => Format::Markdown,
        FormatArg::Html => Format::Html,
        FormatArg::Jsonl => bail!("--prewarm has no jsonl; use --format json"),
    };
    let protocol: Protocol = args.protocol.into();
    if protocol == Protocol::Prepared {
        bail!("--prewarm cannot be used with -p prepared, which parses before the first run; use -p extended");
    }
    let mut queries = statements(args)?;
    queries.retain(|sql| !sql.trim().is_empty());
    if queries.is_empty() {
        bail!("--prewarm needs a statement: -q or -f");
    }
    let runs = args.repeat_sql.unwrap_or(RUNS);
    if runs < 3 {
        bail!("--prewarm needs -r 3 or more: the third and later runs are the steady ones");
    }
    let rounds = args.repeat_connect.unwrap_or(ROUNDS);
    let config = config(args)?;
    let connector = connector(args, &config)?;
    connector.warnings().iter().for_each(|warning| eprintln!("pgusher: warning: {warning}"));
    // As elsewhere in `profile`, an existing file is written over.
    args.output.as_deref().map_or(Ok(()), |path| files::check(path, true))?;
    let stop = interrupt::flag()?;
    let options = Options { protocol, queries, ways: ways(&args.prewarm), rounds, runs };
    let mut progress = Progress::new();
    let result = prewarm::run(&options, &connector, (&config.user, &config.dbname), &stop, &mut |done, all| {
        progress.set(&format!("{done} of {all} connections"));
    })?;
    drop(progress);
    let mut environment = Environment::here();
    environment.server = server_facts(&connector);
    let mut report = Report::new(result.title(), environment);
    report.findings = result.findings();
    report.prewarm = Some(result);
    let colour = args.output.is_none() && output::colours();
    let text = output::written(&report, format, colour).context("cannot write the result")?;
    files::write(args.output.as_deref(), true, &text)?;
    Ok(output::exit(&report))
}

/// Each once, in the order of the table.
fn ways(wanted: &[WayArg]) -> Vec<Way> {
    let mut ways: Vec<Way> = wanted
        .iter()
        .map(|way| match way {
            WayArg::Parse => Way::Parse,
            WayArg::Bind => Way::Bind,
            WayArg::Explain => Way::Explain,
        })
        .collect();
    ways.sort_unstable();
    ways.dedup();
    ways
}
