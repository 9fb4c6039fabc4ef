//! `log_line_prefix`: which parts of a line of the stderr log are what. The setting is read like printf's, by
//! "Error Reporting and Logging" of PostgreSQL's documentation; a line is then matched against it.
//!
//! Not for csvlog and jsonlog, which have no prefix.

use std::collections::HashSet;

use super::record::{Record, parse_time_ms};

/// A compiled `log_line_prefix`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    /// An escape and whether it is padded with blanks.
    Field(Field, bool),
    /// `%q`: processes without a session stop here.
    Quit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Application,
    Pid,
    Session,
    /// `%t` and `%m`: a date, a time, a zone.
    Time,
    /// `%n`: seconds since 1970.
    Epoch,
    /// A word without blanks: `%l`, `%e`, `%v`, `%x`, `%P`, `%Q`.
    Word,
    /// A date, a time, a zone that are not the line's own: `%s`.
    Start,
    /// Anything: a name, a host, a command tag.
    Free,
}

/// How much of a line is looked at: longer prefixes are not made by any server.
const LONGEST: usize = 1024;
/// A name has at most 63 bytes, a host name 255.
const LONGEST_FREE: usize = 300;

impl Prefix {
    /// Reads the setting. Escapes that are unknown produce nothing, as on the server.
    #[must_use]
    pub fn parse(setting: &str) -> Self {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut chars = setting.chars().peekable();
        while let Some(c) = chars.next() {
            if c != '%' {
                literal.push(c);
                continue;
            }
            let mut padded = false;
            while chars.peek().is_some_and(|c| *c == '-' || c.is_ascii_digit()) {
                padded = true;
                chars.next();
            }
            let field = match chars.next() {
                Some('%') => {
                    literal.push('%');
                    continue;
                }
                Some('a') => Part::Field(Field::Application, padded),
                Some('p') => Part::Field(Field::Pid, padded),
                Some('c') => Part::Field(Field::Session, padded),
                Some('t' | 'm') => Part::Field(Field::Time, padded),
                Some('n') => Part::Field(Field::Epoch, padded),
                Some('s') => Part::Field(Field::Start, padded),
                Some('l' | 'e' | 'v' | 'x' | 'P' | 'Q') => Part::Field(Field::Word, padded),
                Some('u' | 'd' | 'r' | 'h' | 'L' | 'b' | 'i') => Part::Field(Field::Free, padded),
                Some('q') => Part::Quit,
                _ => continue,
            };
            if !literal.is_empty() {
                parts.push(Part::Literal(std::mem::take(&mut literal)));
            }
            parts.push(field);
        }
        if !literal.is_empty() {
            parts.push(Part::Literal(literal));
        }
        Prefix(parts)
    }

    /// Whether lines say which process wrote them (`%p` or `%c`); without, sessions cannot be told apart.
    #[must_use]
    pub fn names_the_process(&self) -> bool {
        self.has(Field::Pid) || self.has(Field::Session)
    }

    /// Whether lines hold the application's name (`%a`).
    #[must_use]
    pub fn names_the_application(&self) -> bool {
        self.has(Field::Application)
    }

    fn has(&self, wanted: Field) -> bool {
        self.0.iter().any(|part| matches!(part, Part::Field(field, _) if *field == wanted))
    }

    /// Takes a line apart: what its prefix says, and the severity and message after it. `None` if it does not begin
    /// with this prefix and a severity.
    #[must_use]
    pub fn read(&self, line: &str) -> Option<Record> {
        let mut search = Search { parts: &self.0, line, dead: HashSet::new(), found: Vec::new() };
        let end = search.from(0, 0)?;
        let (severity, message) = severity(line.get(end..)?)?;
        let mut record = Record { severity: severity.to_owned(), message: message.to_owned(), ..Record::default() };
        for (field, start, end) in search.found {
            let text = line.get(start..end).unwrap_or_default().trim();
            match field {
                Field::Application => record.application = Some(text.to_owned()),
                Field::Pid => record.pid = text.parse().ok(),
                Field::Session => record.session = Some(text.to_owned()),
                // Whole seconds (%t) would only pretend to measure anything.
                Field::Time if text.contains('.') => record.time_ms = parse_time_ms(text),
                Field::Epoch => record.time_ms = text.parse::<f64>().ok().map(|seconds| seconds * 1e3),
                Field::Time | Field::Word | Field::Start | Field::Free => {}
            }
        }
        if record.pid.is_none() {
            record.pid = record.session.as_deref().and_then(pid_of_session);
        }
        Some(record)
    }
}

/// `%c` is the start of the process and its number, both hexadecimal.
fn pid_of_session(session: &str) -> Option<u32> {
    u32::from_str_radix(session.split_once('.')?.1, 16).ok()
}

