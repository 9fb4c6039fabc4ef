//! Cuts the text of a script into backslash commands and statements, and statements into text and variables.
//!
//! It knows as much of SQL's lexical rules as is needed to see where a statement ends and where a colon does not
//! begin a variable: quoted literals and identifiers, escape strings, dollar quotes, comments, casts (`::`),
//! assignments (`:=`) and parentheses (PostgreSQL documentation, "Lexical Structure"). It does not know SQL.

/// One item of a script.
#[derive(Debug, PartialEq)]
pub(super) enum Item<'a> {
    /// What follows a backslash at the start of a line, to the end of the line.
    Backslash(&'a str),
    /// A statement without its semicolon.
    Statement(Vec<Part<'a>>),
}

/// A piece of a statement.
#[derive(Debug, PartialEq)]
pub(super) enum Part<'a> {
    Text(&'a str),
    Variable(&'a str),
}

/// The items of `text`, each with the line on which it begins; or the line and what is wrong there.
pub(super) fn split(text: &str) -> Result<Vec<(usize, Item<'_>)>, (usize, String)> {
    let mut items = Vec::new();
    let mut rest = Cursor { text, at: 0 };
    loop {
        rest.skip_blank()?;
        let line = rest.line();
        match rest.peek() {
            None => return Ok(items),
            Some(b'\\') => {
                rest.at += 1;
                items.push((line, Item::Backslash(rest.take_line().trim())));
            }
            Some(b';') => rest.at += 1,
            Some(_) => items.push((line, Item::Statement(rest.take_statement()?))),
        }
    }
}

struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Option<u8> {
        self.byte(0)
    }

    fn byte(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + ahead).copied()
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn line(&self) -> usize {
        let before = self.text.get(..self.at).unwrap_or(self.text);
        before.bytes().filter(|b| *b == b'\n').count() + 1
    }

    fn take_line(&mut self) -> &'a str {
        let rest = self.rest();
        let line = rest.split('\n').next().unwrap_or("");
        self.at += line.len();
        line
    }

    /// Moves past white space and comments.
    fn skip_blank(&mut self) -> Result<(), (usize, String)> {
        loop {
            match (self.peek(), self.byte(1)) {
                (Some(b), _) if b.is_ascii_whitespace() => self.at += 1,
                (Some(b'-'), Some(b'-')) => {
                    self.take_line();
                }
                (Some(b'/'), Some(b'*')) => self.skip_comment()?,
                _ => return Ok(()),
            }
        }
    }

    /// Moves past a comment in slashes and stars, which nests.
    fn skip_comment(&mut self) -> Result<(), (usize, String)> {
        let line = self.line();
        let mut depth = 0_usize;
        loop {
            match (self.peek(), self.byte(1)) {
                (Some(b'/'), Some(b'*')) => {
                    depth += 1;
                    self.at += 2;
                }
                (Some(b'*'), Some(b'/')) => {
                    depth -= 1;
                    self.at += 2;
                    if depth == 0 {
                        return Ok(());
                    }
                }
                (Some(_), _) => self.at += 1,
                (None, _) => return Err((line, "a comment has no end".to_owned())),
            }
        }
    }

    /// Moves past a literal or identifier in `quote`s; a doubled quote stays inside, and a backslash protects the
    /// next byte if `escapes`.
    fn skip_quoted(&mut self, quote: u8, escapes: bool) -> Result<(), (usize, String)> {
        let line = self.line();
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'\\') if escapes => self.at += 2,
                Some(b) if b == quote => {
                    self.at += 1;
                    if self.peek() != Some(quote) {
                        return Ok(());
                    }
                    self.at += 1;
                }
                Some(_) => self.at += 1,
                None => return Err((line, "a quote has no end".to_owned())),
            }
        }
    }

    /// Moves past a dollar-quoted literal if one begins here; says whether it did.
    fn skip_dollar_quoted(&mut self) -> Result<bool, (usize, String)> {
        let rest = self.rest();
        let Some(end) = rest.get(1..).and_then(|r| r.find('$')) else {
            return Ok(false);
        };
        let Some(tag) = rest.get(1..=end) else {
            return Ok(false);
        };
        let is_tag = tag.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b >= 0x80)
            && !tag.starts_with(|c: char| c.is_ascii_digit());
        let (Some(delimiter), true) = (rest.get(..end + 2), is_tag) else {
            return Ok(false);
        };
        let body = rest.get(delimiter.len()..).unwrap_or("");
        let Some(close) = body.find(delimiter) else {
            return Err((self.line(), format!("{delimiter} has no end")));
        };
        self.at += delimiter.len() + close + delimiter.len();
        Ok(true)
    }

    /// Takes a statement up to its semicolon, or up to the end of the script.
    fn take_statement(&mut self) -> Result<Vec<Part<'a>>, (usize, String)> {
        let mut parts = Vec::new();
        let mut text_from = self.at;
        let mut depth = 0_usize;
        let mut in_word = false;
        let text = self.text;
        let piece = move |from: usize, to: usize| text.get(from..to).unwrap_or("");
        loop {
            let was_in_word = std::mem::replace(&mut in_word, false);
            match (self.peek(), self.byte(1)) {
                (None, _) => break,
                (Some(b';'), _) if depth == 0 => break,
                (Some(b'-'), Some(b'-')) => {
                    self.take_line();
                }
                (Some(b'/'), Some(b'*')) => self.skip_comment()?,
                (Some(b'e' | b'E'), Some(b'\'')) if !was_in_word => {
                    self.at += 1;
                    self.skip_quoted(b'\'', true)?;
                }
                (Some(quote @ (b'\'' | b'"')), _) => self.skip_quoted(quote, false)?,
                (Some(b'$'), _) if !was_in_word => {
                    if !self.skip_dollar_quoted()? {
                        self.at += 1;
                    }
                }
                (Some(b':'), Some(b':' | b'=')) => self.at += 2,
                (Some(b':'), Some(b)) if b.is_ascii_alphabetic() || b == b'_' => {
                    parts.push(Part::Text(piece(text_from, self.at)));
                    let name_from = self.at + 1;
                    self.at = name_from;
                    while self.peek().is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_') {
                        self.at += 1;
                    }
                    parts.push(Part::Variable(piece(name_from, self.at)));
                    text_from = self.at;
                }
                (Some(b), _) => {
                    match b {
                        b'(' => depth += 1,
                        b')' => depth = depth.saturating_sub(1),
                        _ => {}
                    }
                    in_word = b.is_ascii_alphanumeric() || b == b'_' || b == b'$' || b >= 0x80;
                    self.at += 1;
                }
            }
            // A backslash that protects the last byte leads one past the end.
            self.at = self.at.min(self.text.len());
        }
        parts.push(Part::Text(piece(text_from, self.at).trim_end()));
        if self.peek() == Some(b';') {
            self.at += 1;
        }
        parts.retain(|p| *p != Part::Text(""));
        Ok(parts)
    }
}
