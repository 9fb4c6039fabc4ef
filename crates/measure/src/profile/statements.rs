//! A file of SQL taken apart into statements at its semicolons, with PostgreSQL's rules for quotes, dollar quotes and
//! comments. Not a parser: bodies written as `BEGIN ATOMIC ... END` are not recognised, and commands of psql
//! (backslash) are refused.

/// A file that cannot be taken apart.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct SplitError {
    /// Line, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: &'static str,
}

/// The statements of `text`, without their semicolons. Comments stay where they are; what holds nothing but comments
/// and blanks is no statement.
pub fn split_statements(text: &str) -> Result<Vec<String>, SplitError> {
    let mut list = Vec::new();
    let mut start = 0;
    let mut at = 0;
    let mut has_content = false;
    let mut previous = b' ';
    let bytes = text.as_bytes();
    let line_of = |at: usize| 1 + bytes.iter().take(at).filter(|byte| **byte == b'\n').count();
    let error = |at: usize, what| SplitError { line: line_of(at), what };
    while let Some(&byte) = bytes.get(at) {
        let rest = text.get(at..).unwrap_or("");
        let len = match byte {
            b';' => {
                if has_content {
                    list.push(text.get(start..at).unwrap_or("").trim().to_owned());
                }
                start = at + 1;
                has_content = false;
                previous = b' ';
                at += 1;
                continue;
            }
            b'\'' => {
                let escapes = matches!(previous, b'e' | b'E') && !is_word(before(bytes, at, 2));
                quoted(rest, b'\'', escapes).ok_or_else(|| error(at, "unterminated quoted string"))?
            }
            b'"' => quoted(rest, b'"', false).ok_or_else(|| error(at, "unterminated quoted name"))?,
            b'$' if !is_word(previous) => match dollar_tag(rest) {
                Some(tag) => {
                    let body = rest.get(tag.len()..).unwrap_or("");
                    let end = body.find(tag).ok_or_else(|| error(at, "unterminated dollar-quoted string"))?;
                    2 * tag.len() + end
                }
                None => 1,
            },
            b'-' if rest.starts_with("--") => {
                at += rest.find('\n').unwrap_or(rest.len());
                continue;
            }
            b'/' if rest.starts_with("/*") => {
                at += comment(rest).ok_or_else(|| error(at, "unterminated comment"))?;
                continue;
            }
            b'\\' => return Err(error(at, "commands of psql (backslash) are not supported")),
            _ => 1,
        };
        has_content |= !byte.is_ascii_whitespace();
        at += len;
        previous = before(bytes, at, 1);
    }
    if has_content {
        list.push(text.get(start..).unwrap_or("").trim().to_owned());
    }
    Ok(list)
}

fn before(bytes: &[u8], at: usize, back: usize) -> u8 {
    at.checked_sub(back).and_then(|at| bytes.get(at)).copied().unwrap_or(b' ')
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Length of a quoted run that begins at the start of `text`. A doubled quote is two runs, which comes to the same.
fn quoted(text: &str, quote: u8, escapes: bool) -> Option<usize> {
    let mut rest = text.bytes().enumerate().skip(1);
    while let Some((at, byte)) = rest.next() {
        if escapes && byte == b'\\' {
            rest.next();
        } else if byte == quote {
            return Some(at + 1);
        }
    }
    None
}

/// `$tag$` at the start of `text`.
fn dollar_tag(text: &str) -> Option<&str> {
    let end = text.get(1..)?.find('$')? + 1;
    let name = text.get(1..end)?;
    let valid = name.bytes().all(is_word) && !name.starts_with(|c: char| c.is_ascii_digit());
    valid.then(|| text.get(..=end)).flatten()
}

/// Length of a comment, which may hold others.
fn comment(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut depth, mut at) = (0, 0);
    loop {
        match (bytes.get(at)?, bytes.get(at + 1)) {
            (b'/', Some(b'*')) => (depth, at) = (depth + 1, at + 2),
            (b'*', Some(b'/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

/// A statement in one line of at most 70 characters, and dots if there is more of it.
pub(crate) fn short(sql: &str) -> String {
    let line: String = sql.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(70) {
        Some((at, _)) => format!("{}...", line.get(..at).unwrap_or_default()),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semicolons_that_separate_and_those_that_do_not() {
        for (text, expected) in [
            ("select 1; select 2", vec!["select 1", "select 2"]),
            ("select ';'; select \";\";", vec!["select ';'", "select \";\""]),
            ("select 'it''s;'; x", vec!["select 'it''s;'", "x"]),
            (r"select E'\';'; x", vec![r"select E'\';'", "x"]),
            (r"select '\'; x", vec![r"select '\'", "x"]),
            ("do $$ begin; end $$; x", vec!["do $$ begin; end $$", "x"]),
            ("do $a$ $$;$b$ $a$; x", vec!["do $a$ $$;$b$ $a$", "x"]),
            ("select $1; x", vec!["select $1", "x"]),
            ("select a$b$; c$b$", vec!["select a$b$", "c$b$"]),
            ("-- only; a comment\n", vec![]),
            ("/* a; /* b; */ c; */ x", vec!["/* a; /* b; */ c; */ x"]),
            ("-- c\nx;\n\n;; y", vec!["-- c\nx", "y"]),
            ("", vec![]),
            ("grün; blau", vec!["grün", "blau"]),
        ] {
            assert_eq!(split_statements(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn mistakes_name_their_line() {
        for (text, line) in [("x;\n'", 2), ("\n\n$$", 3), ("/*", 1), ("x;\n\\d t", 2), ("\"", 1)] {
            assert_eq!(split_statements(text).unwrap_err().line, line, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_panics(text in "[a$'\";/*\\-\\\\\né ]{0,40}") {
            let _ = split_statements(&text);
        }
    }
}
