//! What the experiment shows: a table per statement, sentences, and the samples that can be compared with other runs.

use super::model::{Cost, Prewarm, Statement, Way, WaySummary, cpus, faults, walls};
use crate::failure::FailureCount;
use crate::profile::short;
use crate::report::{Bar, BarGroup, Bars, Colour, Exhibit, Experiment, Finding, Measure, Table, Tone, Unit};
use crate::stats::{Distribution, Ratio, micros, percent};

impl Experiment for Prewarm {
    fn title(&self) -> String {
        "Warming a fresh connection".to_owned()
    }

    fn method(&self) -> String {
        format!(
            "{} rounds; in each, for each statement and way, a new connection that is warmed in that way and then runs the \
             statement {} times ({} protocol). The ways take turns. Nothing is executed to warm.",
            self.rounds,
            self.runs,
            self.protocol.name(),
        )
    }

    fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for statement in &self.statements {
            findings.extend(finding(statement, &self.ways));
        }
        findings
    }

    fn exhibits(&self) -> Vec<Exhibit> {
        let mut exhibits: Vec<Exhibit> =
            self.statements.iter().map(|statement| Exhibit::Table(table(statement, &self.ways))).collect();
        exhibits.extend(bars(&self.statements, &self.ways).map(Exhibit::Bars));
        exhibits
    }

    fn failures(&self) -> Vec<(String, FailureCount)> {
        self.failures.iter().map(|failure| ("warming".to_owned(), failure.clone())).collect()
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    fn interrupted(&self) -> bool {
        self.interrupted
    }

    fn measures(&self) -> Vec<Measure> {
        let mut measures = Vec::new();
        for statement in &self.statements {
            let name = |what: &str| format!("{}: {what}", short(&statement.sql));
            for way in &self.ways {
                let first = statement.run(*way, 0);
                measures.push(Measure::times(name(&format!("first run, {}", way.name())), walls(&first)));
                measures.push(Measure::times(name(&format!("CPU of the first run, {}", way.name())), cpus(&first)));
                let warming: Vec<&Cost> =
                    statement.samples.iter().filter(|s| s.way == *way).filter_map(|s| s.warming.as_ref()).collect();
                measures.push(Measure::times(name(&format!("warming, {}", way.name())), walls(&warming)));
            }
            measures.push(Measure::times(name("second run"), walls(&statement.run(Way::None, 1))));
            measures.push(Measure::times(name("steady run"), walls(&statement.steady())));
        }
        measures.retain(|measure| !measure.samples.is_empty());
        measures
    }
}

fn finding(statement: &Statement, ways: &[Way]) -> Option<Finding> {
    let cold = statement.summary(Way::None)?.first.median;
    let second = Distribution::of(&walls(&statement.run(Way::None, 1)))?.median;
    let (summary, removed) = best(statement, ways)?;
    let by_cpu =
        summary.removed_cpu.as_ref().map_or(String::new(), |cpu| format!(", by processor time {}", share(cpu)));
    Some(Finding {
        tone: if score(&summary) >= Some(0.9) { Tone::Good } else { Tone::Neutral },
        text: format!(
            "`{}`: a fresh backend's first run takes {}, its second {}. Warming it by {} takes {} of that difference \
             away{by_cpu}{}.",
            short(&statement.sql),
            micros(cold),
            micros(second),
            summary.way.name(),
            share(&removed),
            summary.warming.map_or(String::new(), |warming| format!("; it costs {} itself", micros(warming.median))),
        ),
    })
}

/// How close to the best a way that does less must come to be preferred to one that does more.
const ALIKE: f64 = 0.05;

/// The way that takes most away; of ways that are alike, the one that does least.
fn best(statement: &Statement, ways: &[Way]) -> Option<(WaySummary, Ratio)> {
    let all: Vec<WaySummary> = ways.iter().filter_map(|way| statement.summary(*way)).collect();
    let most = all.iter().filter_map(score).max_by(f64::total_cmp)?;
    let best = all.into_iter().find(|summary| score(summary).is_some_and(|score| score >= most - ALIKE))?;
    let removed = best.removed?;
    Some((best, removed))
}

