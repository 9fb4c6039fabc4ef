//! The published schema, docs/report.schema.json: generated from the types, and true of what is written.
//!
//! The types derive it in tests only, so the program does not carry it. A new result type needs the same attribute.

use std::path::PathBuf;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::*;
use crate::report::tests::sample;

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/report.schema.json")
}

fn generated() -> Value {
    let schema = SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<Report>();
    let mut value = serde_json::to_value(schema).expect("json");
    plain_words(&mut value);
    value
}

/// Descriptions are comments of the code: links in them mean nothing elsewhere, and lines end where the code's did.
fn plain_words(value: &mut Value) {
    match value {
        Value::Object(object) => {
            if let Some(Value::String(text)) = object.get_mut("description") {
                *text = text.replace("[`", "").replace("`]", "").replace('\n', " ");
            }
            object.values_mut().for_each(plain_words);
        }
        Value::Array(list) => list.iter_mut().for_each(plain_words),
        _ => {}
    }
}

#[test]
fn the_published_schema_is_that_of_the_types() {
    let now = serde_json::to_string_pretty(&generated()).expect("json") + "\n";
    if std::env::var_os("PGUSHER_WRITE_SCHEMA").is_some() {
        std::fs::write(path(), &now).expect("written");
    }
    let published = std::fs::read_to_string(path()).unwrap_or_default();
    assert!(
        now == published,
        "docs/report.schema.json is not that of the types; PGUSHER_WRITE_SCHEMA=1 cargo test -p pgusher-measure --lib \
         published_schema writes it"
    );
}

#[test]
fn keys_of_times_end_in_us() {
    let schema = generated();
    let mut keys = Vec::new();
    number_keys(&schema, &mut keys);
    assert!(keys.iter().any(|k| k == "connect_us") && keys.iter().any(|k| k == "median_us"), "{keys:?}");
    for key in keys {
        // Rates and seconds say what they are.
        if ["_us", "_seconds", "_per_second"].iter().any(|unit| key.ends_with(unit)) || key.starts_with("tps_") {
            continue;
        }
        for word in
            ["time", "latency", "duration", "elapsed", "connect", "wait", "lag", "_ms", "_ns", "millis", "micros"]
        {
            assert!(!key.contains(word), "{key} is a time whose key does not end in _us");
        }
    }
}

/// The keys of fractional numbers anywhere in a schema.
fn number_keys(schema: &Value, keys: &mut Vec<String>) {
    if let Some(Value::Object(properties)) = schema.get("properties") {
        let fractional = |v: &Value| v.get("format").and_then(Value::as_str) == Some("double");
        keys.extend(properties.iter().filter(|(_, v)| fractional(v)).map(|(k, _)| k.clone()));
    }
    match schema {
        Value::Object(object) => object.values().for_each(|v| number_keys(v, keys)),
        Value::Array(list) => list.iter().for_each(|v| number_keys(v, keys)),
        _ => {}
    }
}

#[test]
fn what_is_written_is_valid() {
    let schema = generated();
    let profile = crate::profile::recorded_tests::sample().profile;
    let all = Report { storm: Some(crate::storm::tests::sample()), profile, ..sample() };
    let report = serde_json::to_value(all).expect("json");
    assert_eq!(check(&schema, &schema, &report, "report"), Ok(()));
    let empty = serde_json::to_value(Report::new("", Environment::default())).expect("json");
    assert_eq!(check(&schema, &schema, &empty, "report"), Ok(()));
}

#[test]
fn what_is_wrong_is_not() {
    let schema = generated();
    let report = serde_json::to_value(sample()).expect("json");
    let wrong = |change: &dyn Fn(&mut Value)| {
        let mut report = report.clone();
        change(&mut report);
        assert!(check(&schema, &schema, &report, "report").is_err(), "{:.200}", report.to_string());
    };
    wrong(&|r| drop(r.as_object_mut().expect("object").remove("title")));
    wrong(&|r| r["schema_version"] = "1".into());
    wrong(&|r| r["connections"][0]["side"] = "sideways".into());
    wrong(&|r| r["connections"][0]["samples"][3]["connect_us"] = Value::Null);
    wrong(&|r| r["environment"]["host"]["processors"] = (-1).into());
    wrong(&|r| r["reconnect"]["cells"] = 5.into());
}

/// Checks `value` by the keywords of JSON Schema that the generator uses; any other keyword is an error, so that nothing
/// passes because it was not looked at.
fn check(root: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let Value::Object(keywords) = schema else { return Err(format!("{at}: no schema: {schema}")) };
    for (keyword, argument) in keywords {
        let right = match keyword.as_str() {
            "$schema" | "$defs" | "title" | "description" | "default" | "format" => true,
            "$ref" => {
                let name = argument.as_str().and_then(|r| r.strip_prefix("#/$defs/")).ok_or("a reference elsewhere")?;
                check(root, &root["$defs"][name], value, at)?;
                true
            }
            "type" => match argument {
                Value::Array(any) => any.iter().any(|t| is(t, value)),
                one => is(one, value),
            },
            "minimum" => value.as_f64().is_none_or(|v| v >= argument.as_f64().unwrap_or(f64::NAN)),
            "maximum" => value.as_f64().is_none_or(|v| v <= argument.as_f64().unwrap_or(f64::NAN)),
            "const" => value == argument,
            "enum" => argument.as_array().is_some_and(|any| any.contains(value)),
            "anyOf" | "oneOf" => {
                let any = argument.as_array().cloned().unwrap_or_default();
                any.iter().any(|schema| check(root, schema, value, at).is_ok())
            }
            "allOf" => {
                argument.as_array().is_some_and(|all| all.iter().all(|schema| check(root, schema, value, at).is_ok()))
            }
            "required" => argument
                .as_array()
                .is_some_and(|names| names.iter().all(|n| n.as_str().is_some_and(|n| value.get(n).is_some()))),
            "properties" => {
                for (name, schema) in argument.as_object().unwrap_or(&Map::new()) {
                    if let Some(value) = value.get(name) {
                        check(root, schema, value, &format!("{at}.{name}"))?;
                    }
                }
                true
            }
            "additionalProperties" => {
                let named = keywords.get("properties").and_then(Value::as_object);
                for (name, value) in value.as_object().unwrap_or(&Map::new()) {
                    if !named.is_some_and(|n| n.contains_key(name)) {
                        check(root, argument, value, &format!("{at}.{name}"))?;
                    }
                }
                true
            }
            "items" => {
                for (i, value) in value.as_array().unwrap_or(&Vec::new()).iter().enumerate() {
                    check(root, argument, value, &format!("{at}[{i}]"))?;
                }
                true
            }
            "prefixItems" => {
                for (schema, value) in
                    argument.as_array().into_iter().flatten().zip(value.as_array().into_iter().flatten())
                {
                    check(root, schema, value, at)?;
                }
                true
            }
            "minItems" => value.as_array().is_none_or(|v| v.len() as u64 >= argument.as_u64().unwrap_or(u64::MAX)),
            "maxItems" => value.as_array().is_none_or(|v| v.len() as u64 <= argument.as_u64().unwrap_or(0)),
            other => return Err(format!("{at}: the keyword {other} is not checked here")),
        };
        if !right {
            return Err(format!("{at}: {keyword} {argument}: {value:.80}", value = value.to_string()));
        }
    }
    Ok(())
}

fn is(kind: &Value, value: &Value) -> bool {
    match kind.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("number") => value.is_number(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        _ => false,
    }
}
