//! The values that options can have.

use crate::error::{Error, Result};

macro_rules! choices {
    ($(#[$doc:meta])* $type:ident $keyword:literal { $($(#[$vdoc:meta])* $variant:ident $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $type { $($(#[$vdoc])* $variant,)* }

        impl $type {
            /// As it is written in a connection string.
            pub fn name(self) -> &'static str {
                match self { $($type::$variant => $name,)* }
            }

            /// Reads the value of the keyword.
            pub(crate) fn parse(text: &str) -> Result<Self> {
                match text {
                    $($name => Ok($type::$variant),)*
                    _ => Err(Error::config(format!(
                        concat!("invalid ", $keyword, " value \"{}\"; possible are: {}"),
                        text,
                        [$($name),*].join(", "),
                    ))),
                }
            }
        }
    };
}

choices! {
    /// How much TLS; see the PostgreSQL documentation, "SSL Mode Descriptions".
    SslMode "sslmode" {
        /// Never.
        Disable "disable",
        /// Plain first, TLS if that fails.
        Allow "allow",
        /// TLS first, plain if that fails.
        Prefer "prefer",
        /// TLS, the certificate checked only if there is a root certificate file.
        Require "require",
        /// TLS with a trusted certificate.
        VerifyCa "verify-ca",
        /// TLS with a trusted certificate for this host name.
        VerifyFull "verify-full",
    }
}

impl SslMode {
    /// Whether a plain connection is out of the question.
    pub fn requires_tls(self) -> bool {
        matches!(self, SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull)
    }
}

choices! {
    /// How TLS begins.
    SslNegotiation "sslnegotiation" {
        /// With an SSLRequest.
        Postgres "postgres",
        /// At once, with ALPN (PostgreSQL 17 and later).
        Direct "direct",
    }
}

choices! {
    /// Whether a client certificate is sent.
    SslCertMode "sslcertmode" {
        /// Never.
        Disable "disable",
        /// If asked for and there is one.
        Allow "allow",
        /// The server must ask for it.
        Require "require",
    }
}

choices! {
    /// SCRAM channel binding.
    ChannelBinding "channel_binding" {
        /// Never.
        Disable "disable",
        /// If the server offers it.
        Prefer "prefer",
        /// Or no connection.
        Require "require",
    }
}

choices! {
    /// What kind of server is acceptable.
    TargetSessionAttrs "target_session_attrs" {
        /// Any.
        Any "any",
        /// Sessions accept writes.
        ReadWrite "read-write",
        /// Sessions do not accept writes.
        ReadOnly "read-only",
        /// Not in hot standby.
        Primary "primary",
        /// In hot standby.
        Standby "standby",
        /// A standby if there is one, else any.
        PreferStandby "prefer-standby",
    }
}

choices! {
    /// Order in which hosts are tried.
    LoadBalanceHosts "load_balance_hosts" {
        /// As written.
        Disable "disable",
        /// At random.
        Random "random",
    }
}

choices! {
    /// GSS encryption, which this client does not have.
    GssEncMode "gssencmode" {
        /// Never.
        Disable "disable",
        /// If there are credentials.
        Prefer "prefer",
        /// Or no connection.
        Require "require",
    }
}

choices! {
    /// An authentication method in require_auth.
    AuthMethod "require_auth" {
        /// Plain password.
        Password "password",
        /// md5.
        Md5 "md5",
        /// GSS.
        Gss "gss",
        /// SSPI.
        Sspi "sspi",
        /// SCRAM-SHA-256, with or without channel binding.
        ScramSha256 "scram-sha-256",
        /// OAuth.
        Oauth "oauth",
        /// No authentication at all.
        None "none",
    }
}

impl AuthMethod {
    fn bit(self) -> u8 {
        1 << (self as u8)
    }
}

/// The authentication methods that are acceptable (require_auth).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthMethods(u8);

impl Default for AuthMethods {
    /// All.
    fn default() -> Self {
        AuthMethods(u8::MAX)
    }
}

impl AuthMethods {
    /// Whether this one is acceptable.
    pub fn allows(self, method: AuthMethod) -> bool {
        self.0 & method.bit() != 0
    }

    /// Reads a list: either the acceptable ones, or, each with `!`, those that are not.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        if text.is_empty() {
            return Ok(AuthMethods::default());
        }
        let mut named = 0;
        let mut negated = None;
        for item in text.split(',').map(str::trim) {
            let (name, not) = match item.strip_prefix('!') {
                Some(name) => (name, true),
                None => (item, false),
            };
            if *negated.get_or_insert(not) != not {
                return Err(Error::config("require_auth cannot mix methods with and without \"!\""));
            }
            let method = AuthMethod::parse(name)?;
            if named & method.bit() != 0 {
                return Err(Error::config(format!("require_auth names \"{name}\" twice")));
            }
            named |= method.bit();
        }
        Ok(AuthMethods(if negated == Some(true) { !named } else { named }))
    }
}

/// A TLS version for ssl_min_protocol_version and ssl_max_protocol_version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.0, only as a lower bound.
    V1_0,
    /// TLS 1.1, only as a lower bound.
    V1_1,
    /// TLS 1.2.
    V1_2,
    /// TLS 1.3.
    V1_3,
}

impl TlsVersion {
    pub(crate) fn parse(keyword: &str, text: &str) -> Result<Self> {
        match text.to_ascii_lowercase().as_str() {
            "tlsv1" => Ok(TlsVersion::V1_0),
            "tlsv1.1" => Ok(TlsVersion::V1_1),
            "tlsv1.2" => Ok(TlsVersion::V1_2),
            "tlsv1.3" => Ok(TlsVersion::V1_3),
            _ => Err(Error::config(format!(
                "invalid {keyword} value \"{text}\"; possible are: TLSv1, TLSv1.1, TLSv1.2, TLSv1.3"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn require_auth_lists() {
        let scram = AuthMethods::parse("scram-sha-256, password").unwrap();
        assert!(scram.allows(AuthMethod::ScramSha256) && scram.allows(AuthMethod::Password));
        assert!(!scram.allows(AuthMethod::Md5) && !scram.allows(AuthMethod::None));
        let not_md5 = AuthMethods::parse("!md5").unwrap();
        assert!(not_md5.allows(AuthMethod::None) && !not_md5.allows(AuthMethod::Md5));
        assert!(AuthMethods::parse("").unwrap().allows(AuthMethod::Md5));
        for bad in ["md5,!none", "md5,md5", "md6", "md5,,none"] {
            assert!(AuthMethods::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_wrong_choice_lists_the_right_ones() {
        let text = SslMode::parse("full").unwrap_err().to_string();
        assert!(text.contains("\"full\"") && text.contains("verify-full"), "{text}");
    }
}
