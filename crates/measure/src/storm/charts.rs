//! The charts: T(N) with the models, measured / model, and when the n-th client was ready.

use super::model::{SideGrowth, Storm};
use crate::report::{Axis, AxisScale, Chart, Colour, Mark, Point, Series, Unit};
use crate::target::Side;

impl Storm {
    pub(super) fn growth_chart(&self) -> Chart {
        let mut series = Vec::new();
        for g in &self.growth {
            let shown = self.growth_of(g.side).is_some_and(|counts| counts.rounds == g.rounds);
            let points: Vec<Point> = self
                .cells
                .iter()
                .filter(|c| c.side == g.side)
                .filter_map(|c| {
                    let spread = c.spread(g.rounds, |r| Some(r.total_us))?;
                    let range = spread.interval().map(|i| (i.low, i.high));
                    Some(Point { x: f64::from(c.clients), y: spread.median(), range })
                })
                .collect();
            if shown {
                series.extend(self.models(g));
            }
            let colour = if shown { colour(g.side) } else { Colour::Other(usize::from(g.side == Side::Managed)) };
            series.push(Series { name: format!("{}, {}", g.side, g.rounds), colour, mark: Mark::Dots, points });
        }
        Chart {
            caption: "Time until N clients were ready".to_owned(),
            x: axis("clients", AxisScale::Logarithmic, Unit::Count),
            y: axis("time", AxisScale::Logarithmic, Unit::Micros),
            series,
        }
    }

    /// Both models as lines.
    fn models(&self, g: &SideGrowth) -> Vec<Series> {
        let Some(growth) = &g.growth else { return Vec::new() };
        let sizes: Vec<f64> = growth.power_law.residuals.iter().map(|r| r.n).collect();
        let (Some(least), Some(most)) = (sizes.first(), sizes.last()) else { return Vec::new() };
        let at = |i: u32| least * (most / least).powf(f64::from(i) / 40.0);
        let line = |name: &str, of: &dyn Fn(f64) -> f64| Series {
            name: format!("{}: {name}", g.side),
            colour: colour(g.side),
            mark: Mark::Model,
            points: (0..=40).map(|i| Point::at(at(i), of(at(i)))).collect(),
        };
        let mut lines = vec![line("a N^b", &|n| growth.power_law.at(n))];
        if !growth.linear_quadratic.residuals.is_empty() {
            lines.push(line("alpha N + beta N^2", &|n| growth.linear_quadratic.at(n)));
        }
        lines
    }

    pub(super) fn residual_chart(&self) -> Chart {
        let mut series = Vec::new();
        for side in self.sides() {
            let Some(growth) = self.growth_of(side).and_then(|g| g.growth.as_ref()) else { continue };
            let points = |residuals: &[crate::stats::Residual]| {
                residuals.iter().map(|r| Point::at(r.n, 1.0 + r.relative)).collect::<Vec<_>>()
            };
            let models = [
                ("a N^b", colour(side), points(&growth.power_law.residuals)),
                (
                    "alpha N + beta N^2",
                    Colour::Other(usize::from(side == Side::Managed)),
                    points(&growth.linear_quadratic.residuals),
                ),
            ];
            for (name, colour, points) in models {
                series.push(Series { name: format!("{side}: {name}"), colour, mark: Mark::LineAndDots, points });
            }
        }
        series.retain(|s| s.points.len() > 2);
        Chart {
            caption: "Measured / model".to_owned(),
            x: axis("clients", AxisScale::Logarithmic, Unit::Count),
            y: axis("measured / model", AxisScale::Linear, Unit::Ratio),
            series,
        }
    }

    /// The last round of the largest number of each side.
    pub(super) fn completion_chart(&self) -> Chart {
        let mut series = Vec::new();
        for side in self.sides() {
            let Some(cell) = self.cells.iter().rev().find(|c| c.side == side && c.rounds.iter().any(|r| r.ready > 0))
            else {
                continue;
            };
            let Some(round) = cell.rounds.iter().rev().find(|r| r.ready > 0) else { continue };
            series.push(Series {
                name: format!("{side}, {} clients, round {}", cell.clients, round.number),
                colour: colour(side),
                mark: Mark::Line,
                points: round.completion.iter().map(|c| Point::at(f64::from(c.n), c.us)).collect(),
            });
        }
        Chart {
            caption: "When the n-th client was ready".to_owned(),
            x: axis("clients that are ready", AxisScale::Linear, Unit::Count),
            y: axis("since the start of the round", AxisScale::Linear, Unit::Micros),
            series,
        }
    }
}

fn colour(side: Side) -> Colour {
    match side {
        Side::Direct => Colour::Direct,
        Side::Managed => Colour::Managed,
    }
}

fn axis(label: &str, scale: AxisScale, unit: Unit) -> Axis {
    Axis { label: label.to_owned(), scale, unit }
}
