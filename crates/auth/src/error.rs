//! What can go wrong in an authentication, sorted by what the reader of the message can do about it:
//! a wrong password, a peer that breaks the protocol, something this program does not speak, or a server
//! that is not who it claims to be. No variant ever holds a secret or unfiltered bytes of the peer.

/// Why an authentication did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The password, or the proof made from it, is wrong; also for users that do not exist.
    #[error("password authentication failed")]
    WrongPassword,

    /// The peer sent something that the protocol does not allow.
    #[error("malformed authentication message: {0}")]
    Protocol(&'static str),

    /// The peer asks for something that is valid but not available here.
    #[error("not supported: {0}")]
    Unsupported(&'static str),

    /// Channel binding failed: somebody may sit between client and server.
    #[error("channel binding failed: {0}")]
    ChannelBinding(&'static str),

    /// The server could not prove that it knows our password's verifier.
    #[error("the server's signature is wrong: it does not know this user's password verifier")]
    ServerNotAuthentic,

    /// The server ended the SCRAM exchange with an `e=` attribute (RFC 5802, 7).
    #[error("the server refused the SCRAM exchange: {0}")]
    Refused(String),

    /// Ready-made keys were made for another salt or iteration count than the server's.
    #[error(
        "the server stores another verifier for this user than the one the keys were made with \
         (salt or iterations differ); use the server's verifier or a password"
    )]
    KeysDoNotFit,

    /// A message came, or a method was called, at a point of the exchange where it has no place.
    #[error("authentication step out of turn: {got}")]
    OutOfTurn {
        /// What came.
        got: &'static str,
    },
}

impl AuthError {
    /// The five characters of the SQLSTATE that PostgreSQL uses for this case (its appendix A).
    #[must_use]
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Self::WrongPassword | Self::KeysDoNotFit => "28P01",
            Self::Protocol(_) | Self::OutOfTurn { .. } => "08P01",
            Self::Unsupported(_) => "0A000",
            Self::ChannelBinding(_) | Self::ServerNotAuthentic | Self::Refused(_) => "28000",
        }
    }
}
