//! Comparisons of made-up runs: changes, none, too few samples, what cannot be compared.

use super::*;
use crate::report::html::check;
use crate::report::tests::sample;
use crate::report::{Document, markdown_document, page_document, text_document};

fn run(name: &str, change: impl FnOnce(&mut Report)) -> Run {
    let mut report = sample();
    change(&mut report);
    Run { name: name.to_owned(), report }
}

fn all_of(runs: &[Run]) -> String {
    let document = Document::of_runs(runs);
    assert_eq!(check(&page_document(&document)), Ok(()));
    assert!(!markdown_document(&document).is_empty());
    text_document(&document, false)
}

fn change_of(comparisons: &[Comparison], name: &str) -> Change {
    comparisons.iter().flat_map(|c| &c.measures).find(|m| m.name == name).expect("compared").change
}

#[test]
fn the_same_twice_shows_no_change() {
    let runs = [run("a.json", |_| ()), run("b.json", |_| ())];
    let found = comparisons(&runs);
    assert_eq!(found.len(), 3, "connections, protocols, reconnecting");
    for m in found.iter().flat_map(|c| &c.measures) {
        assert!(matches!(m.change, Change::NotShown | Change::TooFewSamples), "{m:?}");
    }
    assert!(differences(&runs).is_empty());
    let text = all_of(&runs);
    assert!(text.contains("no change is shown in") && text.contains("are the same in all of them"), "{text}");
}

#[test]
fn what_changed_is_told_in_the_right_direction() {
    let faster = run("b.json", |r| {
        for s in r.connections.iter_mut().flat_map(|s| &mut s.samples) {
            s.connect_us *= 0.5;
        }
        for c in r.reconnect.iter_mut().flat_map(|r| &mut r.cells).flat_map(|c| &mut c.rounds) {
            c.tps_including_connecting *= 0.5;
        }
    });
    let runs = [run("a.json", |_| ()), faster];
    let found = comparisons(&runs);
    assert_eq!(change_of(&found, "direct, later connections"), Change::Better);
    assert_eq!(change_of(&found, "direct, first connection"), Change::TooFewSamples);
    let tps = "static, direct, 16 clients, simple, select only: tps including connecting";
    assert_eq!(change_of(&found, tps), Change::Worse);
    let text = all_of(&runs);
    for part in ["2.00x faster", "2.00x less", "too few samples to tell", "in b.json instead of"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn noise_is_no_change() {
    let noisy = run("b.json", |r| {
        let mut rng = fastrand::Rng::with_seed(5);
        for s in r.connections.iter_mut().flat_map(|s| &mut s.samples) {
            s.connect_us *= 0.99 + 0.03 * rng.f64();
        }
    });
    let found = comparisons(&[run("a.json", |_| ()), noisy]);
    assert_eq!(change_of(&found, "direct, later connections"), Change::NotShown);
}

#[test]
fn what_differs_is_listed_and_cautioned() {
    let other = run("b.json", |r| {
        r.environment.host.processor = "another".to_owned();
        r.environment.server = Some(crate::report::ServerFacts { version: "17.6".to_owned(), ..Default::default() });
        r.environment.targets.insert("direct".to_owned(), "far away".to_owned());
        if let Some(reconnect) = &mut r.reconnect {
            reconnect.settings.clients = 32;
            reconnect.interrupted = true;
        }
    });
    let runs = [run("a.json", |_| ()), other];
    let names: Vec<String> = differences(&runs).into_iter().map(|d| d.what).collect();
    assert_eq!(names, ["processor", "direct", "server"]);
    let text = all_of(&runs);
    for part in [
        "different hosts or systems",
        "not reached in the same way",
        "the runs have no quantity in common",
        "Only in a.json, so not compared: static, direct, 16 clients",
        "b.json was interrupted",
        "What was done: select only; simple protocol; 32 clients",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn different_experiments_stand_beside_each_other() {
    let a = run("a.json", |r| r.reconnect = None);
    let b = run("b.json", |r| (r.connections, r.protocols) = (Vec::new(), Vec::new()));
    let text = all_of(&[a, b]);
    assert!(text.contains("no experiment is in more than one"), "{text}");
    assert!(text.contains("b.json: Keeping a connection") && text.contains("a.json: First and later runs"), "{text}");
}

#[test]
fn three_runs_are_compared_with_the_first() {
    let runs = [run("a", |_| ()), run("b", |_| ()), run("c", |_| ())];
    let pairs: Vec<(String, String)> = comparisons(&runs).into_iter().map(|c| (c.baseline, c.other)).collect();
    assert_eq!(pairs.iter().filter(|p| **p == ("a".to_owned(), "c".to_owned())).count(), 3);
    assert!(pairs.iter().all(|p| p.0 == "a"));
    let json = serde_json::to_value(Collected::of(&runs)).expect("json");
    assert_eq!(json["comparisons"][0]["measures"][0]["unit"], "us");
    assert_eq!(json["reports"].as_array().map(Vec::len), Some(3));
    let (back, error) = crate::report::read(&json.to_string());
    assert!(back.len() == 3 && error.is_none(), "{error:?}");
}
