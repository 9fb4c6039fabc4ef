//! What the result shows, for all formats alike.

use super::charts::{by_objects, by_position, by_tables, distinct};
use super::findings::findings;
use super::model::{Cell, Cold, Event, Positions, Round, Sample};
use super::per_table::{PerTable, Run};
use crate::failure::FailureCount;
use crate::report::{Exhibit, Experiment, Finding, Measure, Table};
use crate::stats::{Distribution, Ratio, count, micros};
use crate::target::Side;

impl Experiment for Cold {
    fn title(&self) -> String {
        "First connections and first queries".to_owned()
    }

    fn method(&self) -> String {
        let s = &self.settings;
        let what = match &s.query {
            Some(query) => format!("`{query}`"),
            None => "a statement over empty tables".to_owned(),
        };
        let objects: Vec<u32> = distinct(self.cells.iter().filter_map(|c| c.objects));
        let sweep = if objects.len() > 1 { ", for each number of tables in turn, ascending" } else { "" };
        format!(
            "{} connections one after the other after each event, the first one {} s after it, each with {what}, sent twice in the \
             simple protocol; {} rounds, their order reversed in every second one{sweep}. \"Later\" is the third connection and \
             those after it: each round's median. All times are medians over the rounds",
            s.connections, s.pause_seconds, s.rounds
        )
    }

    fn findings(&self) -> Vec<Finding> {
        findings(self)
    }

    fn exhibits(&self) -> Vec<Exhibit> {
        // The page begins with the plots; text has none.
        let charts = [by_position(self), by_tables(self), by_objects(self)];
        let mut exhibits: Vec<Exhibit> = charts.into_iter().flatten().map(Exhibit::Chart).collect();
        for event in Event::ALL {
            exhibits.extend(connecting_table(self, event).map(Exhibit::Table));
            exhibits.extend(query_table(self, event).map(Exhibit::Table));
            exhibits.extend(answer_table(self, event).map(Exhibit::Table));
        }
        exhibits.extend(backend_table(self).map(Exhibit::Table));
        exhibits.extend(per_table_table(self).map(Exhibit::Table));
        exhibits
    }

    fn failures(&self) -> Vec<(String, FailureCount)> {
        let whose = |c: &Cell| format!("{}, after {}", name(c.side, c.objects, c.tables), c.event);
        self.cells.iter().flat_map(|c| c.failures.iter().map(move |f| (whose(c), f.clone()))).collect()
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    fn interrupted(&self) -> bool {
        self.interrupted
    }

    fn measures(&self) -> Vec<Measure> {
        let mut all = Vec::new();
        for group in &self.connecting {
            let cells =
                self.cells.iter().filter(|c| (c.event, c.side, c.objects) == (group.event, group.side, group.objects));
            let rounds: Vec<&Round> = cells.flat_map(|c| &c.rounds).collect();
            let whose = format!("{}, after {}", name(group.side, group.objects, None), group.event);
            all.extend(measures(&whose, "connect", &rounds, |s| Some(s.connect_us)));
        }
        for cell in &self.cells {
            let rounds: Vec<&Round> = cell.rounds.iter().collect();
            let whose = format!("{}, after {}", name(cell.side, cell.objects, cell.tables), cell.event);
            all.extend(measures(&whose, "first query", &rounds, |s| s.query_us));
        }
        all.retain(|m| !m.samples.is_empty());
        all
    }

    fn csv(&self) -> String {
        csv(self)
    }
}

/// The first one of each round, and the later ones, which are another population.
fn measures(whose: &str, what: &str, rounds: &[&Round], of: fn(&Sample) -> Option<f64>) -> [Measure; 2] {
    let samples = |first: bool| -> Vec<f64> {
        let all = rounds.iter().flat_map(|r| &r.samples);
        all.filter(|s| if first { s.number == 1 } else { s.number >= 3 }).filter_map(of).collect()
    };
    [
        Measure::times(format!("{whose}: {what}, first connection"), samples(true)),
        Measure::times(format!("{whose}: {what}, later connections"), samples(false)),
    ]
}

/// `direct, 1,000 tables besides, 16 touched`.
fn name(side: Side, objects: Option<u32>, tables: Option<u32>) -> String {
    let mut name = side.to_string();
    if let Some(objects @ 1..) = objects {
        name.push_str(&format!(", {} tables besides", count(f64::from(objects))));
    }
    if let Some(tables) = tables {
        name.push_str(&format!(", {} touched", count(f64::from(tables))));
    }
    name
}

fn time(distribution: Option<&Distribution>) -> String {
    distribution.map_or_else(|| "-".to_owned(), |d| micros(d.median))
}

fn ratio(ratio: Option<Ratio>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |r| r.text())
}

fn columns(names: &[&str]) -> Vec<String> {
    names.iter().map(|n| (*n).to_owned()).collect()
}

fn connecting_table(cold: &Cold, event: Event) -> Option<Table> {
    let size = |bytes: Option<u64>| bytes.map_or_else(|| "none".to_owned(), |b| count(b as f64));
    let rows: Vec<Vec<String>> = cold
        .connecting
        .iter()
        .filter(|c| c.event == event)
        .map(|c| {
            let p = &c.connect;
            let files = c.files.map_or_else(
                || "not known".to_owned(),
                |f| format!("{} + {}", size(f.shared_bytes), size(f.database_bytes)),
            );
            let times = [p.first.as_ref(), p.second.as_ref(), p.later.as_ref()].map(time);
            let [first, second, later] = times;
            vec![name(c.side, c.objects, None), first, second, later, ratio(p.first_to_later), files]
        })
        .collect();
    (!rows.is_empty()).then(|| Table {
        caption: format!("Connecting after {event}"),
        columns: columns(&["connect", "first", "second", "later", "first/later (95 %)", "init files then, bytes"]),
        rows,
        remark: String::new(),
    })
}

