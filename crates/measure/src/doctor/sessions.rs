//! Who is connected and what they do: clients that idle, transactions that idle, and many connections of which few work.

use std::collections::BTreeMap;

use super::facts::Facts;
use super::id::Id;
use super::look::{APPLICATION, Look, MONITOR};
use super::model::{Cost, CureKind, Finding, Severity};
use super::place::{Through, Transport};
use super::thresholds::Thresholds;
use crate::stats::{percent, seconds};

/// One client's session, without ours.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Session {
    pub(super) pid: u32,
    pub(super) database: String,
    pub(super) user: String,
    pub(super) application: String,
    /// `None` is a Unix socket, or hidden from us.
    pub(super) address: Option<String>,
    /// `active`, `idle`, ...; `None` if hidden from us.
    pub(super) state: Option<String>,
    /// For how long it has been in that state, seconds.
    pub(super) state_for: f64,
    /// When it began, seconds since 1970 on the server's clock.
    pub(super) started: f64,
    pub(super) tls: bool,
}

impl Session {
    fn is_idle(&self) -> bool {
        self.state.as_deref() == Some("idle")
    }

    fn idles_in_transaction(&self) -> bool {
        self.state.as_deref().is_some_and(|state| state.starts_with("idle in transaction"))
    }
}

/// All sessions of clients; none, with a note, if that was refused.
pub(super) fn look(look: &mut Look) -> Option<Vec<Session>> {
    // An ordinary role sees of others' sessions only that they are there.
    let sql = "select a.pid, a.datname, a.usename, a.application_name, host(a.client_addr), a.state, \
        extract(epoch from clock_timestamp() - a.state_change), extract(epoch from a.backend_start), s.ssl, \
        a.backend_type is null \
        from pg_stat_activity a left join pg_stat_ssl s using (pid) \
        where (a.backend_type = 'client backend' or (a.backend_type is null and a.datid is not null)) \
        and a.pid <> pg_backend_pid() and a.application_name is distinct from $1 limit 20000";
    let answer = look.ask("sessions", sql, &[Some(APPLICATION)], MONITOR)?;
    let rows = 0..answer.len();
    let hidden = rows.clone().filter(|row| answer.is_true(*row, 9)).count();
    if hidden > 0 {
        let reason =
            format!("{hidden} of {} sessions belong to roles whose sessions this role may not see", answer.len());
        look.skip("what other roles' sessions do", &reason, MONITOR);
    }
    let text = |row, column| answer.text(row, column).unwrap_or_default();
    let sessions: Vec<Session> = rows
        .map(|row| Session {
            pid: text(row, 0).parse().unwrap_or_default(),
            database: text(row, 1),
            user: text(row, 2),
            application: text(row, 3),
            address: answer.text(row, 4),
            state: answer.text(row, 5),
            state_for: answer.number(row, 6).unwrap_or_default(),
            started: answer.number(row, 7).unwrap_or_default(),
            tls: answer.is_true(row, 8),
        })
        .collect();
    look.done("sessions");
    Some(sessions)
}

/// Clients and transactions that idle; the case for a manager.
pub(super) fn judge(facts: &Facts, limits: &Thresholds, out: &mut Vec<Finding>) {
    let Some(sessions) = &facts.sessions else { return };
    out.extend(idle_clients(facts, limits, sessions));
    out.extend(idle_in_transaction(limits, sessions));
    out.extend(no_pooler(facts, limits, sessions));
}

