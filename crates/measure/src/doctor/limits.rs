//! How near the limits are: of the server, of roles, of databases; and whether the limit itself makes sense.

use super::facts::Facts;
use super::id::Id;
use super::look::Look;
use super::model::{Cost, CureKind, Finding, Severity};
use super::thresholds::Thresholds;
use crate::stats::{count, percent};

/// Limits of roles and databases that have one.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Limits {
    /// Role and its CONNECTION LIMIT.
    pub(super) roles: Vec<(String, f64)>,
    /// Database and its CONNECTION LIMIT.
    pub(super) databases: Vec<(String, f64)>,
}

impl Limits {
    /// Asks. A limit of 0 locks out on purpose and is no limit to come near to.
    pub(super) fn look(look: &mut Look) -> Option<Self> {
        let sql = "select 'role', rolname, rolconnlimit from pg_roles where rolconnlimit > 0 and not rolsuper \
            union all select 'database', datname, datconnlimit from pg_database where datconnlimit > 0";
        let answer = look.ask("connection limits of roles and databases", sql, &[], "")?;
        let mut limits = Self::default();
        for row in 0..answer.len() {
            let (Some(kind), Some(name), Some(limit)) =
                (answer.text(row, 0), answer.text(row, 1), answer.number(row, 2))
            else {
                continue;
            };
            let list = if kind == "role" { &mut limits.roles } else { &mut limits.databases };
            list.push((name, limit));
        }
        look.done("connection limits");
        Some(limits)
    }
}

/// Connections that applications may use, and how that was computed.
pub(super) fn capacity(facts: &Facts) -> Option<f64> {
    let number = |name| facts.settings.number(name);
    let reserved = number("superuser_reserved_connections")? + number("reserved_connections").unwrap_or(0.0);
    Some(number("max_connections")? - reserved)
}

/// Whether connections run out, and whether the limits are sound.
pub(super) fn judge(facts: &Facts, limits: &Thresholds, out: &mut Vec<Finding>) {
    if let (Some(sessions), Some(capacity)) = (&facts.sessions, capacity(facts)) {
        out.extend(server_limit(facts, limits, sessions.len(), capacity));
        if sessions.len() >= limits.open_connections {
            out.push(many_connections(sessions.len()));
        }
        for (name, limit) in facts.limits.iter().flat_map(|l| &l.roles) {
            let used = sessions.iter().filter(|s| s.user == *name).count();
            out.extend(own_limit(limits, Id::RoleLimitNear, "role", name, used, *limit));
        }
        for (name, limit) in facts.limits.iter().flat_map(|l| &l.databases) {
            let used = sessions.iter().filter(|s| s.database == *name).count();
            out.extend(own_limit(limits, Id::DatabaseLimitNear, "database", name, used, *limit));
        }
    }
    if facts.settings.text("superuser_reserved_connections") == Some("0") {
        let what = "No connection is kept for superusers: when the server is full, nobody can log in to mend it.";
        out.push(
            Finding::new(Id::NoReservedConnections, Severity::Warning, what)
                .evidence("superuser_reserved_connections", "0", "pg_settings")
                .cure(CureKind::Restart, "superuser_reserved_connections = 3"),
        );
    }
    if let Some(max) = facts.settings.number("max_connections").filter(|max| *max > limits.max_connections) {
        out.push(max_connections_high(facts, max));
    }
}

fn severity(limits: &Thresholds, share: f64) -> Option<Severity> {
    match share {
        s if s >= limits.limit_critical => Some(Severity::Critical),
        s if s >= limits.limit_warning => Some(Severity::Warning),
        _ => None,
    }
}

const NO_TIME: &str = "a full server costs no time, it refuses (SQLSTATE 53300)";

fn server_limit(facts: &Facts, limits: &Thresholds, used: usize, capacity: f64) -> Option<Finding> {
    let share = used as f64 / capacity;
    let severity = severity(limits, share)?;
    let what = format!(
        "{used} of the {} connections that applications may use are open ({}).",
        count(capacity),
        percent(share)
    );
    let value = |name| facts.settings.text(name).unwrap_or("0").to_owned();
    let finding = Finding::new(Id::ConnectionLimitNear, severity, what)
        .evidence("open connections", used.to_string(), "pg_stat_activity, without this examination's own")
        .evidence("max_connections", value("max_connections"), "pg_settings")
        .evidence(
            "kept for others",
            format!(
                "{} for superusers, {} for pg_use_reserved_connections",
                value("superuser_reserved_connections"),
                value("reserved_connections")
            ),
            "pg_settings",
        )
        .cost(Cost::unknown(NO_TIME))
        .cure(CureKind::Command, "pgusher serve CONNINFO: many clients on few connections")
        .cure(CureKind::Restart, format!("max_connections = {}", count_up(capacity)));
    Some(finding)
}

/// A limit half as large again, rounded up to tens.
fn count_up(capacity: f64) -> u64 {
    ((capacity * 1.5 / 10.0).ceil() * 10.0) as u64
}

