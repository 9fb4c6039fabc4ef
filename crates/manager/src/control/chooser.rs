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
use crate::tls::Servers;
use crate::upstream::ServerAddress;
use pgusher_client::{Config as Conninfo, Connector, ErrorKind, Host, LoadBalanceHosts, Place, TargetSessionAttrs};
use rand::seq::SliceRandom;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

/// A server that does not answer within this time is passed over, unless connect_timeout says otherwise.
const PATIENCE: Duration = Duration::from_secs(5);

/// Knows the hosts.
pub(super) struct Chooser {
    conninfo: Conninfo,
    tls: Servers,
    timeout: Duration,
    look_up: LookUp,
}

/// The addresses of a name, for this port.
pub(super) type LookUp = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

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
        let look_up = |name: &str, port: u16| (name, port).to_socket_addrs().map(Iterator::collect);
        Self { conninfo: server.conninfo.clone(), tls: server.tls.clone(), timeout, look_up }
    }

    /// With another way to look names up.
    #[cfg(test)]
    pub(super) fn with_names(self, look_up: LookUp) -> Self {
        Self { look_up, ..self }
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
            match self.resolve(host) {
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
            let found =
                probe::login(address, &self.tls, &self.conninfo.user, &self.conninfo.dbname, None, self.timeout);
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

    /// The addresses of a host. Of a name, those of IPv4 come first: `localhost` often stands for ::1 first, while many servers
    /// listen on 127.0.0.1 only.
    fn resolve(&self, host: &Host) -> io::Result<Vec<ServerAddress>> {
        let tcp = |name: &str, address: SocketAddr| ServerAddress::Tcp { address, name: name.into() };
        match &host.place {
            Place::Unix(path) => Ok(vec![ServerAddress::Unix(path.clone())]),
            Place::Abstract(_) => Err(io::ErrorKind::Unsupported.into()),
            Place::Tcp { name, addr: Some(ip) } => {
                let shown = if name.is_empty() { ip.to_string() } else { name.clone() };
                Ok(vec![tcp(&shown, SocketAddr::new(*ip, host.port))])
            }
            Place::Tcp { name, addr: None } => {
                let mut found = (self.look_up)(name, host.port)?;
                found.sort_by_key(SocketAddr::is_ipv6);
                found.dedup();
                Ok(found.into_iter().map(|address| tcp(name, address)).collect())
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Overrides};

    fn chooser(conninfo: &str, look_up: LookUp) -> Chooser {
        let config = Config::from_conninfo(conninfo, &Overrides::default()).unwrap();
        Chooser::new(&config.server, Duration::from_secs(1)).with_names(look_up)
    }

    fn tcp(address: &str, name: &str) -> ServerAddress {
        ServerAddress::Tcp { address: address.parse().unwrap(), name: name.into() }
    }

    #[test]
    fn the_current_address_is_kept_while_its_name_stands_for_it() {
        let chooser = chooser("host=db,other port=1 user=x", |name, port| {
            let ips: &[&str] = if name == "db" { &["::7", "10.0.0.1", "10.0.0.2"] } else { &["10.0.0.3"] };
            Ok(ips.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), port)).collect())
        });
        for kept in [tcp("10.0.0.2:1", "db"), tcp("10.0.0.3:1", "other"), tcp("[::7]:1", "db")] {
            // Nothing is tried: there is no reason to doubt it.
            let choice = chooser.choose(Some(&kept), false);
            assert_eq!(choice.address, Some(kept.clone()));
            assert_eq!((choice.candidates.len(), choice.candidates.first()), (4, Some(&kept)));
        }
        // IPv4 first.
        let order = chooser.candidates(&mut Vec::new());
        assert_eq!(order.first(), Some(&tcp("10.0.0.1:1", "db")));
        assert_eq!(order.get(2), Some(&tcp("[::7]:1", "db")));
    }

    #[test]
    fn a_name_that_stands_for_something_else_now() {
        let chooser = chooser("host=db port=1 user=x", |_, port| Ok(vec![SocketAddr::new([10, 0, 0, 9].into(), port)]));
        let choice = chooser.choose(Some(&tcp("10.0.0.1:1", "db")), false);
        assert_eq!(choice.address, Some(tcp("10.0.0.9:1", "db")));
    }

    #[test]
    fn a_name_that_cannot_be_resolved() {
        let chooser = chooser("host=db port=1 user=x", |_, _| Err(io::ErrorKind::NotFound.into()));
        let choice = chooser.choose(Some(&tcp("10.0.0.1:1", "db")), true);
        assert!(choice.address.is_none() && choice.candidates.is_empty());
        assert!(choice.reasons[0].contains("db:1"), "{:?}", choice.reasons);
    }

    #[test]
    fn one_address_alone() {
        let address = tcp("10.0.0.1:5", "db");
        let chooser =
            chooser("host=a,db port=1 user=x target_session_attrs=read-write options=-cx.y=1", |_, _| Ok(vec![]));
        let one = chooser.at(&address);
        assert_eq!(one.hosts.len(), 1);
        assert_eq!(one.hosts[0].to_string(), "db:5");
        assert_eq!(one.target_session_attrs, TargetSessionAttrs::Any);
        assert!(one.parameters.is_empty());
    }
}
