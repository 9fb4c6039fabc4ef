//! The statements that run most: whether there are statistics of them, and how much slower their first run on a fresh
//! connection is.
//!
//! That is measured without running them: Parse + Bind + Sync, no Execute, on a connection that has done nothing yet, and
//! again. So catalogs are read, the statement is planned and its execution prepared, which is nearly all of the penalty.
//! Parameters are NULL and the plan is the generic one, since with NULL as a value the planner would cut the plan short.
//! Planning may call functions that are declared immutable or stable.

use pgusher_client::{Config, Connector, Error};

use super::facts::Facts;
use super::id::Id;
use super::look::{APPLICATION, Look, MONITOR, Refusal};
use super::model::{Cost, CureKind, Finding, Per, Severity};
use super::probes::{connector, micros, with_options};
use super::rate::short_per_second;
use super::thresholds::Thresholds;
use crate::stats::{Distribution, count, micros as shown, ratio_text};

/// The statistics of statements and what was measured with them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Statements {
    pub(super) state: State,
    /// Whether compilations are counted (15 and later).
    pub(super) has_jit: bool,
    pub(super) first_runs: Vec<FirstRun>,
}

/// Whether pg_stat_statements can be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum State {
    /// Not asked.
    #[default]
    Unknown,
    /// There is no such extension in this database, or its library is not loaded: which of them.
    Missing(&'static str),
    /// It can; the view with its schema.
    Readable(String),
}

/// A statement on fresh connections.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct FirstRun {
    pub(super) query: String,
    pub(super) calls: f64,
    /// The first time on each connection, microseconds.
    pub(super) first_us: Vec<f64>,
    /// The best of the later times on each connection.
    pub(super) later_us: Vec<f64>,
}

impl FirstRun {
    /// The least of the first times and of the later ones: what others take meanwhile only adds.
    fn least(&self) -> Option<(f64, f64)> {
        Some((Distribution::of(&self.first_us)?.min, Distribution::of(&self.later_us)?.min))
    }
}

const WHAT: &str = "statistics of statements";
/// Fresh connections for each statement.
const ROUNDS: u32 = 2;
/// A statement that ran less often is not hot.
const HOT: u32 = 10;
/// Texts longer than this are not sent again.
const LONGEST: usize = 20_000;

impl Statements {
    /// Finds the view.
    pub(super) fn look(look: &mut Look) -> Self {
        let sql = "select quote_ident(n.nspname) || '.pg_stat_statements', exists (select from pg_attribute a \
            join pg_class c on c.oid = a.attrelid where c.relname = 'pg_stat_statements' \
            and c.relnamespace = n.oid and a.attname = 'jit_functions') \
            from pg_extension e join pg_namespace n on n.oid = e.extnamespace where e.extname = 'pg_stat_statements'";
        let Some(answer) = look.ask(WHAT, sql, &[], "") else { return Self::default() };
        let Some(table) = answer.text(0, 0) else {
            return Self { state: State::Missing("the extension is not in this database"), ..Self::default() };
        };
        match look.try_ask(&format!("select 1 from {table} limit 1"), &[]) {
            Ok(_) => {
                look.done(WHAT);
                Self { state: State::Readable(table), has_jit: answer.is_true(0, 1), ..Self::default() }
            }
            // 55000: the library is not loaded.
            Err(Refusal::Sql { sqlstate, .. }) if sqlstate == "55000" => {
                Self { state: State::Missing("its library is not in shared_preload_libraries"), ..Self::default() }
            }
            Err(Refusal::Sql { message, .. }) => {
                look.skip(WHAT, &message, MONITOR);
                Self::default()
            }
            Err(Refusal::Lost) => Self::default(),
        }
    }

    /// The view's name with its schema.
    pub(super) fn table(&self) -> Option<&str> {
        match &self.state {
            State::Readable(table) => Some(table),
            State::Unknown | State::Missing(_) => None,
        }
    }

