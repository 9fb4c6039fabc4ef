//! What the result shows, for all formats alike.

use super::findings::findings;
use super::model::{Cell, Tables};
use crate::failure::FailureCount;
use crate::reconnect::Mode;
use crate::report::{
    Axis, AxisScale, Chart, Colour, Exhibit, Experiment, Finding, Mark, Measure, Point, Series, Table, Unit, field,
};
use crate::stats::{Ratio, count, micros};

impl Experiment for Tables {
    fn title(&self) -> String {
        "Tables in use".to_owned()
    }

    fn method(&self) -> String {
        let s = &self.settings;
        format!(
            "A transaction is one SELECT over each of a number of empty tables, each a statement of its own in the simple protocol; \
             {} client{}, closed loop; {} run{} of {} s, the targets in turn and the order reversed in every second run. Before \
             each run one connection alone makes a few transactions",
            s.clients,
            plural(s.clients),
            s.rounds,
            plural(s.rounds),
            s.seconds,
        )
    }

    fn findings(&self) -> Vec<Finding> {
        findings(self)
    }

    fn exhibits(&self) -> Vec<Exhibit> {
        // The page begins with the plots; text has none.
        let mut exhibits = Vec::new();
        for mode in self.modes() {
            exhibits.extend(speed(self, mode).map(Exhibit::Chart));
            exhibits.extend(quotient(self, mode).map(Exhibit::Chart));
        }
        exhibits.extend(first_touch(self).map(Exhibit::Chart));
        exhibits.extend(self.modes().into_iter().map(|mode| Exhibit::Table(throughput(self, mode))));
        exhibits.push(Exhibit::Table(alone(self)));
        exhibits.extend(self.modes().into_iter().map(|mode| Exhibit::Table(catalog(self, mode))));
        exhibits
    }

    fn failures(&self) -> Vec<(String, FailureCount)> {
        let whose = |c: &Cell| format!("{}, {}, {}", c.target, c.mode, of_tables(c.tables));
        self.cells.iter().flat_map(|c| c.failures.iter().map(move |f| (whose(c), f.clone()))).collect()
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    fn interrupted(&self) -> bool {
        self.interrupted
    }

    fn measures(&self) -> Vec<Measure> {
        let clients = self.settings.clients;
        let mut all = Vec::new();
        for cell in &self.cells {
            let whose = format!("{}, {}, {}", cell.target, words(cell.mode), of_tables(cell.tables));
            let alone = |of: fn(&super::Alone) -> Option<f64>| -> Vec<f64> {
                cell.rounds.iter().filter_map(|r| of(r.alone.as_ref()?)).collect()
            };
            let tps = cell.rounds.iter().map(|r| r.tps).collect();
            all.push(Measure::rates(format!("{whose}, {clients} client{}: tps", plural(clients)), tps));
            all.push(Measure::times(format!("{whose}: first transaction alone"), alone(|a| a.first_us)));
            all.push(Measure::times(format!("{whose}: later transactions alone"), alone(|a| a.later_us)));
        }
        all.retain(|m| !m.samples.is_empty());
        all
    }

    fn csv(&self) -> String {
        csv(self)
    }
}

impl Tables {
    pub(super) fn modes(&self) -> Vec<Mode> {
        Mode::ALL.into_iter().filter(|mode| self.cells.iter().any(|c| c.mode == *mode)).collect()
    }

    fn colour(&self, target: &str) -> Colour {
        match target {
            "direct" => Colour::Direct,
            "managed" => Colour::Managed,
            other => Colour::Other(self.settings.targets.iter().position(|t| t == other).unwrap_or(0)),
        }
    }
}

fn plural(n: u32) -> &'static str {
    if n == 1 { "" } else { "s" }
}

pub(super) fn of_tables(n: u32) -> String {
    format!("{} table{}", count(f64::from(n)), plural(n))
}

pub(super) fn words(mode: Mode) -> &'static str {
    match mode {
        Mode::Static => "connections that are kept",
        Mode::Reconnect => "a new connection for each transaction",
    }
}

fn ratio(ratio: Option<Ratio>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |r| r.text())
}

fn dash_or(value: Option<f64>, write: fn(f64) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), write)
}

