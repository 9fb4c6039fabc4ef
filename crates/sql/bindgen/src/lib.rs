//! Stands in for the crate `bindgen` while `pg_query` is built. Not for anything else.
//!
//! `pg_query` compiles PostgreSQL's grammar (C) and lets bindgen translate one header of twenty functions. bindgen needs
//! libclang for that: 100 MB and more on a fresh Debian, for a header that changes once a year. The translation is therefore
//! written down in `pg_query.rs` beside this file, and the root Cargo.toml puts this crate in bindgen's place
//! (`[patch.crates-io]`).
//!
//! The translation belongs to one exact header. This crate compares a hash of the header's declarations with the one it was
//! written for, and fails the build with a clear message when they differ: nothing is ever linked by guess.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What the header declares, in Rust.
const BINDINGS: &str = include_str!("pg_query.rs");

/// The headers that [`BINDINGS`] was written for: FNV-1a over their bytes, white space left out.
const WRITTEN_FOR: [(&str, u64); 2] = [("pg_query.h", PG_QUERY_H), ("postgres_deparse.h", POSTGRES_DEPARSE_H)];
const PG_QUERY_H: u64 = 0xfd99_304d_534f_d09f;
const POSTGRES_DEPARSE_H: u64 = 0x637a_053d_eaf8_af1b;

/// The part of bindgen's builder that `pg_query` uses.
#[derive(Debug, Default)]
pub struct Builder {
    header: Option<PathBuf>,
}

impl Builder {
    /// The header to translate.
    #[must_use]
    pub fn header(mut self, path: impl Into<String>) -> Self {
        self.header = Some(PathBuf::from(path.into()));
        self
    }

    /// Looks at the header, and at the one it includes.
    ///
    /// # Errors
    /// When one of them is not readable, or is another version than the bindings were written for.
    pub fn generate(self) -> Result<Bindings, Refused> {
        let header = self.header.ok_or(Refused::NoHeader)?;
        let folder = header.parent().unwrap_or_else(|| Path::new("."));
        for (name, expected) in WRITTEN_FOR {
            let path = folder.join(name);
            let text = fs::read(&path).map_err(|error| Refused::Unreadable(path.clone(), error))?;
            let found = hash_of_declarations(&text);
            if found != expected {
                return Err(Refused::OtherVersion { path, found });
            }
        }
        Ok(Bindings(()))
    }
}

/// The finished bindings.
#[derive(Debug)]
pub struct Bindings(());

impl Bindings {
    /// Writes the Rust text to `path`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_to_file(&self, path: impl AsRef<Path>) -> io::Result<()> {
        fs::write(path, BINDINGS)
    }
}

/// Why there are no bindings.
#[derive(Debug)]
pub enum Refused {
    /// No header was named.
    NoHeader,
    /// The header cannot be read.
    Unreadable(PathBuf, io::Error),
    /// The header is not the one that the bindings were written for.
    OtherVersion {
        /// The header.
        path: PathBuf,
        /// Its hash.
        found: u64,
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHeader => f.write_str("no header was named"),
            Self::Unreadable(path, error) => write!(f, "{}: {error}", path.display()),
            Self::OtherVersion { path, found } => write!(
                f,
                "{} is another version (hash {found:#018x}) than crates/sql/bindgen/src/pg_query.rs was written for; compare \
                 its declarations with that file, then put the hash into crates/sql/bindgen/src/lib.rs (or remove the patch of \
                 bindgen from the root Cargo.toml and install libclang)",
                path.display()
            ),
        }
    }
}

impl std::error::Error for Refused {}

fn hash_of_declarations(text: &[u8]) -> u64 {
    text.iter()
        .filter(|byte| !byte.is_ascii_whitespace())
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}
