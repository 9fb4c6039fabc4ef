//! Opening a socket to one address: TCP, Unix or abstract, with its options and time limits.

use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, SockRef, Socket, TcpKeepalive, Type};

use crate::config::{Config, TcpOptions};
use crate::conninfo::Environment;
use crate::error::{Error, Result};

/// One address to connect to.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
    Abstract(String),
}

/// An address that a connection was made to, with what more connections to it need: for programs that open many
/// sockets themselves.
#[derive(Clone, Debug)]
pub struct Destination {
    pub(crate) shown: String,
    pub(crate) address: Address,
    /// Which of the connector's hosts.
    pub(crate) host: usize,
}

impl Destination {
    /// As in `localhost:5432 (127.0.0.1)`.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// The address, where it is one of TCP.
    pub fn ip(&self) -> Option<SocketAddr> {
        match self.address {
            Address::Tcp(address) => Some(address),
            Address::Unix(_) | Address::Abstract(_) => None,
        }
    }

    /// A socket with the connection string's TCP options, which does not block, and the address to connect it to.
    pub fn socket(&self, config: &Config) -> std::io::Result<(Socket, SockAddr)> {
        let (socket, address) = self.address.socket(&config.tcp)?;
        socket.set_nonblocking(true)?;
        Ok((socket, address))
    }
}

impl Address {
    /// Connects and checks requirepeer. The time is that of the connect() call alone.
    pub(crate) fn connect(&self, config: &Config, deadline: Option<Instant>) -> Result<(Socket, Duration)> {
        let (socket, took) = self.connect_with(&config.tcp, deadline)?;
        if let (Address::Unix(_) | Address::Abstract(_), Some(wanted)) = (self, &config.require_peer) {
            check_peer(&socket, wanted)?;
        }
        Ok((socket, took))
    }

    /// Connects.
    pub(crate) fn connect_with(&self, tcp: &TcpOptions, deadline: Option<Instant>) -> Result<(Socket, Duration)> {
        let (socket, address) = self.socket(tcp).map_err(Error::io)?;
        let limit = deadline.map(remaining).transpose()?;
        let started;
        match (self, limit) {
            (Address::Tcp(_), Some(limit)) => {
                started = Instant::now();
                socket.connect_timeout(&address, limit).map_err(Error::io)?;
            }
            // With a full backlog a Unix socket that does not block says "try again" at once; one that blocks waits
            // as long as its send timeout allows.
            (Address::Unix(_) | Address::Abstract(_), limit @ Some(_)) => {
                socket.set_write_timeout(limit).map_err(Error::io)?;
                started = Instant::now();
                socket.connect(&address).map_err(Error::io)?;
            }
            (_, None) => {
                started = Instant::now();
                socket.connect(&address).map_err(Error::io)?;
            }
        }
        Ok((socket, started.elapsed()))
    }

    /// A socket that is not connected yet, and where to.
    fn socket(&self, tcp: &TcpOptions) -> std::io::Result<(Socket, SockAddr)> {
        match self {
            Address::Tcp(address) => {
                let socket = Socket::new(Domain::for_address(*address), Type::STREAM, None)?;
                set_tcp_options(&socket, tcp)?;
                Ok((socket, SockAddr::from(*address)))
            }
            Address::Unix(path) => Ok((unix_socket()?, SockAddr::unix(path)?)),
            Address::Abstract(name) => {
                let name = [&b"\0"[..], name.as_bytes()].concat();
                let path = Path::new(std::ffi::OsStr::from_bytes(&name));
                Ok((unix_socket()?, SockAddr::unix(path)?))
            }
        }
    }
}

/// What is left until `deadline`; an error if nothing is.
pub(crate) fn remaining(deadline: Instant) -> Result<Duration> {
    match deadline.checked_duration_since(Instant::now()) {
        Some(left) if !left.is_zero() => Ok(left),
        _ => Err(Error::timeout()),
    }
}

fn unix_socket() -> std::io::Result<Socket> {
    Socket::new(Domain::UNIX, Type::STREAM, None)
}

fn set_tcp_options(socket: &Socket, options: &TcpOptions) -> std::io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    if options.keepalives {
        socket.set_keepalive(true)?;
        let mut keepalive = TcpKeepalive::new();
        let mut custom = false;
        if let Some(idle) = options.idle {
            keepalive = keepalive.with_time(idle);
            custom = true;
        }
        if let Some(interval) = options.interval {
            keepalive = keepalive.with_interval(interval);
            custom = true;
        }
        if let Some(count) = options.count {
            keepalive = keepalive.with_retries(count);
            custom = true;
        }
        if custom {
            SockRef::from(socket).set_tcp_keepalive(&keepalive)?;
        }
    }
    #[cfg(target_os = "linux")]
    if options.user_timeout.is_some() {
        socket.set_tcp_user_timeout(options.user_timeout)?;
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn check_peer(socket: &Socket, wanted: &str) -> Result<()> {
    let credentials = rustix::net::sockopt::socket_peercred(socket).map_err(|errno| Error::io(errno.into()))?;
    let uid = credentials.uid.as_raw();
    match Environment::account_name(uid) {
        Some(name) if name == wanted => Ok(()),
        Some(name) => {
            Err(Error::config(format!("requirepeer specifies \"{wanted}\", but the peer's user name is \"{name}\"")))
        }
        None => Err(Error::config(format!("requirepeer: the user with id {uid} is not known here"))),
    }
}

#[cfg(not(target_os = "linux"))]
fn check_peer(_: &Socket, _: &str) -> Result<()> {
    Err(Error::config("requirepeer is not supported on this system"))
}
