//! One pass over a text: its fingerprint, and what can be said of it without a grammar.
//!
//! The fingerprint is a number of 128 bits of the stream of tokens. Texts that differ only in constants, white space,
//! comments, the case of keywords and unquoted names, a semicolon at the end, or the number of constant items in `IN (...)`,
//! `ARRAY[...]` and the rows of `VALUES` have the same one. It is keyed: two processes give different numbers, so that nobody can
//! prepare two texts that collide.
//!
//! On the way the pass notes where statements end, how they begin, which words occur that change sessions, how deep a parser
//! may have to recurse, and whether a statement is [plain](crate::Quick). Nothing is allocated but what the caller's
//! [`Outline`] keeps from one text to the next.

use crate::functions::{SessionFunction, is_harmless_bytes};
use crate::quick::{Quick, Seen, Watch};
use crate::scan::{Scanner, Token, TokenKind};
use crate::words::{Folded, Word, eights};

/// What texts have in common that differ only in constants and spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub u128);

/// The secret part of all fingerprints and text hashes of a process: from the system's random numbers, drawn by the caller.
#[derive(Clone, Copy)]
pub struct Key {
    first: u64,
    second: u64,
}

impl Key {
    /// A key of two random numbers.
    #[must_use]
    pub const fn new(first: u64, second: u64) -> Self {
        Self { first, second }
    }

    pub(crate) const fn seed(self) -> u64 {
        self.first ^ self.second.rotate_left(32)
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Words and names that hint at an effect on the session, wherever they stand in the text: a set of [`Mention`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mentions(u32);

/// One of [`Mentions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mention {
    /// `set_config`
    SetConfig,
    /// `nextval`, `currval`, `lastval`, `setval`
    Sequence,
    /// The functions of advisory locks.
    AdvisoryLock,
    /// `pg_notify`, NOTIFY
    Notify,
    /// Another function of [`SessionFunction`].
    OtherFunction,
    /// TEMP, TEMPORARY, `pg_temp`
    Temporary,
    /// LISTEN, UNLISTEN
    Listen,
    /// PREPARE, EXECUTE, DEALLOCATE
    Prepare,
    /// DECLARE
    Declare,
    /// SET
    Set,
    /// RESET
    Reset,
    /// DISCARD
    Discard,
    /// LOAD
    Load,
    /// DO
    Do,
    /// CALL
    Call,
    /// CREATE, ALTER, DROP
    Definition,
    /// `pg_settings` and the views of prepared statements and cursors.
    SessionView,
}

impl Mentions {
    /// Whether this one is there.
    #[must_use]
    pub fn has(self, mention: Mention) -> bool {
        self.0 & (1 << mention as u32) != 0
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn add(&mut self, mention: Mention) {
        self.0 |= 1 << mention as u32;
    }

    fn add_word(&mut self, word: Word) {
        self.add(match word {
            Word::Temp | Word::Temporary | Word::PgTemp => Mention::Temporary,
            Word::Listen | Word::Unlisten => Mention::Listen,
            Word::Notify => Mention::Notify,
            Word::Prepare | Word::Execute | Word::Deallocate => Mention::Prepare,
            Word::Declare => Mention::Declare,
            Word::Set => Mention::Set,
            Word::Reset => Mention::Reset,
            Word::Discard => Mention::Discard,
            Word::Load => Mention::Load,
            Word::Do => Mention::Do,
            Word::Call => Mention::Call,
            Word::Create | Word::Alter | Word::Drop => Mention::Definition,
            Word::PgSettings | Word::PgPreparedStatements | Word::PgCursors => Mention::SessionView,
            _ => return,
        });
    }

    fn add_function(&mut self, function: SessionFunction) {
        self.add(match function {
            SessionFunction::SetConfig => Mention::SetConfig,
            SessionFunction::NextValue
            | SessionFunction::SetValue
            | SessionFunction::CurrentValue
            | SessionFunction::LastValue => Mention::Sequence,
            SessionFunction::AdvisoryLock(_) | SessionFunction::AdvisoryUnlock | SessionFunction::AdvisoryUnlockAll => {
                Mention::AdvisoryLock
            }
            SessionFunction::Notify => Mention::Notify,
            SessionFunction::SetSeed
            | SessionFunction::LargeObject
            | SessionFunction::ReadsBackend
            | SessionFunction::ReplicationOrigin
            | SessionFunction::ExportSnapshot
            | SessionFunction::Backup
            | SessionFunction::RunsText
            | SessionFunction::ForeignConnection => Mention::OtherFunction,
        });
    }
}

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
            watch: Watch::default(),
            start: None,
            first: None,
            end: 0,
            semicolon_owed: false,
        }
    }

