//! What a look at a statement's text says, without its grammar. Every doubt ends on the safe side, where a statement is parsed
//! again or not shared.

/// May the text, up to a zero byte, change what names or constants in later statements stand for? A table that is made of a
/// query's rows is told by no command tag, and a setting's comes too late for what follows in a pipeline.
pub fn stirs(text: &[u8]) -> bool {
    let text = text.split(|b| *b == 0).next().unwrap_or_default().trim_ascii_start();
    let begins = |word: &[u8]| text.get(..word.len()).is_some_and(|first| first.eq_ignore_ascii_case(word));
    let has = |word: &[u8]| text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word));
    if begins(b"select") || begins(b"with") {
        return has(b"into") || has(b"set_config");
    }
    const HARMLESS: [&[u8]; 16] = [
        b"insert",
        b"update",
        b"delete",
        b"merge",
        b"begin",
        b"start",
        b"commit",
        b"end",
        b"savepoint",
        b"release",
        b"copy",
        b"fetch",
        b"values",
        b"show",
        b"declare",
        b"truncate",
    ];
    let harmless = text.is_empty() || HARMLESS.iter().any(|word| begins(word)) || (begins(b"rollback") && !has(b"to"));
    // Several statements: the others may be of another kind.
    !harmless || has(b";")
}

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

    #[test]
    fn what_changes_the_meaning_of_others() {
        for text in [
            "create table t as select 1",
            "select * into t from u",
            "WITH x AS (select 1) select * INTO y from x",
            "set local datestyle = 'german'",
            "select set_config('timezone', 'utc', true)",
            "begin; set timezone = 'utc'",
            "rollback to a",
            "-- a remark\nselect 1",
            "do $$ $$",
        ] {
            assert!(stirs(text.as_bytes()), "{text}");
        }
        for text in ["select 1", " insert into t values ($1)", "begin", "ROLLBACK", "", "update t set a = 1"] {
            assert!(!stirs(text.as_bytes()), "{text}");
        }
    }
}
