//! What an experiment shows of its result: tables and charts as data, drawn for the terminal, for markdown and for
//! the page in one place each. An experiment says what is in them; it does not know how they are drawn.

use serde::Serialize;

use super::measures::{self, Measure};
use super::model::{Finding, PhaseTime};
use crate::failure::FailureCount;
use crate::stats;
use crate::target::Side;

/// The result of an experiment that a report can show.
pub trait Experiment {
    /// The heading.
    fn title(&self) -> String;

    /// What was done, in a sentence or two: targets, counts, order, open or closed loop.
    fn method(&self) -> String;

    /// Sentences that follow from the numbers, whichever way they came out.
    fn findings(&self) -> Vec<Finding>;

    /// Tables and charts, in the order of reading.
    fn exhibits(&self) -> Vec<Exhibit>;

    /// What failed, and whose it was (`direct`, `managed, 512 clients`).
    fn failures(&self) -> Vec<(String, FailureCount)>;

    /// What a reader must know besides: what could not be measured, and why.
    fn notes(&self) -> Vec<String>;

    /// Whether it was ended before its time.
    fn interrupted(&self) -> bool;

    /// By what runs of it are known as the same experiment when reports are compared: must not depend on what was asked for.
    fn name(&self) -> String {
        self.title()
    }

    /// What can be compared with another run, with the samples or rounds that it was made of. What differs in its settings
    /// (clients, tables) belongs into the names, so that only equal things meet.
    fn measures(&self) -> Vec<Measure> {
        Vec::new()
    }

    /// Comma-separated values: a heading, then a line per sample or round. Without an own one, the samples of
    /// [`Experiment::measures`].
    fn csv(&self) -> String {
        measures::csv(&self.measures())
    }
}

/// One thing to show.
#[derive(Debug, Clone, PartialEq)]
pub enum Exhibit {
    /// Rows and columns.
    Table(Table),
    /// Points and lines over two axes.
    Chart(Chart),
    /// Groups of horizontal bars on a logarithmic axis.
    Bars(Bars),
    /// What times are made of: a stacked bar each.
    Phases(Phases),
}

/// A table whose cells are written already.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// What it shows.
    pub caption: String,
    /// Heads of the columns; the first one is that of the rows' names.
    pub columns: Vec<String>,
    /// Rows; each begins with its name and has as many cells as there are columns.
    pub rows: Vec<Vec<String>>,
    /// What a reader must know of it; may be empty.
    pub remark: String,
}

/// Groups of bars whose lengths compare, on a logarithmic axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Bars {
    /// What it shows.
    pub caption: String,
    /// How its values are written.
    pub unit: Unit,
    /// From top to bottom.
    pub groups: Vec<BarGroup>,
}

/// Bars that belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct BarGroup {
    /// Above the bars.
    pub title: String,
    /// Beside the title: what follows from the bars; may be empty.
    pub remark: String,
    /// The bars.
    pub bars: Vec<Bar>,
}

/// One bar.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// Its name.
    pub label: String,
    /// Its colour.
    pub colour: Colour,
    /// Its length. A value that is not positive has none.
    pub value: f64,
}

/// Times and what they are made of, over one linear axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Phases {
    /// What it shows.
    pub caption: String,
    /// What a reader must know of it; may be empty.
    pub remark: String,
    /// From top to bottom: a name, and its parts in order. Phases have the same colour everywhere.
    pub rows: Vec<(String, Vec<PhaseTime>)>,
}

/// A chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// What it shows.
    pub caption: String,
    /// Across.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// What is drawn, the first one lowest.
    pub series: Vec<Series>,
}

/// An axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// What it measures.
    pub label: String,
    /// How values lie on it.
    pub scale: AxisScale,
    /// How its values are written.
    pub unit: Unit,
}

/// How values lie on an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AxisScale {
    /// From zero (or the lowest value, if that is negative).
    Linear,
    /// Powers of ten are equally far apart. Values that are not positive are not drawn.
    Logarithmic,
}

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Microseconds, shown as us, ms or s.
    #[serde(rename = "us")]
    Micros,
    /// A number of things.
    Count,
    /// A quotient.
    Ratio,
    /// A part of a whole from 0 to 1, shown in percent.
    Share,
    /// Bytes, shown as B, KiB, MiB or GiB.
    Bytes,
}

impl Unit {
    /// `value` for people.
    #[must_use]
    pub fn text(self, value: f64) -> String {
        match self {
            Self::Micros => stats::micros(value),
            Self::Count => stats::count(value),
            Self::Ratio => stats::ratio_text(value),
            Self::Share => stats::percent(value),
            Self::Bytes => stats::bytes(value),
        }
    }
}

/// Points that belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name, for the legend.
    pub name: String,
    /// Which colour it has.
    pub colour: Colour,
    /// How its points are drawn.
    pub mark: Mark,
    /// The points, in order.
    pub points: Vec<Point>,
}

/// The colours of the page; each side has its own everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// Straight to PostgreSQL.
    Direct,
    /// Through the connection manager.
    Managed,
    /// Anything first.
    First,
    /// One of the further ones, counted from 0.
    Other(usize),
}

impl From<Side> for Colour {
    fn from(side: Side) -> Self {
        match side {
            Side::Direct => Self::Direct,
            Side::Managed => Self::Managed,
        }
    }
}

/// How the points of a series are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Dots, with a line for the range if they have one.
    Dots,
    /// A line through the points.
    Line,
    /// A line and a dot at each point.
    LineAndDots,
    /// A dashed line: a model, not a measurement.
    Model,
}

/// A point of a chart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Across.
    pub x: f64,
    /// Upwards.
    pub y: f64,
    /// The interval of `y`, if it has one.
    pub range: Option<(f64, f64)>,
}

impl Point {
    /// A point without an interval.
    #[must_use]
    pub fn at(x: f64, y: f64) -> Self {
        Self { x, y, range: None }
    }
}

impl Table {
    /// Whether the cells of a column are numbers, which stand to the right.
    pub(super) fn is_numeric(&self, column: usize) -> bool {
        let number = |cell: &str| {
            let cell = cell.trim_start_matches(['+', '-', '<', '>', '~', '(']);
            cell.is_empty() || cell.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        };
        column > 0 && self.rows.iter().filter_map(|row| row.get(column)).all(|cell| number(cell.trim()))
    }
}
