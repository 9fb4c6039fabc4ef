//! What a server stores of a password: enough to check a proof, not enough to make one. Text form as in
//! `pg_authid.rolpassword` (PostgreSQL's `parse_scram_secret`, src/common/scram-common.c).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::attributes::number;
use super::digest::{KEY_LEN, Key};
use super::{Derivation, KeyParameters, ScramKeys};
use crate::{AuthError, Password};

const MALFORMED: AuthError = AuthError::Protocol("not a SCRAM-SHA-256 verifier");

/// `SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>`.
#[derive(Clone)]
pub struct Verifier {
    parameters: KeyParameters,
    stored_key: Key,
    server_key: Key,
}

impl Verifier {
    /// Makes the verifier of a password, as `ALTER ROLE ... PASSWORD` does. Blocks for the derivation.
    /// `salt` must be random: [`crate::SALT_LEN`] bytes are usual.
    ///
    /// # Errors
    /// [`AuthError::Protocol`] or [`AuthError::Unsupported`] for parameters out of range.
    pub fn from_password(password: &Password, salt: &[u8], iterations: u32) -> Result<Self, AuthError> {
        let parameters = KeyParameters::new(salt, iterations)?;
        let keys = Derivation::new(password.clone(), parameters.clone())?.run();
        Ok(Self::from_keys(&keys, parameters))
    }

    /// Makes the verifier that belongs to keys.
    #[must_use]
    pub fn from_keys(keys: &ScramKeys, parameters: KeyParameters) -> Self {
        Self { parameters, stored_key: keys.stored_key(), server_key: Zeroizing::new(*keys.server_key()) }
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// [`AuthError::Protocol`] for anything else. The message never repeats the text.
    pub fn parse(text: &[u8]) -> Result<Self, AuthError> {
        // Iterations, the longest salt and two keys fit easily; everything longer is something else.
        if text.len() > 2048 {
            return Err(MALFORMED);
        }
        let rest = text.strip_prefix(b"SCRAM-SHA-256$").ok_or(MALFORMED)?;
        let (parameters, keys) = split(rest, b'$')?;
        let (iterations, salt) = split(parameters, b':')?;
        let (stored_key, server_key) = split(keys, b':')?;
        let salt = STANDARD.decode(salt).map_err(|_| MALFORMED)?;
        let iterations = number(iterations).ok_or(MALFORMED)?;
        Ok(Self {
            parameters: KeyParameters::new(salt, iterations).map_err(|_| MALFORMED)?,
            stored_key: decode_key(stored_key)?,
            server_key: decode_key(server_key)?,
        })
    }

    /// The text form, wiped when dropped.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        // Room for everything, so that no half-written copy is left behind by growing.
        let mut text = Zeroizing::new(String::with_capacity(2048));
        text.push_str("SCRAM-SHA-256$");
        text.push_str(&self.parameters.iterations().to_string());
        text.push(':');
        STANDARD.encode_string(self.parameters.salt(), &mut text);
        text.push('$');
        STANDARD.encode_string(self.stored_key.as_slice(), &mut text);
        text.push(':');
        STANDARD.encode_string(self.server_key.as_slice(), &mut text);
        text
    }

    /// Salt and iterations.
    #[must_use]
    pub fn parameters(&self) -> &KeyParameters {
        &self.parameters
    }

    /// The keys are those of this verifier. Constant time.
    #[must_use]
    pub fn accepts(&self, keys: &ScramKeys) -> bool {
        bool::from(keys.stored_key().ct_eq(&*self.stored_key) & keys.server_key().ct_eq(&*self.server_key))
    }

    pub(super) fn stored_key(&self) -> &[u8; KEY_LEN] {
        &self.stored_key
    }

    pub(super) fn server_key(&self) -> &[u8; KEY_LEN] {
        &self.server_key
    }
}

impl PartialEq for Verifier {
    fn eq(&self, other: &Self) -> bool {
        self.parameters == other.parameters
            && bool::from(self.stored_key.ct_eq(&*other.stored_key) & self.server_key.ct_eq(&*other.server_key))
    }
}

impl Eq for Verifier {}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("parameters", &self.parameters).finish_non_exhaustive()
    }
}

/// Both sides of the first `separator`.
fn split(text: &[u8], separator: u8) -> Result<(&[u8], &[u8]), AuthError> {
    let mut halves = text.splitn(2, |byte| *byte == separator);
    match (halves.next(), halves.next()) {
        (Some(left), Some(right)) => Ok((left, right)),
        _ => Err(MALFORMED),
    }
}

fn decode_key(text: &[u8]) -> Result<Key, AuthError> {
    let bytes = Zeroizing::new(STANDARD.decode(text).map_err(|_| MALFORMED)?);
    let key = <[u8; KEY_LEN]>::try_from(bytes.as_slice()).map_err(|_| MALFORMED)?;
    Ok(Zeroizing::new(key))
}
