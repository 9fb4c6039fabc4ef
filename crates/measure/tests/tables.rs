//! The experiment on a real PostgreSQL that is started for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pgusher_client::{Config, Connector};
use pgusher_embedded::Server;
use pgusher_measure::reconnect::Mode;
use pgusher_measure::tables::{self, Error, Options, Subject, Tables};

fn connector(conninfo: &str) -> Connector {
    Connector::new(&Config::from_conninfo(conninfo).expect("conninfo")).expect("connector")
}

fn direct(server: &Server, user: &str) -> Subject {
    let connector = connector(&server.socket_conninfo("postgres", user));
    Subject { name: "direct".to_owned(), connector, direct: true }
}

fn options(tables: &[u32]) -> Options {
    Options {
        clients: 2,
        length: Duration::from_millis(400),
        rounds: 2,
        modes: vec![Mode::Reconnect],
        tables: tables.to_vec(),
        remove: true,
    }
}

fn run(options: &Options, subjects: Vec<Subject>) -> Result<Tables, Error> {
    tables::run(options, subjects, &mut |_| Ok(None), &Arc::default(), &mut |_| {})
}

#[test]
fn directly_and_over_another_way_in_both_modes() {
    let server = Server::builder()
        .setting("shared_preload_libraries", "pg_stat_statements")
        .start()
        .expect("a server with the contributed modules");
    server.psql("postgres", "create schema ext; create extension pg_stat_statements schema ext").expect("psql");
    let other = Subject {
        name: "tcp".to_owned(),
        connector: connector(&server.conninfo("postgres", "postgres")),
        direct: false,
    };
    let options = Options { modes: Mode::ALL.to_vec(), ..options(&[1, 4, 16]) };
    let result = run(&options, vec![direct(&server, "postgres"), other]).expect("a result");
    assert_eq!(result.notes, Vec::<String>::new());
    assert!(!result.incomplete && !result.interrupted);
    assert_eq!(result.cells.len(), 2 * 3 * 2);
    assert_eq!(result.comparisons.len(), 2 * 3);
    for cell in &result.cells {
        assert_eq!(cell.failures, []);
        for round in &cell.rounds {
            assert!(round.transactions > 3 && round.tps > 0.0, "{round:?}");
            let alone = round.alone.as_ref().expect("measured");
            assert_eq!(alone.fresh, cell.target == "direct");
            assert!(alone.first_us.is_some() && alone.later_us.is_some());
            // Nobody asks the catalogs here; what backends look up is no query.
            assert_eq!(round.catalog.queries_per_statement, Some(0.0), "{cell:?}");
        }
        match cell.mode {
            Mode::Static => assert!(cell.rounds.iter().all(|r| r.connections == 2)),
            Mode::Reconnect => assert!(cell.rounds.iter().all(|r| r.connections == r.transactions)),
        }
    }
    // New backends fill their caches from the catalogs; those that are kept do so once.
    let scans = |mode| result.cell(4, mode, "direct").expect("measured").catalog(|c| c.scans_per_statement);
    assert!(
        scans(Mode::Reconnect) > Some(2.0) && scans(Mode::Reconnect) > scans(Mode::Static),
        "{:?}",
        scans(Mode::Reconnect)
    );
    let sixteen = result.cell(16, Mode::Reconnect, "direct").expect("measured");
    assert!(sixteen.alone(|a| a.first_us) > sixteen.alone(|a| a.later_us));
    let left =
        server.psql("postgres", "select count(*) from pg_namespace where nspname like 'pgusher%'").expect("psql");
    assert_eq!(left, "0", "the schema is dropped");
}

#[test]
fn catalog_queries_are_seen() {
    let server = Server::builder().setting("shared_preload_libraries", "pg_stat_statements").start().expect("a server");
    server.psql("postgres", "create extension pg_stat_statements").expect("psql");
    // Somebody beside the clients who asks the catalogs all the time, as a proxy does.
    let done = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut asker, _) =
                connector(&server.socket_conninfo("postgres", "postgres")).connect().expect("connects");
            while !done.load(Ordering::Relaxed) {
                asker.simple_query("select count(*) from pg_class where relname = 'x'").expect("answered");
                asker.simple_query("select 1 as pg_nothing").expect("answered");
            }
        });
        let result = run(&Options { rounds: 1, ..options(&[1]) }, vec![direct(&server, "postgres")]);
        done.store(true, Ordering::Relaxed);
        result.expect("a result")
    });
    let queries = result.cells[0].catalog(|c| c.queries_per_statement).expect("known");
    assert!(queries > 0.1, "{queries}");
}

