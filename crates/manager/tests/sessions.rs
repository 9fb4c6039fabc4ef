//! Session scripts (tests/sessions, see the README there), each played directly and through the manager: the replies must be the
//! same, message by message. Through the manager each transaction gets another physical connection at random, and other clients
//! use the same pool all the time, in ways that must not be noticed.
//!
//! `PGUSHER_SESSIONS` names scripts to play, by a part of their names; `PGUSHER_SESSIONS_SEED` is where the neighbours begin;
//! `PGUSHER_SESSIONS_NEIGHBOURS` is how many there are (0: none).
//! With `PGUSHER_SESSIONS_WITHOUT_STATUS` parameter changes are not compared, to see what else differs; with
//! `PGUSHER_SESSIONS_VERBOSE` each script is named with its time.
//! With `PGUSHER_SESSIONS_DIRECT` both runs are direct, which shows whether a script says the same each time;
//! with `PGUSHER_SESSIONS_ALL` the list of known differences is passed over;
//! with `PGUSHER_SESSIONS_SHOW` the replies of the direct run are printed.
//! Scripts that are known to differ stand in tests/sessions/known-differences.txt with the reason. One that no longer differs has
//! to leave that list.

#[path = "support/session/mod.rs"]
mod session;
mod support;

use pgusher_embedded::Server;
use pgusher_manager::Manager;
use session::compare;
use session::ground::Ground;
use session::neighbours::Neighbours;
use session::play::{Expect, play};
use session::script::Script;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::*;

/// Scripts that are played at the same time, each in a database of its own.
const LANES: usize = 3;
const NEIGHBOURS: usize = 3;
/// A reply that takes longer never comes.
const LIMIT: Duration = Duration::from_secs(10);
/// The same for a script that is known to differ.
const KNOWN_LIMIT: Duration = Duration::from_secs(2);
/// A known difference is looked for so often.
const KNOWN_TRIES: usize = 5;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sessions")
}

fn collect(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, out);
        } else if path.extension().is_some_and(|e| e == "session") {
            out.push(path);
        }
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn scripts(folder: &Path) -> Vec<Script> {
    let mut paths = Vec::new();
    collect(folder, &mut paths);
    paths.sort();
    paths.iter().map(|path| Script::read(path, &root())).collect()
}

/// A script that differs, and why.
struct Known {
    reason: String,
    /// It depends on chance.
    sometimes: bool,
}

fn known_differences() -> BTreeMap<String, Known> {
    let text = std::fs::read_to_string(root().join("known-differences.txt")).unwrap();
    let lines = text.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#'));
    lines
        .map(|line| {
            let (name, reason) = line.split_once(": ").unwrap_or_else(|| panic!("no reason: {line}"));
            let (name, sometimes) = name.strip_suffix(" ?").map_or((name, false), |name| (name, true));
            (name.to_owned(), Known { reason: reason.to_owned(), sometimes })
        })
        .collect()
}

struct Stage {
    server: Server,
    neighbours: Arc<Vec<Script>>,
    base: String,
    seed: u64,
    /// Neighbours.
    count: usize,
}

impl Stage {
    /// Neighbours that are known to be noticed do not play.
    fn new(known: &BTreeMap<String, Known>) -> Self {
        let mut neighbours = scripts(&root().join("neighbours"));
        neighbours.retain(|s| !known.contains_key(&s.name));
        let read = |name: &str| std::fs::read_to_string(root().join(name)).unwrap();
        let server = Server::builder()
            .setting("max_prepared_transactions", "20")
            .setting("autovacuum", "off")
            .setting("lc_messages", "C")
            .start()
            .unwrap();
        server.psql("postgres", &read("server.sql")).unwrap();
        server.psql("template1", &read("neighbours.sql")).unwrap();
        Self {
            server,
            neighbours: Arc::new(neighbours),
            base: read("base.sql"),
            seed: number("PGUSHER_SESSIONS_SEED").unwrap_or(1),
            count: number("PGUSHER_SESSIONS_NEIGHBOURS").map_or(NEIGHBOURS, |n| n as usize),
        }
    }

