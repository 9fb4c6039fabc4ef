//! What each new backend does before its first statement, beyond what PostgreSQL itself needs: libraries that it loads,
//! triggers that run at login; and whether it takes long as a whole.

use pgusher_client::{Config, Phase};

use super::facts::Facts;
use super::id::Id;
use super::look::Look;
use super::model::{Cost, CureKind, Finding, Per, Severity};
use super::place::Place;
use super::probes::{Probes, compare};
use super::settings::Settings;
use super::thresholds::Thresholds;
use crate::stats::{Distribution, micros};

/// What was found.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct StartUp {
    /// Setting and libraries, where there are any.
    pub(super) libraries: Vec<(String, String)>,
    /// What they cost.
    pub(super) libraries_cost: Difference,
    /// Names of the login event triggers that are on.
    pub(super) triggers: Vec<String>,
    /// What they cost.
    pub(super) triggers_cost: Difference,
}

/// Connections with something and without it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum Difference {
    /// Not tried.
    #[default]
    Unknown,
    /// It cannot be switched off for a session of ours.
    Refused(String),
    /// Microseconds of each.
    Measured { with: Vec<f64>, without: Vec<f64> },
}

impl Difference {
    /// Median with it less median without it; below zero is noise.
    fn us(&self) -> Option<(f64, usize)> {
        let Self::Measured { with, without } = self else { return None };
        let (with, without) = (Distribution::of(with)?, Distribution::of(without)?);
        Some(((with.median - without.median).max(0.0), with.n as usize))
    }

    fn cost(&self) -> Cost {
        match (self.us(), self) {
            (Some((us, n)), _) => Cost::measured(
                Per::Connection,
                us,
                format!("median of {n} connections with it less median of {n} without, in alternation"),
            ),
            (None, Self::Refused(why)) => Cost::unknown(format!("a session without it was refused: {why}")),
            (None, _) => Cost::unknown("no connection was opened to compare"),
        }
    }
}

impl StartUp {
    /// Reads settings and triggers.
    pub(super) fn look(look: &mut Look, settings: &Settings, place: &Place) -> Self {
        let mut found = Self::default();
        for name in ["session_preload_libraries", "local_preload_libraries"] {
            match settings.text(name) {
                Some("") => {}
                Some(list) => found.libraries.push((name.to_owned(), list.to_owned())),
                None => look.skip(name, "this role may not see the setting", "GRANT pg_read_all_settings TO the role"),
            }
        }
        if place.is_at_least(17) {
            // event_triggers = off also switches those at login off, but then nobody has them.
            let sql = "select evtname from pg_event_trigger where evtevent = 'login' and evtenabled in ('O', 'A') \
                and current_setting('event_triggers') = 'on' order by evtname";
            if let Some(answer) = look.ask("login event triggers", sql, &[], "") {
                found.triggers = (0..answer.len()).filter_map(|row| answer.text(row, 0)).collect();
                look.done("login event triggers");
            }
        }
        found
    }

    /// Compares connections with and without; `pairs` of each kind. Returns how many were opened.
    pub(super) fn measure(&mut self, config: &Config, pairs: u32) -> u32 {
        let mut opened = 0;
        if !self.libraries.is_empty() {
            let off: Vec<String> = self.libraries.iter().map(|(name, _)| format!("-c {name}=")).collect();
            self.libraries_cost = difference(config, &off.join(" "), pairs);
            opened += 2 * pairs;
        }
        if !self.triggers.is_empty() {
            self.triggers_cost = difference(config, "-c event_triggers=off", pairs);
            opened += 2 * pairs;
        }
        opened
    }
}

fn difference(config: &Config, off: &str, pairs: u32) -> Difference {
    match compare(config, off, pairs) {
        Ok((with, without)) => Difference::Measured { with, without },
        Err(error) => Difference::Refused(error.server().map_or_else(|| error.to_string(), |s| s.message.clone())),
    }
}