/// `LOG:  message`. Translated names of severities are taken as well: capital letters before a colon and two blanks.
fn severity(text: &str) -> Option<(&str, &str)> {
    let (severity, message) = text.split_once(":  ")?;
    let valid = !severity.is_empty()
        && severity.len() <= 32
        && severity.chars().all(|c| c.is_uppercase() || c.is_ascii_digit() || (!c.is_ascii() && c.is_alphanumeric()));
    valid.then_some((severity, message))
}

/// Finds the first way in which the parts fit the line. A pair of part and position that led nowhere is not tried
/// again, so that the work is bounded by the square of the prefix's length.
struct Search<'a> {
    parts: &'a [Part],
    line: &'a str,
    dead: HashSet<(usize, usize)>,
    found: Vec<(Field, usize, usize)>,
}

impl Search<'_> {
    fn from(&mut self, part: usize, at: usize) -> Option<usize> {
        if at > LONGEST || self.dead.contains(&(part, at)) {
            return None;
        }
        let end = self.try_from(part, at);
        if end.is_none() {
            self.dead.insert((part, at));
        }
        end
    }

    fn try_from(&mut self, part: usize, at: usize) -> Option<usize> {
        let rest = self.line.get(at..)?;
        match self.parts.get(part) {
            None => severity(rest).map(|_| at),
            Some(Part::Literal(text)) => {
                rest.starts_with(text.as_str()).then(|| self.from(part + 1, at + text.len())).flatten()
            }
            Some(Part::Quit) => self.from(part + 1, at).or_else(|| severity(rest).map(|_| at)),
            Some(Part::Field(field, padded)) => {
                let field = *field;
                for len in lengths(field, *padded, rest) {
                    let kept = self.found.len();
                    self.found.push((field, at, at + len));
                    if let Some(end) = self.from(part + 1, at + len) {
                        return Some(end);
                    }
                    self.found.truncate(kept);
                }
                None
            }
        }
    }
}

/// The lengths that a field at the start of `text` can have, the likeliest first.
fn lengths(field: Field, padded: bool, text: &str) -> Vec<usize> {
    let blanks = if padded { text.bytes().take_while(|b| *b == b' ').count() } else { 0 };
    let body = text.get(blanks..).unwrap_or_default();
    let run = |accepts: fn(char) -> bool| body.chars().take_while(|c| accepts(*c)).map(char::len_utf8).sum::<usize>();
    let len = match field {
        Field::Pid => run(|c| c.is_ascii_digit()),
        Field::Session => run(|c| c.is_ascii_hexdigit() || c == '.'),
        Field::Epoch => run(|c| c.is_ascii_digit() || c == '.'),
        Field::Time | Field::Start => {
            let Some(longest) = time_len(body) else {
                // Before a session has begun there is no start of it.
                return if field == Field::Start { vec![blanks] } else { Vec::new() };
            };
            // What follows can look like a part of the zone.
            return (DATE_AND_TIME..=longest).rev().flat_map(|len| with_padding(padded, text, blanks, len)).collect();
        }
        Field::Word => {
            let longest = run(|c| c.is_ascii_alphanumeric() || "/-_".contains(c)).min(LONGEST_FREE);
            return (0..=longest).rev().flat_map(|len| with_padding(padded, text, blanks, len)).collect();
        }
        Field::Application | Field::Free => {
            // The shortest first: what follows says where it ends.
            return text.char_indices().map(|(at, _)| at).take_while(|at| *at <= LONGEST_FREE).collect();
        }
    };
    if len == 0 { Vec::new() } else { with_padding(padded, text, blanks, len) }
}

/// A padded field may have blanks behind it too, as many as there are.
fn with_padding(padded: bool, text: &str, blanks: usize, len: usize) -> Vec<usize> {
    let end = blanks + len;
    if !padded {
        return vec![end];
    }
    let behind = text.bytes().skip(end).take_while(|b| *b == b' ').count();
    (0..=behind).map(|more| end + more).collect()
}

/// Length of `2026-01-31 23:59:59`.
const DATE_AND_TIME: usize = 19;

/// Length of `2026-01-31 23:59:59.123 CET` at the start of `text`.
fn time_len(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let shape = b"0000-00-00 00:00:00";
    let fits = shape.iter().enumerate().all(|(at, wanted)| {
        bytes.get(at).is_some_and(|b| if *wanted == b'0' { b.is_ascii_digit() } else { b == wanted })
    });
    if !fits {
        return None;
    }
    let mut at = shape.len();
    if bytes.get(at) == Some(&b'.') {
        at += 1 + bytes.iter().skip(at + 1).take_while(|b| b.is_ascii_digit()).count();
    }
    if bytes.get(at) != Some(&b' ') {
        return Some(at);
    }
    let zone = bytes.iter().skip(at + 1).take_while(|b| b.is_ascii_alphanumeric() || b"+-:/_".contains(b)).count();
    Some(at + 1 + zone)
}
