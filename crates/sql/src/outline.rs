//! One pass over a text: its fingerprint, and what can be said of it without a grammar.
//!
//! The pass feeds each token to four that each follow one thing: the [fingerprint](crate::fingerprint), the words that change
//! sessions ([`Mentions`]), how deep a parser may have to recurse, and whether a statement is [plain](crate::Quick). It notes where
//! statements end and how they begin. Nothing is allocated but what the caller's [`Outline`] keeps from one text to the next.

use crate::depth::Depth;
use crate::fingerprint::{Fingerprint, Hash, Key, Lists, Tag};
use crate::functions::{SessionFunction, is_harmless_bytes};
use crate::mentions::Mentions;
use crate::quick::{Quick, Seen, Watch};
use crate::scan::{Scanner, Token, TokenKind};
use crate::words::{Folded, Word};

/// One statement of a text. Empty ones are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Offset of its first token.
    pub start: usize,
    /// Offset behind its last token: of its semicolon, of the blanks before that, or of the end of the text.
    pub end: usize,
    /// Its first keyword; `None` when it begins otherwise, with a parenthesis for example.
    pub first: Option<Word>,
    /// What is certain of it.
    pub quick: Quick,
}

/// What one pass finds. Kept by the caller and filled again for each text.
#[derive(Clone, Debug)]
pub struct Outline {
    key: Key,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) parts: Vec<Part>,
    pub(crate) mentions: Mentions,
    pub(crate) malformed: bool,
    pub(crate) depth: u32,
    pub(crate) quick: Quick,
}

impl Outline {
    /// An empty one. All of one process share one key.
    #[must_use]
    pub fn new(key: Key) -> Self {
        Self {
            key,
            fingerprint: Fingerprint(0),
            parts: Vec::new(),
            mentions: Mentions::default(),
            malformed: false,
            depth: 0,
            quick: Quick::NeedsFacts,
        }
    }

    /// The key it was made with.
    #[must_use]
    pub fn key(&self) -> Key {
        self.key
    }

    /// The fingerprint of the text read last.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Its statements, in order.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// What it mentions.
    #[must_use]
    pub fn mentions(&self) -> Mentions {
        self.mentions
    }

    /// Whether it holds something that PostgreSQL's scanner refuses, such as a quote without end.
    #[must_use]
    pub fn malformed(&self) -> bool {
        self.malformed
    }

    /// A bound of the depth of its parse tree; `u32::MAX` when it nests deeper than this crate follows.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// What is certain of the whole text: see [`Quick`].
    #[must_use]
    pub fn quick(&self) -> Quick {
        self.quick
    }

    /// Reads a text. `standard_strings` is the session's `standard_conforming_strings`.
    pub fn read(&mut self, text: &[u8], standard_strings: bool) {
        self.parts.clear();
        self.mentions = Mentions::default();
        let mut pass = Pass::new(self, text);
        let mut scanner = Scanner::new(text, standard_strings);
        for token in scanner.by_ref() {
            pass.token(token);
        }
        pass.finish(scanner.malformed());
    }
}

/// What a token was, as far as the next one needs to know.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Start,
    Known(Word),
    Name,
    UnicodeName,
    Constant,
    Other,
    Mark(u8),
    Cast,
}

struct Pass<'a> {
    outline: &'a mut Outline,
    text: &'a [u8],
    name: Folded,
    before: Before,
    /// Whether the words since the last one without a dot before it form a name of several parts, and of which schema.
    path: Path,
    hash: Hash,
    lists: Lists,
    depth: Depth,
    /// Parentheses and brackets that are open. (The levels of [`Depth`] are of no use here: CASE may also be a column's name.)
    parens: u32,
    /// CREATE FUNCTION ... BEGIN ATOMIC: semicolons end no statement until its END.
    atomic: bool,
    watch: Watch,
    /// Offset of the first token of the statement under way.
    start: Option<usize>,
    first: Option<Word>,
    end: usize,
    semicolon_owed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Path {
    /// A name of one part.
    Single,
    /// The part before the dot is exactly `pg_catalog`.
    Catalog,
    /// Some other schema, table or alias.
    Other,
}

