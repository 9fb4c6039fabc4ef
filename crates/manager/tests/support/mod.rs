//! What the manager's integration tests need: a real server, a manager in front of one of its databases, a client that speaks
//! the protocol on a raw socket, and PostgreSQL's own programs with a limit in time. Every read ends after [`PATIENCE`].
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

pub mod batch;
pub mod fake;
pub mod gate;

use pgusher_embedded::Server;
use pgusher_manager::{AuthMethod, Config, Listen, Manager, Overrides};
use pgusher_wire::frontend;
use pgusher_wire::startup::{Version, write_startup};
use std::io::{ErrorKind, Read, Seek, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// No answer takes longer.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// One server for all tests of a file; each test makes its own database.
pub fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::builder().start().unwrap())
}

/// Makes a database; its name, so that pg_stat_activity can be asked about one test.
pub fn database(name: &str) -> &str {
    server().psql("postgres", &format!("create database {name}")).unwrap();
    name
}

pub fn overrides(workers: usize, pool: usize) -> Overrides {
    Overrides {
        listen: vec!["127.0.0.1:0".parse::<Listen>().unwrap()],
        workers: Some(workers),
        pool_size: Some(pool),
        // Connections that come without a client would be counted by tests that count.
        min_pool_size: Some(0),
        auth: Some(AuthMethod::Trust),
        ..Overrides::default()
    }
}

/// Runs a test with one and with two workers, at the same time.
pub fn with_one_and_two(test: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        for workers in [1, 2] {
            let test = &test;
            scope.spawn(move || test(workers));
        }
    });
}

pub fn manager(server: &Server, workers: usize, pool: usize) -> Manager {
    let conninfo = server.socket_conninfo("postgres", server.superuser());
    Manager::start(Config::from_conninfo(&conninfo, &overrides(workers, pool)).unwrap()).unwrap()
}

/// A manager with further lines of TOML.
pub fn manager_with(server: &Server, toml: &str, overrides: &Overrides) -> Manager {
    manager_at(&server.socket_conninfo("postgres", server.superuser()), toml, overrides)
}

/// A manager of whatever server a connection string leads to. It opens no connection ahead of need, so that a test can count.
pub fn manager_at(conninfo: &str, toml: &str, overrides: &Overrides) -> Manager {
    let toml = format!("server = \"\"\"{conninfo}\"\"\"\nmin_pool_size = 0\n{toml}");
    Manager::start(Config::from_toml(&toml, overrides).unwrap()).unwrap()
}

pub fn port(manager: &Manager) -> &str {
    manager.addresses()[0].rsplit(':').next().unwrap()
}

/// How many backends the database has besides the one that asks, under a condition on pg_stat_activity.
pub fn backends(database: &str, condition: &str) -> usize {
    let sql = format!("select count(*) from pg_stat_activity where datname = '{database}' and ({condition})");
    server().psql("postgres", &sql).unwrap().parse().unwrap()
}

