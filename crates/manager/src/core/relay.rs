//! The hot path: bytes of a client to its server and back.
//!
//! Only the heads of messages are looked at, and the few bodies that say something about the session. A run of messages
//! leaves in one piece from the buffer that it was read into.

use super::Core;
use super::client::{Client, Discard, State};
use super::flow::Source;
use super::follow::{Leads, Place};
use super::io::{ConnId, Mail, Output};
use super::listening;
use super::replay::Replay;
use super::server::State as ServerState;
use super::statements::Edit;
use pgusher_pool::WorkerId;
use pgusher_session::ledger::Verdict;
use pgusher_wire::scan::{Head, Scanner};
use pgusher_wire::{Report, TxStatus, backend, frontend, sqlstate};

/// A client's ledger may have this many open entries before it is not read any further.
const MAX_LEDGER: usize = 4096;

/// Bytes of a body that are looked at, of a client's messages.
#[inline]
fn client_need(tag: u8) -> usize {
    match tag {
        // A text that is longer is not shared.
        frontend::PARSE => 12 * 1024,
        // Two names.
        frontend::BIND | frontend::DESCRIBE | frontend::CLOSE | frontend::EXECUTE => 2048,
        // A text that is longer is not read: what it has done is asked of the server.
        frontend::QUERY => 12 * 1024,
        // The number of a function.
        frontend::FUNCTION_CALL => 512,
        _ => 0,
    }
}

/// Bytes of a body that are looked at, of a server's messages.
#[inline]
pub(super) fn server_need(tag: u8) -> usize {
    match tag {
        backend::READY_FOR_QUERY => 1,
        backend::COMMAND_COMPLETE => 32,
        backend::PARAMETER_STATUS => 4 * 1024,
        // Up to the name of the function that found it.
        backend::ERROR_RESPONSE => 512,
        // The longest is a little shorter.
        backend::NOTIFICATION_RESPONSE => 8 * 1024 + 256,
        _ => 0,
    }
}

impl Core {
    /// Bytes have arrived from a client. `buf` begins with what [`client_held`](Self::client_held) gave.
    #[inline]
    pub fn client_bytes(&mut self, slot: u32, buf: &[u8]) {
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        if !client.held.is_empty() {
            client.forget_held();
        }
        match client.state {
            State::Idle | State::Seated { .. } => self.session_bytes(slot, buf, Source::Input),
            State::Replicating { server, ready: true } => self.stream_up(server, buf, Source::Input),
            _ => self.login_bytes(slot, buf),
        }
    }

    /// As [`client_bytes`](Self::client_bytes), for bytes that the core has kept.
    pub(super) fn client_copy(&mut self, slot: u32, buf: &[u8]) {
        match self.clients.get(slot as usize).map(|c| &c.state) {
            Some(State::Idle | State::Seated { .. }) => self.session_bytes(slot, buf, Source::Copy),
            Some(_) => self.login_bytes(slot, buf),
            None => {}
        }
    }

