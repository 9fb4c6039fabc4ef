//! The choices for a private server, with defaults for a fast and forgetful one.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use crate::account::Account;
use crate::binaries::Binaries;
use crate::error::{Error, Result};
use crate::home::{Home, TemplateKey};
use crate::process::spawn_tied;
use crate::server::Server;

/// What the server asks of its clients (the last column of `pg_hba.conf`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Auth {
    /// Nothing.
    #[default]
    Trust,
    /// SCRAM-SHA-256; passwords are stored as SCRAM verifiers.
    Scram,
    /// MD5; passwords are stored as MD5 hashes.
    Md5,
    /// The password in plain text; passwords are stored as SCRAM verifiers.
    Password,
}

impl Auth {
    fn method(self) -> &'static str {
        match self {
            Auth::Trust => "trust",
            Auth::Scram => "scram-sha-256",
            Auth::Md5 => "md5",
            Auth::Password => "password",
        }
    }

    fn encryption(self) -> &'static str {
        match self {
            Auth::Md5 => "md5",
            Auth::Trust | Auth::Scram | Auth::Password => "scram-sha-256",
        }
    }
}

/// The choices for a private server. Made by [`Server::builder`].
#[derive(Clone)]
pub struct Builder {
    superuser: String,
    password: Option<String>,
    auth: Auth,
    durable: bool,
    settings: Vec<(String, String)>,
    hba: Vec<String>,
    initdb: Vec<String>,
    tls: Option<Tls>,
    binaries: Option<Binaries>,
}

#[derive(Clone)]
struct Tls {
    certificate: String,
    key: String,
    clients: Option<String>,
}

/// Without the password and the key.
impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("superuser", &self.superuser)
            .field("auth", &self.auth)
            .field("durable", &self.durable)
            .field("settings", &self.settings)
            .field("hba", &self.hba)
            .field("tls", &self.tls.is_some())
            .finish_non_exhaustive()
    }
}

impl Builder {
    pub(crate) fn new() -> Builder {
        Builder {
            superuser: "postgres".into(),
            password: None,
            auth: Auth::Trust,
            durable: false,
            settings: vec![("max_connections".into(), "300".into())],
            hba: Vec::new(),
            initdb: Vec::new(),
            tls: None,
            binaries: None,
        }
    }

    /// The name of the superuser; `postgres` unless set.
    pub fn superuser(mut self, name: impl Into<String>) -> Builder {
        self.superuser = name.into();
        self
    }

    /// The password of the superuser, stored as [`Builder::auth`] needs it. May not hold a line break.
    pub fn password(mut self, password: impl Into<String>) -> Builder {
        self.password = Some(password.into());
        self
    }

    /// What the server asks of every client, over TCP and over the Unix socket; trust unless set.
    pub fn auth(mut self, auth: Auth) -> Builder {
        self.auth = auth;
        self
    }

    /// A line of `pg_hba.conf`, in front of those that [`Builder::auth`] makes.
    pub fn hba(mut self, line: impl Into<String>) -> Builder {
        self.hba.push(line.into());
        self
    }

