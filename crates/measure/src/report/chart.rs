//! Draws a chart: axes with marks, the legend, and each series with its dots, lines, models and intervals.
//!
//! Thousands of points are thinned to what the eye can tell apart, so that a page stays small: each column of the
//! drawing keeps some of its points, among them the lowest and the highest, and with them every outlier.

use super::exhibit::{Axis, AxisScale, Chart, Colour, Mark, Point, Series, Unit};
use super::scale::Scale;
use super::svg::{Anchor, Drawing, both, number, text_width};

/// Up to so many points of a series are elements of their own, which tell their value when one points at them.
const SINGLE: usize = 120;

/// Width of a column of which few points are kept, in the drawing's units.
const COLUMN: f64 = 2.0;

/// The drawing.
pub(super) fn chart(chart: &Chart) -> String {
    both(&chart.caption, |d| draw(d, chart))
}

/// Where the axes are and what lies on them.
struct Frame {
    x: Scale,
    y: Scale,
    left: f64,
    top: f64,
    bottom: f64,
}

fn draw(d: &mut Drawing, chart: &Chart) -> f64 {
    let below_legend = legend(d, &chart.series);
    d.text("t dim", Anchor::Start, 0.0, below_legend + 14.0, &chart.y.label);
    let (top, height) = (below_legend + 28.0, if d.narrow { 220.0 } else { 280.0 });
    let bottom = top + height;
    let y = scale(&chart.y, shown(chart).flat_map(|p| extent(&chart.y, p)), bottom, top);
    let widest = y.ticks().iter().map(|v| text_width(&tick(chart.y.unit, *v))).fold(0.0, f64::max);
    let left = (widest + 8.0).min(d.width / 3.0);
    let x = exact(&chart.x, shown(chart).map(|p| p.x), left + 6.0, d.width - 10.0);
    let frame = Frame { x, y, left, top, bottom };
    axes(d, chart, &frame);
    for series in &chart.series {
        draw_series(d, chart, series, &frame);
    }
    d.text("t dim", Anchor::Middle, f64::midpoint(left, d.width), bottom + 36.0, &chart.x.label);
    bottom + 44.0
}

/// All points that can be drawn.
fn shown(chart: &Chart) -> impl Iterator<Item = &Point> {
    chart.series.iter().flat_map(|s| &s.points).filter(|p| drawable(chart, p))
}

fn drawable(chart: &Chart, point: &Point) -> bool {
    has_place(&chart.x, point.x) && has_place(&chart.y, point.y)
}

/// Whether a value has a place on such an axis. Beyond these limits is nothing that anybody measures.
fn has_place(axis: &Axis, v: f64) -> bool {
    match axis.scale {
        AxisScale::Linear => v.abs() < 1e15,
        AxisScale::Logarithmic => (1e-12..1e15).contains(&v),
    }
}

/// What a point covers upwards, as far as it has a place.
fn extent<'a>(axis: &'a Axis, point: &Point) -> impl Iterator<Item = f64> + use<'a> {
    let (low, high) = point.range.unwrap_or((point.y, point.y));
    [point.y, low, high].into_iter().filter(|v| has_place(axis, *v))
}

