//! The server that the connections go to, as a connection string says it: one host or several, the database that is used
//! most, and the role that pgusher itself may use.

use super::ConfigError;
use crate::tls::Servers;
use pgusher_auth::Password;
use pgusher_client::conninfo::{Environment, Keyword, Params, PassQuery, password_from_file};
use pgusher_client::{Config as Conninfo, Host, Place, TargetSessionAttrs};
use std::fmt;
use std::time::Duration;

/// For how long the answer of a name look-up is used when nothing else is configured.
const DNS_MAX_AGE: u64 = 15;

/// The server, or several that stand in for each other.
#[derive(Debug)]
pub struct Server {
    /// What the connection string means. One host at least.
    pub conninfo: Conninfo,
    /// The database, if the connection string or the environment names one.
    pub database: Option<String>,
    /// After this time the names of hosts are looked up again, and the server is asked again what it is if
    /// target_session_attrs wants something of it. `None`: only when a connection fails.
    pub dns_max_age: Option<Duration>,
    /// How its connections are encrypted.
    pub tls: Servers,
    password: Option<Password>,
}

impl Server {
    /// From a connection string, completed from the environment as libpq does.
    pub(super) fn new(conninfo: &str, dns_max_age_s: Option<u64>) -> Result<Self, ConfigError> {
        let wrong = |e: &dyn fmt::Display| ConfigError(format!("the server's connection string: {e}"));
        let environment = Environment::of_process();
        let mut params = Params::parse(conninfo).map_err(|e| wrong(&e))?;
        environment.complete(&mut params).map_err(|e| wrong(&e))?;
        let database = params.get(Keyword::Dbname).filter(|name| !name.is_empty()).map(str::to_owned);
        let mut conninfo = Conninfo::resolve(params, &environment).map_err(|e| wrong(&e))?;
        if conninfo.hosts.is_empty() {
            return Err(ConfigError("the server's connection string names no host".into()));
        }
        for host in &conninfo.hosts {
            if let Place::Abstract(name) = &host.place {
                return Err(ConfigError(format!("abstract Unix sockets (@{name}) are not supported")));
            }
        }
        if let (None, Some(file), Some(host)) = (&conninfo.password, &conninfo.passfile, conninfo.hosts.first()) {
            let query = PassQuery {
                host: &host.passfile_name,
                port: host.port,
                dbname: &conninfo.dbname,
                user: &conninfo.user,
            };
            let (password, warning) = password_from_file(file, query);
            if let Some(warning) = warning {
                tracing::warn!("{warning}");
            }
            conninfo.password = password;
        }
        let seconds = dns_max_age_s.unwrap_or(DNS_MAX_AGE);
        Ok(Self {
            password: conninfo.password.as_ref().map(|p| Password::new(p.expose())),
            tls: Servers::new(&conninfo)?,
            conninfo,
            database,
            dns_max_age: (seconds > 0).then(|| Duration::from_secs(seconds)),
        })
    }

    /// The role of the connection string.
    pub fn user(&self) -> &str {
        &self.conninfo.user
    }

    /// Its password.
    pub fn password(&self) -> Option<&Password> {
        self.password.as_ref()
    }

    /// Does the address depend on a name look-up, or on what the server says of itself?
    pub fn can_move(&self) -> bool {
        let named = |host: &Host| matches!(host.place, Place::Tcp { addr: None, ref name } if name.parse::<std::net::IpAddr>().is_err());
        self.conninfo.target_session_attrs != TargetSessionAttrs::Any || self.conninfo.hosts.iter().any(named)
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, host) in self.conninfo.hosts.iter().enumerate() {
            write!(f, "{}{host}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}
