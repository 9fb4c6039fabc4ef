//! What a backend on this machine has spent, as the kernel tells: processor time and minor page faults. Linux only;
//! elsewhere, and for servers on other machines, there is no answer.

use std::fs;
use std::net::IpAddr;

use pgusher_client::{Config, Place};

/// What a process has spent since it began.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spent {
    /// Time on a processor, microseconds.
    pub(crate) cpu_us: f64,
    /// Pages that it touched for the first time and that needed no reading.
    pub(crate) minor_faults: u64,
}

/// Of the backend with this process number; `None` if there is no process `postgres` of that number here.
pub(crate) fn spent(pid: u32) -> Option<Spent> {
    // A number from another machine or another container may belong to anything here.
    if fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim_end() != "postgres" {
        return None;
    }
    let schedule = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse(&schedule, &stat)
}

/// Whether all servers of a configuration are on this machine.
pub(crate) fn is_local(config: &Config) -> bool {
    config.hosts.iter().all(|host| match &host.place {
        Place::Unix(_) | Place::Abstract(_) => true,
        Place::Tcp { addr: Some(address), .. } => address.is_loopback(),
        Place::Tcp { name, addr: None } => {
            name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        }
    })
}

/// From `/proc/PID/schedstat` (nanoseconds on a processor come first) and `/proc/PID/stat` (field 10; the second one, in
/// parentheses, may hold blanks).
fn parse(schedule: &str, stat: &str) -> Option<Spent> {
    let nanoseconds: u64 = schedule.split_whitespace().next()?.parse().ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    let minor_faults = after_name.split_whitespace().nth(7)?.parse().ok()?;
    Some(Spent { cpu_us: nanoseconds as f64 / 1e3, minor_faults })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields() {
        let stat = "4711 (postgres: x) y) S 1 4711 4711 0 -1 4194624 523 0 1 0 12 3 0 0 20 0 1 0";
        assert_eq!(parse("1420000 77 12\n", stat), Some(Spent { cpu_us: 1420.0, minor_faults: 523 }));
        assert_eq!(parse("", stat), None);
        assert_eq!(parse("1 2 3", "4711 (postgres) S 1"), None);
    }

    #[test]
    fn only_a_postgres() {
        assert_eq!(spent(std::process::id()), None);
    }

    #[test]
    fn where_a_server_is() {
        let is = |conninfo: &str| is_local(&Config::from_conninfo(conninfo).expect("conninfo"));
        assert!(is("host=/tmp") && is("host=127.0.0.1") && is("host=localhost") && is("host=::1"));
        assert!(!is("host=192.0.2.1") && !is("host=db.example") && !is("host=/tmp,db.example"));
    }
}
