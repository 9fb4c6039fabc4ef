//! The report: tables in Markdown, for the terminal and for the book. In the file, only what stands between the two markers is
//! written anew; the words around it are a person's.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::cell::Cell;
use crate::idle::Idle;
use crate::rounds::{Sample, Series, Spread};
use crate::table::Table;
use crate::target::Kind;
use crate::trace::Calls;

const BEGIN: &str = "<!-- begin of the generated part: make bench -->";
const END: &str = "<!-- end of the generated part -->";

/// The words around the tables when there is no file yet.
const TEMPLATE: &str = "\
# Benchmarks

`make bench` measures pgusher side by side with the PgBouncer of the distribution, on a private PostgreSQL, and writes the
tables of this page. Read the ratios before the absolute figures: they compare two runs that followed each other directly, and
wander less than the machine does. CPU time per transaction, from the kernel's accounting, is steadier than throughput.

";

/// Everything that was measured.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) machine: Vec<(&'static str, String)>,
    pub(crate) method: String,
    pub(crate) targets: Vec<Kind>,
    pub(crate) cells: Vec<(Cell, Series)>,
    pub(crate) idle: Vec<(Kind, Result<Idle, String>)>,
    pub(crate) calls: Vec<(Kind, Result<Calls, String>)>,
}

fn tps(sample: &Sample) -> Option<f64> {
    Some(sample.tps)
}

fn manager_us(sample: &Sample) -> Option<f64> {
    sample.manager_us
}

fn backend_us(sample: &Sample) -> Option<f64> {
    sample.backend_us
}

type Figure = fn(&Sample) -> Option<f64>;

impl Findings {
    /// The generated part.
    pub(crate) fn markdown(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.machine {
            text.push_str(&format!("- {name}: {value}\n"));
        }
        text.push_str(&format!("\n{}\n", self.method));
        let mut section = |title: &str, table: &Table| {
            if !table.is_empty() {
                text.push_str(&format!("\n## {title}\n\n{table}"));
            }
        };
        section("What was aimed for", &self.aims());
        section(
            "pgusher against PgBouncer, one worker each: ratio within a round, median (least to most)",
            &self.ratios(),
        );
        section("Transactions per second, medians", &self.figures(tps, true, 0));
        section("CPU microseconds of the manager per transaction, medians", &self.figures(manager_us, false, 1));
        section(
            "CPU microseconds of the server's processes per transaction, medians",
            &self.figures(backend_us, true, 1),
        );
        section(
            "Throughput against direct connections, ratio within a round, median (least to most)",
            &self.against_direct(),
        );
        section("Idle clients, logged in over TCP with trust", &self.idle_table());
        section("System calls of the manager per transaction, 1 client, simple", &self.call_table());
        let failures = self.failures();
        if !failures.is_empty() {
            text.push_str(&format!("\n## What failed\n\n{failures}"));
        }
        text
    }

    fn managers(&self) -> impl Iterator<Item = Kind> {
        self.targets.iter().copied().filter(|kind| *kind != Kind::Direct)
    }

    fn figures(&self, figure: Figure, direct: bool, digits: usize) -> Table {
        let kinds: Vec<Kind> = self.targets.iter().copied().filter(|kind| direct || *kind != Kind::Direct).collect();
        let headings = std::iter::once("workload").chain(kinds.iter().map(|k| k.name()));
        let mut table = Table::new(headings);
        for (cell, series) in &self.cells {
            let mut row = vec![cell.name()];
            row.extend(kinds.iter().map(|kind| number(series.spread(*kind, figure), digits)));
            table.row(row);
        }
        table
    }

    fn ratios(&self) -> Table {
        let mut table = Table::new(["workload", "throughput", "manager's CPU", "server's CPU"]);
        for (cell, series) in &self.cells {
            let ratio = |figure| series.ratio(Kind::Pgusher, Kind::PgBouncer, figure);
            if let Some(throughput) = ratio(tps) {
                table.row(vec![
                    cell.name(),
                    spread(Some(throughput)),
                    spread(ratio(manager_us)),
                    spread(ratio(backend_us)),
                ]);
            }
        }
        table
    }

