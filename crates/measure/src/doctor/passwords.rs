//! Passwords: MD5, and how much a SCRAM login makes the client compute.

use pgusher_client::Phase;

use super::facts::Facts;
use super::id::Id;
use super::look::Look;
use super::model::{Cost, CureKind, Finding, Per, Severity};
use super::place::Place;
use super::probes::Probes;
use super::thresholds::Thresholds;
use crate::stats::{count, micros};

/// What is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Passwords {
    /// Roles that can log in and have an MD5 hash; unknown without the right to read them.
    pub(super) md5_roles: Option<f64>,
}

impl Passwords {
    /// Counts MD5 hashes where we may. That ordinary roles may not is right, and no examination is missed by it.
    pub(super) fn look(look: &mut Look, place: &Place) -> Self {
        if !place.superuser {
            return Self::default();
        }
        let sql = "select count(*) from pg_authid where rolcanlogin and rolpassword like 'md5%'";
        let answer = look.ask("stored passwords", sql, &[], "");
        if answer.is_some() {
            look.done("stored passwords");
        }
        Self { md5_roles: answer.and_then(|answer| answer.number(0, 0)) }
    }
}

/// Iterations that PostgreSQL uses unless told otherwise (RFC 7677 asks for at least as many).
const USUAL_ITERATIONS: f64 = 4096.0;

/// MD5, and slow SCRAM.
pub(super) fn judge(facts: &Facts, limits: &Thresholds, out: &mut Vec<Finding>) {
    out.extend(md5(facts));
    out.extend(scram(facts, limits));
}

fn md5(facts: &Facts) -> Option<Finding> {
    let stored = facts.passwords.md5_roles.unwrap_or(0.0);
    let proven = facts.place.auth == "md5";
    let setting = facts.settings.text("password_encryption").is_some_and(|value| value != "scram-sha-256");
    if stored == 0.0 && !proven && !setting {
        return None;
    }
    let severity = if stored > 0.0 || proven { Severity::Warning } else { Severity::Notice };
    let what = "Passwords use MD5: a stolen hash is as good as the password, and PostgreSQL is about to drop it.";
    let mut finding = Finding::new(Id::Md5Passwords, severity, what)
        .evidence("password_encryption", facts.settings.text("password_encryption").unwrap_or("unknown"), "pg_settings")
        .evidence("our own login", &facts.place.auth, "the server's request");
    if facts.passwords.md5_roles.is_some() {
        finding = finding.evidence("roles with an MD5 hash", count(stored), "pg_authid");
    }
    let finding = finding
        .cost(Cost::unknown("it is not a matter of time: SCRAM costs the client about 1 ms more per login"))
        .cure(CureKind::Reload, "password_encryption = 'scram-sha-256'")
        .cure(CureKind::Habit, "then set each password again (\\password in psql), and scram-sha-256 in pg_hba.conf");
    Some(finding)
}

fn scram(facts: &Facts, limits: &Thresholds) -> Option<Finding> {
    let iterations = facts.settings.number("scram_iterations");
    let crypto = facts.probes.phase(Phase::ClientCrypto).filter(|_| facts.place.auth.starts_with("scram"));
    let slow = crypto.as_ref().is_some_and(|crypto| crypto.median >= limits.scram_us);
    let high = iterations.is_some_and(|n| n > 4.0 * USUAL_ITERATIONS);
    if !slow && !high {
        return None;
    }
    let severe = crypto.as_ref().is_some_and(|crypto| crypto.median >= 10.0 * limits.scram_us);
    let severity = if severe { Severity::Warning } else { Severity::Notice };
    let what = "SCRAM with many iterations: each login of each client computes for it.";
    let mut finding = Finding::new(Id::ScramIterations, severity, what);
    if let Some(n) = iterations {
        let source = "pg_settings, for passwords set from now on";
        finding =
            finding.evidence("scram_iterations", format!("{} (usual: {})", count(n), count(USUAL_ITERATIONS)), source);
    }
    finding = match crypto {
        Some(crypto) => finding
            .evidence("computing of this client", micros(crypto.median), "measured, phase client crypto")
            .cost(Cost::measured(
                Per::Connection,
                crypto.median,
                format!("phase client crypto, {}", Probes::how(&crypto)),
            )),
        None => finding.cost(Cost::unknown("this login used no SCRAM")),
    };
    if iterations.is_some() {
        finding = finding.cure(CureKind::Reload, "scram_iterations = 4096   (then set the passwords again)");
    }
    Some(
        finding
            .cure(CureKind::Habit, "long random passwords need no more iterations; set the role's password again")
            .cure(
                CureKind::Habit,
                "keep connections, or give programs that connect often scram_client_key and scram_server_key (18)",
            ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::place::Place;
    use crate::doctor::probes::Probe;
    use crate::doctor::settings::Settings;

    fn found(auth: &str, settings: &[(&str, &str)], md5_roles: Option<f64>, crypto: f64) -> Vec<(Id, Severity)> {
        let probe = Probe { phases: vec![(Phase::ClientCrypto, crypto)], ..Probe::default() };
        let facts = Facts {
            place: Place { auth: auth.to_owned(), ..Place::default() },
            settings: Settings::of(settings),
            passwords: Passwords { md5_roles },
            probes: Probes { done: vec![probe], ..Probes::default() },
            ..Facts::default()
        };
        let mut out = Vec::new();
        judge(&facts, &Thresholds::default(), &mut out);
        out.into_iter().map(|f| (f.id, f.severity)).collect()
    }

    #[test]
    fn md5_in_use_is_worse_than_md5_as_a_setting() {
        let (scram, md5) = ([("password_encryption", "scram-sha-256")], [("password_encryption", "md5")]);
        assert_eq!(found("trust", &scram, Some(0.0), 0.0), []);
        assert_eq!(found("trust", &[], None, 0.0), [], "nothing is known");
        assert_eq!(found("trust", &md5, None, 0.0), [(Id::Md5Passwords, Severity::Notice)], "the default before 14");
        assert_eq!(found("md5", &scram, None, 0.0), [(Id::Md5Passwords, Severity::Warning)]);
        assert_eq!(found("trust", &scram, Some(1.0), 0.0), [(Id::Md5Passwords, Severity::Warning)]);
    }

    #[test]
    fn iterations_by_setting_or_by_time() {
        let many = |n: &'static str| [("scram_iterations", n)];
        assert_eq!(found("trust", &many("16384"), None, 0.0), []);
        assert_eq!(found("trust", &many("16385"), None, 0.0), [(Id::ScramIterations, Severity::Notice)]);
        assert_eq!(found("scram-sha-256", &[], None, 4_999.0), []);
        assert_eq!(found("scram-sha-256", &[], None, 5_000.0), [(Id::ScramIterations, Severity::Notice)]);
        assert_eq!(found("scram-sha-256-plus", &[], None, 50_000.0), [(Id::ScramIterations, Severity::Warning)]);
        assert_eq!(found("password", &[], None, 50_000.0), [], "that is no SCRAM");
    }
}
