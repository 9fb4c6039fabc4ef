//! The folder of this process's servers: all of them and the templates that they are copied from live in one folder, private
//! to the account of the server, under a guard that removes it (see `guard`).

use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::account::{Account, server_account};
use crate::binaries::Binaries;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::process::spawn_tied;

/// The smallest `sun_path` of the systems at hand is 104 bytes with its final zero (macOS; Linux has 108).
const SOCKET_PATH_LIMIT: usize = 103;
/// What follows the temporary folder: `/pgusher-xxxxxx`, `/` and a number, and the name of the socket.
const SOCKET_PATH_REST: usize = "/pgusher-xxxxxx/9999/.s.PGSQL.65535".len();

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
    guard: Guard,
    next: AtomicU32,
    templates: Mutex<HashMap<TemplateKey, PathBuf>>,
}

/// The one of this process, once it was needed.
static HOME: Mutex<Option<Arc<Home>>> = Mutex::new(None);

/// Takes away everything that this crate has made for this process, and waits until it is gone: servers that still run are
/// stopped, and the folder is removed. Without this call the same happens soon after the end of the program; a program that
/// wants nothing to be left at the moment of its end calls it when its servers are dropped. A server that is started after
/// it gets a new folder.
///
/// # Errors
/// When something is still there after 60 s.
pub fn clear_away() -> Result<()> {
    let home = HOME.lock().unwrap_or_else(PoisonError::into_inner).take();
    match home.map(Arc::try_unwrap) {
        None => Ok(()),
        Some(Ok(home)) => home.guard.finish(),
        // A server is being made at this moment; the guard acts when that has returned.
        Some(Err(_)) => Err(Error::Option("a private server is being started".into())),
    }
}

impl Home {
    /// The home of this process, made when there is none. A failure is not remembered: the next caller tries again.
    pub(crate) fn get() -> Result<Arc<Home>> {
        let mut slot = HOME.lock().unwrap_or_else(PoisonError::into_inner);
        match &*slot {
            Some(home) => Ok(Arc::clone(home)),
            None => {
                let home = Arc::new(Home::make()?);
                *slot = Some(Arc::clone(&home));
                Ok(home)
            }
        }
    }

    fn make() -> Result<Home> {
        let account = server_account();
        let mut failure = None;
        let mut bases = vec![std::env::temp_dir(), PathBuf::from("/tmp")];
        bases.dedup();
        for base in bases {
            match guarded_folder(&base, &account) {
                Ok(guard) => {
                    return Ok(Home { account, guard, next: AtomicU32::new(1), templates: Mutex::new(HashMap::new()) });
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
        let folder = self.guard.folder().join(number.to_string());
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
                    let path = self.guard.folder().join(format!("template{}", templates.len()));
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

/// As root, the account may be kept out of `base` (a TMPDIR of root's own); then this fails.
fn guarded_folder(base: &Path, account: &Account) -> Result<Guard> {
    // The server and the guard work in other folders than this program.
    let base = std::path::absolute(base).map_err(Error::io("finding the temporary folder"))?;
    if base.as_os_str().as_bytes().len() + SOCKET_PATH_REST > SOCKET_PATH_LIMIT {
        return Err(Error::Option(format!("the path {} is too long for a Unix socket in it", base.display())));
    }
    Guard::start(account, &base)
}

fn initdb(account: &Account, binaries: &Binaries, key: &TemplateKey, path: &Path) -> Result<()> {
    let attempt = |locale: &str| {
        let mut command = account.command(binaries.folder().join("initdb"));
        command
            .args(["--no-sync", "-A", "trust", "-E", "UTF8"])
            // initdb of 13 does not know it.
            .args((binaries.version().major >= 14).then_some("--no-instructions"))
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

/// Runs a command to its end, which is at the latest the end of this program; returns its standard output.
pub(crate) fn run(mut command: Command, name: &str) -> Result<String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = spawn_tied(command)
        .and_then(|child| child.wait_with_output())
        .map_err(Error::io(format!("starting {name}")))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let text = if stderr.trim().is_empty() { stdout.trim() } else { stderr.trim() };
    Err(Error::Program { program: name.to_owned(), status: output.status.to_string(), output: text.to_owned() })
}
