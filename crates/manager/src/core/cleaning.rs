//! A physical connection whose client has left it is made clean for the next one, or closed where that cannot be done for
//! certain.

use super::client::State;
use super::io::{ConnId, Output};
use super::knowing::Purpose;
use super::server::{Reset, State as ServerState};
use super::{Core, MAX_HELD};
use pgusher_pool::Closed;
use pgusher_wire::{Report, frontend, sqlstate};

/// As DISCARD ALL treats settings (src/backend/commands/discard.c): RESET ALL leaves the role as it is.
pub(super) const AS_IT_BEGAN: &[u8] = b"SET SESSION AUTHORIZATION DEFAULT;RESET ALL";

impl Core {
    /// A server whose client is gone. `boundary`: the last message that it was sent was sent whole.
    pub(super) fn vacate(&mut self, slot: u32, boundary: bool, discard: bool) {
        let Some(s) = self.servers.get_mut(slot as usize) else {
            return;
        };
        if !s.followers.is_empty() {
            self.disband(slot);
        }
        let Some(s) = self.servers.get_mut(slot as usize) else {
            return;
        };
        s.tainted |= discard || s.listens || s.nameless;
        s.unheard = true;
        s.judged = None;
        if let ServerState::Knowing(knowing) = &mut s.state {
            // The answer is of use to others.
            knowing.purpose = Purpose::Gone;
            return self.out.push_back(Output::Resume(ConnId::Server(slot)));
        }
        if matches!(s.state, ServerState::Auditing { .. }) && !s.ledger.is_quiet() && s.cancels == 0 && !self.draining {
            // The answer concerns nobody any more.
            if let Some(audit) = s.audit.take() {
                (s.held, s.leftovers) = (audit.bytes, audit.leftovers);
            }
            if s.held.len() > MAX_HELD / 2 {
                return self.close_server(slot);
            }
            s.tainted = true;
            s.error = None;
            s.state = ServerState::Resetting { step: Reset::Rollback { discard: true } };
            return self.out.push_back(Output::Resume(ConnId::Server(slot)));
        }
        // It may have been stopped for a client that took its replies too slowly.
        self.out.push_back(Output::Resume(ConnId::Server(slot)));
        let quiet = boundary && s.ledger.is_quiet() && s.scanner.at_boundary() && s.held.is_empty() && !s.blocked;
        let usable = quiet && !self.draining && matches!(s.state, ServerState::Seated { .. });
        if !usable {
            if s.ledger.is_busy() {
                // The backend would go on with the statement until it writes to us.
                self.cancel_server(slot);
            }
            return self.close_server(slot);
        }
        if s.cancels > 0 {
            return self.close_server(slot);
        }
        if s.ledger.is_clean() && !s.tainted {
            return if s.litter.is_empty() { self.release_server(slot) } else { self.tidy(slot) };
        }
        let (step, sql): (Reset, &[u8]) = if s.ledger.is_clean() {
            (Reset::Discard, b"DISCARD ALL")
        } else {
            (Reset::Rollback { discard: s.tainted }, b"ROLLBACK")
        };
        self.reset(slot, step, sql);
    }

    /// Removes statements that a client's mistake has left under its own names.
    pub(super) fn tidy(&mut self, slot: u32) {
        let Some(s) = self.servers.get_mut(slot as usize) else {
            return;
        };
        s.state = ServerState::Resetting { step: Reset::Tidy };
        s.error = None;
        let mut out = Vec::new();
        // By messages and not by DEALLOCATE, which fails if the client's mistake was discarded.
        for name in std::mem::take(&mut s.litter) {
            s.ledger.sent(frontend::CLOSE);
            frontend::write_close(&mut out, frontend::Target::Statement, &name);
        }
        s.ledger.sent(frontend::SYNC);
        s.shelf.synced();
        out.extend_from_slice(&frontend::SYNC_BYTES);
        self.send(ConnId::Server(slot), out);
    }

    pub(super) fn reset(&mut self, slot: u32, step: Reset, sql: &[u8]) {
        let Some(s) = self.servers.get_mut(slot as usize) else {
            return;
        };
        s.state = ServerState::Resetting { step };
        s.error = None;
        s.shelf.set_unnamed(None);
        s.ledger.sent(frontend::QUERY);
        let mut out = Vec::with_capacity(32);
        frontend::write_query(&mut out, sql);
        self.send(ConnId::Server(slot), out);
    }

