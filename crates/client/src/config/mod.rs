//! What a connection string means: hosts in order, and each option with its type and default. Made from
//! [`Params`] and an [`Environment`]; nothing is left to look up later but files and names.
//!
//! Source: `connectOptions2` in fe-connect.c; PostgreSQL documentation, "Parameter Key Words".

mod host;
mod options;

use std::path::PathBuf;
use std::time::Duration;

use pgusher_wire::startup::Version;

pub use host::{Host, Place};
pub use options::{
    AuthMethod, AuthMethods, ChannelBinding, GssEncMode, LoadBalanceHosts, SslCertMode, SslMode, SslNegotiation,
    TargetSessionAttrs, TlsVersion,
};

use crate::conninfo::{Environment, Keyword, Params};
use crate::error::{Error, Result};
use crate::secret::Secret;

/// Where trusted certificates come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RootCert {
    /// `~/.postgresql/root.crt`, if there is one.
    Default(Option<PathBuf>),
    /// A file that was named.
    File(PathBuf),
    /// Those of the operating system.
    System,
}

/// TLS options.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// How much TLS.
    pub mode: SslMode,
    /// How it begins.
    pub negotiation: SslNegotiation,
    /// Trusted certificates.
    pub root: RootCert,
    /// Revocation list that was named.
    pub crl: Option<PathBuf>,
    /// Folder of revocation lists that was named.
    pub crl_dir: Option<PathBuf>,
    /// Client certificate, and whether it was named (the default file may be missing).
    pub cert: Option<(PathBuf, bool)>,
    /// Client key, and whether it was named.
    pub key: Option<(PathBuf, bool)>,
    /// Whether the certificate is sent.
    pub cert_mode: SslCertMode,
    /// Whether the host name is sent in the greeting.
    pub sni: bool,
    /// Lowest version.
    pub min_version: TlsVersion,
    /// Highest version.
    pub max_version: Option<TlsVersion>,
}

/// TCP options.
#[derive(Clone, Copy, Debug)]
pub struct TcpOptions {
    /// Whether keepalives are on.
    pub keepalives: bool,
    /// Idle time before the first probe.
    pub idle: Option<Duration>,
    /// Time between probes.
    pub interval: Option<Duration>,
    /// Lost probes before the connection counts as dead.
    pub count: Option<u32>,
    /// How long sent data may stay unacknowledged (Linux).
    pub user_timeout: Option<Duration>,
}

/// Everything that is needed to connect.
#[derive(Clone, Debug)]
pub struct Config {
    /// Servers in the order in which they are tried.
    pub hosts: Vec<Host>,
    /// Role.
    pub user: String,
    /// Database.
    pub dbname: String,
    /// Password; without one the password file is asked.
    pub password: Option<Secret>,
    /// Password file.
    pub passfile: Option<PathBuf>,
    /// SCRAM client and server key in place of a password, base64.
    pub scram_keys: Option<(Secret, Secret)>,
    /// Limit for each address.
    pub connect_timeout: Option<Duration>,
    /// TCP.
    pub tcp: TcpOptions,
    /// TLS.
    pub tls: TlsOptions,
    /// Channel binding.
    pub channel_binding: ChannelBinding,
    /// Acceptable authentication methods.
    pub require_auth: AuthMethods,
    /// Lowest and highest protocol version.
    pub protocol: (Version, Version),
    /// What kind of server is acceptable.
    pub target_session_attrs: TargetSessionAttrs,
    /// Order of hosts.
    pub load_balance_hosts: LoadBalanceHosts,
    /// Owner of the server's end of a Unix socket.
    pub require_peer: Option<String>,
    /// Value of `replication`.
    pub replication: Option<String>,
    /// Other parameters of the startup packet, in order: options, application_name, client_encoding, settings.
    pub parameters: Vec<(String, String)>,
}

impl Config {
    /// From a connection string and the environment of this process.
    pub fn from_conninfo(conninfo: &str) -> Result<Config> {
        Config::resolve(Params::parse(conninfo)?, &Environment::of_process())
    }