fn own_limit(limits: &Thresholds, id: Id, kind: &str, name: &str, used: usize, limit: f64) -> Option<Finding> {
    let share = used as f64 / limit;
    let severity = severity(limits, share)?;
    let what =
        format!("The {kind} \"{name}\" uses {used} of its own {} connections ({}).", count(limit), percent(share));
    let source = if kind == "role" { "pg_roles: rolconnlimit" } else { "pg_database: datconnlimit" };
    let finding = Finding::new(id, severity, what)
        .evidence("open connections", used.to_string(), "pg_stat_activity, without this examination's own")
        .evidence("limit", count(limit), source)
        .cost(Cost::unknown(NO_TIME))
        .cure(
            CureKind::Sql,
            format!(
                "ALTER {} \"{}\" CONNECTION LIMIT {}",
                kind.to_uppercase(),
                name.replace('"', "\"\""),
                count_up(limit)
            ),
        )
        .cure(CureKind::Command, "pgusher serve CONNINFO: many clients on few connections");
    Some(finding)
}

fn many_connections(used: usize) -> Finding {
    let what = format!("{} connections are open: each new one costs more than the one before.", count(used as f64));
    Finding::new(Id::ManyConnections, Severity::Warning, what)
        .evidence("open connections", count(used as f64), "pg_stat_activity")
        .cost(Cost::unknown("the growth shows only when many connect; pgusher bench storm measures it"))
        .cure(CureKind::Command, "pgusher serve CONNINFO: many clients on few connections")
}

fn max_connections_high(facts: &Facts, max: f64) -> Finding {
    let used = facts.sessions.as_ref().map(|s| format!("{} in use", count(s.len() as f64)));
    let what = format!("max_connections is {}: the server has no other brake on work at the same time.", count(max));
    let mut finding = Finding::new(Id::MaxConnectionsHigh, Severity::Notice, what)
        .evidence("max_connections", count(max), "pg_settings")
        .cost(Cost::unknown(
            "shared memory for each possible connection, and what they do to each other once they are open",
        ));
    if let Some(used) = used {
        finding = finding.evidence("of these", used, "pg_stat_activity");
    }
    finding.cure(CureKind::Restart, "max_connections = 300, with a connection manager in front (pgusher serve)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::sessions::Session;
    use crate::doctor::settings::Settings;

    fn found(sessions: usize, settings: &[(&str, &str)], own: Limits) -> Vec<(Id, Severity)> {
        let session = Session { user: "app".to_owned(), database: "shop".to_owned(), ..Session::default() };
        let facts = Facts {
            sessions: Some(vec![session; sessions]),
            settings: Settings::of(settings),
            limits: Some(own),
            ..Facts::default()
        };
        let mut out = Vec::new();
        judge(&facts, &Thresholds::default(), &mut out);
        out.into_iter().map(|f| (f.id, f.severity)).collect()
    }

    #[test]
    fn the_reserved_ones_do_not_count_as_room() {
        let old = [("max_connections", "103"), ("superuser_reserved_connections", "3")];
        assert_eq!(found(79, &old, Limits::default()), []);
        assert_eq!(found(80, &old, Limits::default()), [(Id::ConnectionLimitNear, Severity::Warning)]);
        assert_eq!(found(94, &old, Limits::default()), [(Id::ConnectionLimitNear, Severity::Warning)]);
        assert_eq!(found(95, &old, Limits::default()), [(Id::ConnectionLimitNear, Severity::Critical)]);
        // From 16 on there are two kinds of them.
        let new = [("max_connections", "113"), ("superuser_reserved_connections", "3"), ("reserved_connections", "10")];
        assert_eq!(found(79, &new, Limits::default()), []);
        assert_eq!(found(80, &new, Limits::default()), [(Id::ConnectionLimitNear, Severity::Warning)]);
    }

    #[test]
    fn roles_and_databases_have_limits_of_their_own() {
        let settings = [("max_connections", "500"), ("superuser_reserved_connections", "3")];
        let own = |limit| Limits {
            roles: vec![("app".to_owned(), limit), ("other".to_owned(), 1.0)],
            databases: vec![("shop".to_owned(), 2.0 * limit)],
        };
        assert_eq!(found(7, &settings, own(10.0)), []);
        assert_eq!(found(8, &settings, own(10.0)), [(Id::RoleLimitNear, Severity::Warning)]);
        let both = [(Id::RoleLimitNear, Severity::Critical), (Id::DatabaseLimitNear, Severity::Critical)];
        assert_eq!(found(20, &settings, own(10.0)), both);
    }

    #[test]
    fn unsound_limits() {
        let none = [("max_connections", "1000"), ("superuser_reserved_connections", "0")];
        assert_eq!(found(0, &none, Limits::default()), [(Id::NoReservedConnections, Severity::Warning)]);
        let high = [("max_connections", "1001"), ("superuser_reserved_connections", "3")];
        assert_eq!(found(0, &high, Limits::default()), [(Id::MaxConnectionsHigh, Severity::Notice)]);
        let open = [("max_connections", "5000"), ("superuser_reserved_connections", "3")];
        let expected = [(Id::ManyConnections, Severity::Warning), (Id::MaxConnectionsHigh, Severity::Notice)];
        assert_eq!(found(1000, &open, Limits::default()), expected);
        assert_eq!(found(999, &open, Limits::default()), expected[1..]);
    }
}
