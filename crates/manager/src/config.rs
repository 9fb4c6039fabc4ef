//! The configuration: from a TOML file, from a connection string, and from options of the command line that override both.
//!
//! Every key is described in docs/serve.md.

use crate::auth::Login;
use crate::shared::ServerAddress;
use pgusher_auth::{Password, StoredSecret, UserList, Verifier};
use pgusher_client::{Config as Conninfo, Place, SslMode};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

/// When a client gives its physical connection back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PoolMode {
    /// At the end of each transaction.
    Transaction,
    /// When it disconnects.
    Session,
}

impl PoolMode {
    /// Is it session mode?
    pub fn is_session(self) -> bool {
        self == Self::Session
    }
}

/// How clients prove their identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuthMethod {
    /// As the server asks them to.
    Server,
    /// Not at all.
    Trust,
    /// By SCRAM-SHA-256, against the users in the configuration.
    ScramSha256,
    /// By an md5 hash, or SCRAM for users whose verifier is one.
    Md5,
    /// By a password in clear text.
    Plain,
}

/// Where the manager listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// TCP address and port; port 0 for any free one.
    Tcp(SocketAddr),
    /// A Unix socket in this folder, named after this port.
    Unix(PathBuf),
}

impl std::str::FromStr for Listen {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        if text.starts_with('/') {
            return Ok(Self::Unix(PathBuf::from(text)));
        }
        let mut addresses = text.to_socket_addrs().map_err(|e| {
            ConfigError(format!("listen address \"{text}\" is neither ADDRESS:PORT nor the path of a folder: {e}"))
        })?;
        addresses
            .next()
            .map(Self::Tcp)
            .ok_or_else(|| ConfigError(format!("listen address \"{text}\" names no address")))
    }
}

/// The port in the name of a Unix socket when no TCP address names one.
pub const DEFAULT_PORT: u16 = 6432;

/// Something in the configuration is wrong; says what.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// Limits in time, in seconds; 0 means none.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// From accept to the end of the login.
    #[serde(rename = "client_login")]
    pub client_login_s: u64,
    /// In a pool's queue.
    #[serde(rename = "query_wait")]
    pub query_wait_s: u64,
    /// To connect and log in to a server.
    #[serde(rename = "server_connect")]
    pub server_connect_s: u64,
    /// Nobody has used a server for so long: it is closed.
    #[serde(rename = "server_idle")]
    pub server_idle_s: u64,
    /// A server that is older is closed when it becomes free.
    #[serde(rename = "server_lifetime")]
    pub server_lifetime_s: u64,
    /// At shutdown, how long transactions may take to end.
    #[serde(rename = "shutdown")]
    pub shutdown_s: u64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            client_login_s: 60,
            query_wait_s: 120,
            server_connect_s: 15,
            server_idle_s: 600,
            server_lifetime_s: 3600,
            shutdown_s: 60,
        }
    }
}

/// A limit of 0 seconds never ends.
fn limit(seconds: u64) -> Duration {
    if seconds == 0 { Duration::from_secs(u64::from(u32::MAX)) } else { Duration::from_secs(seconds) }
}

impl Timeouts {
    /// From accept to the end of the login.
    pub fn client_login(&self) -> Duration {
        limit(self.client_login_s)
    }
    /// In a pool's queue.
    pub fn query_wait(&self) -> Duration {
        limit(self.query_wait_s)
    }
    /// To connect and log in to a server.
    pub fn server_connect(&self) -> Duration {
        limit(self.server_connect_s)
    }
    /// Unused servers.
    pub fn server_idle(&self) -> Duration {
        limit(self.server_idle_s)
    }
    /// Age of servers.
    pub fn server_lifetime(&self) -> Duration {
        limit(self.server_lifetime_s)
    }
    /// Drain at shutdown.
    pub fn shutdown(&self) -> Duration {
        limit(self.shutdown_s)
    }
}

/// The TOML file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    server: String,
    #[serde(default)]
    listen: Vec<String>,
    auth: Option<AuthMethod>,
    workers: Option<usize>,
    pool_size: Option<usize>,
    pool_mode: Option<PoolMode>,
    max_clients: Option<usize>,
    max_pools: Option<usize>,
    max_cancels: Option<usize>,
    #[serde(default)]
    users: BTreeMap<String, String>,
    user_list: Option<PathBuf>,
    #[serde(default)]
    timeouts: Timeouts,
}

