//! The client role of SCRAM: proves that we know a user's password, or hold the keys made from it, and
//! checks that the server knows the user's verifier. Messages as libpq's fe-auth-scram.c writes them.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;

use super::attributes::{Attributes, nonce, number};
use super::digest::{Key, hmac, xor};
use super::{ChannelBinding, Derivation, KeyParameters, MAX_ITERATIONS, Mechanism, ScramKeys};
use crate::{AuthError, Password, RAW_NONCE_LEN};

/// What a client proves itself with.
#[derive(Clone, Debug)]
pub enum Credential {
    /// A password, hashed once the server has named salt and iterations.
    Password(Password),
    /// Ready-made keys: recovered from a client's login ([`super::Accepted`]) or derived before.
    Keys {
        /// The keys.
        keys: ScramKeys,
        /// What they were made with, if known. The exchange then fails with
        /// [`AuthError::KeysDoNotFit`] instead of a wrong proof when the server's differ.
        made_with: Option<KeyParameters>,
    },
}

/// What to do after the server's first message.
pub enum Step {
    /// Send this client-final message in a SASLResponse.
    Send(Vec<u8>),
    /// Get the keys, by running the derivation or from a cache, and pass them to
    /// [`ClientExchange::on_keys`].
    Derive(Derivation),
}

/// One login in the client role. The calls in order: [`first_message`](Self::first_message),
/// [`on_server_first`](Self::on_server_first), perhaps [`on_keys`](Self::on_keys),
/// [`on_server_final`](Self::on_server_final). After an error the exchange is over.
pub struct ClientExchange {
    binding: ChannelBinding,
    nonce: String,
    /// client-first without its gs2 header.
    first_bare: String,
    state: State,
}

enum State {
    /// Waits for server-first.
    First(Credential),
    /// Waits for keys; holds `client-first-bare,server-first,client-final-without-proof` and the
    /// length of the first two with their commas.
    Keys { auth_message: String, signed_from: usize },
    /// Waits for server-final with this signature.
    Final { server_signature: Key },
    /// The server has proved itself.
    Done,
    /// An error happened.
    Failed,
}

impl ClientExchange {
    /// Begins a login. `raw_nonce` must be fresh random bytes for every login.
    #[must_use]
    pub fn new(credential: Credential, binding: ChannelBinding, raw_nonce: &[u8; RAW_NONCE_LEN]) -> Self {
        // The user name is empty: PostgreSQL takes the one of the startup packet.
        Self::with_texts(credential, binding, STANDARD.encode(raw_nonce), "")
    }

    /// Also for the published test vectors, whose nonces are not base64.
    pub(super) fn with_texts(credential: Credential, binding: ChannelBinding, nonce: String, user: &str) -> Self {
        let first_bare = format!("n={user},r={nonce}");
        Self { binding, nonce, first_bare, state: State::First(credential) }
    }

    /// The mechanism to name in SASLInitialResponse.
    #[must_use]
    pub fn mechanism(&self) -> Mechanism {
        self.binding.mechanism()
    }

    /// client-first: the data of SASLInitialResponse.
    #[must_use]
    pub fn first_message(&self) -> Vec<u8> {
        [self.binding.gs2_header(), &self.first_bare].concat().into_bytes()
    }

    /// Takes server-first, the data of AuthenticationSASLContinue.
    ///
    /// # Errors
    /// [`AuthError::Protocol`] for a malformed message, a nonce that does not continue ours, no or more
    /// than [`MAX_ITERATIONS`] iterations, a salt that is empty or too long;
    /// [`AuthError::KeysDoNotFit`]; [`AuthError::OutOfTurn`].
    pub fn on_server_first(&mut self, body: &[u8]) -> Result<Step, AuthError> {
        let State::First(credential) = std::mem::replace(&mut self.state, State::Failed) else {
            return Err(AuthError::OutOfTurn { got: "server-first" });
        };
        let (full_nonce, parameters) = self.parse_server_first(body)?;
        // All bytes were checked as attributes; extensions may still hold UTF-8, and only that.
        let server_first = std::str::from_utf8(body).map_err(|_| AuthError::Protocol("server-first is not UTF-8"))?;

        let mut auth_message = format!("{},{server_first},", self.first_bare);
        let signed_from = auth_message.len();
        auth_message.push_str("c=");
        auth_message.push_str(&self.binding.attribute());
        auth_message.push_str(",r=");
        auth_message.push_str(full_nonce);
        self.state = State::Keys { auth_message, signed_from };

        match credential {
            Credential::Password(password) => Derivation::new(password, parameters).map(Step::Derive),
            Credential::Keys { keys, made_with } => {
                if made_with.is_some_and(|made_with| made_with != parameters) {
                    self.state = State::Failed;
                    return Err(AuthError::KeysDoNotFit);
                }
                self.on_keys(&keys).map(Step::Send)
            }
        }
    }

