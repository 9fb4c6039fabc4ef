//! A set of connection keywords with their values, as written by a person: not completed from the environment, not
//! interpreted.

use std::collections::BTreeMap;
use std::fmt;

use zeroize::Zeroizing;

use super::error::{ConninfoError, quoted_word};
use super::{Keyword, keyvalue, uri};

/// Values by keyword. A later value replaces an earlier one.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Params {
    values: BTreeMap<Keyword, Zeroizing<String>>,
}

impl Params {
    /// Nothing set.
    pub fn new() -> Self {
        Params::default()
    }

    /// Reads a connection string: a URI if it begins with `postgresql://` or `postgres://`, otherwise key/value pairs.
    pub fn parse(conninfo: &str) -> Result<Self, ConninfoError> {
        match uri::prefix_len(conninfo) {
            Some(prefix) => uri::parse(conninfo, prefix),
            None => keyvalue::parse(conninfo),
        }
    }

    /// As `psql` takes its first argument: a connection string, or else the bare name of a database.
    pub fn parse_or_dbname(text: &str) -> Result<Self, ConninfoError> {
        if Params::looks_like_conninfo(text) {
            return Params::parse(text);
        }
        let mut params = Params::new();
        params.set(Keyword::Dbname, text);
        Ok(params)
    }

    /// Whether `text` would be taken for a connection string where a database name is possible too.
    pub fn looks_like_conninfo(text: &str) -> bool {
        uri::prefix_len(text).is_some() || text.contains('=')
    }

    /// Sets a value, replacing an earlier one.
    pub fn set(&mut self, keyword: Keyword, value: impl Into<String>) -> &mut Self {
        self.values.insert(keyword, Zeroizing::new(value.into()));
        self
    }

    /// Sets a value only if there is none yet.
    pub fn set_default(&mut self, keyword: Keyword, value: impl Into<String>) {
        self.values.entry(keyword).or_insert_with(|| Zeroizing::new(value.into()));
    }

    /// Takes a value out again.
    pub fn unset(&mut self, keyword: Keyword) {
        self.values.remove(&keyword);
    }

    /// The value of a keyword; an empty one counts as set, as in libpq.
    pub fn get(&self, keyword: Keyword) -> Option<&str> {
        self.values.get(&keyword).map(|value| value.as_str())
    }

    /// The value of a keyword unless it is empty.
    pub(crate) fn non_empty(&self, keyword: Keyword) -> Option<&str> {
        self.get(keyword).filter(|value| !value.is_empty())
    }

    /// All that is set, in the order of [`Keyword::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Keyword, &str)> {
        self.values.iter().map(|(keyword, value)| (*keyword, value.as_str()))
    }

    /// `word` for a message. Behind a password, what looks like a keyword may be the rest of it, and is not shown.
    pub(super) fn shown(&self, word: &str) -> String {
        if self.get(Keyword::Password).is_some() { String::new() } else { quoted_word(word) }
    }

    /// Sets by name. `offset` is where the name stands, `what` says what it is.
    pub(super) fn set_named(
        &mut self,
        name: &str,
        value: impl Into<String>,
        offset: usize,
        what: &str,
    ) -> Result<(), ConninfoError> {
        // An old name that libpq still translates.
        if name == "requiressl" {
            let required = value.into().starts_with('1');
            self.set(Keyword::Sslmode, if required { "require" } else { "prefer" });
            return Ok(());
        }
        let Some(keyword) = Keyword::from_name(name) else {
            let shown = self.shown(name);
            let mut error = ConninfoError::at(offset, format!("invalid {what}{shown}"));
            if !shown.is_empty() {
                if let Some(near) = Keyword::nearest(name) {
                    error = error.hint(format!("did you mean \"{}\"?", near.name()));
                }
            }
            return Err(error);
        };
        self.set(keyword, value);
        Ok(())
    }
}

impl fmt::Debug for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for (keyword, value) in self.iter() {
            let shown = if keyword.is_secret() { "..." } else { value };
            map.entry(&keyword.name(), &shown);
        }
        map.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_hides_secrets() {
        let params = Params::parse("user=me password=hunter2 sslpassword=hunter3").unwrap();
        let shown = format!("{params:?}");
        assert!(shown.contains("me") && !shown.contains("hunter"), "{shown}");
    }

    #[test]
    fn an_old_name_is_translated() {
        for (text, mode) in [("requiressl=1", "require"), ("requiressl=0", "prefer")] {
            assert_eq!(Params::parse(text).unwrap().get(Keyword::Sslmode), Some(mode));
        }
    }

    #[test]
    fn database_name_or_conninfo() {
        assert_eq!(Params::parse_or_dbname("shop").unwrap().get(Keyword::Dbname), Some("shop"));
        assert_eq!(Params::parse_or_dbname("host=a").unwrap().get(Keyword::Host), Some("a"));
        assert_eq!(Params::parse_or_dbname("postgres://a/b").unwrap().get(Keyword::Dbname), Some("b"));
    }

    #[test]
    fn unknown_keyword_has_position_and_suggestion() {
        let error = Params::parse("host=a uzer=b").unwrap_err();
        assert_eq!(error.position(), Some(8));
        let text = error.to_string();
        assert!(text.contains("\"uzer\"") && text.contains("did you mean \"user\""), "{text}");
    }

    #[test]
    fn a_password_with_blanks_is_not_shown() {
        for bad in ["password=my secret=word", "password=my secret", "postgre://me:secret@h/db?sslmode=require"] {
            let text = Params::parse(bad).unwrap_err().to_string();
            assert!(!text.contains("secret"), "{text}");
        }
    }
}