/// What the command line overrides; empty and `None` leave the file's value.
#[derive(Debug, Default, Clone)]
pub struct Overrides {
    /// Where to listen.
    pub listen: Vec<Listen>,
    /// Worker threads.
    pub workers: Option<usize>,
    /// Physical connections of a pool.
    pub pool_size: Option<usize>,
    /// When a client gives its physical connection back.
    pub pool_mode: Option<PoolMode>,
    /// How clients prove their identity.
    pub auth: Option<AuthMethod>,
}

/// The configuration of a manager.
#[derive(Debug)]
pub struct Config {
    /// Where the server is.
    pub address: ServerAddress,
    /// Role of the connection string, and its password.
    pub server_user: String,
    server_password: Option<Password>,
    /// Where to listen.
    pub listen: Vec<Listen>,
    /// How clients prove their identity.
    pub auth: AuthMethod,
    /// Worker threads.
    pub workers: usize,
    /// Physical connections of a pool at most.
    pub pool_size: usize,
    /// When a client gives its physical connection back.
    pub pool_mode: PoolMode,
    /// Clients at most.
    pub max_clients: usize,
    /// Pools at most.
    pub max_pools: usize,
    /// Cancel requests under way at most.
    pub max_cancels: usize,
    /// Limits in time.
    pub timeouts: Timeouts,
    users: Vec<(String, StoredSecret)>,
}

impl Config {
    /// The configuration that a connection string alone gives.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_conninfo(conninfo: &str, overrides: &Overrides) -> Result<Self, ConfigError> {
        let file = File {
            server: conninfo.to_owned(),
            listen: Vec::new(),
            auth: None,
            workers: None,
            pool_size: None,
            pool_mode: None,
            max_clients: None,
            max_pools: None,
            max_cancels: None,
            users: BTreeMap::new(),
            user_list: None,
            timeouts: Timeouts::default(),
        };
        Self::build(file, overrides)
    }

    /// The configuration in a TOML text.
    ///
    /// # Errors
    /// What is wrong with it, with the line.
    pub fn from_toml(text: &str, overrides: &Overrides) -> Result<Self, ConfigError> {
        let file: File = toml::from_str(text).map_err(|e| ConfigError(e.to_string()))?;
        Self::build(file, overrides)
    }

    fn build(file: File, overrides: &Overrides) -> Result<Self, ConfigError> {
        let server = Conninfo::from_conninfo(&file.server).map_err(|e| ConfigError(e.to_string()))?;
        let address = address(&server)?;
        let listen = match (overrides.listen.is_empty(), file.listen.is_empty()) {
            (false, _) => overrides.listen.clone(),
            (true, false) => file.listen.iter().map(|l| l.parse()).collect::<Result<_, _>>()?,
            (true, true) => vec![Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT)))],
        };
        let mut users: Vec<(String, StoredSecret)> = Vec::new();
        if let Some(path) = &file.user_list {
            let text = std::fs::read(path).map_err(|e| ConfigError(format!("user_list {}: {e}", path.display())))?;
            let list = UserList::parse(&text).map_err(|e| ConfigError(format!("user_list {}: {e}", path.display())))?;
            for name in list.names() {
                if let Some(secret) = list.get(name) {
                    users.push((String::from_utf8_lossy(name).into_owned(), secret.clone()));
                }
            }
        }
        users.extend(file.users.into_iter().map(|(name, secret)| (name, StoredSecret::parse(secret.as_bytes()))));

        let named = overrides.auth.or(file.auth);
        let auth = named.unwrap_or(if users.is_empty() { AuthMethod::Server } else { AuthMethod::ScramSha256 });
        let beyond = listen.iter().find(|l| matches!(l, Listen::Tcp(a) if !a.ip().is_loopback()));
        if let (Some(Listen::Tcp(address)), None) = (beyond, named) {
            return Err(ConfigError(format!(
                "listening on {address} makes the server reachable from other machines: name an authentication method \
                 (auth = \"scram-sha-256\" with users in a configuration file, or --auth)"
            )));
        }
        if let (Some(Listen::Tcp(address)), AuthMethod::Server) = (beyond, auth) {
            return Err(ConfigError(format!(
                "authentication as the server asks works on loopback only, because the server judges pgusher's own address; \
                 to listen on {address}, name another method"
            )));
        }
        if matches!(auth, AuthMethod::ScramSha256 | AuthMethod::Md5 | AuthMethod::Plain) && users.is_empty() {
            return Err(ConfigError(
                "this authentication method needs users: [users] or user_list in the configuration file".into(),
            ));
        }
        let workers = overrides.workers.or(file.workers).unwrap_or_else(default_workers);
        if !(1..=64).contains(&workers) {
            return Err(ConfigError(format!("workers must be between 1 and 64, not {workers}")));
        }
        let pool_size = overrides.pool_size.or(file.pool_size).unwrap_or(20);
        if pool_size == 0 {
            return Err(ConfigError("pool_size must be at least 1".into()));
        }
        Ok(Self {
            address,
            server_password: server.password.as_ref().map(|p| Password::new(p.expose())),
            server_user: server.user,
            listen,
            auth,
            workers,
            pool_size,
            pool_mode: overrides.pool_mode.or(file.pool_mode).unwrap_or(PoolMode::Transaction),
            max_clients: file.max_clients.unwrap_or(20_000),
            max_pools: file.max_pools.unwrap_or(1_000),
            max_cancels: file.max_cancels.unwrap_or(100),
            timeouts: file.timeouts,
            users,
        })
    }

    /// What the configuration says we log in to the server with in the name of `user`.
    pub fn login_for(&self, user: &str) -> Option<Login> {
        if user == self.server_user {
            if let Some(password) = &self.server_password {
                return Some(Login::Password(password.clone()));
            }
        }
        match self.users.iter().find(|(name, _)| name == user) {
            Some((_, StoredSecret::Plain(password))) => Some(Login::Password(password.clone())),
            Some((_, StoredSecret::Md5(hash))) => Some(Login::Md5(hash.clone())),
            _ => None,
        }
    }

    /// The users as the workers need them: for SCRAM, plain passwords are made into verifiers here, once.
    ///
    /// # Errors
    /// A password that no verifier can be made of.
    pub fn user_list(&self, salt: impl Fn(&str) -> [u8; pgusher_auth::SALT_LEN]) -> Result<UserList, ConfigError> {
        let secrets = self.users.iter().map(|(name, secret)| match secret {
            StoredSecret::Plain(password) if self.auth == AuthMethod::ScramSha256 => {
                Verifier::from_password(password, &salt(name), 4096)
                    .map(|verifier| (name.as_bytes().to_vec(), StoredSecret::Scram(verifier)))
                    .map_err(|e| ConfigError(format!("password of user \"{name}\": {e}")))
            }
            secret => Ok((name.as_bytes().to_vec(), secret.clone())),
        });
        secrets.collect()
    }
}

