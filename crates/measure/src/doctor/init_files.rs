//! pg_internal.init, the files from which a new backend loads its relation cache. Where they are missing it reads the
//! catalogs and writes them anew, and all that start meanwhile do the same: about 2 ms more per connection. They are
//! removed at each start of the server and by whatever touches a system catalog's own description: most often autovacuum.
//! Source: relcache.c, RelationCacheInitFilePreInvalidate.

use pgusher_client::{Config, Connector};

use super::facts::Facts;
use super::id::Id;
use super::look::Look;
use super::model::{Cost, CureKind, Finding, Per, Severity};
use super::probes::{connector, micros};
use super::thresholds::Thresholds;
use crate::stats::{Distribution, micros as shown, seconds};

/// Both files at one moment: when each was written (whole seconds), or nothing where it is missing.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Stamp {
    pub(super) shared: Option<f64>,
    pub(super) local: Option<f64>,
}

impl Stamp {
    fn is_absent(self) -> bool {
        self.shared.is_none() || self.local.is_none()
    }
}

/// What was seen of the files.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct InitFiles {
    /// While nothing else was done.
    pub(super) watched: Vec<Stamp>,
    /// Right after each connection of ours, which should have written them.
    pub(super) after_connecting: Vec<Stamp>,
    /// Seconds over which they were seen.
    pub(super) over: f64,
    /// When the database was made (its PG_VERSION), seconds since 1970: an upper limit for the age of its counters.
    pub(super) database_made: Option<f64>,
    /// What a connection costs that finds none; only with `--provoke`.
    pub(super) cold: Option<Cold>,
}

/// Connections that found no files, in alternation with others that did.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Cold {
    pub(super) cold_us: Vec<f64>,
    pub(super) warm_us: Vec<f64>,
}

impl Cold {
    /// Median of those without the files, median of those with them, microseconds.
    pub(super) fn medians(&self) -> Option<(f64, f64)> {
        Some((Distribution::of(&self.cold_us)?.median, Distribution::of(&self.warm_us)?.median))
    }
}

const WHAT: &str = "pg_internal.init";
const SQL: &str = "select extract(epoch from (pg_stat_file('global/pg_internal.init', true)).modification), \
    extract(epoch from (pg_stat_file(folder || 'pg_internal.init', true)).modification), \
    extract(epoch from (pg_stat_file(folder || 'PG_VERSION', true)).modification) \
    from (select regexp_replace(pg_relation_filepath('pg_class'), '[^/]*$', '') as folder) f";

impl InitFiles {
    /// The first look. None, with a note, if the role may not.
    pub(super) fn look(look: &mut Look) -> Option<Self> {
        // Neither pg_monitor nor pg_read_server_files is enough.
        let remedy = "GRANT EXECUTE ON FUNCTION pg_catalog.pg_stat_file(text, boolean) TO the role";
        let answer = look.ask(WHAT, SQL, &[], remedy)?;
        look.done(WHAT);
        let stamp = Stamp { shared: answer.number(0, 0), local: answer.number(0, 1) };
        Some(Self { watched: vec![stamp], database_made: answer.number(0, 2), ..Self::default() })
    }

    /// A later look.
    pub(super) fn watch(&mut self, look: &mut Look) {
        self.watched.extend(stamp(look));
    }

    /// A look while a new connection of ours is open.
    pub(super) fn after_connecting(&mut self, look: &mut Look) {
        self.after_connecting.extend(stamp(look));
    }

    /// How often the files had been written anew between two looks.
    fn rebuilt(&self) -> usize {
        let all = || self.watched.iter().chain(&self.after_connecting);
        let changes = |list: Vec<f64>| list.windows(2).filter(|pair| pair.first() != pair.last()).count();
        changes(all().filter_map(|s| s.shared).collect()).max(changes(all().filter_map(|s| s.local).collect()))
    }
}

fn stamp(look: &mut Look) -> Option<Stamp> {
    let answer = look.try_ask(SQL, &[]).ok()?;
    Some(Stamp { shared: answer.number(0, 0), local: answer.number(0, 1) })
}

/// Has the files removed and times a connection without and one with them, a few times. It rebuilds the index of a table
/// of four rows, pg_am: that removes the files, and the next connection makes them again.
pub(super) fn provoke(config: &Config, rounds: u32) -> Result<Cold, pgusher_client::Error> {
    let (mut hand, _) = connector(config)?.connect()?;
    hand.simple_query("SET lock_timeout = '1s'; SET statement_timeout = '10s'")?.into_result()?;
    let probe = connector(config)?;
    let mut cold = Cold::default();
    for _ in 0..rounds {
        hand.simple_query("REINDEX INDEX pg_catalog.pg_am_oid_index")?.into_result()?;
        cold.cold_us.push(once(&probe)?);
        cold.warm_us.push(once(&probe)?);
    }
    Ok(cold)
}