fn idle_clients(facts: &Facts, limits: &Thresholds, sessions: &[Session]) -> Option<Finding> {
    let after = limits.idle_after.as_secs_f64();
    let idle: Vec<&Session> = sessions.iter().filter(|s| s.is_idle() && s.state_for >= after).collect();
    let room = facts.settings.number("max_connections").unwrap_or(f64::INFINITY);
    let share = idle.len() as f64 / room;
    if idle.len() < limits.idle_clients {
        return None;
    }
    let severity = if share >= 0.5 { Severity::Warning } else { Severity::Notice };
    let what = format!("{} clients have been idle for more than {}.", idle.len(), minutes(after));
    let mut finding = Finding::new(Id::IdleClients, severity, what)
        .evidence("idle clients", idle.len().to_string(), "pg_stat_activity: state, state_change")
        .evidence("share of max_connections", percent(share), "pg_settings");
    if let Some((group, n)) = largest_group(&idle) {
        finding = finding.evidence("most of them", format!("{n} of {group}"), "pg_stat_activity");
    }
    let timeout = facts.settings.text("idle_session_timeout");
    finding = finding.cost(Cost::unknown(
        "an idle client costs memory and a slot, not time; each keeps its own caches, usually 2 to 10 MB",
    ));
    if timeout == Some("0") {
        finding = finding.evidence("idle_session_timeout", "0 (off)", "pg_settings");
    }
    finding = finding
        .cure(CureKind::Habit, "put a connection manager in front (pgusher serve): idle clients cost no backend");
    // It exists from 14 on, and ends sessions of pools as well.
    if timeout == Some("0") {
        finding = finding.cure(CureKind::Reload, "idle_session_timeout = '1h'");
    }
    Some(finding)
}

fn idle_in_transaction(limits: &Thresholds, sessions: &[Session]) -> Option<Finding> {
    let after = limits.idle_in_transaction_after.as_secs_f64();
    let idle: Vec<&Session> = sessions.iter().filter(|s| s.idles_in_transaction() && s.state_for >= after).collect();
    let oldest = idle.iter().max_by(|a, b| a.state_for.total_cmp(&b.state_for))?;
    let severity = if oldest.state_for >= 10.0 * after { Severity::Critical } else { Severity::Warning };
    let (verb, noun) = if idle.len() == 1 { ("is", "transaction") } else { ("are", "transactions") };
    let what = format!(
        "{} {noun} {verb} open and idle for more than {}: vacuum cannot remove what they might still see, catalogs bloat, locks stay.",
        idle.len(),
        minutes(after)
    );
    let finding = Finding::new(Id::IdleInTransaction, severity, what)
        .evidence("longest", seconds(oldest.state_for), "pg_stat_activity: state_change")
        .evidence(
            "whose",
            format!("pid {}, {}@{}, application \"{}\"", oldest.pid, oldest.user, oldest.database, oldest.application),
            "pg_stat_activity",
        )
        .cost(Cost::unknown("it makes others slow: what bloats meanwhile shows under catalog-bloat"))
        .cure(CureKind::Reload, "idle_in_transaction_session_timeout = '5min'")
        .cure(CureKind::Sql, format!("SELECT pg_terminate_backend({})", oldest.pid));
    Some(finding)
}

fn no_pooler(facts: &Facts, limits: &Thresholds, sessions: &[Session]) -> Option<Finding> {
    let known = sessions.iter().filter(|s| s.state.is_some()).count();
    if facts.place.through != Through::Nobody || known < limits.pooler_clients || sessions.iter().any(is_pooler) {
        return None;
    }
    let idle = sessions.iter().filter(|s| s.is_idle()).count();
    if (idle as f64) < 0.9 * known as f64 {
        return None;
    }
    let all: Vec<&Session> = sessions.iter().collect();
    let (group, n) = largest_group(&all)?;
    let what =
        format!("{known} connections are open and {} of them work: no connection manager was seen.", known - idle);
    let finding = Finding::new(Id::NoPooler, Severity::Notice, what)
        .evidence("open", known.to_string(), "pg_stat_activity")
        .evidence("idle", idle.to_string(), "pg_stat_activity: state")
        .evidence("most of them", format!("{n} of {group}"), "pg_stat_activity")
        .cost(Cost::unknown(
            "what a backend costs while it waits is memory; pgusher bench storm measures what many of them cost",
        ))
        .cure(CureKind::Command, "pgusher serve CONNINFO, and point the applications to it");
    Some(finding)
}

