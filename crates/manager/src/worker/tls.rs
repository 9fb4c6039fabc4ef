//! One connection's TLS: ciphertext in, plaintext out, and the other way.
//!
//! rustls holds no bytes between calls here: what is read is opened at once, what is written is sealed at once into a buffer of
//! the worker's and goes the way of all bytes to the socket. So nothing can wait inside, and a side that does not read is held
//! back as on a plain socket. Only a record that is cut off is kept; an idle connection owns no buffer.

use pgusher_auth::{CertificateHash, Transport};
use pgusher_client::tls::ALPN;
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{ClientConfig, CommonState, ServerConfig};
use rustls_pki_types::ServerName;
use std::fmt;
use std::sync::Arc;

/// Bytes that a record adds to its content, at most (RFC 5246, 6.2.3), and the content of a record.
const RECORD_OVERHEAD: usize = 256;
const RECORD: usize = 16 * 1024;
/// A handshake message that is longer than this is refused.
pub(super) const MAX_HELD: usize = 32 * 1024;
/// The buffer of a worker is made smaller again when it has grown past this.
const KEEP: usize = 256 * 1024;

/// Bytes on their way to a socket. Belongs to the worker, and is empty between calls.
#[derive(Debug, Default)]
pub(super) struct Sealed {
    bytes: Vec<u8>,
    len: usize,
}

impl Sealed {
    pub(super) fn clear(&mut self) {
        self.len = 0;
        if self.bytes.len() > KEEP {
            self.bytes = Vec::new();
        }
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Room for `n` bytes behind those that are there.
    fn room(&mut self, n: usize) -> &mut [u8] {
        if self.bytes.len() < self.len + n {
            self.bytes.resize(self.len + n, 0);
        }
        self.bytes.get_mut(self.len..).unwrap_or_default()
    }
}

/// What came of opening.
#[derive(Debug, Default)]
pub(super) struct Opened {
    /// Bytes of ciphertext that were used.
    pub(super) used: usize,
    /// Bytes of plaintext.
    pub(super) plain: usize,
    /// The other side has said that nothing more comes.
    pub(super) ended: bool,
}

enum Side {
    ToClient(UnbufferedServerConnection),
    ToServer(UnbufferedClientConnection),
}

/// The TLS of one connection.
pub(super) struct Session {
    side: Side,
    /// The beginning of a record, or of a message of the handshake.
    pub(super) held: Vec<u8>,
    /// It began without an SSLRequest.
    direct: bool,
    /// The handshake is over.
    pub(super) established: bool,
    /// The other side has said that nothing more comes.
    pub(super) ended: bool,
    /// Something went wrong, and nothing more can be said but that.
    failed: bool,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("established", &self.established)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

/// What to do after a state of rustls has been dealt with.
enum Next {
    /// There may be another state.
    Again,
    /// More ciphertext is needed.
    More,
    /// The other side has ended.
    Ended,
}

impl Session {
    /// With a client.
    pub(super) fn to_client(config: &Arc<ServerConfig>, direct: bool) -> Result<Self, rustls::Error> {
        Ok(Self::new(Side::ToClient(UnbufferedServerConnection::new(config.clone())?), direct))
    }

    /// With a server that must have this name. The greeting is sealed into `out`.
    pub(super) fn to_server(
        config: &Arc<ClientConfig>,
        name: ServerName<'static>,
        direct: bool,
        out: &mut Sealed,
    ) -> Result<Self, rustls::Error> {
        let side = Side::ToServer(UnbufferedClientConnection::new(config.clone(), name)?);
        let mut session = Self::new(side, direct);
        session.open(&mut [], &mut [], out)?;
        Ok(session)
    }

    fn new(side: Side, direct: bool) -> Self {
        Self { side, held: Vec::new(), direct, established: false, ended: false, failed: false }
    }

    fn state(&self) -> &CommonState {
        match &self.side {
            Side::ToClient(c) => c,
            Side::ToServer(c) => c,
        }
    }