fn scale(axis: &Axis, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Scale {
    match axis.scale {
        AxisScale::Linear => Scale::round_linear(values, from, to),
        AxisScale::Logarithmic => Scale::tight_logarithmic(values, from, to),
    }
}

/// From the first to the last of the values: nothing is gained by empty room beside them.
fn exact(axis: &Axis, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Scale {
    match axis.scale {
        AxisScale::Linear => Scale::exact_linear(values, from, to),
        AxisScale::Logarithmic => Scale::exact_logarithmic(values, from, to),
    }
}

/// Swatches and names from left to right, on as many lines as they need. Returns where they end.
fn legend(d: &mut Drawing, all: &[Series]) -> f64 {
    let (mut x, mut y) = (0.0, 0.0);
    for series in all.iter().filter(|s| !s.points.is_empty()) {
        let name = fitting(&series.name, d.width - 30.0);
        let width = 30.0 + text_width(&name) + 12.0;
        if x > 0.0 && x + width > d.width {
            (x, y) = (0.0, y + 19.0);
        }
        let (class, middle) = (class(series.colour), y + 9.0);
        if series.mark != Mark::Dots {
            d.line(&line_class(class, series.mark), (x, middle), (x + 22.0, middle));
        }
        if matches!(series.mark, Mark::Dots | Mark::LineAndDots) {
            d.dot(&format!("f-{class}"), x + 11.0, middle, 4.0, &series.name);
        }
        d.text("t", Anchor::Start, x + 28.0, middle + 4.0, &name);
        x += width;
    }
    if x > 0.0 { y + 24.0 } else { 0.0 }
}

/// `text`, or as much of it as has room.
fn fitting(text: &str, room: f64) -> String {
    if text_width(text) <= room {
        return text.to_owned();
    }
    let mut short: String = text.chars().take((room / text_width("m")) as usize).collect();
    short.pop();
    short.push('\u{2026}');
    short
}

fn axes(d: &mut Drawing, chart: &Chart, frame: &Frame) {
    for value in frame.y.minor_ticks() {
        d.line("grid minor", (frame.left, frame.y.at(value)), (d.width, frame.y.at(value)));
    }
    let mut free_below = f64::INFINITY;
    for value in frame.y.ticks() {
        let at = frame.y.at(value);
        d.line("grid", (frame.left, at), (d.width, at));
        if at + 4.0 <= free_below {
            d.text("t dim", Anchor::End, frame.left - 6.0, at + 4.0, &tick(chart.y.unit, value));
            free_below = at - 10.0;
        }
    }
    d.line("axis", (frame.left, frame.bottom), (d.width, frame.bottom));
    if places(chart).is_none() {
        for value in frame.x.minor_ticks() {
            d.line("axis", (frame.x.at(value), frame.bottom), (frame.x.at(value), frame.bottom + 3.0));
        }
    }
    let mut free_from = f64::NEG_INFINITY;
    for value in places(chart).unwrap_or_else(|| frame.x.ticks()) {
        let (at, text) = (frame.x.at(value), tick(chart.x.unit, value));
        let half = text_width(&text) / 2.0;
        d.line("axis", (at, frame.bottom), (at, frame.bottom + 5.0));
        // Not beyond the edges, and a name that would touch its neighbour is left out.
        let middle = at.min(d.width - half).max(half);
        if middle - half > free_from {
            d.text("t dim", Anchor::Middle, middle, frame.bottom + 18.0, &text);
            free_from = middle + half + 6.0;
        }
    }
}

/// The places where something was measured, if they are few: they are better marks than round numbers.
fn places(chart: &Chart) -> Option<Vec<f64>> {
    let measured = chart.series.iter().filter(|s| s.mark != Mark::Model).flat_map(|s| &s.points);
    let mut places: Vec<f64> = Vec::new();
    for point in measured.filter(|p| drawable(chart, p)) {
        if !places.contains(&point.x) {
            places.push(point.x);
        }
        if places.len() > 12 {
            return None;
        }
    }
    places.sort_unstable_by(f64::total_cmp);
    let counted = chart.x.scale == AxisScale::Logarithmic && chart.x.unit == Unit::Count;
    (counted && !places.is_empty()).then_some(places)
}

fn draw_series(d: &mut Drawing, chart: &Chart, series: &Series, frame: &Frame) {
    let points: Vec<&Point> = series.points.iter().filter(|p| drawable(chart, p)).collect();
    let class = class(series.colour);
    let at = |p: &Point| (frame.x.at(p.x), frame.y.at(p.y));
    if series.mark != Mark::Dots {
        let line = thinned(points.iter().map(|p| at(p)).collect(), 3);
        d.path(&line_class(class, series.mark), &line_through(&line), &series.name);
    }
    if series.mark == Mark::Model {
        return;
    }
    if points.len() <= SINGLE {
        whiskers(d, class, &points, frame);
        if series.mark != Mark::Line {
            for point in points {
                let (x, y) = at(point);
                let radius = if d.narrow { 2.8 } else { 3.4 };
                d.dot(&format!("f-{class} dot"), x, y, radius, &tip(chart, series, point));
            }
        }
    } else if series.mark != Mark::Line {
        let dots = thinned(points.iter().map(|p| at(p)).collect(), 8);
        d.path(&format!("many s-{class}"), &dots_at(&dots), &series.name);
    }
}

/// Intervals as lines with short ends.
fn whiskers(d: &mut Drawing, class: &str, points: &[&Point], frame: &Frame) {
    let mut path = String::new();
    for point in points {
        if let Some((low, high)) = point.range.filter(|(low, high)| low.is_finite() && high.is_finite()) {
            let x = frame.x.at(point.x);
            let (low, high) = (frame.y.at(low).min(frame.bottom), frame.y.at(high).max(frame.top));
            let (left, right, x) = (number(x - 3.5), number(x + 3.5), number(x));
            let (low, high) = (number(low), number(high));
            path.push_str(&format!("M{x} {low}V{high}M{left} {low}H{right}M{left} {high}H{right}"));
        }
    }
    d.path(&format!("whisker s-{class}"), &path, "");
}

/// At most so many points per column where there are many: the lowest, the highest, and some of the others as they come.
fn thinned(points: Vec<(f64, f64)>, per_column: usize) -> Vec<(f64, f64)> {
    if points.len() <= SINGLE {
        return points;
    }
    let column = |p: &(f64, f64)| (p.0 / COLUMN).floor();
    let mut out = Vec::new();
    for group in points.chunk_by(|a, b| column(a) == column(b)) {
        if group.len() <= per_column {
            out.extend_from_slice(group);
            continue;
        }
        let by_height = |a: &(usize, &(f64, f64)), b: &(usize, &(f64, f64))| a.1.1.total_cmp(&b.1.1);
        let (low, high) = (group.iter().enumerate().min_by(by_height), group.iter().enumerate().max_by(by_height));
        let some = (0..per_column.saturating_sub(2)).map(|i| i * group.len() / per_column);
        let mut kept: Vec<usize> = some.chain(low.map(|p| p.0)).chain(high.map(|p| p.0)).collect();
        kept.sort_unstable();
        kept.dedup();
        out.extend(kept.into_iter().filter_map(|i| group.get(i).copied()));
    }
    out
}

fn line_through(points: &[(f64, f64)]) -> String {
    let mut path = String::new();
    for (i, (x, y)) in points.iter().enumerate() {
        path.push_str(&format!("{}{} {}", if i == 0 { 'M' } else { 'L' }, number(*x), number(*y)));
    }
    path
}

fn dots_at(points: &[(f64, f64)]) -> String {
    points.iter().map(|(x, y)| format!("M{} {}h0", number(*x), number(*y))).collect()
}

fn tip(chart: &Chart, series: &Series, point: &Point) -> String {
    let range = point.range.map_or_else(String::new, |(low, high)| {
        format!(" ({} to {})", chart.y.unit.text(low), chart.y.unit.text(high))
    });
    let (x, y) = (chart.x.unit.text(point.x), chart.y.unit.text(point.y));
    format!("{}, {} {x}: {y}{range}", series.name, chart.x.label)
}

/// A mark of an axis: a short number.
pub(super) fn tick(unit: Unit, value: f64) -> String {
    let short = |v: f64, unit: &str| format!("{}{unit}", round(v));
    match unit {
        Unit::Micros if value == 0.0 => "0".to_owned(),
        Unit::Micros if value.abs() < 999.5 => short(value, " us"),
        Unit::Micros if value.abs() < 999_500.0 => short(value / 1e3, " ms"),
        Unit::Micros => short(value / 1e6, " s"),
        Unit::Count if value.abs() >= 1e6 => short(value / 1e6, "M"),
        Unit::Count if value.abs() >= 1000.0 => unit.text(value),
        Unit::Count => short(value, ""),
        Unit::Ratio => short(value, "x"),
        Unit::Share => short(value * 100.0, " %"),
        Unit::Bytes => unit.text(value),
    }
}

/// As many digits as a round number needs.
fn round(v: f64) -> String {
    let text = format!("{v:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn line_class(class: &str, mark: Mark) -> String {
    let model = if mark == Mark::Model { " model" } else { "" };
    format!("line{model} s-{class}")
}

/// What the classes of a colour end with.
pub(super) fn class(colour: Colour) -> &'static str {
    const OTHERS: [&str; 8] = ["o1", "o2", "o3", "o4", "o5", "o6", "o7", "o8"];
    match colour {
        Colour::Direct => "direct",
        Colour::Managed => "managed",
        Colour::First => "first",
        Colour::Other(number) => OTHERS.get(number % OTHERS.len()).copied().unwrap_or("o1"),
    }
}

#[cfg(test)]
#[path = "chart_tests.rs"]
mod tests;
