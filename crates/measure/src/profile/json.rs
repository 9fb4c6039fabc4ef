//! JSON: one document, or one object per line. Keys of times end in `_us` (microseconds).

use std::io::{self, Write};

use serde::Serialize;

use super::reporter::Surroundings;
use super::{Event, Failure, Plan, Provoked, SummaryRow};
use crate::server_view;

/// Version of the shape of JSON and JSONL. Raised when a key changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
pub(super) struct Document<'a> {
    pub(super) schema_version: u32,
    pub(super) interrupted: bool,
    pub(super) environment: &'a Surroundings,
    pub(super) plan: &'a Plan,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) provoked: Option<&'a Provoked>,
    pub(super) summary: &'a [SummaryRow],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) server_view: Option<&'a server_view::Report>,
    pub(super) failed: u64,
    pub(super) failures: &'a [Failure],
}

/// One object per line.
pub(super) fn line(out: &mut dyn Write, event: &Event) -> io::Result<()> {
    serde_json::to_writer(&mut *out, event)?;
    writeln!(out)
}

pub(super) fn summary_line(out: &mut dyn Write, document: &Document<'_>) -> io::Result<()> {
    #[derive(Serialize)]
    struct Line<'a> {
        kind: &'static str,
        #[serde(flatten)]
        document: &'a Document<'a>,
    }
    serde_json::to_writer(&mut *out, &Line { kind: "summary", document })?;
    writeln!(out)
}

pub(super) fn document(out: &mut dyn Write, document: &Document<'_>, events: &[Event]) -> io::Result<()> {
    #[derive(Serialize)]
    struct Whole<'a> {
        #[serde(flatten)]
        document: &'a Document<'a>,
        events: &'a [Event],
    }
    serde_json::to_writer_pretty(&mut *out, &Whole { document, events })?;
    writeln!(out)
}
