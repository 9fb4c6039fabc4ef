//! What can be wrong with a connection string. The messages name the place and the keyword, never the text that
//! could be (part of) a password.

use std::fmt;

/// A connection string, a service file or a setting in them that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConninfoError {
    message: String,
    position: Option<usize>,
    hint: Option<String>,
}

impl ConninfoError {
    /// An error without a place in a string.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        ConninfoError { message: message.into(), position: None, hint: None }
    }

    /// An error at byte `offset` (from 0) of the string that was parsed.
    pub(crate) fn at(offset: usize, message: impl Into<String>) -> Self {
        ConninfoError { message: message.into(), position: Some(offset + 1), hint: None }
    }

    /// Adds what to do about it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Where in the connection string, as a byte position that starts at 1.
    pub fn position(&self) -> Option<usize> {
        self.position
    }

    /// What is wrong, without the position.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for ConninfoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(position) = self.position {
            write!(f, " (at position {position} of the connection string)")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "; {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConninfoError {}

/// `name` in quotes if it looks like a keyword, otherwise nothing: a token that is no plain word may hold a password.
pub(crate) fn quoted_word(name: &str) -> String {
    let plain = !name.is_empty() && name.len() <= 40 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if plain { format!(" \"{name}\"") } else { String::new() }
}