#[test]
fn without_the_extension_it_is_not_known_and_said() {
    let server = Server::builder().start().expect("a server");
    let one = Options { rounds: 1, ..options(&[1]) };
    let result = run(&one, vec![direct(&server, "postgres")]).expect("a result");
    let [note] = result.notes.as_slice() else { panic!("{:?}", result.notes) };
    assert!(note.contains("the extension pg_stat_statements is not in this database"), "{note}");
    let catalog = result.cells[0].rounds[0].catalog;
    assert_eq!(catalog.queries_per_statement, None);
    assert!(catalog.scans_per_statement.is_some());
    // Created, but not loaded: the server's own words.
    server.psql("postgres", "create extension pg_stat_statements").expect("psql");
    let result = run(&one, vec![direct(&server, "postgres")]).expect("a result");
    assert!(result.notes[0].contains("shared_preload_libraries"), "{:?}", result.notes);
}

#[test]
fn a_role_that_may_not_make_a_schema() {
    let server = Server::builder().start().expect("a server");
    server.psql("postgres", "create role ann login").expect("psql");
    let error = run(&options(&[1]), vec![direct(&server, "ann")]).expect_err("it may not");
    assert!(matches!(error, Error::Schema(_)), "{error}");
    assert!(error.to_string().contains("permission denied for database"), "{error}");
    let nobody = Subject {
        name: "pgbouncer".to_owned(),
        connector: connector("host=127.0.0.1 port=1 dbname=x user=x sslmode=disable"),
        direct: false,
    };
    let error = run(&options(&[1]), vec![direct(&server, "postgres"), nobody]).expect_err("nobody listens");
    assert!(error.to_string().starts_with("pgbouncer: connection to 127.0.0.1"), "{error}");
}

#[test]
fn a_server_that_restarts_in_between_is_said_and_the_rest_kept() {
    let mut server = Server::builder().start().expect("a server");
    let subject = direct(&server, "postgres");
    let options = Options { rounds: 3, ..options(&[1]) };
    let mut begun = 0;
    let mut restart = |_: &str| {
        begun += 1;
        if begun == 2 {
            server.restart().map_err(|e| e.to_string())?;
        }
        Ok(None)
    };
    let result = tables::run(&options, vec![subject], &mut restart, &Arc::default(), &mut |_| {}).expect("a result");
    assert!(result.notes.iter().any(|n| n.contains("run 2 the server was restarted")), "{:?}", result.notes);
    assert!(!result.incomplete, "{:?}", result.notes);
    assert_eq!(result.cells[0].rounds.len(), 3);
    assert!(result.cells[0].rounds.iter().all(|r| r.transactions > 0));
}

#[test]
fn an_interrupted_run_gives_what_there_is_and_drops_its_tables() {
    let server = Server::builder().start().expect("a server");
    let stop = Arc::new(AtomicBool::new(false));
    let options = Options { length: Duration::from_secs(60), ..options(&[1, 2]) };
    let later = Arc::clone(&stop);
    let mut first_run = move |_: &str| {
        let later = Arc::clone(&later);
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(600));
            later.store(true, Ordering::Relaxed);
        });
    };
    let result = tables::run(&options, vec![direct(&server, "postgres")], &mut |_| Ok(None), &stop, &mut first_run)
        .expect("a result");
    assert!(result.interrupted && !result.incomplete);
    assert_eq!(result.cells.len(), 1);
    assert!(result.cells[0].rounds[0].transactions > 0);
    let left =
        server.psql("postgres", "select count(*) from pg_namespace where nspname like 'pgusher%'").expect("psql");
    assert_eq!(left, "0");
}
