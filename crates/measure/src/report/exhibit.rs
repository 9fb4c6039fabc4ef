//! What an experiment shows of its result: tables and charts as data, drawn for the terminal, for markdown and for
//! the page in one place each. An experiment says what is in them; it does not know how they are drawn.

use super::model::Finding;
use crate::failure::FailureCount;

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
}

/// One thing to show.
#[derive(Debug, Clone, PartialEq)]
pub enum Exhibit {
    /// Rows and columns.
    Table(Table),
    /// Points and lines over two axes.
    Chart(Chart),
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Microseconds, shown as us, ms or s.
    Micros,
    /// A number of things.
    Count,
    /// A quotient.
    Ratio,
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
