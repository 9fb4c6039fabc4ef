//! Cancel requests: from a client to the server that works for it, and to no other.
//!
//! The process id that a client was told says where it is (worker and slot), the key proves that the request is its own. The
//! physical connection stays reserved until the server has closed the connection that carried the request: by then the
//! signal has been sent, and it cannot hit the next client's statement.

use super::io::{ConnId, Mail, Output};
use super::{Core, client, server};
use crate::tls::Encryption;
use pgusher_pool::{Micros, Seat, WorkerId};
use pgusher_wire::startup::write_cancel;
use pgusher_wire::{Report, sqlstate};
use std::sync::atomic::Ordering;
use subtle::ConstantTimeEq;

/// A connection that carries a cancel request.
#[derive(Debug)]
pub(super) struct Cancel {
    server: Seat,
    since: Micros,
    pid: u32,
    key: Vec<u8>,
}

impl Core {
    /// Somebody asks to cancel what the client with this process id does.
    pub(super) fn cancel_requested(&mut self, pid: u32, key: &[u8]) {
        let Some(place) = pid.checked_sub(1) else {
            return;
        };
        let worker = WorkerId((place >> 24) as u8);
        let slot = place & 0x00ff_ffff;
        if worker == self.me {
            self.cancel_client(slot, key);
        } else if usize::from(worker.0) < self.shared.config.workers {
            self.out.push_back(Output::Mail(worker, Mail::Cancel { client: slot, key: key.to_vec() }));
        }
    }

    pub(super) fn cancel_client(&mut self, slot: u32, key: &[u8]) {
        let Some(client) = self.clients.get(slot as usize) else {
            return;
        };
        let own = client.key.get(..usize::from(client.key_len)).unwrap_or_default();
        if client.login.is_some() || !bool::from(own.ct_eq(key)) {
            return;
        }
        match client.state {
            client::State::Seated { server } => {
                let replaying = |s: &server::Server| matches!(s.state, server::State::Replaying { .. });
                if self.servers.get(server as usize).is_some_and(replaying) {
                    // The statement follows as soon as the settings are there.
                    if let Some(client) = self.clients.get_mut(slot as usize) {
                        client.cancelled = true;
                    }
                } else {
                    // The signal may come when its statement is over.
                    self.disband(server);
                    self.cancel_server(server);
                }
            }
            client::State::Replicating { server, ready: true } => self.cancel_server(server),
            client::State::Following { server } => {
                self.unfollow(slot, server);
                self.refuse_statement(slot);
            }
            client::State::Waiting { ticket, login: false } => {
                // If it is no longer in the queue, it is about to get a server. It may ask again.
                let seat = self.client_seat(slot);
                let left = client.pool.as_ref().is_some_and(|pool| pool.seats.leave(seat, ticket));
                if left {
                    self.refuse_statement(slot);
                }
            }
            _ => {}
        }
    }

    /// Answers for the server a statement that was cancelled before the server saw it.
    pub(super) fn refuse_statement(&mut self, slot: u32) {
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        client.state = client::State::Idle;
        client.cancelled = false;
        client.discard = client::Discard::Next;
        let report = Report::error(sqlstate::QUERY_CANCELED, "canceling statement due to user request")
            .detail("It was still waiting for a physical connection.");
        self.send(ConnId::Client(slot), report.to_bytes());
        self.resume_client(slot);
    }

    /// Sends the server a cancel request for what it does now.
    pub(super) fn cancel_server(&mut self, slot: u32) {
        let Some(s) = self.servers.get_mut(slot as usize) else {
            return;
        };
        if s.ledger.is_own() {
            // It is meant for the statement behind them.
            s.cancel_due = true;
            return;
        }
        let busy = match s.state {
            server::State::Seated { .. } => s.ledger.is_busy(),
            // What it does is not looked at.
            server::State::Replicating { .. } => true,
            _ => false,
        };
        if busy {
            self.request_cancel(slot);
        }
    }

    /// Sends a cancel request for whatever a server does.
    pub(super) fn request_cancel(&mut self, slot: u32) {
        let seat = self.server_seat(slot);
        let limit = self.shared.config.max_cancels;
        let Some(s) = self.servers.get_mut(slot as usize) else {
            return;
        };
        if self.shared.cancels.fetch_add(1, Ordering::Relaxed) >= limit {
            self.shared.cancels.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        s.cancels += 1;
        let address = s.address.clone();
        // As libpq of PostgreSQL 17: who could read the key could cancel, so that it is hidden where the statement is.
        let encryption = if s.encrypted { Encryption::Tls } else { Encryption::Plain };
        let cancel = Cancel { server: seat, since: self.now, pid: s.pid, key: s.key.clone() };
        let slot = self.cancels.insert(cancel) as u32;
        self.out.push_back(Output::Connect { conn: ConnId::Cancel(slot), address, encryption });
    }

    /// The connection for a cancel request is there.
    pub fn cancel_connected(&mut self, slot: u32) {
        let Some(cancel) = self.cancels.get(slot as usize) else {
            return;
        };
        let mut out = Vec::with_capacity(16);
        write_cancel(&mut out, cancel.pid, &cancel.key);
        self.send(ConnId::Cancel(slot), out);
    }

    /// Gives up on cancel requests that take too long. Their servers are closed: the signal may still come. A walsender has no
    /// next client, and its own expects no less of a direct connection.
    pub(super) fn expire_cancels(&mut self, before: Micros) {
        let late: Vec<usize> = self.cancels.iter().filter(|(_, c)| c.since < before).map(|(slot, _)| slot).collect();
        for slot in late {
            let Some(cancel) = self.cancels.try_remove(slot) else {
                continue;
            };
            self.shared.cancels.fetch_sub(1, Ordering::Relaxed);
            self.out.push_back(Output::Close(ConnId::Cancel(slot as u32)));
            let seat = cancel.server;
            match self.servers.get_mut(seat.slot as usize).filter(|s| s.serial == seat.serial) {
                Some(s) if matches!(s.state, server::State::Replicating { .. }) => {
                    s.cancels = s.cancels.saturating_sub(1)
                }
                Some(_) => self.server_closed(seat.slot),
                None => {}
            }
        }
    }

    /// The connection for a cancel request has ended, or could not be made.
    pub fn cancel_closed(&mut self, slot: u32) {
        let Some(cancel) = self.cancels.try_remove(slot as usize) else {
            return;
        };
        self.shared.cancels.fetch_sub(1, Ordering::Relaxed);
        self.out.push_back(Output::Close(ConnId::Cancel(slot)));
        let seat = cancel.server;
        let Some(s) = self.servers.get_mut(seat.slot as usize).filter(|s| s.serial == seat.serial) else {
            return;
        };
        s.cancels = s.cancels.saturating_sub(1);
        if s.cancels == 0 && matches!(s.state, server::State::BeingCancelled) {
            self.release_server(seat.slot);
        }
    }
}
