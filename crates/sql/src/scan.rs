//! The lexical part of PostgreSQL's SQL: where one token ends and the next begins, by the rules of the server's `scan.l`.
//!
//! One pass over bytes, no allocation, no tables but one of character classes. It never fails: what PostgreSQL would refuse
//! (a quote without end, an identifier glued to a number) becomes a token all the same, and [`Scanner::malformed`] says so. It
//! knows nothing of grammar. The text may be in any encoding whose multi-byte characters have only bytes of 0x80 and more;
//! that is every encoding a server can have, but not SJIS, BIG5, GBK, UHC, GB18030 and JOHAB, which only clients can have: see
//! [`encoding_keeps_ascii_apart`].

/// Whether text in a client encoding of this name can be scanned byte by byte: false for the encodings in which the second byte
/// of a character may look like a quote or a backslash (PostgreSQL: `PG_ENCODING_IS_CLIENT_ONLY`). The name is spelled in any
/// way that `client_encoding` accepts (case and punctuation do not count).
#[must_use]
pub fn encoding_keeps_ascii_apart(name: &str) -> bool {
    const UNSAFE: [&str; 16] = [
        "sjis",
        "shiftjis",
        "mskanji",
        "win932",
        "windows932",
        "shiftjis2004",
        "big5",
        "win950",
        "windows950",
        "gbk",
        "win936",
        "windows936",
        "uhc",
        "win949",
        "windows949",
        "gb18030",
    ];
    let mut folded = [0u8; 16];
    let mut length = 0;
    for byte in name.bytes().filter(u8::is_ascii_alphanumeric) {
        match folded.get_mut(length) {
            Some(place) => *place = byte.to_ascii_lowercase(),
            // Longer than each of the names above.
            None => return true,
        }
        length += 1;
    }
    let folded = &folded[..length];
    folded != b"johab" && UNSAFE.iter().all(|name| name.as_bytes() != folded)
}

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// An identifier or keyword without quotes: its case does not count.
    Word,
    /// `"..."`.
    QuotedWord,
    /// `U&"..."`.
    UnicodeWord,
    /// A constant: a string of any spelling, a bit string, a number.
    Constant,
    /// `$1`. The number is in the text of the token.
    Parameter,
    /// `::`
    Cast,
    /// An operator of one or more characters, `:=` and `..` among them.
    Operator,
    /// One of `( ) [ ] , ; : .`
    Mark(u8),
    /// A byte that starts no token.
    Stray,
}

/// A token and its place in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// What it is.
    pub kind: TokenKind,
    /// Offset of its first byte.
    pub start: usize,
    /// Offset of the byte behind its last.
    pub end: usize,
}

const SPACE: u8 = 1;
const WORD_START: u8 = 2;
const DIGIT: u8 = 4;
const WORD_REST: u8 = 8;
const OPERATOR: u8 = 16;
/// Operator characters that allow a longer operator to end in + or -.
const SPECIAL: u8 = 32;
const HEX: u8 = 64;

const fn classes() -> [u8; 256] {
    let mut table = [0u8; 256];
    let mut at = 0usize;
    while at < 256 {
        let byte = at as u8;
        let mut class = 0;
        if matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c) {
            class |= SPACE;
        }
        if byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80 {
            class |= WORD_START | WORD_REST;
        }
        if byte.is_ascii_digit() {
            class |= DIGIT | WORD_REST;
        }
        if byte == b'$' {
            class |= WORD_REST;
        }
        if byte.is_ascii_hexdigit() {
            class |= HEX;
        }
        if matches!(
            byte,
            b'~' | b'!'
                | b'@'
                | b'#'
                | b'^'
                | b'&'
                | b'|'
                | b'`'
                | b'?'
                | b'+'
                | b'-'
                | b'*'
                | b'/'
                | b'%'
                | b'<'
                | b'>'
                | b'='
        ) {
            class |= OPERATOR;
        }
        if matches!(byte, b'~' | b'!' | b'@' | b'#' | b'%' | b'^' | b'&' | b'|' | b'`' | b'?') {
            class |= SPECIAL;
        }
        table[at] = class;
        at += 1;
    }
    table
}

static CLASS: [u8; 256] = classes();

