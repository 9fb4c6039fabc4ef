// The declarations of libpg_query's pg_query.h and postgres_deparse.h that the crate pg_query uses, in Rust.
// Written into pg_query's build folder by lib.rs beside this file, which checks that the header is the one meant here.

pub const PG_VERSION_NUM: u32 = 180006;

pub type PgQueryToken = ::std::os::raw::c_uint;
pub type PgQueryKeywordKind = ::std::os::raw::c_uint;

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct PgQueryError {
    pub message: *mut ::std::os::raw::c_char,
    pub funcname: *mut ::std::os::raw::c_char,
    pub filename: *mut ::std::os::raw::c_char,
    pub lineno: ::std::os::raw::c_int,
    pub cursorpos: ::std::os::raw::c_int,
    pub context: *mut ::std::os::raw::c_char,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct PgQueryIsUtilityResult {
    pub length: ::std::os::raw::c_int,
    pub items: *mut bool,
    pub error: *mut PgQueryError,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct PgQueryProtobuf {
    pub len: usize,
    pub data: *mut ::std::os::raw::c_char,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct PgQueryScanResult {
    pub pbuf: PgQueryProtobuf,
    pub stderr_buffer: *mut ::std::os::raw::c_char,
    pub error: *mut PgQueryError,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct PgQueryScanToken {
    pub start: ::std::os::raw::c_int,
    pub end: ::std::os::raw::c_int,
    pub token: PgQueryToken,
    pub keyword_kind: PgQueryKeywordKind,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct PgQueryScanTokensResult {
    pub tokens: *mut PgQueryScanToken,
    pub n_tokens: ::std::os::raw::c_int,
    pub error: *mut PgQueryError,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct PgQueryParseResult {
    pub parse_tree: *mut ::std::os::raw::c_char,
    pub stderr_buffer: *mut ::std::os::raw::c_char,
    pub error: *mut PgQueryError,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct PgQueryProtobufParseResult {
    pub parse_tree: PgQueryProtobuf,
    pub stderr_buffer: *mut ::std::os::raw::c_char,
    pub error: *mut PgQueryError,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct PgQuerySplitStmt {
    pub stmt_location: ::std::os::raw::c_int,
    pub stmt_len: ::std::os::raw::c_int,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct PgQuerySplitResult {
    pub stmts: *mut *mut PgQuerySplitStmt,
    pub n_stmts: ::std::os::raw::c_int,
    pub stderr_buffer: *mut ::std::os::raw::c_char,
    pub error: *mut PgQueryError,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct PgQueryDeparseResult {
    pub query: *mut ::std::os::raw::c_char,
    pub error: *mut PgQueryError,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct PgQueryDeparseCommentsResult {
    pub comments: *mut *mut PostgresDeparseComment,
    pub comment_count: usize,
    pub error: *mut PgQueryError,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct PgQueryPlpgsqlParseResult {
    pub plpgsql_funcs: *mut ::std::os::raw::c_char,
    pub error: *mut PgQueryError,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct PgQueryFingerprintResult {
    pub fingerprint: u64,
    pub fingerprint_str: *mut ::std::os::raw::c_char,
    pub stderr_buffer: *mut ::std::os::raw::c_char,
    pub error: *mut PgQueryError,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct PgQueryNormalizeResult {
    pub normalized_query: *mut ::std::os::raw::c_char,
    pub error: *mut PgQueryError,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct PgQuerySummaryParseResult {
    pub summary: PgQueryProtobuf,
    pub stderr_buffer: *mut ::std::os::raw::c_char,
    pub error: *mut PgQueryError,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct PostgresDeparseComment {
    pub match_location: ::std::os::raw::c_int,
    pub newlines_before_comment: ::std::os::raw::c_int,
    pub newlines_after_comment: ::std::os::raw::c_int,
    pub str_: *mut ::std::os::raw::c_char,
}

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct PostgresDeparseOpts {
    pub comments: *mut *mut PostgresDeparseComment,
    pub comment_count: usize,
    pub pretty_print: bool,
    pub indent_size: ::std::os::raw::c_int,
    pub max_line_length: ::std::os::raw::c_int,
    pub trailing_newline: bool,
    pub commas_start_of_line: bool,
}

extern "C" {
    pub fn pg_query_normalize(input: *const ::std::os::raw::c_char) -> PgQueryNormalizeResult;
    pub fn pg_query_scan(input: *const ::std::os::raw::c_char) -> PgQueryScanResult;
    pub fn pg_query_scan_tokens(input: *const ::std::os::raw::c_char) -> PgQueryScanTokensResult;
    pub fn pg_query_parse_protobuf_opts(
        input: *const ::std::os::raw::c_char,
        parser_options: ::std::os::raw::c_int,
    ) -> PgQueryProtobufParseResult;
    pub fn pg_query_parse_plpgsql(input: *const ::std::os::raw::c_char) -> PgQueryPlpgsqlParseResult;
    pub fn pg_query_fingerprint_opts(
        input: *const ::std::os::raw::c_char,
        parser_options: ::std::os::raw::c_int,
        fingerprint_options: ::std::os::raw::c_int,
    ) -> PgQueryFingerprintResult;
    pub fn pg_query_split_with_scanner(input: *const ::std::os::raw::c_char) -> PgQuerySplitResult;
    pub fn pg_query_split_with_parser(input: *const ::std::os::raw::c_char) -> PgQuerySplitResult;
    pub fn pg_query_deparse_protobuf_opts(
        parse_tree: PgQueryProtobuf,
        opts: PostgresDeparseOpts,
    ) -> PgQueryDeparseResult;
    pub fn pg_query_deparse_comments_for_query(query: *const ::std::os::raw::c_char) -> PgQueryDeparseCommentsResult;
    pub fn pg_query_is_utility_stmt(query: *const ::std::os::raw::c_char) -> PgQueryIsUtilityResult;
    pub fn pg_query_summary(
        input: *const ::std::os::raw::c_char,
        parser_options: ::std::os::raw::c_int,
        truncate_limit: ::std::os::raw::c_int,
    ) -> PgQuerySummaryParseResult;

    pub fn pg_query_free_normalize_result(result: PgQueryNormalizeResult);
    pub fn pg_query_free_scan_result(result: PgQueryScanResult);
    pub fn pg_query_free_scan_tokens_result(result: PgQueryScanTokensResult);
    pub fn pg_query_free_split_result(result: PgQuerySplitResult);
    pub fn pg_query_free_deparse_result(result: PgQueryDeparseResult);
    pub fn pg_query_free_deparse_comments_result(result: PgQueryDeparseCommentsResult);
    pub fn pg_query_free_protobuf_parse_result(result: PgQueryProtobufParseResult);
    pub fn pg_query_free_plpgsql_parse_result(result: PgQueryPlpgsqlParseResult);
    pub fn pg_query_free_fingerprint_result(result: PgQueryFingerprintResult);
    pub fn pg_query_free_is_utility_result(result: PgQueryIsUtilityResult);
    pub fn pg_query_free_summary_parse_result(result: PgQuerySummaryParseResult);
}
