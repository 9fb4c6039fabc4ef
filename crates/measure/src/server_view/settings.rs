//! Which logging settings the measured sessions need, which of them the role may set for its own sessions, and what is
//! missing where it may not.

use pgusher_client::{Config, Error};

use super::control::Control;

/// What the server says of its logging and of the role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Logging {
    /// As in `server_version_num`.
    pub version: u32,
    /// `log_line_prefix`.
    pub prefix: String,
    /// `log_connections`.
    pub connections: String,
    /// `log_min_duration_statement`.
    pub min_duration: String,
    /// `log_duration`.
    pub duration: String,
    /// `lc_messages`.
    pub language: String,
    /// Which of [`SETTABLE`] the role may set for its sessions.
    pub may_set: Vec<String>,
}

/// What would be set.
const SETTABLE: [&str; 3] = ["log_min_duration_statement", "log_connections", "lc_messages"];

/// PostgreSQL 18 takes log_connections as a list.
const LISTS: u32 = 180_000;

impl Logging {
    /// Asks.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn ask(control: &mut Control) -> Result<Self, Error> {
        let rows = control.rows(
            "SELECT current_setting('server_version_num'), current_setting('log_line_prefix'), \
             current_setting('log_connections'), current_setting('log_min_duration_statement'), \
             current_setting('log_duration'), current_setting('lc_messages'), \
             (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = session_user)",
            &[],
        )?;
        let text = |column| rows.get(0, column).unwrap_or_default().to_owned();
        let version = text(0).parse().unwrap_or(0);
        let superuser = text(6) == "t";
        let mut may_set = Vec::new();
        for name in SETTABLE {
            // Before 15 no setting of this kind could be granted.
            let granted = version >= 150_000
                && control
                    .value_of("SELECT has_parameter_privilege(session_user, $1, 'SET')", &[name])?
                    .is_some_and(|may| may == "t");
            if superuser || granted {
                may_set.push(name.to_owned());
            }
        }
        Ok(Logging {
            version,
            prefix: text(1),
            connections: text(2),
            min_duration: text(3),
            duration: text(4),
            language: text(5),
            may_set,
        })
    }

    /// Settings for the measured sessions, and what stays missing, in words.
    #[must_use]
    pub fn plan(&self) -> (Vec<(&'static str, &'static str)>, Vec<String>) {
        let mut settings = Vec::new();
        let mut missing = Vec::new();
        let may = |name: &str| self.may_set.iter().any(|other| other == name);
        if self.min_duration != "0" {
            if may("log_min_duration_statement") {
                settings.push(("log_min_duration_statement", "0"));
            } else if self.duration != "on" {
                missing.push(format!(
                    "the server logs no durations (log_min_duration_statement = {}), and the role may not change that for \
                     its own sessions: GRANT SET ON PARAMETER log_min_duration_statement TO it (PostgreSQL 15 and later), \
                     or set log_min_duration_statement = 0 in the server's configuration",
                    self.min_duration
                ));
            }
        }
        let language = self.language.split(['.', '_', '-']).next().unwrap_or_default();
        let english = ["", "C", "POSIX", "en", "English"].contains(&language);
        if !english {
            if may("lc_messages") {
                settings.push(("lc_messages", "C"));
            } else {
                missing.push(format!(
                    "the server's messages are not English (lc_messages = {}), so they are not understood here, and the \
                     role may not change that for its own sessions",
                    self.language
                ));
            }
        }
        self.plan_connections(&mut settings, &mut missing, may("log_connections"));
        (settings, missing)
    }

    fn plan_connections(
        &self,
        settings: &mut Vec<(&'static str, &'static str)>,
        missing: &mut Vec<String>,
        may_set: bool,
    ) {
        if self.version < LISTS {
            // Both lines are written before a session's own settings are read.
            if self.connections != "on" {
                missing.push(
                    "the log has nothing of connections: before PostgreSQL 18 it needs log_connections = on in the \
                     server's configuration, a session cannot set it for itself"
                        .to_owned(),
                );
            }
            return;
        }
        let logged = self.connections.split(',').map(str::trim).any(|word| word == "setup_durations" || word == "all");
        if logged {
            return;
        }
        if may_set {
            settings.push(("log_connections", "setup_durations"));
        } else {
            missing.push(format!(
                "the server does not log how long connections take (log_connections = '{}'), and the role may not change \
                 that for its own sessions: GRANT SET ON PARAMETER log_connections TO it, or set log_connections = \
                 'setup_durations' in the server's configuration",
                self.connections
            ));
        }
    }
}

/// Adds settings to the `options` of the startup packet.
pub fn add_options(config: &mut Config, settings: &[(&str, &str)]) {
    if settings.is_empty() {
        return;
    }
    let added: Vec<String> = settings.iter().map(|(name, value)| format!("-c {name}={value}")).collect();
    let added = added.join(" ");
    match config.parameters.iter_mut().find(|(name, _)| name == "options") {
        Some((_, value)) => {
            value.push(' ');
            value.push_str(&added);
        }
        None => config.parameters.push(("options".to_owned(), added)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logging(version: u32, connections: &str, may_set: &[&str]) -> Logging {
        Logging {
            version,
            prefix: "%m [%p] ".to_owned(),
            connections: connections.to_owned(),
            min_duration: "-1".to_owned(),
            duration: "off".to_owned(),
            language: "de_DE.UTF-8".to_owned(),
            may_set: may_set.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn a_superuser_sets_what_is_missing() {
        let (settings, missing) = logging(180_004, "receipt", &SETTABLE).plan();
        let expected =
            [("log_min_duration_statement", "0"), ("lc_messages", "C"), ("log_connections", "setup_durations")];
        assert_eq!(settings, expected);
        assert_eq!(missing, Vec::<String>::new());
        let (settings, missing) = logging(150_020, "off", &SETTABLE).plan();
        assert_eq!(settings.len(), 2, "{settings:?}");
        assert!(missing[0].contains("before PostgreSQL 18"), "{missing:?}");
    }

    #[test]
    fn an_ordinary_role_is_told_what_to_ask_for() {
        let (settings, missing) = logging(180_004, "", &[]).plan();
        assert!(settings.is_empty());
        assert_eq!(missing.len(), 3);
        assert!(missing[0].contains("GRANT SET ON PARAMETER log_min_duration_statement"), "{missing:?}");
        assert!(missing[2].contains("setup_durations"), "{missing:?}");
        let content = Logging {
            min_duration: "0".to_owned(),
            language: "C.UTF-8".to_owned(),
            ..logging(180_004, "receipt, all", &[])
        };
        assert_eq!(content.plan(), (Vec::new(), Vec::new()));
        let with_durations = Logging { duration: "on".to_owned(), ..logging(180_004, "all", &["lc_messages"]) };
        assert_eq!(with_durations.plan(), (vec![("lc_messages", "C")], Vec::new()));
    }

    #[test]
    fn options_are_added_to_those_of_the_user() {
        let mut config = Config::from_conninfo("host=h user=u options='-c a=b'").unwrap();
        add_options(&mut config, &[("x", "1"), ("y", "2")]);
        let options = config.parameters.iter().find(|(name, _)| name == "options").unwrap();
        assert_eq!(options.1, "-c a=b -c x=1 -c y=2");
    }
}
