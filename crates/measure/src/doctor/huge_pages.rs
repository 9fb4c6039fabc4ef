//! Whether shared memory lies in huge pages. Without them each backend builds page tables for every small page that it
//! touches; the more existing connections there are, the more it touches while it holds a lock that all starters need.

use super::facts::Facts;
use super::id::Id;
use super::look::Look;
use super::model::{Cost, CureKind, Finding, Severity};
use super::place::Place;
use super::rate::short_per_second;
use super::settings::Settings;
use super::thresholds::Thresholds;
use crate::proc;
use crate::stats::count;

/// Whether they are in use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct HugePages {
    /// `None` if it could not be found out.
    pub(super) in_use: Option<bool>,
    /// How that is known.
    pub(super) source: &'static str,
    /// How many pages of shared memory that would be (15 and later).
    pub(super) needed: Option<u64>,
}

impl HugePages {
    /// Asks the server, and where that does not tell, this machine.
    pub(super) fn look(look: &mut Look, settings: &Settings, place: &Place) -> Self {
        let huge_pages = settings.text("huge_pages").unwrap_or_default();
        let (in_use, source) = match settings.text("huge_pages_status") {
            Some("on") => (Some(true), "huge_pages_status"),
            Some("off") => (Some(false), "huge_pages_status"),
            _ if huge_pages == "on" => (Some(true), "huge_pages = on, and the server runs"),
            _ if huge_pages == "off" => (Some(false), "huge_pages = off"),
            _ if place.same_machine && proc::memory("HugePages_Total") == Some(0) => {
                (Some(false), "/proc/meminfo: HugePages_Total is 0")
            }
            _ => (None, ""),
        };
        if in_use.is_none() && !huge_pages.is_empty() {
            let reason = "huge_pages = try, and a server before 17 does not say whether it got them";
            look.skip("huge pages", reason, "grep -i huge /proc/meminfo on the server's machine");
        } else if in_use.is_some() {
            look.done("huge pages");
        }
        let sql = "select reset_val from pg_settings where name = 'shared_memory_size_in_huge_pages'";
        let needed = look.try_ask(sql, &[]).ok().and_then(|answer| answer.text(0, 0)?.parse().ok());
        Self { in_use, source, needed }
    }
}

/// Large shared memory in small pages.
pub(super) fn judge(facts: &Facts, limits: &Thresholds, out: &mut Vec<Finding>) {
    let (Some(false), Some(buffers)) = (facts.huge_pages.in_use, facts.settings.shared_buffers()) else { return };
    if buffers < limits.huge_pages_notice {
        return;
    }
    let rate = short_per_second(facts, limits).unwrap_or(0.0);
    let severe = buffers >= limits.huge_pages_warning || rate >= limits.rate_warning;
    let severity = if severe { Severity::Warning } else { Severity::Notice };
    let size = format!("{} MiB", count(buffers / 1024.0 / 1024.0));
    let what =
        format!("{size} of shared buffers lie in small pages: each backend maps them one by one as it touches them.");
    let mut finding = Finding::new(Id::HugePagesOff, severity, what)
        .evidence("huge pages in use", "no", facts.huge_pages.source)
        .evidence("huge_pages", facts.settings.text("huge_pages").unwrap_or("?"), "pg_settings")
        .evidence("shared_buffers", size, "pg_settings");
    if let Some(faults) = facts.probes.faults() {
        finding = finding.evidence(
            "page faults of a new backend",
            format!("{} (median)", count(faults)),
            "/proc/PID/stat, field 10, right after login",
        );
    }
    finding = finding.cost(Cost::unknown(
        "that needs a restart with huge pages; compare the page faults and the time of a connection afterwards",
    ));
    let pages = facts.huge_pages.needed.unwrap_or((buffers / 2_097_152.0 * 1.1).ceil() as u64);
    out.push(
        finding
            .cure(CureKind::Command, format!("sysctl -w vm.nr_hugepages={pages}   # on the server; pages of 2 MiB"))
            .cure(CureKind::Restart, "huge_pages = on"),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::rate::Rate;

    fn found(in_use: Option<bool>, blocks: &str, rate: f64) -> Vec<Severity> {
        let facts = Facts {
            huge_pages: HugePages { in_use, source: "test", needed: None },
            settings: Settings::of(&[("shared_buffers", blocks), ("huge_pages", "try")]),
            rate: Some(Rate { watched: 1.0, begun: rate, still_open: Some(0.0), ..Rate::default() }),
            ..Facts::default()
        };
        let mut out = Vec::new();
        judge(&facts, &Thresholds::default(), &mut out);
        out.into_iter().map(|f| f.severity).collect()
    }

    #[test]
    fn size_and_connection_rate_decide() {
        assert_eq!(found(Some(false), "131071", 0.0), []);
        assert_eq!(found(Some(false), "131072", 0.0), [Severity::Notice], "1 GiB in blocks of 8 KiB");
        assert_eq!(found(Some(false), "131072", 10.0), [Severity::Warning], "and many short connections");
        assert_eq!(found(Some(false), "1048576", 0.0), [Severity::Warning], "8 GiB");
        assert_eq!(found(Some(true), "1048576", 10.0), []);
        assert_eq!(found(None, "1048576", 10.0), [], "unknown is no finding");
    }
}
