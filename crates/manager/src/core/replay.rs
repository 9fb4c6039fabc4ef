//! Settings get to servers: what a session has set is put on the physical connection that lacks it, in front of the client's
//! message or before it; and a client that logs in learns what the server makes of the settings that it begins with.

use super::Core;
use super::audit::TIMEOUT;
use super::client::State;
use super::io::ConnId;
use super::server::{Server, State as ServerState};
use crate::shared::Welcome;
use pgusher_session::settings::Interned;
use pgusher_sql::{Scanner as Tokens, TokenKind};
use pgusher_wire::backend::Message;
use pgusher_wire::scan::Head;
use pgusher_wire::{Report, TxStatus, backend, frontend, sqlstate};
use std::sync::Arc;

/// Settings are put on a server so often again if a limit in time has met it.
const MAX_TRIES: u8 = 3;

/// How settings get to a server that lacks them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replay {
    /// In front of the client's message, without waiting.
    Ahead,
    /// Before the client's message is sent.
    First,
    /// As soon as what the server owes has come. The client's message waits.
    Later,
}

impl Core {
    /// A client that logs in learns what the server says of itself, and of the settings that it wants to begin with.
    pub(super) fn seat_for_login(&mut self, server: u32, client: u32) {
        let (Some(s), Some(c)) = (self.servers.get_mut(server as usize), self.clients.get_mut(client as usize)) else {
            return;
        };
        let (Some(settings), Some(welcome)) = (&c.settings, s.welcome.clone()) else { return };
        let known = if settings.is_empty() { Some(welcome.clone()) } else { s.pool.greeting(settings) };
        if let Some(welcome) = known {
            self.release_server(server);
            return self.welcome(client, &welcome);
        }
        let mut sql = settings.replay(&s.settings);
        let mut separator = if sql.is_empty() { "SELECT " } else { ";SELECT " };
        for (name, _) in &welcome.parameters {
            // The server's own names, which need no quotes within.
            sql.push_str(separator);
            sql.push_str("pg_catalog.current_setting('");
            sql.push_str(&String::from_utf8_lossy(name).replace('\'', ""));
            sql.push_str("')");
            separator = ",";
        }
        leave_names(s, settings);
        c.state = State::Seated { server };
        s.state = ServerState::Replaying { client };
        s.error = None;
        s.row = None;
        s.shelf.set_unnamed(None);
        s.ledger.sent(frontend::QUERY);
        let mut out = Vec::with_capacity(sql.len() + 6);
        frontend::write_query(&mut out, sql.as_bytes());
        self.send(ConnId::Server(server), out);
    }

    /// The server has said what becomes of the settings that a client wants to begin with.
    pub(super) fn checked_for_login(&mut self, server: u32, client: u32) {
        let (Some(s), Some(c)) = (self.servers.get_mut(server as usize), self.clients.get_mut(client as usize)) else {
            return;
        };
        c.state = State::Idle;
        let (Some(settings), Some(welcome)) = (c.settings.clone(), s.welcome.clone()) else { return };
        if let Some(error) = s.error.take() {
            let fields = pgusher_wire::ErrorFields::new(&error);
            let report = Report::fatal_of(&fields, sqlstate::INTERNAL_ERROR);
            // They were set in one transaction, which is undone.
            self.release_server(server);
            return self.refuse(client, &report);
        }
        s.settings = settings.clone();
        let mut values = Vec::new();
        if let Some(row) = s.row.take() {
            if let Ok(Message::DataRow(row)) =
                Message::parse(pgusher_wire::Frame { tag: backend::DATA_ROW, body: &row })
            {
                values.extend(row.columns().map(|column| column.map(<[u8]>::to_vec)));
            }
        }
        let names = welcome.parameters.iter();
        let parameters = names.zip(values).map(|((name, old), new)| (name.clone(), new.unwrap_or_else(|| old.clone())));
        let parameters: Vec<_> = parameters.collect();
        if parameters.len() != welcome.parameters.len() {
            return self.broken_server(server);
        }
        let greeting = Arc::new(Welcome { parameters });
        s.pool.greeted(&settings, greeting.clone());
        self.release_server(server);
        self.welcome(client, &greeting);
    }

