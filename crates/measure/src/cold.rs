//! What the first connection costs after the server has forgotten what connections need, and what the first query of
//! a connection costs: connections one after the other after a restart, or after PostgreSQL's relation cache init files
//! were removed without one.
//!
//! PostgreSQL keeps the descriptors of its own catalogs in two files `pg_internal.init`, one shared and one for each
//! database. A backend that starts without them reads the catalogs and writes them anew. Each start of the server
//! removes them, and so does every change of a catalog that is in them (VACUUM of `pg_class` and others, so autovacuum
//! as well). What a user's own tables need is in no file: each backend reads it when a statement first touches them.
//! So there are two axes: how many tables there are, and how many the first query touches.
//!
//! Not here: many connections at the same time, and what a connection for each transaction costs under load.

mod charts;
mod exhibits;
mod files;
mod findings;
mod model;
mod options;
mod per_table;
mod rounds;
mod series;

pub use files::InitFiles;
pub use model::{Cell, Cold, Connecting, Event, Kept, Positions, Round, Sample, Settings};
pub use options::{Error, Options, Surroundings, Work};
pub use per_table::{PerTable, Run};
pub use rounds::run;

#[cfg(test)]
mod tests;
