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

#[cfg(test)]
mod tests {
    use super::{MockSecret, hmac};
    use crate::{AuthError, ChannelBinding, ClientExchange, Credential, ScramKeys, ServerExchange};

    /// Even who guesses the process's secret cannot log in as a user that does not exist.
    #[test]
    fn the_invented_keys_do_not_log_in() {
        let secret = MockSecret::new([7; 32]);
        let keys = ScramKeys::new(
            *hmac(&secret.0, &[b"client key:", b"alice"]),
            *hmac(&secret.0, &[b"server key:", b"alice"]),
        );
        let made_with = secret.parameters(b"alice", 64).expect("in range");
        let verifier = secret.verifier(b"alice", 64).expect("in range");
        assert!(verifier.accepts(&keys), "these are the invented keys");

        let login = |mut server: ServerExchange| {
            let credential = Credential::Keys { keys: keys.clone(), made_with: Some(made_with.clone()) };
            let mut client = ClientExchange::new(credential, ChannelBinding::None, &[1; 18]);
            let first = server.on_client_first(client.mechanism(), &client.first_message()).expect("well formed");
            let last = client.respond(&first).expect("the parameters fit");
            server.on_client_final(&last).err()
        };
        let mock = ServerExchange::mock(&secret, b"alice", 64, None, &[2; 18]).expect("in range");
        assert_eq!(login(mock), Some(AuthError::WrongPassword));
        // The same keys would do for a user that has this verifier.
        assert_eq!(login(ServerExchange::new(verifier, None, &[2; 18])), None);
    }
}
