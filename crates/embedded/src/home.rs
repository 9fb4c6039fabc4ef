//! The folder of this process's servers, and the guard that clears up after the process.
//!
//! All servers and the templates that they are copied from live in one folder, private to the account of the server. The guard
//! is a small shell script that reads a pipe to which nobody writes: the read ends when this process has ended, by whatever
//! cause, and then the guard stops what still runs in the folder and removes it.

use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::account::{Account, server_account};
use crate::binaries::Binaries;
use crate::error::{Error, Result};

/// The smallest `sun_path` of the systems at hand is 104 bytes with its final zero (macOS; Linux has 108).
const SOCKET_PATH_LIMIT: usize = 103;
/// What follows the temporary folder: `/pgusher-xxxxxx`, `/` and a number, and the name of the socket.
const SOCKET_PATH_REST: usize = "/pgusher-xxxxxx/9999/.s.PGSQL.65535".len();

/// Argument 1: the folder. The waits are bounded: a postmaster that ignores SIGQUIT for 5 s is killed. A postmaster that was
/// killed has left its System V segment, which its lock file names in line 7 (`src/include/utils/pidfile.h`).
const GUARD: &str = r#"
trap '' HUP INT QUIT TERM
while read -r _; do :; done
postmasters() {
    for file in "$1"/*/data/postmaster.pid; do
        [ -f "$file" ] && read -r pid < "$file" && [ "$pid" -gt 1 ] 2>/dev/null && echo "$pid"
    done
}
pids=$(postmasters "$1")
signal=QUIT
i=0
while [ $i -lt 120 ]; do
    alive=
    for pid in $pids; do kill -0 "$pid" 2>/dev/null && alive="$alive $pid"; done
    [ -z "$alive" ] && break
    [ $i -ge 100 ] && signal=KILL
    [ $((i % 20)) -eq 0 ] && kill -$signal $alive 2>/dev/null
    i=$((i + 1))
    sleep 0.05
done
for file in "$1"/*/data/postmaster.pid; do
    [ -f "$file" ] || continue
    segment=$(sed -n '7s/^ *[0-9][0-9]* *//p' "$file")
    [ -n "$segment" ] && ipcrm -m "$segment" 2>/dev/null
done
rm -rf "$1" || { sleep 1; rm -rf "$1"; }
"#;

/// What makes two clusters start from the same template.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TemplateKey {
    pub(crate) folder: PathBuf,
    pub(crate) superuser: String,
    pub(crate) initdb: Vec<String>,
}

/// The folder of this process's servers.
#[derive(Debug)]
pub(crate) struct Home {
    account: Account,
    root: PathBuf,
    next: AtomicU32,
    templates: Mutex<HashMap<TemplateKey, PathBuf>>,
    /// The guard's pipe: closed by the kernel when this process ends.
    _pipe: Option<ChildStdin>,
}

