//! TLS towards servers, as libpq's `sslmode` means it.

use crate::config::ConfigError;
use crate::shared::ServerAddress;
use pgusher_auth::{AuthError, BindingPolicy, ChannelBinding, OfferedMechanisms, Transport};
use pgusher_client::{Config as Conninfo, SslMode, SslNegotiation};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, SignatureScheme};
use rustls_pki_types::ServerName;
use std::fmt;
use std::sync::Arc;

/// How a connection to a server is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encryption {
    /// Not at all.
    Plain,
    /// By TLS if the server has it.
    IfOffered,
    /// By TLS.
    Tls,
}

/// What is needed to speak TLS with servers. Cheap to clone.
#[derive(Clone)]
pub struct Servers {
    mode: SslMode,
    negotiation: SslNegotiation,
    binding: BindingPolicy,
    config: Option<Arc<ClientConfig>>,
}

impl Servers {
    /// As the connection string says. Reads files.
    ///
    /// # Errors
    /// What is missing or wrong.
    pub fn new(conninfo: &Conninfo) -> Result<Self, ConfigError> {
        let needed = conninfo.tls.mode != SslMode::Disable && conninfo.hosts.iter().any(|host| host.is_tcp());
        let config = if needed {
            let config = pgusher_client::tls::client_config(&conninfo.tls);
            Some(config.map_err(|e| ConfigError(format!("the server's connection string: {e}")))?)
        } else {
            None
        };
        let binding = match conninfo.channel_binding {
            pgusher_client::ChannelBinding::Disable => BindingPolicy::Disable,
            pgusher_client::ChannelBinding::Prefer => BindingPolicy::Prefer,
            pgusher_client::ChannelBinding::Require => BindingPolicy::Require,
        };
        Ok(Self { mode: conninfo.tls.mode, negotiation: conninfo.tls.negotiation, binding, config })
    }

    /// The same without a certificate of our own: so the server asks what it would ask somebody who has none.
    pub fn without_certificate(&self) -> Self {
        let config = self.config.as_ref().map(|config| {
            let mut config = ClientConfig::clone(config);
            config.client_auth_cert_resolver = Arc::new(NoCertificate);
            // A session that is resumed may be one in which the certificate was shown.
            config.resumption = Resumption::disabled();
            Arc::new(config)
        });
        Self { config, ..self.clone() }
    }

    /// Do we show a certificate when the server asks for one?
    pub fn is_certified(&self) -> bool {
        self.config.as_ref().is_some_and(|config| config.client_auth_cert_resolver.has_certs())
    }

    /// How a connection is tried first. Unix sockets are never encrypted.
    pub fn first(&self, address: &ServerAddress) -> Encryption {
        match (address, self.mode) {
            (ServerAddress::Unix(_), _) | (_, SslMode::Disable | SslMode::Allow) => Encryption::Plain,
            (_, SslMode::Prefer) => Encryption::IfOffered,
            (_, SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull) => Encryption::Tls,
        }
    }

    /// How it is tried again after the server refused the login, or after TLS failed. `None`: it is not.
    pub fn second(&self, address: &ServerAddress, was_encrypted: bool) -> Option<Encryption> {
        match (address, self.mode, was_encrypted) {
            (ServerAddress::Tcp { .. }, SslMode::Allow, false) => Some(Encryption::Tls),
            (ServerAddress::Tcp { .. }, SslMode::Prefer, true) => Some(Encryption::Plain),
            _ => None,
        }
    }

    /// The name that the certificate of the server at this address must have, if names are verified.
    ///
    /// # Errors
    /// It is no name of a host.
    pub fn name(&self, address: &ServerAddress) -> Result<ServerName<'static>, pgusher_client::Error> {
        match address {
            ServerAddress::Tcp { name, .. } => pgusher_client::tls::server_name(name),
            ServerAddress::Unix(_) => pgusher_client::tls::server_name("localhost"),
        }
    }

    /// Does TLS begin without being asked for?
    pub fn is_direct(&self) -> bool {
        self.negotiation == SslNegotiation::Direct
    }

    /// For the handshake; `None` if no connection is ever encrypted.
    pub fn config(&self) -> Option<&Arc<ClientConfig>> {
        self.config.as_ref()
    }

    /// How a SCRAM login is bound to the connection.
    ///
    /// # Errors
    /// As [`ChannelBinding::choose`].
    pub fn bind(&self, offered: OfferedMechanisms, transport: &Transport) -> Result<ChannelBinding, AuthError> {
        ChannelBinding::choose(offered, transport.clone(), self.binding)
    }

    /// Must a login be bound to the connection?
    pub fn needs_binding(&self) -> bool {
        self.binding == BindingPolicy::Require
    }
}

/// Shows no certificate, whatever the server asks for.
#[derive(Debug)]
struct NoCertificate;

impl ResolvesClientCert for NoCertificate {
    fn resolve(&self, _issuers: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers")
            .field("mode", &self.mode)
            .field("negotiation", &self.negotiation)
            .finish_non_exhaustive()
    }
}
