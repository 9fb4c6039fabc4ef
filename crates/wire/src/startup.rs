//! The startup phase: the messages without a type byte.
//!
//! Chapter "Message Formats": StartupMessage, SSLRequest, GSSENCRequest, CancelRequest.

use crate::{ParseError, cursor::Cursor, write};

/// The largest startup packet that is accepted, in bytes (`MAX_STARTUP_PACKET_LENGTH`, src/include/libpq/pqcomm.h).
pub const MAX_STARTUP_LEN: u32 = 10_000;
/// The largest cancel key of protocol 3.2, in bytes.
pub const MAX_CANCEL_KEY_LEN: usize = 256;
/// The cancel key of protocol 3.0, in bytes.
pub const CANCEL_KEY_LEN_3_0: usize = 4;

const SSL_REQUEST: u32 = 80_877_103;
const GSSENC_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;

/// The whole of an SSLRequest.
pub const SSL_REQUEST_BYTES: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// Version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Major number; 3 for every server since 2003.
    pub major: u16,
    /// Minor number.
    pub minor: u16,
}

impl Version {
    /// 3.0, spoken by everyone.
    pub const V3_0: Self = Self { major: 3, minor: 0 };
    /// 3.2, of PostgreSQL 18: longer cancel keys.
    pub const V3_2: Self = Self { major: 3, minor: 2 };

    fn to_u32(self) -> u32 {
        (u32::from(self.major) << 16) | u32::from(self.minor)
    }
}

/// A message of the startup phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Startup<'a> {
    /// The client asks whether it may speak TLS.
    SslRequest,
    /// The client asks whether it may speak GSSAPI encryption.
    GssEncRequest,
    /// The client asks to cancel what another connection does.
    Cancel {
        /// Process id from BackendKeyData.
        pid: u32,
        /// Secret key from BackendKeyData: 4 bytes in 3.0, up to 256 in 3.2.
        key: &'a [u8],
    },
    /// The start of a session.
    Session {
        /// The version that the client asks for.
        version: Version,
        /// Names and values.
        parameters: Parameters<'a>,
    },
}

impl<'a> Startup<'a> {
    /// The length of the packet at the start of `buf`, once four bytes are there.
    ///
    /// # Errors
    /// A length that no startup packet has: this is not a PostgreSQL client.
    pub fn packet_len(buf: &[u8]) -> Result<Option<usize>, ParseError> {
        let Some((len, _)) = buf.split_first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_be_bytes(*len);
        if !(8..=MAX_STARTUP_LEN).contains(&len) {
            return Err(ParseError::Invalid { tag: ' ', field: "length of startup packet" });
        }
        Ok(Some(len as usize))
    }

    /// The packet at the start of `buf` and its length; `None` while it is not all there.
    pub fn parse(buf: &'a [u8]) -> Result<Option<(Self, usize)>, ParseError> {
        let Some(len) = Self::packet_len(buf)? else { return Ok(None) };
        let Some(body) = buf.get(4..len) else { return Ok(None) };
        let mut cursor = Cursor::new(b' ', body);
        let code = cursor.u32()?;
        let message = match code {
            SSL_REQUEST | GSSENC_REQUEST => {
                cursor.finish()?;
                if code == SSL_REQUEST { Self::SslRequest } else { Self::GssEncRequest }
            }
            CANCEL_REQUEST => {
                let pid = cursor.u32()?;
                let key = cursor.rest();
                if !(CANCEL_KEY_LEN_3_0..=MAX_CANCEL_KEY_LEN).contains(&key.len()) {
                    return Err(ParseError::Invalid { tag: ' ', field: "cancel key" });
                }
                Self::Cancel { pid, key }
            }
            code => {
                let version = Version { major: (code >> 16) as u16, minor: (code & 0xffff) as u16 };
                if version.major != 3 {
                    // The layout of other major versions is not ours to judge; the caller refuses them by number.
                    return Ok(Some((Self::Session { version, parameters: Parameters { body: &[] } }, len)));
                }
                let parameters = Parameters { body: cursor.rest() };
                parameters.validate()?;
                Self::Session { version, parameters }
            }
        };
        Ok(Some((message, len)))
    }
}

/// The names and values of a StartupMessage, checked when it was parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters<'a> {
    body: &'a [u8],
}

impl<'a> Parameters<'a> {
    fn validate(&self) -> Result<(), ParseError> {
        let mut cursor = Cursor::new(b' ', self.body);
        loop {
            if cursor.cstr()?.is_empty() {
                return cursor.finish();
            }
            cursor.cstr()?;
        }
    }

    /// Names and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone + use<'a> {
        let mut cursor = Cursor::new(b' ', self.body);
        std::iter::from_fn(move || {
            let name = cursor.cstr().ok().filter(|n| !n.is_empty())?;
            Some((name, cursor.cstr().ok()?))
        })
    }

    /// The value of `name`; the last one if it is given more than once, as in the server.
    pub fn get(&self, name: &str) -> Option<&'a [u8]> {
        self.iter().filter(|(n, _)| *n == name.as_bytes()).last().map(|(_, v)| v)
    }
}

/// Appends a StartupMessage.
pub fn write_startup<'a>(
    out: &mut Vec<u8>,
    version: Version,
    parameters: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
) {
    write::untagged(out, |out| {
        out.extend_from_slice(&version.to_u32().to_be_bytes());
        for (name, value) in parameters {
            write::cstr(out, name);
            write::cstr(out, value);
        }
        out.push(0);
    });
}

/// Appends a CancelRequest.
pub fn write_cancel(out: &mut Vec<u8>, pid: u32, key: &[u8]) {
    write::untagged(out, |out| {
        out.extend_from_slice(&CANCEL_REQUEST.to_be_bytes());
        out.extend_from_slice(&pid.to_be_bytes());
        out.extend_from_slice(key);
    });
}

/// Appends a GSSENCRequest.
pub fn write_gssenc_request(out: &mut Vec<u8>) {
    write::untagged(out, |out| out.extend_from_slice(&GSSENC_REQUEST.to_be_bytes()));
}
