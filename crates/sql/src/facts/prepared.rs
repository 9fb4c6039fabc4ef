//! The parts of a PREPARE: the types and the inner statement, as written. The grammar's tree does not keep where they stand.

use crate::scan::{Scanner, Token, TokenKind};

/// What stands in `PREPARE name (types) AS text`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) types: Vec<Box<str>>,
    pub(super) text: Box<str>,
}

/// `text` is a statement that PostgreSQL's grammar takes for a PREPARE, or for an EXPLAIN of one.
pub(super) fn parts(text: &[u8], standard_strings: bool) -> Option<Parts> {
    let mut types = Vec::new();
    let mut depth = 0usize;
    let mut started: Option<usize> = None;
    let mut prepare = false;
    let mut last_end = 0;
    let finish = |started: &mut Option<usize>, end: usize, types: &mut Vec<Box<str>>| {
        if let Some(start) = started.take() {
            types.push(readable(text.get(start..end).unwrap_or_default()));
        }
    };
    for Token { kind, start, end } in Scanner::new(text, standard_strings) {
        let bytes = text.get(start..end).unwrap_or_default();
        let word = |word: &str| kind == TokenKind::Word && bytes.eq_ignore_ascii_case(word.as_bytes());
        if !prepare {
            prepare = word("prepare");
            continue;
        }
        match kind {
            TokenKind::Mark(b'(') => {
                depth += 1;
                if depth == 1 {
                    continue;
                }
            }
            TokenKind::Mark(b')') => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    finish(&mut started, last_end, &mut types);
                }
            }
            TokenKind::Mark(b',') if depth == 1 => finish(&mut started, last_end, &mut types),
            _ if depth == 0 && word("as") => {
                let inner = text.get(end..)?.trim_ascii();
                return Some(Parts { types, text: readable(inner) });
            }
            _ if depth == 1 && started.is_none() => started = Some(start),
            _ => {}
        }
        last_end = end;
    }
    None
}

fn readable(bytes: &[u8]) -> Box<str> {
    String::from_utf8_lossy(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_text() {
        let parts = |text: &str| parts(text.as_bytes(), true);
        let of = |types: &[&str], text: &str| {
            Some(Parts { types: types.iter().map(|&text| text.into()).collect(), text: text.into() })
        };
        assert_eq!(parts("prepare a as select 1"), of(&[], "select 1"));
        assert_eq!(
            parts("/* as */ PREPARE \"as\" (int, numeric(10, 2), text [] ) AS\n select $1 as x -- y"),
            of(&["int", "numeric(10, 2)", "text []"], "select $1 as x -- y")
        );
        assert_eq!(parts("prepare x"), None);
        assert_eq!(parts("select 1"), None);
    }
}
