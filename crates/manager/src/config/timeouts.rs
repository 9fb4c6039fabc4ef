//! Limits in time.

use serde::Deserialize;
use std::time::Duration;

/// Limits in time, in seconds; 0 means none.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// From accept to the end of the login.
    #[serde(rename = "client_login")]
    pub client_login_s: u64,
    /// In a pool's queue.
    #[serde(rename = "query_wait")]
    pub query_wait_s: u64,
    /// To connect and log in to a server.
    #[serde(rename = "server_connect")]
    pub server_connect_s: u64,
    /// Nobody has used a server for so long: it is closed.
    #[serde(rename = "server_idle")]
    pub server_idle_s: u64,
    /// A server that is older is closed when it becomes free.
    #[serde(rename = "server_lifetime")]
    pub server_lifetime_s: u64,
    /// At shutdown, how long transactions may take to end.
    #[serde(rename = "shutdown")]
    pub shutdown_s: u64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            client_login_s: 60,
            query_wait_s: 120,
            server_connect_s: 15,
            server_idle_s: 600,
            server_lifetime_s: 3600,
            shutdown_s: 60,
        }
    }
}

/// So long is for ever, and still can be added to any moment.
const NEVER: u64 = u32::MAX as u64;

/// A limit of 0 seconds never ends.
fn limit(seconds: u64) -> Duration {
    Duration::from_secs(if seconds == 0 { NEVER } else { seconds.min(NEVER) })
}

impl Timeouts {
    /// The connection string allows no longer than this.
    pub(super) fn shorten_server_connect(&mut self, limit: Duration) {
        if self.server_connect() > limit {
            self.server_connect_s = limit.as_secs().max(1);
        }
    }
    /// From accept to the end of the login.
    pub fn client_login(&self) -> Duration {
        limit(self.client_login_s)
    }
    /// In a pool's queue.
    pub fn query_wait(&self) -> Duration {
        limit(self.query_wait_s)
    }
    /// To connect and log in to a server.
    pub fn server_connect(&self) -> Duration {
        limit(self.server_connect_s)
    }
    /// Unused servers.
    pub fn server_idle(&self) -> Duration {
        limit(self.server_idle_s)
    }
    /// Age of servers.
    pub fn server_lifetime(&self) -> Duration {
        limit(self.server_lifetime_s)
    }
    /// Drain at shutdown.
    pub fn shutdown(&self) -> Duration {
        limit(self.shutdown_s)
    }
}
