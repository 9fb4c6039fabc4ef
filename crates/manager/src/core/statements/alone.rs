//! Answers to a client that has no server: Parse, Describe and Close up to Sync, of statements of which everything is known.
//!
//! It costs no round trip to a backend, and a client that prepares does not wait for a physical connection. The statement gets to
//! a server with its first Bind. An error that the server would have raised at the Parse comes with the Bind then; that is
//! only possible if the catalogs were changed where pgusher did not see it.

use super::super::client::Client;
use super::super::io::ConnId;
use super::super::{Core, effects};
use super::{MAX_SENT_NAME, cut};
use crate::shared::PoolEntry;
use pgusher_session::statements::{Change, Library, Unnamed};
use pgusher_wire::{Frame, TxStatus, backend, frontend};
use std::sync::PoisonError;

/// Longer texts are not shared.
const MAX_TEXT: usize = 12 << 10;
/// Replies to what was read at once, in bytes, about; a reply may be much longer than its question.
const MAX_GIVEN: usize = 64 << 10;

impl Core {
    /// Answers the messages from `start` on up to the next Sync. Returns where it ends; `None` if they have to go to a server,
    /// as they are. `given` counts the bytes of the replies.
    pub(in crate::core) fn answer_alone(
        &mut self,
        slot: u32,
        buf: &[u8],
        start: usize,
        given: &mut usize,
    ) -> Option<usize> {
        let messages = buf.get(start..)?;
        let end = find_sync(messages)?;
        let client = self.clients.get_mut(slot as usize)?;
        // What a client listens to may have to be put on the server of its Parse.
        let bound = !client.pins.is_empty() || client.has_ears();
        if !self.sharing.unnamed || *given >= MAX_GIVEN || bound {
            return None;
        }
        let pool = client.pool.clone()?;
        let mut alone = Alone {
            library: &mut self.library,
            pool: &pool,
            version: pool.catalog_version(),
            settings: client.planning(),
            now: self.now.0 / 1_000_000,
            out: Vec::new(),
            changes: Vec::new(),
            client,
        };
        let mut at = 0;
        while at < end {
            let (frame, used) = Frame::parse(messages.get(at..)?).ok()??;
            at += used;
            if alone.answer(&frame).is_none() {
                alone.take_back();
                return None;
            }
        }
        let mut out = alone.out;
        client.discards = false;
        backend::write_ready_for_query(&mut out, TxStatus::Idle);
        *given += out.len();
        self.send(ConnId::Client(slot), out);
        Some(start + end)
    }
}

/// The end of the Sync behind messages that may be answered without a server.
#[inline]
fn find_sync(messages: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let (frame, used) = Frame::parse(messages.get(at..)?).ok()??;
        at += used;
        match (frame.tag, frame.body.first()) {
            (frontend::PARSE, _) | (frontend::FLUSH, None) | (frontend::DESCRIBE | frontend::CLOSE, Some(b'S')) => {}
            (frontend::SYNC, _) => return Some(at),
            _ => return None,
        }
    }
}

struct Alone<'a> {
    client: &'a mut Client,
    library: &'a mut Library,
    pool: &'a PoolEntry,
    version: u32,
    settings: u64,
    /// In seconds.
    now: u64,
    out: Vec<u8>,
    changes: Vec<Change>,
}

impl Alone<'_> {
    fn answer(&mut self, frame: &Frame<'_>) -> Option<()> {
        if self.out.len() > MAX_GIVEN {
            return None;
        }
        match frame.tag {
            frontend::PARSE => {
                let (name, tail) = cut(frame.body)?;
                self.parse(name, tail)
            }
            frontend::DESCRIBE => self.describe(cut(frame.body.get(1..)?)?.0),
            frontend::CLOSE => self.close(cut(frame.body.get(1..)?)?.0),
            _ => Some(()),
        }
    }

    fn parse(&mut self, name: &[u8], tail: &[u8]) -> Option<()> {
        if name.len() > MAX_SENT_NAME || name.len() + tail.len() >= MAX_TEXT {
            return None;
        }
        let own = self.client.own.get_or_insert_default();
        if !name.is_empty() && (own.is_full() || own.get(name).is_some()) {
            return None;
        }
        let text = tail.split(|b| *b == 0).next().unwrap_or_default();
        let reading = effects::reading_in(self.client, self.pool, text);
        let key = self.library.find(tail, reading)?;
        let shared = key.under(self.settings);
        if !self.pool.statements.lock().unwrap_or_else(PoisonError::into_inner).is_parsed(shared, self.version) {
            return None;
        }
        let (statement, _) = self.library.statement(tail, reading);
        // One that discards statements may mean one of the client's, which the server does not know by that name.
        if statement.key != key || statement.plan.as_ref().is_some_and(|plan| plan.discards) {
            return None;
        }
        let own = self.client.own.get_or_insert_default();
        self.changes.push(if name.is_empty() {
            own.set_unnamed(Unnamed::Statement(statement))
        } else {
            own.set(name, Some(statement))
        });
        self.out.extend_from_slice(&backend::PARSE_COMPLETE_BYTES);
        Some(())
    }

    fn describe(&mut self, name: &[u8]) -> Option<()> {
        let key = self.client.own.as_deref()?.find(name)?.key.under(self.settings);
        let mut known = self.pool.statements.lock().unwrap_or_else(PoisonError::into_inner);
        self.out.extend_from_slice(&known.description(key, self.version, self.now)?);
        Some(())
    }

    fn close(&mut self, name: &[u8]) -> Option<()> {
        let own = self.client.own.get_or_insert_default();
        if name.is_empty() {
            self.changes.push(own.set_unnamed(Unnamed::None));
        } else if own.get(name).is_some() {
            self.changes.push(own.set(name, None));
        }
        self.out.extend_from_slice(&backend::CLOSE_COMPLETE_BYTES);
        Some(())
    }

    fn take_back(&mut self) {
        if let Some(own) = self.client.own.as_deref_mut() {
            while let Some(change) = self.changes.pop() {
                own.take_back(change);
            }
        }
    }
}
