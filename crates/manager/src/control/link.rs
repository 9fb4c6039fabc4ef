//! A blocking connection to a server for the messages of one login, encrypted as the physical connections are.

use crate::shared::ServerAddress;
use crate::tls::{Encryption, Servers};
use pgusher_auth::{AuthError, CertificateHash, Transport};
use pgusher_client::tls::ALPN;
use pgusher_wire::Frame;
use pgusher_wire::startup::SSL_REQUEST_BYTES;
use rustls::{ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// A login message is not larger than this.
const MAX_LEN: usize = 64 * 1024;

enum Stream {
    Tcp(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
    Unix(UnixStream),
}

/// A connection to a server, with a limit in time.
pub(super) struct Link {
    stream: Stream,
    buf: Zeroizing<Vec<u8>>,
    deadline: Instant,
}

impl Link {
    /// Connects.
    pub(super) fn connect(address: &ServerAddress, deadline: Instant) -> io::Result<Self> {
        let timeout = left(deadline)?;
        let stream = match address {
            ServerAddress::Tcp { address, .. } => Stream::Tcp(TcpStream::connect_timeout(address, timeout)?),
            ServerAddress::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
        };
        Ok(Self { stream, buf: Zeroizing::default(), deadline })
    }

    /// Agrees on TLS. If the server has none, and need not, the connection stays as it is.
    pub(super) fn secure(&mut self, tls: &Servers, address: &ServerAddress, wanted: Encryption) -> io::Result<()> {
        let failed = |text: &str| io::Error::new(io::ErrorKind::InvalidData, text.to_owned());
        let (Stream::Tcp(socket), Some(config)) = (&mut self.stream, tls.config()) else {
            return Err(failed("TLS was not prepared"));
        };
        let left = left(self.deadline)?;
        socket.set_read_timeout(Some(left))?;
        socket.set_write_timeout(Some(left))?;
        if !tls.is_direct() {
            socket.write_all(&SSL_REQUEST_BYTES)?;
            let mut answer = [0; 1];
            socket.read_exact(&mut answer)?;
            match answer {
                [b'S'] => {}
                [b'N'] if wanted == Encryption::IfOffered => return Ok(()),
                [b'N'] => return Err(failed("the server does not support TLS, but sslmode asks for it")),
                _ => return Err(failed("the server answered with an error when it was asked for TLS")),
            }
        }
        let name = tls.name(address).map_err(|e| failed(&e.to_string()))?;
        let mut session = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
        while session.is_handshaking() {
            session.complete_io(socket)?;
        }
        if tls.is_direct() && session.alpn_protocol() != Some(ALPN) {
            return Err(failed("direct TLS without the ALPN name \"postgresql\""));
        }
        let socket = socket.try_clone()?;
        self.stream = Stream::Tls(Box::new(StreamOwned::new(session, socket)));
        Ok(())
    }

    /// What a login can be bound to.
    pub(super) fn transport(&self) -> Transport {
        let Stream::Tls(s) = &self.stream else { return Transport::Plain };
        let certificate = s.conn.peer_certificates().and_then(<[_]>::first);
        let missing = AuthError::Protocol("the server has shown no certificate");
        Transport::Tls(certificate.map_or(Err(missing), |own| CertificateHash::of_der(own)))
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let left = left(self.deadline)?;
        match &mut self.stream {
            Stream::Tls(s) => {
                s.sock.set_write_timeout(Some(left)).and_then(|()| s.write_all(bytes)).and_then(|()| s.flush())
            }
            Stream::Tcp(s) => s.set_write_timeout(Some(left)).and_then(|()| s.write_all(bytes)),
            Stream::Unix(s) => s.set_write_timeout(Some(left)).and_then(|()| s.write_all(bytes)),
        }
    }

    /// The next whole message: its type and body.
    pub(super) fn message(&mut self) -> io::Result<(u8, Zeroizing<Vec<u8>>)> {
        loop {
            let parsed = Frame::parse(&self.buf).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
            if let Some((frame, used)) = parsed {
                let message = (frame.tag, Zeroizing::new(frame.body.to_vec()));
                self.buf.drain(..used);
                return Ok(message);
            }
            if self.buf.len() > MAX_LEN {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a login message is too long"));
            }
            let left = left(self.deadline)?;
            let mut chunk = Zeroizing::new([0; 4096]);
            let n = match &mut self.stream {
                Stream::Tls(s) => s.sock.set_read_timeout(Some(left)).and_then(|()| s.read(&mut *chunk)),
                Stream::Tcp(s) => s.set_read_timeout(Some(left)).and_then(|()| s.read(&mut *chunk)),
                Stream::Unix(s) => s.set_read_timeout(Some(left)).and_then(|()| s.read(&mut *chunk)),
            }?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.buf.extend_from_slice(chunk.get(..n).unwrap_or_default());
        }
    }
}

/// The time that is left.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}
