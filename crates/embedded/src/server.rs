//! A running private server: where it is, how to stop, restart and kill it, and its end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::account::Account;
use crate::binaries::{Binaries, Version};
use crate::builder::Builder;
use crate::error::{Error, Result};
use crate::home::run;
use crate::port::free_port;
use crate::process::{Process, Signal};

const START_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// A backend that gets SIGQUIT while it allocates memory can hang. The postmaster kills such ones after 5 s
/// (SIGKILL_CHILDREN_AFTER_SECS in postmaster.c), and only it can: a postmaster that is killed earlier leaves them behind.
const QUIT_LIMIT: Duration = Duration::from_secs(20);
/// Another program may take the port between the choice and the start.
const PORT_ATTEMPTS: u32 = 5;

/// How a server is asked to stop (`pg_ctl stop -m`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// Waits until all clients have gone.
    Smart,
    /// Ends the clients' sessions, then stops in good order.
    Fast,
    /// Stops at once; the next start recovers.
    Immediate,
}

impl StopMode {
    fn signal(self) -> Signal {
        match self {
            StopMode::Smart => Signal::TERM,
            StopMode::Fast => Signal::INT,
            StopMode::Immediate => Signal::QUIT,
        }
    }
}

/// A private PostgreSQL server. It is stopped and its folder removed when this value is dropped, and when the program ends
/// without dropping it.
#[derive(Debug)]
pub struct Server {
    account: Account,
    binaries: Binaries,
    folder: PathBuf,
    superuser: String,
    password: Option<Secret>,
    port: u16,
    postmaster: Option<Process>,
}

/// Kept for the crate's own `psql`; shown by nothing.
struct Secret(String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(hidden)")
    }
}

