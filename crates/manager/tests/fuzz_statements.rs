//! Random pipelines, once to a server and once through the manager: the replies must be the same, message by message.
//!
//! Several clients share few physical connections. Each has a twin on a direct connection to another database with the same
//! tables, and gets a script of messages out of a small alphabet, so that names, texts and errors meet often. What is sent is
//! cut into random pieces. Compared are tags, SQLSTATEs, rows, columns, command tags and the transaction status.
//!
//! `PGUSHER_FUZZ_SECONDS` says for how long (10 if it is not set), `PGUSHER_FUZZ_SEED` where to begin. A difference is reported
//! with the seed and with the script, shortened while it still differs when it is run alone.

mod support;

use pgusher_manager::Manager;
use pgusher_wire::frontend::{self, FLUSH_BYTES, SYNC_BYTES, Target};
use pgusher_wire::startup::Version;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use support::*;

/// A reply that takes longer never comes.
const LIMIT: Duration = Duration::from_secs(8);
/// Clients of one round.
const CLIENTS: usize = 4;

/// A message of the script. Statements and portals are numbers in [`NAMES`] and [`PORTALS`].
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Parse(usize, String),
    Bind { portal: usize, name: usize, parameters: usize },
    DescribeStatement(usize),
    DescribePortal(usize),
    Execute { portal: usize, rows: i32 },
    CloseStatement(usize),
    ClosePortal(usize),
    Flush,
    Sync,
    Query(String),
    Call,
}

const NAMES: [&str; 4] = ["", "a", "b", "C"];
const PORTALS: [&str; 2] = ["", "p"];
/// int4pl(integer, integer), for FunctionCall.
const INT4PL: u32 = 177;

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parse(name, sql) => write!(f, "Parse {:?} {sql:?}", NAMES[*name]),
            Self::Bind { portal, name, parameters } => {
                write!(f, "Bind {:?} of {:?} with {parameters} parameters", PORTALS[*portal], NAMES[*name])
            }
            Self::DescribeStatement(name) => write!(f, "Describe statement {:?}", NAMES[*name]),
            Self::DescribePortal(portal) => write!(f, "Describe portal {:?}", PORTALS[*portal]),
            Self::Execute { portal, rows } => write!(f, "Execute {:?}, {rows} rows", PORTALS[*portal]),
            Self::CloseStatement(name) => write!(f, "Close statement {:?}", NAMES[*name]),
            Self::ClosePortal(portal) => write!(f, "Close portal {:?}", PORTALS[*portal]),
            Self::Flush => write!(f, "Flush"),
            Self::Sync => write!(f, "Sync"),
            Self::Query(sql) => write!(f, "Query {sql:?}"),
            Self::Call => write!(f, "FunctionCall"),
        }
    }
}

impl Step {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Parse(name, sql) => frontend::write_parse(out, NAMES[*name].as_bytes(), sql.as_bytes(), &[]),
            Self::Bind { portal, name, parameters } => {
                let values: Vec<Option<&[u8]>> = (0..*parameters).map(|_| Some(b"7".as_slice())).collect();
                frontend::write_bind(out, PORTALS[*portal].as_bytes(), NAMES[*name].as_bytes(), &values);
            }
            Self::DescribeStatement(name) => {
                frontend::write_describe(out, Target::Statement, NAMES[*name].as_bytes());
            }
            Self::DescribePortal(portal) => frontend::write_describe(out, Target::Portal, PORTALS[*portal].as_bytes()),
            Self::Execute { portal, rows } => frontend::write_execute(out, PORTALS[*portal].as_bytes(), *rows),
            Self::CloseStatement(name) => frontend::write_close(out, Target::Statement, NAMES[*name].as_bytes()),
            Self::ClosePortal(portal) => frontend::write_close(out, Target::Portal, PORTALS[*portal].as_bytes()),
            Self::Flush => out.extend_from_slice(&FLUSH_BYTES),
            Self::Sync => out.extend_from_slice(&SYNC_BYTES),
            Self::Query(sql) => frontend::write_query(out, sql.as_bytes()),
            Self::Call => {
                out.push(frontend::FUNCTION_CALL);
                let mut body = Vec::new();
                body.extend_from_slice(&INT4PL.to_be_bytes());
                body.extend_from_slice(&0u16.to_be_bytes());
                body.extend_from_slice(&2u16.to_be_bytes());
                for value in [b"3", b"4"] {
                    body.extend_from_slice(&1u32.to_be_bytes());
                    body.extend_from_slice(value);
                }
                body.extend_from_slice(&0u16.to_be_bytes());
                out.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
                out.extend_from_slice(&body);
            }
        }
    }
}