    /// The client is about to send something. Does its server lack a setting that the session began with? Then it is put
    /// there: what has to be sent in front is in `patch`, or it is sent already and the client has to wait.
    #[inline]
    pub(super) fn disagrees(&mut self, client: u32, server: u32, head: &Head<'_>) -> Option<Replay> {
        if !self.shares {
            return self.puts_back_ahead(client, server, head);
        }
        let settings = self.clients.get(client as usize)?.settings.as_ref()?;
        let s = self.servers.get_mut(server as usize)?;
        if s.settings.same(settings) || s.ledger.status() == TxStatus::Failed {
            return None;
        }
        if is_put_off(s, settings) {
            if is_choice(head) {
                return None;
            }
            if s.ledger.owes_ready() && !s.ledger.reads_copy() && can_wait(head.tag) {
                return Some(Replay::Later);
            }
        }
        if !s.ledger.is_quiet() {
            return None;
        }
        if settings.replays_surely(&s.settings) {
            replay_ahead(s, settings, false, &mut self.patch);
            return Some(Replay::Ahead);
        }
        let mut out = Vec::new();
        replay_first(s, client, settings, &mut out);
        self.pause(client);
        self.send(ConnId::Server(server), out);
        Some(Replay::First)
    }

    /// The settings are on the server, or could not be put there.
    pub(super) fn replayed(&mut self, server: u32, client: u32) {
        if self.tries_again(server, client) {
            return;
        }
        if self.clients.get(client as usize).is_some_and(|c| c.login.is_some()) {
            return self.checked_for_login(server, client);
        }
        let (Some(s), Some(c)) = (self.servers.get_mut(server as usize), self.clients.get_mut(client as usize)) else {
            return;
        };
        if let Some(error) = s.error.take() {
            let fields = pgusher_wire::ErrorFields::new(&error);
            let state = fields.sqlstate().unwrap_or(sqlstate::INTERNAL_ERROR);
            let mut report = Report::fatal(state.to_owned(), fields.message());
            report.detail = Some("This is what the server says of a setting of this session.".into());
            c.state = State::Idle;
            self.refuse(client, &report);
            // Which of the settings it has is not known.
            self.close_server(server);
            return;
        }
        if let Some(settings) = &c.settings {
            s.settings = settings.clone();
        }
        s.state = ServerState::Seated { client };
        if std::mem::take(&mut c.cancelled) && !c.keeps_server() && c.doubts.is_empty() && s.ledger.is_clean() {
            self.release_server(server);
            return self.refuse_statement(client);
        }
        self.resume_client(client);
    }

    /// Settings are put on a server in one transaction, under the limits in time that the session before has left there. If such a limit
    /// has ended it, it is lifted first, and then they are put there again: nothing of the client's has been sent yet.
    pub(super) fn tries_again(&mut self, server: u32, client: u32) -> bool {
        let (Some(s), Some(c)) = (self.servers.get_mut(server as usize), self.clients.get_mut(client as usize)) else {
            return false;
        };
        let ended = s
            .error
            .as_deref()
            .is_some_and(|error| pgusher_wire::ErrorFields::new(error).sqlstate() == Some(sqlstate::QUERY_CANCELED));
        if ended && s.tries < MAX_TRIES {
            s.tries += 1;
            s.easing = true;
            s.error = None;
            s.ledger.sent(frontend::QUERY);
            let mut out = Vec::new();
            frontend::write_query(&mut out, b"SET statement_timeout=0");
            self.send(ConnId::Server(server), out);
            return true;
        }
        if !std::mem::take(&mut s.easing) {
            s.tries = 0;
            return false;
        }
        if s.error.is_some() {
            s.tries = 0;
            return false;
        }
        if let Ok(eased) = s.settings.with(TIMEOUT, "0") {
            s.settings = self.shared.interner.intern(eased);
        }
        if c.login.is_some() {
            self.seat_for_login(server, client);
        } else if let Some(settings) = &c.settings {
            let mut out = Vec::new();
            replay_first(s, client, settings, &mut out);
            self.send(ConnId::Server(server), out);
        }
        true
    }
}

