//! The server's side of a profile on real servers: what is joined, and what is said when a view cannot be had.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use pgusher_client::{Config, Connector, Error};
use pgusher_embedded::{Auth, Builder, Server};
use pgusher_measure::profile::{self, Event, Observer, Plan, Protocol, Provocation, Provoker};
use pgusher_measure::server_view::control::Control;
use pgusher_measure::server_view::log::LogFormat;
use pgusher_measure::server_view::{DEFAULT_NAME, Place, Population, Report, Row, ServerView, Wanted};

#[path = "support/pg18.rs"]
mod pg18;

const QUERY: &str = "select relname,\n  'x' from pg_catalog.pg_class where oid = 1259";

fn connector(config: &Config) -> Result<Connector, Error> {
    Ok(Connector::new(config)?.fork_probe(true).timeout(Some(Duration::from_secs(30))))
}

fn config(server: &Server, user: &str) -> Config {
    let conninfo = format!("{} sslmode=disable application_name='{DEFAULT_NAME}'", server.conninfo("postgres", user));
    Config::from_conninfo(&conninfo).unwrap()
}

fn plan(protocol: Protocol, connections: u32) -> Plan {
    Plan { protocol, queries: vec![QUERY.to_owned()], runs: 4, connections }
}

fn file(path: impl Into<PathBuf>) -> Wanted {
    Wanted { log: Some(Place::File(path.into())), ..Wanted::default() }
}

/// Profiles as the program does, and tells `meanwhile` of each event too.
fn view(server_config: &Config, wanted: &Wanted, plan: &Plan, meanwhile: &mut dyn FnMut(&Event)) -> Report {
    let mut config = server_config.clone();
    let mut view = ServerView::begin(&mut config, wanted, plan, &connector).unwrap();
    profile::run(&connector(&config).unwrap(), plan, &mut |event| {
        view.observe(&event);
        meanwhile(&event);
        Ok(())
    })
    .unwrap();
    view.finish()
}

fn row<'a>(report: &'a Report, phase: &str, run: Population) -> &'a Row {
    let found = report.rows.iter().find(|row| row.phase == phase && row.run == Some(run));
    found.unwrap_or_else(|| panic!("no {phase} {run:?} in {report:#?}"))
}

fn with_statements(builder: Builder) -> Server {
    let server = builder
        .setting("shared_preload_libraries", "pg_stat_statements")
        .setting("pg_stat_statements.track_planning", "on")
        .start()
        .unwrap();
    server.psql("postgres", "CREATE EXTENSION pg_stat_statements").unwrap();
    server
}

/// Every run is in the log, the log is within the client's time, and pg_stat_statements within the log.
fn assert_joined(server: &Server, protocol: Protocol, name: &str) {
    let wanted = Wanted { statements: true, ..file(server.log_path()) };
    let report = view(&config(server, "postgres"), &wanted, &plan(protocol, 3), &mut |_| {});
    let log = report.sources.log.as_ref().unwrap_or_else(|| panic!("{:?}", report.notes));
    assert_eq!((log.format, log.connections), (LogFormat::Stderr, 3), "{report:#?}");
    assert_eq!(log.runs, report.samples.runs.len(), "{:?}", report.notes);
    for sample in &report.samples.runs {
        let logged = sample.log.unwrap().total_us();
        assert!(logged > 0.0 && logged <= sample.client_us, "{sample:?}");
    }
    for population in Population::ALL {
        let row = row(&report, name, population);
        // Means of the server against medians of its log: only roughly alike, so generously compared.
        // A prepared statement without parameters is planned once.
        let within = row.plan_us.unwrap_or(0.0) + row.exec_us.unwrap();
        assert!(row.plan_us.is_some() || protocol == Protocol::Prepared, "{row:?}");
        assert!(within > 0.0 && within <= 20.0 * row.log_us.unwrap(), "{row:?}");
        assert!(row.unseen_us.unwrap() >= 0.0 && row.unseen_us.unwrap() < row.client_us.unwrap(), "{row:?}");
    }
    let ours: u64 = report.counted.iter().map(|line| line.calls).sum();
    assert_eq!(ours, 12, "{:?}", report.counted);
    assert_eq!(report.counted.iter().map(|line| line.calls).collect::<Vec<_>>(), [3, 3, 6]);
}

#[test]
fn phases_are_joined_in_every_protocol() {
    let server = with_statements(Server::builder());
    for (protocol, name) in [
        (Protocol::Simple, "simple_query"),
        (Protocol::Extended, "extended"),
        (Protocol::Prepared, "extended"),
        (Protocol::Pipelined, "pipelined"),
    ] {
        assert_joined(&server, protocol, name);
    }
}

