//! One client's connection while a script is played, and everything that it received.

use pgusher_wire::startup::{Version, write_cancel, write_startup};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// What one client saw, in order.
#[derive(Debug, Clone)]
pub enum Event {
    /// A step of the script, by its number.
    Step(usize),
    Message {
        tag: u8,
        body: Vec<u8>,
    },
    /// The other end closed the connection.
    Closed,
}

/// A connection.
pub struct Side {
    stream: Option<TcpStream>,
    address: String,
    buffer: Vec<u8>,
    /// Of all connections of this client.
    pub events: Vec<Event>,
    /// ReadyForQuery messages that came.
    pub ready: usize,
    /// Those that are owed by now.
    pub owed: usize,
    /// Replies besides what may come at any time; the end of the connection is one.
    pub replies: usize,
    pub notifications: usize,
    /// CopyInResponse that came, less the ends of COPY that were sent.
    pub copies: i64,
    last: u8,
    pub kept: Vec<u8>,
    key: Vec<u8>,
    /// What is sent leaves in pieces, cut at places that are drawn from this.
    pub cuts: Option<u64>,
}

impl Side {
    pub fn new(address: &str) -> Self {
        Self {
            stream: None,
            address: address.to_owned(),
            buffer: Vec::new(),
            events: Vec::new(),
            ready: 0,
            owed: 0,
            replies: 0,
            notifications: 0,
            copies: 0,
            last: 0,
            kept: Vec::new(),
            key: Vec::new(),
            cuts: None,
        }
    }

    /// Sends a startup packet; the login ends with the first ReadyForQuery.
    pub fn connect(&mut self, parameters: &[(&str, &str)]) {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
        self.stream = Some(stream);
        self.buffer.clear();
        self.kept.clear();
        self.copies = 0;
        self.ready = 0;
        self.owed = 1;
        let mut packet = Vec::new();
        let parameters = parameters.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes()));
        write_startup(&mut packet, Version::V3_0, parameters);
        self.send(&packet);
    }

    pub fn is_closed(&self) -> bool {
        self.stream.is_none()
    }

    /// What cannot be sent any more is forgotten: the other end has said why.
    pub fn send(&mut self, bytes: &[u8]) {
        let at = self.cut_at(bytes.len());
        let (first, rest) = bytes.split_at(at);
        if let Some(stream) = &mut self.stream {
            let mut sent = stream.write_all(first);
            if sent.is_ok() && !rest.is_empty() {
                std::thread::sleep(Duration::from_micros(100));
                sent = stream.write_all(rest);
            }
            drop(sent);
        }
    }

    /// In front of which byte there is a cut; half of what is sent has none.
    fn cut_at(&mut self, length: usize) -> usize {
        let Some(state) = &mut self.cuts else { return length };
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let drawn = (*state >> 33) as usize;
        if drawn % 2 == 0 || length == 0 { length } else { drawn / 2 % length }
    }

    pub fn disconnect(&mut self, politely: bool) {
        if politely {
            self.send(&[b'X', 0, 0, 0, 4]);
        }
        self.stream = None;
    }

    /// Is the server owed nothing more, or does it wait for COPY data?
    pub fn is_answered(&self) -> bool {
        self.ready >= self.owed || (self.last == b'G' && self.copies > 0)
    }

    /// Reads until it holds or the connection is closed; false after `limit`.
    pub fn read_until(&mut self, limit: Duration, mut holds: impl FnMut(&Self) -> bool) -> bool {
        let end = Instant::now() + limit;
        loop {
            if holds(self) {
                return true;
            }
            let Some(stream) = &mut self.stream else { return true };
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            stream.set_read_timeout(Some(left)).unwrap();
            let mut chunk = [0; 16384];
            match stream.read(&mut chunk) {
                Ok(n) if n > 0 => self.buffer.extend_from_slice(&chunk[..n]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
                _ => {
                    self.events.push(Event::Closed);
                    self.replies += 1;
                    self.stream = None;
                }
            }
            self.cut();
        }
    }

    /// Reads what is there, for as long as something comes at intervals below `pause`.
    pub fn read_rest(&mut self, pause: Duration) {
        loop {
            let count = self.events.len();
            self.read_until(pause, |side| side.events.len() > count);
            if self.events.len() == count || self.is_closed() {
                return;
            }
        }
    }

    fn cut(&mut self) {
        let mut at = 0;
        while let Some(&[tag, a, b, c, d]) = self.buffer.get(at..at + 5) {
            let length = u32::from_be_bytes([a, b, c, d]) as usize;
            let Some(body) = self.buffer.get(at + 5..at + 1 + length) else { break };
            match tag {
                b'Z' => self.ready += 1,
                b'G' => self.copies += 1,
                b'A' => self.notifications += 1,
                b'K' => self.key = body.to_vec(),
                _ => {}
            }
            self.replies += usize::from(!matches!(tag, b'A' | b'N' | b'S'));
            self.last = tag;
            self.events.push(Event::Message { tag, body: body.to_vec() });
            at += 1 + length;
        }
        self.buffer.drain(..at);
    }

    /// Sends a cancel request for this connection and waits until it has been taken.
    pub fn cancel(&self) {
        let (pid, key) = self.key.split_at(4.min(self.key.len()));
        let Ok(pid) = <[u8; 4]>::try_from(pid) else { return };
        let mut out = Vec::new();
        write_cancel(&mut out, u32::from_be_bytes(pid), key);
        if let Ok(mut stream) = TcpStream::connect(&self.address) {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
            let _ = stream.write_all(&out);
            let _ = stream.read(&mut [0; 16]);
        }
    }
}
