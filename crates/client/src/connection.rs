//! A connection that is ready for statements. Each statement returns its timings; an SQL error is part of the result,
//! and `Err` means that the connection is not usable any more.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pgusher_wire::backend::{self, Message};
use pgusher_wire::frontend::{self, Target};
use pgusher_wire::{ParseError, TxStatus};

use crate::cancel::CancelToken;
use crate::channel::{Channel, TlsInfo};
use crate::config::TargetSessionAttrs;
use crate::error::{Error, ErrorKind, Result, ServerError};
use crate::login::Session;
use crate::phase::Phase;
use crate::reply::{Reply, Rows};
use crate::socket::Destination;

/// An established connection. Dropping it says goodbye without waiting; [`Connection::terminate`] waits.
pub struct Connection {
    channel: Channel,
    session: Session,
    peer: Destination,
    out: Vec<u8>,
    usable: bool,
}

impl Connection {
    pub(crate) fn new(channel: Channel, session: Session, peer: Destination) -> Self {
        Connection { channel, session, peer, out: Vec::with_capacity(1024), usable: true }
    }

    /// The process id of the backend.
    pub fn backend_pid(&self) -> u32 {
        self.session.pid
    }

    /// The latest value that the server reported for a setting (ParameterStatus).
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.session.parameters.get(name).map(String::as_str)
    }

    /// All reported settings.
    pub fn parameters(&self) -> &BTreeMap<String, String> {
        &self.session.parameters
    }

    /// State of the transaction at the last ReadyForQuery.
    pub fn transaction_status(&self) -> TxStatus {
        self.session.status
    }

    /// TLS version and cipher, if encrypted.
    pub fn tls(&self) -> Option<TlsInfo> {
        self.channel.tls_info()
    }

    /// How the server authenticated us: `trust`, `password`, `md5`, `scram-sha-256` or `scram-sha-256-plus`.
    /// `trust` stands for every method that asks the client for nothing, such as `peer` and `cert`.
    pub fn auth_method(&self) -> &'static str {
        self.session.auth
    }

    /// The server, as in `localhost:5432 (127.0.0.1)`.
    pub fn target(&self) -> &str {
        &self.peer.shown
    }

    /// Where it leads, to make more connections to the same address.
    pub fn destination(&self) -> &Destination {
        &self.peer
    }

    /// Whether statements can still be sent.
    pub fn is_usable(&self) -> bool {
        self.usable
    }

    /// The longest wait for any single answer; `None` for ever.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> Result<()> {
        self.channel.set_timeout(timeout)
    }

    /// A point in time after which every wait ends with an error, 50 ms late at most.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) -> Result<()> {
        self.channel.set_deadline(deadline)
    }

    /// What can cancel the statement under way, from another thread.
    pub fn cancel_token(&self) -> CancelToken {
        CancelToken::new(self.peer.address.clone(), self.session.pid, &self.session.key)
    }

    /// Simple query protocol. With several statements, rows are added up and the last tag is told.
    pub fn simple_query(&mut self, sql: &str) -> Result<Reply> {
        check_text(sql)?;
        self.out.clear();
        frontend::write_query(&mut self.out, sql.as_bytes());
        self.run(&mut |_| {})
    }

    /// Parse + Describe (statement) + Sync. The empty name is the unnamed statement.
    pub fn parse_describe_sync(&mut self, name: &str, sql: &str) -> Result<Reply> {
        check_text(sql)?;
        check_text(name)?;
        self.out.clear();
        frontend::write_parse(&mut self.out, name.as_bytes(), sql.as_bytes(), &[]);
        frontend::write_describe(&mut self.out, Target::Statement, name.as_bytes());
        self.out.extend_from_slice(&frontend::SYNC_BYTES);
        self.run(&mut |_| {})
    }

    /// Bind + Execute + Sync of a statement that was parsed, until ReadyForQuery. Values are text.
    pub fn bind_execute_sync(&mut self, name: &str, values: &[Option<&str>]) -> Result<Reply> {
        check_text(name)?;
        self.out.clear();
        write_bind(&mut self.out, name, values)?;
        frontend::write_execute(&mut self.out, b"", 0);
        self.out.extend_from_slice(&frontend::SYNC_BYTES);
        self.run(&mut |_| {})
    }

    /// Parse + Bind + Describe + Execute + Sync in one go, as libpq and JDBC send it.
    pub fn pipelined(&mut self, sql: &str, values: &[Option<&str>]) -> Result<Reply> {
        self.write_pipelined(sql, values)?;
        self.run(&mut |_| {})
    }

    /// Parse + Bind + Sync in one go, without Execute: the server analyses and plans the statement, and prepares to run
    /// it if it is a plain SELECT, but no row is fetched and nothing is changed.
    pub fn parse_bind_sync(&mut self, sql: &str, values: &[Option<&str>]) -> Result<Reply> {
        check_text(sql)?;
        self.out.clear();
        frontend::write_parse(&mut self.out, b"", sql.as_bytes(), &[]);
        write_bind(&mut self.out, "", values)?;
        self.out.extend_from_slice(&frontend::SYNC_BYTES);
        self.run(&mut |_| {})
    }

    /// Closes a named statement.
    pub fn close_statement(&mut self, name: &str) -> Result<Reply> {
        check_text(name)?;
        self.out.clear();
        frontend::write_close(&mut self.out, Target::Statement, name.as_bytes());
        self.out.extend_from_slice(&frontend::SYNC_BYTES);
        self.run(&mut |_| {})
    }

    /// Runs one statement and returns its rows as text. An SQL error is an `Err` here; the connection stays usable.
    /// For metadata: not meant for large results.
    pub fn query_rows(&mut self, sql: &str, values: &[Option<&str>]) -> Result<Rows> {
        self.write_pipelined(sql, values)?;
        let mut rows = Rows::default();
        let reply = self.run(&mut |message| rows.take(message))?;
        reply.into_result().map_err(|error| self.annotate(error))?;
        Ok(rows)
    }

    /// Says goodbye and waits until the backend has ended. Returns how long that took, from the goodbye to the end
    /// of the stream.
    pub fn terminate(mut self) -> Result<Duration> {
        self.usable = false;
        let sent = Instant::now();
        let ended = self.channel.send(&frontend::TERMINATE_BYTES).and_then(|()| self.channel.wait_end());
        ended.map_err(|error| error.in_phase(Phase::Disconnect).at_target(&self.peer.shown))?;
        Ok(self.channel.arrived().saturating_duration_since(sent))
    }

    fn write_pipelined(&mut self, sql: &str, values: &[Option<&str>]) -> Result<()> {
        check_text(sql)?;
        self.out.clear();
        frontend::write_parse(&mut self.out, b"", sql.as_bytes(), &[]);
        write_bind(&mut self.out, "", values)?;
        frontend::write_describe(&mut self.out, Target::Portal, b"");
        frontend::write_execute(&mut self.out, b"", 0);
        self.out.extend_from_slice(&frontend::SYNC_BYTES);
        Ok(())
    }

    fn annotate(&self, error: Error) -> Error {
        error.in_phase(Phase::Statement).at_target(&self.peer.shown)
    }

    /// Sends what is in `out` and reads to ReadyForQuery.
    fn run(&mut self, each: &mut dyn FnMut(&Message<'_>)) -> Result<Reply> {
        if !self.usable {
            return Err(Error::new(ErrorKind::Usage, "the connection has failed earlier").at_target(&self.peer.shown));
        }
        let extended = self.out.ends_with(&frontend::SYNC_BYTES);
        let mut fatal = None;
        let result = self.exchange(extended, each, &mut fatal);
        result.map_err(|error| {
            self.usable = false;
            // "The server closed the connection" helps nobody when the server has just said why.
            let error = match (error.kind(), fatal) {
                (ErrorKind::Closed, Some(reason)) => Error::from_server(reason),
                _ => error,
            };
            self.annotate(error)
        })
    }

    fn exchange(
        &mut self,
        extended: bool,
        each: &mut dyn FnMut(&Message<'_>),
        fatal: &mut Option<ServerError>,
    ) -> Result<Reply> {
        let reads = self.channel.reads();
        let sent = Instant::now();
        self.channel.send(&self.out)?;
        let since = |at: Instant| at.saturating_duration_since(sent);
        let mut reply = Reply::starting();
        let mut answer: &[u8] = &[];
        loop {
            let at = self.channel.wait()?;
            let arrived = self.channel.arrived();
            if reply.first_byte.is_zero() && self.channel.reads() > reads {
                reply.first_byte = since(arrived);
            }
            let frame = self.channel.frame(at);
            if frame.tag == backend::DATA_ROW || frame.tag == backend::COPY_DATA {
                reply.rows += 1;
                reply.row_bytes += frame.body.len() as u64;
                reply.last_row = Some(since(arrived));
            }
            let message = Message::parse(frame).map_err(broken)?;
            match message {
                Message::ReadyForQuery(status) => {
                    self.session.status = status;
                    reply.ready = since(arrived);
                    return Ok(reply);
                }
                Message::Error(fields) => {
                    let error = ServerError::from_fields(&fields);
                    if error.is_fatal() {
                        *fatal = Some(error.clone());
                    }
                    reply.error.get_or_insert(error);
                }
                Message::CommandComplete { tag } => reply.set_tag(tag),
                Message::ParameterStatus { name, value } => {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    self.session.parameters.insert(text(name), text(value));
                }
                // The server ignores the Sync that is already on its way while it copies; hence another one.
                Message::CopyIn { .. } => answer = if extended { &COPY_FAIL_SYNC } else { &COPY_FAIL },
                Message::CopyBoth { .. } => {
                    return Err(Error::new(ErrorKind::Usage, "replication streams are not supported"));
                }
                _ => {}
            }
            each(&message);
            if !answer.is_empty() {
                self.channel.send(answer)?;
                answer = &[];
            }
        }
    }

    /// Checks target_session_attrs. Servers from 14 on have said it already; older ones are asked.
    pub(crate) fn check_target(
        &mut self,
        wanted: TargetSessionAttrs,
        took: &mut Option<Duration>,
        started: Instant,
    ) -> Result<()> {
        let standby = match self.parameter("in_hot_standby") {
            Some(value) => value == "on",
            None => self.ask("SELECT pg_catalog.pg_is_in_recovery()", took, started)? == "t",
        };
        let acceptable = match wanted {
            TargetSessionAttrs::Any | TargetSessionAttrs::PreferStandby => true,
            TargetSessionAttrs::Primary => !standby,
            TargetSessionAttrs::Standby => standby,
            TargetSessionAttrs::ReadWrite | TargetSessionAttrs::ReadOnly => {
                let read_only = standby
                    || match self.parameter("default_transaction_read_only") {
                        Some(value) => value == "on",
                        None => self.ask("SHOW transaction_read_only", took, started)? == "on",
                    };
                read_only == (wanted == TargetSessionAttrs::ReadOnly)
            }
        };
        if acceptable {
            return Ok(());
        }
        let text = format!("the session is not {}, as target_session_attrs asks", wanted.name());
        Err(Error::new(ErrorKind::WrongServer, text).at_target(&self.peer.shown))
    }

    fn ask(&mut self, sql: &str, took: &mut Option<Duration>, started: Instant) -> Result<String> {
        let rows = self.query_rows(sql, &[]);
        *took = Some(started.elapsed());
        Ok(rows?.get(0, 0).unwrap_or_default().to_owned())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.usable {
            // The server notices a closed socket as well; this only spares it a line in its log.
            let _ = self.channel.send(&frontend::TERMINATE_BYTES);
        }
    }
}

/// CopyFail with an empty message.
const COPY_FAIL: [u8; 6] = [frontend::COPY_FAIL, 0, 0, 0, 5, 0];
/// The same and a Sync.
const COPY_FAIL_SYNC: [u8; 11] = [frontend::COPY_FAIL, 0, 0, 0, 5, 0, frontend::SYNC, 0, 0, 0, 4];

fn broken(error: ParseError) -> Error {
    Error::protocol(error.to_string())
}

/// A zero byte would end the text on the wire.
fn check_text(text: &str) -> Result<()> {
    if text.contains('\0') {
        return Err(Error::new(ErrorKind::Usage, "a statement or value cannot hold a zero byte"));
    }
    Ok(())
}

fn write_bind(out: &mut Vec<u8>, statement: &str, values: &[Option<&str>]) -> Result<()> {
    if values.len() > usize::from(u16::MAX / 2) {
        return Err(Error::new(ErrorKind::Usage, "more than 32767 values"));
    }
    for value in values.iter().flatten() {
        check_text(value)?;
    }
    let values: Vec<Option<&[u8]>> = values.iter().map(|value| value.map(str::as_bytes)).collect();
    frontend::write_bind(out, b"", statement.as_bytes(), &values);
    Ok(())
}
