//! A profile seen from the server as well: its log, pg_stat_statements and the system of its host, joined with what the
//! client saw. One file per source; here they are asked at the right moments, never while a clock runs.
//!
//! What each source times is in docs/profile.md. A source that cannot be had (a missing extension, no permission, a log of
//! another server) is a note and not an error: the rest of the profile is kept.
//!
//! Asking the server needs a connection beside the measured ones. It is made before the first of them, so it is the one
//! that pays for what only the first login after a restart pays.

pub mod control;
pub mod counts;
pub mod host;
pub mod log;
mod rows;
mod samples;
pub mod settings;
pub mod statements;
mod table;

use pgusher_client::{Config, Connector, Error};
use serde::Serialize;

use crate::profile::{ConnectEvent, Event, Plan};

pub use log::Place;
pub use rows::{Population, Row};
pub use samples::{ConnectSample, RunSample, Samples};
pub use table::table;

use control::{Control, in_words};
use counts::{CountedLine, Counting};
use host::{Backend, Usage};
use log::{LogFormat, LogReader};
use settings::{Logging, add_options};
use statements::StatementCounters;

/// What to look at. The host of the backends is always looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The server's log.
    pub log: Option<Place>,
    /// `log_line_prefix`, where it is not the one that the server says.
    pub log_line_prefix: Option<String>,
    /// pg_stat_statements.
    pub statements: bool,
}

/// What the server's side looks like; made by [`ServerView::finish`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Which views there were.
    pub sources: Sources,
    /// The joined table.
    pub rows: Vec<Row>,
    /// What pg_stat_statements counted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counted: Vec<CountedLine>,
    /// Each connection and each run.
    pub samples: Samples,
    /// What is missing, and why.
    pub notes: Vec<String>,
}

/// Which views there were.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sources {
    /// The log that was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<LogSource>,
    /// Whether pg_stat_statements was read.
    pub pg_stat_statements: bool,
    /// Whether backends were seen on this host.
    pub host: bool,
}

/// The log that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogSource {
    /// Its name.
    pub name: String,
    /// Its format.
    pub format: LogFormat,
    /// Connections that were found in it.
    pub connections: usize,
    /// Runs that were found in it.
    pub runs: usize,
}

/// Looks at the server while a profile runs.
pub struct ServerView {
    control: Control,
    plan: Plan,
    user: String,
    database: String,
    application: String,
    log: Option<LogReader>,
    counting: Option<Counting>,
    backend: Option<Backend>,
    saw_host: bool,
    host_trouble: Option<String>,
    samples: Samples,
    notes: Vec<String>,
}

impl ServerView {
    /// Prepares: asks the server, remembers the end of its log, and changes `config` so that the measured sessions carry a
    /// name of their own and log what is needed, as far as the role may. `connector` makes connectors alike in all but
    /// the configuration.
    ///
    /// # Errors
    /// When the server cannot be reached at all; everything else is a note.
    pub fn begin(
        config: &mut Config,
        wanted: &Wanted,
        plan: &Plan,
        connector: &dyn Fn(&Config) -> Result<Connector, Error>,
    ) -> Result<Self, Error> {
        let control = Control::connect(connector(config)?)?;
        let token = format!("{:08x}", fastrand::u32(..));
        let mut view = ServerView {
            control,
            plan: plan.clone(),
            user: config.user.clone(),
            database: config.dbname.clone(),
            application: name_sessions(config, &token),
            log: None,
            counting: None,
            backend: None,
            saw_host: false,
            host_trouble: None,
            samples: Samples::default(),
            notes: Vec::new(),
        };
        if let Some(place) = &wanted.log {
            match view.open_log(place, wanted, &token, config, connector) {
                Ok(log) => view.log = Some(log),
                Err(why) => view.notes.push(format!("server log: {why}")),
            }
        }
        if wanted.statements {
            match StatementCounters::open(&mut view.control, &plan.queries) {
                Ok(counters) => view.counting = Some(Counting::new(counters, plan.runs)),
                Err(why) => view.notes.push(format!("pg_stat_statements: {why}")),
            }
        }
        Ok(view)
    }

    fn open_log(
        &mut self,
        place: &Place,
        wanted: &Wanted,
        token: &str,
        config: &mut Config,
        connector: &dyn Fn(&Config) -> Result<Connector, Error>,
    ) -> Result<LogReader, String> {
        let logging = Logging::ask(&mut self.control).map_err(|error| in_words(&error))?;
        let prefix = wanted.log_line_prefix.as_ref().unwrap_or(&logging.prefix);
        let mut log = LogReader::open(place, prefix, token, &mut self.control)?;
        log.verify(&mut self.control)?;
        let (settings, missing) = logging.plan();
        self.notes.extend(missing.into_iter().map(|text| format!("server log: {text}")));
        let mut with_settings = config.clone();
        add_options(&mut with_settings, &settings);
        // A proxy may refuse what the server would take.
        match connector(&with_settings).and_then(|connector| connector.connect()) {
            Ok(_) => *config = with_settings,
            Err(error) => self.notes.push(format!(
                "server log: the settings that the measured sessions need were refused ({}), so they run without them",
                in_words(&error)
            )),
        }
        Ok(log)
    }

