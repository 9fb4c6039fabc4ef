//! The password file: lines `host:port:database:user:password`, where `*` matches anything and a backslash takes the
//! next character as it is. The first matching line counts.
//!
//! Source: PostgreSQL documentation, "The Password File"; `passwordFromFile` in fe-connect.c.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use zeroize::Zeroizing;

use crate::secret::Secret;

/// No password file of a sane person is larger; a bound keeps a wrong path (a device) from filling memory.
const MAX_FILE: u64 = 16 * 1024 * 1024;

/// What a line must match.
#[derive(Clone, Copy, Debug)]
pub struct PassQuery<'a> {
    /// Host as given, or `localhost` for the default socket folder.
    pub host: &'a str,
    /// Port.
    pub port: u16,
    /// Database.
    pub dbname: &'a str,
    /// User.
    pub user: &'a str,
}

/// Finds the password. The second value is a warning to show: a file that others can read, or that is no plain
/// file, is not used.
pub fn password_from_file(file: &Path, query: PassQuery<'_>) -> (Option<Secret>, Option<String>) {
    let Ok(metadata) = std::fs::metadata(file) else {
        return (None, None);
    };
    if !metadata.is_file() {
        return (None, Some(format!("password file \"{}\" is not a plain file", file.display())));
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        return (
            None,
            Some(format!(
                "password file \"{}\" is ignored: group or world has access to it; permissions should be u=rw (0600) or less",
                file.display()
            )),
        );
    }
    let mut bytes = Zeroizing::new(Vec::new());
    let read = std::fs::File::open(file).and_then(|file| file.take(MAX_FILE).read_to_end(&mut bytes));
    if let Err(error) = read {
        return (None, Some(format!("cannot read the password file \"{}\": {error}", file.display())));
    }
    (find(&String::from_utf8_lossy(&bytes), query), None)
}

fn find(text: &str, query: PassQuery<'_>) -> Option<Secret> {
    let port = query.port.to_string();
    text.lines().find_map(|line| {
        if line.starts_with('#') {
            return None;
        }
        let mut rest = line;
        for wanted in [query.host, &port, query.dbname, query.user] {
            rest = after_field(rest, wanted)?;
        }
        let password = unescape(rest.trim_end_matches('\r'));
        (!password.is_empty()).then(|| Secret::new(password))
    })
}

/// What follows the first field and its colon, if the field matches.
fn after_field<'a>(line: &'a str, wanted: &str) -> Option<&'a str> {
    if let Some(rest) = line.strip_prefix("*:") {
        return Some(rest);
    }
    let mut wanted = wanted.chars();
    let mut chars = line.chars();
    loop {
        match chars.next()? {
            ':' => return wanted.next().is_none().then_some(chars.as_str()),
            '\\' => {
                if chars.next()? != wanted.next()? {
                    return None;
                }
            }
            c => {
                if c != wanted.next()? {
                    return None;
                }
            }
        }
    }
}

/// The password: up to a colon or the end, with backslashes undone.
fn unescape(text: &str) -> String {
    let mut password = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            ':' => break,
            '\\' => password.extend(chars.next()),
            c => password.push(c),
        }
    }
    password
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUERY: PassQuery<'static> = PassQuery { host: "h", port: 5432, dbname: "d", user: "u" };

    fn password(text: &str) -> Option<String> {
        find(text, QUERY).map(|secret| secret.expose().to_owned())
    }

    #[test]
    fn lines() {
        for (text, expected) in [
            ("h:5432:d:u:pw", Some("pw")),
            ("*:*:*:*:pw", Some("pw")),
            ("#h:5432:d:u:no\nh:5432:d:u:pw", Some("pw")),
            ("x:5432:d:u:no\n*:5432:d:u:pw\nh:*:*:*:later", Some("pw")),
            (r"h:5432:d:u:a\:b\\c", Some(r"a:b\c")),
            ("h:5432:d:u:a:b", Some("a")),
            ("h:5432:d:u", None),
            ("h:5432:d:u:", None),
            ("h:5432:d", None),
            ("hh:5432:d:u:pw", None),
            (":5432:d:u:pw", None),
            ("", None),
            (r"\h:5432:\d:u:pw", Some("pw")),
            ("h:5432:d:u:pw\r", Some("pw")),
        ] {
            assert_eq!(password(text).as_deref(), expected, "{text}");
        }
        let colons = PassQuery { host: "::1", ..QUERY };
        assert_eq!(find(r"\:\:1:5432:d:u:six", colons).unwrap().expose(), "six");
    }

    #[test]
    fn a_file_that_others_can_read_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pass");
        std::fs::write(&file, "*:*:*:*:pw\n").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        let (none, warning) = password_from_file(&file, QUERY);
        assert!(none.is_none() && warning.unwrap().contains("0600"));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let (some, warning) = password_from_file(&file, QUERY);
        assert_eq!((some.unwrap().expose(), warning), ("pw", None));
        assert!(password_from_file(folder.path(), QUERY).1.unwrap().contains("plain file"));
        assert!(matches!(password_from_file(&folder.path().join("none"), QUERY), (None, None)));
    }
}
