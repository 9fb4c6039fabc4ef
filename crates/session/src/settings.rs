//! The settings of a session, as one immutable set that all sessions with equal values share.
//!
//! Whether a physical connection agrees with a session is then a comparison of two pointers. When it does not, [`Settings::
//! replay`] gives the statement that makes it agree. Names are compared as the server does, without regard to case.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// Startup parameters that are no settings (src/backend/tcop/backend_startup.c, ProcessStartupPacket).
const NOT_SETTINGS: [&[u8]; 4] = [b"user", b"database", b"options", b"replication"];

/// Names in lower case and values, sorted by name, each name once.
#[derive(Debug, Default, Clone, PartialEq, Eq, Hash)]
pub struct Settings {
    values: Box<[(Box<str>, Box<str>)]>,
    /// See [`Settings::planning`].
    planning: u64,
    /// See [`Settings::reading`].
    standard_strings: Option<bool>,
    ascii_apart: Option<bool>,
    /// See [`Settings::idle_limit`].
    idle_limit: Option<Duration>,
}

/// Why a startup packet's settings are refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingsError {
    /// A name or value that is no UTF-8.
    NotUtf8,
    /// A switch in `options` that the manager does not know how to replay.
    Switch(String),
    /// More than [`MAX_BYTES`] bytes of names and values.
    TooLarge,
}

/// Bytes that the names and values of one set may take. A startup packet is smaller than that.
pub const MAX_BYTES: usize = 16 * 1024;

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotUtf8 => write!(f, "a startup parameter is not valid UTF-8"),
            Self::Switch(switch) => write!(f, "unsupported switch in startup parameter \"options\": {switch}"),
            Self::TooLarge => write!(f, "the startup parameters are too large"),
        }
    }
}

