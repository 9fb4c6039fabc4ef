//! Reads the rows that come back for an inquiry.

use super::sql::OF_TRANSACTIONS;
use super::{Aspects, Findings, FunctionDefinition, Inquiry, PreparedStatement};
use pgusher_wire::backend::{DATA_ROW, DataRow, Message};
use pgusher_wire::frame::Frame;
use std::collections::{HashMap, HashSet};
use std::fmt;

/// Bytes that the rows of one answer may take in memory.
pub const MAX_BYTES: usize = 1024 * 1024;
/// Added to each row's texts for what its place in memory takes.
const ROW: usize = 256;

/// Why an answer cannot be used. Nothing is known of the session then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreadable {
    /// A row that no [`Inquiry`] asks for.
    Malformed,
    /// More than [`MAX_BYTES`] bytes.
    TooLarge,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("the server's answer about its session is malformed"),
            Self::TooLarge => f.write_str("the server's answer about its session is too large"),
        }
    }
}

impl std::error::Error for Unreadable {}

/// The rows of an answer as they come.
#[derive(Debug, Default)]
pub struct Answer {
    held: usize,
    findings: Findings,
    settings: Vec<Setting>,
    placeholders: Vec<(String, String)>,
    /// Lower-case names of settings that the role may see.
    visible: HashSet<String>,
    role: Option<String>,
    authorization: Option<String>,
}

/// A setting of the session.
#[derive(Debug)]
struct Setting {
    name: String,
    /// As SHOW has it: `3MB`.
    shown: String,
    /// In the setting's unit: `3072`.
    plain: Option<String>,
    /// `bool`, `integer`, `real`, `string` or `enum`.
    kind: String,
}

impl Answer {
    /// Takes the body of one DataRow message.
    ///
    /// # Errors
    /// The answer is not usable then, and rows that follow need not be given.
    pub fn row(&mut self, body: &[u8]) -> Result<(), Unreadable> {
        let row = Row::parse(body).ok_or(Unreadable::Malformed)?;
        self.held = self.held.saturating_add(body.len() / 2 + ROW);
        if self.held > MAX_BYTES {
            return Err(Unreadable::TooLarge);
        }
        self.take(&row).ok_or(Unreadable::Malformed)
    }

    /// `None` if the row lacks what its kind must have.
    fn take(&mut self, row: &Row<'_>) -> Option<()> {
        let findings = &mut self.findings;
        match row.kind {
            b't' => findings.temporary = true,
            b'l' => findings.locks = true,
            b'h' => findings.cursors = true,
            b'c' => match row.a.text()? {
                Ok(name) => findings.channels.push(name),
                Err(NotUtf8) => findings.unrepresentable = true,
            },
            b'q' => {
                let (from_sql, text) = (row.flag?, row.body()?);
                match row.a.text()? {
                    Ok(name) => findings.prepared.push(PreparedStatement { name, from_sql, text }),
                    Err(NotUtf8) => findings.unrepresentable = true,
                }
            }
            b'f' => {
                let (configured, body) = (row.flag?, row.body()?);
                let mut kind = row.word?.chars();
                let (Some(kind), None) = (kind.next(), kind.next()) else {
                    return None;
                };
                match (row.a.text()?, row.b.text()?, row.c.text()?) {
                    (Ok(schema), Ok(name), Ok(language)) => {
                        findings.functions.push(FunctionDefinition { schema, name, language, body, configured, kind })
                    }
                    _ => findings.unrepresentable = true,
                }
            }
            b's' => {
                let kind = row.word?.to_owned();
                let own = row.flag?;
                match (row.a.text()?, own) {
                    (Ok(name), false) => {
                        self.visible.insert(name.to_ascii_lowercase());
                    }
                    (Ok(name), true) => {
                        self.visible.insert(name.to_ascii_lowercase());
                        match row.body()? {
                            Some(shown) => {
                                let plain = row.b.text().and_then(Result::ok);
                                self.settings.push(Setting { name, shown, plain, kind });
                            }
                            None => findings.unrepresentable = true,
                        }
                    }
                    (Err(NotUtf8), _) => findings.unrepresentable = true,
                }
            }
            b'p' => match (row.a.text()?, row.body()?) {
                (Ok(name), Some(value)) => self.placeholders.push((name, value)),
                _ => findings.unrepresentable = true,
            },
            b'r' | b'a' => {
                let value = row.body()?;
                findings.unrepresentable |= value.is_none();
                *(if row.kind == b'r' { &mut self.role } else { &mut self.authorization }) = value;
            }
            _ => return None,
        }
        Some(())
    }

    /// What was found, after the last row. `inquiry` is the one that was asked.
    pub fn finish(mut self, inquiry: &Inquiry<'_>) -> Findings {
        let mut findings = std::mem::take(&mut self.findings);
        if inquiry.aspects.contains(Aspects::SETTINGS) {
            findings.settings = Some(self.settings(inquiry));
        }
        findings
    }

