//! The jsonlog (PostgreSQL 15 and later): one object per line.

use serde::Deserialize;

use super::record::{Parsed, Record, parse_time_ms};

#[derive(Deserialize)]
struct Line {
    timestamp: Option<String>,
    pid: Option<u32>,
    session_id: Option<String>,
    application_name: Option<String>,
    error_severity: Option<String>,
    message: Option<String>,
}

/// Reads whole lines; a last one without its end is left over.
#[must_use]
pub(super) fn read(text: &str) -> Parsed {
    let whole = text.rfind('\n').map_or(0, |at| at + 1);
    let mut parsed = Parsed { unfinished: text.len() - whole, ..Parsed::default() };
    for line in text.get(..whole).unwrap_or_default().lines().filter(|line| !line.is_empty()) {
        match serde_json::from_str::<Line>(line) {
            Ok(line) => parsed.records.push(Record {
                pid: line.pid,
                session: line.session_id,
                // A key without a value is left out, so its absence means that the session has no name yet.
                application: Some(line.application_name.unwrap_or_default()),
                time_ms: line.timestamp.as_deref().and_then(parse_time_ms),
                severity: line.error_severity.unwrap_or_default(),
                message: line.message.unwrap_or_default(),
            }),
            Err(_) => parsed.strange += 1,
        }
    }
    parsed
}