/// What a client sends before it looks at the replies. Ends in a message that makes the server send what it has.
type Burst = Vec<Step>;

fn text(random: &mut StdRng, client: usize) -> String {
    match random.random_range(0..22) {
        0..=2 => "select 1".into(),
        3..=5 => "select 'x' || $1".into(),
        6 => "select 1/0".into(),
        7 => "select 10/(3-g) from generate_series(1, 5) g".into(),
        8 => "selec bad".into(),
        9 => "select nothing from nowhere".into(),
        10 => "begin".into(),
        11 => "commit".into(),
        12 => "rollback".into(),
        13 | 14 => format!("select * from t{client}"),
        15 => format!("insert into t{client} values ($1::text::int, 1) returning a"),
        16 => "select g from generate_series(1, 5) g".into(),
        17 => String::new(),
        18 => "copy (select 1) to stdout".into(),
        19 => format!("alter table t{client} alter b type {}", if random.random() { "text" } else { "varchar(9)" }),
        20 => format!("delete from t{client}"),
        _ => format!("select {}", random.random_range(0..40)),
    }
}

fn step(random: &mut StdRng, client: usize) -> Step {
    let name = if random.random_ratio(2, 3) { 0 } else { random.random_range(0..NAMES.len()) };
    let portal = usize::from(random.random_ratio(1, 6));
    match random.random_range(0..40) {
        0..=9 => Step::Parse(name, text(random, client)),
        10..=18 => Step::Bind { portal, name, parameters: usize::from(random.random_ratio(1, 3)) },
        19..=21 => Step::DescribeStatement(name),
        22 | 23 => Step::DescribePortal(portal),
        24..=30 => Step::Execute { portal, rows: if random.random_ratio(1, 4) { 2 } else { 0 } },
        31 | 32 => Step::CloseStatement(name),
        33 => Step::ClosePortal(portal),
        34 => Step::Flush,
        35..=37 => Step::Sync,
        38 => Step::Query(text(random, client)),
        _ => Step::Call,
    }
}

fn script(random: &mut StdRng, client: usize) -> Vec<Burst> {
    let bursts = random.random_range(1..16);
    let mut script: Vec<Burst> = (0..bursts)
        .map(|_| {
            let mut burst = Vec::new();
            for _ in 0..random.random_range(1..12) {
                // The usual order often, so that statements are carried out and not only refused.
                if random.random_ratio(1, 3) {
                    let name = random.random_range(0..NAMES.len());
                    let sql = text(random, client);
                    let parameters = usize::from(sql.contains('$'));
                    burst.push(Step::Parse(name, sql));
                    burst.push(Step::Bind { portal: 0, name, parameters });
                    burst.push(Step::Execute { portal: 0, rows: 0 });
                    if random.random_ratio(1, 2) {
                        burst.push(Step::CloseStatement(name));
                    }
                } else {
                    burst.push(step(random, client));
                }
                // A Query without a Sync in front of it belongs to no driver's habits.
                if matches!(burst.last(), Some(Step::Query(_) | Step::Call)) {
                    burst.insert(burst.len() - 1, Step::Sync);
                }
            }
            burst.push(if random.random_ratio(1, 5) { Step::Flush } else { Step::Sync });
            burst
        })
        .collect();
    for sql in ["deallocate a", "deallocate all", "discard all"] {
        if random.random_ratio(1, 4) {
            let at = random.random_range(0..script.len());
            script.insert(at, vec![Step::Sync, Step::Query(sql.into())]);
        }
    }
    script.push(vec![Step::Sync, Step::Query("rollback".into()), Step::Query("select 'end'".into())]);
    script
}

