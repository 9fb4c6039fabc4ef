//! Findings about the system catalogs and the relation cache's files.

use pgusher_measure::doctor::{Id, Options, Severity, Thresholds};

use crate::{Busy, connect, evidence, found, look, measured, options, sound, start, with};

#[test]
fn bloat() {
    let server = start(sound().setting("autovacuum", "off"));
    let columns: Vec<String> = (0..60).map(|i| format!("column_{i} int")).collect();
    let sql = format!(
        "do $$ begin for i in 1..250 loop create temporary table t ({}); drop table t; end loop; end $$",
        columns.join(", ")
    );
    server.psql("postgres", &sql).expect("dead rows");
    let diagnosis = look(&server, &options());
    let finding = found(&diagnosis, Id::CatalogBloat);
    let rows = evidence(finding, "pg_attribute");
    assert!(rows.contains(" dead"), "{rows}");
    assert!(finding.cures[0].text.starts_with("VACUUM (VERBOSE) pg_catalog.pg_"), "{finding:?}");
}

#[test]
fn vacuums_without_end() {
    let server = start(sound());
    let mut client = connect(&server.conninfo("postgres", "postgres"));
    for _ in 0..61 {
        client.simple_query("vacuum pg_catalog.pg_index").expect("an answer").into_result().expect("a vacuum");
    }
    drop(client);
    let diagnosis = look(&server, &options());
    let finding = found(&diagnosis, Id::CatalogVacuumFrequent);
    assert_eq!(finding.severity, Severity::Warning);
    assert!(evidence(finding, "most of").starts_with("pg_index (6"), "{finding:?}");
}

#[test]
fn files_that_are_removed_all_the_time() {
    let server = start(sound());
    let conninfo = server.conninfo("postgres", "postgres");
    let _busy: Vec<Busy> = (0..2)
        .map(|_| {
            let mut client = connect(&conninfo);
            Busy::with(move || {
                client.simple_query("reindex index pg_catalog.pg_am_oid_index").expect("an answer");
            })
        })
        .collect();
    let options = Options { connections: 40, ..options() };
    // Whether a file is there at the moment of a look is chance; that it is missing half of the time is not.
    let absent =
        (0..10).map(|_| look(&server, &options)).find(|d| d.findings.iter().any(|f| f.id == Id::InitFileAbsent));
    let diagnosis = absent.expect("missing after half of the connections, in one of ten looks");
    assert!(evidence(found(&diagnosis, Id::InitFileAbsent), "missing after").ends_with("of 10 new connections"));
}

#[test]
fn files_that_are_made_anew() {
    let server = start(sound());
    let conninfo = server.conninfo("postgres", "postgres");
    let mut client = connect(&conninfo);
    let _busy = Busy::with(move || {
        client.simple_query("reindex index pg_catalog.pg_am_oid_index").expect("an answer");
        drop(connect(&conninfo));
        std::thread::sleep(std::time::Duration::from_millis(300));
    });
    let options = Options { watch: std::time::Duration::from_millis(2500), ..options() };
    let diagnosis = look(&server, &options);
    let finding = found(&diagnosis, Id::InitFileRebuilt);
    assert!(evidence(finding, "written anew").contains(" times in "), "{finding:?}");
}

#[test]
fn cold_connections_are_measured_when_asked_for() {
    let server = start(sound());
    let thresholds = Thresholds { cold_us: 1.0, ..Thresholds::default() };
    let plain = look(&server, &with(thresholds.clone()));
    assert!(plain.findings.iter().all(|f| f.id != Id::ColdConnection), "nothing is provoked unasked");
    // A rebuild takes about as long as a connection; a busy machine can hide it once.
    let provoked = Options { provoke: true, ..with(thresholds) };
    let diagnosis =
        (0..5).map(|_| look(&server, &provoked)).find(|d| d.findings.iter().any(|f| f.id == Id::ColdConnection));
    let diagnosis = diagnosis.expect("a cold connection takes longer");
    assert!(measured(found(&diagnosis, Id::ColdConnection)) > 1.0);
    assert!(diagnosis.measurements.iter().any(|m| m.name == "connection without pg_internal.init" && m.n == 3));
}
