//! Keeps secret which users exist: whoever asks for an unknown user gets a believable salt, the same
//! one each time, and is refused only at the end. As PostgreSQL's `mock_scram_secret`.

use std::fmt;

use zeroize::Zeroizing;

use super::digest::{KEY_LEN, Key, hmac};
use super::{KeyParameters, ScramKeys, Verifier};
use crate::{AuthError, SALT_LEN};

/// Random bytes of this installation, from which invented salts are made. When several processes serve
/// the same users they should share it, or the salt of an unknown user differs between them.
#[derive(Clone)]
pub struct MockSecret(Key);

impl MockSecret {
    /// `random` must come from a cryptographically secure source.
    #[must_use]
    pub fn new(random: [u8; KEY_LEN]) -> Self {
        Self(Zeroizing::new(random))
    }

    /// Salt for this name: deterministic, and without the secret not to be told from a random one. Also
    /// right for users whose plain password is known and who need SCRAM parameters, because it lets a
    /// [`crate::DerivationCache`] answer from their second login on.
    ///
    /// # Errors
    /// [`AuthError::Protocol`] for an iteration count out of range.
    pub fn parameters(&self, user: &[u8], iterations: u32) -> Result<KeyParameters, AuthError> {
        let salt = hmac(&self.0, &[b"salt:", user]);
        KeyParameters::new(salt.get(..SALT_LEN).unwrap_or_default(), iterations)
    }

    /// A verifier that no password is known for.
    pub(super) fn verifier(&self, user: &[u8], iterations: u32) -> Result<Verifier, AuthError> {
        let keys = ScramKeys::new(*hmac(&self.0, &[b"client key:", user]), *hmac(&self.0, &[b"server key:", user]));
        Ok(Verifier::from_keys(&keys, self.parameters(user, iterations)?))
    }
}

impl fmt::Debug for MockSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MockSecret(<redacted>)")
    }
}
