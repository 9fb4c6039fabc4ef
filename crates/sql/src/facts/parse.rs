//! Asks PostgreSQL's own parser, within bounds.
//!
//! The parser is C code that recurses over what it reads. It checks its stack itself, and this module keeps everything from it
//! that could come near: texts that are too long, and texts whose tree may be too deep by the bound that the one pass
//! ([`Outline::depth`]) found. Such texts have no facts; who asks treats them as it treats any statement of which it knows nothing.

use std::borrow::Cow;
use std::fmt;

use pg_query::ParserOptions;

use super::{Facts, grammar, statement};
use crate::outline::Outline;

/// What is given to the parser at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a text.
    pub bytes: usize,
    /// Depth of a tree, as [`Outline::depth`] bounds it.
    pub depth: u32,
}

impl Default for Limits {
    /// 64 KiB, for parsing and decoding take up to a microsecond for each byte; and a depth of 250, for decoding and walking take
    /// up to 4 KiB of stack for each step of depth: about half of the 2 MiB that a thread has.
    fn default() -> Self {
        Self { bytes: 64 << 10, depth: 250 }
    }
}

/// Why there are no facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// The text is longer than the limit.
    TooLong,
    /// Its tree may be deeper than the limit.
    TooDeep,
    /// PostgreSQL 18's grammar refuses it, with this message. The server may be of another opinion (an older or newer one, or a
    /// relative of PostgreSQL with words of its own).
    Refused(Box<str>),
    /// The parser and the one pass count statements differently. Nothing is said then.
    Disagreement,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => f.write_str("the text is longer than is parsed here"),
            Self::TooDeep => f.write_str("the text nests deeper than is parsed here"),
            Self::Refused(message) => write!(f, "PostgreSQL's grammar refuses the text: {message}"),
            Self::Disagreement => f.write_str("the statements of the text could not be told apart"),
        }
    }
}

impl std::error::Error for Unknown {}

impl Facts {
    /// The facts of a text. `outline` has just read it, with the same `standard_strings`.
    ///
    /// Bytes that are not UTF-8 are read as Latin-1, so that quotes and names end where they end; such names come out as that.
    ///
    /// To be called on threads that live long and have a stack of 2 MiB or more: the C library keeps memory for each thread that ever
    /// called it, and a thread-specific key of which a process has some 1,000.
    ///
    /// # Errors
    /// When there are none to be had: see [`Unknown`].
    pub fn of(text: &[u8], outline: &Outline, standard_strings: bool, limits: Limits) -> Result<Self, Unknown> {
        if text.len() > limits.bytes {
            return Err(Unknown::TooLong);
        }
        if outline.depth() > limits.depth {
            return Err(Unknown::TooDeep);
        }
        if outline.parts().is_empty() {
            return Ok(Self { statements: Box::default() });
        }
        let readable = readable(text);
        // Whatever is wrong with a string's escapes is the server's to say: no warning is to appear in the log of this program.
        let mut options = ParserOptions::DISABLE_ESCAPE_STRING_WARNING;
        if !standard_strings {
            options |= ParserOptions::DISABLE_STANDARD_CONFORMING_STRINGS;
        }
        let tree = grammar::parse(&readable, options).map_err(Unknown::Refused)?;
        let nodes = &tree.stmts;
        if nodes.len() != outline.parts().len() {
            return Err(Unknown::Disagreement);
        }
        let statements = nodes
            .iter()
            .zip(outline.parts())
            .filter_map(|(raw, part)| {
                let own = text.get(part.start..part.end).unwrap_or_default();
                Some(statement::statement(raw.stmt.as_deref()?, own, standard_strings))
            })
            .collect();
        Ok(Self { statements })
    }
}

/// The text as the parser takes it.
fn readable(text: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(text) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(text.iter().map(|&byte| char::from(byte)).collect()),
    }
}