fn throughput(result: &Tables, mode: Mode) -> Table {
    let targets = &result.settings.targets;
    let mut columns = vec!["tables".to_owned()];
    columns.extend(targets.iter().cloned());
    if let Some((base, others)) = targets.split_first() {
        columns.extend(others.iter().map(|other| format!("{other}/{base} (95 %)")));
    }
    let rows = result
        .settings
        .tables
        .iter()
        .filter(|n| result.cells.iter().any(|c| c.mode == mode && c.tables == **n))
        .map(|n| {
            let mut row = vec![count(f64::from(*n))];
            row.extend(targets.iter().map(|t| dash_or(result.cell(*n, mode, t).map(Cell::tps), count)));
            row.extend(targets.iter().skip(1).map(|t| ratio(result.comparison(*n, mode, t))));
            row
        })
        .collect();
    Table {
        caption: format!("Transactions per second with {}, connecting included", words(mode)),
        columns,
        rows,
        remark: "Geometric means over the runs; quotients of the runs of the same number.".to_owned(),
    }
}

fn alone(result: &Tables) -> Table {
    let columns =
        ["tables, target", "connect", "first", "second", "later", "first/later (95 %)", "physical connection"];
    let mode = result.modes().last().copied().unwrap_or(Mode::Reconnect);
    let rows = result
        .cells
        .iter()
        .filter(|c| c.mode == mode)
        .map(|c| {
            let fresh = c.rounds.iter().filter_map(|r| r.alone.as_ref()).all(|a| a.fresh);
            vec![
                format!("{}, {}", count(f64::from(c.tables)), c.target),
                dash_or(c.alone(|a| Some(a.connect_us)), micros),
                dash_or(c.alone(|a| a.first_us), micros),
                dash_or(c.alone(|a| a.second_us), micros),
                dash_or(c.alone(|a| a.later_us), micros),
                ratio(c.first_to_later()),
                if fresh { "new" } else { "not known" }.to_owned(),
            ]
        })
        .collect();
    Table {
        caption: "One connection alone: its first, second and later transactions".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows,
        remark: "Medians over the runs; \"later\" is the median from the third on. A new physical connection touches all the tables \
                 for the first time; whether one behind somebody else's proxy is new is not known."
            .to_owned(),
    }
}

fn catalog(result: &Tables, mode: Mode) -> Table {
    let amount = |value: Option<f64>| value.map_or_else(|| "not known".to_owned(), |v| format!("{v:.3}"));
    let rows = result
        .cells
        .iter()
        .filter(|c| c.mode == mode)
        .map(|c| {
            vec![
                format!("{}, {}", count(f64::from(c.tables)), c.target),
                amount(c.catalog(|w| w.queries_per_statement)),
                amount(c.catalog(|w| w.scans_per_statement)),
            ]
        })
        .collect();
    Table {
        caption: format!("What the server did with its catalogs for each statement of a client, with {}", words(mode)),
        columns: ["tables, target", "catalog queries", "catalog scans"].map(str::to_owned).to_vec(),
        rows,
        remark: "Queries: calls of statements that name a catalog, in pg_stat_statements, whoever sent them. Scans: from \
                 pg_stat_sys_tables; backends scan catalogs to fill their private caches, and report it up to a second late."
            .to_owned(),
    }
}

fn axis(label: &str, scale: AxisScale, unit: Unit) -> Axis {
    Axis { label: label.to_owned(), scale, unit }
}

fn across() -> Axis {
    axis("tables", AxisScale::Logarithmic, Unit::Count)
}

fn speed(result: &Tables, mode: Mode) -> Option<Chart> {
    let series: Vec<Series> = result
        .settings
        .targets
        .iter()
        .map(|target| {
            let cells = result.cells.iter().filter(|c| c.mode == mode && c.target == *target && c.tps() > 0.0);
            let points = cells.map(|c| {
                let range = c
                    .rounds
                    .iter()
                    .map(|r| r.tps)
                    .fold((f64::INFINITY, 0.0_f64), |(low, high), v| (low.min(v), high.max(v)));
                Point { x: f64::from(c.tables), y: c.tps(), range: (c.rounds.len() > 1).then_some(range) }
            });
            Series {
                name: target.clone(),
                colour: result.colour(target),
                mark: Mark::LineAndDots,
                points: points.collect(),
            }
        })
        .filter(|s| !s.points.is_empty())
        .collect();
    (!series.is_empty()).then(|| Chart {
        caption: format!("Transactions per second with {}; the range is that of the runs", words(mode)),
        x: across(),
        y: axis("transactions per second", AxisScale::Logarithmic, Unit::Count),
        series,
    })
}

