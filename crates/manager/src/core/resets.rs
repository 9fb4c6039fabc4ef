//! Session mode: RESET goes back to what the session began with, as on a connection of its own.
//!
//! A client's startup settings were put on a connection that was opened without them, so the server's RESET goes to its own
//! defaults. Texts that may hold a RESET are read when they are sent; when the server has completed it, the client's settings of those names
//! are put back, at the end of the unit and before the client is told that it is over. Everything else passes unread.
//!
//! What a function resets is not noticed, nor a text that is too long to be read.

use super::Core;
use super::client::Client;
use super::effects;
use super::io::ConnId;
use super::replay::{Replay, is_choice};
use super::server::Server;
use pgusher_session::Settings;
use pgusher_session::plan::{Action, Plan, Read};
use pgusher_wire::scan::Head;
use pgusher_wire::{TxStatus, frontend};
use std::collections::HashMap;
use std::sync::Arc;

/// Statements and portals that are followed, at most, of each.
const MAX_NAMES: usize = 256;
const ROLE: &str = "role";
const AUTHORIZATION: &str = "session_authorization";

/// What a session in session mode has reset.
#[derive(Debug, Default)]
pub(super) struct Resets {
    statements: HashMap<Box<[u8]>, Arc<Plan>>,
    portals: HashMap<Box<[u8]>, Arc<Plan>>,
    /// Names that a transaction under way has reset.
    due: Vec<Box<str>>,
    /// The same, of transactions that are over.
    owed: Vec<Box<str>>,
}

impl Resets {
    fn add(&mut self, name: &str) {
        if !self.due.iter().any(|due| due.eq_ignore_ascii_case(name)) {
            self.due.push(name.into());
        }
    }

    fn remove(&mut self, name: &str) {
        self.due.retain(|due| !due.eq_ignore_ascii_case(name));
        self.owed.retain(|owed| !owed.eq_ignore_ascii_case(name));
    }
}

impl Client {
    fn resets(&mut self) -> Option<&mut Resets> {
        self.more.as_mut()?.resets.as_deref_mut()
    }

    /// Has it reset something that is still to be put back?
    #[inline]
    pub(super) fn owes_resets(&self) -> bool {
        let resets = self.more.as_ref().and_then(|more| more.resets.as_ref());
        resets.is_some_and(|resets| !(resets.due.is_empty() && resets.owed.is_empty()))
    }
}

/// Does a text look like one with a RESET in it? Such a command stands at the beginning of a statement.
fn may_reset(text: &[u8]) -> bool {
    let text = text.trim_ascii_start();
    let begins =
        |word: &[u8]| text.split_at_checked(word.len()).is_some_and(|(first, _)| first.eq_ignore_ascii_case(word));
    let alone = memchr::memchr(b';', text.trim_ascii_end().strip_suffix(b";").unwrap_or(text)).is_none();
    !alone || [&b"reset"[..], b"set", b"discard", b"--", b"/*"].into_iter().any(begins)
}

fn resets(plan: &Plan) -> bool {
    let is_reset = |action: &Action| matches!(action, Action::Reset(_) | Action::ResetAll | Action::DiscardAll);
    plan.steps.iter().flatten().any(is_reset)
}

/// An action of a statement that has completed.
pub(super) fn act(client: &mut Client, action: &Action) {
    let Some(began) = client.began.clone() else { return };
    let Some(resets) = client.resets() else { return };
    match action {
        Action::Set { name, .. } => {
            resets.remove(name);
            if name.eq_ignore_ascii_case(AUTHORIZATION) {
                resets.remove(ROLE);
            }
        }
        Action::Reset(name) => {
            resets.add(name);
            if name.eq_ignore_ascii_case(AUTHORIZATION) {
                resets.add(ROLE);
            }
        }
        Action::ResetAll => {
            began.iter().map(|(name, _)| name).filter(|n| *n != ROLE && *n != AUTHORIZATION).for_each(|n| resets.add(n))
        }
        Action::DiscardAll => {
            began.iter().for_each(|(name, _)| resets.add(name));
            resets.statements.clear();
        }
        Action::RollbackTo(_) => resets.due.clear(),
        _ => {}
    }
}

/// A transaction has ended, or a statement has failed: what was reset stays so, or is undone.
pub(super) fn end(client: &mut Client, done: bool) {
    let Some(resets) = client.resets() else { return };
    let due = std::mem::take(&mut resets.due);
    if done {
        resets.owed.extend(due);
    }
}

impl Core {
    /// A message is about to be sent in session mode. Does it reset something?
    #[inline]
    pub(super) fn watch_resets(&mut self, client: u32, server: u32, head: &Head<'_>) {
        let (Some(c), Some(s)) = (self.clients.get_mut(client as usize), self.servers.get_mut(server as usize)) else {
            return;
        };
        if c.began.as_ref().is_none_or(|began| began.is_empty()) || s.ledger.is_discarding() {
            return;
        }
        match head.tag {
            frontend::QUERY => {
                s.sent_steps = 0;
                let text = head.body.strip_suffix(b"\0").filter(|_| head.is_complete());
                let plan = self.plan_of_reset(client, server, text);
                if let Some(plan) = plan {
                    self.fly_reset(client, server, plan);
                }
            }
            frontend::PARSE => {
                let (name, rest) = cut(head.body);
                let name: Box<[u8]> = name.into();
                let plan = self.plan_of_reset(client, server, Some(cut(rest).0).filter(|_| head.is_complete()));
                let Some(c) = self.clients.get_mut(client as usize) else { return };
                match plan {
                    Some(plan) => keep(&mut resets_of(c).statements, name, Some(plan)),
                    None => drop(c.resets().and_then(|resets| resets.statements.remove(&name))),
                }
            }
            frontend::BIND => {
                let Some(resets) = c.resets() else { return };
                let (portal, rest) = cut(head.body);
                let plan = resets.statements.get(cut(rest).0).cloned();
                keep(&mut resets.portals, portal.into(), plan);
            }
            frontend::EXECUTE => {
                let plan = c.resets().and_then(|resets| resets.portals.get(cut(head.body).0).cloned());
                if let Some(plan) = plan {
                    self.fly_reset(client, server, plan);
                }
                if let Some(s) = self.servers.get_mut(server as usize) {
                    s.sent_steps += 1;
                }
            }
            _ => {}
        }
    }

