//! CSV (RFC 4180): one row per time, so that any spreadsheet can pivot it. Failures have a row without a time.

use std::io::{self, Write};

use super::collector::phases;
use super::{Event, Failure, Metric, Protocol, Step};

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
