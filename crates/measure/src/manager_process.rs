//! A connection manager of one's own for an experiment: `pgusher serve` as a child process.
//!
//! A process, not threads of this one, so that the load generator and the manager do not share a scheduler's
//! account, an allocator or a limit on open files.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use pgusher_embedded::Process;

/// How long it may take until it listens.
const START_LIMIT: Duration = Duration::from_secs(15);
/// How much of what it says is kept for messages.
const KEPT: usize = 4096;

/// A running manager. It ends when this value is dropped or this program ends.
#[derive(Debug)]
pub struct ManagerProcess {
    process: Process,
    address: String,
}

/// Why there is no manager.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// The program could not be started.
    #[error("cannot start the connection manager: {0}")]
    Spawn(#[from] std::io::Error),
    /// It ended, or said something else than where it listens.
    #[error("the connection manager did not start: {0}")]
    Ended(String),
    /// It neither listened nor ended.
    #[error("the connection manager did not listen within {} s", START_LIMIT.as_secs())]
    Timeout,
}

impl ManagerProcess {
    /// Starts `program serve UPSTREAM` on a free port of the loopback address. Clients are trusted: only processes
    /// of this machine reach it, and the server behind it must be a private one.
    ///
    /// # Errors
    /// [`ManagerError`], with the manager's own words if it had any.
    pub fn start(program: &Path, upstream: &str) -> Result<Self, ManagerError> {
        Self::start_with(program, upstream, &[])
    }

    /// The same with more options for `serve`.
    ///
    /// # Errors
    /// As [`ManagerProcess::start`].
    pub fn start_with(program: &Path, upstream: &str, options: &[String]) -> Result<Self, ManagerError> {
        let mut command = Command::new(program);
        command
            .args(["serve", upstream, "--listen", "127.0.0.1:0", "--auth", "trust"])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // What a person has set for their own server must not reach this one.
        for (name, _) in std::env::vars_os() {
            let name_text = name.to_string_lossy();
            if name_text.starts_with("PG") && !name_text.starts_with("PGUSHER") {
                command.env_remove(&name);
            }
        }
        let mut process = Process::spawn(command)?;
        let said = Arc::new(Mutex::new(Vec::new()));
        if let Some(stderr) = process.child().stderr.take() {
            let said = Arc::clone(&said);
            thread::spawn(move || keep_the_end(stderr, &said));
        }
        let (sender, receiver) = mpsc::channel();
        if let Some(stdout) = process.child().stdout.take() {
            thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    // After the first line nobody listens, but the pipe is still emptied.
                    let _ = sender.send(line);
                }
            });
        }
        let words = || {
            // The end of its output and the end of its errors come in no particular order.
            thread::sleep(Duration::from_millis(100));
            let said = said.lock().unwrap_or_else(PoisonError::into_inner);
            String::from_utf8_lossy(&said).trim().to_owned()
        };
        let address = match receiver.recv_timeout(START_LIMIT) {
            Ok(line) => match line.strip_prefix("listening on ") {
                Some(address) => address.trim().to_owned(),
                None => return Err(ManagerError::Ended(line)),
            },
            Err(RecvTimeoutError::Timeout) => return Err(ManagerError::Timeout),
            Err(RecvTimeoutError::Disconnected) => return Err(ManagerError::Ended(words())),
        };
        Ok(Self { process, address })
    }

    /// `ADDRESS:PORT` where it listens.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// A connection string to reach a database through it.
    #[must_use]
    pub fn conninfo(&self, database: &str, user: &str) -> String {
        let (host, port) = self.address.rsplit_once(':').unwrap_or((&self.address, "6432"));
        format!("host={host} port={port} dbname={database} user={user} sslmode=disable")
    }

    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }
}

/// Reads to the end and keeps the last bytes.
fn keep_the_end(mut from: impl Read, into: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 1024];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        let mut kept = into.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(buffer.get(..n).unwrap_or(&[]));
        let surplus = kept.len().saturating_sub(KEPT);
        kept.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_serve_is_told_by_its_words() {
        let error = ManagerProcess::start(Path::new("/bin/sh"), "x").expect_err("no manager");
        assert!(matches!(error, ManagerError::Ended(_)), "{error}");
        assert!(error.to_string().contains("serve"), "{error}");
        let error = ManagerProcess::start(Path::new("/bin/echo"), "x").expect_err("no manager");
        assert!(error.to_string().contains("serve x --listen"), "{error}");
        let error = ManagerProcess::start(Path::new("/does/not/exist"), "x").expect_err("no manager");
        assert!(matches!(error, ManagerError::Spawn(_)), "{error}");
    }
}
