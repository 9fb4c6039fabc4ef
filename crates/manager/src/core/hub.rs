//! The connection of a database that listens for all its clients; see `listening` for what the clients see of it.
//!
//! It belongs to one worker, which the name of the database chooses. Workers ask it by mail to listen to channels for a client,
//! or only to say when everything that was committed so far has come. Questions that come while it is busy are answered
//! together: one Query with the LISTENs and UNLISTENs that are due, an empty one if there are none. The server sends what it
//! has notified in front of ReadyForQuery (src/backend/tcop/postgres.c), so notifications go to the workers first, then the
//! answers, in the order of the mail.
//!
//! It is opened for the first channel and closed some time after the last one. It counts for no pool.

use super::io::{ConnId, Mail, Output};
use super::server::State as ServerState;
use super::{Core, MAX_HELD};
use crate::shared::PoolEntry;
use pgusher_pool::{Micros, Seat, WorkerId};
use pgusher_wire::{Frame, backend, frontend};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long it stays open without a channel.
const LINGER: Duration = Duration::from_secs(30);
/// An answer that takes longer never comes.
const PATIENCE: Duration = Duration::from_secs(60);
/// What the role or the database may have set and what would end it or its statements; not every version has all of them.
const BEGIN: &[u8] = b"SELECT pg_catalog.set_config(name, '0', false) FROM pg_catalog.pg_settings WHERE name OPERATOR(pg_catalog.=) \
    ANY ('{statement_timeout,lock_timeout,transaction_timeout,idle_in_transaction_session_timeout,idle_session_timeout}'\
    ::pg_catalog.text[])";

/// A notification, as it was sent to the connection that listens.
#[derive(Debug)]
pub struct Note {
    /// Its channel.
    pub(super) channel: Box<str>,
    /// Process id of the backend that sent it.
    pub(super) pid: u32,
    /// The whole message.
    pub(super) message: Vec<u8>,
    /// The encoding of its texts; `None` if they have the same bytes in every encoding.
    pub(super) encoding: Option<Arc<str>>,
}

/// What a client waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Its message goes to the server afterwards.
    Before,
    /// What its transaction has replied goes to it afterwards.
    After,
}

/// Letters about channels.
#[derive(Debug)]
pub enum Word {
    /// To the worker of the database's listening connection: listen to these channels, and answer.
    Ask {
        /// The pool of the client.
        pool: Arc<PoolEntry>,
        /// Who asks.
        client: Seat,
        /// What for.
        when: When,
        /// What must be listened to from now on.
        channels: Vec<Box<str>>,
    },
    /// To the same: nobody at this worker listens to it any more.
    Drop {
        /// Name of the database.
        database: Box<str>,
        /// The worker.
        worker: WorkerId,
        /// The channel.
        channel: Box<str>,
    },
    /// The answer. Notifications that were committed before the question have been sent before it.
    Heard {
        /// Who has asked.
        client: Seat,
        /// What for.
        when: When,
        /// The channels are listened to.
        done: bool,
    },
    /// Somebody has notified.
    Note {
        /// Name of the database.
        database: Box<str>,
        /// What.
        note: Arc<Note>,
    },
    /// The connection is gone, and with it what it would have heard.
    Lost {
        /// Name of the database.
        database: Box<str>,
    },
}

#[derive(Debug)]
struct Request {
    client: Seat,
    when: When,
    channels: Vec<Box<str>>,
}

/// The connection of one database.
#[derive(Debug)]
pub(super) struct Hub {
    server: u32,
    ready: bool,
    /// Its client_encoding, as [`canonical`](super::listening::canonical) spells it.
    encoding: Arc<str>,
    /// A Query is under way.
    busy: bool,
    failed: bool,
    /// Since when it is busy, or has no channel.
    since: Micros,
    waiting: Vec<Request>,
    under_way: Vec<Request>,
    /// Who listens where.
    channels: BTreeMap<Box<str>, Vec<WorkerId>>,
    /// What the next Query does.
    listen: Vec<Box<str>>,
    unlisten: Vec<Box<str>>,
    /// What the Query under way does.
    listening: Vec<Box<str>>,
}

impl Core {
    /// The worker that has a database's listening connection.
    pub(super) fn home_of(&self, database: &str) -> WorkerId {
        let workers = self.shared.config.workers.max(1);
        let sum = database.bytes().fold(0_usize, |sum, b| sum.wrapping_mul(31).wrapping_add(usize::from(b)));
        WorkerId(u8::try_from(sum % workers).unwrap_or(0))
    }

