//! Every way for a client to prove its identity, in front of servers that ask for SCRAM and for md5 passwords themselves.

mod support;

use pgusher_client::{Config as Conninfo, Connection, Connector};
use pgusher_embedded::Server;
use pgusher_manager::{AuthMethod, Config, Manager, Overrides};
use pgusher_wire::startup::Version;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use support::*;

/// A quote, a backslash, a space: what a user list and a connection string have to escape.
const ODD_NAME: &str = r#"o"dd \us er"#;
const ODD_PASSWORD: &str = r#"p"a\ ss'""#;
const PASSWORD: &str = "the right one";

/// Roles `scrammed` and `hashed`, whose passwords are stored as a SCRAM verifier and as an md5 hash and asked for so, and
/// one with an odd name.
fn strict() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let server = Server::builder()
            .hba("host all hashed 127.0.0.1/32 md5")
            .hba("host all all 127.0.0.1/32 scram-sha-256")
            .start()
            .unwrap();
        let odd_password = ODD_PASSWORD.replace('\'', "''");
        let odd_name = ODD_NAME.replace('"', "\"\"");
        let sql = format!(
            "set password_encryption = 'scram-sha-256'; create role scrammed login password '{PASSWORD}'; \
             create role changing login password '{PASSWORD}'; \
             create role \"{odd_name}\" login password '{odd_password}'; \
             set password_encryption = 'md5'; create role hashed login password '{PASSWORD}'"
        );
        server.psql("postgres", &sql).unwrap();
        server
    })
}

fn stored(role: &str) -> String {
    let role = role.replace('\'', "''");
    strict().psql("postgres", &format!("select rolpassword from pg_authid where rolname = '{role}'")).unwrap()
}

fn start(method: AuthMethod, workers: usize, toml: &str) -> Manager {
    let conninfo = strict().conninfo("postgres", "postgres");
    let overrides = Overrides { auth: Some(method), ..overrides(workers, 2) };
    manager_at(&conninfo, toml, &overrides)
}

fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// Logs in with a password, or says with which SQLSTATE it was refused.
fn connect(manager: &Manager, user: &str, password: &str) -> Result<Connection, String> {
    let text = format!(
        "host=127.0.0.1 port={} dbname=postgres user={} password={} sslmode=disable",
        port(manager),
        quote(user),
        quote(password)
    );
    let connector = Connector::new(&Conninfo::from_conninfo(&text).unwrap()).unwrap().timeout(Some(PATIENCE));
    connector.connect().map(|(connection, _)| connection).map_err(|e| match e.server() {
        Some(server) => server.sqlstate.clone(),
        None => panic!("{user}: {e}"),
    })
}

/// Logs in, is asked in the way that is expected, and reaches the server as that user; no other password works.
fn check(what: &str, manager: &Manager, user: &str, password: &str, asked: &str) {
    for wrong in ["a wrong one", "", &password[1..], &format!("{password} ")] {
        if !wrong.is_empty() {
            assert_eq!(connect(manager, user, wrong).err().as_deref(), Some("28P01"), "{what}: {wrong:?}");
        }
    }
    for _ in 0..2 {
        let mut connection = connect(manager, user, password).unwrap_or_else(|e| panic!("{what}: {user}: {e}"));
        assert_eq!(connection.auth_method(), asked, "{what}");
        let rows = connection.query_rows("select current_user", &[]).unwrap();
        assert_eq!(rows.get(0, 0), Some(user), "{what}");
    }
    assert_eq!(connect(manager, "stranger", password).err().as_deref(), Some("28P01"), "{what}");
    assert_eq!(connect(manager, user, "a wrong one").err().as_deref(), Some("28P01"), "{what}");
}

