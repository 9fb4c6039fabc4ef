//! Settings out of any startup packet, and the statement that replays them: it says what it should to a server, whatever
//! the values are.

use pgusher_session::Settings;
use proptest::collection::vec;
use proptest::prelude::*;

type Pairs = Vec<(String, String)>;

/// A reader for the SQL that `replay` writes, with the server's rules for constants (src/backend/parser/scan.l). It
/// refuses anything else.
struct Reader<'a> {
    rest: &'a str,
    standard_conforming_strings: bool,
}

impl Reader<'_> {
    fn take(&mut self, expected: &str) -> bool {
        let found = self.rest.strip_prefix(expected);
        self.rest = found.unwrap_or(self.rest);
        found.is_some()
    }

    fn expect(&mut self, expected: &str) {
        assert!(self.take(expected), "{expected} expected at {:?}", self.rest);
    }

    /// Up to the closing `quote`; a doubled one stands for itself. In `escapes`, a doubled backslash does, and `\U` has eight digits
    /// behind it.
    fn quoted(&mut self, quote: char, escapes: bool) -> String {
        let mut out = String::new();
        let mut chars = self.rest.chars();
        loop {
            let c = chars.next().expect("the constant has an end");
            if c == quote {
                if !chars.as_str().starts_with(quote) {
                    break;
                }
                chars.next();
                out.push(c);
            } else if c == '\\' && escapes {
                let escaped = chars.next().expect("something behind the backslash");
                if escaped == 'U' {
                    let digits: String = chars.by_ref().take(8).collect();
                    let number = u32::from_str_radix(&digits, 16).expect("hexadecimal digits");
                    out.push(char::from_u32(number).expect("a character"));
                } else {
                    assert!(escaped == '\\', "\\{escaped} has a meaning of its own");
                    out.push(escaped);
                }
            } else {
                out.push(c);
            }
        }
        self.rest = chars.as_str();
        out
    }

    fn literal(&mut self) -> String {
        let escapes = self.take("E") || !self.standard_conforming_strings;
        self.expect("'");
        self.quoted('\'', escapes)
    }

    fn name(&mut self) -> String {
        self.expect("\"");
        let mut name = self.quoted('"', false);
        while self.take(".\"") {
            name.push('.');
            name.push_str(&self.quoted('"', false));
        }
        name
    }
}

/// What a connection's settings are after the server has run `sql`.
fn run(sql: &str, mut values: Pairs, standard_conforming_strings: bool) -> Pairs {
    let mut reader = Reader { rest: sql, standard_conforming_strings };
    while reader.take("RESET ") {
        let name = reader.name();
        reader.expect(";");
        let before = values.len();
        values.retain(|(n, _)| !n.eq_ignore_ascii_case(&name));
        assert!(values.len() < before, "{name:?} was not set");
    }
    loop {
        let (name, value) = if reader.take("SELECT pg_catalog.set_config(") {
            let name = reader.literal();
            reader.expect(",");
            let value = reader.literal();
            reader.expect(",false)");
            (name, value)
        } else if reader.take("SET ") {
            let name = reader.name();
            reader.expect(" TO ");
            (name, reader.literal())
        } else {
            break;
        };
        reader.expect(";");
        match values.iter_mut().find(|(n, _)| n.eq_ignore_ascii_case(&name)) {
            Some(entry) => entry.1 = value,
            None => values.push((name, value)),
        }
    }
    assert_eq!(reader.rest, "", "nothing else is said");
    values
}

fn sorted(settings: impl Iterator<Item = (String, String)>) -> Pairs {
    let mut pairs: Pairs = settings.map(|(n, v)| (n.to_ascii_lowercase(), v)).collect();
    pairs.sort();
    pairs
}

fn owned(settings: &Settings) -> impl Iterator<Item = (String, String)> {
    settings.iter().map(|(n, v)| (n.to_owned(), v.to_owned()))
}

