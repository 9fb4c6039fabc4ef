//! A private PostgreSQL server for the demo, the tests and the benchmarks.
//!
//! [`Server::builder`] finds the server's programs on this machine, makes a cluster in a temporary folder, starts it on a
//! free port of 127.0.0.1 and on a Unix socket, and takes all of it away again: at drop, at the end of the program, after
//! Ctrl-C, and when the program is killed. [`clear_away`] does it at once.
//!
//! It is not a way to run a database that anybody needs tomorrow: nothing survives the program that started it, and by
//! default nothing is written durably.
//!
//! ```no_run
//! let server = pgusher_embedded::Server::builder()
//!     .setting("log_connections", "on")
//!     .start()?;
//! println!("{}", server.uri("postgres", "postgres"));
//! # Ok::<(), pgusher_embedded::Error>(())
//! ```

mod account;
mod binaries;
mod builder;
mod error;
mod guard;
mod home;
mod install;
mod port;
mod process;
mod server;

pub use account::{Account, server_account};
pub use binaries::{Binaries, Version};
pub use builder::{Auth, Builder};
pub use error::{Error, Result};
pub use home::clear_away;
pub use port::free_port;
pub use process::{Process, Signal};
pub use server::{Server, StopMode};