/// Reads the tokens of one text, in order. White space and comments are no tokens.
#[derive(Clone, Debug)]
pub struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    standard_strings: bool,
    malformed: bool,
}

impl<'a> Scanner<'a> {
    /// `standard_strings` is the session's `standard_conforming_strings`: with `false`, a backslash in `'...'` escapes.
    #[must_use]
    pub fn new(text: &'a [u8], standard_strings: bool) -> Self {
        Self { text, at: 0, standard_strings, malformed: false }
    }

    /// Whether something was read so far that PostgreSQL refuses: a quote or comment without end, a number with letters behind.
    #[must_use]
    pub fn malformed(&self) -> bool {
        self.malformed
    }

    #[inline]
    fn byte(&self, at: usize) -> u8 {
        // A text holds no NUL (it comes as a C string), so 0 may stand for "behind the end".
        self.text.get(at).copied().unwrap_or(0)
    }

    #[inline]
    fn is(&self, at: usize, class: u8) -> bool {
        CLASS[usize::from(self.byte(at))] & class != 0
    }

    fn run_of(&self, mut at: usize, class: u8) -> usize {
        while self.is(at, class) {
            at += 1;
        }
        at
    }

    /// Behind white space and comments.
    fn skip_blank(&mut self, mut at: usize) -> usize {
        loop {
            let byte = self.byte(at);
            if CLASS[usize::from(byte)] & SPACE != 0 {
                at += 1;
            } else if byte == b'-' && self.byte(at + 1) == b'-' {
                at = self.line_end(at + 2);
            } else if byte == b'/' && self.byte(at + 1) == b'*' {
                at = self.comment_end(at + 2);
            } else {
                return at;
            }
        }
    }

    fn line_end(&self, from: usize) -> usize {
        let rest = self.text.get(from..).unwrap_or_default();
        memchr::memchr2(b'\n', b'\r', rest).map_or(self.text.len(), |found| from + found)
    }

    /// Behind the end of a block comment whose inside begins at `at`. Such comments nest.
    fn comment_end(&mut self, mut at: usize) -> usize {
        let mut depth = 1u32;
        loop {
            let rest = self.text.get(at..).unwrap_or_default();
            let Some(found) = memchr::memchr2(b'*', b'/', rest) else {
                self.malformed = true;
                return self.text.len();
            };
            at += found;
            match (self.byte(at), self.byte(at + 1)) {
                (b'*', b'/') => {
                    at += 2;
                    depth -= 1;
                    if depth == 0 {
                        return at;
                    }
                }
                (b'/', b'*') => {
                    at += 2;
                    depth = depth.saturating_add(1);
                }
                _ => at += 1,
            }
        }
    }

    /// Behind the closing quote of what begins at `at` (behind its opening quote): a doubled quote is one inside.
    fn quote_end(&mut self, mut at: usize, quote: u8) -> usize {
        loop {
            let rest = self.text.get(at..).unwrap_or_default();
            let Some(found) = memchr::memchr(quote, rest) else {
                self.malformed = true;
                return self.text.len();
            };
            at += found + 1;
            if self.byte(at) != quote {
                return at;
            }
            at += 1;
        }
    }

    /// The same for a string in which a backslash takes the next character with it.
    fn escaped_end(&mut self, mut at: usize) -> usize {
        loop {
            let rest = self.text.get(at..).unwrap_or_default();
            let Some(found) = memchr::memchr2(b'\'', b'\\', rest) else {
                self.malformed = true;
                return self.text.len();
            };
            at += found + 1;
            if self.byte(at - 1) == b'\\' {
                if at >= self.text.len() {
                    self.malformed = true;
                    return at;
                }
                at += 1;
            } else if self.byte(at) == b'\'' {
                at += 1;
            } else {
                return at;
            }
        }
    }

    /// The same for bit strings, where a quote cannot be doubled.
    fn bits_end(&mut self, at: usize) -> usize {
        let rest = self.text.get(at..).unwrap_or_default();
        match memchr::memchr(b'\'', rest) {
            Some(found) => at + found + 1,
            None => {
                self.malformed = true;
                self.text.len()
            }
        }
    }

