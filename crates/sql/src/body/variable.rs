//! What a variable of plpgsql may hold when it is run: all that is assigned to it, if that is all in sight.

use super::tokens::Token;

/// The expressions assigned to the variable of this name, in order. `None` when it may get a value in another way: it is a
/// parameter, the target of INTO or FOR, an argument of CALL.
pub(super) fn assigned<'t>(tokens: &'t [Token], name: &str) -> Option<Vec<&'t [Token]>> {
    let mut expressions = Vec::new();
    let mut declared = false;
    let mut start = 0;
    let mut into = false;
    let mut begun = false;
    for (at, token) in tokens.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| tokens.get(at));
        let begins = match before {
            None | Some(Token::Mark(b';')) => true,
            Some(Token::Word(word)) => matches!(&**word, "declare" | "begin" | "then" | "else" | "loop"),
            Some(Token::Operator(operator)) => &**operator == ">>",
            Some(_) => false,
        };
        if begins {
            start = at;
            into = false;
        }
        match token {
            // What is behind the end of INTO's list is not told apart from it.
            Token::Word(word) if &**word == "into" => into = true,
            Token::Word(word) if &**word == "begin" => begun = true,
            token if token.name() == Some(name) => {
                let next = tokens.get(at + 1);
                if before.is_some_and(|token| token.is_mark(b'.')) || next.is_some_and(|token| token.is_mark(b'.')) {
                    // The part of a longer name: perhaps the variable behind the label of its block.
                    return None;
                }
                if begins {
                    match next {
                        Some(next) if next.is_operator(":=") || next.is_operator("=") => {
                            expressions.push(up_to_semicolon(tokens, at + 2));
                        }
                        Some(Token::Word(kind)) if matches!(&**kind, "text" | "varchar") => {
                            // A second variable of the name would be another one, and so would one of an inner block.
                            if begun || std::mem::replace(&mut declared, true) {
                                return None;
                            }
                            match tokens.get(at + 2) {
                                Some(Token::Mark(b';')) => {}
                                Some(token)
                                    if token.is_operator(":=")
                                        || token.is_operator("=")
                                        || token.is_word("default") =>
                                {
                                    expressions.push(up_to_semicolon(tokens, at + 3));
                                }
                                _ => return None,
                            }
                        }
                        _ => return None,
                    }
                } else {
                    let first = tokens.get(start).and_then(Token::word);
                    let written = match first {
                        // The targets of a loop stand in front of its IN.
                        Some("for" | "foreach") => {
                            !tokens.get(start..at).unwrap_or_default().iter().any(|token| token.is_word("in"))
                        }
                        Some("get" | "call" | "fetch" | "move") => true,
                        _ => false,
                    };
                    // ALIAS FOR
                    if into || written || before.is_some_and(|token| token.is_word("for")) {
                        return None;
                    }
                }
            }
            _ => {}
        }
    }
    (declared && !expressions.is_empty()).then_some(expressions)
}

fn up_to_semicolon(tokens: &[Token], from: usize) -> &[Token] {
    let rest = tokens.get(from..).unwrap_or_default();
    let end = rest.iter().position(|token| token.is_mark(b';')).unwrap_or(rest.len());
    rest.get(..end).unwrap_or_default()
}
