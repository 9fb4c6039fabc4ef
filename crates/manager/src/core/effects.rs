//! What clients' statements do to their sessions: noted when they are sent, counted when the server has completed them.
//!
//! A statement that leaves the session as it is costs nothing here but a look at its text. For the others there is a
//! [`Plan`]: its doubts count at once, because even a statement that fails may have taken a lock; its actions count when the
//! reply says that it has completed, and are undone with the transaction.

use super::Core;
use super::behind;
use super::client::Client;
use super::listening::{self, Ears};
use super::resets::{self, Resets};
use super::sequences;
use super::server::Server;
use super::statements::{Edit, forget_all, names};
use crate::shared::PoolEntry;
use pgusher_session::live::{self, Live, Track};
use pgusher_session::plan::{Action, Plan, Read, Reading};
use pgusher_session::statements::Library;
use pgusher_session::{Aspects, Pins};
use pgusher_wire::scan::Head;
use pgusher_wire::{TxStatus, backend};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Names of functions and of settings that are to be asked about, at most; and portals that are followed.
const MAX_NAMES: usize = 256;

/// A statement with a plan that the server has not completed yet.
#[derive(Debug)]
pub(super) struct Flight {
    /// The ledger's number of its unit.
    unit: u32,
    /// Statements in front of it, in the same unit.
    first: u32,
    plan: Arc<Plan>,
}

/// What of a session only those clients have that change it.
#[derive(Debug, Default)]
pub(super) struct More {
    pub(super) track: Option<Box<Track>>,
    /// Statements with a plan that are bound to portals.
    pub(super) portals: HashMap<Box<[u8]>, Arc<Plan>>,
    /// A portal with a plan was bound anew in this transaction.
    pub(super) rebound: bool,
    /// There was a ROLLBACK TO behind it: if the portal could not be bound anew, it is the old one again.
    pub(super) old_portals: bool,
    /// Functions that were called and of which nothing is known.
    pub(super) functions: Vec<Box<str>>,
    /// Settings that may have been made.
    pub(super) placeholders: Vec<Box<str>>,
    /// What statements do that SQL has prepared, by name.
    pub(super) prepared: Vec<(Box<str>, Arc<Plan>)>,
    /// What the client was told of settings since its login.
    pub(super) told: HashMap<Box<[u8]>, Box<[u8]>>,
    /// What it listens to, without a server of its own.
    pub(super) ears: Option<Box<Ears>>,
    /// What it has reset, in session mode.
    pub(super) resets: Option<Box<Resets>>,
}

impl More {
    /// Is there nothing that the end of a transaction has to be looked at for?
    pub(super) fn is_plain(&self) -> bool {
        self.track.is_none()
            && self.ears.is_none()
            && self.portals.is_empty()
            && self.functions.is_empty()
            && !(self.rebound || self.old_portals)
    }
}

impl Client {
    /// What only some sessions have.
    pub(super) fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    #[inline]
    pub(super) fn track(&self) -> Option<&Track> {
        self.more.as_ref().and_then(|more| more.track.as_deref())
    }

    /// What its settings have to do with the meaning of a statement.
    #[inline]
    pub(super) fn planning(&self) -> u64 {
        let settings = self.settings.as_ref().map_or(0, |settings| settings.planning());
        settings ^ self.track().map_or(0, Track::local)
    }

    /// Does the client keep its server for as long as it lives, as far as can be told?
    pub(super) fn is_bound(&self) -> bool {
        self.pins.is_lasting() || self.has_long_statement()
    }
}

impl Server {
    /// May a statement under way, or one of its transaction, have defined a function anew?
    #[inline]
    fn is_defining(&self) -> bool {
        self.defining || self.changed_catalog
    }

    /// Is a statement under way that changes what others mean?
    #[inline]
    pub(super) fn is_in_flux(&self) -> bool {
        !self.flights.is_empty() && self.flights.iter().any(|flight| flight.plan.changes_meaning)
    }
}

