//! The configuration: from a TOML file, from a connection string, and from options of the command line that override both.
//! Nothing is asked of the network here; names of hosts are resolved by the control side.
//!
//! Every key is described in docs/serve.md.

mod choices;
mod file;
mod server;
mod timeouts;

pub use choices::{AuthMethod, Listen, Multiplex, PoolMode, SequenceMode, StatementReuse};
pub use server::Server;
pub use timeouts::Timeouts;

use crate::auth::Login;
use crate::tls::{ClientTlsOptions, Clients};
use file::File;
use pgusher_auth::{Password, StoredSecret, UserList, Verifier};
use std::net::SocketAddr;
use zeroize::{Zeroize, Zeroizing};

/// The port in the name of a Unix socket when no TCP address names one.
pub const DEFAULT_PORT: u16 = 6432;

/// More connections than this no server allows (max_connections).
const MAX_POOL_SIZE: usize = 262_143;
/// What a client is told as its process id names its place in 24 bits; see `core/cancel.rs`.
const MAX_CLIENTS: usize = 0x00ff_ffff;

/// Something in the configuration is wrong; says what.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// What the command line overrides; empty and `None` leave the file's value.
#[derive(Debug, Default, Clone)]
pub struct Overrides {
    /// Where to listen.
    pub listen: Vec<Listen>,
    /// Worker threads.
    pub workers: Option<usize>,
    /// Physical connections of a pool.
    pub pool_size: Option<usize>,
    /// Physical connections that each pool keeps open.
    pub min_pool_size: Option<usize>,
    /// Clients at most.
    pub max_clients: Option<usize>,
    /// When a client gives its physical connection back.
    pub pool_mode: Option<PoolMode>,
    /// Whether statements of several clients may be under way on one physical connection.
    pub multiplex: Option<Multiplex>,
    /// How clients prove their identity.
    pub auth: Option<AuthMethod>,
    /// TLS towards clients: what is given here takes the place of the file's.
    pub client_tls: ClientTlsOptions,
}

/// How the server is asked for the verifier of a user.
#[derive(Debug)]
pub struct AuthQuery {
    /// The statement. Its only parameter is the user's name.
    pub sql: String,
    /// Who asks.
    pub user: String,
    /// Where.
    pub database: String,
    /// The password of who asks.
    pub password: Option<Password>,
}

/// What a superuser can ask. A password that is no longer valid is none.
const AUTH_QUERY: &str = "SELECT rolname, CASE WHEN rolvaliduntil < pg_catalog.now() THEN NULL ELSE rolpassword END \
                          FROM pg_catalog.pg_authid WHERE rolname = $1::pg_catalog.text AND rolcanlogin";

/// The configuration of a manager.
#[derive(Debug)]
pub struct Config {
    /// Where the server is, and who pgusher itself is there.
    pub server: Server,
    /// Where to listen.
    pub listen: Vec<Listen>,
    /// How clients prove their identity.
    pub auth: AuthMethod,
    /// How the server is asked for its users' verifiers; `None`: it is not.
    pub auth_query: Option<AuthQuery>,
    /// Worker threads.
    pub workers: usize,
    /// Physical connections of a pool at most.
    pub pool_size: usize,
    /// Physical connections that each pool keeps open; `None`: one for the user and database of the connection string,
    /// none for the others.
    pub min_pool_size: Option<usize>,
    /// When a client gives its physical connection back.
    pub pool_mode: PoolMode,
    /// Whether statements of several clients may be under way on one physical connection.
    pub multiplex: Multiplex,
    /// Each transaction gets another physical connection, chosen at random. For tests.
    pub scatter: bool,
    /// From when on clients that get numbers from sequences keep their physical connection.
    pub sequences: SequenceMode,
    /// Which statements servers keep for later.
    pub statement_reuse: StatementReuse,
    /// Prepared statements that a server keeps, about.
    pub statements_per_server: usize,
    /// Clients at most.
    pub max_clients: usize,
    /// Clients of a pool that may keep a physical connection past the end of a transaction, at most.
    pub max_pinned: usize,
    /// Pools at most.
    pub max_pools: usize,
    /// Cancel requests under way at most.
    pub max_cancels: usize,
    /// Replication connections at the same time.
    pub max_replication: usize,
    /// Limits in time.
    pub timeouts: Timeouts,
    /// TLS towards clients; `None`: there is none.
    pub client_tls: Option<Clients>,
    users: Vec<(String, StoredSecret)>,
}

