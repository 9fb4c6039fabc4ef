//! Writes a profile down in one of the formats while it goes on, and its summary at the end.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use super::{Collector, Event, Plan, Provoked, Reached, csv, json, text};
use crate::report::{Environment, ServerFacts};
use crate::server_view;

/// How to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people, in the layout of connection-profiler.
    Text,
    /// One document at the end.
    Json,
    /// One object per event and per line of the summary.
    Jsonl,
    /// One row per time.
    Csv,
}

/// What the output says besides the events.
#[derive(Clone, Debug)]
pub struct Options {
    /// The format.
    pub format: Format,
    /// Whether text shows all phases.
    pub phases: bool,
    /// sslmode that was asked for.
    pub sslmode: &'static str,
    /// Client setup, microseconds.
    pub setup_us: f64,
}

/// What is known only when a profile is over.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// What the server says of itself.
    pub server: Option<ServerFacts>,
    /// The profile seen from the server.
    pub view: Option<server_view::Report>,
    /// What was provoked before the connections.
    pub provoked: Option<Provoked>,
    /// Whether it was ended before its time.
    pub interrupted: bool,
}

/// The surroundings of a profile, as JSON tells them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Surroundings {
    #[serde(flatten)]
    pub(super) general: Environment,
    #[serde(flatten)]
    pub(super) reached: Reached,
}

/// Writes events and the summary.
pub struct Reporter {
    out: Box<dyn Write + Send>,
    options: Options,
    plan: Plan,
    environment: Surroundings,
    collector: Collector,
    /// Kept for JSON only, which is one document.
    events: Vec<Event>,
}

impl Reporter {
    /// Writes to `out`.
    pub fn new(out: Box<dyn Write + Send>, options: Options, plan: Plan) -> Self {
        let reached = Reached::new(options.sslmode, options.setup_us);
        let environment = Surroundings { general: Environment::here(), reached };
        let collector = Collector::new(plan.protocol);
        Reporter { out, options, plan, environment, collector, events: Vec::new() }
    }

    /// Takes an event in and writes what the format writes at once.
    pub fn event(&mut self, event: Event) -> io::Result<()> {
        self.collector.add(&event);
        if let Event::Connect(connect) = &event {
            self.environment.reached.note(connect);
        }
        match self.options.format {
            Format::Text => text::event(&mut self.out, &event, &self.plan, self.options.phases)?,
            Format::Jsonl => json::line(&mut self.out, &event)?,
            Format::Csv => csv::event(&mut self.out, &event, self.plan.protocol)?,
            Format::Json => {
                self.events.push(event);
                return Ok(());
            }
        }
        self.out.flush()
    }

    /// Writes what comes before the first event.
    pub fn begin(&mut self) -> io::Result<()> {
        if self.options.format == Format::Csv {
            csv::header(&mut self.out)?;
        }
        Ok(())
    }

    /// Writes the summary and what the server's side has shown.
    pub fn finish(&mut self, ending: Ending) -> io::Result<()> {
        self.environment.general.server = ending.server;
        let summary = self.collector.summary();
        let document = json::Document {
            schema_version: json::SCHEMA_VERSION,
            interrupted: ending.interrupted,
            environment: &self.environment,
            plan: &self.plan,
            provoked: ending.provoked.as_ref(),
            summary: &summary,
            server_view: ending.view.as_ref(),
            failed: self.collector.failed(),
            failures: self.collector.failures(),
        };
        match self.options.format {
            Format::Text => {
                text::summary(&mut self.out, &summary, &self.collector, &self.plan, &self.options, ending.interrupted)?;
                text::server_side(&mut self.out, &self.plan, ending.view.as_ref(), ending.provoked.as_ref())?;
                if let Some(floor) = &self.environment.general.floor {
                    writeln!(self.out, "{floor}")?;
                }
            }
            Format::Json => json::document(&mut self.out, &document, &self.events)?,
            Format::Jsonl => json::summary_line(&mut self.out, &document)?,
            Format::Csv => csv::server_side(&mut self.out, ending.view.as_ref())?,
        }
        self.out.flush()
    }

    /// What was collected.
    pub fn collector(&self) -> &Collector {
        &self.collector
    }
}
