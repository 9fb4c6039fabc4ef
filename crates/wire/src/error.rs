//! ErrorResponse and NoticeResponse: a view of the fields of a received one, and a builder for our own.

use crate::{ParseError, cursor::Cursor, write};
use std::borrow::Cow;

/// How bad an error or notice is; the field `S` and, untranslated, `V`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// The statement failed, the session goes on.
    Error,
    /// The session ends.
    Fatal,
    /// All sessions end.
    Panic,
    /// A warning.
    Warning,
    /// A notice.
    Notice,
}

impl Severity {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "ERROR",
            Self::Fatal => "FATAL",
            Self::Panic => "PANIC",
            Self::Warning => "WARNING",
            Self::Notice => "NOTICE",
        }
    }
}

/// The fields of a received ErrorResponse or NoticeResponse.
///
/// Any field may be missing, the SQLSTATE too: a hostile or broken server may leave it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorFields<'a> {
    body: &'a [u8],
}

impl<'a> ErrorFields<'a> {
    /// A view of the body of an `E` or `N` message.
    pub fn new(body: &'a [u8]) -> Self {
        Self { body }
    }

    /// The fields in order: type byte and value. Ends at the terminator or at the first malformed field.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        let mut cursor = Cursor::new(b'E', self.body);
        std::iter::from_fn(move || match cursor.u8() {
            Ok(0) | Err(_) => None,
            Ok(kind) => cursor.cstr().ok().map(|value| (kind, value)),
        })
    }

    /// The value of the field of type `kind` (chapter "Error and Notice Message Fields").
    pub fn get(&self, kind: u8) -> Option<&'a [u8]> {
        self.iter().find(|(k, _)| *k == kind).map(|(_, v)| v)
    }

    /// As [`get`](Self::get), as text; bytes that are no UTF-8 are replaced.
    pub fn text(&self, kind: u8) -> Option<String> {
        self.get(kind).map(|v| String::from_utf8_lossy(v).into_owned())
    }

    /// The SQLSTATE, if there is one of five ASCII characters.
    pub fn sqlstate(&self) -> Option<&'a str> {
        self.get(b'C').and_then(|v| std::str::from_utf8(v).ok()).filter(|s| s.len() == 5 && s.is_ascii())
    }

    /// The primary message.
    pub fn message(&self) -> String {
        self.text(b'M').unwrap_or_default()
    }

    /// The severity that is never translated (`V`), or the translated one from servers before 9.6.
    pub fn severity(&self) -> Option<Severity> {
        match self.get(b'V').or_else(|| self.get(b'S'))? {
            b"ERROR" => Some(Severity::Error),
            b"FATAL" => Some(Severity::Fatal),
            b"PANIC" => Some(Severity::Panic),
            b"WARNING" => Some(Severity::Warning),
            b"NOTICE" | b"INFO" | b"LOG" | b"DEBUG" => Some(Severity::Notice),
            _ => None,
        }
    }

    /// Is the message well formed: fields that end with a terminator, and nothing behind it?
    pub fn validate(&self) -> Result<(), ParseError> {
        let mut cursor = Cursor::new(b'E', self.body);
        while cursor.u8()? != 0 {
            cursor.cstr()?;
        }
        cursor.finish()
    }
}

/// An error or notice of our own: what happened, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// How bad it is.
    pub severity: Severity,
    /// Five characters, see [`crate::sqlstate`].
    pub sqlstate: Cow<'static, str>,
    /// What happened, one sentence without a full stop.
    pub message: String,
    /// More about it.
    pub detail: Option<String>,
    /// What to do.
    pub hint: Option<String>,
    /// Further fields of a server's report that is passed on: file, line, routine and the like.
    pub further: Box<[(u8, String)]>,
}

impl Report {
    /// An error that ends the session.
    pub fn fatal(sqlstate: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Fatal,
            sqlstate: sqlstate.into(),
            message: message.into(),
            detail: None,
            hint: None,
            further: Box::default(),
        }
    }

    /// A server's error as one that ends the session.
    pub fn fatal_of(fields: &ErrorFields<'_>, otherwise: &'static str) -> Self {
        let state = fields.sqlstate().map_or(Cow::Borrowed(otherwise), |state| Cow::Owned(state.to_owned()));
        let mut report = Self::fatal(state, fields.message());
        report.detail = fields.text(b'D');
        report.hint = fields.text(b'H');
        let rest = fields.iter().filter(|(kind, _)| !b"SVCMDH".contains(kind));
        report.further = rest.map(|(kind, value)| (kind, String::from_utf8_lossy(value).into_owned())).collect();
        report
    }

    /// An error that ends the statement.
    pub fn error(sqlstate: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, ..Self::fatal(sqlstate, message) }
    }

    /// Adds the detail field.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds the hint field.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Appends the message: ErrorResponse, or NoticeResponse for warnings and notices.
    pub fn write(&self, out: &mut Vec<u8>) {
        let tag = match self.severity {
            Severity::Error | Severity::Fatal | Severity::Panic => b'E',
            Severity::Warning | Severity::Notice => b'N',
        };
        write::message(out, tag, |out| {
            let mut field = |kind: u8, value: &str| {
                out.push(kind);
                write::cstr(out, value.as_bytes());
            };
            field(b'S', self.severity.as_str());
            field(b'V', self.severity.as_str());
            field(b'C', &self.sqlstate);
            field(b'M', &self.message);
            if let Some(detail) = &self.detail {
                field(b'D', detail);
            }
            if let Some(hint) = &self.hint {
                field(b'H', hint);
            }
            for (kind, value) in &*self.further {
                field(*kind, value);
            }
            out.push(0);
        });
    }

    /// The message alone in a buffer.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.message.len());
        self.write(&mut out);
        out
    }
}
