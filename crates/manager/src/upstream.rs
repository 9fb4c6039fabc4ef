//! Where the server is now: a value that the control side keeps and that workers read when they open a connection.
//!
//! How it is found (names, several hosts, target_session_attrs) is the control side's business; nothing is looked up here.

use arc_swap::ArcSwap;
use pgusher_client::TargetSessionAttrs;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Where a PostgreSQL server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerAddress {
    /// TCP.
    Tcp {
        /// Where to connect.
        address: SocketAddr,
        /// The host by the name that the configuration gives it, which is the name that its certificate must have; the
        /// address in figures if it was given by that.
        name: Arc<str>,
    },
    /// A Unix socket, by its path.
    Unix(PathBuf),
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { address, .. } => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Where the server is now, and since how many moves.
#[derive(Debug)]
pub struct Upstream {
    address: ArcSwap<ServerAddress>,
    moves: AtomicU32,
    /// There is another address that may work.
    alternatives: AtomicBool,
    /// The control side has tried all of them in vain.
    down: AtomicBool,
    wanted: TargetSessionAttrs,
}

impl Upstream {
    /// A server at this address. `wanted` is what the connection string demands of it.
    pub fn new(address: ServerAddress, wanted: TargetSessionAttrs) -> Self {
        Self {
            address: ArcSwap::from_pointee(address),
            moves: AtomicU32::new(0),
            alternatives: AtomicBool::new(false),
            down: AtomicBool::new(false),
            wanted,
        }
    }

    /// The address for a new connection.
    pub fn address(&self) -> Arc<ServerAddress> {
        self.address.load_full()
    }

    /// How often the address has changed. To be read before the address: a connection that was made with an older number
    /// may go to an older address, and is closed when it becomes free.
    #[inline]
    pub fn moves(&self) -> u32 {
        self.moves.load(Ordering::Acquire)
    }

    /// May a connection that cannot be made now be made in a moment, at another address? Then clients that wait for it need
    /// not be told yet.
    pub fn may_move(&self) -> bool {
        self.alternatives.load(Ordering::Relaxed) && !self.down.load(Ordering::Relaxed)
    }

    /// Is a server that says this of itself (ParameterStatus; PostgreSQL 14 and later say it) one of the kind that
    /// target_session_attrs wants? What it does not say is not held against it.
    ///
    /// Source: `in_hot_standby` and `default_transaction_read_only` in PostgreSQL's protocol chapter, "Asynchronous
    /// Operations"; `pqConnectDBPoll` in fe-connect.c.
    pub fn is_wanted(&self, parameters: &[(Vec<u8>, Vec<u8>)]) -> bool {
        let on = |name: &[u8]| parameters.iter().find(|(n, _)| n == name).map(|(_, value)| value == b"on");
        let standby = on(b"in_hot_standby");
        let read_only = match (standby, on(b"default_transaction_read_only")) {
            (Some(true), _) | (_, Some(true)) => Some(true),
            (Some(false), Some(false)) => Some(false),
            _ => None,
        };
        match self.wanted {
            TargetSessionAttrs::Any | TargetSessionAttrs::PreferStandby => true,
            TargetSessionAttrs::Primary => standby != Some(true),
            TargetSessionAttrs::Standby => standby != Some(false),
            TargetSessionAttrs::ReadWrite => read_only != Some(true),
            TargetSessionAttrs::ReadOnly => read_only != Some(false),
        }
    }

    /// What the connection string wants of the server.
    pub fn wanted(&self) -> TargetSessionAttrs {
        self.wanted
    }

    pub(crate) fn set_alternatives(&self, any: bool) {
        self.alternatives.store(any, Ordering::Relaxed);
    }

    pub(crate) fn set_down(&self, down: bool) -> bool {
        self.down.swap(down, Ordering::Relaxed)
    }

    pub(crate) fn move_to(&self, address: ServerAddress) {
        self.address.store(Arc::new(address));
        self.moves.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_a_standby_by_what_it_says() {
        let says = |standby: &str, read_only: &str| {
            vec![
                (b"in_hot_standby".to_vec(), standby.as_bytes().to_vec()),
                (b"default_transaction_read_only".to_vec(), read_only.as_bytes().to_vec()),
            ]
        };
        let (primary, frozen, standby, silent) = (says("off", "off"), says("off", "on"), says("on", "off"), Vec::new());
        for (wanted, expected) in [
            (TargetSessionAttrs::Any, [true, true, true, true]),
            (TargetSessionAttrs::PreferStandby, [true, true, true, true]),
            (TargetSessionAttrs::Primary, [true, true, false, true]),
            (TargetSessionAttrs::Standby, [false, false, true, true]),
            (TargetSessionAttrs::ReadWrite, [true, false, false, true]),
            (TargetSessionAttrs::ReadOnly, [false, true, true, true]),
        ] {
            let upstream = Upstream::new(ServerAddress::Unix("/s".into()), wanted);
            let found = [&primary, &frozen, &standby, &silent].map(|p| upstream.is_wanted(p));
            assert_eq!(found, expected, "{}", wanted.name());
        }
    }
}
