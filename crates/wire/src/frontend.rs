//! Messages from a client: views of whole ones, and writers.
//!
//! Chapter "Message Formats", those marked (F).

use crate::{Frame, ParseError, cursor::Cursor, write};

/// Query.
pub const QUERY: u8 = b'Q';
/// Parse.
pub const PARSE: u8 = b'P';
/// Bind.
pub const BIND: u8 = b'B';
/// Describe.
pub const DESCRIBE: u8 = b'D';
/// Execute.
pub const EXECUTE: u8 = b'E';
/// Close.
pub const CLOSE: u8 = b'C';
/// Flush.
pub const FLUSH: u8 = b'H';
/// Sync.
pub const SYNC: u8 = b'S';
/// FunctionCall, "fastpath", used for large objects.
pub const FUNCTION_CALL: u8 = b'F';
/// CopyData.
pub const COPY_DATA: u8 = b'd';
/// CopyDone.
pub const COPY_DONE: u8 = b'c';
/// CopyFail.
pub const COPY_FAIL: u8 = b'f';
/// Terminate.
pub const TERMINATE: u8 = b'X';
/// PasswordMessage, SASLInitialResponse, SASLResponse, GSSResponse: which one is known from the exchange only.
pub const PASSWORD: u8 = b'p';

/// What Describe and Close speak of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A prepared statement.
    Statement,
    /// A portal.
    Portal,
}

impl Target {
    fn as_byte(self) -> u8 {
        match self {
            Self::Statement => b'S',
            Self::Portal => b'P',
        }
    }
}

