//! `currval` and `lastval` in transaction mode: what a backend remembers of sequences belongs to one client, or is discarded.
//!
//! The memory of a backend is its clients' one after another. Before a statement that may read it, the client's own use of it
//! must be certain: either all that is in it since a `DISCARD SEQUENCES` is the client's ([`Memory::own`]), or that command is
//! put in front. Then the server itself says that the value is not defined (SQLSTATE 55000), and never a neighbour's value.
//!
//! Which statements get the command in front depends on what the pool has learned ([`SequenceUse`]):
//!
//! * `Unseen`: those that may read. A statement that only gets a number costs the setting of a flag.
//! * `Within`: those that may get a number as well, so that a later one of the same transaction reads what it has got.
//! * `Across`: the same, and from there the client keeps its server ([`Pins::SEQUENCE`]).

use super::Core;
use super::server::Server;
use super::statements::Edit;
use crate::sequences::SequenceUse;
use crate::shared::PoolEntry;
use pgusher_session::ledger::Mark;
use pgusher_session::plan::{Action, Plan, Read};
use pgusher_session::routine::Routine;
use pgusher_session::statements::{Change, Placed};
use pgusher_session::{Pins, Sequences};
use pgusher_wire::frontend::{self, Target};
use pgusher_wire::scan::Head;
use pgusher_wire::{ErrorFields, TxStatus, sqlstate};
use std::collections::HashSet;

/// What a server remembers of sequences, as seen from its present client. Forgotten when the client leaves it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Memory {
    /// It was discarded since the client came: what is in it now is the client's.
    pub(super) own: bool,
    /// The client may have got a number.
    advanced: bool,
    /// It may have set one as well, by a function whose meaning is known only roughly.
    set: bool,
    /// The client has used it since it has sent DISCARD SEQUENCES.
    used: bool,
}

/// A statement and a portal of ours.
const NAME: &[u8] = b"pgusher_sequences";
const DISCARD: &[u8] = b"DISCARD SEQUENCES";

/// Discards, unless a number was got in this transaction: then the last one is the client's. `nextval` locks the sequence up to
/// the end of the transaction (src/backend/commands/sequence.c).
const DISCARD_UNLESS_GOT: &[u8] = b"DO LANGUAGE plpgsql $pgusher$ BEGIN IF NOT EXISTS (\
    SELECT FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_class c ON c.oid = l.relation \
    WHERE l.locktype = 'relation' AND l.pid = pg_catalog.pg_backend_pid() AND l.mode = 'RowExclusiveLock' \
    AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()) \
    AND c.relkind = 'S') THEN DISCARD SEQUENCES; END IF; END $pgusher$";

/// Functions that one statement leads to are followed as long as there are no more.
const MAX_CALLED: usize = 4_000;

/// What a statement does, with the functions that it calls.
#[derive(Debug, Clone, Copy, Default)]
struct Found {
    sequences: Sequences,
    /// It calls a function of which nothing is known: the server is asked before the client leaves it.
    asked: bool,
    /// It calls a function of the users' own.
    called: bool,
}

impl Found {
    const fn of(sequences: Sequences) -> Self {
        Self { sequences, asked: false, called: false }
    }

    fn of_plan(plan: &Plan, pool: &PoolEntry) -> Self {
        let mut found = Self::of(plan.sequences);
        if plan.functions.is_empty() {
            return found;
        }
        found.functions(&plan.functions, pool);
        found
    }

    /// Functions are called. Each counts once, however often they call each other.
    fn functions(&mut self, names: &[Box<str>], pool: &PoolEntry) {
        self.called |= !names.is_empty();
        let mut open: Vec<Box<str>> = names.to_vec();
        let mut seen: HashSet<Box<str>> = open.iter().cloned().collect();
        while let Some(name) = open.pop() {
            let Some(routine) = pool.routine(&name).filter(|_| seen.len() <= MAX_CALLED) else {
                self.asked = true;
                continue;
            };
            self.sequences |= routine.sequences;
            open.extend(routine.calls.iter().filter(|call| seen.insert((*call).clone())).cloned());
        }
    }

    fn is_none(self) -> bool {
        self.sequences.is_none() && !self.asked
    }

    fn may_read(self) -> bool {
        self.sequences.may_read() || self.asked
    }

    fn may_advance(self) -> bool {
        self.sequences.may_advance() || self.asked
    }
}

