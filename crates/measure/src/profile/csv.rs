//! CSV (RFC 4180): one row per time, so that any spreadsheet can pivot it. Failures have a row without a time.

use std::io::{self, Write};

use super::collector::phases;
use super::{Event, Failure, Metric, Protocol, Step};
use crate::server_view;

pub(super) fn header(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "connection,query,run,phase,time_us,sqlstate,error")
}

pub(super) fn event(out: &mut dyn Write, event: &Event, protocol: Protocol) -> io::Result<()> {
    let mut row =
        |connection: u32, place: Option<(u32, u32)>, metric: Metric, time: Option<f64>, failure: Option<&Failure>| {
            let number = |n: Option<u32>| n.map_or(String::new(), |n| n.to_string());
            let (query, run) = (number(place.map(|p| p.0)), number(place.map(|p| p.1)));
            let time = time.map_or(String::new(), |time| format!("{time:.3}"));
            let state = failure.and_then(|failure| failure.sqlstate.as_deref()).unwrap_or("");
            let error = failure.map_or("", |failure| failure.message.as_str());
            writeln!(out, "{connection},{query},{run},{},{time},{},{}", metric.name(), field(state), field(error))
        };
    match event {
        Event::Connect(e) => {
            if let Some(failure) = &e.error {
                return row(e.connection, None, Metric::CreateConnection, None, Some(failure));
            }
            row(e.connection, None, Metric::CreateConnection, Some(e.total_us), None)?;
            for (metric, time) in e.attempts.last().map(phases).into_iter().flatten() {
                if time.is_some() {
                    row(e.connection, None, metric, time, None)?;
                }
            }
            Ok(())
        }
        Event::Statement(e) => {
            let place = Some((e.query, e.run));
            let whole = if e.step == Step::Prepare { Metric::Prepare } else { Metric::of_run(protocol) };
            if let Some(failure) = &e.error {
                return row(e.connection, place, whole, None, Some(failure));
            }
            for (metric, time) in [
                (whole, e.total_us),
                (Metric::ParseDescribeSync, e.parse_describe_sync_us),
                (Metric::BindExecuteSync, e.bind_execute_sync_us),
                (Metric::FirstByte, e.first_byte_us),
                (Metric::LastRow, e.last_row_us),
            ] {
                if time.is_some() {
                    row(e.connection, place, metric, time, None)?;
                }
            }
            Ok(())
        }
        Event::Disconnect(e) => row(e.connection, None, Metric::Disconnect, e.disconnect_us, e.error.as_ref()),
    }
}

/// The times that the server's log and the host gave, as further rows.
pub(super) fn server_side(out: &mut dyn Write, view: Option<&server_view::Report>) -> io::Result<()> {
    let mut row = |connection: u32, query: &str, run: &str, phase: &str, time: Option<f64>| match time {
        Some(time) => writeln!(out, "{connection},{query},{run},{phase},{time:.3},,"),
        None => Ok(()),
    };
    let Some(view) = view else { return Ok(()) };
    for sample in &view.samples.connections {
        let log = sample.log.unwrap_or_default();
        for (phase, time) in [
            ("log_setup", log.setup_us),
            ("log_fork", log.fork_us),
            ("log_authentication", log.authentication_us),
            ("log_received_to_authorized", log.received_to_authorized_us),
            ("backend_cpu", sample.host.map(|host| host.cpu_us)),
            ("backend_run_queue", sample.host.map(|host| host.run_queue_us)),
        ] {
            row(sample.connection, "", "", phase, time)?;
        }
    }
    for sample in &view.samples.runs {
        let log = sample.log.unwrap_or_default();
        let (query, run) = (sample.query.to_string(), sample.run.to_string());
        for (phase, time) in [
            ("log_statement", log.statement_us),
            ("log_parse", log.parse_us),
            ("log_bind", log.bind_us),
            ("log_execute", log.execute_us),
            ("backend_cpu", sample.host.map(|host| host.cpu_us)),
            ("backend_run_queue", sample.host.map(|host| host.run_queue_us)),
        ] {
            row(sample.connection, &query, &run, phase, time)?;
        }
    }
    Ok(())
}

/// A field, quoted if it needs it.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_when_needed() {
        assert_eq!(field("plain"), "plain");
        assert_eq!(field("a,\"b\"\nc"), "\"a,\"\"b\"\"\nc\"");
    }
}
