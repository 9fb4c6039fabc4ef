//! One pass over the tokens of a body: where statements begin, and what is called.

use super::collect::Found;
use super::dynamic::{self, HOLE};
use super::tokens::{self, Token};
use super::{language_into, other};
use crate::functions::{LockSpan, SessionFunction, is_harmless};
use crate::words::Word;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Plpgsql,
    Sql,
}

pub(super) fn walk(dialect: Dialect, tokens: &[Token], found: &mut Found, nesting: u32) {
    let mut pass = Pass { dialect, tokens, found, nesting, statement: Statement::Other, parens: 0 };
    for at in 0..tokens.len() {
        pass.token(at);
    }
}

/// What the statement under way is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Statement {
    Set,
    Create,
    Definition,
    Other,
}

struct Pass<'t, 'f> {
    dialect: Dialect,
    tokens: &'t [Token],
    found: &'f mut Found,
    nesting: u32,
    statement: Statement,
    parens: u32,
}

/// Words of plpgsql (and of SQL) behind which, at the start of a statement, a parenthesis is an expression.
const STATEMENT_WORDS: [&str; 14] = [
    "if", "elsif", "elseif", "while", "return", "perform", "assert", "raise", "exit", "continue", "call", "execute",
    "do", "get",
];

/// Reserved words of SQL that decide nothing else in this crate.
const RESERVED: [&str; 8] = ["to", "ilike", "is", "only", "unique", "primary", "constraint", "foreign"];

/// Words in front of a name that is no function, whatever stands behind it.
const BEFORE_NO_CALL: [&str; 9] = ["into", "as", "table", "references", "open", "with", "recursive", "copy", "cursor"];

/// The same within CREATE, ALTER and DROP.
const BEFORE_NO_CALL_IN_DEFINITION: [&str; 7] = ["on", "using", "exists", "function", "procedure", "of", "only"];

