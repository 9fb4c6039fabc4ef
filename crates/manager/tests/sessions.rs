//! Session scripts (tests/sessions, see the README there), each played directly and through the manager: the replies must be the
//! same, message by message. Through the manager each transaction gets another physical connection at random, and other clients
//! use the same pool all the time, in ways that must not be noticed.
//!
//! `PGUSHER_SESSIONS` names scripts to play, by a part of their names; `PGUSHER_SESSIONS_SEED` is where the neighbours begin;
//! `PGUSHER_SESSIONS_NEIGHBOURS` is how many there are (0: none).
//! With `PGUSHER_SESSIONS_WITHOUT_STATUS` parameter changes are not compared, to see what else differs; with
//! `PGUSHER_SESSIONS_VERBOSE` each script is named with its time.
//! With `PGUSHER_SESSIONS_DIRECT` both runs are direct, which shows whether a script says the same each time.
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
/// A difference that depends on chance is looked for so often.
const KNOWN_TRIES: usize = 4;

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

/// Names and reasons.
fn known_differences() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(root().join("known-differences.txt")).unwrap();
    let lines = text.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#'));
    lines
        .map(|line| {
            let (name, reason) = line.split_once(": ").unwrap_or_else(|| panic!("no reason: {line}"));
            (name.to_owned(), reason.to_owned())
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

    /// The difference, if there is one.
    fn try_script(&self, script: &Script, ground: &mut Ground, patience: Duration, turn: u64) -> Option<String> {
        ground.prepare(script);
        let direct = play(script, &self.address(), ground, &Expect::Ready);
        ground.prepare(script);
        let with_status = std::env::var_os("PGUSHER_SESSIONS_WITHOUT_STATUS").is_none();
        if std::env::var_os("PGUSHER_SESSIONS_DIRECT").is_some() {
            let again = play(script, &self.address(), ground, &Expect::As { run: &direct, patience });
            return compare::difference(script, &direct, &again, with_status);
        }
        let connections = script.clients() + self.count + 2;
        let conninfo = self.server.conninfo(ground.database(), script.user());
        let mut toml = format!("server = \"\"\"{conninfo}\"\"\"\nscatter = true\nmin_pool_size = 0\n");
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
        compare::difference(script, &direct, &managed, with_status)
    }
}

/// A script with a mistake in it does not keep the others from being played.
fn catch(play: impl FnOnce() -> Option<String>) -> Option<String> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(play)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Some(format!("panicked: {}", text.unwrap_or_default()))
    })
}

#[test]
fn sessions_are_as_on_a_direct_connection() {
    let begun = Instant::now();
    let part = std::env::var("PGUSHER_SESSIONS").unwrap_or_default();
    let seed = number("PGUSHER_SESSIONS_SEED").unwrap_or(1);
    let count = number("PGUSHER_SESSIONS_NEIGHBOURS").map_or(NEIGHBOURS, |n| n as usize);
    let known = known_differences();
    let mut all = scripts(&root());
    let neighbours: Vec<Script> = scripts(&root().join("neighbours"));
    all.retain(|s| !s.name.starts_with("neighbours/"));
    for name in known.keys() {
        assert!(all.iter().any(|s| s.name == *name), "known-differences.txt: there is no script {name}");
    }
    all.retain(|s| s.name.contains(&part));
    let server = Server::builder()
        .setting("max_prepared_transactions", "20")
        .setting("autovacuum", "off")
        .setting("lc_messages", "C")
        .start()
        .unwrap();
    server.psql("postgres", &std::fs::read_to_string(root().join("server.sql")).unwrap()).unwrap();
    server.psql("template1", &std::fs::read_to_string(root().join("neighbours.sql")).unwrap()).unwrap();
    let base = std::fs::read_to_string(root().join("base.sql")).unwrap();
    let stage = Stage { server, neighbours: Arc::new(neighbours), base, seed, count };
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for lane in 0..LANES.min(all.len()) {
            let (stage, all, known, next, failures) = (&stage, &all, &known, &next, &failures);
            scope.spawn(move || {
                let mut ground = Ground::new(&stage.address(), &format!("lane{lane}"), &stage.base);
                loop {
                    let turn = next.fetch_add(1, Ordering::Relaxed);
                    let Some(script) = all.get(turn) else { break };
                    let begun = Instant::now();
                    let failure = catch(|| match known.get(&script.name) {
                        None => stage.try_script(script, &mut ground, LIMIT, turn as u64),
                        Some(reason) => {
                            let mut tries = (0..KNOWN_TRIES).map(|n| (turn + n * 7) as u64);
                            let differs =
                                tries.any(|n| stage.try_script(script, &mut ground, KNOWN_LIMIT, n).is_some());
                            (!differs).then(|| format!("it no longer differs; it was known for: {reason}"))
                        }
                    });
                    if std::env::var_os("PGUSHER_SESSIONS_VERBOSE").is_some() {
                        eprintln!(
                            "{:?} {} {}",
                            begun.elapsed(),
                            script.name,
                            if failure.is_some() { "DIFFERS" } else { "" }
                        );
                    }
                    if let Some(failure) = failure {
                        failures.lock().unwrap().push((script.name.clone(), failure));
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().unwrap();
    failures.sort();
    eprintln!("{} scripts, {} known to differ, in {:?}", all.len(), known.len(), begun.elapsed());
    for (name, failure) in &failures {
        eprintln!("\n==== {name}\n{failure}");
    }
    let names: Vec<&str> = failures.iter().map(|(name, _)| name.as_str()).collect();
    assert!(failures.is_empty(), "{} of {} scripts failed: {}", names.len(), all.len(), names.join(", "));
}