    fn plan_of_reset(&mut self, client: u32, server: u32, text: Option<&[u8]>) -> Option<Arc<Plan>> {
        let text = text.filter(|text| may_reset(text))?;
        let (c, s) = (self.clients.get(client as usize)?, self.servers.get(server as usize)?);
        match effects::read(&mut self.library, c, s, text) {
            // Of the rest nothing matters in session mode.
            Read::Plan(plan) if resets(&plan) => Some(Arc::new(Plan { steps: plan.steps.clone(), ..Plan::default() })),
            _ => None,
        }
    }

    fn fly_reset(&mut self, client: u32, server: u32, plan: Arc<Plan>) {
        let (Some(c), Some(s)) = (self.clients.get_mut(client as usize), self.servers.get_mut(server as usize)) else {
            return;
        };
        resets_of(c);
        effects::fly(s, plan);
    }

    /// A unit has ended. Is its ReadyForQuery to be kept until the server has what was reset?
    pub(super) fn puts_back(&mut self, client: u32, slot: u32) -> bool {
        let (Some(c), Some(s)) = (self.clients.get_mut(client as usize), self.servers.get_mut(slot as usize)) else {
            return false;
        };
        match s.ledger.status() {
            TxStatus::Idle => end(c, true),
            TxStatus::Failed => end(c, false),
            TxStatus::Transaction => {}
        }
        let Some(sql) = put_back(c, s, None) else { return false };
        s.ledger.own(true);
        let mut out = Vec::with_capacity(sql.len() + 6);
        frontend::write_query(&mut out, sql.as_bytes());
        self.send(ConnId::Server(slot), out);
        true
    }

    /// The client is about to send something. What it has reset and the server has not got yet goes in front of it, in `patch`.
    pub(super) fn puts_back_ahead(&mut self, client: u32, server: u32, head: &Head<'_>) -> Option<Replay> {
        let (Some(c), Some(s)) = (self.clients.get_mut(client as usize), self.servers.get_mut(server as usize)) else {
            return None;
        };
        if !c.owes_resets() {
            return None;
        }
        let sql = put_back(c, s, Some(head))?;
        s.ledger.own(false);
        frontend::write_query(&mut self.patch, sql.as_bytes());
        Some(Replay::Ahead)
    }

    /// The server reports a setting in session mode. Is the client to be told? `ours`: it is the reply to a message of our own.
    pub(super) fn is_told_in_session(&mut self, client: u32, body: &[u8], ours: bool) -> bool {
        let Some(resets) = self.clients.get_mut(client as usize).and_then(Client::resets) else { return !ours };
        let (name, _) = cut(body);
        let mut open = resets.due.iter().chain(&resets.owed);
        // The server's default is not for it: its own value follows.
        ours || !open.any(|due| due.as_bytes().eq_ignore_ascii_case(name))
    }
}

/// A string, and what is behind its zero byte.
fn cut(body: &[u8]) -> (&[u8], &[u8]) {
    let end = memchr::memchr(0, body).unwrap_or(body.len());
    (body.get(..end).unwrap_or_default(), body.get(end + 1..).unwrap_or_default())
}

fn resets_of(client: &mut Client) -> &mut Resets {
    client.more().resets.get_or_insert_default()
}

fn keep(plans: &mut HashMap<Box<[u8]>, Arc<Plan>>, name: Box<[u8]>, plan: Option<Arc<Plan>>) {
    match plan {
        Some(plan) if plans.len() < MAX_NAMES || plans.contains_key(&name) => drop(plans.insert(name, plan)),
        _ => drop(plans.remove(&name)),
    }
}

/// What puts the client's settings back, if that is possible now; they are no longer owed then. `before`: the client's message that
/// comes next.
fn put_back(client: &mut Client, server: &Server, before: Option<&Head<'_>>) -> Option<String> {
    let began = client.began.clone()?;
    let resets = client.resets()?;
    let status = server.ledger.status();
    if !server.ledger.is_quiet() || status == TxStatus::Failed {
        return None;
    }
    let names: Vec<&str> = resets.due.iter().chain(&resets.owed).map(AsRef::as_ref).collect();
    let pairs = began.iter().filter(|(name, _)| names.iter().any(|other| other.eq_ignore_ascii_case(name)));
    let back = Settings::from_pairs(pairs.map(|(name, value)| (name.into(), value.into())).collect()).ok()?;
    let none = Settings::default();
    if status == TxStatus::Transaction && back.replays_by_query(&none) && before.is_none_or(is_choice) {
        // It would begin the transaction's first snapshot.
        return None;
    }
    resets.due.clear();
    resets.owed.clear();
    Some(back.replay(&none)).filter(|sql| !sql.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_may_reset() {
        for text in
            ["reset all", " RESET x;", "set x to default ; ", "select 1; reset all", "-- a\nreset all", "discard all"]
        {
            assert!(may_reset(text.as_bytes()), "{text}");
        }
        for text in ["", ";", "select 'reset'", "select 1 ; ", "insert into t values (1)", "res"] {
            assert!(!may_reset(text.as_bytes()), "{text}");
        }
    }
}
