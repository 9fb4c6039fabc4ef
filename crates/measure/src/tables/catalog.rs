//! What the server has done with its catalogs: queries about them, as `pg_stat_statements` counts statements, and scans
//! of them, as the cumulative statistics do. Counters only ever grow here: nothing is reset, since they are somebody
//! else's.

use pgusher_client::{Connection, Result};

/// In this program's own statements, so that they are not counted. `pg_stat_statements` keeps comments within a statement.
const MARK: &str = "/* pgusher bench tables */";

/// The two counters; absent where they cannot be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) queries: Option<u64>,
    pub(super) scans: Option<u64>,
}

impl Counters {
    /// What has happened since `before`. Less than nothing (the statistics were reset) is not known.
    pub(super) fn since(self, before: Self) -> Self {
        let difference = |now: Option<u64>, before: Option<u64>| now?.checked_sub(before?);
        Self { queries: difference(self.queries, before.queries), scans: difference(self.scans, before.scans) }
    }
}

/// Where they are read.
pub(super) struct Source {
    /// The statement for the queries, if there is an extension to ask.
    queries: Option<String>,
}

impl Source {
    /// Looks what there is. What is missing is told in the second value.
    pub(super) fn find(connection: &mut Connection) -> Result<(Self, Option<String>)> {
        let schema = "select pg_catalog.quote_ident(n.nspname) from pg_catalog.pg_extension e \
                      join pg_catalog.pg_namespace n on n.oid = e.extnamespace where e.extname = 'pg_stat_statements'";
        let rows = connection.query_rows(schema, &[])?;
        let Some(schema) = rows.get(0, 0) else {
            let why = "catalog queries are not known: the extension pg_stat_statements is not in this database \
                       (shared_preload_libraries = 'pg_stat_statements', then CREATE EXTENSION pg_stat_statements)";
            return Ok((Self { queries: None }, Some(why.to_owned())));
        };
        let statement = queries(schema);
        match connection.query_rows(&statement, &[]) {
            Err(error) if error.sqlstate().is_some() => {
                let why = format!("catalog queries are not known: {error}");
                Ok((Self { queries: None }, Some(why)))
            }
            Err(error) => Err(error),
            Ok(rows) => {
                let hidden = rows.get(0, 1).is_some_and(|n| n != "0").then(|| {
                    "this role may not read other roles' statements in pg_stat_statements (GRANT pg_read_all_stats), so \
                     catalog queries of a proxy's own role are not counted"
                        .to_owned()
                });
                Ok((Self { queries: Some(statement) }, hidden))
            }
        }
    }

    /// The counters now.
    pub(super) fn read(&self, connection: &mut Connection) -> Result<Counters> {
        let number = |rows: &pgusher_client::Rows| rows.get(0, 0).and_then(|v| v.parse().ok());
        let queries = match &self.queries {
            Some(statement) => number(&connection.query_rows(statement, &[])?),
            None => None,
        };
        let scans = format!(
            "select {MARK} sum(seq_scan + coalesce(idx_scan, 0))::bigint from pg_catalog.pg_stat_sys_tables \
             where schemaname = 'pg_catalog'"
        );
        let scans = number(&connection.query_rows(&scans, &[])?);
        Ok(Counters { queries, scans })
    }
}

/// Calls of statements in this database whose text names a catalog or asks one by function, and the number of statements
/// whose text may not be read.
fn queries(schema: &str) -> String {
    format!(
        "select {MARK} coalesce(sum(s.calls) filter (where s.query ~* '\\minformation_schema\\M|\\mto_reg[a-z]+\\M' \
         or exists (select from pg_catalog.regexp_matches(s.query, '\\mpg_[a-z_0-9]+\\M', 'g') as word \
         join pg_catalog.pg_class c on c.relname = word[1] \
         where c.relnamespace = 'pg_catalog'::pg_catalog.regnamespace and c.relkind in ('r', 'v'))), 0)::bigint, \
         count(*) filter (where s.query = '<insufficient privilege>') \
         from {schema}.pg_stat_statements s \
         where s.dbid = (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database()) \
         and s.query !~ 'pgusher bench tables'"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences() {
        let at = |queries, scans| Counters { queries, scans };
        assert_eq!(at(Some(7), Some(100)).since(at(Some(5), Some(10))), at(Some(2), Some(90)));
        assert_eq!(at(None, Some(5)).since(at(Some(5), Some(10))), at(None, None), "a reset");
    }
}
