//! How many files this process may open: each connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that a process needs besides its connections: standard streams, event queues, a control connection, logs; and of
/// a connection manager its servers.
pub const SPARE_FILES: u32 = 250;

/// Too many clients for this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{clients} clients need {needed} open files, but this process may open {limit}; raise the hard limit (ulimit -Hn, LimitNOFILE) \
     or take at most {} clients",
    limit.saturating_sub(u64::from(SPARE_FILES))
)]
pub struct FileLimit {
    /// How many clients were wanted.
    pub clients: u32,
    /// How many files that needs.
    pub needed: u64,
    /// How many are allowed.
    pub limit: u64,
}

/// Raises this process's limit of open files, which its children inherit, to the hard limit.
///
/// # Errors
/// [`FileLimit`] if that is not enough for so many clients.
pub fn raise_file_limit(clients: u32) -> Result<(), FileLimit> {
    let limit = getrlimit(Resource::Nofile);
    // A refusal leaves the old limit, and that is what is read below.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let needed = u64::from(clients) + u64::from(SPARE_FILES);
    if needed > limit { Err(FileLimit { clients, needed, limit }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_a_process_may_open_is_refused() {
        let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        raise_file_limit(1).expect("one is always possible");
        if let Ok(clients) = u32::try_from(limit) {
            let error = raise_file_limit(clients).expect_err("the spare files are too many");
            assert!(error.to_string().contains("open files"), "{error}");
        }
    }
}
