//! Connections that are closed for everybody else, and whose last bytes have not left yet. Bounded in number and time.

use super::socket::{Io, Progress};
use super::sockets::Source;
use mio::{Interest, Registry};

/// Connections that linger at most; further ones are closed at once.
const MAX_LINGERING: usize = 1024;
/// Ticks after which they are closed in any case: somebody who does not read for so long will not read any more.
const MAX_TICKS: u8 = 10;

/// Those connections.
#[derive(Default)]
pub(super) struct Lingering {
    places: Vec<Option<Io>>,
    count: usize,
}

impl Lingering {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Takes a connection over, if there is room.
    pub(super) fn put(&mut self, mut io: Io, registry: &Registry) {
        if self.count >= MAX_LINGERING {
            return;
        }
        let slot = self.places.iter().position(Option::is_none).unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        let interest = Interest::READABLE | Interest::WRITABLE;
        let token = Source::Lingering(slot as u32).token();
        if let (Some(place), Ok(())) = (self.places.get_mut(slot), registry.reregister(&mut io.socket, token, interest))
        {
            *place = Some(io);
            self.count += 1;
        }
    }

    /// Nothing that it says matters any more; only whether it is still there.
    pub(super) fn event(&mut self, slot: u32, event: &mio::event::Event) {
        let Some(io) = self.places.get_mut(slot as usize).and_then(Option::as_mut) else {
            return;
        };
        let gone = event.is_read_closed() || event.is_error();
        if gone || (event.is_writable() && io.flush() != Progress::Pending) {
            self.end(slot as usize);
        }
    }

    /// Closes those that have been here for too long.
    pub(super) fn tick(&mut self) {
        for slot in 0..self.places.len() {
            if let Some(io) = self.places.get_mut(slot).and_then(Option::as_mut) {
                io.age += 1;
                if io.age > MAX_TICKS {
                    self.end(slot);
                }
            }
        }
    }

    fn end(&mut self, slot: usize) {
        if self.places.get_mut(slot).and_then(Option::take).is_some() {
            self.count -= 1;
        }
    }
}