#[test]
fn users_in_the_configuration() {
    let (verifier, hash) = (stored("scrammed"), stored("hashed"));
    assert!(verifier.starts_with("SCRAM-SHA-256$") && hash.starts_with("md5"));
    use AuthMethod::{Md5, Plain, ScramSha256};
    for (method, user, secret, asked) in [
        (ScramSha256, "scrammed", PASSWORD, "scram-sha-256"),
        (ScramSha256, "scrammed", &verifier, "scram-sha-256"),
        (ScramSha256, "hashed", PASSWORD, "scram-sha-256"),
        (Md5, "scrammed", PASSWORD, "md5"),
        (Md5, "scrammed", &verifier, "scram-sha-256"),
        (Md5, "hashed", PASSWORD, "md5"),
        (Md5, "hashed", &hash, "md5"),
        (Plain, "scrammed", PASSWORD, "password"),
        (Plain, "scrammed", &verifier, "password"),
        (Plain, "hashed", PASSWORD, "password"),
        (Plain, "hashed", &hash, "password"),
    ] {
        for workers in [1, 2] {
            let what = format!("{method:?}, {user}, {}, {workers} workers", &secret[..3]);
            let manager = start(method, workers, &format!("[users]\n{user} = '{secret}'\n"));
            check(&what, &manager, user, PASSWORD, asked);
        }
    }
}

/// PgBouncer's userlist.txt, with everything that has to be escaped in it.
#[test]
fn a_user_list() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("userlist.txt");
    let doubled = |text: &str| text.replace('"', "\"\"");
    let list = format!(
        "; a comment\n\n\"scrammed\" \"{}\"\r\n  \"hashed\"   \"{}\" \"further\" words\n\"{}\" \"{}\"\n",
        stored("scrammed"),
        stored("hashed"),
        doubled(ODD_NAME),
        doubled(ODD_PASSWORD)
    );
    std::fs::write(&path, list).unwrap();
    let toml = format!("user_list = '{}'\n", path.display());
    use AuthMethod::{Md5, Plain, ScramSha256};
    for (method, user, password, asked) in [
        (ScramSha256, "scrammed", PASSWORD, "scram-sha-256"),
        (ScramSha256, ODD_NAME, ODD_PASSWORD, "scram-sha-256"),
        (Md5, "scrammed", PASSWORD, "scram-sha-256"),
        (Md5, "hashed", PASSWORD, "md5"),
        (Md5, ODD_NAME, ODD_PASSWORD, "md5"),
        (Plain, "scrammed", PASSWORD, "password"),
        (Plain, "hashed", PASSWORD, "password"),
        (Plain, ODD_NAME, ODD_PASSWORD, "password"),
    ] {
        let manager = start(method, 1, &toml);
        check(&format!("{method:?}, {user}"), &manager, user, password, asked);
    }
    // An md5 hash says nothing that SCRAM could be checked against.
    let manager = start(ScramSha256, 1, &toml);
    assert_eq!(connect(&manager, "hashed", PASSWORD).err().as_deref(), Some("28P01"));

    // psql, with its own idea of quoting.
    let env = [("PGUSER", ODD_NAME), ("PGPASSWORD", ODD_PASSWORD)];
    let ended = program_env(&manager, "psql", "postgres", &["-XAtwc", "select current_user"], &env);
    assert_eq!(ended.out, format!("{ODD_NAME}\n"), "{}", ended.err);

    std::fs::write(&path, "\"scrammed\" \"x\"\n\"half\n").unwrap();
    let config = Config::from_toml(&format!("server = 'host=127.0.0.1'\n{toml}"), &overrides(1, 1));
    let text = config.unwrap_err().to_string();
    assert!(text.contains("line 2") && text.contains("userlist.txt"), "{text}");
}

/// The names in the documentation are those that the file takes.
#[test]
fn names_of_the_methods() {
    for name in ["server", "trust", "scram-sha-256", "md5", "plain"] {
        let toml = format!("server = 'host=127.0.0.1 user=x'\nauth = '{name}'\n[users]\napp = 'secret'\n");
        let config = Config::from_toml(&toml, &Overrides::default()).map(drop);
        assert!(config.is_ok(), "{config:?}");
    }
}

