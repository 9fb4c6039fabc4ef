//! The reader of an inquiry's answer takes any bytes without harm, and what the server means without loss.

use pgusher_session::Settings;
use pgusher_session::audit::{Answer, Aspects, Findings, Inquiry, MAX_BYTES, Unreadable};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::collections::BTreeMap;

type Columns = Vec<Option<Vec<u8>>>;

fn row(columns: &[Option<Vec<u8>>]) -> Vec<u8> {
    let mut body = u16::try_from(columns.len()).unwrap().to_be_bytes().to_vec();
    for column in columns {
        let length = column.as_ref().map_or(-1, |c| i32::try_from(c.len()).unwrap());
        body.extend_from_slice(&length.to_be_bytes());
        body.extend_from_slice(column.as_deref().unwrap_or_default());
    }
    body
}

fn hex(bytes: &[u8]) -> Option<Vec<u8>> {
    Some(bytes.iter().flat_map(|b| format!("{b:02x}").into_bytes()).collect())
}

fn word(text: &str) -> Option<Vec<u8>> {
    Some(text.as_bytes().to_vec())
}

/// A row of a setting that the session has set.
fn setting(name: &str, value: &[u8], kind: &str) -> Vec<u8> {
    row(&[word("s"), hex(name.as_bytes()), hex(value), None, hex(value), word("f"), word(kind), word("t")])
}

fn inquiry(known: &Settings) -> Inquiry<'_> {
    Inquiry {
        aspects: Aspects::ALL.union(Aspects::FUNCTIONS),
        known,
        login: "u",
        placeholders: &[],
        leftovers: &[],
        functions: &[],
    }
}

fn settings(pairs: &[(&str, &str)]) -> Settings {
    Settings::from_pairs(pairs.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect()).unwrap()
}

fn read(rows: &[Vec<u8>], known: &Settings) -> Result<Findings, Unreadable> {
    let mut answer = Answer::default();
    rows.iter().try_for_each(|row| answer.row(row))?;
    Ok(answer.finish(&inquiry(known)))
}

/// Eight columns, mostly of the right form.
fn columns() -> impl Strategy<Value = Columns> {
    let text = || {
        option::weighted(
            0.8,
            prop_oneof![
                8 => "[a-z.\u{e9}]{0,6}".prop_map(|s| hex(s.as_bytes()).unwrap()),
                1 => vec(any::<u8>(), 0..6).prop_map(|bytes| hex(&bytes).unwrap()),
                1 => vec(any::<u8>(), 0..6),
            ],
        )
    };
    let truth = || option::weighted(0.9, prop_oneof![9 => "[tf]", 1 => "[a-z]{0,3}"].prop_map(String::into_bytes));
    let kind = option::weighted(0.95, prop_oneof![20 => "[tlhcqfspra]", 1 => ".{0,2}"].prop_map(String::into_bytes));
    let plain = option::weighted(0.8, prop_oneof!["f", "real", "bool", "enum", ".{0,3}"].prop_map(String::into_bytes));
    let columns = (kind, text(), text(), text(), text(), truth(), plain, truth());
    columns.prop_map(|(k, a, b, c, d, z, e, f)| vec![k, a, b, c, d, z, e, f])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn any_bytes(rows in vec(vec(any::<u8>(), 0..80), 0..4)) {
        let _ = read(&rows, &Settings::default());
    }

    #[test]
    fn any_columns(rows in vec(columns(), 0..12), cut in any::<prop::sample::Index>(), more in vec(any::<u8>(), 1..5)) {
        let rows: Vec<Vec<u8>> = rows.iter().map(|columns| row(columns)).collect();
        let known = settings(&[("a", "1"), ("real", "2"), ("a.b", "3"), ("role", "x")]);
        let _ = read(&rows, &known);
        // A row that is cut off, or goes on, is no row.
        if let Some(row) = rows.first() {
            let mut answer = Answer::default();
            prop_assert_eq!(answer.row(&row[..cut.index(row.len())]), Err(Unreadable::Malformed));
            prop_assert_eq!(answer.row(&[&row[..], &more[..]].concat()), Err(Unreadable::Malformed));
        }
    }

    /// What the server says of its settings comes out, and replays.
    #[test]
    fn settings_come_through(pairs in proptest::collection::btree_map("[a-z_]{1,8}(\\.[a-z\u{e9}]{1,3})?", any::<String>(), 0..8)) {
        let rows: Vec<Vec<u8>> = pairs.iter().map(|(name, value)| setting(name, value.as_bytes(), "string")).collect();
        let found = read(&rows, &Settings::default()).unwrap();
        prop_assert!(!found.unrepresentable);
        let found: BTreeMap<String, String> = found.settings.unwrap().into_iter().collect();
        prop_assert_eq!(found, pairs);
    }
}

#[test]
fn memory_is_bounded() {
    let mut answer = Answer::default();
    let long = setting("a", &vec![b'x'; 100 * 1024], "string");
    let taken = (0..100).take_while(|_| answer.row(&long).is_ok()).count();
    assert!((5..=10).contains(&taken), "{taken}");
    assert_eq!(answer.row(&long), Err(Unreadable::TooLarge));
    // Small rows take more than their bytes.
    let mut answer = Answer::default();
    let small = row(&[word("c"), hex(b"a"), None, None, None, word("t"), None, None]);
    let taken = (0..1_000_000).take_while(|_| answer.row(&small).is_ok()).count();
    assert!(taken < MAX_BYTES / 200, "{taken}");
}

#[test]
fn what_cannot_be_said_is_told() {
    let none = Settings::default();
    let found = read(&[setting("a", b"\xff", "string")], &none).unwrap();
    assert!(found.unrepresentable && found.settings.unwrap().is_empty());
    // Too long: the server has left the value out.
    let long = [word("s"), hex(b"a"), None, None, None, word("f"), word("string"), word("t")];
    assert!(read(&[row(&long)], &none).unwrap().unrepresentable);
    let channel = [word("c"), hex(b"\xff"), None, None, None, word("t"), None, None];
    let found = read(&[row(&channel)], &none).unwrap();
    assert!(found.unrepresentable && found.channels.is_empty());
}

#[test]
fn known_values_stay_if_they_mean_the_same() {
    let same = |kind: &str, found: &str, known: &str| {
        let found = read(&[setting("A", found.as_bytes(), kind)], &settings(&[("a", known)])).unwrap();
        match &*found.settings.unwrap() {
            [(name, value)] if name == "a" => value == known,
            other => panic!("{other:?}"),
        }
    };
    assert!(same("bool", "on", "TRUE") && same("bool", "off", "0") && !same("bool", "on", "off"));
    assert!(same("enum", "warning", "WARNING") && !same("string", "warning", "WARNING"));
    assert!(same("real", "1.23457", "1.23456789") && same("real", "1e-05", "0.00001"));
    assert!(!same("real", "1.23457", "1.2344") && !same("real", "0", "x") && !same("integer", "1", "1.0"));
}

#[test]
fn the_own_role_is_no_known_value() {
    let known =
        settings(&[("role", "x"), ("session_authorization", "y"), ("transaction_isolation", "z"), ("a.b", "1")]);
    assert_eq!(read(&[], &known).unwrap().settings.unwrap(), []);
    let role = [word("r"), None, None, None, hex(b"n"), word("f"), None, None];
    assert_eq!(read(&[row(&role)], &known).unwrap().settings.unwrap(), [("role".to_owned(), "n".to_owned())]);
}