/// How the session's texts are read at this moment; `None` if that is not known.
pub(super) fn reading(client: &Client, server: &Server, text: &[u8]) -> Option<Reading> {
    if text.is_ascii() && memchr::memchr(b'\\', text).is_none() {
        return Some(Reading::default());
    }
    let unknown = server.is_in_flux() || (client.doubts.contains(Aspects::SETTINGS) && !client.is_bound());
    if unknown || client.track().is_some_and(|track| track.local() != 0) {
        return None;
    }
    reading_in(client, &server.pool, text)
}

/// The same between transactions.
pub(super) fn reading_in(client: &Client, pool: &PoolEntry, text: &[u8]) -> Option<Reading> {
    if text.is_ascii() && memchr::memchr(b'\\', text).is_none() {
        return Some(Reading::default());
    }
    let (strings, apart) = client.settings.as_ref()?.reading();
    let default = pool.reading();
    Some(Reading {
        standard_strings: strings.unwrap_or(default.standard_strings),
        ascii_apart: apart.unwrap_or(default.ascii_apart),
    })
}

/// What a text does.
pub(super) fn read(library: &mut Library, client: &Client, server: &Server, text: &[u8]) -> Read {
    match reading(client, server, text) {
        Some(reading) => library.read(text, reading),
        None => Read::Plan(Arc::new(Plan::unknown_text(text))),
    }
}

/// A statement is about to be sent: the `nth` of the unit under way.
pub(super) fn note(client: &mut Client, server: &mut Server, plan: &Arc<Plan>) {
    server.changed_definitions |= plan.defines || (plan.adds_tables && !behind::is_known_innocent(server));
    server.unread |= plan.unread;
    server.nameless |= plan.unread;
    client.behind |= plan.unread;
    behind::of_code(client, server, &plan.code_names, &[], plan.any_relation, plan.defines);
    client.doubts |= plan.doubts | plan.ends.and(client.pins.asked());
    if !listening::noted(client, server, plan) {
        client.doubts |= Aspects::CHANNELS;
    }
    if plan.stirs {
        server.stir();
    }
    server.defining |= plan.defines || plan.unread;
    if plan.discards {
        client.discards = true;
    }
    functions_called(client, server, &plan.functions);
    remember_placeholders(client, &plan.placeholders);
    if !plan.names.is_empty() {
        named(client, server, plan);
    }
    // The statement may do it although no reply says so. An audit asks for all these names.
    for action in plan.steps.iter().flatten() {
        if let Action::Set { name, .. } | Action::Local { name, .. } = action {
            server.leaves(name);
        }
        if let (Action::RollbackTo(_), Some(more)) = (action, client.more.as_mut()) {
            more.old_portals |= more.rebound;
        }
    }
    if plan.is_awaited() {
        fly(server, plan.clone());
    }
}

/// A statement has done something of what its plan says, and no reply will say that it has completed.
fn done_in_part(client: &mut Client, plan: &Plan) {
    client.pins |= plan.pins;
    if plan.steps.iter().any(|step| !step.is_empty()) {
        client.doubts |= Aspects::ALL;
    }
}

/// The end of a transaction that has changed settings is about to be sent.
pub(super) fn note_end(server: &mut Server) {
    fly(server, Arc::new(Plan { changes_meaning: true, ..Plan::default() }));
}

pub(super) fn fly(server: &mut Server, plan: Arc<Plan>) {
    server.flights.push_back(Flight { unit: server.ledger.unit(), first: server.sent_steps, plan });
}

/// Something is about to be sent of which nothing is known.
pub(super) fn note_unknown(client: &mut Client, server: &mut Server) {
    note(client, server, &Arc::new(Plan::unknown()));
}

/// Functions that one statement leads to are followed as long as there are no more.
const MAX_CALLED: usize = 4_000;

