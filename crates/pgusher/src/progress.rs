//! What happens now, on standard error: one line that changes on a terminal, otherwise a line every few seconds. Work that
//! is over within two seconds says nothing there.

use std::io::IsTerminal;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Silence at the beginning.
const PATIENCE: Duration = Duration::from_secs(2);

/// Time between two lines where there is no terminal.
const EVERY: Duration = Duration::from_secs(5);

/// Progress of one command; ends with its value.
pub(crate) struct Progress {
    started: Instant,
    shown: Shown,
}

enum Shown {
    /// A terminal.
    Bar(ProgressBar),
    /// Anything else: a thread writes the lines.
    Lines { shared: Arc<Shared>, writer: Option<JoinHandle<()>> },
}

#[derive(Default)]
struct Shared {
    now: Mutex<Now>,
    changed: Condvar,
}

#[derive(Default)]
struct Now {
    text: String,
    ended: bool,
}

impl Progress {
    /// Begins.
    pub(crate) fn new() -> Self {
        let started = Instant::now();
        let shown = if std::io::stderr().is_terminal() { Shown::Bar(bar()) } else { lines(started) };
        Self { started, shown }
    }

    /// What happens now, as often as one likes: `512 clients, round 3 of 10`.
    pub(crate) fn set(&mut self, text: &str) {
        match &self.shown {
            Shown::Bar(bar) => bar.set_message(text.to_owned()),
            Shown::Lines { shared, .. } => text.clone_into(&mut lock(shared).text),
        }
    }

    /// A step that is worth a line of its own even without a terminal.
    pub(crate) fn step(&mut self, text: &str) {
        if let Shown::Lines { .. } = self.shown {
            eprintln!("{}", stamped(self.started, text));
        }
        self.set(text);
    }

    /// A line that stays.
    pub(crate) fn line(&mut self, text: &str) {
        match &self.shown {
            Shown::Bar(bar) => bar.suspend(|| eprintln!("{text}")),
            Shown::Lines { .. } => eprintln!("{text}"),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        match &mut self.shown {
            Shown::Bar(bar) => bar.finish_and_clear(),
            Shown::Lines { shared, writer } => {
                lock(shared).ended = true;
                shared.changed.notify_all();
                if let Some(writer) = writer.take() {
                    // A panic there would have been seen on standard error.
                    let _ = writer.join();
                }
            }
        }
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    // A template without colours, so that NO_COLOR needs no special case.
    if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed:>4} {wide_msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

fn lines(started: Instant) -> Shown {
    let shared = Arc::new(Shared::default());
    let writer = thread::Builder::new().name("progress".to_owned()).spawn({
        let shared = Arc::clone(&shared);
        move || write_lines(&shared, started)
    });
    Shown::Lines { shared, writer: writer.ok() }
}

fn write_lines(shared: &Shared, started: Instant) {
    let (mut due, mut written) = (started + PATIENCE, String::new());
    let mut now = lock(shared);
    while !now.ended {
        let wait = due.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            now = shared.changed.wait_timeout(now, wait).unwrap_or_else(PoisonError::into_inner).0;
            continue;
        }
        // What has been said already is not said again.
        if !now.text.is_empty() && now.text != written {
            eprintln!("{}", stamped(started, &now.text));
            written.clone_from(&now.text);
        }
        due = Instant::now() + EVERY;
    }
}

fn stamped(started: Instant, text: &str) -> String {
    format!("[{:5.1} s] {text}", started.elapsed().as_secs_f64())
}

fn lock(shared: &Shared) -> MutexGuard<'_, Now> {
    shared.now.lock().unwrap_or_else(PoisonError::into_inner)
}
