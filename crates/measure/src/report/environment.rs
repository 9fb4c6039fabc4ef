//! Where and with what something was measured: without it a number means nothing.

use std::collections::BTreeMap;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::floor::Floor;
use crate::proc;

/// The surroundings of a measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Environment {
    /// Name and version of this program.
    pub tool: String,
    /// Start, UTC, as in RFC 3339.
    pub started_at: String,
    /// The machine that measured.
    pub host: Host,
    /// What no measurement on that machine can go below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<Floor>,
    /// The server that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerFacts>,
    /// How each side was reached: `direct` and `managed`, without secrets.
    pub targets: BTreeMap<String, String>,
}

/// The measuring machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Host {
    /// Operating system and architecture.
    pub system: String,
    /// Version of the kernel.
    pub kernel: String,
    /// Model of the processor.
    pub processor: String,
    /// Processors that this program may use.
    pub processors: usize,
    /// Memory in KiB; 0 if unknown.
    pub memory_kib: u64,
    /// Load average over one minute when it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
}

/// What the server says of itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ServerFacts {
    /// `server_version`.
    pub version: String,
    /// Settings that matter for connections, by name, with their units.
    pub settings: BTreeMap<String, String>,
}

impl ServerFacts {
    /// The statement that asks for them: rows of name and value.
    pub const QUERY: &'static str = "select name, current_setting(name) from pg_catalog.pg_settings where name in \
        ('server_version', 'max_connections', 'shared_buffers', 'huge_pages', 'huge_pages_status', 'jit', \
        'password_encryption', 'ssl', 'fsync', 'synchronous_commit', 'shared_preload_libraries') order by name";

    /// Made of the rows of [`Self::QUERY`].
    #[must_use]
    pub fn of(rows: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut settings: BTreeMap<String, String> = rows.into_iter().collect();
        Self { version: settings.remove("server_version").unwrap_or_default(), settings }
    }
}

impl Environment {
    /// Of this program and machine, now. Measures the machine's floor, which takes a tenth of a second.
    #[must_use]
    pub fn here() -> Self {
        Self {
            tool: concat!("pgusher ", env!("CARGO_PKG_VERSION")).to_owned(),
            started_at: timestamp(SystemTime::now()),
            host: Host::here(),
            floor: Floor::measure(),
            server: None,
            targets: BTreeMap::new(),
        }
    }
}

impl Host {
    /// This machine, as far as /proc tells.
    #[must_use]
    pub fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            text.lines()
                .find(|l| l.starts_with(name))
                .and_then(|l| l.split_once(':'))
                .map(|(_, v)| v.trim().to_owned())
                .unwrap_or_default()
        };
        Self {
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            processor: field(&read("/proc/cpuinfo"), "model name"),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_kib: proc::memory("MemTotal").unwrap_or(0),
            load: read("/proc/loadavg").split_whitespace().next().and_then(|v| v.parse().ok()),
        }
    }
}

/// A moment in UTC as `2026-11-21T12:34:56Z`. Before 1970 counts as 1970.
#[must_use]
pub fn timestamp(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years counted from March, so that the leap day is the last one (Gregorian calendar, 400-year cycle).
    let shifted = days + 719_468;
    let (cycle, day_of_cycle) = (shifted / 146_097, shifted % 146_097);
    let year_of_cycle = (day_of_cycle - day_of_cycle / 1_460 + day_of_cycle / 36_524 - day_of_cycle / 146_096) / 365;
    let day_of_year = day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = cycle * 400 + year_of_cycle + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn moments() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(timestamp(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn the_version_is_no_setting() {
        let facts =
            ServerFacts::of([("server_version".to_owned(), "15.1".to_owned()), ("fsync".to_owned(), "on".to_owned())]);
        assert_eq!(facts.version, "15.1");
        assert_eq!(facts.settings.len(), 1);
    }
}
