//! A socket, TCP or Unix, and what could not be written to it yet.

use super::tls::Session;
use crate::shared::ServerAddress;
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use rustix::net::{RecvFlags, SendFlags};
use rustls_pki_types::ServerName;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// A stream socket that does not block.
#[derive(Debug)]
pub(super) enum Socket {
    /// TCP.
    Tcp(TcpStream),
    /// Unix.
    Unix(UnixStream),
}

impl Socket {
    /// Begins to connect. A Unix socket is connected on return.
    pub(super) fn connect(address: &ServerAddress) -> io::Result<Self> {
        match address {
            ServerAddress::Tcp { address, .. } => {
                let stream = TcpStream::connect(*address)?;
                stream.set_nodelay(true)?;
                let keepalive = socket2::TcpKeepalive::new().with_time(std::time::Duration::from_secs(60));
                socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
                Ok(Self::Tcp(stream))
            }
            ServerAddress::Unix(path) => Ok(Self::Unix(UnixStream::connect(path)?)),
        }
    }

    pub(super) fn is_unix(&self) -> bool {
        matches!(self, Self::Unix(_))
    }

    /// Has the connection been made? `Ok(false)`: not yet.
    pub(super) fn connected(&self) -> io::Result<bool> {
        let Self::Tcp(stream) = self else {
            return Ok(true);
        };
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        match stream.peer_addr() {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Reads what there is. Straight from the kernel: the C library's function is a point at which a thread may be cancelled,
    /// which in a program with threads costs two atomic operations each time.
    #[inline]
    fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        let (n, _) = rustix::net::recv(self, buf, RecvFlags::empty())?;
        Ok(n)
    }

    /// Writes what goes. See [`read`](Self::read).
    #[inline]
    fn write(&self, buf: &[u8]) -> io::Result<usize> {
        // Where the flag does not exist, Rust's runtime has SIGPIPE ignored.
        #[cfg(target_os = "linux")]
        let flags = SendFlags::NOSIGNAL;
        #[cfg(not(target_os = "linux"))]
        let flags = SendFlags::empty();
        Ok(rustix::net::send(self, buf, flags)?)
    }
}

impl AsFd for Socket {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(s) => s.as_fd(),
            Self::Unix(s) => s.as_fd(),
        }
    }
}

impl Source for Socket {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        match self {
            Self::Tcp(s) => s.register(registry, token, interests),
            Self::Unix(s) => s.register(registry, token, interests),
        }
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        match self {
            Self::Tcp(s) => s.reregister(registry, token, interests),
            Self::Unix(s) => s.reregister(registry, token, interests),
        }
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Self::Tcp(s) => s.deregister(registry),
            Self::Unix(s) => s.deregister(registry),
        }
    }
}

/// How far a write has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// Everything has been written.
    Done,
    /// Something is pending.
    Pending,
    /// The connection is gone.
    Broken,
}

/// What the bytes on a socket are.
#[derive(Debug)]
pub(super) enum Layer {
    /// PostgreSQL's messages.
    Plain,
    /// A client has sent nothing yet; TLS may begin with its first byte.
    Unknown,
    /// To a server. TLS is wanted and has not begun.
    Wanted(Box<Wanted>),
    /// TLS, handshake included.
    Tls(Box<Session>),
}

/// TLS that is wanted of a server.
#[derive(Debug)]
pub(super) struct Wanted {
    /// The name that it must have.
    pub(super) name: ServerName<'static>,
    /// If it has no TLS, the connection goes on without.
    pub(super) optional: bool,
}

/// A socket with its pending bytes and flags.
#[derive(Debug)]
pub struct Io {
    pub(super) socket: Socket,
    pub(super) layer: Layer,
    pending: Vec<u8>,
    written: usize,
    /// There may be something to read.
    pub(super) readable: bool,
    /// The other side has ended, or an error is there: read until it shows.
    pub(super) ended: bool,
    /// The core does not want to see more.
    pub(super) paused: bool,
    /// The connection is being made.
    pub(super) connecting: bool,
    /// Registered for writing.
    pub(super) wants_write: bool,
    /// Ticks since it was closed, while the last bytes leave.
    pub(super) age: u8,
}

impl Io {
    pub(super) fn new(socket: Socket) -> Self {
        Self {
            socket,
            layer: Layer::Plain,
            pending: Vec::new(),
            written: 0,
            readable: false,
            ended: false,
            paused: false,
            connecting: false,
            wants_write: false,
            age: 0,
        }
    }

    pub(super) fn has_pending(&self) -> bool {
        self.written < self.pending.len()
    }

    /// Writes `bytes` behind what is pending; keeps what does not go.
    #[inline]
    pub(super) fn write(&mut self, bytes: &[u8]) -> Progress {
        if self.has_pending() || self.connecting {
            self.pending.extend_from_slice(bytes);
            return Progress::Pending;
        }
        match write_all(&mut self.socket, bytes) {
            Ok(n) if n == bytes.len() => Progress::Done,
            Ok(n) => {
                self.pending.extend_from_slice(bytes.get(n..).unwrap_or_default());
                Progress::Pending
            }
            Err(_) => Progress::Broken,
        }
    }

    /// Writes what is pending. When nothing is left, the buffer is given back.
    pub(super) fn flush(&mut self) -> Progress {
        match write_all(&mut self.socket, self.pending.get(self.written..).unwrap_or_default()) {
            Ok(n) => self.written += n,
            Err(_) => return Progress::Broken,
        }
        if self.has_pending() {
            return Progress::Pending;
        }
        self.pending = Vec::new();
        self.written = 0;
        Progress::Done
    }
}

/// What one read has brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Received {
    /// So many bytes.
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// The end.
    End,
}

impl Io {
    /// Reads once.
    #[inline]
    pub(super) fn receive(&mut self, space: &mut [u8]) -> Received {
        loop {
            match self.socket.read(space) {
                Ok(0) => return Received::End,
                Ok(n) => {
                    // A short read has emptied the socket. What comes later, the end included, is a new event.
                    if n < space.len() && !self.ended {
                        self.readable = false;
                    }
                    return Received::Bytes(n);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    return Received::Nothing;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Received::End,
            }
        }
    }
}

/// Writes until the socket takes no more. Returns how many bytes went.
#[inline]
fn write_all(socket: &mut Socket, bytes: &[u8]) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|r| !r.is_empty()) {
        match socket.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}