    fn against_direct(&self) -> Table {
        let headings = std::iter::once("workload").chain(self.managers().map(Kind::name));
        let mut table = Table::new(headings);
        for (cell, series) in &self.cells {
            let ratio = |kind| spread(series.ratio(kind, Kind::Direct, tps));
            let row: Vec<String> = std::iter::once(cell.name()).chain(self.managers().map(ratio)).collect();
            if self.targets.contains(&Kind::Direct) {
                table.row(row);
            }
        }
        table
    }

    fn idle_table(&self) -> Table {
        let mut table = Table::new(["manager", "clients", "bytes each", "CPU us per login", "seconds to open"]);
        for (kind, idle) in &self.idle {
            if let Ok(idle) = idle {
                table.row(vec![
                    kind.name().into(),
                    idle.clients.to_string(),
                    format!("{:.0}", idle.bytes_each),
                    format!("{:.1}", idle.login_us),
                    format!("{:.1}", idle.seconds),
                ]);
            }
        }
        table
    }

    fn call_table(&self) -> Table {
        let counted: Vec<(Kind, &Calls)> =
            self.calls.iter().filter_map(|(kind, calls)| Some((*kind, calls.as_ref().ok()?))).collect();
        let headings = std::iter::once("call").chain(counted.iter().map(|(kind, _)| kind.name()));
        let mut table = Table::new(headings);
        let mut names: Vec<&String> = counted.iter().flat_map(|(_, calls)| calls.keys()).collect();
        names.sort();
        names.dedup();
        for name in names {
            let each = counted.iter().map(|(_, calls)| match calls.get(name) {
                Some(count) => format!("{count:.2}"),
                None => "-".into(),
            });
            table.row(std::iter::once(name.clone()).chain(each).collect());
        }
        table
    }

    /// The project's own aims, each with what was found. A line appears only when its workload ran.
    fn aims(&self) -> Table {
        let mut table = Table::new(["aim", "found", "reached"]);
        let ratio = |name: &str, below, figure: Figure| {
            let (_, series) = self.cells.iter().find(|(cell, _)| cell.name() == name)?;
            series.ratio(Kind::Pgusher, below, figure).map(|spread| spread.median)
        };
        let bouncer = Kind::PgBouncer;
        let mut aim = |words: &str, found: Option<f64>, reached: fn(f64) -> bool| {
            if let Some(found) = found {
                let reached = if reached(found) { "yes" } else { "no" };
                table.row(vec![words.into(), format!("{found:.2}"), reached.into()]);
            }
        };
        let no_more = |found| found <= 1.0;
        let no_less = |found| found >= 1.0;
        aim("CPU at simple-16, of PgBouncer's: at most 1", ratio("simple-16", bouncer, manager_us), no_more);
        aim("CPU at extended-16, of PgBouncer's: at most 1", ratio("extended-16", bouncer, manager_us), no_more);
        let shared = self.cells.iter().find(|(cell, _)| cell.name() == "extended-16");
        let shared = shared.and_then(|(_, series)| series.ratio(Kind::PgusherShared, Kind::Direct, tps));
        aim(
            "throughput at extended-16 with multiplex, of direct: at least 1.2",
            shared.map(|spread| spread.median),
            |found| found >= 1.2,
        );
        aim("throughput at simple-1, of PgBouncer's: at least 1", ratio("simple-1", bouncer, tps), no_less);
        aim(
            "throughput at reconnect-trust-16, of PgBouncer's: at least 1",
            ratio("reconnect-trust-16", bouncer, tps),
            no_less,
        );
        aim(
            "throughput at reconnect-trust-16, of direct: at least 15",
            ratio("reconnect-trust-16", Kind::Direct, tps),
            |found| found >= 15.0,
        );
        let idle = self.idle.iter().find(|(kind, _)| *kind == Kind::Pgusher);
        let idle = idle.and_then(|(_, idle)| idle.as_ref().ok()).map(|idle| idle.bytes_each / 1024.0);
        aim("memory of an idle client, KiB: under 2", idle, |found| found < 2.0);
        let calls = self.calls.iter().find(|(kind, _)| *kind == Kind::Pgusher);
        let calls = calls.and_then(|(_, calls)| calls.as_ref().ok());
        let sum = |names: &[&str]| {
            calls.map(|calls| names.iter().filter_map(|n| calls.get(*n)).fold(0.0, |all, each| all + each))
        };
        aim("reads per transaction: 2", sum(&["read", "readv", "recvfrom", "recvmsg"]), |found| found < 2.05);
        aim("writes per transaction: 2", sum(&["write", "writev", "sendto", "sendmsg"]), |found| found < 2.05);
        aim("epoll_ctl per transaction: none", sum(&["epoll_ctl"]), |found| found < 0.05);
        table
    }

