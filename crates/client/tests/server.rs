//! Against a real PostgreSQL: ways to authenticate, TLS, several hosts, statements, cancelling.

use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use pgusher_client::conninfo::{Environment, Params};
use pgusher_client::{
    Attempts, Config, Connection, Connector, Encryption, Error, ErrorKind, LoginMachine, Phase, TxStatus,
};
use pgusher_embedded::{Auth, Server};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

struct Cluster {
    server: Server,
    ca: String,
    other_ca: String,
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// One server for all tests here: one user per way to authenticate, TLS on, its certificate for `localhost` only.
fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        let ca = authority("the right one");
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
        let mut builder = Server::builder().auth(Auth::Trust).tls(certificate.pem(), key.serialize_pem());
        for (user, method) in [("u_scram", "scram-sha-256"), ("u_md5", "md5"), ("u_plain", "password")] {
            builder = builder.hba(format!("host all {user} 127.0.0.1/32 {method}"));
            builder = builder.hba(format!("local all {user} {method}"));
        }
        builder = builder.hba("hostssl all u_only_tls 127.0.0.1/32 trust");
        builder = builder.hba("hostnossl all u_only_tls 127.0.0.1/32 reject");
        builder = builder.hba("hostnossl all u_only_plain 127.0.0.1/32 trust");
        builder = builder.hba("hostssl all u_only_plain 127.0.0.1/32 reject");
        let server = builder.start().expect("an embedded server");
        let cluster = Cluster { server, ca: ca.pem(), other_ca: authority("another").pem() };
        let (mut admin, _) = connect_to(&cluster, "").unwrap();
        for sql in [
            "set password_encryption = 'scram-sha-256'; create user u_scram password 'right'",
            "create user u_plain password 'right'; create user u_only_tls; create user u_only_plain",
            "set password_encryption = 'md5'; create user u_md5 password 'right'",
        ] {
            admin.simple_query(sql).unwrap().into_result().unwrap();
        }
        cluster
    })
}

fn connector(cluster: &Cluster, more: &str) -> Result<Connector, Error> {
    let text = format!(
        "host=localhost hostaddr=127.0.0.1 port={} user={} dbname=postgres {more}",
        cluster.server.port(),
        cluster.server.superuser()
    );
    let config = Config::resolve(Params::parse(&text).unwrap(), &Environment::empty())?;
    Ok(Connector::new(&config)?.timeout(Some(Duration::from_secs(20))))
}

fn connect_to(cluster: &Cluster, more: &str) -> Result<(Connection, Attempts), Error> {
    connector(cluster, more)?.connect()
}

fn connect(more: &str) -> Result<(Connection, Attempts), Error> {
    connect_to(cluster(), more)
}

fn refused(more: &str) -> Error {
    connect(more).err().unwrap_or_else(|| panic!("{more} was not refused"))
}

#[test]
fn every_way_to_authenticate() {
    for (user, method) in [("u_scram", "scram-sha-256"), ("u_md5", "md5"), ("u_plain", "password")] {
        let (mut connection, attempts) = connect(&format!("user={user} password=right sslmode=disable")).unwrap();
        assert_eq!(connection.auth_method(), method);
        let rows = connection.query_rows("select current_user, $1::text, null", &[Some("é")]).unwrap();
        assert_eq!((rows.get(0, 0), rows.get(0, 1), rows.get(0, 2)), (Some(user), Some("é"), None));
        assert!(attempts.phases().client_crypto.is_some() && attempts.phases().ready.is_some());

        let wrong = refused(&format!("user={user} password=wrong sslmode=disable"));
        assert_eq!((wrong.sqlstate(), wrong.phase()), (Some("28P01"), Some(Phase::Authenticate)), "{wrong}");
        let none = refused(&format!("user={user} sslmode=disable"));
        assert_eq!(none.kind(), ErrorKind::Authentication);
        assert!(none.to_string().contains("PGPASSWORD"), "{none}");
    }
    let (connection, attempts) = connect("sslmode=disable").unwrap();
    assert_eq!(connection.auth_method(), "trust");
    assert!(attempts.phases().client_crypto.is_none() && attempts.phases().authenticate.is_none());
}

#[test]
fn scram_over_tls_binds_the_channel() {
    let (connection, _) = connect("user=u_scram password=right sslmode=require channel_binding=require").unwrap();
    assert_eq!(connection.auth_method(), "scram-sha-256-plus");
    let plain = refused("user=u_scram password=right sslmode=disable channel_binding=require");
    assert_eq!(plain.kind(), ErrorKind::Authentication, "{plain}");
    let md5 = refused("user=u_md5 password=right sslmode=require channel_binding=require");
    assert!(md5.to_string().contains("channel binding is required"), "{md5}");
}

