//! Makes each connection one of those that find no `pg_internal.init`, the files in which a server keeps the descriptions
//! of its catalogs for new backends. Without them a backend gathers these itself and writes the files anew.
//!
//! In the field this happens to the first login after a restart and, more often, after an autovacuum of a catalog. Here
//! the smallest catalog index is built anew, which takes a millisecond and changes nothing.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::server_view::control::Control;

/// What to provoke before each connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Provocation {
    /// That both `pg_internal.init` are missing.
    RelcacheInit,
}

/// What was provoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Provoked {
    /// What.
    pub what: Provocation,
    /// Before how many connections.
    pub times: u32,
    /// How often the files were seen to be gone.
    pub verified: u32,
    /// How often they were there again before the connection was made.
    pub present: u32,
    /// How often it failed.
    pub failed: u32,
}

impl fmt::Display for Provoked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pg_internal.init removed before {} connections, ", self.times)?;
        match (self.verified, self.present) {
            (0, 0) => f.write_str("not verified (the role may not use pg_stat_file)")?,
            (gone, 0) => write!(f, "seen to be gone {gone} times")?,
            (gone, back) => write!(f, "seen to be gone {gone} times, there again {back} times")?,
        }
        if self.failed > 0 {
            write!(f, "; failed {} times", self.failed)?;
        }
        Ok(())
    }
}

/// Provokes.
pub struct Provoker {
    control: Control,
    done: Provoked,
}

const REINDEX: &str = "REINDEX INDEX pg_catalog.pg_am_oid_index";

/// Whether neither file is there.
const GONE: &str = "SELECT pg_stat_file('global/pg_internal.init', true) IS NULL AND \
    pg_stat_file('base/' || (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()) || \
    '/pg_internal.init', true) IS NULL";

impl Provoker {
    /// Makes sure that it can be done, by doing it.
    ///
    /// # Errors
    /// The server's refusal, with what is needed.
    pub fn new(what: Provocation, mut control: Control) -> Result<Self, String> {
        control.rows(REINDEX, &[]).map_err(|error| match error.sqlstate() {
            Some("42501") => format!(
                "{error}; --provoke relcache-init builds an index of a catalog anew, so the role must be a superuser (from \
                 PostgreSQL 17 on MAINTAIN on pg_am is enough)"
            ),
            Some("25006") => format!("{error}; --provoke cannot be used on a standby"),
            _ => error.to_string(),
        })?;
        Ok(Provoker { control, done: Provoked { what, times: 0, verified: 0, present: 0, failed: 0 } })
    }

    /// Does it.
    pub fn provoke(&mut self) {
        if self.control.rows(REINDEX, &[]).is_err() {
            self.done.failed += 1;
            return;
        }
        self.done.times += 1;
        match self.control.value(GONE) {
            Ok(Some(gone)) if gone == "t" => self.done.verified += 1,
            Ok(_) => self.done.present += 1,
            Err(_) => {}
        }
    }

    /// What was done until now.
    #[must_use]
    pub fn done(&self) -> Provoked {
        self.done
    }
}
