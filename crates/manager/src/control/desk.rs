//! Answers questions: how a client has to prove its identity, which keys belong to a password.

use super::known::{self, forget_old};
use super::probe::{self, Outcome, WhoWeAre};
use super::upkeep::Remark;
use super::verifiers::{Found, Verifiers};
use crate::auth::{Asked, Facts, Login, speaks_against_server};
use crate::core::{Mail, Origin, Question};
use crate::shared::{ServerAddress, Shared};
use crate::tls::Servers;
use crate::worker::{Letter, Post};
use pgusher_auth::{Derivation, DerivationCache, KeyParameters, Password, ScramKeys, StoredSecret, Verifier};
use pgusher_wire::{Report, sqlstate};
use rand::RngCore;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often a thread without questions looks for something else to do.
const TURN: Duration = Duration::from_millis(500);
/// Users whose accepted keys are remembered, at most.
const MAX_ACCEPTED: usize = 1024;

/// Who was asked.
struct At {
    address: Arc<ServerAddress>,
    moves: u32,
}

/// A hint where the server has refused, asked without our certificate.
const NO_CERTIFICATE: &str = "pgusher's own certificate is not shown in the place of a client's. If the server asks for one, \
                              name an authentication method in pgusher's configuration, with users of its own (auth, [users]).";

pub(super) struct Desk {
    pub(super) shared: Arc<Shared>,
    /// As the server is asked about clients: our own certificate says nothing of them.
    tls: Servers,
    pub(super) post: Arc<Post>,
    remarks: SyncSender<Remark>,
    derivations: Mutex<DerivationCache>,
    verifiers: Verifiers,
    /// Keys of passwords that the server has accepted, by user. They show that a password has not been changed.
    accepted: Mutex<HashMap<Box<str>, Login>>,
    /// Nobody waits for answers any more.
    closed: AtomicBool,
}