fn query_table(cold: &Cold, event: Event) -> Option<Table> {
    let rows: Vec<Vec<String>> = cold
        .cells
        .iter()
        .filter(|c| c.event == event)
        .map(|c| {
            let Positions { first, second, later, first_to_later } = &c.query;
            vec![
                name(c.side, c.objects, c.tables),
                time(first.as_ref()),
                time(second.as_ref()),
                time(later.as_ref()),
                ratio(*first_to_later),
                time(c.again.later.as_ref()),
            ]
        })
        .collect();
    (!rows.is_empty()).then(|| Table {
        caption: format!("The first query of a connection, after {event}"),
        columns: columns(&[
            "query",
            "in the first",
            "in the second",
            "in later ones",
            "first/later (95 %)",
            "sent again in later ones",
        ]),
        rows,
        remark: String::new(),
    })
}

fn answer_table(cold: &Cold, event: Event) -> Option<Table> {
    let rows: Vec<Vec<String>> = cold
        .cells
        .iter()
        .filter(|c| c.event == event)
        .map(|c| {
            let Positions { first, second, later, first_to_later } = &c.answer;
            let [first, second, later] = [first, second, later].map(|d| time(d.as_ref()));
            vec![name(c.side, c.objects, c.tables), first, second, later, ratio(*first_to_later)]
        })
        .collect();
    (!rows.is_empty()).then(|| Table {
        caption: format!("Until the first answer: connecting and the first query together, after {event}"),
        columns: columns(&["answer", "first", "second", "later", "first/later (95 %)"]),
        rows,
        remark: String::new(),
    })
}

fn backend_table(cold: &Cold) -> Option<Table> {
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), count);
    let rows: Vec<Vec<String>> = cold
        .connecting
        .iter()
        .filter(|c| c.backend_cpu.first.is_some())
        .map(|c| {
            let name = format!("{}, after {}", name(c.side, c.objects, None), c.event);
            let cpu = &c.backend_cpu;
            vec![
                name,
                time(cpu.first.as_ref()),
                time(cpu.later.as_ref()),
                ratio(cpu.first_to_later),
                number(c.first_minor_faults),
                number(c.later_minor_faults),
            ]
        })
        .collect();
    (!rows.is_empty()).then(|| Table {
        caption: "What the backend itself spent until it was ready".to_owned(),
        columns: columns(&["backend", "CPU, first", "later", "first/later (95 %)", "minor faults, first", "later"]),
        rows,
        remark: "Processor time does not count waiting, so other work on the machine changes it less than it changes the times \
                 above. A fault is a page that the new process touches for the first time."
            .to_owned(),
    })
}

fn per_table_table(cold: &Cold) -> Option<Table> {
    let rows: Vec<Vec<String>> = cold
        .per_table
        .iter()
        .map(|PerTable { event, side, objects, run, us, interval }| {
            let what = match run {
                Run::FirstOfFirst => "first query of the first connection",
                Run::FirstOfLater => "first query of a later connection",
                Run::AgainOfLater => "sent again in a later connection",
            };
            let interval =
                interval.map_or_else(|| "-".to_owned(), |i| format!("{} to {}", micros(i.low), micros(i.high)));
            let after = event.map_or_else(String::new, |event| format!(" after {event}"));
            vec![format!("{}: {what}{after}", name(*side, *objects, None)), micros(*us), interval]
        })
        .collect();
    (!rows.is_empty()).then(|| Table {
        caption: "What each further table of the statement costs".to_owned(),
        columns: columns(&["run", "per table", "95 % interval"]),
        rows,
        remark:
            "The slope of a straight line through the times over the number of tables; median of the rounds' slopes. \
                 Later connections are those after all events."
                .to_owned(),
    })
}

/// Every connection, a line each.
fn csv(cold: &Cold) -> String {
    let mut out =
        "event,side,objects,tables,round,connection,connect_us,query_us,again_us,backend_cpu_us,backend_minor_faults\n"
            .to_owned();
    let number = |value: Option<f64>| value.map_or_else(String::new, |v| format!("{v:.1}"));
    let whole = |value: Option<u64>| value.map_or_else(String::new, |v| v.to_string());
    for cell in &cold.cells {
        let event = match cell.event {
            Event::Restart => "restart",
            Event::RestartWithManager => "restart_with_manager",
            Event::Provoke => "provoke",
        };
        for (round, s) in cell.rounds.iter().flat_map(|r| r.samples.iter().map(move |s| (r.number, s))) {
            let line = [
                event.to_owned(),
                cell.side.to_string(),
                whole(cell.objects.map(u64::from)),
                whole(cell.tables.map(u64::from)),
                round.to_string(),
                s.number.to_string(),
                number(Some(s.connect_us)),
                number(s.query_us),
                number(s.again_us),
                number(s.backend_cpu_us),
                whole(s.backend_minor_faults),
            ];
            out.push_str(&line.join(","));
            out.push('\n');
        }
    }
    out
}
