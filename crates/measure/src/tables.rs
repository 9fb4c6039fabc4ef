//! How the number of tables that clients use changes what a connection for each transaction costs, and what a proxy
//! gains or loses by it: a script of SELECTs over 1, 2, 4 ... empty tables, on any number of targets in alternating runs.
//!
//! Each backend keeps what it knows of a table in its private memory, so a new connection learns every table anew; a
//! proxy that asks the catalogs itself about each table of a statement does the same again, once per process or once
//! for all. So for each target there is the first transaction of a new connection apart from later ones, the throughput
//! under load, and the catalog queries that the server has seen for each statement of the clients.
//!
//! Not here: what many rows cost (the tables are empty), and growth with the number of clients.

mod catalog;
mod exhibits;
mod findings;
mod model;
mod rounds;

pub use model::{Alone, Catalog, Cell, Comparison, Round, Settings, Tables};
pub use rounds::{Error, Options, Renew, Subject, run};

#[cfg(test)]
mod tests;
