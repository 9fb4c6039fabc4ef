//! Statements that are compiled although they are short: compiling then takes longer than what it saves. The first
//! compilation of each backend also loads the compiler, which takes tens of milliseconds and of megabytes.

use super::facts::Facts;
use super::id::Id;
use super::look::{Look, MONITOR};
use super::model::{Cost, CureKind, Finding, Per, Severity};
use super::place::Place;
use super::statements::{Statements, excerpt};
use super::thresholds::Thresholds;
use crate::stats::{count, micros, percent};

/// A statement that was compiled.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct CompiledStatement {
    pub(super) query: String,
    pub(super) calls: f64,
    /// Mean execution, compiling included, microseconds.
    pub(super) mean_us: f64,
    /// Compiling per call, microseconds.
    pub(super) jit_us: f64,
}

const WHAT: &str = "compilation (JIT) of short statements";

/// Statements with compiled functions. Not before 15, whose statistics of statements do not say.
pub(super) fn look(look: &mut Look, place: &Place, statements: &Statements) -> Option<Vec<CompiledStatement>> {
    let Some(table) = statements.table() else {
        look.skip(WHAT, "there are no statistics of statements", "see statement-statistics-missing");
        return None;
    };
    if !statements.has_jit {
        let reason = if place.is_at_least(15) {
            "the installed pg_stat_statements is older than 1.10"
        } else {
            "PostgreSQL's statistics of statements count compilations from version 15 on"
        };
        look.skip(WHAT, reason, "ALTER EXTENSION pg_stat_statements UPDATE, with PostgreSQL 15 or later");
        return None;
    }
    let sql = format!(
        "select query, calls, mean_exec_time * 1000, \
         (jit_generation_time + jit_inlining_time + jit_optimization_time + jit_emission_time) * 1000 / calls \
         from {table} where jit_functions > 0 and calls > 0 and strpos(query, '{}') = 0 \
         and dbid = (select oid from pg_database where datname = current_database()) \
         order by jit_generation_time + jit_inlining_time + jit_optimization_time + jit_emission_time desc limit 50",
        super::look::APPLICATION
    );
    let answer = look.ask(WHAT, &sql, &[], MONITOR)?;
    look.done(WHAT);
    let number = |row, column| answer.number(row, column).unwrap_or_default();
    Some(
        (0..answer.len())
            .map(|row| CompiledStatement {
                query: answer.text(row, 0).unwrap_or_default(),
                calls: number(row, 1),
                mean_us: number(row, 2),
                jit_us: number(row, 3),
            })
            .collect(),
    )
}

/// Short statements of which compiling is a good part.
pub(super) fn judge(facts: &Facts, limits: &Thresholds, out: &mut Vec<Finding>) {
    if !facts.settings.is_on("jit") {
        return;
    }
    let is_short = |s: &&CompiledStatement| s.mean_us < limits.short_statement_us && s.jit_us >= 0.1 * s.mean_us;
    let mut short: Vec<&CompiledStatement> = facts.compiled.iter().flatten().filter(is_short).collect();
    short.sort_by(|a, b| (b.jit_us * b.calls).total_cmp(&(a.jit_us * a.calls)));
    let Some(worst) = short.first() else { return };
    let total = |f: fn(&CompiledStatement) -> f64| short.iter().map(|s| f(s) * s.calls).sum::<f64>();
    let share = total(|s| s.jit_us) / total(|s| s.mean_us);
    let severity = if share >= 0.25 { Severity::Warning } else { Severity::Notice };
    let what = format!(
        "{} of the time of short statements is compiling them (JIT), in {}.",
        percent(share.min(1.0)),
        if short.len() == 1 { "one statement".to_owned() } else { format!("{} statements", short.len()) }
    );
    let mut finding = Finding::new(Id::JitShortStatements, severity, what).evidence(
        "jit_above_cost",
        facts.settings.text("jit_above_cost").unwrap_or("?"),
        "pg_settings",
    );
    for s in short.iter().take(3) {
        finding = finding.evidence(
            &excerpt(&s.query),
            format!("{} of {} per call, {} calls", micros(s.jit_us), micros(s.mean_us), count(s.calls)),
            "pg_stat_statements: jit_*_time, mean_exec_time",
        );
    }
    out.push(
        finding
            .cost(Cost::measured(
                Per::Statement,
                worst.jit_us,
                "by the server: jit_*_time / calls of the first statement",
            ))
            .cure(CureKind::Reload, "jit = off")
            .cure(CureKind::Reload, "jit_above_cost = 1000000   (if long analytical statements run here as well)"),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::settings::Settings;

    fn found(mean_us: f64, jit_us: f64, jit: &str) -> Vec<(Id, Severity)> {
        let statement = CompiledStatement { query: "select 1".to_owned(), calls: 10.0, mean_us, jit_us };
        let facts =
            Facts { compiled: Some(vec![statement]), settings: Settings::of(&[("jit", jit)]), ..Facts::default() };
        let mut out = Vec::new();
        judge(&facts, &Thresholds::default(), &mut out);
        out.into_iter().map(|f| (f.id, f.severity)).collect()
    }

    #[test]
    fn short_and_mostly_compiled() {
        assert_eq!(found(50_000.0, 4_999.0, "on"), []);
        assert_eq!(found(50_000.0, 5_000.0, "on"), [(Id::JitShortStatements, Severity::Notice)]);
        assert_eq!(found(50_000.0, 12_500.0, "on"), [(Id::JitShortStatements, Severity::Warning)]);
        assert_eq!(found(100_000.0, 90_000.0, "on"), [], "not short");
        assert_eq!(found(50_000.0, 40_000.0, "off"), [], "history");
    }
}
