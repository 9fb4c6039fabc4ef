//! A byte stream to a server with message framing: plain or TLS, one read buffer that is reused, the time at which
//! the last bytes arrived, and limits on waiting.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pgusher_wire::Frame;
use pgusher_wire::frame::Header;
use rustls::{ClientConfig, ClientConnection};
use rustls_pki_types::ServerName;
use socket2::Socket;

use crate::error::{Error, Result};
use crate::socket::remaining;
use crate::tls;

/// Size of the read buffer at first; it grows with the largest message.
const READ_BUFFER: usize = 16 * 1024;

/// How late a deadline may strike. Buys that not every wait needs two system calls more.
const DEADLINE_GRAIN: Duration = Duration::from_millis(50);

/// How TLS was agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsInfo {
    /// For example `TLSv1.3`.
    pub version: String,
    /// For example `TLS13_AES_256_GCM_SHA384`.
    pub cipher: String,
}

/// Where in the read buffer a whole message lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Located {
    start: usize,
    end: usize,
}

pub(crate) struct Channel {
    socket: Socket,
    tls: Option<Box<ClientConnection>>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    arrived: Instant,
    reads: u64,
    deadline: Option<Instant>,
    timeout: Option<Duration>,
    /// What the socket's own timeouts are set to.
    applied: Option<Duration>,
}

impl Channel {
    pub(crate) fn new(socket: Socket, deadline: Option<Instant>) -> Self {
        Channel {
            socket,
            tls: None,
            buffer: vec![0; READ_BUFFER],
            start: 0,
            end: 0,
            arrived: Instant::now(),
            reads: 0,
            deadline,
            timeout: None,
            applied: None,
        }
    }

    /// When the last bytes came. Taken right after the read that brought them.
    pub(crate) fn arrived(&self) -> Instant {
        self.arrived
    }

    /// How many reads have brought bytes.
    pub(crate) fn reads(&self) -> u64 {
        self.reads
    }

    /// After this moment every wait ends with an error, [`DEADLINE_GRAIN`] late at most.
    pub(crate) fn set_deadline(&mut self, deadline: Option<Instant>) -> Result<()> {
        self.deadline = deadline;
        self.limit()
    }

    /// The longest wait for a single read or write.
    pub(crate) fn set_timeout(&mut self, timeout: Option<Duration>) -> Result<()> {
        self.timeout = timeout.filter(|timeout| !timeout.is_zero());
        self.limit()
    }

    /// Brings the socket's own timeouts up to date. Called when the limits change, so that the calls within timed
    /// spans find nothing to do: a system call only when the deadline has come nearer by more than the grain.
    fn limit(&mut self) -> Result<()> {
        let Some(deadline) = self.deadline else { return self.apply(self.timeout) };
        let left = remaining(deadline)?;
        let wanted = self.timeout.map_or(left, |timeout| timeout.min(left));
        match self.applied {
            Some(applied) if applied >= wanted && applied <= wanted + DEADLINE_GRAIN => Ok(()),
            _ => self.apply(Some(wanted)),
        }
    }

    fn apply(&mut self, wanted: Option<Duration>) -> Result<()> {
        if wanted != self.applied {
            self.socket
                .set_read_timeout(wanted)
                .and_then(|()| self.socket.set_write_timeout(wanted))
                .map_err(Error::io)?;
            self.applied = wanted;
        }
        Ok(())
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.limit()?;
        let Some(tls) = &mut self.tls else {
            return self.socket.write_all(bytes).map_err(Error::io);
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = tls.writer().write(rest).map_err(Error::io)?;
            rest = rest.get(taken..).unwrap_or(&[]);
            flush(tls, &mut self.socket)?;
        }
        Ok(())
    }

