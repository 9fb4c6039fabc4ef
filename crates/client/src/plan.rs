//! Which attempts sslmode allows for one address: the first, and after a failure perhaps one with the other kind of
//! encryption. Source: PostgreSQL documentation, "SSL Mode Descriptions"; `PQconnectPoll` in fe-connect.c.

use crate::attempt::Encryption;
use crate::config::SslMode;
use crate::error::{Error, ErrorKind};

pub(crate) struct Failure {
    pub(crate) error: Error,
    /// Whether another way of encryption on the same address may succeed.
    pub(crate) retry: Retry,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    /// It would fail in the same way.
    Useless,
    /// Only the fork probe failed.
    WithoutProbe,
    /// Without TLS it may work.
    Plain,
    /// With TLS it may work.
    Tls,
}

impl Failure {
    pub(crate) fn before(error: Error) -> Self {
        Failure { error, retry: Retry::Useless }
    }

    /// A server may refuse a login because it is, or is not, encrypted (pg_hba.conf).
    pub(crate) fn during_login(error: Error, tls: bool) -> Self {
        let retry = match (error.kind() == ErrorKind::Server, tls) {
            (false, _) => Retry::Useless,
            (true, true) => Retry::Plain,
            (true, false) => Retry::Tls,
        };
        Failure { error, retry }
    }
}

/// The attempts that sslmode allows for one address.
pub(crate) struct Plan {
    mode: SslMode,
    next: Option<Encryption>,
    fallback_used: bool,
}

impl Plan {
    /// For an address; Unix sockets are never encrypted.
    pub(crate) fn new(mode: SslMode, tcp: bool) -> Self {
        let mode = if tcp { mode } else { SslMode::Disable };
        let first = match mode {
            SslMode::Disable | SslMode::Allow => Encryption::Plain,
            SslMode::Prefer | SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => Encryption::Tls,
        };
        Plan { mode, next: Some(first), fallback_used: false }
    }

    pub(crate) fn next(&mut self) -> Option<Encryption> {
        self.next.take()
    }

    pub(crate) fn after(&mut self, retry: Retry) {
        if retry == Retry::WithoutProbe {
            self.next = Some(Encryption::Plain);
            return;
        }
        if !self.fallback_used {
            self.next = match (self.mode, retry) {
                (SslMode::Prefer, Retry::Plain) => Some(Encryption::Plain),
                (SslMode::Allow, Retry::Tls) => Some(Encryption::Tls),
                _ => None,
            };
            self.fallback_used = self.next.is_some();
        }
    }
}
