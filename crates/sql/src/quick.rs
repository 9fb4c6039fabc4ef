//! What is certain of a statement without a grammar: the decision on the hot path.
//!
//! Most statements are queries that call nothing but built-in functions known to be harmless. One pass over the tokens finds
//! them. The rule is one-sided: every doubt ends in [`Quick::NeedsFacts`]. A parenthesis behind a name is taken for a call unless
//! the tokens around it make that impossible, and a call counts as harmless only when its name is on the list of
//! [`is_harmless`](crate::is_harmless).
//!
//! Certain is what the *text* does. What a trigger, a rule, a view, a column's default, a cast or an operator of the user's own
//! calls is not in the text, nor is a function of the user's own that is written like a column (`t.f`) or hides a built-in one:
//! that is known by the relation cache, or asked of the server.

use crate::outline::Part;
use crate::words::Word;

/// What is certain of a statement, or of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quick {
    /// Reads only, locks no rows, calls only harmless functions: no effect on the session.
    PlainRead,
    /// Reads, writes tables or locks rows; the same otherwise: no effect on the session.
    PlainWrite,
    /// BEGIN or START TRANSACTION, with or without modes.
    Begin,
    /// COMMIT or END, without CHAIN, not of a prepared transaction.
    Commit,
    /// ROLLBACK or ABORT of the whole transaction, without CHAIN, not of a prepared one.
    Rollback,
    /// Not certain: ask for the facts.
    NeedsFacts,
}

impl Quick {
    /// Whether the session stays as it is, its transaction aside.
    #[must_use]
    pub fn is_plain(self) -> bool {
        match self {
            Self::PlainRead | Self::PlainWrite => true,
            Self::Begin | Self::Commit | Self::Rollback | Self::NeedsFacts => false,
        }
    }

    /// What is certain of a text of these statements. Several are plain together; transaction control among others needs facts.
    pub(crate) fn of_all(parts: &[Part]) -> Self {
        match parts {
            [] => Self::PlainRead,
            [only] => only.quick,
            several if several.iter().all(|part| part.quick == Self::PlainRead) => Self::PlainRead,
            several if several.iter().all(|part| part.quick.is_plain()) => Self::PlainWrite,
            _ => Self::NeedsFacts,
        }
    }
}

/// What a token was, as far as this decision needs to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Seen {
    #[default]
    Nothing,
    Word(Word),
    /// A name: not a keyword of [`Word`], or quoted.
    Name,
    /// `(`
    Open,
    /// `)` or `]`
    Closed,
    Dot,
    Comma,
    Cast,
    Other,
}

/// Why a name stands where it stands, when that rules out a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Anywhere,
    /// Behind AS: an alias with columns, or a type with modifiers.
    As,
    /// Behind INTO: a table with columns.
    Into,
    /// Behind `::`: a type with modifiers.
    Type,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Query,
    Write,
    Begin,
    Commit,
    Rollback,
    Other,
}

/// Follows the tokens of one statement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    last: Seen,
    before_last: Seen,
    place: Place,
    shape: Option<Shape>,
    doubt: bool,
    writes: bool,
    /// A keyword that begins a query or a write was seen outside of parentheses.
    begun: bool,
    /// The INSERT or MERGE that was seen last begins a write: it is not the name of a column or an alias.
    begins_write: bool,
    /// A join or a MERGE was seen: ON may begin a condition.
    condition: bool,
    distinct_on: bool,
}

impl Watch {
    /// Something that cannot be judged.
    pub(crate) fn doubt(&mut self) {
        self.doubt = true;
    }

    /// The next token.
    #[inline]
    pub(crate) fn step(&mut self, seen: Seen, level: u32) {
        let shape = match self.shape {
            None => {
                let shape = Self::shape_of(seen);
                self.shape = Some(shape);
                shape
            }
            Some(shape) => {
                self.check(shape, seen);
                shape
            }
        };
        if let (Shape::Query | Shape::Write, Seen::Word(word)) = (shape, seen) {
            self.word(word, level);
        }
        if matches!(seen, Seen::Word(_) | Seen::Name) && self.last != Seen::Dot {
            self.place = match (self.last, seen) {
                (Seen::Word(Word::As), _) => Place::As,
                (Seen::Word(Word::Into), _) => Place::Into,
                (Seen::Cast, _) => Place::Type,
                // `character varying`, `double precision`: still the same type.
                (Seen::Word(_) | Seen::Name, Seen::Word(Word::Varying | Word::Precision)) => self.place,
                _ => Place::Anywhere,
            };
        }
        self.before_last = self.last;
        self.last = seen;
    }

