//! The one connection for looking: it asks, keeps what could not be asked, and goes on.
//!
//! It changes nothing (its transactions are read-only), waits for no lock and for no long statement, and is left out of
//! what it counts. Behind a foreign connection manager the limits are set anew in each transaction, since a setting of
//! the session might stay with a server connection that somebody else gets.

use std::time::Duration;

use pgusher_client::{Connection, Error, Rows};

use super::model::NotExamined;

/// The name of all sessions of an examination.
pub(super) const APPLICATION: &str = "pgusher doctor";

/// Longest run of one of the questions.
const STATEMENT_LIMIT: &str = "10s";
/// Longest wait for a lock. All locks taken are on catalogs and weak.
const LOCK_LIMIT: &str = "1s";

/// What allows an ordinary role to see what others do and all settings.
pub(super) const MONITOR: &str = "GRANT pg_monitor TO the role";

/// Asks the server.
pub(super) struct Look {
    connection: Connection,
    role: String,
    each_transaction: bool,
    not_examined: Vec<NotExamined>,
    examined: Vec<String>,
    lost: Option<String>,
}

impl Look {
    /// Sets the limits. With `foreign`, whoever answers may give the next transaction to another server connection.
    pub(super) fn new(mut connection: Connection, role: &str, foreign: bool) -> Result<Self, Error> {
        if !foreign {
            connection.simple_query(&limits("SET"))?;
        }
        Ok(Self {
            connection,
            role: format!("\"{}\"", role.replace('"', "\"\"")),
            each_transaction: foreign,
            not_examined: Vec::new(),
            examined: Vec::new(),
            lost: None,
        })
    }

    /// Runs a question that begins with `select`. If that fails, `what` is noted as not examined; `remedy` says what
    /// would allow it where a permission is missing.
    pub(super) fn ask(&mut self, what: &str, sql: &str, values: &[Option<&str>], remedy: &str) -> Option<Answer> {
        match self.try_ask(sql, values) {
            Ok(answer) => Some(answer),
            Err(Refusal::Lost) => {
                self.skip(what, LOST, "run it again when the server is back");
                None
            }
            Err(Refusal::Sql { sqlstate, message }) => {
                let (reason, remedy) = explain(&sqlstate, &message, remedy);
                self.skip(what, &reason, &remedy);
                None
            }
        }
    }

    /// The same without a note.
    pub(super) fn try_ask(&mut self, sql: &str, values: &[Option<&str>]) -> Result<Answer, Refusal> {
        if self.lost.is_some() {
            return Err(Refusal::Lost);
        }
        // So that statistics of statements can tell our questions from those of applications.
        let sql = sql.replacen("select", &format!("select /* {APPLICATION} */"), 1);
        let result = if self.each_transaction {
            self.in_transaction(&sql, values)
        } else {
            self.connection.query_rows(&sql, values)
        };
        match result {
            Ok(rows) => Ok(Answer(rows)),
            Err(error) if self.connection.is_usable() => {
                let sqlstate = error.sqlstate().unwrap_or_default().to_owned();
                let message = error.server().map_or_else(|| error.to_string(), |server| server.message.clone());
                Err(Refusal::Sql { sqlstate, message })
            }
            Err(error) => {
                self.lost = Some(error.to_string());
                Err(Refusal::Lost)
            }
        }
    }

    fn in_transaction(&mut self, sql: &str, values: &[Option<&str>]) -> Result<Rows, Error> {
        self.connection.simple_query(&format!("BEGIN READ ONLY; {}", limits("SET LOCAL")))?;
        let result = self.connection.query_rows(sql, values);
        if self.connection.is_usable() {
            self.connection.simple_query("ROLLBACK")?;
        }
        result
    }

    /// How long an empty statement takes: the network, and next to nothing of the server.
    pub(super) fn round_trip(&mut self) -> Option<Duration> {
        if self.lost.is_some() {
            return None;
        }
        match self.connection.simple_query("") {
            Ok(reply) => Some(reply.ready),
            Err(error) => {
                self.lost = Some(error.to_string());
                None
            }
        }
    }

    /// Notes that something was not examined. In `remedy`, "the role" becomes the name of ours.
    pub(super) fn skip(&mut self, what: &str, reason: &str, remedy: &str) {
        self.not_examined.push(NotExamined {
            what: what.to_owned(),
            reason: reason.to_owned(),
            remedy: remedy.replace("the role", &self.role),
        });
    }

    /// Notes that something was examined.
    pub(super) fn done(&mut self, what: &str) {
        self.examined.push(what.to_owned());
    }

    /// Why the connection is gone.
    pub(super) fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    /// The connection itself.
    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Says goodbye; what could not be examined, what was, and why it ended early.
    pub(super) fn finish(self) -> (Vec<NotExamined>, Vec<String>, Option<String>) {
        (self.not_examined, self.examined, self.lost)
    }
}

/// The reason of what was not asked after the connection broke.
pub(super) const LOST: &str = "the connection to the server was lost";

fn limits(set: &str) -> String {
    // jit: compiling our own questions would cost more than running them.
    let mut text = String::new();
    for (name, value) in [
        ("statement_timeout", STATEMENT_LIMIT),
        ("lock_timeout", LOCK_LIMIT),
        ("search_path", "pg_catalog"),
        ("jit", "off"),
    ] {
        text.push_str(&format!("{set} {name} = '{value}'; "));
    }
    if set == "SET" {
        text.push_str("SET default_transaction_read_only = on");
    }
    text
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The connection is gone.
    Lost,
    /// The server refused.
    Sql {
        /// Its code.
        sqlstate: String,
        /// Its words.
        message: String,
    },
}

/// The server's error as a reason, and what to do about it.
fn explain(sqlstate: &str, message: &str, remedy: &str) -> (String, String) {
    match sqlstate {
        "42501" => (message.to_owned(), remedy.to_owned()),
        "57014" => {
            (format!("the question took longer than {STATEMENT_LIMIT}"), "run it again at a quieter time".into())
        }
        "55P03" => (format!("a lock was not free within {LOCK_LIMIT}"), "run it again".into()),
        _ => (format!("the server answered: {message} ({sqlstate})"), String::new()),
    }
}

/// Rows with values read as what they are.
#[derive(Debug, Default)]
pub(super) struct Answer(Rows);

impl Answer {
    /// How many rows.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// A text; NULL is `None`.
    pub(super) fn text(&self, row: usize, column: usize) -> Option<String> {
        self.0.get(row, column).map(str::to_owned)
    }

    /// A number; NULL and what is none is `None`.
    pub(super) fn number(&self, row: usize, column: usize) -> Option<f64> {
        self.0.get(row, column)?.parse().ok()
    }

    /// A truth value; NULL is false.
    pub(super) fn is_true(&self, row: usize, column: usize) -> bool {
        self.0.get(row, column) == Some("t")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_permission_comes_with_what_would_allow_it() {
        let (reason, remedy) = explain("42501", "permission denied for function pg_stat_file", "GRANT x");
        assert_eq!((reason.as_str(), remedy.as_str()), ("permission denied for function pg_stat_file", "GRANT x"));
        let (reason, remedy) = explain("XX000", "broken", "GRANT x");
        assert_eq!((reason.as_str(), remedy.as_str()), ("the server answered: broken (XX000)", ""));
    }
}