    /// A letter about channels.
    pub(super) fn word(&mut self, word: Word) {
        match word {
            Word::Ask { pool, client, when, channels } => self.hub_asked(&pool, Request { client, when, channels }),
            Word::Drop { database, worker, channel } => self.hub_dropped(&database, worker, &channel),
            Word::Heard { client, when, done } => self.heard(client, when, done),
            Word::Note { database, note } => self.notified(&database, &note),
            Word::Lost { database } => self.deafened(&database),
        }
    }

    pub(super) fn tell(&mut self, worker: WorkerId, word: Word) {
        self.out.push_back(Output::Mail(worker, Mail::Word(word)));
    }

    fn hub_asked(&mut self, pool: &Arc<PoolEntry>, request: Request) {
        if self.draining {
            return self
                .tell(request.client.worker, Word::Heard { client: request.client, when: request.when, done: false });
        }
        let database = pool.database.clone();
        if !self.hubs.contains_key(&database) {
            let own = self.shared.pool_for_listening(pool);
            own.seats.ensure(1);
            let server = self.open_server(&own);
            if let Some(s) = self.servers.get_mut(server as usize) {
                s.listens_for_all = true;
            }
            let hub = Hub {
                server,
                ready: false,
                encoding: "".into(),
                busy: false,
                failed: false,
                since: self.now,
                waiting: Vec::new(),
                under_way: Vec::new(),
                channels: BTreeMap::new(),
                listen: Vec::new(),
                unlisten: Vec::new(),
                listening: Vec::new(),
            };
            self.hubs.insert(database.clone(), hub);
        }
        let Some(hub) = self.hubs.get_mut(&database) else { return };
        for channel in &request.channels {
            let workers = hub.channels.entry(channel.clone()).or_default();
            if workers.is_empty() {
                hub.listen.push(channel.clone());
            }
            if !workers.contains(&request.client.worker) {
                workers.push(request.client.worker);
            }
        }
        hub.waiting.push(request);
        self.hub_go_on(&database);
    }

    fn hub_dropped(&mut self, database: &str, worker: WorkerId, channel: &str) {
        let Some(hub) = self.hubs.get_mut(database) else { return };
        let Some(workers) = hub.channels.get_mut(channel) else { return };
        workers.retain(|other| *other != worker);
        if workers.is_empty() {
            hub.channels.remove(channel);
            hub.listen.retain(|other| **other != *channel);
            hub.unlisten.push(channel.into());
            self.hub_go_on(database);
        }
    }

    /// Sends what is due, if nothing is under way.
    fn hub_go_on(&mut self, database: &str) {
        let Some(hub) = self.hubs.get_mut(database) else { return };
        if !hub.ready || hub.busy || (hub.waiting.is_empty() && hub.listen.is_empty() && hub.unlisten.is_empty()) {
            return;
        }
        let mut sql = String::new();
        for (verb, channels) in [("UNLISTEN \"", &hub.unlisten), ("LISTEN \"", &hub.listen)] {
            for channel in channels {
                sql.push_str(verb);
                sql.push_str(&channel.replace('"', "\"\""));
                sql.push_str("\";");
            }
        }
        hub.unlisten.clear();
        hub.listening = std::mem::take(&mut hub.listen);
        hub.under_way = std::mem::take(&mut hub.waiting);
        let server = hub.server;
        self.hub_query(database, server, sql.as_bytes());
    }

    fn hub_query(&mut self, database: &str, server: u32, sql: &[u8]) {
        if let Some(hub) = self.hubs.get_mut(database) {
            hub.busy = true;
            hub.failed = false;
            hub.since = self.now;
        }
        let mut out = Vec::with_capacity(sql.len() + 6);
        frontend::write_query(&mut out, sql);
        self.send(ConnId::Server(server), out);
    }

    /// The connection has logged in.
    pub(super) fn hub_ready(&mut self, slot: u32) {
        let Some(s) = self.servers.get_mut(slot as usize) else { return };
        s.state = ServerState::Listening;
        let database = s.pool.database.clone();
        let encoding = super::listening::default_encoding(s);
        if let Some(hub) = self.hubs.get_mut(&database) {
            hub.ready = true;
            hub.encoding = encoding.as_str().into();
        }
        tracing::debug!(%database, %encoding, "a connection listens for all clients");
        self.hub_query(&database, slot, BEGIN);
    }