    fn ground(&self, database: &str) -> Ground {
        Ground::new(&self.address(), database, &self.base)
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.server.port())
    }

    /// The connections of a pool exist only once they are all wanted at the same time.
    fn fill(manager: &Manager, user: &str, database: &str, connections: usize) {
        let login = || Client::login(manager, &[("user", user), ("database", database)]).unwrap();
        let mut clients: Vec<Client> = (0..connections).map(|_| login()).collect();
        clients.iter_mut().for_each(|client| client.start("begin"));
        clients.iter_mut().for_each(|client| drop(client.reply()));
        clients.iter_mut().for_each(|client| drop(client.query("commit")));
    }

    /// How statements are shared depends on the script, so that each way is tried with many scripts.
    fn choices(&self, script: &Script) -> String {
        let drawn = script.name.bytes().fold(self.seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        let reuse = ["on", "off", "custom-plans"][(drawn % 3) as usize];
        let kept = [3, 500][(drawn / 3 % 2) as usize];
        format!("statement_reuse = \"{reuse}\"\nstatements_per_server = {kept}\n")
    }

    /// The difference, if there is one.
    fn try_script(&self, script: &Script, ground: &mut Ground, patience: Duration, turn: u64) -> Option<String> {
        ground.prepare(script);
        let direct = play(script, &self.address(), ground, &Expect::Ready);
        if std::env::var_os("PGUSHER_SESSIONS_SHOW").is_some() {
            eprintln!("{}", compare::transcript(script, &direct));
        }
        ground.prepare(script);
        let with_status = std::env::var_os("PGUSHER_SESSIONS_WITHOUT_STATUS").is_none();
        if std::env::var_os("PGUSHER_SESSIONS_DIRECT").is_some() {
            let again = play(script, &self.address(), ground, &Expect::As { run: &direct, patience });
            return compare::difference(script, &direct, &again, with_status);
        }
        let connections = script.clients() + self.count + 2;
        let choices = self.choices(script);
        let conninfo = self.server.conninfo(ground.database(), script.user());
        let mut toml = format!("server = \"\"\"{conninfo}\"\"\"\nscatter = true\nmin_pool_size = 0\n{choices}");
        if script.name.starts_with("sequences/") {
            // Exact from the first statement on. The others are to be scattered as much as possible.
            toml.push_str("sequences = \"pin\"\n");
        }
        let overrides = overrides(2, connections);
        let manager = Manager::start(pgusher_manager::Config::from_toml(&toml, &overrides).unwrap()).unwrap();
        Self::fill(&manager, script.user(), ground.database(), connections);
        let address = manager.addresses()[0].clone();
        let seed = self.seed.wrapping_add(turn);
        let neighbours =
            Neighbours::start(&self.neighbours, &address, script.user(), ground.database(), self.count, seed);
        let managed = play(script, &address, ground, &Expect::As { run: &direct, patience });
        drop(neighbours);
        // Its control side takes a second to end; its connections are closed at once.
        std::thread::spawn(move || drop(manager));
        let difference = compare::difference(script, &direct, &managed, with_status)?;
        Some(format!("{difference}  with {}\n", choices.trim_end().replace('\n', ", ")))
    }
}

/// A script with a mistake in it does not keep the others from being played.
fn catch(play: impl FnOnce() -> Option<String>) -> Option<String> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(play)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Some(format!("panicked: {}", text.unwrap_or_default()))
    })
}

/// A script that is known to differ has to.
fn judge(stage: &Stage, script: &Script, known: Option<&Known>, ground: &mut Ground, turn: usize) -> Option<String> {
    let Some(known) = known else {
        return stage.try_script(script, ground, LIMIT, turn as u64);
    };
    let tries = if known.sometimes { 1 } else { KNOWN_TRIES };
    let mut turns = (0..tries).map(|n| (turn + n * 7) as u64);
    let differs = turns.any(|turn| stage.try_script(script, ground, KNOWN_LIMIT, turn).is_some());
    (!differs && !known.sometimes).then(|| format!("it no longer differs; it was known for: {}", known.reason))
}

/// What failed, by name.
fn play_all(stage: &Stage, all: &[Script], known: &BTreeMap<String, Known>) -> BTreeMap<String, String> {
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(BTreeMap::new());
    let verbose = std::env::var_os("PGUSHER_SESSIONS_VERBOSE").is_some();
    std::thread::scope(|scope| {
        for lane in 0..LANES.min(all.len()) {
            let (next, failures) = (&next, &failures);
            scope.spawn(move || {
                let mut ground = stage.ground(&format!("lane{lane}"));
                loop {
                    let turn = next.fetch_add(1, Ordering::Relaxed);
                    let Some(script) = all.get(turn) else { break };
                    let begun = Instant::now();
                    let failure = catch(|| judge(stage, script, known.get(&script.name), &mut ground, turn));
                    if verbose {
                        let differs = if failure.is_some() { "DIFFERS" } else { "" };
                        eprintln!("{:?} {} {differs}", begun.elapsed(), script.name);
                    }
                    if let Some(failure) = failure {
                        failures.lock().unwrap().insert(script.name.clone(), failure);
                    }
                }
            });
        }
    });
    failures.into_inner().unwrap()
}

