//! Replies to statements of the manager's own: settings that are put on a server, and its cleaning. The client sees none of
//! them: it knows the values that its own settings have.

use super::Core;
use super::audit::unasked;
use super::io::ConnId;
use super::listening;
use super::relay::server_need;
use super::server::State as ServerState;
use pgusher_wire::{Frame, Report, TxStatus, backend, sqlstate};

impl Core {
    /// Replies to statements of our own: they are consumed.
    pub(super) fn own_replies(&mut self, slot: u32, buf: &[u8]) {
        if self.servers.get(slot as usize).is_some_and(|s| matches!(s.state, ServerState::Auditing { .. })) {
            return self.audit_bytes(slot, buf);
        }
        if self.servers.get(slot as usize).is_some_and(|s| matches!(s.state, ServerState::Knowing(_))) {
            return self.knowing_bytes(slot, buf);
        }
        let mut pos = 0;
        loop {
            let Some(server) = self.servers.get_mut(slot as usize) else {
                return;
            };
            let need = |tag| match tag {
                backend::ERROR_RESPONSE | backend::DATA_ROW => 8 * 1024,
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
                backend::DATA_ROW if head.is_complete() => server.row = Some(head.body.to_vec()),
                backend::READY_FOR_QUERY if server.ledger.is_quiet() => {
                    return self.own_complete(slot, buf.get(pos..).unwrap_or_default());
                }
                _ => {}
            }
        }
        if let Some(server) = self.servers.get_mut(slot as usize) {
            server.held = buf.get(pos..).unwrap_or_default().to_vec();
        }
    }

    /// The last ReadyForQuery to statements of our own. `rest` came together with it; nothing was asked for behind it, so it is what a
    /// server says of its own accord.
    fn own_complete(&mut self, slot: u32, rest: &[u8]) {
        let Some(server) = self.servers.get_mut(slot as usize) else {
            return;
        };
        let replaying = match server.state {
            ServerState::Replaying { client } => Some(client),
            _ => None,
        };
        match (replaying, unasked(rest)) {
            (Some(client), Some((late, held))) => {
                // A client that has not come in yet does not see it, nor does one that is about to leave it.
                let stays = self.clients.get(client as usize).is_some_and(|c| c.login.is_none() && !c.cancelled);
                if !stays && !held.is_empty() {
                    return self.server_closed(slot);
                }
                server.held = held.to_vec();
                if stays {
                    self.say(client, late);
                }
                self.replayed(slot, client);
            }
            (None, _) if rest.is_empty() => {
                if let ServerState::Resetting { step } = server.state {
                    self.reset_done(slot, step);
                }
            }
            // A notice that comes with it is nobody's.
            _ => self.server_closed(slot),
        }
    }

    /// Gives a client what its server has said of its own accord, but for settings, whose values it knows.
    fn say(&mut self, client: u32, mut messages: &[u8]) {
        while let Ok(Some((frame, used))) = Frame::parse(messages) {
            let (message, rest) = messages.split_at(used.min(messages.len()));
            let heard = match frame.tag {
                backend::NOTIFICATION_RESPONSE => {
                    !listening::comes_from_elsewhere(self.clients.get(client as usize), frame.body)
                }
                tag => tag == backend::NOTICE_RESPONSE,
            };
            if heard {
                self.send(ConnId::Client(client), message.to_vec());
            }
            messages = rest;
        }
    }

    /// Messages of our own in front of a client's are done. `false`: they have failed, and the client is gone.
    pub(super) fn own_done(&mut self, client: u32, slot: u32) -> bool {
        let Some(server) = self.servers.get_mut(slot as usize) else {
            return false;
        };
        if server.ledger.take_own_failed() {
            // What it has is not known: it is cleaned, or closed.
            server.tainted = true;
            let report = Report::fatal(
                sqlstate::CONNECTION_FAILURE,
                "the settings of this session could not be put on a physical connection",
            )
            .detail("What became of the statement behind them is not known.")
            .hint("Connect again. The server's log has the error.");
            self.refuse(client, &report);
            return false;
        }
        if std::mem::take(&mut server.cancel_due) {
            self.cancel_server(slot);
        }
        true
    }

    /// What a server sends makes no sense: nobody may get a byte of it any more.
    pub(super) fn broken_server(&mut self, slot: u32) {
        tracing::error!("a server sent a reply that nobody asked for; its connection is closed");
        self.server_closed(slot);
    }
}
