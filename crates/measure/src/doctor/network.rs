//! What lies between the client and the server's own work: name look-ups on both sides, addresses that do not answer,
//! round trips; and connections that were refused.

use pgusher_client::Phase;

use super::facts::Facts;
use super::id::Id;
use super::model::{Cost, CureKind, Finding, Per, Severity};
use super::place::Transport;
use super::probes::Probes;
use super::thresholds::Thresholds;
use crate::stats::{count, micros, percent};

/// All of it.
pub(super) fn judge(facts: &Facts, limits: &Thresholds, out: &mut Vec<Finding>) {
    out.extend(refused(facts));
    out.extend(log_hostname(facts));
    out.extend(slow_lookup(facts, limits));
    out.extend(wasted(facts));
    out.extend(round_trips(facts, limits));
}

/// SQLSTATE of "too many connections", for the server, a database or a role.
const TOO_MANY: &str = "53300";

fn refused(facts: &Facts) -> Option<Finding> {
    let (code, words) = facts.probes.refused.iter().find(|(code, _)| code == TOO_MANY)?;
    let what = "A connection was refused while others were open: there is no slot left for this role.";
    let finding = Finding::new(Id::ConnectionsRefused, Severity::Critical, what)
        .evidence("the server's words", words, format!("SQLSTATE {code}, while measuring"))
        .evidence("succeeded before", facts.probes.done.len().to_string(), "measured")
        .cost(Cost::unknown("a refused connection costs the application its work, not time"))
        .cure(CureKind::Command, "pgusher serve CONNINFO: many clients on few connections")
        .cure(
            CureKind::Habit,
            "raise the limit that the message names: max_connections, or CONNECTION LIMIT of the role or database",
        );
    Some(finding)
}

fn log_hostname(facts: &Facts) -> Option<Finding> {
    if !facts.settings.is_on("log_hostname") {
        return None;
    }
    let what = "log_hostname is on: each new backend asks the DNS for the client's name before it does anything else.";
    let queue = facts.probes.phase(Phase::QueueFork);
    let over_tcp = facts.place.is_direct() && facts.place.transport != Transport::Unix;
    let cost = match queue {
        Some(queue) if over_tcp => Cost::measured(
            Per::Connection,
            queue.median,
            format!("at most: phase queue+fork, in which the look-up is, {}", Probes::how(&queue)),
        ),
        _ => {
            Cost::unknown("connections over a Unix socket are not looked up; measure over TCP from a client's machine")
        }
    };
    // A tenth of a second for nothing but a line in the log.
    let slow = cost.us().is_some_and(|us| us >= 100_000.0);
    let severity = if slow { Severity::Critical } else { Severity::Warning };
    let finding = Finding::new(Id::LogHostname, severity, what)
        .evidence("log_hostname", "on", "pg_settings")
        .cost(cost)
        .cure(CureKind::Reload, "log_hostname = off   (the log keeps the address)");
    Some(finding)
}

fn slow_lookup(facts: &Facts, limits: &Thresholds) -> Option<Finding> {
    let time = facts.probes.phase(Phase::Resolve)?;
    if time.median < limits.name_lookup_us {
        return None;
    }
    let severity = if time.median >= 10.0 * limits.name_lookup_us { Severity::Warning } else { Severity::Notice };
    let what = format!("This client's own look-up of the server's name takes {}.", micros(time.median));
    let finding = Finding::new(Id::SlowNameLookup, severity, what)
        .evidence("name look-up", format!("{} (most {})", micros(time.median), micros(time.max)), "measured, phase resolve")
        .evidence("look-ups", time.n.to_string(), "measured")
        .cost(Cost::measured(Per::Connection, time.median, Probes::how(&time)))
        .cure(CureKind::Habit, "a caching resolver on the client's machine, a shorter search list in resolv.conf, or hostaddr= in the connection string");
    Some(finding)
}

fn wasted(facts: &Facts) -> Option<Finding> {
    let list = &facts.probes.wasted;
    let first = list.first()?;
    let lost: f64 = list.iter().map(|w| w.us).sum();
    let severity = if lost >= 100_000.0 { Severity::Critical } else { Severity::Warning };
    let what = format!("{} failed before each connection that succeeded.", attempts(list.len()));
    let mut finding = Finding::new(Id::AttemptsWasted, severity, what);
    for wasted in list.iter().take(3) {
        finding = finding.evidence(
            &wasted.target,
            format!("{} lost: {}", micros(wasted.us), wasted.error),
            "measured, attempts of one connection",
        );
    }
    let advice = if first.error.contains("TLS") || first.error.contains("encryption") {
        "say what the server wants: sslmode=disable or sslmode=require in the connection string"
    } else {
        "take the address that does not answer out of the connection string or the DNS, or put it last"
    };
    let cost = Cost::measured(Per::Connection, lost, "sum of the failed attempts of one connection");
    Some(finding.cost(cost).cure(CureKind::Habit, advice))
}

