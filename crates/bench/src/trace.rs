//! The system calls of a manager per transaction, counted by strace while one client runs `pgbench -S`.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use pgusher_embedded::{Process, Server, Signal};

use crate::cell::Cell;
use crate::load::{self, Length};
use crate::target::Manager;

/// Enough that connecting and the first transaction do not show in the second decimal.
const TRANSACTIONS: u32 = 3000;

/// Calls per transaction by name of the call; those under 0.005 are left out.
pub(crate) type Calls = BTreeMap<String, f64>;

/// True when strace is installed.
pub(crate) fn available() -> bool {
    Command::new("strace").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

/// Counts the calls of all threads of the manager.
///
/// # Errors
/// When strace may not look at the process (as a normal user it may be forbidden), or pgbench fails.
pub(crate) fn measure(manager: &Manager, server: &Server, cell: Cell) -> Result<Calls> {
    // So that the pool is filled before the count.
    load::run(server, cell, manager.port(), Length::Transactions(200))?;
    let folder = server.socket_dir().join(format!("strace-{}", manager.pid()));
    fs::create_dir_all(&folder)?;
    let (summary, said) = (folder.join("summary"), folder.join("said"));
    let mut command = Command::new("strace");
    command
        .args(["-f", "-c", "-o"])
        .arg(&summary)
        .args(["-p", &manager.pid().to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(&said)?);
    let mut strace = Process::spawn(command).context("starting strace")?;
    let end = Instant::now() + Duration::from_secs(5);
    while !fs::read_to_string(&said)?.contains("attached") {
        if strace.try_wait()?.is_some() || Instant::now() > end {
            bail!("strace: {}", fs::read_to_string(&said)?.trim());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let outcome = load::run(server, cell, manager.port(), Length::Transactions(TRANSACTIONS));
    strace.signal(Signal::INT)?;
    strace.wait(Duration::from_secs(10))?;
    let outcome = outcome?;
    let text = fs::read_to_string(&summary).context("reading strace's summary")?;
    let calls = parse(&text);
    if calls.is_empty() {
        bail!("strace counted nothing: {}", fs::read_to_string(&said)?.trim());
    }
    let each = |count: u64| count as f64 / outcome.transactions as f64;
    Ok(calls.into_iter().map(|(name, count)| (name, each(count))).filter(|(_, each)| *each >= 0.005).collect())
}

/// The summary's columns: % time, seconds, usecs/call, calls, errors (may be empty), syscall.
fn parse(text: &str) -> Vec<(String, u64)> {
    text.lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let calls = fields.get(3)?.parse().ok()?;
            let name = fields.last()?;
            let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic()) && *name != "total";
            (is_name && fields.len() >= 5).then(|| ((*name).to_owned(), calls))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_read() {
        let text = "% time     seconds  usecs/call     calls    errors syscall\n\
            ------ ----------- ----------- --------- --------- ----------------\n \
            50.00    0.000050           5        10         2 recvfrom\n \
            50.00    0.000050           5        12           epoll_wait\n\
            ------ ----------- ----------- --------- --------- ----------------\n\
            100.00    0.000100           4        22         2 total\n";
        assert_eq!(parse(text), [("recvfrom".to_owned(), 10), ("epoll_wait".to_owned(), 12)]);
    }
}