#[test]
fn the_parts_of_the_extended_protocol_and_the_backends() {
    let server = Server::builder().setting("log_connections", "on").start().unwrap();
    let report =
        view(&config(&server, "postgres"), &file(server.log_path()), &plan(Protocol::Extended, 3), &mut |_| {});
    assert!(report.sources.host, "{:?}", report.notes);
    let first = row(&report, "extended", Population::First);
    let steady = row(&report, "extended", Population::Steady);
    // A first run fills the caches of its backend: that costs processor time and page faults, whatever the clock says.
    assert!(first.cpu_us > steady.cpu_us && first.minor_faults > steady.minor_faults, "{first:?} {steady:?}");
    assert!(first.rss_kib.unwrap() > 1000.0);
    let parse = row(&report, "parse_describe_sync", Population::Steady);
    let bind = row(&report, "bind_execute_sync", Population::Steady);
    assert!(parse.log_us < parse.client_us && bind.log_us < bind.client_us);
    for part in ["server: bind", "server: execute"] {
        assert!(row(&report, part, Population::First).log_us.unwrap() > 0.0);
    }
    let connection = row(&report, "create_connection", Population::First);
    assert!(connection.cpu_us.unwrap() > 0.0 && connection.minor_faults.unwrap() > 0.0, "{connection:?}");
    if server.version().major < 18 {
        assert!(row(&report, "server: received to authorized", Population::First).log_us.is_some());
    }
}

#[test]
fn csvlog_and_jsonlog_by_name_and_through_the_server() {
    let server = Server::builder()
        .setting("logging_collector", "on")
        .setting("log_destination", "stderr,csvlog,jsonlog")
        .setting("log_filename", "server.log")
        .setting("log_line_prefix", "%t:%u@%d:%a:[%p]:%q%c ")
        .start()
        .unwrap();
    let folder = server.data_dir().join("log");
    for (wanted, format) in [
        (file(folder.join("server.csv")), LogFormat::Csvlog),
        (file(folder.join("server.json")), LogFormat::Jsonlog),
        (file(folder.join("server.log")), LogFormat::Stderr),
        (Wanted { log: Some(Place::Server), ..Wanted::default() }, LogFormat::Jsonlog),
    ] {
        let report = view(&config(&server, "postgres"), &wanted, &plan(Protocol::Extended, 2), &mut |_| {});
        let log = report.sources.log.as_ref().unwrap_or_else(|| panic!("{:?}", report.notes));
        assert_eq!((log.format, log.connections, log.runs), (format, 2, 8), "{:?}", report.notes);
    }
}

#[test]
fn an_ordinary_role_is_told_what_it_lacks_and_keeps_the_rest() {
    let server = with_statements(Server::builder());
    server.psql("postgres", "CREATE ROLE ann LOGIN").unwrap();
    let ann = config(&server, "ann");
    let plan = plan(Protocol::Extended, 2);
    let wanted = Wanted { statements: true, ..file(server.log_path()) };
    let report = view(&ann, &wanted, &plan, &mut |_| {});
    let said = report.notes.join("\n");
    assert!(said.contains("GRANT SET ON PARAMETER log_min_duration_statement"), "{said}");
    assert!(said.contains("0 of 8 runs were found"), "{said}");
    let first = row(&report, "extended", Population::First);
    assert!(first.client_us.is_some() && first.cpu_us.is_some() && first.log_us.is_none(), "{first:?}");
    // Its own statements it may see.
    assert!(first.exec_us.is_some(), "{said}");

    server.psql("postgres", "REVOKE SELECT ON pg_stat_statements FROM public").unwrap();
    server.psql("postgres", "REVOKE EXECUTE ON FUNCTION pg_stat_statements(boolean) FROM public").unwrap();
    let wanted = Wanted { log: Some(Place::Server), statements: true, ..Wanted::default() };
    let report = view(&ann, &wanted, &plan, &mut |_| {});
    let said = report.notes.join("\n");
    assert!(
        said.contains("may not read pg_stat_statements") && said.contains("may not read the server's log"),
        "{said}"
    );
    assert!(row(&report, "extended", Population::Steady).client_us.is_some());

    if server.version().major >= 15 {
        server.psql("postgres", "GRANT SET ON PARAMETER log_min_duration_statement, lc_messages TO ann").unwrap();
        let report = view(&ann, &file(server.log_path()), &plan, &mut |_| {});
        assert_eq!(report.sources.log.map(|log| log.runs), Some(8), "{:?}", report.notes);
    }
}

