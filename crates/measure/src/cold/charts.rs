//! The plots of the result.

use super::model::{Cold, Connecting, Event};
use crate::report::{Axis, AxisScale, Chart, Colour, Mark, Point, Series, Unit};
use crate::stats::Distribution;
use crate::target::Side;

/// The different values, ascending.
pub(super) fn distinct(values: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut values: Vec<u32> = values.collect();
    values.sort_unstable();
    values.dedup();
    values
}

fn axis(label: &str, scale: AxisScale, unit: Unit) -> Axis {
    Axis { label: label.to_owned(), scale, unit }
}

fn short(event: Event) -> &'static str {
    match event {
        Event::Restart => "restart",
        Event::RestartWithManager => "restart of both",
        Event::Provoke => "init files removed",
    }
}

/// A side has its colour in its first series; further ones have their own.
fn colour(side: Side, taken: &mut Vec<Side>, other: &mut usize) -> Colour {
    if taken.contains(&side) {
        *other += 1;
        return Colour::Other(*other - 1);
    }
    taken.push(side);
    side.into()
}

fn point(x: f64, d: &Distribution) -> Point {
    Point { x, y: d.median, range: d.median_interval.map(|i| (i.low, i.high)) }
}

/// Connect time by position, with the fewest tables.
pub(super) fn by_position(cold: &Cold) -> Option<Chart> {
    let fewest = cold.cells.iter().map(|c| c.objects).min().flatten();
    let (mut taken, mut other) = (Vec::new(), 0);
    let mut series = Vec::new();
    for Connecting { event, side, .. } in cold.connecting.iter().filter(|c| c.objects == fewest) {
        let rounds = cold.cells.iter().filter(|c| (c.event, c.side, c.objects) == (*event, *side, fewest));
        let samples: Vec<_> = rounds.flat_map(|c| &c.rounds).flat_map(|r| &r.samples).collect();
        let points: Vec<Point> = distinct(samples.iter().map(|s| s.number))
            .into_iter()
            .filter_map(|number| {
                let at: Vec<f64> = samples.iter().filter(|s| s.number == number).map(|s| s.connect_us).collect();
                Some(point(f64::from(number), &Distribution::of(&at)?))
            })
            .collect();
        let name = format!("{side}, {}", short(*event));
        series.push(Series { name, colour: colour(*side, &mut taken, &mut other), mark: Mark::LineAndDots, points });
    }
    (!series.is_empty()).then(|| Chart {
        caption: "Connecting, by position after the event".to_owned(),
        x: axis("connection", AxisScale::Linear, Unit::Count),
        y: axis("median time to connect", AxisScale::Linear, Unit::Micros),
        series,
    })
}

/// First query by the number of tables it touches, direct and managed, over all events.
pub(super) fn by_tables(cold: &Cold) -> Option<Chart> {
    let fewest = cold.cells.iter().map(|c| c.objects).min().flatten();
    let tables = distinct(cold.cells.iter().filter_map(|c| c.tables));
    if tables.len() < 2 {
        return None;
    }
    let (mut taken, mut other) = (Vec::new(), 0);
    let mut series = Vec::new();
    for side in Side::ALL {
        for (again, what) in [(false, "first query"), (true, "sent again")] {
            let points: Vec<Point> = tables
                .iter()
                .filter_map(|tables| {
                    let cells =
                        cold.cells.iter().filter(|c| (c.side, c.objects, c.tables) == (side, fewest, Some(*tables)));
                    let samples = cells.flat_map(|c| &c.rounds).flat_map(|r| &r.samples).filter(|s| s.number >= 3);
                    let times: Vec<f64> = samples.filter_map(|s| if again { s.again_us } else { s.query_us }).collect();
                    Some(point(f64::from(*tables), &Distribution::of(&times)?))
                })
                .collect();
            if !points.is_empty() {
                let name = format!("{side}, {what}");
                let colour = colour(side, &mut taken, &mut other);
                series.push(Series { name, colour, mark: Mark::LineAndDots, points });
            }
        }
    }
    (!series.is_empty()).then(|| Chart {
        caption: "The statement in the third and later connections, by the tables that it touches".to_owned(),
        x: axis("tables touched", AxisScale::Linear, Unit::Count),
        y: axis("median time", AxisScale::Linear, Unit::Micros),
        series,
    })
}

/// First connection by the number of tables in the database.
pub(super) fn by_objects(cold: &Cold) -> Option<Chart> {
    if distinct(cold.connecting.iter().filter_map(|c| c.objects)).len() < 2 {
        return None;
    }
    let (mut taken, mut other) = (Vec::new(), 0);
    let mut series = Vec::new();
    for event in Event::ALL {
        for side in Side::ALL {
            let of_group = cold.connecting.iter().filter(|c| c.event == event && c.side == side);
            let points: Vec<Point> =
                of_group.filter_map(|c| Some(point(f64::from(c.objects?), c.connect.first.as_ref()?))).collect();
            if !points.is_empty() {
                let name = format!("{side}, {}", short(event));
                let colour = colour(side, &mut taken, &mut other);
                series.push(Series { name, colour, mark: Mark::LineAndDots, points });
            }
        }
    }
    Some(Chart {
        caption: "The first connection, by the number of tables in the database".to_owned(),
        x: axis("tables besides those that are touched", AxisScale::Linear, Unit::Count),
        y: axis("median time to connect", AxisScale::Linear, Unit::Micros),
        series,
    })
}
