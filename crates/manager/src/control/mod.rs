//! The control side: what may block and so must not be done by a worker.
//!
//! A few plain threads. Some answer [`Question`]s by mail (`desk`), one sees to the address of the server and to connections
//! ahead of need (`upkeep`). Their number is bounded, and so is what an unauthenticated client can make them do: one connection
//! attempt or one key derivation at a time each.
//!
//! Rooms: `probe` asks the server what it would ask a user for, `verifiers` reads what the server knows of the user's
//! password, `known` keeps the answers; `definitions` reads what a database's definitions do; `chooser` finds the server among several hosts, `ahead` keeps connections ready.

mod ahead;
mod chooser;
mod definitions;
mod desk;
mod known;
mod link;
mod probe;
mod upkeep;
mod verifiers;

use crate::auth::Facts;
use crate::config::{ConfigError, Server};
use crate::core::{Mail, Question};
use crate::shared::{Shared, Upstream};
use crate::worker::Post;
use chooser::Chooser;
use desk::Desk;
use pgusher_wire::{Report, sqlstate};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use upkeep::{Remark, Upkeep};

/// Threads that ask the server about users; one more derives keys.
const THREADS: usize = 2;
/// Threads that have the server judge a password. It may be slow at that (PAM, LDAP, auth_delay), and whoever guesses passwords
/// must not hold up the others.
const JUDGES: usize = 4;
/// How long the threads are waited for at the end.
const PATIENCE: Duration = Duration::from_secs(1);
/// Questions that wait for a thread, at most.
const MAX_QUESTIONS: usize = 1024;

/// The running control side. Ends with its last sender of questions.
pub struct Control {
    questions: Questions,
    threads: Vec<JoinHandle<()>>,
    desk: Arc<Desk>,
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
    if choice.candidates.len() > 1 {
        tracing::info!("the server is at {address}");
    }
    let upstream = Upstream::new(address, server.conninfo.target_session_attrs);
    upstream.set_alternatives(choice.candidates.len() > 1);
    Ok(upstream)
}

/// Takes questions. There are several queues, so that clients that have not proved anything yet cannot hold up the logins of
/// physical connections.
#[derive(Clone)]
pub struct Questions {
    facts: SyncSender<Question>,
    judged: SyncSender<Question>,
    keys: SyncSender<Question>,
    definitions: SyncSender<Question>,
    remarks: SyncSender<Remark>,
}

impl Questions {
    /// Asks. If too many questions wait already, the refusal comes back at once.
    pub fn ask(&self, question: Question) -> Option<Mail> {
        let queue = match question {
            Question::Facts { password: Some(_), .. } => &self.judged,
            Question::Facts { password: None, .. } | Question::Check { .. } => &self.facts,
            Question::Derive { .. } => &self.keys,
            Question::Definitions(_) => &self.definitions,
            Question::Unreachable { address } => return self.remark(Remark::Unreachable(address)),
            Question::Doubt { user, database } => return self.remark(Remark::Doubt { user, database }),
        };
        let question = match queue.try_send(question) {
            Ok(()) => return None,
            Err(TrySendError::Full(question) | TrySendError::Disconnected(question)) => question,
        };
        match question {
            Question::Facts { client, .. } | Question::Check { client, .. } => {
                let report = Report::fatal(sqlstate::TOO_MANY_CONNECTIONS, "too many clients log in at the same time")
                    .hint("Try again in a moment.");
                Some(Mail::Facts { client, facts: Facts::Refuse(report) })
            }
            Question::Derive { server, .. } => Some(Mail::Keys { server, keys: None }),
            Question::Definitions(rows) => Some(Mail::Known { server: rows.server }),
            Question::Unreachable { .. } | Question::Doubt { .. } => None,
        }
    }

    /// One that is lost among so many does no harm.
    fn remark(&self, remark: Remark) -> Option<Mail> {
        let _ = self.remarks.try_send(remark);
        None
    }
}

impl Control {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system allows no more threads.
    pub fn start(shared: Arc<Shared>, post: Arc<Post>) -> std::io::Result<Self> {
        let (facts, facts_inbox) = sync_channel(MAX_QUESTIONS);
        let (judged, judged_inbox) = sync_channel(MAX_QUESTIONS);
        let (keys, keys_inbox) = sync_channel(MAX_QUESTIONS);
        let (definitions, definitions_inbox) = sync_channel(MAX_QUESTIONS);
        let (remarks, remarks_inbox) = sync_channel(MAX_QUESTIONS);
        let facts_inbox = Arc::new(Mutex::new(facts_inbox));
        let judged_inbox = Arc::new(Mutex::new(judged_inbox));
        let upkeep = Upkeep::new(shared.clone(), post.clone());
        let desk = Arc::new(Desk::new(shared, post, remarks.clone()));
        let thread = |name: &str| std::thread::Builder::new().name(name.into());
        let mut threads = Vec::new();
        for _ in 0..THREADS {
            let (desk, inbox) = (desk.clone(), facts_inbox.clone());
            threads.push(thread("control").spawn(move || desk.answer(&inbox))?);
        }
        for _ in 0..JUDGES {
            let (desk, inbox) = (desk.clone(), judged_inbox.clone());
            threads.push(thread("judge").spawn(move || desk.work(&inbox))?);
        }
        let own = desk.clone();
        threads.push(thread("keys").spawn(move || own.work(&Mutex::new(keys_inbox)))?);
        let own = desk.clone();
        threads.push(thread("definitions").spawn(move || own.work(&Mutex::new(definitions_inbox)))?);
        threads.push(thread("upkeep").spawn(move || upkeep.run(&remarks_inbox))?);
        Ok(Self { questions: Questions { facts, judged, keys, definitions, remarks }, threads, desk })
    }

    /// Where questions go.
    pub fn questions(&self) -> Questions {
        self.questions.clone()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let nobody = || sync_channel(1).0;
        self.questions = Questions {
            facts: nobody(),
            judged: nobody(),
            keys: nobody(),
            definitions: nobody(),
            remarks: sync_channel(1).0,
        };
        self.desk.close();
        // One may wait for a server or a name server, which cannot be interrupted. It ends by itself then.
        let begun = Instant::now();
        for thread in self.threads.drain(..) {
            while !thread.is_finished() && begun.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}
