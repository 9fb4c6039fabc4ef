//! What a connection for each transaction costs: static connections against reconnecting, direct and through the
//! manager, in alternating rounds.
//!
//! The load is a closed loop: each client sends its next transaction when the last one has ended, so a server that
//! stalls is also asked less (coordinated omission). Every client has an operating system thread of its own; what
//! one client waits for never stops the clock of another, as it does in `pgbench -C` with fewer threads than
//! clients.
//!
//! Not here: growth with the number of clients, and open-loop load at a given rate.

mod csv;
mod load;
mod model;
mod rounds;
mod session;
mod tables;
mod text;

pub use csv::csv;
pub use load::Limit;
pub use model::{Cell, FirstConnection, Mode, ModeRatio, Protocol, Reconnect, Round, Settings};
pub use rounds::{Error, Options, run};
pub use tables::{accounts_exist, initialize, scale_of};
pub use text::text;

#[cfg(test)]
pub(crate) mod tests;
