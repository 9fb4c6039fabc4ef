//! The table that the built-in script reads: `pgbench_accounts`, as `pgbench -i` makes it.

use pgusher_client::{Connection, Result};

/// Rows per unit of scale, as in pgbench.
const ROWS_PER_SCALE: i64 = 100_000;

/// Whether there is a table `pgbench_accounts` in the search path.
///
/// # Errors
/// When the server cannot be asked.
pub fn accounts_exist(connection: &mut Connection) -> Result<bool> {
    let rows = connection.query_rows("select to_regclass('pgbench_accounts') is not null", &[])?;
    Ok(rows.get(0, 0) == Some("t"))
}

/// The scale of the existing table, from its highest key; at least 1.
///
/// # Errors
/// When the table is not there or cannot be read.
pub fn scale_of(connection: &mut Connection) -> Result<i64> {
    let rows = connection.query_rows("select max(aid) from pgbench_accounts", &[])?;
    let highest: i64 = rows.get(0, 0).and_then(|v| v.parse().ok()).unwrap_or(0);
    Ok((highest / ROWS_PER_SCALE).max(1))
}

/// Makes `pgbench_accounts` anew with 100,000 rows per unit of `scale`; one that exists is dropped. The other
/// tables of pgbench are left alone.
///
/// # Errors
/// When a statement fails, for example because other tables refer to the existing one.
pub fn initialize(connection: &mut Connection, scale: i64) -> Result<()> {
    let rows = scale.max(1).saturating_mul(ROWS_PER_SCALE);
    let fill = format!(
        "insert into pgbench_accounts (aid, bid, abalance, filler) \
         select aid, (aid - 1) / {ROWS_PER_SCALE} + 1, 0, '' from generate_series(1, {rows}) as aid"
    );
    for statement in [
        "drop table if exists pgbench_accounts",
        "create table pgbench_accounts (aid int not null, bid int, abalance int, filler char(84)) \
         with (fillfactor = 100)",
        &fill,
        "alter table pgbench_accounts add primary key (aid)",
        "vacuum analyze pgbench_accounts",
    ] {
        connection.simple_query(statement)?.into_result()?;
    }
    Ok(())
}
