//! What a backend on this machine has spent, as the kernel tells: processor time and minor page faults. Linux only;
//! elsewhere, and for servers on other machines, there is no answer.

use std::net::IpAddr;

use pgusher_client::{Config, Place};

use crate::proc;

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
    if proc::program(pid)? != "postgres" {
        return None;
    }
    let cpu_us = proc::Schedule::of(pid)?.cpu_ns as f64 / 1e3;
    Some(Spent { cpu_us, minor_faults: proc::Stat::of(pid)?.minor_faults })
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

#[cfg(test)]
mod tests {
    use super::*;

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