    pub(super) fn session_bytes(&mut self, slot: u32, buf: &[u8], source: Source) {
        let mut pos = 0;
        let mut run = 0;
        let mut composed = self.begin_composing();
        let mut given = 0;
        let mut leading = None;
        if self.follows.is_some() {
            match self.leads_with(slot, buf) {
                Leads::Held => return,
                Leads::With(batch) => leading = Some(batch),
                Leads::No => {}
            }
        }
        loop {
            let Some(client) = self.clients.get_mut(slot as usize) else {
                return;
            };
            let head = match client.scanner.next(buf, &mut pos, client_need) {
                Ok(Some(head)) => head,
                Ok(None) => break,
                Err(e) => return self.bad_client(slot, &e.to_string()),
            };
            if head.tag == frontend::FLUSH && head.body_len > 0 {
                // The server would answer with an error and skip to the next Sync, and nobody could tell whether, and when.
                return self.bad_client(slot, "invalid message format");
            }
            let mut waits = false;
            client.since = self.now;
            let server = match client.state {
                State::Seated { server } => match self.disagrees(slot, server, &head) {
                    None => server,
                    Some(Replay::Later) => {
                        waits = true;
                        server
                    }
                    Some(Replay::Ahead) => {
                        composed.get_or_insert(self.composed.len());
                        self.composed.extend_from_slice(buf.get(run..head.start).unwrap_or_default());
                        self.composed.append(&mut self.patch);
                        run = head.start;
                        server
                    }
                    Some(Replay::First) => {
                        if let Some(client) = self.clients.get_mut(slot as usize) {
                            client.scanner = Scanner::new();
                            client.pending.splice(0..0, buf.get(head.start..).unwrap_or_default().iter().copied());
                        }
                        return self.forward(ConnId::Server(server), source, buf, run..head.start, composed);
                    }
                },
                _ => {
                    // Whatever lies before this message belongs to COPY data that nobody wants any more.
                    run = head.start;
                    match head.tag {
                        frontend::TERMINATE => return self.drop_client(slot),
                        frontend::COPY_DATA | frontend::COPY_DONE | frontend::COPY_FAIL => {
                            // The server has ended COPY with an error already. It would ignore them, too.
                            run = pos;
                            continue;
                        }
                        _ => {}
                    }
                    let (tag, begin) = (head.tag, head.start);
                    let is_alone = matches!(tag, frontend::PARSE | frontend::DESCRIBE | frontend::CLOSE);
                    if is_alone && self.shares && client.discard == Discard::Nothing && !client.blocked {
                        if let Some(end) = self.answer_alone(slot, buf, begin, &mut given) {
                            (pos, run) = (end, end);
                            continue;
                        }
                    }
                    let Some(client) = self.clients.get_mut(slot as usize) else {
                        return;
                    };
                    if client.discard != Discard::Nothing {
                        run = pos;
                        self.discard(slot, tag);
                        continue;
                    }
                    if !is_request(tag) {
                        return self.bad_client(slot, &format!("invalid frontend message type {tag}"));
                    }
                    let batch =
                        if run == begin { self.quick_read(slot, buf.get(begin..).unwrap_or_default()) } else { None };
                    let place = match &batch {
                        Some(batch) => self.want_server_or_follow(slot, batch, buf.get(begin..).unwrap_or_default()),
                        None => self.want_server(slot, false).map(Place::Server),
                    };
                    leading = batch;
                    match place {
                        Some(Place::Followed) => return,
                        Some(Place::Server(server)) => {
                            if !self.patch.is_empty() {
                                composed.get_or_insert(self.composed.len());
                                self.composed.append(&mut self.patch);
                            }
                            server
                        }
                        None => {
                            // It waits. The message is looked at again when there is a server.
                            if let Some(client) = self.clients.get_mut(slot as usize) {
                                client.scanner = Scanner::new();
                                let rest = buf.get(begin..).unwrap_or_default();
                                client.pending.splice(0..0, rest.iter().copied());
                            }
                            return;
                        }
                    }
                }
            };
            if !waits && self.shares && self.puts_channels(slot, server, &head) {
                composed.get_or_insert(self.composed.len());
                self.composed.extend_from_slice(buf.get(run..head.start).unwrap_or_default());
                self.composed.append(&mut self.patch);
                run = head.start;
            }
            if !self.shares {
                self.watch_resets(slot, server, &head);
            }
            let edit = match head.tag {
                _ if waits => Edit::Wait,
                frontend::EXECUTE | frontend::FUNCTION_CALL
                    if self.shares && self.must_hear_call(slot, server, &head) =>
                {
                    Edit::Wait
                }
                frontend::QUERY if self.shares => self.query_seen(slot, server, &head),
                frontend::PARSE | frontend::BIND | frontend::DESCRIBE | frontend::CLOSE if self.shares => {
                    self.translate(slot, server, &head)
                }
                frontend::EXECUTE if self.shares => self.execute_seen(slot, server, &head),
                frontend::FUNCTION_CALL if self.shares => self.function_call_seen(slot, server, &head),
                frontend::TERMINATE => {
                    self.forward(ConnId::Server(server), source, buf, run..head.start, composed);
                    return self.drop_client(slot);
                }
                frontend::COPY_DATA => Edit::Keep,
                frontend::SYNC => {
                    if let Some(s) = self.servers.get_mut(server as usize) {
                        let unit = s.ledger.unit();
                        s.ledger.sent(head.tag);
                        s.shelf.synced();
                        // A Sync that COPY swallows ends nothing.
                        if s.ledger.unit() != unit {
                            s.sent_steps = 0;
                        }
                    }
                    Edit::Keep
                }
                tag if is_request(tag) || matches!(tag, frontend::COPY_DONE | frontend::COPY_FAIL) => {
                    if let Some(s) = self.servers.get_mut(server as usize) {
                        s.ledger.sent(tag);
                    }
                    Edit::Keep
                }
                tag => {
                    return self.bad_client(slot, &format!("invalid frontend message type {tag}"));
                }
            };
            if edit == Edit::Wait {
                if self.servers.get(server as usize).is_some_and(|s| s.ledger.reads_copy()) {
                    return self.misplaced_in_copy(slot, head.tag);
                }
                let begin = head.start;
                if let Some(client) = self.clients.get_mut(slot as usize) {
                    client.scanner = Scanner::new();
                    client.settling = true;
                    client.pending.splice(0..0, buf.get(begin..).unwrap_or_default().iter().copied());
                }
                self.out.push_back(Output::Pause(ConnId::Client(slot)));
                self.forward(ConnId::Server(server), source, buf, run..begin, composed);
                return self.sent(slot, server);
            }
            if let Edit::Replace(n) = edit {
                if n > 0 || !self.patch.is_empty() {
                    composed.get_or_insert(self.composed.len());
                    self.composed.extend_from_slice(buf.get(run..head.start).unwrap_or_default());
                    self.composed.append(&mut self.patch);
                    run = head.start + n;
                }
            }
        }
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        if let Some(tail) = buf.get(pos..).filter(|t| !t.is_empty()) {
            client.held = tail.to_vec();
        }
        let State::Seated { server } = client.state else {
            return;
        };
        self.forward(ConnId::Server(server), source, buf, run..pos, composed);
        self.sent(slot, server);
        if let Some(batch) = leading {
            self.lead(slot, server, &batch);
        }
    }