impl Config {
    /// The configuration that a connection string alone gives.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_conninfo(conninfo: &str, overrides: &Overrides) -> Result<Self, ConfigError> {
        let file = File { server: conninfo.to_owned(), ..File::default() };
        Self::build(file, overrides)
    }

    /// The configuration in a TOML text.
    ///
    /// # Errors
    /// What is wrong with it, with the line.
    pub fn from_toml(text: &str, overrides: &Overrides) -> Result<Self, ConfigError> {
        let file: File = toml::from_str(text).map_err(|e| unreadable(text, &e))?;
        Self::build(file, overrides)
    }

    fn build(mut file: File, overrides: &Overrides) -> Result<Self, ConfigError> {
        let server = Server::new(&file.server, file.dns_max_age);
        file.server.zeroize();
        let server = server?;
        let listen = match (overrides.listen.is_empty(), file.listen.is_empty()) {
            (false, _) => overrides.listen.clone(),
            (true, false) => file.listen.iter().map(|l| l.parse()).collect::<Result<_, _>>()?,
            (true, true) => vec![Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT)))],
        };
        let mut users: Vec<(String, StoredSecret)> = Vec::new();
        if let Some(path) = &file.user_list {
            let text = std::fs::read(path)
                .map(Zeroizing::new)
                .map_err(|e| ConfigError(format!("user_list {}: {e}", path.display())))?;
            let list = UserList::parse(&text).map_err(|e| ConfigError(format!("user_list {}: {e}", path.display())))?;
            for name in list.names() {
                if let Some(secret) = list.get(name) {
                    users.push((String::from_utf8_lossy(name).into_owned(), secret.clone()));
                }
            }
        }
        for (name, mut secret) in file.users {
            users.push((name, StoredSecret::parse(secret.as_bytes())));
            secret.zeroize();
        }

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
        if !(1..=MAX_POOL_SIZE).contains(&pool_size) {
            return Err(ConfigError(format!("pool_size must be between 1 and {MAX_POOL_SIZE}, not {pool_size}")));
        }
        let max_clients = overrides.max_clients.or(file.max_clients).unwrap_or(20_000);
        if !(1..=MAX_CLIENTS).contains(&max_clients) {
            return Err(ConfigError(format!("max_clients must be between 1 and {MAX_CLIENTS}, not {max_clients}")));
        }
        let scatter = file.scatter.unwrap_or(false);
        // There must be something to scatter over.
        let unsaid = scatter.then_some(pool_size);
        let min_pool_size = overrides.min_pool_size.or(file.min_pool_size).or(unsaid);
        if let Some(min) = min_pool_size.filter(|min| *min > pool_size) {
            return Err(ConfigError(format!("min_pool_size ({min}) must not be greater than pool_size ({pool_size})")));
        }
        let mut timeouts = file.timeouts;
        if let Some(limit) = server.conninfo.connect_timeout {
            timeouts.shorten_server_connect(limit);
        }
        let client_tls = Clients::new(&file.client_tls.overridden_by(&overrides.client_tls))?;
        let mut config = Self {
            server,
            client_tls,
            listen,
            auth,
            workers,
            pool_size,
            min_pool_size,
            sequences: file.sequences.unwrap_or(SequenceMode::Learn),
            statement_reuse: file.statement_reuse.unwrap_or(StatementReuse::On),
            statements_per_server: file.statements_per_server.unwrap_or(500).max(1),
            pool_mode: overrides.pool_mode.or(file.pool_mode).unwrap_or(PoolMode::Transaction),
            multiplex: overrides.multiplex.or(file.multiplex).unwrap_or(Multiplex::Off),
            scatter,
            max_clients,
            max_pinned: file.max_pinned.unwrap_or_else(|| pinned_by_default(pool_size)),
            max_pools: file.max_pools.unwrap_or(1_000),
            max_cancels: file.max_cancels.unwrap_or(100),
            max_replication: file.max_replication.unwrap_or(10),
            timeouts,
            users,
            auth_query: None,
        };
        let sql = file.auth_query.unwrap_or_else(|| AUTH_QUERY.to_owned());
        if auth == AuthMethod::Server && !sql.trim().is_empty() {
            let user = file.auth_user.unwrap_or_else(|| config.server.user().to_owned());
            let database = file.auth_database.unwrap_or_else(|| config.server.conninfo.dbname.clone());
            let password = match config.login_for(&user) {
                Some(Login::Password(password)) => Some(password),
                _ => None,
            };
            config.auth_query = Some(AuthQuery { sql, user, database, password });
        }
        Ok(config)
    }

    /// What the configuration says we log in to the server with in the name of `user`.
    pub fn login_for(&self, user: &str) -> Option<Login> {
        if user == self.server.user() {
            if let Some(password) = self.server.password() {
                return Some(Login::Password(password.clone()));
            }
        }
        match self.users.iter().find(|(name, _)| name == user) {
            Some((_, StoredSecret::Plain(password))) => Some(Login::Password(password.clone())),
            Some((_, StoredSecret::Md5(hash))) => Some(Login::Md5(hash.clone())),
            _ => None,
        }
    }

    /// Is this the user and database of the connection string, whose pool is opened before a client comes?
    pub fn is_own(&self, database: &str, user: &str) -> bool {
        user == self.server.user() && self.server.database.as_deref() == Some(database)
    }

    /// How many physical connections a pool keeps open.
    pub fn kept_open(&self, database: &str, user: &str) -> usize {
        self.min_pool_size.unwrap_or_else(|| usize::from(self.is_own(database, user)))
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

/// Where a file is wrong and what is wrong there. The line itself is not shown, nor a value of it: it may be a password.
fn unreadable(text: &str, error: &toml::de::Error) -> ConfigError {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let (line, column) =
        (before.matches('\n').count() + 1, before.chars().rev().take_while(|c| *c != '\n').count() + 1);
    let what = error.message();
    // "invalid type: integer `123`, expected a string": what serde found is the value.
    let what = match (what.split_once(": "), what.rsplit_once(", expected ")) {
        (Some((kind @ ("invalid type" | "invalid value" | "invalid length"), _)), Some((_, expected))) => {
            format!("{kind}, expected {expected}")
        }
        _ => what.to_owned(),
    };
    ConfigError(format!("line {line}, column {column}: {what}"))
}

/// A tenth of a pool, and at least one connection of two or more, is for clients that keep none.
fn pinned_by_default(pool_size: usize) -> usize {
    (pool_size - pool_size.div_ceil(10)).max(1)
}

/// Half of the processors: the servers need the other half.
fn default_workers() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get().div_ceil(2)).min(8)
}
