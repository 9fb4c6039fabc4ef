//! The tokens of a body, with their texts as PostgreSQL takes them: names folded, constants without quotes.

use crate::scan::{Scanner, TokenKind};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A name or keyword without quotes, in lower case.
    Word(Box<str>),
    /// A name in quotes.
    Quoted(Box<str>),
    /// A string constant that could be read.
    Text(Box<str>),
    /// Another constant, or one in a spelling that is not read here (Unicode escapes, bits).
    Constant,
    /// A number.
    Number(Box<str>),
    /// `$1`
    Parameter,
    /// `::`
    Cast,
    Operator(Box<str>),
    Mark(u8),
    /// A name with Unicode escapes: it may be any.
    Unreadable,
}

impl Token {
    pub(super) fn word(&self) -> Option<&str> {
        match self {
            Self::Word(word) => Some(word),
            _ => None,
        }
    }

    /// A name, quoted or not.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::Word(name) | Self::Quoted(name) => Some(name),
            _ => None,
        }
    }

    pub(super) fn is_word(&self, word: &str) -> bool {
        self.word() == Some(word)
    }

    pub(super) fn is_mark(&self, mark: u8) -> bool {
        *self == Self::Mark(mark)
    }

    pub(super) fn is_operator(&self, operator: &str) -> bool {
        matches!(self, Self::Operator(text) if **text == *operator)
    }
}

/// The tokens of a text, and whether it is malformed.
pub(super) fn read(text: &str, standard_strings: bool) -> (Vec<Token>, bool) {
    let mut scanner = Scanner::new(text.as_bytes(), standard_strings);
    let mut tokens = Vec::new();
    for token in scanner.by_ref() {
        let source = text.get(token.start..token.end).unwrap_or_default();
        tokens.push(match token.kind {
            TokenKind::Word => Token::Word(cut(&source.to_ascii_lowercase()).into()),
            TokenKind::QuotedWord => {
                let inside = source.strip_prefix('"').and_then(|s| s.strip_suffix('"')).unwrap_or(source);
                Token::Quoted(cut(&inside.replace("\"\"", "\"")).into())
            }
            TokenKind::UnicodeWord => Token::Unreadable,
            TokenKind::Constant => constant(source, standard_strings),
            TokenKind::Parameter => Token::Parameter,
            TokenKind::Cast => Token::Cast,
            TokenKind::Operator => Token::Operator(source.into()),
            TokenKind::Mark(mark) => Token::Mark(mark),
            // The text is malformed then; the token stands for it.
            TokenKind::Stray => Token::Constant,
        });
    }
    (tokens, scanner.malformed())
}

/// PostgreSQL keeps 63 bytes of a name.
fn cut(name: &str) -> &str {
    let mut end = name.len().min(63);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.get(..end).unwrap_or(name)
}

fn constant(source: &str, standard_strings: bool) -> Token {
    let read = match source.as_bytes() {
        [b'\'', ..] if standard_strings => plain(source),
        [b'\'', ..] => escaped(source),
        [b'e' | b'E', b'\'', ..] => source.get(1..).and_then(escaped),
        [b'$', ..] => dollar(source),
        [b'0'..=b'9' | b'.', ..] => return Token::Number(source.into()),
        _ => None,
    };
    read.map_or(Token::Constant, |text| Token::Text(text.into()))
}

fn plain(source: &str) -> Option<String> {
    let inside = source.strip_prefix('\'')?.strip_suffix('\'')?;
    // A single quote within: the constant goes on behind a line break.
    let doubled = inside.replace("''", "");
    (!doubled.contains('\'')).then(|| inside.replace("''", "'"))
}

fn escaped(source: &str) -> Option<String> {
    let inside = source.strip_prefix('\'')?.strip_suffix('\'')?;
    let mut out = String::with_capacity(inside.len());
    let mut chars = inside.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.push(match chars.next()? {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                'b' => '\u{8}',
                'f' => '\u{c}',
                // Octal, hexadecimal, Unicode.
                '0'..='7' | 'x' | 'u' | 'U' => return None,
                other => other,
            }),
            '\'' if chars.next() != Some('\'') => return None,
            other => out.push(other),
        }
    }
    Some(out)
}

fn dollar(source: &str) -> Option<String> {
    let tag = source.get(..=source.get(1..)?.find('$')? + 1)?;
    Some(source.strip_prefix(tag)?.strip_suffix(tag)?.to_owned())
}

/// Splits at a token that stands outside of all parentheses.
pub(super) fn split(tokens: &[Token], at: impl Fn(&Token) -> bool) -> Vec<&[Token]> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut depth = 0usize;
    for (index, token) in tokens.iter().enumerate() {
        match token {
            Token::Mark(b'(' | b'[') => depth += 1,
            Token::Mark(b')' | b']') => depth = depth.saturating_sub(1),
            token if depth == 0 && at(token) => {
                parts.push(tokens.get(start..index).unwrap_or_default());
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(tokens.get(start..).unwrap_or_default());
    parts
}

/// Tokens between two parentheses that are looked at; more are as good as none.
const MAX_INSIDE: usize = 2_000;

/// What stands between the parenthesis at `open` and the one that closes it. Nothing if that one is too far away.
pub(super) fn inside(tokens: &[Token], open: usize) -> &[Token] {
    let mut depth = 0usize;
    for (index, token) in tokens.iter().enumerate().skip(open).take(MAX_INSIDE) {
        match token {
            Token::Mark(b'(' | b'[') => depth += 1,
            Token::Mark(b')' | b']') => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return tokens.get(open + 1..index).unwrap_or_default();
                }
            }
            _ => {}
        }
    }
    &[]
}

/// The arguments of a call whose parenthesis is at `open`.
pub(super) fn arguments(tokens: &[Token], open: usize) -> Vec<&[Token]> {
    let inside = inside(tokens, open);
    if inside.is_empty() { Vec::new() } else { split(inside, |token| token.is_mark(b',')) }
}
