//! How results leave the program: the options that all experiments share, the formats, and the exit code that a report
//! means.

use std::io::IsTerminal;
use std::path::PathBuf;

use pgusher_measure::report::{self, Report};

use crate::exit::Exit;
use crate::files;

/// How and where the result is written.
#[derive(Debug, clap::Args)]
pub(crate) struct OutputArgs {
    /// How the result is written.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Write the result to this file instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite FILE if it exists.
    #[arg(long)]
    force: bool,
}

/// The formats of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Tables and sentences.
    Text,
    /// All numbers and the environment; `pgusher report` reads it.
    Json,
    /// A line per sample or round.
    Csv,
    /// Tables and sentences for a document.
    Markdown,
    /// A self-contained page with plots.
    Html,
}

impl OutputArgs {
    /// Whether the result can be written: to be asked before anything is measured. Leaves nothing behind.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.output.as_deref().map_or(Ok(()), |path| files::check(path, self.force))
    }

    /// Writes the report in the format that was asked for; text has `behind` at its end. Gives the exit code that it means.
    pub(crate) fn write(&self, report: &Report, behind: &str) -> anyhow::Result<Exit> {
        let colour = self.output.is_none() && colours();
        let mut text = written(report, self.format, colour)?;
        if self.format == Format::Text {
            text.push_str(behind);
        }
        files::write(self.output.as_deref(), self.force, &text)?;
        Ok(exit(report))
    }

    /// Writes the report in the format that was asked for, and `own` in place of the text: for results that are read as
    /// sentences rather than tables.
    pub(crate) fn write_own(&self, report: &Report, own: &str) -> anyhow::Result<()> {
        let text = match self.format {
            Format::Text => own.to_owned(),
            other => written(report, other, false)?,
        };
        files::write(self.output.as_deref(), self.force, &text)
    }
}

/// The report in a format.
pub(crate) fn written(report: &Report, format: Format, colour: bool) -> anyhow::Result<String> {
    Ok(match format {
        Format::Text => report::text_report(report, colour),
        Format::Json => report.json()?,
        Format::Csv => report.csv(),
        Format::Markdown => report::markdown_report(report),
        Format::Html => report::page(report),
    })
}

/// What the end of an experiment with this result is: interrupted, or something failed, or all well.
pub(crate) fn exit(report: &Report) -> Exit {
    match (report.interrupted(), report.any_failure()) {
        (true, _) => Exit::Interrupted,
        (false, true) => Exit::SomeFailed,
        (false, false) => Exit::Ok,
    }
}

/// Whether standard output takes colours: a terminal, and NO_COLOR does not forbid them.
pub(crate) fn colours() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}
