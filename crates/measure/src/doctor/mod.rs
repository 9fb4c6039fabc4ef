//! `pgusher doctor`: what makes this server's connections slow or is about to make them fail, with the evidence, what it
//! costs, and what mends it.
//!
//! Three parts that know nothing of each other. *Looking* asks the server over one read-only connection ([`look`]) and
//! opens a bounded number of others to time them ([`probes`]); it ends in plain facts ([`facts`]). *Judging* makes findings
//! of facts and thresholds; it is pure, so it is tested for every version and at every edge without a server. Each group of
//! examinations has a file with its `look` and its `judge`. *Drawing* is in [`text`] and [`exhibits`].
//!
//! What cannot be examined (a permission, a version, an extension that is missing, a server that goes away) is listed with
//! the reason, and the rest goes on. Nothing is changed on the server unless [`Options::provoke`] says so.

mod catalogs;
mod encryption;
mod exhibits;
mod facts;
mod huge_pages;
mod id;
mod init_files;
mod jit;
mod limits;
mod look;
mod model;
mod network;
mod passwords;
mod place;
mod probes;
mod rate;
mod sessions;
mod settings;
mod start_up;
mod statements;
mod text;
mod thresholds;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pgusher_client::{Attempts, Config, Connector, Error};

pub use id::Id;
pub use model::{Cost, Cure, CureKind, Diagnosis, Evidence, Finding, Measurement, NotExamined, Per, Reached, Severity};
pub use text::text;
pub use thresholds::Thresholds;

use self::facts::Facts;
use self::init_files::InitFiles;
use self::look::{APPLICATION, LOST, Look};
use self::place::{Place, Through};
use self::probes::{connector, micros};
use self::rate::{Counters, Rate};
use self::settings::Settings;
use self::start_up::StartUp;
use self::statements::Statements;
use crate::stats::Distribution;

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// At most so many connections are opened to measure, one after the other; 0 opens none.
    pub connections: u32,
    /// How long counters are watched.
    pub watch: Duration,
    /// Whether the relation cache's files may be removed a few times, which the next connections pay for.
    pub provoke: bool,
    /// From where on something is a finding.
    pub thresholds: Thresholds,
}

impl Default for Options {
    fn default() -> Self {
        Self { connections: 40, watch: Duration::from_secs(3), provoke: false, thresholds: Thresholds::default() }
    }
}

/// Why there is no diagnosis at all.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// No connection.
    #[error("{cause}{}", advice(cause))]
    Connect {
        /// What the client says. It is no source: its words are said here.
        cause: Error,
    },
    /// The console of a connection manager, which has no catalogs.
    #[error(
        "this is the console of a connection manager ({0}), not a database; name a database, best on the server itself"
    )]
    Console(String),
}

impl From<Error> for DoctorError {
    fn from(cause: Error) -> Self {
        Self::Connect { cause }
    }
}

/// SQLSTATE of "too many connections".
fn advice(error: &Error) -> &'static str {
    match error.sqlstate() {
        Some("53300") => "; some connections are kept for superusers: connect as one of them",
        _ => "",
    }
}

/// Connections that must be free before any is opened to measure.
const ROOM: f64 = 4.0;
/// Empty statements, for the round trip.
const ROUND_TRIPS: u32 = 10;
/// How often the relation cache's files are removed with [`Options::provoke`].
const COLD_ROUNDS: u32 = 3;

/// Looks and judges. `progress` is told each step before it begins; `stop` ends it early.
///
/// # Errors
/// [`DoctorError`] if there is no connection to look with. Anything later is part of the diagnosis.
pub fn run(
    config: &Config,
    options: &Options,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str),
) -> Result<Diagnosis, DoctorError> {
    let started = Instant::now();
    let mut config = config.clone();
    config.set_parameter("application_name", APPLICATION);
    let mut facts = Facts::default();
    let look = open(&config, &mut facts)?;
    let mut doctor = Doctor { config, options, stop, progress, look, facts, opened: 1 };
    doctor.examine();
    Ok(doctor.diagnose(started))
}

/// The connection for looking.
fn open(config: &Config, facts: &mut Facts) -> Result<Look, DoctorError> {
    let mut attempts = Attempts::default();
    let mut connection = connector(config)?.connect_traced(&mut attempts)?;
    if let Some(version) = connection.parameter("server_version").filter(|version| version.contains("bouncer")) {
        return Err(DoctorError::Console(version.to_owned()));
    }
    facts.probes.note(&attempts, None);
    // Of a single connection only the failed attempts are evidence; its times are those of the first one.
    facts.probes.done.clear();
    let told = connection.backend_pid().to_string();
    let pgusher = connection.parameter("pgusher.version").is_some();
    let rows = connection.query_rows(&format!("select /* {APPLICATION} */ pg_catalog.pg_backend_pid()"), &[])?;
    let foreign = !pgusher && rows.get(0, 0) != Some(told.as_str());
    Ok(Look::new(connection, &config.user, foreign)?)
}

