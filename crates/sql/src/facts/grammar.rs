//! The call into PostgreSQL's parser: the one place of this crate with unsafe code.
//!
//! The library is the one that `pg_query` builds and links. Its own wrapper, `pg_query::parse`, gathers tables, functions and filters
//! besides, by rules of its own that index into what it finds; nothing of that is wanted here. So this calls the C function and
//! decodes its answer, nothing else.

use std::ffi::{CStr, CString};
use std::os::raw::{c_char, c_int};

use pg_query::ParserOptions;
use pg_query::protobuf::ParseResult;
use prost::Message;

/// The parse trees of a text, or the parser's message.
#[allow(unsafe_code)]
pub(super) fn parse(text: &str, options: ParserOptions) -> Result<ParseResult, Box<str>> {
    let Ok(input) = CString::new(text) else {
        return Err("the text holds a byte of value zero".into());
    };
    // SAFETY: `input` is a string that ends with a zero byte and outlives the call; the function keeps no pointer to it. It may
    // be called on any thread (its state is thread-local), and it catches its own errors, stack depth included.
    let answer = unsafe { pg_query_parse_protobuf_opts(input.as_ptr(), options.bits()) };
    let tree = if answer.error.is_null() {
        let length = if answer.tree.data.is_null() { 0 } else { answer.tree.length };
        let bytes = if length == 0 {
            &[][..]
        } else {
            // SAFETY: without an error, `tree` is one allocation of `length` bytes, which nobody writes and which lives until
            // the answer is freed below.
            unsafe { std::slice::from_raw_parts(answer.tree.data.cast::<u8>(), length) }
        };
        ParseResult::decode(bytes).map_err(|error| error.to_string().into())
    } else {
        // SAFETY: an error that is not null points to a whole `Error`, valid until the answer is freed below.
        let message = unsafe { (*answer.error).message };
        if message.is_null() {
            Err("no message".into())
        } else {
            // SAFETY: the message is a string that ends with a zero byte and lives as long as the error.
            Err(unsafe { CStr::from_ptr(message) }.to_string_lossy().into())
        }
    };
    // SAFETY: the answer comes from the function above and is given back exactly once; nothing of it is borrowed any more.
    unsafe { pg_query_free_protobuf_parse_result(answer) };
    tree
}

/// `PgQueryProtobuf` of pg_query.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct Bytes {
    length: usize,
    data: *mut c_char,
}

/// `PgQueryError` of pg_query.h.
#[repr(C)]
struct Error {
    message: *mut c_char,
    function: *mut c_char,
    file: *mut c_char,
    line: c_int,
    position: c_int,
    context: *mut c_char,
}

/// `PgQueryProtobufParseResult` of pg_query.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct Answer {
    tree: Bytes,
    stderr: *mut c_char,
    error: *mut Error,
}

#[allow(unsafe_code)]
// SAFETY: these are the declarations of pg_query.h. The header cannot change unnoticed: the build of pg_query stops when its
// declarations differ from those that this was written for (crates/sql/bindgen).
unsafe extern "C" {
    fn pg_query_parse_protobuf_opts(input: *const c_char, options: c_int) -> Answer;
    fn pg_query_free_protobuf_parse_result(answer: Answer);
}
