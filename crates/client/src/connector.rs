//! Connecting as libpq does: hosts in order, addresses of each, and the attempts that sslmode allows for each address.
//! All that needs no server is done when the connector is made, before any clock starts.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pgusher_auth::{Derivation, DerivationCache, ScramKeys};
use pgusher_wire::startup;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;

use crate::attempt::{Attempt, Attempts, Encryption};
use crate::channel::Channel;
use crate::config::{
    Config, Host, LoadBalanceHosts, Place, SslMode, SslNegotiation, TargetSessionAttrs,
};
use crate::connection::{Connection, Peer};
use crate::conninfo::{PassQuery, password_from_file};
use crate::error::{Error, ErrorKind, Result};
use crate::login::Login;
use crate::phase::{Phase, Phases};
use crate::secret::Secret;
use crate::socket::Address;
use crate::tls;

/// How many derived SCRAM keys are remembered: users change their password rarely.
const KEY_CACHE: usize = 16;

/// SCRAM keys that were derived already. Shared by threads.
pub(crate) struct KeyCache(Mutex<DerivationCache>);

impl KeyCache {
    pub(crate) fn keys(&self, derivation: &Derivation) -> ScramKeys {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(keys) = lock().get(derivation) {
            return keys;
        }
        // Not under the lock: it takes milliseconds.
        let keys = derivation.run();
        lock().insert(derivation, keys.clone());
        keys
    }
}

struct Target {
    host: Host,
    password: Option<Secret>,
    server_name: Option<ServerName<'static>>,
}

/// Connects, any number of times and from any number of threads, with what was prepared once.
pub struct Connector {
    config: Config,
    targets: Vec<Target>,
    tls: Option<Arc<ClientConfig>>,
    startup_packet: Vec<u8>,
    scram_keys: Option<ScramKeys>,
    keys: Option<KeyCache>,
    fork_probe: AtomicBool,
    timeout: Option<Duration>,
    setup: Duration,
    warnings: Vec<String>,
}

impl Connector {
    /// Loads certificates, looks passwords up, encodes the startup packet.
    pub fn new(config: &Config) -> Result<Connector> {
        let started = Instant::now();
        let in_setup = |error: Error| error.in_phase(Phase::Setup);
        let mut warnings = Vec::new();
        let needs_tls =
            config.tls.mode != SslMode::Disable && config.hosts.iter().any(Host::is_tcp);
        let tls = needs_tls
            .then(|| tls::client_config(&config.tls))
            .transpose()
            .map_err(in_setup)?;
        let targets = config
            .hosts
            .iter()
            .map(|host| target(config, host, tls.is_some(), &mut warnings))
            .collect::<Result<Vec<_>>>()
            .map_err(in_setup)?;
        let startup_packet = startup_packet(config).map_err(in_setup)?;
        let scram_keys = config
            .scram_keys
            .as_ref()
            .map(|(client, server)| Ok(ScramKeys::new(key_bytes(client)?, key_bytes(server)?)))
            .transpose()
            .map_err(in_setup)?;
        Ok(Connector {
            config: config.clone(),
            targets,
            tls,
            startup_packet,
            scram_keys,
            keys: None,
            fork_probe: AtomicBool::new(false),
            timeout: None,
            setup: started.elapsed(),
            warnings,
        })
    }

    /// Asks with an SSLRequest also where no TLS is wanted, so that the server's queue and fork can be told from its
    /// session setup. If the server answers that it would do TLS, the probe is given up: a new attempt goes without.
    #[must_use]
    pub fn fork_probe(self, on: bool) -> Self {
        self.fork_probe.store(on, Ordering::Relaxed);
        self
    }

    /// Remembers derived SCRAM keys, so that many logins do not measure PBKDF2. libpq never does.
    #[must_use]
    pub fn remember_scram_keys(mut self, on: bool) -> Self {
        let mut random = [0; 32];
        let filled = rustls::crypto::ring::default_provider()
            .secure_random
            .fill(&mut random)
            .is_ok();
        self.keys =
            (on && filled).then(|| KeyCache(Mutex::new(DerivationCache::new(KEY_CACHE, random))));
        self
    }