impl<'a> Pass<'a> {
    fn new(outline: &'a mut Outline, text: &'a [u8]) -> Self {
        let key = outline.key;
        Self {
            outline,
            text,
            name: Folded::EMPTY,
            before: Before::Start,
            path: Path::Single,
            hash: Hash::new(key),
            lists: Lists::default(),
            depth: Depth::default(),
            parens: 0,
            atomic: false,
            watch: Watch::default(),
            start: None,
            first: None,
            end: 0,
            semicolon_owed: false,
        }
    }

    #[inline]
    fn token(&mut self, token: Token) {
        if token.kind == TokenKind::Mark(b';') && self.parens == 0 && !(self.atomic && self.depth.level > 0) {
            self.finish_part();
            self.before = Before::Start;
            return;
        }
        if self.start.is_none() {
            self.start = Some(token.start);
            if self.semicolon_owed {
                self.hash.mark(b';');
                self.semicolon_owed = false;
            }
        }
        self.end = token.end;
        let opens_or_separates = matches!(token.kind, TokenKind::Mark(b'(' | b','));
        if self.lists.values_may_end(self.depth.level) && !opens_or_separates {
            self.lists.end(&mut self.hash);
        }
        let before = match token.kind {
            TokenKind::Word => self.word(token),
            TokenKind::QuotedWord => {
                self.quoted(token);
                Before::Name
            }
            TokenKind::UnicodeWord => {
                self.hash.text(Tag::UnicodeName, self.text, token.start, token.end);
                self.depth.token();
                self.watch.doubt();
                self.watch.step(Seen::Name, self.parens);
                self.name.clear();
                Before::UnicodeName
            }
            TokenKind::Constant => {
                self.hash.tag(Tag::Constant);
                self.depth.token();
                self.watch.step(Seen::Other, self.parens);
                Before::Constant
            }
            TokenKind::Parameter => {
                self.hash.text(Tag::Parameter, self.text, token.start, token.end);
                self.depth.token();
                self.watch.step(Seen::Other, self.parens);
                Before::Other
            }
            TokenKind::Cast => {
                self.hash.text(Tag::Operator, self.text, token.start, token.end);
                self.depth.token();
                self.watch.step(Seen::Cast, self.parens);
                Before::Cast
            }
            TokenKind::Operator => {
                self.hash.text(Tag::Operator, self.text, token.start, token.end);
                self.depth.token();
                self.watch.step(Seen::Other, self.parens);
                Before::Other
            }
            TokenKind::Stray => {
                self.hash.text(Tag::Operator, self.text, token.start, token.end);
                self.depth.token();
                self.watch.doubt();
                self.watch.step(Seen::Other, self.parens);
                Before::Other
            }
            TokenKind::Mark(mark) => {
                self.mark(mark);
                Before::Mark(mark)
            }
        };
        self.before = before;
    }

    fn follow_path(&mut self) {
        self.path = match (self.before, self.path) {
            // The name so far is still the one before the dot.
            (Before::Mark(b'.'), Path::Single) if self.name.as_bytes() == b"pg_catalog" => Path::Catalog,
            (Before::Mark(b'.'), _) => Path::Other,
            _ => Path::Single,
        };
    }

    #[inline]
    fn word(&mut self, token: Token) -> Before {
        self.follow_path();
        let hash = &mut self.hash;
        hash.start(Tag::Name, (token.end - token.start).min(63));
        self.name.put(self.text, token.start, token.end, |eight| hash.absorb(eight));
        let dotted = self.before == Before::Mark(b'.');
        let word = Word::find(self.name.as_bytes());
        let Some(word) = word else {
            self.depth.word(None);
            self.watch.step(Seen::Name, self.parens);
            return Before::Name;
        };
        self.outline.mentions.add_word(word);
        self.watch.name_part(word);
        if dotted {
            // The name of a column, a table or a function: any keyword may stand there.
            self.depth.word(None);
            self.watch.step(Seen::Name, self.parens);
            return Before::Name;
        }
        match self.before {
            Before::Start => self.first = Some(word),
            Before::Known(Word::Begin) if word == Word::Atomic && self.first == Some(Word::Create) => {
                self.atomic = true;
                self.depth.open(true);
            }
            _ => {}
        }
        self.depth.word(Some(word));
        self.watch.step(Seen::Word(word), self.parens);
        Before::Known(word)
    }

