//! SCRAM-SHA-256 (RFC 5802, RFC 7677) as PostgreSQL speaks it: the user name inside the messages is
//! empty or ignored because the startup packet names the user, authorization identities are refused,
//! and the only channel binding is `tls-server-end-point` (RFC 5929).
//!
//! [`ClientExchange`] and [`ServerExchange`] are the two roles. Neither blocks: a client that knows only
//! a password gets a [`Derivation`] to run wherever it likes, and a server needs no derivation at all.

mod attributes;
mod client;
pub(crate) mod digest;
mod keys;
mod mechanism;
mod mock;
#[cfg(test)]
mod rfc7677;
mod server;
mod verifier;

pub use client::{ClientExchange, Credential, Step};
pub use keys::{Derivation, KeyParameters, ScramKeys};
pub use mechanism::{BindingPolicy, ChannelBinding, Mechanism, OfferedMechanisms, Transport};
pub use mock::MockSecret;
pub use server::{Accepted, ServerExchange};
pub use verifier::Verifier;

/// Iterations that a server may ask of us, and that a verifier may have for a password to be checked
/// against it. The default is 4,096; this many take seconds, more would let a hostile server keep a
/// thread busy for as long as it likes.
pub const MAX_ITERATIONS: u32 = 10_000_000;

/// PostgreSQL's default iteration count (`scram_iterations`).
pub const DEFAULT_ITERATIONS: u32 = 4096;

/// Longest salt, in bytes, that is accepted from a server or in a verifier. PostgreSQL makes 16.
pub const MAX_SALT_LEN: usize = 1024;

/// Longest SASL message, in bytes, that is looked at. PostgreSQL's server refuses more than 1,024;
/// this leaves room for the longest salt in base64.
pub const MAX_MESSAGE_LEN: usize = 4096;
