//! Where a manager listens: Unix sockets in a folder, and TCP addresses that others could reach.

mod support;

use pgusher_manager::{AuthMethod, Config, Listen, Manager, Overrides, StartError};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use support::*;

/// A manager that listens on a free TCP port and in `folder`; the path of its socket.
fn unix_manager(folder: &Path, workers: usize) -> Result<(Manager, PathBuf), StartError> {
    let mut overrides = overrides(workers, 3);
    overrides.listen.push(Listen::Unix(folder.to_owned()));
    let conninfo = server().socket_conninfo("postgres", server().superuser());
    let manager = Manager::start(Config::from_conninfo(&conninfo, &overrides).unwrap())?;
    let path = folder.join(format!(".s.PGSQL.{}", port(&manager)));
    Ok((manager, path))
}

#[test]
fn programs_over_a_unix_socket() {
    let db = database("unix");
    for workers in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        let (manager, path) = unix_manager(folder.path(), workers).unwrap();
        assert_eq!(manager.addresses()[1], path.display().to_string());
        assert!(path.metadata().unwrap().file_type().is_socket());
        let host = folder.path().to_str().unwrap();
        let run = |name: &str, args: &[&str]| {
            let ended = program(&manager, name, db, &[&["-h", host][..], args].concat());
            assert!(ended.ok, "{name} {args:?}: {}", ended.err);
            ended.out
        };
        // psql says itself that it came by a socket; the database is the one behind the manager.
        let told = run("psql", &["-XAtc", "select current_database()", "-c", "\\conninfo"]);
        assert!(told.starts_with("unix\n") && told.contains(host), "{told}");
        run("pgbench", &["-i", "-q", "-s", "1"]);
        for mode in ["simple", "extended"] {
            let out = run("pgbench", &["-n", "-S", "-M", mode, "-c", "10", "-t", "30"]);
            assert!(out.contains("actually processed: 300/300"), "{out}");
        }
        let out = run("pgbench", &["-n", "-S", "-C", "-c", "4", "-t", "10"]);
        assert!(out.contains("actually processed: 40/40"), "{out}");
        // TCP beside it.
        assert_eq!(program(&manager, "psql", db, &["-XAtc", "select 'tcp'"]).out, "tcp\n");

        assert!(manager.shut_down(|| false));
        assert!(!path.exists(), "the socket's file is removed at the end");
    }
}

#[test]
fn socket_files() {
    let folder = tempfile::tempdir().unwrap();
    // In a folder without a TCP address: the default port names the socket.
    let only_unix = || {
        let overrides = Overrides { listen: vec![Listen::Unix(folder.path().to_owned())], ..overrides(2, 1) };
        let conninfo = server().socket_conninfo("postgres", server().superuser());
        Manager::start(Config::from_conninfo(&conninfo, &overrides).unwrap())
    };
    let path = folder.path().join(".s.PGSQL.6432");
    // Left behind by a process that died.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let select = || {
        let mut command = server().client("psql");
        command.args(["-XAtc", "select 'served'"]).env("PGHOST", folder.path()).env("PGPORT", "6432");
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let manager = only_unix().unwrap();
    assert_eq!(manager.addresses(), [path.display().to_string()]);
    assert_eq!(select(), "served\n");

    // Somebody listens there: it is left alone.
    let second = only_unix();
    let Err(error) = second else { panic!("two managers on one socket") };
    let text = error.to_string();
    assert!(text.contains("another process listens there") && text.contains(path.to_str().unwrap()), "{text}");
    assert_eq!(select(), "served\n");

    drop(manager);
    assert!(!path.exists());

    // A folder that is not there.
    let missing = folder.path().join("missing");
    let Err(error) = unix_manager(&missing, 1) else { panic!("listens in a folder that is not there") };
    assert!(error.to_string().contains("missing"), "{error}");
}

/// What the server asks of pgusher says nothing about a client from elsewhere, and no method is taken for granted there.
#[test]
fn addresses_that_others_reach_need_a_method() {
    let conninfo = "host=127.0.0.1 port=5432 user=postgres dbname=postgres";
    let config = |listen: &str, auth: Option<AuthMethod>, toml: &str| {
        let listen = vec!["127.0.0.1:0".parse::<Listen>().unwrap(), listen.parse().unwrap()];
        let overrides = Overrides { listen, auth, ..Overrides::default() };
        Config::from_toml(&format!("server = '{conninfo}'\n{toml}"), &overrides).map(drop).map_err(|e| e.to_string())
    };
    for address in ["0.0.0.0:6432", "192.0.2.1:6432", "[::]:6432", "[2001:db8::1]:6432"] {
        let refusal = config(address, Some(AuthMethod::Server), "").unwrap_err();
        assert!(refusal.contains("loopback") && refusal.contains(address), "{refusal}");
        assert!(refusal.contains("name another method"), "{refusal}");
        assert_eq!(config(address, None, "auth = 'server'").unwrap_err(), refusal);

        let refusal = config(address, None, "").unwrap_err();
        assert!(refusal.contains("scram-sha-256") && refusal.contains("--auth"), "{refusal}");
        assert_eq!(config(address, None, "[users]\napp = 'secret'\n").unwrap_err(), refusal);

        // The cure.
        config(address, Some(AuthMethod::ScramSha256), "[users]\napp = 'secret'\n").unwrap();
        config(address, Some(AuthMethod::Trust), "").unwrap();
    }
    for address in ["127.0.0.1:6432", "127.1.2.3:6432", "[::1]:6432", "/tmp"] {
        config(address, Some(AuthMethod::Server), "").unwrap();
        config(address, None, "").unwrap();
    }
}
