//! The csvlog ("Using CSV-Format Log Output" in PostgreSQL's documentation): a record is a line whose quoted fields can
//! hold line ends.

use super::record::{Parsed, Record, parse_time_ms};

const TIME: usize = 0;
const PID: usize = 3;
const SESSION: usize = 5;
const SEVERITY: usize = 11;
const MESSAGE: usize = 13;
const APPLICATION: usize = 22;

/// No record is longer: beyond it a quote is taken for a stray one, so that the work stays bounded.
const LONGEST: usize = 16 << 20;

/// Reads whole records; a last one without its end is left over.
#[must_use]
pub(super) fn read(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    let mut rest = text;
    while !rest.is_empty() {
        // A record begins with a date. Anything else is the rest of one whose beginning was not read.
        let begins = parse_time_ms(rest.get(..rest.find(',').unwrap_or(0)).unwrap_or_default()).is_some();
        let record = if begins { split(rest) } else { Split::Strange };
        match record {
            Split::Whole(fields, len) => {
                match of(&fields) {
                    Some(record) => parsed.records.push(record),
                    None => parsed.strange += 1,
                }
                rest = rest.get(len..).unwrap_or_default();
            }
            Split::Unfinished => {
                parsed.unfinished = rest.len();
                break;
            }
            Split::Strange => match rest.find('\n') {
                Some(end) => {
                    parsed.strange += 1;
                    rest = rest.get(end + 1..).unwrap_or_default();
                }
                None => {
                    parsed.unfinished = rest.len();
                    break;
                }
            },
        }
    }
    parsed
}

enum Split {
    /// The fields, and the length of the record with its line end.
    Whole(Vec<String>, usize),
    Unfinished,
    Strange,
}

fn split(text: &str) -> Split {
    let mut fields = Vec::new();
    let mut field = String::new();
    let mut quoted = false;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if at > LONGEST {
            return Split::Strange;
        }
        match (quoted, c) {
            (true, '"') if chars.peek().is_some_and(|(_, next)| *next == '"') => {
                field.push('"');
                chars.next();
            }
            (_, '"') => quoted = !quoted,
            (false, ',') => fields.push(std::mem::take(&mut field)),
            (false, '\n') => {
                fields.push(field);
                return Split::Whole(fields, at + 1);
            }
            (_, c) => field.push(c),
        }
    }
    Split::Unfinished
}

fn of(fields: &[String]) -> Option<Record> {
    let field = |at: usize| fields.get(at).map(String::as_str);
    Some(Record {
        pid: field(PID)?.parse().ok(),
        session: field(SESSION).filter(|text| !text.is_empty()).map(str::to_owned),
        application: field(APPLICATION).map(str::to_owned),
        time_ms: parse_time_ms(field(TIME)?),
        severity: field(SEVERITY)?.to_owned(),
        message: field(MESSAGE)?.to_owned(),
    })
}
