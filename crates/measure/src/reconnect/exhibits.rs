//! What the result shows, for all formats alike.

use super::csv::csv;
use super::model::{Cell, FirstConnection, Mode, Reconnect, Round, Settings};
use crate::failure::FailureCount;
use crate::report::{
    Axis, AxisScale, Bar, BarGroup, Bars, Chart, Colour, Exhibit, Experiment, Finding, Mark, Measure, Point,
};
use crate::report::{Series, Table, Unit};
use crate::stats::{Distribution, Ratio, count, micros, ratio_text};
use crate::target::Side;

/// A number of a combination.
type OfCell = fn(&Cell) -> f64;

/// A time of a first connection.
type OfFirst = fn(&FirstConnection) -> Option<f64>;

impl Experiment for Reconnect {
    fn title(&self) -> String {
        "Keeping a connection, and one per transaction".to_owned()
    }

    fn method(&self) -> String {
        let s = &self.settings;
        let length = match (s.seconds, s.transactions_per_client) {
            (Some(seconds), _) => format!("{seconds} s"),
            (None, Some(n)) => format!("{n} transactions per client"),
            (None, None) => "unlimited length".to_owned(),
        };
        let at_once =
            s.connecting_at_once.map_or_else(String::new, |n| format!("; at most {n} connecting at the same time"));
        format!(
            "{}; {} protocol; {} client{}; {} alternating round{} of {length}; {}{at_once}",
            s.script,
            s.protocol,
            s.clients,
            plural(s.clients),
            s.rounds,
            plural(s.rounds),
            how(s),
        )
    }

    fn findings(&self) -> Vec<Finding> {
        crate::report::reconnect_findings(self)
    }

    fn exhibits(&self) -> Vec<Exhibit> {
        let groups = Mode::ALL.into_iter().filter_map(|mode| group(self, mode)).collect();
        let caption = "Transactions per second, connecting included; logarithmic".to_owned();
        let mut exhibits =
            vec![Exhibit::Bars(Bars { caption, unit: Unit::Count, groups }), Exhibit::Table(throughput(self))];
        exhibits.extend(limited(self).map(Exhibit::Table));
        exhibits.extend(distribution_chart(self).map(Exhibit::Chart));
        exhibits.push(Exhibit::Table(times(self)));
        exhibits
    }

