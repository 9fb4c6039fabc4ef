//! A schema of an experiment's own with empty tables in it, made in batches and taken away again. It never touches a
//! schema that was there before.

use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};

use pgusher_client::{Connection, Result};

/// Tables per transaction: each holds locks on the table, its index and its type until the end, and a server with few
/// connections has a small lock table.
const BATCH: u32 = 200;

/// A schema that this program has made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnSchema {
    name: &'static str,
}

impl OwnSchema {
    /// Makes the schema `name`, which must be a plain identifier.
    ///
    /// # Errors
    /// When the server refuses, for example because there is one of that name already (42P06).
    pub fn create(connection: &mut Connection, name: &'static str) -> Result<Self> {
        connection.simple_query(&format!("create schema {name}"))?.into_result()?;
        Ok(Self { name })
    }

    /// The name of a table, with its schema.
    #[must_use]
    pub fn table(&self, prefix: &str, number: u32) -> String {
        format!("{}.{prefix}_{number}", self.name)
    }

    /// Makes empty tables `PREFIX_NUMBER`, each with a primary key. `stop` ends it between two batches. `progress` gets
    /// the number of the last one made. Returns whether all were made.
    ///
    /// # Errors
    /// When the server refuses.
    pub fn make(
        &self,
        connection: &mut Connection,
        prefix: &str,
        numbers: RangeInclusive<u32>,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(u32),
    ) -> Result<bool> {
        let (mut next, last) = (*numbers.start(), *numbers.end());
        while next <= last {
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let end = last.min(next + (BATCH - 1));
            // Several statements in one message are one transaction.
            let mut sql = String::new();
            for number in next..=end {
                // Writing to a String cannot fail.
                let _ = write!(sql, "create table {} (id int primary key);", self.table(prefix, number));
            }
            connection.simple_query(&sql)?.into_result()?;
            progress(end);
            next = end + 1;
        }
        Ok(true)
    }

    /// Drops the tables, in batches, and the schema. What somebody else has put into it meanwhile stays, and is an error.
    ///
    /// # Errors
    /// When the server refuses; what is left is named in the message.
    pub fn remove(self, connection: &mut Connection) -> Result<()> {
        let tables = "select c.relname from pg_catalog.pg_class c \
                      where c.relnamespace = $1::pg_catalog.regnamespace and c.relkind = 'r'";
        let rows = connection.query_rows(tables, &[Some(self.name)])?;
        let names: Vec<String> = rows
            .iter()
            .filter_map(|row| row.first()?.as_deref())
            .filter(|name| is_ours(name))
            .map(|name| format!("{}.{name}", self.name))
            .collect();
        for batch in names.chunks(BATCH as usize) {
            connection.simple_query(&format!("drop table {}", batch.join(", ")))?.into_result()?;
        }
        connection.simple_query(&format!("drop schema {}", self.name))?.into_result().map(drop)
    }
}

/// Whether [`OwnSchema::make`] could have made a table of this name.
fn is_ours(name: &str) -> bool {
    name.rsplit_once('_')
        .is_some_and(|(prefix, number)| prefix.bytes().all(|b| b.is_ascii_lowercase()) && number.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let schema = OwnSchema { name: "pgusher_x" };
        assert_eq!(schema.table("touched", 7), "pgusher_x.touched_7");
        assert!(is_ours("touched_7"));
        assert!(!is_ours("orders") && !is_ours("Touched_7") && !is_ours("touched_x"));
    }
}