    fn failures(&self) -> String {
        let mut text = String::new();
        for (cell, series) in &self.cells {
            for kind in &self.targets {
                if let Some(reason) = series.failure(*kind) {
                    text.push_str(&format!("- {} on {}: {reason}\n", cell.name(), kind.name()));
                }
            }
        }
        for (kind, idle) in &self.idle {
            if let Err(reason) = idle {
                text.push_str(&format!("- idle clients on {}: {reason}\n", kind.name()));
            }
        }
        for (kind, calls) in &self.calls {
            if let Err(reason) = calls {
                text.push_str(&format!("- system calls of {}: {reason}\n", kind.name()));
            }
        }
        text
    }
}

fn number(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or_else(|| "-".into(), |s| format!("{:.digits$}", s.median))
}

fn spread(spread: Option<Spread>) -> String {
    spread.map_or_else(|| "-".into(), |s| format!("{:.2} ({:.2} to {:.2})", s.median, s.least, s.most))
}

/// Writes the generated part into the file, between its markers; makes the file when there is none.
///
/// # Errors
/// When the file has lost a marker, or cannot be written.
pub(crate) fn write(path: &Path, generated: &str) -> Result<()> {
    let new = compose(path, generated)?;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, new).with_context(|| format!("writing {}", path.display()))
}

/// Says before a long run what [`write`] would say after it.
///
/// # Errors
/// As [`write`].
pub(crate) fn check(path: &Path) -> Result<()> {
    compose(path, "").map(|_| ())
}

fn compose(path: &Path, generated: &str) -> Result<String> {
    let old = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => format!("{TEMPLATE}{BEGIN}\n{END}\n"),
        Err(e) => return Err(e).with_context(|| format!("reading {}", path.display())),
    };
    place(&old, generated).with_context(|| format!("in {}", path.display()))
}

fn place(old: &str, generated: &str) -> Result<String> {
    let (Some((before, rest)), true) = (old.split_once(BEGIN), old.contains(END)) else {
        bail!("the lines `{BEGIN}` and `{END}` are missing");
    };
    let Some((_, after)) = rest.split_once(END) else {
        bail!("the end marker stands before the begin marker");
    };
    Ok(format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", generated.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_persons_words_stay() {
        let old = format!("# Title\n\nmine\n{BEGIN}\nold table\n{END}\n\nmine too\n");
        let new = place(&old, "new table\n").unwrap();
        assert!(new.starts_with("# Title\n\nmine\n"));
        assert!(new.ends_with("\n\nmine too\n"));
        assert!(new.contains("new table") && !new.contains("old table"));
        assert_eq!(place(&new, "new table\n").unwrap(), new);
    }

    #[test]
    fn a_file_without_markers_is_left_alone() {
        assert!(place("# Title\n", "x").is_err());
        assert!(place(&format!("{END}\n{BEGIN}\n"), "x").is_err());
    }
}
