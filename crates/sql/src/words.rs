//! The words of SQL that decide something here, and a table that finds one in a few nanoseconds. Words that decide nothing
//! (most of the grammar's keywords) are not in it.

/// Lower-case text of a word, in a place of fixed size: PostgreSQL cuts identifiers at 63 bytes, and so does this.
#[derive(Clone, Debug)]
pub(crate) struct Folded {
    bytes: [u8; 64],
    length: usize,
}

const KEEP: usize = 63;
const ONES: u64 = 0x0101_0101_0101_0101;

/// ASCII letters of eight bytes to lower case at once; bytes of 0x80 and more stay.
#[inline]
const fn lower(word: u64) -> u64 {
    let low_bits = word & (0x7f * ONES);
    let beyond_z = low_bits + (0x7f - b'Z' as u64) * ONES;
    let from_a = low_bits + (0x80 - b'A' as u64) * ONES;
    let ascii = !word & (0x80 * ONES);
    let upper = ascii & (from_a ^ beyond_z);
    word | (upper >> 2)
}

/// Eight bytes of `text` from `at` on, those from `end` on as zero. Reads one word where the text goes on for that long.
#[inline]
fn load(text: &[u8], at: usize, end: usize) -> u64 {
    let wanted = end.saturating_sub(at).min(8);
    let mask = if wanted == 8 { u64::MAX } else { (1u64 << (8 * wanted)) - 1 };
    match text.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        Some(chunk) => u64::from_le_bytes(*chunk) & mask,
        None => {
            let rest = text.get(at..end).unwrap_or_default();
            rest.iter().take(8).rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
        }
    }
}

/// Hands the bytes of `text` from `start` to `end` to `each`, eight at a time, the last filled up with zeros.
#[inline]
pub(crate) fn eights(text: &[u8], start: usize, end: usize, mut each: impl FnMut(u64)) {
    let mut at = start;
    while at < end {
        each(load(text, at, end));
        at += 8;
    }
}

impl Folded {
    pub(crate) const EMPTY: Self = Self { bytes: [0; 64], length: 0 };

    /// Puts the unquoted word from `start` to `end` here and hands its folded form, eight bytes at a time, to `each`.
    #[inline]
    pub(crate) fn put(&mut self, text: &[u8], start: usize, end: usize, mut each: impl FnMut(u64)) {
        let end = end.min(start + KEEP);
        let mut at = start;
        for place in self.bytes.chunks_exact_mut(8) {
            if at >= end {
                break;
            }
            let word = lower(load(text, at, end));
            place.copy_from_slice(&word.to_le_bytes());
            each(word);
            at += 8;
        }
        self.length = end.saturating_sub(start);
    }

