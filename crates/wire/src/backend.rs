//! Messages from a server: views of whole ones, and writers for those that the manager sends itself.
//!
//! Chapter "Message Formats", those marked (B).

use crate::{ErrorFields, Frame, ParseError, TxStatus, cursor::Cursor, startup::Version, write};

/// Authentication.
pub const AUTHENTICATION: u8 = b'R';
/// ParameterStatus.
pub const PARAMETER_STATUS: u8 = b'S';
/// BackendKeyData.
pub const BACKEND_KEY_DATA: u8 = b'K';
/// ReadyForQuery.
pub const READY_FOR_QUERY: u8 = b'Z';
/// RowDescription.
pub const ROW_DESCRIPTION: u8 = b'T';
/// DataRow.
pub const DATA_ROW: u8 = b'D';
/// CommandComplete.
pub const COMMAND_COMPLETE: u8 = b'C';
/// EmptyQueryResponse.
pub const EMPTY_QUERY: u8 = b'I';
/// ParseComplete.
pub const PARSE_COMPLETE: u8 = b'1';
/// A whole ParseComplete message.
pub const PARSE_COMPLETE_BYTES: [u8; 5] = [PARSE_COMPLETE, 0, 0, 0, 4];
/// BindComplete.
pub const BIND_COMPLETE: u8 = b'2';
/// CloseComplete.
pub const CLOSE_COMPLETE: u8 = b'3';
/// A whole CloseComplete message.
pub const CLOSE_COMPLETE_BYTES: [u8; 5] = [CLOSE_COMPLETE, 0, 0, 0, 4];
/// NoData.
pub const NO_DATA: u8 = b'n';
/// PortalSuspended.
pub const PORTAL_SUSPENDED: u8 = b's';
/// ParameterDescription.
pub const PARAMETER_DESCRIPTION: u8 = b't';
/// ErrorResponse.
pub const ERROR_RESPONSE: u8 = b'E';
/// NoticeResponse.
pub const NOTICE_RESPONSE: u8 = b'N';
/// NotificationResponse.
pub const NOTIFICATION_RESPONSE: u8 = b'A';
/// CopyInResponse.
pub const COPY_IN: u8 = b'G';
/// CopyOutResponse.
pub const COPY_OUT: u8 = b'H';
/// CopyBothResponse, for replication.
pub const COPY_BOTH: u8 = b'W';
/// CopyData.
pub const COPY_DATA: u8 = b'd';
/// CopyDone.
pub const COPY_DONE: u8 = b'c';
/// FunctionCallResponse.
pub const FUNCTION_CALL_RESPONSE: u8 = b'V';
/// NegotiateProtocolVersion.
pub const NEGOTIATE_PROTOCOL_VERSION: u8 = b'v';

/// What the server asks for, or says, while a client logs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authentication<'a> {
    /// The client is who it says.
    Ok,
    /// A password in clear text is asked for.
    CleartextPassword,
    /// A password hashed with this salt is asked for.
    Md5Password {
        /// Four random bytes.
        salt: [u8; 4],
    },
    /// One of these SASL mechanisms is asked for.
    Sasl(Mechanisms<'a>),
    /// The next step of the SASL exchange.
    SaslContinue(&'a [u8]),
    /// The last step of the SASL exchange.
    SaslFinal(&'a [u8]),
    /// A method that pgusher does not speak: its number (2 Kerberos V5, 7 GSSAPI, 9 SSPI, ...).
    Other(u32),
}

/// The names of SASL mechanisms, in the server's order of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mechanisms<'a> {
    body: &'a [u8],
}

impl<'a> Mechanisms<'a> {
    /// The names.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut c = Cursor::new(AUTHENTICATION, self.body);
        std::iter::from_fn(move || c.cstr().ok().filter(|name| !name.is_empty()))
    }

    /// Is `name` among them?
    pub fn contains(&self, name: &str) -> bool {
        self.iter().any(|n| n == name.as_bytes())
    }
}

