//! PostgreSQL 18 for the tests that need it: from PGUSHER_TEST_PG18_BIN, or from where scripts/fetch-pg18 has put it.

use std::path::{Path, PathBuf};

use pgusher_embedded::{Binaries, Builder, Server, server_account};

/// The choices for a server of version 18; `None`, with a word about it, where there is none.
pub(crate) fn builder() -> Option<Builder> {
    let account = server_account();
    let named = std::env::var_os("PGUSHER_TEST_PG18_BIN").filter(|name| !name.is_empty());
    let binaries = match named {
        Some(folder) => Some(Binaries::in_folder(Path::new(&folder), &account).expect("PGUSHER_TEST_PG18_BIN")),
        None => fetched().and_then(|folder| Binaries::in_folder(&folder, &account).ok()),
    };
    match binaries.filter(|binaries| binaries.version().major == 18) {
        Some(binaries) => Some(Server::builder().binaries(binaries)),
        None => {
            eprintln!("skipped: no PostgreSQL 18 here; `make test-pg18` fetches it, PGUSHER_TEST_PG18_BIN names one");
            None
        }
    }
}

/// Beside the folder that cargo gives to tests for their files.
fn fetched() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?.join("pg18");
    let mut versions: Vec<PathBuf> = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).collect();
    versions.retain(|version| version.join("complete").exists());
    versions.sort();
    Some(versions.pop()?.join("bin"))
}