    /// Puts the quoted identifier from `start` to `end` (its quotes included) here, without folding: doubled quotes become one.
    pub(crate) fn put_quoted(&mut self, text: &[u8], start: usize, end: usize) {
        let inside = text.get(start + 1..end).unwrap_or_default();
        let inside = inside.strip_suffix(b"\"").unwrap_or(inside);
        if memchr::memchr(b'"', inside).is_none() {
            let end = (start + 1 + inside.len()).min(start + 1 + KEEP);
            let mut at = start + 1;
            for place in self.bytes.chunks_exact_mut(8) {
                if at >= end {
                    break;
                }
                place.copy_from_slice(&load(text, at, end).to_le_bytes());
                at += 8;
            }
            self.length = end - (start + 1);
            return;
        }
        self.length = 0;
        let mut quote_before = false;
        for &byte in inside {
            if byte == b'"' && quote_before {
                quote_before = false;
                continue;
            }
            quote_before = byte == b'"';
            if self.length == KEEP {
                break;
            }
            self.bytes[self.length] = byte;
            self.length += 1;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.length = 0;
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// A number for a name of which these are the length, the first eight bytes and, if it is longer than that, the last eight. Only
/// for the tables of this crate: it is not a good hash.
#[inline]
const fn spread(length: usize, first: u64, last: u64) -> usize {
    let mixed = (first ^ last.rotate_left(29) ^ (length as u64).rotate_left(57)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 48) as usize
}

/// [`spread`] of a name, at build time.
const fn spread_slowly(name: &[u8]) -> usize {
    let mut first = 0u64;
    let mut last = 0u64;
    let length = name.len();
    let mut at = 0;
    while at < 8 {
        if at < length {
            first |= (name[at] as u64) << (8 * at);
        }
        if length > 8 {
            last |= (name[length - 8 + at] as u64) << (8 * at);
        }
        at += 1;
    }
    spread(length, first, last)
}

/// Names found by a table that is made at build time: open addressing over `SIZE` places (a power of two).
pub(crate) struct Names<const SIZE: usize> {
    /// The index of a name plus one; 0 is an empty place.
    places: [u16; SIZE],
}

impl<const SIZE: usize> Names<SIZE> {
    /// The table of these names. There must be fewer than half as many as places.
    pub(crate) const fn new(names: &[&str]) -> Self {
        assert!(SIZE.is_power_of_two() && names.len() * 2 < SIZE);
        let mut places = [0u16; SIZE];
        let mut index = 0;
        while index < names.len() {
            let mut at = spread_slowly(names[index].as_bytes()) % SIZE;
            while places[at] != 0 {
                at = (at + 1) % SIZE;
            }
            places[at] = index as u16 + 1;
            index += 1;
        }
        Self { places }
    }

    /// The index of `name` in the list that the table was made of.
    #[inline]
    pub(crate) fn find(&self, names: &[&str], name: &[u8]) -> Option<usize> {
        let length = name.len();
        let last = if length > 8 { load(name, length - 8, length) } else { 0 };
        let mut at = spread(length, load(name, 0, length), last) % SIZE;
        loop {
            let index = usize::from(*self.places.get(at)?).checked_sub(1)?;
            if names.get(index)?.as_bytes() == name {
                return Some(index);
            }
            at = (at + 1) % SIZE;
        }
    }
}

macro_rules! words {
    ($($name:ident $text:literal $call:ident,)*) => {
        /// A word that decides something.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Word {
            $(#[doc = concat!("`", $text, "`")] $name,)*
        }

        const TEXTS: &[&str] = &[$($text,)*];
        const WORDS: &[Word] = &[$(Word::$name,)*];

        impl Word {
            /// Whether a parenthesis behind this word cannot be the start of a call's arguments: the word is reserved, or
            /// names a construct of the grammar that no function can replace.
            pub(crate) const fn never_a_function(self) -> bool {
                match self { $(Word::$name => words!(@ $call),)* }
            }
        }
    };
    (@ grammar) => { true };
    (@ name) => { false };
}

words! {
    // What a statement can begin with.
    Abort "abort" name, Alter "alter" name, Analyse "analyse" grammar, Analyze "analyze" grammar, Begin "begin" name,
    Call "call" name, Checkpoint "checkpoint" name, Close "close" name, Cluster "cluster" name, Comment "comment" name,
    Commit "commit" name, Copy "copy" name, Create "create" grammar, Deallocate "deallocate" name, Declare "declare" name,
    Delete "delete" name, Discard "discard" name, Do "do" grammar, Drop "drop" name, End "end" grammar, Execute "execute" name,
    Explain "explain" name, Fetch "fetch" grammar, Grant "grant" grammar, Import "import" name, Insert "insert" name,
    Listen "listen" name, Load "load" name, Lock "lock" name, Merge "merge" name, Move "move" name, Notify "notify" name,
    Prepare "prepare" name, Reassign "reassign" name, Refresh "refresh" name, Reindex "reindex" name, Release "release" name,
    Reset "reset" name, Revoke "revoke" name, Rollback "rollback" name, Savepoint "savepoint" name, Security "security" name,
    Select "select" grammar, Set "set" name, Show "show" name, Start "start" name, Table "table" grammar,
    Truncate "truncate" name, Unlisten "unlisten" name, Update "update" name, Vacuum "vacuum" name, Values "values" grammar,
    With "with" grammar,
    Atomic "atomic" name,
    // Words of transaction control.
    And "and" grammar, Chain "chain" name, Committed "committed" name, Deferrable "deferrable" grammar,
    Isolation "isolation" name, Level "level" name, No "no" name, Not "not" grammar, Only "only" grammar, Read "read" name,
    Repeatable "repeatable" name, Serializable "serializable" name, Transaction "transaction" name,
    Uncommitted "uncommitted" name, Work "work" name, Write "write" name,
    // Words inside queries.
    All "all" grammar, Any "any" grammar, Array "array" grammar, As "as" grammar, Asc "asc" grammar, Between "between" grammar,
    Bigint "bigint" grammar, Boolean "boolean" grammar, Both "both" grammar, By "by" name, Case "case" grammar,
    Cast "cast" grammar, Check "check" grammar, Coalesce "coalesce" grammar, Collate "collate" grammar,
    Conflict "conflict" name, Cross "cross" name, CurrentDate "current_date" grammar, CurrentTime "current_time" grammar,
    CurrentTimestamp "current_timestamp" grammar, Dec "dec" grammar, Decimal "decimal" grammar, Default "default" grammar,
    Desc "desc" grammar, Distinct "distinct" grammar, Else "else" grammar, Except "except" grammar, Exists "exists" grammar,
    Extract "extract" grammar, Filter "filter" name, Float "float" grammar, For "for" grammar, From "from" grammar,
    Full "full" name, Greatest "greatest" grammar, Group "group" grammar, Grouping "grouping" grammar, Having "having" grammar,
    In "in" grammar, Inner "inner" name, Int "int" grammar, Integer "integer" grammar, Intersect "intersect" grammar,
    Interval "interval" grammar, Into "into" grammar, Join "join" name, Lateral "lateral" grammar, Leading "leading" grammar,
    Least "least" grammar, Left "left" name, Limit "limit" grammar, Localtime "localtime" grammar,
    Localtimestamp "localtimestamp" grammar, Natural "natural" name, Nchar "nchar" grammar, Null "null" grammar,
    Nullif "nullif" grammar, Numeric "numeric" grammar, Offset "offset" grammar, On "on" grammar, Or "or" grammar,
    Order "order" grammar, Outer "outer" name, Over "over" name, Overlay "overlay" grammar, Partition "partition" name,
    Position "position" grammar, Precision "precision" grammar, Real "real" grammar, Returning "returning" grammar,
    Right "right" name, Row "row" grammar, Smallint "smallint" grammar, Some "some" grammar, Substring "substring" grammar,
    Then "then" grammar, Time "time" grammar, Timestamp "timestamp" grammar, Trailing "trailing" grammar, Trim "trim" grammar,
    Union "union" grammar, Using "using" grammar, Varchar "varchar" grammar, Variadic "variadic" grammar,
    Varying "varying" name, When "when" grammar, Where "where" grammar, Window "window" grammar,
    // Words and names that change sessions, or show one.
    Temp "temp" name, Temporary "temporary" name, PgTemp "pg_temp" name, PgCatalog "pg_catalog" name,
    PgSettings "pg_settings" name, PgPreparedStatements "pg_prepared_statements" name, PgCursors "pg_cursors" name,
}

static TABLE: Names<512> = Names::new(TEXTS);

impl Word {
    /// The word of this text, which is in lower case already.
    #[inline]
    pub(crate) fn find(folded: &[u8]) -> Option<Self> {
        WORDS.get(TABLE.find(TEXTS, folded)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_found() {
        for (text, word) in TEXTS.iter().zip(WORDS) {
            assert_eq!(Word::find(text.as_bytes()), Some(*word), "{text}");
        }
        assert_eq!(Word::find(b"selects"), None);
        assert_eq!(Word::find(b""), None);
    }

    #[test]
    fn folding_is_that_of_ascii() {
        let mut folded = Folded::EMPTY;
        let all: Vec<u8> = (0..=255).collect();
        for start in 0..all.len() {
            for end in start..all.len().min(start + 40) {
                folded.put(&all, start, end, |_| ());
                assert_eq!(folded.as_bytes(), all[start..end].to_ascii_lowercase());
            }
        }
        folded.put(&[b'A'; 100], 0, 100, |_| ());
        assert_eq!(folded.as_bytes(), [b'a'; 63]);
    }

    #[test]
    fn quoted_words_lose_their_quotes() {
        let mut folded = Folded::EMPTY;
        let mut put = |text: &[u8]| {
            folded.put_quoted(text, 0, text.len());
            folded.as_bytes().to_vec()
        };
        assert_eq!(put(br#""Set""Config""#), br#"Set"Config"#);
        assert_eq!(put(br#""pg_Settings""#), br"pg_Settings");
        assert_eq!(put(br#""open"#), br"open");
        assert_eq!(put(br#"""#), b"");
        assert_eq!(put(br#""""#), b"");
        assert_eq!(put(&[b"\"".as_slice(), &[b'A'; 100], b"\""].concat()), [b'A'; 63]);
    }
}
