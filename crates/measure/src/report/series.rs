//! The two plain series, connections one after the other and runs of a statement, as experiments that show themselves.

use super::exhibit::{Axis, AxisScale, Bar, BarGroup, Bars, Chart, Colour, Exhibit, Experiment, Mark};
use super::exhibit::{Phases, Point, Series, Table, Unit};
use super::findings::{connection_findings, protocol_findings};
use super::measures::{Measure, field};
use super::model::{ConnectionSample, ConnectionSeries, Finding, PhaseTime, ProtocolSeries};
use crate::failure::FailureCount;
use crate::stats::{Distribution, micros, quantile, ratio_text};

impl Experiment for Vec<ConnectionSeries> {
    fn title(&self) -> String {
        "First and later connections".to_owned()
    }

    fn method(&self) -> String {
        let mut sentences: Vec<String> = Vec::new();
        for s in self.iter().filter(|s| !s.samples.is_empty()) {
            let (side, n) = (s.side, s.samples.len());
            sentences
                .push(format!("{side}: {n} connections one after the other, the first one right after {}", s.after));
        }
        let statement = self.first().map_or("", |s| s.statement.as_str());
        format!("{}. Each runs: {statement}", sentences.join("; "))
    }

    fn findings(&self) -> Vec<Finding> {
        connection_findings(self)
    }

    fn exhibits(&self) -> Vec<Exhibit> {
        vec![Exhibit::Phases(phases(self)), Exhibit::Chart(by_position(self)), Exhibit::Table(connection_table(self))]
    }

    fn failures(&self) -> Vec<(String, FailureCount)> {
        self.iter().flat_map(|s| s.failures.iter().map(|f| (s.side.to_string(), f.clone()))).collect()
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    fn interrupted(&self) -> bool {
        false
    }

    fn measures(&self) -> Vec<Measure> {
        let mut all = Vec::new();
        for s in self {
            let side = s.side;
            let pick = |of: &dyn Fn(&ConnectionSample) -> Option<f64>, wanted: fn(u32) -> bool| {
                s.samples.iter().filter(|c| wanted(c.number)).filter_map(of).collect::<Vec<f64>>()
            };
            let connect = |c: &ConnectionSample| Some(c.connect_us);
            let statement = |c: &ConnectionSample| c.statement_us;
            all.push(Measure::times(format!("{side}, first connection"), pick(&connect, |n| n == 1)));
            all.push(Measure::times(
                format!("{side}, first statement of the first connection"),
                pick(&statement, |n| n == 1),
            ));
            all.push(Measure::times(format!("{side}, later connections"), pick(&connect, |n| n > 2)));
            all.push(Measure::times(
                format!("{side}, first statement of later connections"),
                pick(&statement, |n| n > 2),
            ));
        }
        all.retain(|m| !m.samples.is_empty());
        all
    }

    fn csv(&self) -> String {
        let mut out = "side,connection,phase,us\n".to_owned();
        for s in self {
            for sample in &s.samples {
                let mut line = |phase: &str, us: f64| {
                    out.push_str(&format!("{},{},{},{us:.3}\n", s.side, sample.number, field(phase)));
                };
                sample.phases.iter().for_each(|p| line(&p.phase, p.us));
                line("create_connection", sample.connect_us);
                sample.statement_us.iter().for_each(|us| line("first statement", *us));
            }
        }
        out
    }
}

fn phases(all: &[ConnectionSeries]) -> Phases {
    Phases {
        caption: "Where the time of a connection goes".to_owned(),
        remark:
            "The first connection as it was, and the medians of each phase over the third and later ones. A sum of \
                 medians is not the median of the sums, so it can differ a little from the table below."
                .to_owned(),
        rows: all.iter().flat_map(rows).collect(),
    }
}

/// The bars of a series: its first connection, and the medians of each phase over the third and later ones.
fn rows(series: &ConnectionSeries) -> Vec<(String, Vec<PhaseTime>)> {
    let mut rows = Vec::new();
    if let Some(first) = series.samples.first() {
        rows.push((format!("{}, first", series.side), pieces(std::slice::from_ref(first))));
    }
    if let Some(later) = series.samples.get(2..).filter(|s| !s.is_empty()) {
        rows.push((format!("{}, later", series.side), pieces(later)));
    }
    rows
}

/// The phases in the order in which they first appear, then the statement, each with its median.
fn pieces(samples: &[ConnectionSample]) -> Vec<PhaseTime> {
    let mut names: Vec<&str> = Vec::new();
    for phase in samples.iter().flat_map(|s| &s.phases) {
        if !names.contains(&phase.phase.as_str()) {
            names.push(&phase.phase);
        }
    }
    let mut pieces: Vec<PhaseTime> = names
        .into_iter()
        .map(|name| {
            let of = |s: &ConnectionSample| s.phases.iter().filter(|p| p.phase == name).map(|p| p.us).sum();
            PhaseTime { phase: name.to_owned(), us: median(samples.iter().map(of).collect()) }
        })
        .collect();
    let statements: Vec<f64> = samples.iter().filter_map(|s| s.statement_us).collect();
    if !statements.is_empty() {
        pieces.push(PhaseTime { phase: "first statement".to_owned(), us: median(statements) });
    }
    pieces
}

/// Latency by position: the first connection is seen to stand out, or not.
fn by_position(all: &[ConnectionSeries]) -> Chart {
    let axis = |label: &str, scale, unit| Axis { label: label.to_owned(), scale, unit };
    let series = all.iter().map(|s| Series {
        name: s.side.to_string(),
        colour: s.side.into(),
        mark: Mark::Dots,
        points: s.samples.iter().map(|c| Point::at(f64::from(c.number), c.connect_us)).collect(),
    });
    Chart {
        caption: "Time to connect, by the position of the connection in its series".to_owned(),
        x: axis("connection", AxisScale::Linear, Unit::Count),
        y: axis("time to connect, logarithmic", AxisScale::Logarithmic, Unit::Micros),
        series: series.collect(),
    }
}

fn connection_table(all: &[ConnectionSeries]) -> Table {
    let mut rows = Vec::new();
    for s in all {
        for (name, summary) in [("connect", s.connect()), ("first statement", s.statement())] {
            let Some(summary) = summary else { continue };
            let steady = summary.steady.as_ref();
            let of = |f: fn(&Distribution) -> f64| steady.map_or_else(dash, |d| micros(f(d)));
            rows.push(vec![
                format!("{}, {name}", s.side),
                micros(summary.first),
                summary.second.map_or_else(dash, micros),
                of(|d| d.median),
                of(|d| d.p95),
                of(|d| d.max),
                summary.first_to_steady.map_or_else(dash, ratio_text),
            ]);
        }
    }
    Table {
        columns: ["", "first", "second", "later: median", "p95", "max", "first / median"].map(str::to_owned).to_vec(),
        rows,
        ..Table::default()
    }
}

impl Experiment for Vec<ProtocolSeries> {
    fn title(&self) -> String {
        "First and later runs of a statement".to_owned()
    }