/// Waits until it holds, up to `limit`.
pub fn eventually(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !holds() {
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// How a program ended.
pub struct Ended {
    pub ok: bool,
    pub out: String,
    pub err: String,
}

/// Runs one of PostgreSQL's programs against a manager, for a minute at most.
pub fn program(manager: &Manager, name: &str, database: &str, args: &[&str]) -> Ended {
    program_env(manager, name, database, args, &[])
}

pub fn program_env(manager: &Manager, name: &str, database: &str, args: &[&str], env: &[(&str, &str)]) -> Ended {
    let mut command: Command = server().client(name);
    let mut out = tempfile::tempfile().unwrap();
    let mut err = tempfile::tempfile().unwrap();
    command
        .args(args)
        .env("PGHOST", "127.0.0.1")
        .env("PGPORT", port(manager))
        .env("PGDATABASE", database)
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .stdout(out.try_clone().unwrap())
        .stderr(err.try_clone().unwrap());
    let mut child = command.spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    let ok = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status.success(),
            None if Instant::now() > end => {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("{name} {args:?} did not end within a minute");
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let read = |file: &mut std::fs::File| {
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    Ended { ok, out: read(&mut out), err: read(&mut err) }
}

/// What came until ReadyForQuery.
#[derive(Debug, Default)]
pub struct Reply {
    /// The tags of all messages but notices and parameter changes, ReadyForQuery included.
    pub tags: String,
    /// First column of each row.
    pub values: Vec<String>,
    /// SQLSTATE and message of each error.
    pub errors: Vec<(String, String)>,
    /// CommandComplete's texts.
    pub done: Vec<String>,
    /// Bytes of rows and of COPY data.
    pub volume: usize,
    /// The transaction status at the end; 0 when the connection was closed.
    pub status: u8,
}

impl Reply {
    /// The only value of a reply without errors.
    pub fn value(&self) -> &str {
        assert!(self.errors.is_empty() && self.values.len() == 1, "{self:?}");
        &self.values[0]
    }
    pub fn state(&self) -> &str {
        self.errors.first().map_or("", |(state, _)| state)
    }
}

fn cstr(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn error(body: &[u8]) -> (String, String) {
    let field = |tag: u8| {
        let found = body.split(|b| *b == 0).find(|f| f.first() == Some(&tag));
        found.map_or(String::new(), |f| cstr(&f[1..]))
    };
    let hint = field(b'H');
    (field(b'C'), if hint.is_empty() { field(b'M') } else { format!("{}; hint: {hint}", field(b'M')) })
}

/// A client on a raw socket.
pub struct Client {
    pub stream: TcpStream,
    buffer: Vec<u8>,
    at: usize,
    /// Process number and secret of BackendKeyData, as they came.
    pub key: Vec<u8>,
}

impl Client {
    /// A socket without a login.
    pub fn raw(manager: &Manager) -> Self {
        let stream = TcpStream::connect(&manager.addresses()[0]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: Vec::new(), at: 0, key: Vec::new() }
    }

    /// Logs in; an error of the login comes back.
    pub fn login(manager: &Manager, parameters: &[(&str, &str)]) -> Result<Self, Reply> {
        let mut client = Self::raw(manager);
        client.send(&startup(Version::V3_0, parameters));
        let reply = client.reply();
        if reply.status == 0 { Err(reply) } else { Ok(client) }
    }

    pub fn new(manager: &Manager, database: &str) -> Self {
        Self::login(manager, &[("user", "postgres"), ("database", database)]).unwrap()
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The next message; `None` at the end of the stream.
    pub fn message(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            let rest = &self.buffer[self.at..];
            if let Some(header) = rest.get(..5) {
                let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
                assert!((4..1 << 30).contains(&length), "length {length} after tag {}", header[0]);
                if let Some(body) = rest.get(5..=length) {
                    let message = (header[0], body.to_vec());
                    self.at += length + 1;
                    return Some(message);
                }
            }
            self.buffer.drain(..self.at);
            self.at = 0;
            let mut chunk = vec![0; 65536];
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(n) => self.buffer.extend_from_slice(&chunk[..n]),
                Err(e) if e.kind() == ErrorKind::ConnectionReset => return None,
                Err(e) => panic!("no answer: {e}"),
            }
        }
    }

    /// Everything until ReadyForQuery, or the end of the stream.
    pub fn reply(&mut self) -> Reply {
        self.until(b'Z')
    }

    /// Everything until a message with this tag.
    pub fn until(&mut self, last: u8) -> Reply {
        let mut reply = Reply::default();
        while let Some((tag, body)) = self.message() {
            match tag {
                b'N' | b'S' => continue,
                b'K' => self.key = body,
                b'E' => reply.errors.push(error(&body)),
                b'C' => reply.done.push(cstr(&body)),
                b'D' => {
                    reply.volume += body.len();
                    let size = body.get(2..6).map_or(-1, |s| i32::from_be_bytes([s[0], s[1], s[2], s[3]]));
                    let size = usize::try_from(size).unwrap_or(0);
                    if size < 10_000 {
                        reply.values.push(String::from_utf8_lossy(&body[6..6 + size]).into_owned());
                    }
                }
                b'd' => reply.volume += body.len(),
                b'Z' => reply.status = body[0],
                _ => {}
            }
            reply.tags.push(char::from(tag));
            if tag == last {
                break;
            }
        }
        reply
    }

    pub fn start(&mut self, sql: &str) {
        self.send(&query(sql));
    }

    pub fn query(&mut self, sql: &str) -> Reply {
        self.start(sql);
        self.reply()
    }

    /// Has nothing come within this time?
    pub fn is_silent(&mut self, time: Duration) -> bool {
        // A limit of zero would mean none.
        self.stream.set_nonblocking(time.is_zero()).unwrap();
        self.stream.set_read_timeout(Some(time).filter(|t| !t.is_zero()).or(Some(PATIENCE))).unwrap();
        let silent = self.at == self.buffer.len()
            && matches!(self.stream.peek(&mut [0]), Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
        self.stream.set_nonblocking(false).unwrap();
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        silent
    }
}

/// A StartupMessage.
pub fn startup(version: Version, parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut packet = Vec::new();
    write_startup(&mut packet, version, parameters.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())));
    packet
}

/// A Query message.
pub fn query(sql: &str) -> Vec<u8> {
    let mut out = Vec::new();
    frontend::write_query(&mut out, sql.as_bytes());
    out
}

/// Parse, Bind, Describe and Execute of the unnamed statement; no Sync.
pub fn batch(sql: &str) -> Vec<u8> {
    let mut out = Vec::new();
    frontend::write_parse(&mut out, b"", sql.as_bytes(), &[]);
    frontend::write_bind(&mut out, b"", b"", &[]);
    frontend::write_describe(&mut out, frontend::Target::Portal, b"");
    frontend::write_execute(&mut out, b"", 0);
    out
}

/// Sends a cancel request with a client's key and waits until the manager has closed the connection.
pub fn cancel(manager: &Manager, key: &[u8]) {
    let pid = u32::from_be_bytes([key[0], key[1], key[2], key[3]]);
    let mut out = Vec::new();
    pgusher_wire::startup::write_cancel(&mut out, pid, &key[4..]);
    let mut client = Client::raw(manager);
    client.send(&out);
    assert!(client.message().is_none(), "a cancel request is never answered");
}
