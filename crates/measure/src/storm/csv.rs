//! A line per round for spreadsheets, and what of it can be compared with another run.

use std::fmt::Write as _;

use super::model::{RoundKind, Storm};
use crate::report::Measure;

/// Heads of the columns.
const HEADS: &str = "side,clients,round,total_us,ready,failed,unfinished,first_tenth_us,last_tenth_us,disconnect_us,retries,\
    listen_overflows,listen_drops,backends,minor_faults,backend_cpu_us,backend_life_cpu_us,postmaster_cpu_us,manager_cpu_us,generator_cpu_us\n";

/// A line per round, behind a heading. What was not measured is empty.
pub(super) fn csv(storm: &Storm) -> String {
    let mut out = HEADS.to_owned();
    for cell in &storm.cells {
        for r in &cell.rounds {
            let number = |v: Option<f64>| v.map_or_else(String::new, |v| format!("{v:.3}"));
            let count = |v: Option<u64>| v.map_or_else(String::new, |v| v.to_string());
            let columns = [
                cell.side.to_string(),
                cell.clients.to_string(),
                r.number.to_string(),
                number(Some(r.total_us)),
                r.ready.to_string(),
                r.failed.to_string(),
                r.unfinished.to_string(),
                number(r.first_tenth_us),
                number(r.last_tenth_us),
                number(r.disconnect_us),
                r.retries.to_string(),
                count(r.listen_overflows),
                count(r.listen_drops),
                count(r.server.map(|s| u64::from(s.backends))),
                number(r.server.map(|s| s.minor_faults)),
                number(r.server.map(|s| s.backend_cpu_us)),
                number(r.server.and_then(|s| s.backend_life_cpu_us)),
                number(r.server.map(|s| s.postmaster_cpu_us)),
                number(r.manager_cpu_us),
                number(Some(r.generator_cpu_us)),
            ];
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{}", columns.join(","));
        }
    }
    out
}

/// The time of each number of clients, first and later rounds apart.
pub(super) fn measures(storm: &Storm) -> Vec<Measure> {
    let pace = storm.settings.pace;
    let mut all = Vec::new();
    for cell in &storm.cells {
        for kind in RoundKind::ALL {
            let samples = cell.totals(kind);
            if !samples.is_empty() {
                all.push(Measure::times(format!("{}, {} clients, {pace}, {kind}", cell.side, cell.clients), samples));
            }
        }
    }
    all
}
