//! The sockets of a worker, by the slots that the core gave them, and what the poll's tokens stand for.

use super::lingering::Lingering;
use super::socket::Io;
use crate::core::ConnId;
use mio::Token;

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// Letters have come.
    Mailbox,
    /// A listener, by its index.
    Listener(u32),
    /// A connection that the core knows.
    Conn(ConnId),
    /// A connection that the core has closed and whose last bytes have not left yet.
    Lingering(u32),
}

impl Source {
    /// The kind is in the token's lowest three bits, the slot above them.
    pub(super) fn token(self) -> Token {
        let (kind, slot) = match self {
            Self::Mailbox => (0, 0),
            Self::Listener(slot) => (1, slot),
            Self::Conn(ConnId::Client(slot)) => (2, slot),
            Self::Conn(ConnId::Server(slot)) => (3, slot),
            Self::Conn(ConnId::Cancel(slot)) => (4, slot),
            Self::Lingering(slot) => (5, slot),
        };
        Token(((slot as usize) << 3) | kind)
    }

    #[inline]
    pub(super) fn of(token: Token) -> Option<Self> {
        let slot = (token.0 >> 3) as u32;
        Some(match token.0 & 7 {
            0 => Self::Mailbox,
            1 => Self::Listener(slot),
            2 => Self::Conn(ConnId::Client(slot)),
            3 => Self::Conn(ConnId::Server(slot)),
            4 => Self::Conn(ConnId::Cancel(slot)),
            5 => Self::Lingering(slot),
            _ => return None,
        })
    }
}

/// The sockets of one kind, by slot.
#[derive(Default)]
struct Table(Vec<Option<Io>>);

impl Table {
    fn put(&mut self, slot: u32, io: Io) {
        let slot = slot as usize;
        if slot >= self.0.len() {
            self.0.resize_with(slot + 1, || None);
        }
        if let Some(place) = self.0.get_mut(slot) {
            *place = Some(io);
        }
    }
}

/// All sockets of a worker but its listeners'.
#[derive(Default)]
pub(super) struct Sockets {
    clients: Table,
    servers: Table,
    cancels: Table,
    pub(super) lingering: Lingering,
}

impl Sockets {
    #[inline]
    pub(super) fn get(&mut self, conn: ConnId) -> Option<&mut Io> {
        let (table, slot) = self.place(conn);
        table.0.get_mut(slot as usize).and_then(Option::as_mut)
    }

    pub(super) fn put(&mut self, conn: ConnId, io: Io) {
        let (table, slot) = self.place(conn);
        table.put(slot, io);
    }

    pub(super) fn take(&mut self, conn: ConnId) -> Option<Io> {
        let (table, slot) = self.place(conn);
        table.0.get_mut(slot as usize).and_then(Option::take)
    }

    #[inline]
    fn place(&mut self, conn: ConnId) -> (&mut Table, u32) {
        match conn {
            ConnId::Client(slot) => (&mut self.clients, slot),
            ConnId::Server(slot) => (&mut self.servers, slot),
            ConnId::Cancel(slot) => (&mut self.cancels, slot),
        }
    }
}
