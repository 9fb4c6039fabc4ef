//! The list of servers: `host`, `hostaddr` and `port` taken together.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::conninfo::{Keyword, Params};
use crate::error::{Error, Result};

/// PostgreSQL's port.
const DEFAULT_PORT: u16 = 5432;
/// Where servers put their socket: Debian and Red Hat, then PostgreSQL's own default.
const SOCKET_FOLDERS: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// TCP.
    Tcp {
        /// Name, as given; empty if only an address was.
        name: String,
        /// Address that spares the look-up (`hostaddr`).
        addr: Option<IpAddr>,
    },
    /// Unix socket.
    Unix(PathBuf),
    /// Unix socket in Linux's abstract name space, without the leading `@`.
    Abstract(String),
}

/// One server of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Where it listens.
    pub place: Place,
    /// Port; for Unix sockets it is part of the file's name already.
    pub port: u16,
    /// By which name the password file knows it.
    pub passfile_name: String,
}

impl Host {
    /// A server by name or address, or by the folder of its socket (a leading `/` or `@`).
    pub fn new(name: &str, port: u16) -> Host {
        let file = |folder: &str| format!("{}/.s.PGSQL.{port}", folder.trim_end_matches('/'));
        let place = if name.starts_with('/') {
            Place::Unix(PathBuf::from(file(name)))
        } else if let Some(folder) = name.strip_prefix('@') {
            Place::Abstract(file(folder))
        } else {
            Place::Tcp { name: name.to_owned(), addr: None }
        };
        let default_folder = SOCKET_FOLDERS.contains(&name);
        Host { place, port, passfile_name: if default_folder { "localhost" } else { name }.to_owned() }
    }

    /// The server's socket in the folder where packages put it, or localhost if no such folder exists.
    fn default_place(port: u16) -> Host {
        let socket = |folder: &&str| Path::new(folder).join(format!(".s.PGSQL.{port}")).exists();
        let folder = SOCKET_FOLDERS
            .iter()
            .copied()
            .find(socket)
            .or_else(|| SOCKET_FOLDERS.iter().copied().find(|folder| Path::new(folder).is_dir()));
        Host::new(folder.unwrap_or("localhost"), port)
    }

    /// Whether it is reached over TCP.
    pub fn is_tcp(&self) -> bool {
        matches!(self.place, Place::Tcp { .. })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Tcp { name, addr } => {
                let numeric = addr.map(|addr| addr.to_string());
                let shown = if name.is_empty() { numeric.as_deref().unwrap_or("") } else { name };
                if shown.contains(':') {
                    write!(f, "[{shown}]:{}", self.port)
                } else {
                    write!(f, "{shown}:{}", self.port)
                }
            }
            Place::Unix(path) => write!(f, "{}", path.display()),
            Place::Abstract(name) => write!(f, "@{name}"),
        }
    }
}

/// Combines the three lists.
pub(super) fn hosts(params: &Params) -> Result<Vec<Host>> {
    let list = |keyword| params.non_empty(keyword).map(|text| text.split(',').map(str::trim).collect::<Vec<_>>());
    let names = list(Keyword::Host);
    let addrs = list(Keyword::Hostaddr);
    let ports = list(Keyword::Port).unwrap_or_else(|| vec![""]);
    let count = addrs.as_ref().or(names.as_ref()).map_or(1, Vec::len);
    if let (Some(names), Some(addrs)) = (&names, &addrs) {
        if names.len() != addrs.len() {
            return Err(Error::config(format!(
                "could not match {} host names to {} hostaddr values",
                names.len(),
                addrs.len()
            )));
        }
    }
    if ports.len() != 1 && ports.len() != count {
        return Err(Error::config(format!("could not match {} port numbers to {count} hosts", ports.len())));
    }
    (0..count)
        .map(|i| {
            let at = |list: &Option<Vec<&'_ str>>| {
                list.as_ref().and_then(|list| list.get(i).copied()).unwrap_or("").to_owned()
            };
            let port = port(ports.get(i).or(ports.first()).copied().unwrap_or(""))?;
            let (name, addr) = (at(&names), at(&addrs));
            if addr.is_empty() {
                return Ok(if name.is_empty() { Host::default_place(port) } else { Host::new(&name, port) });
            }
            let Ok(parsed) = addr.parse() else {
                return Err(Error::config(format!("invalid hostaddr \"{addr}\"; it must be a numeric address")));
            };
            let passfile_name = if name.is_empty() { addr } else { name.clone() };
            Ok(Host { place: Place::Tcp { name, addr: Some(parsed) }, port, passfile_name })
        })
        .collect()
}

fn port(text: &str) -> Result<u16> {
    if text.is_empty() {
        return Ok(DEFAULT_PORT);
    }
    match text.parse::<u16>() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(Error::config(format!("invalid port number \"{text}\"; it must be between 1 and 65535"))),
    }
}