    /// A client's messages have been forwarded.
    #[inline]
    fn sent(&mut self, slot: u32, server: u32) {
        let Some(s) = self.servers.get_mut(server as usize) else {
            return;
        };
        if s.ledger.len() > MAX_LEDGER {
            if !s.ledger.owes_ready() {
                return self.never_answered(slot);
            }
            if let Some(client) = self.clients.get_mut(slot as usize) {
                client.ahead = true;
            }
            self.out.push_back(Output::Pause(ConnId::Client(slot)));
        } else if s.ledger.is_empty() {
            // Only what the server ignores was sent.
            self.part_if_done(slot);
        } else if s.scanner.at_boundary() {
            s.ledger.give_the_rest();
            if !s.ledger.events().is_empty() {
                let mut given = Vec::new();
                self.marks_settled(slot, server, &mut given);
                self.send(ConnId::Client(slot), given);
            }
        }
    }

    /// A message of a statement that was refused before the server saw it. The reply ends as the server's would: with
    /// ReadyForQuery for a Query, at the next Sync otherwise.
    fn discard(&mut self, slot: u32, tag: u8) {
        let Some(client) = self.clients.get_mut(slot as usize) else {
            return;
        };
        let ends = match tag {
            frontend::SYNC => true,
            frontend::QUERY | frontend::FUNCTION_CALL => client.discard == Discard::Next,
            _ => false,
        };
        if ends {
            client.discard = Discard::Nothing;
            let mut out = Vec::with_capacity(6);
            backend::write_ready_for_query(&mut out, TxStatus::Idle);
            self.send(ConnId::Client(slot), out);
            self.send_notes_at_rest(slot);
        } else if is_request(tag) && tag != frontend::FLUSH {
            client.discard = Discard::UntilSync;
        }
    }

    /// Nothing among what is owed makes the server send what it has got, and the client is not read: it would wait for ever.
    fn never_answered(&mut self, slot: u32) {
        self.bad_client(slot, "too many messages without a Sync");
    }

