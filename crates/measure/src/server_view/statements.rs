//! pg_stat_statements beside the client's clock: its counters of the profiled statements before and after runs, read over
//! the control connection. It sees the planner and the executor's run, not parse analysis, the opening of relations and
//! the commit.
//!
//! A statement is known by its query identifier, which EXPLAIN (VERBOSE) tells without running it; a utility statement,
//! which cannot be explained, by its text.

use super::control::{Control, in_words};

/// The counters of a statement, sums since the server's own start of counting; microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    /// Executions.
    pub calls: u64,
    /// Executions that were planned while planning was tracked.
    pub plans: u64,
    /// Planning.
    pub plan_us: f64,
    /// Execution.
    pub exec_us: f64,
}

impl Counters {
    /// What was added since `before`; `None` if counting began anew in between.
    #[must_use]
    pub fn since(&self, before: &Counters) -> Option<Counters> {
        let fresh = self.calls >= before.calls && self.plans >= before.plans;
        fresh.then(|| Counters {
            calls: self.calls - before.calls,
            plans: self.plans - before.plans,
            plan_us: (self.plan_us - before.plan_us).max(0.0),
            exec_us: (self.exec_us - before.exec_us).max(0.0),
        })
    }

    /// Adds other counters.
    pub fn add(&mut self, other: &Counters) {
        self.calls += other.calls;
        self.plans += other.plans;
        self.plan_us += other.plan_us;
        self.exec_us += other.exec_us;
    }
}

enum Known {
    Id(String),
    Text(String),
}

/// The view, for certain statements.
pub struct StatementCounters {
    /// Without texts, which the server would read from a file.
    from_ids: String,
    from_texts: String,
    statements: Vec<Option<Known>>,
    /// Whether the server tracks planning.
    pub tracks_planning: bool,
}

impl StatementCounters {
    /// Finds the view and the statements in it.
    ///
    /// # Errors
    /// What is missing, in words.
    pub fn open(control: &mut Control, queries: &[String]) -> Result<Self, String> {
        let schema = control
            .value(
                "SELECT quote_ident(n.nspname) FROM pg_catalog.pg_extension e \
                 JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'pg_stat_statements'",
            )
            .map_err(|error| in_words(&error))?
            .ok_or(
                "the extension pg_stat_statements is not in this database: CREATE EXTENSION pg_stat_statements (it also \
                 needs shared_preload_libraries = 'pg_stat_statements' and a restart)",
            )?;
        let counters = "coalesce(sum(calls), 0), coalesce(sum(plans), 0), \
                        coalesce(sum(total_plan_time) * 1000, 0), coalesce(sum(total_exec_time) * 1000, 0)";
        let ours = "dbid = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()) \
                    AND userid = (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user)";
        let mut view = StatementCounters {
            from_ids: format!(
                "SELECT {counters} FROM {schema}.pg_stat_statements(false) WHERE {ours} AND queryid = $1::bigint"
            ),
            from_texts: format!("SELECT {counters} FROM {schema}.pg_stat_statements WHERE {ours} AND query = $1"),
            statements: Vec::new(),
            tracks_planning: false,
        };
        // Says at once whether the view can be read at all.
        control
            .rows(&view.from_ids, &["0"])
            .map_err(|error| match error.sqlstate() {
                Some("42501") => "the role may not read pg_stat_statements".to_owned(),
                Some("42703") => {
                    "the extension pg_stat_statements is older than 1.8: ALTER EXTENSION pg_stat_statements UPDATE"
                        .to_owned()
                }
                _ => in_words(&error),
            })
            .map_err(|why| format!("pg_stat_statements cannot be read: {why}"))?;
        let tracks = control.value("SELECT current_setting('pg_stat_statements.track_planning', true)");
        view.tracks_planning = tracks.is_ok_and(|value| value.as_deref() == Some("on"));
        for sql in queries {
            view.statements.push(if sql.trim().is_empty() { None } else { Some(known(control, sql)) });
        }
        Ok(view)
    }

    /// The counters of statement `at` (from 0) now; nothing if it was never seen.
    ///
    /// # Errors
    /// Why they cannot be read, in words.
    pub fn read(&self, control: &mut Control, at: usize) -> Result<Counters, String> {
        let (sql, value) = match self.statements.get(at).and_then(Option::as_ref) {
            Some(Known::Id(id)) => (&self.from_ids, id),
            Some(Known::Text(text)) => (&self.from_texts, text),
            None => return Ok(Counters::default()),
        };
        let rows = control.rows(sql, &[value]).map_err(|error| in_words(&error))?;
        let text = |column| rows.get(0, column).unwrap_or_default();
        let number = |column| text(column).parse::<f64>().unwrap_or(0.0);
        Ok(Counters { calls: number(0) as u64, plans: number(1) as u64, plan_us: number(2), exec_us: number(3) })
    }
}

/// EXPLAIN plans but does not run; what it cannot explain is known by its text.
fn known(control: &mut Control, sql: &str) -> Known {
    let explained = control.rows(&format!("EXPLAIN (VERBOSE) {sql}"), &[]);
    let id = explained.ok().and_then(|rows| {
        rows.iter().find_map(|row| row.first()?.as_ref()?.trim().strip_prefix("Query Identifier: ").map(str::to_owned))
    });
    id.map_or_else(|| Known::Text(sql.trim().to_owned()), Known::Id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_of_counters() {
        let before = Counters { calls: 2, plans: 1, plan_us: 10.0, exec_us: 100.0 };
        let after = Counters { calls: 5, plans: 1, plan_us: 10.0, exec_us: 160.0 };
        assert_eq!(after.since(&before), Some(Counters { calls: 3, plans: 0, plan_us: 0.0, exec_us: 60.0 }));
        assert_eq!(before.since(&after), None);
    }
}