/// A reply, without what may differ.
#[derive(Clone)]
struct Message {
    tag: u8,
    content: String,
    /// For people; not compared.
    text: String,
}

impl PartialEq for Message {
    fn eq(&self, other: &Self) -> bool {
        // In a failed transaction a statement that is put there first fails for that reason, and not for its own.
        let aborted = |m: &Self| m.tag == b'E' && m.content == "25P02";
        self.tag == other.tag && (self.content == other.content || aborted(self) || aborted(other))
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.tag as char, self.content, self.text)
    }
}

impl Message {
    /// `None`: may come at any time.
    fn new(tag: u8, body: &[u8]) -> Option<Self> {
        let field = |tag: u8| {
            let found = body.split(|b| *b == 0).find(|f| f.first() == Some(&tag));
            found.map_or(String::new(), |f| String::from_utf8_lossy(&f[1..]).into_owned())
        };
        let content = match tag {
            b'N' | b'S' | b'A' => return None,
            b'E' => field(b'C'),
            b'T' => columns(body),
            _ => String::from_utf8_lossy(body).replace('\0', "."),
        };
        let text = if tag == b'E' { field(b'M') } else { String::new() };
        Some(Self { tag, content, text })
    }
}

/// Names and types; tables have other numbers in another database.
fn columns(body: &[u8]) -> String {
    let mut out = String::new();
    let mut rest = &body[2..];
    while let Some(end) = rest.iter().position(|b| *b == 0) {
        out.push_str(&String::from_utf8_lossy(&rest[..end]));
        out.push_str(&format!(" {:?} ", &rest[end + 7..end + 19]));
        rest = &rest[end + 19..];
    }
    out
}

/// One of two connections that are sent the same.
struct Side {
    stream: TcpStream,
    buffer: Vec<u8>,
    got: Vec<Message>,
    ready: usize,
    closed: bool,
}

