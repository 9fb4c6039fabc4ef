//! Sentences that follow from the numbers, whichever way they came out.

use super::exhibits::{of_tables, words};
use super::model::{Comparison, Tables};
use crate::reconnect::Mode;
use crate::report::{Finding, Tone};
use crate::stats::{Ratio, micros};

pub(super) fn findings(result: &Tables) -> Vec<Finding> {
    let mut findings = Vec::new();
    for mode in result.modes() {
        for target in result.settings.targets.iter().skip(1) {
            findings.extend(against_the_first(result, mode, target));
        }
    }
    for target in &result.settings.targets {
        findings.extend(first_touch(result, target));
    }
    findings.extend(result.settings.targets.iter().filter_map(|target| catalog_queries(result, target)));
    findings
}

fn with_interval(ratio: Ratio) -> String {
    let interval = ratio.interval.map_or_else(String::new, |i| match i.high > 100.0 * i.low {
        true => " (too few runs for an interval)".to_owned(),
        false => format!(" ({:.2} to {:.2})", i.low, i.high),
    });
    format!("{:.2} times{interval}", ratio.value)
}

fn against_the_first(result: &Tables, mode: Mode, target: &str) -> Option<Finding> {
    let base = result.settings.targets.first()?;
    let of: Vec<&Comparison> = result.comparisons.iter().filter(|c| c.mode == mode && c.target == target).collect();
    let (fewest, most) = (of.iter().min_by_key(|c| c.tables)?, of.iter().max_by_key(|c| c.tables)?);
    let best = of.iter().max_by(|a, b| a.tps.value.total_cmp(&b.tps.value))?;
    let sure = |ratio: Ratio| ratio.interval.is_none() || ratio.differs();
    let tone = if of.iter().all(|c| c.tps.value > 1.0 && sure(c.tps)) {
        Tone::Good
    } else if of.iter().any(|c| c.tps.value < 1.0 && sure(c.tps)) {
        Tone::Bad
    } else {
        Tone::Neutral
    };
    let mut text = format!(
        "With {}, {target} does {} the transactions of {base} with {}",
        words(mode),
        with_interval(fewest.tps),
        of_tables(fewest.tables)
    );
    if most.tables != fewest.tables {
        text.push_str(&format!(", {} with {}", with_interval(most.tps), of_tables(most.tables)));
    }
    if best.tables != fewest.tables && best.tables != most.tables {
        text.push_str(&format!("; most with {}: {}", of_tables(best.tables), with_interval(best.tps)));
    }
    text.push('.');
    Some(Finding { tone, text })
}

/// What a physical connection pays for a table that it has not seen: the difference between its first and its later
/// transactions, for each table, over the largest range of tables that was measured.
fn first_touch(result: &Tables, target: &str) -> Option<Finding> {
    let mode = *result.modes().last()?;
    let cells: Vec<_> = result.cells.iter().filter(|c| c.mode == mode && c.target == target).collect();
    let fresh = cells.iter().flat_map(|c| &c.rounds).filter_map(|r| r.alone.as_ref()).all(|a| a.fresh);
    let (few, many) = (cells.iter().min_by_key(|c| c.tables)?, cells.iter().max_by_key(|c| c.tables)?);
    if !fresh || few.tables == many.tables {
        return None;
    }
    let more = f64::from(many.tables - few.tables);
    let first = (many.alone(|a| a.first_us)? - few.alone(|a| a.first_us)?) / more;
    let later = (many.alone(|a| a.later_us)? - few.alone(|a| a.later_us)?) / more;
    if first <= later {
        let text = format!(
            "{target}: that a physical connection pays more for a table that it has not seen could not be shown ({} and {} per table).",
            micros(first),
            micros(later)
        );
        return Some(Finding { tone: Tone::Neutral, text });
    }
    let text = format!(
        "{target}: each table costs {} in the first transaction of a new physical connection and {} in later ones ({} to {}).",
        micros(first),
        micros(later),
        of_tables(few.tables),
        of_tables(many.tables)
    );
    Some(Finding { tone: Tone::Neutral, text })
}

fn catalog_queries(result: &Tables, target: &str) -> Option<Finding> {
    let cells = result.cells.iter().filter(|c| c.target == target);
    let amounts: Vec<(u32, f64)> =
        cells.filter_map(|c| Some((c.tables, c.catalog(|w| w.queries_per_statement)?))).collect();
    let (tables, most) = amounts.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    if most >= 0.01 {
        let text = format!(
            "{target}: the server sees up to {most:.2} catalog queries for each statement of a client (with {}).",
            of_tables(tables)
        );
        return Some(Finding { tone: Tone::Bad, text });
    }
    let text = format!("{target}: the server sees less than one catalog query for a hundred statements of clients.");
    Some(Finding { tone: Tone::Good, text })
}
