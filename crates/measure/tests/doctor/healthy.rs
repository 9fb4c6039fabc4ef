//! A healthy server.

use pgusher_measure::doctor::{self, Diagnosis, Thresholds};
use pgusher_measure::report::{Experiment, Report};

use crate::{ids, look, options, sound, start, with};

#[test]
fn has_no_finding() {
    let server = start(sound());
    server.psql("postgres", "select count(*) from pg_class").expect("work");
    // A busy machine makes anything slow for a moment. Should it be so busy all the time that a connection takes 50 ms, then
    // that is no fault of the server's.
    let busy = with(Thresholds { backend_start_us: 5e6, first_query_notice_us: 5e6, ..Thresholds::default() });
    let diagnosis = (0..5).map(|_| look(&server, &options())).find(|d| d.findings.is_empty());
    let diagnosis = diagnosis.unwrap_or_else(|| look(&server, &busy));
    assert_eq!(ids(&diagnosis), [], "{}", doctor::text(&diagnosis));
    assert!(diagnosis.lost.is_none() && !diagnosis.interrupted);
    assert_eq!(diagnosis.reached.rights, "superuser");
    assert!(diagnosis.reached.same_machine && diagnosis.reached.through == "directly", "{:?}", diagnosis.reached);
    let names: Vec<&str> = diagnosis.measurements.iter().map(|m| m.name.as_str()).collect();
    assert!(
        names.contains(&"connection") && names.contains(&"queue+fork") && names.contains(&"round trip"),
        "{names:?}"
    );
    let text = doctor::text(&diagnosis);
    assert!(text.contains("Nothing found.") && text.lines().count() <= 24, "{text}");
    assert!(diagnosis.connections_opened <= 13, "{}", diagnosis.connections_opened);
}

#[test]
fn nothing_is_left_on_it() {
    let server = start(sound());
    look(&server, &options());
    let left =
        server.psql("postgres", "select count(*) from pg_stat_activity where application_name = 'pgusher doctor'");
    assert_eq!(left.expect("psql"), "0");
    assert_eq!(server.psql("postgres", "select count(*) from pg_class where relname ~ 'pgusher'").expect("psql"), "0");
}

#[test]
fn its_json_is_read_back_and_shows_itself_in_a_report() {
    let server = sound().setting("superuser_reserved_connections", "0").start().expect("a server");
    let diagnosis = look(&server, &options());
    let json = serde_json::to_string(&diagnosis).expect("json");
    assert!(json.contains("\"id\":\"no-reserved-connections\"") && json.contains("\"median_us\""), "{json}");
    let back: Diagnosis = serde_json::from_str(&json).expect("the same");
    assert_eq!(ids(&back), ids(&diagnosis));
    assert_eq!(back.exhibits().len(), back.findings.len() + 2, "and what was not examined, and what was measured");
    let mut report = Report::new("x", Default::default());
    report.doctor = Some(back);
    assert_eq!(report.experiments().len(), 1);
}
