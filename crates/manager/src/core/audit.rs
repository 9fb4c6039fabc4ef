//! Asks a physical connection what its client has done to it, where the texts do not say it.
//!
//! It is asked when the transaction is over and its replies have gone to the client, before another client can get the
//! connection. The answer gives the session its settings, says what keeps the client there, and what the functions do that it
//! has called, so that they need not be asked about again.

use super::Core;
use super::io::{ConnId, Output};
use super::listening;
use super::server::State as ServerState;
use pgusher_session::audit::{Answer, Findings, Inquiry, MAX_BYTES};
use pgusher_session::routine::Routine;
use pgusher_session::settings::{Interned, Settings};
use pgusher_session::{Aspects, Pins};
use pgusher_wire::{Frame, TxStatus, backend, frontend};
use std::collections::HashSet;

/// Functions call others, whose bodies are asked for in turn, so often.
const MAX_ROUNDS: u8 = 64;
/// Settings that definitions may make are asked for up to this number.
const MAX_PLACEHOLDERS: usize = 2_000;
/// The question is repeated so often if it fails: a cancel request or a timeout may have met it.
const MAX_TRIES: u8 = 3;

/// A limit in time that may end the question.
pub(super) const TIMEOUT: &str = "statement_timeout";

/// A question that is under way.
#[derive(Debug)]
pub(super) struct Audit {
    aspects: Aspects,
    functions: Vec<Box<str>>,
    placeholders: Vec<Box<str>>,
    pub(super) leftovers: Vec<Box<str>>,
    /// Of the catalogs when it was asked.
    version: u32,
    answer: Answer,
    /// The part of the reply that cannot be read yet.
    pub(super) bytes: Vec<u8>,
    failed: bool,
    /// The session's limit in time was lifted for it.
    eased: bool,
    tries: u8,
    rounds: u8,
    /// Functions that were asked for in earlier rounds.
    asked: Vec<Box<str>>,
    /// Functions for later rounds, because their definitions are too large for one answer.
    later: Vec<Box<str>>,
}

impl Core {
    /// Does something have to be asked before the client's server may go to somebody else?
    #[inline]
    pub(super) fn audit_if_due(&mut self, client: u32, server: u32) -> bool {
        let Some(c) = self.clients.get_mut(client as usize) else {
            return false;
        };
        if c.doubts.is_empty() || c.is_bound() || !c.doubts.contains(c.pins.asked()) {
            return false;
        }
        let Some(s) = self.servers.get_mut(server as usize) else {
            return false;
        };
        let (mut functions, mut placeholders) = (Vec::new(), Vec::new());
        if let Some(more) = c.more.as_mut() {
            functions = std::mem::take(&mut more.functions);
            placeholders = std::mem::take(&mut more.placeholders);
            // Code may have executed them as well.
            placeholders.extend(more.prepared.iter().flat_map(|(_, plan)| plan.placeholders.iter().cloned()));
            placeholders.sort();
            placeholders.dedup();
        }
        // The settings that it began with are not those that are found.
        let _ = c.more();
        for name in &s.leftovers {
            if !placeholders.contains(name) {
                placeholders.push(name.clone());
            }
        }
        if std::mem::take(&mut c.behind) {
            if let Some(taken) = s.pool.definitions_last() {
                if taken.knowledge.nameless || taken.knowledge.placeholders().len() > MAX_PLACEHOLDERS {
                    // There may be settings that nobody can ask for.
                    c.pins |= Pins::SETTING;
                }
                let names = taken.knowledge.placeholders().iter().take(MAX_PLACEHOLDERS);
                placeholders.extend(names.cloned());
                placeholders.sort();
                placeholders.dedup();
            }
        }
        let mut aspects = c.doubts;
        if !functions.is_empty() {
            aspects |= Aspects::FUNCTIONS;
        }
        s.audit = Some(Box::new(Audit {
            aspects,
            functions,
            placeholders,
            leftovers: std::mem::take(&mut s.leftovers),
            version: 0,
            answer: Answer::default(),
            bytes: Vec::new(),
            failed: false,
            eased: false,
            tries: 0,
            rounds: 0,
            asked: Vec::new(),
            later: Vec::new(),
        }));
        s.state = ServerState::Auditing { client };
        self.out.push_back(Output::Pause(ConnId::Client(client)));
        self.ask(client, server);
        true
    }