/// What is wrong with a file is said without showing it: the line may hold a password.
#[test]
fn a_broken_file_does_not_show_its_secrets() {
    for (toml, line, words) in [
        ("[users]\napp = \"hunter2", "line 3", "expected"),
        ("[users]\napp = 20240917", "line 3", "expected a string"),
        ("pool_size = 3\n[users]\nx = 'y'\napp = 'hunter2' 'more'", "line 5", "expected"),
        ("[users]\napp = ['hunter2', 'x']", "line 3", "expected a string"),
        ("users = 'hunter2'", "line 2", "expected a map"),
        ("pool_sise = 3", "line 2", "pool_sise"),
        ("auth = 'hunter'", "line 2", "scram-sha-256"),
    ] {
        let config = Config::from_toml(&format!("server = 'host=127.0.0.1'\n{toml}"), &Overrides::default());
        let text = config.map(drop).unwrap_err().to_string();
        assert!(text.contains(line) && text.contains(words), "{toml}: {text}");
        assert!(!text.contains("hunter2") && !text.contains("2024"), "{toml}: {text}");
    }
}

/// A secret that the client can be checked against need not be one that the server takes: with the client's password at hand
/// the manager can log in anyway.
#[test]
fn a_plain_password_serves_for_the_server() {
    let hash =
        pgusher_auth::md5::Md5Hash::from_password(b"scrammed", &pgusher_auth::Password::new(PASSWORD.as_bytes()));
    let hash = String::from_utf8(hash.as_bytes().to_vec()).unwrap();
    let manager = start(AuthMethod::Plain, 1, &format!("[users]\nscrammed = '{hash}'\n"));
    check("plain", &manager, "scrammed", PASSWORD, "password");
}

/// What the first message of the server asks for: 3 is a password in clear text, 10 is SASL.
fn asked_for(manager: &Manager, user: &str) -> u32 {
    let mut client = Client::raw(manager);
    client.send(&startup(Version::V3_0, &[("user", user), ("database", "postgres")]));
    let (tag, body) = client.message().unwrap();
    assert_eq!(tag, b'R');
    u32::from_be_bytes([body[0], body[1], body[2], body[3]])
}

/// `server`: the first login shows the password over loopback, the second proves it; a wrong one never helps, and a changed
/// one counts within the time that the documentation says.
#[test]
fn as_the_server_asks() {
    let managers = [start(AuthMethod::Server, 1, ""), start(AuthMethod::Server, 2, "")];
    for manager in &managers {
        assert_eq!(asked_for(manager, "changing"), 3);
        assert_eq!(connect(manager, "changing", "a wrong one").err().as_deref(), Some("28P01"));
        assert_eq!(asked_for(manager, "changing"), 3, "a wrong password teaches nothing");
        assert_eq!(connect(manager, "changing", PASSWORD).unwrap().auth_method(), "password");
        assert_eq!(asked_for(manager, "changing"), 10);
        assert_eq!(connect(manager, "changing", PASSWORD).unwrap().auth_method(), "scram-sha-256");
        for _ in 0..3 {
            assert_eq!(connect(manager, "changing", "a wrong one").err().as_deref(), Some("28P01"));
            assert_eq!(connect(manager, "changing", PASSWORD).unwrap().auth_method(), "scram-sha-256");
        }
        // What is known of one says nothing of another, nor of a role that does not exist.
        assert_eq!(asked_for(manager, "scrammed"), 3);
        assert_eq!(connect(manager, "stranger", PASSWORD).err().as_deref(), Some("28P01"));
        // md5 at the server: no keys to prove anything with, so the server judges each time.
        for _ in 0..2 {
            assert_eq!(connect(manager, "hashed", "a wrong one").err().as_deref(), Some("28P01"));
            assert_eq!(connect(manager, "hashed", PASSWORD).unwrap().auth_method(), "password");
        }
    }
    strict().psql("postgres", "alter role changing password 'another one'").unwrap();
    let changed = Instant::now();
    for manager in &managers {
        // 10 seconds, and the second in which that is noticed.
        eventually(Duration::from_secs(13).saturating_sub(changed.elapsed()), "the old password is refused", || {
            connect(manager, "changing", PASSWORD).is_err()
        });
        assert_eq!(connect(manager, "changing", PASSWORD).err().as_deref(), Some("28P01"));
        let mut connection = connect(manager, "changing", "another one").unwrap();
        let rows = connection.query_rows("select current_user", &[]).unwrap();
        assert_eq!(rows.get(0, 0), Some("changing"));
        assert_eq!(connect(manager, "changing", PASSWORD).err().as_deref(), Some("28P01"), "now by SCRAM");
        assert_eq!(connect(manager, "changing", "another one").unwrap().auth_method(), "scram-sha-256");
    }
}
