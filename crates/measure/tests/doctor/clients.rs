//! Findings about clients: how many there are, how long they stay, what they do.

use std::thread;
use std::time::Duration;

use pgusher_client::Connector;
use pgusher_embedded::Server;
use pgusher_measure::doctor::{Id, Options, Severity, Thresholds};
use rcgen::{CertificateParams, KeyPair};

use crate::{
    Busy, config, connect, crowd, evidence, examine, found, ids, look, measured, options, reason, sound, start, with,
};

#[test]
fn limits_that_come_near() {
    let server = start(sound().max_connections(23));
    server.psql("postgres", "create role app login").expect("a role");
    server.psql("postgres", "create database shop").expect("a database");
    server
        .psql("postgres", "alter role app connection limit 17; alter database shop connection limit 18")
        .expect("limits");
    let mut clients = crowd(&server.conninfo("shop", "app"), 16);
    let diagnosis = look(&server, &options());
    let near = found(&diagnosis, Id::ConnectionLimitNear);
    assert_eq!((near.severity, evidence(near, "open connections")), (Severity::Warning, "16"));
    assert!(near.what.contains("16 of the 20 connections"), "{}", near.what);
    assert_eq!(found(&diagnosis, Id::RoleLimitNear).severity, Severity::Warning);
    let database = found(&diagnosis, Id::DatabaseLimitNear);
    assert_eq!(database.cures[0].text, "ALTER DATABASE \"shop\" CONNECTION LIMIT 30");

    clients.push(connect(&server.conninfo("shop", "app")));
    clients.extend(crowd(&server.conninfo("postgres", "postgres"), 3));
    let diagnosis = look(&server, &options());
    assert_eq!(found(&diagnosis, Id::ConnectionLimitNear).severity, Severity::Critical);
    assert_eq!(found(&diagnosis, Id::RoleLimitNear).severity, Severity::Critical);
    assert_eq!(ids(&diagnosis)[0].1, Severity::Critical, "it comes first");
    // The last connections are not taken to measure.
    assert!(reason(&diagnosis, "what a connection and its first statement cost").starts_with("hardly any"));
    assert_eq!(diagnosis.connections_opened, 1);
}

#[test]
fn refused_connections() {
    let server = start(sound());
    server.psql("postgres", "create role app login connection limit 1").expect("a role");
    let diagnosis = examine(&server.conninfo("postgres", "app"), &options());
    let finding = found(&diagnosis, Id::ConnectionsRefused);
    assert_eq!(finding.severity, Severity::Critical);
    assert!(evidence(finding, "the server's words").contains("too many connections for role"), "{finding:?}");
    // And with no connection at all it is said what to do.
    let _client = connect(&server.conninfo("postgres", "app"));
    let error = pgusher_measure::doctor::run(
        &config(&server.conninfo("postgres", "app")),
        &options(),
        &Default::default(),
        &mut |_| {},
    );
    let text = error.expect_err("no connection").to_string();
    assert!(text.contains("53300") && text.contains("connect as one of them"), "{text}");
}

#[test]
fn short_sessions_with_tls_that_are_logged() {
    let key = KeyPair::generate().expect("a key");
    let certificate =
        CertificateParams::new(vec!["localhost".to_owned()]).expect("names").self_signed(&key).expect("a certificate");
    let server = start(sound().tls(certificate.pem(), key.serialize_pem()).setting("log_connections", "on"));
    if server.version().major < 14 {
        return no_sessions(&server);
    }
    let conninfo = format!("{} sslmode=require", server.conninfo("postgres", "postgres"));
    let connector = Connector::new(&config(&conninfo)).expect("a connector");
    let _busy = Busy::with(move || {
        let (mut client, _) = connector.connect().expect("a connection");
        client.simple_query("select 1").expect("an answer");
        client.terminate().expect("an end");
    });
    // A busy machine opens few connections per second.
    let thresholds = Thresholds { rate_warning: 1.5, ..Thresholds::default() };
    let options = Options { watch: Duration::from_secs(3), ..with(thresholds) };
    let diagnosis = examine(&conninfo, &options);
    let short = found(&diagnosis, Id::ShortSessions);
    assert!(short.severity >= Severity::Warning, "{short:?}");
    assert!(measured(short) > 500.0, "a connection: {short:?}");
    assert!(evidence(short, "time spent connecting").ends_with(" s in each second"), "{short:?}");
    let tls = found(&diagnosis, Id::TlsWithoutResumption);
    assert!(measured(tls) > 100.0 && measured(tls) < measured(short), "{tls:?}");
    assert_eq!(evidence(found(&diagnosis, Id::LogConnections), "setting"), "log_connections");
}

#[test]
fn clients_that_idle() {
    let server = start(sound().max_connections(150));
    let conninfo = server.conninfo("postgres", "postgres");
    let _crowd = crowd(&format!("{conninfo} application_name=shop"), 100);
    let mut open = connect(&conninfo);
    open.simple_query("begin; select 1").expect("a transaction");
    thread::sleep(Duration::from_millis(600));
    let short = Duration::from_millis(500);
    let thresholds = Thresholds {
        idle_after: short,
        idle_in_transaction_after: short,
        open_connections: 100,
        ..Thresholds::default()
    };
    let diagnosis = look(&server, &with(thresholds));
    let pooler = found(&diagnosis, Id::NoPooler);
    assert_eq!((evidence(pooler, "open"), evidence(pooler, "idle")), ("101", "100"));
    let idle = found(&diagnosis, Id::IdleClients);
    assert_eq!((idle.severity, evidence(idle, "idle clients")), (Severity::Warning, "100"));
    assert!(evidence(idle, "most of them").contains("application \"shop\""), "{idle:?}");
    let transaction = found(&diagnosis, Id::IdleInTransaction);
    assert!(evidence(transaction, "whose").contains(&format!("pid {},", open.backend_pid())), "{transaction:?}");
    found(&diagnosis, Id::ManyConnections);
}

#[test]
fn old_statistics() {
    let server = start(sound());
    if server.version().major < 14 {
        return no_sessions(&server);
    }
    server.psql("postgres", "select pg_stat_reset()").expect("a reset");
    let thresholds = Thresholds { statistics_age: Duration::ZERO, ..Thresholds::default() };
    found(&look(&server, &with(thresholds)), Id::StatisticsOld);
}

/// What cannot be seen before 14 is said.
fn no_sessions(server: &Server) {
    let why = look(server, &options());
    assert!(reason(&why, "connection rate and session length").contains("from version 14 on"));
}
