//! What holds for every text: no panic, fingerprints that follow the rules, tokens that end where PostgreSQL's own scanner ends
//! them, and a quick decision that PostgreSQL's own grammar never contradicts.

use std::fmt::Write as _;

use pgusher_sql::{Bounds, Cache, Facts, Key, Kind, Limits, Outline, Quick, Scanner, Transaction, Utility};
use proptest::prelude::*;
use proptest::sample::select;

const KEY: Key = Key::new(0xfeed_5eed, 99);

fn read(text: &[u8], standard_strings: bool) -> Outline {
    let mut outline = Outline::new(KEY);
    outline.read(text, standard_strings);
    outline
}

/// Checks what holds for each text, whatever it is.
fn invariants(text: &[u8]) -> Result<(), TestCaseError> {
    for standard_strings in [true, false] {
        let mut end = 0;
        for token in Scanner::new(text, standard_strings) {
            prop_assert!(token.start >= end && token.end > token.start && token.end <= text.len(), "{token:?}");
            end = token.end;
        }
        let outline = read(text, standard_strings);
        let mut end = 0;
        for part in outline.parts() {
            prop_assert!(part.start >= end && part.end > part.start && part.end <= text.len(), "{part:?}");
            end = part.end;
        }
        let facts = Facts::of(text, &outline, standard_strings, Limits::default());
        if let Ok(facts) = &facts {
            prop_assert_eq!(facts.statements().len(), outline.parts().len());
            agree(&outline, facts)?;
        }
        let mut cache = Cache::new(KEY, Bounds::default());
        let verdict = cache.judge(text, standard_strings);
        prop_assert_eq!(verdict.quick, outline.quick());
        if let Some(found) = &verdict.facts {
            prop_assert_eq!(found.as_ref().map(|facts| &**facts), facts.as_ref());
        }
    }
    Ok(())
}

/// The quick decision against the facts.
fn agree(outline: &Outline, facts: &Facts) -> Result<(), TestCaseError> {
    for (part, statement) in outline.parts().iter().zip(facts.statements()) {
        let transaction = match &statement.kind {
            Kind::Utility(Utility::Transaction(transaction)) => Some(transaction),
            _ => None,
        };
        let right = match part.quick {
            Quick::NeedsFacts => true,
            Quick::PlainRead => statement.is_plain() && statement.reads_only,
            Quick::PlainWrite => statement.is_plain(),
            Quick::Begin => matches!(transaction, Some(Transaction::Begin(_))),
            Quick::Commit => matches!(transaction, Some(Transaction::Commit { chain: false })),
            Quick::Rollback => matches!(transaction, Some(Transaction::Rollback { chain: false })),
        };
        prop_assert!(right, "{:?} of {statement:?}", part.quick);
    }
    Ok(())
}

const FRAGMENTS: &[&str] = &[
    "select",
    "SELECT",
    "set",
    "x",
    "_a9$",
    "caf\u{e9}",
    "\"Q\"\"x\"",
    "\"",
    "'",
    "'a'",
    "''",
    "'it''s'",
    "'\\'",
    "E'\\''",
    "e'\\\\'",
    "E'",
    "U&'\\0041'",
    "u&\"a\"",
    "U&",
    "B'01'",
    "x'1F'",
    "X'",
    "n'a'",
    "N",
    "$1",
    "$12",
    "$",
    "$$",
    "$$x$$",
    "$a$ $b$ $a$",
    "$a$",
    "$a",
    "1",
    "12.5",
    "1.",
    ".5",
    "1..2",
    "1e5",
    "1e",
    "1e+",
    "1.5E-3",
    "0x1F",
    "0x",
    "0b101",
    "0o17",
    "1_000",
    "1_",
    "1__0",
    "123abc",
    "::",
    ":",
    ":=",
    "=>",
    "..",
    ".",
    ",",
    ";",
    "(",
    ")",
    "[",
    "]",
    "+",
    "-",
    "*",
    "/",
    "<",
    ">",
    "=",
    "<>",
    "!=",
    "<=",
    ">=",
    "<->",
    "@-",
    "+-",
    "*-",
    "?",
    "||",
    "!",
    "~",
    "&&",
    "#>>",
    "^@",
    "--c",
    "--c\n",
    "/*",
    "*/",
    "/* c */",
    "/* a /* b */ c */",
    "-- '\n",
    " ",
    "\n",
    "\t",
    "\r",
    "\u{c}",
    "\u{b}",
    "'a'\n'b'",
    "'a' 'b'",
    "'a' -- c\n 'b'",
    "E'a'\n'\\''",
    "B'0'\n'1'",
    "{",
    "}",
    "\\",
    "\u{1}",
    "`",
    "%",
    "\u{1F600}",
];

