//! What an experiment measures: the same database reached in one way or another.

use std::fmt;

use pgusher_client::Connector;
use serde::{Deserialize, Serialize};

/// How the clients reach the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Straight to PostgreSQL.
    Direct,
    /// Through the connection manager.
    Managed,
}

impl Side {
    /// Both, in the order of the report.
    pub const ALL: [Self; 2] = [Self::Direct, Self::Managed];
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Managed => "managed",
        })
    }
}

/// One side to measure.
pub struct Target {
    /// Which side it is.
    pub side: Side,
    /// How to connect to it.
    pub connector: Connector,
}
