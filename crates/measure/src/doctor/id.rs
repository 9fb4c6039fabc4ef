//! The stable names of all findings, as they stand in the output, in JSON and in docs/doctor.md.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! ids {
    ($($(#[$doc:meta])* $variant:ident $name:literal,)*) => {
        /// Which finding it is.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Id { $($(#[$doc])* #[serde(rename = $name)] $variant,)* }

        impl Id {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The stable name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

ids! {
    /// Some of the connections that were opened to measure were refused for want of a slot.
    ConnectionsRefused "connections-refused",
    /// Nearly all connections that applications may use are in use.
    ConnectionLimitNear "connection-limit-near",
    /// The same for a role's own limit.
    RoleLimitNear "role-limit-near",
    /// The same for a database's own limit.
    DatabaseLimitNear "database-limit-near",
    /// No connection is kept for superusers.
    NoReservedConnections "no-reserved-connections",
    /// `max_connections` is far above what one machine can serve.
    MaxConnectionsHigh "max-connections-high",
    /// So many connections are open that each new one costs more.
    ManyConnections "many-connections",
    /// Connections come often and go at once.
    ShortSessions "short-sessions",
    /// Each of many short connections is logged.
    LogConnections "log-connections",
    /// Many connections, nearly all idle, and no connection manager.
    NoPooler "no-pooler",
    /// Many clients have been idle for long.
    IdleClients "idle-clients",
    /// A transaction is open and idle for long.
    IdleInTransaction "idle-in-transaction",
    /// Shared memory without huge pages.
    HugePagesOff "huge-pages-off",
    /// The relation cache's file stays missing.
    InitFileAbsent "init-file-absent",
    /// The relation cache's file is made anew again and again.
    InitFileRebuilt "init-file-rebuilt",
    /// The first connection after an invalidation is very slow.
    ColdConnection "cold-connection",
    /// System catalogs are vacuumed very often.
    CatalogVacuumFrequent "catalog-vacuum-frequent",
    /// System catalogs are much larger than their rows.
    CatalogBloat "catalog-bloat",
    /// Nobody vacuums.
    AutovacuumOff "autovacuum-off",
    /// The server looks up the name of each client.
    LogHostname "log-hostname",
    /// The client's own name look-up is slow.
    SlowNameLookup "slow-name-lookup",
    /// Attempts fail before the one that succeeds.
    AttemptsWasted "attempts-wasted",
    /// The network's round trips are most of a connection.
    NetworkRoundTrips "network-round-trips",
    /// The server itself takes long to set a session up.
    SlowBackendStart "slow-backend-start",
    /// Full TLS handshakes on many connections.
    TlsWithoutResumption "tls-without-resumption",
    /// Connections over the network are not encrypted.
    SslOff "ssl-off",
    /// A password costs the client much computing.
    ScramIterations "scram-iterations",
    /// Passwords are stored or proven with MD5.
    Md5Passwords "md5-passwords",
    /// Short statements are compiled.
    JitShortStatements "jit-short-statements",
    /// Libraries are loaded by each new backend.
    PreloadLibraries "preload-libraries",
    /// A trigger runs at each login.
    LoginEventTrigger "login-event-trigger",
    /// The first run of a hot statement on a connection is much slower than the later ones.
    FirstQueryPenalty "first-query-penalty",
    /// There is no statistics of statements.
    StatementStatisticsMissing "statement-statistics-missing",
    /// Planning is not timed.
    TrackPlanningOff "track-planning-off",
    /// The statistics were last reset long ago.
    StatisticsOld "statistics-old",
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_is_documented() {
        let page = include_str!("../../../../docs/doctor.md");
        for id in Id::ALL {
            assert!(page.contains(&format!("| `{id}` |")), "docs/doctor.md has no row for {id}");
        }
    }
}
