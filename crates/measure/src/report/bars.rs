//! Groups of horizontal bars on a logarithmic axis, with their numbers written beside them and, per group, what
//! the comparison says.

use super::svg::{Anchor, Drawing, Scale, both, text_width};

/// Bars that belong together.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Group {
    /// Above the bars.
    pub(super) title: String,
    /// Beside the title: what follows from the bars.
    pub(super) remark: String,
    /// The bars.
    pub(super) bars: Vec<Bar>,
}

/// One bar.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Bar {
    /// Its name.
    pub(super) label: String,
    /// The class of its colour.
    pub(super) class: &'static str,
    /// Its length.
    pub(super) value: f64,
    /// Its value, for people.
    pub(super) shown: String,
}

/// The plot. `ticks` formats a value of the axis.
pub(super) fn bars(name: &str, groups: &[Group], tick: impl Fn(f64) -> String) -> String {
    both(name, |d| draw(d, groups, &tick))
}

fn draw(d: &mut Drawing, groups: &[Group], tick: &impl Fn(f64) -> String) -> f64 {
    let all = || groups.iter().flat_map(|g| &g.bars);
    let (label, height) = (if d.narrow { 78.0 } else { 130.0 }, 20.0);
    let room = all().map(|b| text_width(&b.shown)).fold(0.0, f64::max) + 12.0;
    let scale = Scale::logarithmic(all().map(|b| b.value), label, d.width - room);
    let bottom =
        6.0 + groups.iter().map(|g| title_height(d, g) + (height + 6.0) * g.bars.len() as f64 + 12.0).sum::<f64>();
    let mut free_from = f64::NEG_INFINITY;
    for value in scale.ticks() {
        let (x, text) = (scale.at(value), tick(value));
        d.line("grid", (x, 4.0), (x, bottom));
        // A label that would touch its neighbour is left out.
        if x - text_width(&text) / 2.0 > free_from {
            d.text("t dim", Anchor::Middle, x, bottom + 14.0, &text);
            free_from = x + text_width(&text) / 2.0 + 6.0;
        }
    }
    let mut y = 6.0;
    for group in groups {
        d.text("t strong halo", Anchor::Start, 0.0, y + 14.0, &group.title);
        d.text("t strong halo", Anchor::End, d.width, y + title_height(d, group) - 10.0, &group.remark);
        y += title_height(d, group);
        for bar in &group.bars {
            d.text("t", Anchor::End, label - 8.0, y + 14.5, &bar.label);
            let tip = format!("{}: {}", bar.label, bar.shown);
            d.bar(bar.class, label, y, (scale.at(bar.value) - label).max(1.0), height, &tip);
            d.text("t halo", Anchor::Start, scale.at(bar.value) + 6.0, y + 14.5, &bar.shown);
            y += height + 6.0;
        }
        y += 12.0;
    }
    bottom + 24.0
}

/// One line, or two where title and remark do not fit beside each other.
fn title_height(d: &Drawing, group: &Group) -> f64 {
    let needed = text_width(&group.title) + text_width(&group.remark) + 16.0;
    if needed > d.width { 42.0 } else { 24.0 }
}