    /// The longest wait for any single answer, during login and afterwards. `None`: without limit. During login
    /// `connect_timeout` limits the whole of it as well.
    #[must_use]
    pub fn timeout(mut self, timeout: Option<Duration>) -> Self {
        self.timeout = timeout.filter(|timeout| !timeout.is_zero());
        self
    }

    /// How long the preparation took ("client setup").
    pub fn setup_time(&self) -> Duration {
        self.setup
    }

    /// What should be shown to a person, such as a password file that is not used.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// What it was made from.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Connects.
    pub fn connect(&self) -> Result<(Connection, Attempts)> {
        let mut attempts = Attempts::default();
        let connection = self.connect_traced(&mut attempts)?;
        Ok((connection, attempts))
    }

    /// Connects; the attempts are told also when all of them failed.
    pub fn connect_traced(&self, attempts: &mut Attempts) -> Result<Connection> {
        let started = Instant::now();
        attempts.clear();
        let passes: &[TargetSessionAttrs] = match self.config.target_session_attrs {
            TargetSessionAttrs::PreferStandby => {
                &[TargetSessionAttrs::Standby, TargetSessionAttrs::Any]
            }
            ref one => std::slice::from_ref(one),
        };
        let mut errors = Vec::new();
        for wanted in passes {
            for target in self.ordered(&self.targets) {
                match self.connect_host(target, *wanted, started, attempts) {
                    Ok(connection) => {
                        attempts.total = started.elapsed();
                        return Ok(connection);
                    }
                    Err(mut failed) => errors.append(&mut failed),
                }
            }
        }
        attempts.total = started.elapsed();
        Err(Error::last_of(errors))
    }

    /// Tries all addresses of a host.
    fn connect_host(
        &self,
        target: &Target,
        wanted: TargetSessionAttrs,
        started: Instant,
        attempts: &mut Attempts,
    ) -> std::result::Result<Connection, Vec<Error>> {
        let name = target.host.to_string();
        let began = Instant::now();
        let mut resolve = None;
        let addresses = match self.addresses(target, &mut resolve) {
            Ok(addresses) => addresses,
            Err(error) => {
                let error = error.in_phase(Phase::Resolve).at_target(&name);
                let phases = Phases {
                    resolve,
                    total: began.elapsed(),
                    ..Phases::default()
                };
                attempts.push(Attempt::failed(
                    name,
                    Encryption::Plain,
                    began - started,
                    phases,
                    &error,
                ));
                return Err(vec![error]);
            }
        };
        let mut errors = Vec::new();
        for address in self.ordered(&addresses) {
            let deadline = self
                .config
                .connect_timeout
                .map(|limit| Instant::now() + limit);
            let shown = match (&target.host.place, address) {
                (Place::Tcp { name: host, .. }, Address::Tcp(ip))
                    if *host != ip.ip().to_string() =>
                {
                    format!("{name} ({})", ip.ip())
                }
                _ => name.clone(),
            };
            let mut plan = self.plan(&target.host);
            while let Some(encryption) = plan.next() {
                let began = Instant::now();
                let mut phases = Phases {
                    resolve: resolve.take(),
                    ..Phases::default()
                };
                let spent = phases.resolve.unwrap_or_default();
                let result = self.attempt(
                    target,
                    address,
                    encryption,
                    wanted,
                    deadline,
                    &mut phases,
                    &shown,
                );
                phases.total = began.elapsed() + spent;
                let offset = (began - started).saturating_sub(spent);
                match result {
                    Ok(connection) => {
                        let used = if connection.tls().is_some() {
                            Encryption::Tls
                        } else {
                            Encryption::Plain
                        };
                        attempts.push(Attempt::succeeded(shown, used, offset, phases));
                        return Ok(connection);
                    }
                    Err(Failure { error, retry }) => {
                        let error = error.at_target(&shown);
                        attempts.push(Attempt::failed(
                            shown.clone(),
                            encryption,
                            offset,
                            phases,
                            &error,
                        ));
                        plan.after(retry);
                        if retry != Retry::WithoutProbe {
                            errors.push(error);
                        }
                    }
                }
            }
        }
        Err(errors)
    }

