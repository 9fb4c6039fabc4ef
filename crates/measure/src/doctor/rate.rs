//! How often clients connect and how long they stay: counters of pg_stat_database at two moments, and since they were
//! last reset. Servers before 14 do not count sessions.

use super::facts::Facts;
use super::id::Id;
use super::look::Look;
use super::model::{Cost, CureKind, Finding, Per, Severity};
use super::probes::Probes;
use super::thresholds::Thresholds;
use crate::stats::{count, micros, percent, seconds};

/// Sessions that last less than this on average are short, seconds.
const SHORT: f64 = 5.0;

/// The counters of all databases at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Counters {
    /// The server's clock, seconds.
    pub(super) at: f64,
    /// Sessions begun.
    pub(super) sessions: f64,
    /// Their time, seconds.
    pub(super) session_time: f64,
    /// When the statistics of our database were reset, seconds since 1970.
    pub(super) reset: Option<f64>,
}

/// What two looks say.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Rate {
    /// Seconds between the looks.
    pub(super) watched: f64,
    /// Sessions begun in between.
    pub(super) begun: f64,
    /// How many sessions at the second look had begun after the first; unknown if they cannot be seen.
    pub(super) still_open: Option<f64>,
    /// All sessions since the reset, and their mean length in seconds.
    pub(super) total: f64,
    /// See [`Rate::total`].
    pub(super) mean_length: f64,
    /// Seconds since the reset.
    pub(super) age: Option<f64>,
}

impl Rate {
    /// Per second, while it was watched.
    pub(super) fn per_second(self) -> f64 {
        if self.watched > 0.0 { self.begun / self.watched } else { 0.0 }
    }

    /// Whether most of the new sessions had ended at the second look.
    pub(super) fn short(self, limits: &Thresholds) -> bool {
        if self.begun <= 0.0 {
            return false;
        }
        match self.still_open {
            Some(open) => open < limits.still_open * self.begun,
            // An ordinary role does not see when others' sessions began: then the mean of all must do.
            None => self.mean_length < SHORT,
        }
    }

    /// Of two moments.
    pub(super) fn of(first: Counters, second: Counters, still_open: Option<usize>) -> Self {
        Self {
            watched: second.at - first.at,
            begun: (second.sessions - first.sessions).max(0.0),
            still_open: still_open.map(|n| n as f64),
            total: second.sessions,
            mean_length: if second.sessions > 0.0 { second.session_time / second.sessions } else { 0.0 },
            age: second.reset.map(|reset| second.at - reset),
        }
    }
}

/// How often connections that are short come, or `None` if they are not known to be short.
pub(super) fn short_per_second(facts: &Facts, limits: &Thresholds) -> Option<f64> {
    facts.rate.filter(|rate| rate.short(limits)).map(Rate::per_second)
}

/// The counters now.
pub(super) fn look(look: &mut Look, version: u32) -> Option<Counters> {
    // Of a server that did not even tell its version, asking tells why.
    if (1..140_000).contains(&version) {
        look.skip("connection rate and session length", "PostgreSQL counts sessions from version 14 on", "");
        return None;
    }
    let sql = "select extract(epoch from clock_timestamp()), sum(sessions), sum(session_time) / 1000, \
        extract(epoch from max(stats_reset) filter (where datname = current_database())) \
        from pg_stat_database where datid <> 0";
    let answer = look.ask("connection rate and session length", sql, &[], "")?;
    Some(Counters {
        at: answer.number(0, 0)?,
        sessions: answer.number(0, 1)?,
        session_time: answer.number(0, 2)?,
        reset: answer.number(0, 3),
    })
}

/// Short sessions, what logging adds to them, and the age of the counters.
pub(super) fn judge(facts: &Facts, limits: &Thresholds, out: &mut Vec<Finding>) {
    let Some(rate) = facts.rate else { return };
    if let Some(per_second) = short_per_second(facts, limits) {
        out.extend(short_sessions(facts, limits, rate, per_second));
    }
    let logged: Vec<&str> = ["log_connections", "log_disconnections"]
        .into_iter()
        .filter(|name| facts.settings.text(name).is_some_and(|value| !matches!(value, "off" | "")))
        .collect();
    if rate.per_second() >= limits.rate_warning && !logged.is_empty() {
        out.push(log_connections(rate, &logged));
    }
    if let Some(age) = rate.age.filter(|age| *age > limits.statistics_age.as_secs_f64()) {
        let days = format!("{} days", count(age / 86_400.0));
        let what = format!("The statistics were last reset {days} ago: averages since then hide what has changed.");
        out.push(
            Finding::new(Id::StatisticsOld, Severity::Notice, what)
                .evidence("age", days, "pg_stat_database: stats_reset")
                .cost(Cost::unknown("it only blurs what can be seen"))
                .cure(CureKind::Sql, "SELECT pg_stat_reset(); SELECT pg_stat_statements_reset(); then ANALYZE, which autovacuum's counters need"),
        );
    }
}

