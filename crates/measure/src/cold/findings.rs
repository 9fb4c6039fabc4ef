//! Sentences that follow from the numbers, whichever way they came out.

use super::model::{Cell, Cold, Connecting, Event, Sample};
use super::per_table::Run;
use crate::report::{Finding, Tone};
use crate::stats::{Interval, Ratio, count, micros, ratio_of_medians};
use crate::target::Side;

/// A difference below this is not worth a sentence of its own, whatever its interval.
const NOTICEABLE: f64 = 1.1;

pub(super) fn findings(cold: &Cold) -> Vec<Finding> {
    let mut findings = Vec::new();
    for event in Event::ALL {
        for side in Side::ALL {
            findings.extend(cold.with_fewest_objects(event, side).and_then(first_connection));
        }
        findings.extend(direct_and_managed(cold, event));
    }
    findings.extend(kept(cold));
    findings.extend(growth_with_objects(cold));
    findings.extend(growth_with_tables(cold));
    findings
}

fn finding(tone: Tone, text: String) -> Option<Finding> {
    Some(Finding { tone, text })
}

fn interval(interval: Option<Interval>, write: fn(f64) -> String) -> String {
    interval.map_or_else(String::new, |i| match i.low > 0.0 && i.high > 100.0 * i.low {
        true => " (too few rounds for an interval)".to_owned(),
        false => format!(" ({} to {})", write(i.low), write(i.high)),
    })
}

fn plain(value: f64) -> String {
    format!("{value:.2}")
}

/// What a ratio says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Difference {
    /// More than 1, beyond chance and by something worth saying.
    More,
    /// Less than 1, likewise.
    Less,
    /// About 1.
    None,
    /// Not about 1, but that may be chance.
    Unclear,
}

impl Difference {
    fn of(ratio: Ratio) -> Self {
        let about_1 = (1.0 / NOTICEABLE..=NOTICEABLE).contains(&ratio.value);
        let shown = ratio.interval.is_none() || ratio.differs();
        // "About the same" needs an interval that is about 1 as well.
        let narrow = ratio.interval.is_none_or(|i| i.low > 0.8 && i.high < 1.25);
        match (about_1, shown) {
            (true, _) if narrow => Self::None,
            (true, _) | (false, false) => Self::Unclear,
            (false, true) if ratio.value > 1.0 => Self::More,
            (false, true) => Self::Less,
        }
    }
}

fn first_connection(group: &Connecting) -> Option<Finding> {
    let (first, later) = (group.connect.first.as_ref()?.median, group.connect.later.as_ref()?.median);
    let ratio = group.connect.first_to_later?;
    let whose = match group.side {
        Side::Direct => "the first connection",
        Side::Managed => "the first connection of a client through the manager",
    };
    let times = format!("{} times{}", plain(ratio.value), interval(ratio.interval, plain));
    let later_one = format!("a later one ({})", micros(later));
    let (tone, verdict) = match Difference::of(ratio) {
        Difference::None => (Tone::Good, format!("about as long as {later_one}: {times}")),
        Difference::Unclear => {
            (Tone::Neutral, format!("and the rounds differ too much to compare it with {later_one}: {times}"))
        }
        Difference::More => {
            let tone = if group.side == Side::Direct { Tone::Bad } else { Tone::Neutral };
            (tone, format!("{times} as long as {later_one}"))
        }
        Difference::Less => (Tone::Neutral, format!("less than {later_one}: {times} as long")),
    };
    let cpu = match (&group.backend_cpu.first, &group.backend_cpu.later) {
        (Some(first), Some(later)) => {
            format!(
                "; its backend needs {} of processor time, a later one {}",
                micros(first.median),
                micros(later.median)
            )
        }
        _ => String::new(),
    };
    finding(tone, format!("After {} {whose} takes {}, {verdict}{cpu}.", group.event, micros(first)))
}

/// What the manager's clients are spared: until the first answer, since a manager may let its clients in at once and
/// make them wait afterwards.
fn direct_and_managed(cold: &Cold, event: Event) -> Option<Finding> {
    // A manager of its own was started after the same restart of the server.
    let direct_event = if event == Event::Provoke { event } else { Event::Restart };
    let smallest = |event, side| {
        let cells = cold.cells.iter().filter(|c| c.event == event && c.side == side);
        cells.min_by_key(|c| (c.objects, c.tables))
    };
    let (direct, managed) = (smallest(direct_event, Side::Direct)?, smallest(event, Side::Managed)?);
    let firsts = |cell: &Cell| -> Vec<f64> {
        let samples = cell.rounds.iter().flat_map(|r| &r.samples);
        samples.filter(|s| s.number == 1).filter_map(Sample::answer_us).collect()
    };
    let ratio = ratio_of_medians(&firsts(direct), &firsts(managed))?;
    let (direct, managed) = (direct.answer.first.as_ref()?.median, managed.answer.first.as_ref()?.median);
    let times = format!("{} times{}", plain(ratio.value), interval(ratio.interval, plain));
    let (tone, verdict) = match Difference::of(ratio) {
        Difference::Unclear => {
            (Tone::Neutral, format!("the rounds differ too much to tell which is faster ({times} as fast)"))
        }
        Difference::More => (Tone::Good, format!("{times} as fast")),
        Difference::Less => (Tone::Bad, format!("slower, {times} as fast")),
        Difference::None => (Tone::Neutral, format!("about the same, {times} as fast")),
    };
    finding(
        tone,
        format!(
            "After {event} the first client of the manager has its first answer {} after it began to connect, the first direct one \
             after {}: {verdict}.",
            micros(managed),
            micros(direct)
        ),
    )
}

