//! Reads reports back, and says plainly what is wrong with what is none.

use serde::Deserialize;
use serde_json::Value;

use super::model::{Report, SCHEMA_VERSION};
use crate::profile;

/// Why a file, or the rest of one, is of no use here.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// Nothing in it.
    #[error("it is empty")]
    Empty,
    /// Ends within a value.
    #[error("it ends in the middle of a value (line {line}): it is cut off, or the run that wrote it was killed")]
    CutOff {
        /// Where, from 1.
        line: usize,
    },
    /// Something else than JSON.
    #[error("it is not JSON: {0}")]
    NotJson(String),
    /// JSON of something else.
    #[error("it is JSON, but no report of pgusher: {0}")]
    NotAReport(String),
    /// From the future.
    #[error("it was written by a newer pgusher: its schema_version is {found}, and this one reads up to {known}")]
    Newer {
        /// What it says.
        found: u64,
        /// The last one that is known here.
        known: u32,
    },
    /// A report without results that this version knows.
    #[error("it is a report, but nothing in it can be shown: {0}")]
    NothingToShow(String),
}

/// The reports in `text`: one document of JSON, or several one after the other, each a report or what several were collected
/// in. What comes before an error counts.
#[must_use]
pub fn read(text: &str) -> (Vec<Report>, Option<Unreadable>) {
    let text = text.trim_start_matches('\u{feff}');
    if text.trim().is_empty() {
        return (Vec::new(), Some(Unreadable::Empty));
    }
    let mut reports = Vec::new();
    for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        let one = value.map_err(|error| broken(&error)).and_then(|value| take(value, &mut reports));
        if let Err(error) = one {
            return (reports, Some(error));
        }
    }
    (reports, None)
}

fn broken(error: &serde_json::Error) -> Unreadable {
    if error.is_eof() { Unreadable::CutOff { line: error.line() } } else { Unreadable::NotJson(error.to_string()) }
}

/// Takes the report of one document, or those that are collected in it.
fn take(value: Value, reports: &mut Vec<Report>) -> Result<(), Unreadable> {
    let Value::Object(object) = &value else {
        return Err(Unreadable::NotAReport(format!("it is {}, not an object", kind(&value))));
    };
    if object.contains_key("kind") && object.contains_key("connection") {
        return Err(Unreadable::NotAReport("it is the output of pgusher profile --format jsonl, not json".to_owned()));
    }
    let Some(found) = object.get("schema_version").and_then(Value::as_u64) else {
        return Err(Unreadable::NotAReport("it has no schema_version".to_owned()));
    };
    let is_profile = object.contains_key("plan") && object.contains_key("summary");
    let known = if is_profile { profile::SCHEMA_VERSION } else { SCHEMA_VERSION };
    if found > u64::from(known) {
        return Err(Unreadable::Newer { found, known });
    }
    if let Some(Value::Array(collected)) = object.get("reports") {
        for one in collected {
            take(one.clone(), reports)?;
        }
        return Ok(());
    }
    let keys: Vec<String> = object.keys().cloned().collect();
    let report = if is_profile { Report::of_profile(value) } else { Report::deserialize(value) };
    let report = report.map_err(|error| Unreadable::NotAReport(error.to_string()))?;
    if report.experiments().is_empty() {
        return Err(Unreadable::NothingToShow(unknown(&keys)));
    }
    reports.push(report);
    Ok(())
}

/// What there is besides the keys that every report has.
fn unknown(keys: &[String]) -> String {
    const KNOWN: [&str; 7] =
        ["schema_version", "title", "environment", "findings", "notes", "connections", "protocols"];
    let others: Vec<&str> = keys.iter().map(String::as_str).filter(|key| !KNOWN.contains(key)).collect();
    if others.is_empty() {
        "it holds no results".to_owned()
    } else {
        format!("it holds {}, which this version does not know or which is empty", others.join(", "))
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;
    use proptest::prelude::*;

    fn json() -> String {
        sample().json().expect("json")
    }

    #[test]
    fn one_and_several() {
        let (reports, error) = read(&json());
        assert!(error.is_none() && reports.len() == 1);
        // Numbers may differ in their last digit.
        assert_eq!(reports[0].findings, sample().findings);
        assert_eq!(reports[0].connections[1].samples.len(), 40);
        let (reports, error) = read(&(json() + &json()));
        assert!(error.is_none() && reports.len() == 2);
        let collected = format!("{{\"schema_version\":1,\"reports\":[{},{}]}}", json(), json());
        let (reports, error) = read(&collected);
        assert!(error.is_none() && reports.len() == 2);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let cut = &json()[..json().len() / 2];
        let newer = json().replacen("\"schema_version\": 1", "\"schema_version\": 7", 1);
        for (text, message) in [
            ("", "it is empty"),
            (" \n", "it is empty"),
            ("hello", "not JSON"),
            ("<html>", "not JSON"),
            ("[1]", "it is an array"),
            ("{\"a\":1}", "no schema_version"),
            ("{\"schema_version\":\"x\"}", "no schema_version"),
            ("{\"schema_version\":1}", "missing field"),
            ("{\"schema_version\":1,\"plan\":{},\"summary\":[]}", "missing field"),
            ("{\"schema_version\":2,\"plan\":{},\"summary\":[]}", "is 2, and this one reads up to 1"),
            ("{\"kind\":\"connect\",\"connection\":1}", "--format jsonl, not json"),
            (cut, "cut off"),
            (&newer, "schema_version is 7, and this one reads up to 1"),
        ] {
            let (reports, error) = read(text);
            let error = error.map(|e| e.to_string()).unwrap_or_default();
            assert!(reports.is_empty() && error.contains(message), "{text:.40}: {error}");
        }
    }

    #[test]
    fn what_came_before_an_error_counts() {
        let (reports, error) = read(&(json() + "{\"a\": "));
        assert!(reports.len() == 1 && matches!(error, Some(Unreadable::CutOff { .. })), "{error:?}");
    }

    #[test]
    fn a_report_without_anything_known_says_what_it_has() {
        let mut one = sample();
        (one.connections, one.protocols, one.reconnect) = (Vec::new(), Vec::new(), None);
        let (_, error) = read(&one.json().expect("json"));
        assert!(error.is_some_and(|e| e.to_string().contains("no results")));
        let text = one.json().expect("json").replacen('{', "{\"tomorrow\": {},", 1);
        assert!(read(&text).1.is_some_and(|e| e.to_string().contains("it holds tomorrow")));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,200}", at in 0usize..4000) {
            let _ = read(&text);
            let json = json();
            let cut: String = json.chars().take(at).collect();
            let _ = read(&cut);
        }
    }
}
