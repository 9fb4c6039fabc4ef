//! The configuration files in docs/serve.md are right.

use pgusher_manager::{Config, Overrides};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Makes the certificate and the key that the examples name, in `folder`.
fn certificate(folder: &Path) {
    let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("server.crt"), own.cert.pem()).unwrap();
    std::fs::write(folder.join("server.key"), own.signing_key.serialize_pem()).unwrap();
    std::fs::set_permissions(folder.join("server.key"), std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn every_example_is_accepted() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/serve.md");
    let text = std::fs::read_to_string(path).unwrap();
    let examples: Vec<&str> = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(examples.len() >= 3);
    let folder = tempfile::tempdir().unwrap();
    certificate(folder.path());
    for example in examples {
        let mut toml = String::new();
        if !example.lines().any(|line| line.starts_with("server")) {
            toml.push_str("server = 'host=127.0.0.1 user=app'\n");
        }
        // Files that exist only where it is used.
        toml.extend(example.lines().filter(|line| !line.starts_with("user_list")).flat_map(|line| [line, "\n"]));
        let toml = toml.replace("/etc/pgusher/server.", &format!("{}/server.", folder.path().display()));
        let config = Config::from_toml(&toml, &Overrides::default());
        assert!(config.is_ok(), "{}\n{toml}", config.unwrap_err());
    }
}