    /// Something from the connection.
    pub(super) fn hub_bytes(&mut self, slot: u32, buf: &[u8]) {
        let Some(database) = self.servers.get(slot as usize).map(|s| s.pool.database.clone()) else { return };
        let mut rest = buf;
        loop {
            let (frame, used) = match Frame::parse(rest) {
                Ok(Some(parsed)) => parsed,
                Ok(None) if rest.len() < MAX_HELD => break,
                Ok(None) | Err(_) => return self.broken_server(slot),
            };
            let (message, after) = rest.split_at(used);
            rest = after;
            match frame.tag {
                backend::NOTIFICATION_RESPONSE => self.hub_notified(&database, message, frame.body),
                backend::ERROR_RESPONSE => {
                    let text = pgusher_wire::ErrorFields::new(frame.body).message().to_owned();
                    tracing::warn!(%database, "the connection that listens for all clients: {text}");
                    if let Some(hub) = self.hubs.get_mut(&database) {
                        hub.failed = true;
                    }
                }
                backend::READY_FOR_QUERY => self.hub_answered(&database),
                _ => {}
            }
        }
        if let Some(s) = self.servers.get_mut(slot as usize) {
            s.held = rest.to_vec();
        }
    }

    fn hub_notified(&mut self, database: &str, message: &[u8], body: &[u8]) {
        let Some((pid, channel)) = parse(body) else { return };
        let Some(hub) = self.hubs.get(database) else { return };
        let Some(workers) = hub.channels.get(channel).cloned() else { return };
        let note = Arc::new(Note {
            channel: channel.into(),
            pid,
            message: message.to_vec(),
            encoding: if body.get(4..).is_some_and(<[u8]>::is_ascii) { None } else { Some(hub.encoding.clone()) },
        });
        for worker in workers {
            self.tell(worker, Word::Note { database: database.into(), note: note.clone() });
        }
    }

    fn hub_answered(&mut self, database: &str) {
        let now = self.now;
        let Some(hub) = self.hubs.get_mut(database) else { return };
        hub.busy = false;
        hub.since = now;
        let failed = std::mem::take(&mut hub.failed);
        let listening = std::mem::take(&mut hub.listening);
        if failed {
            for channel in listening {
                if hub.waiting.iter().any(|request| request.channels.contains(&channel)) {
                    hub.listen.push(channel);
                } else {
                    hub.channels.remove(&channel);
                }
            }
        }
        for Request { client, when, channels } in std::mem::take(&mut hub.under_way) {
            self.tell(client.worker, Word::Heard { client, when, done: !failed || channels.is_empty() });
        }
        self.hub_go_on(database);
    }

    /// The connection is gone, or could not be made.
    pub(super) fn hub_lost(&mut self, slot: u32) {
        let Some(database) = self.servers.get(slot as usize).map(|s| s.pool.database.clone()) else { return };
        if self.hubs.get(&database).is_none_or(|hub| hub.server != slot) {
            return;
        }
        let Some(hub) = self.hubs.remove(&database) else { return };
        if hub.ready && !hub.channels.is_empty() {
            tracing::warn!(%database, "the connection that listens for all clients is gone; those that listen are closed");
        }
        for worker in 0..self.shared.config.workers {
            let worker = WorkerId(u8::try_from(worker).unwrap_or(u8::MAX));
            if hub.ready && hub.channels.values().any(|workers| workers.contains(&worker)) {
                self.tell(worker, Word::Lost { database: database.clone() });
            }
        }
        for Request { client, when, .. } in hub.under_way.into_iter().chain(hub.waiting) {
            self.tell(client.worker, Word::Heard { client, when, done: false });
        }
    }

    /// Connections that nobody needs any more, that have died silently, or that lead to where the server was.
    pub(super) fn tend_hubs(&mut self) {
        let moves = self.shared.upstream.moves();
        let mut unneeded = Vec::new();
        let mut lost = Vec::new();
        for hub in self.hubs.values() {
            let Some(s) = self.servers.get(hub.server as usize) else { continue };
            let idle = hub.ready && !hub.busy && hub.channels.is_empty() && hub.waiting.is_empty();
            if idle && self.now.since(hub.since) > LINGER {
                unneeded.push(hub.server);
            } else if hub.ready && (s.moves != moves || (hub.busy && self.now.since(hub.since) > PATIENCE)) {
                lost.push(hub.server);
            }
        }
        for slot in unneeded {
            self.hub_lost(slot);
            if let Some(s) = self.servers.get_mut(slot as usize) {
                s.state = ServerState::Idle;
            }
            self.close_server(slot);
        }
        for slot in lost {
            self.server_closed(slot);
        }
    }
}

/// Process id and channel of a NotificationResponse. A channel that is no UTF-8 is none of those that are followed.
pub(super) fn parse(body: &[u8]) -> Option<(u32, &str)> {
    let (pid, rest) = body.split_first_chunk::<4>()?;
    let channel = rest.split(|b| *b == 0).next()?;
    Some((u32::from_be_bytes(*pid), std::str::from_utf8(channel).ok()?))
}
