//! The system catalogs that each new backend reads: whether they are bloated, and how often they are vacuumed.

use super::facts::Facts;
use super::id::Id;
use super::init_files::Cold;
use super::look::Look;
use super::model::{Cost, CureKind, Finding, Per, Severity};
use super::thresholds::Thresholds;
use crate::stats::count;

/// One catalog of the database we are in.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Catalog {
    pub(super) name: String,
    /// Bytes, without indexes.
    pub(super) size: f64,
    pub(super) live: f64,
    pub(super) dead: f64,
    /// Vacuums by hand and by autovacuum since the counters were reset.
    pub(super) vacuums: f64,
}

/// Catalogs with the bytes that a row of theirs takes, its header and its line pointer included (measured on fresh
/// databases of PostgreSQL 15, rounded up).
const WIDTHS: &[(&str, f64)] = &[
    ("pg_attribute", 160.0),
    ("pg_attrdef", 300.0),
    ("pg_class", 260.0),
    ("pg_constraint", 260.0),
    ("pg_depend", 64.0),
    ("pg_index", 180.0),
    ("pg_proc", 320.0),
    ("pg_rewrite", 6000.0),
    ("pg_shdepend", 80.0),
    ("pg_statistic", 700.0),
    ("pg_trigger", 250.0),
    ("pg_type", 240.0),
];

/// How many times what its rows need a catalog may be large.
const BLOAT: f64 = 5.0;

/// Asks for size, rows and vacuums of each.
pub(super) fn look(look: &mut Look) -> Option<Vec<Catalog>> {
    let names: Vec<&str> = WIDTHS.iter().map(|(name, _)| *name).collect();
    let list = format!("{{{}}}", names.join(","));
    // Without an ANALYZE the counters know of no live rows; then the catalog's own estimate may.
    let sql = "select c.relname, pg_relation_size(c.oid), greatest(s.n_live_tup, c.reltuples), s.n_dead_tup, \
        s.vacuum_count + s.autovacuum_count \
        from pg_class c join pg_stat_sys_tables s on s.relid = c.oid \
        where c.relnamespace = 'pg_catalog'::regnamespace and c.relname = any ($1::name[])";
    let answer = look.ask("system catalogs", sql, &[Some(&list)], "")?;
    look.done("system catalogs");
    let number = |row, column| answer.number(row, column).unwrap_or_default();
    Some(
        (0..answer.len())
            .filter_map(|row| {
                Some(Catalog {
                    name: answer.text(row, 0)?,
                    size: number(row, 1),
                    live: number(row, 2),
                    dead: number(row, 3),
                    vacuums: number(row, 4),
                })
            })
            .collect(),
    )
}

/// Bloat, vacuums without end, and no vacuum at all.
pub(super) fn judge(facts: &Facts, limits: &Thresholds, out: &mut Vec<Finding>) {
    if facts.settings.is_off("autovacuum") || facts.settings.is_off("track_counts") {
        let name = if facts.settings.is_off("autovacuum") { "autovacuum" } else { "track_counts" };
        out.push(
            Finding::new(
                Id::AutovacuumOff,
                Severity::Warning,
                format!("{name} is off: dead rows stay, in the catalogs as well."),
            )
            .evidence(name, "off", "pg_settings")
            .cost(Cost::unknown("it grows slowly; what it has led to shows under catalog-bloat"))
            .cure(CureKind::Reload, format!("{name} = on")),
        );
    }
    let Some(catalogs) = &facts.catalogs else { return };
    out.extend(bloat(limits, catalogs));
    out.extend(frequent_vacuums(facts, limits, catalogs));
}

impl Catalog {
    /// Bytes that its live rows need.
    fn needed(&self) -> f64 {
        let width = WIDTHS.iter().find(|(name, _)| *name == self.name).map_or(200.0, |(_, width)| *width);
        self.live.max(0.0) * width
    }

    fn is_bloated(&self, limits: &Thresholds) -> bool {
        let dead = self.dead >= limits.catalog_dead_rows && self.dead > self.live;
        // Without any live row the estimate is missing, not the rows.
        let large = self.size >= limits.catalog_size && self.live > 0.0 && self.size > BLOAT * self.needed();
        dead || large
    }
}

fn bloat(limits: &Thresholds, catalogs: &[Catalog]) -> Option<Finding> {
    let mut bloated: Vec<&Catalog> = catalogs.iter().filter(|c| c.is_bloated(limits)).collect();
    bloated.sort_by(|a, b| b.size.total_cmp(&a.size));
    let names: Vec<&str> = bloated.iter().map(|c| c.name.as_str()).collect();
    let worst = bloated.first()?;
    let severe = bloated.iter().any(|c| c.size >= limits.catalog_size);
    let severity = if severe { Severity::Warning } else { Severity::Notice };
    let what =
        format!("{} hold far more than their rows: new backends and planning read through it.", names.join(", "));
    let mut finding = Finding::new(Id::CatalogBloat, severity, what);
    for catalog in bloated.iter().take(3) {
        finding = finding.evidence(
            &catalog.name,
            format!(
                "{} KiB for {} live rows, {} dead",
                count(catalog.size / 1024.0),
                count(catalog.live),
                count(catalog.dead)
            ),
            "pg_relation_size, pg_stat_sys_tables",
        );
    }
    let finding = finding
        .cost(Cost::unknown(
            "it shows in the first connection after an invalidation (--provoke) and in first statements",
        ))
        .cure(CureKind::Sql, format!("VACUUM (VERBOSE) pg_catalog.{}", worst.name))
        .cure(
            CureKind::Sql,
            format!("VACUUM FULL pg_catalog.{}   (in a maintenance window: it locks out everybody)", worst.name),
        )
        .cure(CureKind::Habit, "fewer temporary tables; end transactions that stay open (idle-in-transaction)");
    Some(finding)
}

