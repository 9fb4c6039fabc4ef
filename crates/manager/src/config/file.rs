//! The TOML file as it is written.

use super::{AuthMethod, Multiplex, PoolMode, SequenceMode, StatementReuse, Timeouts};
use crate::tls::ClientTlsOptions;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The TOML file. Not `Debug`: it holds passwords.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) server: String,
    pub(super) dns_max_age: Option<u64>,
    #[serde(default)]
    pub(super) listen: Vec<String>,
    pub(super) auth: Option<AuthMethod>,
    pub(super) auth_query: Option<String>,
    pub(super) auth_user: Option<String>,
    pub(super) auth_database: Option<String>,
    pub(super) workers: Option<usize>,
    pub(super) pool_size: Option<usize>,
    pub(super) min_pool_size: Option<usize>,
    pub(super) max_pinned: Option<usize>,
    pub(super) pool_mode: Option<PoolMode>,
    pub(super) multiplex: Option<Multiplex>,
    pub(super) scatter: Option<bool>,
    pub(super) sequences: Option<SequenceMode>,
    pub(super) statement_reuse: Option<StatementReuse>,
    pub(super) statements_per_server: Option<usize>,
    pub(super) max_clients: Option<usize>,
    pub(super) max_pools: Option<usize>,
    pub(super) max_cancels: Option<usize>,
    pub(super) max_replication: Option<usize>,
    #[serde(default)]
    pub(super) users: BTreeMap<String, String>,
    pub(super) user_list: Option<PathBuf>,
    #[serde(default)]
    pub(super) timeouts: Timeouts,
    #[serde(default)]
    pub(super) client_tls: ClientTlsOptions,
}
