//! TLS towards clients: a certificate of ours, and whether a client may do without.

use crate::config::ConfigError;
use pgusher_auth::CertificateHash;
use pgusher_client::TlsVersion;
use pgusher_client::tls::{ALPN, load_certificates, load_identity};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use serde::Deserialize;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Tickets that a client gets at the end of a TLS 1.3 handshake: one resumption needs one, and few clients resume.
const TICKETS: usize = 1;

/// Whether a client may, or must, speak TLS. Named as in PgBouncer's `client_tls_sslmode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientTlsMode {
    /// It cannot.
    Disable,
    /// It may.
    Allow,
    /// It must. Clients on Unix sockets need not.
    Require,
    /// It must, and must show a certificate that `ca_file` vouches for.
    VerifyCa,
}

/// The table `[client_tls]` of the configuration.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientTlsOptions {
    /// Default: `allow` with a certificate, else `disable`.
    pub sslmode: Option<ClientTlsMode>,
    /// Certificates, PEM: our own, then those between it and its authority.
    pub cert_file: Option<PathBuf>,
    /// Its key, PEM.
    pub key_file: Option<PathBuf>,
    /// Authorities for the certificates of clients, PEM.
    pub ca_file: Option<PathBuf>,
    /// `TLSv1.2` or `TLSv1.3`. Default: `TLSv1.2`.
    pub min_protocol_version: Option<String>,
}

impl ClientTlsOptions {
    /// What is given in `other` takes the place of what is here.
    #[must_use]
    pub fn overridden_by(self, other: &Self) -> Self {
        Self {
            sslmode: other.sslmode.or(self.sslmode),
            cert_file: other.cert_file.clone().or(self.cert_file),
            key_file: other.key_file.clone().or(self.key_file),
            ca_file: other.ca_file.clone().or(self.ca_file),
            min_protocol_version: other.min_protocol_version.clone().or(self.min_protocol_version),
        }
    }
}

/// What is needed to speak TLS with clients.
pub struct Clients {
    config: Arc<ServerConfig>,
    binding: Option<CertificateHash>,
    required: bool,
}

impl Clients {
    /// Reads the files. `None` if clients are to have no TLS.
    ///
    /// # Errors
    /// What is missing or wrong.
    pub fn new(options: &ClientTlsOptions) -> Result<Option<Self>, ConfigError> {
        let wrong = |e: &dyn fmt::Display| ConfigError(format!("client_tls: {e}"));
        let given = options.cert_file.is_some() || options.key_file.is_some();
        let mode = options.sslmode.unwrap_or(if given { ClientTlsMode::Allow } else { ClientTlsMode::Disable });
        if mode == ClientTlsMode::Disable {
            return Ok(None);
        }
        let (Some(cert), Some(key)) = (&options.cert_file, &options.key_file) else {
            return Err(wrong(&"TLS with clients needs a certificate and its key: cert_file and key_file"));
        };
        let (chain, key) = load_identity(cert, key).map_err(|e| wrong(&e))?;
        // A certificate without a hash function of its own (Ed25519) has no binding: RFC 5929, 4.1.
        let binding = chain.first().and_then(|own| CertificateHash::of_der(own).ok());
        let lowest = match options.min_protocol_version.as_deref() {
            None => TlsVersion::V1_2,
            Some(text) => [("TLSv1.2", TlsVersion::V1_2), ("TLSv1.3", TlsVersion::V1_3)]
                .into_iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(text))
                .map(|(_, version)| version)
                .ok_or_else(|| wrong(&format!("min_protocol_version is TLSv1.2 or TLSv1.3, not \"{text}\"")))?,
        };
        let versions: &[&rustls::SupportedProtocolVersion] = if lowest == TlsVersion::V1_3 {
            &[&rustls::version::TLS13]
        } else {
            &[&rustls::version::TLS13, &rustls::version::TLS12]
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)
            .map_err(|e| wrong(&e))?;
        let builder = match &options.ca_file {
            None if mode == ClientTlsMode::VerifyCa => return Err(wrong(&"sslmode verify-ca needs ca_file")),
            None => builder.with_no_client_auth(),
            Some(file) => {
                let mut roots = RootCertStore::empty();
                for root in load_certificates(file).map_err(|e| wrong(&e))? {
                    roots.add(root).map_err(|e| wrong(&format!("{}: {e}", file.display())))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                // As PostgreSQL with ssl_ca_file: a certificate that is shown is verified in every mode.
                let verifier =
                    if mode == ClientTlsMode::VerifyCa { verifier } else { verifier.allow_unauthenticated() };
                builder.with_client_cert_verifier(verifier.build().map_err(|e| wrong(&e))?)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|e| {
            let name = |path: &Option<PathBuf>| path.as_deref().map(|p| p.display().to_string()).unwrap_or_default();
            wrong(&format!("{} and {}: {e}", name(&options.cert_file), name(&options.key_file)))
        })?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.ticketer = rustls::crypto::ring::Ticketer::new().map_err(|e| wrong(&e))?;
        config.send_tls13_tickets = TICKETS;
        // Tickets carry everything: nothing is kept here for clients that have left.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        let required = matches!(mode, ClientTlsMode::Require | ClientTlsMode::VerifyCa);
        Ok(Some(Self { config: Arc::new(config), binding, required }))
    }

    /// For the handshake.
    pub fn config(&self) -> &Arc<ServerConfig> {
        &self.config
    }

    /// What SCRAM-SHA-256-PLUS binds a login to; `None` if our certificate has no such hash.
    pub fn binding(&self) -> Option<&CertificateHash> {
        self.binding.as_ref()
    }

    /// Are clients refused that do not speak TLS over TCP?
    pub fn is_required(&self) -> bool {
        self.required
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").field("required", &self.required).finish_non_exhaustive()
    }
}
