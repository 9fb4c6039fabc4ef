//! The joined table for people.

use super::{Population, Row};
use crate::report::Table;

/// A column: its head and how a row fills it.
type Column = (&'static str, fn(&Row) -> Option<f64>);

const COLUMNS: [Column; 9] = [
    ("client", |row| row.client_us),
    ("log", |row| row.log_us),
    ("pgss plan", |row| row.plan_us),
    ("pgss exec", |row| row.exec_us),
    ("unseen", |row| row.unseen_us),
    ("CPU", |row| row.cpu_us),
    ("run queue", |row| row.run_queue_us),
    ("faults", |row| row.minor_faults),
    ("RSS KiB", |row| row.rss_kib),
];

/// The table; columns that no row fills are left out. `several` says whether there was more than one statement.
#[must_use]
pub fn table(rows: &[Row], several: bool) -> Table {
    let used: Vec<&Column> = COLUMNS.iter().filter(|(_, value)| rows.iter().any(|row| value(row).is_some())).collect();
    let mut columns = vec!["phase".to_owned(), "run".to_owned(), "n".to_owned()];
    columns.extend(used.iter().map(|(head, _)| (*head).to_owned()));
    let rows = rows.iter().map(|row| {
        let mut cells = vec![name(row, several), row.run.map_or("", Population::name).to_owned(), row.n.to_string()];
        cells.extend(used.iter().map(|(_, value)| value(row).map_or("-".to_owned(), |value| format!("{value:.0}"))));
        cells
    });
    Table {
        caption: "seen from the client and from the server, us (medians)".to_owned(),
        columns,
        rows: rows.collect(),
        remark: "log: the server's own durations; pgss: pg_stat_statements, means; CPU, run queue, faults, RSS: of the \
                 backend; unseen: client less the widest view of the server (network, Describe, Sync with its commit, and \
                 the writing of the log itself). Indented rows are parts of the row above them."
            .to_owned(),
    }
}

fn name(row: &Row, several: bool) -> String {
    let indent = if row.is_part { "  " } else { "" };
    match row.query {
        Some(query) if several => format!("{indent}{} [{query}]", row.phase),
        _ => format!("{indent}{}", row.phase),
    }
}
