//! `auth = "server"` with verifiers that are read from the server, and what users that do not exist are asked for.

mod support;

use pgusher_client::{Config as Conninfo, Connection, Connector};
use pgusher_embedded::Server;
use pgusher_manager::{AuthMethod, Config, Manager, Overrides};
use pgusher_wire::startup::{Version, write_startup};
use std::time::{Duration, Instant};
use support::*;

const PASSWORD: &str = "the right one";
const SCRAM: u32 = 10;
const MD5: u32 = 5;
const CLEAR: u32 = 3;
const OK: u32 = 0;

/// The superuser is let in over TCP, the others are asked by rules of their own.
fn strict() -> Server {
    let server = Server::builder()
        .hba("host all postgres 127.0.0.1/32 trust")
        .hba("host all +trusted 127.0.0.1/32 trust")
        .hba("host all banned 127.0.0.1/32 reject")
        .hba("host all clear 127.0.0.1/32 password")
        .hba("host all hashed 127.0.0.1/32 md5")
        .hba("host all all 127.0.0.1/32 scram-sha-256")
        .start()
        .unwrap();
    let sql = format!(
        "set password_encryption = 'scram-sha-256'; create role trusted; \
         create role app login password '{PASSWORD}'; \
         create role guest login password '{PASSWORD}' in role trusted; \
         create role banned login password '{PASSWORD}'; \
         create role clear login password '{PASSWORD}'; \
         create role group_role nologin password '{PASSWORD}'; \
         create role old login password '{PASSWORD}' valid until '2020-01-01'; \
         create role young login password '{PASSWORD}' valid until '2999-01-01'; \
         create role empty login; \
         set password_encryption = 'md5'; \
         create role hashed login password '{PASSWORD}'; create role mismatch login password '{PASSWORD}'"
    );
    server.psql("postgres", &sql).unwrap();
    server
}

fn start(server: &Server, user: &str, workers: usize, toml: &str) -> Manager {
    let overrides = Overrides { auth: Some(AuthMethod::Server), ..overrides(workers, 2) };
    manager_at(&server.conninfo("postgres", user), toml, &overrides)
}

/// Logs in with a password, or says the SQLSTATE and the message of the refusal.
fn connect(manager: &Manager, user: &str, password: &str) -> Result<Connection, (String, String)> {
    let user = user.replace('\\', "\\\\").replace('\'', "\\'");
    let text = format!(
        "host=127.0.0.1 port={} dbname=postgres user='{user}' password='{password}' sslmode=disable passfile=/dev/null",
        port(manager),
    );
    let connector = Connector::new(&Conninfo::from_conninfo(&text).unwrap()).unwrap().timeout(Some(PATIENCE));
    connector.connect().map(|(connection, _)| connection).map_err(|e| match e.server() {
        Some(server) => (server.sqlstate.clone(), server.message.clone()),
        None => panic!("{user}: {e}"),
    })
}

fn refused(manager: &Manager, user: &str, password: &str) {
    let refusal = connect(manager, user, password).err().unwrap_or_else(|| panic!("{user} came in"));
    assert_eq!(refusal, ("28P01".into(), format!("password authentication failed for user \"{user}\"")), "{user}");
}

fn accepted(manager: &Manager, user: &str, password: &str, method: &str) {
    let mut connection = connect(manager, user, password).unwrap_or_else(|e| panic!("{user}: {e:?}"));
    assert_eq!(connection.auth_method(), method, "{user}");
    assert_eq!(connection.query_rows("select current_user", &[]).unwrap().get(0, 0), Some(user));
}

/// What the first message of the server asks for.
fn asked_for(manager: &Manager, user: &str) -> u32 {
    let mut client = Client::raw(manager);
    let mut packet = Vec::new();
    let parameters = [("user", user), ("database", "postgres")].map(|(n, v)| (n.as_bytes(), v.as_bytes()));
    write_startup(&mut packet, Version::V3_0, parameters);
    client.send(&packet);
    match client.message() {
        Some((b'R', body)) => u32::from_be_bytes([body[0], body[1], body[2], body[3]]),
        other => panic!("{user}: {other:?}"),
    }
}

