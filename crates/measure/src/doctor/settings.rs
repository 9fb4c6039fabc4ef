//! The server's settings, as a new session of this role in this database has them: `reset_val`, which our own SET does
//! not touch.

use std::collections::BTreeMap;

use super::look::{Look, MONITOR};

/// Those that some examination reads.
const NAMES: &[&str] = &[
    "autovacuum",
    "autovacuum_naptime",
    "event_triggers",
    "huge_pages",
    "huge_pages_status",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "jit",
    "jit_above_cost",
    "local_preload_libraries",
    "log_connections",
    "log_disconnections",
    "log_hostname",
    "max_connections",
    "password_encryption",
    "pg_stat_statements.track",
    "pg_stat_statements.track_planning",
    "reserved_connections",
    "scram_iterations",
    "session_preload_libraries",
    "shared_buffers",
    "ssl",
    "superuser_reserved_connections",
    "track_activities",
    "track_counts",
];

/// Values by name, in the server's base units.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Settings(BTreeMap<String, String>);

impl Settings {
    /// Asks for them.
    pub(super) fn look(look: &mut Look) -> Self {
        let list = format!("{{{}}}", NAMES.join(","));
        let sql = "select name, reset_val from pg_settings where name = any ($1::text[])";
        let Some(answer) = look.ask("settings", sql, &[Some(&list)], MONITOR) else {
            return Self::default();
        };
        let settings =
            Self((0..answer.len()).filter_map(|row| Some((answer.text(row, 0)?, answer.text(row, 1)?))).collect());
        look.done("settings");
        settings
    }

    /// A value as text.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A number.
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        self.text(name)?.parse().ok()
    }

    /// Whether it is known and `on`.
    pub(super) fn is_on(&self, name: &str) -> bool {
        self.text(name) == Some("on")
    }

    /// Whether it is known and `off`.
    pub(super) fn is_off(&self, name: &str) -> bool {
        self.text(name) == Some("off")
    }

    /// `shared_buffers` in bytes; its base unit is a block of 8 KiB.
    pub(super) fn shared_buffers(&self) -> Option<f64> {
        self.number("shared_buffers").map(|blocks| blocks * 8192.0)
    }

    #[cfg(test)]
    pub(super) fn of(pairs: &[(&str, &str)]) -> Self {
        Self(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }
}
