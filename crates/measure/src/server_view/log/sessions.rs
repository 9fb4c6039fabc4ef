//! From the entries of a log to those of our own sessions.
//!
//! A process number alone is not enough: the system gives numbers out again, and other sessions' lines are in the same
//! log. So the entries of a process are divided into sessions first, by the server's session identifier or, where the
//! prefix has none, at `connection received`; and of these only the ones count that bear our application_name or have
//! no name at all.

use std::collections::{BTreeMap, VecDeque};

use super::message::Said;
use super::record::Record;

/// One entry of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// What it says.
    pub said: Said,
    /// When, milliseconds; only differences mean something.
    pub time_ms: Option<f64>,
    /// Whether something failed.
    pub is_error: bool,
}

/// The sessions of each process, in the order of the log.
pub type Sessions = BTreeMap<u32, VecDeque<Vec<Entry>>>;

#[derive(Default)]
struct Session {
    identifier: Option<String>,
    application: Option<String>,
    entries: Vec<Entry>,
}

/// The sessions that can be ours: those with `application`, or without any name.
#[must_use]
pub fn sessions(records: &[Record], application: &str) -> Sessions {
    let mut all: BTreeMap<u32, Vec<Session>> = BTreeMap::new();
    for record in records {
        let Some(pid) = record.pid else { continue };
        let said = Said::of(&record.message);
        let named = match &said {
            Said::Authorized(name) => name.as_deref().or(record.known_application()),
            _ => record.known_application(),
        };
        let of_process = all.entry(pid).or_default();
        let continues = of_process.last().is_some_and(|last| {
            let same_name = match (&last.application, named) {
                (Some(before), Some(now)) => before == now,
                _ => true,
            };
            last.identifier == record.session && same_name && said != Said::Received
        });
        if !continues {
            of_process.push(Session { identifier: record.session.clone(), ..Session::default() });
        }
        if let Some(session) = of_process.last_mut() {
            session.application = session.application.take().or(named.map(str::to_owned));
            session.entries.push(Entry { said, time_ms: record.time_ms, is_error: record.is_error() });
        }
    }
    all.into_iter()
        .map(|(pid, sessions)| {
            let ours = |session: &Session| session.application.as_deref().is_none_or(|name| name == application);
            (pid, sessions.into_iter().filter(ours).map(|session| session.entries).collect::<VecDeque<_>>())
        })
        .filter(|(_, sessions)| !sessions.is_empty())
        .collect()
}