    /// Opens ciphertext into `plain`, which must be as long. What TLS itself has to say goes to `out`, also when it fails.
    pub(super) fn open(
        &mut self,
        incoming: &mut [u8],
        plain: &mut [u8],
        out: &mut Sealed,
    ) -> Result<Opened, rustls::Error> {
        let mut opened = Opened::default();
        if self.failed {
            return Err(rustls::Error::HandshakeNotComplete);
        }
        loop {
            let rest = incoming.get_mut(opened.used..).unwrap_or_default();
            let room = plain.get_mut(opened.plain..).unwrap_or_default();
            let (next, used, written) = match &mut self.side {
                Side::ToClient(c) => step(c.process_tls_records(rest), room, out),
                Side::ToServer(c) => step(c.process_tls_records(rest), room, out),
            };
            opened.used += used;
            opened.plain += written;
            match next {
                Ok(Next::Again) => {}
                Ok(Next::More) => return Ok(opened),
                Ok(Next::Ended) => {
                    opened.ended = true;
                    return Ok(opened);
                }
                Err(e) => {
                    self.failed = true;
                    self.alert(incoming.get_mut(opened.used..).unwrap_or_default(), out);
                    return Err(e);
                }
            }
        }
    }

    /// Tells the other side what went wrong: rustls has it ready, before anything else.
    fn alert(&mut self, rest: &mut [u8], out: &mut Sealed) {
        // That it cannot be told changes nothing.
        let _ = match &mut self.side {
            Side::ToClient(c) => step(c.process_tls_records(rest), &mut [], out),
            Side::ToServer(c) => step(c.process_tls_records(rest), &mut [], out),
        };
    }

    /// Has the handshake just ended? Says so once.
    pub(super) fn has_become_established(&mut self) -> bool {
        let now = !self.established && !self.state().is_handshaking();
        self.established |= now;
        now
    }

    /// TLS that began without an SSLRequest must name the protocol (PostgreSQL 17, "SSL Session Encryption"), so that no
    /// other protocol's client or server can be talked into this one.
    pub(super) fn names_protocol(&self) -> bool {
        !self.direct || self.state().alpn_protocol() == Some(ALPN)
    }

    /// What a login to a server can be bound to.
    pub(super) fn transport(&self) -> Transport {
        let certificate = self.state().peer_certificates().and_then(<[_]>::first);
        let missing = pgusher_auth::AuthError::Protocol("the server has shown no certificate");
        Transport::Tls(certificate.map_or(Err(missing), |own| CertificateHash::of_der(own)))
    }

    /// Seals plaintext into `out`. Before the end of the handshake there is nobody who could read it: nothing is sent.
    pub(super) fn seal(&mut self, plain: &[u8], out: &mut Sealed) -> Result<(), rustls::Error> {
        self.outgoing(Outgoing::Data(plain), out)
    }

    /// Says that nothing more comes.
    pub(super) fn close(&mut self, out: &mut Sealed) -> Result<(), rustls::Error> {
        self.outgoing(Outgoing::CloseNotify, out)
    }