/// What functions do, and those that they call, is known, or it is to be asked about.
fn functions_called(client: &mut Client, server: &mut Server, names: &[Box<str>]) {
    let mut called: Vec<Box<str>> = names.to_vec();
    let mut seen: HashSet<Box<str>> = names.iter().cloned().collect();
    while let Some(name) = called.pop() {
        // What is defined in the same transaction, or in a statement under way, is not what others know by this name.
        let known = if server.is_defining() || seen.len() > MAX_CALLED { None } else { server.pool.routine(&name) };
        let Some(routine) = known else {
            client.doubts |= Aspects::ALL;
            client.behind = true;
            server.stir();
            let more = client.more();
            if more.functions.contains(&name) {
                continue;
            }
            if more.functions.len() < MAX_NAMES {
                more.functions.push(name);
            } else {
                client.pins |= Pins::SETTING;
            }
            continue;
        };
        client.doubts |= routine.doubts;
        client.pins |= routine.pins;
        if routine.stirs {
            server.stir();
        }
        server.changed_catalog |= routine.definition;
        server.changed_definitions |= routine.definition;
        behind::of_code(client, server, &routine.names, &routine.builtins, routine.any_relation, routine.definition);
        remember_placeholders(client, &routine.placeholders);
        for name in &routine.calls {
            if seen.insert(name.clone()) {
                called.push(name.clone());
            }
        }
    }
}

fn remember_placeholders(client: &mut Client, names: &[Box<str>]) {
    if names.is_empty() {
        return;
    }
    let more = client.more();
    for name in names {
        if more.placeholders.contains(name) {
            continue;
        }
        if more.placeholders.len() >= MAX_NAMES {
            client.pins |= Pins::SETTING;
            return;
        }
        more.placeholders.push(name.clone());
    }
}

/// A statement was bound to a portal.
pub(super) fn bound(client: &mut Client, portal: &[u8], plan: Option<Arc<Plan>>) {
    let Some(plan) = plan else {
        if let Some(more) = client.more.as_mut().filter(|more| !more.portals.is_empty()) {
            if let Some(old) = more.portals.remove(portal) {
                rebound(client, &old);
            }
        }
        return;
    };
    let more = client.more();
    if more.portals.len() < MAX_NAMES || more.portals.contains_key(portal) {
        if let Some(old) = more.portals.insert(portal.into(), plan) {
            rebound(client, &old);
        }
    } else {
        // It is not followed, and neither are the others from here on.
        more.old_portals = true;
        rebound(client, &plan);
    }
}

/// A portal with this plan was bound anew; but it may come back.
fn rebound(client: &mut Client, plan: &Plan) {
    if let Some(more) = client.more.as_mut() {
        more.rebound = true;
    }
    remember_placeholders(client, &plan.custom_names().collect::<Vec<_>>());
}

/// Statements are about to be prepared, or executed, by SQL.
#[cold]
fn named(client: &mut Client, server: &mut Server, plan: &Plan) {
    let more = client.more();
    for later in &plan.later {
        if more.prepared.len() >= MAX_NAMES {
            client.pins |= Pins::SETTING;
            break;
        }
        more.prepared.push(later.clone());
    }
    if plan.executes.is_empty() {
        return;
    }
    for name in &plan.names {
        let sql = client.more.iter().flat_map(|more| &more.prepared).filter(|(other, _)| other == name);
        let protocol = client.own.as_ref().and_then(|own| own.get(name.as_bytes())).and_then(|s| s.plan.clone());
        let executed: Vec<Arc<Plan>> = sql.map(|(_, plan)| plan.clone()).chain(protocol).collect();
        for plan in executed {
            client.pins |= plan.pins;
            // It may be a PREPARE itself.
            client.doubts |= plan.doubts;
            server.defining |= plan.defines;
            functions_called(client, server, &plan.functions);
            remember_placeholders(client, &plan.custom_names().collect::<Vec<_>>());
        }
    }
}

