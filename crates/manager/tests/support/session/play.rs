//! Carries a script out over one address, and keeps what each client received.

use super::ground::Ground;
use super::script::{Action, Script, Then};
use super::side::{Event, Side};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What the clients of a script received.
#[derive(Debug, Default)]
pub struct Run {
    pub events: BTreeMap<char, Vec<Event>>,
    /// After each step: replies and notifications of its client. What the other run waits for.
    pub counts: Vec<(usize, usize)>,
    /// The step whose replies did not come.
    pub stuck: Option<usize>,
}

/// No direct reply takes longer. A script whose replies cannot be counted (a Sync within COPY) waits so long.
const DIRECT_PATIENCE: Duration = Duration::from_millis(1500);
/// In which nothing comes any more.
const PAUSE: Duration = Duration::from_millis(30);

/// How long a reply may take behind one that should have been the last.
const LAST: Duration = Duration::from_millis(400);

/// How to wait.
pub enum Expect<'a> {
    /// For as many ReadyForQuery as were asked for.
    Ready,
    /// For what came in another run, for `patience` at most.
    As { run: &'a Run, patience: Duration },
}

/// Plays the whole script, or up to the first step whose replies do not come.
pub fn play(script: &Script, address: &str, ground: &mut Ground, expect: &Expect<'_>) -> Run {
    let database = ground.database().to_owned();
    play_as(script, address, script.user(), &database, Some(ground), expect, || true)
}

/// As `play`, as this user, as long as `go_on` says so.
pub fn play_as(
    script: &Script,
    address: &str,
    user: &str,
    database: &str,
    mut ground: Option<&mut Ground>,
    expect: &Expect<'_>,
    go_on: impl Fn() -> bool,
) -> Run {
    let mut sides: BTreeMap<char, Side> = BTreeMap::new();
    let mut run = Run::default();
    for (number, step) in script.steps.iter().enumerate() {
        if !go_on() {
            break;
        }
        let expected = match expect {
            Expect::Ready => None,
            Expect::As { run, patience } => run.counts.get(number).map(|counts| (*counts, *patience)),
        };
        let Some(client) = step.action.client() else {
            match &step.action {
                Action::Outside(sql) => {
                    if let Some(ground) = &mut ground {
                        ground.outside(sql);
                    }
                }
                Action::Sleep(time) => std::thread::sleep(Duration::from_millis(*time)),
                _ => {}
            }
            run.counts.push((0, 0));
            continue;
        };
        let side = sides.entry(client).or_insert_with(|| Side::new(address));
        if matches!(expect, Expect::As { .. }) {
            side.cuts.get_or_insert(number as u64);
        }
        side.events.push(Event::Step(number));
        let came = act(side, &step.action, user, database, expected);
        run.counts.push((side.replies, side.notifications));
        if !came {
            run.stuck = Some(number);
            break;
        }
    }
    for (client, mut side) in sides {
        if run.stuck.is_none() && ground.is_some() {
            side.read_rest(Duration::from_millis(3));
        }
        side.disconnect(true);
        run.events.insert(client, std::mem::take(&mut side.events));
    }
    run
}

type Expected = Option<((usize, usize), Duration)>;

/// False if the replies did not come.
fn act(side: &mut Side, action: &Action, user: &str, database: &str, expected: Expected) -> bool {
    match action {
        Action::Connect { parameters, .. } => {
            let mut all = vec![("user", user), ("database", database)];
            for (name, value) in parameters {
                all.retain(|(n, _)| n != name);
                all.push((name, value));
            }
            side.connect(&all);
            answered(side, expected)
        }
        Action::Send { bytes, ready, copy_ends, then, .. } => {
            side.kept.extend_from_slice(bytes);
            side.owed += ready;
            side.copies -= *copy_ends as i64;
            if *then == Then::Keep {
                return true;
            }
            let kept = std::mem::take(&mut side.kept);
            side.send(&kept);
            match then {
                Then::Wait => answered(side, expected),
                Then::Look => looked(side, expected),
                Then::Keep | Then::Go => true,
            }
        }
        Action::Wait { .. } => answered(side, expected),
        Action::Notifications { count, .. } => match expected {
            None => {
                let count = side.notifications + count;
                side.read_until(DIRECT_PATIENCE, |side| side.notifications >= count);
                true
            }
            Some(((_, count), patience)) => side.read_until(patience, |side| side.notifications >= count),
        },
        Action::Quiet { .. } => {
            side.read_rest(PAUSE);
            true
        }
        Action::Disconnect { politely, .. } => {
            side.disconnect(*politely);
            true
        }
        Action::Cancel { .. } => {
            side.cancel();
            true
        }
        Action::Outside(_) | Action::Sleep(_) => true,
    }
}

fn answered(side: &mut Side, expected: Expected) -> bool {
    match expected {
        None => {
            loop {
                let count = side.events.len();
                let moved = |side: &Side| side.is_answered() || side.events.len() > count;
                if !side.read_until(DIRECT_PATIENCE, moved) || side.is_answered() || side.is_closed() {
                    break;
                }
            }
            // What was discarded is owed no more.
            if !side.is_answered() {
                side.owed = side.ready;
            }
            true
        }
        Some(((count, _), patience)) => {
            let end = Instant::now() + patience;
            // Once all that is owed has come, nothing more will.
            side.read_until(patience, |side| side.replies >= count || side.is_answered());
            let left = end.saturating_duration_since(Instant::now()).min(LAST);
            side.read_until(left, |side| side.replies >= count)
        }
    }
}

fn looked(side: &mut Side, expected: Expected) -> bool {
    match expected {
        None => {
            side.read_rest(PAUSE);
            true
        }
        Some(((count, _), patience)) => side.read_until(patience, |side| side.replies >= count),
    }
}