    /// Takes an event in; called between timed spans.
    pub fn observe(&mut self, event: &Event) {
        match event {
            Event::Connect(event) => {
                let host = self.find_backend(event);
                self.samples.connect(event, host);
                if let (None, Some(counting)) = (&event.error, &mut self.counting) {
                    counting.connected(&mut self.control, u32::try_from(self.plan.queries.len()).unwrap_or(u32::MAX));
                }
            }
            Event::Statement(event) => {
                let host = self.backend.as_mut().and_then(Backend::used);
                self.samples.statement(event, host);
                if let Some(counting) = &mut self.counting {
                    counting.ran(&mut self.control, event);
                }
            }
            Event::Disconnect(_) => self.backend = None,
        }
    }

    /// The backend of a new connection, and what it has used until now.
    fn find_backend(&mut self, event: &ConnectEvent) -> Option<Usage> {
        self.backend = None;
        let pid = event.backend_pid?;
        match Backend::find(pid, &self.user, &self.database) {
            Ok(mut backend) => {
                let used = backend.used();
                self.saw_host |= used.is_some();
                self.backend = used.is_some().then_some(backend);
                used
            }
            Err(why) => {
                self.host_trouble.get_or_insert(why);
                None
            }
        }
    }

    /// Reads the log and joins everything. Can take a few seconds, until the log has arrived.
    pub fn finish(&mut self) -> Report {
        let mut notes = std::mem::take(&mut self.notes);
        let log = self.log.take().and_then(|log| self.read_log(log, &mut notes));
        let (counted, said) = self.counting.take().map(|counting| counting.finish()).unwrap_or_default();
        let statements = !counted.lines().is_empty();
        notes.extend(said);
        if let (false, Some(why)) = (self.saw_host, self.host_trouble.take()) {
            notes.push(format!("host: {why}"));
        }
        Report {
            sources: Sources { log, pg_stat_statements: statements, host: self.saw_host },
            rows: rows::rows(&self.samples, &counted, self.plan.protocol),
            counted: counted.lines(),
            samples: std::mem::take(&mut self.samples),
            notes,
        }
    }

    fn read_log(&mut self, mut log: LogReader, notes: &mut Vec<String>) -> Option<LogSource> {
        let (parsed, note) = match log.finish(&mut self.control) {
            Ok(read) => read,
            Err(why) => {
                notes.push(format!("server log: {why}"));
                return None;
            }
        };
        notes.extend(note.map(|text| format!("server log: {text}")));
        let sessions = log::sessions(&parsed.records, &self.application);
        let (connections, runs) = self.samples.complete(sessions, self.plan.protocol, &self.plan.queries);
        let wanted_connections = self.samples.connections.len();
        let wanted_runs = self.samples.runs.iter().filter(|run| !run.failed).count();
        if connections < wanted_connections {
            notes.push(format!("server log: {connections} of {wanted_connections} connections were found in it"));
        }
        if runs < wanted_runs {
            notes.push(format!("server log: the times of {runs} of {wanted_runs} runs were found in it"));
        }
        if parsed.strange > 0 && (runs < wanted_runs || connections < wanted_connections) {
            notes.push(format!("server log: {} lines of it could not be understood", parsed.strange));
        }
        Some(LogSource { name: log.name(), format: log.format()?, connections, runs })
    }
}

/// Gives the sessions a name that no others have, unless the user has chosen one. Returns the name.
fn name_sessions(config: &mut Config, token: &str) -> String {
    let own = format!("pgusher profile {token}");
    match config.parameters.iter_mut().find(|(name, _)| name == "application_name") {
        Some((_, value)) if value != DEFAULT_NAME => value.clone(),
        Some((_, value)) => {
            value.clone_from(&own);
            own
        }
        None => {
            config.parameters.push(("application_name".to_owned(), own.clone()));
            own
        }
    }
}

/// The application_name of a profile whose user has not chosen one.
pub const DEFAULT_NAME: &str = "pgusher profile";

#[cfg(test)]
mod tests {
    use super::*;

    fn named(conninfo: &str) -> (String, Option<String>) {
        let mut config = Config::from_conninfo(conninfo).unwrap();
        let name = name_sessions(&mut config, "1234abcd");
        let value = config.parameters.iter().find(|(name, _)| name == "application_name");
        (name, value.map(|(_, value)| value.clone()))
    }

    #[test]
    fn sessions_have_a_name_of_their_own_unless_the_user_chose_one() {
        let own = "pgusher profile 1234abcd".to_owned();
        assert_eq!(
            named(&format!("host=h user=u application_name='{DEFAULT_NAME}'")),
            (own.clone(), Some(own.clone()))
        );
        assert_eq!(named("host=h user=u application_name=mine"), ("mine".to_owned(), Some("mine".to_owned())));
    }
}