/// An examination under way.
struct Doctor<'a> {
    config: Config,
    options: &'a Options,
    stop: &'a AtomicBool,
    progress: &'a mut dyn FnMut(&str),
    look: Look,
    facts: Facts,
    opened: u32,
}

impl Doctor<'_> {
    /// Tells the next step; false if there is none because a person has ended it.
    fn step(&mut self, name: &str) -> bool {
        (self.progress)(name);
        !self.stop.load(Ordering::Relaxed)
    }

    fn examine(&mut self) {
        let Some(first) = self.look_around() else { return };
        if !self.step("watching the counters") {
            return;
        }
        self.watch(first);
        if !self.step("measuring connections") {
            return;
        }
        self.measure();
        if self.options.provoke && self.step("removing pg_internal.init to measure cold connections") {
            self.provoke();
        }
    }

    /// Everything that is asked once. The first look at the counters, if they are there.
    fn look_around(&mut self) -> Option<Option<Counters>> {
        if !self.step("settings") {
            return None;
        }
        let (look, facts) = (&mut self.look, &mut self.facts);
        facts.place = Place::look(look, &self.config.user);
        facts.settings = Settings::look(look);
        let first = rate::look(look, facts.place.version);
        facts.limits = limits::Limits::look(look);
        facts.huge_pages = huge_pages::HugePages::look(look, &facts.settings, &facts.place);
        facts.passwords = passwords::Passwords::look(look, &facts.place);
        if !self.step("catalogs") {
            return None;
        }
        let (look, facts) = (&mut self.look, &mut self.facts);
        facts.init_files = InitFiles::look(look);
        facts.catalogs = catalogs::look(look);
        if !self.step("statements") {
            return None;
        }
        let (look, facts) = (&mut self.look, &mut self.facts);
        facts.statements = Statements::look(look);
        facts.compiled = jit::look(look, &facts.place, &facts.statements);
        facts.start_up = StartUp::look(look, &facts.settings, &facts.place);
        Some(first)
    }

    /// Waits while others work, and counts what they did.
    fn watch(&mut self, first: Option<Counters>) {
        let began = Instant::now();
        while began.elapsed() < self.options.watch && self.look.lost().is_none() && !self.stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(200).min(self.options.watch));
            if let Some(files) = &mut self.facts.init_files {
                files.watch(&mut self.look);
            }
        }
        let second = first.and_then(|_| rate::look(&mut self.look, self.facts.place.version));
        self.facts.sessions = sessions::look(&mut self.look);
        if let (Some(first), Some(second)) = (first, second) {
            let sessions = self.facts.sessions.as_ref().filter(|list| list.iter().all(|s| s.state.is_some()));
            let still_open = sessions.map(|list| list.iter().filter(|s| s.started >= first.at).count());
            self.facts.rate = Some(Rate::of(first, second, still_open));
            self.look.done("connection rate");
        }
        if let Some(files) = &mut self.facts.init_files {
            files.over = began.elapsed().as_secs_f64();
        }
    }

    /// Opens connections and times them.
    fn measure(&mut self) {
        const WHAT: &str = "what a connection and its first statement cost";
        let used = self.facts.sessions.as_ref().map_or(0, Vec::len) as f64;
        let free = limits::capacity(&self.facts).map(|capacity| capacity - used);
        if self.look.lost().is_some() {
            return self.look.skip(WHAT, LOST, "run it again when the server is back");
        }
        if !self.facts.place.is_direct() {
            let reason = format!("this connection goes {}, whose times hide the server's", self.facts.place.manager());
            return self.look.skip(WHAT, &reason, "give the server's own address");
        }
        if self.options.connections == 0 {
            return self.look.skip(WHAT, "no connection may be opened to measure", "--connections 40");
        }
        if free.is_some_and(|free| free < ROOM) {
            return self.look.skip(
                WHAT,
                "hardly any connection is free, and none was taken",
                "run it again at a quieter time",
            );
        }
        let probed = self.probe();
        if !probed || self.look.lost().is_some() || !self.step("measuring first statements") {
            return;
        }
        // A quarter was timed; half is for two comparisons, with and without; a quarter for statements on two each.
        let share = self.options.connections / 8;
        if share == 0 {
            let what = "what libraries, login triggers and first statements cost";
            return self.look.skip(what, "too few connections may be opened", "--connections 40");
        }
        self.opened += self.facts.start_up.measure(&self.config, share);
        self.opened += self.facts.statements.measure(&mut self.look, &self.config, self.facts.place.superuser, share);
    }

    /// Connections as an application opens them. False if none was possible.
    fn probe(&mut self) -> bool {
        for _ in 0..ROUND_TRIPS {
            self.facts.probes.round_trips.extend(self.look.round_trip().map(micros));
        }
        let connector = match connector(&self.config) {
            // Without TLS at the server the extra question is answered at once and shows queue and fork apart.
            Ok(connector) => connector.fork_probe(self.facts.settings.is_off("ssl")),
            Err(error) => {
                self.look.skip("what a connection costs", &error.to_string(), "");
                return false;
            }
        };
        self.probe_with(&connector);
        if let Some((code, words)) = self.facts.probes.refused.first() {
            let reason = format!("a connection failed: {words} ({code})");
            self.look.skip("some of the connections to measure", &reason, "");
        }
        let any = !self.facts.probes.done.is_empty();
        if any {
            self.look.done("phases of a connection");
        }
        any
    }

    fn probe_with(&mut self, connector: &Connector) {
        let n = (self.options.connections / 4).max(1);
        let (look, files, stop) = (&mut self.look, &mut self.facts.init_files, self.stop);
        self.facts.probes.measure(connector, n, self.facts.place.same_machine, &mut |_| {
            if let Some(files) = files {
                files.after_connecting(look);
            }
            look.lost().is_none() && !stop.load(Ordering::Relaxed)
        });
        let probes = &self.facts.probes;
        self.opened += u32::try_from(probes.done.len() + probes.refused.len()).unwrap_or(n);
    }

    fn provoke(&mut self) {
        const WHAT: &str = "what a connection costs without pg_internal.init";
        if self.look.lost().is_some() {
            return self.look.skip(WHAT, LOST, "run it again when the server is back");
        }
        if self.facts.place.through != Through::Nobody {
            return self.look.skip(WHAT, "the connection goes through a manager", "give the server's own address");
        }
        match init_files::provoke(&self.config, COLD_ROUNDS) {
            Ok(cold) => {
                self.opened += 1 + 2 * COLD_ROUNDS;
                self.facts.init_files.get_or_insert_default().cold = Some(cold);
                self.look.done("cold connections");
            }
            Err(error) => {
                let reason = error.server().map_or_else(|| error.to_string(), |server| server.message.clone());
                self.look.skip(WHAT, &reason, "run it as a superuser");
            }
        }
    }

    fn diagnose(self, started: Instant) -> Diagnosis {
        let findings = judge(&self.facts, &self.options.thresholds);
        let measurements = measurements(&self.facts);
        let (not_examined, examined, lost) = self.look.finish();
        Diagnosis {
            reached: self.facts.place.reached(),
            findings,
            not_examined,
            examined,
            measurements,
            connections_opened: self.opened,
            elapsed_us: micros(started.elapsed()),
            lost,
            interrupted: self.stop.load(Ordering::Relaxed),
        }
    }
}