#[test]
fn proofs_are_checked_against_the_servers_verifiers() {
    let server = strict();
    for workers in [1, 2] {
        let manager = start(&server, "postgres", workers, "");
        // From the first login on.
        assert_eq!(asked_for(&manager, "app"), SCRAM);
        for user in ["app", "young"] {
            refused(&manager, user, "a wrong one");
            accepted(&manager, user, PASSWORD, "scram-sha-256");
            accepted(&manager, user, PASSWORD, "scram-sha-256");
            refused(&manager, user, "a wrong one");
        }
        assert_eq!(asked_for(&manager, "hashed"), MD5);
        refused(&manager, "hashed", "a wrong one");
        accepted(&manager, "hashed", PASSWORD, "md5");
        // Each of these would be refused by the server, whatever the password; nothing tells them apart.
        for user in ["nobody", "group_role", "old", "empty", "mismatch", "x' or '1'='1", "$1; select 1"] {
            assert_eq!(asked_for(&manager, user), SCRAM, "{user}");
            refused(&manager, user, PASSWORD);
            refused(&manager, user, "md5");
        }
    }
}

#[test]
fn the_servers_own_rules_stay_the_judge() {
    let server = strict();
    let manager = start(&server, "postgres", 1, "");
    // It has a password, but the server does not want it.
    assert_eq!(asked_for(&manager, "guest"), OK);
    // It wants it in clear text: another than the server may judge it.
    assert_eq!(asked_for(&manager, "clear"), CLEAR);
    accepted(&manager, "clear", PASSWORD, "password");
    refused(&manager, "clear", "a wrong one");
    let (state, message) = connect(&manager, "banned", PASSWORD).err().unwrap();
    assert_eq!(state, "28000");
    assert!(message.contains("pg_hba.conf rejects connection"), "{message}");
    assert_eq!(connect(&manager, "app", PASSWORD).unwrap().auth_method(), "scram-sha-256");

    // A rule that is made stricter is noticed within the time that the documentation names.
    server.psql("postgres", "revoke trusted from guest").unwrap();
    eventually(Duration::from_secs(13), "a password is asked for", || asked_for(&manager, "guest") == SCRAM);
    refused(&manager, "guest", "a wrong one");
    accepted(&manager, "guest", PASSWORD, "scram-sha-256");
}

#[test]
fn a_changed_password() {
    let server = strict();
    for workers in [1, 2] {
        let manager = start(&server, "postgres", workers, "");
        accepted(&manager, "app", PASSWORD, "scram-sha-256");
        let mut staying = connect(&manager, "app", PASSWORD).unwrap();
        server.psql("postgres", "alter role app password 'another one'").unwrap();
        std::thread::sleep(Duration::from_millis(1200));
        // What is cached is doubted by the first attempt, which asks for a new answer; long before it is too old.
        let begun = Instant::now();
        let _ = connect(&manager, "app", "another one");
        eventually(Duration::from_secs(2), "the new password counts", || {
            connect(&manager, "app", "another one").is_ok()
        });
        assert!(begun.elapsed() < Duration::from_secs(4));
        refused(&manager, "app", PASSWORD);
        accepted(&manager, "app", "another one", "scram-sha-256");
        // A new physical connection can be opened with it; who was logged in stays so.
        assert_eq!(staying.query_rows("select 1", &[]).unwrap().get(0, 0), Some("1"));
        let kill = "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'app'";
        server.psql("postgres", kill).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        accepted(&manager, "app", "another one", "scram-sha-256");
        server.psql("postgres", &format!("alter role app password '{PASSWORD}'")).unwrap();
    }
}

