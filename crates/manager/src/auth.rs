//! How a client has to prove its identity, and how we prove ours to a server in its name.

use pgusher_auth::{KeyParameters, Password, ScramKeys, StoredSecret, Verifier, md5::Md5Hash};
use pgusher_wire::{Report, sqlstate};

/// How a client has to prove its identity.
#[derive(Debug, Clone)]
pub enum Facts {
    /// It need not.
    Trust,
    /// By SCRAM-SHA-256 against this verifier. `login` is what we log in to the server with; without it, with the keys that
    /// the client's proof yields.
    Scram {
        /// What the proof is checked against.
        verifier: Verifier,
        /// What we log in to the server with.
        login: Option<Login>,
    },
    /// As SCRAM, for a user that does not exist: fails at the end.
    Nobody,
    /// By an md5 hash.
    Md5(Md5Hash),
    /// By its password in clear text, which is checked against this secret.
    Plain(StoredSecret),
    /// By its password in clear text, which the server then judges.
    AskServer,
    /// The server has accepted the password that was asked for.
    Accepted(Login),
    /// It is refused.
    Refuse(Report),
}

/// What we log in to a server with.
#[derive(Debug, Clone)]
pub enum Login {
    /// A password.
    Password(Password),
    /// SCRAM keys, and what they were made with.
    Keys {
        /// The keys.
        keys: ScramKeys,
        /// Salt and iterations.
        made_with: KeyParameters,
    },
    /// An md5 hash as in pg_authid.
    Md5(Md5Hash),
}

/// Does a login to a server that ended with this SQLSTATE speak against the server, and not against the user? Another server
/// may do better then.
pub fn speaks_against_server(state: &str) -> bool {
    state.starts_with("57P") || (state.starts_with("08") && state != sqlstate::PROTOCOL_VIOLATION)
}
