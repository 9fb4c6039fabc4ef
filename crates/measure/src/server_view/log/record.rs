//! One entry of a server's log, whatever format it was in.

/// An entry. What the log does not say is absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// Process that wrote it.
    pub pid: Option<u32>,
    /// The server's identifier of the session: its start and its process, hexadecimal.
    pub session: Option<String>,
    /// application_name; `[unknown]` or empty before the session has one.
    pub application: Option<String>,
    /// When, in milliseconds since 1970 in the log's own time zone: differences mean something, the value does not.
    pub time_ms: Option<f64>,
    /// `LOG`, `ERROR`, ...
    pub severity: String,
    /// Its text, all lines of it.
    pub message: String,
}

impl Record {
    /// The application's name, if the session had one by then.
    #[must_use]
    pub fn known_application(&self) -> Option<&str> {
        self.application.as_deref().filter(|name| !name.is_empty() && *name != "[unknown]")
    }

    /// Whether it says that something failed.
    #[must_use]
    pub fn is_error(&self) -> bool {
        matches!(self.severity.as_str(), "ERROR" | "FATAL" | "PANIC")
    }
}

/// What was read of a log, and what could not be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parsed {
    /// The entries, in the order of the log.
    pub records: Vec<Record>,
    /// Bytes at the end that are no whole entry yet.
    pub unfinished: usize,
    /// Lines that do not have the expected shape.
    pub strange: u64,
}

/// `2026-01-31 23:59:59.123 CET` as milliseconds. The zone is not looked at: only differences are used.
#[must_use]
pub(super) fn parse_time_ms(text: &str) -> Option<f64> {
    let mut words = text.split(' ');
    let mut date = words.next()?.split('-').map(str::parse::<i64>);
    let mut clock = words.next()?.split(':');
    let mut next = || date.next()?.ok();
    let (year, month, day) = (next()?, next()?, next()?);
    let (hour, minute): (i64, i64) = (clock.next()?.parse().ok()?, clock.next()?.parse().ok()?);
    let second: f64 = clock.next()?.parse().ok()?;
    let in_range = (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !in_range || !(0..24).contains(&hour) || !(0..60).contains(&minute) || !(0.0..61.0).contains(&second) {
        return None;
    }
    // Days since 1970 of the proleptic Gregorian calendar, counted in years that begin in March.
    let (shifted_year, shifted_month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * shifted_year + shifted_year / 4 - shifted_year / 100
        + shifted_year / 400
        + (153 * shifted_month + 2) / 5
        + day
        - 719_469;
    Some(((days * 24 + hour) * 60 + minute) as f64 * 60e3 + second * 1e3)
}
