//! What is known of PostgreSQL's own functions by their names alone: those that leave the session as it was, and those that do
//! not. A name is taken for the built-in one, wherever `search_path` leads; a function of the user's own that hides a built-in
//! one is found by the relation cache, not here.

use crate::words::Names;

/// The built-in functions that change nothing in the session and answer the same on any physical connection, one a line:
/// immutable and stable ones, and the few volatile ones of that kind. Left out on purpose: what reads the backend's private
/// state (`pg_backend_pid`, `pg_listening_channels`), what runs a query given as text (`query_to_xml`, `ts_stat`), `pg_stat_*`.
const HARMLESS_TEXT: &str = include_str!("functions/harmless.txt");

const fn count_lines(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut count = 0;
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'\n' {
            count += 1;
        }
        at += 1;
    }
    count
}

const COUNT: usize = count_lines(HARMLESS_TEXT);

const fn lines(text: &'static str) -> [&'static str; COUNT] {
    let mut names = [""; COUNT];
    let mut rest = text.as_bytes();
    let mut index = 0;
    while index < COUNT {
        let mut at = 0;
        while rest[at] != b'\n' {
            at += 1;
        }
        let (line, behind) = rest.split_at(at);
        names[index] = match std::str::from_utf8(line) {
            Ok(line) => line,
            Err(_) => panic!("names are ASCII"),
        };
        rest = behind.split_at(1).1;
        index += 1;
    }
    names
}

static HARMLESS: [&str; COUNT] = lines(HARMLESS_TEXT);
static HARMLESS_TABLE: Names<2048> = Names::new(&lines(HARMLESS_TEXT));

/// Whether the built-in function of this name leaves the session as it was. The name is in lower case.
#[must_use]
pub fn is_harmless(name: &str) -> bool {
    is_harmless_bytes(name.as_bytes())
}

#[inline]
pub(crate) fn is_harmless_bytes(name: &[u8]) -> bool {
    HARMLESS_TABLE.find(&HARMLESS, name).is_some()
}

macro_rules! session_functions {
    ($($text:literal => $function:expr,)*) => {
        static SESSION: &[&str] = &[$($text,)*];
        static SESSION_FUNCTIONS: &[SessionFunction] = &[$($function,)*];
        static SESSION_TABLE: Names<256> = Names::new(&[$($text,)*]);
    };
}

/// How long an advisory lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockSpan {
    /// To the end of the transaction.
    Transaction,
    /// Until it is released, or the session ends.
    Session,
}

/// A built-in function that changes its session, or reads what only its backend knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionFunction {
    /// `set_config`
    SetConfig,
    /// `nextval`: what currval and lastval answer from now on.
    NextValue,
    /// `setval`: the same, when it says so (its third argument).
    SetValue,
    /// `currval`: reads what nextval left in this backend.
    CurrentValue,
    /// `lastval`: the same for the sequence used last.
    LastValue,
    /// `pg_advisory_lock`, `pg_try_advisory_lock` and their shared and transaction forms.
    AdvisoryLock(LockSpan),
    /// `pg_advisory_unlock`, and `_shared`.
    AdvisoryUnlock,
    /// `pg_advisory_unlock_all`
    AdvisoryUnlockAll,
    /// `pg_notify`: sent at commit; nothing stays in the session.
    Notify,
    /// `setseed`: the random numbers of this backend.
    SetSeed,
    /// `lo_open`, `lo_creat` and the like: descriptors live until the transaction ends.
    LargeObject,
    /// `pg_backend_pid`, `pg_my_temp_schema`, `pg_listening_channels` and the like: the answer belongs to the backend.
    ReadsBackend,
    /// `pg_replication_origin_session_setup` and `_reset`.
    ReplicationOrigin,
    /// `pg_export_snapshot`: needs its transaction to stay open, nothing else.
    ExportSnapshot,
    /// `pg_backup_start` / `pg_backup_stop` (`pg_start_backup` before PostgreSQL 15): the backup lives in the session.
    Backup,
    /// `query_to_xml`, `ts_stat`, `ts_rewrite` and the like run a query that comes as text.
    RunsText,
    /// `dblink_connect` and the like: connections that an extension keeps in the backend.
    ForeignConnection,
}

use LockSpan::{Session, Transaction};
use SessionFunction as F;