    fn settings(self, inquiry: &Inquiry<'_>) -> Vec<(String, String)> {
        let known: HashMap<String, (&str, &str)> =
            inquiry.known.iter().map(|(name, value)| (name.to_ascii_lowercase(), (name, value))).collect();
        let mut seen = self.visible;
        let mut settings = Vec::new();
        for found in self.settings {
            settings.push(match known.get(&found.name.to_ascii_lowercase()) {
                Some((name, value)) if found.is(value) => ((*name).to_owned(), (*value).to_owned()),
                Some((name, _)) => ((*name).to_owned(), found.shown),
                None => (found.name, found.shown),
            });
        }
        for (name, value) in self.placeholders {
            let lower = name.to_ascii_lowercase();
            // A setting of an extension is no placeholder.
            if !seen.insert(lower.clone()) {
                continue;
            }
            match known.get(&lower) {
                Some((name, _)) => settings.push(((*name).to_owned(), value)),
                None if value.is_empty() && inquiry.leftovers.iter().any(|n| n.eq_ignore_ascii_case(&name)) => {}
                None => settings.push((name, value)),
            }
        }
        for (name, value) in [("role", self.role), ("session_authorization", self.authorization)] {
            seen.insert(name.to_owned());
            settings.extend(value.map(|value| (name.to_owned(), value)));
        }
        // What the role may not see has not changed, as far as one can know.
        for (lower, (name, value)) in known {
            if !seen.contains(&lower) && !lower.contains('.') && !OF_TRANSACTIONS.contains(&&*lower) {
                settings.push((name.to_owned(), value.to_owned()));
            }
        }
        settings.sort();
        settings
    }
}

impl Setting {
    /// Does it have this value? In doubt, no. A number of the type `real` is shown with six digits only
    /// (src/backend/utils/misc/guc.c, ShowGUCOption).
    fn is(&self, value: &str) -> bool {
        if self.shown == value || self.plain.as_deref() == Some(value) {
            return true;
        }
        match self.kind.as_str() {
            "enum" => self.shown.eq_ignore_ascii_case(value),
            "bool" => {
                let spellings: &[&str] =
                    if self.shown == "on" { &["on", "true", "yes", "1"] } else { &["off", "false", "no", "0"] };
                spellings.iter().any(|spelling| spelling.eq_ignore_ascii_case(value))
            }
            "real" => {
                let six_digits = |text: &str| text.parse::<f64>().ok().map(|number| format!("{number:.5e}"));
                six_digits(value).is_some_and(|number| {
                    six_digits(&self.shown).as_ref() == Some(&number)
                        || self.plain.as_deref().and_then(six_digits).as_ref() == Some(&number)
                })
            }
            _ => false,
        }
    }
}

/// One row of an answer; the columns are those of `sql`.
struct Row<'a> {
    kind: u8,
    a: Hex<'a>,
    b: Hex<'a>,
    c: Hex<'a>,
    /// A text that may be long; absent also if it is too long.
    d: Hex<'a>,
    /// The long text is NULL on the server.
    empty: bool,
    word: Option<&'a str>,
    flag: Option<bool>,
}

struct NotUtf8;

impl<'a> Row<'a> {
    fn parse(body: &'a [u8]) -> Option<Self> {
        let Ok(Message::DataRow(row)) = Message::parse(Frame { tag: DATA_ROW, body }) else {
            return None;
        };
        let [kind, a, b, c, d, empty, word, flag] = columns(row, body.len())?;
        let truth = |column: &[u8]| match column {
            b"t" => Some(true),
            b"f" => Some(false),
            _ => None,
        };
        let [kind] = kind? else {
            return None;
        };
        Some(Self {
            kind: *kind,
            a: Hex(a),
            b: Hex(b),
            c: Hex(c),
            d: Hex(d),
            empty: truth(empty?)?,
            word: word.map(std::str::from_utf8).transpose().ok()?,
            flag: match flag {
                Some(flag) => Some(truth(flag)?),
                None => None,
            },
        })
    }

    /// The long text. Outer `None`: there must be one, and there is not. Inner `None`: it is too long or no UTF-8.
    fn body(&self) -> Option<Option<String>> {
        match (self.d.0, self.empty) {
            (None, true) | (Some(_), true) => None,
            (None, false) => Some(None),
            (Some(_), false) => self.d.text().map(Result::ok),
        }
    }
}

/// The columns, if there are eight and nothing behind them.
fn columns<'a>(row: DataRow<'a>, length: usize) -> Option<[Option<&'a [u8]>; 8]> {
    let mut columns = [None; 8];
    let mut bytes = 2;
    let mut rest = row.columns();
    for place in &mut columns {
        *place = rest.next()?;
        bytes += 4 + place.map_or(0, <[u8]>::len);
    }
    (row.len() == columns.len() && bytes == length).then_some(columns)
}

/// A text as the hexadecimal digits of its bytes, or NULL.
#[derive(Clone, Copy)]
struct Hex<'a>(Option<&'a [u8]>);

impl Hex<'_> {
    /// `None` for NULL and for what is no such text.
    fn text(self) -> Option<Result<String, NotUtf8>> {
        let digits = self.0?;
        let mut bytes = Vec::with_capacity(digits.len() / 2);
        for pair in digits.chunks(2) {
            let [high, low] = pair else {
                return None;
            };
            bytes.push((digit(*high)? << 4) | digit(*low)?);
        }
        Some(String::from_utf8(bytes).map_err(|_| NotUtf8))
    }
}

fn digit(c: u8) -> Option<u8> {
    match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    }
}