impl<'t> Pass<'t, '_> {
    fn at(&self, index: usize) -> Option<&'t Token> {
        self.tokens.get(index)
    }

    fn word_at(&self, index: usize) -> Option<&'t str> {
        self.at(index).and_then(Token::word)
    }

    fn before(&self, index: usize) -> Option<&'t Token> {
        index.checked_sub(1).and_then(|index| self.at(index))
    }

    /// Where the name of several parts begins whose last part is here.
    fn head(&self, at: usize) -> usize {
        let mut head = at;
        while head >= 2 && self.before(head).is_some_and(|token| token.is_mark(b'.')) {
            head -= 2;
        }
        head
    }

    fn token(&mut self, at: usize) {
        let Some(token) = self.tokens.get(at) else { return };
        let begins = self.begins(at);
        if begins {
            self.statement = Statement::Other;
        }
        match token {
            Token::Text(text) => self.found.placeholders_in(text),
            Token::Unreadable => self.found.unknown_text(),
            Token::Mark(b'(') => self.parens += 1,
            Token::Mark(b')') => self.parens = self.parens.saturating_sub(1),
            Token::Quoted(name) => self.name(at, name, false, false),
            Token::Word(word) => {
                let dotted = self.before(at).is_some_and(|token| token.is_mark(b'.'));
                // `lock := true` assigns to a variable of that name.
                let assigned = self.at(at + 1).is_some_and(|next| {
                    next.is_operator(":=") || next.is_operator("=") || next.is_mark(b'.') || next.is_mark(b'[')
                });
                let begins = begins && !assigned;
                if begins {
                    self.statement(at, word);
                }
                if !dotted {
                    self.word(at, word, begins);
                }
                self.name(at, word, true, begins);
            }
            _ => {}
        }
    }

    /// Whether a statement may begin here.
    fn begins(&self, at: usize) -> bool {
        match self.before(at) {
            None => true,
            Some(Token::Mark(b';')) => true,
            Some(Token::Operator(operator)) => &**operator == ">>",
            Some(Token::Word(word)) => matches!(&**word, "begin" | "then" | "else" | "loop" | "atomic"),
            Some(_) => false,
        }
    }

    /// The words that mean something wherever they stand.
    fn word(&mut self, at: usize, word: &str, begins: bool) {
        let before = self.before(at).and_then(Token::word);
        match word {
            "execute" if !matches!(self.statement, Statement::Create | Statement::Definition) => {
                let text = begins || matches!(before, Some("in" | "for" | "query"));
                match self.dialect {
                    Dialect::Plpgsql if text => dynamic::execute(self.tokens, at + 1, self.found, self.nesting),
                    Dialect::Plpgsql => {}
                    Dialect::Sql if begins || matches!(before, Some("as" | "explain" | "analyze" | "verbose")) => {
                        self.found.facts.prepared = true;
                        self.found.unknown_text();
                    }
                    Dialect::Sql => {}
                }
            }
            // CREATE TABLE ... AS EXECUTE
            "execute" if before == Some("as") => {
                self.found.facts.prepared = true;
                self.found.unknown_text();
            }
            "insert" | "update" | "delete" | "merge" | "copy" => self.found.facts.writes = true,
            "hold" if before == Some("with") => self.found.facts.cursors = true,
            "temp" | "temporary" => {
                // SELECT ... INTO TEMP; in plpgsql a variable stands there.
                let into = matches!(before, Some("into" | "local" | "global")) && self.dialect == Dialect::Sql;
                self.found.facts.temporary |= into || self.statement == Statement::Create;
            }
            _ => {}
        }
    }

    /// A word at the start of a statement.
    fn statement(&mut self, at: usize, word: &str) {
        let next = self.word_at(at + 1);
        match word {
            "set" => self.set(at),
            "reset" => {
                self.statement = Statement::Set;
                self.found.facts.settings = true;
                self.holes_in_name(at + 1);
            }
            "discard" => {
                let facts = &mut self.found.facts;
                (facts.temporary, facts.prepared, facts.sequence_writes) = (true, true, true);
                if next == Some("all") {
                    (facts.settings, facts.locks, facts.channels, facts.cursors) = (true, true, true, true);
                }
            }
            "create" => {
                self.statement = Statement::Create;
                self.found.facts.definition = true;
            }
            "comment" if next != Some("on") => {}
            "security" if next != Some("label") => {}
            "import" if next != Some("foreign") => {}
            "alter" | "drop" | "grant" | "revoke" | "comment" | "import" | "reassign" | "security" => {
                self.statement = Statement::Definition;
                self.found.facts.definition = true;
            }
            "listen" | "unlisten" => self.found.facts.channels = true,
            "prepare" | "deallocate" => self.found.facts.prepared = true,
            "load" => {
                let file = matches!(self.at(at + 1), Some(Token::Text(_) | Token::Constant | Token::Parameter));
                self.found.facts.load |= file;
            }
            "do" => self.block(at),
            _ => {}
        }
    }

    fn set(&mut self, at: usize) {
        self.statement = Statement::Set;
        let facts = &mut self.found.facts;
        let name = match self.tokens.get(at + 1).and_then(Token::word) {
            Some("local") => {
                facts.local = true;
                at + 2
            }
            Some("transaction" | "constraints") => {
                facts.local = true;
                return;
            }
            Some("session") => {
                facts.settings = true;
                at + 2
            }
            _ => {
                facts.settings = true;
                at + 1
            }
        };
        self.holes_in_name(name);
    }

    /// The name of a setting that is put together at run time.
    fn holes_in_name(&mut self, from: usize) {
        for token in self.tokens.iter().skip(from) {
            match token {
                Token::Word(word) if &**word == "to" => return,
                Token::Word(name) | Token::Quoted(name) => self.found.facts.unknown_names |= name.contains(HOLE),
                Token::Mark(b'.') => {}
                Token::Parameter => self.found.facts.unknown_names = true,
                _ => return,
            }
        }
    }

    /// DO [LANGUAGE name] text [LANGUAGE name]
    fn block(&mut self, at: usize) {
        let mut language = "plpgsql";
        let mut text = None;
        let mut index = at + 1;
        loop {
            match self.tokens.get(index) {
                Some(Token::Text(body)) => text = Some(body),
                Some(Token::Word(word)) if &**word == "language" => {
                    index += 1;
                    match self.tokens.get(index) {
                        Some(Token::Word(name) | Token::Quoted(name) | Token::Text(name)) => language = name,
                        _ => language = "",
                    }
                }
                _ => break,
            }
            index += 1;
        }
        match text {
            Some(body) => language_into(language, body, self.found, self.nesting + 1),
            // Within a query, DO belongs to ON CONFLICT or is a name.
            None if matches!(self.at(at + 1), Some(Token::Constant | Token::Parameter)) => self.found.unknown_text(),
            None => {}
        }
    }

    /// A name or keyword: part of a longer one, the name of a relation, a call.
    fn name(&mut self, at: usize, name: &str, plain: bool, begins: bool) {
        if name.contains(HOLE) {
            self.found.facts.any_relation = true;
        } else {
            self.found.name(name);
        }
        let dotted = self.before(at).is_some_and(|token| token.is_mark(b'.'));
        if !dotted {
            self.path(at, name);
        }
        if name == "pg_temp" || name.starts_with("pg_temp_") {
            self.found.facts.temporary |= self.statement != Statement::Set;
        }
        let before = || self.before(self.head(at)).and_then(Token::word);
        if name == "pg_settings" && matches!(before(), Some("update" | "only")) {
            self.found.sets_anything();
        }
        if self.at(at + 1).is_some_and(|token| token.is_mark(b'(')) && !self.no_call(at, name, plain && !dotted, begins)
        {
            self.call(at, name);
        }
    }

    /// A name of several parts that begins here.
    fn path(&mut self, at: usize, first: &str) {
        let mut whole = String::new();
        let mut index = at;
        while self.at(index + 1).is_some_and(|token| token.is_mark(b'.')) {
            let Some(part) = self.at(index + 2).and_then(Token::name) else { break };
            if whole.is_empty() {
                whole.push_str(first);
            }
            whole.push('.');
            whole.push_str(part);
            index += 2;
        }
        if !whole.is_empty() && !whole.contains(HOLE) {
            self.found.placeholder(&whole);
        }
    }

    /// Whether the parenthesis behind a name begins no arguments.
    fn no_call(&self, at: usize, name: &str, keyword: bool, begins: bool) -> bool {
        let before = self.before(self.head(at));
        if keyword {
            let grammar = Word::find(name.as_bytes()).is_some_and(Word::never_a_function);
            let previous = before.and_then(Token::word);
            let behind = match name {
                "query" | "next" => previous == Some("return"),
                "execute" => matches!(previous, Some("in" | "for" | "query")),
                "over" | "filter" => before.is_some_and(|token| token.is_mark(b')')),
                "conflict" => previous == Some("on"),
                "by" => matches!(previous, Some("order" | "group" | "partition")),
                _ => RESERVED.contains(&name),
            };
            if grammar || behind || (begins && STATEMENT_WORDS.contains(&name)) {
                return true;
            }
        }
        match before {
            Some(Token::Cast) => true,
            Some(Token::Word(word)) => {
                BEFORE_NO_CALL.contains(&&**word)
                    || (matches!(self.statement, Statement::Create | Statement::Definition)
                        && BEFORE_NO_CALL_IN_DEFINITION.contains(&&**word))
            }
            _ => false,
        }
    }

    /// A call of the function of this name, whose parenthesis is behind `at`.
    fn call(&mut self, at: usize, name: &str) {
        if name.contains(HOLE) {
            self.found.unknown_text();
            return;
        }
        let schema = (self.before(at).is_some_and(|token| token.is_mark(b'.')))
            .then(|| at.checked_sub(2).and_then(|at| self.at(at)).and_then(Token::name).unwrap_or_default());
        match SessionFunction::of_name(name) {
            Some(function) if schema.is_none_or(|schema| schema == "pg_catalog") => {
                if schema.is_none() {
                    self.found.builtin(name);
                }
                self.session(at, function);
            }
            // An extension lies in any schema.
            Some(SessionFunction::RunsText | SessionFunction::ForeignConnection) if name.starts_with("dblink") => {
                self.found.facts.foreign = true;
            }
            _ if other::named(name, self.found) => {}
            _ if matches!(name, "crosstab" | "crosstabn" | "connectby" | "xpath_table") => {
                // They run a query given as text; which of their arguments it is differs.
                self.found.unknown_text();
            }
            _ if is_harmless(name) && schema.is_none() => self.found.builtin(name),
            _ if is_harmless(name) && schema == Some("pg_catalog") => {}
            _ => self.found.call(name),
        }
    }

    fn session(&mut self, at: usize, function: SessionFunction) {
        let facts = &mut self.found.facts;
        match function {
            SessionFunction::SetConfig => self.set_config(at),
            SessionFunction::NextValue | SessionFunction::SetValue => facts.sequence_writes = true,
            SessionFunction::CurrentValue | SessionFunction::LastValue => facts.sequence_reads = true,
            SessionFunction::AdvisoryLock(LockSpan::Session)
            | SessionFunction::AdvisoryUnlock
            | SessionFunction::AdvisoryUnlockAll => facts.locks = true,
            SessionFunction::SetSeed => facts.seed = true,
            SessionFunction::ReplicationOrigin | SessionFunction::Backup => facts.opaque = true,
            SessionFunction::RunsText => self.runs_text(at),
            SessionFunction::ForeignConnection => facts.foreign = true,
            // These end with the transaction, or only read.
            SessionFunction::AdvisoryLock(LockSpan::Transaction)
            | SessionFunction::Notify
            | SessionFunction::LargeObject
            | SessionFunction::ReadsBackend
            | SessionFunction::ExportSnapshot => {}
        }
    }

    fn set_config(&mut self, at: usize) {
        let arguments = tokens::arguments(self.tokens, at + 1);
        let [name, _, local] = arguments.as_slice() else {
            self.found.sets_anything();
            return;
        };
        match name {
            [Token::Text(name)] | [Token::Text(name), Token::Cast, Token::Word(_)] => {
                if name.contains('.') {
                    self.found.placeholder(name);
                }
            }
            _ => self.found.facts.unknown_names = true,
        }
        match local {
            [local] if local.is_word("true") => self.found.facts.local = true,
            _ => self.found.facts.settings = true,
        }
    }

    fn runs_text(&mut self, at: usize) {
        let name = self.at(at).and_then(Token::name).unwrap_or_default();
        let arguments = tokens::arguments(self.tokens, at + 1);
        match (name, arguments.as_slice()) {
            ("dblink" | "dblink_exec", _) => self.found.facts.foreign = true,
            ("cursor_to_xml" | "cursor_to_xmlschema", _) | ("ts_rewrite", [_, _, _]) => {}
            ("ts_rewrite", [_, query]) => dynamic::run(self.tokens, query, self.found, self.nesting),
            (_, [query, ..]) => dynamic::run(self.tokens, query, self.found, self.nesting),
            _ => self.found.unknown_text(),
        }
    }
}