/// By processor time where that is known: other processes of the machine do not disturb it.
fn score(summary: &WaySummary) -> Option<f64> {
    summary.removed_cpu.or(summary.removed).map(|removed| removed.value)
}

fn table(statement: &Statement, ways: &[Way]) -> Table {
    let columns = [
        "first run after",
        "n",
        "time",
        "95 % interval",
        "CPU",
        "faults",
        "penalty removed",
        "of CPU",
        "warming",
        "its CPU",
        "its memory",
    ];
    let mut rows = Vec::new();
    for summary in ways.iter().filter_map(|way| statement.summary(*way)) {
        rows.push(way_row(&summary, &statement.run(summary.way, 0)));
    }
    for (name, costs) in [("(second run)", statement.run(Way::None, 1)), ("(steady runs)", statement.steady())] {
        rows.extend(run_row(name, &costs, columns.len()));
    }
    Table {
        caption: short(&statement.sql),
        columns: columns.map(str::to_owned).to_vec(),
        rows,
        remark: "Medians. Penalty: what the first run takes above the second one of a backend that was not warmed."
            .to_owned(),
    }
}

/// First runs by processor time where that is known for all of them, else by the clock.
fn bars(statements: &[Statement], ways: &[Way]) -> Option<Bars> {
    let known = |statement: &Statement| statement.samples.iter().all(|s| s.runs.iter().all(|run| run.host.is_some()));
    let by_cpu = statements.iter().all(known);
    let values = |costs: &[&Cost]| Distribution::of(&if by_cpu { cpus(costs) } else { walls(costs) });
    let bar = |label: &str, colour, costs: &[&Cost]| {
        Some(Bar { label: label.to_owned(), colour, value: values(costs)?.median })
    };
    let groups: Vec<BarGroup> = statements
        .iter()
        .map(|statement| {
            let first = |way: &Way| {
                let colour = if *way == Way::None { Colour::First } else { Colour::Other(0) };
                bar(way.name(), colour, &statement.run(*way, 0))
            };
            let mut bars: Vec<Bar> = ways.iter().filter_map(first).collect();
            bars.extend(bar("second run", Colour::Direct, &statement.run(Way::None, 1)));
            bars.extend(bar("steady runs", Colour::Direct, &statement.steady()));
            BarGroup { title: short(&statement.sql), remark: String::new(), bars }
        })
        .filter(|group| !group.bars.is_empty())
        .collect();
    let what = if by_cpu { "processor time of the backend" } else { "time" };
    let caption = format!("First run on a fresh connection, by how it was warmed: {what}, medians");
    (!groups.is_empty()).then_some(Bars { caption, unit: Unit::Micros, groups })
}

fn run_row(name: &str, costs: &[&Cost], width: usize) -> Option<Vec<String>> {
    let time = Distribution::of(&walls(costs))?;
    let mut row = vec![name.to_owned()];
    row.extend(times(&time, Distribution::of(&cpus(costs)), Distribution::of(&faults(costs))));
    row.resize(width, "-".to_owned());
    Some(row)
}

fn way_row(summary: &WaySummary, first: &[&Cost]) -> Vec<String> {
    let mut row = vec![summary.way.name().to_owned()];
    row.extend(times(&summary.first, summary.first_cpu.clone(), Distribution::of(&faults(first))));
    let cell = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    row.extend([
        cell(summary.removed.as_ref().map(share)),
        cell(summary.removed_cpu.as_ref().map(share)),
        cell(summary.warming.as_ref().map(|warming| micros(warming.median))),
        cell(summary.warming_cpu.as_ref().map(|cpu| micros(cpu.median))),
        cell(summary.warming_kib.map(|kib| format!("{kib:.0} KiB"))),
    ]);
    row
}