/// Who may not read pg_authid may call a function that does, as with PgBouncer.
#[test]
fn a_query_of_ones_own() {
    let server = strict();
    server
        .psql(
            "postgres",
            "set password_encryption = 'scram-sha-256'; create role asker login password 'asks'; create schema pooling; \
             create function pooling.find(name text, out text, out text) language sql security definer \
             set search_path = pg_catalog as 'select rolname::text, rolpassword from pg_authid where rolname = $1'; \
             revoke all on function pooling.find from public; grant usage on schema pooling to asker; \
             grant execute on function pooling.find to asker",
        )
        .unwrap();
    let toml = "auth_query = 'select * from pooling.find($1)'\nauth_user = 'asker'\nauth_database = 'postgres'\n\
                [users]\nasker = 'asks'\n";
    let manager = start(&server, "guest", 2, toml);
    assert_eq!(asked_for(&manager, "app"), SCRAM);
    accepted(&manager, "app", PASSWORD, "scram-sha-256");
    refused(&manager, "app", "a wrong one");
    refused(&manager, "nobody", PASSWORD);
    accepted(&manager, "asker", "asks", "scram-sha-256");
    drop(manager);

    // Without the right to read, and with the query switched off, the server judges as before; a password that it has
    // accepted is asked for by SCRAM from then on.
    for toml in ["", "auth_query = ''", "auth_query = 'select * from pooling.find($1)'"] {
        let manager = start(&server, "guest", 1, toml);
        assert_eq!(asked_for(&manager, "app"), CLEAR, "{toml}");
        accepted(&manager, "app", PASSWORD, "password");
        accepted(&manager, "app", PASSWORD, "scram-sha-256");
        refused(&manager, "nobody", PASSWORD);
    }
    let manager = start(&server, "guest", 1, "");
    accepted(&manager, "app", PASSWORD, "password");
    std::thread::sleep(Duration::from_secs(11));
    accepted(&manager, "app", PASSWORD, "scram-sha-256");
}

/// Whoever may set the search_path of the database or the role cannot put a table of his own in front of the catalog.
#[test]
fn names_in_the_query_are_the_catalogs() {
    let server = strict();
    let evil = server.psql("postgres", "select rolpassword from pg_authid where rolname = 'young'").unwrap();
    server.psql("postgres", "alter role young password 'whatever'").unwrap();
    let sql = format!(
        "create schema evil; create table evil.pg_authid (rolname text, rolpassword text); \
         insert into evil.pg_authid values ('app', '{evil}'); alter role app password 'strong'; \
         alter database postgres set search_path = evil, pg_catalog; alter role postgres set search_path = evil, pg_catalog"
    );
    server.psql("postgres", &sql).unwrap();
    let toml = "auth_query = 'select rolname, rolpassword from pg_authid where rolname = $1'";
    let manager = start(&server, "postgres", 1, toml);
    refused(&manager, "app", PASSWORD);
    accepted(&manager, "app", "strong", "scram-sha-256");
}

#[test]
fn strangers_are_asked_like_users_of_the_list() {
    let server = strict();
    let hash = server.psql("postgres", "select rolpassword from pg_authid where rolname = 'hashed'").unwrap();
    let verifier = server.psql("postgres", "select rolpassword from pg_authid where rolname = 'app'").unwrap();
    for (method, user, secret, asked) in [
        (AuthMethod::Md5, "hashed", hash.as_str(), MD5),
        (AuthMethod::Md5, "app", verifier.as_str(), SCRAM),
        (AuthMethod::Plain, "clear", PASSWORD, CLEAR),
        (AuthMethod::Plain, "app", verifier.as_str(), CLEAR),
        (AuthMethod::ScramSha256, "app", verifier.as_str(), SCRAM),
    ] {
        let overrides = Overrides { auth: Some(method), ..overrides(1, 2) };
        let toml = format!("[users]\n{user} = '{secret}'");
        let manager = manager_at(&server.conninfo("postgres", "postgres"), &toml, &overrides);
        for name in [user, "nobody"] {
            assert_eq!(asked_for(&manager, name), asked, "{method:?} {name}");
            refused(&manager, name, "a wrong one");
        }
        refused(&manager, "nobody", PASSWORD);
        let method = match asked {
            SCRAM => "scram-sha-256",
            MD5 => "md5",
            _ => "password",
        };
        accepted(&manager, user, PASSWORD, method);
    }
}

