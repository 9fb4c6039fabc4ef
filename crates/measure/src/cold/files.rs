//! The two files `pg_internal.init` of a database: their sizes, and how they are removed without a restart.

use pgusher_client::{Connection, Result};
use serde::{Deserialize, Serialize};

/// Sizes of the relation cache init files, as the server tells them. Absent: there is no such file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct InitFiles {
    /// Of `global/pg_internal.init`, the one for the catalogs that all databases share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_bytes: Option<u64>,
    /// Of the one in the database's folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database_bytes: Option<u64>,
}

impl InitFiles {
    /// Whether neither is there.
    #[must_use]
    pub fn are_gone(&self) -> bool {
        self.shared_bytes.is_none() && self.database_bytes.is_none()
    }
}

/// The database may lie in another tablespace (`pg_tblspc/OID/VERSION_FOLDER/DATABASE`); the path of its `pg_class` says where.
const SIZES: &str = "select (pg_catalog.pg_stat_file('global/pg_internal.init', true)).size, \
    (pg_catalog.pg_stat_file(pg_catalog.regexp_replace(pg_catalog.pg_relation_filepath('pg_catalog.pg_class'), \
    '[^/]*$', 'pg_internal.init'), true)).size";

/// Asks for the sizes.
///
/// # Errors
/// When the role may not call `pg_stat_file` (42501), or the server cannot be asked.
pub(super) fn sizes(connection: &mut Connection) -> Result<InitFiles> {
    let rows = connection.query_rows(SIZES, &[])?;
    let size = |column| rows.get(0, column).and_then(|v| v.parse().ok());
    Ok(InitFiles { shared_bytes: size(0), database_bytes: size(1) })
}

/// Makes the server remove both: the index belongs to a catalog of a few rows whose descriptor is in the files.
pub(super) const REMOVE: &str = "reindex index pg_catalog.pg_am_oid_index";
