//! Text for people. Without `--phases`, the lines of a connection are those of connection-profiler to the letter:
//! names left in 40 columns (20 for the two sub-phases), microseconds right in 10, 60 dashes after the connection and
//! 60 equal signs at its end. A summary follows, and last, as in every report, the host's own floor.

use std::io::{self, Write};

use super::collector::phases;
use super::statements::short;
use super::{AttemptRecord, Collector, Event, Options, Plan, Protocol, Provoked, Step, SummaryRow};
use crate::server_view;
use crate::stats::Distribution;

pub(super) fn event(out: &mut dyn Write, event: &Event, plan: &Plan, all: bool) -> io::Result<()> {
    match event {
        Event::Connect(e) => {
            if let Some(failure) = &e.error {
                if all {
                    for attempt in &e.attempts {
                        attempt_lines(out, attempt)?;
                    }
                }
                writeln!(out, "create_connection failed: {}", failure.message)?;
                return writeln!(out, "{}", "=".repeat(60));
            }
            main_line(out, "create_connection", e.total_us)?;
            if all {
                for attempt in &e.attempts {
                    if e.attempts.len() > 1 {
                        attempt_title(out, attempt)?;
                    }
                    attempt_lines(out, attempt)?;
                }
            }
            if plan.protocol != Protocol::Prepared || plan.queries.is_empty() {
                dashes(out)?;
            }
            Ok(())
        }
        Event::Statement(e) => {
            let several = plan.queries.len() > 1;
            if e.step == Step::Prepare {
                if several {
                    query_title(out, plan, e.query)?;
                }
                if let Some(failure) = &e.error {
                    writeln!(out, "prepare statement failed: {}", failure.message)?;
                    return dashes(out);
                }
                sub_line(out, "parse+describe+sync", e.parse_describe_sync_us)?;
                main_line(out, "prepare statement", e.total_us.unwrap_or_default())?;
                return dashes(out);
            }
            if several && e.run == 1 && plan.protocol != Protocol::Prepared {
                query_title(out, plan, e.query)?;
            }
            writeln!(out, "run nr: {}", e.run)?;
            let label = match plan.protocol {
                Protocol::Simple => "total simple query",
                Protocol::Extended | Protocol::Prepared => "total extended protocol",
                Protocol::Pipelined => "total pipelined protocol",
            };
            if let Some(failure) = &e.error {
                return writeln!(out, "{label} failed: {}", failure.message);
            }
            sub_line(out, "parse+describe+sync", e.parse_describe_sync_us)?;
            sub_line(out, "bind+execute+sync", e.bind_execute_sync_us)?;
            if all {
                sub_line(out, "first byte", e.first_byte_us)?;
                sub_line(out, "last row", e.last_row_us)?;
            }
            main_line(out, label, e.total_us.unwrap_or_default())
        }
        Event::Disconnect(e) => {
            match (&e.error, e.disconnect_us) {
                (Some(failure), _) => writeln!(out, "disconnect failed: {}", failure.message)?,
                (None, Some(time)) if all => main_line(out, "disconnect", time)?,
                (None, _) => {}
            }
            writeln!(out, "{}", "=".repeat(60))
        }
    }
}

fn dashes(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", "-".repeat(60))
}

fn main_line(out: &mut dyn Write, name: &str, time_us: f64) -> io::Result<()> {
    writeln!(out, "{name:40} {time_us:10.0} us")
}

fn sub_line(out: &mut dyn Write, name: &str, time_us: Option<f64>) -> io::Result<()> {
    match time_us {
        Some(time) => writeln!(out, "{name:20} {time:10.0} us"),
        None => Ok(()),
    }
}

fn attempt_title(out: &mut dyn Write, attempt: &AttemptRecord) -> io::Result<()> {
    write!(out, "attempt: {} ({})", attempt.target, attempt.encryption)?;
    match &attempt.error {
        Some(error) => writeln!(out, ": {error}"),
        None => writeln!(out),
    }
}

fn attempt_lines(out: &mut dyn Write, attempt: &AttemptRecord) -> io::Result<()> {
    for (metric, time) in phases(attempt) {
        sub_line(out, &metric.title(), time)?;
    }
    Ok(())
}

fn query_title(out: &mut dyn Write, plan: &Plan, query: u32) -> io::Result<()> {
    let index = usize::try_from(query).unwrap_or(0).saturating_sub(1);
    let sql = plan.queries.get(index).map_or("", String::as_str);
    writeln!(out, "query {query}: {}", short(sql))
}

pub(super) fn summary(
    out: &mut dyn Write,
    rows: &[SummaryRow],
    collector: &Collector,
    plan: &Plan,
    options: &Options,
    interrupted: bool,
) -> io::Result<()> {
    if interrupted {
        writeln!(out, "interrupted; this is what was measured until then")?;
    }
    let shown = rows.iter().filter(|row| options.phases || !row.metric.is_detail());
    writeln!(out, "summary, us (median and beyond: of the third and later ones)")?;
    writeln!(
        out,
        "{:26} {:>6} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "phase", "n", "first", "second", "median", "p95", "p99", "max"
    )?;
    for row in shown {
        let name = match row.query {
            Some(query) if plan.queries.len() > 1 => format!("{} [{query}]", row.metric.name()),
            _ => row.metric.name().to_owned(),
        };
        let populations = &row.populations;
        let cell = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.0}"));
        let steady = |field: fn(&Distribution) -> f64| cell(populations.steady.as_ref().map(field));
        let median = |distribution: &Option<Distribution>| cell(distribution.as_ref().map(|d| d.median));
        writeln!(
            out,
            "{name:26} {:>6} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
            populations.n,
            median(&populations.first),
            median(&populations.second),
            steady(|d| d.median),
            steady(|d| d.p95),
            steady(|d| d.p99),
            steady(|d| d.max),
        )?;
    }
    if options.phases {
        writeln!(out, "client setup before the first connection: {:.0} us", options.setup_us)?;
    }
    if collector.failed() > 0 {
        writeln!(out, "failed: {} (not in the summary)", collector.failed())?;
    }
    Ok(())
}

/// The joined table and what was provoked.
pub(super) fn server_side(
    out: &mut dyn Write,
    plan: &Plan,
    view: Option<&server_view::Report>,
    provoked: Option<&Provoked>,
) -> io::Result<()> {
    if let Some(provoked) = provoked {
        writeln!(out, "provoked: {provoked}")?;
    }
    let Some(view) = view else { return Ok(()) };
    if !view.rows.is_empty() {
        writeln!(out)?;
        out.write_all(crate::report::text_table(&server_view::table(&view.rows, plan.queries.len() > 1)).as_bytes())?;
    }
    for note in &view.notes {
        // Some of it is the server's words, which a terminal must not obey.
        writeln!(out, "note: {}", note.replace(char::is_control, " "))?;
    }
    Ok(())
}
