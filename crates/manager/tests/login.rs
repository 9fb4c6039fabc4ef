//! How clients log in: SCRAM against the configuration's users, as the server asks, and the settings that come with a login.

mod support;

use pgusher_embedded::{Auth, Server};
use pgusher_manager::{AuthMethod, Manager, Overrides};
use std::time::Duration;
use support::*;

const PASSWORD: &str = "the right one";

/// A server that asks for SCRAM over TCP and has one role besides the superuser.
fn strict() -> Server {
    let server = Server::builder().hba("host all all 127.0.0.1/32 scram-sha-256").auth(Auth::Trust).start().unwrap();
    let sql = format!(
        "set password_encryption = 'scram-sha-256'; create role app login password '{PASSWORD}'; \
         create role postgres2 login superuser"
    );
    server.psql("postgres", &sql).unwrap();
    server
}

/// psql through the manager as a user with a password; "" gives none.
fn psql(manager: &Manager, user: &str, password: &str) -> Ended {
    let mut env = vec![("PGUSER", user)];
    if !password.is_empty() {
        env.push(("PGPASSWORD", password));
    }
    program_env(manager, "psql", "postgres", &["-XAtwc", "select current_user"], &env)
}

fn overrides_for(workers: usize, auth: AuthMethod) -> Overrides {
    Overrides { auth: Some(auth), ..overrides(workers, 2) }
}

/// A manager in front of the server's TCP port.
fn tcp_manager(server: &Server, workers: usize, auth: AuthMethod, users: &str) -> Manager {
    let conninfo = server.conninfo("postgres", server.superuser());
    let toml = format!("server = \"\"\"{conninfo}\"\"\"\n{users}");
    let config = pgusher_manager::Config::from_toml(&toml, &overrides_for(workers, auth)).unwrap();
    Manager::start(config).unwrap()
}

#[test]
fn scram_with_users_of_the_configuration() {
    let server = strict();
    let verifier = server.psql("postgres", "select rolpassword from pg_authid where rolname = 'app'").unwrap();
    assert!(verifier.starts_with("SCRAM-SHA-256$"));
    for workers in [1, 2] {
        // A plain password, and the server's own verifier: the manager logs in with the client's keys.
        for secret in [PASSWORD, &verifier] {
            let users = format!("[users]\napp = '{secret}'\n");
            let manager = tcp_manager(&server, workers, AuthMethod::ScramSha256, &users);
            for (user, password) in [("app", "a wrong one"), ("nobody", PASSWORD)] {
                let ended = psql(&manager, user, password);
                assert!(!ended.ok, "{user} came in");
                assert!(ended.err.contains("password authentication failed"), "{}", ended.err);
            }
            for _ in 0..2 {
                let ended = psql(&manager, "app", PASSWORD);
                assert_eq!(ended.out, "app\n", "{}", ended.err);
            }
        }
    }
}

#[test]
fn as_the_server_asks() {
    let lenient = server();
    lenient.psql("postgres", "create role guest login").unwrap();
    let strict = strict();
    for workers in [1, 2] {
        let manager = tcp_manager(lenient, workers, AuthMethod::Server, "");
        let ended = psql(&manager, "guest", "");
        assert_eq!(ended.out, "guest\n", "{}", ended.err);
        drop(manager);

        let manager = tcp_manager(&strict, workers, AuthMethod::Server, "");
        let ended = psql(&manager, "app", "");
        assert!(!ended.ok && ended.err.contains("no password supplied"), "{}", ended.err);
        let ended = psql(&manager, "app", "a wrong one");
        assert!(!ended.ok && ended.err.contains("password authentication failed"), "{}", ended.err);
        let ended = psql(&manager, "app", PASSWORD);
        assert_eq!(ended.out, "app\n", "{}", ended.err);
        // From now on a verifier is known: this client would refuse to show its password.
        let env = [("PGUSER", "app"), ("PGPASSWORD", PASSWORD), ("PGREQUIREAUTH", "scram-sha-256")];
        let ended = program_env(&manager, "psql", "postgres", &["-XAtwc", "select 'again'"], &env);
        assert_eq!(ended.out, "again\n", "{}", ended.err);
        let ended = psql(&manager, "app", "a wrong one");
        assert!(!ended.ok && ended.err.contains("password authentication failed"), "{}", ended.err);
    }
}

#[test]
fn settings_stay_with_their_client() {
    let db = database("settings");
    server().psql(db, "create schema left_one; create schema right_one").unwrap();
    for workers in [1, 2] {
        let manager = manager(server(), workers, 1);
        let login = |name: &str, memory: &str, path: &str| {
            Client::login(
                &manager,
                &[
                    ("user", "postgres"),
                    ("database", db),
                    ("application_name", name),
                    ("options", &format!("-c work_mem={memory}")),
                    ("search_path", path),
                ],
            )
            .unwrap()
        };
        let mut left = login("left", "7MB", "left_one");
        let mut right = login("right", "9MB", "right_one");
        let mut plain = Client::new(&manager, db);
        let ask = "select concat_ws('|', current_setting('application_name'), current_setting('work_mem'), \
                   current_setting('search_path'))";
        for _ in 0..20 {
            assert_eq!(left.query(ask).value(), "left|7MB|left_one");
            assert_eq!(right.query(ask).value(), "right|9MB|right_one");
            assert_eq!(plain.query(ask).value(), "4MB|\"$user\", public".replacen("4MB", "|4MB", 1));
        }
    }
}

/// SET in a session: its client sees it for as long as it lives, nobody else does.
#[test]
fn set_stays_with_its_client() {
    let db = database("sets");
    for workers in [1, 2] {
        let manager = manager(server(), workers, 2);
        let mut one = Client::new(&manager, db);
        let mut two = Client::new(&manager, db);
        one.query("set work_mem = '11MB'");
        for _ in 0..20 {
            assert_eq!(two.query("show work_mem").value(), "4MB");
            assert_eq!(one.query("show work_mem").value(), "11MB");
        }
        drop(one);
        let mut both = [Client::new(&manager, db), two];
        eventually(Duration::from_secs(5), "two connections without a trace of the setting", || {
            both.iter_mut().all(|c| c.query("begin").status == b'T')
                && both.iter_mut().all(|c| c.query("show work_mem").value() == "4MB")
                && both.iter_mut().all(|c| c.query("commit").status == b'I')
        });
    }
}