impl Side {
    /// A server that is on its way back is waited for.
    fn login(address: &str, database: &str) -> Self {
        let end = Instant::now() + LIMIT;
        loop {
            if let Some(side) = Self::try_login(address, database) {
                return side;
            }
            assert!(Instant::now() < end, "no login at {address}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn try_login(address: &str, database: &str) -> Option<Self> {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_write_timeout(Some(LIMIT)).unwrap();
        stream.write_all(&startup(Version::V3_0, &[("user", "postgres"), ("database", database)])).unwrap();
        let mut side = Self { stream, buffer: Vec::new(), got: Vec::new(), ready: 0, closed: false };
        side.wait(LIMIT, |side| side.ready == 1).then(|| {
            side.got.clear();
            side.ready = 0;
            side
        })
    }

    /// Reads until it holds; false if it does not within the time.
    fn wait(&mut self, limit: Duration, holds: impl Fn(&Self) -> bool) -> bool {
        let end = Instant::now() + limit;
        loop {
            if holds(self) {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || self.closed {
                return false;
            }
            self.stream.set_read_timeout(Some(left)).unwrap();
            let mut chunk = [0; 16384];
            match self.stream.read(&mut chunk) {
                Ok(0) => self.closed = true,
                Ok(n) => self.buffer.extend_from_slice(&chunk[..n]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => self.closed = true,
            }
            self.cut();
        }
    }

    fn cut(&mut self) {
        let mut at = 0;
        while let Some(header) = self.buffer.get(at..at + 5) {
            let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
            let tag = header[0];
            let Some(body) = self.buffer.get(at + 5..at + 1 + length) else { break };
            self.ready += usize::from(tag == b'Z');
            self.got.extend(Message::new(tag, body));
            at += 1 + length;
        }
        self.buffer.drain(..at);
    }
}

/// How a script ended.
enum Outcome {
    Same,
    /// The direct connection could not go on with a statement whose tables were changed; the manager may. Or the manager had
    /// to put a statement on a server in a failed transaction, where the direct connection had it.
    Changed,
    Different(String),
}

struct Pair {
    direct: Side,
    manager: Side,
}

impl Pair {
    fn new(manager: &Manager) -> Self {
        let direct = format!("127.0.0.1:{}", server().port());
        Self { direct: Side::login(&direct, DIRECT), manager: Side::login(&manager.addresses()[0], MANAGED) }
    }

    fn run(&mut self, script: &[Burst], random: &mut StdRng) -> Outcome {
        // ReadyForQuery that come for certain, and whether messages of the extended protocol are open, behind an error in
        // which a Query would be discarded.
        let (mut certain, mut open) = (0, false);
        for burst in script {
            let mut bytes = Vec::new();
            let mut uncertain = false;
            for step in burst {
                step.write(&mut bytes);
                match step {
                    Step::Sync => (certain, open) = (certain + 1, false),
                    Step::Query(_) | Step::Call if !open => certain += 1,
                    Step::Query(_) | Step::Call | Step::Flush => uncertain = true,
                    _ => (open, uncertain) = (true, true),
                }
            }
            uncertain &= open;
            if self.direct.stream.write_all(&bytes).is_err() {
                return Outcome::Changed;
            }
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let length = if random.random_ratio(1, 2) { rest.len() } else { random.random_range(1..=rest.len()) };
                let (piece, behind) = rest.split_at(length);
                if self.manager.stream.write_all(piece).is_err() {
                    break;
                }
                rest = behind;
                if random.random_ratio(1, 3) {
                    std::thread::sleep(Duration::from_micros(random.random_range(0..400)));
                }
            }
            let answered = self.direct.wait(LIMIT, |side| side.ready >= certain);
            if self.direct.closed {
                // The server has crashed, or another client's backend has, which some of these pipelines bring about.
                return Outcome::Changed;
            }
            if !answered {
                return Outcome::Different(format!("the direct connection does not answer: {:?}", self.direct.got));
            }
            if uncertain {
                let count = self.direct.got.len();
                self.direct.wait(Duration::from_millis(5), |side| side.got.len() > count + 1000);
            }
            certain = certain.max(self.direct.ready);
            let count = self.direct.got.len();
            let direct = &self.direct.got;
            let compared = std::cell::Cell::new(0);
            let came = self.manager.wait(LIMIT, |side| {
                let equal = direct.iter().zip(&side.got).skip(compared.get()).take_while(|(a, b)| a == b).count();
                compared.set(compared.get() + equal);
                compared.get() < side.got.len() || side.got.len() >= count
            });
            let through = &self.manager.got;
            let different = direct.iter().zip(through).position(|(a, b)| a != b);
            let Some(at) = different.or((!came).then_some(through.len())) else { continue };
            let says = |got: &[Message], state: &str| got.get(at).is_some_and(|m| m.tag == b'E' && m.content == state);
            if says(direct, "0A000") || says(direct, "25P02") || says(through, "25P02") {
                return Outcome::Changed;
            }
            let from = at.saturating_sub(4);
            let part = |got: &[Message]| format!("{:?}", got.iter().skip(from).take(9).collect::<Vec<_>>());
            let what = if came { "" } else { " (no more came)" };
            let end = if self.manager.closed { " (closed)" } else { "" };
            return Outcome::Different(format!(
                "reply {at} differs{what}{end}\n  direct:  {}\n  manager: {}",
                part(direct),
                part(through)
            ));
        }
        Outcome::Same
    }
}

const DIRECT: &str = "fuzz_direct";
const MANAGED: &str = "fuzz_managed";

/// A client's table, in both databases. A server that is on its way back is waited for.
fn make_table(client: usize) {
    let sql = format!(
        "drop table if exists t{client}; create table t{client} (a int, b varchar(9)); insert into t{client} values (1, 'b')"
    );
    for database in [DIRECT, MANAGED] {
        eventually(LIMIT, "a table is made", || server().psql(database, &sql).is_ok());
    }
}

fn make_tables() {
    (0..CLIENTS).for_each(make_table);
}

fn show(script: &[Burst]) -> String {
    let mut out = String::new();
    for burst in script {
        for step in burst {
            out.push_str(&format!("  {step}\n"));
        }
        out.push_str("  -- replies --\n");
    }
    out
}

/// Does it differ when it is run alone? On servers that have carried out `before`.
fn differs_alone(script: &[Burst], seed: u64) -> Option<String> {
    make_tables();
    let manager = manager_with(server(), "statements_per_server = 6", &overrides(1, 1));
    for round in 0..3 {
        let mut random = StdRng::seed_from_u64(seed + round);
        let mut pair = Pair::new(&manager);
        if let Outcome::Different(what) = pair.run(script, &mut random) {
            return Some(format!("run {round}: {what}"));
        }
    }
    None
}

/// Leaves out what is not needed for a difference.
fn shorten(script: &[Burst], seed: u64) -> Option<(Vec<Burst>, String)> {
    let end = Instant::now() + Duration::from_secs(25);
    let mut best = script.to_vec();
    let mut what = differs_alone(&best, seed)?;
    let mut again = true;
    while again && Instant::now() < end {
        again = false;
        let mut i = 0;
        while i + 1 < best.len() && Instant::now() < end {
            let mut shorter = best.clone();
            shorter.remove(i);
            match differs_alone(&shorter, seed) {
                Some(w) => (best, what, again) = (shorter, w, true),
                None => i += 1,
            }
        }
        for i in 0..best.len() {
            let mut j = 0;
            // The last message of a burst makes the server answer.
            while j + 1 < best[i].len() && Instant::now() < end {
                let mut shorter = best.clone();
                shorter[i].remove(j);
                match differs_alone(&shorter, seed) {
                    Some(w) => (best, what, again) = (shorter, w, true),
                    None => j += 1,
                }
            }
        }
    }
    Some((best, what))
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

#[test]
fn pipelines_are_answered_as_by_a_server() {
    database(DIRECT);
    database(MANAGED);
    let end = Instant::now() + Duration::from_secs(number("PGUSHER_FUZZ_SECONDS", 10));
    let first = number("PGUSHER_FUZZ_SEED", 1);
    let mut scripts = 0;
    let mut seed = first;
    while Instant::now() < end {
        make_tables();
        // Few servers for the clients; few statements for a server in every other round.
        let (workers, pool) = (1 + (seed % 2) as usize, 1 + (seed % 3) as usize);
        let kept = if seed % 4 < 2 { 4 } else { 500 };
        let manager = manager_with(server(), &format!("statements_per_server = {kept}"), &overrides(workers, pool));
        let rounds = 12;
        let found: Vec<(Vec<Burst>, String)> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    let manager = &manager;
                    scope.spawn(move || {
                        let mut random = StdRng::seed_from_u64(seed * 1000 + client as u64);
                        let mut pair = Pair::new(manager);
                        for _ in 0..rounds {
                            let script = script(&mut random, client);
                            match pair.run(&script, &mut random) {
                                Outcome::Same => {
                                    if random.random_ratio(1, 4) {
                                        pair = Pair::new(manager);
                                    }
                                }
                                Outcome::Changed => {
                                    // One of the two may have done more than the other.
                                    drop(pair);
                                    make_table(client);
                                    pair = Pair::new(manager);
                                }
                                Outcome::Different(what) => return Some((script, what)),
                            }
                        }
                        None
                    })
                })
                .collect();
            threads.into_iter().filter_map(|t| t.join().unwrap()).collect()
        });
        if let Some((script, what)) = found.first() {
            let short = shorten(script, seed);
            let (script, alone) = match &short {
                Some((script, what)) => (script, what.as_str()),
                None => (script, "it does not differ when it is run alone"),
            };
            panic!(
                "seed {seed}, {workers} workers, {pool} connections, {kept} statements: {what}\nalone: {alone}\n{}",
                show(script)
            );
        }
        scripts += rounds * CLIENTS;
        seed += 1;
    }
    eprintln!("{scripts} scripts, seeds {first} to {}", seed - 1);
}