    #[inline]
    fn token(&mut self, token: Token) {
        if token.kind == TokenKind::Mark(b';') && self.depth.level == 0 {
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
                self.watch.step(Seen::Name);
                self.name.clear();
                Before::UnicodeName
            }
            TokenKind::Constant => {
                self.hash.tag(Tag::Constant);
                self.depth.token();
                self.watch.step(Seen::Other);
                Before::Constant
            }
            TokenKind::Parameter => {
                self.hash.text(Tag::Parameter, self.text, token.start, token.end);
                self.depth.token();
                self.watch.step(Seen::Other);
                Before::Other
            }
            TokenKind::Cast => {
                self.hash.text(Tag::Operator, self.text, token.start, token.end);
                self.depth.token();
                self.watch.step(Seen::Cast);
                Before::Cast
            }
            TokenKind::Operator => {
                self.hash.text(Tag::Operator, self.text, token.start, token.end);
                self.depth.token();
                self.watch.step(Seen::Other);
                Before::Other
            }
            TokenKind::Stray => {
                self.hash.text(Tag::Operator, self.text, token.start, token.end);
                self.depth.token();
                self.watch.doubt();
                self.watch.step(Seen::Other);
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
            self.watch.step(Seen::Name);
            return Before::Name;
        };
        self.outline.mentions.add_word(word);
        self.watch.name_part(word);
        if dotted {
            // The name of a column, a table or a function: any keyword may stand there.
            self.depth.word(None);
            self.watch.step(Seen::Name);
            return Before::Name;
        }
        match self.before {
            Before::Start => self.first = Some(word),
            // The body of a function, up to its END: semicolons in it end no statement.
            Before::Known(Word::Begin) if word == Word::Atomic && self.first == Some(Word::Create) => {
                self.depth.open(true)
            }
            _ => {}
        }
        self.depth.word(Some(word));
        self.watch.step(Seen::Word(word));
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
        self.watch.step(Seen::Name);
    }

