//! From where on something is a finding. The reasons stand here and in docs/doctor.md; tests lower those that would
//! need an hour's wait.

use std::time::Duration;

/// Limits of the judgements.
#[derive(Debug, Clone, PartialEq)]
pub struct Thresholds {
    /// Share of a connection limit in use: a warning. One busy minute away from the end.
    pub limit_warning: f64,
    /// Share of a connection limit in use: critical. The next retry storm fills it.
    pub limit_critical: f64,
    /// `max_connections` above which it is a notice.
    pub max_connections: f64,
    /// Open connections from which each new one costs noticeably more: with T = a N + b N^2 published measurements
    /// have their crossover a/b near 1,500; at 1,000 the growing part is 40 % of a connection.
    pub open_connections: usize,
    /// New connections per second: a notice. At 2 ms of processor time each, 0.2 %.
    pub rate_notice: f64,
    /// New connections per second: a warning. At 2 ms each, 2 % of one processor, and all their first statements cold.
    pub rate_warning: f64,
    /// New connections per second: critical. One postmaster starts about 1,400 per second, at best.
    pub rate_critical: f64,
    /// Share of the newly opened connections that is still open: below it they count as short.
    pub still_open: f64,
    /// Idle longer than this is idle for long.
    pub idle_after: Duration,
    /// So many clients idle for long are a notice.
    pub idle_clients: usize,
    /// A transaction idle for longer than this is a warning; ten times as long, critical: it holds back vacuum.
    pub idle_in_transaction_after: Duration,
    /// So many open connections, nearly all idle, are a case for a manager.
    pub pooler_clients: usize,
    /// `shared_buffers` from which small pages are a notice, bytes.
    pub huge_pages_notice: f64,
    /// `shared_buffers` from which small pages are a warning, bytes.
    pub huge_pages_warning: f64,
    /// Vacuums of catalogs per hour: a notice. Each removes the relation cache's files.
    pub catalog_vacuums_notice: f64,
    /// Vacuums of catalogs per hour: a warning. One a minute is the pace of `autovacuum_naptime`.
    pub catalog_vacuums_warning: f64,
    /// Dead rows of a catalog, and more than live ones, from which it is bloated.
    pub catalog_dead_rows: f64,
    /// Size of a catalog from which waste counts, bytes.
    pub catalog_size: f64,
    /// A connection right after an invalidation that is slower than others by this: a notice.
    pub cold_us: f64,
    /// Name look-up: a notice. A local resolver answers in less than a millisecond.
    pub name_lookup_us: f64,
    /// A round trip from which the network is worth a word.
    pub round_trip_us: f64,
    /// The server's share of a connection: a warning. Usual are 1 to 5 ms.
    pub backend_start_us: f64,
    /// The client's computing for one SCRAM login: a notice. 4,096 iterations take about 1.3 ms.
    pub scram_us: f64,
    /// A statement shorter than this is short.
    pub short_statement_us: f64,
    /// What libraries or triggers may cost each connection before it is a warning.
    pub start_up_us: f64,
    /// Penalty of a first run: a notice.
    pub first_query_notice_us: f64,
    /// Penalty of a first run: a warning, if connections are short.
    pub first_query_warning_us: f64,
    /// Statistics older than this hide what has changed since.
    pub statistics_age: Duration,
}

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            limit_warning: 0.8,
            limit_critical: 0.95,
            max_connections: 1000.0,
            open_connections: 1000,
            rate_notice: 1.0,
            rate_warning: 10.0,
            rate_critical: 500.0,
            still_open: 0.5,
            idle_after: Duration::from_secs(600),
            idle_clients: 50,
            idle_in_transaction_after: Duration::from_secs(300),
            pooler_clients: 100,
            huge_pages_notice: GIB,
            huge_pages_warning: 8.0 * GIB,
            catalog_vacuums_notice: 6.0,
            catalog_vacuums_warning: 60.0,
            catalog_dead_rows: 10_000.0,
            catalog_size: 64.0 * 1024.0 * 1024.0,
            cold_us: 20_000.0,
            name_lookup_us: 5_000.0,
            round_trip_us: 2_000.0,
            backend_start_us: 50_000.0,
            scram_us: 5_000.0,
            short_statement_us: 100_000.0,
            start_up_us: 1_000.0,
            first_query_notice_us: 2_000.0,
            first_query_warning_us: 10_000.0,
            statistics_age: Duration::from_secs(180 * 86_400),
        }
    }
}