    /// A step of cleaning is done.
    pub(super) fn reset_done(&mut self, slot: u32, step: Reset) {
        let Some(s) = self.servers.get_mut(slot as usize) else {
            return;
        };
        if step == Reset::Limit {
            return self.limit_told(slot);
        }
        let failed = s.error.take().is_some() && step != Reset::Strays;
        if failed || !s.ledger.is_clean() {
            return self.close_server(slot);
        }
        s.done_steps = 0;
        s.defining = false;
        match step {
            Reset::Rollback { discard: true } => self.reset(slot, Reset::Discard, b"DISCARD ALL"),
            Reset::Rollback { discard: false } => {
                if std::mem::take(&mut s.stirred) {
                    s.shelf.stir();
                }
                s.changed_defaults = false;
                s.unread = false;
                if std::mem::take(&mut s.changed_definitions) {
                    s.pool.definition_changed();
                }
                if std::mem::take(&mut s.changed_catalog) {
                    // What its statements refer to may never have been.
                    s.pool.catalog_changed();
                }
                if s.litter.is_empty() { self.release_server(slot) } else { self.tidy(slot) }
            }
            Reset::Unlisten => {
                s.listens = false;
                s.has_channels = false;
                if s.litter.is_empty() { self.release_server(slot) } else { self.tidy(slot) }
            }
            Reset::Tidy => self.release_server(slot),
            Reset::Limit => {}
            Reset::Eased => self.limit_lifted(slot),
            Reset::Strays => {
                s.row = None;
                if s.cancels > 0 {
                    s.state = ServerState::BeingCancelled;
                } else {
                    self.release_server(slot);
                }
            }
            Reset::Settings => {
                s.nameless = false;
                s.settings = self.shared.no_settings.clone();
                self.release_server(slot);
            }
            Reset::Discard => {
                s.tainted = false;
                s.nameless = false;
                s.listens = false;
                s.has_channels = false;
                s.shelf.clear();
                s.litter.clear();
                s.settings = self.shared.no_settings.clone();
                self.release_server(slot);
            }
        }
    }

    /// A server's socket is gone.
    pub fn server_closed(&mut self, slot: u32) {
        let Some(s) = self.servers.get(slot as usize) else {
            return;
        };
        let client = match &s.state {
            ServerState::Replaying { client } | ServerState::Seated { client } | ServerState::Auditing { client } => {
                Some(*client)
            }
            ServerState::Knowing(knowing) => match knowing.purpose {
                Purpose::Client(client) => Some(client),
                Purpose::Opened | Purpose::Release | Purpose::Gone => None,
            },
            _ => None,
        };
        match (&s.state, client) {
            _ if s.is_opening() => {
                let error = std::io::Error::new(std::io::ErrorKind::ConnectionReset, "closed while logging in");
                self.server_connect_failed(slot, &error);
            }
            (ServerState::Idle, _) => self.lost_idle(slot),
            (ServerState::Replicating { client }, _) => self.walsender_closed(slot, *client),
            (ServerState::Listening, _) => {
                self.hub_lost(slot);
                self.close_lost(slot);
            }
            (_, None) => self.close_lost(slot),
            (_, Some(client)) => {
                let farewell = s.farewell;
                self.close_lost(slot);
                if farewell {
                    // The client knows why.
                    if let Some(c) = self.clients.get_mut(client as usize) {
                        c.state = State::Idle;
                    }
                    return self.drop_client(client);
                }
                if let Some(c) = self.clients.get_mut(client as usize) {
                    c.state = State::Idle;
                }
                let report = Report::fatal(
                    sqlstate::CONNECTION_FAILURE,
                    "the PostgreSQL server closed the connection unexpectedly",
                )
                .detail("The server process ended before or while processing the request.")
                .hint("What the statement did is not known. Connect again.");
                self.refuse(client, &report);
            }
        }
    }

    pub(super) fn close_lost(&mut self, slot: u32) {
        let Some(s) = self.servers.try_remove(slot as usize) else {
            return;
        };
        self.out.push_back(Output::Close(ConnId::Server(slot)));
        self.scattered(s.followers);
        match s.pool.seats.closed() {
            Closed::Fine => {}
            Closed::Open => {
                self.open_server(&s.pool);
            }
        }
    }
}
