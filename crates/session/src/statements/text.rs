//! What a look at a statement's text says, without its grammar. Every doubt ends on the safe side, where a statement is parsed
//! again or not shared.

/// Does the text hold a constant such as 'now' or 'tomorrow', which the server reads when it parses the statement
/// (src/backend/utils/adt/datetime.c)? In doubt, yes.
pub(super) fn is_of_its_moment(tail: &[u8]) -> bool {
    let text = tail.split(|b| *b == 0).next().unwrap_or_default();
    if text.contains(&b'\\') {
        // It may be spelled with escapes.
        return true;
    }
    let in_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'$' || b >= 0x80;
    let mut rest = text;
    while let Some(begin) = rest.iter().position(|b| in_word(*b)) {
        let from = rest.get(begin..).unwrap_or_default();
        let end = from.iter().position(|b| !in_word(*b)).unwrap_or(from.len());
        let (word, behind) = from.split_at(end);
        rest = behind;
        let is = |w: &[u8]| word.eq_ignore_ascii_case(w);
        // now() is a function, which is called when the statement is carried out.
        if is(b"today")
            || is(b"tomorrow")
            || is(b"yesterday")
            || (is(b"now") && behind.trim_ascii_start().first() != Some(&b'('))
        {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_of_the_moment() {
        for text in [
            "select 'now'",
            "select ' NOW '::date",
            "select 'Today 10:00'",
            "x 'yesterday'",
            "select timestamp 'tomorrow'",
            "select U&'n\\006fw'::date",
        ] {
            assert!(is_of_its_moment(text.as_bytes()), "{text}");
        }
        for text in [
            "select now()",
            "select now ()",
            "select known, snow, tomorrows_x from t",
            "",
            "n",
            "insert into t values ($1)",
        ] {
            assert!(!is_of_its_moment(text.as_bytes()), "{text}");
        }
    }
}
