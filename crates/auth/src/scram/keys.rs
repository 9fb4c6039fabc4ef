//! The keys of SCRAM and how they come from a password. A [`Derivation`] is the one expensive step of
//! the room, kept as a value so that it can travel to another thread.

use std::fmt;

use sha2::Sha256;
use zeroize::Zeroizing;

use super::digest::{KEY_LEN, Key, hmac, sha256};
use super::{MAX_ITERATIONS, MAX_SALT_LEN};
use crate::{AuthError, Password};

/// Salt and iteration count: what a password must be hashed with to give a user's keys.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct KeyParameters {
    salt: Vec<u8>,
    iterations: u32,
}

impl KeyParameters {
    /// Parameters with 1 to 1,024 bytes of salt and 1 to 2,147,483,647 iterations, which is what a
    /// PostgreSQL verifier can hold. Deriving has a lower limit: see [`Derivation::new`].
    ///
    /// # Errors
    /// [`AuthError::Protocol`] outside these bounds.
    pub fn new(salt: impl Into<Vec<u8>>, iterations: u32) -> Result<Self, AuthError> {
        let salt = salt.into();
        if salt.is_empty() || salt.len() > MAX_SALT_LEN {
            return Err(AuthError::Protocol("SCRAM salt is empty or too long"));
        }
        if iterations == 0 || i32::try_from(iterations).is_err() {
            return Err(AuthError::Protocol("SCRAM iteration count is out of range"));
        }
        Ok(Self { salt, iterations })
    }

    /// The salt, decoded.
    #[must_use]
    pub fn salt(&self) -> &[u8] {
        &self.salt
    }

    /// How many rounds of PBKDF2.
    #[must_use]
    pub fn iterations(&self) -> u32 {
        self.iterations
    }
}

impl fmt::Debug for KeyParameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The salt goes over the wire in clear, but nobody needs it in a log.
        f.debug_struct("KeyParameters")
            .field("salt_len", &self.salt.len())
            .field("iterations", &self.iterations)
            .finish()
    }
}

/// ClientKey and ServerKey of RFC 5802, 3: with them one logs in without the password, to every
/// server that stores the verifier with the same [`KeyParameters`].
#[derive(Clone)]
pub struct ScramKeys {
    client_key: Key,
    server_key: Key,
}

impl ScramKeys {
    /// Puts keys together that were recovered or derived elsewhere.
    #[must_use]
    pub fn new(client_key: [u8; KEY_LEN], server_key: [u8; KEY_LEN]) -> Self {
        Self { client_key: Zeroizing::new(client_key), server_key: Zeroizing::new(server_key) }
    }

    /// Proves the client to the server. As valuable as the password.
    #[must_use]
    pub fn client_key(&self) -> &[u8; KEY_LEN] {
        &self.client_key
    }

    /// Proves the server to the client.
    #[must_use]
    pub fn server_key(&self) -> &[u8; KEY_LEN] {
        &self.server_key
    }

    /// H(ClientKey), what a server stores.
    pub(crate) fn stored_key(&self) -> Key {
        sha256(&*self.client_key)
    }
}

impl fmt::Debug for ScramKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScramKeys(<redacted>)")
    }
}

/// The work of turning a password into [`ScramKeys`]: `iterations` rounds of PBKDF2, about a
/// millisecond for 4,096. Owned and `Send`, so it can be run where blocking does no harm.
#[derive(Clone, Debug)]
pub struct Derivation {
    password: Password,
    parameters: KeyParameters,
}

impl Derivation {
    /// Plans a derivation.
    ///
    /// # Errors
    /// [`AuthError::Unsupported`] for more than [`MAX_ITERATIONS`].
    pub fn new(password: Password, parameters: KeyParameters) -> Result<Self, AuthError> {
        if parameters.iterations() > MAX_ITERATIONS {
            return Err(AuthError::Unsupported("more than 10,000,000 SCRAM iterations"));
        }
        Ok(Self { password, parameters })
    }

    /// The password to be hashed.
    #[must_use]
    pub fn password(&self) -> &Password {
        &self.password
    }

    /// What it is hashed with.
    #[must_use]
    pub fn parameters(&self) -> &KeyParameters {
        &self.parameters
    }

    /// Does the work. Blocks for as long as the iterations take.
    #[must_use]
    pub fn run(&self) -> ScramKeys {
        let prepared = self.password.prepared();
        let mut salted: Key = Zeroizing::new([0u8; KEY_LEN]);
        pbkdf2::pbkdf2_hmac::<Sha256>(&prepared, self.parameters.salt(), self.parameters.iterations(), &mut *salted);
        ScramKeys { client_key: hmac(&salted, &[b"Client Key"]), server_key: hmac(&salted, &[b"Server Key"]) }
    }
}
