//! A bound of the depth of a parse tree, from the tokens alone, so that nothing too deep is given to a parser that recurses.

use crate::words::Word;

const LEVELS: usize = 64;

/// How deep a parse tree can be. Between two brackets, each token may add one to the depth of an expression; a comma, AND and OR
/// start anew (their operands lie beside each other); joins, set operations and CASE add up.
pub(crate) struct Depth {
    /// The sum of what the levels around the one under way add.
    around: u32,
    /// What each of them adds: the chain and the clauses before its bracket.
    added: [(u16, u16); LEVELS],
    /// The brackets that are open; CASE ... END is one.
    pub(crate) level: u32,
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
    pub(crate) fn token(&mut self) {
        self.chain = self.chain.saturating_add(1);
    }

    #[inline]
    fn settle(&mut self) {
        self.most = self.most.max(self.around.saturating_add(self.chain).saturating_add(self.clauses));
    }

    #[inline]
    pub(crate) fn comma(&mut self) {
        self.settle();
        self.chain = 0;
    }

    #[inline]
    pub(crate) fn word(&mut self, word: Option<Word>) {
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

    pub(crate) fn open(&mut self, case: bool) {
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

    pub(crate) fn close(&mut self) {
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

    pub(crate) fn next_statement(&mut self) {
        self.settle();
        let most = self.most;
        let too_deep = self.too_deep;
        if self.level != 0 {
            *self = Self::default();
        }
        (self.around, self.cases, self.chain, self.clauses) = (0, 0, 0, 0);
        (self.most, self.too_deep) = (most, too_deep);
    }

    pub(crate) fn bound(&self) -> u32 {
        if self.too_deep { u32::MAX } else { self.most }
    }
}
