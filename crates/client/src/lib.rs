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

mod attempt;
mod cancel;
mod channel;
mod config;
mod connection;
mod connector;
pub mod conninfo;
mod error;
mod login;
mod machine;
mod phase;
mod plan;
mod prepare;
mod reply;
mod secret;
mod socket;
pub mod tls;
mod x509;

pub use attempt::{Attempt, AttemptError, Attempts, Encryption};
pub use cancel::CancelToken;
pub use channel::TlsInfo;
pub use config::{
    AuthMethod, AuthMethods, ChannelBinding, Config, GssEncMode, Host, LoadBalanceHosts, Place, RootCert, SslCertMode,
    SslMode, SslNegotiation, TargetSessionAttrs, TcpOptions, TlsOptions, TlsVersion,
};
pub use connection::Connection;
pub use connector::Connector;
pub use error::{Error, ErrorKind, Result, ServerError};
pub use machine::LoginMachine;
pub use pgusher_wire::TxStatus;
pub use phase::{Phase, Phases};
pub use reply::{Reply, Rows};
pub use secret::Secret;
pub use socket::Destination;
