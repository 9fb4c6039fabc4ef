//! The experiment on a real PostgreSQL that is started for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pgusher_client::{Config, Connector};
use pgusher_embedded::Server;
use pgusher_measure::cold::{self, Cold, Error, Event, Options, Surroundings, Work};
use pgusher_measure::target::{Side, Target};

/// The server itself, which restarts when it is told to.
struct Owner(Server);

impl Surroundings for Owner {
    fn restart(&mut self) -> Result<(), String> {
        self.0.restart().map_err(|e| e.to_string())
    }

    fn manager(&mut self, _: bool) -> Result<Option<Connector>, String> {
        Ok(None)
    }
}

/// Somebody who restarts nothing, but says so or not.
struct Helpless(Result<(), String>);

impl Surroundings for Helpless {
    fn restart(&mut self) -> Result<(), String> {
        self.0.clone()
    }

    fn manager(&mut self, _: bool) -> Result<Option<Connector>, String> {
        Ok(None)
    }
}

fn server() -> Server {
    // Its workers are backends too, and what they do to catalogs removes the init files.
    Server::builder().setting("autovacuum", "off").start().expect("a server")
}

fn target(server: &Server, user: &str) -> Vec<Target> {
    let config = Config::from_conninfo(&server.socket_conninfo("postgres", user)).expect("conninfo");
    vec![Target { side: Side::Direct, connector: Connector::new(&config).expect("connector") }]
}

fn options(events: &[Event], work: Work) -> Options {
    Options { connections: 5, rounds: 3, events: events.to_vec(), work, pause: Duration::from_millis(50) }
}

fn tables(touched: &[u32], objects: &[u32], remove: bool) -> Work {
    Work::Tables { touched: touched.to_vec(), objects: objects.to_vec(), remove }
}

fn select_1() -> Work {
    Work::Statement("select 1".to_owned())
}

fn run(options: &Options, targets: Vec<Target>, owner: &mut dyn Surroundings) -> Result<Cold, Error> {
    cold::run(options, targets, owner, &AtomicBool::new(false), &mut |_| {})
}

