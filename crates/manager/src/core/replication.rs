//! Replication connections (pg_receivewal, pg_basebackup, standbys, logical decoding): each client has a physical connection of
//! its own from its login to its end, and what either side sends goes to the other unseen.
//!
//! A walsender's connection cannot be shared: what it is was settled by its startup packet, both sides of the stream speak at
//! the same time (protocol chapter "Streaming Replication Protocol"), and a physical one takes no SQL with which it could be
//! cleaned. So it belongs to no pool, is opened with the client's own startup parameters, and is closed with its client.
//! `max_replication` bounds how many there are; the server bounds them as well (max_wal_senders).

use super::Core;
use super::client::{State, draining};
use super::flow::Source;
use super::io::{ConnId, Output};
use super::server::State as ServerState;
use crate::shared::PoolEntry;
use pgusher_pool::Seat;
use pgusher_wire::{Report, sqlstate};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Startup parameters that a client's own are not: who it is is settled by its login.
const SETTLED: [&[u8]; 3] = [b"user", b"database", b"replication"];

/// What a client asks for that wants a walsender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// `database` for logical replication, or a word for yes (src/backend/tcop/postmaster.c, ProcessStartupPacket).
    pub(super) kind: Vec<u8>,
    /// Its other startup parameters, as they came.
    pub(super) parameters: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Wanted {
    /// What the startup packet asks for; `None` if it is an ordinary session.
    pub(super) fn from_startup<'a>(
        parameters: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    ) -> Result<Option<Self>, Report> {
        let Some((_, kind)) = parameters.clone().filter(|(name, _)| *name == b"replication").last() else {
            return Ok(None);
        };
        match is_wanted(kind) {
            None => {
                let text =
                    format!("invalid value for parameter \"replication\": \"{}\"", String::from_utf8_lossy(kind));
                Err(Report::fatal(sqlstate::INVALID_PARAMETER_VALUE, text)
                    .hint("Valid values are: \"false\", 0, \"true\", 1, \"database\"."))
            }
            Some(false) => Ok(None),
            Some(true) => {
                let own = parameters.filter(|(name, _)| !SETTLED.contains(name) && !name.starts_with(b"_pq_."));
                let parameters = own.map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
                Ok(Some(Self { kind: kind.to_vec(), parameters }))
            }
        }
    }

    /// Does the connection belong to a database?
    pub(super) fn is_logical(&self) -> bool {
        self.kind == b"database"
    }
}

/// The values of a boolean as the server reads them (src/backend/utils/adt/bool.c, parse_bool), and `database`.
fn is_wanted(kind: &[u8]) -> Option<bool> {
    let lower = kind.to_ascii_lowercase();
    let begins = |word: &[u8], least: usize| lower.len() >= least && word.starts_with(&lower);
    if kind == b"database" || begins(b"true", 1) || begins(b"yes", 1) || lower == b"on" || lower == b"1" {
        Some(true)
    } else if begins(b"false", 1) || begins(b"no", 1) || begins(b"off", 2) || lower == b"0" {
        Some(false)
    } else {
        None
    }
}

/// What a physical connection needs to know of the client that it is opened for.
#[derive(Debug)]
pub(super) struct Walsender {
    pub(super) client: Seat,
    pub(super) wanted: Wanted,
}

impl Core {
    /// The client has proved its identity: opens its walsender.
    pub(super) fn open_walsender(&mut self, slot: u32, pool: &Arc<PoolEntry>, wanted: Wanted) {
        let limit = self.shared.config.max_replication;
        if self.shared.walsenders.fetch_add(1, Ordering::Relaxed) >= limit {
            self.shared.walsenders.fetch_sub(1, Ordering::Relaxed);
            let report = Report::fatal(sqlstate::TOO_MANY_CONNECTIONS, "too many replication connections")
                .detail(format!("max_replication allows {limit} of them."));
            return self.refuse(slot, &report);
        }
        let server = self.open_server(pool);
        let client = self.client_seat(slot);
        if let Some(s) = self.servers.get_mut(server as usize) {
            s.walsender = Some(Box::new(Walsender { client, wanted }));
        }
        if let Some(c) = self.clients.get_mut(slot as usize) {
            c.state = State::Replicating { server, ready: false };
        }
    }