    /// Reads once, growing the buffer if it is full. Zero means the end of the stream.
    fn fill(&mut self) -> Result<usize> {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            if self.end == self.buffer.len() {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
        }
        self.limit()?;
        let free = self.buffer.get_mut(self.end..).unwrap_or(&mut []);
        let count = match &mut self.tls {
            None => read_once(&mut self.socket, free),
            Some(tls) => loop {
                match tls.reader().read(free) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    // Some peers end without a close_notify; that is an end all the same.
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break Ok(0),
                    other => break other.map_err(Error::io),
                }
                if receive_tls(tls, &mut self.socket)? == 0 {
                    break Ok(0);
                }
            },
        }?;
        self.arrived = Instant::now();
        self.end += count;
        self.reads += 1;
        Ok(count)
    }

    /// Waits for the next whole message.
    pub(crate) fn wait(&mut self) -> Result<Located> {
        loop {
            let unread = self.buffer.get(self.start..self.end).unwrap_or(&[]);
            if let Some(header) = Header::parse(unread).map_err(|error| not_the_protocol(&error.to_string()))? {
                let end = self.start + header.total_len();
                if end <= self.end {
                    let located = Located { start: self.start, end };
                    self.start = end;
                    return Ok(located);
                }
            }
            if self.fill()? == 0 {
                return Err(Error::closed());
            }
        }
    }

    /// The message found by [`Channel::wait`]; valid until the next wait.
    pub(crate) fn frame(&self, at: Located) -> Frame<'_> {
        let bytes = self.buffer.get(at.start..at.end).unwrap_or(&[]);
        match bytes.split_at_checked(pgusher_wire::HEADER_LEN) {
            Some((head, body)) => Frame { tag: head.first().copied().unwrap_or(0), body },
            None => Frame { tag: 0, body: &[] },
        }
    }

    /// Waits for the single byte that answers an SSLRequest or GSSENCRequest. More than that byte would be plaintext
    /// that somebody slipped in before encryption (CVE-2021-23222).
    pub(crate) fn wait_answer_byte(&mut self) -> Result<u8> {
        if self.fill()? == 0 {
            return Err(Error::closed());
        }
        let answer = self.buffer.get(self.start).copied().unwrap_or(0);
        if matches!(answer, b'S' | b'G') && self.end - self.start > 1 {
            return Err(Error::protocol("unencrypted data came behind the answer to the SSL request")
                .advice("somebody between client and server may have inserted it"));
        }
        self.start += 1;
        Ok(answer)
    }

    /// Reads until the server has closed the connection.
    pub(crate) fn wait_end(&mut self) -> Result<()> {
        loop {
            self.start = 0;
            self.end = 0;
            match self.fill() {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == crate::error::ErrorKind::Closed => {
                    self.arrived = Instant::now();
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The TLS handshake.
    pub(crate) fn start_tls(&mut self, config: &Arc<ClientConfig>, name: ServerName<'static>) -> Result<()> {
        let mut tls =
            Box::new(ClientConnection::new(config.clone(), name).map_err(|error| tls::handshake_error(&error))?);
        while tls.is_handshaking() {
            flush(&mut tls, &mut self.socket)?;
            if tls.is_handshaking() && tls.wants_read() {
                self.limit()?;
                if receive_tls(&mut tls, &mut self.socket)? == 0 {
                    return Err(Error::new(crate::error::ErrorKind::Tls, "the server ended the TLS handshake"));
                }
            }
        }
        flush(&mut tls, &mut self.socket)?;
        self.arrived = Instant::now();
        self.tls = Some(tls);
        Ok(())
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The server's certificate, DER.
    pub(crate) fn server_certificate(&self) -> Option<&[u8]> {
        self.tls.as_ref()?.peer_certificates()?.first().map(|certificate| certificate.as_ref())
    }

    pub(crate) fn tls_info(&self) -> Option<TlsInfo> {
        let tls = self.tls.as_ref()?;
        let version =
            tls.protocol_version().and_then(|version| version.as_str().map(str::to_owned)).unwrap_or_default();
        let cipher = tls.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str().map(str::to_owned));
        Some(TlsInfo { version: version.replace('_', "."), cipher: cipher.unwrap_or_default() })
    }

    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        self.tls.as_ref()?.alpn_protocol()
    }
}

pub(crate) fn not_the_protocol(detail: &str) -> Error {
    Error::protocol(format!("what answers does not speak PostgreSQL's protocol: {detail}")).advice("is the port right?")
}

fn read_once(socket: &mut Socket, free: &mut [u8]) -> Result<usize> {
    loop {
        match socket.read(free) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other.map_err(Error::io),
        }
    }
}

fn flush(tls: &mut ClientConnection, socket: &mut Socket) -> Result<()> {
    while tls.wants_write() {
        tls.write_tls(socket).map_err(Error::io)?;
    }
    Ok(())
}

/// Reads TLS records once. Zero means the end of the stream.
fn receive_tls(tls: &mut ClientConnection, socket: &mut Socket) -> Result<usize> {
    let count = loop {
        match tls.read_tls(socket) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => break other.map_err(Error::io)?,
        }
    };
    if let Err(error) = tls.process_new_packets() {
        // The alert tells the server why; that it cannot be sent changes nothing.
        let _ = flush(tls, socket);
        return Err(tls::handshake_error(&error));
    }
    Ok(count)
}