impl Desk {
    pub(super) fn new(shared: Arc<Shared>, post: Arc<Post>, remarks: SyncSender<Remark>) -> Self {
        let mut key = [0; 32];
        rand::rng().fill_bytes(&mut key);
        let derivations = Mutex::new(DerivationCache::new(1024, key));
        Self {
            tls: shared.config.server.tls.without_certificate(),
            shared,
            post,
            remarks,
            derivations,
            verifiers: Verifiers::new(),
            accepted: Mutex::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// Questions that wait are not answered any more; the threads end with what they have begun.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Answers questions about users. Several threads do.
    pub(super) fn answer(&self, inbox: &Mutex<Receiver<Question>>) {
        let mut pause = TURN;
        loop {
            let question = inbox.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(pause);
            if self.closed.load(Ordering::Relaxed) {
                return;
            }
            match question {
                Ok(question) => self.reply(question),
                Err(RecvTimeoutError::Timeout) => self.verifiers.tidy(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
            forget_old(&self.shared);
            // One at a time: clients that wait come first.
            pause = match known::to_renew(&self.shared) {
                Some((user, database)) => {
                    self.renew(&user, &database);
                    Duration::ZERO
                }
                None => TURN,
            };
        }
    }

    /// Answers what has a queue of its own. Keys are derived by one thread, so that this costs one processor at most.
    pub(super) fn work(&self, inbox: &Mutex<Receiver<Question>>) {
        let next = || inbox.lock().unwrap_or_else(PoisonError::into_inner).recv();
        while let Ok(question) = next() {
            if self.closed.load(Ordering::Relaxed) {
                return;
            }
            self.reply(question);
        }
    }

    fn reply(&self, question: Question) {
        match question {
            Question::Facts { client, user, database, origin, password } => {
                let facts = self.facts(&user, &database, origin, password);
                self.post.send(client.worker, Letter::Core(Mail::Facts { client, facts }));
            }
            Question::Check { client, user, password, secret } => {
                let facts = match secret.verify_plain(user.as_bytes(), &password) {
                    Ok(()) => Facts::Accepted(Login::Password(password)),
                    Err(_) => Facts::Refuse(wrong_password(&user)),
                };
                self.post.send(client.worker, Letter::Core(Mail::Facts { client, facts }));
            }
            Question::Derive { server, derivation } => {
                let mail = Mail::Keys { server, keys: Some(Box::new(self.keys(&derivation))) };
                self.post.send(server.worker, Letter::Core(mail));
            }
            Question::Definitions(rows) => self.definitions(*rows),
            Question::Unreachable { .. } | Question::Doubt { .. } => {}
        }
    }

    fn keys(&self, derivation: &Derivation) -> ScramKeys {
        let cache = || self.derivations.lock().unwrap_or_else(PoisonError::into_inner);
        let known = cache().get(derivation);
        known.unwrap_or_else(|| {
            let keys = derivation.run();
            cache().insert(derivation, keys.clone());
            keys
        })
    }

    /// How must a client prove that it is `user`? As the server would ask it to.
    fn facts(&self, user: &str, database: &str, origin: Origin, password: Option<Password>) -> Facts {
        let proof = password.map(Login::Password);
        let (at, outcome) = self.probe(user, database, proof.as_ref());
        match outcome {
            Ok(Outcome::NotAsked(who)) => match (&*at.address, origin) {
                (ServerAddress::Tcp { .. }, _) => match who {
                    WhoWeAre::Anybody | WhoWeAre::Unknown => self.learned(&at, user, database, Facts::Trust),
                    WhoWeAre::Recognised(by) => Facts::Refuse(recognised(&at.address, &by)),
                },
                // The server may have accepted us for the operating system's user that we run as (peer). Only that same
                // user would have been accepted in our place. If it trusts everybody, those are meant who may open its
                // socket, which says nothing of this client either.
                (ServerAddress::Unix(_), Origin::Unix { uid: Some(uid) })
                    if uid == rustix::process::geteuid().as_raw() =>
                {
                    Facts::Trust
                }
                (ServerAddress::Unix(path), _) => Facts::Refuse(not_for_others(path)),
            },
            Ok(Outcome::Asked(asked)) => match self.asked(user, database, asked) {
                // Each client of such a user sends its password, and the server judges it.
                Facts::AskServer => Facts::AskServer,
                facts => self.learned(&at, user, database, facts),
            },
            Ok(Outcome::Accepted(Some((keys, made_with)))) => {
                let login = Login::Keys { keys: keys.clone(), made_with: made_with.clone() };
                self.remember(user, login.clone());
                self.learned(&at, user, database, by_keys(&keys, made_with));
                Facts::Accepted(login)
            }
            Ok(Outcome::Accepted(None)) => proof.map_or(Facts::Trust, Facts::Accepted),
            Err(report)
                if report.sqlstate == sqlstate::INVALID_AUTHORIZATION
                    && self.shared.config.server.tls.is_certified() =>
            {
                Facts::Refuse(report.hint(NO_CERTIFICATE))
            }
            Err(report) => Facts::Refuse(report),
        }
    }

    /// Asks the server again before what is known of a user is too old.
    fn renew(&self, user: &str, database: &str) {
        let (at, outcome) = self.probe(user, database, None);
        match outcome {
            Ok(Outcome::NotAsked(WhoWeAre::Anybody | WhoWeAre::Unknown))
                if matches!(*at.address, ServerAddress::Tcp { .. }) =>
            {
                self.learned(&at, user, database, Facts::Trust);
            }
            Ok(Outcome::Asked(asked)) => match self.asked(user, database, asked) {
                Facts::AskServer => self.shared.forget(user, database),
                facts => {
                    self.learned(&at, user, database, facts);
                }
            },
            Ok(_) => self.shared.forget(user, database),
            // A server that cannot be reached says nothing of the user.
            Err(report) if speaks_against_server(&report.sqlstate) => {}
            Err(_) => self.shared.forget(user, database),
        }
    }

    /// The server asks this user in this way. What can the client's answer be checked against?
    fn asked(&self, user: &str, database: &str, asked: Asked) -> Facts {
        if let Some(Login::Password(password)) = self.shared.config.login_for(user) {
            match self.objection(user, database, &Login::Password(password.clone())) {
                // The password of the configuration serves for its user: the client must know it, too.
                None => {
                    if let Some(facts) = self.by_password(user, &password) {
                        return facts;
                    }
                }
                // It is not the right one any more.
                Some(report) if report.sqlstate.starts_with("28") => {}
                Some(report) => return Facts::Refuse(report),
            }
        }
        // Who asks in clear text may have the password judged by somebody else (LDAP, PAM, RADIUS).
        if asked == Asked::Plain {
            return Facts::AskServer;
        }
        // A password alone is not all that the server asks of a client (CONNECT on the database, for one). Where we have what
        // it takes, it is asked to the end.
        let pool = self.shared.pools().into_iter().find(|p| *p.user == *user && *p.database == *database);
        if let Some(login) = pool.and_then(|pool| pool.login.load_full()) {
            match self.objection(user, database, &login) {
                Some(report) if !report.sqlstate.starts_with("28") => return Facts::Refuse(report),
                _ => {}
            }
        }
        match (self.verifiers.look_up(&self.shared, user), asked) {
            (Found::Unreadable, _) => self.still_accepted(user, database).unwrap_or(Facts::AskServer),
            (Found::Secret(StoredSecret::Scram(verifier)), Asked::Scram) => Facts::Scram { verifier, login: None },
            (Found::Secret(StoredSecret::Md5(hash)), Asked::Md5) => Facts::Md5(hash),
            (Found::Secret(StoredSecret::Plain(password)), Asked::Md5) => {
                StoredSecret::Plain(password).md5_hash(user.as_bytes()).map_or(Facts::Nobody(asked), Facts::Md5)
            }
            (Found::Secret(StoredSecret::Plain(password)), _) => {
                self.by_password(user, &password).unwrap_or(Facts::Nobody(asked))
            }
            // The server would let nobody in as this user, whatever the password: as with a SCRAM rule and an md5 hash.
            (Found::Nothing | Found::Secret(_), _) => Facts::Nobody(asked),
        }
    }

    /// If the server has accepted a password of this user before, and accepts its keys still, a client can be asked for them.
    fn still_accepted(&self, user: &str, database: &str) -> Option<Facts> {
        let accepted = || self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        let login = accepted().get(user).cloned()?;
        match self.probe(user, database, Some(&login)).1 {
            Ok(_) => match login {
                Login::Keys { keys, made_with } => Some(by_keys(&keys, made_with)),
                Login::Password(_) | Login::Md5(_) => None,
            },
            Err(report) if report.sqlstate.starts_with("28") => {
                accepted().remove(user);
                None
            }
            Err(report) => Some(Facts::Refuse(report)),
        }
    }

    fn remember(&self, user: &str, login: Login) {
        let mut accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        if accepted.len() >= MAX_ACCEPTED && !accepted.contains_key(user) {
            // They only spare a client the clear text; which of them goes does not matter.
            if let Some(any) = accepted.keys().next().cloned() {
                accepted.remove(&any);
            }
        }
        accepted.insert(user.into(), login);
    }

    /// What the server says against a login that we could make in the name of this user. That it is full, or cannot be reached,
    /// speaks against nobody.
    fn objection(&self, user: &str, database: &str, login: &Login) -> Option<Report> {
        let report = self.probe(user, database, Some(login)).1.err()?;
        let state = &report.sqlstate;
        (!speaks_against_server(state) && !state.starts_with("53")).then_some(report)
    }

    fn by_password(&self, user: &str, password: &Password) -> Option<Facts> {
        let parameters = self.shared.mock.parameters(user.as_bytes(), 4096).ok()?;
        let derivation = StoredSecret::Plain(password.clone()).derivation(&parameters).ok()??;
        let verifier = Verifier::from_keys(&self.keys(&derivation), parameters);
        Some(Facts::Scram { verifier, login: Some(Login::Password(password.clone())) })
    }

    fn learned(&self, at: &At, user: &str, database: &str, facts: Facts) -> Facts {
        if matches!(facts, Facts::Refuse(_) | Facts::AskServer | Facts::Accepted(_)) {
            return facts;
        }
        known::learn(&self.shared, user, database, facts.clone(), at.moves);
        facts
    }

    /// Logs in to the server; if it cannot be reached and may be somewhere else in a moment, there.
    fn probe(&self, user: &str, database: &str, proof: Option<&Login>) -> (At, Result<Outcome, Report>) {
        let timeout = self.shared.config.timeouts.server_connect();
        let at = self.now_at();
        let outcome = probe::login(&at.address, &self.tls, user, database, proof, timeout);
        if !outcome.as_ref().is_err_and(|report| speaks_against_server(&report.sqlstate)) {
            return (at, outcome);
        }
        let _ = self.remarks.try_send(Remark::Unreachable(at.address.clone()));
        if !self.wait_for_move(at.moves, timeout) {
            return (at, outcome);
        }
        let at = self.now_at();
        let outcome = probe::login(&at.address, &self.tls, user, database, proof, timeout);
        (at, outcome)
    }

    fn now_at(&self) -> At {
        // In this order: what is said of an old address must not be taken for an answer from the new one.
        let moves = self.shared.upstream.moves();
        At { address: self.shared.upstream.address(), moves }
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
}

/// A client is asked to prove that it has these keys, with which we log in to the server.
fn by_keys(keys: &ScramKeys, made_with: KeyParameters) -> Facts {
    let verifier = Verifier::from_keys(keys, made_with.clone());
    Facts::Scram { verifier, login: Some(Login::Keys { keys: keys.clone(), made_with }) }
}

fn wrong_password(user: &str) -> Report {
    Report::fatal(sqlstate::INVALID_PASSWORD, format!("password authentication failed for user \"{user}\""))
}

fn recognised(address: &ServerAddress, by: &str) -> Report {
    let text = format!("the server at {address} asks pgusher for no password, because it knows it by {by}");
    Report::fatal(sqlstate::INVALID_AUTHORIZATION, text)
        .detail("That says nothing of this client.")
        .hint("Name an authentication method in pgusher's configuration, with users of its own (auth, [users]).")
}

fn not_for_others(path: &Path) -> Report {
    let text = format!(
        "the server at {} asks pgusher for no password, and this client is not pgusher's own operating system user",
        path.display()
    );
    Report::fatal(sqlstate::INVALID_AUTHORIZATION, text)
        .detail("The server may know pgusher by its operating system user (peer), which says nothing of this client.")
        .hint(
            "Give pgusher the server's TCP address, so that the server's rules for TCP apply; or name an authentication \
             method (--auth).",
        )
}
