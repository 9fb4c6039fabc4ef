//! The few shapes that the plots are made of. Colours are classes of the page's style sheet.

use super::html::Markup;

/// A drawing with a coordinate system of its own, scaled to the width of its place.
#[derive(Debug)]
pub(super) struct Drawing {
    markup: Markup,
    /// Width in its own units, about pixels.
    pub(super) width: f64,
    /// Whether it is the drawing for narrow screens.
    pub(super) narrow: bool,
}

/// The widths of the two drawings of each plot.
const WIDE: f64 = 760.0;
const NARROW: f64 = 350.0;

/// Where a text is fastened.
#[derive(Debug, Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// The wide and the narrow drawing of one plot; the style sheet shows the one that fits. `draw` returns the height.
pub(super) fn both(label: &str, draw: impl Fn(&mut Drawing) -> f64) -> String {
    let one = |width: f64, narrow: bool| {
        let mut drawing = Drawing { markup: Markup::default(), width, narrow };
        let height = draw(&mut drawing);
        let view = format!("0 0 {width:.0} {height:.0}");
        let mut svg = Markup::default();
        svg.open(
            "svg",
            &[
                ("xmlns", "http://www.w3.org/2000/svg"),
                ("class", if narrow { "plot narrow" } else { "plot wide" }),
                ("viewBox", &view),
                ("role", "img"),
                ("aria-label", label),
            ],
        )
        .raw(&drawing.markup.finish());
        svg.finish()
    };
    one(WIDE, false) + &one(NARROW, true)
}

impl Drawing {
    /// A filled rectangle with a text that shows when one points at it.
    pub(super) fn bar(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64, tip: &str) {
        let [x, y, width, height] = [x, y, width.max(0.0), height].map(number);
        self.markup.open(
            "rect",
            &[("class", class), ("x", &x), ("y", &y), ("width", &width), ("height", &height), ("rx", "2")],
        );
        self.markup.element("title", &[], tip).close();
    }

    /// A dot with a text that shows when one points at it.
    pub(super) fn dot(&mut self, class: &str, x: f64, y: f64, radius: f64, tip: &str) {
        let [x, y, radius] = [x, y, radius].map(number);
        self.markup.open("circle", &[("class", class), ("cx", &x), ("cy", &y), ("r", &radius)]);
        self.markup.element("title", &[], tip).close();
    }

    /// A straight line.
    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(number);
        self.markup.empty("line", &[("class", class), ("x1", &x1), ("y1", &y1), ("x2", &x2), ("y2", &y2)]);
    }

    /// A line through points, or dots where every piece of it has no length. Many points cost little here.
    pub(super) fn path(&mut self, class: &str, data: &str, tip: &str) {
        if data.is_empty() {
            return;
        }
        self.markup.open("path", &[("class", class), ("d", data)]);
        self.markup.element("title", &[], tip).close();
    }

    /// A text; y is its base line.
    pub(super) fn text(&mut self, class: &str, anchor: Anchor, x: f64, y: f64, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let [x, y] = [x, y].map(number);
        self.markup.element("text", &[("class", class), ("text-anchor", anchor), ("x", &x), ("y", &y)], text);
    }
}

/// A coordinate.
pub(super) fn number(v: f64) -> String {
    if v.is_finite() { format!("{v:.1}") } else { "0".to_owned() }
}

/// Roughly how wide a text of the plots' size is, in a drawing's units.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * 7.3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::html::check;

    #[test]
    fn both_drawings_are_well_formed() {
        let svg = both("a <label>", |d| {
            d.bar("c1", 0.0, 0.0, f64::NAN, 10.0, "<tip> & more");
            d.text("t", Anchor::Middle, 1.0, 2.0, "\"<>&'");
            d.line("l", (0.0, 0.0), (1.0, 1.0));
            d.dot("c2", 1.0, 1.0, 2.0, "dot");
            100.0
        });
        assert_eq!(check(&svg), Ok(()));
        assert_eq!(svg.matches("<svg").count(), 2);
    }
}