impl Home {
    /// The home of this process, made at the first call.
    pub(crate) fn get() -> Result<&'static Home> {
        static HOME: OnceLock<Home> = OnceLock::new();
        static MAKING: Mutex<()> = Mutex::new(());
        if let Some(home) = HOME.get() {
            return Ok(home);
        }
        // One at a time, and a failure is not remembered: the next caller tries again.
        let _one = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(home) = HOME.get() {
            return Ok(home);
        }
        let home = Home::make()?;
        Ok(HOME.get_or_init(|| home))
    }

    fn make() -> Result<Home> {
        let account = server_account();
        let mut failure = None;
        let mut bases = vec![std::env::temp_dir(), PathBuf::from("/tmp")];
        bases.dedup();
        for base in bases {
            match make_root(&base, &account) {
                Ok(root) => {
                    let pipe = start_guard(&account, &root).inspect_err(|_| {
                        let _ = fs::remove_dir_all(&root);
                    })?;
                    return Ok(Home {
                        account,
                        root,
                        next: AtomicU32::new(1),
                        templates: Mutex::new(HashMap::new()),
                        _pipe: pipe,
                    });
                }
                Err(e) => failure = Some(e),
            }
        }
        Err(failure.unwrap_or_else(|| Error::Option("there is no temporary folder".into())))
    }

    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    /// A new, empty folder for one server; private to the account.
    pub(crate) fn new_folder(&self) -> Result<PathBuf> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let folder = self.root.join(number.to_string());
        let what = format!("creating {}", folder.display());
        fs::create_dir(&folder).map_err(Error::io(what.clone()))?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).map_err(Error::io(what.clone()))?;
        self.account.own(&folder).map_err(Error::io(what))?;
        Ok(folder)
    }

    /// Fills `data` with a fresh cluster: `initdb` takes a second, so it runs once per process and kind of cluster.
    pub(crate) fn new_cluster(&self, binaries: &Binaries, key: &TemplateKey, data: &Path) -> Result<()> {
        let template = {
            let mut templates = self.templates.lock().unwrap_or_else(PoisonError::into_inner);
            match templates.get(key) {
                Some(path) => path.clone(),
                None => {
                    let path = self.root.join(format!("template{}", templates.len()));
                    initdb(&self.account, binaries, key, &path)?;
                    templates.insert(key.clone(), path.clone());
                    path
                }
            }
        };
        let mut copy = self.account.command("cp");
        copy.arg("-R").arg("-p").arg(&template).arg(data);
        run(copy, "cp").map(drop)
    }
}

fn make_root(base: &Path, account: &Account) -> Result<PathBuf> {
    if base.as_os_str().as_bytes().len() + SOCKET_PATH_REST > SOCKET_PATH_LIMIT {
        return Err(Error::Option(format!("the path {} is too long for a Unix socket in it", base.display())));
    }
    let what = format!("creating a folder in {}", base.display());
    // 0700 from the start; the name cannot be guessed and an existing name is not taken.
    let root = tempfile::Builder::new()
        .prefix("pgusher-")
        .permissions(fs::Permissions::from_mode(0o700))
        .tempdir_in(base)
        .map_err(Error::io(what.clone()))?;
    account.own(root.path()).map_err(Error::io(what))?;
    // As root, the account may be kept out of the folder above (a TMPDIR of root's own).
    let mut entry = account.command("sh");
    entry.args(["-c", "cd \"$1\" && test -w ."]).arg("sh").arg(root.path());
    run(entry, "sh")?;
    Ok(root.keep())
}

fn start_guard(account: &Account, root: &Path) -> Result<Option<ChildStdin>> {
    let mut guard = account.command("sh");
    guard
        .args(["-c", GUARD, "pgusher-guard"])
        .arg(root)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Out of reach of a Ctrl-C at the terminal.
        .process_group(0);
    let mut child = guard.spawn().map_err(Error::io("starting sh"))?;
    Ok(child.stdin.take())
}

fn initdb(account: &Account, binaries: &Binaries, key: &TemplateKey, path: &Path) -> Result<()> {
    let attempt = |locale: &str| {
        let mut command = account.command(binaries.folder().join("initdb"));
        command
            .args(["--no-sync", "-A", "trust", "-E", "UTF8", "--no-instructions"])
            .arg(format!("--locale={locale}"))
            .args(["-U", &key.superuser])
            .args(&key.initdb)
            .arg("-D")
            .arg(path);
        run(command, "initdb").map(drop)
    };
    // Some systems have no C.UTF-8. Then the plain C locale serves; the encoding is the same. initdb clears up a failure.
    attempt("C.UTF-8").or_else(|first| attempt("C").map_err(|_| first))
}

/// Runs a command to its end; returns its standard output.
pub(crate) fn run(mut command: Command, name: &str) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().map_err(Error::io(format!("starting {name}")))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let text = if stderr.trim().is_empty() { stdout.trim() } else { stderr.trim() };
    Err(Error::Program { program: name.to_owned(), status: output.status.to_string(), output: text.to_owned() })
}