    /// The inside of the next part of a string, if it goes on behind a line break: 'a' 'b' on two lines is 'ab'
    /// (`quotecontinue` in scan.l: blanks or a line comment, a line break, blanks or line comments, a quote).
    fn continuation(&self, mut at: usize) -> Option<usize> {
        let mut broken = false;
        loop {
            match self.byte(at) {
                b'\n' | b'\r' => {
                    broken = true;
                    at += 1;
                }
                b' ' | b'\t' | 0x0b | 0x0c => at += 1,
                b'-' if self.byte(at + 1) == b'-' => {
                    at = self.line_end(at + 2);
                    if at >= self.text.len() {
                        return None;
                    }
                }
                b'\'' if broken => return Some(at + 1),
                _ => return None,
            }
        }
    }

    fn whole_string(&mut self, inside: usize, style: Style) -> usize {
        let mut at = inside;
        loop {
            at = match style {
                Style::Plain => self.quote_end(at, b'\''),
                Style::Escaped => self.escaped_end(at),
                Style::Bits => self.bits_end(at),
            };
            match self.continuation(at) {
                Some(next) => at = next,
                None => return at,
            }
        }
    }

    fn plain_style(&self) -> Style {
        if self.standard_strings { Style::Plain } else { Style::Escaped }
    }

    /// Behind a number that begins at `at`, by the rules of PostgreSQL 16 and later (0x1F, 1_000).
    fn number(&mut self, at: usize) -> usize {
        let mut end = if self.byte(at) == b'0' && matches!(self.byte(at + 1), b'x' | b'X' | b'o' | b'O' | b'b' | b'B') {
            let prefix = self.byte(at + 1) | 0x20;
            let fits = |byte: u8| match prefix {
                b'x' => byte.is_ascii_hexdigit(),
                b'o' => matches!(byte, b'0'..=b'7'),
                _ => matches!(byte, b'0' | b'1'),
            };
            let end = self.digits(at + 2, fits, true);
            if end == at + 2 {
                self.malformed = true;
            }
            end
        } else {
            self.decimal(at)
        };
        if self.is(end, WORD_START) {
            // "trailing junk after numeric literal"
            self.malformed = true;
            end = self.run_of(end, WORD_REST);
        }
        end
    }

    fn decimal(&mut self, at: usize) -> usize {
        let digit = |byte: u8| byte.is_ascii_digit();
        let mut end = self.digits(at, digit, false);
        // `1..2` is the number 1 and the operator `..`
        if self.byte(end) == b'.' && self.byte(end + 1) != b'.' {
            end = self.digits(end + 1, digit, false);
        }
        if matches!(self.byte(end), b'e' | b'E') {
            let sign = usize::from(matches!(self.byte(end + 1), b'+' | b'-'));
            if self.is(end + 1 + sign, DIGIT) {
                end = self.digits(end + 1 + sign, digit, false);
            } else {
                // "trailing junk after numeric literal", with the sign when there is one
                self.malformed = true;
                end += 1 + sign;
            }
        }
        end
    }

    /// Digits with single underscores between them (and before the first when `lead` says so).
    fn digits(&self, mut at: usize, fits: impl Fn(u8) -> bool, lead: bool) -> usize {
        let start = at;
        loop {
            if fits(self.byte(at)) {
                at += 1;
            } else if self.byte(at) == b'_' && (lead || at > start) && fits(self.byte(at + 1)) {
                at += 2;
            } else {
                return at;
            }
        }
    }

    /// `$1`, `$tag$...$tag$`, or a dollar that is neither.
    fn dollar(&mut self, at: usize) -> (TokenKind, usize) {
        if self.is(at + 1, DIGIT) {
            let end = self.run_of(at + 1, DIGIT);
            if self.is(end, WORD_START) {
                // "trailing junk after parameter"
                self.malformed = true;
            }
            return (TokenKind::Parameter, end);
        }
        let mut tag_end = at + 1;
        if self.is(tag_end, WORD_START) {
            // No dollar inside a tag.
            while self.is(tag_end, WORD_REST) && self.byte(tag_end) != b'$' {
                tag_end += 1;
            }
        }
        if self.byte(tag_end) != b'$' {
            self.malformed = true;
            return (TokenKind::Stray, at + 1);
        }
        let tag = self.text.get(at..=tag_end).unwrap_or_default();
        let inside = self.text.get(tag_end + 1..).unwrap_or_default();
        let mut searched = 0;
        while let Some(found) = memchr::memchr(b'$', inside.get(searched..).unwrap_or_default()) {
            let here = searched + found;
            if inside.get(here..here + tag.len()) == Some(tag) {
                return (TokenKind::Constant, tag_end + 1 + here + tag.len());
            }
            searched = here + 1;
        }
        self.malformed = true;
        (TokenKind::Constant, self.text.len())
    }

