//! What the tests of TLS need: certificates, a server that has one, a client that speaks TLS by itself, and a server that takes
//! nothing but direct TLS.
#![allow(dead_code, unreachable_pub, reason = "as its neighbour")]

use super::support::{PATIENCE, overrides};
use pgusher_embedded::{Auth, Server};
use pgusher_manager::tls::{ClientTlsMode, ClientTlsOptions};
use pgusher_manager::{AuthMethod, Config, Manager, Overrides};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

pub struct World {
    /// Speaks TLS, and asks some users for this or that.
    pub server: Server,
    pub folder: tempfile::TempDir,
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// One for all tests: the files `ca`, `other_ca`, and each with `.crt` and `.key`: `good`, `expired`, `person`.
pub fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        };
        let ca = authority("the right one");
        write("ca", &ca.pem());
        write("other_ca", &authority("another").pem());
        let mut good = (String::new(), String::new());
        for name in ["good", "expired", "person"] {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            if name == "expired" {
                params.not_before = rcgen::date_time_ymd(2020, 1, 1);
                params.not_after = rcgen::date_time_ymd(2021, 1, 1);
            }
            let certificate = params.signed_by(&key, &ca).unwrap();
            write(&format!("{name}.crt"), &certificate.pem());
            write(&format!("{name}.key"), &key.serialize_pem());
            if name == "good" {
                good = (certificate.pem(), key.serialize_pem());
            }
        }
        let server = Server::builder()
            .auth(Auth::Trust)
            .tls(good.0, good.1)
            .hba("host all u_scram 127.0.0.1/32 scram-sha-256")
            .hba("hostssl all u_only_tls 127.0.0.1/32 trust")
            .hba("hostnossl all u_only_tls 127.0.0.1/32 reject")
            .hba("hostnossl all u_only_plain 127.0.0.1/32 trust")
            .hba("hostssl all u_only_plain 127.0.0.1/32 reject")
            .start()
            .unwrap();
        for sql in [
            "set password_encryption = 'scram-sha-256'; create user u_scram superuser password 'right'",
            "create user u_only_tls; create user u_only_plain",
        ] {
            server.psql("postgres", sql).unwrap();
        }
        World { server, folder }
    })
}

pub fn file(name: &str) -> PathBuf {
    world().folder.path().join(name)
}

/// The connection string of the server over TCP, with further words.
pub fn conninfo(port: u16, more: &str) -> String {
    format!("host=localhost hostaddr=127.0.0.1 port={port} user=postgres dbname=postgres {more}")
}

/// What a manager needs to speak TLS with clients.
pub fn client_tls(mode: ClientTlsMode, certificate: &str) -> ClientTlsOptions {
    ClientTlsOptions {
        sslmode: Some(mode),
        cert_file: Some(file(&format!("{certificate}.crt"))),
        key_file: Some(file(&format!("{certificate}.key"))),
        ..ClientTlsOptions::default()
    }
}

/// Whose clients and server need not speak TLS, with this certificate of its own, and the connection string to its server.
pub fn manager(conninfo: &str, workers: usize, pool: usize, client_tls: ClientTlsOptions, toml: &str) -> Manager {
    let auth = if toml.contains("[users]") { Some(AuthMethod::ScramSha256) } else { Some(AuthMethod::Trust) };
    let overrides = Overrides { client_tls, auth, ..overrides(workers, pool) };
    let text = format!("server = \"\"\"{conninfo}\"\"\"\n{toml}");
    Manager::start(Config::from_toml(&text, &overrides).unwrap()).unwrap()
}

pub fn client_config(alpn: bool) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(file("ca")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    if alpn {
        config.alpn_protocols = vec![b"postgresql".to_vec()];
    }
    Arc::new(config)
}

/// A client that speaks TLS on a raw socket.
pub struct Secure {
    pub stream: StreamOwned<ClientConnection, TcpStream>,
}

impl Secure {
    /// Asks for TLS first, unless `direct`. The handshake is done on the way.
    pub fn connect(manager: &Manager, config: &Arc<ClientConfig>, direct: bool) -> Self {
        let mut socket = TcpStream::connect(&manager.addresses()[0]).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        if !direct {
            socket.write_all(&pgusher_wire::startup::SSL_REQUEST_BYTES).unwrap();
            let mut answer = [0];
            socket.read_exact(&mut answer).unwrap();
            assert_eq!(answer, *b"S");
        }
        let name = ServerName::try_from("localhost").unwrap();
        let tls = ClientConnection::new(config.clone(), name).unwrap();
        Self { stream: StreamOwned::new(tls, socket) }
    }

