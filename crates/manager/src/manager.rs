//! Starts a manager and ends it.

use crate::config::{Config, ConfigError, Listen};
use crate::control::{Control, find_server};
use crate::core::Mail;
use crate::shared::Shared;
use crate::worker::{Letter, Listener, Mailbox, Post, Worker};
use pgusher_auth::MockSecret;
use pgusher_pool::WorkerId;
use rand::RngCore;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Why a manager could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address or path.
        address: String,
        /// Why.
        error: std::io::Error,
    },
    /// The system refuses something that every worker needs.
    #[error("cannot start a worker: {0}")]
    System(#[from] std::io::Error),
}

/// A running manager. Dropping it stops it at once.
pub struct Manager {
    addresses: Vec<String>,
    shared: Arc<Shared>,
    post: Arc<Post>,
    workers: Vec<JoinHandle<()>>,
    control: Option<Control>,
    shutdown: Duration,
}

impl Manager {
    /// Opens the listeners and starts the threads.
    ///
    /// # Errors
    /// See [`StartError`]. Nothing is left running then.
    pub fn start(config: Config) -> Result<Self, StartError> {
        raise_file_limit();
        let mut seed = [0; 32];
        rand::rng().fill_bytes(&mut seed);
        let mock = MockSecret::new(seed);
        let users = config.user_list(|_| {
            let mut salt = [0; pgusher_auth::SALT_LEN];
            rand::rng().fill_bytes(&mut salt);
            salt
        })?;
        let listeners = listen(&config.listen)?;
        let addresses = listeners.iter().map(|l| l.address()).collect();
        let shutdown = config.timeouts.shutdown();
        let count = config.workers;
        let upstream = find_server(&config.server, config.timeouts.server_connect())?;
        let shared = Arc::new(Shared::new(config, upstream, users, mock));

        let mut mailboxes = Vec::new();
        let mut slots = Vec::new();
        for _ in 0..count {
            let (mailbox, slot) = Mailbox::new()?;
            mailboxes.push(mailbox);
            slots.push(slot);
        }
        let post = Arc::new(Post::new(slots));
        let control = Control::start(shared.clone(), post.clone())?;
        let mut workers = Vec::new();
        for (index, mailbox) in mailboxes.into_iter().enumerate() {
            let me = WorkerId(u8::try_from(index).unwrap_or(u8::MAX));
            let own = listeners.iter().map(Listener::share).collect::<Result<Vec<_>, _>>()?;
            let worker = Worker::new(me, shared.clone(), post.clone(), control.questions(), mailbox, own)?;
            workers.push(std::thread::Builder::new().name(format!("worker {index}")).spawn(move || worker.run())?);
        }
        Ok(Self { addresses, shared, post, workers, control: Some(control), shutdown })
    }

    /// What it listens on: `ADDRESS:PORT` or the path of a Unix socket.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// How many batches were sent behind another client's so far, because of `multiplex`.
    pub fn followed(&self) -> u64 {
        self.shared.followed.load(Ordering::Relaxed)
    }

    /// Begins to drain: no new clients, and those that are connected are closed at the end of their transactions.
    pub fn drain(&self) {
        self.shared.draining.store(true, Ordering::Relaxed);
        for worker in 0..self.workers.len() {
            self.post.send(WorkerId(u8::try_from(worker).unwrap_or(u8::MAX)), Letter::Core(Mail::Drain));
        }
    }

    /// Has every worker ended?
    pub fn is_finished(&self) -> bool {
        self.workers.iter().all(JoinHandle::is_finished)
    }

    /// Drains, waits for the transactions to end as long as the configuration allows, then stops. `hurry` is asked now and
    /// then whether to stop at once. Returns whether every client could end its transaction.
    pub fn shut_down(mut self, hurry: impl Fn() -> bool) -> bool {
        self.drain();
        let begun = Instant::now();
        while !self.is_finished() && begun.elapsed() < self.shutdown && !hurry() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let clean = self.is_finished();
        self.stop();
        clean
    }

    fn stop(&mut self) {
        for worker in 0..self.workers.len() {
            self.post.send(WorkerId(u8::try_from(worker).unwrap_or(u8::MAX)), Letter::Stop);
        }
        for worker in self.workers.drain(..) {
            // A worker that panicked has said so; there is nothing left to do for it.
            let _ = worker.join();
        }
        self.control.take();
        for address in self.addresses.iter().filter(|a| a.starts_with('/')) {
            let _ = std::fs::remove_file(address);
        }
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.stop();
    }
}

fn listen(wanted: &[Listen]) -> Result<Vec<Listener>, StartError> {
    let mut port = crate::config::DEFAULT_PORT;
    let mut listeners = Vec::new();
    // TCP first: a Unix socket is named after its port.
    for address in wanted.iter().filter_map(|l| if let Listen::Tcp(a) = l { Some(a) } else { None }) {
        let listener =
            Listener::tcp(*address).map_err(|error| StartError::Listen { address: address.to_string(), error })?;
        port = listener.port().unwrap_or(port);
        listeners.push(listener);
    }
    for folder in wanted.iter().filter_map(|l| if let Listen::Unix(p) = l { Some(p) } else { None }) {
        let path = folder.join(format!(".s.PGSQL.{port}"));
        let listener =
            Listener::unix(&path).map_err(|error| StartError::Listen { address: path.display().to_string(), error })?;
        listeners.push(listener);
    }
    Ok(listeners)
}

/// Each client and each server needs a file descriptor: takes as many as the system allows.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(e) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!("the limit of open files stays as it is: {e}");
    }
}
