//! What is asked of the server, and seen of its processes, beside the load: how many connections it allows, whether its
//! shared memory lies in huge pages, and what each round costs it.

use std::collections::HashSet;
use std::thread;
use std::time::{Duration, Instant};

use pgusher_client::{Connection, Connector};

use super::host::{self, Usage};
use super::model::{Facts, ServerCost};
use crate::proc;

/// Sessions of clients, ours included.
const SESSIONS: &str = "select count(*) from pg_catalog.pg_stat_activity where backend_type = 'client backend'";
const ALLOWED: &str = "select pg_catalog.current_setting('max_connections')::int - case when \
    pg_catalog.current_setting('is_superuser') = 'on' then 0 else \
    pg_catalog.current_setting('superuser_reserved_connections')::int \
    + coalesce(pg_catalog.current_setting('reserved_connections', true), '0')::int end";
const HUGE_PAGES: &str = "select pg_catalog.current_setting('huge_pages_status', true)";
/// How often the server is asked whether it is empty.
const ASK: Duration = Duration::from_millis(50);

/// A connection beside the load, and the processes where they can be seen.
pub(super) struct Control {
    connection: Connection,
    /// Only when the server runs on this machine.
    postmaster: Option<u32>,
    /// Sessions that were there before the round, such as a manager's.
    sessions: u32,
}

/// The server's processes before a round, and those of the round once they were looked at.
pub(super) struct Before {
    postmaster: u32,
    usage: Usage,
    children: HashSet<u32>,
    backends: HashSet<u32>,
}

impl Control {
    /// On an open connection. `local`: its address is of this machine.
    pub(super) fn new(mut connection: Connection, local: bool) -> Self {
        let name = "postgres";
        let pid = connection.backend_pid();
        let postmaster = local.then(|| host::parent_of_the_same_name(pid, name)).flatten();
        let sessions = number(&mut connection, SESSIONS).unwrap_or(1);
        Self { connection, postmaster, sessions }
    }

    /// The facts of the report.
    pub(super) fn facts(&mut self) -> Facts {
        let told = text(&mut self.connection, HUGE_PAGES).filter(|t| !t.is_empty());
        let (huge_pages, from) = match (told, self.postmaster.and_then(host::has_huge_pages)) {
            (Some(status), _) => (status, Some("huge_pages_status")),
            (None, Some(has)) => (if has { "on" } else { "off" }.to_owned(), Some("/proc/PID/smaps")),
            (None, None) => ("unknown".to_owned(), None),
        };
        let allowed = number(&mut self.connection, ALLOWED);
        Facts {
            huge_pages,
            huge_pages_from: from.map(str::to_owned),
            same_host: self.postmaster.is_some(),
            connections_allowed: allowed.map(|n| n.saturating_sub(self.sessions)),
        }
    }

    /// Counts the sessions before a round, and looks at the processes.
    pub(super) fn before(&mut self) -> Option<Before> {
        self.sessions = number(&mut self.connection, SESSIONS).unwrap_or(self.sessions);
        let postmaster = self.postmaster?;
        let (usage, children) = (host::usage(postmaster)?, proc::children(postmaster));
        Some(Before { postmaster, usage, children, backends: HashSet::new() })
    }

    /// Waits until no more sessions are there than before the round. Whether that came to pass.
    pub(super) fn wait_until_empty(&mut self, patience: Duration) -> bool {
        let begun = Instant::now();
        loop {
            match number(&mut self.connection, SESSIONS) {
                Some(n) if n <= self.sessions => return true,
                Some(_) if begun.elapsed() < patience => thread::sleep(ASK),
                Some(_) | None => return false,
            }
        }
    }

    /// Whether the server still answers; connects again if it does not.
    pub(super) fn revive(&mut self, connector: &Connector) -> bool {
        if self.connection.is_usable() && number(&mut self.connection, "select 1").is_some() {
            return true;
        }
        match connector.connect() {
            Ok((connection, _)) => {
                *self = Self::new(connection, self.postmaster.is_some());
                true
            }
            Err(_) => false,
        }
    }
}

impl Before {
    /// What the round has cost up to now, when its last client is ready. `None` if no backend belongs to it.
    pub(super) fn cost(&mut self) -> Option<ServerCost> {
        let now = host::usage(self.postmaster)?;
        let mut sum = Usage::default();
        for child in proc::children(self.postmaster).difference(&self.children) {
            if let Some(usage) = host::usage(*child) {
                sum.cpu_ns += usage.cpu_ns;
                sum.minor_faults += usage.minor_faults;
                self.backends.insert(*child);
            }
        }
        let backends = u32::try_from(self.backends.len()).unwrap_or(u32::MAX);
        let each = |total: f64| total / f64::from(backends);
        (backends > 0).then(|| ServerCost {
            backends,
            minor_faults: each(sum.minor_faults as f64),
            backend_cpu_us: each(sum.cpu_ns as f64 / 1e3),
            postmaster_cpu_us: each(now.cpu_ns.saturating_sub(self.usage.cpu_ns) as f64 / 1e3),
            backend_life_cpu_us: None,
        })
    }

    /// CPU time per backend until its end, when all have ended.
    pub(super) fn life_cpu_us(&self, backends: u32) -> Option<f64> {
        let reaped = host::usage(self.postmaster)?.reaped_cpu_ns.checked_sub(self.usage.reaped_cpu_ns)?;
        Some(reaped as f64 / 1e3 / f64::from(backends.max(1)))
    }

    /// Waits until the processes of the round have gone, which is a moment after they have closed their connections.
    pub(super) fn wait_until_gone(&self, patience: Duration) -> bool {
        let begun = Instant::now();
        loop {
            if proc::children(self.postmaster).is_disjoint(&self.backends) {
                return true;
            }
            if begun.elapsed() > patience {
                return false;
            }
            thread::sleep(ASK);
        }
    }
}

fn text(connection: &mut Connection, sql: &str) -> Option<String> {
    connection.query_rows(sql, &[]).ok()?.get(0, 0).map(str::to_owned)
}

fn number(connection: &mut Connection, sql: &str) -> Option<u32> {
    text(connection, sql)?.parse().ok()
}