/// A pool's clients were seen to do this.
fn learn(pool: &PoolEntry, seen: SequenceUse) {
    if pool.sequences.learn(seen) && seen == SequenceUse::Across {
        tracing::warn!(
            database = %pool.database,
            user = %pool.user,
            "clients of this pool read currval or lastval in another transaction than the one that got the number; from now on \
             those that get numbers keep their physical connections. Set sequences = \"pin\" to have it so from the start, or \
             use INSERT ... RETURNING"
        );
    }
}

/// A statement is about to be sent. What has to be sent in front of it, so that it cannot read what is another's.
#[inline]
fn due(pins: &mut Pins, server: &mut Server, found: Found) -> Option<&'static [u8]> {
    let memory = &mut server.sequences;
    if server.pool.sequences.get() == SequenceUse::Unseen && !found.may_read() {
        memory.advanced = true;
        memory.set |= found.called;
        return None;
    }
    let before = *memory;
    if found.sequences.reads() {
        // What it gets itself it may read.
        let within = before.advanced || found.may_advance();
        learn(&server.pool, if within { SequenceUse::Within } else { SequenceUse::Across });
    }
    memory.advanced |= found.may_advance();
    memory.set |= found.called;
    memory.used = true;
    if server.pool.sequences.get() == SequenceUse::Across && !found.sequences.is_none() {
        *pins |= Pins::SEQUENCE;
    }
    if before.own {
        return None;
    }
    memory.own = true;
    // All that is read is the number got last, and the transaction may have got it before anything was known.
    let last = found.sequences.last && !found.sequences.named && !found.sequences.unknown && !found.asked;
    Some(if last && before.advanced && !before.set { DISCARD_UNLESS_GOT } else { DISCARD })
}

/// Has something to be sent in front of such a statement?
fn is_due(server: &Server, found: Found) -> bool {
    !server.sequences.own
        && (found.may_read() || (found.may_advance() && server.pool.sequences.get() != SequenceUse::Unseen))
}

/// A Query is about to be sent, and nothing was written for it yet.
#[inline]
pub(super) fn before_query(pins: &mut Pins, s: &mut Server, read: &Read, head: &Head<'_>, patch: &mut Vec<u8>) -> Edit {
    let found = match read {
        Read::Plain { advances: true } => Found::of(Sequences::ADVANCES),
        Read::Plain { advances: false } | Read::Begin | Read::End => return Edit::Keep,
        Read::Plan(plan) => {
            if pins.intersects(Pins::SEQUENCE) && discards(plan) {
                s.sequences.used = false;
            }
            Found::of_plan(plan, &s.pool)
        }
    };
    if found.is_none() { Edit::Keep } else { before_unit(pins, s, found, head, patch) }
}

/// A FunctionCall is about to be sent, of which nothing is known.
pub(super) fn before_call(pins: &mut Pins, s: &mut Server, head: &Head<'_>, patch: &mut Vec<u8>) -> Edit {
    before_unit(pins, s, Found::of(Sequences::UNKNOWN), head, patch)
}

fn before_unit(pins: &mut Pins, s: &mut Server, found: Found, head: &Head<'_>, patch: &mut Vec<u8>) -> Edit {
    if is_due(s, found) {
        if s.ledger.owes_ready() {
            return Edit::Wait;
        }
        if s.ledger.status() == TxStatus::Failed {
            if found.sequences.reads() && head.tag == frontend::QUERY {
                // The text may leave the failed transaction before it reads. The server refuses this in its place, as it would
                // refuse what is not ROLLBACK.
                frontend::write_query(patch, DISCARD);
                return Edit::Replace(pgusher_wire::HEADER_LEN + head.body_len);
            }
            return Edit::Keep;
        }
    }
    let Some(sql) = due(pins, s, found) else { return Edit::Keep };
    // Outside of a transaction there is no portal that a Query could end. And a batch that has not ended leaves a FunctionCall in
    // its implicit transaction block, which nothing would end (PostgreSQL 18).
    if s.ledger.is_quiet() && (head.tag == frontend::QUERY || s.ledger.status() == TxStatus::Idle) {
        s.shelf.set_unnamed(None);
        s.ledger.own(false);
        frontend::write_query(patch, sql);
    } else {
        // A batch without a Sync is in front of it; or it is no Query, and must find the unnamed portal of its transaction as it was.
        write_batch(s, sql, patch);
    }
    Edit::Replace(0)
}