impl Settings {
    /// The settings in the parameters of a StartupMessage: those named there and those in `options` (`-c name=value` and
    /// `--name=value`). The ones named directly win, as in the server.
    ///
    /// # Errors
    /// See [`SettingsError`].
    pub fn from_startup<'a>(
        parameters: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    ) -> Result<Self, SettingsError> {
        let mut values = Vec::new();
        for (_, options) in parameters.clone().filter(|(name, _)| *name == b"options") {
            options_into(options, &mut values)?;
        }
        for (name, value) in parameters {
            if NOT_SETTINGS.contains(&name) || name.starts_with(b"_pq_.") {
                continue;
            }
            let name = std::str::from_utf8(name).map_err(|_| SettingsError::NotUtf8)?;
            let value = std::str::from_utf8(value).map_err(|_| SettingsError::NotUtf8)?;
            values.push((name.to_owned(), value.to_owned()));
        }
        Self::from_pairs(values)
    }

    /// A set from names and values; a later one of the same name wins.
    ///
    /// # Errors
    /// [`SettingsError::TooLarge`].
    pub fn from_pairs(pairs: Vec<(String, String)>) -> Result<Self, SettingsError> {
        if pairs.iter().map(|(n, v)| n.len() + v.len()).sum::<usize>() > MAX_BYTES {
            return Err(SettingsError::TooLarge);
        }
        let mut values: Vec<(Box<str>, Box<str>)> = Vec::with_capacity(pairs.len());
        for (name, value) in pairs {
            let name = name.to_ascii_lowercase();
            match values.iter_mut().find(|(n, _)| **n == *name) {
                Some(entry) => entry.1 = value.into(),
                None => values.push((name.into(), value.into())),
            }
        }
        values.sort();
        Ok(Self::sorted(values))
    }

    /// Names and values in order of name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The value of `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Equal for sets under which the server parses and plans a statement alike; 0 if there is nothing that matters to it.
    #[inline]
    pub fn planning(&self) -> u64 {
        self.planning
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// These with another value for `name`.
    ///
    /// # Errors
    /// [`SettingsError::TooLarge`].
    pub fn with(&self, name: &str, value: &str) -> Result<Self, SettingsError> {
        let mut set = self.without(name);
        if name.eq_ignore_ascii_case(ROLE) && value.eq_ignore_ascii_case("none") {
            return Ok(set);
        }
        let size: usize = set.iter().map(|(n, v)| n.len() + v.len()).sum();
        if size + name.len() + value.len() > MAX_BYTES {
            return Err(SettingsError::TooLarge);
        }
        let mut values = std::mem::take(&mut set.values).into_vec();
        let name: Box<str> = name.to_ascii_lowercase().into();
        let at = values.partition_point(|(n, _)| *n < name);
        values.insert(at, (name, value.into()));
        Ok(Self::sorted(values))
    }

    /// These without `name`. Without a session authorization there is no role either, nor with another one
    /// (src/backend/utils/init/miscinit.c, SetSessionAuthorization).
    #[must_use]
    pub fn without(&self, name: &str) -> Self {
        let both = name.eq_ignore_ascii_case(AUTHORIZATION);
        let gone = |n: &str| n.eq_ignore_ascii_case(name) || (both && n.eq_ignore_ascii_case(ROLE));
        Self::sorted(self.values.iter().filter(|(n, _)| !gone(n)).cloned().collect())
    }

    /// Those that RESET ALL leaves: role and session authorization.
    #[must_use]
    pub fn roles(&self) -> Self {
        Self::sorted(self.values.iter().filter(|(n, _)| is_role(n)).cloned().collect())
    }

    /// These, with role and session authorization of another set.
    ///
    /// # Errors
    /// [`SettingsError::TooLarge`].
    pub fn and_roles_of(&self, other: &Self) -> Result<Self, SettingsError> {
        let own = self.values.iter().filter(|(n, _)| !is_role(n));
        let roles = other.values.iter().filter(|(n, _)| is_role(n));
        Self::from_pairs(own.chain(roles).map(|(n, v)| (String::from(&**n), String::from(&**v))).collect())
    }

    /// How texts of a session with these settings have to be read; `None` where they do not say it.
    #[inline]
    #[must_use]
    pub fn reading(&self) -> (Option<bool>, Option<bool>) {
        (self.standard_strings, self.ascii_apart)
    }

    /// How long a session with these settings may be idle outside of a transaction; zero: for ever, `None`: they do not say it.
    #[inline]
    #[must_use]
    pub fn idle_limit(&self) -> Option<Duration> {
        self.idle_limit
    }

    /// Can the server be made to agree with these, from `from`, together with what follows, without waiting for its answer? Only
    /// with values that it has accepted before and cannot refuse now: nothing of roles, of tablespaces, or of what an
    /// extension decides; and no limit in time that could end the statement that sets them.
    #[must_use]
    pub fn replays_surely(&self, from: &Self) -> bool {
        let differs = |a: &Self, b: &Self| a.iter().all(|(name, value)| b.get(name) == Some(value) || is_sure(name));
        let patient = |set: &Self| TIMEOUTS.iter().all(|name| set.get(name).is_none_or(is_patient));
        let roles = |set: &Self| set.get(ROLE).is_none() && set.get(AUTHORIZATION).is_none();
        differs(self, from) && differs(from, self) && patient(from) && patient(self) && roles(self) && roles(from)
    }

    /// Does what [`replay`](Self::replay) says need a snapshot? It begins what a transaction may still choose before its first
    /// one, such as its isolation level.
    #[must_use]
    pub fn replays_by_query(&self, from: &Self) -> bool {
        self != from
            && self
                .iter()
                .any(|(name, value)| (is_role(name) || from.get(name) != Some(value)) && needs_function(name, value))
    }

    fn sorted(values: Vec<(Box<str>, Box<str>)>) -> Self {
        let planning = planning(&values);
        let find = |name: &str| values.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| &**v);
        let standard_strings = find("standard_conforming_strings").map(is_on);
        let ascii_apart = find("client_encoding").map(pgusher_sql::encoding_keeps_ascii_apart);
        let idle_limit = find(IDLE_LIMIT).map(duration);
        Self { values: values.into(), planning, standard_strings, ascii_apart, idle_limit }
    }

    /// The statements that turn a connection with the settings `from` into one with the settings `self`; empty if they are
    /// equal.
    ///
    /// SET and not `set_config` where it can be: it needs no plan, no snapshot, and has no rows to send. Roles are left first and
    /// taken last, because what a role may set is its own matter; but for limits in time, which would count for what is behind them.
    pub fn replay(&self, from: &Self) -> String {
        let mut sql = String::new();
        if self == from {
            return sql;
        }
        let had = |name: &str| from.get(name).is_some();
        let (had_role, had_authorization) = (had(ROLE), had(AUTHORIZATION));
        if had_authorization {
            sql.push_str("RESET SESSION AUTHORIZATION;");
        }
        if had_role {
            sql.push_str("RESET ROLE;");
        }
        // Half a DateStyle leaves the other half as it is: it is to be the server's own, not the one before.
        let begins_anew = |name: &str| name == DATESTYLE && self.get(name) != from.get(name);
        for (name, _) in from.iter().filter(|(n, _)| !is_role(n) && (self.get(n).is_none() || begins_anew(n))) {
            sql.push_str("RESET ");
            push_name(&mut sql, name);
            sql.push(';');
        }
        let is_last = |name: &str| is_role(name) || TIMEOUTS.contains(&name);
        let plain = self.iter().filter(|(name, value)| !is_last(name) && from.get(name) != Some(value));
        let roles = [AUTHORIZATION, ROLE].into_iter().filter_map(|name| Some((name, self.get(name)?)));
        let limits = TIMEOUTS.into_iter().filter_map(|name| Some((name, self.get(name)?)));
        let limits = limits.filter(|(name, value)| from.get(name) != Some(value));
        for (name, value) in plain.chain(roles).chain(limits) {
            push_set(&mut sql, name, value);
        }
        sql
    }
}