    fn shape_of(seen: Seen) -> Shape {
        match seen {
            Seen::Word(word) => match word {
                Word::Select | Word::Values | Word::Table | Word::With => Shape::Query,
                Word::Insert | Word::Update | Word::Delete | Word::Merge => Shape::Write,
                Word::Begin | Word::Start => Shape::Begin,
                Word::Commit | Word::End => Shape::Commit,
                Word::Rollback | Word::Abort => Shape::Rollback,
                _ => Shape::Other,
            },
            // A query in parentheses; PostgreSQL refuses everything else that begins so.
            Seen::Open => Shape::Query,
            Seen::Nothing | Seen::Name | Seen::Closed | Seen::Dot | Seen::Comma | Seen::Cast | Seen::Other => {
                Shape::Other
            }
        }
    }

    fn check(&mut self, shape: Shape, seen: Seen) {
        let known = match (shape, seen) {
            (Shape::Query | Shape::Write | Shape::Other, _) | (Shape::Begin, Seen::Comma) => true,
            (Shape::Begin, Seen::Word(word)) => matches!(
                word,
                Word::Work
                    | Word::Transaction
                    | Word::Isolation
                    | Word::Level
                    | Word::Serializable
                    | Word::Repeatable
                    | Word::Read
                    | Word::Committed
                    | Word::Uncommitted
                    | Word::Write
                    | Word::Only
                    | Word::Not
                    | Word::Deferrable
            ),
            (Shape::Commit | Shape::Rollback, Seen::Word(word)) => matches!(word, Word::Work | Word::Transaction),
            (Shape::Begin | Shape::Commit | Shape::Rollback, _) => false,
        };
        self.doubt |= !known;
    }

    fn word(&mut self, word: Word, level: u32) {
        if matches!(word, Word::Insert | Word::Merge) {
            // `SELECT (1) insert INTO t` has a column of that name: only WITH may stand before a write.
            self.begins_write = match self.last {
                Seen::Nothing | Seen::Open => true,
                Seen::Closed => level == 0 && !self.begun,
                Seen::Word(_) | Seen::Name | Seen::Dot | Seen::Comma | Seen::Cast | Seen::Other => false,
            };
        }
        match word {
            Word::Merge => (self.writes, self.condition) = (true, true),
            Word::Insert | Word::Update | Word::Delete | Word::For => self.writes = true,
            // SELECT ... INTO makes a table, a temporary one perhaps.
            Word::Into => {
                self.doubt |= !(self.begins_write && matches!(self.last, Seen::Word(Word::Insert | Word::Merge)));
            }
            Word::Join => self.condition = true,
            Word::On => self.distinct_on |= self.last == Seen::Word(Word::Distinct),
            _ => {}
        }
        let begins = matches!(
            word,
            Word::Select | Word::Values | Word::Table | Word::Insert | Word::Update | Word::Delete | Word::Merge
        );
        self.begun |= begins && level == 0;
    }

    /// A part of a name that is one of these words: `UPDATE pg_settings` sets, the other views show the backend's own state.
    pub(crate) fn name_part(&mut self, word: Word) {
        self.doubt |= matches!(word, Word::PgSettings | Word::PgPreparedStatements | Word::PgCursors);
    }

    /// Whether a parenthesis behind this keyword, the last token, begins no call.
    pub(crate) fn exempt(&self, word: Word) -> bool {
        if word.never_a_function() || self.place != Place::Anywhere {
            return true;
        }
        // `DISTINCT ON (a) name (b)` is the one place where a call follows a closing parenthesis.
        let closed = self.before_last == Seen::Closed && !self.distinct_on;
        match word {
            Word::Over | Word::Filter => closed,
            Word::By => matches!(self.before_last, Seen::Word(Word::Order | Word::Group | Word::Partition)),
            Word::Join => match self.before_last {
                Seen::Name => true,
                Seen::Word(word) => matches!(
                    word,
                    Word::Inner | Word::Left | Word::Right | Word::Full | Word::Outer | Word::Cross | Word::Natural
                ),
                Seen::Closed => closed,
                Seen::Nothing | Seen::Open | Seen::Dot | Seen::Comma | Seen::Cast | Seen::Other => false,
            },
            // Elsewhere than in INSERT, ON may be followed by a function of that name.
            Word::Conflict => self.before_last == Seen::Word(Word::On) && !self.condition,
            _ => false,
        }
    }

    /// Whether a parenthesis behind the name that was the last token begins no call.
    pub(crate) fn exempt_name(&self) -> bool {
        self.place != Place::Anywhere
    }

    pub(crate) fn verdict(&self) -> Quick {
        if self.doubt {
            return Quick::NeedsFacts;
        }
        match self.shape {
            None | Some(Shape::Other) => Quick::NeedsFacts,
            Some(Shape::Query) if self.writes => Quick::PlainWrite,
            Some(Shape::Query) => Quick::PlainRead,
            Some(Shape::Write) => Quick::PlainWrite,
            Some(Shape::Begin) => Quick::Begin,
            Some(Shape::Commit) => Quick::Commit,
            Some(Shape::Rollback) => Quick::Rollback,
        }
    }
}
