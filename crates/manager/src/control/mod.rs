//! The control side: what may block and so must not be done by a worker.
//!
//! A few plain threads that answer [`Question`]s by mail. Their number is bounded, and so is what an unauthenticated client
//! can make them do: one connection attempt or one key derivation at a time each.

mod ahead;
mod chooser;
mod probe;
mod upkeep;

use crate::auth::{Facts, Login, speaks_against_server};
use crate::config::{ConfigError, Server};
use crate::core::{Mail, Origin, Question};
use crate::shared::{ServerAddress, Shared, Upstream, UserKey};
use crate::worker::{Letter, Post};
use chooser::Chooser;
use pgusher_auth::{DerivationCache, Password, StoredSecret, Verifier};
use pgusher_wire::{Report, sqlstate};
use probe::Outcome;
use rand::RngCore;
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use upkeep::{Remark, Upkeep};

/// Threads that ask the server about users; one more derives keys.
const THREADS: usize = 2;
/// Questions that wait for a thread, at most.
const MAX_QUESTIONS: usize = 1024;
/// For how long the server's word about a user is taken without asking again. A change of pg_hba.conf or of a password is
/// noticed after that at the latest.
const TRUSTED_FOR: Duration = Duration::from_secs(10);
/// Users whose facts are kept, at most.
const MAX_KNOWN: usize = 10_000;

/// The running control side. Ends with its last sender of questions.
pub struct Control {
    questions: Questions,
    threads: Vec<JoinHandle<()>>,
    upkeep: Option<JoinHandle<()>>,
}

/// Finds the server for the first time. A server that does not answer is no error: it may come yet.
///
/// # Errors
/// None of its hosts can be resolved.
pub fn find_server(server: &Server, limit: Duration) -> Result<Upstream, ConfigError> {
    let choice = Chooser::new(server, limit).choose(None, true);
    if choice.address.is_none() && !choice.candidates.is_empty() {
        tracing::warn!(reasons = ?choice.reasons, "no server of the connection string will do");
    }
    let address = choice.address.or(choice.candidates.first().cloned()).ok_or_else(|| {
        ConfigError(format!("the server's host name cannot be resolved: {}", choice.reasons.join("; ")))
    })?;
    let upstream = Upstream::new(address, server.conninfo.target_session_attrs);
    upstream.set_alternatives(choice.candidates.len() > 1);
    Ok(upstream)
}

/// Takes questions. There are two queues, so that clients that have not proved anything yet cannot hold up the logins of
/// physical connections.
#[derive(Clone)]
pub struct Questions {
    facts: SyncSender<Question>,
    keys: SyncSender<Question>,
    remarks: SyncSender<Remark>,
}

impl Questions {
    /// Asks. If too many questions wait already, the refusal comes back at once.
    pub fn ask(&self, question: Question) -> Option<Mail> {
        let queue = match question {
            Question::Facts { .. } => &self.facts,
            Question::Derive { .. } => &self.keys,
            Question::Unreachable { address } => {
                // One that is lost among so many does no harm.
                let _ = self.remarks.try_send(Remark::Unreachable(address));
                return None;
            }
        };
        let question = match queue.try_send(question) {
            Ok(()) => return None,
            Err(TrySendError::Full(question) | TrySendError::Disconnected(question)) => question,
        };
        Some(match question {
            Question::Facts { client, .. } => {
                let report = Report::fatal(sqlstate::TOO_MANY_CONNECTIONS, "too many clients log in at the same time")
                    .hint("Try again in a moment.");
                Mail::Facts { client, facts: Facts::Refuse(report) }
            }
            Question::Derive { server, .. } => Mail::Keys { server, keys: None },
            Question::Unreachable { .. } => return None,
        })
    }
}

struct Desk {
    shared: Arc<Shared>,
    post: Arc<Post>,
    remarks: SyncSender<Remark>,
    derivations: Mutex<DerivationCache>,
    learned: Mutex<HashMap<UserKey, Instant>>,
}

impl Control {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system allows no more threads.
    pub fn start(shared: Arc<Shared>, post: Arc<Post>) -> std::io::Result<Self> {
        let (facts, facts_inbox) = sync_channel(MAX_QUESTIONS);
        let (keys, keys_inbox) = sync_channel(MAX_QUESTIONS);
        let facts_inbox = Arc::new(Mutex::new(facts_inbox));
        let keys_inbox = Arc::new(Mutex::new(keys_inbox));
        let (remarks, remarks_inbox) = sync_channel(MAX_QUESTIONS);
        let upkeep = Upkeep::new(shared.clone(), post.clone());
        let mut key = [0; 32];
        rand::rng().fill_bytes(&mut key);
        let desk = Arc::new(Desk {
            shared,
            post,
            remarks: remarks.clone(),
            derivations: Mutex::new(DerivationCache::new(1024, key)),
            learned: Mutex::default(),
        });
        let threads = (0..=THREADS)
            .map(|index| {
                let inbox = if index == THREADS { keys_inbox.clone() } else { facts_inbox.clone() };
                let desk = desk.clone();
                std::thread::Builder::new().name("control".into()).spawn(move || desk.work(&inbox))
            })
            .collect::<Result<_, _>>()?;
        let upkeep = std::thread::Builder::new().name("upkeep".into()).spawn(move || upkeep.run(&remarks_inbox))?;
        Ok(Self { questions: Questions { facts, keys, remarks }, threads, upkeep: Some(upkeep) })
    }

