//! The server role of SCRAM: checks a client's proof against a stored verifier, and gets the client's
//! key out of it, with which we can log in to a server as this client. Follows PostgreSQL's
//! src/backend/libpq/auth-scram.c.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use subtle::{Choice, ConstantTimeEq};

use super::attributes::{Attributes, nonce};
use super::digest::{KEY_LEN, hmac, sha256, xor};
use super::{ChannelBinding, KeyParameters, Mechanism, MockSecret, ScramKeys, Verifier};
use crate::{AuthError, CertificateHash, RAW_NONCE_LEN};

/// One login in the server role: [`on_client_first`](Self::on_client_first), then
/// [`on_client_final`](Self::on_client_final). After an error the exchange is over.
pub struct ServerExchange {
    verifier: Verifier,
    /// The verifier is invented: every proof is wrong.
    doomed: bool,
    /// Our certificate's hash, when SCRAM-SHA-256-PLUS was offered.
    offered: Option<CertificateHash>,
    nonce: String,
    state: State,
}

enum State {
    First,
    Final {
        /// client-first-bare and server-first, each with the comma that follows it.
        signed: Vec<u8>,
        full_nonce: String,
        binding: ChannelBinding,
    },
    Over,
}

/// A client that has proved itself.
pub struct Accepted {
    /// server-final: the data of AuthenticationSASLFinal, to be sent before AuthenticationOk.
    pub server_final: Vec<u8>,
    /// The client's keys, recovered from its proof.
    pub keys: ScramKeys,
    /// What the keys were made with.
    pub parameters: KeyParameters,
    /// The login is bound to the TLS channel.
    pub channel_bound: bool,
}

impl ServerExchange {
    /// Checks a client against `verifier`. `offered` is the hash of our certificate exactly when the
    /// client was offered SCRAM-SHA-256-PLUS. `raw_nonce` must be fresh random bytes for every login.
    #[must_use]
    pub fn new(verifier: Verifier, offered: Option<CertificateHash>, raw_nonce: &[u8; RAW_NONCE_LEN]) -> Self {
        Self::with_text_nonce(verifier, false, offered, STANDARD.encode(raw_nonce))
    }

    /// For a user that does not exist or has no verifier: the same messages and the same work, with a
    /// salt that stays the same for this name, and a wrong password at the end. `iterations` should be
    /// what the other users have.
    ///
    /// # Errors
    /// [`AuthError::Protocol`] for an iteration count out of range.
    pub fn mock(
        secret: &MockSecret,
        user: &[u8],
        iterations: u32,
        offered: Option<CertificateHash>,
        raw_nonce: &[u8; RAW_NONCE_LEN],
    ) -> Result<Self, AuthError> {
        let verifier = secret.verifier(user, iterations)?;
        let nonce = STANDARD.encode(raw_nonce);
        Ok(Self::with_text_nonce(verifier, true, offered, nonce))
    }

    /// Also for the published test vectors, whose nonces are not base64.
    pub(super) fn with_text_nonce(
        verifier: Verifier,
        doomed: bool,
        offered: Option<CertificateHash>,
        nonce: String,
    ) -> Self {
        Self { verifier, doomed, offered, nonce, state: State::First }
    }

    /// Takes client-first and gives server-first, the data of AuthenticationSASLContinue. A client may
    /// leave the data out of its SASLInitialResponse (length -1): send it an empty
    /// AuthenticationSASLContinue and call this with what it answers.
    ///
    /// # Errors
    /// [`AuthError::Protocol`]; [`AuthError::Unsupported`] for an authorization identity, a mandatory
    /// extension or another kind of channel binding; [`AuthError::ChannelBinding`] when the client
    /// believes that we did not offer to bind although we did; [`AuthError::OutOfTurn`].
    pub fn on_client_first(&mut self, mechanism: Mechanism, body: &[u8]) -> Result<Vec<u8>, AuthError> {
        if !matches!(std::mem::replace(&mut self.state, State::Over), State::First) {
            return Err(AuthError::OutOfTurn { got: "client-first" });
        }
        let (binding, bare) = self.gs2_header(mechanism, body)?;
        let mut attributes = Attributes::new(bare)?;
        // The name is ignored: the startup packet named the user, and libpq leaves it empty.
        attributes.expect(b'n', "client-first has no user name")?;
        let client_nonce = nonce(attributes.expect(b'r', "client-first has no nonce")?)?;
        attributes.skip_extensions()?;

        let full_nonce = format!("{client_nonce}{}", self.nonce);
        let parameters = self.verifier.parameters();
        let server_first =
            format!("r={full_nonce},s={},i={}", STANDARD.encode(parameters.salt()), parameters.iterations());
        self.state = State::Final { signed: [bare, b",", server_first.as_bytes(), b","].concat(), full_nonce, binding };
        Ok(server_first.into_bytes())
    }