    fn ask(&mut self, client: u32, server: u32) {
        let (Some(c), Some(s)) = (self.clients.get_mut(client as usize), self.servers.get_mut(server as usize)) else {
            return;
        };
        let (Some(known), Some(audit)) = (&c.settings, s.audit.as_mut()) else { return };
        audit.version = s.pool.catalog_version();
        audit.answer = Answer::default();
        audit.failed = false;
        audit.tries += 1;
        let sql = inquiry(audit, known, &s.pool.user).sql();
        s.shelf.set_unnamed(None);
        s.ledger.sent(frontend::QUERY);
        let mut out = Vec::with_capacity(sql.len() + 64);
        if audit.tries > 1 && !audit.eased {
            audit.eased = true;
            s.ledger.sent(frontend::QUERY);
            frontend::write_query(&mut out, b"SET statement_timeout=0");
        }
        frontend::write_query(&mut out, sql.as_bytes());
        self.send(ConnId::Server(server), out);
    }

    /// A part of the answer.
    pub(super) fn audit_bytes(&mut self, slot: u32, buf: &[u8]) {
        let Some(s) = self.servers.get_mut(slot as usize) else {
            return;
        };
        let ServerState::Auditing { client } = s.state else { return };
        let Some(audit) = s.audit.as_mut() else { return };
        audit.bytes.extend_from_slice(buf);
        let bytes = std::mem::take(&mut audit.bytes);
        let mut rest = bytes.as_slice();
        loop {
            let (frame, used) = match Frame::parse(rest) {
                Ok(Some(parsed)) => parsed,
                Ok(None) if rest.len() <= 2 * MAX_BYTES => break,
                Ok(None) | Err(_) => return self.broken_server(slot),
            };
            rest = rest.get(used..).unwrap_or_default();
            let Some(s) = self.servers.get_mut(slot as usize) else {
                return;
            };
            let Some(audit) = s.audit.as_mut() else { return };
            let status = frame.body.first().and_then(|b| TxStatus::from_byte(*b)).unwrap_or(TxStatus::Failed);
            if s.ledger.received(frame.tag, status).is_err() {
                return self.broken_server(slot);
            }
            match frame.tag {
                backend::DATA_ROW => audit.failed |= audit.answer.row(frame.body).is_err(),
                backend::ERROR_RESPONSE => audit.failed = true,
                backend::NOTIFICATION_RESPONSE
                    if listening::comes_from_elsewhere(self.clients.get(client as usize), frame.body) => {}
                backend::NOTIFICATION_RESPONSE => {
                    // It listens, and its transaction is over: this is for it.
                    let (head, _) = bytes.split_at(bytes.len() - rest.len());
                    let message = head.get(head.len() - used..).unwrap_or_default().to_vec();
                    self.send(ConnId::Client(client), message);
                }
                backend::READY_FOR_QUERY if s.ledger.is_clean() => {
                    let (late, held) = match unasked(rest) {
                        Some((late, held)) => (late.to_vec(), held.to_vec()),
                        None => return self.broken_server(slot),
                    };
                    self.answered(client, slot);
                    let Some(s) = self.servers.get_mut(slot as usize) else {
                        return;
                    };
                    if let Some(audit) = s.audit.as_mut() {
                        audit.bytes = held;
                    } else {
                        s.held = held;
                    }
                    if !late.is_empty() && matches!(s.state, ServerState::Seated { client: c } if c == client) {
                        self.send(ConnId::Client(client), late);
                    }
                    return;
                }
                _ => {}
            }
        }
        let rest = rest.to_vec();
        let Some(s) = self.servers.get_mut(slot as usize) else {
            return;
        };
        if let Some(audit) = s.audit.as_mut() {
            audit.bytes = rest;
        }
    }

