//! `auth = "server"` when the server knows pgusher itself by a certificate: that must let in nobody else.

mod support;

use pgusher_embedded::{Auth, Server};
use pgusher_manager::{AuthMethod, Overrides};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use std::os::unix::fs::PermissionsExt;
use support::*;

#[test]
fn our_own_certificate_lets_in_nobody_else() {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "authority");
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let issue = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        (params.signed_by(&key, &ca).unwrap().pem(), key.serialize_pem())
    };
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path.display().to_string()
    };
    let (server_cert, server_key) = issue("localhost");
    let (cert, key) = issue("app");
    let server = Server::builder()
        .auth(Auth::Trust)
        .tls(server_cert, server_key)
        .tls_client_ca(ca.pem())
        .hba("hostssl all app 127.0.0.1/32 cert")
        .hba("hostssl all trusted 127.0.0.1/32 trust clientcert=verify-ca")
        .hba("hostssl all twofold 127.0.0.1/32 scram-sha-256 clientcert=verify-ca")
        .hba("hostssl all other 127.0.0.1/32 scram-sha-256")
        .start()
        .unwrap();
    let sql = "set password_encryption = 'scram-sha-256'; create role app login; create role trusted login; \
               create role other login password 'x'; create role twofold login password 'x'";
    server.psql("postgres", sql).unwrap();
    let tls = format!(" sslmode=require sslcert={} sslkey={}", write("app.crt", &cert), write("app.key", &key));
    let to = server.conninfo("postgres", "postgres") + &tls;
    for workers in [1, 2] {
        let overrides = Overrides { auth: Some(AuthMethod::Server), ..overrides(workers, 2) };
        let manager = manager_at(&to, "", &overrides);
        let login = |user: &str| Client::login(&manager, &[("user", user), ("database", "postgres")]);
        for user in ["app", "trusted"] {
            // The certificate really is what lets us in.
            let direct = server.conninfo("postgres", user) + &tls;
            let direct = pgusher_client::Config::from_conninfo(&direct).unwrap();
            let mut direct = pgusher_client::Connector::new(&direct).unwrap().connect().unwrap().0;
            assert_eq!(direct.query_rows("select current_user", &[]).unwrap().get(0, 0), Some(user));
        }
        for user in ["app", "trusted", "twofold"] {
            let refused = login(user).err().unwrap();
            assert_eq!(refused.state(), "28000", "{refused:?}");
            assert!(refused.errors[0].1.contains("requires a valid client certificate"), "{refused:?}");
            assert!(refused.errors[0].1.contains("not shown in the place of a client's"), "{refused:?}");
        }
        // A rule that trusts everybody can be told from one that knows us.
        assert_eq!(login("postgres").unwrap().query("select current_user").value(), "postgres");
        // And who must prove something must do so as ever.
        let ended = program_env(&manager, "psql", "postgres", &["-XAtwc", "select 1"], &[("PGUSER", "other")]);
        assert!(!ended.ok && ended.err.contains("no password supplied"), "{}", ended.err);
        let env = [("PGUSER", "other"), ("PGPASSWORD", "x"), ("PGREQUIREAUTH", "scram-sha-256,password")];
        let ended = program_env(&manager, "psql", "postgres", &["-XAtwc", "select 1"], &env);
        assert_eq!(ended.out, "1\n", "{}", ended.err);
    }
}