/// A batch is about to begin, and will bind this, as far as can be told. Outside of a transaction the memory is discarded in a
/// transaction of its own: within the batch the command would make a transaction block of it (PostgreSQL 18), in which a procedure
/// cannot end transactions.
pub(super) fn before_batch(s: &mut Server, bound: &Bind<'_>, patch: &mut Vec<u8>) {
    if !s.ledger.is_clean_but_for_own() || !is_due(s, bound.found(&s.pool)) {
        return;
    }
    s.sequences.own = true;
    s.shelf.set_unnamed(None);
    s.ledger.own(false);
    frontend::write_query(patch, DISCARD);
}

/// A Bind is about to be sent, behind what is in `patch`.
pub(super) fn before_bind(pins: &mut Pins, s: &mut Server, bound: &Bind<'_>, patch: &mut Vec<u8>) {
    if let Bind::Plan(plan) = bound {
        if pins.intersects(Pins::SEQUENCE) && discards(plan) {
            s.sequences.used = false;
        }
    }
    let found = bound.found(&s.pool);
    if found.is_none() {
        return;
    }
    if s.ledger.status() == TxStatus::Failed && !found.sequences.reads() {
        // It may be what ends the failed transaction.
        return;
    }
    if let Some(sql) = due(pins, s, found) {
        write_batch(s, sql, patch);
    }
}

/// What is bound.
pub(super) enum Bind<'a> {
    /// It leaves sequences alone.
    Nothing,
    /// It may get numbers.
    Advances,
    /// It does this.
    Plan(&'a Plan),
    /// Nothing is known of it.
    Unknown,
}

impl Bind<'_> {
    fn found(&self, pool: &PoolEntry) -> Found {
        match self {
            Self::Nothing => Found::default(),
            Self::Advances => Found::of(Sequences::ADVANCES),
            Self::Unknown => Found::of(Sequences::UNKNOWN),
            Self::Plan(plan) => Found::of_plan(plan, pool),
        }
    }
}

fn discards(plan: &Plan) -> bool {
    plan.steps.iter().flatten().any(|action| matches!(action, Action::DiscardSequences | Action::DiscardAll))
}

/// As messages of the extended protocol, which may stand within a client's batch.
fn write_batch(s: &mut Server, sql: &[u8], patch: &mut Vec<u8>) {
    let mut mark = |placed| {
        s.ledger.marked(Mark::Own);
        s.shelf.note(Change::Nothing, placed);
    };
    frontend::write_close(patch, Target::Statement, NAME);
    mark(Placed::Nothing);
    frontend::write_parse(patch, NAME, sql, &[]);
    mark(Placed::Nothing);
    frontend::write_bind(patch, NAME, NAME, &[]);
    mark(Placed::Nothing);
    frontend::write_execute(patch, NAME, 0);
    mark(Placed::Sequences);
    frontend::write_close(patch, Target::Portal, NAME);
    mark(Placed::Nothing);
}

/// The client has discarded what its server remembers. It lets go of it unless it has used it again meanwhile.
pub(super) fn discarded(pins: &mut Pins, server: &Server) {
    if !server.sequences.used {
        *pins = pins.without(Pins::SEQUENCE);
    }
}

/// It is known now what this function does, which the client has called.
pub(super) fn function_known(pins: &mut Pins, server: &Server, routine: &Routine) {
    let mut found = Found::default();
    found.sequences |= routine.sequences;
    found.functions(&routine.calls, &server.pool);
    if found.sequences.reads() {
        learn(&server.pool, SequenceUse::Within);
    }
    if server.pool.sequences.get() == SequenceUse::Across && !found.sequences.is_none() {
        *pins |= Pins::SEQUENCE;
    }
}

impl Core {
    /// The server has said that there is nothing to be read: somebody expects what another transaction has left.
    pub(super) fn sequence_undefined(&self, slot: u32, fields: &ErrorFields<'_>) {
        let ours = fields.sqlstate() == Some(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE)
            && fields.text(b'R').is_some_and(|routine| routine == "currval_oid" || routine == "lastval");
        if let (true, Some(s)) = (ours, self.servers.get(slot as usize)) {
            learn(&s.pool, SequenceUse::Across);
        }
    }
}