    fn addresses(&self, target: &Target, resolve: &mut Option<Duration>) -> Result<Vec<Address>> {
        match &target.host.place {
            Place::Unix(path) => Ok(vec![Address::Unix(path.clone())]),
            Place::Abstract(name) => Ok(vec![Address::Abstract(name.clone())]),
            Place::Tcp {
                addr: Some(addr), ..
            } => Ok(vec![Address::Tcp(SocketAddr::new(*addr, target.host.port))]),
            Place::Tcp { name, addr: None } => {
                let started = Instant::now();
                let found = (name.as_str(), target.host.port).to_socket_addrs();
                *resolve = Some(started.elapsed());
                let list: Vec<Address> = found.map_or_else(
                    |error| {
                        Err(Error::new(
                            ErrorKind::Resolve,
                            format!("the name cannot be resolved: {error}"),
                        ))
                    },
                    |list| Ok(list.map(Address::Tcp).collect()),
                )?;
                if list.is_empty() {
                    return Err(Error::new(ErrorKind::Resolve, "the name has no address"));
                }
                Ok(list)
            }
        }
    }

    fn ordered<'a, T>(&self, list: &'a [T]) -> Vec<&'a T> {
        let mut order: Vec<&T> = list.iter().collect();
        if self.config.load_balance_hosts == LoadBalanceHosts::Random {
            let provider = rustls::crypto::ring::default_provider();
            for last in (1..order.len()).rev() {
                let mut bytes = [0; 8];
                if provider.secure_random.fill(&mut bytes).is_ok() {
                    let pick = u64::from_le_bytes(bytes) % (last as u64 + 1);
                    order.swap(last, usize::try_from(pick).unwrap_or(last));
                }
            }
        }
        order
    }

    fn plan(&self, host: &Host) -> Plan {
        let mode = if host.is_tcp() {
            self.config.tls.mode
        } else {
            SslMode::Disable
        };
        let first = match mode {
            SslMode::Disable | SslMode::Allow => Encryption::Plain,
            SslMode::Prefer | SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => {
                Encryption::Tls
            }
        };
        Plan {
            mode,
            next: Some(first),
            fallback_used: false,
        }
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "one call, and each is a thing of its own"
    )]
    fn attempt(
        &self,
        target: &Target,
        address: &Address,
        encryption: Encryption,
        wanted: TargetSessionAttrs,
        deadline: Option<Instant>,
        phases: &mut Phases,
        shown: &str,
    ) -> std::result::Result<Connection, Failure> {
        let (socket, took) = address
            .connect(
                &self.config,
                deadline.or_else(|| self.timeout.map(|limit| Instant::now() + limit)),
            )
            .map_err(|error| Failure::before(error.in_phase(Phase::Connect)))?;
        phases.connect = Some(took);
        let mut channel = Channel::new(socket, deadline);
        channel.set_timeout(self.timeout).map_err(Failure::before)?;
        match encryption {
            Encryption::Plain => self.probe(&mut channel, phases)?,
            Encryption::Tls => self.encrypt(&mut channel, target, phases)?,
        }
        let login = Login {
            config: &self.config,
            startup_packet: &self.startup_packet,
            password: target.password.as_ref(),
            scram_keys: self.scram_keys.as_ref(),
            keys: self.keys.as_ref(),
        };
        let is_tls = channel.is_tls();
        let session = login
            .run(&mut channel, phases)
            .map_err(|error| Failure::during_login(error, is_tls))?;
        channel.set_deadline(None);
        let peer = Peer {
            shown: shown.to_owned(),
            address: address.clone(),
        };
        let mut connection = Connection::new(channel, session, peer);
        if wanted != TargetSessionAttrs::Any {
            let started = Instant::now();
            let checked = connection.check_target(wanted, &mut phases.session_check, started);
            checked.map_err(|error| Failure::before(error.in_phase(Phase::SessionCheck)))?;
        }
        Ok(connection)
    }

    /// SSLRequest only to see the answer's time.
    fn probe(
        &self,
        channel: &mut Channel,
        phases: &mut Phases,
    ) -> std::result::Result<(), Failure> {
        if !self.fork_probe.load(Ordering::Relaxed) {
            return Ok(());
        }
        match request_tls(channel, phases).map_err(Failure::before)? {
            true => {
                self.fork_probe.store(false, Ordering::Relaxed);
                let error = Error::new(
                    ErrorKind::Tls,
                    "the fork probe cannot be used: the server now expects TLS",
                )
                .advice("use sslmode=require, which shows the same phase");
                Err(Failure {
                    error: error.in_phase(Phase::QueueFork),
                    retry: Retry::WithoutProbe,
                })
            }
            false => Ok(()),
        }
    }

    fn encrypt(
        &self,
        channel: &mut Channel,
        target: &Target,
        phases: &mut Phases,
    ) -> std::result::Result<(), Failure> {
        let direct = self.config.tls.negotiation == SslNegotiation::Direct;
        if !direct && !request_tls(channel, phases).map_err(Failure::before)? {
            // The server has no TLS: go on without on the same connection, if that is allowed.
            if self.config.tls.mode.requires_tls() {
                let error = Error::new(
                    ErrorKind::Tls,
                    "the server does not support TLS, but it is required",
                )
                .advice("turn ssl on at the server or use sslmode=prefer");
                return Err(Failure::before(error.in_phase(Phase::Tls)));
            }
            return Ok(());
        }
        let (Some(config), Some(name)) = (&self.tls, &target.server_name) else {
            return Err(Failure::before(
                Error::config("TLS is not configured").in_phase(Phase::Tls),
            ));
        };
        let started = Instant::now();
        let result = channel.start_tls(config, name.clone());
        phases.tls = Some(started.elapsed());
        if direct && result.is_ok() && channel.alpn() != Some(b"postgresql") {
            let error = Error::new(ErrorKind::Tls, "direct TLS was established without ALPN")
                .advice("the server must be PostgreSQL 17 or later; use sslnegotiation=postgres");
            return Err(Failure::before(error.in_phase(Phase::Tls)));
        }
        result.map_err(|error| Failure {
            error: error.in_phase(Phase::Tls),
            retry: Retry::Plain,
        })
    }
}

