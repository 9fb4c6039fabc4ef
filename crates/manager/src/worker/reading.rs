//! From a socket to the core: reads what there is, and gives the core the bytes behind those that it has kept.

use super::Worker;
use super::socket::{Layer, Received};
use super::sockets::Source;
use crate::core::{ConnId, MAX_HELD};

/// Bytes that one read takes at most.
pub(super) const READ_SIZE: usize = 64 * 1024;
/// Reads of one connection in a row, before the others get their turn.
const READS_IN_A_ROW: usize = 8;

impl Worker {
    /// Reads what there is and lets the core look at it.
    pub(super) fn read(&mut self, conn: ConnId) {
        for _ in 0..READS_IN_A_ROW {
            let Some(io) = self.sockets.get(conn) else { return };
            if io.paused || !io.readable || io.connecting {
                if io.paused && io.ended {
                    self.ended_unread(conn);
                }
                return;
            }
            if !matches!(io.layer, Layer::Plain) {
                self.read_secured(conn);
                continue;
            }
            let Some(space) = self.scratch.get_mut(MAX_HELD..) else {
                return;
            };
            match io.receive(space) {
                Received::Bytes(n) => self.present(conn, n),
                Received::Nothing => return,
                Received::End => return self.hung_up(conn),
            }
        }
        self.again.push(Source::Conn(conn));
    }

    /// A connection that must not be read has ended. A client that has hung up must keep neither its place in a queue nor its
    /// server, however long it would not be read.
    fn ended_unread(&mut self, conn: ConnId) {
        if let ConnId::Client(slot) = conn {
            if self.core.is_gone(slot) {
                self.hung_up(conn);
            }
        }
    }

    /// Gives the core the bytes that were read, behind those that it has kept.
    #[inline]
    pub(super) fn present(&mut self, conn: ConnId, n: usize) {
        let held = match conn {
            ConnId::Client(slot) => self.core.client_held(slot),
            ConnId::Server(slot) => self.core.server_held(slot),
            ConnId::Cancel(_) => return,
        };
        if held.len() > MAX_HELD {
            return self.hung_up(conn);
        }
        self.base = MAX_HELD - held.len();
        if let (Some(front), Some(held)) = (self.scratch.get_mut(self.base..MAX_HELD), held.get(..MAX_HELD - self.base))
        {
            front.copy_from_slice(held);
        }
        let Some(buf) = self.scratch.get(self.base..MAX_HELD + n) else {
            return;
        };
        match conn {
            ConnId::Client(slot) => self.core.client_bytes(slot, buf),
            ConnId::Server(slot) => self.core.server_bytes(slot, buf),
            ConnId::Cancel(_) => {}
        }
        self.settle();
    }

    /// The other side is gone.
    pub(super) fn hung_up(&mut self, conn: ConnId) {
        self.closed(conn);
        self.settle();
    }

    /// Tells the core so.
    pub(super) fn closed(&mut self, conn: ConnId) {
        match conn {
            ConnId::Client(slot) => self.core.client_closed(slot),
            ConnId::Server(slot) => self.core.server_closed(slot),
            ConnId::Cancel(slot) => self.core.cancel_closed(slot),
        }
    }
}