/// Functions of large objects that are called by their numbers (src/include/catalog/pg_proc.dat); what they leave behind ends
/// with the transaction.
const LARGE_OBJECTS: [u32; 14] = [715, 764, 767, 952, 953, 954, 955, 956, 957, 958, 964, 1004, 3170, 3171];

impl Core {
    /// An Execute is about to be sent.
    #[inline]
    pub(super) fn execute_seen(&mut self, client: u32, server: u32, head: &Head<'_>) -> Edit {
        let (Some(c), Some(s)) = (self.clients.get_mut(client as usize), self.servers.get_mut(server as usize)) else {
            return Edit::Keep;
        };
        if s.ledger.is_discarding() {
            return Edit::Keep;
        }
        let mut forgets = false;
        if !head.body.contains(&0) {
            // A portal with so long a name is not followed, nor what it sets.
            c.pins |= Pins::SETTING;
            note_unknown(c, s);
        } else if let Some(more) = c.more.as_ref().filter(|more| more.old_portals || !more.portals.is_empty()) {
            let portal = head.body.split(|b| *b == 0).next().unwrap_or_default();
            match more.portals.get(portal).cloned() {
                Some(plan) => {
                    forgets = plan.forgets && head.is_complete() && c.own.is_some();
                    let discards = c.discards;
                    note(c, s, &plan);
                    c.discards = discards || (c.discards && !forgets);
                }
                None if more.old_portals => note_unknown(c, s),
                None => {}
            }
        }
        s.sent_steps += 1;
        s.ledger.sent(head.tag);
        if forgets { forget_all(c, s, head, &mut self.patch) } else { Edit::Keep }
    }