/// Sends an SSLRequest and says whether the server will do TLS.
fn request_tls(channel: &mut Channel, phases: &mut Phases) -> Result<bool> {
    let in_phase = |error: Error| error.in_phase(Phase::QueueFork);
    let sent = Instant::now();
    channel
        .send(&startup::SSL_REQUEST_BYTES)
        .map_err(in_phase)?;
    let answer = channel.wait_answer_byte().map_err(in_phase)?;
    phases.queue_fork = Some(channel.arrived().saturating_duration_since(sent));
    match answer {
        b'S' => Ok(true),
        b'N' => Ok(false),
        b'E' => Err(in_phase(
            Error::protocol("the server answered the SSL request with an error")
                .advice("the server's log says which"),
        )),
        other => Err(in_phase(
            Error::protocol(format!("unexpected answer {other:#04x} to the SSL request"))
                .advice("is this a PostgreSQL server?"),
        )),
    }
}

struct Failure {
    error: Error,
    /// Whether another way of encryption on the same address may succeed.
    retry: Retry,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Retry {
    /// It would fail in the same way.
    Useless,
    /// Only the fork probe failed.
    WithoutProbe,
    /// Without TLS it may work.
    Plain,
    /// With TLS it may work.
    Tls,
}

impl Failure {
    fn before(error: Error) -> Self {
        Failure {
            error,
            retry: Retry::Useless,
        }
    }

