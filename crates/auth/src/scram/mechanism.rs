//! Which SASL mechanism is used and how it is bound to the TLS channel: what a server offers, what a
//! client chooses from it, and the gs2 header that says so inside the signed messages.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::{AuthError, CertificateHash};

/// A SASL mechanism that PostgreSQL offers and this room speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// SCRAM-SHA-256, not bound to a channel.
    ScramSha256,
    /// SCRAM-SHA-256-PLUS, bound to the TLS channel.
    ScramSha256Plus,
}

impl Mechanism {
    /// The name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha256Plus => "SCRAM-SHA-256-PLUS",
        }
    }

    /// From the name in a SASLInitialResponse, without its NUL.
    ///
    /// # Errors
    /// [`AuthError::Protocol`] for any other name: a client may only choose what was offered.
    pub fn from_name(name: &[u8]) -> Result<Self, AuthError> {
        [Self::ScramSha256, Self::ScramSha256Plus]
            .into_iter()
            .find(|known| known.name().as_bytes() == name)
            .ok_or(AuthError::Protocol("the client selected a SASL mechanism that was not offered"))
    }
}

/// The mechanisms of an AuthenticationSASL message, as far as this room knows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OfferedMechanisms {
    /// SCRAM-SHA-256 is among them.
    pub scram: bool,
    /// SCRAM-SHA-256-PLUS is among them.
    pub scram_plus: bool,
}

impl OfferedMechanisms {
    /// From the names, without NULs; unknown ones are skipped.
    pub fn from_names<'a>(names: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut offered = Self::default();
        for name in names {
            match Mechanism::from_name(name) {
                Ok(Mechanism::ScramSha256) => offered.scram = true,
                Ok(Mechanism::ScramSha256Plus) => offered.scram_plus = true,
                Err(_) => {}
            }
        }
        offered
    }

    /// From the body of AuthenticationSASL after its `Int32(10)`: NUL-terminated names, ended by an
    /// empty one.
    #[must_use]
    pub fn parse(body: &[u8]) -> Self {
        Self::from_names(body.split(|b| *b == 0).take_while(|name| !name.is_empty()))
    }

    /// The body of AuthenticationSASL after its `Int32(10)` for our own server role. PLUS comes first,
    /// as in PostgreSQL, because the list is in order of preference.
    #[must_use]
    pub fn body(self) -> Vec<u8> {
        let mut body = Vec::new();
        for (offered, mechanism) in
            [(self.scram_plus, Mechanism::ScramSha256Plus), (self.scram, Mechanism::ScramSha256)]
        {
            if offered {
                body.extend_from_slice(mechanism.name().as_bytes());
                body.push(0);
            }
        }
        body.push(0);
        body
    }
}

/// libpq's `channel_binding` parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BindingPolicy {
    /// Never bind.
    Disable,
    /// Bind when the server offers it over TLS.
    #[default]
    Prefer,
    /// Fail rather than log in without.
    Require,
}

/// What carries the connection, seen by a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// No TLS.
    Plain,
    /// TLS. The hash of the server's certificate, or why there is none.
    Tls(Result<CertificateHash, AuthError>),
}

/// How a client binds its login to the TLS channel: the gs2 flag of RFC 5802, 6.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelBinding {
    /// `n`: the client cannot or will not bind.
    None,
    /// `y`: the client could bind, but the server did not offer it. A server that did offer it then
    /// knows that somebody removed the offer.
    NotOffered,
    /// `p=tls-server-end-point`.
    EndPoint(CertificateHash),
}

impl ChannelBinding {
    /// Chooses as libpq does (`pg_SASL_init` and `build_client_first_message` in its fe-auth.c and
    /// fe-auth-scram.c).
    ///
    /// # Errors
    /// [`AuthError::Unsupported`] when the server offers no SCRAM, or offers to bind but its
    /// certificate has no defined hash (Ed25519): logging in unbound would let somebody in the middle
    /// pick such a certificate to switch binding off. [`AuthError::ChannelBinding`] when binding is
    /// required but not possible, or offered without TLS.
    pub fn choose(offered: OfferedMechanisms, transport: Transport, policy: BindingPolicy) -> Result<Self, AuthError> {
        if offered.scram_plus && transport == Transport::Plain {
            return Err(AuthError::ChannelBinding("the server offered SCRAM-SHA-256-PLUS on a connection without TLS"));
        }
        let choice = match (transport, policy) {
            (Transport::Tls(hash), BindingPolicy::Prefer | BindingPolicy::Require) if offered.scram_plus => {
                Self::EndPoint(hash?)
            }
            (Transport::Tls(_), BindingPolicy::Prefer) => Self::NotOffered,
            (_, BindingPolicy::Require) => {
                return Err(AuthError::ChannelBinding("channel binding is required, but the server does not offer it"));
            }
            (Transport::Plain, BindingPolicy::Prefer) | (_, BindingPolicy::Disable) => Self::None,
        };
        match choice {
            Self::EndPoint(_) => Ok(choice),
            Self::None | Self::NotOffered if offered.scram => Ok(choice),
            Self::None | Self::NotOffered => {
                Err(AuthError::Unsupported("none of the server's SASL authentication mechanisms"))
            }
        }
    }

    /// The mechanism to name in SASLInitialResponse.
    #[must_use]
    pub fn mechanism(&self) -> Mechanism {
        match self {
            Self::None | Self::NotOffered => Mechanism::ScramSha256,
            Self::EndPoint(_) => Mechanism::ScramSha256Plus,
        }
    }

    /// The gs2 header, always without an authorization identity.
    pub(crate) fn gs2_header(&self) -> &'static str {
        match self {
            Self::None => "n,,",
            Self::NotOffered => "y,,",
            Self::EndPoint(_) => "p=tls-server-end-point,,",
        }
    }

    /// The value of the `c` attribute in client-final: base64 of header and binding data.
    pub(crate) fn attribute(&self) -> String {
        let mut input = self.gs2_header().as_bytes().to_vec();
        if let Self::EndPoint(hash) = self {
            input.extend_from_slice(hash.as_bytes());
        }
        STANDARD.encode(input)
    }
}
