//! A connection beside the measured ones, to ask the server questions and to leave marks in its log. It is opened again
//! when the server has closed it, so that a restart in mid-run costs only what was under way.

use pgusher_client::{Connection, Connector, Error, ErrorKind, Rows};

/// Asks the server.
pub struct Control {
    connector: Connector,
    connection: Option<Connection>,
}

impl Control {
    /// Connects.
    ///
    /// # Errors
    /// As for any connection.
    pub fn connect(connector: Connector) -> Result<Self, Error> {
        let mut control = Control { connector, connection: None };
        control.connection()?;
        Ok(control)
    }

    /// The process of its backend, while it has one.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.connection.as_ref().map(Connection::backend_pid)
    }

    /// The rows of a statement. A connection that was lost since the last one is opened again first.
    ///
    /// # Errors
    /// An SQL error, or a connection that cannot be had.
    pub fn rows(&mut self, sql: &str, values: &[&str]) -> Result<Rows, Error> {
        let values: Vec<Option<&str>> = values.iter().copied().map(Some).collect();
        match self.connection()?.query_rows(sql, &values) {
            // It was closed while nobody looked; these statements only read or can be said twice.
            Err(_) if self.connection.as_ref().is_none_or(|connection| !connection.is_usable()) => {
                self.connection()?.query_rows(sql, &values)
            }
            result => result,
        }
    }

    /// The first value of the first row; `None` for NULL and for no row.
    ///
    /// # Errors
    /// As [`Control::rows`].
    pub fn value(&mut self, sql: &str) -> Result<Option<String>, Error> {
        self.value_of(sql, &[])
    }

    /// The same with parameters.
    ///
    /// # Errors
    /// As [`Control::rows`].
    pub fn value_of(&mut self, sql: &str, values: &[&str]) -> Result<Option<String>, Error> {
        Ok(self.rows(sql, values)?.get(0, 0).map(str::to_owned))
    }

    fn connection(&mut self) -> Result<&mut Connection, Error> {
        let usable = self.connection.take().filter(Connection::is_usable);
        let connection = match usable {
            Some(connection) => connection,
            None => self.connector.connect()?.0,
        };
        Ok(self.connection.insert(connection))
    }
}

/// Why a question was not answered, in words for a note.
#[must_use]
pub fn in_words(error: &Error) -> String {
    match error.kind() {
        ErrorKind::Server => error.server().map_or_else(|| error.to_string(), |server| server.message.clone()),
        _ => error.to_string(),
    }
}
