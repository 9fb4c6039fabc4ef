//! Warming on a real server: which way takes what away of a first run's penalty.

use std::sync::atomic::{AtomicBool, Ordering};

use pgusher_client::{Config, Connector};
use pgusher_embedded::Server;
use pgusher_measure::prewarm::{self, Options, Prewarm, Way};
use pgusher_measure::profile::Protocol;
use pgusher_measure::report::Experiment;

fn options(sql: &str, rounds: u32) -> Options {
    Options {
        protocol: Protocol::Extended,
        queries: vec![sql.to_owned()],
        ways: vec![Way::Parse, Way::Bind, Way::Explain],
        rounds,
        runs: 4,
    }
}

fn run(server: &Server, options: &Options, stop: &AtomicBool) -> Prewarm {
    let conninfo = format!("{} sslmode=disable", server.conninfo("postgres", "postgres"));
    let connector = Connector::new(&Config::from_conninfo(&conninfo).unwrap()).unwrap();
    prewarm::run(options, &connector, ("postgres", "postgres"), stop, &mut |_, _| {}).unwrap()
}

/// A statement over many partitions: parsing alone opens only the parent, planning opens all.
#[test]
fn planning_warms_and_parsing_alone_does_not() {
    let server = Server::builder().start().unwrap();
    server
        .psql(
            "postgres",
            "CREATE TABLE p (id int, v text) PARTITION BY RANGE (id); \
             DO $$ BEGIN FOR i IN 0..59 LOOP EXECUTE format('CREATE TABLE p%s PARTITION OF p FOR VALUES FROM (%s) TO (%s)', \
             i, i * 10, i * 10 + 10); END LOOP; END $$",
        )
        .unwrap();
    let options = options("select count(*) from p where v = 'x'", 7);
    let mut last = None;
    // By processor time, which other work on the machine disturbs least; on a very busy one a second try may be needed.
    for _ in 0..3 {
        let result = run(&server, &options, &AtomicBool::new(false));
        assert_eq!((result.failures.len(), result.interrupted), (0, false), "{:?}", result.failures);
        let statement = &result.statements[0];
        assert_eq!(statement.samples.len(), 4 * 7);
        let removed = |way| statement.summary(way).unwrap().removed_cpu.unwrap().value;
        let (parse, bind, explain) = (removed(Way::Parse), removed(Way::Bind), removed(Way::Explain));
        if parse < 0.5 && bind > 0.7 && explain > 0.7 {
            let bind = statement.summary(Way::Bind).unwrap();
            assert!(bind.warming.unwrap().median > 0.0 && bind.warming_kib.unwrap() > 0.0);
            assert_eq!(result.exhibits().len(), 2);
            return;
        }
        last = Some((parse, bind, explain));
    }
    panic!("shares removed by parse, bind, EXPLAIN: {last:?}");
}

#[test]
fn what_cannot_be_warmed_that_way_is_a_failure_and_the_rest_is_kept() {
    let server = Server::builder().start().unwrap();
    let result = run(&server, &options("checkpoint", 2), &AtomicBool::new(false));
    assert_eq!(result.failures.len(), 1, "{:?}", result.failures);
    assert!(result.failures[0].example.contains("EXPLAIN") && result.failures[0].count == 2, "{:?}", result.failures);
    assert!(result.statements[0].summary(Way::Bind).is_some() && result.statements[0].summary(Way::Explain).is_none());
    let stop = AtomicBool::new(false);
    stop.store(true, Ordering::Relaxed);
    let stopped = run(&server, &options("select 1", 2), &stop);
    assert!(stopped.interrupted && stopped.statements[0].samples.is_empty());
}
