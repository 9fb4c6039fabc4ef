//! The guard: a small shell script, a process of its own, that makes the folder of this process's servers and removes it with
//! everything that still runs in it when this process has ended, by whatever cause.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::account::Account;
use crate::error::{Error, Result};

const SCRIPT: &str = include_str!("guard.sh");
/// Names are random; so many collisions in a row mean that something else is wrong.
const NAME_ATTEMPTS: u32 = 8;
/// The guard itself gives up a little later.
const REMOVAL_LIMIT: Duration = Duration::from_secs(60);

/// A folder with its guard. The guard acts when [`Guard::finish`] is called, when this value is dropped, and when the kernel
/// closes the pipe because this process has ended.
#[derive(Debug)]
pub(crate) struct Guard {
    folder: PathBuf,
    shell: Child,
}

impl Guard {
    /// Makes the folder `base/pgusher-xxxxxx`, private to the account. The account makes it, so it can remove it as well.
    pub(crate) fn start(account: &Account, base: &Path) -> Result<Guard> {
        let mut attempt = 1;
        loop {
            let folder = base.join(format!("pgusher-{}", random_name()));
            match Guard::start_named(account, folder) {
                Err(Error::Program { output, .. }) if attempt < NAME_ATTEMPTS && output.contains("xists") => {
                    attempt += 1
                }
                other => return other,
            }
        }
    }

    fn start_named(account: &Account, folder: PathBuf) -> Result<Guard> {
        let mut command = account.command("sh");
        command
            .args(["-c", SCRIPT, "pgusher-guard"])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Out of reach of a Ctrl-C at the terminal.
            .process_group(0);
        let mut shell = command.spawn().map_err(Error::io("starting sh"))?;
        let mut line = String::new();
        if let Some(stdout) = shell.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(Error::io("listening to sh"))?;
        }
        if line == "made\n" {
            return Ok(Guard { folder, shell });
        }
        let mut said = String::new();
        if let Some(stderr) = shell.stderr.take() {
            stderr.take(4096).read_to_string(&mut said).map_err(Error::io("listening to sh"))?;
        }
        let status = shell.wait().map_err(Error::io("waiting for sh"))?;
        Err(Error::Program {
            program: format!("creating {}", folder.display()),
            status: status.to_string(),
            output: said.trim().to_owned(),
        })
    }

    /// The folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Lets the guard act now and waits until the folder is gone.
    pub(crate) fn finish(mut self) -> Result<()> {
        drop(self.shell.stdin.take());
        let what = format!("removing {}", self.folder.display());
        let end = Instant::now() + REMOVAL_LIMIT;
        while self.shell.try_wait().map_err(Error::io(what.clone()))?.is_none() {
            if Instant::now() >= end {
                return Err(Error::io(what)(io::ErrorKind::TimedOut.into()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        if self.folder.exists() {
            return Err(Error::io(what)(io::Error::other("it is still there")));
        }
        Ok(())
    }
}

/// Six letters and digits. Not a secret: the folder is made only where nothing has its name, and nobody else may enter it.
fn random_name() -> String {
    let mut number = RandomState::new().build_hasher().finish();
    (0..6)
        .map(|_| {
            let digit = (number % 36) as u32;
            number /= 36;
            char::from_digit(digit, 36).unwrap_or('0')
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::server_account;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    /// Open to every account, as /tmp is.
    fn base() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        folder
    }

    /// A process of the account that works in the folder: a shell of this name.
    fn member(account: &Account, guard: &Guard, name: &str, script: &str) -> Child {
        let inner = guard.folder().join("1");
        fs::create_dir(&inner).unwrap();
        account.own(&inner).unwrap();
        // Beside the folder, because it is to be running when that is removed.
        let shell = guard.folder().with_file_name(name);
        fs::copy("/bin/sh", &shell).unwrap();
        let mut command = account.command(&shell);
        command.args(["-c", script]).current_dir(&inner).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "runs\n");
        child
    }

    #[test]
    fn the_folder_is_private_and_goes() {
        let (base, account) = (base(), server_account());
        let guard = Guard::start(&account, base.path()).unwrap();
        let folder = guard.folder().to_path_buf();
        let metadata = fs::metadata(&folder).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o7777, 0o700);
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&metadata), account.uid);
        fs::write(folder.join("file"), "x").unwrap();
        guard.finish().unwrap();
        assert!(!folder.exists());
    }

    #[test]
    fn a_taken_name_and_a_closed_folder_are_errors() {
        let (base, account) = (base(), server_account());
        let taken = base.path().join("taken");
        fs::write(&taken, "mine").unwrap();
        let error = Guard::start_named(&account, taken.clone()).unwrap_err().to_string();
        assert!(error.contains("xists") && error.contains("taken"), "{error}");
        assert_eq!(fs::read_to_string(&taken).unwrap(), "mine");
        let error = Guard::start(&account, &base.path().join("missing")).unwrap_err().to_string();
        assert!(error.contains("missing/pgusher-"), "{error}");
    }

    /// What made the removal fail: somebody still writes into the folder while it is removed, and does not stop when asked.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_that_goes_on_writing_is_ended_first() {
        let (base, account) = (base(), server_account());
        let guard = Guard::start(&account, base.path()).unwrap();
        let folder = guard.folder().to_path_buf();
        let script = "trap '' QUIT; echo runs; while :; do mkdir -p ../2/$((i % 50)); i=$((i + 1)); done";
        let mut child = member(&account, &guard, "postgres", script);
        guard.finish().unwrap();
        assert!(!folder.exists());
        assert!(child.wait().unwrap().code().is_none(), "it was not killed");
    }

    /// The guard may not trust a process number in a lock file: the process may be somebody else's by now.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_elsewhere_is_left_alone() {
        let (base, account) = (base(), server_account());
        let guard = Guard::start(&account, base.path()).unwrap();
        let mut other = account.command("sleep").arg("60").spawn().unwrap();
        let data = guard.folder().join("1/data");
        fs::create_dir_all(&data).unwrap();
        fs::write(data.join("postmaster.pid"), format!("{}\n", other.id())).unwrap();
        let all = Command::new("chown").arg("-R").arg(account.uid.to_string()).arg(guard.folder()).status().unwrap();
        assert!(all.success());
        guard.finish().unwrap();
        assert!(other.try_wait().unwrap().is_none(), "somebody else's process was ended");
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn somebody_who_looks_at_the_folder_is_left_alone() {
        let (base, account) = (base(), server_account());
        let guard = Guard::start(&account, base.path()).unwrap();
        let folder = guard.folder().to_path_buf();
        let mut child = member(&account, &guard, "looker", "echo runs; read line");
        guard.finish().unwrap();
        assert!(!folder.exists());
        assert!(child.try_wait().unwrap().is_none(), "it was ended");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// A child that has ended and was not waited for has no folder any more and does not hold the guard up.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_zombie_does_not_hold_it_up() {
        let (base, account) = (base(), server_account());
        let guard = Guard::start(&account, base.path()).unwrap();
        let mut child = member(&account, &guard, "postgres", "echo runs");
        fs::write(guard.folder().join("1/postmaster.pid"), child.id().to_string()).unwrap();
        guard.finish().unwrap();
        assert!(child.wait().unwrap().success());
    }
}
