//! The configuration files in docs/serve.md are right.

use pgusher_manager::{Config, Overrides};
use std::os::unix::fs::PermissionsExt;

#[test]
fn every_example_is_accepted() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/serve.md");
    let text = std::fs::read_to_string(path).unwrap();
    // The files that the examples name.
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display().to_string();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    write("server.crt", &own.cert.pem());
    write("server.key", &own.signing_key.serialize_pem());
    write("userlist.txt", "\"someone\" \"secret\"\n");

    let examples: Vec<&str> = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(examples.len() >= 3);
    for example in examples {
        let mut toml = example.replace("/etc/pgusher", &place);
        if !toml.lines().any(|line| line.starts_with("server")) {
            toml.insert_str(0, "server = 'host=127.0.0.1 user=app'\n");
        }
        let config = Config::from_toml(&toml, &Overrides::default());
        assert!(config.is_ok(), "{}\n{toml}", config.unwrap_err());
    }
}
