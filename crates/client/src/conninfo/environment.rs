//! What surrounds the process: its PG* variables, home folder and user name. A value, so that tests need not change
//! the real environment and so that all reading happens before any clock starts.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::error::ConninfoError;
use super::{Keyword, Params, service};

/// Environment variables that become session settings, with the setting (as libpq sends them).
const SESSION_VARIABLES: [(&str, &str); 3] = [("PGDATESTYLE", "datestyle"), ("PGTZ", "timezone"), ("PGGEQO", "geqo")];

/// PG* variables, home folder and user name.
#[derive(Clone, Default)]
pub struct Environment {
    variables: HashMap<String, Zeroizing<String>>,
    home: Option<PathBuf>,
    user: Option<String>,
}

impl Environment {
    /// That of this process.
    pub fn of_process() -> Self {
        let variables: HashMap<String, Zeroizing<String>> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, Zeroizing::new(value.into_string().ok()?))))
            .filter(|(name, _)| name.starts_with("PG"))
            .collect();
        let account = Account::of_process();
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Environment {
            variables,
            home: variable("HOME").map(PathBuf::from).or_else(|| account.as_ref().map(|a| a.home.clone())),
            user: account.map(|a| a.name).or_else(|| variable("USER")).or_else(|| variable("LOGNAME")),
        }
    }

    /// Nothing at all around.
    pub fn empty() -> Self {
        Environment::default()
    }

    /// Adds a variable.
    pub fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), Zeroizing::new(value.to_owned()));
        self
    }

    /// Sets the home folder.
    pub fn with_home(mut self, home: impl Into<PathBuf>) -> Self {
        self.home = Some(home.into());
        self
    }

    /// Sets the name of the operating system user.
    pub fn with_user(mut self, user: &str) -> Self {
        self.user = Some(user.to_owned());
        self
    }

    /// A variable.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(|value| value.as_str())
    }

    /// The home folder.
    pub fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    /// The operating system user.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The name of a user id, from /etc/passwd.
    #[cfg(target_os = "linux")]
    pub(crate) fn account_name(uid: u32) -> Option<String> {
        Account::by_uid(uid).map(|account| account.name)
    }

    /// Completes `params`: service file, then environment. Values that are there already stay. Built-in defaults are
    /// applied later, where each value is interpreted.
    pub fn complete(&self, params: &mut Params) -> Result<(), ConninfoError> {
        let service = params.get(Keyword::Service).or(self.variable("PGSERVICE")).map(str::to_owned);
        if let Some(name) = service {
            service::apply(&name, self, params)?;
        }
        for keyword in Keyword::ALL.iter().copied() {
            if let Some(value) = keyword.environment_variable().and_then(|name| self.variable(name)) {
                params.set_default(keyword, value);
            }
        }
        // An old variable that libpq still honours.
        if self.variable("PGREQUIRESSL").is_some_and(|value| value.starts_with('1')) {
            params.set_default(Keyword::Sslmode, "require");
        }
        Ok(())
    }

    /// Session settings that the environment asks for, as (setting, value).
    pub(crate) fn session_settings(&self) -> Vec<(String, String)> {
        SESSION_VARIABLES
            .iter()
            .filter_map(|(variable, setting)| Some(((*setting).to_owned(), self.variable(variable)?.to_owned())))
            // As libpq: the word "default" means not to send it.
            .filter(|(_, value)| !value.eq_ignore_ascii_case("default"))
            .collect()
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names only: PGPASSWORD is among them.
        f.debug_struct("Environment")
            .field("variables", &self.variables.keys().collect::<Vec<_>>())
            .field("home", &self.home)
            .field("user", &self.user)
            .finish()
    }
}

/// An entry of /etc/passwd.
struct Account {
    name: String,
    home: PathBuf,
}

impl Account {
    /// That of the effective user of this process.
    fn of_process() -> Option<Account> {
        Account::by_uid(rustix::process::geteuid().as_raw())
    }

    /// That of a user id. Read from the file, since the C library's look-up cannot be called safely; users that only
    /// a directory service knows are not found.
    fn by_uid(uid: u32) -> Option<Account> {
        let file = std::fs::read_to_string("/etc/passwd").ok()?;
        file.lines().find_map(|line| {
            let mut fields = line.split(':');
            let (name, _, id, _, _, home) =
                (fields.next()?, fields.next()?, fields.next()?, fields.next()?, fields.next()?, fields.next()?);
            (id.parse::<u32>().ok()? == uid).then(|| Account { name: name.to_owned(), home: PathBuf::from(home) })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explicit_before_service_before_environment() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join(".pg_service.conf"), "[s]\nhost=service\nport=1\nuser=service\n").unwrap();
        let environment = Environment::empty()
            .with_home(home.path())
            .with_variable("PGHOST", "environment")
            .with_variable("PGPORT", "2")
            .with_variable("PGDATABASE", "environment")
            .with_variable("PGSERVICE", "s");
        let mut params = Params::parse("host=explicit").unwrap();
        environment.complete(&mut params).unwrap();
        assert_eq!(params.get(Keyword::Host), Some("explicit"));
        assert_eq!(params.get(Keyword::Port), Some("1"));
        assert_eq!(params.get(Keyword::User), Some("service"));
        assert_eq!(params.get(Keyword::Dbname), Some("environment"));
    }

    #[test]
    fn session_settings_and_old_variables() {
        let environment = Environment::empty()
            .with_variable("PGTZ", "UTC")
            .with_variable("PGGEQO", "default")
            .with_variable("PGREQUIRESSL", "1");
        assert_eq!(environment.session_settings(), [("timezone".to_owned(), "UTC".to_owned())]);
        let mut params = Params::new();
        environment.complete(&mut params).unwrap();
        assert_eq!(params.get(Keyword::Sslmode), Some("require"));
    }

    #[test]
    fn debug_shows_no_values() {
        let environment = Environment::empty().with_variable("PGPASSWORD", "hunter2");
        assert!(!format!("{environment:?}").contains("hunter"));
    }

    #[test]
    fn accounts() {
        assert_eq!(Account::by_uid(0).unwrap().name, "root");
        assert!(Account::by_uid(4_000_000_001).is_none());
    }
}
