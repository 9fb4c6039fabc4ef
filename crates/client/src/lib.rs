//! A PostgreSQL client that connects as libpq does and times each phase.
//!
//! Blocking and without a runtime: what it measures is the server and the network, and what is its own work is
//! reported as such. Three steps:
//!
//! 1. [`Config`]: a connection string, completed from the service file, the environment and built-in defaults.
//! 2. [`Connector`]: everything that is not the server's, done before a clock starts (certificate authorities,
//!    password file).
//! 3. [`Connector::connect`]: one or more attempts, each with its phases, and a [`Connection`] whose statements come
//!    with their timings.
//!
//! It is no general database driver: values are text, rows are counted or returned as text.

pub mod conninfo;
mod config;
mod error;
mod phase;
mod secret;

pub use secret::Secret;
