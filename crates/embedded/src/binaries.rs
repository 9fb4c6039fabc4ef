//! Finds PostgreSQL's server programs. A folder counts only when its `initdb` and `postgres` both run, with the rights that
//! they will be used with, and are of the same version: distributions link single programs into folders on the PATH.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::account::Account;
use crate::error::{Error, Result};
use crate::install;

/// The version of a PostgreSQL server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Version {
    /// The major version, for example 17.
    pub major: u32,
    /// All that the program says of itself after `(PostgreSQL)`, for example `15.20 (Debian 15.20-0+deb12u1)`.
    pub text: String,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A folder with PostgreSQL's programs.
#[derive(Debug, Clone)]
pub struct Binaries {
    folder: PathBuf,
    version: Version,
}

impl Binaries {
    /// Looks in `PGUSHER_PG_BIN` (and nowhere else when that is set), then in the folders of PATH, the one that `pg_config`
    /// names, and the usual folders of the systems, newest version first.
    ///
    /// # Errors
    /// [`Error::NotFound`] with the folders that were tried and what to install.
    pub fn find(account: &Account) -> Result<Binaries> {
        if let Some(folder) = std::env::var_os("PGUSHER_PG_BIN").filter(|v| !v.is_empty()) {
            let folder = PathBuf::from(folder);
            return probe(&folder, account)
                .map_err(|why| Error::NotFound(format!("PGUSHER_PG_BIN={}: {why}", folder.display())));
        }
        search(candidates(), account)
    }

    /// Those in `folder`, whatever else this machine has.
    ///
    /// # Errors
    /// [`Error::NotFound`] with what is wrong with it.
    pub fn in_folder(folder: &Path, account: &Account) -> Result<Binaries> {
        probe(folder, account).map_err(|why| Error::NotFound(format!("{}: {why}", folder.display())))
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The version of the server.
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// The path of a program, for example `psql`: from this folder, else the first on the PATH, else the bare name.
    pub fn program(&self, name: &str) -> PathBuf {
        std::iter::once(self.folder.clone())
            .chain(path_folders())
            .map(|folder| folder.join(name))
            .find(|path| path.is_file())
            .unwrap_or_else(|| PathBuf::from(name))
    }
}

fn search(folders: Vec<PathBuf>, account: &Account) -> Result<Binaries> {
    let mut tried = Vec::new();
    for folder in folders {
        match probe(&folder, account) {
            Ok(found) => return Ok(found),
            Err(why) => tried.push(format!("  {}: {why}", folder.display())),
        }
    }
    let os_release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let advice = install::advice(std::env::consts::OS, &os_release);
    let tried = if tried.is_empty() { String::new() } else { format!("\nLooked at:\n{}", tried.join("\n")) };
    Err(Error::NotFound(format!(
        "PostgreSQL's server programs (initdb and postgres) were not found.\n{advice}\n\
         Or name their folder in PGUSHER_PG_BIN.{tried}"
    )))
}

/// Every folder worth a look, in order of preference and without repetition.
fn candidates() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    // A linked `postgres` is followed: the folder of the real program has the other programs beside it.
    for folder in path_folders().filter(|f| f.join("postgres").is_file()) {
        if let Ok(real) = fs::canonicalize(folder.join("postgres")) {
            folders.extend(real.parent().map(Path::to_path_buf));
        }
        folders.push(folder);
    }
    folders.extend(pg_config());
    for (parent, prefix, rest) in [
        ("/usr/lib/postgresql", "", "bin"),
        ("/usr", "pgsql-", "bin"),
        ("/opt/homebrew/opt", "postgresql", "bin"),
        ("/usr/local/opt", "postgresql", "bin"),
        ("/home/linuxbrew/.linuxbrew/opt", "postgresql", "bin"),
        ("/Applications/Postgres.app/Contents/Versions", "", "bin"),
        ("/Library/PostgreSQL", "", "bin"),
        ("/usr/libexec", "postgresql", ""),
    ] {
        folders.extend(versioned(Path::new(parent), prefix, rest));
    }
    folders.push("/usr/local/pgsql/bin".into());
    folders.push("/usr/local/bin".into());
    folders.push("/usr/bin".into());
    let mut seen = std::collections::HashSet::new();
    folders.retain(|f| f.join("postgres").exists() && seen.insert(f.clone()));
    folders
}