    /// A walsender has logged in.
    pub(super) fn walsender_ready(&mut self, slot: u32) {
        let Some(s) = self.servers.get_mut(slot as usize) else { return };
        let (Some(walsender), Some(welcome)) = (s.walsender.as_deref(), s.welcome.clone()) else { return };
        let client = walsender.client;
        s.state = ServerState::Replicating { client: client.slot };
        if self.client_in(client).is_some() {
            self.welcome(client.slot, &welcome);
        } else {
            self.close_walsender(slot);
        }
    }

    /// A walsender could not be opened. It has been forgotten already.
    pub(super) fn no_walsender(&mut self, walsender: &Walsender, report: &Report) {
        self.shared.walsenders.fetch_sub(1, Ordering::Relaxed);
        if let Some(c) = self.client_in(walsender.client) {
            c.state = State::AwaitFacts;
            self.refuse(walsender.client.slot, report);
        }
    }

    /// From the client to its walsender.
    pub(super) fn stream_up(&mut self, server: u32, buf: &[u8], source: Source) {
        self.forward(ConnId::Server(server), source, buf, 0..buf.len(), None);
    }

    /// From a walsender to its client.
    pub(super) fn stream_down(&mut self, client: u32, buf: &[u8], source: Source) {
        self.forward(ConnId::Client(client), source, buf, 0..buf.len(), None);
    }

    /// The client is gone, and its walsender goes with it.
    pub(super) fn close_walsender(&mut self, slot: u32) {
        if self.servers.try_remove(slot as usize).is_some() {
            self.shared.walsenders.fetch_sub(1, Ordering::Relaxed);
            self.out.push_back(Output::Close(ConnId::Server(slot)));
        }
    }

    /// A walsender has closed. What it has said before goes to its client.
    pub(super) fn walsender_closed(&mut self, slot: u32, client: u32) {
        self.close_walsender(slot);
        if let Some(c) = self.clients.get_mut(client as usize) {
            c.state = State::Idle;
        }
        self.drop_client(client);
    }

    /// The manager shuts down. The stream may be in the middle of a message, so that nothing can be said in it.
    pub(super) fn drain_walsender(&mut self, client: u32, ready: bool) {
        if ready { self.drop_client(client) } else { self.refuse(client, &draining()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_as_the_server_reads_them() {
        for yes in ["true", "TRUE", "t", "yes", "y", "on", "1", "database"] {
            assert_eq!(is_wanted(yes.as_bytes()), Some(true), "{yes}");
        }
        for no in ["false", "f", "no", "n", "off", "of", "0"] {
            assert_eq!(is_wanted(no.as_bytes()), Some(false), "{no}");
        }
        for neither in ["", "o", "2", "Database", "truely", "perhaps"] {
            assert_eq!(is_wanted(neither.as_bytes()), None, "{neither:?}");
        }
    }

    #[test]
    fn what_goes_to_the_server() {
        let packet: [(&[u8], &[u8]); 5] = [
            (b"user", b"u"),
            (b"replication", b"database"),
            (b"_pq_.x", b"1"),
            (b"application_name", b"slot one"),
            (b"options", b"-c wal_sender_timeout=0"),
        ];
        let wanted = Wanted::from_startup(packet.into_iter()).expect("valid").expect("wanted");
        assert!(wanted.is_logical());
        let names: Vec<&[u8]> = wanted.parameters.iter().map(|(name, _)| name.as_slice()).collect();
        assert_eq!(names, [b"application_name".as_slice(), b"options"]);
        assert_eq!(Wanted::from_startup([(b"user".as_slice(), b"u".as_slice())].into_iter()), Ok(None));
    }
}