fn short_sessions(facts: &Facts, limits: &Thresholds, rate: Rate, per_second: f64) -> Option<Finding> {
    let severity = match per_second {
        r if r >= limits.rate_critical => Severity::Critical,
        r if r >= limits.rate_warning => Severity::Warning,
        r if r >= limits.rate_notice => Severity::Notice,
        _ => return None,
    };
    let what = format!("Clients open {} connections per second and leave at once.", count(per_second));
    let mut finding = Finding::new(Id::ShortSessions, severity, what)
        .evidence(
            "sessions begun",
            format!("{} in {}", count(rate.begun), seconds(rate.watched)),
            "pg_stat_database: sessions, two looks",
        )
        .evidence(
            "mean length of all sessions",
            format!("{} of {}", micros(rate.mean_length * 1e6), count(rate.total)),
            "pg_stat_database: session_time / sessions",
        );
    if let Some(open) = rate.still_open {
        let gone = percent(1.0 - open / rate.begun);
        finding = finding.evidence("gone at the second look", gone, "pg_stat_activity: backend_start");
    }
    finding = match facts.probes.connection() {
        Some(time) => {
            let share = time.median * per_second / 1e6;
            finding
                .evidence("time spent connecting", format!("{share:.2} s in each second"), "measured connection x rate")
                .cost(Cost::measured(Per::Connection, time.median, Probes::how(&time)))
        }
        None => finding.cost(Cost::unknown("no connection was opened to measure")),
    };
    finding = finding.cure(CureKind::Habit, "keep connections: a pool in the application");
    if facts.place.is_direct() {
        finding = finding.cure(CureKind::Command, "pgusher serve CONNINFO, and point the applications to it");
    }
    Some(finding)
}

fn log_connections(rate: Rate, logged: &[&str]) -> Finding {
    let what =
        format!("{} is on while {} connections come per second.", logged.join(" and "), count(rate.per_second()));
    let mut finding = Finding::new(Id::LogConnections, Severity::Notice, what)
        .evidence("setting", logged.join(", "), "pg_settings")
        .evidence("connections per second", count(rate.per_second()), "pg_stat_database: sessions, two looks")
        .cost(Cost::unknown("the lines are written by each backend; the log's disk decides what that costs"));
    for name in logged {
        finding = finding.cure(CureKind::Reload, format!("{name} = off"));
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::settings::Settings;

    fn found(begun: f64, still_open: f64, settings: &[(&str, &str)], age: Option<f64>) -> Vec<(Id, Severity)> {
        let rate = Rate { watched: 2.0, begun, still_open: Some(still_open), age, ..Rate::default() };
        let facts = Facts { rate: Some(rate), settings: Settings::of(settings), ..Facts::default() };
        let mut out = Vec::new();
        judge(&facts, &Thresholds::default(), &mut out);
        out.into_iter().map(|f| (f.id, f.severity)).collect()
    }

    #[test]
    fn the_rate_decides_and_only_short_sessions_count() {
        assert_eq!(found(1.9, 0.0, &[], None), []);
        assert_eq!(found(2.0, 0.0, &[], None), [(Id::ShortSessions, Severity::Notice)]);
        assert_eq!(found(20.0, 9.9, &[], None), [(Id::ShortSessions, Severity::Warning)]);
        assert_eq!(found(20.0, 10.0, &[], None), [], "half of them stayed: a pool that fills");
        assert_eq!(found(1000.0, 0.0, &[], None), [(Id::ShortSessions, Severity::Critical)]);
    }

    #[test]
    fn without_the_right_to_see_sessions_their_mean_length_decides() {
        let with = |mean_length| {
            let rate = Rate { watched: 1.0, begun: 20.0, still_open: None, mean_length, ..Rate::default() };
            short_per_second(&Facts { rate: Some(rate), ..Facts::default() }, &Thresholds::default())
        };
        assert_eq!(with(4.9), Some(20.0));
        assert_eq!(with(5.0), None);
    }

    #[test]
    fn logging_counts_with_many_connections_only() {
        let on = [("log_connections", "on"), ("log_disconnections", "off")];
        assert_eq!(found(19.0, 19.0, &on, None), []);
        assert_eq!(found(20.0, 20.0, &on, None), [(Id::LogConnections, Severity::Notice)]);
        // 18 has a list of aspects in place of on and off.
        let aspects = [("log_connections", "receipt,authentication")];
        assert_eq!(found(20.0, 20.0, &aspects, None), [(Id::LogConnections, Severity::Notice)]);
        assert_eq!(found(20.0, 20.0, &[("log_connections", "")], None), []);
    }

    #[test]
    fn statistics_of_half_a_year_are_old() {
        assert_eq!(found(0.0, 0.0, &[], Some(180.0 * 86_400.0)), []);
        assert_eq!(found(0.0, 0.0, &[], Some(180.1 * 86_400.0)), [(Id::StatisticsOld, Severity::Notice)]);
    }

    #[test]
    fn two_looks_make_a_rate() {
        let first = Counters { at: 100.0, sessions: 10.0, session_time: 1.0, reset: Some(50.0) };
        let second = Counters { at: 102.0, sessions: 50.0, session_time: 5.0, reset: Some(50.0) };
        let rate = Rate::of(first, second, Some(3));
        assert_eq!((rate.per_second(), rate.age, rate.mean_length), (20.0, Some(52.0), 0.1));
        // A reset in between is no negative rate.
        assert_eq!(Rate::of(second, Counters { at: 103.0, ..first }, None).per_second(), 0.0);
    }
}