fn frequent_vacuums(facts: &Facts, limits: &Thresholds, catalogs: &[Catalog]) -> Option<Finding> {
    let total: f64 = catalogs.iter().map(|c| c.vacuums).sum();
    let made = facts.init_files.as_ref().and_then(|files| files.database_made).map(|made| facts.place.now - made);
    let age = facts.rate.and_then(|rate| rate.age).or(made)?;
    // At least an hour, so that a database that was just made has no extreme rate.
    let hours = (age / 3600.0).max(1.0);
    let per_hour = total / hours;
    let severity = match per_hour {
        r if r >= limits.catalog_vacuums_warning => Severity::Warning,
        r if r >= limits.catalog_vacuums_notice => Severity::Notice,
        _ => return None,
    };
    let what = format!(
        "System catalogs are vacuumed {} times per hour: each time pg_internal.init goes, and the next connections rebuild it.",
        count(per_hour)
    );
    let mut finding = Finding::new(Id::CatalogVacuumFrequent, severity, what).evidence(
        "vacuums of catalogs",
        format!("{} in {} hours", count(total), count(age / 3600.0)),
        "pg_stat_sys_tables: vacuum_count + autovacuum_count",
    );
    if let Some(most) = catalogs.iter().max_by(|a, b| a.vacuums.total_cmp(&b.vacuums)) {
        finding = finding.evidence("most of", format!("{} ({})", most.name, count(most.vacuums)), "pg_stat_sys_tables");
    }
    let cold = facts.init_files.as_ref().and_then(|files| files.cold.as_ref()).and_then(Cold::medians);
    let cost = match cold {
        Some((cold, warm)) => Cost::measured(
            Per::Connection,
            (cold - warm).max(0.0),
            "a connection right after one less another, medians, --provoke",
        ),
        None => Cost::unknown("it needs a connection right after the files were removed: --provoke measures that"),
    };
    Some(
        finding
            .cost(cost)
            .cure(CureKind::Habit, "fewer temporary tables and less DDL: they are what makes the catalogs' dead rows")
            .cure(CureKind::Command, "pgusher serve CONNINFO: its connections are open before the clients come"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::rate::Rate;
    use crate::doctor::settings::Settings;

    fn found(catalog: Catalog, age_hours: f64, settings: &[(&str, &str)]) -> Vec<(Id, Severity)> {
        let facts = Facts {
            catalogs: Some(vec![catalog]),
            rate: Some(Rate { age: Some(age_hours * 3600.0), ..Rate::default() }),
            settings: Settings::of(settings),
            ..Facts::default()
        };
        let mut out = Vec::new();
        judge(&facts, &Thresholds::default(), &mut out);
        out.into_iter().map(|f| (f.id, f.severity)).collect()
    }

    fn catalog(size_mib: f64, live: f64, dead: f64) -> Catalog {
        Catalog { name: "pg_attribute".to_owned(), size: size_mib * 1024.0 * 1024.0, live, dead, vacuums: 0.0 }
    }

    #[test]
    fn dead_rows_count_where_they_outnumber_the_living() {
        assert_eq!(found(catalog(1.0, 3000.0, 9_999.0), 1.0, &[]), []);
        assert_eq!(found(catalog(1.0, 3000.0, 10_000.0), 1.0, &[]), [(Id::CatalogBloat, Severity::Notice)]);
        assert_eq!(found(catalog(1.0, 10_000.0, 10_000.0), 1.0, &[]), []);
    }

    #[test]
    fn size_counts_against_what_the_rows_need() {
        // 80,000 rows of 160 bytes are 12.2 MiB.
        assert_eq!(found(catalog(61.0, 80_000.0, 0.0), 1.0, &[]), []);
        assert_eq!(found(catalog(64.0, 80_000.0, 0.0), 1.0, &[]), [(Id::CatalogBloat, Severity::Warning)]);
        assert_eq!(found(catalog(64.0, 90_000.0, 0.0), 1.0, &[]), [], "five times what it needs is 68.7 MiB");
        assert_eq!(found(catalog(64.0, 0.0, 0.0), 1.0, &[]), [], "no estimate yet");
    }

    #[test]
    fn vacuums_are_counted_per_hour_and_a_young_database_is_an_hour_old() {
        let with = |vacuums| Catalog { vacuums, ..catalog(1.0, 1.0, 0.0) };
        assert_eq!(found(with(11.9), 2.0, &[]), []);
        assert_eq!(found(with(12.0), 2.0, &[]), [(Id::CatalogVacuumFrequent, Severity::Notice)]);
        assert_eq!(found(with(120.0), 2.0, &[]), [(Id::CatalogVacuumFrequent, Severity::Warning)]);
        assert_eq!(found(with(5.0), 0.01, &[]), []);
    }

    #[test]
    fn nobody_vacuums() {
        let fine = || catalog(1.0, 1.0, 0.0);
        assert_eq!(found(fine(), 1.0, &[("autovacuum", "off")]), [(Id::AutovacuumOff, Severity::Warning)]);
        assert_eq!(found(fine(), 1.0, &[("autovacuum", "on"), ("track_counts", "off")]).len(), 1);
        assert_eq!(found(fine(), 1.0, &[("autovacuum", "on"), ("track_counts", "on")]), []);
    }
}
