//! Writing results to files, never over one that is there unless that was asked for.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Opens a new file for writing. One that exists is an error unless `force`.
pub(crate) fn create(path: &Path, force: bool) -> anyhow::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true);
    if force {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    match options.open(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            anyhow::bail!("{} exists already; name another file, or overwrite it with --force", path.display())
        }
        other => other.with_context(|| format!("cannot write {}", path.display())),
    }
}

/// Whether [`create`] will succeed: for programs that measure for a minute before they write. Leaves nothing behind.
pub(crate) fn check(path: &Path, force: bool) -> anyhow::Result<()> {
    if force && path.exists() {
        // Neither truncated nor changed.
        OpenOptions::new().append(true).open(path).with_context(|| format!("cannot write {}", path.display()))?;
        return Ok(());
    }
    create(path, force)?;
    std::fs::remove_file(path).with_context(|| format!("cannot write {}", path.display()))
}

/// Writes `text` to `path`, or to standard output without one.
pub(crate) fn write(path: Option<&Path>, force: bool, text: &str) -> anyhow::Result<()> {
    match path {
        Some(path) => {
            create(path, force)?.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
        }
        None => match io::stdout().lock().write_all(text.as_bytes()) {
            // `pgusher ... | head` is no failure.
            Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(e).context("cannot write to standard output"),
            _ => Ok(()),
        },
    }
}

/// A new file in the current folder, or in the temporary one if that cannot be written. The name is `stem` and a
/// number where needed, and `extension`.
pub(crate) fn create_somewhere(stem: &str, extension: &str) -> anyhow::Result<(PathBuf, File)> {
    let mut failure = None;
    for folder in [std::env::current_dir().unwrap_or_default(), std::env::temp_dir()] {
        for number in 1..1000 {
            let suffix = if number == 1 { String::new() } else { format!("-{number}") };
            let path = folder.join(format!("{stem}{suffix}.{extension}"));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => return Ok((path, file)),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => {
                    failure = Some(e);
                    break;
                }
            }
        }
    }
    Err(failure.unwrap_or_else(|| io::ErrorKind::AlreadyExists.into())).context("cannot write the report")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_overwritten_silently() {
        let path = std::env::temp_dir().join(format!("pgusher-files-{}", std::process::id()));
        write(Some(&path), false, "one").expect("a new file");
        let error = write(Some(&path), false, "two").expect_err("it exists");
        assert!(error.to_string().contains("--force"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).expect("readable"), "one");
        write(Some(&path), true, "2").expect("asked for");
        assert_eq!(std::fs::read_to_string(&path).expect("readable"), "2");
        check(&path, false).expect_err("it exists");
        check(&path, true).expect("writable");
        assert_eq!(std::fs::read_to_string(&path).expect("readable"), "2", "a check changes nothing");
        std::fs::remove_file(&path).expect("removable");
        check(&path, false).expect("writable");
        assert!(!path.exists(), "a check leaves nothing");
        let error = check(&path.join("no folder"), false).expect_err("no such folder");
        assert!(error.to_string().starts_with("cannot write "), "{error}");
    }
}
