//! What an experiment leaves behind: one data model, written as JSON for programs and as a self-contained HTML page
//! with plots for people.
//!
//! The page needs no network and no script: styles and SVG plots are in it, it follows the reader's light or dark
//! preference, and each plot comes in a wide and a narrow drawing so that its letters stay readable on a phone.
//! The SVG is written by hand because its colours must come from the page's style sheet to follow that preference.
//!
//! Not here: measuring, and the tables for the terminal (each experiment has its own).

mod bars;
mod environment;
mod exhibit;
mod findings;
mod html;
mod model;
mod page;
mod scatter;
mod svg;
mod waterfall;

pub use environment::{Environment, Host, ServerFacts, timestamp};
pub use exhibit::{Axis, AxisScale, Chart, Colour, Exhibit, Experiment, Mark, Point, Series, Table, Unit};
pub use findings::{Glance, findings, glance};
pub use html::escape;
pub use model::{ConnectionSample, ConnectionSeries, Finding, PhaseTime, ProtocolSeries, Report, SCHEMA_VERSION, Tone};
pub use page::page;

#[cfg(test)]
pub(crate) mod tests;
