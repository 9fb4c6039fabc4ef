//! Sockets that clients connect to. Each worker has its own handle of the same socket.

use super::socket::Socket;
use crate::core::Origin;
use mio::{Interest, Registry, Token};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Connections that wait to be accepted, at most; the system may allow fewer.
const BACKLOG: i32 = 4096;

/// A listening socket.
#[derive(Debug)]
pub enum Listener {
    /// TCP.
    Tcp(mio::net::TcpListener),
    /// Unix, and its path.
    Unix(mio::net::UnixListener, PathBuf),
}

impl Listener {
    /// Listens on a TCP address.
    ///
    /// # Errors
    /// The address is taken, or not ours.
    pub fn tcp(address: SocketAddr) -> io::Result<Self> {
        let domain = socket2::Domain::for_address(address);
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        // Accepted sockets inherit these on Linux, which saves two system calls for each client.
        socket.set_tcp_nodelay(true)?;
        let keepalive = socket2::TcpKeepalive::new().with_time(std::time::Duration::from_secs(60));
        socket.set_tcp_keepalive(&keepalive)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(Self::Tcp(mio::net::TcpListener::from_std(socket.into())))
    }

    /// Listens on a Unix socket. A socket that nobody listens on any more is replaced.
    ///
    /// # Errors
    /// Somebody listens there already, or the folder is not ours.
    pub fn unix(path: &Path) -> io::Result<Self> {
        if let Err(e) = std::os::unix::net::UnixStream::connect(path) {
            if e.kind() == io::ErrorKind::ConnectionRefused {
                std::fs::remove_file(path)?;
            }
        } else {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there"));
        }
        let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.bind(&socket2::SockAddr::unix(path)?)?;
        socket.listen(BACKLOG)?;
        // As the server's own socket: every user of this machine may connect, and is then asked who it is.
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777))?;
        let listener: std::os::unix::net::UnixListener = socket.into();
        Ok(Self::Unix(mio::net::UnixListener::from_std(listener), path.to_owned()))
    }

    /// A further handle of the same socket.
    ///
    /// # Errors
    /// No more file descriptors.
    pub fn share(&self) -> io::Result<Self> {
        use std::os::fd::AsFd;
        Ok(match self {
            Self::Tcp(l) => {
                let std: std::net::TcpListener = l.as_fd().try_clone_to_owned()?.into();
                Self::Tcp(mio::net::TcpListener::from_std(std))
            }
            Self::Unix(l, path) => {
                let std: std::os::unix::net::UnixListener = l.as_fd().try_clone_to_owned()?.into();
                Self::Unix(mio::net::UnixListener::from_std(std), path.clone())
            }
        })
    }

    /// `ADDRESS:PORT`, or the path.
    pub fn address(&self) -> String {
        match self {
            Self::Tcp(l) => l.local_addr().map(|a| a.to_string()).unwrap_or_default(),
            Self::Unix(_, path) => path.display().to_string(),
        }
    }

    /// The port, if it is TCP.
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Tcp(l) => l.local_addr().ok().map(|a| a.port()),
            Self::Unix(..) => None,
        }
    }

    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match self {
            Self::Tcp(l) => registry.register(l, token, Interest::READABLE),
            Self::Unix(l, _) => registry.register(l, token, Interest::READABLE),
        }
    }

    pub(super) fn accept(&self) -> io::Result<(Socket, Origin)> {
        match self {
            Self::Tcp(l) => {
                let (stream, _) = l.accept()?;
                #[cfg(not(target_os = "linux"))]
                stream.set_nodelay(true)?;
                Ok((Socket::Tcp(stream), Origin::Tcp))
            }
            Self::Unix(l, _) => {
                let (stream, _) = l.accept()?;
                #[cfg(target_os = "linux")]
                let uid = rustix::net::sockopt::socket_peercred(&stream).ok().map(|c| c.uid.as_raw());
                #[cfg(not(target_os = "linux"))]
                let uid = None;
                Ok((Socket::Unix(stream), Origin::Unix { uid }))
            }
        }
    }
}