/// Half of the processors: the servers need the other half.
fn default_workers() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get().div_ceil(2)).min(8)
}

fn address(server: &Conninfo) -> Result<ServerAddress, ConfigError> {
    let [host] = server.hosts.as_slice() else {
        return Err(ConfigError("the server's connection string must name one host".into()));
    };
    if host.is_tcp() && server.tls.mode.requires_tls() {
        return Err(ConfigError(format!(
            "sslmode={} asks for an encrypted connection to the server, which pgusher serve does not offer yet; use a \
             Unix socket or a network that you trust with sslmode=disable or prefer",
            server.tls.mode.name()
        )));
    }
    debug_assert!(!matches!(server.tls.mode, SslMode::VerifyFull) || !host.is_tcp());
    match &host.place {
        Place::Unix(path) => Ok(ServerAddress::Unix(path.clone())),
        Place::Abstract(name) => Err(ConfigError(format!("abstract Unix sockets (@{name}) are not supported"))),
        Place::Tcp { addr: Some(ip), .. } => Ok(ServerAddress::Tcp(SocketAddr::new(*ip, host.port))),
        Place::Tcp { name, addr: None } => (name.as_str(), host.port)
            .to_socket_addrs()
            .ok()
            .and_then(prefer_ipv4)
            .map(ServerAddress::Tcp)
            .ok_or_else(|| ConfigError(format!("the server's host name \"{name}\" cannot be resolved"))),
    }
}

/// `localhost` often stands for ::1 first, while many servers listen on 127.0.0.1 only.
fn prefer_ipv4(addresses: impl Iterator<Item = SocketAddr>) -> Option<SocketAddr> {
    let all: Vec<SocketAddr> = addresses.collect();
    all.iter().find(|a| a.is_ipv4()).or(all.first()).copied()
}
