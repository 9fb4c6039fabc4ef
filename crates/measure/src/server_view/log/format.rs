//! Which of the three formats a log has.

use std::path::Path;

use super::prefix::Prefix;
use super::record::Parsed;
use super::{csvlog, jsonlog, stderr};

/// The severities of a server's log.
const SEVERITIES: [&str; 7] = ["LOG", "INFO", "NOTICE", "WARNING", "ERROR", "FATAL", "PANIC"];

/// The format of a server's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Lines with `log_line_prefix`.
    Stderr,
    /// Comma-separated values.
    Csvlog,
    /// One JSON object per line.
    Jsonlog,
}

impl LogFormat {
    /// As `log_destination` calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LogFormat::Stderr => "stderr",
            LogFormat::Csvlog => "csvlog",
            LogFormat::Jsonlog => "jsonlog",
        }
    }

    /// By the suffix that the server gives to its files.
    #[must_use]
    pub fn of_name(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "csv" => Some(LogFormat::Csvlog),
            "json" => Some(LogFormat::Jsonlog),
            _ => None,
        }
    }

    /// By the first whole line that tells.
    #[must_use]
    pub fn of_content(text: &str) -> Self {
        for line in text.lines() {
            if line.starts_with("{\"") {
                return LogFormat::Jsonlog;
            }
            // A line of the stderr log can have times and commas as well, but not a severity in the same place.
            let records =
                if line.matches(',').count() > 20 { csvlog::read(&format!("{line}\n")).records } else { Vec::new() };
            if records.iter().any(|record| SEVERITIES.contains(&record.severity.as_str())) {
                return LogFormat::Csvlog;
            }
        }
        LogFormat::Stderr
    }

    /// Reads `text` in this format.
    #[must_use]
    pub fn read(self, text: &str, prefix: &Prefix) -> Parsed {
        match self {
            LogFormat::Stderr => stderr::read(text, prefix),
            LogFormat::Csvlog => csvlog::read(text),
            LogFormat::Jsonlog => jsonlog::read(text),
        }
    }
}
