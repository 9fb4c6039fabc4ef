//! How long it takes to connect many clients, and how that grows with their number: direct and through the manager, in
//! alternating rounds.
//!
//! Three things are kept apart that other tools mix: how many clients there are, how many of them are connecting at the
//! same time ([`Pace`]), and how many threads drive them. A connection is over when its ReadyForQuery has come; the time
//! of a round, T(N), ends with the last one. Nothing is disconnected before that, and the next round begins when the
//! server is empty again. Rounds are numbered and the first one is kept apart, because PostgreSQL's shared memory
//! remembers in which order the clients of the last round went away.
//!
//! The engine is event-driven (mio) and drives `LoginMachine`s, so that a few threads hold as many connections as the
//! process may open files. Not here: the statistics (`stats::Growth`), and statements beyond one per connection.

mod charts;
mod clients;
mod csv;
mod disconnect;
mod engine;
mod growth;
mod host;
mod limits;
mod meters;
mod model;
mod pace;
mod rounds;
mod server;
mod session;
mod show;
mod source;
mod tables;
mod worker;

pub use clients::ClientList;
pub use host::memory_available;
pub use limits::{FileLimit, SPARE_FILES, raise_file_limit};
pub use model::{
    Cell, Completion, DisconnectOrder, Facts, Lateness, Round, RoundKind, ServerCost, Settings, SideGrowth, Spread,
    Storm,
};
pub use pace::Pace;
pub use rounds::{Error, Options, run};

#[cfg(test)]
pub(crate) mod tests;