    fn quoted(&mut self, token: Token) {
        self.follow_path();
        self.hash.text(Tag::QuotedName, self.text, token.start, token.end);
        self.name.put_quoted(self.text, token.start, token.end);
        self.depth.token();
        if let Some(word) = Word::find(self.name.as_bytes()) {
            self.outline.mentions.add_word(word);
            self.watch.name_part(word);
        }
        self.watch.step(Seen::Name, self.parens);
    }

    #[inline]
    fn mark(&mut self, mark: u8) {
        match mark {
            b'(' => self.open(),
            b'[' => {
                self.parens = self.parens.saturating_add(1);
                self.depth.open(false);
                self.hash.mark(mark);
                self.watch.step(Seen::Other, self.parens);
                if self.before == Before::Known(Word::Array) {
                    self.lists.begin(&mut self.hash, self.depth.level, false);
                }
            }
            b')' | b']' => {
                self.lists.closed(&mut self.hash, self.depth.level);
                self.parens = self.parens.saturating_sub(1);
                self.depth.close();
                self.hash.mark(mark);
                self.watch.step(Seen::Closed, self.parens);
            }
            b',' => {
                self.depth.comma();
                if !self.lists.separated(&mut self.hash, self.depth.level) {
                    self.hash.mark(mark);
                }
                self.watch.step(Seen::Comma, self.parens);
            }
            b'.' => {
                self.hash.mark(mark);
                self.depth.token();
                self.watch.step(Seen::Dot, self.parens);
            }
            _ => {
                self.hash.mark(mark);
                self.depth.token();
                self.watch.step(Seen::Other, self.parens);
            }
        }
    }

    fn open(&mut self) {
        let called = match self.before {
            Before::Known(word) => !self.watch.exempt(word),
            Before::Name => !self.watch.exempt_name(),
            Before::UnicodeName => true,
            Before::Start | Before::Constant | Before::Other | Before::Mark(_) | Before::Cast => false,
        };
        if called {
            let name = self.name.as_bytes();
            if let Some(function) = SessionFunction::of_bytes(name) {
                self.outline.mentions.add_function(function);
                self.watch.doubt();
            } else if self.path == Path::Other || !is_harmless_bytes(name) {
                self.watch.doubt();
            }
        }
        let values = self.before == Before::Known(Word::Values);
        if values {
            self.lists.begin(&mut self.hash, self.depth.level, true);
        }
        self.parens = self.parens.saturating_add(1);
        self.depth.open(false);
        self.hash.mark(b'(');
        if self.before == Before::Known(Word::In) {
            self.lists.begin(&mut self.hash, self.depth.level, false);
        }
        self.watch.step(Seen::Open, self.parens);
    }

    fn finish_part(&mut self) {
        self.lists.end_all(&mut self.hash);
        self.depth.next_statement();
        (self.parens, self.atomic) = (0, false);
        let watch = std::mem::take(&mut self.watch);
        if let Some(start) = self.start.take() {
            let quick = watch.verdict();
            self.outline.parts.push(Part { start, end: self.end, first: self.first.take(), quick });
            self.semicolon_owed = true;
        }
    }

    fn finish(mut self, malformed: bool) {
        self.finish_part();
        let outline = self.outline;
        if malformed {
            for part in &mut outline.parts {
                part.quick = Quick::NeedsFacts;
            }
        }
        outline.malformed = malformed;
        outline.depth = self.depth.bound();
        outline.fingerprint = self.hash.finish();
        outline.quick = Quick::of_all(&outline.parts);
    }
}
