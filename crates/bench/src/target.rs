//! What is measured: the server itself and the two managers in front of it, each started here with comparable settings.

use std::fs;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use pgusher_embedded::{Process, Server, free_port};

use crate::cell::Login;
use crate::load::PASSWORD;

/// Physical connections that a manager may open.
const POOL_SIZE: u32 = 20;
/// Where clients share them within a transaction's time: one for each processor of a small machine.
const SHARED_POOL_SIZE: u32 = 2;

/// Something that pgbench connects to; a column of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Direct,
    PgBouncer,
    Pgusher,
    /// Two worker threads; for information, PgBouncer has one.
    PgusherTwo,
    /// `multiplex = "reads"` with few physical connections.
    PgusherShared,
}

impl Kind {
    /// The column's heading.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Direct => "direct",
            Kind::PgBouncer => "PgBouncer",
            Kind::Pgusher => "pgusher",
            Kind::PgusherTwo => "pgusher, 2 workers",
            Kind::PgusherShared => "pgusher, multiplex",
        }
    }
}

/// A running manager.
#[derive(Debug)]
pub(crate) struct Manager {
    process: Process,
    port: u16,
    log: PathBuf,
}

impl Manager {
    /// Starts the manager that `kind` names and waits until a client gets an answer through it.
    ///
    /// # Errors
    /// When it does not start or does not answer; with the end of its log.
    pub(crate) fn start(kind: Kind, server: &Server, login: Login, clients: u32) -> Result<Manager> {
        let port = free_port()?;
        let tag = format!("{kind:?}-{login:?}-{port}").to_lowercase();
        let folder = server.socket_dir().join(tag);
        // Within the server's folder, so that it is removed with it however this program ends.
        fs::create_dir(&folder).with_context(|| format!("creating {}", folder.display()))?;
        own(server, &folder)?;
        let log = folder.join("log");
        let mut command = match kind {
            Kind::Direct => bail!("the server is not a manager"),
            Kind::PgBouncer => pgbouncer(server, &folder, port, login, clients)?,
            Kind::Pgusher => pgusher(server, port, login, 1, POOL_SIZE)?,
            Kind::PgusherTwo => pgusher(server, port, login, 2, POOL_SIZE)?,
            Kind::PgusherShared => {
                let mut command = pgusher(server, port, login, 1, SHARED_POOL_SIZE)?;
                command.args(["--multiplex", "reads"]);
                command
            }
        };
        let out = fs::File::create(&log)?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        let process = Process::spawn(command).with_context(|| format!("starting {}", kind.name()))?;
        let mut manager = Manager { process, port, log };
        manager.wait_until_it_answers(server, login).with_context(|| format!("{} with {login:?}", kind.name()))?;
        Ok(manager)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// True while it runs.
    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    fn wait_until_it_answers(&mut self, server: &Server, login: Login) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(status) = self.process.try_wait()? {
                bail!("ended at once ({status}): {}", self.log_tail());
            }
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                break;
            }
            if Instant::now() > end {
                bail!("does not listen after 10 s: {}", self.log_tail());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let said = self.select_one(server, login, PASSWORD)?;
        if said != "1" {
            bail!("does not answer: {said}; its log: {}", self.log_tail());
        }
        // A manager that asks for nothing would win every comparison of logins.
        if login == Login::Scram && self.select_one(server, login, "wrong")? == "1" {
            bail!("lets a client in with a wrong password");
        }
        Ok(())
    }

    /// What psql prints for `select 1` through the manager: `1`, or its error.
    fn select_one(&self, server: &Server, login: Login, password: &str) -> Result<String> {
        let output = server
            .client("psql")
            .args(["-X", "-A", "-t", "-c", "select 1", "-h", "127.0.0.1"])
            .args(["-p", &self.port.to_string(), "-U", login.role(), "postgres"])
            .env("PGPASSWORD", password)
            .env("PGSSLMODE", "disable")
            .env("PGCONNECT_TIMEOUT", "10")
            .stdin(Stdio::null())
            .output()?;
        let said = if output.status.success() { output.stdout } else { output.stderr };
        Ok(String::from_utf8_lossy(&said).trim().replace('\n', " / "))
    }