/// What would begin the open transaction's first snapshot is not sent before the client's own message does so.
pub(super) fn is_put_off(s: &Server, settings: &Interned) -> bool {
    s.ledger.status() == TxStatus::Transaction && settings.replays_by_query(&s.settings)
}

/// Is this a message that chooses what a transaction has to choose before its first snapshot, or shows that, and does nothing else?
/// In doubt, no.
pub(super) fn is_choice(head: &Head<'_>) -> bool {
    let text = match head.tag {
        frontend::QUERY if head.is_complete() => head.body.split(|b| *b == 0).next(),
        frontend::PARSE if head.is_complete() => head.body.split(|b| *b == 0).nth(1),
        _ => None,
    };
    let Some(text) = text else { return false };
    let mut tokens = Tokens::new(text, true);
    let mut next = || tokens.next().and_then(|token| text.get(token.start..token.end)).unwrap_or_default();
    let (verb, what) = (next(), next());
    let sets = verb.eq_ignore_ascii_case(b"set") && what.eq_ignore_ascii_case(b"transaction");
    let shown = what.split_at_checked(b"transaction_".len()).map(|(begin, _)| begin);
    let shows = verb.eq_ignore_ascii_case(b"show") && shown.is_some_and(|w| w.eq_ignore_ascii_case(b"transaction_"));
    // Nothing stands behind its end.
    (sets || shows) && tokens.skip_while(|token| token.kind != TokenKind::Mark(b';')).nth(1).is_none()
}

/// May a message of this kind wait for the replies to those before it?
fn can_wait(tag: u8) -> bool {
    matches!(
        tag,
        frontend::QUERY
            | frontend::PARSE
            | frontend::BIND
            | frontend::DESCRIBE
            | frontend::EXECUTE
            | frontend::FUNCTION_CALL
    )
}

/// Writes what makes a server agree, to be sent in front of a client's message, or at the `ends` of its unit: see
/// [`Ledger::own`](pgusher_session::Ledger::own).
pub(super) fn replay_ahead(s: &mut Server, settings: &Interned, ends: bool, out: &mut Vec<u8>) {
    let mut sql = settings.replay(&s.settings);
    if !ends && s.ledger.status() == TxStatus::Idle {
        // If one of them fails, the transaction stays open and refuses what follows, instead of running it with other settings.
        sql = format!("BEGIN;{sql}COMMIT");
    }
    leave_names(s, settings);
    s.settings = settings.clone();
    s.shelf.set_unnamed(None);
    s.ledger.own(ends);
    frontend::write_query(out, sql.as_bytes());
}

/// The same, for what the server may refuse.
pub(super) fn replay_first(s: &mut Server, client: u32, settings: &Interned, out: &mut Vec<u8>) {
    let sql = settings.replay(&s.settings);
    leave_names(s, settings);
    s.state = ServerState::Replaying { client };
    s.error = None;
    s.shelf.set_unnamed(None);
    s.ledger.sent(frontend::QUERY);
    frontend::write_query(out, sql.as_bytes());
}

fn leave_names(s: &mut Server, settings: &Interned) {
    for (name, _) in settings.iter() {
        s.leaves(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_transaction_may_choose() {
        let is_choice = |tag, text: &str| {
            let body = [text.as_bytes(), b"\0"].concat();
            super::is_choice(&Head { tag, start: 0, body_len: body.len(), body: &body })
        };
        for text in
            ["set transaction read only", "SHOW transaction_isolation", "/* a */ SET\nTransaction deferrable ; -- b"]
        {
            assert!(is_choice(frontend::QUERY, text), "{text}");
            assert!(is_choice(frontend::PARSE, &format!("name\0{text}\0\0")), "{text}");
            assert!(!is_choice(frontend::BIND, text), "{text}");
            assert!(!is_choice(frontend::QUERY, &format!("{text};\nselect 1")), "{text}");
        }
        for text in [
            "",
            ";",
            "set",
            "set transaction_isolation = 'serializable'",
            "show search_path",
            "select 1",
            "set local a = 1",
        ] {
            assert!(!is_choice(frontend::QUERY, text), "{text}");
        }
    }
}
