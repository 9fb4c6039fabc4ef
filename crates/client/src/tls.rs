//! TLS for the client: certificates are loaded and the rustls configuration is made before any clock starts.
//!
//! What is verified follows libpq: with a root certificate file the chain is verified in every mode; verify-full
//! verifies the host name too; without a file nothing is verified, and verify-ca and verify-full refuse to start.
//! Source: PostgreSQL documentation, "SSL Support"; `fe-secure-openssl.c`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, UnixTime};

use crate::config::{RootCert, SslCertMode, SslMode, SslNegotiation, TlsOptions, TlsVersion};
use crate::error::{Error, ErrorKind, Result};
use crate::x509::Facts;

/// ALPN name that direct TLS needs (IANA registry; PostgreSQL 17).
pub const ALPN: &[u8] = b"postgresql";

/// The configuration that these options mean. Reads files.
///
/// # Errors
/// A file that is missing or wrong; see [`ErrorKind::Config`](crate::ErrorKind::Config).
pub fn client_config(options: &TlsOptions) -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Verifier::new(options, &provider)?;
    let versions: Vec<&'static rustls::SupportedProtocolVersion> =
        [(TlsVersion::V1_2, &rustls::version::TLS12), (TlsVersion::V1_3, &rustls::version::TLS13)]
            .into_iter()
            .filter(|(version, _)| *version >= options.min_version)
            .filter(|(version, _)| options.max_version.is_none_or(|max| *version <= max))
            .map(|(_, version)| version)
            .collect();
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)
        .map_err(|error| Error::new(ErrorKind::Tls, error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match client_identity(options)? {
        Some((chain, key)) => builder
            .with_client_auth_cert(chain, key)
            .map_err(|error| Error::config(format!("the client certificate cannot be used: {error}")))?,
        None => builder.with_no_client_auth(),
    };
    config.enable_sni = options.sni;
    // PostgreSQL does not resume sessions, and no measurement shall depend on an earlier one.
    config.resumption = rustls::client::Resumption::disabled();
    if options.negotiation == SslNegotiation::Direct {
        config.alpn_protocols = vec![ALPN.to_vec()];
    }
    Ok(Arc::new(config))
}

/// The name that TLS is told: the host as given, or its address.
///
/// # Errors
/// It is no name of a host.
pub fn server_name(host: &str) -> Result<ServerName<'static>> {
    ServerName::try_from(host.to_owned())
        .map_err(|_| Error::new(ErrorKind::Tls, format!("\"{host}\" is no name that TLS can use")))
}

/// What a failed handshake means for a person.
#[must_use]
pub fn handshake_error(error: &rustls::Error) -> Error {
    let new = Error::new(ErrorKind::Tls, format!("TLS: {error}"));
    match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            new.advice("the server's certificate is not signed by an authority in sslrootcert")
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => new.advice("the certificate is for another host name; sslmode=verify-ca does not check the name"),
        rustls::Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            new.advice("the server's certificate must be renewed")
        }
        _ => new,
    }
}

/// Certificates of a PEM file, one at least.
///
/// # Errors
/// The file cannot be read, or has none.
pub fn load_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>);
    match read {
        Ok(list) if !list.is_empty() => Ok(list),
        Ok(_) => Err(Error::config(format!("no certificate in the file \"{}\"", file.display()))),
        Err(error) => Err(Error::config(format!("cannot read certificates from \"{}\": {error}", file.display()))),
    }
}

