//! The named parts of a connection's and a statement's time. One vocabulary for errors, output and metrics.

use std::fmt;
use std::time::Duration;

/// A part of the time of a connection or statement, in the order in which they happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Client setup: certificates, password file. Not the server's.
    Setup,
    /// Name look-up.
    Resolve,
    /// `connect()`: until the kernel of the server has accepted, not the server itself.
    Connect,
    /// SSLRequest (or GSSENCRequest) to its one-byte answer: the server's accept queue, fork and first steps.
    QueueFork,
    /// TLS handshake.
    Tls,
    /// StartupMessage to the first authentication request (or, with trust, to its absence).
    Startup,
    /// Rounds of authentication that wait for the server, without the last one.
    Authenticate,
    /// Our own computing for the authentication (PBKDF2 with SCRAM).
    ClientCrypto,
    /// Our last authentication message to ReadyForQuery: the server verifies and sets up the session.
    Ready,
    /// Asking the server what it is, for target_session_attrs.
    SessionCheck,
    /// A statement is under way.
    Statement,
    /// Terminate to the end of the stream: the backend has ended.
    Disconnect,
}

impl Phase {
    /// Short name, as in output.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Setup => "client setup",
            Phase::Resolve => "resolve",
            Phase::Connect => "connect",
            Phase::QueueFork => "queue+fork",
            Phase::Tls => "tls",
            Phase::Startup => "startup",
            Phase::Authenticate => "authenticate",
            Phase::ClientCrypto => "client crypto",
            Phase::Ready => "ready",
            Phase::SessionCheck => "session check",
            Phase::Statement => "statement",
            Phase::Disconnect => "disconnect",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The phases of one attempt to connect. `None`: did not happen. The clock is monotonic; the stamps are taken right
/// before a send and right after the receive that brought the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// Name look-up; only in the first attempt after it.
    pub resolve: Option<Duration>,
    /// `connect()`.
    pub connect: Option<Duration>,
    /// SSLRequest to its answer.
    pub queue_fork: Option<Duration>,
    /// TLS handshake.
    pub tls: Option<Duration>,
    /// StartupMessage to the first authentication request.
    pub startup: Option<Duration>,
    /// Authentication rounds before the last.
    pub authenticate: Option<Duration>,
    /// Our own cryptography, between and before the rounds.
    pub client_crypto: Option<Duration>,
    /// Last authentication message to ReadyForQuery.
    pub ready: Option<Duration>,
    /// target_session_attrs on servers that do not report it by themselves.
    pub session_check: Option<Duration>,
    /// From the start of the attempt to its end. What is between the phases is in it as well.
    pub total: Duration,
}

impl Phases {
    /// Those that happened, in order, without the total.
    pub fn iter(&self) -> impl Iterator<Item = (Phase, Duration)> {
        [
            (Phase::Resolve, self.resolve),
            (Phase::Connect, self.connect),
            (Phase::QueueFork, self.queue_fork),
            (Phase::Tls, self.tls),
            (Phase::Startup, self.startup),
            (Phase::Authenticate, self.authenticate),
            (Phase::ClientCrypto, self.client_crypto),
            (Phase::Ready, self.ready),
            (Phase::SessionCheck, self.session_check),
        ]
        .into_iter()
        .filter_map(|(phase, time)| Some((phase, time?)))
    }
}