    /// A FunctionCall is about to be sent.
    pub(super) fn function_call_seen(&mut self, client: u32, server: u32, head: &Head<'_>) -> Edit {
        let (Some(c), Some(s)) = (self.clients.get_mut(client as usize), self.servers.get_mut(server as usize)) else {
            return Edit::Keep;
        };
        let mut edit = Edit::Keep;
        let number = head.body.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes));
        if !s.ledger.is_discarding() && !number.is_some_and(|n| LARGE_OBJECTS.contains(&n) || n == 3172) {
            edit = sequences::before_call(&mut c.pins, s, head, &mut self.patch);
            if edit == Edit::Wait {
                return edit;
            }
            if !behind::is_innocent(s, self.now) {
                behind::of_statement(c, s, self.now, None);
            }
            note_unknown(c, s);
        }
        s.sent_steps = 0;
        s.ledger.sent(head.tag);
        edit
    }

    /// A statement has completed, or a portal has given a part of its rows.
    #[inline]
    pub(super) fn completed(&mut self, client: u32, slot: u32, tag: u8, body: &[u8]) {
        let Some(s) = self.servers.get_mut(slot as usize) else {
            return;
        };
        let step = s.done_steps;
        s.done_steps += 1;
        let flying = !s.flights.is_empty();
        if flying || self.clients.get(client as usize).is_some_and(|c| c.track().is_some() || c.owes_resets()) {
            self.count(client, slot, step, tag, body);
        }
        if tag == backend::COMMAND_COMPLETE {
            self.command_complete(client, slot, body);
        }
    }

    fn count(&mut self, client: u32, slot: u32, step: u32, tag: u8, body: &[u8]) {
        let (Some(c), Some(s)) = (self.clients.get_mut(client as usize), self.servers.get_mut(slot as usize)) else {
            return;
        };
        let unit = s.ledger.front_unit();
        let mut plan = None;
        if let Some(flight) = s.flights.front().filter(|f| f.unit == unit && f.first <= step) {
            let steps = flight.plan.steps.len() as u32;
            plan = Some((flight.plan.clone(), (step - flight.first) as usize));
            if step - flight.first + 1 >= steps {
                s.flights.pop_front();
            }
        }
        if tag == backend::COMMAND_COMPLETE {
            let actions = plan.as_ref().and_then(|(plan, at)| plan.steps.get(*at)).map_or(&[][..], |step| step);
            let partly = actions.iter().any(|action| matches!(action, Action::RollbackTo(_)));
            if body.starts_with(b"COMMIT\0") || body.starts_with(b"PREPARE TRANSACTION\0") {
                resets::end(c, true);
                if let Some(more) = c.more.as_mut() {
                    live::commit(&mut more.track);
                    if let Some(ears) = more.ears.as_mut() {
                        ears.listening.commit();
                    }
                }
            } else if body.starts_with(b"ROLLBACK\0") && !partly {
                resets::end(c, false);
                undo(c, s);
            }
            for action in actions {
                act(c, s, action, &self.shared.interner);
            }
            if actions.contains(&Action::DiscardAll) {
                // It is a transaction of its own, also in a batch.
                if let Some(more) = c.more.as_mut() {
                    live::commit(&mut more.track);
                }
            }
        }
        if let Some((plan, _)) = plan {
            if tag != backend::COMMAND_COMPLETE {
                done_in_part(c, &plan);
            }
            c.pins |= plan.pins;
            s.changed_defaults |= plan.defaults;
        }
        if s.stirred && s.flights.is_empty() {
            // What was parsed while it was under way belongs to neither side.
            s.shelf.stir();
        }
    }

    /// The server is ready for the next query.
    #[inline]
    pub(super) fn unit_over(&mut self, client: u32, slot: u32, status: TxStatus) {
        let (Some(c), Some(s)) = (self.clients.get_mut(client as usize), self.servers.get_mut(slot as usize)) else {
            return;
        };
        if !s.flights.is_empty() {
            if s.ledger.take_renumbered() {
                for flight in s.flights.drain(..) {
                    done_in_part(c, &flight.plan);
                }
                c.doubts = Aspects::ALL;
            }
            let next = s.ledger.front_unit();
            while s.flights.front().is_some_and(|f| (next.wrapping_sub(f.unit) as i32) > 0) {
                s.flights.pop_front();
            }
        }
        if let Some(ears) = c.ears() {
            ears.listening.ready(status);
        }
        if c.track().is_some() {
            with_live(c, s, |track, live| live::ready(track, live, status));
        }
    }

    /// The server reports a setting. Is the client to be told? A session that began with settings of its own does not see the
    /// server's defaults, to which the physical connection goes back for a moment at a RESET.
    pub(super) fn is_told(&mut self, client: u32, slot: u32, body: &[u8]) -> bool {
        let (Some(c), Some(s)) = (self.clients.get_mut(client as usize), self.servers.get_mut(slot as usize)) else {
            return true;
        };
        let (Some(began), Some(wanted)) =
            (c.began.as_ref().filter(|began| !began.is_empty()).cloned(), c.settings.clone())
        else {
            return true;
        };
        let mut parts = body.split(|b| *b == 0);
        let (Some(name), Some(value)) = (parts.next(), parts.next()) else { return true };
        let text = String::from_utf8_lossy(name);
        if !wanted.same(&s.settings) {
            let of_roles = matches!(&*text, "is_superuser" | "session_authorization");
            let roles = of_roles && wanted.roles() != s.settings.roles();
            if roles || wanted.get(&text) != s.settings.get(&text) {
                return false;
            }
        }
        let own = s.ledger.is_own();
        let greeting = if own { s.pool.greeting(&began) } else { None };
        let more = c.more();
        if own {
            let at_login = || {
                if name == b"application_name" {
                    return began.get("application_name").map(str::as_bytes);
                }
                let parameters = &greeting.as_ref()?.parameters;
                parameters.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_slice())
            };
            if more.told.get(name).map(|told| &**told).or_else(at_login) == Some(value) {
                return false;
            }
        }
        more.told.insert(name.into(), value.into());
        true
    }

    /// A unit has ended in which the session went back to settings that it began with: is its ReadyForQuery to be kept until the
    /// server has them again?
    pub(super) fn restores(&mut self, client: u32, slot: u32) -> bool {
        if !self.shares {
            return self.puts_back(client, slot);
        }
        let (Some(c), Some(s)) = (self.clients.get(client as usize), self.servers.get_mut(slot as usize)) else {
            return false;
        };
        let Some(wanted) = c.settings.as_ref().filter(|wanted| !wanted.same(&s.settings)) else { return false };
        if !s.ledger.is_quiet() || s.ledger.status() == TxStatus::Failed {
            return false;
        }
        if super::replay::is_put_off(s, wanted) {
            return false;
        }
        let mut out = Vec::new();
        super::replay::replay_ahead(s, wanted, true, &mut out);
        self.send(super::io::ConnId::Server(slot), out);
        true
    }

    /// A statement of the client's has failed.
    #[inline]
    pub(super) fn statement_failed(&mut self, client: u32, slot: u32) {
        let Some(c) = self.clients.get_mut(client as usize) else {
            return;
        };
        resets::end(c, false);
        if let Some(more) = c.more.as_mut() {
            if let Some(track) = more.track.as_mut() {
                track.fail();
            }
            if let Some(ears) = more.ears.as_mut() {
                ears.listening.fail();
            }
        }
        let Some(s) = self.servers.get(slot as usize) else {
            return;
        };
        if let Some(flight) = s.flights.front().filter(|f| !f.plan.pins.is_empty() && f.first <= s.done_steps) {
            if flight.unit == s.ledger.front_unit() {
                // What is no matter of transactions may have been done before it failed.
                c.pins |= flight.plan.pins.lasting_errors();
            }
        }
    }
}

