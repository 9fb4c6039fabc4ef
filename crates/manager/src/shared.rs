//! What all workers share: the configuration, the pools, the interned settings. Nothing here is changed in the hot path but
//! the pools, and those take one short lock.

use crate::auth::{Asked, Known, Login};
use crate::config::Config;
use crate::database::Database;
use crate::definitions::{REFRESHED, Taken, Turn};
use crate::sequences::Lesson;
use arc_swap::{ArcSwap, ArcSwapOption};
use pgusher_auth::{MockSecret, StoredSecret, UserList};
use pgusher_pool::{Micros, Pool};
use pgusher_session::Settings;
use pgusher_session::plan::Reading;
use pgusher_session::routine::Routine;
use pgusher_session::settings::{Interned, Interner};
use pgusher_session::statements::Known as KnownStatements;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

pub use crate::upstream::{ServerAddress, Upstream};

/// What a server says of itself at login, kept so that a client's login needs no server.
#[derive(Debug)]
pub struct Welcome {
    /// Names and values of ParameterStatus, in the server's order.
    pub parameters: Vec<(Vec<u8>, Vec<u8>)>,
}

/// One pool and what its logins need.
#[derive(Debug)]
pub struct PoolEntry {
    /// Name of the database.
    pub database: Box<str>,
    /// Name of the role.
    pub user: Box<str>,
    /// Who sits where and who waits.
    pub seats: Pool,
    /// What we log in with; `None` if the server asks for nothing.
    pub login: ArcSwapOption<Login>,
    /// What clients are told at login; `None` until the first server has said it.
    pub welcome: ArcSwapOption<Welcome>,
    /// What clients with settings of their own are told, by those settings; kept as long as `welcome` says the same.
    greetings: Mutex<HashMap<Settings, Arc<Welcome>>>,
    /// The server did not let us in with what we have. Nobody tries again until a client brings something new.
    pub refused: AtomicBool,
    /// Clients that keep a physical connection past the end of a transaction.
    pub pinned: AtomicUsize,
    /// How its clients use currval and lastval.
    pub sequences: Lesson,
    /// When a client has asked for it last, in no unit.
    wanted: AtomicU64,
    /// What is known of its statements without asking a server.
    pub(crate) statements: Mutex<KnownStatements>,
    /// What is known of the database; shared by its pools.
    known: Arc<Database>,
    /// When one of its connections asks what the definitions do, in microseconds; 0: none has asked yet.
    next_question: AtomicU64,
    /// How long a new session may be idle, in microseconds; 0: for ever.
    limit: AtomicU64,
    /// Hash of what sessions of its role begin with there.
    defaults: Mutex<Option<u64>>,
    /// Counts the changes of that. Older physical connections are closed as they become free.
    generation: AtomicU32,
}

impl PoolEntry {
    /// Changes with each change of the database's catalogs that is known.
    #[inline]
    pub fn catalog_version(&self) -> u32 {
        self.known.version()
    }

    /// Tells its database from others, for as long as the pool is there.
    #[inline]
    pub fn database_id(&self) -> usize {
        Arc::as_ptr(&self.known) as usize
    }

    /// The database's catalogs have changed: statements that were parsed before may have to be parsed again.
    pub fn catalog_changed(&self) {
        self.known.changed();
    }

