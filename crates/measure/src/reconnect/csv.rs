//! The result as comma-separated values: a line per combination and round, and one with `all` for its rounds
//! together, which alone has percentiles. Empty where a number does not exist.

use super::model::{Cell, Reconnect, Round};
use crate::stats::Distribution;

const ROUND: &str = "wall_seconds,transactions,failed_transactions,connections,failed_connections,\
    connecting_seconds,tps_including_connecting,tps_excluding_connecting,\
    latency_average_us,latency_stddev_us,skipped_transactions,late_transactions,lag_average_us,lag_max_us,\
    first_connect_us,first_transaction_us,first_disconnect_us";
/// In this order; the last one only with a given rate.
const PHASES: [&str; 4] = ["connect", "transaction", "disconnect", "response"];
const STATISTICS: [&str; 7] = ["n", "median_us", "p95_us", "p99_us", "max_us", "mean_us", "stddev_us"];

/// The lines, with a heading.
#[must_use]
pub fn csv(result: &Reconnect) -> String {
    let mut out = format!("mode,side,round,{ROUND}");
    for phase in PHASES {
        for statistic in STATISTICS {
            out.push_str(&format!(",{phase}_{statistic}"));
        }
    }
    out.push('\n');
    for cell in &result.cells {
        for round in &cell.rounds {
            let empty = ",".repeat(PHASES.len() * STATISTICS.len());
            out.push_str(&format!("{},{},{},{}{empty}\n", cell.mode, cell.side, round.number, numbers(round)));
        }
        out.push_str(&together(cell));
    }
    out
}

fn numbers(round: &Round) -> String {
    let first = round.first.as_ref();
    let optional = |v: Option<f64>| v.map_or_else(String::new, |v| format!("{v:.1}"));
    format!(
        "{:.6},{},{},{},{},{:.6},{:.3},{:.3},{:.3},{:.3},{},{},{},{},{},{},{}",
        round.wall_seconds,
        round.transactions,
        round.failed_transactions,
        round.connections,
        round.failed_connections,
        round.connecting_seconds,
        round.tps_including_connecting,
        round.tps_excluding_connecting,
        round.latency_average_us,
        round.latency_stddev_us,
        round.skipped_transactions,
        round.late_transactions,
        optional(round.lag_average_us),
        optional(round.lag_max_us),
        optional(first.map(|f| f.connect_us)),
        optional(first.and_then(|f| f.transaction_us)),
        optional(first.map(|f| f.disconnect_us)),
    )
}

fn together(cell: &Cell) -> String {
    let sum = |of: fn(&Round) -> u64| cell.rounds.iter().map(of).sum::<u64>();
    let seconds = |of: fn(&Round) -> f64| cell.rounds.iter().map(of).sum::<f64>();
    let (mean, stddev) = cell
        .transaction
        .as_ref()
        .map_or((String::new(), String::new()), |d| (format!("{:.3}", d.mean), format!("{:.3}", d.stddev)));
    let lag = |of: fn(&Distribution) -> f64| cell.lag.as_ref().map_or_else(String::new, |d| format!("{:.1}", of(d)));
    let mut line = format!(
        "{},{},all,{:.6},{},{},{},{},{:.6},{:.3},{:.3},{mean},{stddev},{},{},{},{},,,",
        cell.mode,
        cell.side,
        seconds(|r| r.wall_seconds),
        sum(|r| r.transactions),
        sum(|r| r.failed_transactions),
        sum(|r| r.connections),
        sum(|r| r.failed_connections),
        seconds(|r| r.connecting_seconds),
        cell.tps_including(),
        cell.tps_excluding(),
        sum(|r| r.skipped_transactions),
        sum(|r| r.late_transactions),
        lag(|d| d.mean),
        lag(|d| d.max),
    );
    for distribution in [&cell.connect, &cell.transaction, &cell.disconnect, &cell.response] {
        line.push_str(&statistics(distribution.as_ref()));
    }
    line.push('\n');
    line
}

fn statistics(distribution: Option<&Distribution>) -> String {
    match distribution {
        Some(d) => {
            format!(",{},{:.1},{:.1},{:.1},{:.1},{:.3},{:.3}", d.n, d.median, d.p95, d.p99, d.max, d.mean, d.stddev)
        }
        None => ",".repeat(STATISTICS.len()),
    }
}
