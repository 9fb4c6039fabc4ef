//! Connecting as libpq does: hosts in order, addresses of each, and the attempts that sslmode allows for each address.
//! All that needs no server is done when the connector is made, before any clock starts.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pgusher_auth::{Derivation, DerivationCache, ScramKeys};
use pgusher_wire::startup;
use rustls::ClientConfig;

use crate::attempt::{Attempt, Attempts, Encryption};
use crate::channel::Channel;
use crate::config::{Config, Host, LoadBalanceHosts, Place, SslMode, SslNegotiation, TargetSessionAttrs};
use crate::connection::Connection;
use crate::error::{Error, ErrorKind, Result};
use crate::login::Login;
use crate::phase::{Phase, Phases};
use crate::plan::{Failure, Plan, Retry};
use crate::prepare::{self, Target};
use crate::socket::{Address, Destination};
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
        let needs_tls = config.tls.mode != SslMode::Disable && config.hosts.iter().any(Host::is_tcp);
        let tls = needs_tls.then(|| tls::client_config(&config.tls)).transpose().map_err(in_setup)?;
        let targets = config
            .hosts
            .iter()
            .map(|host| prepare::target(config, host, tls.is_some(), &mut warnings))
            .collect::<Result<Vec<_>>>()
            .map_err(in_setup)?;
        let startup_packet = prepare::startup_packet(config).map_err(in_setup)?;
        let scram_keys = prepare::scram_keys(config).map_err(in_setup)?;
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
        let filled = rustls::crypto::ring::default_provider().secure_random.fill(&mut random).is_ok();
        self.keys = (on && filled).then(|| KeyCache(Mutex::new(DerivationCache::new(KEY_CACHE, random))));
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
            TargetSessionAttrs::PreferStandby => &[TargetSessionAttrs::Standby, TargetSessionAttrs::Any],
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
                let phases = Phases { resolve, total: began.elapsed(), ..Phases::default() };
                attempts.push(Attempt::failed(name, Encryption::Plain, began - started, phases, &error));
                return Err(vec![error]);
            }
        };
        let mut errors = Vec::new();
        for address in self.ordered(&addresses) {
            let deadline = self.config.connect_timeout.map(|limit| Instant::now() + limit);
            let shown = match (&target.host.place, address) {
                (Place::Tcp { name: host, .. }, Address::Tcp(ip)) if *host != ip.ip().to_string() => {
                    format!("{name} ({})", ip.ip())
                }
                _ => name.clone(),
            };
            let mut plan = Plan::new(self.config.tls.mode, target.host.is_tcp());
            while let Some(encryption) = plan.next() {
                let began = Instant::now();
                let mut phases = Phases { resolve: resolve.take(), ..Phases::default() };
                let spent = phases.resolve.unwrap_or_default();
                let result = self.attempt(target, address, encryption, wanted, deadline, &mut phases, &shown);
                phases.total = began.elapsed() + spent;
                let offset = (began - started).saturating_sub(spent);
                match result {
                    Ok(connection) => {
                        let used = if connection.tls().is_some() { Encryption::Tls } else { Encryption::Plain };
                        attempts.push(Attempt::succeeded(shown, used, offset, phases));
                        return Ok(connection);
                    }
                    Err(Failure { error, retry }) => {
                        let error = error.at_target(&shown);
                        attempts.push(Attempt::failed(shown.clone(), encryption, offset, phases, &error));
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
            Place::Tcp { addr: Some(addr), .. } => Ok(vec![Address::Tcp(SocketAddr::new(*addr, target.host.port))]),
            Place::Tcp { name, addr: None } => {
                let started = Instant::now();
                let found = (name.as_str(), target.host.port).to_socket_addrs();
                *resolve = Some(started.elapsed());
                let list: Vec<Address> = found.map_or_else(
                    |error| Err(Error::new(ErrorKind::Resolve, format!("the name cannot be resolved: {error}"))),
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

    #[allow(clippy::too_many_arguments, reason = "one call, and each is a thing of its own")]
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
            .connect(&self.config, deadline.or_else(|| self.timeout.map(|limit| Instant::now() + limit)))
            .map_err(|error| Failure::before(error.in_phase(Phase::Connect)))?;
        phases.connect = Some(took);
        let mut channel = Channel::new(socket, deadline);
        channel.set_timeout(self.timeout).map_err(Failure::before)?;
        match encryption {
            Encryption::Plain => self.probe(&mut channel, phases)?,
            Encryption::Tls => self.encrypt(&mut channel, target, phases)?,
        }
        let login = self.login(target);
        let is_tls = channel.is_tls();
        let session = login.run(&mut channel, phases).map_err(|error| Failure::during_login(error, is_tls))?;
        channel.set_deadline(None).map_err(Failure::before)?;
        let host = self.targets.iter().position(|known| std::ptr::eq(known, target)).unwrap_or(0);
        let peer = Destination { shown: shown.to_owned(), address: address.clone(), host };
        let mut connection = Connection::new(channel, session, peer);
        if wanted != TargetSessionAttrs::Any {
            let started = Instant::now();
            let checked = connection.check_target(wanted, &mut phases.session_check, started);
            checked.map_err(|error| Failure::before(error.in_phase(Phase::SessionCheck)))?;
        }
        Ok(connection)
    }

    /// What a login on this host needs.
    pub(crate) fn login<'a>(&'a self, target: &'a Target) -> Login<'a> {
        Login {
            config: &self.config,
            startup_packet: &self.startup_packet,
            password: target.password.as_ref(),
            scram_keys: self.scram_keys.as_ref(),
            keys: self.keys.as_ref(),
        }
    }

    /// The host that a destination belongs to.
    pub(crate) fn target(&self, destination: &Destination) -> Result<&Target> {
        self.target_at(destination.host).ok_or_else(|| Error::config("the destination is of another connector"))
    }

    /// One of the hosts.
    pub(crate) fn target_at(&self, host: usize) -> Option<&Target> {
        self.targets.get(host)
    }

    /// What TLS needs, if it may be used.
    pub(crate) fn tls_config(&self) -> Option<&Arc<ClientConfig>> {
        self.tls.as_ref()
    }

    /// SSLRequest only to see the answer's time.
    fn probe(&self, channel: &mut Channel, phases: &mut Phases) -> std::result::Result<(), Failure> {
        if !self.fork_probe.load(Ordering::Relaxed) {
            return Ok(());
        }
        match request_tls(channel, phases).map_err(Failure::before)? {
            true => {
                self.fork_probe.store(false, Ordering::Relaxed);
                let error = Error::new(ErrorKind::Tls, "the fork probe cannot be used: the server now expects TLS")
                    .advice("use sslmode=require, which shows the same phase");
                Err(Failure { error: error.in_phase(Phase::QueueFork), retry: Retry::WithoutProbe })
            }
            false => Ok(()),
        }
    }

    fn encrypt(&self, channel: &mut Channel, target: &Target, phases: &mut Phases) -> std::result::Result<(), Failure> {
        let direct = self.config.tls.negotiation == SslNegotiation::Direct;
        if !direct && !request_tls(channel, phases).map_err(Failure::before)? {
            // The server has no TLS: go on without on the same connection, if that is allowed.
            if self.config.tls.mode.requires_tls() {
                let error = Error::new(ErrorKind::Tls, "the server does not support TLS, but it is required")
                    .advice("turn ssl on at the server or use sslmode=prefer");
                return Err(Failure::before(error.in_phase(Phase::Tls)));
            }
            return Ok(());
        }
        let (Some(config), Some(name)) = (&self.tls, &target.server_name) else {
            return Err(Failure::before(Error::config("TLS is not configured").in_phase(Phase::Tls)));
        };
        let started = Instant::now();
        let result = channel.start_tls(config, name.clone());
        phases.tls = Some(started.elapsed());
        if direct && result.is_ok() && channel.alpn() != Some(b"postgresql") {
            let error = Error::new(ErrorKind::Tls, "direct TLS was established without ALPN")
                .advice("the server must be PostgreSQL 17 or later; use sslnegotiation=postgres");
            return Err(Failure::before(error.in_phase(Phase::Tls)));
        }
        result.map_err(|error| {
            let error = match direct {
                true => error.advice("sslnegotiation=direct needs PostgreSQL 17 or later with ssl on"),
                false => error,
            };
            Failure { error: error.in_phase(Phase::Tls), retry: Retry::Plain }
        })
    }
}

/// Sends an SSLRequest and says whether the server will do TLS.
fn request_tls(channel: &mut Channel, phases: &mut Phases) -> Result<bool> {
    let in_phase = |error: Error| error.in_phase(Phase::QueueFork);
    let sent = Instant::now();
    channel.send(&startup::SSL_REQUEST_BYTES).map_err(in_phase)?;
    let answer = channel.wait_answer_byte().map_err(in_phase)?;
    phases.queue_fork = Some(channel.arrived().saturating_duration_since(sent));
    match answer {
        b'S' => Ok(true),
        b'N' => Ok(false),
        b'E' => Err(in_phase(
            Error::protocol("the server answered the SSL request with an error").advice("the server's log says which"),
        )),
        other => Err(in_phase(
            Error::protocol(format!("unexpected answer {other:#04x} to the SSL request"))
                .advice("is this a PostgreSQL server?"),
        )),
    }
}
