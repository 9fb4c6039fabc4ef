//! The control side: what may block and so must not be done by a worker.
//!
//! A few plain threads that answer [`Question`]s by mail. Their number is bounded, and so is what an unauthenticated client
//! can make them do: one connection attempt or one key derivation at a time each.

mod probe;

use crate::auth::{Facts, Login};
use crate::core::{Mail, Origin, Question};
use crate::shared::{ServerAddress, Shared, UserKey};
use crate::worker::{Letter, Post};
use pgusher_auth::{DerivationCache, Password, StoredSecret, Verifier};
use pgusher_wire::{Report, sqlstate};
use probe::Outcome;
use rand::RngCore;
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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
}

/// Takes questions. There are two queues, so that clients that have not proved anything yet cannot hold up the logins of
/// physical connections.
#[derive(Clone)]
pub struct Questions {
    facts: SyncSender<Question>,
    keys: SyncSender<Question>,
}

impl Questions {
    /// Asks. If too many questions wait already, the refusal comes back at once.
    pub fn ask(&self, question: Question) -> Option<Mail> {
        let queue = if matches!(question, Question::Facts { .. }) { &self.facts } else { &self.keys };
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
        })
    }
}

struct Desk {
    shared: Arc<Shared>,
    post: Arc<Post>,
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
        let mut key = [0; 32];
        rand::rng().fill_bytes(&mut key);
        let desk = Arc::new(Desk {
            shared,
            post,
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
        Ok(Self { questions: Questions { facts, keys }, threads })
    }

    /// Where questions go.
    pub fn questions(&self) -> Questions {
        self.questions.clone()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.questions = Questions { facts: sync_channel(1).0, keys: sync_channel(1).0 };
        for thread in self.threads.drain(..) {
            let _ = thread.join();
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
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => self.forget_old(),
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
            }
            self.forget_old();
        }
    }

    /// How must a client prove that it is `user`? As the server would ask it to.
    fn facts(&self, user: &str, database: &str, origin: Origin, password: Option<Password>) -> Facts {
        let timeout = self.shared.config.timeouts.server_connect();
        let address = &self.shared.address;
        match probe::login(address, user, database, password.as_ref(), timeout) {
            Ok(Outcome::NotAsked) => match (&**address, origin) {
                (ServerAddress::Tcp(_), _) => {
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