    /// A message has to wait for the replies to those before it, and the server reads COPY data: it would answer when the data
    /// ends, which the client can say behind this message only. The server would refuse it there, and end the connection.
    fn misplaced_in_copy(&mut self, slot: u32, tag: u8) {
        self.bad_client(slot, &format!("unexpected message type 0x{tag:02X} during COPY from stdin"));
    }

    fn bad_client(&mut self, slot: u32, what: &str) {
        self.refuse(slot, &Report::fatal(sqlstate::PROTOCOL_VIOLATION, what));
    }

    /// Bytes have arrived from a server. `buf` begins with what [`server_held`](Self::server_held) gave.
    #[inline]
    pub fn server_bytes(&mut self, slot: u32, buf: &[u8]) {
        let Some(server) = self.servers.get_mut(slot as usize) else {
            return;
        };
        if !server.held.is_empty() {
            server.held = Vec::new();
        }
        match server.state {
            ServerState::Seated { client } => self.relay(slot, client, buf),
            ServerState::Login(_) => self.server_login_bytes(slot, buf),
            ServerState::Idle | ServerState::Connecting => self.idle_server_bytes(slot, buf),
            ServerState::Listening => self.hub_bytes(slot, buf),
            ServerState::Replicating { client } => self.stream_down(client, buf, Source::Input),
            ServerState::Replaying { .. }
            | ServerState::Resetting { .. }
            | ServerState::Auditing { .. }
            | ServerState::Knowing(_)
            | ServerState::BeingCancelled => {
                self.own_replies(slot, buf);
            }
        }
    }

    fn relay(&mut self, slot: u32, mut client: u32, buf: &[u8]) {
        let mut pos = 0;
        let mut run = self.servers.get_mut(slot as usize).map_or(0, |s| s.swallowed_rest(buf.len()));
        let mut composed = self.begin_composing();
        loop {
            let Some(server) = self.servers.get_mut(slot as usize) else {
                return;
            };
            let head = match server.scanner.next(buf, &mut pos, server_need) {
                Ok(Some(head)) => head,
                Ok(None) => break,
                Err(_) => return self.broken_server(slot),
            };
            let mut status = TxStatus::Idle;
            if head.tag == backend::READY_FOR_QUERY {
                match head.body.first().and_then(|b| TxStatus::from_byte(*b)) {
                    Some(s) => status = s,
                    None => return self.broken_server(slot),
                }
            }
            if matches!(head.tag, backend::PARAMETER_DESCRIPTION | backend::ROW_DESCRIPTION | backend::NO_DATA) {
                server.sketch(&head);
            }
            if server.attempts.is_under_way() {
                server.attempted(&head);
            }
            let verdict = match server.ledger.received(head.tag, status) {
                Ok(verdict) => verdict,
                Err(_) => return self.broken_server(slot),
            };
            let Some(verdict) = self.weigh(client, slot, &head, status, verdict) else {
                return;
            };
            if verdict != Verdict::Pass {
                let mut given = std::mem::take(&mut self.patch);
                self.marks_settled(client, slot, &mut given);
                if !given.is_empty() || verdict == Verdict::Swallow {
                    composed.get_or_insert(self.composed.len());
                    self.composed.extend_from_slice(buf.get(run..head.start).unwrap_or_default());
                    self.composed.append(&mut given);
                    run = head.start;
                    if verdict == Verdict::Swallow {
                        run = pos;
                        if let Some(server) = self.servers.get_mut(slot as usize) {
                            server.swallowing = !server.scanner.at_boundary();
                        }
                    }
                }
                self.patch = given;
            }
            if head.tag == backend::READY_FOR_QUERY
                && (status, verdict != Verdict::Swallow) == (TxStatus::Idle, true)
                && self.clients.get(client as usize).is_some_and(Client::has_ears)
            {
                self.forward(ConnId::Client(client), Source::Input, buf, run..head.start, composed.take());
                run = head.start;
                self.hold_back(client, slot);
            }
            if head.tag == backend::READY_FOR_QUERY && self.follows.is_some() && self.lap(slot) {
                self.forward(ConnId::Client(client), Source::Input, buf, run..pos, composed.take());
                run = pos;
                let Some(next) = self.hand_over(slot, client) else {
                    return self.own_replies(slot, buf.get(pos..).unwrap_or_default());
                };
                client = next;
            }
        }
        let Some(server) = self.servers.get_mut(slot as usize) else {
            return;
        };
        if let Some(tail) = buf.get(pos..).filter(|t| !t.is_empty()) {
            server.held = tail.to_vec();
        }
        let short = server.ledger.len() < MAX_LEDGER / 2;
        if server.scanner.at_boundary() {
            server.ledger.give_the_rest();
            if !server.ledger.events().is_empty() {
                composed.get_or_insert(self.composed.len());
                self.composed.extend_from_slice(buf.get(run..pos).unwrap_or_default());
                run = pos;
                let mut composed = std::mem::take(&mut self.composed);
                self.marks_settled(client, slot, &mut composed);
                self.composed = composed;
            }
        }
        self.forward(ConnId::Client(client), Source::Input, buf, run..pos, composed);
        if let Some(c) = self.clients.get_mut(client as usize).filter(|c| c.ahead) {
            if short {
                c.ahead = false;
                if !c.settling {
                    self.out.push_back(Output::Resume(ConnId::Client(client)));
                }
            } else if self.servers.get(slot as usize).is_some_and(|s| !s.ledger.owes_ready()) {
                return self.never_answered(client);
            }
        }
        if self.clients.get(client as usize).is_some_and(|c| c.settling) {
            self.settled(slot, client);
        }
        self.part_if_done(client);
    }