    /// The answer is complete.
    fn answered(&mut self, client: u32, server: u32) {
        let (Some(c), Some(s)) = (self.clients.get_mut(client as usize), self.servers.get_mut(server as usize)) else {
            return;
        };
        s.done_steps = 0;
        let (Some(known), Some(mut audit)) = (c.settings.clone(), s.audit.take()) else { return };
        if audit.eased {
            if let Ok(settings) = s.settings.with(TIMEOUT, "0") {
                s.settings = self.shared.interner.intern(settings);
            }
        }
        if audit.failed {
            if audit.functions.len() > 1 {
                // The answer may have been too large.
                let half = audit.functions.len() / 2;
                audit.later.extend(audit.functions.drain(half..));
                audit.tries = 0;
            }
            if audit.tries < MAX_TRIES {
                s.audit = Some(audit);
                return self.ask(client, server);
            }
            // Whatever it is, it stays with the client.
            tracing::warn!("a physical connection could not be asked what its client has done; the client keeps it");
            c.pins |= Pins::SETTING;
            s.held = std::mem::take(&mut audit.bytes);
            put_back(s, audit.leftovers);
            return self.audited(client, server);
        }
        let answer = std::mem::take(&mut audit.answer);
        let findings = answer.finish(&inquiry(&audit, &known, &s.pool.user));
        s.held = std::mem::take(&mut audit.bytes);
        let (mut functions, placeholders) = learn(c, s, &audit, &findings);
        functions.append(&mut audit.later);
        adopt(c, s, &audit, &findings, &known, &self.shared.interner);
        if audit.rounds < MAX_ROUNDS && !(functions.is_empty() && placeholders.is_empty()) {
            audit.aspects = Aspects::NONE;
            if !functions.is_empty() {
                audit.aspects |= Aspects::FUNCTIONS;
            }
            if !placeholders.is_empty() {
                audit.aspects |= Aspects::SETTINGS;
            }
            audit.asked.append(&mut audit.functions);
            audit.functions = functions;
            audit.placeholders = placeholders;
            audit.tries = 0;
            audit.rounds += 1;
            audit.bytes = std::mem::take(&mut s.held);
            s.audit = Some(audit);
            return self.ask(client, server);
        }
        if !(functions.is_empty() && placeholders.is_empty()) {
            // What they do is not known.
            c.pins |= Pins::SETTING;
        }
        put_back(s, audit.leftovers);
        self.audited(client, server);
    }

    fn audited(&mut self, client: u32, server: u32) {
        let (Some(c), Some(s)) = (self.clients.get_mut(client as usize), self.servers.get_mut(server as usize)) else {
            return;
        };
        c.doubts = Aspects::NONE;
        s.state = ServerState::Seated { client };
        if s.has_changed() {
            // A function has changed the catalogs, which is known only now.
            self.changes_are_seen(server);
        }
        self.prune(client);
        self.go_on(client, server);
    }
}

/// Messages that a server sends of its own accord, and the part of one that is cut off. `None`: there is another one.
pub(super) fn unasked(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut rest = bytes;
    while let Ok(Some((frame, used))) = Frame::parse(rest) {
        if !matches!(frame.tag, backend::NOTIFICATION_RESPONSE | backend::NOTICE_RESPONSE | backend::PARAMETER_STATUS) {
            return None;
        }
        rest = rest.get(used..)?;
    }
    Some(bytes.split_at(bytes.len() - rest.len()))
}

/// The names of settings that a server has anyway, with those that were found meanwhile.
fn put_back(server: &mut super::Server, names: Vec<Box<str>>) {
    for name in std::mem::replace(&mut server.leftovers, names) {
        server.leaves(&name);
    }
}