    /// A server setting. The last of several with one name counts; the settings that this crate makes come before them.
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Builder {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// `max_connections`; 300 unless set.
    pub fn max_connections(self, count: u32) -> Builder {
        self.setting("max_connections", count.to_string())
    }

    /// `shared_buffers`, for example `256MB`; the server's default unless set.
    pub fn shared_buffers(self, size: impl Into<String>) -> Builder {
        self.setting("shared_buffers", size)
    }

    /// True keeps the settings that let data survive a crash; by default they are off.
    pub fn durable(mut self, durable: bool) -> Builder {
        self.durable = durable;
        self
    }

    /// Turns TLS on with this certificate (chain) and private key, both PEM.
    pub fn tls(mut self, certificate: impl Into<String>, key: impl Into<String>) -> Builder {
        let clients = self.tls.and_then(|tls| tls.clients);
        self.tls = Some(Tls { certificate: certificate.into(), key: key.into(), clients });
        self
    }

    /// The certificate (PEM) that signs client certificates (`ssl_ca_file`); needs [`Builder::tls`] before it.
    pub fn tls_client_ca(mut self, certificate: impl Into<String>) -> Builder {
        if let Some(tls) = &mut self.tls {
            tls.clients = Some(certificate.into());
        }
        self
    }

    /// More arguments for `initdb`, for example `--data-checksums`.
    pub fn initdb_arg(mut self, argument: impl Into<String>) -> Builder {
        self.initdb.push(argument.into());
        self
    }

    /// Uses these programs instead of those that [`Binaries::find`] prefers.
    pub fn binaries(mut self, binaries: Binaries) -> Builder {
        self.binaries = Some(binaries);
        self
    }

    /// Makes the cluster and starts the server; returns when it accepts connections.
    ///
    /// # Errors
    /// [`Error::NotFound`] without server programs; otherwise what failed, with the end of the server's log.
    pub fn start(self) -> Result<Server> {
        let home = Home::get()?;
        let binaries = match &self.binaries {
            Some(binaries) => binaries.clone(),
            None => Binaries::find(home.account())?,
        };
        if self.password.as_ref().is_some_and(|p| p.contains(['\n', '\r', '\0'])) {
            return Err(Error::Option("the password of a server may not hold a line break".into()));
        }
        let folder = home.new_folder()?;
        let made = self
            .make_cluster(&home, &binaries, &folder)
            .and_then(|()| Server::start(home.account(), binaries, folder.clone(), self.superuser, self.password));
        if made.is_err() {
            let _ = fs::remove_dir_all(&folder);
        }
        made
    }

    fn make_cluster(&self, home: &Home, binaries: &Binaries, folder: &Path) -> Result<()> {
        let data = folder.join("data");
        let key = TemplateKey {
            folder: binaries.folder().to_path_buf(),
            superuser: self.superuser.clone(),
            initdb: self.initdb.clone(),
        };
        home.new_cluster(binaries, &key, &data)?;
        let account = home.account();
        if let Some(tls) = &self.tls {
            write_private(account, &data.join("server.crt"), &tls.certificate)?;
            write_private(account, &data.join("server.key"), &tls.key)?;
            if let Some(clients) = &tls.clients {
                write_private(account, &data.join("clients.crt"), clients)?;
            }
        }
        write_private(account, &data.join("pg_hba.conf"), &self.hba_file())?;
        write_private(account, &data.join("pgusher.conf"), &self.settings_file(folder)?)?;
        let main = data.join("postgresql.conf");
        fs::OpenOptions::new()
            .append(true)
            .open(&main)
            .and_then(|mut file| file.write_all(b"\ninclude 'pgusher.conf'\n"))
            .map_err(Error::io(format!("writing {}", main.display())))?;
        match &self.password {
            Some(password) => self.store_password(account, binaries, &data, password),
            None => Ok(()),
        }
    }

    fn hba_file(&self) -> String {
        let method = self.auth.method();
        let mut text = String::new();
        for line in &self.hba {
            text.push_str(line);
            text.push('\n');
        }
        for (database, user) in [("all", "all"), ("replication", "all")] {
            text.push_str(&format!("local {database} {user} {method}\n"));
            for address in ["127.0.0.1/32", "::1/128"] {
                text.push_str(&format!("host {database} {user} {address} {method}\n"));
            }
        }
        text
    }

    fn settings_file(&self, folder: &Path) -> Result<String> {
        let folder =
            folder.to_str().ok_or_else(|| Error::Option(format!("the path {} is not UTF-8", folder.display())))?;
        let mut pairs: Vec<(&str, &str)> = vec![
            ("listen_addresses", "127.0.0.1"),
            ("unix_socket_directories", folder),
            ("logging_collector", "off"),
            ("log_destination", "stderr"),
            ("password_encryption", self.auth.encryption()),
            // In the data folder and so removed with it, even when the server was killed; the default leaves files in /dev/shm.
            ("dynamic_shared_memory_type", "mmap"),
        ];
        if !self.durable {
            pairs.extend([("fsync", "off"), ("synchronous_commit", "off"), ("full_page_writes", "off")]);
        }
        if let Some(tls) = &self.tls {
            pairs.extend([("ssl", "on"), ("ssl_cert_file", "server.crt"), ("ssl_key_file", "server.key")]);
            if tls.clients.is_some() {
                pairs.push(("ssl_ca_file", "clients.crt"));
            }
        }
        pairs.extend(self.settings.iter().map(|(n, v)| (n.as_str(), v.as_str())));
        let mut text = String::new();
        for (name, value) in pairs {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
            if name.is_empty() || !name.chars().all(plain) || value.contains(['\n', '\r', '\0']) {
                return Err(Error::Option(format!("the setting {name:?} cannot be written to a file")));
            }
            // Within quotes a backslash is an escape as well (the server's guc-file.l).
            let value = value.replace('\\', "\\\\").replace('\'', "''");
            text.push_str(&format!("{name} = '{value}'\n"));
        }
        Ok(text)
    }

    /// In single-user mode, so that it works whatever the server asks of its clients. One line is one statement there.
    fn store_password(&self, account: &Account, binaries: &Binaries, data: &Path, password: &str) -> Result<()> {
        let mut command = account.command(binaries.folder().join("postgres"));
        command
            .args(["--single", "-D"])
            .arg(data)
            .args(["-c", "log_statement=none", "-c", "log_min_error_statement=panic", "postgres"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let statement =
            format!("ALTER ROLE \"{}\" PASSWORD {}\n", self.superuser.replace('"', "\"\""), quote_literal(password));
        let what = "setting the superuser's password";
        let mut child = spawn_tied(command).map_err(Error::io(what))?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(statement.as_bytes()).map_err(Error::io(what))?;
        }
        let output = child.wait_with_output().map_err(Error::io(what))?;
        let said = String::from_utf8_lossy(&output.stderr);
        // Single-user mode ends with success even when a statement failed.
        if output.status.success() && !said.contains("ERROR:") {
            return Ok(());
        }
        Err(Error::Program {
            program: "postgres --single".into(),
            status: output.status.to_string(),
            output: said.trim().to_owned(),
        })
    }
}

/// A string constant that means the same under any `standard_conforming_strings`.
fn quote_literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// The folder is private to the account, so no link of somebody else's can stand at `path`.
fn write_private(account: &Account, path: &Path, text: &str) -> Result<()> {
    let what = format!("writing {}", path.display());
    fs::write(path, text).map_err(Error::io(what.clone()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(Error::io(what.clone()))?;
    account.own_target(path).map_err(Error::io(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_quoted_and_the_callers_come_last() {
        let builder = Builder::new().setting("search_path", "it's \\ here").setting("fsync", "on");
        let text = builder.settings_file(Path::new("/tmp/x")).unwrap();
        assert!(text.contains("search_path = 'it''s \\\\ here'\n"), "{text}");
        assert!(text.rfind("fsync = 'on'") > text.find("fsync = 'off'"), "{text}");
        let error = Builder::new().setting("a = 1 #", "x").settings_file(Path::new("/tmp"));
        assert!(error.is_err());
        let error = Builder::new().setting("a", "x\nfsync=on").settings_file(Path::new("/tmp"));
        assert!(error.is_err());
    }

    #[test]
    fn own_lines_come_first_in_pg_hba() {
        let text = Builder::new().auth(Auth::Md5).hba("local all ann reject").hba_file();
        assert!(text.starts_with("local all ann reject\nlocal all all md5\n"), "{text}");
    }

    #[test]
    fn secrets_are_not_shown() {
        let builder = Builder::new().password("hidden-word").tls("c", "hidden-key");
        let shown = format!("{builder:?}");
        assert!(!shown.contains("hidden"), "{shown}");
    }
}