/// All findings, the worst first. Pure.
fn judge(facts: &Facts, thresholds: &Thresholds) -> Vec<Finding> {
    let mut findings = Vec::new();
    let groups: [fn(&Facts, &Thresholds, &mut Vec<Finding>); 12] = [
        limits::judge,
        rate::judge,
        sessions::judge,
        huge_pages::judge,
        init_files::judge,
        catalogs::judge,
        network::judge,
        encryption::judge,
        passwords::judge,
        jit::judge,
        start_up::judge,
        statements::judge,
    ];
    for group in groups {
        group(facts, thresholds, &mut findings);
    }
    model::rank(&mut findings);
    findings
}

/// Everything that was timed.
fn measurements(facts: &Facts) -> Vec<Measurement> {
    let mut list = Vec::new();
    let mut add = |name: &str, of: Option<Distribution>| {
        // With trust the last phase arrives together with the one before: nothing was measured.
        list.extend(of.filter(|d| d.max > 0.0).map(|d| Measurement {
            name: name.to_owned(),
            n: d.n,
            median_us: d.median,
            min_us: d.min,
            max_us: d.max,
        }));
    };
    let probes = &facts.probes;
    add("connection", probes.connection());
    let mut phases: Vec<_> = probes.done.iter().flat_map(|p| p.phases.iter().map(|(phase, _)| *phase)).collect();
    phases.sort_unstable();
    phases.dedup();
    for phase in phases {
        add(phase.name(), probes.phase(phase));
    }
    add("round trip", probes.round_trip());
    if let Some(cold) = facts.init_files.as_ref().and_then(|files| files.cold.as_ref()) {
        add("connection without pg_internal.init", Distribution::of(&cold.cold_us));
        add("connection right after one without", Distribution::of(&cold.warm_us));
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_seen_is_nothing_found() {
        assert_eq!(judge(&Facts::default(), &Thresholds::default()), []);
        assert!(measurements(&Facts::default()).is_empty());
    }
}
