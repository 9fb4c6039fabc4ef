//! What servers' replies say of statements, kept for clients without a server.

use super::super::server::Server;
use pgusher_pool::Micros;
use pgusher_session::statements::{Note, Placed};
use pgusher_wire::scan::Head;
use pgusher_wire::{TxStatus, backend};
use std::sync::PoisonError;

/// A description of more bytes is not kept.
const MAX_DESCRIPTION: usize = 8 << 10;

/// A mark was done: what it says of its statement is remembered, unless the transaction has changed what only it can see.
pub(super) fn learn(server: &mut Server, note: &Note, now: Micros) {
    if !matches!(note.placed, Placed::Put(_) | Placed::Described(..))
        || server.ledger.status() != TxStatus::Idle
        || server.has_changed()
        || server.is_in_flux()
    {
        return;
    }
    let current = server.pool.catalog_version();
    match note.placed {
        Placed::Put(key) => {
            if let Some(version) = server.shelf.parsed_in(key, note.batch) {
                server.pool.statements.lock().unwrap_or_else(PoisonError::into_inner).parsed(key, version, current);
            }
        }
        Placed::Described(key, version) => {
            let sketch = std::mem::take(&mut server.sketch);
            // Both messages of it.
            if sketch.len() > 5 && server.sketched {
                let mut known = server.pool.statements.lock().unwrap_or_else(PoisonError::into_inner);
                known.described(key, &sketch, version, current, now.0 / 1_000_000);
            }
        }
        _ => {}
    }
}

impl Server {
    /// A ParameterDescription, RowDescription or NoData has come. If it belongs to a Describe whose reply is to be remembered, it is
    /// copied. To be called before it is booked.
    pub(in crate::core) fn sketch(&mut self, head: &Head<'_>) {
        if !self.ledger.is_described() {
            return;
        }
        let first = head.tag == backend::PARAMETER_DESCRIPTION;
        if first {
            self.sketch.clear();
        }
        self.sketched = false;
        let fits = self.sketch.len() + head.body_len < MAX_DESCRIPTION;
        if !head.is_complete() || !fits || (self.sketch.is_empty() && !first) {
            self.sketch = Vec::new();
            return;
        }
        self.sketch.push(head.tag);
        self.sketch.extend_from_slice(&u32::try_from(head.body_len + 4).unwrap_or(u32::MAX).to_be_bytes());
        self.sketch.extend_from_slice(head.body);
        self.sketched = !first;
    }
}
