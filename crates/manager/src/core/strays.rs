//! What becomes of batches that were sent behind another client's (`follow`) when their clients have gone, or go elsewhere: strays.
//! They run out on a connection that is nobody's, for so long ([`STRAYS`]).

use super::Core;
use super::client::State;
use super::follow::Follower;
use super::server::{Reset, Server, State as ServerState};
use pgusher_pool::Seat;
use std::collections::VecDeque;
use std::time::Duration;

/// A connection on which strays take longer is closed.
const STRAYS: Duration = Duration::from_secs(1);

impl Core {
    /// The server's client has been answered. Only the replies to strays are owed.
    pub(super) fn leave_to_strays(&mut self, server: u32, leader: u32) {
        let (Some(c), Some(s)) = (self.clients.get_mut(leader as usize), self.servers.get_mut(server as usize)) else {
            return;
        };
        c.state = State::Idle;
        c.since = self.now;
        s.strays = false;
        s.cancel_due = false;
        s.state = ServerState::Resetting { step: Reset::Strays };
        s.error = None;
        s.unheard = true;
        s.judged = None;
        s.handed = self.now;
        self.resume_later(Some(leader));
    }

    /// Closes connections on which strays take too long. To be called now and then.
    pub(super) fn end_strays(&mut self) {
        let late = |s: &Server| {
            matches!(s.state, ServerState::Resetting { step: Reset::Strays }) && self.now.since(s.handed) > STRAYS
        };
        let late: Vec<u32> = self.servers.iter().filter(|(_, s)| late(s)).map(|(slot, _)| slot as u32).collect();
        for server in late {
            // The backend would go on until it writes to us.
            self.request_cancel(server);
            self.close_server(server);
        }
    }

    /// The followers of a server's client go elsewhere. What they were sent for is answered all the same; nobody gets that.
    pub(super) fn disband(&mut self, server: u32) {
        let Some(s) = self.servers.get_mut(server as usize).filter(|s| !s.followers.is_empty()) else { return };
        let followers = std::mem::take(&mut s.followers);
        let lead = s.lead.take();
        s.strays = true;
        for _ in &followers {
            s.ledger.own_attempt();
        }
        self.note_pace(lead);
        self.scattered(followers);
    }

    /// Clients whose batches went to a server that they cannot follow any more wait for another, in front of those who came later.
    pub(super) fn scattered(&mut self, followers: VecDeque<Follower>) {
        if let Some(follows) = self.follows.as_mut() {
            follows.count -= followers.len();
        }
        // The last one first: each goes to the front.
        for mut follower in followers.into_iter().rev() {
            let Some(seat) = follower.client else { continue };
            let Some(c) = self.client_in(seat) else { continue };
            follower.bytes.append(&mut c.pending);
            c.pending = follower.bytes;
            c.state = State::Promised { login: false };
            self.missed(seat, follower.since);
        }
    }

    /// The replies to a follower's batch are nobody's: its client has gone.
    pub(super) fn stray(&mut self, server: u32, client: Seat) -> Option<Vec<u8>> {
        let followers = &mut self.servers.get_mut(server as usize)?.followers;
        let follower = followers.iter_mut().find(|follower| follower.client == Some(client))?;
        follower.client = None;
        Some(std::mem::take(&mut follower.bytes))
    }

    /// A follower does not want its replies; its batch is its own again.
    pub(super) fn unfollow(&mut self, slot: u32, server: u32) {
        let seat = self.client_seat(slot);
        let bytes = self.stray(server, seat).unwrap_or_default();
        if let Some(c) = self.clients.get_mut(slot as usize) {
            c.pending.splice(0..0, bytes);
        }
    }
}
