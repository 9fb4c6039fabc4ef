//! How a report shows a profile: where the time of its first and later connections goes, the summary of connections and of
//! each statement, and what the server saw of the same.

use super::{Metric, Populations, Recorded, Sample, Series, short};
use crate::failure::FailureCount;
use crate::report::{Exhibit, Experiment, Finding, Measure, PhaseTime, Phases, Table, longer};
use crate::server_view;
use crate::stats::{Distribution, micros, quantile};

/// The phases of connecting that lie one after the other, in that order.
const PIECES: [Metric; 9] = [
    Metric::Resolve,
    Metric::Connect,
    Metric::QueueFork,
    Metric::Tls,
    Metric::Startup,
    Metric::Authenticate,
    Metric::ClientCrypto,
    Metric::Ready,
    Metric::SessionCheck,
];

impl Recorded {
    /// Whether nothing was measured and nothing failed.
    pub(crate) fn is_empty(&self) -> bool {
        self.series.is_empty() && self.failures.is_empty()
    }

    /// The series of one statement, or of the connections.
    fn of(&self, query: Option<u32>) -> impl Iterator<Item = &Series> {
        self.series.iter().filter(move |series| series.query == query)
    }

    /// The statements that have a series, with their texts in one line; those that look alike have their numbers in it.
    fn statements(&self) -> Vec<(u32, String)> {
        let texts: Vec<String> = self.plan.queries.iter().map(|sql| short(sql)).collect();
        let name = |(n, text): (u32, &String)| {
            let alike = texts.iter().filter(|other| *other == text).count();
            (n, if alike > 1 { format!("{text} [{n}]") } else { text.clone() })
        };
        (1..).zip(&texts).filter(|(n, _)| self.of(Some(*n)).next().is_some()).map(name).collect()
    }
}

impl Experiment for Recorded {
    fn title(&self) -> String {
        "Connections and statements, phase by phase".to_owned()
    }

    fn method(&self) -> String {
        let statements = match self.statements().len() {
            0 => String::new(),
            n => format!(
                "; on each, {}, {} ({} protocol)",
                counted(n, "statement"),
                counted_times(self.plan.runs),
                self.plan.protocol.name()
            ),
        };
        let provoked = self.provoked.map_or(String::new(), |provoked| format!(" Provoked: {provoked}."));
        format!(
            "{}, one after the other{statements}. Reached: {}.{provoked}",
            counted(self.plan.connections as usize, "connection"),
            self.reached.words(),
        )
    }

    fn findings(&self) -> Vec<Finding> {
        let mut findings: Vec<Finding> = self
            .of(None)
            .filter(|series| series.metric() == Some(Metric::CreateConnection))
            .filter_map(|series| finding("The first connection takes", series))
            .collect();
        for (query, sql) in self.statements() {
            let whole = |series: &&Series| series.metric() == Some(Metric::of_run(self.plan.protocol));
            let what = format!("`{sql}`: the first run on a connection takes");
            findings.extend(self.of(Some(query)).filter(whole).filter_map(|series| finding(&what, series)));
        }
        findings
    }

    fn exhibits(&self) -> Vec<Exhibit> {
        let several = self.plan.queries.len() > 1;
        let mut exhibits: Vec<Exhibit> = phases(self).map(Exhibit::Phases).into_iter().collect();
        exhibits.extend(table("Connections".to_owned(), self.of(None)).map(Exhibit::Table));
        for (number, sql) in (1..).zip(&self.plan.queries) {
            // The server's rows below have the number only.
            let caption = if several { format!("{} [{number}]", short(sql)) } else { short(sql) };
            exhibits.extend(table(caption, self.of(Some(number))).map(Exhibit::Table));
        }
        if !self.server_view.is_empty() {
            exhibits.push(Exhibit::Table(server_view::table(&self.server_view, several)));
        }
        exhibits
    }