    /// What a reply means for the session, and whether the client gets it. `None`: the client is gone.
    #[inline]
    fn weigh(
        &mut self,
        client: u32,
        slot: u32,
        head: &Head<'_>,
        status: TxStatus,
        verdict: Verdict,
    ) -> Option<Verdict> {
        match head.tag {
            backend::NOTIFICATION_RESPONSE
                if listening::comes_from_elsewhere(self.clients.get(client as usize), head.body) =>
            {
                return Some(Verdict::Swallow);
            }
            backend::READY_FOR_QUERY if verdict == Verdict::Swallow => {
                return self.own_done(client, slot).then_some(verdict);
            }
            backend::PARAMETER_STATUS if !self.shares => {
                let told = self.is_told_in_session(client, head.body, verdict == Verdict::Swallow);
                return Some(if told { Verdict::Pass } else { Verdict::Swallow });
            }
            _ if verdict == Verdict::Swallow => {}
            backend::COMMAND_COMPLETE | backend::EMPTY_QUERY | backend::PORTAL_SUSPENDED => {
                self.completed(client, slot, head.tag, head.body);
            }
            backend::ERROR_RESPONSE => {
                self.statement_failed(client, slot);
                self.error_seen(slot, head.body);
                if self.gives_instead(client, slot, head.body) {
                    return Some(Verdict::Swallow);
                }
            }
            backend::PARAMETER_STATUS if self.shares => {
                let told = self.is_told(client, slot, head.body);
                return Some(if told { verdict } else { Verdict::Swallow });
            }
            backend::READY_FOR_QUERY => return self.ready(client, slot, status, verdict),
            _ => {}
        }
        Some(verdict)
    }

    /// The server is ready for the next query of its client.
    #[inline]
    fn ready(&mut self, client: u32, slot: u32, status: TxStatus, verdict: Verdict) -> Option<Verdict> {
        let Some(server) = self.servers.get_mut(slot as usize) else {
            return Some(verdict);
        };
        server.done_steps = 0;
        server.attempts.ready(status);
        let flying = !server.flights.is_empty();
        if status == TxStatus::Idle && server.has_changed() {
            self.changes_are_seen(slot);
        }
        if flying || self.clients.get(client as usize).is_some_and(|c| c.more.is_some()) {
            self.unit_over(client, slot, status);
            if !self.own_done(client, slot) {
                return None;
            }
            if self.restores(client, slot) {
                return Some(Verdict::Swallow);
            }
        }
        Some(verdict)
    }