    /// A server may refuse a login because it is, or is not, encrypted (pg_hba.conf).
    fn during_login(error: Error, tls: bool) -> Self {
        let retry = match (error.kind() == ErrorKind::Server, tls) {
            (false, _) => Retry::Useless,
            (true, true) => Retry::Plain,
            (true, false) => Retry::Tls,
        };
        Failure { error, retry }
    }
}

/// The attempts that sslmode allows for one address.
struct Plan {
    mode: SslMode,
    next: Option<Encryption>,
    fallback_used: bool,
}

impl Plan {
    fn next(&mut self) -> Option<Encryption> {
        self.next.take()
    }

    fn after(&mut self, retry: Retry) {
        if retry == Retry::WithoutProbe {
            self.next = Some(Encryption::Plain);
            return;
        }
        if !self.fallback_used {
            self.next = match (self.mode, retry) {
                (SslMode::Prefer, Retry::Plain) => Some(Encryption::Plain),
                (SslMode::Allow, Retry::Tls) => Some(Encryption::Tls),
                _ => None,
            };
            self.fallback_used = self.next.is_some();
        }
    }
}

fn target(config: &Config, host: &Host, tls: bool, warnings: &mut Vec<String>) -> Result<Target> {
    let mut password = config
        .password
        .clone()
        .filter(|password| !password.is_empty());
    if let (None, Some(file)) = (&password, &config.passfile) {
        let query = PassQuery {
            host: &host.passfile_name,
            port: host.port,
            dbname: &config.dbname,
            user: &config.user,
        };
        let (found, warning) = password_from_file(file, query);
        password = found;
        warnings.extend(warning.filter(|warning| !warnings.contains(warning)));
    }
    let server_name = match &host.place {
        Place::Tcp { name, addr } if tls => {
            if name.is_empty() && config.tls.mode == SslMode::VerifyFull {
                return Err(Error::config(
                    "sslmode=verify-full needs a host name, not only hostaddr",
                ));
            }
            let numeric = addr.map(|addr| addr.to_string());
            let known = if name.is_empty() {
                numeric.as_deref().unwrap_or("")
            } else {
                name
            };
            Some(tls::server_name(known)?)
        }
        Place::Tcp { .. } | Place::Unix(_) | Place::Abstract(_) => None,
    };
    Ok(Target {
        host: host.clone(),
        password,
        server_name,
    })
}

fn startup_packet(config: &Config) -> Result<Vec<u8>> {
    let fixed = [
        ("user", Some(&config.user)),
        ("database", Some(&config.dbname)),
        ("replication", config.replication.as_ref()),
    ];
    let all: Vec<(&str, &str)> = fixed
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?.as_str())))
        .chain(
            config
                .parameters
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str())),
        )
        .collect();
    if all
        .iter()
        .any(|(name, value)| name.is_empty() || name.contains('\0') || value.contains('\0'))
    {
        return Err(Error::config(
            "a startup parameter has an empty name or holds a zero byte",
        ));
    }
    let mut packet = Vec::new();
    startup::write_startup(
        &mut packet,
        config.protocol.1,
        all.iter()
            .map(|(name, value)| (name.as_bytes(), value.as_bytes())),
    );
    if packet.len() > startup::MAX_STARTUP_LEN as usize {
        return Err(Error::config(
            "the startup parameters are longer than a server accepts (10,000 bytes)",
        ));
    }
    Ok(packet)
}

/// Decodes a SCRAM key: 32 bytes in base64.
fn key_bytes(secret: &Secret) -> Result<[u8; 32]> {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD
        .decode(secret.expose())
        .ok()
        .map(zeroize::Zeroizing::new)
        .and_then(|bytes| bytes.as_slice().try_into().ok())
        .ok_or_else(|| {
            Error::config("scram_client_key and scram_server_key must be 32 bytes in base64")
        })
}