fn inquiry<'a>(audit: &'a Audit, known: &'a Settings, login: &'a str) -> Inquiry<'a> {
    Inquiry {
        aspects: audit.aspects,
        known,
        login,
        placeholders: &audit.placeholders,
        leftovers: &audit.leftovers,
        functions: &audit.functions,
    }
}

/// Remembers what was found out about functions. What is to be asked next: functions, and settings that they may have made.
fn learn(
    client: &mut super::Client,
    server: &mut super::Server,
    audit: &Audit,
    findings: &Findings,
) -> (Vec<Box<str>>, Vec<Box<str>>) {
    let (mut functions, mut placeholders): (Vec<Box<str>>, Vec<Box<str>>) = (Vec::new(), Vec::new());
    let mut open: Vec<Box<str>> = Vec::new();
    let pool = server.pool.clone();
    let mut add = |routine: &Routine, open: &mut Vec<Box<str>>| {
        client.pins |= routine.pins;
        super::sequences::function_known(&mut client.pins, server, routine);
        server.changed_catalog |= routine.definition;
        placeholders.extend(routine.placeholders.iter().cloned());
        open.extend(routine.calls.iter().cloned());
    };
    for name in &audit.functions {
        let routine = Routine::of(findings.functions.iter().filter(|function| *function.name == **name));
        add(&routine, &mut open);
        pool.learn(name, routine, audit.version);
    }
    let mut seen: HashSet<Box<str>> = audit.asked.iter().chain(&audit.functions).chain(&audit.later).cloned().collect();
    while let Some(name) = open.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        // What is known already has been called all the same.
        match pool.routine(&name) {
            Some(routine) => add(&routine, &mut open),
            None => functions.push(name),
        }
    }
    placeholders.sort();
    placeholders.dedup();
    placeholders.retain(|name| !audit.placeholders.contains(name));
    (functions, placeholders)
}

/// The session gets what was found.
fn adopt(
    client: &mut super::Client,
    server: &mut super::Server,
    audit: &Audit,
    findings: &Findings,
    known: &Interned,
    interner: &pgusher_session::settings::Interner,
) {
    if findings.unrepresentable {
        client.pins |= Pins::SETTING;
    }
    if let Some(pairs) = &findings.settings {
        match Settings::from_pairs(pairs.clone()) {
            Ok(found) => {
                for (name, _) in found.iter() {
                    server.leaves(name);
                }
                let found = interner.intern(found);
                // What the session began with and the server has let go of is still to be put back.
                let mut wanted = Settings::clone(&found);
                for (name, value) in known.iter().filter(|(name, value)| server.settings.get(name) != Some(value)) {
                    if found.get(name) == server.settings.get(name) {
                        wanted = wanted.with(name, value).unwrap_or(wanted);
                    }
                }
                if audit.eased && known.get(TIMEOUT).is_none() {
                    wanted = wanted.without(TIMEOUT);
                }
                client.settings = Some(interner.intern(wanted));
                server.settings = found;
            }
            Err(_) => client.pins |= Pins::SETTING,
        }
    }
    let mut held = findings.held();
    if audit.aspects.contains(Aspects::CHANNELS) && !listening::adopt(client, server, &findings.channels) {
        held = held.without(Aspects::CHANNELS);
    }
    let litter = |name: &str| server.litter.iter().any(|litter| **litter == *name.as_bytes());
    if findings.prepared.iter().all(|statement| litter(&statement.name)) {
        held = held.without(Aspects::PREPARED);
    }
    client.pins = client.pins.answered(audit.aspects, held);
    if let (true, Some(more)) =
        (audit.aspects.contains(Aspects::PREPARED) && !held.contains(Aspects::PREPARED), &mut client.more)
    {
        more.prepared = Vec::new();
    }
}