#[test]
fn sessions_are_as_on_a_direct_connection() {
    let begun = Instant::now();
    let part = std::env::var("PGUSHER_SESSIONS").unwrap_or_default();
    let mut all = scripts(&root());
    let mut known = known_differences();
    for name in known.keys() {
        assert!(all.iter().any(|s| s.name == *name), "known-differences.txt: there is no script {name}");
    }
    if std::env::var_os("PGUSHER_SESSIONS_ALL").is_some() || std::env::var_os("PGUSHER_SESSIONS_DIRECT").is_some() {
        known.clear();
    }
    all.retain(|s| s.name.contains(&part) && !s.name.starts_with("neighbours/"));
    let failures = play_all(&Stage::new(&known), &all, &known);
    eprintln!("{} scripts, {} known to differ, in {:?}", all.len(), known.len(), begun.elapsed());
    for (name, failure) in &failures {
        eprintln!("\n==== {name}\n{failure}");
    }
    let names: Vec<&str> = failures.keys().map(String::as_str).collect();
    assert!(failures.is_empty(), "{} of {} scripts failed: {}", names.len(), all.len(), names.join(", "));
}

/// What is compared, tried on runs that differ in one thing.
#[test]
fn differences_are_found() {
    let stage = Stage::new(&BTreeMap::new());
    let mut ground = stage.ground("differences");
    let mut run = |text: &str| {
        let script = Script::parse("test/script", text).unwrap();
        ground.prepare(&script);
        let run = play(&script, &stage.address(), &mut ground, &Expect::Ready);
        (script, run)
    };
    let mut differ = |one: &str, two: &str| {
        let (script, first) = run(one);
        let (_, second) = run(two);
        compare::difference(&script, &first, &second, true).is_some()
    };
    let same = "client A\nA: create table x (n int); set datestyle = 'SQL'; select * from x, t\nA! select $1::int <- 5\nA disconnect";
    assert!(!differ(same, same));
    // Other OIDs, other process numbers, another order of parameter changes.
    let listens = "client A\nA: create table w (n int); drop table w; create table x (n int); select * from x\nA: listen c; notify c";
    assert!(!differ(
        listens,
        &listens.replace("create table w (n int); drop table w;", "create table w (n int, m text); drop table w;")
    ));
    let changes = "client A\nA: set datestyle = 'SQL'; set timezone = 'Asia/Tokyo'";
    assert!(!differ(changes, "client A\nA: set timezone = 'Asia/Tokyo'; set datestyle = 'SQL'"));
    let differences = [
        ("client A\nA: select 1", "client A\nA: select 2"),
        ("client A\nA: select 1 as a", "client A\nA: select 1 as b"),
        ("client A\nA: select 1", "client A\nA: select 1::bigint"),
        (
            "client A\nA: select * from t",
            "client A\nA: select id, v from (select * from t) x union all select 3, 'three' where false",
        ),
        ("client A\nA: begin", "client A\nA: begin; commit"),
        ("client A\nA: select x", "client A\nA: select  x"),
        ("client A\nA: set datestyle = 'SQL'", "client A\nA: set datestyle = 'ISO'"),
        ("client A\nA: set timezone = 'UTC'", "client A\nA: set timezone = 'GMT'"),
        ("client A\nA: set timezone = 'UTC'\nA: select 1", "client A\nA: select 1\nA: set timezone = 'UTC'"),
        ("client A\nA: select 1", "client A\nA: select 1; select 2"),
        ("client A\nA: drop table if exists a1", "client A\nA: drop table if exists a2"),
        ("client A\nA: listen a; notify a, 'x'", "client A\nA: listen a; notify a, 'y'"),
        ("client A\nA: listen a; notify a, 'x'", "client A\nA: notify a, 'x'; notify a, 'x'"),
        ("client A\nA: select 1", "client A\nA: select pg_terminate_backend(pg_backend_pid())"),
        ("client A application_name=a", "client A application_name=b"),
        ("client A\nclient B\nB: select 1", "client A\nclient B\nB: select 2"),
        ("client A\nA parse s : select 1\nA sync", "client A\nA parse s : select $1::int\nA describe s s\nA sync"),
        ("client A\nA: copy t to stdout", "client A\nA: copy (select * from t where id < 3) to stdout"),
    ];
    for (one, two) in differences {
        assert!(differ(one, two), "{one}\n{two}");
    }
}

#[test]
fn mistakes_in_scripts_are_refused() {
    for wrong in [
        "select 1",
        "A select 1",
        "A bind - s p=x",
        "client ab",
        "A parse s1 select 1",
        "sleep long",
        "A call x",
        "A: select 1 <- \\",
        "client A name",
    ] {
        let parsed = Script::parse("x", wrong);
        let sql = wrong.starts_with("A: ");
        assert_eq!(parsed.is_ok(), sql, "{wrong}");
    }
}
