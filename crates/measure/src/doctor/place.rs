//! How the server was reached: which version, with what rights, through which manager, over what, and whether its
//! processes run on this machine.

use super::look::Look;
use super::model::Reached;
use crate::proc;

/// Who answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Through {
    /// The server itself.
    #[default]
    Nobody,
    /// This program's own manager, with its version.
    Pgusher(String),
    /// Another one: the process that answers is not the one that it told at login.
    Another,
}

/// What the packets of our connection cross.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Transport {
    /// A Unix socket.
    #[default]
    Unix,
    /// TCP within the machine.
    Loopback,
    /// TCP.
    Network,
}

impl Transport {
    /// Of a client's address as the server sees it; none is a Unix socket.
    pub(super) fn of(address: Option<&str>) -> Self {
        match address {
            None | Some("") => Self::Unix,
            Some(address) if address.starts_with("127.") || address == "::1" => Self::Loopback,
            Some(_) => Self::Network,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Unix => "a Unix socket",
            Self::Loopback => "loopback TCP",
            Self::Network => "the network",
        }
    }
}

/// The circumstances.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Place {
    /// `server_version_num`, for example 150020.
    pub(super) version: u32,
    /// For people.
    pub(super) version_text: String,
    pub(super) target: String,
    pub(super) user: String,
    pub(super) database: String,
    pub(super) superuser: bool,
    /// May read all statistics.
    pub(super) monitor: bool,
    pub(super) through: Through,
    pub(super) transport: Transport,
    /// TLS version and cipher.
    pub(super) tls: Option<String>,
    /// How we were authenticated.
    pub(super) auth: String,
    /// Whether the server's processes are visible here.
    pub(super) same_machine: bool,
    /// The server's clock, seconds since 1970.
    pub(super) now: f64,
}

impl Place {
    /// Asks.
    pub(super) fn look(look: &mut Look, user: &str) -> Self {
        let (connection, told) = (look.connection(), look.connection().backend_pid());
        let pgusher = connection.parameter("pgusher.version").map(str::to_owned);
        let mut place = Self {
            target: connection.target().to_owned(),
            auth: connection.auth_method().to_owned(),
            tls: connection.tls().map(|tls| format!("{} {}", tls.version, tls.cipher)),
            user: user.to_owned(),
            ..Self::default()
        };
        let sql = "select current_setting('server_version_num'), current_setting('server_version'), pg_backend_pid(), \
            host(inet_client_addr()), current_setting('is_superuser') = 'on', \
            pg_has_role(current_user, 'pg_read_all_stats', 'usage'), current_user, current_database(), \
            extract(epoch from clock_timestamp())";
        let Some(answer) = look.ask("the server's version and our rights", sql, &[], "") else {
            return place;
        };
        let text = |column| answer.text(0, column).unwrap_or_default();
        place.version = text(0).parse().unwrap_or_default();
        place.version_text = text(1);
        place.transport = Transport::of(answer.text(0, 3).as_deref());
        place.superuser = answer.is_true(0, 4);
        place.monitor = answer.is_true(0, 5);
        (place.user, place.database) = (text(6), text(7));
        place.now = answer.number(0, 8).unwrap_or_default();
        let answering = answer.number(0, 2).unwrap_or_default();
        place.through = match pgusher {
            Some(version) => Through::Pgusher(version),
            None if answering != f64::from(told) => Through::Another,
            None => Through::Nobody,
        };
        place.same_machine = place.through == Through::Nobody && is_backend_here(told);
        place
    }

    /// Whether nothing stands between us and the server.
    pub(super) fn is_direct(&self) -> bool {
        self.through == Through::Nobody
    }

    /// Whether the server is of this major version or later.
    pub(super) fn is_at_least(&self, major: u32) -> bool {
        self.version >= major * 10_000
    }

    /// The manager in words.
    pub(super) fn manager(&self) -> String {
        match &self.through {
            Through::Nobody => "directly".to_owned(),
            Through::Pgusher(version) => format!("through pgusher {version}"),
            Through::Another => "through another connection manager".to_owned(),
        }
    }

    /// For the head of the output.
    pub(super) fn reached(&self) -> Reached {
        let tls = self.tls.as_ref().map_or(String::new(), |tls| format!(" with {tls}"));
        let rights = match (self.superuser, self.monitor) {
            (true, _) => "superuser",
            (false, true) => "role with pg_read_all_stats",
            (false, false) => "ordinary role",
        };
        Reached {
            target: self.target.clone(),
            database: self.database.clone(),
            user: self.user.clone(),
            server_version: self.version_text.clone(),
            through: self.manager(),
            transport: if self.is_direct() { self.transport.name().to_owned() + &tls } else { tls.trim().to_owned() },
            same_machine: self.same_machine,
            rights: rights.to_owned(),
        }
    }
}

/// Whether a process of this number on this machine is a PostgreSQL backend: its title begins with the program's name.
fn is_backend_here(pid: u32) -> bool {
    proc::title(pid).is_some_and(|title| title.starts_with("postgres: "))
}

/// Minor page faults of a process since its start.
pub(super) fn minor_faults(pid: u32) -> Option<f64> {
    Some(proc::Stat::of(pid)?.minor_faults as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_tell_the_transport() {
        assert_eq!(Transport::of(None), Transport::Unix);
        assert_eq!(Transport::of(Some("127.0.0.1")), Transport::Loopback);
        assert_eq!(Transport::of(Some("::1")), Transport::Loopback);
        assert_eq!(Transport::of(Some("10.0.0.1")), Transport::Network);
    }

    #[test]
    fn this_process_is_no_backend() {
        assert!(!is_backend_here(std::process::id()));
        assert!(minor_faults(std::process::id()).is_some_and(|n| n > 0.0));
    }
}