#[test]
fn a_log_of_another_server_is_not_read() {
    let server = Server::builder().start().unwrap();
    let other = Server::builder().start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(Protocol::Simple, 2);
    for (wanted, words) in [
        (file(other.log_path()), "it is the log of another server"),
        (file(folder.path().join("none.log")), "cannot be read"),
        (file(folder.path()), "cannot be read"),
        (Wanted { log: Some(Place::Server), ..Wanted::default() }, "logging_collector is off"),
        (Wanted { log_line_prefix: Some("%u ".to_owned()), ..file(server.log_path()) }, "neither %p nor %c"),
        (Wanted { log_line_prefix: Some("<%p> ".to_owned()), ..file(server.log_path()) }, "--log-line-prefix"),
    ] {
        let report = view(&config(&server, "postgres"), &wanted, &plan, &mut |_| {});
        assert!(report.sources.log.is_none() && report.notes.join("\n").contains(words), "{words}: {:?}", report.notes);
        let row = row(&report, "simple_query", Population::Steady);
        assert!(row.client_us.is_some() && row.cpu_us.is_some(), "{row:?}");
    }
}

#[test]
fn without_the_extension_the_rest_is_kept() {
    let server = Server::builder().start().unwrap();
    let wanted = Wanted { statements: true, ..file(server.log_path()) };
    let report = view(&config(&server, "postgres"), &wanted, &plan(Protocol::Simple, 1), &mut |_| {});
    assert!(report.notes.join("\n").contains("CREATE EXTENSION pg_stat_statements"), "{:?}", report.notes);
    assert!(row(&report, "simple_query", Population::First).log_us.is_some(), "{:?}", report.notes);
    // Installed, but the server was not started with its library.
    server.psql("postgres", "CREATE EXTENSION pg_stat_statements").unwrap();
    let report = view(&config(&server, "postgres"), &wanted, &plan(Protocol::Simple, 1), &mut |_| {});
    assert!(report.notes.join("\n").contains("shared_preload_libraries"), "{:?}", report.notes);
}

#[test]
fn a_restart_in_mid_run_costs_only_what_was_under_way() {
    let mut server = with_statements(Server::builder());
    let wanted = Wanted { statements: true, ..file(server.log_path()) };
    let config = config(&server, "postgres");
    let mut failed = 0;
    let report = view(&config, &wanted, &plan(Protocol::Extended, 3), &mut |event| {
        if matches!(event, Event::Connect(event) if event.connection == 2) {
            server.restart().unwrap();
        }
        failed += u32::from(event.failure().is_some());
    });
    assert_eq!(failed, 1);
    let log = report.sources.log.as_ref().unwrap_or_else(|| panic!("{:?}", report.notes));
    assert_eq!(log.runs, 8, "{:?}", report.notes);
    let of = |connection| report.samples.runs.iter().filter(move |run| run.connection == connection);
    assert!(of(1).chain(of(3)).all(|run| run.log.is_some() && run.host.is_some()), "{report:#?}");
    // The counters were written at the shutdown and read again; either way the third connection's are there.
    assert!(row(&report, "extended", Population::First).exec_us.is_some(), "{:?}", report.notes);
}

#[test]
fn a_log_that_is_rotated_in_mid_run() {
    let server = Server::builder()
        .setting("logging_collector", "on")
        .setting("log_filename", "server-%Y%m%d-%H%M%S.log")
        .start()
        .unwrap();
    let current = server.data_dir().join(server.psql("postgres", "SELECT pg_current_logfile()").unwrap());
    for place in [Place::File(current), Place::Server] {
        let wanted = Wanted { log: Some(place), ..Wanted::default() };
        let report = view(&config(&server, "postgres"), &wanted, &plan(Protocol::Simple, 3), &mut |event| {
            if matches!(event, Event::Connect(event) if event.connection == 2) {
                // The name of the next file has another second in it.
                thread::sleep(Duration::from_millis(1100));
                server.psql("postgres", "SELECT pg_rotate_logfile()").unwrap();
                thread::sleep(Duration::from_millis(500));
            }
        });
        let log = report.sources.log.as_ref().unwrap_or_else(|| panic!("{:?}", report.notes));
        assert_eq!((log.connections, log.runs), (3, 12), "{:?}", report.notes);
    }
}

#[test]
fn a_failing_statement_does_not_shift_the_others() {
    let server = Server::builder().start().unwrap();
    let queries = ["select 1/(random()*0)::int", "select 2", "selct", "select 3"].map(str::to_owned).to_vec();
    for protocol in [Protocol::Simple, Protocol::Extended, Protocol::Prepared, Protocol::Pipelined] {
        let plan = Plan { protocol, queries: queries.clone(), runs: 3, connections: 1 };
        let report = view(&config(&server, "postgres"), &file(server.log_path()), &plan, &mut |_| {});
        let good = report.samples.runs.iter().filter(|run| [2, 4].contains(&run.query));
        assert!(good.clone().all(|run| run.log.is_some()), "{protocol:?} {report:#?}");
        assert!(good.count() >= 6);
    }
}

struct Provoking<'a>(&'a mut Provoker, &'a mut ServerView);