    /// Where questions go.
    pub fn questions(&self) -> Questions {
        self.questions.clone()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.questions = Questions { facts: sync_channel(1).0, keys: sync_channel(1).0, remarks: sync_channel(1).0 };
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        // It may be in a name look-up, which cannot be interrupted. It ends by itself then.
        let patience = Instant::now();
        if let Some(upkeep) = self.upkeep.take() {
            while !upkeep.is_finished() && patience.elapsed() < Duration::from_secs(1) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

impl Desk {
    fn work(&self, inbox: &Mutex<Receiver<Question>>) {
        loop {
            let question = inbox.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(Duration::from_secs(1));
            match question {
                Ok(Question::Facts { client, user, database, origin, password }) => {
                    let facts = self.facts(&user, &database, origin, password);
                    self.post.send(client.worker, Letter::Core(Mail::Facts { client, facts }));
                }
                Ok(Question::Derive { server, derivation }) => {
                    let known = self.derivations.lock().unwrap_or_else(PoisonError::into_inner).get(&derivation);
                    let keys = known.unwrap_or_else(|| {
                        let keys = derivation.run();
                        let mut cache = self.derivations.lock().unwrap_or_else(PoisonError::into_inner);
                        cache.insert(&derivation, keys.clone());
                        keys
                    });
                    let mail = Mail::Keys { server, keys: Some(Box::new(keys)) };
                    self.post.send(server.worker, Letter::Core(mail));
                }
                Ok(Question::Unreachable { .. }) => {}
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => self.forget_old(),
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
            }
            self.forget_old();
        }
    }

    /// How must a client prove that it is `user`? As the server would ask it to.
    fn facts(&self, user: &str, database: &str, origin: Origin, password: Option<Password>) -> Facts {
        let timeout = self.shared.config.timeouts.server_connect();
        let moves = self.shared.upstream.moves();
        let mut address = self.shared.upstream.address();
        let mut outcome = probe::login(&address, user, database, password.as_ref(), timeout);
        if outcome.as_ref().is_err_and(|report| speaks_against_server(&report.sqlstate)) {
            let _ = self.remarks.try_send(Remark::Unreachable(address.clone()));
            if self.wait_for_move(moves, timeout) {
                address = self.shared.upstream.address();
                outcome = probe::login(&address, user, database, password.as_ref(), timeout);
            }
        }
        match outcome {
            Ok(Outcome::NotAsked) => match (&*address, origin) {
                (ServerAddress::Tcp { .. }, _) => {
                    self.learn(user, database, Facts::Trust);
                    Facts::Trust
                }
                // The server may have accepted us for the operating system's user that we run as (peer). Only that same
                // user would have been accepted in our place.
                (ServerAddress::Unix(_), Origin::Unix { uid: Some(uid) })
                    if uid == rustix::process::geteuid().as_raw() =>
                {
                    Facts::Trust
                }
                (ServerAddress::Unix(path), _) => Facts::Refuse(
                    Report::fatal(
                        sqlstate::INVALID_AUTHORIZATION,
                        format!("the server at {} asks pgusher for no password, and this client is not pgusher's own operating system user", path.display()),
                    )
                    .detail("The server may know pgusher by its operating system user (peer), which says nothing of this client.")
                    .hint("Give pgusher the server's TCP address, so that the server's rules for TCP apply; or name an authentication method (--auth)."),
                ),
            },
            Ok(Outcome::Asked) => {
                let facts = self.configured(user).unwrap_or(Facts::AskServer);
                if matches!(facts, Facts::Scram { .. }) {
                    self.learn(user, database, facts.clone());
                }
                facts
            }
            Ok(Outcome::Accepted(keys)) => {
                if let Some((keys, parameters)) = keys {
                    let verifier = Verifier::from_keys(&keys, parameters.clone());
                    let login = Login::Keys { keys, made_with: parameters };
                    let facts = Facts::Scram { verifier, login: Some(login.clone()) };
                    self.learn(user, database, facts);
                    return Facts::Accepted(login);
                }
                match password {
                    Some(password) => Facts::Accepted(Login::Password(password)),
                    None => Facts::Trust,
                }
            }
            Err(report) => Facts::Refuse(report),
        }
    }

    /// Waits until the address has changed, as long as it may.
    fn wait_for_move(&self, moves: u32, limit: Duration) -> bool {
        let upstream = &self.shared.upstream;
        let end = Instant::now() + limit;
        while upstream.moves() == moves && upstream.may_move() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        upstream.moves() != moves
    }

    /// The password of the connection string serves for its user: the client must know it, too.
    fn configured(&self, user: &str) -> Option<Facts> {
        let login = self.shared.config.login_for(user)?;
        let Login::Password(password) = &login else {
            return None;
        };
        let parameters = self.shared.mock.parameters(user.as_bytes(), 4096).ok()?;
        let derivation = StoredSecret::Plain(password.clone()).derivation(&parameters).ok()??;
        let keys = derivation.run();
        Some(Facts::Scram { verifier: Verifier::from_keys(&keys, parameters), login: Some(login) })
    }

    fn learn(&self, user: &str, database: &str, facts: Facts) {
        let key: UserKey = (user.into(), database.into());
        let mut learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        if learned.len() >= MAX_KNOWN {
            return;
        }
        learned.insert(key.clone(), Instant::now());
        self.shared.known.rcu(|known| {
            let mut known = HashMap::clone(known);
            known.insert(key.clone(), facts.clone());
            known
        });
    }

    fn forget_old(&self) {
        let mut learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        let old: Vec<_> =
            learned.iter().filter(|(_, at)| at.elapsed() > TRUSTED_FOR).map(|(key, _)| key.clone()).collect();
        for (user, database) in old {
            self.shared.forget(&user, &database);
            learned.remove(&(user, database));
        }
    }
}