fn times(time: &Distribution, cpu: Option<Distribution>, faults: Option<Distribution>) -> [String; 5] {
    let interval = time.median_interval.map(|i| format!("{} to {}", micros(i.low), micros(i.high)));
    [
        time.n.to_string(),
        micros(time.median),
        interval.unwrap_or_else(|| "-".to_owned()),
        cpu.map_or_else(|| "-".to_owned(), |cpu| micros(cpu.median)),
        faults.map_or_else(|| "-".to_owned(), |faults| format!("{:.0}", faults.median)),
    ]
}

fn share(share: &Ratio) -> String {
    match share.interval {
        Some(interval) => {
            format!("{} ({} to {})", percent(share.value), percent(interval.low), percent(interval.high))
        }
        None => percent(share.value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prewarm::Sample;
    use crate::profile::Protocol;
    use crate::server_view::host::Usage;

    fn cost(wall_us: f64) -> Cost {
        let host = Usage { cpu_us: wall_us / 2.0, run_queue_us: 0.0, minor_faults: 7, rss_kib: 20_000 };
        Cost { wall_us, host: Some(host), rss_growth_kib: None }
    }

    fn result() -> Prewarm {
        let sample = |way, first| Sample {
            round: 1,
            way,
            warming: (way != Way::None).then(|| Cost { rss_growth_kib: Some(512.0), ..cost(400.0) }),
            runs: [first, 100.0, 50.0, 50.0].map(cost).to_vec(),
        };
        let ways = [Way::None, Way::Parse, Way::Bind, Way::Explain];
        let firsts = [1100.0, 600.0, 130.0, 100.0];
        let samples = (0..3).flat_map(|_| ways.iter().zip(firsts).map(|(way, first)| sample(*way, first))).collect();
        Prewarm {
            protocol: Protocol::Extended,
            rounds: 3,
            runs: 4,
            ways: ways.to_vec(),
            statements: vec![Statement { sql: "select  1".to_owned(), samples }],
            failures: Vec::new(),
            notes: Vec::new(),
            interrupted: false,
        }
    }

    #[test]
    fn the_table_says_what_each_way_removes() {
        let result = result();
        let exhibits = result.exhibits();
        let Some(Exhibit::Table(table)) = exhibits.first() else { panic!("a table") };
        let column = |name: &str| {
            let at = table.columns.iter().position(|column| column == name).unwrap();
            table.rows.iter().map(|row| row[at].clone()).collect::<Vec<_>>()
        };
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
        let starts = column("penalty removed")
            .iter()
            .map(|cell| cell.split(" (").next().unwrap().to_owned())
            .collect::<Vec<_>>();
        assert_eq!(starts, ["-", "50 %", "97 %", "100 %", "-", "-"]);
        assert_eq!(column("warming"), ["-", "400 us", "400 us", "400 us", "-", "-"]);
        assert_eq!(column("its memory")[1], "512 KiB");
        assert_eq!(column("faults")[0], "7");
        let Some(Exhibit::Bars(bars)) = exhibits.get(1) else { panic!("bars") };
        let values: Vec<f64> = bars.groups[0].bars.iter().map(|bar| bar.value).collect();
        assert_eq!(values, [550.0, 300.0, 65.0, 50.0, 50.0, 25.0]);
    }

    #[test]
    fn of_ways_that_are_alike_the_one_that_does_less_is_named() {
        let findings = result().findings();
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].tone, Tone::Good);
        let text = &findings[0].text;
        assert!(text.contains("`select 1`") && text.contains("by parse + bind takes 97 %"), "{text}");
    }

    #[test]
    fn it_comes_back_from_json_and_has_samples_to_compare() {
        let result = result();
        let json = serde_json::to_string(&result).unwrap();
        assert!(json.contains("\"cpu_us\":550.0") && json.contains("\"way\":\"bind\""), "{json}");
        assert_eq!(serde_json::from_str::<Prewarm>(&json).unwrap(), result);
        let measures = result.measures();
        let first = measures.iter().find(|m| m.name == "select 1: first run, parse + bind").unwrap();
        assert_eq!(first.samples, [130.0, 130.0, 130.0]);
    }
}