fn fragments() -> impl Strategy<Value = String> {
    prop::collection::vec((select(FRAGMENTS), select(&["", " ", "", "\n"][..])), 0..14)
        .prop_map(|parts| parts.into_iter().fold(String::new(), |text, (part, gap)| text + part + gap))
}

// ---- statements that mostly parse ----------------------------------------------------------------------------------------

const CALLED: &[&str] = &[
    "lower",
    "f",
    "set_config",
    "nextval",
    "pg_catalog.lower",
    "pg_catalog.set_config",
    "s.lower",
    "\"lower\"",
    "\"Lower\"",
    "\"set_config\"",
    "U&\"lower\"",
    "over",
    "filter",
    "by",
    "conflict",
    "set",
    "left",
    "materialized",
    "pg_advisory_lock",
    "count",
    "now",
    "pg_backend_pid",
    "coalesce",
    "greatest",
    "row",
    "a.pg_catalog.lower",
    "pg_catalog.f",
    "\"pg_catalog\".nextval",
    "join",
    "begin",
    "temp",
    "listen",
    "atomic",
];
const COLUMNS: &[&str] = &[
    "a",
    "t.b",
    "\"C\"",
    "excluded.a",
    "set",
    "t.set",
    "temp",
    "\"select\"",
    "over",
    "filter",
    "t.*",
    "pg_temp",
    "begin",
];
const TABLES: &[&str] = &[
    "t",
    "s.t",
    "pg_temp.t",
    "\"T\"",
    "pg_settings",
    "pg_catalog.pg_settings",
    "\"pg_settings\"",
    "listen",
    "pg_cursors",
    "only t",
    "over",
];
const CONSTANTS: &[&str] = &[
    "1",
    "'x'",
    "E'\\''",
    "null",
    "true",
    "$1",
    "$2",
    "$$y$$",
    "-1",
    "1.5",
    "b'1'",
    "'set_config('",
    "interval '1' day",
];
const TYPES: &[&str] = &[
    "int",
    "text",
    "numeric(3, 1)",
    "character varying(3)",
    "geometry(1, 2)",
    "double precision",
    "s.f(1)",
    "timestamp(3) with time zone",
];

fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![select(CONSTANTS).prop_map(String::from), select(COLUMNS).prop_map(String::from)];
    leaf.prop_recursive(4, 24, 3, |inner| {
        let two = (inner.clone(), inner.clone());
        prop_oneof![
            (select(CALLED), prop::collection::vec(inner.clone(), 0..3))
                .prop_map(|(name, list)| format!("{name}({})", list.join(", "))),
            (select(CALLED), inner.clone()).prop_map(|(name, one)| format!("{name} /* c */ ({one})")),
            (select(CALLED), two.clone()).prop_map(|(name, (a, b))| format!("{name}({a}) filter (where {b})")),
            (select(CALLED), two.clone()).prop_map(|(name, (a, b))| format!("{name}({a}) over (partition by ({b}))")),
            two.clone().prop_map(|(a, b)| format!("({a}) + ({b})")),
            two.clone().prop_map(|(a, b)| format!("{a} = {b}")),
            two.clone().prop_map(|(a, b)| format!("{a} in ({b}, 1)")),
            two.clone().prop_map(|(a, b)| format!("case when {a} then {b} end")),
            two.clone().prop_map(|(a, b)| format!("not {a} and {b}")),
            two.clone().prop_map(|(a, b)| format!("array[{a}, {b}]")),
            two.clone().prop_map(|(a, b)| format!("(row({a}, {b}))")),
            (inner.clone(), select(TYPES)).prop_map(|(a, ty)| format!("({a})::{ty}")),
            (inner.clone(), select(TYPES)).prop_map(|(a, ty)| format!("cast({a} as {ty})")),
            inner.clone().prop_map(|a| format!("(select {a})")),
            inner.clone().prop_map(|a| format!("exists (select 1 from t where {a})")),
            inner.prop_map(|a| format!("extract(year from {a})")),
        ]
    })
}

fn query() -> impl Strategy<Value = String> {
    let table = || select(TABLES);
    let e = || expression();
    prop_oneof![
        (e(), table()).prop_map(|(a, t)| format!("select {a} from {t}")),
        (e(), table(), e()).prop_map(|(a, t, b)| format!("select {a} from {t} where {b}")),
        (e(), table(), table(), e()).prop_map(|(a, t, u, b)| format!("select {a} from {t} x join {u} y on {b}")),
        (e(), table(), e()).prop_map(|(a, t, b)| format!("select distinct on ({a}) {b} from {t}")),
        (e(), e()).prop_map(|(a, b)| format!("select {a} union all select {b}")),
        (e(), e()).prop_map(|(a, b)| format!("with x as (select {a}) select {b} from x")),
        (e(), e())
            .prop_map(|(a, b)| format!("with x as materialized (insert into t values ({a}) returning {b}) select 1")),
        (e(), table()).prop_map(|(a, t)| format!("select {a} into {t}")),
        (e(), table()).prop_map(|(a, t)| format!("select {a} into temp x from {t}")),
        (e(), table()).prop_map(|(a, t)| format!("select {a} from {t} for update")),
        (select(CALLED), e()).prop_map(|(f, a)| format!("select * from {f}({a}) as x(b)")),
        (select(CALLED), e()).prop_map(|(f, a)| format!("select * from t, lateral {f}({a}) y")),
        (table(), e(), e()).prop_map(|(t, a, b)| format!("insert into {t} (a, b) values ({a}, {b})")),
        (table(), e(), e())
            .prop_map(|(t, a, b)| format!("insert into {t} as x (a) select {a} on conflict (a) do update set b = {b}")),
        (table(), e(), e()).prop_map(|(t, a, b)| format!("update {t} set a = {a} where {b}")),
        (table(), e(), e()).prop_map(|(t, a, b)| format!("delete from {t} where {a} returning {b}")),
        (e(), e()).prop_map(|(a, b)| format!("values ({a}), ({b})")),
        (table(), e()).prop_map(|(t, a)| format!("merge into {t} using u on {a} when matched then delete")),
        e().prop_map(|a| format!("(select {a})")),
        e().prop_map(|a| format!("select {a} order by {a} limit 1")),
    ]
}

const UTILITIES: &[&str] = &[
    "begin",
    "commit",
    "rollback",
    "start transaction isolation level serializable, read only",
    "commit and chain",
    "rollback to a",
    "set a.b to 1",
    "listen x",
    "commit prepared 'x'",
    "end work",
    "abort transaction",
    "explain analyze select f()",
    "prepare p as select 1",
    "execute p",
    "discard all",
    "create temp table x as select 1",
    "do ''",
    "declare c cursor with hold for select 1",
    "copy t from stdin",
    "commit and no chain",
    "rollback work",
    "prepare transaction 'begin'",
    "table t",
    "begin not deferrable",
    "select 1 into begin",
    "update pg_settings set setting = 1",
];