    /// From what was set explicitly and an environment.
    pub fn resolve(mut params: Params, environment: &Environment) -> Result<Config> {
        environment.complete(&mut params)?;
        let read = Read { params: &params };
        let gss = read.choice(Keyword::Gssencmode, GssEncMode::Prefer, GssEncMode::parse)?;
        if gss == GssEncMode::Require {
            return Err(Error::config("gssencmode=require: GSS encryption is not supported")
                .advice("use gssencmode=disable or prefer, and TLS for encryption"));
        }
        let user = match read.text(Keyword::User).or(environment.user()) {
            Some(user) => user.to_owned(),
            None => {
                return Err(
                    Error::config("no user name, and that of the operating system is unknown").advice("set user")
                );
            }
        };
        let dbname = read.text(Keyword::Dbname).unwrap_or(&user).to_owned();
        let protocol = (
            read.version(Keyword::MinProtocolVersion)?.unwrap_or(Version::V3_0),
            read.version(Keyword::MaxProtocolVersion)?,
        );
        let protocol = (protocol.0, protocol.1.unwrap_or(protocol.0.max(Version::V3_0)));
        if protocol.0 > protocol.1 {
            return Err(Error::config("min_protocol_version is greater than max_protocol_version"));
        }
        let passfile = read.text(Keyword::Passfile).map(PathBuf::from);
        let config = Config {
            hosts: host::hosts(&params)?,
            password: read.text(Keyword::Password).map(Secret::from),
            passfile: passfile.or_else(|| environment.home().map(|home| home.join(".pgpass"))),
            scram_keys: match (read.text(Keyword::ScramClientKey), read.text(Keyword::ScramServerKey)) {
                (Some(client), Some(server)) => Some((client.into(), server.into())),
                (None, None) => None,
                _ => {
                    return Err(Error::config("scram_client_key and scram_server_key must be set together"));
                }
            },
            connect_timeout: read.seconds(Keyword::ConnectTimeout)?,
            tcp: read.tcp()?,
            tls: read.tls(environment)?,
            channel_binding: read.choice(Keyword::ChannelBinding, ChannelBinding::Prefer, ChannelBinding::parse)?,
            require_auth: AuthMethods::parse(read.text(Keyword::RequireAuth).unwrap_or(""))?,
            protocol,
            target_session_attrs: read.choice(
                Keyword::TargetSessionAttrs,
                TargetSessionAttrs::Any,
                TargetSessionAttrs::parse,
            )?,
            load_balance_hosts: read.choice(
                Keyword::LoadBalanceHosts,
                LoadBalanceHosts::Disable,
                LoadBalanceHosts::parse,
            )?,
            require_peer: read.text(Keyword::Requirepeer).map(str::to_owned),
            replication: read.text(Keyword::Replication).map(str::to_owned),
            parameters: read.parameters(environment),
            user,
            dbname,
        };
        Ok(config)
    }

    /// Adds or replaces a parameter of the startup packet, such as `application_name` or any setting.
    pub fn set_parameter(&mut self, name: &str, value: &str) {
        self.parameters.retain(|(known, _)| known != name);
        self.parameters.push((name.to_owned(), value.to_owned()));
    }
}

struct Read<'a> {
    params: &'a Params,
}

