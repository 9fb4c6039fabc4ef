//! Proves a client's identity to us, and ours to a server: SCRAM-SHA-256 (with and without channel
//! binding), md5 and plain passwords, in both roles.
//!
//! This room does no I/O. It opens no socket, reads no clock and draws no random number: nonces, salts
//! and keys are passed in, so that every exchange can be repeated under test. It knows the *bodies* of
//! the password and SASL messages, not their frames, and it decides nothing about who may connect from
//! where. PBKDF2 is the only slow step (milliseconds); it is always a separate [`Derivation`] that the
//! caller may run on another thread or look up in a [`DerivationCache`].
//!
//! Everything secret is wiped when dropped, prints as `<redacted>`, and is compared in constant time.

mod cache;
mod certificate;
mod error;
pub mod md5;
mod password;
pub mod scram;
mod stored;
mod users;

pub use cache::{CacheStats, DerivationCache};
pub use certificate::CertificateHash;
pub use error::AuthError;
pub use password::Password;
pub use scram::{
    Accepted, BindingPolicy, ChannelBinding, ClientExchange, Credential, Derivation, KeyParameters, Mechanism,
    MockSecret, OfferedMechanisms, ScramKeys, ServerExchange, Step, Transport, Verifier,
};
pub use stored::StoredSecret;
pub use users::{UserList, UserListError};

/// Raw random bytes behind a SCRAM nonce. PostgreSQL uses 18 (`SCRAM_RAW_NONCE_LEN`), 24 characters
/// of base64 on the wire. They must come from a cryptographically secure source.
pub const RAW_NONCE_LEN: usize = 18;

/// Bytes of salt for a new verifier, as PostgreSQL's `SCRAM_DEFAULT_SALT_LEN`.
pub const SALT_LEN: usize = 16;