session_functions! {
    "set_config" => F::SetConfig,
    "nextval" => F::NextValue,
    "setval" => F::SetValue,
    "currval" => F::CurrentValue,
    "lastval" => F::LastValue,
    "pg_advisory_lock" => F::AdvisoryLock(Session),
    "pg_advisory_lock_shared" => F::AdvisoryLock(Session),
    "pg_try_advisory_lock" => F::AdvisoryLock(Session),
    "pg_try_advisory_lock_shared" => F::AdvisoryLock(Session),
    "pg_advisory_xact_lock" => F::AdvisoryLock(Transaction),
    "pg_advisory_xact_lock_shared" => F::AdvisoryLock(Transaction),
    "pg_try_advisory_xact_lock" => F::AdvisoryLock(Transaction),
    "pg_try_advisory_xact_lock_shared" => F::AdvisoryLock(Transaction),
    "pg_advisory_unlock" => F::AdvisoryUnlock,
    "pg_advisory_unlock_shared" => F::AdvisoryUnlock,
    "pg_advisory_unlock_all" => F::AdvisoryUnlockAll,
    "pg_notify" => F::Notify,
    "setseed" => F::SetSeed,
    "lo_open" => F::LargeObject,
    "lo_close" => F::LargeObject,
    "lo_creat" => F::LargeObject,
    "lo_create" => F::LargeObject,
    "lo_import" => F::LargeObject,
    "lo_export" => F::LargeObject,
    "lo_lseek" => F::LargeObject,
    "lo_lseek64" => F::LargeObject,
    "lo_tell" => F::LargeObject,
    "lo_tell64" => F::LargeObject,
    "lo_truncate" => F::LargeObject,
    "lo_truncate64" => F::LargeObject,
    "lo_unlink" => F::LargeObject,
    "lo_from_bytea" => F::LargeObject,
    "lo_get" => F::LargeObject,
    "lo_put" => F::LargeObject,
    "loread" => F::LargeObject,
    "lowrite" => F::LargeObject,
    "pg_backend_pid" => F::ReadsBackend,
    "pg_my_temp_schema" => F::ReadsBackend,
    "pg_is_other_temp_schema" => F::ReadsBackend,
    "pg_listening_channels" => F::ReadsBackend,
    "pg_prepared_statement" => F::ReadsBackend,
    "pg_cursor" => F::ReadsBackend,
    "pg_conf_load_time" => F::ReadsBackend,
    "pg_get_backend_memory_contexts" => F::ReadsBackend,
    "inet_client_addr" => F::ReadsBackend,
    "inet_client_port" => F::ReadsBackend,
    "inet_server_addr" => F::ReadsBackend,
    "inet_server_port" => F::ReadsBackend,
    "pg_replication_origin_session_setup" => F::ReplicationOrigin,
    "pg_replication_origin_session_reset" => F::ReplicationOrigin,
    "pg_replication_origin_session_is_setup" => F::ReplicationOrigin,
    "pg_replication_origin_session_progress" => F::ReplicationOrigin,
    "pg_export_snapshot" => F::ExportSnapshot,
    "pg_backup_start" => F::Backup,
    "pg_backup_stop" => F::Backup,
    "pg_start_backup" => F::Backup,
    "pg_stop_backup" => F::Backup,
    "query_to_xml" => F::RunsText,
    "query_to_xml_and_xmlschema" => F::RunsText,
    "query_to_xmlschema" => F::RunsText,
    "cursor_to_xml" => F::RunsText,
    "cursor_to_xmlschema" => F::RunsText,
    "ts_stat" => F::RunsText,
    "ts_rewrite" => F::RunsText,
    "dblink" => F::RunsText,
    "dblink_exec" => F::RunsText,
    "dblink_connect" => F::ForeignConnection,
    "dblink_connect_u" => F::ForeignConnection,
    "dblink_disconnect" => F::ForeignConnection,
    "dblink_open" => F::ForeignConnection,
    "dblink_fetch" => F::ForeignConnection,
    "dblink_close" => F::ForeignConnection,
    "dblink_send_query" => F::ForeignConnection,
    "dblink_get_result" => F::ForeignConnection,
}

impl SessionFunction {
    /// What the built-in function of this name is, if it is one of these. The name is in lower case.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::of_bytes(name.as_bytes())
    }

    pub(crate) fn of_bytes(name: &[u8]) -> Option<Self> {
        SESSION_FUNCTIONS.get(SESSION_TABLE.find(SESSION, name)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_of_one_kind_only() {
        for name in HARMLESS {
            assert!(is_harmless(name), "{name}");
            assert_eq!(SessionFunction::of_name(name), None, "{name}");
            assert!(
                !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
                "{name}"
            );
        }
        for name in SESSION {
            assert!(SessionFunction::of_name(name).is_some(), "{name}");
            assert!(!is_harmless(name), "{name}");
        }
        assert!(HARMLESS.windows(2).all(|pair| pair[0] < pair[1]), "sorted, and each once");
    }

    #[test]
    fn functions_that_matter_are_not_harmless() {
        for name in [
            "set_config",
            "nextval",
            "lastval",
            "pg_advisory_lock",
            "dblink",
            "query_to_xml",
            "pg_terminate_backend",
            "ts_stat",
            "pg_reload_conf",
            "table_to_xml",
            "setseed",
            "txid_current",
            "pg_export_snapshot",
            "xpath_table",
            "SET_CONFIG",
            "",
        ] {
            assert!(!is_harmless(name), "{name}");
        }
    }
}
