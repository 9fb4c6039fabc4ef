//! What the experiment shows, in words; its tables and charts are beside it.

use super::csv;
use super::model::{Cell, RoundKind, Storm};
use crate::failure::FailureCount;
use crate::report::{Exhibit, Experiment, Finding, Measure, Tone};
use crate::stats::{count, micros, ratio_text};
use crate::target::Side;

impl Experiment for Storm {
    fn title(&self) -> String {
        "Connecting many clients".to_owned()
    }

    fn method(&self) -> String {
        let s = &self.settings;
        let sides: Vec<String> = self.sides().map(|side| side.to_string()).collect();
        let statement = s.statement.as_ref().map_or_else(String::new, |sql| format!("; each then runs: {sql}"));
        let plural = |n: u32| if n == 1 { "" } else { "s" };
        format!(
            "{}; clients connecting: {}, driven by {} thread{}; {} round{} of each number{}; all stay connected until the last \
             one is ready, then {}{statement}",
            sides.join(" and "),
            s.pace,
            s.threads,
            plural(s.threads),
            s.rounds,
            plural(s.rounds),
            if sides.len() > 1 { ", the sides in turn" } else { "" },
            s.disconnect,
        )
    }

    fn findings(&self) -> Vec<Finding> {
        let mut findings: Vec<Finding> = self.sides().filter_map(|side| self.growth_finding(side)).collect();
        findings.extend(self.comparison());
        findings
    }

    fn exhibits(&self) -> Vec<Exhibit> {
        let tables = [self.totals(), self.fits(), self.residuals(), self.costs()];
        let mut all: Vec<Exhibit> =
            tables.into_iter().filter(|table| !table.rows.is_empty()).map(Exhibit::Table).collect();
        let charts = [self.growth_chart(), self.residual_chart(), self.completion_chart()];
        all.extend(charts.into_iter().filter(|chart| !chart.series.is_empty()).map(Exhibit::Chart));
        all
    }

    fn failures(&self) -> Vec<(String, FailureCount)> {
        let named = |cell: &Cell| format!("{}, {} clients", cell.side, cell.clients);
        self.cells.iter().flat_map(|c| c.failures.iter().map(move |f| (named(c), f.clone()))).collect()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(facts) = &self.facts {
            let from = facts.huge_pages_from.as_ref().map_or_else(String::new, |from| format!(" (by {from})"));
            notes.push(format!("the server's shared memory in huge pages: {}{from}", facts.huge_pages));
        }
        notes.extend(self.notes.iter().cloned());
        notes
    }

    fn interrupted(&self) -> bool {
        self.interrupted
    }

    fn measures(&self) -> Vec<Measure> {
        csv::measures(self)
    }

    fn csv(&self) -> String {
        csv::csv(self)
    }
}

impl Storm {
    pub(super) fn sides(&self) -> impl Iterator<Item = Side> {
        Side::ALL.into_iter().filter(|side| self.cells.iter().any(|c| c.side == *side))
    }

    pub(super) fn sizes(&self) -> Vec<u32> {
        let mut sizes: Vec<u32> = self.cells.iter().map(|c| c.clients).collect();
        sizes.dedup();
        sizes
    }

    fn growth_finding(&self, side: Side) -> Option<Finding> {
        let growth = self.growth_of(side)?;
        let tone = match growth.growth.as_ref().and_then(|g| g.power_law.exponent.interval) {
            Some(i) if i.high < super::growth::LINEAR_BELOW => Tone::Good,
            Some(i) if i.low > super::growth::LINEAR_BELOW => Tone::Bad,
            _ => Tone::Neutral,
        };
        let rounds = growth.rounds;
        Some(Finding { tone, text: format!("{side}, time to connect N clients ({rounds}): {}.", growth.verdict) })
    }

    /// managed / direct at the largest number that both have.
    fn comparison(&self) -> Option<Finding> {
        let kind = |cell: &Cell| {
            let of = |kind| cell.spread(kind, |r| Some(r.total_us));
            of(RoundKind::Later).or_else(|| of(RoundKind::First))
        };
        let both = |n: u32| Some((n, kind(self.cell(Side::Direct, n)?)?, kind(self.cell(Side::Managed, n)?)?));
        let (n, direct, managed) = self.sizes().into_iter().rev().find_map(both)?;
        let ratio = direct.median() / managed.median();
        let tone = if ratio > 1.0 { Tone::Good } else { Tone::Bad };
        let text = format!(
            "{} clients are connected in {} directly and in {} through the manager ({} faster).",
            count(f64::from(n)),
            micros(direct.median()),
            micros(managed.median()),
            ratio_text(ratio)
        );
        Some(Finding { tone, text })
    }
}