/// Libraries, triggers, and the whole.
pub(super) fn judge(facts: &Facts, limits: &Thresholds, out: &mut Vec<Finding>) {
    let start_up = &facts.start_up;
    let severity = |cost: &Difference| match cost.us() {
        Some((us, _)) if us >= limits.start_up_us => Severity::Warning,
        _ => Severity::Notice,
    };
    if !start_up.libraries.is_empty() {
        let what = "Each new backend loads libraries before its first statement.";
        let mut finding = Finding::new(Id::PreloadLibraries, severity(&start_up.libraries_cost), what);
        for (name, list) in &start_up.libraries {
            finding = finding.evidence(name, list, "pg_settings, for this role in this database");
        }
        let names: Vec<&str> = start_up.libraries.iter().map(|(_, list)| list.as_str()).collect();
        out.push(
            finding
                .cost(start_up.libraries_cost.cost())
                .cure(CureKind::Restart, format!("shared_preload_libraries = '{}'   (loaded once)", names.join(",")))
                .cure(CureKind::Habit, "or only for those who need it: ALTER ROLE ... SET session_preload_libraries"),
        );
    }
    if !start_up.triggers.is_empty() {
        let what = "A trigger runs at each login before the client gets its connection.";
        out.push(
            Finding::new(Id::LoginEventTrigger, severity(&start_up.triggers_cost), what)
                .evidence("triggers", start_up.triggers.join(", "), "pg_event_trigger: evtevent = 'login'")
                .cost(start_up.triggers_cost.cost())
                .cure(CureKind::Sql, format!("ALTER EVENT TRIGGER {} DISABLE", start_up.triggers.join(", ")))
                .cure(CureKind::Habit, "write less in it; keep connections, so that logins are rare"),
        );
    }
    out.extend(slow(facts, limits));
}

fn slow(facts: &Facts, limits: &Thresholds) -> Option<Finding> {
    let time = facts.probes.server()?;
    if time.median < limits.backend_start_us {
        return None;
    }
    // More than half a second and clients with short limits give up.
    let severity = if time.median >= 10.0 * limits.backend_start_us { Severity::Critical } else { Severity::Warning };
    let what = format!("The server takes {} to make a connection ready.", micros(time.median));
    let mut finding = Finding::new(Id::SlowBackendStart, severity, what);
    for phase in [Phase::QueueFork, Phase::Startup, Phase::Authenticate, Phase::Ready] {
        if let Some(part) = facts.probes.phase(phase) {
            finding = finding.evidence(phase.name(), micros(part.median), "measured, median");
        }
    }
    let cost = Cost::measured(Per::Connection, time.median, format!("the server's phases, {}", Probes::how(&time)));
    Some(
        finding
            .cost(cost)
            .cure(CureKind::Habit, "see the other findings first; a large queue+fork is a busy postmaster or DNS, a large startup or ready is authentication (LDAP, PAM), libraries, triggers, a busy machine")
            .cure(CureKind::Command, "pgusher profile --phases -n 20 CONNINFO; with PostgreSQL 18 log_connections = setup_durations"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::probes::Probe;

    fn found(facts: Facts) -> Vec<(Id, Severity)> {
        let mut out = Vec::new();
        judge(&facts, &Thresholds::default(), &mut out);
        out.into_iter().map(|f| (f.id, f.severity)).collect()
    }

    fn measured(extra: f64) -> Difference {
        Difference::Measured { with: vec![2000.0 + extra; 3], without: vec![2000.0; 3] }
    }

    #[test]
    fn what_it_costs_decides_how_bad_it_is() {
        let libraries = |libraries_cost| {
            let libraries = vec![("session_preload_libraries".to_owned(), "auto_explain".to_owned())];
            found(Facts { start_up: StartUp { libraries, libraries_cost, ..StartUp::default() }, ..Facts::default() })
        };
        assert_eq!(libraries(measured(999.0)), [(Id::PreloadLibraries, Severity::Notice)]);
        assert_eq!(libraries(measured(1000.0)), [(Id::PreloadLibraries, Severity::Warning)]);
        assert_eq!(libraries(Difference::Refused("no".to_owned())), [(Id::PreloadLibraries, Severity::Notice)]);
        let triggers = |triggers_cost| {
            let triggers = vec!["audit".to_owned()];
            found(Facts { start_up: StartUp { triggers, triggers_cost, ..StartUp::default() }, ..Facts::default() })
        };
        assert_eq!(triggers(measured(-5.0)), [(Id::LoginEventTrigger, Severity::Notice)]);
        assert_eq!(triggers(measured(1000.0)), [(Id::LoginEventTrigger, Severity::Warning)]);
    }

    #[test]
    fn a_server_that_takes_long() {
        let with = |us| {
            let probe = Probe { phases: vec![(Phase::Startup, us), (Phase::Tls, 1e9)], ..Probe::default() };
            found(Facts { probes: Probes { done: vec![probe], ..Probes::default() }, ..Facts::default() })
        };
        assert_eq!(with(49_999.0), []);
        assert_eq!(with(50_000.0), [(Id::SlowBackendStart, Severity::Warning)]);
        assert_eq!(with(500_000.0), [(Id::SlowBackendStart, Severity::Critical)]);
    }
}
