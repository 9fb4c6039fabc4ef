//! How bytes leave: from the buffer that they were read into, put together from several places, or not yet, because the other
//! side does not take them.

use super::Core;
use super::client::State;
use super::io::{Bytes, ConnId, Output};
use super::server::State as ServerState;
use std::ops::Range;

/// Where the bytes of a call are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// In the driver's buffer.
    Input,
    /// In a buffer of the core's: they are copied.
    Copy,
}

/// Bytes that are rather copied than sent by a system call of their own.
const MAX_COPIED: usize = 16 * 1024;
impl Core {
    /// Bytes that were composed before have been sent by now.
    #[inline]
    pub(super) fn begin_composing(&mut self) -> Option<usize> {
        if self.out.is_empty() {
            self.composed.clear();
            self.composed.shrink_to(4 * MAX_COPIED);
        }
        None
    }

    /// Bytes that were put together from several places; see [`Bytes::Composed`].
    #[inline]
    pub fn composed(&self, range: Range<usize>) -> &[u8] {
        self.composed.get(range).unwrap_or_default()
    }

    /// Sends a part of the buffer, behind what has been composed from `composed` on.
    #[inline]
    pub(super) fn forward(
        &mut self,
        to: ConnId,
        source: Source,
        buf: &[u8],
        range: Range<usize>,
        composed: Option<usize>,
    ) {
        if let (true, ConnId::Client(slot)) = (self.holding > 0, to) {
            let first =
                composed.map(|begin| self.composed.get(begin..).unwrap_or_default().to_vec()).unwrap_or_default();
            if self.keep_back(slot, [&first, buf.get(range.clone()).unwrap_or_default()]) {
                return;
            }
        }
        if let Some(begin) = composed {
            let copied = range.len() <= MAX_COPIED;
            if copied {
                self.composed.extend_from_slice(buf.get(range.clone()).unwrap_or_default());
            }
            let bytes = Bytes::Composed(begin..self.composed.len());
            self.out.push_back(Output::Send { to, bytes });
            if copied {
                return;
            }
        }
        if range.is_empty() {
            return;
        }
        let bytes = match source {
            Source::Input => Bytes::Input(range),
            Source::Copy => Bytes::Owned(buf.get(range).unwrap_or_default().to_vec()),
        };
        self.out.push_back(Output::Send { to, bytes });
    }

    /// A connection's pending bytes have grown so much that its peer must not be read.
    pub fn blocked(&mut self, conn: ConnId) {
        match conn {
            ConnId::Client(slot) => {
                let Some(c) = self.clients.get_mut(slot as usize) else {
                    return;
                };
                c.blocked = true;
                match c.state {
                    State::Replicating { server, ready: true } => {
                        self.out.push_back(Output::Pause(ConnId::Server(server)));
                    }
                    State::Seated { server } => {
                        // The answer to a question of our own is not for the client.
                        let seated = |s: &super::Server| matches!(s.state, ServerState::Seated { .. });
                        if self.servers.get(server as usize).is_some_and(seated) {
                            self.out.push_back(Output::Pause(ConnId::Server(server)));
                        }
                    }
                    // It is answered without a server.
                    State::Idle => self.out.push_back(Output::Pause(ConnId::Client(slot))),
                    _ => {}
                }
            }
            ConnId::Server(slot) => {
                let Some(s) = self.servers.get_mut(slot as usize) else {
                    return;
                };
                s.blocked = true;
                if let ServerState::Seated { client } | ServerState::Replicating { client } = s.state {
                    self.out.push_back(Output::Pause(ConnId::Client(client)));
                }
            }
            ConnId::Cancel(_) => {}
        }
    }

    /// Everything that was pending for a connection has been sent.
    pub fn drained(&mut self, conn: ConnId) {
        match conn {
            ConnId::Client(slot) => {
                let Some(c) = self.clients.get_mut(slot as usize) else {
                    return;
                };
                c.blocked = false;
                match c.state {
                    State::Seated { server } | State::Replicating { server, .. } => {
                        self.out.push_back(Output::Resume(ConnId::Server(server)));
                    }
                    State::Idle => self.out.push_back(Output::Resume(ConnId::Client(slot))),
                    _ => {}
                }
                self.send_notes_at_rest(slot);
            }
            ConnId::Server(slot) => {
                let Some(s) = self.servers.get_mut(slot as usize) else {
                    return;
                };
                s.blocked = false;
                if let ServerState::Replicating { client } = s.state {
                    self.out.push_back(Output::Resume(ConnId::Client(client)));
                }
                if let ServerState::Seated { client } = s.state {
                    // What a client sends next stays behind its message that waits; see `settled`.
                    if self.clients.get(client as usize).is_some_and(|c| !c.settling && !c.ahead) {
                        self.out.push_back(Output::Resume(ConnId::Client(client)));
                    }
                    self.part_if_done(client);
                }
            }
            ConnId::Cancel(_) => {}
        }
    }
}
