//! A server that goes away, and a person who has seen enough.

use std::sync::atomic::{AtomicBool, Ordering};

use pgusher_embedded::{Server, StopMode};
use pgusher_measure::doctor::{self, DoctorError, Id};

use crate::{config, found, options, sound, start};

fn stopped_at(server: &mut Server, when: &str) -> doctor::Diagnosis {
    let config = config(&server.conninfo("postgres", "postgres"));
    let mut hit = false;
    let diagnosis = doctor::run(&config, &options(), &AtomicBool::new(false), &mut |step| {
        if step == when {
            hit = true;
            server.stop(StopMode::Immediate).expect("it stops");
        }
    });
    assert!(hit, "no step {when}");
    diagnosis.expect("a diagnosis of what was seen")
}

#[test]
fn what_was_found_before_the_end_is_kept() {
    for when in ["catalogs", "watching the counters", "measuring connections"] {
        let mut server = start(sound().setting("log_hostname", "on"));
        let diagnosis = stopped_at(&mut server, when);
        found(&diagnosis, Id::LogHostname);
        let lost = diagnosis.lost.as_deref().expect("it says that the server went away");
        assert!(lost.contains("57P0") || lost.contains("closed the connection"), "{lost}");
        let text = doctor::text(&diagnosis);
        assert!(text.contains("THE SERVER WENT AWAY") && text.contains("Not examined"), "{text}");
    }
}

#[test]
fn a_person_may_end_it() {
    let server = start(sound().setting("log_hostname", "on"));
    let stop = AtomicBool::new(false);
    let config = config(&server.conninfo("postgres", "postgres"));
    let mut steps = Vec::new();
    let diagnosis = doctor::run(&config, &options(), &stop, &mut |step| {
        steps.push(step.to_owned());
        stop.store(step == "catalogs", Ordering::Relaxed);
    });
    let diagnosis = diagnosis.expect("a diagnosis");
    assert!(diagnosis.interrupted && diagnosis.lost.is_none());
    assert_eq!(steps, ["settings", "catalogs"]);
    found(&diagnosis, Id::LogHostname);
}

#[test]
fn no_server_is_an_error() {
    // Not a free port of this moment, which another test may take.
    let config = config("host=127.0.0.1 port=1 user=x dbname=x");
    let error = doctor::run(&config, &options(), &AtomicBool::new(false), &mut |_| {}).expect_err("no server");
    assert!(
        matches!(&error, DoctorError::Connect { .. }) && error.to_string().contains("is a server running"),
        "{error}"
    );
}
