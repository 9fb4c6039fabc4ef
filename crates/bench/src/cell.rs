//! The workloads: what pgbench does, with how many clients, and how a client proves who it is.

/// One workload; a row of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) protocol: Protocol,
    pub(crate) clients: u32,
    pub(crate) connection: Connection,
    pub(crate) login: Login,
}

/// How pgbench sends a statement (`-M`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Simple,
    Extended,
    /// Only where the PgBouncer at hand can follow prepared statements (1.21 and later).
    Prepared,
}

/// Whether a client keeps its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Connection {
    Kept,
    /// `-C`: a new connection for each transaction.
    PerTransaction,
}

/// What the client is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Login {
    Trust,
    Scram,
}

impl Login {
    /// The role of the benchmark that is asked so.
    pub(crate) fn role(self) -> &'static str {
        match self {
            Login::Trust => "bench",
            Login::Scram => "bench_scram",
        }
    }
}

impl Protocol {
    /// The value of pgbench's `-M`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Protocol::Simple => "simple",
            Protocol::Extended => "extended",
            Protocol::Prepared => "prepared",
        }
    }
}

impl Cell {
    /// The name for `--only` and the report, for example `simple-16` or `reconnect-scram-1`.
    pub(crate) fn name(self) -> String {
        match (self.connection, self.login) {
            (Connection::Kept, _) => format!("{}-{}", self.protocol.name(), self.clients),
            (Connection::PerTransaction, Login::Trust) => {
                format!("reconnect-trust-{}", self.clients)
            }
            (Connection::PerTransaction, Login::Scram) => {
                format!("reconnect-scram-{}", self.clients)
            }
        }
    }
}

/// All workloads, in the order of the report.
pub(crate) fn all(prepared: bool) -> Vec<Cell> {
    let mut protocols = vec![Protocol::Simple, Protocol::Extended];
    if prepared {
        protocols.push(Protocol::Prepared);
    }
    let mut cells = Vec::new();
    for protocol in protocols {
        for clients in [1, 16, 200] {
            cells.push(Cell { protocol, clients, connection: Connection::Kept, login: Login::Trust });
        }
    }
    for login in [Login::Trust, Login::Scram] {
        for clients in [1, 16] {
            cells.push(Cell { protocol: Protocol::Simple, clients, connection: Connection::PerTransaction, login });
        }
    }
    cells
}

/// Shell-like matching with `*` (any text) and `?` (one character).
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    fn inner(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, None) => true,
            (Some((b'*', rest)), _) => {
                inner(rest, name) || name.split_first().is_some_and(|(_, tail)| inner(pattern, tail))
            }
            (Some((b'?', rest)), Some((_, tail))) => inner(rest, tail),
            (Some((p, rest)), Some((n, tail))) => p == n && inner(rest, tail),
            _ => false,
        }
    }
    inner(pattern.as_bytes(), name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_patterns_choose() {
        let names: Vec<String> = all(true).into_iter().map(Cell::name).collect();
        let unique: std::collections::HashSet<&String> = names.iter().collect();
        assert_eq!(unique.len(), names.len());
        let chosen = |pattern: &str| names.iter().filter(|n| matches(pattern, n)).count();
        assert_eq!(chosen("simple-*"), 3);
        assert_eq!(chosen("*-1"), 5);
        assert_eq!(chosen("reconnect-trust-1?"), 1);
        assert_eq!(chosen("*"), 13);
        assert_eq!(chosen("simple"), 0);
    }
}