#[test]
fn require_auth_is_kept() {
    assert!(connect("user=u_scram password=right require_auth=scram-sha-256").is_ok());
    for (user, list) in [("u_plain", "scram-sha-256"), ("u_md5", "!md5"), ("postgres", "!none"), ("postgres", "md5")] {
        let error = refused(&format!("user={user} password=right require_auth={list} sslmode=disable"));
        assert!(error.to_string().contains("require_auth"), "{error}");
    }
}

#[test]
fn remembered_keys_spare_the_derivation() {
    let connector =
        connector(cluster(), "user=u_scram password=right sslmode=disable").unwrap().remember_scram_keys(true);
    let times: Vec<Duration> = (0..4).map(|_| connector.connect().unwrap().1.phases().client_crypto.unwrap()).collect();
    let later = times[1..].iter().min().unwrap();
    assert!(*later * 3 < times[0], "{times:?}");
}

#[test]
fn tls_modes() {
    let cluster = cluster();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (right, wrong) = (file("right.crt", &cluster.ca), file("wrong.crt", &cluster.other_ca));
    for good in [
        "sslmode=require".to_owned(),
        format!("sslmode=require sslrootcert={right}"),
        format!("sslmode=verify-ca sslrootcert={right}"),
        format!("sslmode=verify-full sslrootcert={right}"),
        format!("sslmode=verify-ca sslrootcert={right} host=other.example.com"),
    ] {
        let (connection, attempts) = connect(&good).unwrap_or_else(|error| panic!("{good}: {error}"));
        assert!(connection.tls().unwrap().version.starts_with("TLSv1"), "{good}");
        let phases = attempts.phases();
        assert!(phases.queue_fork.is_some() && phases.tls.is_some(), "{good}");
    }
    for bad in [
        format!("sslmode=require sslrootcert={wrong}"),
        format!("sslmode=verify-ca sslrootcert={wrong}"),
        format!("sslmode=verify-full sslrootcert={wrong}"),
        format!("sslmode=verify-full sslrootcert={right} host=other.example.com"),
    ] {
        let error = refused(&bad);
        assert_eq!((error.kind(), error.phase()), (ErrorKind::Tls, Some(Phase::Tls)), "{bad}: {error}");
    }
    if cluster.server.version().major < 17 {
        let direct = refused("sslmode=require sslnegotiation=direct");
        assert_eq!(direct.phase(), Some(Phase::Tls));
        assert!(direct.to_string().contains("PostgreSQL 17"), "{direct}");
    }
    for missing in ["sslmode=verify-full", "sslmode=verify-ca sslrootcert=/does/not/exist"] {
        assert_eq!(refused(missing).kind(), ErrorKind::Config, "{missing}");
    }
}

#[test]
fn prefer_and_allow_fall_back_and_show_each_attempt() {
    let kinds = |attempts: &Attempts| -> Vec<(Encryption, bool)> {
        attempts.iter().map(|attempt| (attempt.encryption, attempt.error.is_none())).collect()
    };
    let (_, attempts) = connect("sslmode=prefer").unwrap();
    assert_eq!(kinds(&attempts), [(Encryption::Tls, true)]);
    let (_, attempts) = connect("sslmode=allow").unwrap();
    assert_eq!(kinds(&attempts), [(Encryption::Plain, true)]);
    let (_, attempts) = connect("sslmode=allow user=u_only_tls").unwrap();
    assert_eq!(kinds(&attempts), [(Encryption::Plain, false), (Encryption::Tls, true)]);
    let (_, attempts) = connect("sslmode=prefer user=u_only_plain").unwrap();
    assert_eq!(kinds(&attempts), [(Encryption::Tls, false), (Encryption::Plain, true)]);
    assert_eq!(attempts.iter().next().unwrap().error.as_ref().unwrap().sqlstate.as_deref(), Some("28000"));
    assert_eq!(refused("sslmode=disable user=u_only_tls").sqlstate(), Some("28000"));
}

#[test]
fn unix_socket_and_probe() {
    let folder = cluster().server.socket_dir().display().to_string();
    let text = format!("host={folder} port={} user=postgres dbname=postgres", cluster().server.port());
    let config = Config::resolve(Params::parse(&text).unwrap(), &Environment::empty()).unwrap();
    let (connection, attempts) = Connector::new(&config).unwrap().fork_probe(true).connect().unwrap();
    assert!(attempts.phases().queue_fork.is_some() && connection.tls().is_none());
    assert!(connection.terminate().unwrap() > Duration::ZERO);

    // Over TCP this server would begin TLS: the probe is given up, and that is shown.
    let (connection, attempts) = connector(cluster(), "sslmode=disable").unwrap().fork_probe(true).connect().unwrap();
    assert!(connection.tls().is_none());
    assert_eq!(attempts.iter().len(), 2);

    let missing = text.replace(&folder, "/does/not/exist");
    let config = Config::resolve(Params::parse(&missing).unwrap(), &Environment::empty()).unwrap();
    let error = Connector::new(&config).unwrap().connect().err().unwrap();
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Io, Some(Phase::Connect)));
}

