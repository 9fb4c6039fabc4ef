//! Finds the server among the hosts of the connection string: looks their names up, asks each what it is where
//! target_session_attrs wants to know, and chooses one as libpq does. Blocking.
//!
//! One address is used at a time. The current one is kept as long as it is among those that the names stand for and is of
//! the right kind, also when a host in front of it has come back: connections are not moved without need.
//!
//! Source: PostgreSQL documentation, "Connection Strings", "Specifying Multiple Hosts"; target_session_attrs and
//! load_balance_hosts in "Parameter Key Words".

use super::probe;
use crate::auth::speaks_against_server;
use crate::config::Server;
use crate::upstream::ServerAddress;
use pgusher_client::{Config as Conninfo, Connector, ErrorKind, Host, LoadBalanceHosts, Place, TargetSessionAttrs};
use rand::seq::SliceRandom;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

/// A server that does not answer within this time is passed over, unless connect_timeout says otherwise.
const PATIENCE: Duration = Duration::from_secs(5);

/// Knows the hosts.
pub(super) struct Chooser {
    conninfo: Conninfo,
    timeout: Duration,
}

/// What a candidate is.
#[derive(Debug)]
enum Grade {
    /// Alive, and of the kind that is wanted.
    Right,
    /// Alive, but it does not let us in to ask what it is.
    Unknown,
    /// Of another kind, or dead; says so.
    No(String),
}

/// What was found.
pub(super) struct Choice {
    /// The best address; `None` if all were tried in vain.
    pub(super) address: Option<ServerAddress>,
    /// All addresses.
    pub(super) candidates: Vec<ServerAddress>,
    /// What speaks against the others.
    pub(super) reasons: Vec<String>,
}

impl Chooser {
    /// For these hosts; no server is waited for longer than `limit`.
    pub(super) fn new(server: &Server, limit: Duration) -> Self {
        let timeout = server.conninfo.connect_timeout.unwrap_or(PATIENCE).min(limit);
        Self { conninfo: server.conninfo.clone(), timeout }
    }

    /// Chooses an address, `current` if it still will do. Unless `doubted`, an address that need not be of a certain kind is
    /// not tried.
    pub(super) fn choose(&self, current: Option<&ServerAddress>, doubted: bool) -> Choice {
        let mut reasons = Vec::new();
        let mut candidates = self.candidates(&mut reasons);
        if let Some(at) = current.and_then(|current| candidates.iter().position(|c| c == current)) {
            candidates[..=at].rotate_right(1);
        }
        let any = self.conninfo.target_session_attrs == TargetSessionAttrs::Any;
        let undoubted = !doubted && current.is_some() && candidates.first() == current;
        if any && (candidates.len() == 1 || undoubted) {
            return Choice { address: candidates.first().cloned(), candidates, reasons };
        }
        let passes: &[TargetSessionAttrs] = match self.conninfo.target_session_attrs {
            TargetSessionAttrs::PreferStandby => &[TargetSessionAttrs::Standby, TargetSessionAttrs::Any],
            ref one => std::slice::from_ref(one),
        };
        let mut unknown = None;
        for wanted in passes {
            for candidate in &candidates {
                match self.grade(candidate, *wanted) {
                    Grade::Right => return Choice { address: Some(candidate.clone()), candidates, reasons },
                    Grade::Unknown => unknown = unknown.or(Some(candidate)),
                    Grade::No(reason) => reasons.push(reason),
                }
            }
        }
        Choice { address: unknown.cloned(), candidates, reasons }
    }