    fn outgoing(&mut self, what: Outgoing<'_>, out: &mut Sealed) -> Result<(), rustls::Error> {
        if self.failed {
            return Err(rustls::Error::HandshakeNotComplete);
        }
        let mut held = std::mem::take(&mut self.held);
        let mut used = 0;
        let result = loop {
            let rest = held.get_mut(used..).unwrap_or_default();
            let (next, discard) = match &mut self.side {
                Side::ToClient(c) => send(c.process_tls_records(rest), what, out),
                Side::ToServer(c) => send(c.process_tls_records(rest), what, out),
            };
            used += discard;
            match next {
                Ok(Next::Again) => {}
                Ok(Next::More | Next::Ended) => break Ok(()),
                Err(e) => {
                    self.failed = true;
                    break Err(e);
                }
            }
        };
        held.drain(..used.min(held.len()));
        self.held = held;
        result
    }
}

#[derive(Clone, Copy)]
enum Outgoing<'a> {
    Data(&'a [u8]),
    CloseNotify,
}

/// Deals with one state on the way in. Returns what is next, how much ciphertext was used, and how much plaintext was written.
fn step<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    room: &mut [u8],
    out: &mut Sealed,
) -> (Result<Next, rustls::Error>, usize, usize) {
    let UnbufferedStatus { discard, state, .. } = status;
    let mut written = 0;
    let next = match state {
        Err(e) => Err(e),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                None => break Ok(Next::Again),
                Some(Err(e)) => break Err(e),
                Some(Ok(record)) => {
                    let Some(place) = room.get_mut(written..written + record.payload.len()) else {
                        break Err(rustls::Error::General("more plaintext than ciphertext".into()));
                    };
                    place.copy_from_slice(record.payload);
                    written += record.payload.len();
                }
            }
        },
        Ok(other) => own_messages(other, out),
    };
    (next, discard, written)
}

/// Deals with one state on the way out.
fn send<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    what: Outgoing<'_>,
    out: &mut Sealed,
) -> (Result<Next, rustls::Error>, usize) {
    let UnbufferedStatus { discard, state, .. } = status;
    let next = match state {
        Err(e) => Err(e),
        Ok(ConnectionState::WriteTraffic(mut traffic)) => {
            let mut need = match what {
                Outgoing::Data(plain) => plain.len() + (plain.len() / RECORD + 1) * RECORD_OVERHEAD,
                Outgoing::CloseNotify => RECORD_OVERHEAD,
            };
            loop {
                let room = out.room(need);
                let sealed = match what {
                    Outgoing::Data(plain) => traffic.encrypt(plain, room),
                    Outgoing::CloseNotify => traffic.queue_close_notify(room),
                };
                match sealed {
                    Ok(n) => {
                        out.len += n;
                        break Ok(Next::More);
                    }
                    Err(EncryptError::InsufficientSize(e)) if e.required_size > need => need = e.required_size,
                    Err(e) => break Err(rustls::Error::General(e.to_string())),
                }
            }
        }
        Ok(other) => own_messages(other, out),
    };
    (next, discard)
}

