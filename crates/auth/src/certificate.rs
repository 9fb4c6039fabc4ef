//! The hash of a TLS server's certificate that binds a login to the channel: `tls-server-end-point`
//! (RFC 5929, 4.1). Reads just enough DER (X.690) to find the certificate's signature algorithm; whether
//! the certificate can be trusted is decided elsewhere.

use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use crate::AuthError;

/// Hash of a server certificate, with the hash function of its signature, or SHA-256 when that is MD5
/// or SHA-1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateHash(Vec<u8>);

impl CertificateHash {
    /// Hashes a certificate in DER form.
    ///
    /// # Errors
    /// [`AuthError::Protocol`] when this is no certificate; [`AuthError::Unsupported`] when its
    /// signature has no hash function of its own (Ed25519, Ed448), for which RFC 5929 defines no
    /// binding. libpq and PostgreSQL fail there as well ("could not find digest for NID UNDEF"), so a
    /// server must not offer SCRAM-SHA-256-PLUS with such a certificate.
    pub fn of_der(certificate: &[u8]) -> Result<Self, AuthError> {
        let hash = match signature_hash(certificate)? {
            Hash::Sha224 => Sha224::digest(certificate).to_vec(),
            Hash::Sha256 => Sha256::digest(certificate).to_vec(),
            Hash::Sha384 => Sha384::digest(certificate).to_vec(),
            Hash::Sha512 => Sha512::digest(certificate).to_vec(),
        };
        Ok(Self(hash))
    }

    /// Takes over a hash that was computed elsewhere.
    #[must_use]
    pub fn from_bytes(hash: impl Into<Vec<u8>>) -> Self {
        Self(hash.into())
    }

    /// The hash.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hash {
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 0x06;
/// `[0]` with explicit tagging.
const CONTEXT_0: u8 = 0xa0;

/// RSASSA-PSS, 1.2.840.113549.1.1.10: the hash is in its parameters.
const RSA_PSS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0a];

/// Reads `Certificate ::= SEQUENCE { tbsCertificate, signatureAlgorithm, signatureValue }` (RFC 5280,
/// 4.1).
fn signature_hash(certificate: &[u8]) -> Result<Hash, AuthError> {
    const MALFORMED: AuthError = AuthError::Protocol("not an X.509 certificate");
    let find = || -> Option<(&[u8], &[u8])> {
        let (certificate, _) = element(certificate, SEQUENCE)?;
        let (_tbs, rest) = element(certificate, SEQUENCE)?;
        let (algorithm, _) = element(rest, SEQUENCE)?;
        element(algorithm, OBJECT_IDENTIFIER)
    };
    let (oid, parameters) = find().ok_or(MALFORMED)?;
    if oid == RSA_PSS {
        return pss_hash(parameters).ok_or(MALFORMED)?;
    }
    of_signature(oid).ok_or(AuthError::Unsupported(
        "channel binding with this certificate, whose signature algorithm has no hash function",
    ))
}

/// `RSASSA-PSS-params ::= SEQUENCE { hashAlgorithm [0] DEFAULT sha1, ... }` (RFC 4055, 3.1).
fn pss_hash(parameters: &[u8]) -> Option<Result<Hash, AuthError>> {
    let (parameters, _) = element(parameters, SEQUENCE)?;
    let Some((tagged, _)) = element(parameters, CONTEXT_0) else {
        // SHA-1 by default, which is replaced.
        return Some(Ok(Hash::Sha256));
    };
    let (algorithm, _) = element(tagged, SEQUENCE)?;
    let (oid, _) = element(algorithm, OBJECT_IDENTIFIER)?;
    Some(of_digest(oid).ok_or(AuthError::Unsupported("channel binding with this certificate's hash function")))
}

/// The hash function of a signature algorithm.
fn of_signature(oid: &[u8]) -> Option<Hash> {
    // PKCS #1, 1.2.840.113549.1.1 (RFC 8017, A.2.4).
    const PKCS1: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
    // ECDSA, 1.2.840.10045.4 (RFC 5758, 3.2).
    const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04];
    // DSA with SHA-1, 1.2.840.10040.4.3, and with SHA-2, 2.16.840.1.101.3.4.3.
    const DSA_SHA1: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x38, 0x04, 0x03];
    const NIST_SIGNATURES: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x03];
    if let Some(last) = oid.strip_prefix(PKCS1) {
        return match last {
            // MD5 and SHA-1 are replaced by SHA-256.
            [4] | [5] | [11] => Some(Hash::Sha256),
            [12] => Some(Hash::Sha384),
            [13] => Some(Hash::Sha512),
            [14] => Some(Hash::Sha224),
            _ => None,
        };
    }
    if let Some(last) = oid.strip_prefix(ECDSA) {
        return match last {
            // SHA-1 is replaced by SHA-256.
            [1] | [3, 2] => Some(Hash::Sha256),
            [3, 1] => Some(Hash::Sha224),
            [3, 3] => Some(Hash::Sha384),
            [3, 4] => Some(Hash::Sha512),
            _ => None,
        };
    }
    if oid == DSA_SHA1 {
        return Some(Hash::Sha256);
    }
    match oid.strip_prefix(NIST_SIGNATURES)? {
        [1] => Some(Hash::Sha224),
        [2] => Some(Hash::Sha256),
        [3] => Some(Hash::Sha384),
        [4] => Some(Hash::Sha512),
        _ => None,
    }
}

/// A hash function by its own name.
fn of_digest(oid: &[u8]) -> Option<Hash> {
    // SHA-1, 1.3.14.3.2.26, and SHA-2, 2.16.840.1.101.3.4.2.
    const SHA1: &[u8] = &[0x2b, 0x0e, 0x03, 0x02, 0x1a];
    const SHA2: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02];
    if oid == SHA1 {
        return Some(Hash::Sha256);
    }
    match oid.strip_prefix(SHA2)? {
        [1] => Some(Hash::Sha256),
        [2] => Some(Hash::Sha384),
        [3] => Some(Hash::Sha512),
        [4] => Some(Hash::Sha224),
        _ => None,
    }
}

/// The content of the DER element at the start of `der`, which must have this tag, and what follows it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, rest) = der.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        // One to four bytes of length; a longer certificate does not exist.
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let len = bytes.iter().fold(0u32, |len, byte| (len << 8) | u32::from(*byte));
            (usize::try_from(len).ok()?, rest)
        }
        _ => return None,
    };
    (*found == tag).then_some(())?;
    rest.split_at_checked(len)
}
