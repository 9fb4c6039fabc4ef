//! Sessions that are idle for longer than their `idle_session_timeout` (PostgreSQL 14 and later) are closed here, because a
//! client without a physical connection has no server that could do it.
//!
//! The other side of it: the server must not close a physical connection that nobody uses. Between two clients one of them still
//! has the limit of its last client, or the one that its role, its database or the server's configuration gives it. If that is
//! short it is lifted as soon as the connection becomes free, otherwise when it has rested for a moment, so that connections in
//! use pay nothing. The next client's own limit is put there like any other setting. What new sessions begin with is
//! asked of each connection when it is opened.

use super::Core;
use super::client::State;
use super::server::{Reset, Server, State as ServerState};
use crate::shared::Welcome;
use pgusher_session::settings::{IDLE_LIMIT, duration};
use pgusher_wire::backend::{DATA_ROW, Message};
use pgusher_wire::{Frame, Report, sqlstate};
use std::time::Duration;

/// A shorter limit is lifted at once. Connections that rest are looked at about once a second.
const SHORT: Duration = Duration::from_secs(10);
/// The first version that has the setting.
const FIRST_VERSION: u32 = 14;

const ASK: &[u8] = b"SHOW idle_session_timeout";
const LIFT: &[u8] = b"SET idle_session_timeout=0";

/// The limit that sessions on a server that says this of itself begin with, as far as that can be told without asking.
pub(super) fn limit_at_first(welcome: &Welcome) -> Option<Duration> {
    let version = welcome.parameters.iter().find(|(name, _)| name == b"server_version").map(|(_, value)| value);
    let digits = version?.iter().take_while(|b| b.is_ascii_digit()).map(|b| u32::from(b - b'0'));
    let major = digits.fold(0_u32, |number, digit| number.saturating_mul(10).saturating_add(digit));
    if major < FIRST_VERSION { Some(Duration::ZERO) } else { None }
}

impl Server {
    /// Has it a limit that is to be lifted while nobody uses it? `rests`: nobody has, for a moment.
    fn is_limited(&self, rests: bool) -> bool {
        let limit = self.settings.idle_limit().or(self.idle_default).unwrap_or_default();
        !limit.is_zero() && (rests || limit < SHORT)
    }
}

impl Core {
    /// A server has logged in: is it asked for the limit that new sessions begin with, before anybody gets it?
    pub(super) fn ask_limit(&mut self, slot: u32) -> bool {
        let unknown = self.servers.get(slot as usize).is_some_and(|s| s.idle_default.is_none());
        if unknown && self.shares {
            self.reset(slot, Reset::Limit, ASK);
        }
        unknown && self.shares
    }

    /// It has said so.
    pub(super) fn limit_told(&mut self, slot: u32) {
        let Some(s) = self.servers.get_mut(slot as usize) else { return };
        // In doubt, none: a limit in time of its role may have met the question.
        s.error = None;
        let row = s.row.take().unwrap_or_default();
        let limit = match Message::parse(Frame { tag: DATA_ROW, body: &row }) {
            Ok(Message::DataRow(row)) => {
                row.columns().next().flatten().map(|text| duration(&String::from_utf8_lossy(text)))
            }
            _ => None,
        };
        let limit = limit.unwrap_or_default();
        s.idle_default = Some(limit);
        s.pool.begins_with_limit(limit);
        self.server_opened(slot);
    }

    /// A server becomes free: is its limit lifted first?
    #[inline]
    pub(super) fn ease_before_rest(&mut self, slot: u32) -> bool {
        let Some(s) = self.servers.get(slot as usize) else { return false };
        let due = s.is_limited(false) && self.shares && s.pool.seats.counts().waiting == 0;
        if due {
            self.reset(slot, Reset::Eased, LIFT);
        }
        due
    }

    /// Servers that rest with a limit.
    pub(super) fn ease_at_rest(&mut self) {
        if !self.shares {
            return;
        }
        let rests = |s: &Server| matches!(s.state, ServerState::Idle) && s.is_limited(true);
        let due: Vec<u32> = self.servers.iter().filter(|(_, s)| rests(s)).map(|(slot, _)| slot as u32).collect();
        for slot in due {
            let seat = self.server_seat(slot);
            if self.servers.get(slot as usize).is_some_and(|s| s.pool.seats.take(seat)) {
                self.reset(slot, Reset::Eased, LIFT);
            }
        }
    }

    /// A server's limit is lifted.
    pub(super) fn limit_lifted(&mut self, slot: u32) {
        let Some(s) = self.servers.get_mut(slot as usize) else { return };
        if let Ok(settings) = s.settings.with(IDLE_LIMIT, "0") {
            s.settings = self.shared.interner.intern(settings);
        }
        self.release_server(slot);
    }

    /// Closes clients without a server that have been idle for too long. Those that have one are the server's matter.
    pub(super) fn expire_idle(&mut self) {
        let now = self.now;
        let is_late = |(_, c): &(usize, &super::Client)| {
            let limit = match c.state {
                State::Idle => c.settings.as_ref().and_then(|settings| settings.idle_limit()),
                _ => Some(Duration::ZERO),
            };
            let limit = limit.or_else(|| c.pool.as_ref().map(|pool| pool.limit_at_first())).unwrap_or_default();
            !limit.is_zero() && now.since(c.since) > limit
        };
        let late: Vec<u32> = self.clients.iter().filter(is_late).map(|(slot, _)| slot as u32).collect();
        for slot in late {
            // As the server says it (src/backend/tcop/postgres.c, ProcessInterrupts).
            let text = "terminating connection due to idle-session timeout";
            self.refuse(slot, &Report::fatal(sqlstate::IDLE_SESSION_TIMEOUT, text));
        }
    }
}