    fn failures(&self) -> Vec<(String, FailureCount)> {
        self.failures.iter().map(|failure| ("profile".to_owned(), failure.clone())).collect()
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    fn interrupted(&self) -> bool {
        self.interrupted
    }

    fn measures(&self) -> Vec<Measure> {
        let mut measures = Vec::new();
        for series in self.of(None) {
            let values = |wanted: fn(u32) -> bool| {
                series.samples.iter().filter(|sample| wanted(sample.at())).map(|sample| sample.us).collect::<Vec<f64>>()
            };
            // One sample: enough to be shown beside the other run's, too few to be judged.
            if series.metric() == Some(Metric::CreateConnection) {
                measures.push(Measure::times(format!("{}, first connection", series.phase), values(|at| at == 1)));
            }
            measures.push(Measure::times(format!("{}, later connections", series.phase), values(|at| at > 2)));
        }
        for (query, sql) in self.statements() {
            for series in self.of(Some(query)).filter(|series| series.metric().is_some_and(|m| !m.is_detail())) {
                let name = format!("{sql}: {} protocol, {}", self.plan.protocol.name(), series.phase);
                measures.push(Measure::times(format!("{name}, first runs"), by_connection(series, |at| at == 1)));
                measures.push(Measure::times(format!("{name}, later runs"), by_connection(series, |at| at > 2)));
            }
        }
        measures.retain(|measure| !measure.samples.is_empty());
        measures
    }
}

fn counted(n: usize, thing: &str) -> String {
    if n == 1 { format!("1 {thing}") } else { format!("{n} {thing}s") }
}

fn counted_times(runs: u32) -> String {
    if runs == 1 { "once".to_owned() } else { format!("{runs} times each") }
}

fn finding(what: &str, series: &Series) -> Option<Finding> {
    let Populations { first: Some(first), steady: Some(steady), .. } = series.populations() else { return None };
    let (tone, compared) = longer(first.median / steady.median);
    let text = format!("{what} {}, {compared} a later one (median {}).", micros(first.median), micros(steady.median));
    Some(Finding { tone, text })
}

/// Runs on one connection share its backend, so each connection gives one value: the median of its runs.
fn by_connection(series: &Series, wanted: fn(u32) -> bool) -> Vec<f64> {
    let of_one = |samples: &[Sample]| {
        let times = samples.iter().filter(|sample| wanted(sample.at())).map(|sample| sample.us).collect::<Vec<f64>>();
        median(times)
    };
    series.samples.chunk_by(|a, b| a.connection == b.connection).filter_map(of_one).collect()
}

fn median(mut times: Vec<f64>) -> Option<f64> {
    times.sort_unstable_by(f64::total_cmp);
    (!times.is_empty()).then(|| quantile(&times, 0.5))
}

/// What the first connection is made of, and the medians of later ones.
fn phases(profile: &Recorded) -> Option<Phases> {
    let rows = [("first", (|at| at == 1) as fn(u32) -> bool), ("second", |at| at == 2), ("later", |at| at > 2)];
    let rows: Vec<(String, Vec<PhaseTime>)> = rows
        .into_iter()
        .map(|(name, wanted)| (name.to_owned(), pieces(profile, wanted)))
        .filter(|(_, pieces)| !pieces.is_empty())
        .collect();
    (!rows.is_empty()).then(|| Phases {
        caption: "Where the time of a connection goes".to_owned(),
        remark:
            "Of the attempt that succeeded; what lies between two phases is not shown. Later: the median of each phase \
                 over the third and later connections."
                .to_owned(),
        rows,
    })
}

fn pieces(profile: &Recorded, wanted: fn(u32) -> bool) -> Vec<PhaseTime> {
    let piece = |metric: Metric| {
        let series = profile.of(None).find(|series| series.metric() == Some(metric))?;
        let times = series.samples.iter().filter(|sample| wanted(sample.at())).map(|sample| sample.us).collect();
        Some(PhaseTime { phase: metric.title(), us: median(times)? })
    };
    PIECES.into_iter().filter_map(piece).collect()
}

/// The summary of one statement, or of the connections; `None` if there is nothing of it.
fn table<'a>(caption: String, series: impl Iterator<Item = &'a Series>) -> Option<Table> {
    let rows: Vec<Vec<String>> = series.map(row).collect();
    (!rows.is_empty()).then(|| Table {
        caption,
        columns: ["phase", "n", "first", "second", "later: median", "p95", "p99", "max"].map(str::to_owned).to_vec(),
        rows,
        remark: "Later: the third and all after it. Of runs on several connections, first and second are medians."
            .to_owned(),
    })
}

fn row(series: &Series) -> Vec<String> {
    let Populations { n, first, second, steady } = series.populations();
    let cell = |of: &Option<Distribution>, value: fn(&Distribution) -> f64| {
        of.as_ref().map_or_else(|| "-".to_owned(), |distribution| micros(value(distribution)))
    };
    vec![
        series.phase.clone(),
        n.to_string(),
        cell(&first, |d| d.median),
        cell(&second, |d| d.median),
        cell(&steady, |d| d.median),
        cell(&steady, |d| d.p95),
        cell(&steady, |d| d.p99),
        cell(&steady, |d| d.max),
    ]
}
