//! What an experiment leaves behind: one data model, written as JSON for programs, as tables for the terminal and as a
//! self-contained HTML page with plots.
//!
//! The page needs no network and no script: styles and SVG plots are in it, it follows the reader's light or dark
//! preference, and each plot comes in a wide and a narrow drawing so that its letters stay readable on a phone.
//! The SVG is written by hand because its colours must come from the page's style sheet to follow that preference.
//!
//! An experiment says what it shows as data (see [`Experiment`]); how that is drawn, in the terminal, in Markdown or on the
//! page, is decided here in one place for all. Not here: measuring.

mod bars;
mod chart;
mod collection;
mod compare;
mod document;
mod environment;
mod exhibit;
mod facts;
mod findings;
mod html;
mod markdown;
mod measures;
mod model;
mod page;
mod read;
mod scale;
mod section;
mod series;
mod svg;
mod text;
mod waterfall;

pub use compare::{Change, Collected, Compared, Comparison, Difference, Run, Samples, comparisons, differences};
pub use document::{Document, Section};
pub use environment::{Environment, Host, ServerFacts, timestamp};
pub use exhibit::{
    Axis, AxisScale, Bar, BarGroup, Bars, Chart, Colour, Exhibit, Experiment, Mark, Phases, Point, Series, Table, Unit,
};
pub(crate) use findings::longer;
pub use findings::{Glance, findings, glance, reconnect_findings};
pub use html::escape;
pub use markdown::{markdown, markdown_document, markdown_report};
pub use measures::{Better, Measure, field};
pub use model::{ConnectionSample, ConnectionSeries, Finding, PhaseTime, ProtocolSeries, Report, SCHEMA_VERSION, Tone};
pub use page::{page, page_document};
pub use read::{Unreadable, read};
pub use text::{text, text_at_a_glance, text_document, text_report, text_table};

#[cfg(test)]
mod schema_tests;
#[cfg(test)]
pub(crate) mod tests;