/// Text that likes to break out of constants.
fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-zA-Z_.]{0,6}", r#"['"\\;,$E() -]{0,8}"#, "[^\0]{0,8}", Just(r"\'); DROP TABLE t; --".to_owned()),]
}

fn pairs() -> impl Strategy<Value = Pairs> {
    vec((prop_oneof![3 => "[a-cA-C]{1,2}(\\.[a-c])?", 1 => text()], text()), 0..6)
}

fn value_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(1u8..=255, 0..20),
        r"(-c ?|--)?[a-c\\ =-]{0,10}".prop_map(String::into_bytes),
        text().prop_map(String::into_bytes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn replay_says_what_it_should(from in pairs(), to in pairs(), standard in any::<bool>()) {
        let from = Settings::from_pairs(from).expect("small");
        let to = Settings::from_pairs(to).expect("small");
        let after = run(&to.replay(&from), owned(&from).collect(), standard);
        prop_assert_eq!(sorted(after.into_iter()), sorted(owned(&to)));
        prop_assert_eq!(to.replay(&to), "");
    }

    #[test]
    fn any_startup_packet(
        parameters in vec(
            (
                prop_oneof![
                    prop::sample::select(&["user", "database", "options", "options", "work_mem", "_pq_.x"][..])
                        .prop_map(|n| n.as_bytes().to_vec()),
                    vec(1u8..=255, 1..10),
                ],
                value_bytes(),
            ),
            0..6,
        ),
    ) {
        let parameters = parameters.iter().map(|(n, v)| (n.as_slice(), v.as_slice()));
        match Settings::from_startup(parameters.clone()) {
            Ok(settings) => {
                for reserved in ["user", "database", "options", "replication"] {
                    // Only `options` itself can name one of these; the server refuses it then.
                    let named = parameters.clone().any(|(n, v)| n == b"options" && !v.is_empty());
                    prop_assert!(named || settings.get(reserved).is_none());
                }
                let after = run(&settings.replay(&Settings::default()), Pairs::new(), true);
                prop_assert_eq!(sorted(after.into_iter()), sorted(owned(&settings)));
            }
            Err(e) => prop_assert!(!e.to_string().is_empty()),
        }
    }

    /// A value survives the way through `options`, quoted as libpq's documentation says.
    #[test]
    fn a_value_through_options(name in "[a-z]{1,8}", value in "[^\0]{0,20}") {
        let mut options = format!("-c {name}=");
        for c in value.chars() {
            if c.is_ascii() && (c.is_ascii_whitespace() || c == '\\' || c == '\x0b') {
                options.push('\\');
            }
            options.push(c);
        }
        let settings = Settings::from_startup([(&b"options"[..], options.as_bytes())].into_iter());
        let settings = settings.expect("legal");
        prop_assert_eq!(settings.iter().collect::<Vec<_>>(), [(name.as_str(), value.as_str())]);
    }

    /// The order in which settings are given does not matter if each is given once.
    #[test]
    fn equal_settings_are_equal(pairs in pairs(), turn in any::<prop::sample::Index>()) {
        let mut seen: Vec<String> = Vec::new();
        let once: Pairs = pairs
            .into_iter()
            .filter(|(n, _)| {
                let new = !seen.contains(&n.to_ascii_lowercase());
                seen.push(n.to_ascii_lowercase());
                new
            })
            .collect();
        let mut turned = once.clone();
        if !turned.is_empty() {
            turned.rotate_left(turn.index(once.len()));
        }
        prop_assert_eq!(Settings::from_pairs(once), Settings::from_pairs(turned));
    }
}

/// The server splits with C's `isspace`, which knows the vertical tab.
#[test]
fn options_are_split_where_the_server_splits() {
    let options = b"-c\x0ba=1\x0c-c\tb=2\x0b";
    let settings = Settings::from_startup([(&b"options"[..], &options[..])].into_iter()).expect("legal");
    assert_eq!(settings.iter().collect::<Vec<_>>(), [("a", "1"), ("b", "2")]);
}
