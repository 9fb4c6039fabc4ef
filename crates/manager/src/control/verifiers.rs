//! Reads what the server knows of a user's password, over a metadata connection of pgusher's own, so that clients can be asked
//! by SCRAM from their first login and no password is ever sent in clear text.
//!
//! This never decides whether a user is asked for something: that is what the server's own answer to a login says (`probe`).
//! It only says what a proof is to be checked against. When it cannot be read, clients are asked in clear text over loopback,
//! and the server judges.

use super::chooser;
use crate::config::AuthQuery;
use crate::shared::Shared;
use pgusher_auth::StoredSecret;
use pgusher_client::{Connection, Connector, Error, ErrorKind, Rows, Secret};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// After a failure that will not pass by itself, nothing is asked for so long.
const PAUSE: Duration = Duration::from_secs(60);
/// After another failure, for so long.
const SHORT_PAUSE: Duration = Duration::from_secs(2);
/// A connection that was not used for so long is closed.
const IDLE: Duration = Duration::from_secs(60);
/// A verifier is read in less, or not at all.
const LIMIT: Duration = Duration::from_secs(5);

/// What the server knows of a user's password.
#[derive(Debug)]
pub(super) enum Found {
    /// This.
    Secret(StoredSecret),
    /// The user does not exist, may not log in, has no password, or has one that is no longer valid.
    Nothing,
    /// It cannot be asked.
    Unreadable,
}

/// Asks for verifiers, with one connection.
pub(super) struct Verifiers {
    desk: Mutex<Desk>,
}

#[derive(Default)]
struct Desk {
    link: Option<Link>,
    not_before: Option<Instant>,
    complaint: String,
}

struct Link {
    connection: Connection,
    moves: u32,
    used: Instant,
}

impl Verifiers {
    pub(super) fn new() -> Self {
        Self { desk: Mutex::default() }
    }

    /// Looks a user up. Waits for another look-up that is under way.
    pub(super) fn look_up(&self, shared: &Shared, user: &str) -> Found {
        let Some(query) = &shared.config.auth_query else {
            return Found::Unreadable;
        };
        let mut desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
        if desk.not_before.is_some_and(|time| Instant::now() < time) {
            return Found::Unreadable;
        }
        match desk.ask(shared, query, user).and_then(|rows| found(&rows, user)) {
            Ok(found) => {
                desk.not_before = None;
                desk.complaint.clear();
                found
            }
            Err(problem) => {
                desk.not_before = Some(Instant::now() + if problem.lasts { PAUSE } else { SHORT_PAUSE });
                if desk.complaint != problem.text {
                    tracing::warn!(
                        "cannot read password verifiers from the server, so clients are asked for passwords in clear text: {}",
                        problem.text
                    );
                    desk.complaint = problem.text;
                }
                Found::Unreadable
            }
        }
    }

    /// Closes a connection that nobody has used for some time.
    pub(super) fn tidy(&self) {
        let mut desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
        if desk.link.as_ref().is_some_and(|link| link.used.elapsed() > IDLE) {
            desk.link = None;
        }
    }
}

/// Why nothing was found out.
struct Problem {
    text: String,
    /// It is not expected to pass by itself.
    lasts: bool,
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let lasts = match error.kind() {
            ErrorKind::Server => {
                error.sqlstate().is_some_and(|state| !state.starts_with("57") && !state.starts_with("53"))
            }
            ErrorKind::Authentication | ErrorKind::Config | ErrorKind::Usage | ErrorKind::Tls => true,
            _ => false,
        };
        Self { text: error.to_string(), lasts }
    }
}

impl Desk {
    fn ask(&mut self, shared: &Shared, query: &AuthQuery, user: &str) -> Result<Rows, Problem> {
        let moves = shared.upstream.moves();
        if let Some(link) = self.link.take_if(|link| link.moves == moves) {
            let mut link = link;
            // A connection that was lost meanwhile says nothing about the server.
            if let Ok(rows) = link.connection.query_rows(&query.sql, &[Some(user)]) {
                link.used = Instant::now();
                self.link = Some(link);
                return Ok(rows);
            }
        }
        self.link = None;
        let mut link = Link { connection: connect(shared, query)?, moves, used: Instant::now() };
        let rows = link.connection.query_rows(&query.sql, &[Some(user)])?;
        self.link = Some(link);
        Ok(rows)
    }
}

fn connect(shared: &Shared, query: &AuthQuery) -> Result<Connection, Error> {
    let server = &shared.config.server;
    let limit = LIMIT.min(shared.config.timeouts.server_connect());
    let mut conninfo = chooser::at(&server.conninfo, &shared.upstream.address(), limit);
    if query.user != server.user() {
        conninfo.password = query.password.as_ref().map(|p| Secret::new(String::from_utf8_lossy(p.as_bytes())));
        conninfo.scram_keys = None;
    }
    conninfo.user.clone_from(&query.user);
    conninfo.dbname.clone_from(&query.database);
    // No name in the query may be taken for one that somebody has put in front of it.
    conninfo.set_parameter("search_path", "pg_catalog");
    conninfo.set_parameter("application_name", "pgusher");
    let connector = Connector::new(&conninfo)?.timeout(Some(limit)).remember_scram_keys(true);
    Ok(connector.connect()?.0)
}

/// Reads the answer: the secret in the only column, or in the second one with the user's name in the first.
fn found(rows: &Rows, user: &str) -> Result<Found, Problem> {
    let wrong = |text: &str| Problem { text: format!("auth_query {text}"), lasts: true };
    let Some(row) = rows.iter().next() else {
        return Ok(Found::Nothing);
    };
    if rows.len() > 1 {
        return Err(wrong("returns more than one row for a user"));
    }
    let secret = match row {
        [secret] => secret,
        // A function that finds nobody may return a row of nulls.
        [None, None, ..] => return Ok(Found::Nothing),
        [Some(name), secret, ..] if name == user => secret,
        [_, _, ..] => return Err(wrong("returns another user than the one it is asked for")),
        [] => return Err(wrong("returns no column")),
    };
    match secret.as_deref() {
        None | Some("") => Ok(Found::Nothing),
        Some(text) => Ok(Found::Secret(StoredSecret::parse(text.as_bytes()))),
    }
}
