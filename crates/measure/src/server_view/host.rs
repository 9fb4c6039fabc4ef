//! What the system of this host knows of a backend: CPU time, time it waited for a processor, minor page faults and
//! memory. Only for a server on this host, and only on Linux.
//!
//! A backend is looked at when it sleeps again: while it runs, the system's sum of its CPU time is behind.

use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::proc;

/// The counters of a process since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// On a processor, nanoseconds.
    pub cpu_ns: u64,
    /// Ready to run but not running, nanoseconds.
    pub wait_ns: u64,
    /// Minor page faults.
    pub minor_faults: u64,
    /// Resident memory, KiB; not a sum but what it is now.
    pub rss_kib: u64,
}

/// What one connection or run took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Usage {
    /// On a processor, microseconds.
    pub cpu_us: f64,
    /// Ready to run but not running, microseconds.
    pub run_queue_us: f64,
    /// Minor page faults.
    pub minor_faults: u64,
    /// Resident memory at its end, KiB.
    pub rss_kib: u64,
}

/// How long a backend may take to its sleep after its answer was read.
const PATIENCE: Duration = Duration::from_millis(20);

/// A backend on this host.
#[derive(Clone, Debug)]
pub struct Backend {
    pid: u32,
    last: Counters,
}

impl Backend {
    /// The backend with this process number, if it is a PostgreSQL process of this host that serves this user and
    /// database. Counting begins at its fork.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn find(pid: u32, user: &str, database: &str) -> Result<Self, String> {
        if !cfg!(target_os = "linux") {
            return Err("only Linux tells what a backend uses".to_owned());
        }
        let title =
            proc::title(pid).ok_or_else(|| format!("process {pid} is not on this host (or a proxy is in between)"))?;
        // postgres: [cluster_name: ]user database host
        let is_backend = title.starts_with("postgres:") && title.contains(&format!(" {user} {database} "));
        if !is_backend {
            return Err(format!("process {pid} of this host is no backend of {user} in {database}: \"{title}\""));
        }
        Ok(Backend { pid, last: Counters::default() })
    }

    /// What it used since the last look. `None` when it is gone or the system does not tell.
    pub fn used(&mut self) -> Option<Usage> {
        let now = self.counters()?;
        let last = std::mem::replace(&mut self.last, now);
        let micros = |now: u64, last: u64| now.saturating_sub(last) as f64 / 1e3;
        Some(Usage {
            cpu_us: micros(now.cpu_ns, last.cpu_ns),
            run_queue_us: micros(now.wait_ns, last.wait_ns),
            minor_faults: now.minor_faults.saturating_sub(last.minor_faults),
            rss_kib: now.rss_kib,
        })
    }

    fn counters(&self) -> Option<Counters> {
        let deadline = Instant::now() + PATIENCE;
        let stat = loop {
            let stat = proc::Stat::of(self.pid)?;
            if stat.sleeps || Instant::now() >= deadline {
                break stat;
            }
            thread::yield_now();
        };
        let proc::Schedule { cpu_ns, wait_ns } = proc::Schedule::of(self.pid)?;
        Some(Counters { cpu_ns, wait_ns, minor_faults: stat.minor_faults, rss_kib: proc::resident_kib(self.pid)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_processes_are_no_backends() {
        assert!(Backend::find(std::process::id(), "u", "d").unwrap_err().contains("no backend of u in d"));
        assert!(Backend::find(u32::MAX, "u", "d").unwrap_err().contains("not on this host"));
    }
}
