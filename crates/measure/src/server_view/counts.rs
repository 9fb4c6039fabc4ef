//! The counters of pg_stat_statements, taken apart by first, second and later runs: they are read before the first run,
//! after it, after the second and after the last one on each connection.

use std::collections::BTreeMap;

use serde::Serialize;

use super::control::Control;
use super::rows::Population;
use super::statements::{Counters, StatementCounters};
use crate::profile::{StatementEvent, Step};

/// What the counters grew by, by statement and population.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counted(BTreeMap<(u32, Population), Counters>);

/// One line of it, for JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CountedLine {
    /// The statement, from 1.
    pub query: u32,
    /// Which runs.
    pub run: Population,
    /// Executions.
    pub calls: u64,
    /// All of their planning.
    pub plan_us: f64,
    /// All of their execution.
    pub exec_us: f64,
}

impl Counted {
    /// Of one statement's runs.
    #[must_use]
    pub fn of(&self, query: u32, population: Population) -> Option<&Counters> {
        self.0.get(&(query, population))
    }

    /// All of it.
    #[must_use]
    pub fn lines(&self) -> Vec<CountedLine> {
        self.0
            .iter()
            .map(|((query, run), c)| CountedLine {
                query: *query,
                run: *run,
                calls: c.calls,
                plan_us: c.plan_us,
                exec_us: c.exec_us,
            })
            .collect()
    }
}

/// Reads the counters at the right moments.
pub struct Counting {
    view: StatementCounters,
    runs: u32,
    /// The counters of each statement before the runs that are not accounted for yet.
    base: BTreeMap<u32, Counters>,
    counted: Counted,
    /// Executions that were ours, by statement.
    ours: BTreeMap<u32, u64>,
    trouble: Vec<String>,
}

impl Counting {
    /// With `runs` runs of each statement on a connection.
    #[must_use]
    pub fn new(view: StatementCounters, runs: u32) -> Self {
        Counting {
            view,
            runs,
            base: BTreeMap::new(),
            counted: Counted::default(),
            ours: BTreeMap::new(),
            trouble: Vec::new(),
        }
    }

    /// A connection was established: `queries` statements are going to be run.
    pub fn connected(&mut self, control: &mut Control, queries: u32) {
        self.base.clear();
        for query in 1..=queries {
            if let Some(now) = self.read(control, query) {
                self.base.insert(query, now);
            }
        }
    }

    /// A run has ended.
    pub fn ran(&mut self, control: &mut Control, event: &StatementEvent) {
        if event.step != Step::Run {
            return;
        }
        if event.error.is_none() {
            *self.ours.entry(event.query).or_default() += 1;
        }
        if event.run <= 2 || event.run == self.runs {
            let Some(now) = self.read(control, event.query) else { return };
            let Some(before) = self.base.insert(event.query, now) else { return };
            match now.since(&before) {
                Some(more) => {
                    let place = (event.query, Population::of(event.run));
                    self.counted.0.entry(place).or_default().add(&more);
                }
                None => self.say("counting began anew in mid-run (a restart or pg_stat_statements_reset())".to_owned()),
            }
        }
    }

    /// What was counted, and what is to be said of it.
    #[must_use]
    pub fn finish(&self) -> (Counted, Vec<String>) {
        let mut notes: Vec<String> = self.trouble.iter().map(|text| format!("pg_stat_statements: {text}")).collect();
        if !self.view.tracks_planning {
            notes.push(
                "pg_stat_statements: pg_stat_statements.track_planning is off, so it has no planning times".to_owned(),
            );
        }
        for (query, ours) in &self.ours {
            let calls: u64 = self.counted.0.iter().filter(|((q, _), _)| q == query).map(|(_, c)| c.calls).sum();
            if calls == 0 {
                notes.push(format!(
                    "pg_stat_statements: it counted no run of statement {query} (pg_stat_statements.track, or a statement \
                     that it does not track)"
                ));
            } else if calls < *ours {
                notes.push(format!(
                    "pg_stat_statements: only {calls} of {ours} runs of statement {query} were counted; what it does not \
                     count has no time of it here"
                ));
            } else if calls > *ours {
                notes.push(format!(
                    "pg_stat_statements: {calls} runs of statement {query} were counted and {ours} were ours; its times \
                     are means over all of them"
                ));
            }
        }
        (self.counted.clone(), notes)
    }

    fn read(&mut self, control: &mut Control, query: u32) -> Option<Counters> {
        let at = usize::try_from(query).ok()?.checked_sub(1)?;
        match self.view.read(control, at) {
            Ok(counters) => Some(counters),
            Err(why) => {
                self.say(why);
                None
            }
        }
    }

    fn say(&mut self, text: String) {
        if self.trouble.len() < 8 && !self.trouble.contains(&text) {
            self.trouble.push(text);
        }
    }
}