/// A message from a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields carry the names of the protocol chapter")]
pub enum Message<'a> {
    Authentication(Authentication<'a>),
    ParameterStatus { name: &'a [u8], value: &'a [u8] },
    BackendKeyData { pid: u32, key: &'a [u8] },
    ReadyForQuery(TxStatus),
    RowDescription { body: &'a [u8] },
    DataRow(DataRow<'a>),
    CommandComplete { tag: &'a [u8] },
    EmptyQuery,
    ParseComplete,
    BindComplete,
    CloseComplete,
    NoData,
    PortalSuspended,
    ParameterDescription { body: &'a [u8] },
    Error(ErrorFields<'a>),
    Notice(ErrorFields<'a>),
    Notification { pid: u32, channel: &'a [u8], payload: &'a [u8] },
    CopyIn { body: &'a [u8] },
    CopyOut { body: &'a [u8] },
    CopyBoth { body: &'a [u8] },
    CopyData { data: &'a [u8] },
    CopyDone,
    FunctionCallResponse { body: &'a [u8] },
    NegotiateProtocolVersion { newest_minor: u32, unknown: &'a [u8] },
}

/// One row of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataRow<'a> {
    columns: usize,
    body: &'a [u8],
}

impl<'a> DataRow<'a> {
    /// The columns in order; `None` is NULL. Ends early if the row is malformed.
    pub fn columns(&self) -> impl Iterator<Item = Option<&'a [u8]>> + use<'a> {
        let mut c = Cursor::new(DATA_ROW, self.body);
        (0..self.columns).map_while(move |_| {
            let n = c.i32().ok()?;
            match usize::try_from(n) {
                Ok(n) => c.bytes(n).ok().map(Some),
                Err(_) => Some(None),
            }
        })
    }

    /// How many columns the row says it has.
    pub fn len(&self) -> usize {
        self.columns
    }

    /// Has the row no columns?
    pub fn is_empty(&self) -> bool {
        self.columns == 0
    }
}

impl<'a> Message<'a> {
    /// Takes a whole message apart.
    ///
    /// # Errors
    /// The message is not what the protocol says.
    pub fn parse(frame: Frame<'a>) -> Result<Self, ParseError> {
        let mut c = Cursor::new(frame.tag, frame.body);
        let message = match frame.tag {
            AUTHENTICATION => Self::Authentication(match c.u32()? {
                0 => Authentication::Ok,
                3 => Authentication::CleartextPassword,
                5 => {
                    let salt = c.bytes(4)?;
                    Authentication::Md5Password { salt: salt.try_into().map_err(|_| c.invalid("salt"))? }
                }
                10 => Authentication::Sasl(Mechanisms { body: c.rest() }),
                11 => Authentication::SaslContinue(c.rest()),
                12 => Authentication::SaslFinal(c.rest()),
                other => {
                    c.rest();
                    Authentication::Other(other)
                }
            }),
            PARAMETER_STATUS => Self::ParameterStatus { name: c.cstr()?, value: c.cstr()? },
            BACKEND_KEY_DATA => {
                let pid = c.u32()?;
                let key = c.rest();
                if !(crate::startup::CANCEL_KEY_LEN_3_0..=crate::startup::MAX_CANCEL_KEY_LEN).contains(&key.len()) {
                    return Err(c.invalid("cancel key"));
                }
                Self::BackendKeyData { pid, key }
            }
            READY_FOR_QUERY => {
                let status = c.u8()?;
                Self::ReadyForQuery(TxStatus::from_byte(status).ok_or_else(|| c.invalid("transaction status"))?)
            }
            ROW_DESCRIPTION => Self::RowDescription { body: c.rest() },
            DATA_ROW => Self::DataRow(DataRow { columns: c.count16("count of columns")?, body: c.rest() }),
            COMMAND_COMPLETE => Self::CommandComplete { tag: c.cstr()? },
            EMPTY_QUERY => Self::EmptyQuery,
            PARSE_COMPLETE => Self::ParseComplete,
            BIND_COMPLETE => Self::BindComplete,
            CLOSE_COMPLETE => Self::CloseComplete,
            NO_DATA => Self::NoData,
            PORTAL_SUSPENDED => Self::PortalSuspended,
            PARAMETER_DESCRIPTION => Self::ParameterDescription { body: c.rest() },
            ERROR_RESPONSE => Self::Error(ErrorFields::new(c.rest())),
            NOTICE_RESPONSE => Self::Notice(ErrorFields::new(c.rest())),
            NOTIFICATION_RESPONSE => Self::Notification { pid: c.u32()?, channel: c.cstr()?, payload: c.cstr()? },
            COPY_IN => Self::CopyIn { body: c.rest() },
            COPY_OUT => Self::CopyOut { body: c.rest() },
            COPY_BOTH => Self::CopyBoth { body: c.rest() },
            COPY_DATA => Self::CopyData { data: c.rest() },
            COPY_DONE => Self::CopyDone,
            FUNCTION_CALL_RESPONSE => Self::FunctionCallResponse { body: c.rest() },
            NEGOTIATE_PROTOCOL_VERSION => Self::NegotiateProtocolVersion { newest_minor: c.u32()?, unknown: c.rest() },
            tag => return Err(ParseError::UnknownTag { tag: char::from(tag) }),
        };
        if !c.is_empty() {
            c.finish()?;
        }
        Ok(message)
    }
}

/// Appends AuthenticationOk.
pub fn write_authentication_ok(out: &mut Vec<u8>) {
    write_authentication(out, 0, &[]);
}

/// Appends AuthenticationCleartextPassword.
pub fn write_authentication_cleartext(out: &mut Vec<u8>) {
    write_authentication(out, 3, &[]);
}

/// Appends AuthenticationMD5Password.
pub fn write_authentication_md5(out: &mut Vec<u8>, salt: [u8; 4]) {
    write_authentication(out, 5, &salt);
}

/// Appends AuthenticationSASL.
pub fn write_authentication_sasl(out: &mut Vec<u8>, mechanisms: &[&str]) {
    let mut body = Vec::new();
    for mechanism in mechanisms {
        write::cstr(&mut body, mechanism.as_bytes());
    }
    body.push(0);
    write_authentication(out, 10, &body);
}

/// Appends AuthenticationSASLContinue.
pub fn write_authentication_sasl_continue(out: &mut Vec<u8>, data: &[u8]) {
    write_authentication(out, 11, data);
}

/// Appends AuthenticationSASLFinal.
pub fn write_authentication_sasl_final(out: &mut Vec<u8>, data: &[u8]) {
    write_authentication(out, 12, data);
}

fn write_authentication(out: &mut Vec<u8>, kind: u32, data: &[u8]) {
    write::message(out, AUTHENTICATION, |out| {
        out.extend_from_slice(&kind.to_be_bytes());
        out.extend_from_slice(data);
    });
}

/// Appends ParameterStatus.
pub fn write_parameter_status(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    write::message(out, PARAMETER_STATUS, |out| {
        write::cstr(out, name);
        write::cstr(out, value);
    });
}

/// Appends BackendKeyData.
pub fn write_backend_key_data(out: &mut Vec<u8>, pid: u32, key: &[u8]) {
    write::message(out, BACKEND_KEY_DATA, |out| {
        out.extend_from_slice(&pid.to_be_bytes());
        out.extend_from_slice(key);
    });
}

/// Appends ReadyForQuery.
pub fn write_ready_for_query(out: &mut Vec<u8>, status: TxStatus) {
    write::message(out, READY_FOR_QUERY, |out| out.push(status.as_byte()));
}

/// Appends CommandComplete.
pub fn write_command_complete(out: &mut Vec<u8>, tag: &[u8]) {
    write::message(out, COMMAND_COMPLETE, |out| write::cstr(out, tag));
}

/// Appends NegotiateProtocolVersion: the newest minor version that we speak and the `_pq_.` options that we do not know.
pub fn write_negotiate_protocol_version(out: &mut Vec<u8>, newest: Version, unknown: &[&[u8]]) {
    write::message(out, NEGOTIATE_PROTOCOL_VERSION, |out| {
        // The server sends the whole version number here, not only the minor part (src/backend/tcop/backend_startup.c).
        let version = (u32::from(newest.major) << 16) | u32::from(newest.minor);
        out.extend_from_slice(&version.to_be_bytes());
        out.extend_from_slice(&u32::try_from(unknown.len()).unwrap_or(0).to_be_bytes());
        for name in unknown {
            write::cstr(out, name);
        }
    });
}
