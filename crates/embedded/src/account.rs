//! Whose rights the server's programs run with. PostgreSQL refuses to run as root, so root hands over to an unprivileged
//! account; everybody else runs the server as himself.

use std::fs;
use std::os::unix::fs::{chown, lchown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The account that the server and its helpers run under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its name in `/etc/passwd`, where there is one.
    pub name: Option<String>,
    /// User number.
    pub uid: u32,
    /// Group number.
    pub gid: u32,
    /// True when this program runs as root and gives its rights up for the server.
    pub dropped: bool,
}

/// The account that a server started now would run under: this user, or as root `postgres`, else `nobody`, else 65534.
pub fn server_account() -> Account {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    choose(&passwd, uid, gid)
}

fn choose(passwd: &str, uid: u32, gid: u32) -> Account {
    let entries: Vec<(&str, u32, u32)> = passwd.lines().filter_map(parse_line).collect();
    if uid != 0 {
        let name = entries.iter().find(|e| e.1 == uid).map(|e| e.0.to_owned());
        return Account { name, uid, gid, dropped: false };
    }
    for wanted in ["postgres", "nobody"] {
        // An entry with the number 0 would be root under another name.
        if let Some(e) = entries.iter().find(|e| e.0 == wanted && e.1 != 0) {
            return Account { name: Some(e.0.to_owned()), uid: e.1, gid: e.2, dropped: true };
        }
    }
    Account { name: None, uid: 65534, gid: 65534, dropped: true }
}

/// One line of `/etc/passwd`: name, password, uid, gid, and more that is not needed (passwd(5)).
fn parse_line(line: &str) -> Option<(&str, u32, u32)> {
    let mut fields = line.split(':');
    let name = fields.next()?;
    let uid = fields.nth(1)?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    Some((name, uid, gid))
}

impl Account {
    /// A command that runs with this account's rights, in `/`, in the C locale and without the caller's `PG*` variables.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(name);
            }
        }
        // The messages that this crate passes on are to be readable, and the caller's folder may be closed to the account.
        command.env("LC_ALL", "C").current_dir("/");
        if self.dropped {
            // The standard library clears the supplementary groups as well when root gives a uid away.
            command.uid(self.uid).gid(self.gid).env("HOME", "/");
            if let Some(name) = &self.name {
                command.env("USER", name).env("LOGNAME", name);
            }
        }
        command
    }

    /// Gives a file or a folder to this account; does nothing when nothing is given up.
    pub(crate) fn own(&self, path: &Path) -> std::io::Result<()> {
        if self.dropped { lchown(path, Some(self.uid), Some(self.gid)) } else { Ok(()) }
    }

    /// As [`Account::own`], following a final symbolic link: for paths of which the caller knows that they are its own.
    pub(crate) fn own_target(&self, path: &Path) -> std::io::Result<()> {
        if self.dropped { chown(path, Some(self.uid), Some(self.gid)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\n\
        nobody:x:65534:65533:nobody:/nonexistent:/usr/sbin/nologin\n\
        broken\n\
        postgres:x:101:104:,,,:/var/lib/postgresql:/bin/bash\n\
        ann:x:1000:1000::/home/ann:/bin/sh\n";

    #[test]
    fn root_becomes_postgres_then_nobody_then_a_number() {
        let account = choose(PASSWD, 0, 0);
        assert_eq!((account.uid, account.gid, account.dropped), (101, 104, true));
        let without = PASSWD.replace("postgres:", "other:");
        let account = choose(&without, 0, 0);
        assert_eq!(account.name.as_deref(), Some("nobody"));
        assert_eq!(account.gid, 65533);
        let account = choose("", 0, 0);
        assert_eq!((account.name, account.uid), (None, 65534));
    }

    #[test]
    fn root_under_the_name_postgres_is_not_taken() {
        let account = choose("postgres:x:0:0::/:/bin/sh\n", 0, 0);
        assert_eq!(account.uid, 65534);
    }

    #[test]
    fn everybody_else_stays_himself() {
        let account = choose(PASSWD, 1000, 1000);
        assert_eq!(account.name.as_deref(), Some("ann"));
        assert!(!account.dropped);
    }
}