#[test]
fn without_the_init_files_the_first_connection_takes_longer() {
    let server = server();
    let targets = || target(&server, "postgres");
    let mut helpless = Helpless(Err("nothing is to be restarted".to_owned()));
    let mut seen = Vec::new();
    // Other tests run beside this one; twice the work shows in one of a few attempts.
    for _ in 0..4 {
        let cold = run(&options(&[Event::Provoke], select_1()), targets(), &mut helpless).expect("a result");
        assert_eq!(cold.notes, Vec::<String>::new());
        let cell = &cold.cells[0];
        assert_eq!(cell.failures, []);
        assert_eq!(cell.rounds.len(), 3);
        for round in &cell.rounds {
            assert!(round.files_before.expect("known").are_gone(), "{round:?}");
            let after = round.files_after.expect("known");
            assert!(after.shared_bytes > Some(1000) && after.database_bytes > Some(10_000), "{after:?}");
            assert_eq!(round.samples.iter().map(|s| s.number).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        }
        let connecting = &cold.connecting[0];
        // The backends of a private server are here, and the kernel counts what they do.
        assert!(connecting.first_minor_faults > connecting.later_minor_faults, "{connecting:?}");
        let ratio = connecting.connect.first_to_later.expect("measured").value;
        let cpu = connecting.backend_cpu.first_to_later.expect("measured").value;
        seen.push((ratio, cpu));
        if ratio > 1.2 && cpu > 1.2 {
            return;
        }
    }
    panic!("{seen:?}");
}

#[test]
fn after_a_restart_with_tables_that_are_made_and_dropped() {
    let mut owner = Owner(server());
    let targets = target(&owner.0, "postgres");
    let mut lines = Vec::new();
    let options = Options { rounds: 2, ..options(&[Event::Restart], tables(&[1, 40], &[0, 450], true)) };
    let cold = cold::run(&options, targets, &mut owner, &AtomicBool::new(false), &mut |line| {
        if line.starts_with("making tables") {
            lines.push(line.to_owned());
            // In the middle of the sweep: what it makes is in its own schema.
        }
    })
    .expect("a result");
    assert_eq!(lines, ["making tables: 200 of 450", "making tables: 400 of 450", "making tables: 450 of 450"]);
    assert_eq!(cold.notes, Vec::<String>::new());
    assert_eq!(cold.cells.len(), 4);
    for cell in &cold.cells {
        assert_eq!(cell.failures, []);
        assert_eq!(cell.rounds.len(), 2);
        assert!(cell.rounds.iter().all(|r| r.files_before.is_none() && r.files_after.is_some()));
    }
    assert!(cold.connecting.iter().any(|c| c.objects == Some(450) && c.first_to_fewest_objects.is_some()));
    // 39 more tables: at least some microseconds each, whatever else the machine does.
    let (one, forty) = (&cold.cells[0], &cold.cells[1]);
    let median = |c: &cold::Cell| c.query.later.as_ref().expect("measured").median;
    assert!(median(forty) > 2.0 * median(one), "{} {}", median(one), median(forty));
    assert!(cold.per_table.iter().all(|p| p.run != cold::Run::FirstOfLater || p.us > 5.0), "{:?}", cold.per_table);
    let left =
        owner.0.psql("postgres", "select count(*) from pg_namespace where nspname like 'pgusher%'").expect("psql");
    assert_eq!(left, "0", "the schema is dropped");
}

#[test]
fn tables_stay_where_they_were_and_a_schema_of_that_name_is_left_alone() {
    let server = server();
    server.psql("postgres", "create schema pgusher_cold; create table pgusher_cold.mine (x int)").expect("psql");
    let mut helpless = Helpless(Ok(()));
    let error = run(&options(&[Event::Provoke], tables(&[1], &[0], true)), target(&server, "postgres"), &mut helpless)
        .expect_err("there is one already");
    assert!(error.to_string().contains("drop it"), "{error}");
    assert_eq!(server.psql("postgres", "select count(*) from pgusher_cold.mine").expect("psql"), "0");
}

#[test]
fn a_role_that_may_not_much() {
    let server = server();
    server.psql("postgres", "create role ann login").expect("psql");
    let mut owner = Owner(server);
    let targets = target(&owner.0, "ann");
    let error = run(&options(&[Event::Provoke], select_1()), targets, &mut owner).expect_err("it is no superuser");
    assert!(matches!(error, Error::Provoke(_)), "{error}");
    let text = error.to_string();
    assert!(text.contains("must be owner") && text.contains("needs a superuser"), "{text}");
    // A restart needs no permission; only the sizes of the files stay unknown.
    let targets = target(&owner.0, "ann");
    let cold = run(&options(&[Event::Restart], select_1()), targets, &mut owner).expect("a result");
    assert!(cold.cells[0].rounds.iter().all(|r| r.files_after.is_none() && r.samples.len() == 5));
    let [note] = cold.notes.as_slice() else { panic!("{:?}", cold.notes) };
    assert!(note.contains("GRANT EXECUTE ON FUNCTION pg_stat_file"), "{note}");
    assert!(!cold.incomplete);
}

#[test]
fn a_restart_that_is_none_is_noticed() {
    let server = server();
    let options = options(&[Event::Restart], select_1());
    let cold = run(&options, target(&server, "postgres"), &mut Helpless(Ok(()))).expect("a result");
    assert!(cold.incomplete);
    assert!(cold.notes[0].contains("the server was not restarted"), "{:?}", cold.notes);
    // What was measured until it was noticed is there, with the reason beside it.
    assert_eq!(cold.cells[0].rounds.len(), 1);
    let refused = Helpless(Err("no such service".to_owned()));
    let error = run(&options, target(&server, "postgres"), &mut { refused }).expect_err("nothing was measured");
    assert!(error.to_string().contains("no such service"), "{error}");
}

#[test]
fn a_server_that_restarts_in_between_is_said_and_the_rest_kept() {
    let mut server = server();
    let targets = target(&server, "postgres");
    let options = Options { rounds: 4, ..options(&[Event::Provoke], select_1()) };
    let mut done = 0;
    let cold = cold::run(&options, targets, &mut Helpless(Ok(())), &AtomicBool::new(false), &mut |_| {
        done += 1;
        if done == 3 {
            server.restart().expect("it restarts");
        }
    })
    .expect("a result");
    let [note] = cold.notes.as_slice() else { panic!("{:?}", cold.notes) };
    assert!(note.contains("round 3") && note.contains("somebody else restarted the server"), "{note}");
    assert_eq!(cold.cells[0].rounds.len(), 4);
}

#[test]
fn failing_statements_are_counted() {
    let server = server();
    let work = Work::Statement("select 1/0".to_owned());
    let cold =
        run(&options(&[Event::Provoke], work), target(&server, "postgres"), &mut Helpless(Ok(()))).expect("a result");
    let [failure] = cold.cells[0].failures.as_slice() else { panic!("{:?}", cold.cells[0].failures) };
    assert_eq!((failure.cause.as_str(), failure.count), ("22012", 15));
    assert!(cold.cells[0].query.first.is_none() && cold.connecting[0].connect.first.is_some());
}

#[test]
fn an_interrupted_run_gives_what_there_is_and_drops_its_tables() {
    let server = server();
    let stop = AtomicBool::new(false);
    let options = options(&[Event::Provoke], tables(&[1], &[0], true));
    let cold = cold::run(&options, target(&server, "postgres"), &mut Helpless(Ok(())), &stop, &mut |line| {
        if line.starts_with("round 2") {
            stop.store(true, Ordering::Relaxed);
        }
    })
    .expect("a result");
    assert!(cold.interrupted && !cold.incomplete);
    assert_eq!(cold.cells[0].rounds.len(), 1);
    let left =
        server.psql("postgres", "select count(*) from pg_namespace where nspname like 'pgusher%'").expect("psql");
    assert_eq!(left, "0");
}
