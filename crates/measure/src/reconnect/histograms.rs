//! How the times are distributed, as bars for the terminal.

use super::model::{Histograms, Reconnect};
use crate::stats::{Bucket, count, micros, percent};

/// How the times are distributed, as bars; nothing for what was not measured. Ends with a line feed.
#[must_use]
pub fn histograms(result: &Reconnect) -> String {
    type Choose = fn(&Histograms) -> &[Bucket];
    let phases: [(&str, Choose); 4] = [
        ("response", |h| &h.response),
        ("connect", |h| &h.connect),
        ("transaction", |h| &h.transaction),
        ("disconnect", |h| &h.disconnect),
    ];
    let mut out = String::new();
    for cell in &result.cells {
        for (name, of) in phases {
            bars(&mut out, &format!("{} {}, {name}", cell.side, cell.mode), of(&cell.histograms));
        }
    }
    out
}

/// The widest bar, in characters.
const BAR: f64 = 50.0;

fn bars(out: &mut String, title: &str, buckets: &[Bucket]) {
    let most = buckets.iter().map(|b| b.count).max().unwrap_or(0) as f64;
    let total = buckets.iter().map(|b| b.count).sum::<u64>() as f64;
    if most == 0.0 {
        return;
    }
    out.push_str(&format!("\n{title}\n"));
    for b in buckets {
        let n = b.count as f64;
        // One that has anything at all is seen.
        let width = if b.count == 0 { 0 } else { (n / most * BAR).round().max(1.0) as usize };
        let line = format!(
            "  up to {:>9} {:>9} {:>8} {}",
            micros(b.up_to_us),
            count(n),
            percent(n / total),
            "#".repeat(width)
        );
        out.push_str(line.trim_end());
        out.push('\n');
    }
}