fn attempts(n: usize) -> String {
    if n == 1 { "One attempt".to_owned() } else { format!("{n} attempts") }
}

fn round_trips(facts: &Facts, limits: &Thresholds) -> Option<Finding> {
    let (trip, whole) = (facts.probes.round_trip()?, facts.probes.connection()?);
    let network = trip.median * facts.probes.crossings();
    let share = network / whole.median;
    if trip.median < limits.round_trip_us || share < 0.5 {
        return None;
    }
    let crossings = count(facts.probes.crossings());
    let what = format!(
        "The network is most of a connection: {crossings} round trips of {} are {} of it.",
        micros(trip.median),
        percent(share.min(1.0))
    );
    let mut finding = Finding::new(Id::NetworkRoundTrips, Severity::Notice, what)
        .evidence("round trip", micros(trip.median), format!("measured, median of {} empty statements", trip.n))
        .evidence("connection", micros(whole.median), format!("measured, {}", Probes::how(&whole)))
        .cost(Cost::measured(Per::Connection, network, "round trips x their number"));
    if facts.place.tls.is_some() && facts.place.is_at_least(17) {
        finding =
            finding.cure(CureKind::Habit, "sslnegotiation=direct in the connection string saves one (17 and later)");
    }
    Some(
        finding
            .cure(CureKind::Command, "pgusher serve CONNINFO near the clients: they connect to it, it stays connected"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::place::Place;
    use crate::doctor::probes::{Probe, Wasted};
    use crate::doctor::settings::Settings;

    fn found(facts: Facts) -> Vec<(Id, Severity)> {
        let mut out = Vec::new();
        judge(&facts, &Thresholds::default(), &mut out);
        out.into_iter().map(|f| (f.id, f.severity)).collect()
    }

    fn probes(phases: &[(Phase, f64)], total_us: f64) -> Probes {
        let probe = Probe { total_us, phases: phases.to_vec(), faults: None };
        Probes { done: vec![probe; 5], ..Probes::default() }
    }

    #[test]
    fn our_own_look_up() {
        let with = |us| found(Facts { probes: probes(&[(Phase::Resolve, us)], 1e6), ..Facts::default() });
        assert_eq!(with(4_999.0), []);
        assert_eq!(with(5_000.0), [(Id::SlowNameLookup, Severity::Notice)]);
        assert_eq!(with(50_000.0), [(Id::SlowNameLookup, Severity::Warning)]);
    }

    #[test]
    fn the_servers_look_up_is_within_queue_and_fork() {
        let with = |us, transport| {
            found(Facts {
                settings: Settings::of(&[("log_hostname", "on")]),
                place: Place { transport, ..Place::default() },
                probes: probes(&[(Phase::QueueFork, us)], 1e6),
                ..Facts::default()
            })
        };
        assert_eq!(with(500.0, Transport::Network), [(Id::LogHostname, Severity::Warning)]);
        assert_eq!(with(100_000.0, Transport::Network), [(Id::LogHostname, Severity::Critical)]);
        assert_eq!(with(100_000.0, Transport::Unix), [(Id::LogHostname, Severity::Warning)], "not looked up there");
    }

    #[test]
    fn a_dead_address_costs_every_connection() {
        let with = |us| {
            let wasted = vec![Wasted { target: "a:1".to_owned(), us, error: "refused".to_owned() }];
            found(Facts { probes: Probes { wasted, ..Probes::default() }, ..Facts::default() })
        };
        assert_eq!(with(300.0), [(Id::AttemptsWasted, Severity::Warning)]);
        assert_eq!(with(100_000.0), [(Id::AttemptsWasted, Severity::Critical)]);
    }

    #[test]
    fn round_trips_count_if_they_are_long_and_most_of_it() {
        let with = |trip: f64, total| {
            let phases = [(Phase::Connect, 1.0), (Phase::Startup, 1.0), (Phase::Ready, 500.0)];
            let probes = Probes { round_trips: vec![trip; 3], ..probes(&phases, total) };
            found(Facts { probes, ..Facts::default() })
        };
        assert_eq!(with(1_999.0, 6_000.0), []);
        assert_eq!(with(2_000.0, 12_000.0), [(Id::NetworkRoundTrips, Severity::Notice)]);
        assert_eq!(with(2_000.0, 12_001.0), []);
    }

    #[test]
    fn only_a_missing_slot_is_a_refusal() {
        let with = |code: &str| {
            let refused = vec![(code.to_owned(), "words".to_owned())];
            found(Facts { probes: Probes { refused, ..Probes::default() }, ..Facts::default() })
        };
        assert_eq!(with("53300"), [(Id::ConnectionsRefused, Severity::Critical)]);
        assert_eq!(with("57P03"), []);
    }
}