    pub fn startup(&mut self, database: &str) {
        let mut packet = Vec::new();
        let version = pgusher_wire::startup::Version::V3_0;
        let parameters: [(&[u8], &[u8]); 2] = [(b"user", b"postgres"), (b"database", database.as_bytes())];
        pgusher_wire::startup::write_startup(&mut packet, version, parameters);
        self.stream.write_all(&packet).unwrap();
    }

    /// The next message; `None` at the end of the stream, which must be one that TLS has announced.
    pub fn message(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        match self.stream.read(&mut head[..1]).unwrap() {
            0 => return None,
            _ => self.stream.read_exact(&mut head[1..]).unwrap(),
        }
        let mut body = vec![0; u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4];
        self.stream.read_exact(&mut body).unwrap();
        Some((head[0], body))
    }

    /// Everything up to ReadyForQuery; the last message of each kind.
    pub fn until_ready(&mut self) -> Vec<(u8, Vec<u8>)> {
        let mut messages = Vec::new();
        while let Some((tag, body)) = self.message() {
            messages.push((tag, body));
            if tag == b'Z' {
                return messages;
            }
        }
        panic!("no ReadyForQuery: {messages:?}");
    }
}

/// A door to a server that does not speak TLS, which opens to nothing but TLS with this certificate. Counts who came in.
pub struct Door {
    pub port: u16,
    pub entered: Arc<AtomicUsize>,
}

/// `direct`: TLS begins without an SSLRequest, and must name the protocol.
pub fn door(to: u16, certificate: &str, direct: bool) -> Door {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let chain = vec![CertificateDer::from_pem_file(file(&format!("{certificate}.crt"))).unwrap()];
    let key = PrivateKeyDer::from_pem_file(file(&format!("{certificate}.key"))).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    let config = Arc::new(config);
    let entered = Arc::new(AtomicUsize::new(0));
    let count = entered.clone();
    std::thread::spawn(move || {
        for outside in listener.incoming().flatten() {
            let (config, count) = (config.clone(), count.clone());
            std::thread::spawn(move || {
                let _ = pass(outside, to, config, direct, &count);
            });
        }
    });
    Door { port, entered }
}

fn pass(
    mut outside: TcpStream,
    to: u16,
    config: Arc<ServerConfig>,
    direct: bool,
    count: &AtomicUsize,
) -> io::Result<()> {
    if !direct {
        outside.read_exact(&mut [0; 8])?;
        outside.write_all(b"S")?;
    }
    let mut tls = ServerConnection::new(config).map_err(io::Error::other)?;
    while tls.is_handshaking() {
        tls.complete_io(&mut outside)?;
    }
    if direct && tls.alpn_protocol() != Some(b"postgresql") {
        return Ok(());
    }
    count.fetch_add(1, Ordering::SeqCst);
    let mut inside = TcpStream::connect(("127.0.0.1", to))?;
    outside.set_nonblocking(true)?;
    inside.set_nonblocking(true)?;
    let mut chunk = [0; 16 * 1024];
    loop {
        let mut idle = true;
        match inside.read(&mut chunk) {
            Ok(0) => {
                tls.send_close_notify();
                tls.write_tls(&mut outside)?;
                return outside.shutdown(Shutdown::Both);
            }
            Ok(n) => {
                idle = false;
                tls.writer().write_all(&chunk[..n])?;
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
        while tls.wants_write() {
            match tls.write_tls(&mut outside) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(std::time::Duration::from_millis(1))
                }
                other => drop(other?),
            }
        }
        match tls.read_tls(&mut outside) {
            Ok(0) => return Ok(()),
            Ok(_) => {
                idle = false;
                tls.process_new_packets().map_err(io::Error::other)?;
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
        // The first of it may have come with the end of the handshake.
        let mut plain = Vec::new();
        match tls.reader().read_to_end(&mut plain) {
            Err(e) if e.kind() != io::ErrorKind::WouldBlock => return Err(e),
            _ => {}
        }
        inside.set_nonblocking(false)?;
        inside.write_all(&plain)?;
        inside.set_nonblocking(true)?;
        if idle {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}