    fn method(&self) -> String {
        let (statement, sessions) = self.first().map_or(("", 0), |s| (s.statement.as_str(), s.runs_us.len()));
        format!(
            "Run several times in each of {sessions} fresh connections: {statement}. The first run in a session fills caches \
             that later runs find filled; later means the third and following. Extended is Parse, Describe, Sync and then \
             Bind, Execute, Sync; prepared does the former only once, and its first run includes that."
        )
    }

    fn findings(&self) -> Vec<Finding> {
        protocol_findings(self)
    }

    fn exhibits(&self) -> Vec<Exhibit> {
        let mut groups = Vec::new();
        let mut rows = Vec::new();
        for s in self {
            let (first, later) = (median(s.first()), median(s.later()));
            if !first.is_finite() || !later.is_finite() {
                continue;
            }
            let bar = |label: &str, colour, value| Bar { label: label.to_owned(), colour, value };
            groups.push(BarGroup {
                title: format!("{}, {}", s.protocol, s.side),
                remark: format!("first is {} later", ratio_text(first / later)),
                bars: vec![bar("first", Colour::First, first), bar("later", s.side.into(), later)],
            });
            let p95 = Distribution::of(&s.later()).map_or_else(dash, |d| micros(d.p95));
            let name = format!("{}, {}", s.protocol, s.side);
            rows.push(vec![name, micros(first), micros(later), p95, ratio_text(first / later)]);
        }
        let columns = ["", "first", "later", "later: p95", "first / later"].map(str::to_owned).to_vec();
        let caption = "First and later runs by protocol: medians over the connections; logarithmic".to_owned();
        vec![
            Exhibit::Bars(Bars { caption, unit: Unit::Micros, groups }),
            Exhibit::Table(Table { columns, rows, ..Table::default() }),
        ]
    }

    fn failures(&self) -> Vec<(String, FailureCount)> {
        self.iter().flat_map(|s| s.failures.iter().map(|f| (format!("{} {}", s.side, s.protocol), f.clone()))).collect()
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    fn interrupted(&self) -> bool {
        false
    }

    fn measures(&self) -> Vec<Measure> {
        let mut all = Vec::new();
        for s in self {
            all.push(Measure::times(format!("{}, {}, first run", s.protocol, s.side), s.first()));
            // The runs of a connection have it in common: they are not as many independent samples.
            let each: Vec<f64> =
                s.runs_us.iter().filter_map(|c| c.get(2..)).map(|runs| median(runs.to_vec())).collect();
            let name = format!("{}, {}, later runs, median of each connection", s.protocol, s.side);
            all.push(Measure::times(name, each.into_iter().filter(|v| v.is_finite()).collect()));
        }
        all.retain(|m| !m.samples.is_empty());
        all
    }

    fn csv(&self) -> String {
        let mut out = "protocol,side,connection,run,us\n".to_owned();
        for s in self {
            for (connection, runs) in (1..).zip(&s.runs_us) {
                for (run, us) in (1..).zip(runs) {
                    out.push_str(&format!("{},{},{connection},{run},{us:.3}\n", field(&s.protocol), s.side));
                }
            }
        }
        out
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    quantile(&values, 0.5)
}

fn dash() -> String {
    "-".to_owned()
}