/// What TLS has to say for itself: the handshake, tickets, new keys, alerts.
fn own_messages<Data>(state: ConnectionState<'_, '_, Data>, out: &mut Sealed) -> Result<Next, rustls::Error> {
    match state {
        ConnectionState::EncodeTlsData(mut data) => {
            let mut need = 4096;
            loop {
                match data.encode(out.room(need)) {
                    Ok(n) => {
                        out.len += n;
                        return Ok(Next::Again);
                    }
                    Err(EncodeError::InsufficientSize(e)) if e.required_size > need => need = e.required_size,
                    Err(e) => return Err(rustls::Error::General(e.to_string())),
                }
            }
        }
        ConnectionState::TransmitTlsData(data) => {
            // It is in `out`, which leaves in any case.
            data.done();
            Ok(Next::Again)
        }
        ConnectionState::PeerClosed | ConnectionState::Closed => Ok(Next::Ended),
        ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_) => Ok(Next::More),
        // Early data is off, and traffic is read elsewhere, at once.
        _ => Err(rustls::Error::General("unexpected state of TLS".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, RngCore, SeedableRng};
    use rustls::RootCertStore;

    fn pair(out: &mut Sealed) -> (Session, Session) {
        let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let key = rustls_pki_types::PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)
            .unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(own.cert.der().clone()).unwrap();
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let ours = Session::to_client(&Arc::new(server), false).unwrap();
        (ours, Session::to_server(&Arc::new(client), name, false, out).unwrap())
    }

    /// As the driver does it: a piece of the wire behind what was kept. What is opened is appended to `plain`.
    fn feed(session: &mut Session, piece: &[u8], plain: &mut Vec<u8>, out: &mut Sealed) -> Result<bool, rustls::Error> {
        let mut incoming = std::mem::take(&mut session.held);
        incoming.extend_from_slice(piece);
        let mut room = vec![0; incoming.len()];
        let opened = session.open(&mut incoming, &mut room, out)?;
        session.held = incoming.split_off(opened.used);
        plain.extend_from_slice(&room[..opened.plain]);
        Ok(opened.ended)
    }

    /// Moves what is on the wires in pieces of any length until both are empty. Have both sides ended?
    fn exchange(
        random: &mut StdRng,
        sides: &mut [Session; 2],
        wires: &mut [Vec<u8>; 2],
        plain: &mut [Vec<u8>; 2],
    ) -> bool {
        let mut ended = [false; 2];
        let mut out = Sealed::default();
        while wires.iter().any(|wire| !wire.is_empty()) {
            let to = random.random_range(0..2);
            let longest = [1, 7, 300, 65536][random.random_range(0..4)];
            let rest = wires[to].split_off(wires[to].len().min(random.random_range(1..=longest)));
            let piece = std::mem::replace(&mut wires[to], rest);
            if piece.is_empty() {
                continue;
            }
            out.clear();
            ended[to] |= feed(&mut sides[to], &piece, &mut plain[to], &mut out).unwrap();
            wires[1 - to].extend_from_slice(out.as_slice());
        }
        ended == [true; 2]
    }

    #[test]
    fn any_split_of_the_wire_gives_the_same() {
        for seed in 0..30 {
            let mut random = StdRng::seed_from_u64(seed);
            let mut out = Sealed::default();
            let (ours, theirs) = pair(&mut out);
            let mut sides = [ours, theirs];
            // The wire to each side, and what it has read.
            let mut wires = [out.as_slice().to_vec(), Vec::new()];
            let mut plain = [Vec::new(), Vec::new()];
            exchange(&mut random, &mut sides, &mut wires, &mut plain);
            assert!(sides.iter_mut().all(Session::has_become_established));
            let mut sent = [Vec::new(), Vec::new()];
            for _ in 0..6 {
                let from = random.random_range(0..2);
                let mut message = vec![0; [1, 100, 16 * 1024, 200_000][random.random_range(0..4)]];
                random.fill_bytes(&mut message);
                out.clear();
                sides[from].seal(&message, &mut out).unwrap();
                wires[1 - from].extend_from_slice(out.as_slice());
                sent[1 - from].extend_from_slice(&message);
            }
            for from in 0..2 {
                out.clear();
                sides[from].close(&mut out).unwrap();
                wires[1 - from].extend_from_slice(out.as_slice());
            }
            assert!(exchange(&mut random, &mut sides, &mut wires, &mut plain), "both have said that they end");
            assert!(plain == sent, "seed {seed}");
            assert!(sides.iter().all(|side| side.held.is_empty()));
        }
    }

    #[test]
    fn noise_ends_it_and_nothing_can_be_said_after() {
        for seed in 0..200 {
            let mut random = StdRng::seed_from_u64(seed);
            let mut out = Sealed::default();
            let (mut ours, mut theirs) = pair(&mut out);
            let mut greeting = out.as_slice().to_vec();
            if seed % 2 == 0 {
                random.fill_bytes(&mut greeting);
            } else {
                let at = random.random_range(0..greeting.len());
                greeting[at] ^= 1 << random.random_range(0..8);
            }
            let mut plain = Vec::new();
            for _ in 0..4 {
                out.clear();
                if feed(&mut ours, &greeting, &mut plain, &mut out).is_err() {
                    assert!(ours.seal(b"x", &mut out).is_err() && ours.close(&mut out).is_err());
                }
                // Whatever came of it, the other side gets it, and more noise.
                let answer = out.as_slice().to_vec();
                let _ = feed(&mut theirs, &answer, &mut plain, &mut out);
                let _ = feed(&mut theirs, &greeting, &mut plain, &mut out);
                random.fill_bytes(&mut greeting);
            }
            assert!(plain.is_empty());
        }
    }
}