/// The setting that limits how long a session may be idle.
pub const IDLE_LIMIT: &str = "idle_session_timeout";

/// A limit in time as the server reads it (src/backend/utils/misc/guc.c, parse_int), without a unit in milliseconds. What it would
/// refuse is none.
#[must_use]
pub fn duration(value: &str) -> Duration {
    let value = value.trim();
    let at = value.find(|c: char| c.is_ascii_whitespace() || "umshd".contains(c)).unwrap_or(value.len());
    let (number, unit) = value.split_at(at);
    let milliseconds = match unit.trim() {
        "us" => 0.001,
        "" | "ms" => 1.0,
        "s" => 1_000.0,
        "min" => 60_000.0,
        "h" => 3_600_000.0,
        "d" => 86_400_000.0,
        _ => 0.0,
    };
    let digits = number.strip_prefix('0').unwrap_or_default();
    let number = match digits.strip_prefix(['x', 'X']) {
        Some(digits) => u32::from_str_radix(digits, 16).ok().map(f64::from),
        None if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
            u32::from_str_radix(digits, 8).ok().map(f64::from)
        }
        None => number.parse().ok(),
    };
    let rounded = (number.unwrap_or(0.0) * milliseconds).round_ties_even();
    Duration::try_from_secs_f64(rounded / 1_000.0).unwrap_or_default()
}

/// Limits that could end a statement of ours.
const TIMEOUTS: [&str; 2] = ["statement_timeout", "transaction_timeout"];

/// Is a limit in time none, or a second or more?
fn is_patient(value: &str) -> bool {
    let value = value.trim();
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let (number, unit) = value.split_at(digits);
    match (number.parse::<u64>(), unit.trim()) {
        (Ok(0), _) => true,
        (Ok(n), "" | "ms") => n >= 1_000,
        (Ok(_), "s" | "min" | "h" | "d") => true,
        _ => false,
    }
}

