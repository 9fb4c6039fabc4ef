//! One run of pgbench: the command, and what it said.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use pgusher_embedded::Server;

use crate::cell::{Cell, Connection};

/// The password of the role that has one. The server lives for minutes and listens on loopback only.
pub(crate) const PASSWORD: &str = "side-by-side";

/// How long a run lasts.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Length {
    Time(Duration),
    /// Transactions of each client.
    Transactions(u32),
}

/// What a run achieved.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) transactions: u64,
    /// Transactions per second; for kept connections without the time to connect.
    pub(crate) tps: f64,
}

/// Runs pgbench's select-only workload against 127.0.0.1:`port`.
///
/// # Errors
/// When pgbench fails or any of its clients was aborted; with what it said.
pub(crate) fn run(server: &Server, cell: Cell, port: u16, length: Length) -> Result<Outcome> {
    let mut command = Command::new(server.bin("pgbench"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(name);
        }
    }
    command
        .args(["-n", "-S", "-h", "127.0.0.1", "-p", &port.to_string(), "-U", cell.login.role()])
        .args(["-M", cell.protocol.name(), "-c", &cell.clients.to_string()])
        .args(["-j", &cell.clients.min(2).to_string()])
        .env("PGPASSWORD", PASSWORD)
        .env("PGSSLMODE", "disable")
        .env("PGGSSENCMODE", "disable")
        .env("PGCONNECT_TIMEOUT", "10")
        .env("LC_ALL", "C")
        .stdin(Stdio::null());
    match length {
        Length::Time(time) => command.args(["-T", &time.as_secs().max(1).to_string()]),
        Length::Transactions(count) => command.args(["-t", &count.to_string()]),
    };
    if cell.connection == Connection::PerTransaction {
        command.arg("-C");
    }
    command.arg("postgres");
    let output = command.output().context("pgbench cannot be started")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let outcome = parse(&text);
    match outcome {
        Some(outcome) if output.status.success() && outcome.transactions > 0 => Ok(outcome),
        _ => {
            let tail: Vec<&str> = errors.lines().rev().take(3).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            bail!("pgbench failed ({}): {}", output.status, tail.join(" / "))
        }
    }
}

fn parse(text: &str) -> Option<Outcome> {
    let after = |prefix: &str| text.lines().find_map(|line| line.strip_prefix(prefix));
    let transactions = after("number of transactions actually processed: ")?;
    let transactions = transactions.split(['/', ' ']).next()?.parse().ok()?;
    let tps = after("tps = ")?.split_whitespace().next()?.parse().ok()?;
    Some(Outcome { transactions, tps })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_the_count_are_read() {
        let text = "number of transactions actually processed: 73056\nlatency average = 0.1 ms\n\
            initial connection time = 1.9 ms\ntps = 9134.250021 (without initial connection time)\n";
        let outcome = parse(text).unwrap();
        assert_eq!(outcome.transactions, 73056);
        assert!((outcome.tps - 9_134.250_021).abs() < 1e-9);
        let text = "number of transactions actually processed: 100/100\ntps = 324.5 (including reconnection times)\n";
        assert_eq!(parse(text).unwrap().transactions, 100);
        assert!(parse("pgbench: error: connection to server failed").is_none());
    }
}
