//! What can go wrong, in a form that programs can sort by (kind, phase, SQLSTATE, errno) and people can act on: the
//! text says what happened, where, and what to do.

use std::fmt;
use std::io;

use pgusher_wire::ErrorFields;

use crate::conninfo::ConninfoError;
use crate::phase::Phase;

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The connection string, a file that it names, or a combination of options.
    Config,
    /// A host name that cannot be resolved.
    Resolve,
    /// The network or the socket.
    Io,
    /// Nothing came in the time allowed.
    Timeout,
    /// TLS: refused, failed, or the certificate is not trusted.
    Tls,
    /// The server (or what answers in its place) does not speak the protocol.
    Protocol,
    /// Authentication that we refuse or cannot do: no password, a method that is not allowed.
    Authentication,
    /// The server reported an error; see [`Error::server`].
    Server,
    /// The server closed the connection.
    Closed,
    /// A server that is not what target_session_attrs asks for.
    WrongServer,
    /// A call that the state of the connection does not allow.
    Usage,
}

impl ErrorKind {
    /// A word for counting and for JSON.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Config => "config",
            ErrorKind::Resolve => "resolve",
            ErrorKind::Io => "io",
            ErrorKind::Timeout => "timeout",
            ErrorKind::Tls => "tls",
            ErrorKind::Protocol => "protocol",
            ErrorKind::Authentication => "authentication",
            ErrorKind::Server => "server",
            ErrorKind::Closed => "closed",
            ErrorKind::WrongServer => "wrong_server",
            ErrorKind::Usage => "usage",
        }
    }
}

/// An ErrorResponse. Source: protocol chapter "Error and Notice Message Fields".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerError {
    /// `ERROR`, `FATAL` or `PANIC`, not translated.
    pub severity: String,
    /// Five characters; `XX000` if the server sent none.
    pub sqlstate: String,
    /// What happened.
    pub message: String,
    /// More about it.
    pub detail: Option<String>,
    /// What to do.
    pub hint: Option<String>,
    /// Character of the statement, from 1.
    pub position: Option<u32>,
}

impl ServerError {
    /// Copies the fields out of a message.
    pub(crate) fn from_fields(fields: &ErrorFields<'_>) -> Self {
        ServerError {
            severity: fields.severity().map_or("ERROR", |severity| severity.as_str()).to_owned(),
            sqlstate: fields.sqlstate().unwrap_or("XX000").to_owned(),
            message: fields.message(),
            detail: fields.text(b'D'),
            hint: fields.text(b'H'),
            position: fields.text(b'P').and_then(|text| text.parse().ok()),
        }
    }

    /// Whether the server ends the session with it.
    pub fn is_fatal(&self) -> bool {
        self.severity != "ERROR"
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.severity, self.sqlstate, self.message)?;
        if let Some(position) = self.position {
            write!(f, " (at character {position})")?;
        }
        if let Some(detail) = &self.detail {
            write!(f, "; detail: {detail}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "; hint: {hint}")?;
        }
        Ok(())
    }
}

/// An error with all that is known of it.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    message: String,
    phase: Option<Phase>,
    target: Option<String>,
    server: Option<ServerError>,
    io: Option<io::Error>,
    advice: Option<&'static str>,
    earlier: Vec<String>,
}

