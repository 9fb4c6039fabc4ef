//! What all workers share: the configuration, the pools, the interned settings. Nothing here is changed in the hot path but
//! the pools, and those take one short lock.

use crate::auth::{Asked, Known, Login};
use crate::config::Config;
use arc_swap::{ArcSwap, ArcSwapOption};
use pgusher_auth::{MockSecret, StoredSecret, UserList};
use pgusher_pool::Pool;
use pgusher_session::Settings;
use pgusher_session::settings::{Interned, Interner};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

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
    /// The server did not let us in with what we have. Nobody tries again until a client brings something new.
    pub refused: AtomicBool,
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
    /// Connected clients of all workers.
    pub clients: AtomicUsize,
    /// Cancel requests under way.
    pub cancels: AtomicUsize,
    /// The manager shuts down; nothing new is begun.
    pub draining: AtomicBool,
    pools: RwLock<Pools>,
    all_pools: ArcSwap<Vec<Arc<PoolEntry>>>,
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
            clients: AtomicUsize::new(0),
            cancels: AtomicUsize::new(0),
            draining: AtomicBool::new(false),
            pools: RwLock::default(),
            all_pools: ArcSwap::default(),
        }
    }

    /// The pool of (database, user); made if there is none. To be called only for clients that have proved their identity
    /// and for the pool of the connection string, so that nobody else can make pools.
    pub fn pool(&self, database: &str, user: &str) -> Option<Arc<PoolEntry>> {
        let find = |pools: &Pools| pools.get(database).and_then(|users| users.get(user)).cloned();
        if let Some(pool) = find(&self.pools.read().unwrap_or_else(PoisonError::into_inner)) {
            return Some(pool);
        }
        let mut pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = find(&pools) {
            return Some(pool);
        }
        let mut all = Vec::clone(&self.all_pools.load());
        if all.len() >= self.config.max_pools {
            // The map and the list hold each pool once; one that nobody else holds and that has no connection is unused.
            let used = |pool: &Arc<PoolEntry>| Arc::strong_count(pool) > 2 || pool.seats.counts().total > 0;
            let list = self.all_pools.swap(Arc::default());
            drop(all);
            match Arc::try_unwrap(list) {
                Ok(mut list) => {
                    for users in pools.values_mut() {
                        users.retain(|_, pool| used(pool));
                    }
                    pools.retain(|_, users| !users.is_empty());
                    list.retain(|pool| pools.get(&pool.database).is_some_and(|u| u.contains_key(&pool.user)));
                    all = list;
                }
                Err(list) => all = Vec::clone(&list),
            }
            self.all_pools.store(Arc::new(all.clone()));
        }
        if all.len() >= self.config.max_pools {
            return None;
        }
        let pool = Arc::new(PoolEntry {
            database: database.into(),
            user: user.into(),
            seats: Pool::new(self.config.workers, self.config.pool_size),
            login: ArcSwapOption::from(self.config.login_for(user).map(Arc::new)),
            welcome: ArcSwapOption::empty(),
            refused: AtomicBool::new(false),
        });
        pools.entry(database.into()).or_default().insert(user.into(), pool.clone());
        all.push(pool.clone());
        self.all_pools.store(Arc::new(all));
        Some(pool)
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

    /// Counts a client in, unless there are too many.
    pub fn admit_client(&self) -> bool {
        if self.clients.fetch_add(1, Ordering::Relaxed) >= self.config.max_clients {
            self.clients.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        true
    }
}
