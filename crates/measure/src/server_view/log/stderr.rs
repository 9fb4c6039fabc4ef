//! The stderr log: lines with a prefix; the further lines of a message begin with a tab.

use super::prefix::Prefix;
use super::record::{Parsed, Record};

/// What follows a message as entries of its own.
const ATTACHED: [&str; 6] = ["DETAIL", "HINT", "CONTEXT", "STATEMENT", "QUERY", "LOCATION"];

/// Reads whole lines; a last one without its end is left over.
#[must_use]
pub(super) fn read(text: &str, prefix: &Prefix) -> Parsed {
    let whole = text.rfind('\n').map_or(0, |at| at + 1);
    let mut parsed = Parsed { unfinished: text.len() - whole, ..Parsed::default() };
    let mut current: Option<Record> = None;
    let mut attached = false;
    for line in text.get(..whole).unwrap_or_default().lines() {
        if let Some(more) = line.strip_prefix('\t') {
            if let (Some(record), false) = (&mut current, attached) {
                record.message.push('\n');
                record.message.push_str(more);
            }
            continue;
        }
        match prefix.read(line) {
            Some(record) if ATTACHED.contains(&record.severity.as_str()) => attached = true,
            Some(record) => {
                attached = false;
                parsed.records.extend(current.replace(record));
            }
            // A message of a program that the server has started, or another prefix.
            None => parsed.strange += 1,
        }
    }
    parsed.records.extend(current);
    parsed
}
