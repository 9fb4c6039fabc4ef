//! Takes the rows of the answer to [`question`](super::question()). Each body is judged as it comes and not kept.

use std::collections::HashMap;
use std::fmt;

use pgusher_sql::body::{BodyFacts, Definition, facts_of};
use pgusher_wire::{Frame, backend};

use super::Knowledge;

/// Functions that are asked for.
pub const MAX_FUNCTIONS: usize = 5_000;
/// Bytes of bodies that are asked for.
pub const MAX_BYTES: usize = 4 * 1024 * 1024;
/// Rows that are read.
pub const MAX_ROWS: usize = 200_000;
/// Bytes of all rows: each byte of a body comes as two digits, and a character may have four bytes.
const MAX_TOTAL: usize = 16 * MAX_BYTES;

/// Why an answer cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// A row is not what was asked for.
    Row,
    /// The answer is not complete: its first two rows are missing.
    Incomplete,
    /// Nothing has changed since an answer that is not here any more.
    Unknown,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Row => "the server's answer about its definitions has a row of an unexpected form",
            Self::Incomplete => "the server's answer about its definitions is not complete",
            Self::Unknown => "the server's definitions have not changed, but what they were is not known",
        })
    }
}

impl std::error::Error for ReadError {}

/// A name as a number, so that each is kept once.
pub(super) type Name = u32;

#[derive(Debug, Default)]
pub(super) struct Names {
    numbers: HashMap<Box<str>, Name>,
    names: Vec<Box<str>>,
}

impl Names {
    pub(super) fn number(&mut self, name: &str) -> Name {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.numbers.insert(name.into(), number);
        self.names.push(name.into());
        number
    }

    pub(super) fn get(&self, name: Name) -> &str {
        self.names.get(name as usize).map_or("", |name| name)
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }
}

/// A function, as far as it matters.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) oid: u32,
    pub(super) name: Name,
    /// It may change sessions.
    pub(super) doubt: bool,
    /// It can be called like a column, without its name being a call in a statement.
    pub(super) notation: bool,
    /// It may use any relation.
    pub(super) any_relation: bool,
    pub(super) calls: Box<[Name]>,
    pub(super) names: Box<[Name]>,
    /// Settings with these names may be made.
    pub(super) placeholders: Box<[Name]>,
    /// It makes settings whose names are not known.
    pub(super) nameless: bool,
    /// It calls others by its definition only.
    pub(super) aggregate: bool,
}

/// What has been read so far. Memory is bounded by [`MAX_BYTES`] and [`MAX_ROWS`].
#[derive(Debug, Default)]
pub struct Reader {
    rows: usize,
    bytes: usize,
    defaults: Option<u64>,
    version: Option<u64>,
    pub(super) names: Names,
    pub(super) functions: Vec<Function>,
    /// Function (0: a built-in one), and the relation from which it is reached.
    pub(super) reached: Vec<(u32, Option<Name>)>,
    /// Relations whose use runs something that is not known, though it changes no session: nextval in a view.
    pub(super) volatile: Vec<Name>,
    /// Function, and whether its event trigger is one on login.
    pub(super) events: Vec<(u32, bool)>,
    /// Function, and one that it calls.
    pub(super) calls: Vec<(u32, u32)>,
    pub(super) doubts: Vec<u32>,
    pub(super) edges: Vec<(Name, Name)>,
    /// Names in the constants of definitions that call a built-in function which changes sessions.
    pub(super) constants: Vec<Name>,
    pub(super) too_many: bool,
    /// Names of relations can be compared with those of statements: their bytes are UTF-8.
    pub(super) utf8: bool,
}

impl Reader {
    /// One with nothing read.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the body of a DataRow message.
    ///
    /// # Errors
    /// [`ReadError::Row`]. The answer is of no use then.
    pub fn row(&mut self, body: &[u8]) -> Result<(), ReadError> {
        let frame = Frame { tag: backend::DATA_ROW, body };
        let Ok(backend::Message::DataRow(row)) = backend::Message::parse(frame) else { return Err(ReadError::Row) };
        self.rows += 1;
        self.bytes = self.bytes.saturating_add(body.len());
        if self.rows > MAX_ROWS || self.bytes > MAX_TOTAL {
            self.give_up();
        }
        let mut columns = row.columns();
        let mut column = || columns.next().ok_or(ReadError::Row);
        let (kind, first, second, third, fourth) = (column()?, column()?, column()?, column()?, column()?);
        let first = first.unwrap_or_default();
        match kind {
            Some(b"d") => {
                self.defaults = Some(hash(first)?);
                self.utf8 = second == Some(b"UTF8");
            }
            Some(b"v") => self.version = Some(hash(first)?),
            Some(b"x") => self.give_up(),
            _ if self.too_many => {}
            Some(b"f") => self.function(first, second, third, fourth)?,
            Some(b"r") => {
                let relation = second.map(|name| self.name(name)).transpose()?;
                let function = oid(first)?;
                if function == 0 {
                    self.constants(third.unwrap_or_default())?;
                }
                self.reached.push((function, relation));
            }
            Some(b"c") => {
                let relation = self.name(first)?;
                self.volatile.push(relation);
            }
            Some(b"w") => self.events.push((oid(first)?, second == Some(b"login"))),
            Some(b"p") => self.calls.push((oid(first)?, oid(second.unwrap_or_default())?)),
            Some(b"q") => self.doubts.push(oid(first)?),
            Some(b"e") => {
                let edge = (self.name(first)?, self.name(second.unwrap_or_default())?);
                self.edges.push(edge);
            }
            _ => return Err(ReadError::Row),
        }
        Ok(())
    }

