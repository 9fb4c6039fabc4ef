//! What the messages say that matter here: durations of statements and their parts, and the steps of a connection.
//! They are recognised in English; the sessions that are measured ask for it (lc_messages).

/// Which message of the protocol a duration is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A simple query: receipt to the end of its implicit transaction.
    Statement,
    /// Parse: parse analysis and rewriting.
    Parse,
    /// Bind: planning, mostly.
    Bind,
    /// Execute.
    Execute,
}

/// A message.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// `duration: ...`; part and text are absent when the statement was logged before (log_statement) or is not to be
    /// logged at all (log_duration).
    Duration {
        /// Milliseconds.
        ms: f64,
        /// Of which part, and the statement's text.
        of: Option<(Part, String)>,
    },
    /// `connection received`.
    Received,
    /// `connection authenticated`.
    Authenticated,
    /// `connection authorized`, with the name that the client gave itself.
    Authorized(Option<String>),
    /// `connection ready` (PostgreSQL 18), milliseconds.
    Ready {
        /// Accepted to ready for the first statement.
        total: f64,
        /// The fork.
        fork: f64,
        /// Authentication, waiting for the client included.
        authentication: f64,
    },
    /// `disconnection`.
    Disconnection,
    /// Anything else.
    Other,
}

impl Said {
    /// Reads a message.
    #[must_use]
    pub fn of(message: &str) -> Self {
        if let Some(rest) = message.strip_prefix("duration: ") {
            return duration(rest).unwrap_or(Said::Other);
        }
        if let Some(rest) = message.strip_prefix("connection ready: setup ") {
            return ready(rest).unwrap_or(Said::Other);
        }
        if message.starts_with("connection received: ") {
            return Said::Received;
        }
        if message.starts_with("connection authenticated: ") {
            return Said::Authenticated;
        }
        if let Some(rest) = message.strip_prefix("connection authorized: ") {
            return Said::Authorized(application(rest));
        }
        if message.starts_with("disconnection: ") {
            return Said::Disconnection;
        }
        Said::Other
    }
}

/// `0.123 ms  bind pgusher_1: select 1`
fn duration(text: &str) -> Option<Said> {
    let (number, rest) = text.split_once(" ms")?;
    let ms = number.parse().ok().filter(|ms: &f64| ms.is_finite() && *ms >= 0.0)?;
    let rest = rest.trim_start();
    if rest.is_empty() {
        return Some(Said::Duration { ms, of: None });
    }
    if let Some(sql) = rest.strip_prefix("statement: ") {
        return Some(Said::Duration { ms, of: Some((Part::Statement, sql.to_owned())) });
    }
    // `plan:` is auto_explain's, which measures a part of Execute once more.
    let (word, rest) = rest.split_once(' ')?;
    let part = match word {
        "parse" => Part::Parse,
        "bind" => Part::Bind,
        "execute" => Part::Execute,
        _ => return None,
    };
    // `execute fetch from NAME: ...` is a portal that goes on.
    let (_name, sql) = rest.split_once(": ")?;
    Some(Said::Duration { ms, of: Some((part, sql.to_owned())) })
}

/// `total=2.345 ms, fork=0.400 ms, authentication=0.200 ms`
fn ready(text: &str) -> Option<Said> {
    let value = |key: &str| -> Option<f64> {
        let part = text.split(", ").find_map(|part| part.strip_prefix(key)?.strip_prefix('='))?;
        part.strip_suffix(" ms")?.parse().ok().filter(|ms: &f64| ms.is_finite() && *ms >= 0.0)
    };
    Some(Said::Ready { total: value("total")?, fork: value("fork")?, authentication: value("authentication")? })
}

/// `user=u database=d application_name=pgusher SSL enabled (...)`
fn application(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("application_name=")?;
    let end = rest.find(" SSL enabled").or_else(|| rest.find(" GSS (")).unwrap_or(rest.len());
    Some(rest.get(..end)?.to_owned())
}