/// A chain of certificates, its own first, and the key of that one.
pub type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Certificates and key from PEM files. As libpq and PostgreSQL, it takes no key that others may read.
///
/// # Errors
/// A file cannot be read, is not what it should be, or may be read by others.
pub fn load_identity(cert: &Path, key: &Path) -> Result<Identity> {
    let chain = load_certificates(cert)?;
    let metadata = std::fs::metadata(key).map_err(|error| Error::config(format!("{}: {error}", key.display())))?;
    // A key of root may be readable for its group.
    let allowed = if std::os::unix::fs::MetadataExt::uid(&metadata) == 0 { 0o640 } else { 0o600 };
    if metadata.permissions().mode() & 0o777 & !allowed != 0 {
        return Err(Error::config(format!("private key file \"{}\" has group or world access", key.display()))
            .advice("permissions should be u=rw (0600) or less"));
    }
    let key_der = PrivateKeyDer::from_pem_file(key).map_err(|error| {
        Error::config(format!("cannot read the private key \"{}\": {error}", key.display()))
            .advice("keys that are encrypted with a password are not supported")
    })?;
    Ok((chain, key_der))
}

fn client_identity(options: &TlsOptions) -> Result<Option<Identity>> {
    if options.cert_mode == SslCertMode::Disable {
        return Ok(None);
    }
    let missing = |what: &str| Error::config(format!("sslcertmode=require, but there is no client {what}"));
    let (Some((cert, cert_named)), Some((key, key_named))) = (&options.cert, &options.key) else {
        return if options.cert_mode == SslCertMode::Require { Err(missing("certificate")) } else { Ok(None) };
    };
    if !cert_named && !cert.exists() {
        return if options.cert_mode == SslCertMode::Require { Err(missing("certificate")) } else { Ok(None) };
    }
    if !key.exists() {
        let text = format!("certificate present, but not private key file \"{}\"", key.display());
        let error = Error::config(text);
        return Err(if *key_named { error } else { error.advice("set sslkey") });
    }
    load_identity(cert, key).map(Some)
}

/// Verifies as much as the mode asks for.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// Verifies chains and names; `None` if nothing is verified.
    chain: Option<Arc<WebPkiServerVerifier>>,
    /// Certificates of the root file: one that is presented by the server itself is trusted as it is.
    trusted: Vec<CertificateDer<'static>>,
    check_name: bool,
}

impl Verifier {
    fn new(options: &TlsOptions, provider: &Arc<CryptoProvider>) -> Result<Self> {
        let check_name = options.mode == SslMode::VerifyFull;
        let trusted = match &options.root {
            RootCert::System => {
                let found = rustls_native_certs::load_native_certs();
                if found.certs.is_empty() {
                    return Err(Error::config("sslrootcert=system, but the system has no certificate authorities"));
                }
                found.certs
            }
            RootCert::File(file) if file.exists() => load_certificates(file)?,
            RootCert::Default(Some(file)) if file.exists() => load_certificates(file)?,
            RootCert::File(file) | RootCert::Default(Some(file)) => {
                if matches!(options.mode, SslMode::VerifyCa | SslMode::VerifyFull) {
                    return Err(Error::config(format!("root certificate file \"{}\" does not exist", file.display()))
                        .advice("provide the file, use sslrootcert=system, or a weaker sslmode"));
                }
                Vec::new()
            }
            RootCert::Default(None) => {
                if matches!(options.mode, SslMode::VerifyCa | SslMode::VerifyFull) {
                    return Err(Error::config("no root certificate file").advice("set sslrootcert"));
                }
                Vec::new()
            }
        };
        if trusted.is_empty() {
            return Ok(Verifier { provider: provider.clone(), chain: None, trusted, check_name });
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted.iter().cloned());
        let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .with_crls(revocation_lists(options)?)
            .build()
            .map_err(|error| Error::config(format!("the root certificates cannot be used: {error}")))?;
        Ok(Verifier { provider: provider.clone(), chain: Some(chain), trusted, check_name })
    }

    /// For a certificate with no alternative names at all, the common name counts, as in libpq.
    fn common_name_covers(leaf: &CertificateDer<'_>, name: &ServerName<'_>) -> bool {
        let ServerName::DnsName(host) = name else {
            return false;
        };
        Facts::of_der(leaf).is_some_and(|facts| !facts.has_alt_names && facts.names_host(host.as_ref()))
    }

