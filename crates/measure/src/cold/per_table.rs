//! What each further table costs that a statement touches.

use serde::{Deserialize, Serialize};

use super::model::{Cell, Event, Group, Round, members};
use crate::stats::{Interval, median_interval, quantile};
use crate::target::Side;

/// Which run of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Run {
    /// The first one of the first connection after the event.
    FirstOfFirst,
    /// The first one of a later connection.
    FirstOfLater,
    /// The second one of a later connection.
    AgainOfLater,
}

impl Run {
    fn of(self, round: &Round) -> Option<f64> {
        match self {
            Self::FirstOfFirst => round.at(1, &|s| s.query_us),
            Self::FirstOfLater => round.later(&|s| s.query_us),
            Self::AgainOfLater => round.later(&|s| s.again_us),
        }
    }
}

/// What each further table of a statement costs: the slope of a straight line through its times, over the number of tables.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PerTable {
    /// What happened before; absent for later connections, on which it has no bearing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<Event>,
    /// How the connections reached the server.
    pub side: Side,
    /// How many tables there were besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<u32>,
    /// Which run.
    pub run: Run,
    /// Median of the rounds' slopes.
    pub us: f64,
    /// Its 95 % interval, from three rounds on.
    #[serde(rename = "ci95_us", default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
}

/// Of the first connection for each event, of later ones over all events.
pub(super) fn per_tables(cells: &[Cell], groups: &[Group]) -> Vec<PerTable> {
    let mut ways: Vec<(Side, Option<u32>)> = groups.iter().map(|(_, side, objects)| (*side, *objects)).collect();
    ways.sort_unstable();
    ways.dedup();
    let mut all = Vec::new();
    for (side, objects) in ways {
        let events: Vec<Event> =
            groups.iter().filter(|g| (g.1, g.2) == (side, objects)).map(|(event, ..)| *event).collect();
        let of = |events: &[Event], run| -> Vec<f64> {
            events.iter().flat_map(|event| slopes(cells, (*event, side, objects), run)).collect()
        };
        for event in &events {
            let slopes = of(&[*event], Run::FirstOfFirst);
            all.extend(per_table(slopes, Some(*event), side, objects, Run::FirstOfFirst));
        }
        for run in [Run::FirstOfLater, Run::AgainOfLater] {
            all.extend(per_table(of(&events, run), None, side, objects, run));
        }
    }
    all
}

fn per_table(
    mut slopes: Vec<f64>,
    event: Option<Event>,
    side: Side,
    objects: Option<u32>,
    run: Run,
) -> Option<PerTable> {
    slopes.sort_unstable_by(f64::total_cmp);
    let interval = median_interval(&slopes);
    (!slopes.is_empty()).then(|| PerTable { event, side, objects, run, us: quantile(&slopes, 0.5), interval })
}

/// One for each round.
fn slopes(cells: &[Cell], group: Group, run: Run) -> Vec<f64> {
    let cells: Vec<&Cell> = members(cells, group).filter(|c| c.tables.is_some()).collect();
    let last = cells.iter().flat_map(|c| &c.rounds).map(|r| r.number).max().unwrap_or(0);
    (1..=last)
        .filter_map(|number| {
            let points: Vec<(f64, f64)> = cells
                .iter()
                .filter_map(|c| {
                    let round = c.rounds.iter().find(|r| r.number == number)?;
                    Some((f64::from(c.tables?), run.of(round)?))
                })
                .collect();
            slope(&points)
        })
        .collect()
}

/// Least squares; `None` unless there are two different x.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let n = points.len() as f64;
    let mean_x = points.iter().map(|p| p.0).sum::<f64>() / n;
    let mean_y = points.iter().map(|p| p.1).sum::<f64>() / n;
    let square: f64 = points.iter().map(|p| (p.0 - mean_x).powi(2)).sum();
    (square > 0.0).then(|| points.iter().map(|p| (p.0 - mean_x) * (p.1 - mean_y)).sum::<f64>() / square)
}