/// Names that connection managers give their server connections.
fn is_pooler(session: &Session) -> bool {
    let name = session.application.to_lowercase();
    ["pgbouncer", "pgusher", "odyssey", "pgpool", "supavisor", "pgcat", "pgdog", "pg_doorman"]
        .iter()
        .any(|known| name.contains(known))
}

/// The client that has most of the sessions, and how many.
fn largest_group(sessions: &[&Session]) -> Option<(String, usize)> {
    let mut groups: BTreeMap<String, usize> = BTreeMap::new();
    for s in sessions {
        let from = s.address.as_deref().unwrap_or("a Unix socket");
        *groups
            .entry(format!("{}@{} from {from}, application \"{}\"", s.user, s.database, s.application))
            .or_default() += 1;
    }
    groups.into_iter().max_by_key(|(_, n)| *n)
}

/// Sessions from other machines that are not encrypted.
pub(super) fn plain_over_network(sessions: &[Session]) -> impl Iterator<Item = &Session> {
    sessions.iter().filter(|s| !s.tls && Transport::of(s.address.as_deref()) == Transport::Network)
}

fn minutes(s: f64) -> String {
    if s < 120.0 { format!("{s:.0} s") } else { format!("{:.0} min", s / 60.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::settings::Settings;

    fn session(state: &str, state_for: f64) -> Session {
        Session { pid: 7, state: Some(state.to_owned()), state_for, ..Session::default() }
    }

    fn found(sessions: Vec<Session>, max_connections: &str) -> Vec<(Id, Severity)> {
        let facts = Facts {
            sessions: Some(sessions),
            settings: Settings::of(&[("max_connections", max_connections), ("idle_session_timeout", "0")]),
            ..Facts::default()
        };
        let mut out = Vec::new();
        judge(&facts, &Thresholds::default(), &mut out);
        out.into_iter().map(|f| (f.id, f.severity)).collect()
    }

    #[test]
    fn long_idle_clients_count_from_fifty_on_and_by_their_share() {
        assert_eq!(found(vec![session("idle", 600.0); 49], "100"), []);
        assert_eq!(found(vec![session("idle", 599.0); 50], "100"), []);
        assert_eq!(found(vec![session("idle", 600.0); 50], "101"), [(Id::IdleClients, Severity::Notice)]);
        assert_eq!(found(vec![session("idle", 600.0); 50], "100"), [(Id::IdleClients, Severity::Warning)]);
        assert_eq!(found(vec![session("active", 600.0); 80], "100"), []);
    }

    #[test]
    fn a_transaction_left_open_is_a_warning_and_then_critical() {
        assert_eq!(found(vec![session("idle in transaction", 299.0)], "100"), []);
        assert_eq!(
            found(vec![session("idle in transaction", 300.0)], "100"),
            [(Id::IdleInTransaction, Severity::Warning)]
        );
        let aborted = session("idle in transaction (aborted)", 3000.0);
        assert_eq!(found(vec![aborted], "100"), [(Id::IdleInTransaction, Severity::Critical)]);
    }

    #[test]
    fn many_idle_connections_call_for_a_manager_unless_there_is_one() {
        let mut many = vec![session("idle", 1.0); 90];
        many.extend(vec![session("active", 1.0); 10]);
        assert_eq!(found(many.clone(), "300"), [(Id::NoPooler, Severity::Notice)]);
        many.push(session("active", 1.0));
        many.push(session("active", 1.0));
        assert_eq!(found(many.clone(), "300"), [], "more than a tenth work");
        let mut pooled = vec![session("idle", 1.0); 100];
        assert_eq!(found(pooled[1..].to_vec(), "300"), []);
        pooled[0].application = "PgBouncer".to_owned();
        assert_eq!(found(pooled, "300"), []);
    }

    #[test]
    fn hidden_states_are_not_taken_for_idle() {
        assert_eq!(found(vec![Session::default(); 200], "300"), []);
    }
}