impl Observer for Provoking<'_> {
    fn before_connection(&mut self, _number: u32) -> std::io::Result<()> {
        self.0.provoke();
        Ok(())
    }

    fn event(&mut self, event: Event) -> std::io::Result<()> {
        self.1.observe(&event);
        Ok(())
    }
}

#[test]
fn connections_without_the_init_files_are_provoked() {
    let server = Server::builder().start().unwrap();
    let plan = Plan { queries: Vec::new(), ..plan(Protocol::Simple, 5) };
    let mut config = config(&server, "postgres");
    let control = || Control::connect(connector(&config).unwrap()).unwrap();
    let mut provoker = Provoker::new(Provocation::RelcacheInit, control()).unwrap();
    let warm = view(&config, &Wanted::default(), &plan, &mut |_| {});
    let mut view = ServerView::begin(&mut config, &Wanted::default(), &plan, &connector).unwrap();
    profile::run(&connector(&config).unwrap(), &plan, &mut Provoking(&mut provoker, &mut view)).unwrap();
    let cold = view.finish();
    let done = provoker.done();
    assert_eq!((done.times, done.failed), (5, 0));
    // Another process of the server may have written them again in between, but not each time.
    assert!(done.verified >= 1 && done.verified + done.present == 5, "{done}");
    let faults = |report: &Report| row(report, "create_connection", Population::Steady).minor_faults.unwrap();
    assert!(faults(&cold) > faults(&warm), "{} {}", faults(&cold), faults(&warm));

    server.psql("postgres", "CREATE ROLE bob LOGIN").unwrap();
    let bob = self::config(&server, "bob");
    let refused = Provoker::new(Provocation::RelcacheInit, Control::connect(connector(&bob).unwrap()).unwrap());
    assert!(refused.err().unwrap().contains("must be a superuser"));
}

#[test]
fn pg18_says_how_long_a_connection_took() {
    let Some(builder) = pg18::builder() else { return };
    let server = with_statements(builder);
    let report =
        view(&config(&server, "postgres"), &file(server.log_path()), &plan(Protocol::Extended, 3), &mut |_| {});
    let log = report.sources.log.as_ref().unwrap_or_else(|| panic!("{:?}", report.notes));
    assert_eq!((log.connections, log.runs), (3, 12), "{:?}", report.notes);
    for sample in &report.samples.connections {
        let times = sample.log.unwrap();
        let (setup, fork, authentication) =
            (times.setup_us.unwrap(), times.fork_us.unwrap(), times.authentication_us.unwrap());
        assert!(fork + authentication < setup && setup < sample.client_us, "{sample:?}");
    }
    for population in Population::ALL {
        let row = row(&report, "create_connection", population);
        assert!(row.log_us < row.client_us && row.unseen_us.unwrap() > 0.0, "{row:?}");
        for part in ["server: fork", "server: authentication", "server: rest of setup"] {
            assert!(self::row(&report, part, population).log_us.is_some());
        }
    }
    assert_joined(&server, Protocol::Extended, "extended");
    server.psql("postgres", "CREATE ROLE ann LOGIN").unwrap();
    let report = view(&config(&server, "ann"), &file(server.log_path()), &plan(Protocol::Simple, 1), &mut |_| {});
    assert!(report.notes.join("\n").contains("GRANT SET ON PARAMETER log_connections"), "{:?}", report.notes);
}

/// The server's clock of the authentication runs while it waits for the client: what the client computes is within it.
#[test]
fn pg18_counts_the_clients_cryptography_as_authentication() {
    let Some(builder) = pg18::builder() else { return };
    let server = builder.auth(Auth::Scram).password("secret").start().unwrap();
    let conninfo = format!("{} sslmode=disable password=secret", server.conninfo("postgres", "postgres"));
    let config = Config::from_conninfo(&conninfo).unwrap();
    let report = view(&config, &file(server.log_path()), &plan(Protocol::Simple, 3), &mut |_| {});
    assert_eq!(report.samples.connections.len(), 3);
    for sample in &report.samples.connections {
        let log = sample.log.unwrap_or_else(|| panic!("{:?}", report.notes));
        let computed = sample.phases.client_crypto_us.unwrap();
        assert!(computed > 0.0 && log.authentication_us.unwrap() > computed, "{sample:?}");
        assert!(log.setup_us.unwrap() < sample.client_us, "{sample:?}");
    }
    assert!(row(&report, "client_crypto", Population::Steady).client_us.is_some());
}

#[test]
fn pg18_says_whether_it_has_huge_pages() {
    let Some(builder) = pg18::builder() else { return };
    let server = builder.start().unwrap();
    let facts = profile::server_facts(&connector(&config(&server, "postgres")).unwrap()).unwrap();
    let facts = serde_json::to_value(facts).unwrap();
    assert!(facts["settings"]["huge_pages_status"].is_string(), "{facts}");
}