fn statement() -> impl Strategy<Value = String> {
    prop_oneof![8 => query(), 1 => select(UTILITIES).prop_map(String::from)]
}

// ---- the same tokens, written differently --------------------------------------------------------------------------------

#[derive(Clone, Debug)]
enum Piece {
    Word(&'static str),
    Exact(&'static str),
    Constant,
}

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let piece = prop_oneof![
        select(&["select", "in", "values", "a", "join", "caf\u{e9}", "and", "array", "from", "begin", "atomic"][..])
            .prop_map(Piece::Word),
        select(&["\"A\"", "$1", "(", ")", "[", "]", ",", "::", "+", "<=", ".", ";", "=", "$2"][..])
            .prop_map(Piece::Exact),
        Just(Piece::Constant),
    ];
    prop::collection::vec(piece, 0..20).prop_map(|mut pieces| {
        // Two strings with a line break between them are one.
        pieces.dedup_by(|next, before| matches!((next, before), (Piece::Constant, Piece::Constant)));
        pieces
    })
}

fn written(pieces: &[Piece], choices: &[u8]) -> String {
    let mut choices = choices.iter().copied().cycle();
    let mut choice = |of: u8| choices.next().unwrap_or(0) % of;
    let mut text = String::new();
    for piece in pieces {
        text.push_str([" ", "\n", "/* select */", " -- 'x\n", "\t /* a /* b */ */ "][usize::from(choice(5))]);
        match piece {
            Piece::Word(word) => {
                for character in word.chars() {
                    text.push(if choice(2) == 0 { character.to_ascii_uppercase() } else { character });
                }
            }
            Piece::Exact(exact) => text.push_str(exact),
            Piece::Constant => {
                let constants = ["1", "'x'", "E'\\' ;'", "$$ select $$", "0x1f", "1.5e3", "U&'a'", "B'1'", "'a'\n 'b'"];
                text.push_str(constants[usize::from(choice(9))]);
            }
        }
        text.push(' ');
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(2000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(text in prop::collection::vec(any::<u8>(), 0..200)) {
        invariants(&text)?;
    }

    #[test]
    fn any_fragments(text in fragments()) {
        invariants(text.as_bytes())?;
    }

    #[test]
    fn tokens_are_those_of_postgresql(text in fragments()) {
        if let Ok(scanned) = pg_query::scan(&text) {
            use pg_query::protobuf::Token;
            let theirs: Vec<_> = scanned
                .tokens
                .iter()
                .filter(|token| !matches!(token.token(), Token::SqlComment | Token::CComment))
                .map(|token| (token.start as usize, token.end as usize))
                .collect();
            let ours: Vec<_> = Scanner::new(text.as_bytes(), true).map(|token| (token.start, token.end)).collect();
            prop_assert_eq!(ours, theirs);
        } else {
            // What it refuses must not pass for plain here.
            let outline = read(text.as_bytes(), true);
            let sure = outline.quick() != Quick::NeedsFacts && !outline.parts().is_empty();
            prop_assert!(!sure || Facts::of(text.as_bytes(), &outline, true, Limits::default()).is_err());
        }
    }

    #[test]
    fn the_quick_decision_is_never_wrong(statements in prop::collection::vec(statement(), 1..3)) {
        invariants(statements.join("; ").as_bytes())?;
    }

    #[test]
    fn fingerprints_do_not_depend_on_spelling(
        pieces in pieces(),
        one in prop::collection::vec(any::<u8>(), 1..40),
        other in prop::collection::vec(any::<u8>(), 1..40),
    ) {
        let (one, other) = (written(&pieces, &one), written(&pieces, &other));
        let (first, second) = (read(one.as_bytes(), true), read(other.as_bytes(), true));
        prop_assert_eq!(first.fingerprint(), second.fingerprint(), "{} / {}", one, other);
        prop_assert_eq!(first.quick(), second.quick());
        prop_assert_eq!(first.mentions(), second.mentions());
        prop_assert_eq!(first.depth(), second.depth());
    }

    /// Texts of one fingerprint have the same facts, unless the facts are bound to the text.
    #[test]
    fn facts_can_be_shared(statement in statement(), number in 0u32..1000) {
        let other = statement.replace("'x'", "'other; f()'").replace("1.5", &number.to_string());
        let facts = |text: &str| {
            let outline = read(text.as_bytes(), true);
            (outline.fingerprint(), Facts::of(text.as_bytes(), &outline, true, Limits::default()))
        };
        let (first, second) = (facts(&statement), facts(&other));
        prop_assert_eq!(first.0, second.0);
        if let (Ok(first), Ok(second)) = (first.1, second.1) {
            prop_assert!(first == second || first.text_bound(), "{} / {}", statement, other);
        }
    }
}

/// The generators above are worth something only if most of what they make is SQL, of all kinds.
#[test]
fn the_generator_makes_sql() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut parsed, mut plain, mut effects) = (0, 0, 0);
    for _ in 0..1000 {
        let text = statement().new_tree(&mut runner).expect("a statement").current();
        let outline = read(text.as_bytes(), true);
        if let Ok(facts) = Facts::of(text.as_bytes(), &outline, true, Limits::default()) {
            parsed += 1;
            plain += u32::from(outline.quick() != Quick::NeedsFacts);
            effects += u32::from(facts.statements().iter().any(|statement| !statement.effects.is_empty()));
        }
    }
    assert!(parsed > 500 && plain > 100 && effects > 100, "{parsed} {plain} {effects}");
}

/// As deep as the limit lets anything through, on a thread with three quarters of the stack that threads have.
#[test]
fn the_deepest_texts_do_not_overflow_the_stack() {
    let shapes: [(&str, &str, &str, &str); 21] = [
        ("select ", "(", "1", ")"),
        ("select ", "f(", "1", ")"),
        ("select ", "(select ", "1", ")"),
        ("select * from ", "(select * from ", "t", ") x"),
        ("select ", "case when true then ", "1", " end"),
        ("select ", "array[", "1", "]"),
        ("select ", "not ", "true", ""),
        ("select ", "- ", "1", ""),
        ("select ", "1 + ", "1", ""),
        ("select ", "a || ", "a", ""),
        ("select a ", "= b and a ", "", ""),
        ("select 1 ", "union select 1 ", "", ""),
        ("select * from t ", "join t on a and b ", "", ""),
        ("select a", "::int", "", ""),
        ("select a", "[1]", "", ""),
        ("select a", " is null", "", ""),
        ("select a", " collate \"C\"", "", ""),
        ("select a", " at time zone b", "", ""),
        ("select ", "a and (", "a", ")"),
        ("select ", "a and case a when b then ", "a", " end"),
        ("explain ", "with x as (", "select 1", ") select 1"),
    ];
    std::thread::Builder::new()
        .stack_size(3 << 19)
        .spawn(move || {
            for (start, before, middle, after) in shapes {
                let text = |count: usize| {
                    let mut text = String::from(start);
                    let _ = write!(text, "{}{middle}{}", before.repeat(count), after.repeat(count));
                    text
                };
                let fits = |count: usize| read(text(count).as_bytes(), true).depth() <= Limits::default().depth;
                let most =
                    (1..100_000).step_by(if fits(5000) { 1000 } else { 1 }).take_while(|&count| fits(count)).last();
                let text = text(most.expect("a small one fits"));
                let outline = read(text.as_bytes(), true);
                let facts = Facts::of(text.as_bytes(), &outline, true, Limits { bytes: 4 << 20, ..Limits::default() });
                assert!(facts.is_ok(), "{start}{before}: {facts:?}");
            }
        })
        .expect("a thread")
        .join()
        .expect("no panic");
}
