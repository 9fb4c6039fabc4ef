//! What a statement gave: times, counts, its end or its error; and rows as text where they are wanted.

use std::time::Duration;

use pgusher_wire::backend::Message;

use crate::error::{Error, Result, ServerError};

/// The result of one round trip up to ReadyForQuery. Times count from right before the send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Until the first bytes came.
    pub first_byte: Duration,
    /// Until the last row came, if there were rows.
    pub last_row: Option<Duration>,
    /// Until ReadyForQuery came.
    pub ready: Duration,
    /// Rows (or lines of COPY TO).
    pub rows: u64,
    /// Bytes of them on the wire, without message headers.
    pub row_bytes: u64,
    /// The last command tag, as in `SELECT 1`.
    pub tag: Option<String>,
    /// The first error that the server reported.
    pub error: Option<ServerError>,
}

impl Reply {
    pub(crate) fn starting() -> Self {
        Reply {
            first_byte: Duration::ZERO,
            last_row: None,
            ready: Duration::ZERO,
            rows: 0,
            row_bytes: 0,
            tag: None,
            error: None,
        }
    }

    pub(crate) fn set_tag(&mut self, tag: &[u8]) {
        self.tag = Some(String::from_utf8_lossy(tag).into_owned());
    }

    /// An error of the server as `Err`.
    pub fn into_result(mut self) -> Result<Reply> {
        match self.error.take() {
            Some(error) => Err(Error::from_server(error)),
            None => Ok(self),
        }
    }
}

/// Rows as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    rows: Vec<Vec<Option<String>>>,
}

impl Rows {
    pub(crate) fn take(&mut self, message: &Message<'_>) {
        if let Message::DataRow(row) = message {
            let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
            self.rows.push(row.columns().map(|value| value.map(text)).collect());
        }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// A value; `None` also for NULL and outside the result.
    pub fn get(&self, row: usize, column: usize) -> Option<&str> {
        self.rows.get(row)?.get(column)?.as_deref()
    }

    /// All rows.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[Option<String>]> {
        self.rows.iter().map(Vec::as_slice)
    }
}