    /// The nonce of both sides, and what to hash a password with.
    fn parse_server_first<'a>(&self, body: &'a [u8]) -> Result<(&'a str, KeyParameters), AuthError> {
        let mut attributes = Attributes::new(body)?;
        let full_nonce = nonce(attributes.expect(b'r', "server-first has no nonce")?)?;
        let fresh = full_nonce.strip_prefix(self.nonce.as_str());
        if fresh.is_none_or(str::is_empty) {
            return Err(AuthError::Protocol("the server's SCRAM nonce does not continue ours"));
        }
        let salt = attributes.expect(b's', "server-first has no salt")?;
        let salt = STANDARD.decode(salt).map_err(|_| AuthError::Protocol("SCRAM salt is not base64"))?;
        let iterations = attributes.expect(b'i', "server-first has no iteration count")?;
        let iterations = number(iterations)
            .filter(|count| (1..=MAX_ITERATIONS).contains(count))
            .ok_or(AuthError::Protocol("SCRAM iteration count is not between 1 and 10,000,000"))?;
        attributes.skip_extensions()?;
        Ok((full_nonce, KeyParameters::new(salt, iterations)?))
    }

    /// Takes the keys that [`Step::Derive`] asked for and gives client-final, to be sent in a
    /// SASLResponse.
    ///
    /// # Errors
    /// [`AuthError::OutOfTurn`].
    pub fn on_keys(&mut self, keys: &ScramKeys) -> Result<Vec<u8>, AuthError> {
        let (auth_message, signed_from) = match std::mem::replace(&mut self.state, State::Failed) {
            State::Keys { auth_message, signed_from } => (auth_message, signed_from),
            State::First(_) | State::Final { .. } | State::Done | State::Failed => {
                return Err(AuthError::OutOfTurn { got: "keys" });
            }
        };
        let signature = hmac(&keys.stored_key(), &[auth_message.as_bytes()]);
        let proof = xor(keys.client_key(), &signature);
        let server_signature = hmac(keys.server_key(), &[auth_message.as_bytes()]);
        let mut message = auth_message.get(signed_from..).unwrap_or_default().to_owned();
        message.push_str(",p=");
        STANDARD.encode_string(proof.as_slice(), &mut message);
        self.state = State::Final { server_signature };
        Ok(message.into_bytes())
    }

    /// [`on_server_first`](Self::on_server_first) with the derivation done in place: blocks for
    /// milliseconds, or for as long as the server's iteration count takes.
    ///
    /// # Errors
    /// As [`on_server_first`](Self::on_server_first).
    pub fn respond(&mut self, server_first: &[u8]) -> Result<Vec<u8>, AuthError> {
        match self.on_server_first(server_first)? {
            Step::Send(message) => Ok(message),
            Step::Derive(derivation) => self.on_keys(&derivation.run()),
        }
    }

    /// Takes server-final, the data of AuthenticationSASLFinal. `Ok` means that the server has proved
    /// to know the verifier; AuthenticationOk must not be believed before.
    ///
    /// # Errors
    /// [`AuthError::ServerNotAuthentic`] for a wrong signature; [`AuthError::WrongPassword`] or
    /// [`AuthError::Refused`] for an `e=` attribute; [`AuthError::Protocol`];
    /// [`AuthError::OutOfTurn`].
    pub fn on_server_final(&mut self, body: &[u8]) -> Result<(), AuthError> {
        let State::Final { server_signature } = std::mem::replace(&mut self.state, State::Failed) else {
            return Err(AuthError::OutOfTurn { got: "server-final" });
        };
        let mut attributes = Attributes::new(body)?;
        match attributes.next()? {
            Some((b'v', value)) => {
                attributes.skip_extensions()?;
                let signature =
                    STANDARD.decode(value).map_err(|_| AuthError::Protocol("the server's signature is not base64"))?;
                if bool::from(signature.as_slice().ct_eq(server_signature.as_slice())) {
                    self.state = State::Done;
                    Ok(())
                } else {
                    Err(AuthError::ServerNotAuthentic)
                }
            }
            Some((b'e', b"invalid-proof")) => Err(AuthError::WrongPassword),
            Some((b'e', error)) => Err(AuthError::Refused(printable(error))),
            Some(_) | None => Err(AuthError::Protocol("server-final has no signature")),
        }
    }

    /// The server has proved itself. When AuthenticationOk comes and this is false, the server skipped
    /// its proof and the login must be given up.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// The server has proved itself and the login is bound to the TLS channel: what
    /// `channel_binding=require` demands before AuthenticationOk is accepted.
    #[must_use]
    pub fn is_channel_bound(&self) -> bool {
        self.is_done() && matches!(self.binding, ChannelBinding::EndPoint(_))
    }
}

// A proof or signature lets whoever reads it test guesses of the password, so neither is printed.

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send(_) => "Send(<redacted>)",
            Self::Derive(_) => "Derive(<redacted>)",
        })
    }
}

impl fmt::Debug for ClientExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::First(_) => "waits for server-first",
            State::Keys { .. } => "waits for keys",
            State::Final { .. } => "waits for server-final",
            State::Done => "done",
            State::Failed => "failed",
        };
        f.debug_struct("ClientExchange")
            .field("mechanism", &self.mechanism())
            .field("state", &state)
            .finish_non_exhaustive()
    }
}

/// An error name of the server made safe for a message: at most 64 printable ASCII characters.
fn printable(bytes: &[u8]) -> String {
    bytes
        .iter()
        .take(64)
        .map(|byte| match byte {
            b' '..=b'~' => char::from(*byte),
            _ => '?',
        })
        .collect()
}