impl Server {
    /// The choices for a new server.
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) fn start(
        account: &Account,
        binaries: Binaries,
        folder: PathBuf,
        superuser: String,
        password: Option<String>,
    ) -> Result<Server> {
        let mut server = Server {
            account: account.clone(),
            binaries,
            folder,
            superuser,
            password: password.map(Secret),
            port: 0,
            postmaster: None,
        };
        let mut attempt = 1;
        loop {
            server.port = free_port().map_err(Error::io("looking for a free port"))?;
            match server.launch() {
                Err(Error::Ended { log, .. }) if attempt < PORT_ATTEMPTS && log.contains("Address already in use") => {
                    attempt += 1;
                }
                Ok(()) => return Ok(server),
                Err(e) => return Err(e),
            }
        }
    }

    /// The TCP port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder of the Unix socket, to be used as `host`.
    pub fn socket_dir(&self) -> &Path {
        &self.folder
    }

    /// The data folder.
    pub fn data_dir(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// The server's log.
    pub fn log_path(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// The version of the server.
    pub fn version(&self) -> &Version {
        self.binaries.version()
    }

    /// The account that the server runs under.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// The name of the superuser.
    pub fn superuser(&self) -> &str {
        &self.superuser
    }

    /// The path of one of PostgreSQL's programs, for example `psql`, `pgbench` or `pg_dump`.
    pub fn bin(&self, name: &str) -> PathBuf {
        self.binaries.program(name)
    }

    /// A key/value connection string over TCP. It holds no password.
    pub fn conninfo(&self, database: &str, user: &str) -> String {
        self.conninfo_to("127.0.0.1", database, user)
    }

    /// A key/value connection string over the Unix socket. It holds no password.
    pub fn socket_conninfo(&self, database: &str, user: &str) -> String {
        self.conninfo_to(&self.folder.to_string_lossy(), database, user)
    }

    fn conninfo_to(&self, host: &str, database: &str, user: &str) -> String {
        format!(
            "host={} port={} dbname={} user={}",
            quote_conninfo(host),
            self.port,
            quote_conninfo(database),
            quote_conninfo(user)
        )
    }

    /// A connection URI over TCP. It holds no password.
    pub fn uri(&self, database: &str, user: &str) -> String {
        format!("postgres://{}@127.0.0.1:{}/{}", percent(user), self.port, percent(database))
    }

    /// A connection URI over the Unix socket. It holds no password.
    pub fn socket_uri(&self, database: &str, user: &str) -> String {
        format!(
            "postgres://{}@/{}?host={}&port={}",
            percent(user),
            percent(database),
            percent(&self.folder.to_string_lossy()),
            self.port
        )
    }

    /// The process number of the postmaster while it runs.
    pub fn postmaster_pid(&self) -> Option<u32> {
        self.postmaster.as_ref().map(Process::pid)
    }

    /// True while the postmaster runs.
    pub fn is_running(&mut self) -> bool {
        self.postmaster.as_mut().is_some_and(|p| matches!(p.try_wait(), Ok(None)))
    }

    /// A command for one of PostgreSQL's client programs, with the environment set to reach this server over its Unix socket
    /// as the superuser.
    pub fn client(&self, program: &str) -> Command {
        let mut command = Command::new(self.bin(program));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(name);
            }
        }
        command
            .env("PGHOST", &self.folder)
            .env("PGPORT", self.port.to_string())
            .env("PGUSER", &self.superuser)
            .env("PGDATABASE", "postgres")
            .env("PGCONNECT_TIMEOUT", "30");
        if let Some(Secret(password)) = &self.password {
            command.env("PGPASSWORD", password);
        }
        command
    }

    /// Runs SQL with `psql` as the superuser over the Unix socket; returns the rows, unaligned, fields separated by `|`.
    ///
    /// # Errors
    /// When psql is missing or a statement fails; what psql said is in the error.
    pub fn psql(&self, database: &str, sql: &str) -> Result<String> {
        let mut command = self.client("psql");
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", sql]).stdin(Stdio::null());
        run(command, "psql").map(|text| text.trim_end_matches('\n').to_owned())
    }

    /// Adds a setting (or changes it) and reloads; what needs a restart takes effect with [`Server::restart`].
    ///
    /// # Errors
    /// When the server refuses.
    pub fn alter_system(&self, name: &str, value: &str) -> Result<()> {
        let statement = format!("ALTER SYSTEM SET {name} = '{}'", value.replace('\'', "''"));
        self.psql("postgres", &statement)?;
        self.psql("postgres", "SELECT pg_reload_conf()").map(drop)
    }

    /// Stops the server in fast mode if it runs and starts it again on the same port and socket.
    ///
    /// # Errors
    /// When it does not stop or does not start.
    pub fn restart(&mut self) -> Result<()> {
        self.stop(StopMode::Fast)?;
        self.launch()
    }

    /// Stops the server and waits for its end; nothing happens when it has ended already. [`Server::restart`] starts it again.
    ///
    /// # Errors
    /// When it still runs after 60 s.
    pub fn stop(&mut self, mode: StopMode) -> Result<Option<ExitStatus>> {
        let Some(postmaster) = &mut self.postmaster else {
            return Ok(None);
        };
        let what = "stopping PostgreSQL";
        postmaster.signal(mode.signal()).map_err(Error::io(what))?;
        match postmaster.wait(STOP_LIMIT).map_err(Error::io(what))? {
            Some(status) => {
                self.postmaster = None;
                Ok(Some(status))
            }
            None => Err(Error::Timeout { what: "stopped", seconds: STOP_LIMIT.as_secs(), log: self.log_tail() }),
        }
    }

    /// Kills the postmaster with SIGKILL, as a failure would; its backends notice and end by themselves within a moment.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill(&mut self) -> Result<()> {
        match self.postmaster.take() {
            Some(mut postmaster) => postmaster.kill().map(drop).map_err(Error::io("killing the postmaster")),
            None => Ok(()),
        }
    }

    fn launch(&mut self) -> Result<()> {
        // After `kill` the old backends may live for a moment, and the new postmaster refuses to start while they do.
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match self.launch_once() {
                Err(Error::Ended { log, .. })
                    if log.contains("pre-existing shared memory block") && Instant::now() < deadline =>
                {
                    std::thread::sleep(Duration::from_millis(100));
                }
                other => return other,
            }
        }
    }

    fn launch_once(&mut self) -> Result<()> {
        let log_path = self.log_path();
        let what = format!("opening {}", log_path.display());
        let log = fs::OpenOptions::new().create(true).append(true).open(&log_path).map_err(Error::io(what.clone()))?;
        self.account.own(&log_path).map_err(Error::io(what.clone()))?;
        let log_start = log.metadata().map_err(Error::io(what.clone()))?.len();
        let second = log.try_clone().map_err(Error::io(what))?;
        let mut command = self.account.command(self.binaries.folder().join("postgres"));
        command
            .arg("-D")
            .arg(self.data_dir())
            .args(["-p", &self.port.to_string()])
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(second);
        // Should this program end without stopping it, the server shuts down at once and clears up its shared memory.
        let mut postmaster = Process::spawn_with(command, Signal::QUIT).map_err(Error::io("starting postgres"))?;
        let ready = self.wait_until_ready(&mut postmaster, log_start);
        match ready {
            Ok(()) => self.postmaster = Some(postmaster),
            Err(_) => {
                let _ = postmaster.signal(Signal::QUIT);
                let _ = postmaster.wait(QUIT_LIMIT);
            }
        }
        ready
    }

    fn wait_until_ready(&self, postmaster: &mut Process, log_start: u64) -> Result<()> {
        let lock_file = self.data_dir().join("postmaster.pid");
        let pid = postmaster.pid().to_string();
        let end = Instant::now() + START_LIMIT;
        loop {
            if let Some(status) = postmaster.try_wait().map_err(Error::io("waiting for postgres"))? {
                return Err(Error::Ended {
                    status: status.to_string(),
                    path: self.log_path(),
                    log: tail(&self.log_path(), log_start),
                });
            }
            // Line 1 is the process number, line 8 the state (src/include/utils/pidfile.h).
            let text = fs::read_to_string(&lock_file).unwrap_or_default();
            let own = text.lines().next().map(str::trim) == Some(pid.as_str());
            let ready = text.lines().nth(7).map(str::trim) == Some("ready");
            if own && ready {
                return Ok(());
            }
            if Instant::now() >= end {
                return Err(Error::Timeout {
                    what: "ready",
                    seconds: START_LIMIT.as_secs(),
                    log: tail(&self.log_path(), log_start),
                });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn log_tail(&self) -> String {
        tail(&self.log_path(), 0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut postmaster) = self.postmaster.take() {
            let _ = postmaster.signal(Signal::QUIT);
            // Dropping it kills it in the end.
            let _ = postmaster.wait(QUIT_LIMIT);
        }
        remove_segment(&self.account, &self.data_dir());
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A postmaster that was killed leaves its System V shared memory segment behind; line 7 of its lock file names it.
fn remove_segment(account: &Account, data: &Path) {
    let Ok(text) = fs::read_to_string(data.join("postmaster.pid")) else {
        return;
    };
    let segment = text
        .lines()
        .nth(6)
        .and_then(|line| line.split_whitespace().nth(1))
        .filter(|id| id.bytes().all(|b| b.is_ascii_digit()));
    if let Some(segment) = segment {
        let mut command = account.command("ipcrm");
        command.args(["-m", segment]);
        let _ = run(command, "ipcrm");
    }
}

/// The last lines of a log from `start` on.
fn tail(path: &Path, start: u64) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let start = usize::try_from(start).unwrap_or(0).min(bytes.len());
    let text = String::from_utf8_lossy(bytes.get(start..).unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(20)..).unwrap_or_default().join("\n")
}

/// A value of a key/value connection string, quoted where it has to be (libpq, "Connection Strings").
fn quote_conninfo(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:@%+".contains(c);
    if !value.is_empty() && value.chars().all(plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// Percent-encodes a part of a URI (RFC 3986: all but the unreserved characters).
fn percent(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_strings_are_quoted() {
        assert_eq!(quote_conninfo("/tmp/x.y"), "/tmp/x.y");
        assert_eq!(quote_conninfo(""), "''");
        assert_eq!(quote_conninfo("it's \\"), "'it\\'s \\\\'");
        assert_eq!(percent("/tmp/a b"), "%2Ftmp%2Fa%20b");
    }
}
