//! Findings about statements: slow first runs, and compilation of short ones.

use pgusher_measure::doctor::{Id, Severity};

use crate::{connect, evidence, examine, found, look, measured, options, sound, start};

#[test]
fn the_first_run_of_a_hot_statement() {
    let server = start(sound());
    let sql = "create table part (id int, v text) partition by range (id); \
        do $$ begin for i in 0..299 loop \
        execute format('create table part_%s partition of part for values from (%s) to (%s)', i, i * 10, i * 10 + 10); \
        end loop; end $$";
    server.psql("postgres", sql).expect("partitions");
    let mut client = connect(&server.conninfo("postgres", "postgres"));
    for i in 0..30 {
        client.simple_query(&format!("select count(v) from part where id > {i}")).expect("an answer");
    }
    drop(client);
    let diagnosis = look(&server, &options());
    let finding = found(&diagnosis, Id::FirstQueryPenalty);
    let hot = evidence(finding, "select count(v) from part where id > $1");
    assert!(hot.contains(" first, ") && hot.contains("30 calls"), "{hot}");
    assert!(measured(finding) > 2_000.0, "{finding:?}");
    // It was prepared and not run.
    let calls =
        server.psql("postgres", "select calls from pg_stat_statements where query ~ '^select count.v. from part'");
    assert_eq!(calls.expect("psql"), "30");

    // An ordinary role's preparations are told apart as well.
    server
        .psql("postgres", "create role app login; grant pg_read_all_stats to app; grant select on part to app")
        .expect("a role");
    for _ in 0..2 {
        let diagnosis = examine(&server.conninfo("postgres", "app"), &options());
        let finding = found(&diagnosis, Id::FirstQueryPenalty);
        assert!(evidence(finding, "select count(v) from part where id > $1").contains("30 calls"), "{finding:?}");
    }
}

#[test]
fn compilation_of_short_statements() {
    let server = start(sound().setting("jit", "on").setting("jit_above_cost", "0"));
    if server.version().major < 15 || server.psql("postgres", "select pg_jit_available()").expect("psql") != "t" {
        eprintln!("this needs PostgreSQL 15 with its compiler");
        return;
    }
    let mut client = connect(&server.conninfo("postgres", "postgres"));
    for _ in 0..20 {
        client.simple_query("select sum(i * 2) from generate_series(1, 10) i").expect("an answer");
    }
    drop(client);
    let diagnosis = look(&server, &options());
    let finding = found(&diagnosis, Id::JitShortStatements);
    assert!(finding.severity >= Severity::Warning && measured(finding) > 100.0, "{finding:?}");
    assert_eq!(evidence(finding, "jit_above_cost"), "0");
    assert_eq!(finding.cures[0].text, "jit = off");
}