    #[inline]
    fn mark(&mut self, mark: u8) {
        match mark {
            b'(' => self.open(),
            b'[' => {
                self.depth.open(false);
                self.hash.mark(mark);
                self.watch.step(Seen::Other);
                if self.before == Before::Known(Word::Array) {
                    self.lists.begin(&mut self.hash, self.depth.level, false);
                }
            }
            b')' | b']' => {
                self.lists.closed(&mut self.hash, self.depth.level);
                self.depth.close();
                self.hash.mark(mark);
                self.watch.step(Seen::Closed);
            }
            b',' => {
                self.depth.comma();
                if !self.lists.separated(&mut self.hash, self.depth.level) {
                    self.hash.mark(mark);
                }
                self.watch.step(Seen::Comma);
            }
            b'.' => {
                self.hash.mark(mark);
                self.depth.token();
                self.watch.step(Seen::Dot);
            }
            _ => {
                self.hash.mark(mark);
                self.depth.token();
                self.watch.step(Seen::Other);
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
        self.depth.open(false);
        self.hash.mark(b'(');
        if self.before == Before::Known(Word::In) {
            self.lists.begin(&mut self.hash, self.depth.level, false);
        }
        self.watch.step(Seen::Other);
    }

    fn finish_part(&mut self) {
        self.lists.end_all(&mut self.hash);
        self.depth.next_statement();
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

// ---- the hash ------------------------------------------------------------------------------------------------------------

#[derive(Clone, Copy)]
#[repr(u8)]
enum Tag {
    Name = 1,
    QuotedName,
    UnicodeName,
    Constant,
    Parameter,
    Operator,
    Mark,
    Item,
}

/// Two lanes of keyed, folded multiplications.
#[derive(Clone, Copy)]
struct Hash {
    a: u64,
    b: u64,
    key: Key,
}

#[inline]
fn fold(x: u64, y: u64) -> u64 {
    let product = u128::from(x) * u128::from(y);
    (product as u64) ^ ((product >> 64) as u64)
}

impl Hash {
    fn new(key: Key) -> Self {
        // The keys are made odd and large: a folded multiplication by a small number would forget bits.
        let key = Key { first: key.first | 1 | 1 << 63, second: key.second | 1 | 1 << 62 };
        Self { a: key.second ^ 0x243f_6a88_85a3_08d3, b: key.first ^ 0x1319_8a2e_0370_7344, key }
    }

    fn fresh(&self) -> Self {
        Self { a: self.key.second.rotate_left(17), b: self.key.first.rotate_left(43), key: self.key }
    }

    #[inline]
    fn absorb(&mut self, word: u64) {
        self.a = fold(self.a ^ word, self.key.first).wrapping_add(word.rotate_left(23));
        self.b = fold(self.b ^ word, self.key.second).wrapping_add(word.rotate_left(41));
    }

    #[inline]
    fn start(&mut self, tag: Tag, length: usize) {
        self.absorb((tag as u64) << 56 | length as u64);
    }

    #[inline]
    fn tag(&mut self, tag: Tag) {
        self.start(tag, 0);
    }

    #[inline]
    fn mark(&mut self, mark: u8) {
        self.start(Tag::Mark, usize::from(mark));
    }

    #[inline]
    fn text(&mut self, tag: Tag, text: &[u8], start: usize, end: usize) {
        self.start(tag, end - start);
        eights(text, start, end, |eight| self.absorb(eight));
    }

    fn finish(mut self) -> Fingerprint {
        self.absorb(0x0f0f);
        Fingerprint(u128::from(self.a) << 64 | u128::from(self.b))
    }
}

// ---- lists of items ------------------------------------------------------------------------------------------------------

/// The lists whose equal neighbours count once: items of IN and ARRAY, rows of VALUES. While an item is read, it is hashed on
/// its own; then its hash goes into the hash of what is around it, unless the item before had the same.
#[derive(Clone, Copy, Default)]
struct Lists {
    stack: [Option<List>; 4],
    used: usize,
}

#[derive(Clone, Copy)]
struct List {
    around: Hash,
    level: u32,
    last: Option<Fingerprint>,
    values: bool,
}

impl Lists {
    fn top(&mut self) -> Option<&mut List> {
        self.stack.get_mut(self.used.checked_sub(1)?)?.as_mut()
    }

    fn begin(&mut self, hash: &mut Hash, level: u32, values: bool) {
        if let Some(place) = self.stack.get_mut(self.used) {
            *place = Some(List { around: *hash, level, last: None, values });
            self.used += 1;
            *hash = hash.fresh();
        }
    }

    fn item_done(list: &mut List, hash: &mut Hash) {
        let item = hash.finish();
        if list.last != Some(item) {
            list.around.start(Tag::Item, 0);
            list.around.absorb((item.0 >> 64) as u64);
            list.around.absorb(item.0 as u64);
            list.last = Some(item);
        }
        *hash = hash.fresh();
    }

    /// A comma at this level. True when it only separates items.
    #[inline]
    fn separated(&mut self, hash: &mut Hash, level: u32) -> bool {
        match self.top() {
            Some(list) if list.level == level => {
                Self::item_done(list, hash);
                true
            }
            _ => false,
        }
    }

    /// Whether the list under way is VALUES, and here, outside of its rows, something may end it.
    #[inline]
    fn values_may_end(&self, level: u32) -> bool {
        let Some(top) = self.used.checked_sub(1) else { return false };
        matches!(self.stack.get(top), Some(Some(list)) if list.values && list.level == level)
    }

    fn end(&mut self, hash: &mut Hash) {
        if let Some(mut list) = self.top().copied() {
            Self::item_done(&mut list, hash);
            *hash = list.around;
            self.used -= 1;
        }
    }

    /// A parenthesis or bracket of this level closes.
    #[inline]
    fn closed(&mut self, hash: &mut Hash, level: u32) {
        while self.top().is_some_and(|list| list.level >= level) {
            self.end(hash);
        }
    }

    fn end_all(&mut self, hash: &mut Hash) {
        while self.used > 0 {
            self.end(hash);
        }
    }
}

// ---- depth ---------------------------------------------------------------------------------------------------------------

const LEVELS: usize = 64;

/// How deep a parse tree can be. Between two brackets, each token may add one to the depth of an expression; a comma, AND and OR
/// start anew (their operands lie beside each other); joins, set operations and CASE add up.
struct Depth {
    /// The sum of what the levels around the one under way add.
    around: u32,
    /// What each of them adds: the chain and the clauses before its bracket.
    added: [(u16, u16); LEVELS],
    /// The brackets that are open; CASE ... END is one.
    level: u32,
    cases: u64,
    chain: u32,
    clauses: u32,
    most: u32,
    too_deep: bool,
}

impl Default for Depth {
    fn default() -> Self {
        Self { around: 0, added: [(0, 0); LEVELS], level: 0, cases: 0, chain: 0, clauses: 0, most: 0, too_deep: false }
    }
}

impl Depth {
    #[inline]
    fn token(&mut self) {
        self.chain = self.chain.saturating_add(1);
    }

    #[inline]
    fn settle(&mut self) {
        self.most = self.most.max(self.around.saturating_add(self.chain).saturating_add(self.clauses));
    }

    #[inline]
    fn comma(&mut self) {
        self.settle();
        self.chain = 0;
    }

    #[inline]
    fn word(&mut self, word: Option<Word>) {
        match word {
            Some(Word::And | Word::Or) => self.comma(),
            Some(Word::Join | Word::Union | Word::Intersect | Word::Except) => {
                self.settle();
                self.clauses = self.clauses.saturating_add(1);
                self.chain = 0;
            }
            Some(Word::Case) => self.open(true),
            // A query as an operand lies below a target, a link and the query itself.
            Some(Word::Select | Word::Values) => self.chain = self.chain.saturating_add(3),
            Some(Word::End) if self.cases & self.bit() != 0 => self.close(),
            Some(_) | None => self.token(),
        }
    }

    fn bit(&self) -> u64 {
        1u64.checked_shl(self.level).unwrap_or(0)
    }

    fn open(&mut self, case: bool) {
        self.settle();
        self.level = self.level.saturating_add(1);
        match (self.added.get_mut(self.level as usize), u16::try_from(self.chain), u16::try_from(self.clauses)) {
            (Some(place), Ok(chain), Ok(clauses)) => *place = (chain, clauses),
            _ => self.too_deep = true,
        }
        self.around = self.around.saturating_add(self.chain).saturating_add(self.clauses).saturating_add(1);
        let bit = self.bit();
        self.cases = if case { self.cases | bit } else { self.cases & !bit };
        (self.chain, self.clauses) = (0, 0);
    }

    fn close(&mut self) {
        self.settle();
        if self.level == 0 {
            return;
        }
        // The chain before the bracket goes on behind it.
        let (chain, clauses) = self.added.get(self.level as usize).copied().unwrap_or_default();
        (self.chain, self.clauses) = (u32::from(chain), u32::from(clauses));
        self.around = self.around.saturating_sub(self.chain).saturating_sub(self.clauses).saturating_sub(1);
        self.level -= 1;
    }

    fn next_statement(&mut self) {
        self.settle();
        let most = self.most;
        let too_deep = self.too_deep;
        if self.level != 0 {
            *self = Self::default();
        }
        (self.around, self.cases, self.chain, self.clauses) = (0, 0, 0, 0);
        (self.most, self.too_deep) = (most, too_deep);
    }

    fn bound(&self) -> u32 {
        if self.too_deep { u32::MAX } else { self.most }
    }
}