#[test]
fn several_hosts_and_target_session_attrs() {
    let closed = pgusher_embedded::free_port().unwrap();
    let text =
        format!("host=127.0.0.1,127.0.0.1 port={closed},{} user=postgres dbname=postgres", cluster().server.port());
    let open = |more: &str| {
        let params = Params::parse(&format!("{text} {more}")).unwrap();
        Connector::new(&Config::resolve(params, &Environment::empty()).unwrap()).unwrap().connect()
    };
    let (_, attempts) = open("sslmode=disable").unwrap();
    assert_eq!(attempts.iter().len(), 2);
    for fine in ["read-write", "primary", "any", "prefer-standby"] {
        assert!(open(&format!("target_session_attrs={fine}")).is_ok(), "{fine}");
    }
    for wrong in ["read-only", "standby"] {
        let error = open(&format!("target_session_attrs={wrong}")).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::WrongServer);
    }
    assert!(open("target_session_attrs=read-only options='-c default_transaction_read_only=on'").is_ok());
    assert!(open("target_session_attrs=read-write options='-c default_transaction_read_only=on'").is_err());
    assert!(open("load_balance_hosts=random").is_ok());
}

#[test]
fn an_unknown_database_and_startup_parameters() {
    let error = refused("dbname=none_such sslmode=disable");
    assert_eq!((error.kind(), error.sqlstate()), (ErrorKind::Server, Some("3D000")));
    assert!(error.to_string().contains("localhost"), "{error}");
    let (mut connection, _) = connect("application_name='a b' options='-c statement_timeout=1234'").unwrap();
    assert_eq!(connection.parameter("application_name"), Some("a b"));
    let rows = connection.query_rows("show statement_timeout", &[]).unwrap();
    assert_eq!(rows.get(0, 0), Some("1234ms"));
}

#[test]
fn statements_in_every_protocol() {
    let (mut c, _) = connect("").unwrap();
    let sql = "select g, repeat('x', 100) from generate_series(1, 1000) g";
    let simple = c.simple_query(sql).unwrap();
    assert_eq!((simple.rows, simple.tag.as_deref()), (1000, Some("SELECT 1000")));
    assert!(simple.row_bytes > 100_000);
    assert!(simple.first_byte <= simple.last_row.unwrap() && simple.last_row.unwrap() <= simple.ready);
    assert_eq!(c.parse_describe_sync("", sql).unwrap().rows, 0);
    assert_eq!(c.bind_execute_sync("", &[]).unwrap().rows, 1000);
    assert_eq!(c.pipelined(sql, &[]).unwrap().rows, 1000);
    assert_eq!(c.parse_describe_sync("s", "select $1::int").unwrap().error, None);
    for _ in 0..3 {
        assert_eq!(c.bind_execute_sync("s", &[Some("7")]).unwrap().rows, 1);
    }
    c.close_statement("s").unwrap().into_result().unwrap();
    assert_eq!(c.bind_execute_sync("s", &[None]).unwrap().error.unwrap().sqlstate, "26000");
    assert_eq!(c.pipelined("", &[]).unwrap().tag, None);
    let large = c.query_rows("select repeat('y', 3000000)", &[]).unwrap();
    assert_eq!(large.get(0, 0).unwrap().len(), 3_000_000);
}

#[test]
fn sql_errors_leave_the_connection_usable() {
    let (mut c, _) = connect("").unwrap();
    let error = c.simple_query("select 1/0").unwrap().error.unwrap();
    assert_eq!(error.sqlstate, "22012");
    let error = c.pipelined("selct 1", &[]).unwrap().error.unwrap();
    assert_eq!((error.sqlstate.as_str(), error.position), ("42601", Some(1)));
    assert_eq!(c.query_rows("select x", &[]).unwrap_err().sqlstate(), Some("42703"));
    assert_eq!(c.simple_query("a\0b").unwrap_err().kind(), ErrorKind::Usage);
    c.simple_query("begin; select 1/0").unwrap();
    assert_eq!(c.transaction_status(), TxStatus::Failed);
    c.simple_query("rollback").unwrap();
    assert_eq!(c.transaction_status(), TxStatus::Idle);
    // COPY is refused from our side, and the connection goes on.
    c.simple_query("create temp table t (x int)").unwrap();
    assert_eq!(c.simple_query("copy t from stdin").unwrap().error.unwrap().sqlstate, "57014");
    assert_eq!(c.pipelined("copy t from stdin", &[]).unwrap().error.unwrap().sqlstate, "57014");
    assert_eq!(c.simple_query("copy (select 1 union select 2) to stdout").unwrap().rows, 2);
    assert_eq!(c.query_rows("select 42", &[]).unwrap().get(0, 0), Some("42"));
}