/// Settings that the server takes at any time once it has taken their values; the user's own ones, too.
fn is_sure(name: &str) -> bool {
    const SURE: [&str; 42] = [
        "application_name",
        "array_nulls",
        "backslash_quote",
        "bytea_output",
        "check_function_bodies",
        "client_encoding",
        "client_min_messages",
        "constraint_exclusion",
        "cpu_index_tuple_cost",
        "cpu_operator_cost",
        "cpu_tuple_cost",
        "cursor_tuple_fraction",
        "datestyle",
        "default_transaction_deferrable",
        "default_transaction_isolation",
        "default_transaction_read_only",
        "effective_cache_size",
        "escape_string_warning",
        "extra_float_digits",
        "from_collapse_limit",
        "geqo",
        "idle_in_transaction_session_timeout",
        "idle_session_timeout",
        "intervalstyle",
        "jit",
        "join_collapse_limit",
        "lock_timeout",
        "maintenance_work_mem",
        "max_parallel_workers_per_gather",
        "plan_cache_mode",
        "quote_all_identifiers",
        "random_page_cost",
        "row_security",
        "search_path",
        "seq_page_cost",
        "standard_conforming_strings",
        "statement_timeout",
        "synchronous_commit",
        "timezone",
        "transform_null_equals",
        "work_mem",
        "xmloption",
    ];
    // Settings of extensions have a dot as well. An extension may be loaded on one physical connection and not on another.
    const EXTENSIONS: [&str; 9] = [
        "auto_explain",
        "pg_stat_statements",
        "pg_trgm",
        "pgaudit",
        "pljava",
        "plperl",
        "plpgsql",
        "plpython",
        "pltcl",
    ];
    let own = |prefix: &str| !EXTENSIONS.iter().any(|extension| prefix.starts_with(extension));
    SURE.binary_search(&name).is_ok()
        || name.starts_with("enable_")
        || name.split_once('.').is_some_and(|(prefix, _)| own(prefix))
}

const DATESTYLE: &str = "datestyle";

/// Does a value for DateStyle leave a part of the value in force as it is (src/backend/commands/variable.c, check_datestyle)?
#[must_use]
pub fn is_half(name: &str, value: &str) -> bool {
    let has = |words: &[&str]| {
        value.split(',').any(|part| {
            let part = part.trim().to_ascii_lowercase();
            words.iter().any(|word| part.starts_with(word))
        })
    };
    let style = has(&["iso", "sql", "postgres", "german"]);
    let order = has(&["ymd", "dmy", "euro", "mdy", "us", "noneuro"]);
    name.eq_ignore_ascii_case(DATESTYLE) && !(style && order)
}

const ROLE: &str = "role";
const AUTHORIZATION: &str = "session_authorization";

fn is_role(name: &str) -> bool {
    name.eq_ignore_ascii_case(ROLE) || name.eq_ignore_ascii_case(AUTHORIZATION)
}

/// A boolean as the server reads it (src/backend/utils/adt/bool.c); in doubt it is taken to be off.
fn is_on(value: &str) -> bool {
    let value = value.trim().to_ascii_lowercase();
    !value.is_empty() && ["true", "yes", "on", "1"].iter().any(|word| word.starts_with(&*value)) && value != "o"
}

/// Settings that have no part in what a statement means or how it is planned. All others are taken to have one.
const NOT_PLANNING: [&str; 11] = [
    "application_name",
    "client_connection_check_interval",
    "client_min_messages",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "lock_timeout",
    "log_min_duration_statement",
    "pgusher.pin",
    "pgusher.version",
    "statement_timeout",
    "transaction_timeout",
];

/// Has a setting a part in what a statement means or how it is planned?
#[must_use]
pub fn is_planning(name: &str) -> bool {
    !NOT_PLANNING.iter().any(|other| other.eq_ignore_ascii_case(name))
}

fn planning(values: &[(Box<str>, Box<str>)]) -> u64 {
    let mut hasher = siphasher::sip::SipHasher13::new();
    let mut any = false;
    for (name, value) in values {
        if is_planning(name) {
            any = true;
            (name, value).hash(&mut hasher);
        }
    }
    if any { hasher.finish() } else { 0 }
}

fn needs_function(name: &str, value: &str) -> bool {
    !value.is_ascii() || pgusher_sql::is_identifier_list(name)
}

/// A statement that gives a setting this value, as `set_config` takes it. SET would spell a list anew.
fn push_set(sql: &mut String, name: &str, value: &str) {
    if needs_function(name, value) {
        sql.push_str("SELECT pg_catalog.set_config(");
        push_literal(sql, name);
        sql.push(',');
        push_literal(sql, value);
        sql.push_str(",false);");
        return;
    }
    sql.push_str("SET ");
    push_name(sql, name);
    sql.push_str(" TO ");
    push_literal(sql, value);
    sql.push(';');
}