/// A login to the server that fails says nothing of the connections that there are, and clients are still welcomed by them.
#[test]
fn a_server_that_lets_in_no_more_of_us_does_not_stop_those_who_are_in() {
    let server = strict();
    for workers in [1, 2] {
        server.psql("postgres", "grant trusted to guest").unwrap();
        let overrides = Overrides { auth: Some(AuthMethod::Trust), ..overrides(workers, 2) };
        let manager = manager_at(&server.conninfo("postgres", "postgres"), "", &overrides);
        let login = || Client::login(&manager, &[("user", "guest"), ("database", "postgres")]).unwrap();
        let (mut one, mut two) = (login(), login());
        one.query("begin");
        server.psql("postgres", "revoke trusted from guest").unwrap();
        // A second connection cannot be opened any more: it waits for the first.
        two.start("select 2");
        assert!(two.is_silent(Duration::from_millis(500)));
        one.query("commit");
        assert_eq!(two.reply().value(), "2");
        for _ in 0..3 {
            assert_eq!(login().query("select 3").value(), "3");
        }
    }
}

/// Limits that no clock can hold are as good as none; sizes that nothing can hold are refused.
#[test]
fn limits_without_measure() {
    let server = strict();
    let limits = ["client_login", "query_wait", "server_connect", "server_idle", "server_lifetime", "shutdown"];
    let limits = limits.map(|name| format!("{name} = {}\n", i64::MAX)).concat();
    let overrides = Overrides { auth: Some(AuthMethod::Server), ..overrides(1, 1) };
    let manager = manager_at(
        &server.conninfo("postgres", "postgres"),
        &format!("dns_max_age = {0}\n[timeouts]\n{limits}", i64::MAX),
        &overrides,
    );
    assert_eq!(Client::new(&manager, "postgres").query("select 1").value(), "1");
    for size in ["0", "262144", "9223372036854775807"] {
        let toml = format!("server = 'host=127.0.0.1'\npool_size = {size}\nmin_pool_size = {size}");
        let text = Config::from_toml(&toml, &Overrides::default()).map(drop).unwrap_err().to_string();
        assert!(text.contains("between 1 and 262143"), "{text}");
    }
}

/// What the server takes away from a user counts for new clients soon, though there are connections that it let in before.
#[test]
fn what_is_taken_away_is_taken_away_here() {
    let soon = Duration::from_secs(15);
    let server = strict();
    let own = format!("{} password='{PASSWORD}'", server.conninfo("postgres", "app"));
    let overrides = Overrides { auth: Some(AuthMethod::Server), ..overrides(1, 2) };
    let managers = [start(&server, "postgres", 1, ""), manager_at(&own, "", &overrides)];
    let logs_in = |manager: &Manager| connect(manager, "app", PASSWORD).map(drop);
    let change = |sql: &str| server.psql("postgres", sql).unwrap();
    let all = |what: &str, expected: Result<(), &str>| {
        for (at, manager) in managers.iter().enumerate() {
            eventually(soon, &format!("{what} ({at})"), || match (logs_in(manager), expected) {
                (Ok(()), Ok(())) => true,
                (Err((state, _)), Err(expected)) => state.starts_with(expected),
                _ => false,
            });
        }
    };
    all("before", Ok(()));
    change("revoke connect on database postgres from public");
    all("no CONNECT", Err("42501"));
    change("grant connect on database postgres to public");
    all("CONNECT again", Ok(()));
    change("alter role app nologin");
    all("NOLOGIN", Err("28"));
    change("alter role app login");
    all("LOGIN again", Ok(()));
    change("set password_encryption = 'scram-sha-256'; alter role app password 'another'");
    all("another password", Err("28"));
}

#[test]
fn a_number_of_clients_that_cancel_keys_cannot_tell_apart_is_refused() {
    for (clients, right) in [("0", false), ("16777216", false), ("16777215", true)] {
        let toml = format!("server = \"postgres://localhost/x\"\nmax_clients = {clients}");
        let refusal = Config::from_toml(&toml, &Overrides::default()).err().map(|e| e.to_string());
        assert_eq!(refusal.is_none(), right, "{clients}");
        if let Some(text) = refusal {
            assert!(text.contains("max_clients must be between 1 and 16777215"), "{text}");
        }
    }
}
