//! Findings that are settings of the server, and what they cost.

use pgusher_embedded::{Auth, Server};
use pgusher_measure::doctor::{CureKind, Id, Severity};

use crate::{evidence, examine, found, look, measured, options, sound, start};

#[test]
fn settings_that_cost_or_endanger() {
    let server = start(
        sound()
            .max_connections(1200)
            .setting("superuser_reserved_connections", "0")
            .setting("autovacuum", "off")
            .setting("log_hostname", "on")
            .setting("password_encryption", "md5")
            .setting("pg_stat_statements.track_planning", "off")
            .setting("session_preload_libraries", "auto_explain")
            .setting("huge_pages", "off")
            .shared_buffers("1GB"),
    );
    server.psql("postgres", "create role old login password 'x'").expect("a role");
    let diagnosis = look(&server, &options());

    let none = found(&diagnosis, Id::NoReservedConnections);
    assert_eq!(none.cures[0].text, "superuser_reserved_connections = 3");
    assert_eq!(none.cures[0].kind, CureKind::Restart);
    assert_eq!(evidence(found(&diagnosis, Id::MaxConnectionsHigh), "max_connections"), "1,200");
    assert_eq!(found(&diagnosis, Id::AutovacuumOff).severity, Severity::Warning);
    let hostname = found(&diagnosis, Id::LogHostname);
    assert!(measured(hostname) > 10.0, "queue+fork over TCP: {hostname:?}");
    let md5 = found(&diagnosis, Id::Md5Passwords);
    assert_eq!((md5.severity, evidence(md5, "roles with an MD5 hash")), (Severity::Warning, "1"));
    found(&diagnosis, Id::TrackPlanningOff);
    let libraries = found(&diagnosis, Id::PreloadLibraries);
    assert_eq!(evidence(libraries, "session_preload_libraries"), "auto_explain");
    assert!(measured(libraries) >= 0.0);
    let pages = found(&diagnosis, Id::HugePagesOff);
    assert_eq!(evidence(pages, "shared_buffers"), "1,024 MiB");
    assert!(evidence(pages, "page faults of a new backend").ends_with("(median)"), "{pages:?}");

    // The worst come first.
    let order: Vec<Severity> = diagnosis.findings.iter().map(|f| f.severity).collect();
    assert!(order.windows(2).all(|pair| pair[0] >= pair[1]), "{order:?}");
}

#[test]
fn md5_and_scram_logins() {
    let server = start(sound().auth(Auth::Md5).password("right"));
    let diagnosis = examine(&format!("{} password=right", server.conninfo("postgres", "postgres")), &options());
    assert_eq!(evidence(found(&diagnosis, Id::Md5Passwords), "our own login"), "md5");

    let server = start(sound().auth(Auth::Scram).password("right"));
    let login = |user: &str| format!("{} password=right", server.conninfo("postgres", user));
    let usual = examine(&login("postgres"), &options());
    let computing = |d: &pgusher_measure::doctor::Diagnosis| {
        d.measurements.iter().find(|m| m.name == "client crypto").expect("SCRAM").min_us
    };
    assert!(usual.findings.iter().all(|f| f.id != Id::Md5Passwords));

    let salt = [7; 16];
    let password = pgusher_auth::Password::new(b"right");
    let verifier = pgusher_auth::Verifier::from_password(&password, &salt, 90_000).expect("a verifier");
    let sql = format!("create role slow login superuser password '{}'", verifier.to_text().as_str());
    server.psql("postgres", &sql).expect("a role");
    let slow = examine(&login("slow"), &options());
    let finding = found(&slow, Id::ScramIterations);
    assert!(measured(finding) > 5_000.0, "{finding:?}");
    // 22 times the iterations.
    assert!(computing(&slow) > 4.0 * computing(&usual));
}

#[test]
fn a_slow_start_of_backends() {
    let server = start(sound().setting("post_auth_delay", "1"));
    let options = pgusher_measure::doctor::Options { connections: 4, ..options() };
    let diagnosis = look(&server, &options);
    let finding = found(&diagnosis, Id::SlowBackendStart);
    assert_eq!(finding.severity, Severity::Critical);
    assert!(measured(finding) >= 1e6, "{finding:?}");
}

#[test]
fn a_trigger_at_each_login() {
    let server = start(sound());
    if server.version().major < 17 {
        eprintln!("login event triggers need PostgreSQL 17; this is {}", server.version());
        return;
    }
    let sql = "create function public.audit() returns event_trigger language plpgsql \
        as $$ begin perform pg_sleep(0.05); end $$; \
        create event trigger at_login on login execute function public.audit(); \
        alter event trigger at_login enable always";
    server.psql("postgres", sql).expect("a trigger");
    let diagnosis = look(&server, &options());
    let finding = found(&diagnosis, Id::LoginEventTrigger);
    assert_eq!((finding.severity, evidence(finding, "triggers")), (Severity::Warning, "at_login"));
    assert!(measured(finding) > 30_000.0, "{finding:?}");
}

#[test]
fn statistics_that_are_missing() {
    let server = Server::builder().start().expect("a server");
    let diagnosis = look(&server, &options());
    let finding = found(&diagnosis, Id::StatementStatisticsMissing);
    assert_eq!(evidence(finding, "pg_stat_statements"), "the extension is not in this database");
    assert_eq!(finding.severity, Severity::Notice);
    server.psql("postgres", "create extension pg_stat_statements").expect("the extension without its library");
    let diagnosis = look(&server, &options());
    let finding = found(&diagnosis, Id::StatementStatisticsMissing);
    assert_eq!(evidence(finding, "pg_stat_statements"), "its library is not in shared_preload_libraries");
}