    fn log_tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(4).collect();
        let lines: Vec<&str> = lines.into_iter().rev().collect();
        lines.join(" / ")
    }
}

/// Where PgBouncer is; Debian keeps it out of a normal user's PATH.
pub(crate) fn pgbouncer_program() -> PathBuf {
    let debian = Path::new("/usr/sbin/pgbouncer");
    if debian.exists() {
        return debian.into();
    }
    "pgbouncer".into()
}

/// PgBouncer's version as numbers, for example (1, 18).
///
/// # Errors
/// When it is not installed.
pub(crate) fn pgbouncer_version() -> Result<(u32, u32)> {
    let output = Command::new(pgbouncer_program()).arg("--version").output().map_err(|e| match e.kind() {
        ErrorKind::NotFound => {
            anyhow!("PgBouncer is not installed; `scripts/prepare bench` installs it")
        }
        _ => anyhow!("running pgbouncer: {e}"),
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse_version(&text).with_context(|| format!("pgbouncer --version says {:?}", text.trim()))
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let version = text.lines().next()?.strip_prefix("PgBouncer ")?;
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The pgusher that was built together with this program.
pub(crate) fn pgusher_program() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let program = own.with_file_name("pgusher");
    if !program.is_file() {
        bail!("{} is missing; build it with the same profile", program.display());
    }
    Ok(program)
}

fn pgusher(server: &Server, port: u16, login: Login, workers: u32, pool_size: u32) -> Result<Command> {
    let mut command = Command::new(pgusher_program()?);
    let auth = match login {
        Login::Trust => "trust",
        // The server is asked, so the client must prove to it what PgBouncer's client must prove to PgBouncer.
        Login::Scram => "server",
    };
    command
        .arg("serve")
        .arg(server.socket_uri("postgres", login.role()))
        .args(["--listen", &format!("127.0.0.1:{port}")])
        .args(["--workers", &workers.to_string()])
        .args(["--pool-size", &pool_size.to_string()])
        .args(["--pool-mode", "transaction", "--auth", auth]);
    Ok(command)
}

fn pgbouncer(server: &Server, folder: &Path, port: u16, login: Login, clients: u32) -> Result<Command> {
    let auth = match login {
        Login::Trust => "trust",
        Login::Scram => "scram-sha-256",
    };
    let users = folder.join("users.txt");
    let verifier = server.psql(
        "postgres",
        &format!("select coalesce(rolpassword, '') from pg_authid where rolname = '{}'", login.role()),
    )?;
    write(server, &users, &format!("\"{}\" \"{verifier}\"\n", login.role()))?;
    let config = folder.join("pgbouncer.ini");
    // A line for each connection in the log would be measured with it: off in both managers.
    let text = format!(
        "[databases]\n\
         * = host={socket} port={server_port}\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = {auth}\n\
         auth_file = {users}\n\
         pool_mode = transaction\n\
         default_pool_size = {POOL_SIZE}\n\
         max_client_conn = {clients}\n\
         log_connections = 0\n\
         log_disconnections = 0\n\
         {prepared}",
        socket = server.socket_dir().display(),
        server_port = server.port(),
        users = users.display(),
        prepared = if pgbouncer_version()? >= (1, 21) { "max_prepared_statements = 200\n" } else { "" },
    );
    write(server, &config, &text)?;
    // It refuses to run as root, as the server does.
    let mut command = server.account().command(pgbouncer_program());
    command.arg(&config);
    Ok(command)
}

fn write(server: &Server, path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    own(server, path)
}

fn own(server: &Server, path: &Path) -> Result<()> {
    let account = server.account();
    if account.dropped {
        chown(path, Some(account.uid), Some(account.gid)).with_context(|| format!("giving {} away", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(parse_version("PgBouncer 1.18.0\nlibevent 2.1\n"), Some((1, 18)));
        assert_eq!(parse_version("PgBouncer 1.25.1"), Some((1, 25)));
        assert_eq!(parse_version("something else"), None);
    }
}