    /// Measures first runs of up to `n` of the hottest statements, on [`ROUNDS`] fresh connections each. Returns how many
    /// connections were opened.
    pub(super) fn measure(&mut self, look: &mut Look, config: &Config, superuser: bool, n: u32) -> u32 {
        let rounds = ROUNDS;
        const WHAT: &str = "penalty of first statements";
        let Some(table) = self.table() else {
            look.skip(WHAT, "there are no statistics of statements", "see statement-statistics-missing");
            return 0;
        };
        let sql = format!(
            "select query, sum(calls) from {table} where query ~* '^\\s*select' and query !~* 'for\\s+(update|share|no key|key)' \
             and strpos(query, '{APPLICATION}') = 0 and length(query) <= {LONGEST} \
             and dbid = (select oid from pg_database where datname = current_database()) \
             group by query having sum(calls) >= {HOT} order by 2 desc limit {}",
            4 * n
        );
        let Some(answer) = look.ask(WHAT, &sql, &[], MONITOR) else { return 0 };
        // Limits from the start, without a statement that would warm anything.
        let mut settings =
            "-c statement_timeout=5000 -c lock_timeout=200 -c plan_cache_mode=force_generic_plan -c jit=off".to_owned();
        if superuser {
            // Ordinary roles may not; they leave entries that are known by their comment.
            settings.push_str(" -c pg_stat_statements.track=none");
        }
        let config = with_options(config, &settings);
        let Ok(connector) = connector(&config) else { return 0 };
        let mut opened = 0;
        for row in 0..answer.len() {
            if self.first_runs.len() >= n as usize || opened >= n * rounds {
                break;
            }
            let mut run = FirstRun {
                query: answer.text(row, 0).unwrap_or_default(),
                calls: answer.number(row, 1).unwrap_or_default(),
                ..FirstRun::default()
            };
            for _ in 0..rounds {
                opened += 1;
                match first_and_later(&connector, &run.query) {
                    Ok(Some((first, later))) => {
                        run.first_us.push(first);
                        run.later_us.push(later);
                    }
                    // It cannot be prepared from its normalized text, or not by us: another one can.
                    Ok(None) => break,
                    Err(error) => {
                        look.skip(WHAT, &error.to_string(), "");
                        return opened;
                    }
                }
            }
            if !run.first_us.is_empty() {
                self.first_runs.push(run);
            }
        }
        if self.first_runs.is_empty() {
            look.skip(
                WHAT,
                "no SELECT with 10 calls or more is known that this role can prepare",
                "run it as the application's role",
            );
        } else {
            look.done(WHAT);
        }
        opened
    }
}

/// The first preparation on a fresh connection and the best of three later ones, microseconds; nothing if the server
/// refuses the statement.
fn first_and_later(connector: &Connector, query: &str) -> Result<Option<(f64, f64)>, Error> {
    let (mut connection, _) = connector.connect()?;
    let values = vec![None; parameters(query)];
    // Preparing counts as a call there; the comment keeps it out of the application's numbers and of later examinations.
    let query = format!("{query} /* {APPLICATION} */");
    let mut times = Vec::new();
    for _ in 0..4 {
        let reply = connection.parse_bind_sync(&query, &values)?;
        if reply.error.is_some() {
            break;
        }
        times.push(micros(reply.ready));
    }
    connection.terminate()?;
    let later = times.iter().skip(1).copied().min_by(f64::total_cmp);
    Ok(times.first().copied().zip(later))
}

/// The highest `$n` of a normalized text.
fn parameters(query: &str) -> usize {
    let number = |rest: &str| rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<usize>().ok();
    // More than a Bind can carry is no parameter.
    query.split('$').skip(1).filter_map(number).filter(|n| *n < 10_000).max().unwrap_or(0)
}

/// The beginning of a statement on one line.
pub(super) fn excerpt(query: &str) -> String {
    let line: Vec<&str> = query.split_whitespace().collect();
    let line = line.join(" ");
    match line.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", line.get(..end).unwrap_or(&line)),
        None => line,
    }
}

/// Missing statistics, and slow first runs.
pub(super) fn judge(facts: &Facts, limits: &Thresholds, out: &mut Vec<Finding>) {
    let statements = &facts.statements;
    if let State::Missing(why) = statements.state {
        let what = "There are no statistics of statements: slow first runs, JIT in short statements and hot spots stay unseen.";
        out.push(
            Finding::new(Id::StatementStatisticsMissing, Severity::Notice, what)
                .evidence("pg_stat_statements", why, "pg_extension")
                .cost(Cost::unknown("it only hides what can be seen"))
                .cure(CureKind::Restart, "shared_preload_libraries = 'pg_stat_statements'   (added to what is there)")
                .cure(CureKind::Sql, "CREATE EXTENSION pg_stat_statements"),
        );
    }
    if statements.table().is_some() && facts.settings.is_off("pg_stat_statements.track_planning") {
        let what = "Planning is not timed: the statistics of statements show execution only.";
        out.push(
            Finding::new(Id::TrackPlanningOff, Severity::Notice, what)
                .evidence("pg_stat_statements.track_planning", "off", "pg_settings")
                .cost(Cost::unknown(
                    "it only hides what can be seen; timing it costs a little on machines with many processors",
                ))
                .cure(CureKind::Reload, "pg_stat_statements.track_planning = on   (while you look for slow planning)"),
        );
    }
    out.extend(penalty(facts, limits));
}

