//! What a connection for each transaction costs: static connections against reconnecting, direct and through the
//! manager, in alternating rounds.
//!
//! The load is a closed loop, in which each client sends its next transaction when the last one has ended, so that a
//! server that stalls is also asked less (coordinated omission); or, with a given rate, an open one, in which times
//! count from the moment a transaction was meant to begin. Every client has an operating system thread of its own; what
//! one client waits for never stops the clock of another, as it does in `pgbench -C` with fewer threads than
//! clients.
//!
//! Not here: growth with the number of clients.

mod csv;
mod exhibits;
mod histograms;
pub(crate) mod load;
mod model;
mod rounds;
pub(crate) mod session;
mod tables;

pub use csv::csv;
pub use histograms::histograms;
pub use load::Limit;
pub use model::{Cell, FirstConnection, Histograms, Mode, ModeRatio, Protocol, Reconnect, Round, Settings};
pub use rounds::{Error, Options, run};
pub use tables::{accounts_exist, initialize, scale_of};

#[cfg(test)]
pub(crate) mod tests;
