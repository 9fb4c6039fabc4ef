//! Text that is made at run time and run: its parts that are known, with holes for values that are quoted.

use super::collect::Found;
use super::tokens::{self, Token};
use super::variable;
use super::walk::Dialect;
use super::{MAX_NESTING, text_into};

/// Stands in a quoted name for one that is not known.
pub(super) const HOLE: char = '\u{1}';
const NAME: &str = "\"\u{1}\"";
const VALUE: &str = "$1";

/// Texts that are followed in one function; with more it is opaque.
const MAX_RUNS: u32 = 100;

/// What `EXECUTE` runs whose expression begins at `from`.
pub(super) fn execute(tokens: &[Token], from: usize, found: &mut Found, nesting: u32) {
    run(tokens, expression(tokens, from), found, nesting);
}

/// The expression behind EXECUTE.
fn expression(tokens: &[Token], from: usize) -> &[Token] {
    let mut depth = 0usize;
    for (index, token) in tokens.iter().enumerate().skip(from) {
        match token {
            Token::Mark(b'(' | b'[') => depth += 1,
            Token::Mark(b')' | b']') => depth = depth.saturating_sub(1),
            Token::Mark(b';') => return tokens.get(from..index).unwrap_or_default(),
            Token::Word(word) if depth == 0 && matches!(&**word, "into" | "using" | "loop") => {
                return tokens.get(from..index).unwrap_or_default();
            }
            _ => {}
        }
    }
    tokens.get(from..).unwrap_or_default()
}

/// What the text may do that an expression makes.
pub(super) fn run(tokens: &[Token], expression: &[Token], found: &mut Found, nesting: u32) {
    found.runs += 1;
    if nesting >= MAX_NESTING || found.runs > MAX_RUNS {
        found.unknown_text();
        return;
    }
    if let [Token::Word(name)] | [Token::Quoted(name)] = expression {
        if let Some(assigned) = variable::assigned(tokens, name) {
            let mut whole = String::new();
            for expression in assigned {
                let mut text = Made::default();
                text.expression(expression, Some(name), 0);
                whole.push_str(&text.text);
                if text.unknown {
                    found.unknown_text();
                }
                text_into(Dialect::Sql, &text.text, found, nesting + 1);
            }
            text_into(Dialect::Sql, &whole, found, nesting + 1);
            return;
        }
    }
    let mut text = Made::default();
    text.expression(expression, None, 0);
    if text.unknown {
        found.unknown_text();
    }
    text_into(Dialect::Sql, &text.text, found, nesting + 1);
}

/// Names that plpgsql gives a trigger: they hold the name of a relation or an operation.
const TRIGGER_NAMES: [&str; 6] = ["tg_table_name", "tg_table_schema", "tg_relname", "tg_op", "tg_relid", "tg_name"];

#[derive(Default)]
struct Made {
    text: String,
    unknown: bool,
}

impl Made {
    fn unknown(&mut self) {
        self.unknown = true;
        self.text.push_str(NAME);
    }

    fn expression(&mut self, expression: &[Token], own: Option<&str>, depth: u32) {
        if depth > 8 {
            self.unknown();
            return;
        }
        for part in tokens::split(expression, |token| token.is_operator("||")) {
            self.part(part, own, depth);
        }
    }

    fn part(&mut self, part: &[Token], own: Option<&str>, depth: u32) {
        // A cast to text changes nothing; one to regclass makes a name that is quoted where it must be.
        let part = match part {
            [value @ .., Token::Cast, Token::Word(name)] if matches!(&**name, "text" | "varchar") => value,
            _ => part,
        };
        match part {
            [value @ .., Token::Cast, Token::Word(name)]
                if matches!(&**name, "regclass" | "regtype" | "regrole") && is_one_value(value) =>
            {
                self.text.push_str(NAME);
            }
            [Token::Text(text)] => self.text.push_str(text),
            [Token::Number(number)] => self.text.push_str(number),
            [Token::Word(name)] if TRIGGER_NAMES.contains(&&**name) => self.text.push_str(NAME),
            // What the variable held before is there already.
            [Token::Word(name) | Token::Quoted(name)] if own == Some(name) => {}
            [Token::Mark(b'('), .., Token::Mark(b')')] if tokens::inside(part, 0).len() + 2 == part.len() => {
                self.expression(tokens::inside(part, 0), own, depth + 1);
            }
            [Token::Word(schema), Token::Mark(b'.'), call @ ..] if &**schema == "pg_catalog" => self.call(call, depth),
            _ => self.call(part, depth),
        }
    }

    fn call(&mut self, call: &[Token], depth: u32) {
        let [Token::Word(name), Token::Mark(b'('), .., Token::Mark(b')')] = call else { return self.unknown() };
        if tokens::inside(call, 1).len() + 3 != call.len() {
            return self.unknown();
        }
        let arguments = tokens::arguments(call, 1);
        match &**name {
            "quote_ident" => self.text.push_str(NAME),
            "quote_literal" | "quote_nullable" => self.text.push_str(VALUE),
            "concat" => arguments.iter().for_each(|argument| self.expression(argument, None, depth + 1)),
            "format" => self.format(&arguments, depth),
            _ => self.unknown(),
        }
    }

    fn format(&mut self, arguments: &[&[Token]], depth: u32) {
        let Some((pattern, values)) = arguments.split_first() else { return self.unknown() };
        let mut made = Self::default();
        made.expression(pattern, None, depth + 1);
        if made.unknown || made.text.contains(HOLE) {
            return self.unknown();
        }
        let mut next = 0usize;
        let mut rest = made.text.as_str();
        while let Some((plain, behind)) = rest.split_once('%') {
            self.text.push_str(plain);
            let digits = behind.len() - behind.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (number, behind) = behind.split_at(digits);
            let (number, behind) = match behind.strip_prefix('$') {
                Some(behind) => (number.parse::<usize>().ok(), behind),
                None => (None, behind),
            };
            // A width does not change what the value is.
            let behind = behind.trim_start_matches(|c: char| c == '-' || c.is_ascii_digit());
            let mut letters = behind.chars();
            let kind = letters.next();
            rest = letters.as_str();
            if kind == Some('%') {
                self.text.push('%');
                continue;
            }
            let index = number.map_or(next, |number| number.wrapping_sub(1));
            next = index.wrapping_add(1);
            match (kind, values.get(index)) {
                (Some('I'), Some(_)) => self.text.push_str(NAME),
                (Some('L'), Some(_)) => self.text.push_str(VALUE),
                (Some('s'), Some(value)) => self.expression(value, None, depth + 1),
                _ => self.unknown(),
            }
        }
        self.text.push_str(rest);
    }
}

/// A constant, a name of one or more parts, a call or parentheses: nothing stands beside it that the cast does not apply to.
fn is_one_value(tokens: &[Token]) -> bool {
    match tokens {
        [Token::Text(_) | Token::Parameter | Token::Word(_) | Token::Quoted(_)] => true,
        [first, Token::Mark(b'.'), rest @ ..] if first.name().is_some() => is_one_value(rest),
        [first, Token::Mark(b'('), ..] if first.name().is_some() => tokens::inside(tokens, 1).len() + 3 == tokens.len(),
        [Token::Mark(b'('), ..] => tokens::inside(tokens, 0).len() + 2 == tokens.len(),
        _ => false,
    }
}
