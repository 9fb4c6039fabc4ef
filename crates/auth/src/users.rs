//! Names and their stored secrets: from a list in memory or from a file in PgBouncer's `userlist.txt`
//! form. Reading the file is the caller's; this takes its text.

use std::collections::HashMap;
use std::fmt;

use zeroize::Zeroizing;

use crate::StoredSecret;

/// Users by name. Made once and then only read, so it can be shared by threads without a lock.
#[derive(Clone, Default)]
pub struct UserList {
    users: HashMap<Vec<u8>, StoredSecret>,
}

/// What is wrong with a user list file, and where. Never repeats what the file says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("user list, line {line}: {problem}")]
pub struct UserListError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong there.
    pub problem: &'static str,
}

impl UserListError {
    /// `config_file_error`.
    #[must_use]
    pub fn sqlstate(&self) -> &'static str {
        "F0000"
    }
}

impl UserList {
    /// Reads lines of the form `"user" "secret"`. A quote inside quotes is doubled. Empty lines and
    /// lines that begin with `;` or `#` are skipped, and so is what follows the secret, as PgBouncer
    /// does. A secret is what [`StoredSecret::parse`] takes it for. When a name occurs twice the last
    /// one counts.
    ///
    /// # Errors
    /// The first line that has another form. Unlike PgBouncer, which keeps the lines in front of it,
    /// nothing is loaded then: half a list locks out users silently.
    pub fn parse(text: &[u8]) -> Result<Self, UserListError> {
        let mut list = Self::default();
        for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let error = |problem| UserListError { line: number + 1, problem };
            let line = line.trim_ascii();
            if matches!(line, [] | [b';' | b'#', ..]) {
                continue;
            }
            let (name, rest) = quoted(line).map_err(error)?;
            let (secret, _) = quoted(rest.trim_ascii_start()).map_err(error)?;
            if name.is_empty() {
                return Err(error("the user name is empty"));
            }
            list.users.insert(name.to_vec(), StoredSecret::parse(&secret));
        }
        Ok(list)
    }

    /// The user's secret. The cost does not depend on the number of users.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&StoredSecret> {
        self.users.get(name)
    }

    /// How many users there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// There are no users.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// The names, in no order.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.users.keys().map(Vec::as_slice)
    }
}

impl<N: Into<Vec<u8>>> FromIterator<(N, StoredSecret)> for UserList {
    fn from_iter<I: IntoIterator<Item = (N, StoredSecret)>>(users: I) -> Self {
        Self { users: users.into_iter().map(|(name, secret)| (name.into(), secret)).collect() }
    }
}

impl fmt::Debug for UserList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserList").field("users", &self.users.len()).finish_non_exhaustive()
    }
}

/// The content of the quotes that `text` begins with, and what follows them.
fn quoted(text: &[u8]) -> Result<(Zeroizing<Vec<u8>>, &[u8]), &'static str> {
    let [b'"', rest @ ..] = text else {
        return Err("expected \"user\" \"secret\"");
    };
    let mut rest = rest;
    // Never longer than the line, so it does not grow and leave copies behind.
    let mut content = Zeroizing::new(Vec::with_capacity(rest.len()));
    loop {
        match rest {
            [b'"', b'"', after @ ..] => {
                content.push(b'"');
                rest = after;
            }
            [b'"', after @ ..] => return Ok((content, after)),
            [0, ..] => return Err("a NUL inside the quotes"),
            [byte, after @ ..] => {
                content.push(*byte);
                rest = after;
            }
            [] => return Err("the closing quote is missing"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{UserList, UserListError};
    use crate::StoredSecret;

    fn plain(list: &UserList, name: &str) -> Option<Vec<u8>> {
        match list.get(name.as_bytes()) {
            Some(StoredSecret::Plain(password)) => Some(password.as_bytes().to_vec()),
            _ => None,
        }
    }

    #[test]
    fn reads_pgbouncers_file() {
        let text = concat!(
            "; a comment\r\n",
            "# another\n",
            "\n",
            "  \"alice\" \"se;c#ret\"\r\n",
            "\"o\"\"brien\"\t\"a\"\"b\" trailing words\n",
            "\"hash\" \"md5aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"\n",
            "\"nobody\" \"\"\n",
            "\"twice\" \"1\"\n\"twice\" \"2\"",
        );
        let list = UserList::parse(text.as_bytes()).expect("well formed");
        assert_eq!(list.len(), 5);
        assert_eq!(plain(&list, "alice").as_deref(), Some(&b"se;c#ret"[..]));
        assert_eq!(plain(&list, "o\"brien").as_deref(), Some(&b"a\"b"[..]));
        assert_eq!(plain(&list, "nobody").as_deref(), Some(&b""[..]));
        assert_eq!(plain(&list, "twice").as_deref(), Some(&b"2"[..]));
        assert!(matches!(list.get(b"hash"), Some(StoredSecret::Md5(_))));
        assert!(list.get(b"bob").is_none());
        let debug = format!("{list:?}");
        assert!(!debug.contains("ret") && !debug.contains("alice"), "{debug}");
    }

    #[test]
    fn names_the_broken_line() {
        for (text, problem) in [
            ("\"a\" \"b\"\nalice secret", "expected \"user\" \"secret\""),
            ("\n\"alice\"", "expected \"user\" \"secret\""),
            ("\n\"alice\" \"secret", "the closing quote is missing"),
            ("\n\"alice\" \"secret\"\"", "the closing quote is missing"),
            ("\n\"\" \"secret\"", "the user name is empty"),
            ("\n\"alice\" \"sec\0ret\"", "a NUL inside the quotes"),
        ] {
            let expected = UserListError { line: 2, problem };
            let error = UserList::parse(text.as_bytes()).expect_err("broken");
            assert_eq!(error, expected);
            assert!(!error.to_string().contains("sec\0"), "{error}");
        }
    }
}