fn kept(cold: &Cold) -> Option<Finding> {
    let all: Vec<_> = cold.cells.iter().flat_map(|c| &c.rounds).filter_map(|r| r.kept.as_ref()).collect();
    let lived = all.iter().filter(|k| k.query_us.is_some()).count();
    let example = all.iter().find_map(|k| k.error.as_deref());
    let (tone, how) = match (lived, example) {
        _ if all.is_empty() => return None,
        (_, None) => (Tone::Good, "every time".to_owned()),
        (0, Some(error)) => (Tone::Bad, format!("never: {error}")),
        (_, Some(error)) => (Tone::Bad, format!("{lived} of {} times; otherwise: {error}", all.len())),
    };
    finding(
        tone,
        format!(
            "A client that was connected to the manager before PostgreSQL's restart, and idle, could go on after it {how}."
        ),
    )
}

/// Numbers of tables are measured one after the other, so what else the machine does then weighs on the times. Where the
/// backend's processor time is known, it decides.
fn growth_with_objects(cold: &Cold) -> Vec<Finding> {
    let Some(most) = cold.connecting.iter().filter_map(|c| c.objects).max() else {
        return Vec::new();
    };
    let fewest = cold.connecting.iter().filter_map(|c| c.objects).min().unwrap_or(0);
    let largest = cold.connecting.iter().filter(|c| c.objects == Some(most) && c.side == Side::Direct);
    largest
        .filter_map(|group| {
            let time = group.first_to_fewest_objects?;
            let times = |ratio: Ratio| format!("{} times{}", plain(ratio.value), interval(ratio.interval, plain));
            let (tone, verdict) = match Difference::of(group.first_cpu_to_fewest_objects.unwrap_or(time)) {
                Difference::More => (Tone::Bad, "grows"),
                Difference::Less | Difference::None => (Tone::Neutral, "does not grow"),
                Difference::Unclear => (Tone::Neutral, "is not shown to grow"),
            };
            let with = format!("with {} instead of {}", count(f64::from(most)), count(f64::from(fewest)));
            let numbers = match group.first_cpu_to_fewest_objects {
                None => format!("{with} it takes {} as long", times(time)),
                Some(cpu) => format!(
                    "{with} its backend needs {} the processor time. The time to connect, on which other work of the machine weighs as \
                     well, was {} as long",
                    times(cpu),
                    times(time)
                ),
            };
            let text = format!(
                "The first connection after {} {verdict} with the number of tables in the database: {numbers}.",
                group.event
            );
            finding(tone, text)
        })
        .collect()
}

fn growth_with_tables(cold: &Cold) -> Option<Finding> {
    let find = |side, run| {
        let fewest = cold.per_table.iter().map(|p| p.objects).min().flatten();
        cold.per_table.iter().find(|p| p.side == side && p.run == run && p.objects == fewest)
    };
    let first = find(Side::Direct, Run::FirstOfLater)?;
    let again = find(Side::Direct, Run::AgainOfLater)?;
    let grows = first.interval.is_none_or(|i| i.low > 0.0) && first.us > 0.0;
    if !grows {
        return finding(
            Tone::Neutral,
            "That the first query of a connection grows with the tables that it touches could not be shown.".to_owned(),
        );
    }
    let cold_first = find(Side::Direct, Run::FirstOfFirst).map_or_else(String::new, |f| {
        let after = f.event.map_or_else(String::new, |event| format!(" after {event}"));
        format!("; {} in the first connection{after}", micros(f.us))
    });
    let managed = find(Side::Managed, Run::FirstOfLater).map_or_else(String::new, |m| {
        format!(" Through the manager it is {} per table{}.", micros(m.us), interval(m.interval, micros))
    });
    finding(
        Tone::Neutral,
        format!(
            "The first query of every new connection grows with the tables that it touches: {} per table{}, against {} when it is \
             sent again{cold_first}.{managed}",
            micros(first.us),
            interval(first.interval, micros),
            micros(again.us),
        ),
    )
}