impl Error {
    /// An error that is told by its text.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error(Box::new(Inner {
            kind,
            message: message.into(),
            phase: None,
            target: None,
            server: None,
            io: None,
            advice: None,
            earlier: Vec::new(),
        }))
    }

    /// The last of several failed attempts, which tells of the ones before.
    pub(crate) fn last_of(mut errors: Vec<Error>) -> Self {
        let Some(mut last) = errors.pop() else {
            return Error::new(ErrorKind::Config, "no server to connect to");
        };
        last.0.earlier = errors.iter().map(Error::to_string).collect();
        last
    }

    pub(crate) fn config(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Config, message)
    }

    pub(crate) fn protocol(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Protocol, message)
    }

    /// The end of the stream where more was expected.
    pub(crate) fn closed() -> Self {
        Error::new(ErrorKind::Closed, "the server closed the connection unexpectedly")
            .advice("the server's log may say why")
    }

    /// A failed system call. A timeout of the socket is told apart.
    pub(crate) fn io(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::timeout(),
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => {
                let mut closed = Error::closed();
                closed.0.message = format!("{} ({error})", closed.0.message);
                closed.0.io = Some(error);
                closed
            }
            kind => {
                let mut new = Error::new(ErrorKind::Io, error.to_string());
                new.0.advice = match kind {
                    io::ErrorKind::ConnectionRefused => {
                        Some("is a server running there and listening on that address?")
                    }
                    io::ErrorKind::NotFound => Some("is a server running there with this socket folder and port?"),
                    io::ErrorKind::PermissionDenied => Some("the permissions of the socket or its folder forbid it"),
                    _ => None,
                };
                new.0.io = Some(error);
                new
            }
        }
    }

    pub(crate) fn timeout() -> Self {
        Error::new(ErrorKind::Timeout, "no answer in the time allowed")
    }

    pub(crate) fn from_server(server: ServerError) -> Self {
        let mut error = Error::new(ErrorKind::Server, server.to_string());
        error.0.server = Some(server);
        error
    }

    /// Says in which phase, unless that is known already.
    pub(crate) fn in_phase(mut self, phase: Phase) -> Self {
        self.0.phase.get_or_insert(phase);
        self
    }

    /// Says which server, unless that is known already.
    pub(crate) fn at_target(mut self, target: &str) -> Self {
        self.0.target.get_or_insert_with(|| target.to_owned());
        self
    }

    /// Says what to do about it.
    pub(crate) fn advice(mut self, advice: &'static str) -> Self {
        self.0.advice = Some(advice);
        self
    }

    /// What kind of error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// In which phase it happened.
    pub fn phase(&self) -> Option<Phase> {
        self.0.phase
    }

    /// The server that was addressed, as in `localhost:5432 (127.0.0.1)`.
    pub fn target(&self) -> Option<&str> {
        self.0.target.as_deref()
    }

    /// The server's own words.
    pub fn server(&self) -> Option<&ServerError> {
        self.0.server.as_ref()
    }

    /// The server's SQLSTATE, if it was the server who complained.
    pub fn sqlstate(&self) -> Option<&str> {
        self.0.server.as_ref().map(|server| server.sqlstate.as_str())
    }

    /// The failed system call's error.
    pub fn io_error(&self) -> Option<&io::Error> {
        self.0.io.as_ref()
    }

    /// The number of the system's error.
    pub fn errno(&self) -> Option<i32> {
        self.0.io.as_ref().and_then(io::Error::raw_os_error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &self.0;
        for earlier in &inner.earlier {
            writeln!(f, "{earlier}")?;
        }
        match (&inner.target, inner.phase) {
            (Some(target), Some(Phase::Statement | Phase::Disconnect)) => write!(f, "server at {target}: ")?,
            (Some(target), _) => write!(f, "connection to {target} failed: ")?,
            (None, _) => {}
        }
        f.write_str(&inner.message)?;
        if let (Some(phase), ErrorKind::Timeout | ErrorKind::Closed | ErrorKind::Protocol) = (inner.phase, inner.kind) {
            write!(f, " (in phase {phase})")?;
        }
        if let Some(advice) = inner.advice {
            write!(f, "; {advice}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // Its text is part of ours already.
        None
    }
}

impl From<ConninfoError> for Error {
    fn from(error: ConninfoError) -> Self {
        Error::config(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_where_and_what_to_do() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let error = Error::io(refused).in_phase(Phase::Connect).at_target("db:1 (10.0.0.1)");
        let text = error.to_string();
        assert!(text.starts_with("connection to db:1 (10.0.0.1) failed: "), "{text}");
        assert!(text.contains("is a server running"), "{text}");
        assert_eq!((error.kind(), error.phase()), (ErrorKind::Io, Some(Phase::Connect)));
        let timeout = Error::io(io::ErrorKind::WouldBlock.into()).in_phase(Phase::Startup);
        assert_eq!(timeout.kind(), ErrorKind::Timeout);
        assert!(timeout.to_string().contains("phase startup"));
    }

    #[test]
    fn server_fields() {
        let body = b"SFEHLER\0VERROR\0C42601\0Mwrong\0Hright\0P8\0\0";
        let error = Error::from_server(ServerError::from_fields(&ErrorFields::new(body)));
        assert_eq!(error.sqlstate(), Some("42601"));
        assert_eq!(error.to_string(), "ERROR 42601: wrong (at character 8); hint: right");
        let bare = ServerError::from_fields(&ErrorFields::new(b"\0"));
        assert_eq!(bare.sqlstate, "XX000");
    }
}
