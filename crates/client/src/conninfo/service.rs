//! The connection service file: named sections of connection keywords.
//!
//! Looked for in PGSERVICEFILE or `~/.pg_service.conf`, then `pg_service.conf` in PGSYSCONFDIR (or the folders that
//! packages use). LDAP look-ups, which libpq can do from here, are refused.
//!
//! Source: PostgreSQL documentation, "The Connection Service File"; `parseServiceFile` in fe-connect.c.

use std::path::{Path, PathBuf};

use super::error::{ConninfoError, quoted_word};
use super::{Environment, Keyword, Params};

/// Where packages put the system-wide file when PGSYSCONFDIR does not say.
const SYSTEM_FOLDERS: [&str; 2] = ["/etc/postgresql-common", "/etc"];

/// Sets what the section `name` says and `params` does not say yet.
pub(super) fn apply(name: &str, environment: &Environment, params: &mut Params) -> Result<(), ConninfoError> {
    for file in candidates(environment) {
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => {
                return Err(ConninfoError::new(format!("cannot read the service file {}: {error}", file.display())));
            }
        };
        if section(&text, name, &file, params)? {
            return Ok(());
        }
    }
    Err(ConninfoError::new(format!("definition of service \"{name}\" not found"))
        .hint("services are read from PGSERVICEFILE or ~/.pg_service.conf, then from PGSYSCONFDIR/pg_service.conf"))
}

fn candidates(environment: &Environment) -> Vec<PathBuf> {
    let own = match environment.variable("PGSERVICEFILE") {
        Some(file) => Some(PathBuf::from(file)),
        None => environment.home().map(|home| home.join(".pg_service.conf")),
    };
    let system: Vec<PathBuf> = match environment.variable("PGSYSCONFDIR") {
        Some(folder) => vec![PathBuf::from(folder)],
        None => SYSTEM_FOLDERS.iter().map(PathBuf::from).collect(),
    };
    own.into_iter().chain(system.into_iter().map(|folder| folder.join("pg_service.conf"))).collect()
}

/// Reads one section. Within it, the first value of a keyword counts. False if there is no such section.
fn section(text: &str, name: &str, file: &Path, params: &mut Params) -> Result<bool, ConninfoError> {
    let mut inside = false;
    let mut found = Params::new();
    for (number, line) in text.lines().enumerate() {
        let error = |what: String| {
            ConninfoError::new(format!("{what} in the service file {}, line {}", file.display(), number + 1))
        };
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(header) = line.strip_prefix('[') {
            if inside {
                break;
            }
            inside = header.strip_suffix(']') == Some(name);
            continue;
        }
        if !inside {
            continue;
        }
        if line.starts_with("ldap") {
            return Err(error("LDAP look-up, which is not supported,".to_owned()));
        }
        let Some((key, value)) = line.split_once('=') else {
            return Err(error("line without \"=\"".to_owned()));
        };
        match Keyword::from_name(key) {
            Some(Keyword::Service) => return Err(error("nested service specification".to_owned())),
            Some(keyword) => found.set_default(keyword, value),
            None => return Err(error(format!("unknown keyword{}", quoted_word(key)))),
        }
    }
    for (keyword, value) in found.iter() {
        params.set_default(keyword, value);
    }
    Ok(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, name: &str) -> Result<Option<Params>, ConninfoError> {
        let mut params = Params::new();
        Ok(section(text, name, Path::new("f"), &mut params)?.then_some(params))
    }

    #[test]
    fn sections() {
        let text = "# comment\n[a]\nhost=one\n\n  host=two  \n[b]\nport=5\npassword=a b=c\n[a]\nport=6\n";
        let a = read(text, "a").unwrap().unwrap();
        assert_eq!(a.iter().collect::<Vec<_>>(), [(Keyword::Host, "one")]);
        let b = read(text, "b").unwrap().unwrap();
        assert_eq!(b.get(Keyword::Password), Some("a b=c"));
        assert_eq!(read(text, "c").unwrap(), None);
        assert!(read("[z]", "z").unwrap().is_some());
    }

    #[test]
    fn mistakes_name_the_line_and_not_the_value() {
        for (text, words) in [
            ("[a]\nhost", "line 2"),
            ("[a]\nservice=b", "nested"),
            ("[a]\nhost = x", "unknown keyword"),
            ("[a]\nzzz=hunter2", "\"zzz\""),
            ("[a]\nldap://x", "LDAP"),
        ] {
            let error = read(text, "a").unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains("hunter"), "{error}");
        }
        // A mistake in another section is none of our business.
        assert!(read("[b]\nzzz\n[a]\nhost=x", "a").unwrap().is_some());
    }

    #[test]
    fn named_file_and_missing_service() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("services");
        std::fs::write(&file, "[x]\nuser=u\n").unwrap();
        let environment = Environment::empty()
            .with_variable("PGSERVICEFILE", file.to_str().unwrap())
            .with_variable("PGSYSCONFDIR", folder.path().to_str().unwrap());
        let mut params = Params::new();
        apply("x", &environment, &mut params).unwrap();
        assert_eq!(params.get(Keyword::User), Some("u"));
        let error = apply("y", &environment, &mut params).unwrap_err().to_string();
        assert!(error.contains("\"y\" not found"), "{error}");
    }
}
