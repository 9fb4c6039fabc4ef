//! Latency by position: each connection of a series as a dot, so that the first one is seen to stand out, or not.

use super::model::ConnectionSeries;
use super::svg::{Anchor, Drawing, Scale, both};
use super::waterfall::side;
use crate::stats::micros;
use crate::target::Side;

/// The plot; empty if there is nothing to plot.
pub(super) fn scatter(series: &[ConnectionSeries]) -> String {
    let longest = series.iter().map(|s| s.samples.len()).max().unwrap_or(0);
    if longest == 0 {
        return String::new();
    }
    both("Time to connect, by the position of the connection in its series", |d| draw(d, series, longest))
}

fn draw(d: &mut Drawing, series: &[ConnectionSeries], longest: usize) -> f64 {
    let (left, top, bottom) = (58.0, 26.0, if d.narrow { 250.0 } else { 290.0 });
    let values = series.iter().flat_map(|s| &s.samples).map(|s| s.connect_us);
    let y = Scale::logarithmic(values, bottom, top);
    let step = (d.width - left - 20.0) / (longest.max(2) - 1) as f64;
    let x = |number: u32| left + 8.0 + f64::from(number.saturating_sub(1)) * step;
    for tick in y.ticks() {
        d.line("grid", (left, y.at(tick)), (d.width, y.at(tick)));
        d.text("t dim", Anchor::End, left - 6.0, y.at(tick) + 4.0, &axis(tick));
    }
    let every = (longest / if d.narrow { 5 } else { 10 }).max(1);
    for number in (0..longest).step_by(every).map(|n| u32::try_from(n + 1).unwrap_or(u32::MAX)) {
        d.text("t dim", Anchor::Middle, x(number), bottom + 16.0, &number.to_string());
    }
    d.text("t dim", Anchor::Middle, (left + d.width) / 2.0, bottom + 34.0, "connection number");
    let mut legend = left;
    for one in series {
        let class = dots(one.side);
        for s in &one.samples {
            let tip = format!("{} connection {}: {}", side(one.side), s.number, micros(s.connect_us));
            let radius = if s.number == 1 { 5.5 } else { 3.0 };
            d.dot(class, x(s.number), y.at(s.connect_us), radius, &tip);
        }
        d.dot(class, legend + 5.0, 10.0, 4.0, side(one.side));
        d.text("t", Anchor::Start, legend + 15.0, 14.0, side(one.side));
        legend += 100.0;
    }
    bottom + 42.0
}

fn dots(side: Side) -> &'static str {
    match side {
        Side::Direct => "f-direct dot",
        Side::Managed => "f-managed dot",
    }
}

/// A power of ten of microseconds.
fn axis(us: f64) -> String {
    if us < 1e3 {
        format!("{us} us")
    } else if us < 1e6 {
        format!("{} ms", us / 1e3)
    } else {
        format!("{} s", us / 1e6)
    }
}