fn once(connector: &Connector) -> Result<f64, pgusher_client::Error> {
    let (connection, attempts) = connector.connect()?;
    connection.terminate()?;
    Ok(micros(attempts.total))
}

/// Files that stay missing or are made again and again; connections without them that are very slow.
pub(super) fn judge(facts: &Facts, limits: &Thresholds, out: &mut Vec<Finding>) {
    let Some(files) = &facts.init_files else { return };
    let absent = files.after_connecting.iter().filter(|stamp| stamp.is_absent()).count();
    let connected = files.after_connecting.len();
    if connected >= 2 && 2 * absent >= connected {
        out.push(with_cures(
            Finding::new(
                Id::InitFileAbsent,
                Severity::Warning,
                "pg_internal.init stays missing although sessions start: each of them reads the system catalogs for itself.",
            )
            .evidence("missing after", format!("{absent} of {connected} new connections"), "pg_stat_file"),
            files,
        ));
    }
    let rebuilt = files.rebuilt();
    if rebuilt > 0 {
        let severity = if rebuilt >= 2 { Severity::Warning } else { Severity::Notice };
        let what =
            "pg_internal.init was removed and written anew while it was watched: something changes system catalogs.";
        out.push(with_cures(
            Finding::new(Id::InitFileRebuilt, severity, what).evidence(
                "written anew",
                format!("{rebuilt} times in {}", seconds(files.over)),
                "pg_stat_file: modification",
            ),
            files,
        ));
    }
    if let Some((cold, warm)) = files.cold.as_ref().and_then(Cold::medians) {
        if cold - warm >= limits.cold_us {
            let what = "The first connection after a restart, or after a vacuum of a system catalog, is very slow.";
            let finding = Finding::new(Id::ColdConnection, Severity::Notice, what)
                .evidence("without pg_internal.init", shown(cold), "measured with --provoke")
                .evidence("with it", shown(warm), "measured, in alternation");
            out.push(with_cures(finding, files));
        }
    }
}

fn with_cures(finding: Finding, files: &InitFiles) -> Finding {
    let cost = match files.cold.as_ref().and_then(Cold::medians) {
        Some((cold, warm)) => Cost::measured(
            Per::Connection,
            (cold - warm).max(0.0),
            "a connection without the files less one with them, medians, --provoke",
        ),
        None => Cost::unknown("it needs a connection right after the files were removed: --provoke measures that"),
    };
    finding
        .cost(cost)
        .cure(CureKind::Habit, "find what changes the catalogs: temporary tables, DDL in a loop, ANALYZE or VACUUM of the whole database by a job")
        .cure(CureKind::Command, "pgusher serve CONNINFO: its connections are open before the clients come")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: f64) -> Stamp {
        Stamp { shared: Some(second), local: Some(second) }
    }

    fn found(files: InitFiles) -> Vec<(Id, Severity)> {
        let facts = Facts { init_files: Some(files), ..Facts::default() };
        let mut out = Vec::new();
        judge(&facts, &Thresholds::default(), &mut out);
        out.into_iter().map(|f| (f.id, f.severity)).collect()
    }

    #[test]
    fn absent_counts_only_after_a_connection() {
        let missing = Stamp { shared: Some(1.0), local: None };
        assert_eq!(found(InitFiles { watched: vec![missing; 9], ..InitFiles::default() }), []);
        let half = vec![missing, at(1.0)];
        assert_eq!(
            found(InitFiles { after_connecting: half, ..InitFiles::default() }),
            [(Id::InitFileAbsent, Severity::Warning)]
        );
        let few = vec![missing, at(1.0), at(1.0)];
        assert_eq!(found(InitFiles { after_connecting: few, ..InitFiles::default() }), []);
    }

    #[test]
    fn each_new_stamp_is_one_more() {
        let seen =
            |seconds: &[f64]| InitFiles { watched: seconds.iter().map(|s| at(*s)).collect(), ..InitFiles::default() };
        assert_eq!(found(seen(&[5.0, 5.0, 5.0])), []);
        assert_eq!(found(seen(&[5.0, 6.0, 6.0])), [(Id::InitFileRebuilt, Severity::Notice)]);
        assert_eq!(found(seen(&[5.0, 6.0, 7.0])), [(Id::InitFileRebuilt, Severity::Warning)]);
        // Missing in between, and then the same file as before: nothing was written.
        let gap = InitFiles { watched: vec![at(5.0), Stamp::default(), at(5.0)], ..InitFiles::default() };
        assert_eq!(found(gap), []);
    }

    #[test]
    fn a_very_slow_cold_connection() {
        let with = |cold| {
            let cold = Some(Cold { cold_us: vec![cold; 3], warm_us: vec![2000.0; 3] });
            found(InitFiles { cold, ..InitFiles::default() })
        };
        assert_eq!(with(21_999.0), []);
        assert_eq!(with(22_000.0), [(Id::ColdConnection, Severity::Notice)]);
    }
}