    /// A message that waited for replies is looked at again.
    pub(super) fn settled(&mut self, slot: u32, client: u32) {
        if self.clients.get(client as usize).is_none_or(|c| !c.settling || c.waits_to_hear() || c.is_held_back()) {
            return;
        }
        let Some(ledger) = self.servers.get(slot as usize).map(|s| &s.ledger) else { return };
        if ledger.owes_ready() {
            if ledger.reads_copy() {
                let tag = self.clients.get(client as usize).and_then(|c| c.pending.first());
                self.misplaced_in_copy(client, tag.copied().unwrap_or_default());
            }
            return;
        }
        if let Some(c) = self.clients.get_mut(client as usize) {
            c.settling = false;
            self.resume_client(client);
        }
    }

    /// A transaction is over: what it has changed counts for others now.
    pub(super) fn changes_are_seen(&mut self, slot: u32) {
        let Some(server) = self.servers.get_mut(slot as usize) else {
            return;
        };
        if server.stirred {
            server.shelf.stir();
        }
        if server.ledger.is_quiet() {
            // Otherwise it may be a statement behind this transaction that does so.
            server.stirred = false;
            server.defining = false;
        }
        if std::mem::take(&mut server.changed_catalog) {
            server.pool.catalog_changed();
        }
        server.unread = false;
        if std::mem::take(&mut server.changed_definitions) {
            server.pool.definition_changed();
        }
        if std::mem::take(&mut server.changed_defaults) {
            self.shared.defaults_changed();
            for worker in 0..self.shared.config.workers {
                self.out.push_back(Output::Mail(WorkerId(worker as u8), Mail::Moved));
            }
        }
    }

    /// A command tag says what has happened to the prepared statements, and to the catalogs.
    #[inline]
    pub(super) fn command_complete(&mut self, client: u32, slot: u32, tag: &[u8]) {
        match tag {
            [b'S', b'E', b'L', b'E', ..] | [b'I', b'N', b'S', ..] | [b'U', b'P', ..] | [b'D', b'E', b'L', ..] => {}
            [b'B', b'E', b'G', ..] | [b'C', b'O', ..] => {}
            tag if tag.starts_with(b"DEALLOCATE ALL\0") || tag.starts_with(b"DISCARD ALL\0") => {
                let Some(s) = self.servers.get_mut(slot as usize) else {
                    return;
                };
                s.shelf.clear();
                if s.discards_booked > 0 {
                    // They are forgotten already.
                    s.discards_booked -= 1;
                    return;
                }
                if let Some(own) = self.clients.get_mut(client as usize).and_then(|c| c.own.as_mut()) {
                    own.forget_names();
                }
            }
            tag if tag.starts_with(b"CREATE ") || tag.starts_with(b"ALTER ") || tag.starts_with(b"DROP ") => {
                if let Some(s) = self.servers.get_mut(slot as usize) {
                    s.changed_catalog = true;
                    s.changed_definitions |= s.unread && !tag.starts_with(b"DROP ");
                    s.pool.catalog_changed();
                }
            }
            _ => {}
        }
    }

    /// An error may say that what is known of the server's statements is wrong.
    fn error_seen(&mut self, slot: u32, body: &[u8]) {
        let fields = pgusher_wire::ErrorFields::new(body);
        if fields.text(b'V').is_some_and(|severity| severity == "FATAL" || severity == "PANIC") {
            if let Some(s) = self.servers.get_mut(slot as usize) {
                s.farewell = true;
            }
        }
        self.sequence_undefined(slot, &fields);
        let ours = match fields.sqlstate() {
            // "cached plan must not change result type"
            Some("0A000") => fields.text(b'R').is_some_and(|routine| routine == "RevalidateCachedQuery"),
            // Something else has removed a statement.
            Some("26000") => fields.message().contains("\"pgusher_"),
            _ => false,
        };
        if ours {
            if let Some(s) = self.servers.get(slot as usize) {
                s.pool.catalog_changed();
            }
        }
    }
}

/// Is this a message that a server answers, in a session?
#[inline]
fn is_request(tag: u8) -> bool {
    matches!(
        tag,
        frontend::QUERY
            | frontend::PARSE
            | frontend::BIND
            | frontend::DESCRIBE
            | frontend::EXECUTE
            | frontend::CLOSE
            | frontend::SYNC
            | frontend::FLUSH
            | frontend::FUNCTION_CALL
    )
}
