//! What happened, one record per connection, statement run and disconnection. Times are microseconds; a time that is
//! absent was not part of it. These records are the lines of JSONL and the rows of CSV;
//! a report reads them back from JSON.

use std::borrow::Cow;

use pgusher_client::{Attempt, Attempts, Connection, Error, Phases, ServerError};
use serde::{Deserialize, Serialize};

use super::micros;

/// One thing that happened.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Event {
    /// A connection was established, or was not.
    Connect(ConnectEvent),
    /// A statement was prepared or run.
    Statement(StatementEvent),
    /// A connection ended.
    Disconnect(DisconnectEvent),
}

impl Event {
    /// Why it failed, if it did.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Event::Connect(event) => event.error.as_ref(),
            Event::Statement(event) => event.error.as_ref(),
            Event::Disconnect(event) => event.error.as_ref(),
        }
    }
}

/// Why something failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// `server`, `io`, `timeout`, ... (see `pgusher_client::ErrorKind`).
    pub error_kind: String,
    /// In which phase of connecting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The server's SQLSTATE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sqlstate: Option<String>,
    /// Character of the statement, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u32>,
    /// Number of the system's error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
    /// For people.
    pub message: String,
}

impl Failure {
    /// From an error of the client.
    pub fn of(error: &Error) -> Self {
        Failure {
            error_kind: error.kind().name().to_owned(),
            phase: error.phase().map(|phase| phase.name().to_owned()),
            sqlstate: error.sqlstate().map(str::to_owned),
            position: error.server().and_then(|server| server.position),
            errno: error.errno(),
            message: error.to_string(),
        }
    }

    /// From an error of a statement.
    pub fn of_server(error: &ServerError) -> Self {
        Failure {
            error_kind: "server".to_owned(),
            phase: None,
            sqlstate: Some(error.sqlstate.clone()),
            position: error.position,
            errno: None,
            message: error.to_string(),
        }
    }
}

/// The phases of one attempt to connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the phases are described in pgusher_client::Phase")]
pub struct PhaseTimes {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolve_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_fork_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authenticate_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_crypto_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_check_us: Option<f64>,
}

impl From<Phases> for PhaseTimes {
    fn from(phases: Phases) -> Self {
        PhaseTimes {
            resolve_us: phases.resolve.map(micros),
            connect_us: phases.connect.map(micros),
            queue_fork_us: phases.queue_fork.map(micros),
            tls_us: phases.tls.map(micros),
            startup_us: phases.startup.map(micros),
            authenticate_us: phases.authenticate.map(micros),
            client_crypto_us: phases.client_crypto.map(micros),
            ready_us: phases.ready.map(micros),
            session_check_us: phases.session_check.map(micros),
        }
    }
}

/// One attempt to connect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptRecord {
    /// As in `localhost:5432 (127.0.0.1)`.
    pub target: String,
    /// `plain` or `tls`.
    pub encryption: Cow<'static, str>,
    /// Start of the attempt, from the start of the connection.
    pub started_us: f64,
    /// All of it.
    pub total_us: f64,
    /// Its phases.
    pub phases: PhaseTimes,
    /// Why it failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl From<&Attempt> for AttemptRecord {
    fn from(attempt: &Attempt) -> Self {
        AttemptRecord {
            target: attempt.target.clone(),
            encryption: attempt.encryption.name().into(),
            started_us: micros(attempt.started),
            total_us: micros(attempt.phases.total),
            phases: attempt.phases.into(),
            error: attempt.error.as_ref().map(|error| error.text.clone()),
        }
    }
}

/// A connection was established, or was not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConnectEvent {
    /// Number of the connection, from 1.
    pub connection: u32,
    /// All attempts together.
    pub total_us: f64,
    /// Every attempt.
    pub attempts: Vec<AttemptRecord>,
    /// Process id of the backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_pid: Option<u32>,
    /// As the server reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_version: Option<String>,
    /// `trust`, `scram-sha-256`, ...
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_method: Option<Cow<'static, str>>,
    /// For example `TLSv1.3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_version: Option<String>,
    /// For example `TLS13_AES_256_GCM_SHA384`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_cipher: Option<String>,
    /// Why no attempt succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}

impl ConnectEvent {
    pub(super) fn established(number: u32, attempts: &Attempts, connection: &Connection) -> Self {
        let tls = connection.tls();
        ConnectEvent {
            connection: number,
            total_us: micros(attempts.total),
            attempts: attempts.iter().map(AttemptRecord::from).collect(),
            backend_pid: Some(connection.backend_pid()),
            server_version: connection.parameter("server_version").map(str::to_owned),
            auth_method: Some(connection.auth_method().into()),
            tls_version: tls.as_ref().map(|tls| tls.version.clone()),
            tls_cipher: tls.map(|tls| tls.cipher),
            error: None,
        }
    }

    pub(super) fn failed(number: u32, attempts: &Attempts, error: &Error) -> Self {
        ConnectEvent {
            connection: number,
            total_us: micros(attempts.total),
            attempts: attempts.iter().map(AttemptRecord::from).collect(),
            backend_pid: None,
            server_version: None,
            auth_method: None,
            tls_version: None,
            tls_cipher: None,
            error: Some(Failure::of(error)),
        }
    }
}

/// Whether a statement was only prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Parse + Describe of a named statement, once per connection.
    Prepare,
    /// A run.
    Run,
}

/// A statement was prepared or run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StatementEvent {
    /// Number of the connection, from 1.
    pub connection: u32,
    /// Number of the statement, from 1.
    pub query: u32,
    /// Prepared or run.
    pub step: Step,
    /// Number of the run on this connection, from 1.
    pub run: u32,
    /// From the first send to the last ReadyForQuery.
    pub total_us: Option<f64>,
    /// Parse + Describe + Sync to ReadyForQuery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parse_describe_sync_us: Option<f64>,
    /// Bind + Execute + Sync to ReadyForQuery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bind_execute_sync_us: Option<f64>,
    /// First bytes of the answer to the last send.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_byte_us: Option<f64>,
    /// Last row of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_row_us: Option<f64>,
    /// Rows.
    pub rows: u64,
    /// Bytes of the rows.
    pub row_bytes: u64,
    /// Command tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Why it failed. Its times are told but belong to no statistics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}

impl StatementEvent {
    pub(super) fn new(connection: u32, query: u32, step: Step, run: u32) -> Self {
        StatementEvent {
            connection,
            query,
            step,
            run,
            total_us: None,
            parse_describe_sync_us: None,
            bind_execute_sync_us: None,
            first_byte_us: None,
            last_row_us: None,
            rows: 0,
            row_bytes: 0,
            tag: None,
            error: None,
        }
    }
}

/// A connection ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DisconnectEvent {
    /// Number of the connection, from 1.
    pub connection: u32,
    /// Terminate to the end of the stream: the backend has exited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disconnect_us: Option<f64>,
    /// Why that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}

impl DisconnectEvent {
    pub(super) fn new(connection: u32, result: Result<std::time::Duration, Error>) -> Self {
        match result {
            Ok(time) => DisconnectEvent { connection, disconnect_us: Some(micros(time)), error: None },
            Err(error) => DisconnectEvent { connection, disconnect_us: None, error: Some(Failure::of(&error)) },
        }
    }
}
