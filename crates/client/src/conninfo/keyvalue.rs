//! The spelling `keyword = value ...`. Blanks around `=` are allowed; a value ends at a blank or stands in single
//! quotes; a backslash takes the next character as it is, in and outside quotes.
//!
//! Source: PostgreSQL documentation, "Keyword/Value Connection Strings"; `conninfo_parse` in fe-connect.c.

use super::Params;
use super::error::ConninfoError;

/// Reads a key/value connection string.
pub(super) fn parse(text: &str) -> Result<Params, ConninfoError> {
    if let Some(offset) = text.find('\0') {
        return Err(ConninfoError::at(offset, "a connection string cannot hold a zero byte"));
    }
    let mut params = Params::new();
    let mut rest = Cursor { text, offset: 0 };
    loop {
        rest.skip_blanks();
        if rest.at_end() {
            return Ok(params);
        }
        let start = rest.offset;
        let name = rest.take_while(|c| c != '=' && !is_blank(c));
        rest.skip_blanks();
        if !rest.take_char('=') {
            let error = ConninfoError::at(start, "missing \"=\" after a keyword in the connection string");
            return Err(if name.contains("://") {
                error.hint("a URI must begin with postgresql:// or postgres://")
            } else {
                error.hint("a value that holds blanks must stand in single quotes")
            });
        }
        rest.skip_blanks();
        let value = rest.value()?;
        params.set_named(name, value, start, "connection option")?;
    }
}

/// What C's isspace() takes for a blank.
fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

struct Cursor<'a> {
    text: &'a str,
    offset: usize,
}

impl<'a> Cursor<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.offset..).unwrap_or("")
    }

    fn at_end(&self) -> bool {
        self.rest().is_empty()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.offset += c.len_utf8();
        Some(c)
    }

    fn take_char(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.offset += wanted.len_utf8();
        }
        found
    }

    fn take_while(&mut self, keep: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let len = rest.find(|c| !keep(c)).unwrap_or(rest.len());
        self.offset += len;
        rest.get(..len).unwrap_or("")
    }

    fn skip_blanks(&mut self) {
        self.take_while(is_blank);
    }

    fn value(&mut self) -> Result<String, ConninfoError> {
        let start = self.offset;
        let quoted = self.take_char('\'');
        let mut value = String::new();
        loop {
            match self.next() {
                // A backslash at the very end escapes nothing and is dropped.
                Some('\\') => value.extend(self.next()),
                Some('\'') if quoted => return Ok(value),
                Some(c) if !quoted && is_blank(c) => return Ok(value),
                Some(c) => value.push(c),
                None if quoted => {
                    return Err(ConninfoError::at(start, "unterminated quoted string in the connection string"));
                }
                None => return Ok(value),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Keyword;
    use super::*;

    fn get(text: &str, keyword: Keyword) -> Option<String> {
        parse(text).unwrap().get(keyword).map(str::to_owned)
    }

    #[test]
    fn spellings() {
        for (text, host) in [
            ("host=a", "a"),
            ("  host  =  a  ", "a"),
            ("host\t=\n'a b'", "a b"),
            (r"host=a\ b", "a b"),
            (r"host='it\'s'", "it's"),
            (r"host=a\\b", r"a\b"),
            ("host=''", ""),
            ("host=", ""),
            ("host='a'port=1", "a"),
            ("host=a host=b", "b"),
            (r"host=a\", "a"),
            ("host=a'b", "a'b"),
            ("host= user=x", "user=x"),
            ("host=grün", "grün"),
        ] {
            assert_eq!(get(text, Keyword::Host).as_deref(), Some(host), "{text}");
        }
        assert_eq!(get("", Keyword::Host), None);
        assert_eq!(get("host='a'port=1", Keyword::Port).as_deref(), Some("1"));
    }

    #[test]
    fn mistakes_have_a_position() {
        for (text, position) in [
            ("host", 1),
            ("host=a user", 8),
            ("host=a user b", 8),
            ("host='a", 6),
            (r"host='a\'", 6),
            ("=a", 1),
            ("Host=a", 1),
            ("host=a\0", 7),
        ] {
            assert_eq!(parse(text).unwrap_err().position(), Some(position), "{text}");
        }
    }
}
