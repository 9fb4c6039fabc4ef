//! Clients that use the same pool as a script and do all the time what must not reach it.

use super::play::{self, Expect};
use super::script::Script;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// They run until this is dropped.
pub struct Neighbours {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Neighbours {
    /// Each of `count` plays one of the scripts after another, in an order drawn from `seed`. Returns when all have played one.
    pub fn start(
        scripts: &Arc<Vec<Script>>,
        address: &str,
        user: &str,
        database: &str,
        count: usize,
        seed: u64,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let played = Arc::new(AtomicUsize::new(0));
        let threads = (0..count)
            .map(|number| {
                let (scripts, stop, played) = (scripts.clone(), stop.clone(), played.clone());
                let (address, user, database) = (address.to_owned(), user.to_owned(), database.to_owned());
                // Neighbours begin with different scripts, so that each is played now and then however short the run.
                let mut turn = (seed as usize).wrapping_add(number * scripts.len() / count.max(1));
                std::thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let script = &scripts[turn % scripts.len()];
                        let go_on = || !stop.load(Ordering::Relaxed);
                        play::play_as(script, &address, &user, &database, None, &Expect::Ready, go_on);
                        turn = turn.wrapping_add(1);
                        played.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let end = Instant::now() + Duration::from_secs(2);
        while played.load(Ordering::Relaxed) < count && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        Self { stop, threads }
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