/// A setting's name in SET and RESET: each part quoted, because the parts of a placeholder's name may be any identifier.
fn push_name(sql: &mut String, name: &str) {
    for (i, part) in name.split('.').enumerate() {
        if i > 0 {
            sql.push('.');
        }
        sql.push('"');
        sql.push_str(&part.replace('"', "\"\""));
        sql.push('"');
    }
}

/// A string constant that means the same whatever `standard_conforming_strings` and `client_encoding` are.
fn push_literal(sql: &mut String, value: &str) {
    if value.contains('\\') || !value.is_ascii() {
        sql.push('E');
    }
    sql.push('\'');
    for c in value.chars() {
        if c.is_ascii() {
            if c == '\'' || c == '\\' {
                sql.push(c);
            }
            sql.push(c);
        } else {
            let _ = write!(sql, "\\U{:08x}", u32::from(c));
        }
    }
    sql.push('\'');
}

/// Splits `options` as the server does (src/backend/utils/init/postinit.c, pg_split_opts): at white space, and a backslash
/// takes the next character as it is.
fn split_options(options: &[u8]) -> Result<Vec<String>, SettingsError> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut bytes = options.iter().copied();
    while let Some(b) = bytes.next() {
        match b {
            b'\\' => {
                if let Some(next) = bytes.next() {
                    word.get_or_insert_default().push(next);
                }
            }
            // C's isspace takes the vertical tab for white space, Rust does not.
            b if b.is_ascii_whitespace() || b == 0x0b => words.extend(word.take()),
            b => word.get_or_insert_default().push(b),
        }
    }
    words.extend(word);
    words.into_iter().map(|w| String::from_utf8(w).map_err(|_| SettingsError::NotUtf8)).collect()
}

fn options_into(options: &[u8], values: &mut Vec<(String, String)>) -> Result<(), SettingsError> {
    let mut words = split_options(options)?.into_iter();
    while let Some(word) = words.next() {
        let assignment = if word == "-c" {
            words.next().ok_or(SettingsError::Switch(word))?
        } else if let Some(rest) = word.strip_prefix("--").or_else(|| word.strip_prefix("-c")) {
            rest.to_owned()
        } else {
            return Err(SettingsError::Switch(word));
        };
        let Some((name, value)) = assignment.split_once('=') else {
            return Err(SettingsError::Switch(assignment));
        };
        values.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(())
}

/// Makes equal sets one and the same, so that they can be compared by their addresses.
#[derive(Debug, Default)]
pub struct Interner {
    sets: Mutex<Sets>,
}

#[derive(Debug, Default)]
struct Sets {
    known: HashMap<Arc<Settings>, Weak<()>>,
    swept_at: usize,
}

/// One set of settings out of an [`Interner`]: equal sets are equal pointers.
#[derive(Debug, Clone)]
pub struct Interned {
    settings: Arc<Settings>,
    /// Held by every user of the set; when the last one is gone the interner may forget the set.
    _user: Arc<()>,
}

impl Interned {
    /// Are these the same settings? Both must come from the same interner.
    #[inline]
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.settings, &other.settings)
    }
}

impl std::ops::Deref for Interned {
    type Target = Settings;
    fn deref(&self) -> &Settings {
        &self.settings
    }
}

impl Interner {
    /// The one shared copy of `settings`.
    pub fn intern(&self, settings: Settings) -> Interned {
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, user)) = sets.known.get_key_value(&settings) {
            if let Some(user) = user.upgrade() {
                return Interned { settings: known.clone(), _user: user };
            }
        }
        // Sets that nobody uses are dropped each time their number has doubled, so a login costs a constant on average.
        if sets.known.len() >= 64.max(sets.swept_at * 2) {
            sets.known.retain(|_, user| user.strong_count() > 0);
            sets.swept_at = sets.known.len();
        }
        let user = Arc::new(());
        // A set that was forgotten by its users but not yet swept keeps its address: remove it before the new one goes in.
        sets.known.remove(&settings);
        let settings = Arc::new(settings);
        sets.known.insert(settings.clone(), Arc::downgrade(&user));
        Interned { settings, _user: user }
    }
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