    /// The longest operator from `at` on, by scan.l: none of its characters begins a comment, and it ends in + or - only when
    /// it is that one character or has a character that standard operators lack.
    fn operator(&self, at: usize) -> usize {
        let mut end = at;
        let mut special = false;
        loop {
            let byte = self.byte(end);
            let class = CLASS[usize::from(byte)];
            if class & OPERATOR == 0 {
                break;
            }
            let next = self.byte(end + 1);
            if (byte == b'-' && next == b'-') || (byte == b'/' && next == b'*') {
                break;
            }
            special |= class & SPECIAL != 0;
            end += 1;
        }
        if !special {
            while end > at + 1 && matches!(self.byte(end - 1), b'+' | b'-') {
                end -= 1;
            }
        }
        // At least the one character that brought us here.
        end.max(at + 1)
    }

    fn word(&mut self, at: usize) -> (TokenKind, usize) {
        let next = self.byte(at + 1);
        match self.byte(at) {
            b'e' | b'E' if next == b'\'' => (TokenKind::Constant, self.whole_string(at + 2, Style::Escaped)),
            b'b' | b'B' | b'x' | b'X' if next == b'\'' => (TokenKind::Constant, self.whole_string(at + 2, Style::Bits)),
            b'u' | b'U' if next == b'&' && self.byte(at + 2) == b'\'' => {
                // "unsafe use of string constant with Unicode escapes"
                self.malformed |= !self.standard_strings;
                (TokenKind::Constant, self.whole_string(at + 3, Style::Plain))
            }
            b'u' | b'U' if next == b'&' && self.byte(at + 2) == b'"' => {
                (TokenKind::UnicodeWord, self.quote_end(at + 3, b'"'))
            }
            // N'...' is the keyword NCHAR, then a string.
            b'n' | b'N' if next == b'\'' => (TokenKind::Word, at + 1),
            _ => (TokenKind::Word, self.run_of(at + 1, WORD_REST)),
        }
    }
}

#[derive(Clone, Copy)]
enum Style {
    Plain,
    Escaped,
    Bits,
}

impl Iterator for Scanner<'_> {
    type Item = Token;

    #[inline]
    fn next(&mut self) -> Option<Token> {
        let start = self.skip_blank(self.at);
        let first = *self.text.get(start)?;
        let class = CLASS[usize::from(first)];
        let (kind, end) = if class & WORD_START != 0 {
            self.word(start)
        } else if class & DIGIT != 0 {
            (TokenKind::Constant, self.number(start))
        } else if class & OPERATOR != 0 {
            (TokenKind::Operator, self.operator(start))
        } else {
            match first {
                b'(' | b')' | b'[' | b']' | b',' | b';' => (TokenKind::Mark(first), start + 1),
                b'\'' => {
                    let style = self.plain_style();
                    (TokenKind::Constant, self.whole_string(start + 1, style))
                }
                b'"' => (TokenKind::QuotedWord, self.quote_end(start + 1, b'"')),
                b'$' => self.dollar(start),
                b'.' if self.is(start + 1, DIGIT) => (TokenKind::Constant, self.number(start)),
                b'.' if self.byte(start + 1) == b'.' => (TokenKind::Operator, start + 2),
                b':' if self.byte(start + 1) == b':' => (TokenKind::Cast, start + 2),
                b':' if self.byte(start + 1) == b'=' => (TokenKind::Operator, start + 2),
                b'.' | b':' => (TokenKind::Mark(first), start + 1),
                _ => {
                    self.malformed = true;
                    (TokenKind::Stray, start + 1)
                }
            }
        };
        self.at = end;
        Some(Token { kind, start, end })
    }
}