#[test]
fn cancel_timeout_and_a_dying_server() {
    let (mut c, _) = connect("").unwrap();
    let token = c.cancel_token();
    let canceller = thread::spawn(move || {
        thread::sleep(Duration::from_millis(200));
        token.cancel(Duration::from_secs(10)).unwrap();
    });
    let started = Instant::now();
    let reply = c.simple_query("select pg_sleep(15)").unwrap();
    assert_eq!(reply.error.unwrap().sqlstate, "57014");
    assert!(started.elapsed() < Duration::from_secs(10));
    canceller.join().unwrap();

    c.set_timeout(Some(Duration::from_millis(100))).unwrap();
    let error = c.simple_query("select pg_sleep(2)").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(!c.is_usable());

    let (mut victim, _) = connect("").unwrap();
    let (mut killer, _) = connect("").unwrap();
    let pid = victim.backend_pid().to_string();
    killer.query_rows("select pg_terminate_backend($1::int, 5000)", &[Some(&pid)]).unwrap();
    assert_eq!(victim.simple_query("select 1").unwrap_err().sqlstate(), Some("57P01"));
}

/// Drives a login as a state machine over a blocking socket, handing over so many bytes at a time.
fn drive(more: &str, at_a_time: usize) -> Result<(LoginMachine, Option<String>), Error> {
    use std::io::{Read, Write};
    let connector = connector(cluster(), more)?;
    let (known, _) = connector.connect()?;
    let destination = known.destination();
    let (socket, address) = destination.socket(connector.config()).unwrap();
    socket.set_nonblocking(false).unwrap();
    socket.connect(&address).unwrap();
    let mut out = Vec::new();
    let mut machine = LoginMachine::begin(&connector, destination, &mut out)?;
    let step = |machine: &mut LoginMachine, out: &mut Vec<u8>| -> Result<(), Error> {
        while !machine.is_ready() {
            (&socket).write_all(out).unwrap();
            out.clear();
            let mut buffer = vec![0; at_a_time];
            let n = (&socket).read(&mut buffer).unwrap();
            assert!(n > 0, "the server closed in phase {}", machine.phase());
            machine.receive(&connector, destination, &buffer[..n], out)?;
        }
        Ok(())
    };
    step(&mut machine, &mut out)?;
    machine.query("select 1/0", &mut out)?;
    assert!(machine.query("select 1", &mut Vec::new()).is_err(), "one statement at a time");
    step(&mut machine, &mut out)?;
    let failed = machine.statement_error().map(|error| error.sqlstate.clone());
    machine.query("select 1", &mut out)?;
    step(&mut machine, &mut out)?;
    assert!(machine.statement_error().is_none());
    machine.terminate(&mut out)?;
    (&socket).write_all(&out).unwrap();
    Ok((machine, failed))
}

#[test]
fn the_login_as_a_state_machine() {
    for at_a_time in [1, 7, 4096] {
        for auth in ["", "user=u_scram password=right", "user=u_md5 password=right", "user=u_plain password=right"] {
            for tls in
                ["sslmode=disable", "sslmode=prefer", "sslmode=require", "sslmode=require channel_binding=disable"]
            {
                let (machine, failed) = drive(&format!("{auth} {tls}"), at_a_time).unwrap();
                assert!(machine.backend_pid() > 0);
                assert_eq!(failed.as_deref(), Some("22012"), "{auth} {tls}");
            }
        }
    }
}

#[test]
fn the_state_machine_names_the_phase_of_a_failure() {
    let connector = connector(cluster(), "user=u_scram password=right sslmode=disable").unwrap();
    let (known, _) = connector.connect().unwrap();
    let begin = || LoginMachine::begin(&connector, known.destination(), &mut Vec::new()).unwrap();
    let receive = |machine: &mut LoginMachine, bytes: &[u8]| {
        machine.receive(&connector, known.destination(), bytes, &mut Vec::new())
    };
    let error = receive(&mut begin(), b"E\0\0\0\x1dSFATAL\0C53300\0Mtoo many\0\0").unwrap_err();
    assert_eq!((error.sqlstate(), error.phase()), (Some("53300"), Some(Phase::Startup)));
    let error = receive(&mut begin(), b"HTTP/1.1 400 Bad Request\r\n").unwrap_err();
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Protocol, Some(Phase::Startup)));
    let mut machine = begin();
    receive(&mut machine, b"R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0").unwrap();
    let error = receive(&mut machine, b"R\0\0\0\x08\0\0\0\0").unwrap_err();
    assert_eq!(error.phase(), Some(Phase::Authenticate), "a server that skips its proof: {error}");
}
