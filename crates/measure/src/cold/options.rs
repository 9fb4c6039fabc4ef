//! What the experiment is asked to do, what it needs done besides SQL, and why there may be no result.

use std::time::Duration;

use pgusher_client::Connector;

use super::files;
use super::model::Event;

/// The schema in which tables are made.
pub(super) const SCHEMA: &str = "pgusher_cold";

/// What each connection asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// A statement as it is; nothing is made.
    Statement(String),
    /// Statements over empty tables that are made for it, in a schema of their own.
    Tables {
        /// How many tables a statement touches, one after the other.
        touched: Vec<u32>,
        /// How many tables there are besides, one after the other.
        objects: Vec<u32>,
        /// Whether all of them are dropped at the end.
        remove: bool,
    },
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Connections after each event.
    pub connections: u32,
    /// Rounds of each combination.
    pub rounds: u32,
    /// What happens before the first connection.
    pub events: Vec<Event>,
    /// What each connection asks.
    pub work: Work,
    /// Time between the event and the first connection.
    pub pause: Duration,
}

/// What the experiment cannot do by SQL.
pub trait Surroundings {
    /// Restarts PostgreSQL and returns when it accepts connections, or is about to.
    ///
    /// # Errors
    /// Why it was not possible, for people.
    fn restart(&mut self) -> Result<(), String>;

    /// Sees to it that the manager runs, or does not: one that goes on opens connections of its own after a restart, so a
    /// direct connection would not be the first. Returns the way to one that was started. `None` also where the manager
    /// is somebody else's.
    ///
    /// # Errors
    /// Why it was not possible, for people.
    fn manager(&mut self, runs: bool) -> Result<Option<Connector>, String>;
}

/// Why there is no result at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server cannot be asked.
    #[error(transparent)]
    Client(#[from] pgusher_client::Error),
    /// The init files cannot be removed.
    #[error(
        "the init files cannot be removed: {0}. The statement is `{statement}`; it needs a superuser on a primary server",
        statement = files::REMOVE
    )]
    Provoke(pgusher_client::Error),
    /// The tables cannot be made.
    #[error("the schema {SCHEMA} cannot be made: {0}. If it is left of an earlier run, drop it")]
    Schema(pgusher_client::Error),
    /// It ended before anything was measured.
    #[error("{0}")]
    Nothing(String),
}