    /// Nothing is known but that there is too much.
    pub fn give_up(&mut self) {
        *self = Self {
            rows: self.rows,
            bytes: self.bytes,
            defaults: self.defaults,
            version: self.version,
            too_many: true,
            utf8: self.utf8,
            ..Self::default()
        };
    }

    /// Bytes of constants as PostgreSQL writes them in its trees (`outDatum` in nodes/outfuncs.c): a text has its length in front, in
    /// four bytes.
    fn constants(&mut self, list: &[u8]) -> Result<(), ReadError> {
        let list = std::str::from_utf8(list).map_err(|_| ReadError::Row)?;
        for constant in list.split(';') {
            let bytes: Option<Vec<u8>> = constant
                .split_whitespace()
                .map(|number| number.parse::<i16>().ok().and_then(|number| u8::try_from(number & 0xff).ok()))
                .collect();
            let bytes = bytes.ok_or(ReadError::Row)?;
            let text = bytes.get(4..).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default();
            let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '.');
            if text.contains('.') && text.chars().all(is_name) {
                let name = self.names.number(&text.to_ascii_lowercase());
                self.constants.push(name);
            }
        }
        Ok(())
    }

    fn name(&mut self, digits: &[u8]) -> Result<Name, ReadError> {
        Ok(self.names.number(&text(digits)?))
    }

    fn function(
        &mut self,
        number: &[u8],
        name: Option<&[u8]>,
        language: Option<&[u8]>,
        body: Option<&[u8]>,
    ) -> Result<(), ReadError> {
        let (Some(name), Some(language), Some(body)) = (name, language, body) else { return Err(ReadError::Row) };
        let (notation, body) = body.strip_prefix(b".").map_or((false, body), |body| (true, body));
        let body = text(body)?;
        let facts = facts_of(Definition { language: &text(language)?, body: &body, configured: false });
        let mut numbers = |list: &[Box<str>]| list.iter().map(|name| self.names.number(name)).collect::<Box<[_]>>();
        let calls = facts.calls.iter().chain(&facts.builtins).cloned().collect::<Box<[_]>>();
        let function = Function {
            oid: oid(number)?,
            doubt: in_doubt(&facts),
            notation,
            any_relation: facts.any_relation,
            calls: numbers(&calls),
            names: numbers(&facts.names),
            placeholders: numbers(&facts.placeholders),
            nameless: facts.unknown_names && !facts.opaque,
            aggregate: &*body == "aggregate_dummy",
            name: self.name(name)?,
        };
        self.functions.push(function);
        Ok(())
    }

    /// What follows from all rows. `known` is what was known when the question was made with its version.
    ///
    /// # Errors
    /// [`ReadError::Incomplete`], [`ReadError::Unknown`].
    pub fn finish(self, known: Option<&Knowledge>) -> Result<Knowledge, ReadError> {
        let (Some(defaults), Some(version)) = (self.defaults, self.version) else { return Err(ReadError::Incomplete) };
        match known {
            Some(known) if known.version == version => Ok(Knowledge { defaults, ..known.clone() }),
            _ => Ok(Knowledge { defaults, version, ..self.judge() }),
        }
    }
}

/// What a body may do to its session, `nextval` and `setval` aside.
fn in_doubt(facts: &BodyFacts) -> bool {
    facts.settings
        || facts.local
        || facts.unknown_names
        || facts.temporary
        || facts.locks
        || facts.channels
        || facts.cursors
        || facts.prepared
        || facts.load
        || facts.sequence_reads
        || facts.seed
        || facts.definition
        || facts.foreign
        || facts.opaque
}

fn oid(digits: &[u8]) -> Result<u32, ReadError> {
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).ok_or(ReadError::Row)
}

fn hash(digits: &[u8]) -> Result<u64, ReadError> {
    let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<i64>().ok());
    number.map(|number| u64::from_ne_bytes(number.to_ne_bytes())).ok_or(ReadError::Row)
}

/// The text of which these are the hexadecimal digits. What is not UTF-8 in it is replaced; only ASCII matters to a body.
fn text(digits: &[u8]) -> Result<String, ReadError> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    let bytes = digits.chunks(2).map(byte).collect::<Option<Vec<u8>>>().ok_or(ReadError::Row)?;
    Ok(match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    })
}