/// A message from a client. Strings are bytes: the client's encoding need not be UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields carry the names of the protocol chapter")]
pub enum Message<'a> {
    Query { sql: &'a [u8] },
    Parse { name: &'a [u8], sql: &'a [u8], types: List<'a, 4> },
    Bind(Bind<'a>),
    Describe { target: Target, name: &'a [u8] },
    Execute { portal: &'a [u8], max_rows: i32 },
    Close { target: Target, name: &'a [u8] },
    Flush,
    Sync,
    FunctionCall { body: &'a [u8] },
    CopyData { data: &'a [u8] },
    CopyDone,
    CopyFail { message: &'a [u8] },
    Terminate,
    Password { body: &'a [u8] },
}

/// A list of fixed-size numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct List<'a, const SIZE: usize> {
    bytes: &'a [u8],
}

impl<'a, const SIZE: usize> List<'a, SIZE> {
    fn read(cursor: &mut Cursor<'a>, field: &'static str) -> Result<Self, ParseError> {
        let n = cursor.count16(field)?;
        Ok(Self { bytes: cursor.bytes(n * SIZE)? })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.bytes.len() / SIZE
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl List<'_, 4> {
    /// The numbers, as type OIDs.
    pub fn oids(&self) -> impl Iterator<Item = u32> + '_ {
        self.bytes.chunks_exact(4).map(|c| c.iter().fold(0, |n, b| (n << 8) | u32::from(*b)))
    }
}

impl List<'_, 2> {
    /// The numbers, as format codes: 0 text, 1 binary.
    pub fn formats(&self) -> impl Iterator<Item = u16> + '_ {
        self.bytes.chunks_exact(2).map(|c| c.iter().fold(0, |n, b| (n << 8) | u16::from(*b)))
    }
}

/// A Bind message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bind<'a> {
    /// Name of the portal that is made.
    pub portal: &'a [u8],
    /// Name of the prepared statement.
    pub statement: &'a [u8],
    /// Formats of the parameters: none, one for all, or one each.
    pub parameter_formats: List<'a, 2>,
    /// Formats of the result columns: none, one for all, or one each.
    pub result_formats: List<'a, 2>,
    parameters: &'a [u8],
    parameter_count: usize,
}

impl<'a> Bind<'a> {
    fn parse(mut c: Cursor<'a>) -> Result<Self, ParseError> {
        let portal = c.cstr()?;
        let statement = c.cstr()?;
        let parameter_formats = List::read(&mut c, "count of parameter formats")?;
        let parameter_count = c.count16("count of parameters")?;
        let mut after = c;
        let mut size = 0;
        for _ in 0..parameter_count {
            size += 4;
            match after.i32()? {
                -1 => {}
                n => {
                    let n = usize::try_from(n).map_err(|_| after.invalid("length of a parameter"))?;
                    after.bytes(n)?;
                    size += n;
                }
            }
        }
        let parameters = c.bytes(size)?;
        let result_formats = List::read(&mut c, "count of result formats")?;
        c.finish()?;
        Ok(Self { portal, statement, parameter_formats, result_formats, parameters, parameter_count })
    }

    /// The parameters in order; `None` is NULL.
    pub fn parameters(&self) -> impl Iterator<Item = Option<&'a [u8]>> + use<'a> {
        let mut c = Cursor::new(BIND, self.parameters);
        (0..self.parameter_count).map(move |_| {
            let n = c.i32().unwrap_or(-1);
            usize::try_from(n).ok().and_then(|n| c.bytes(n).ok())
        })
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
            QUERY => Self::Query { sql: c.cstr()? },
            PARSE => {
                Self::Parse { name: c.cstr()?, sql: c.cstr()?, types: List::read(&mut c, "count of parameter types")? }
            }
            BIND => return Bind::parse(c).map(Self::Bind),
            DESCRIBE | CLOSE => {
                let target = match c.u8()? {
                    b'S' => Target::Statement,
                    b'P' => Target::Portal,
                    _ => return Err(c.invalid("target")),
                };
                let name = c.cstr()?;
                if frame.tag == DESCRIBE { Self::Describe { target, name } } else { Self::Close { target, name } }
            }
            EXECUTE => Self::Execute { portal: c.cstr()?, max_rows: c.i32()? },
            FLUSH => Self::Flush,
            SYNC => Self::Sync,
            FUNCTION_CALL => Self::FunctionCall { body: c.rest() },
            COPY_DATA => Self::CopyData { data: c.rest() },
            COPY_DONE => Self::CopyDone,
            COPY_FAIL => Self::CopyFail { message: c.cstr()? },
            TERMINATE => Self::Terminate,
            PASSWORD => Self::Password { body: c.rest() },
            tag => return Err(ParseError::UnknownTag { tag: char::from(tag) }),
        };
        c.finish()?;
        Ok(message)
    }
}

/// Appends Query.
pub fn write_query(out: &mut Vec<u8>, sql: &[u8]) {
    write::message(out, QUERY, |out| write::cstr(out, sql));
}

/// Appends Parse.
pub fn write_parse(out: &mut Vec<u8>, name: &[u8], sql: &[u8], types: &[u32]) {
    write::message(out, PARSE, |out| {
        write::cstr(out, name);
        write::cstr(out, sql);
        write_count(out, types.len());
        for oid in types.iter().take(COUNT_MAX) {
            out.extend_from_slice(&oid.to_be_bytes());
        }
    });
}

/// Appends Bind with parameters and results in text format.
pub fn write_bind(out: &mut Vec<u8>, portal: &[u8], statement: &[u8], parameters: &[Option<&[u8]>]) {
    write::message(out, BIND, |out| {
        write::cstr(out, portal);
        write::cstr(out, statement);
        write_count(out, 0);
        write_count(out, parameters.len());
        for parameter in parameters.iter().take(COUNT_MAX) {
            match parameter {
                None => out.extend_from_slice(&(-1i32).to_be_bytes()),
                Some(value) => {
                    out.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes());
                    out.extend_from_slice(value);
                }
            }
        }
        write_count(out, 0);
    });
}

/// A count of 16 bits holds no more than this.
const COUNT_MAX: usize = i16::MAX as usize;

fn write_count(out: &mut Vec<u8>, n: usize) {
    out.extend_from_slice(&u16::try_from(n.min(COUNT_MAX)).unwrap_or(0).to_be_bytes());
}

/// Appends Describe.
pub fn write_describe(out: &mut Vec<u8>, target: Target, name: &[u8]) {
    write::message(out, DESCRIBE, |out| {
        out.push(target.as_byte());
        write::cstr(out, name);
    });
}

/// Appends Close.
pub fn write_close(out: &mut Vec<u8>, target: Target, name: &[u8]) {
    write::message(out, CLOSE, |out| {
        out.push(target.as_byte());
        write::cstr(out, name);
    });
}

/// Appends Execute; `max_rows` 0 asks for all rows.
pub fn write_execute(out: &mut Vec<u8>, portal: &[u8], max_rows: i32) {
    write::message(out, EXECUTE, |out| {
        write::cstr(out, portal);
        out.extend_from_slice(&max_rows.to_be_bytes());
    });
}

/// The whole of a Sync.
pub const SYNC_BYTES: [u8; 5] = [SYNC, 0, 0, 0, 4];
/// The whole of a Flush.
pub const FLUSH_BYTES: [u8; 5] = [FLUSH, 0, 0, 0, 4];
/// The whole of a Terminate.
pub const TERMINATE_BYTES: [u8; 5] = [TERMINATE, 0, 0, 0, 4];
/// The whole of a CopyDone.
pub const COPY_DONE_BYTES: [u8; 5] = [COPY_DONE, 0, 0, 0, 4];

/// Appends CopyData.
pub fn write_copy_data(out: &mut Vec<u8>, data: &[u8]) {
    write::message(out, COPY_DATA, |out| out.extend_from_slice(data));
}

/// Appends CopyFail.
pub fn write_copy_fail(out: &mut Vec<u8>, message: &[u8]) {
    write::message(out, COPY_FAIL, |out| write::cstr(out, message));
}

/// Appends PasswordMessage: a plain password or the answer to an md5 challenge.
pub fn write_password(out: &mut Vec<u8>, password: &[u8]) {
    write::message(out, PASSWORD, |out| write::cstr(out, password));
}

/// Appends SASLInitialResponse.
pub fn write_sasl_initial(out: &mut Vec<u8>, mechanism: &str, response: &[u8]) {
    write::message(out, PASSWORD, |out| {
        write::cstr(out, mechanism.as_bytes());
        out.extend_from_slice(&u32::try_from(response.len()).unwrap_or(u32::MAX).to_be_bytes());
        out.extend_from_slice(response);
    });
}

/// Appends SASLResponse.
pub fn write_sasl_response(out: &mut Vec<u8>, response: &[u8]) {
    write::message(out, PASSWORD, |out| out.extend_from_slice(response));
}

/// Takes the body of a SASLInitialResponse apart: mechanism and, if there is one, the initial response.
///
/// # Errors
/// The body is not what the protocol says.
pub fn parse_sasl_initial(body: &[u8]) -> Result<(&[u8], Option<&[u8]>), ParseError> {
    let mut c = Cursor::new(PASSWORD, body);
    let mechanism = c.cstr()?;
    let response = match c.i32()? {
        -1 => None,
        n => Some(c.bytes(usize::try_from(n).map_err(|_| c.invalid("length of the response"))?)?),
    };
    c.finish()?;
    Ok((mechanism, response))
}

/// The password in the body of a PasswordMessage.
///
/// # Errors
/// The body is not one string.
pub fn parse_password(body: &[u8]) -> Result<&[u8], ParseError> {
    let mut c = Cursor::new(PASSWORD, body);
    let password = c.cstr()?;
    c.finish()?;
    Ok(password)
}
