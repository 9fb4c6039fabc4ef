//! TLS: what a handshake costs where connections are short, and connections over the network that have none.
//!
//! PostgreSQL resumes no TLS session: it gives no tickets and keeps no session cache (be-secure-openssl.c), so every
//! connection pays the full handshake. It is the phase `tls` of an encrypted connection; no plain one is opened to compare
//! with, for that could show a password to the network.

use pgusher_client::Phase;

use super::facts::Facts;
use super::id::Id;
use super::model::{Cost, CureKind, Finding, Per, Severity};
use super::place::Transport;
use super::probes::Probes;
use super::rate::short_per_second;
use super::sessions::plain_over_network;
use super::thresholds::Thresholds;
use crate::stats::{count, percent};

/// Handshakes without end, and no encryption.
pub(super) fn judge(facts: &Facts, limits: &Thresholds, out: &mut Vec<Finding>) {
    out.extend(handshakes(facts, limits));
    out.extend(plain(facts));
}

fn handshakes(facts: &Facts, limits: &Thresholds) -> Option<Finding> {
    let rate = short_per_second(facts, limits).filter(|rate| *rate >= limits.rate_notice)?;
    let others = facts.sessions.iter().flatten().filter(|s| s.tls).count();
    if facts.place.tls.is_none() && others == 0 {
        return None;
    }
    let severity = if rate >= limits.rate_warning { Severity::Warning } else { Severity::Notice };
    let what = format!(
        "Up to {} connections per second do a full TLS handshake: PostgreSQL does not resume TLS sessions.",
        count(rate)
    );
    let mut finding = Finding::new(Id::TlsWithoutResumption, severity, what)
        .evidence("connections per second", count(rate), "pg_stat_database: sessions, two looks")
        .evidence("encrypted sessions now", others.to_string(), "pg_stat_ssl, without this examination's own");
    finding = match (facts.probes.phase(Phase::Tls), facts.probes.connection()) {
        (Some(tls), Some(whole)) => finding
            .evidence("share of a connection", percent(tls.median / whole.median), "measured, phase tls")
            .cost(Cost::measured(Per::Connection, tls.median, format!("phase tls, {}", Probes::how(&tls)))),
        _ => finding
            .cost(Cost::unknown("this connection is not encrypted; give a connection string with sslmode=require")),
    };
    Some(
        finding
            .cure(CureKind::Habit, "keep connections: a pool in the application")
            .cure(CureKind::Command, "pgusher serve CONNINFO: it resumes its clients' TLS sessions and keeps its own"),
    )
}

fn plain(facts: &Facts) -> Option<Finding> {
    let own = facts.place.transport == Transport::Network && facts.place.is_direct() && facts.place.tls.is_none();
    let others = facts.sessions.as_ref().map_or(0, |list| plain_over_network(list).count());
    // An ordinary role sees no addresses of others; its own connection it knows.
    if !own && others == 0 {
        return None;
    }
    let what = "Connections over the network are not encrypted: passwords' proofs and data can be read and changed on the way.";
    let mut finding = Finding::new(Id::SslOff, Severity::Warning, what)
        .evidence(
            "plain sessions from other addresses",
            others.to_string(),
            "pg_stat_ssl, pg_stat_activity: client_addr",
        )
        .evidence(
            "this examination's own connection",
            if own { "plain, over the network" } else { "not one of them" },
            "measured",
        )
        .evidence("ssl", facts.settings.text("ssl").unwrap_or("unknown"), "pg_settings");
    if facts.settings.is_off("ssl") {
        finding = finding.cure(CureKind::Reload, "ssl = on   (with ssl_cert_file and ssl_key_file)");
    }
    Some(
        finding.cure(
            CureKind::Habit,
            "hostssl in place of host in pg_hba.conf; sslmode=verify-full in connection strings",
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::place::{Place, Through};
    use crate::doctor::rate::Rate;
    use crate::doctor::sessions::Session;

    fn found(facts: &Facts) -> Vec<(Id, Severity)> {
        let mut out = Vec::new();
        judge(facts, &Thresholds::default(), &mut out);
        out.into_iter().map(|f| (f.id, f.severity)).collect()
    }

    fn encrypted(rate: f64) -> Facts {
        Facts {
            place: Place { tls: Some("TLSv1.3".to_owned()), transport: Transport::Network, ..Place::default() },
            rate: Some(Rate { watched: 1.0, begun: rate, still_open: Some(0.0), ..Rate::default() }),
            ..Facts::default()
        }
    }

    #[test]
    fn handshakes_count_with_the_rate() {
        assert_eq!(found(&encrypted(0.9)), []);
        assert_eq!(found(&encrypted(1.0)), [(Id::TlsWithoutResumption, Severity::Notice)]);
        assert_eq!(found(&encrypted(10.0)), [(Id::TlsWithoutResumption, Severity::Warning)]);
    }

    #[test]
    fn plain_counts_from_other_machines_only() {
        let session = |address: &str, tls| Session { address: Some(address.to_owned()), tls, ..Session::default() };
        let with = |list: Vec<Session>| found(&Facts { sessions: Some(list), ..Facts::default() });
        assert_eq!(with(vec![session("127.0.0.1", false), session("10.0.0.1", true)]), []);
        assert_eq!(with(vec![session("10.0.0.1", false)]), [(Id::SslOff, Severity::Warning)]);
        let mut own = Facts { place: Place { transport: Transport::Network, ..Place::default() }, ..Facts::default() };
        assert_eq!(found(&own), [(Id::SslOff, Severity::Warning)]);
        own.place.through = Through::Another;
        assert_eq!(found(&own), [], "that is the manager's connection, not ours");
    }
}