/// Takes back what a transaction has set.
pub(super) fn undo(client: &mut Client, server: &mut Server) {
    if let Some(ears) = client.ears() {
        ears.listening.rollback();
    }
    if client.track().is_some() {
        with_live(client, server, live::rollback);
    }
}

fn with_live(client: &mut Client, server: &mut Server, change: impl FnOnce(&mut Option<Box<Track>>, &mut Live)) {
    let (Some(wanted), Some(more)) = (client.settings.clone(), client.more.as_mut()) else {
        return;
    };
    let mut live = Live { wanted, present: server.settings.clone() };
    change(&mut more.track, &mut live);
    client.settings = Some(live.wanted);
    server.settings = live.present;
}

/// DEALLOCATE has found what the protocol has prepared under this name, if it was put there for it. Otherwise it was not, or is
/// forgotten already.
fn deallocated(client: &mut Client, server: &mut Server, name: &[u8]) {
    if let (true, Some(own)) = (names::is_litter(server, name), client.own.as_deref_mut()) {
        own.set(name, None);
        names::cleared(server, name);
    }
}

fn act(client: &mut Client, server: &mut Server, action: &Action, interner: &pgusher_session::settings::Interner) {
    if client.pins.intersects(Pins::SESSION) {
        return resets::act(client, action);
    }
    listening::act(client, action);
    if let Action::Deallocate(name) = action {
        return deallocated(client, server, name.as_bytes());
    }
    let Some(began) = client.began.clone() else {
        return;
    };
    match action {
        Action::DiscardSequences => sequences::discarded(&mut client.pins, server),
        Action::DiscardAll => {
            client.pins = client.pins.without(Pins::SETTING);
            sequences::discarded(&mut client.pins, server);
        }
        Action::Set { name, .. } | Action::Local { name, .. } => server.leaves(name),
        _ => {}
    }
    let _ = client.more();
    let mut known = true;
    let mut too_large = false;
    with_live(client, server, |track, live| {
        known = live::apply(track, live, action, &began, interner);
        too_large = track.as_ref().is_some_and(|track| track.too_large);
    });
    if too_large {
        client.pins |= Pins::SETTING;
    }
    match action {
        Action::Local { .. } if !known => server.stir(),
        _ if !known => client.doubts |= Aspects::SETTINGS,
        _ => {}
    }
}