    /// Reads the gs2 header (RFC 5802, 7) and gives what follows it.
    fn gs2_header<'a>(&self, mechanism: Mechanism, body: &'a [u8]) -> Result<(ChannelBinding, &'a [u8]), AuthError> {
        let comma = body
            .iter()
            .take(64)
            .position(|b| *b == b',')
            .ok_or(AuthError::Protocol("client-first has no gs2 header"))?;
        let (flag, rest) = body.split_at_checked(comma).unwrap_or_default();
        let binding = match (flag, mechanism, &self.offered) {
            (_, Mechanism::ScramSha256Plus, None) => {
                return Err(AuthError::Protocol("the client selected SCRAM-SHA-256-PLUS, which was not offered"));
            }
            (b"n" | b"y", Mechanism::ScramSha256Plus, Some(_)) => {
                return Err(AuthError::Protocol(
                    "the client selected SCRAM-SHA-256-PLUS but does not bind to the channel",
                ));
            }
            (b"n", Mechanism::ScramSha256, _) => ChannelBinding::None,
            (b"y", Mechanism::ScramSha256, None) => ChannelBinding::NotOffered,
            (b"y", Mechanism::ScramSha256, Some(_)) => {
                return Err(AuthError::ChannelBinding(
                    "the client supports it and was told that we do not, although we offered it",
                ));
            }
            ([b'p', b'=', ..], Mechanism::ScramSha256, _) => {
                return Err(AuthError::Protocol(
                    "the client binds to the channel but did not select SCRAM-SHA-256-PLUS",
                ));
            }
            (b"p=tls-server-end-point", Mechanism::ScramSha256Plus, Some(hash)) => {
                ChannelBinding::EndPoint(hash.clone())
            }
            ([b'p', b'=', ..], Mechanism::ScramSha256Plus, Some(_)) => {
                return Err(AuthError::Unsupported("a channel binding other than tls-server-end-point"));
            }
            _ => return Err(AuthError::Protocol("unknown channel binding flag")),
        };
        match rest {
            [b',', b',', bare @ ..] => Ok((binding, bare)),
            [b',', b'a', b'=', ..] => Err(AuthError::Unsupported("a SCRAM authorization identity other than the user")),
            _ => Err(AuthError::Protocol("client-first has no gs2 header")),
        }
    }

    /// Takes client-final and checks its proof in constant time.
    ///
    /// # Errors
    /// [`AuthError::WrongPassword`]; [`AuthError::ChannelBinding`] when the client saw another
    /// certificate than ours; [`AuthError::Protocol`]; [`AuthError::OutOfTurn`].
    pub fn on_client_final(&mut self, body: &[u8]) -> Result<Accepted, AuthError> {
        let State::Final { mut signed, full_nonce, binding } = std::mem::replace(&mut self.state, State::Over) else {
            return Err(AuthError::OutOfTurn { got: "client-final" });
        };
        let mut attributes = Attributes::new(body)?;
        let header = attributes.expect(b'c', "client-final has no channel binding")?;
        let client_nonce = attributes.expect(b'r', "client-final has no nonce")?;
        let (without_proof, proof) = loop {
            let before = attributes.before();
            match attributes.next()? {
                Some((b'p', proof)) => break (before, proof),
                Some((b'm', _)) => {
                    return Err(AuthError::Unsupported("a mandatory SCRAM extension"));
                }
                Some(_) => {}
                None => return Err(AuthError::Protocol("client-final has no proof")),
            }
        };
        if attributes.next()?.is_some() {
            return Err(AuthError::Protocol("client-final goes on after its proof"));
        }
        let proof = decode_key(proof)?;

        if header != binding.attribute().as_bytes() {
            return Err(match binding {
                ChannelBinding::EndPoint(_) => {
                    AuthError::ChannelBinding("the client sees another certificate than ours")
                }
                ChannelBinding::None | ChannelBinding::NotOffered => {
                    AuthError::Protocol("client-final repeats another gs2 header")
                }
            });
        }
        if client_nonce != full_nonce.as_bytes() {
            return Err(AuthError::Protocol("client-final repeats another nonce"));
        }

        signed.extend_from_slice(without_proof);
        let client_signature = hmac(self.verifier.stored_key(), &[&signed]);
        let client_key = xor(&proof, &client_signature);
        let server_signature = hmac(self.verifier.server_key(), &[&signed]);
        let proven = sha256(&*client_key).ct_eq(self.verifier.stored_key()) & !Choice::from(u8::from(self.doomed));
        if !bool::from(proven) {
            return Err(AuthError::WrongPassword);
        }
        Ok(Accepted {
            server_final: format!("v={}", STANDARD.encode(server_signature.as_slice())).into_bytes(),
            keys: ScramKeys::new(*client_key, *self.verifier.server_key()),
            parameters: self.verifier.parameters().clone(),
            channel_bound: matches!(binding, ChannelBinding::EndPoint(_)),
        })
    }
}

impl fmt::Debug for ServerExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither the verifier nor whether it is invented: who reads the log should not learn which
        // users exist.
        f.debug_struct("ServerExchange")
            .field("offers_plus", &self.offered.is_some())
            .field(
                "state",
                &match self.state {
                    State::First => "waits for client-first",
                    State::Final { .. } => "waits for client-final",
                    State::Over => "over",
                },
            )
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accepted").field("channel_bound", &self.channel_bound).finish_non_exhaustive()
    }
}

/// A proof: exactly one key's length in base64.
fn decode_key(value: &[u8]) -> Result<[u8; KEY_LEN], AuthError> {
    STANDARD
        .decode(value)
        .ok()
        .and_then(|bytes| <[u8; KEY_LEN]>::try_from(bytes).ok())
        .ok_or(AuthError::Protocol("SCRAM proof is malformed"))
}