    fn name_matches(leaf: &CertificateDer<'_>, name: &ServerName<'_>) -> bool {
        let by_alt_name = rustls::server::ParsedCertificate::try_from(leaf)
            .is_ok_and(|parsed| rustls::client::verify_server_name(&parsed, name).is_ok());
        by_alt_name || Verifier::common_name_covers(leaf, name)
    }
}

fn revocation_lists(options: &TlsOptions) -> Result<Vec<CertificateRevocationListDer<'static>>> {
    let mut files: Vec<_> = options.crl.iter().cloned().collect();
    if let Some(folder) = &options.crl_dir {
        let entries =
            std::fs::read_dir(folder).map_err(|error| Error::config(format!("{}: {error}", folder.display())))?;
        files.extend(entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()));
    }
    let mut lists = Vec::new();
    for file in files {
        let read = CertificateRevocationListDer::pem_file_iter(&file)
            .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>);
        lists.extend(read.map_err(|error| {
            Error::config(format!("cannot read revocation lists from \"{}\": {error}", file.display()))
        })?);
    }
    Ok(lists)
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        let Some(chain) = &self.chain else {
            return Ok(ServerCertVerified::assertion());
        };
        let wrong_name = rustls::Error::InvalidCertificate(CertificateError::NotValidForName);
        // OpenSSL takes a certificate that is itself in the root file, also one that webpki takes for no server's.
        if self.trusted.iter().any(|root| root.as_ref() == leaf.as_ref()) {
            return match Facts::of_der(leaf) {
                Some(facts) if !facts.is_valid_now() => {
                    Err(rustls::Error::InvalidCertificate(CertificateError::Expired))
                }
                None => Err(rustls::Error::InvalidCertificate(CertificateError::BadEncoding)),
                Some(_) if self.check_name && !Verifier::name_matches(leaf, name) => Err(wrong_name),
                Some(_) => Ok(ServerCertVerified::assertion()),
            };
        }
        match chain.verify_server_cert(leaf, intermediates, name, ocsp, now) {
            // webpki verifies the name last: the chain is good when this is what it reports.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.check_name || Verifier::common_name_covers(leaf, name) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::conninfo::{Environment, Params};
    use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyPair};

    /// As `openssl req -x509` makes it after the PostgreSQL documentation: its own authority, common name only.
    fn self_signed(name: &str, last_year: i32) -> rcgen::Certificate {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(last_year, 1, 1);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap()
    }

    fn verified(mode: &str, trusted: &rcgen::Certificate, shown: &rcgen::Certificate, host: &str) -> bool {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), trusted.pem()).unwrap();
        let text = format!("host={host} sslmode={mode} sslrootcert={}", file.path().display());
        let environment = Environment::empty().with_user("u");
        let config = Config::resolve(Params::parse(&text).unwrap(), &environment).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Verifier::new(&config.tls, &provider).unwrap();
        let name = server_name(host).unwrap();
        verifier.verify_server_cert(shown.der(), &[], &name, &[], UnixTime::now()).is_ok()
    }

    #[test]
    fn a_self_signed_certificate_is_trusted_when_it_is_the_root() {
        let certificate = self_signed("db.example.com", 2090);
        let other = self_signed("db.example.com", 2090);
        assert!(verified("verify-ca", &certificate, &certificate, "elsewhere.example.com"));
        assert!(verified("verify-full", &certificate, &certificate, "db.example.com"));
        assert!(!verified("verify-full", &certificate, &certificate, "elsewhere.example.com"));
        assert!(!verified("verify-full", &certificate, &certificate, "127.0.0.1"));
        assert!(!verified("verify-ca", &other, &certificate, "db.example.com"));
        let expired = self_signed("db.example.com", 2021);
        assert!(!verified("verify-ca", &expired, &expired, "db.example.com"));
    }

    #[test]
    fn names_that_tls_cannot_use_are_an_error() {
        assert!(server_name("bad name").is_err());
        assert!(server_name("::1").is_ok() && server_name("db_1").is_ok());
    }
}