fn quotient(result: &Tables, mode: Mode) -> Option<Chart> {
    let (base, others) = result.settings.targets.split_first()?;
    let series: Vec<Series> =
        others
            .iter()
            .map(|target| {
                let points = result.comparisons.iter().filter(|c| c.mode == mode && c.target == *target).map(|c| {
                    Point { x: f64::from(c.tables), y: c.tps.value, range: c.tps.interval.map(|i| (i.low, i.high)) }
                });
                Series {
                    name: format!("{target}/{base}"),
                    colour: result.colour(target),
                    mark: Mark::LineAndDots,
                    points: points.collect(),
                }
            })
            .filter(|s| !s.points.is_empty())
            .collect();
    (!series.is_empty()).then(|| Chart {
        caption: format!("Transactions per second against {base}, with {}", words(mode)),
        x: across(),
        y: axis("quotient", AxisScale::Linear, Unit::Ratio),
        series,
    })
}

/// First and later transactions of a connection alone.
fn first_touch(result: &Tables) -> Option<Chart> {
    let mode = result.modes().last().copied()?;
    let mut series = Vec::new();
    for (at, target) in result.settings.targets.iter().enumerate() {
        for (later, what) in [(false, "first"), (true, "later")] {
            let cells = result.cells.iter().filter(|c| c.mode == mode && c.target == *target);
            let points: Vec<Point> = cells
                .filter_map(|c| {
                    let y = c.alone(|a| if later { a.later_us } else { a.first_us })?;
                    Some(Point::at(f64::from(c.tables), y))
                })
                .collect();
            if !points.is_empty() {
                let further = Colour::Other(result.settings.targets.len() + at);
                let colour = if later { further } else { result.colour(target) };
                series.push(Series { name: format!("{target}, {what}"), colour, mark: Mark::LineAndDots, points });
            }
        }
    }
    (!series.is_empty()).then(|| Chart {
        caption: "One connection alone: its first transaction and later ones".to_owned(),
        x: across(),
        y: axis("median time", AxisScale::Logarithmic, Unit::Micros),
        series,
    })
}

/// A line per run.
fn csv(result: &Tables) -> String {
    let mut out =
        "mode,tables,target,run,transactions,failed_transactions,connections,failed_connections,wall_seconds,tps,\
                   latency_average_us,alone_fresh,alone_connect_us,alone_first_us,alone_second_us,alone_later_us,\
                   catalog_queries_per_statement,catalog_scans_per_statement\n"
            .to_owned();
    let us = |value: Option<f64>| value.map_or_else(String::new, |v| format!("{v:.1}"));
    let amount = |value: Option<f64>| value.map_or_else(String::new, |v| format!("{v:.6}"));
    for (cell, r) in result.cells.iter().flat_map(|c| c.rounds.iter().map(move |r| (c, r))) {
        let alone = |of: fn(&super::Alone) -> Option<f64>| us(r.alone.as_ref().and_then(of));
        let line = [
            cell.mode.to_string(),
            cell.tables.to_string(),
            field(&cell.target),
            r.number.to_string(),
            r.transactions.to_string(),
            r.failed_transactions.to_string(),
            r.connections.to_string(),
            r.failed_connections.to_string(),
            format!("{:.6}", r.wall_seconds),
            format!("{:.3}", r.tps),
            us(Some(r.latency_average_us)),
            r.alone.as_ref().map_or_else(String::new, |a| a.fresh.to_string()),
            alone(|a| Some(a.connect_us)),
            alone(|a| a.first_us),
            alone(|a| a.second_us),
            alone(|a| a.later_us),
            amount(r.catalog.queries_per_statement),
            amount(r.catalog.scans_per_statement),
        ];
        out.push_str(&line.join(","));
        out.push('\n');
    }
    out
}
