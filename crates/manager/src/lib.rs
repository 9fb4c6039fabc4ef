//! The connection manager: many clients on few physical connections.
//!
//! [`Manager::start`] opens the listeners and starts the threads. Rooms:
//! * [`core`]: the state machine of one worker, without I/O. Read its contract first.
//! * [`worker`]: the thread that moves bytes between sockets and its core.
//! * [`control`]: everything that may block: key derivation, questions to the server about a user.
//! * [`tls`]: certificates and what is asked of them.
//! * [`config`]: what can be configured; [`shared`]: what the workers share; [`auth`]: how identities are proved;
//!   [`sequences`]: what a pool has learned of currval and lastval.

pub mod auth;
pub mod config;
pub mod control;
pub mod core;
mod database;
mod definitions;
mod manager;
pub mod sequences;
pub mod shared;
pub mod tls;
mod upstream;
pub mod worker;

pub use config::{AuthMethod, Config, ConfigError, Listen, Multiplex, Overrides, PoolMode};
pub use manager::{Manager, StartError};