    fn failures(&self) -> Vec<(String, FailureCount)> {
        let of = |c: &Cell| format!("{} {}", c.side, c.mode);
        self.cells.iter().flat_map(|c| c.failures.iter().map(move |f| (of(c), f.clone()))).collect()
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    fn interrupted(&self) -> bool {
        self.interrupted
    }

    fn measures(&self) -> Vec<Measure> {
        let s = &self.settings;
        let with = format!("{} client{}, {}, {}", s.clients, plural(s.clients), s.protocol, s.script);
        let mut all = Vec::new();
        for cell in &self.cells {
            let rounds = |of: fn(&Round) -> f64| cell.rounds.iter().map(of).collect::<Vec<f64>>();
            let first = |of: OfFirst| cell.rounds.iter().filter_map(|r| of(r.first.as_ref()?)).collect::<Vec<f64>>();
            let name = |what: &str| format!("{}, {}, {with}: {what}", cell.mode, cell.side);
            all.push(Measure::rates(name("tps including connecting"), rounds(|r| r.tps_including_connecting)));
            all.push(Measure::rates(name("tps excluding connecting"), rounds(|r| r.tps_excluding_connecting)));
            all.push(Measure::times(name("average latency of a transaction"), rounds(|r| r.latency_average_us)));
            all.push(Measure::times(name("first connection"), first(|f| Some(f.connect_us))));
        }
        all.retain(|m| !m.samples.is_empty());
        all
    }

    fn csv(&self) -> String {
        csv(self)
    }
}

/// Closed loop or open, and the limit.
fn how(s: &Settings) -> String {
    let mut how = match s.rate_per_second {
        None => "closed loop".to_owned(),
        Some(rate) => format!("open loop, {} transactions per second", count(rate)),
    };
    if let Some(limit) = s.latency_limit_us {
        how.push_str(&format!(", latency limit {}", micros(limit)));
    }
    how
}

fn group(result: &Reconnect, mode: Mode) -> Option<BarGroup> {
    let bars: Vec<Bar> = Side::ALL
        .into_iter()
        .filter_map(|side| result.cell(mode, side))
        .filter(|cell| cell.tps_including() > 0.0)
        .map(|cell| Bar { label: cell.side.to_string(), colour: cell.side.into(), value: cell.tps_including() })
        .collect();
    let remark = result.ratio(mode).map_or_else(String::new, |r| match r.interval {
        Some(i) => format!("managed {} ({} to {})", ratio_text(r.value), ratio_text(i.low), ratio_text(i.high)),
        None => format!("managed {}", ratio_text(r.value)),
    });
    (!bars.is_empty()).then(|| BarGroup { title: heading(mode).to_owned(), remark, bars })
}

fn throughput(result: &Reconnect) -> Table {
    let both = result.ratios.iter().any(|r| r.tps_including_connecting.is_some());
    let mut columns: Vec<String> = vec!["tps, geometric means over the rounds".to_owned()];
    let sides: Vec<Side> = Side::ALL.into_iter().filter(|s| result.cells.iter().any(|c| c.side == *s)).collect();
    columns.extend(sides.iter().map(ToString::to_string));
    if both {
        columns.extend(["managed/direct", "95 % interval"].map(str::to_owned));
    }
    let mut rows = Vec::new();
    for mode in Mode::ALL {
        let ratios = result.ratios.iter().find(|r| r.mode == mode);
        let lines: [(&str, OfCell, Option<Ratio>); 2] = [
            ("including connecting", Cell::tps_including, ratios.and_then(|r| r.tps_including_connecting)),
            ("excluding connecting", Cell::tps_excluding, ratios.and_then(|r| r.tps_excluding_connecting)),
        ];
        if !result.cells.iter().any(|c| c.mode == mode) {
            continue;
        }
        for (name, of, ratio) in lines {
            let mut row = vec![format!("{}, {name}", heading(mode))];
            let shown = |side: &Side| result.cell(mode, *side).map_or_else(dash, |cell| count(of(cell)));
            row.extend(sides.iter().map(shown));
            if both {
                row.push(ratio.map_or_else(dash, |r| ratio_text(r.value)));
                row.push(match ratio.and_then(|r| r.interval) {
                    Some(i) => format!("{} to {}", ratio_text(i.low), ratio_text(i.high)),
                    None => "one round: none".to_owned(),
                });
            }
            rows.push(row);
        }
    }
    Table { caption: "Transactions per second".to_owned(), columns, rows, remark: String::new() }
}

fn times(result: &Reconnect) -> Table {
    let columns = ["", "first", "median", "average", "stddev", "p95", "p99", "max", "n"].map(str::to_owned).to_vec();
    let mut rows = Vec::new();
    for cell in &result.cells {
        let phases: [(&str, Option<&Distribution>, OfFirst); 5] = [
            ("response", cell.response.as_ref(), |_| None),
            ("lag", cell.lag.as_ref(), |_| None),
            ("connect", cell.connect.as_ref(), |f| Some(f.connect_us)),
            ("transaction", cell.transaction.as_ref(), |f| f.transaction_us),
            ("disconnect", cell.disconnect.as_ref(), |f| Some(f.disconnect_us)),
        ];
        for (name, distribution, first) in phases {
            let Some(d) = distribution else { continue };
            let mut row = vec![format!("{}, {}: {name}", cell.mode, cell.side), micros(cell.first(first))];
            row.extend([d.median, d.mean, d.stddev, d.p95, d.p99, d.max].map(micros));
            row.push(count(d.n as f64));
            rows.push(row);
        }
    }
    let remark = "first: of the connection made alone before each round, the median of the rounds; it is in none of the \
                  other columns. A disconnect is over when our side has closed, unless the backend's end was waited for."
        .to_owned();
    Table { caption: "Times".to_owned(), columns, rows, remark }
}

/// Transactions that the limit has something to say of.
fn limited(result: &Reconnect) -> Option<Table> {
    result.settings.latency_limit_us?;
    let columns = ["", "skipped, too late to begin", "over the latency limit"].map(str::to_owned).to_vec();
    let sum = |c: &Cell, of: fn(&Round) -> u64| count(c.rounds.iter().map(of).sum::<u64>() as f64);
    let row = |c: &Cell| {
        let name = format!("{}, {}", c.mode, c.side);
        vec![name, sum(c, |r| r.skipped_transactions), sum(c, |r| r.late_transactions)]
    };
    let rows = result.cells.iter().map(row).collect();
    Some(Table { caption: "The latency limit".to_owned(), columns, rows, remark: String::new() })
}

/// The share of times at or below each value, where a curve says more than a median.
fn distribution_chart(result: &Reconnect) -> Option<Chart> {
    let mut series = Vec::new();
    for cell in &result.cells {
        let colour = match cell.mode {
            Mode::Static => cell.side.into(),
            Mode::Reconnect if cell.side == Side::Direct => Colour::First,
            Mode::Reconnect => Colour::Other(0),
        };
        let total = cell.histograms.transaction.iter().map(|b| b.count).sum::<u64>() as f64;
        let mut below = 0;
        let points = cell.histograms.transaction.iter().map(|b| {
            below += b.count;
            Point::at(b.up_to_us, below as f64 / total)
        });
        // From nothing on, where the first bucket begins.
        let start = cell.histograms.transaction.first().map(|b| Point::at(b.above_us, 0.0));
        let points: Vec<Point> = start.into_iter().chain(points).collect();
        series.push(Series { name: format!("{}, {}", cell.mode, cell.side), colour, mark: Mark::Line, points });
    }
    let axis = |label: &str, scale, unit| Axis { label: label.to_owned(), scale, unit };
    series.iter().any(|s| !s.points.is_empty()).then(|| Chart {
        caption: "Transactions that took no longer, as a share of all".to_owned(),
        x: axis("time of a transaction, logarithmic", AxisScale::Logarithmic, Unit::Micros),
        y: axis("share of the transactions", AxisScale::Linear, Unit::Share),
        series,
    })
}

fn heading(mode: Mode) -> &'static str {
    match mode {
        Mode::Static => "static connections",
        Mode::Reconnect => "a connection per transaction",
    }
}

fn plural(n: u32) -> &'static str {
    if n == 1 { "" } else { "s" }
}

fn dash() -> String {
    "-".to_owned()
}