    /// A server has said what it says at login.
    pub fn welcomed(&self, welcome: Arc<Welcome>) {
        let before = self.welcome.swap(Some(welcome.clone()));
        if before.is_none_or(|before| before.parameters != welcome.parameters) {
            self.greetings.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    /// What a client with these settings is told at login; `None` if no server has said it yet. `application_name` is left to the
    /// caller.
    pub fn greeting(&self, settings: &Settings) -> Option<Arc<Welcome>> {
        let welcome = self.welcome.load_full()?;
        let common = common(settings);
        if common.is_empty() {
            return Some(welcome);
        }
        self.greetings.lock().unwrap_or_else(PoisonError::into_inner).get(&common).cloned()
    }

    /// A server has accepted these settings, and says so of itself.
    pub fn greeted(&self, settings: &Settings, welcome: Arc<Welcome>) {
        const MOST: usize = 1_000;
        let mut greetings = self.greetings.lock().unwrap_or_else(PoisonError::into_inner);
        if greetings.len() >= MOST {
            greetings.clear();
        }
        greetings.insert(common(settings), welcome);
    }

    /// Counts the changes of definitions that were seen.
    #[inline]
    pub fn definition_changes(&self) -> u32 {
        self.known.definitions.changes()
    }

    /// A definition was changed that may do something behind plain statements.
    pub fn definition_changed(&self) {
        self.known.definitions.changed();
    }

    /// Is it certain that no definition does anything to a session behind a plain statement? `changes` is the present count.
    #[inline]
    pub fn is_innocent(&self, changes: u32, now: Micros) -> bool {
        self.known.definitions.is_innocent(changes, now)
    }

    /// What the definitions do, if that is known and not too old.
    pub fn definitions(&self, now: Micros) -> Option<Arc<Taken>> {
        self.known.definitions.current(now)
    }

    /// The same for a transaction that was over when so many changes had been seen: later ones do not matter to it.
    pub fn definitions_since(&self, changes: u32, now: Micros) -> Option<Arc<Taken>> {
        self.known.definitions.since(changes, now)
    }

    /// What the definitions do, however old that is, as long as no change was seen.
    pub fn definitions_unchanged(&self) -> Option<Arc<Taken>> {
        self.known.definitions.unchanged()
    }

    /// What was known last of what the definitions do.
    pub fn definitions_last(&self) -> Option<Arc<Taken>> {
        self.known.definitions.last()
    }

    /// Is it time for one of its connections to ask what the definitions do?
    #[inline]
    pub fn question_due(&self, now: Micros) -> bool {
        now.0 >= self.next_question.load(Ordering::Relaxed)
    }

    /// Was that asked in this database only just now?
    pub fn is_calm(&self, now: Micros) -> bool {
        self.known.definitions.is_calm(now)
    }

    /// Was the last question of that kind not answered?
    pub fn question_failed(&self) -> bool {
        self.known.definitions.has_failed()
    }

    /// The right to ask, with the last answer; `None` if somebody else has it.
    pub fn begin_question(&self, now: Micros) -> Option<(Turn, Option<Arc<Taken>>)> {
        let turn = Turn::take(&self.known, now)?;
        self.next_question.store(now.plus(REFRESHED).0, Ordering::Relaxed);
        Some((turn, self.known.definitions.last()))
    }

    /// A hash of what new sessions begin with. `true`: it has changed. What clients are told at login is forgotten then.
    pub fn defaults_seen(&self, hash: u64) -> bool {
        let before = self.defaults.lock().unwrap_or_else(PoisonError::into_inner).replace(hash);
        let changed = before.is_some_and(|before| before != hash);
        if changed {
            self.generation.fetch_add(1, Ordering::Relaxed);
            self.welcome.store(None);
        }
        changed
    }

    /// Changes when what new sessions begin with has changed for this role and database only.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// A new session may be idle for so long; zero: for ever.
    pub fn begins_with_limit(&self, limit: Duration) {
        self.limit.store(u64::try_from(limit.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// What was said last of how long a new session may be idle; zero: for ever, or that is not known.
    pub fn limit_at_first(&self) -> Duration {
        Duration::from_micros(self.limit.load(Ordering::Relaxed))
    }

    /// A worker tells the time, about once a second.
    pub fn tick(&self, now: Micros) {
        self.known.tick(now);
    }

    /// What a function of this name does to its session, if it is known.
    pub fn routine(&self, name: &str) -> Option<Arc<Routine>> {
        self.known.routine(name)
    }

    /// What was found out about a function; `version` is that of the catalogs when it was asked.
    pub fn learn(&self, name: &str, routine: Routine, version: u32) {
        self.known.learn(name, routine, version);
    }

    /// How a session's texts are read that has not said anything about it.
    pub fn reading(&self) -> Reading {
        let Some(welcome) = self.welcome.load_full() else { return Reading::default() };
        let find = |name: &[u8]| {
            let value = welcome.parameters.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_slice());
            value.and_then(|value| std::str::from_utf8(value).ok())
        };
        Reading {
            standard_strings: find(b"standard_conforming_strings").is_none_or(|value| value == "on"),
            ascii_apart: find(b"client_encoding").is_none_or(pgusher_sql::encoding_keeps_ascii_apart),
        }
    }
}

/// The settings of which only the server knows whether it takes them, and how it spells them. That it takes any application's
/// name is known, and how as long as it is ASCII (src/common/string.c, pg_clean_ascii).
fn common(settings: &Settings) -> Settings {
    match settings.get("application_name") {
        Some(name) if name.bytes().all(|b| (b' '..=b'~').contains(&b)) => settings.without("application_name"),
        _ => settings.clone(),
    }
}

/// A role and a database.
pub type UserKey = (Box<str>, Box<str>);

/// Pools by database, then by role.
type Pools = HashMap<Box<str>, HashMap<Box<str>, Arc<PoolEntry>>>;

/// What all workers share.
pub struct Shared {
    /// The configuration.
    pub config: Config,
    /// Where the server is now.
    pub upstream: Upstream,
    /// The users, if the manager keeps a list of its own.
    pub users: UserList,
    /// What the server has said of its users lately; kept by the control side.
    pub known: ArcSwap<HashMap<UserKey, Arc<Known>>>,
    /// What users that do not exist are asked for, when the manager keeps a list of its own: what its users are.
    pub unknown: Asked,
    /// A secret that nobody knows, of the kind that the users of the list have.
    pub nobodys: StoredSecret,
    /// Makes equal settings one.
    pub interner: Interner,
    /// The settings of a connection to which nothing was applied.
    pub no_settings: Interned,
    /// For users that do not exist.
    pub mock: MockSecret,
    /// For the names of prepared statements on servers.
    pub secret: [u8; 16],
    /// Connected clients of all workers.
    pub clients: AtomicUsize,
    /// Cancel requests under way.
    pub cancels: AtomicUsize,
    /// Replication connections of all workers.
    pub walsenders: AtomicUsize,
    /// Batches that were sent behind another client's.
    pub followed: AtomicU64,
    /// Counts the changes of what new sessions begin with. Older physical connections are closed as they become free.
    generation: AtomicU32,
    /// The manager shuts down; nothing new is begun.
    pub draining: AtomicBool,
    pools: RwLock<Pools>,
    all_pools: ArcSwap<Vec<Arc<PoolEntry>>>,
    retired: Mutex<Vec<Arc<PoolEntry>>>,
    turns: AtomicU64,
}

impl Shared {
    /// The shared part of a manager with this configuration.
    pub fn new(config: Config, upstream: Upstream, users: UserList, mock: MockSecret) -> Self {
        let interner = Interner::default();
        let no_settings = interner.intern(Settings::default());
        let (unknown, nobodys) = crate::auth::for_strangers(config.auth, &users);
        Self {
            config,
            upstream,
            users,
            known: ArcSwap::default(),
            unknown,
            nobodys,
            interner,
            no_settings,
            mock,
            secret: rand::random(),
            clients: AtomicUsize::new(0),
            cancels: AtomicUsize::new(0),
            followed: AtomicU64::new(0),
            walsenders: AtomicUsize::new(0),
            generation: AtomicU32::new(0),
            draining: AtomicBool::new(false),
            pools: RwLock::default(),
            all_pools: ArcSwap::default(),
            retired: Mutex::default(),
            turns: AtomicU64::new(0),
        }
    }

    /// The pool of (database, user); made if there is none. To be called only for clients that have proved their identity
    /// and for the pool of the connection string, so that nobody else can make pools.
    pub fn pool(&self, database: &str, user: &str) -> Option<Arc<PoolEntry>> {
        let find = |pools: &Pools| {
            let pool = pools.get(database).and_then(|users| users.get(user))?;
            pool.wanted.store(self.turns.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
            Some(pool.clone())
        };
        if let Some(pool) = find(&self.pools.read().unwrap_or_else(PoisonError::into_inner)) {
            return Some(pool);
        }
        let mut pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = find(&pools) {
            return Some(pool);
        }
        let mut all = Vec::clone(&self.all_pools.load());
        if all.len() >= self.config.max_pools {
            let place = self.least_used(&all)?;
            let old = all.swap_remove(place);
            if let Some(users) = pools.get_mut(&old.database) {
                users.remove(&old.user);
                if users.is_empty() {
                    pools.remove(&old.database);
                }
            }
            self.retired.lock().unwrap_or_else(PoisonError::into_inner).push(old);
        }
        let pool = Arc::new(PoolEntry {
            database: database.into(),
            user: user.into(),
            seats: self.seats(),
            login: ArcSwapOption::from(self.config.login_for(user).map(Arc::new)),
            welcome: ArcSwapOption::empty(),
            greetings: Mutex::default(),
            pinned: AtomicUsize::new(0),
            refused: AtomicBool::new(false),
            sequences: Lesson::new(self.config.sequences),
            wanted: AtomicU64::new(self.turns.fetch_add(1, Ordering::Relaxed)),
            statements: Mutex::default(),
            known: pools
                .get(database)
                .and_then(|users| users.values().next())
                .map(|pool| pool.known.clone())
                .unwrap_or_default(),
            next_question: AtomicU64::new(0),
            limit: AtomicU64::new(0),
            defaults: Mutex::default(),
            generation: AtomicU32::new(0),
        });
        pools.entry(database.into()).or_default().insert(user.into(), pool.clone());
        all.push(pool.clone());
        self.all_pools.store(Arc::new(all));
        Some(pool)
    }

    /// A pool of its own for the one connection that listens for all clients of a database, as the role of the first of them.
    pub(crate) fn pool_for_listening(&self, of: &PoolEntry) -> Arc<PoolEntry> {
        self.pool_of_one(&of.database, &of.user, of.login.load_full(), of.known.clone())
    }

    /// A pool of its own for a connection that is never shared.
    pub(crate) fn pool_apart(&self, database: &str, user: &str) -> Arc<PoolEntry> {
        self.pool_of_one(database, user, self.config.login_for(user).map(Arc::new), Arc::default())
    }

    fn pool_of_one(
        &self,
        database: &str,
        user: &str,
        login: Option<Arc<Login>>,
        known: Arc<Database>,
    ) -> Arc<PoolEntry> {
        Arc::new(PoolEntry {
            database: database.into(),
            user: user.into(),
            seats: Pool::new(self.config.workers, 1),
            login: ArcSwapOption::from(login),
            welcome: ArcSwapOption::empty(),
            greetings: Mutex::default(),
            pinned: AtomicUsize::new(0),
            refused: AtomicBool::new(false),
            sequences: Lesson::new(self.config.sequences),
            wanted: AtomicU64::new(0),
            statements: Mutex::default(),
            next_question: AtomicU64::new(0),
            limit: AtomicU64::new(0),
            defaults: Mutex::default(),
            generation: AtomicU32::new(0),
            known,
        })
    }

    fn seats(&self) -> Pool {
        let (workers, limit) = (self.config.workers, self.config.pool_size);
        if self.config.scatter { Pool::scattering(workers, limit, rand::random()) } else { Pool::new(workers, limit) }
    }

    /// The pool that has been without a client for longest. Its connections are all idle, and the workers close them.
    fn least_used(&self, all: &[Arc<PoolEntry>]) -> Option<usize> {
        if self.retired.lock().unwrap_or_else(PoisonError::into_inner).len() >= self.config.max_pools {
            return None;
        }
        let unused = |pool: &Arc<PoolEntry>| {
            let counts = pool.seats.counts();
            // The map, the published list, the caller's copy of it, and each connection hold the pool; clients do as well.
            // Somebody who looks at all pools just now makes this one look used, which does no harm.
            let holders = Arc::strong_count(pool).saturating_sub(3);
            counts.opening == 0 && counts.idle == counts.total && holders <= counts.total
        };
        let own = |pool: &PoolEntry| self.config.is_own(&pool.database, &pool.user);
        let candidates = all.iter().enumerate().filter(|(_, pool)| unused(pool) && !own(pool));
        candidates.min_by_key(|(_, pool)| pool.wanted.load(Ordering::Relaxed)).map(|(place, _)| place)
    }

    /// Pools that have made room for others, as long as they have connections that are to be closed.
    pub fn retired(&self) -> Vec<Arc<PoolEntry>> {
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.retain(|pool| pool.seats.counts().total > 0);
        Vec::clone(&retired)
    }

    /// All pools.
    pub fn pools(&self) -> Vec<Arc<PoolEntry>> {
        Vec::clone(&self.all_pools.load())
    }

    /// Forgets what is known of a user: the server did not agree with it.
    pub fn forget(&self, user: &str, database: &str) {
        let key = (Box::from(user), Box::from(database));
        if !self.known.load().contains_key(&key) {
            return;
        }
        self.known.rcu(|known| {
            let mut known = HashMap::clone(known);
            known.remove(&key);
            known
        });
    }

    /// What new sessions begin with has changed (ALTER ROLE ... SET, ALTER DATABASE ... SET).
    pub fn defaults_changed(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
        for pool in self.pools() {
            pool.welcome.store(None);
        }
    }

    /// Changes when what new sessions begin with has changed.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Counts a client in, unless there are too many.
    pub fn admit_client(&self) -> bool {
        if self.clients.fetch_add(1, Ordering::Relaxed) >= self.config.max_clients {
            self.clients.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        true
    }
}