fn path_folders() -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).collect::<Vec<_>>().into_iter()
}

fn pg_config() -> Option<PathBuf> {
    let output = Command::new("pg_config").arg("--bindir").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let folder = text.trim();
    (output.status.success() && !folder.is_empty()).then(|| folder.into())
}

/// The sub-folders of `parent` that begin with `prefix`, highest version number first, each with `rest` added.
fn versioned(parent: &Path, prefix: &str, rest: &str) -> Vec<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir(parent)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let number = name.strip_prefix(prefix)?.trim_start_matches('@');
            Some((leading_number(number).unwrap_or(0), entry.path().join(rest)))
        })
        .collect();
    found.sort_by(|a, b| b.cmp(a));
    found.into_iter().map(|(_, path)| path).collect()
}

fn leading_number(text: &str) -> Option<u32> {
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Checks that the folder can be used; the error says why not.
fn probe(folder: &Path, account: &Account) -> std::result::Result<Binaries, String> {
    let postgres = version_of(&folder.join("postgres"), account)?;
    let initdb = version_of(&folder.join("initdb"), account)?;
    if postgres.text != initdb.text {
        return Err(format!("postgres is {postgres}, initdb is {initdb}"));
    }
    if postgres.major < 12 {
        return Err(format!("version {postgres} is too old, 12 or later is needed"));
    }
    Ok(Binaries { folder: folder.to_path_buf(), version: postgres })
}

fn version_of(program: &Path, account: &Account) -> std::result::Result<Version, String> {
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let output = account
        .command(program)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("{name} cannot be run: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(format!("{name} --version failed ({})", output.status));
    }
    parse_version(&text).ok_or_else(|| format!("{name} --version says {:?}", text.trim()))
}

/// `postgres (PostgreSQL) 15.20 (Debian 15.20-0+deb12u1)`
fn parse_version(text: &str) -> Option<Version> {
    let text = text.split_once("(PostgreSQL)")?.1.trim();
    Some(Version { major: leading_number(text)?, text: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::server_account;
    use std::os::unix::fs::PermissionsExt;

    fn script(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn versions_are_read() {
        let version = parse_version("postgres (PostgreSQL) 15.20 (Debian 15.20-0+deb12u1)\n").unwrap();
        assert_eq!(version.major, 15);
        assert_eq!(version.text, "15.20 (Debian 15.20-0+deb12u1)");
        assert_eq!(parse_version("initdb (PostgreSQL) 18beta1").unwrap().major, 18);
        assert!(parse_version("postgres 15").is_none());
    }

    #[test]
    fn nothing_found_says_what_to_install() {
        let error = search(Vec::new(), &server_account()).unwrap_err().to_string();
        assert!(error.contains("nstall"), "{error}");
        assert!(error.contains("initdb and postgres"), "{error}");
        assert!(error.contains("PGUSHER_PG_BIN"), "{error}");
    }

    #[test]
    fn a_folder_needs_both_programs_of_one_version() {
        let account = server_account();
        let folder = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap();
        script(&folder.path().join("postgres"), "#!/bin/sh\necho 'postgres (PostgreSQL) 15.2'\n");
        let error = search(vec![folder.path().into()], &account).unwrap_err().to_string();
        assert!(error.contains("initdb cannot be run"), "{error}");
        script(&folder.path().join("initdb"), "#!/bin/sh\necho 'initdb (PostgreSQL) 14.9'\n");
        let error = search(vec![folder.path().into()], &account).unwrap_err().to_string();
        assert!(error.contains("postgres is 15.2, initdb is 14.9"), "{error}");
        script(&folder.path().join("initdb"), "#!/bin/sh\necho 'initdb (PostgreSQL) 15.2'\n");
        let found = search(vec![folder.path().into()], &account).unwrap();
        assert_eq!(found.version().major, 15);
        assert_eq!(found.folder(), folder.path());
    }

    #[test]
    fn newest_first() {
        let parent = tempfile::tempdir().unwrap();
        for name in ["postgresql@9", "postgresql@17", "postgresql@16", "redis"] {
            fs::create_dir(parent.path().join(name)).unwrap();
        }
        let found = versioned(parent.path(), "postgresql", "bin");
        let names: Vec<String> =
            found.iter().map(|p| p.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned()).collect();
        assert_eq!(names, ["postgresql@17", "postgresql@16", "postgresql@9"]);
    }
}