    /// All addresses in the order in which they are to be tried.
    fn candidates(&self, reasons: &mut Vec<String>) -> Vec<ServerAddress> {
        let mut hosts: Vec<&Host> = self.conninfo.hosts.iter().collect();
        let random = self.conninfo.load_balance_hosts == LoadBalanceHosts::Random;
        if random {
            hosts.shuffle(&mut rand::rng());
        }
        let mut candidates = Vec::new();
        for host in hosts {
            match resolve(host) {
                Ok(mut addresses) => {
                    if random {
                        addresses.shuffle(&mut rand::rng());
                    }
                    candidates.extend(addresses);
                }
                Err(e) => reasons.push(format!("the host name {host} cannot be resolved: {e}")),
            }
        }
        candidates
    }

    fn grade(&self, address: &ServerAddress, wanted: TargetSessionAttrs) -> Grade {
        if wanted == TargetSessionAttrs::Any {
            let found = probe::login(address, &self.conninfo.user, &self.conninfo.dbname, None, self.timeout);
            return match found {
                Err(report) if speaks_against_server(&report.sqlstate) => {
                    let detail = report.detail.map(|d| format!(": {d}")).unwrap_or_default();
                    Grade::No(format!("{address}: {}{detail}", report.message))
                }
                Err(_) | Ok(_) => Grade::Right,
            };
        }
        let mut conninfo = self.at(address);
        conninfo.target_session_attrs = wanted;
        let connected = Connector::new(&conninfo).and_then(|connector| connector.connect());
        match connected {
            Ok(_) => Grade::Right,
            Err(e) => match e.kind() {
                ErrorKind::Server if e.sqlstate().is_none_or(|state| !speaks_against_server(state)) => Grade::Unknown,
                ErrorKind::Authentication | ErrorKind::Config | ErrorKind::Usage => Grade::Unknown,
                _ => Grade::No(format!("{address}: {e}")),
            },
        }
    }

    /// The connection string for this address alone.
    pub(super) fn at(&self, address: &ServerAddress) -> Conninfo {
        at(&self.conninfo, address, self.timeout)
    }
}

/// A connection string for one address alone, without the settings that were meant for sessions of applications.
pub(super) fn at(conninfo: &Conninfo, address: &ServerAddress, timeout: Duration) -> Conninfo {
    let mut one = conninfo.clone();
    one.hosts = match address {
        ServerAddress::Tcp { address, name } => vec![Host {
            place: Place::Tcp { name: name.to_string(), addr: Some(address.ip()) },
            port: address.port(),
            passfile_name: name.to_string(),
        }],
        ServerAddress::Unix(path) => vec![
            conninfo.hosts.iter().find(|h| matches!(&h.place, Place::Unix(p) if p == path)).cloned().unwrap_or_else(
                || Host { place: Place::Unix(path.clone()), port: 0, passfile_name: "localhost".into() },
            ),
        ],
    };
    one.connect_timeout = Some(timeout);
    one.target_session_attrs = TargetSessionAttrs::Any;
    one.load_balance_hosts = LoadBalanceHosts::Disable;
    one.parameters.clear();
    one
}

/// The addresses of a host. Of a name, those of IPv4 come first: `localhost` often stands for ::1 first, while many servers
/// listen on 127.0.0.1 only.
fn resolve(host: &Host) -> std::io::Result<Vec<ServerAddress>> {
    let tcp = |name: &str, address: SocketAddr| ServerAddress::Tcp { address, name: name.into() };
    match &host.place {
        Place::Unix(path) => Ok(vec![ServerAddress::Unix(path.clone())]),
        Place::Abstract(_) => Err(std::io::ErrorKind::Unsupported.into()),
        Place::Tcp { name, addr: Some(ip) } => {
            let shown = if name.is_empty() { ip.to_string() } else { name.clone() };
            Ok(vec![tcp(&shown, SocketAddr::new(*ip, host.port))])
        }
        Place::Tcp { name, addr: None } => {
            let mut found: Vec<SocketAddr> = (name.as_str(), host.port).to_socket_addrs()?.collect();
            found.sort_by_key(SocketAddr::is_ipv6);
            found.dedup();
            Ok(found.into_iter().map(|address| tcp(name, address)).collect())
        }
    }
}
