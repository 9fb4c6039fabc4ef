//! Groups of horizontal bars on a logarithmic axis, with their numbers written beside them and, per group, what
//! the comparison says.

use super::chart::{class, tick};
use super::exhibit::{Bar, BarGroup, Bars};
use super::scale::Scale;
use super::svg::{Anchor, Drawing, both, text_width};

/// The plot.
pub(super) fn bars(plot: &Bars) -> String {
    both(&plot.caption, |d| draw(d, plot))
}

fn draw(d: &mut Drawing, plot: &Bars) -> f64 {
    let all = || plot.groups.iter().flat_map(|g| &g.bars);
    let shown = |bar: &Bar| plot.unit.text(bar.value);
    let height = 20.0;
    let longest = all().map(|b| text_width(&b.label)).fold(0.0, f64::max) + 12.0;
    let label = longest.max(if d.narrow { 78.0 } else { 130.0 }).min(d.width * 0.45);
    let room = all().map(|b| text_width(&shown(b))).fold(0.0, f64::max) + 12.0;
    let scale = Scale::logarithmic(all().map(|b| b.value), label, d.width - room);
    let bottom =
        6.0 + plot.groups.iter().map(|g| title_height(d, g) + (height + 6.0) * g.bars.len() as f64 + 12.0).sum::<f64>();
    let mut free_from = f64::NEG_INFINITY;
    for value in scale.ticks() {
        let (x, text) = (scale.at(value), tick(plot.unit, value));
        // A mark whose name would touch its neighbour's is left out.
        if x - text_width(&text) / 2.0 > free_from {
            d.line("grid", (x, 4.0), (x, bottom));
            d.text("t dim", Anchor::Middle, x, bottom + 14.0, &text);
            free_from = x + text_width(&text) / 2.0 + 6.0;
        }
    }
    let mut y = 6.0;
    for group in &plot.groups {
        d.text("t strong halo", Anchor::Start, 0.0, y + 14.0, &group.title);
        d.text("t strong halo", Anchor::End, d.width, y + title_height(d, group) - 10.0, &group.remark);
        y += title_height(d, group);
        for bar in &group.bars {
            d.text("t", Anchor::End, label - 8.0, y + 14.5, &bar.label);
            if bar.value > 0.0 {
                let tip = format!("{}: {}", bar.label, shown(bar));
                let class = format!("f-{}", class(bar.colour));
                d.bar(&class, label, y, (scale.at(bar.value) - label).max(1.0), height, &tip);
            }
            d.text("t halo", Anchor::Start, scale.at(bar.value) + 6.0, y + 14.5, &shown(bar));
            y += height + 6.0;
        }
        y += 12.0;
    }
    bottom + 24.0
}

/// One line, or two where title and remark do not fit beside each other.
fn title_height(d: &Drawing, group: &BarGroup) -> f64 {
    let needed = text_width(&group.title) + text_width(&group.remark) + 16.0;
    match (group.title.is_empty() && group.remark.is_empty(), needed > d.width) {
        (true, _) => 4.0,
        (false, true) => 42.0,
        (false, false) => 24.0,
    }
}
