//! What can be prepared before a connection: passwords for each host, names for TLS, the startup packet, keys.

use pgusher_auth::ScramKeys;
use pgusher_wire::startup;
use rustls_pki_types::ServerName;

use crate::config::{Config, Host, Place, SslMode};
use crate::conninfo::{PassQuery, password_from_file};
use crate::error::{Error, Result};
use crate::secret::Secret;
use crate::tls;

/// One server of the list with what its logins need.
pub(crate) struct Target {
    pub(crate) host: Host,
    pub(crate) password: Option<Secret>,
    pub(crate) server_name: Option<ServerName<'static>>,
}

pub(crate) fn target(config: &Config, host: &Host, tls: bool, warnings: &mut Vec<String>) -> Result<Target> {
    let mut password = config.password.clone().filter(|password| !password.is_empty());
    if let (None, Some(file)) = (&password, &config.passfile) {
        let query =
            PassQuery { host: &host.passfile_name, port: host.port, dbname: &config.dbname, user: &config.user };
        let (found, warning) = password_from_file(file, query);
        password = found;
        warnings.extend(warning.filter(|warning| !warnings.contains(warning)));
    }
    let server_name = match &host.place {
        Place::Tcp { name, addr } if tls => {
            if name.is_empty() && config.tls.mode == SslMode::VerifyFull {
                return Err(Error::config("sslmode=verify-full needs a host name, not only hostaddr"));
            }
            let numeric = addr.map(|addr| addr.to_string());
            let known = if name.is_empty() { numeric.as_deref().unwrap_or("") } else { name };
            Some(tls::server_name(known)?)
        }
        Place::Tcp { .. } | Place::Unix(_) | Place::Abstract(_) => None,
    };
    Ok(Target { host: host.clone(), password, server_name })
}

pub(crate) fn startup_packet(config: &Config) -> Result<Vec<u8>> {
    let fixed = [
        ("user", Some(&config.user)),
        ("database", Some(&config.dbname)),
        ("replication", config.replication.as_ref()),
    ];
    let all: Vec<(&str, &str)> = fixed
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?.as_str())))
        .chain(config.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())))
        .collect();
    if all.iter().any(|(name, value)| name.is_empty() || name.contains('\0') || value.contains('\0')) {
        return Err(Error::config("a startup parameter has an empty name or holds a zero byte"));
    }
    let mut packet = Vec::new();
    startup::write_startup(
        &mut packet,
        config.protocol.1,
        all.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())),
    );
    if packet.len() > startup::MAX_STARTUP_LEN as usize {
        return Err(Error::config("the startup parameters are longer than a server accepts (10,000 bytes)"));
    }
    Ok(packet)
}

/// Decodes a SCRAM key: 32 bytes in base64.
fn key_bytes(secret: &Secret) -> Result<[u8; 32]> {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD
        .decode(secret.expose())
        .ok()
        .map(zeroize::Zeroizing::new)
        .and_then(|bytes| bytes.as_slice().try_into().ok())
        .ok_or_else(|| Error::config("scram_client_key and scram_server_key must be 32 bytes in base64"))
}

/// The SCRAM keys that were given in place of a password.
pub(crate) fn scram_keys(config: &Config) -> Result<Option<ScramKeys>> {
    let keys = config.scram_keys.as_ref();
    keys.map(|(client, server)| Ok(ScramKeys::new(key_bytes(client)?, key_bytes(server)?))).transpose()
}