fn penalty(facts: &Facts, limits: &Thresholds) -> Option<Finding> {
    let mut slow: Vec<(&FirstRun, f64, f64)> = facts
        .statements
        .first_runs
        .iter()
        .filter_map(|run| run.least().map(|(first, later)| (run, first, later)))
        .filter(|(_, first, later)| first - later >= limits.first_query_notice_us)
        .collect();
    slow.sort_by(|a, b| (b.1 - b.2).total_cmp(&(a.1 - a.2)));
    let (_, first, later) = slow.first()?;
    let worst = first - later;
    let often = short_per_second(facts, limits).is_some_and(|rate| rate >= limits.rate_notice);
    let severe = worst >= limits.first_query_warning_us && often;
    let severity = if severe { Severity::Warning } else { Severity::Notice };
    let what = format!(
        "On a new connection the first run of a hot statement takes up to {} longer than a later one.",
        shown(worst)
    );
    let mut finding = Finding::new(Id::FirstQueryPenalty, severity, what);
    for (run, first, later) in slow.iter().take(5) {
        finding = finding.evidence(
            &excerpt(&run.query),
            format!(
                "{} first, {} later ({}), {} calls",
                shown(*first),
                shown(*later),
                ratio_text(first / later),
                count(run.calls)
            ),
            "measured: Parse + Bind + Sync; calls from pg_stat_statements",
        );
    }
    Some(
        finding
            .cost(Cost::measured(
                Per::FirstStatement,
                worst,
                "Parse + Bind + Sync without Execute, first less later, the least of fresh connections",
            ))
            .cure(CureKind::Habit, "keep connections: a pool in the application")
            .cure(CureKind::Command, "pgusher serve CONNINFO: its connections are warm")
            .cure(
                CureKind::Habit,
                "fewer partitions per statement: each one touched is read once by each new connection",
            ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::rate::Rate;
    use crate::doctor::settings::Settings;

    fn found(facts: Facts) -> Vec<(Id, Severity)> {
        let mut out = Vec::new();
        judge(&facts, &Thresholds::default(), &mut out);
        out.into_iter().map(|f| (f.id, f.severity)).collect()
    }

    fn with(first: f64, rate: f64) -> Vec<(Id, Severity)> {
        let run = FirstRun { query: "select 1".to_owned(), calls: 1.0, first_us: vec![first], later_us: vec![100.0] };
        found(Facts {
            statements: Statements { first_runs: vec![run], ..Statements::default() },
            rate: Some(Rate { watched: 1.0, begun: rate, still_open: Some(0.0), ..Rate::default() }),
            ..Facts::default()
        })
    }

    #[test]
    fn the_penalty_is_worse_where_connections_are_short() {
        assert_eq!(with(2_099.0, 50.0), []);
        assert_eq!(with(2_100.0, 50.0), [(Id::FirstQueryPenalty, Severity::Notice)]);
        assert_eq!(with(10_100.0, 50.0), [(Id::FirstQueryPenalty, Severity::Warning)]);
        assert_eq!(with(10_100.0, 0.5), [(Id::FirstQueryPenalty, Severity::Notice)]);
    }

    #[test]
    fn what_cannot_be_seen_is_a_notice() {
        let state = |state, settings: &[(&str, &str)]| {
            let statements = Statements { state, ..Statements::default() };
            found(Facts { statements, settings: Settings::of(settings), ..Facts::default() })
        };
        assert_eq!(state(State::Unknown, &[]), []);
        assert_eq!(state(State::Missing("why"), &[]), [(Id::StatementStatisticsMissing, Severity::Notice)]);
        let readable = || State::Readable("public.pg_stat_statements".to_owned());
        let off = [("pg_stat_statements.track_planning", "off")];
        assert_eq!(state(readable(), &off), [(Id::TrackPlanningOff, Severity::Notice)]);
        assert_eq!(state(readable(), &[("pg_stat_statements.track_planning", "on")]), []);
        assert_eq!(state(State::Unknown, &off), [], "loaded, but not in this database");
    }

    #[test]
    fn parameters_are_counted_by_the_highest() {
        assert_eq!(parameters("select 1"), 0);
        assert_eq!(parameters("select $1, $12, $3"), 12);
        assert_eq!(parameters("select $$x$$"), 0);
    }

    #[test]
    fn long_statements_are_cut_between_characters() {
        assert_eq!(excerpt("select\n  1"), "select 1");
        let long = "ä".repeat(70);
        assert_eq!(excerpt(&long), format!("{}...", "ä".repeat(60)));
    }
}
