//! Roles that may see little: what they cannot examine is said, the rest goes on.

use pgusher_measure::doctor::{self, Id};

use crate::{connect, examine, found, options, reason, sound, start};

#[test]
fn an_ordinary_role_sees_less_and_is_told_so() {
    let server = start(sound().setting("log_hostname", "on"));
    server.psql("postgres", "create role app login").expect("a role");
    let _other = connect(&server.conninfo("postgres", "postgres"));
    let diagnosis = examine(&server.conninfo("postgres", "app"), &options());
    assert_eq!(diagnosis.reached.rights, "ordinary role");
    found(&diagnosis, Id::LogHostname);
    assert!(reason(&diagnosis, "what other roles' sessions do").starts_with("1 of 1 sessions"));
    assert!(reason(&diagnosis, "pg_internal.init").contains("permission denied"));
    let file = diagnosis.not_examined.iter().find(|n| n.what == "pg_internal.init").expect("it");
    assert_eq!(file.remedy, "GRANT EXECUTE ON FUNCTION pg_catalog.pg_stat_file(text, boolean) TO \"app\"");
    assert!(diagnosis.lost.is_none());
    assert!(diagnosis.measurements.iter().any(|m| m.name == "connection"));

    // What the remedies say is enough.
    server.psql("postgres", "grant pg_monitor to app").expect("a grant");
    server.psql("postgres", &file.remedy).expect("a grant");
    let diagnosis = examine(&server.conninfo("postgres", "app"), &options());
    assert_eq!(diagnosis.reached.rights, "role with pg_read_all_stats");
    let left: Vec<&str> = diagnosis.not_examined.iter().map(|n| n.what.as_str()).collect();
    assert!(
        left.iter().all(|what| *what == "penalty of first statements"
            || *what == "huge pages"
            || what.starts_with("compilation")),
        "{}",
        doctor::text(&diagnosis)
    );
}

#[test]
fn provoking_needs_a_superuser() {
    let server = start(sound());
    server.psql("postgres", "create role app login").expect("a role");
    let options = doctor::Options { provoke: true, ..options() };
    let diagnosis = examine(&server.conninfo("postgres", "app"), &options);
    assert!(reason(&diagnosis, "what a connection costs without pg_internal.init").contains("index"));
    let again = diagnosis.not_examined.iter().find(|n| n.remedy == "run it as a superuser");
    assert!(again.is_some_and(|n| n.reason.contains("owner") || n.reason.contains("permission denied")), "{again:?}");
}
