//! A measurement.

use crate::postgres::{Question, Session, server};
use pgusher_session::audit::Aspects;
use std::time::{Duration, Instant};

/// Prints what a question costs beside an empty statement: CPU time of the backend, and time until the answer.
#[test]
#[ignore = "a measurement; needs Linux"]
fn cost() {
    let mut session = Session::new(server(), "postgres", "postgres");
    session.run("set work_mem = '3MB'; set app.tenant = 7");
    let pid = session.text("select pg_backend_pid()");
    let cpu = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
        Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
    };
    let question =
        Question { known: &[("work_mem", "3MB"), ("app.tenant", "7")], functions: &["f", "g"], ..Question::default() };
    let held = Aspects::TEMPORARY | Aspects::LOCKS | Aspects::CHANNELS | Aspects::PREPARED | Aspects::CURSORS;
    let aspects = [
        ("select 1", None),
        ("nothing", Some(Aspects::NONE)),
        ("settings", Some(Aspects::SETTINGS)),
        ("temporary", Some(Aspects::TEMPORARY)),
        ("locks", Some(Aspects::LOCKS)),
        ("functions", Some(Aspects::FUNCTIONS)),
        ("all but settings and functions", Some(held)),
        ("all", Some(Aspects::ALL.union(Aspects::FUNCTIONS))),
    ];
    // The first round only fills the backend's caches.
    for round in 0..6 {
        for (name, aspects) in aspects {
            let mut times = Vec::new();
            let before = cpu();
            for _ in 0..200 {
                let start = Instant::now();
                match aspects {
                    Some(aspects) => drop(session.ask(&Question { aspects, ..question })),
                    None => drop(session.run("select 1")),
                }
                times.push(start.elapsed());
            }
            let cpu = (cpu() - before) / 200;
            times.sort();
            if round > 0 {
                println!("{name}: {cpu:?} of CPU, median {:?}", times[100]);
            }
        }
    }
}
