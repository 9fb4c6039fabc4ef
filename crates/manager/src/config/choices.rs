//! Values of the configuration that are one of a few.

use super::ConfigError;
use serde::Deserialize;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

/// When a client gives its physical connection back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PoolMode {
    /// At the end of each transaction.
    Transaction,
    /// When it disconnects.
    Session,
}

impl PoolMode {
    /// Is it session mode?
    pub fn is_session(self) -> bool {
        self == Self::Session
    }
}

/// Which unnamed statements, of those that come again, a server keeps prepared. Named ones are kept in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StatementReuse {
    /// All; the server decides between generic and custom plans as for any prepared statement.
    On,
    /// None.
    Off,
    /// All, and each execution is planned for its parameters (plan_cache_mode = force_custom_plan).
    CustomPlans,
}

/// Whether a client's statement may be sent on a physical connection where another client's is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Multiplex {
    /// Never.
    Off,
    /// Queries that only read and take little time, when no physical connection is free.
    Reads,
}

/// From when on clients that get numbers from sequences keep their physical connection, for currval and lastval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SequenceMode {
    /// From when a client of the pool was seen to read in a later transaction.
    Learn,
    /// From the start.
    Pin,
}

/// How clients prove their identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuthMethod {
    /// As the server asks them to.
    Server,
    /// Not at all.
    Trust,
    /// By SCRAM-SHA-256, against the users in the configuration.
    #[serde(rename = "scram-sha-256")]
    ScramSha256,
    /// By an md5 hash, or SCRAM for users whose verifier is one.
    Md5,
    /// By a password in clear text.
    Plain,
}

/// Where the manager listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// TCP address and port; port 0 for any free one.
    Tcp(SocketAddr),
    /// A Unix socket in this folder, named after this port.
    Unix(PathBuf),
}

impl std::str::FromStr for Listen {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        if text.starts_with('/') {
            return Ok(Self::Unix(PathBuf::from(text)));
        }
        let mut addresses = text.to_socket_addrs().map_err(|e| {
            ConfigError(format!("listen address \"{text}\" is neither ADDRESS:PORT nor the path of a folder: {e}"))
        })?;
        addresses
            .next()
            .map(Self::Tcp)
            .ok_or_else(|| ConfigError(format!("listen address \"{text}\" names no address")))
    }
}