impl<'a> Read<'a> {
    fn text(&self, keyword: Keyword) -> Option<&'a str> {
        self.params.non_empty(keyword)
    }

    fn path(&self, keyword: Keyword) -> Option<PathBuf> {
        self.text(keyword).map(PathBuf::from)
    }

    fn choice<T>(&self, keyword: Keyword, default: T, parse: fn(&str) -> Result<T>) -> Result<T> {
        self.text(keyword).map_or(Ok(default), parse)
    }

    fn number(&self, keyword: Keyword) -> Result<Option<i64>> {
        let Some(text) = self.text(keyword) else {
            return Ok(None);
        };
        match text.trim().parse::<i32>() {
            Ok(number) => Ok(Some(i64::from(number))),
            Err(_) => Err(Error::config(format!("invalid integer value \"{text}\" for {}", keyword.name()))),
        }
    }

    fn positive(&self, keyword: Keyword) -> Result<Option<u64>> {
        Ok(self.number(keyword)?.and_then(|number| u64::try_from(number).ok()).filter(|number| *number > 0))
    }

    fn seconds(&self, keyword: Keyword) -> Result<Option<Duration>> {
        Ok(self.positive(keyword)?.map(Duration::from_secs))
    }

    fn version(&self, keyword: Keyword) -> Result<Option<Version>> {
        match self.text(keyword) {
            None => Ok(None),
            Some("3.0") => Ok(Some(Version::V3_0)),
            Some("3.2" | "latest") => Ok(Some(Version::V3_2)),
            Some(other) => Err(Error::config(format!(
                "invalid {} value \"{other}\"; possible are: 3.0, 3.2, latest",
                keyword.name()
            ))),
        }
    }

    fn tcp(&self) -> Result<TcpOptions> {
        Ok(TcpOptions {
            keepalives: self.number(Keyword::Keepalives)?.unwrap_or(1) != 0,
            idle: self.seconds(Keyword::KeepalivesIdle)?,
            interval: self.seconds(Keyword::KeepalivesInterval)?,
            count: self.positive(Keyword::KeepalivesCount)?.and_then(|count| u32::try_from(count).ok()),
            user_timeout: self.positive(Keyword::TcpUserTimeout)?.map(Duration::from_millis),
        })
    }

    fn tls(&self, environment: &Environment) -> Result<TlsOptions> {
        let folder = environment.home().map(|home| home.join(".postgresql"));
        let named_or = |keyword, file: &str| match self.path(keyword) {
            Some(path) => Some((path, true)),
            None => folder.as_ref().map(|folder| (folder.join(file), false)),
        };
        let root = match self.text(Keyword::Sslrootcert) {
            Some("system") => RootCert::System,
            Some(file) => RootCert::File(PathBuf::from(file)),
            None => RootCert::Default(folder.as_ref().map(|folder| folder.join("root.crt"))),
        };
        // Who trusts every authority of the system must at least know whom he talks to.
        let default = if root == RootCert::System { SslMode::VerifyFull } else { SslMode::Prefer };
        let mode = self.choice(Keyword::Sslmode, default, SslMode::parse)?;
        if root == RootCert::System && mode != SslMode::VerifyFull {
            return Err(Error::config(format!(
                "weak sslmode \"{}\" may not be used with sslrootcert=system",
                mode.name()
            ))
            .advice("use sslmode=verify-full"));
        }
        let negotiation = self.choice(Keyword::Sslnegotiation, SslNegotiation::Postgres, SslNegotiation::parse)?;
        if negotiation == SslNegotiation::Direct && !mode.requires_tls() {
            return Err(Error::config(format!(
                "weak sslmode \"{}\" may not be used with sslnegotiation=direct",
                mode.name()
            ))
            .advice("use require, verify-ca or verify-full"));
        }
        let version = |keyword: Keyword| match self.text(keyword) {
            Some(text) => TlsVersion::parse(keyword.name(), text).map(Some),
            None => Ok(None),
        };
        let min_version = version(Keyword::SslMinProtocolVersion)?.unwrap_or(TlsVersion::V1_2);
        let max_version = version(Keyword::SslMaxProtocolVersion)?;
        if max_version.is_some_and(|max| max < min_version) {
            return Err(Error::config("invalid TLS version range: the minimum is above the maximum"));
        }
        if max_version.is_some_and(|max| max < TlsVersion::V1_2) {
            return Err(
                Error::config("TLS below version 1.2 is not supported").advice("raise ssl_max_protocol_version")
            );
        }
        for keyword in [Keyword::Sslpassword, Keyword::Sslkeylogfile] {
            if self.text(keyword).is_some() {
                return Err(Error::config(format!("{} is not supported", keyword.name())));
            }
        }
        let cert_mode = self.choice(Keyword::Sslcertmode, SslCertMode::Allow, SslCertMode::parse)?;
        Ok(TlsOptions {
            mode,
            negotiation,
            root,
            crl: self.path(Keyword::Sslcrl),
            crl_dir: self.path(Keyword::Sslcrldir),
            cert: named_or(Keyword::Sslcert, "postgresql.crt"),
            key: named_or(Keyword::Sslkey, "postgresql.key"),
            cert_mode,
            sni: self.text(Keyword::Sslsni) != Some("0"),
            min_version,
            max_version,
        })
    }

    fn parameters(&self, environment: &Environment) -> Vec<(String, String)> {
        let name = self.text(Keyword::ApplicationName).or(self.text(Keyword::FallbackApplicationName));
        // "auto" means that of the locale; text here is always UTF-8.
        let encoding = self.text(Keyword::ClientEncoding).map(|name| if name == "auto" { "UTF8" } else { name });
        [("options", self.text(Keyword::Options)), ("application_name", name), ("client_encoding", encoding)]
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
            .chain(environment.session_settings())
            .collect()
    }
}

#[cfg(test)]
mod tests;
