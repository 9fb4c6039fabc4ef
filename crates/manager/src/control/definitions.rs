//! Reads what a database has answered about its definitions. In a large one that takes tens of milliseconds, which a worker has not
//! got; there is a thread for it.

use super::desk::Desk;
use crate::core::{Mail, Rows};
use crate::worker::Letter;
use pgusher_pool::WorkerId;
use pgusher_session::knowledge::{Knowledge, ReadError, Reader};
use pgusher_wire::{Frame, backend};

impl Desk {
    /// Keeps the answer, and tells the workers that it is there.
    pub(super) fn definitions(&self, rows: Rows) {
        let (server, pool) = (rows.server, rows.pool.clone());
        match read(&rows) {
            Ok(knowledge) => {
                let moved = rows.own && pool.defaults_seen(knowledge.defaults);
                if knowledge.too_many {
                    let database = &pool.database;
                    tracing::warn!(%database, "the database has too many functions: each transaction is looked at on the server");
                }
                rows.turn.answer(knowledge);
                if moved {
                    tracing::info!(database = %pool.database, user = %pool.user, "what new sessions begin with has changed");
                    self.tell_all(|| Mail::Moved);
                }
            }
            Err(error) => {
                tracing::warn!(database = %pool.database, "{error}");
                drop(rows);
            }
        }
        self.tell_all(|| Mail::Known { server });
    }

    fn tell_all(&self, mail: impl Fn() -> Mail) {
        for worker in 0..self.shared.config.workers {
            self.post.send(WorkerId(u8::try_from(worker).unwrap_or(u8::MAX)), Letter::Core(mail()));
        }
    }
}

fn read(rows: &Rows) -> Result<Knowledge, ReadError> {
    let mut reader = Reader::new();
    let mut rest = rows.bytes.as_slice();
    while let Ok(Some((frame, used))) = Frame::parse(rest) {
        if frame.tag == backend::DATA_ROW {
            reader.row(frame.body)?;
        }
        rest = rest.get(used..).unwrap_or_default();
    }
    if rows.cut {
        reader.give_up();
    }
    reader.finish(rows.known.as_ref().map(|taken| &taken.knowledge))
}
