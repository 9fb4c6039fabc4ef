//! Replies to statements of the manager's own: settings that are put on a server, and its cleaning.

use super::Core;
use super::flow::Source;
use super::io::ConnId;
use super::relay::server_need;
use super::server::State as ServerState;
use pgusher_wire::{TxStatus, backend};

impl Core {
    /// Replies to statements of our own: they are consumed, and only changed settings are passed on.
    pub(super) fn own_replies(&mut self, slot: u32, buf: &[u8]) {
        let mut pos = 0;
        loop {
            let Some(server) = self.servers.get_mut(slot as usize) else {
                return;
            };
            let need = |tag| match tag {
                backend::ERROR_RESPONSE | backend::PARAMETER_STATUS => 8 * 1024,
                tag => server_need(tag),
            };
            let head = match server.scanner.next(buf, &mut pos, need) {
                Ok(Some(head)) => head,
                Ok(None) => break,
                Err(_) => return self.broken_server(slot),
            };
            let status = head.body.first().and_then(|b| TxStatus::from_byte(*b)).unwrap_or(TxStatus::Failed);
            if server.ledger.received(head.tag, status).is_err() {
                return self.broken_server(slot);
            }
            match head.tag {
                backend::ERROR_RESPONSE => server.error = Some(head.body.to_vec()),
                backend::PARAMETER_STATUS => {
                    if let (ServerState::Replaying { client }, true) = (&server.state, head.is_complete()) {
                        let to = ConnId::Client(*client);
                        self.forward(to, Source::Input, buf, head.start..pos, None);
                    }
                }
                backend::READY_FOR_QUERY if server.ledger.is_quiet() => {
                    // Nothing was asked for behind it; a notice that comes with it is nobody's.
                    if pos != buf.len() {
                        return self.server_closed(slot);
                    }
                    match server.state {
                        ServerState::Replaying { client } => self.replayed(slot, client),
                        ServerState::Resetting { step } => self.reset_done(slot, step),
                        _ => {}
                    }
                    return;
                }
                _ => {}
            }
        }
        if let Some(server) = self.servers.get_mut(slot as usize) {
            server.held = buf.get(pos..).unwrap_or_default().to_vec();
        }
    }

    /// What a server sends makes no sense: nobody may get a byte of it any more.
    pub(super) fn broken_server(&mut self, slot: u32) {
        tracing::error!("a server sent a reply that nobody asked for; its connection is closed");
        self.server_closed(slot);
    }
}
