//! What the statements of a text will do to their session, found before they run.
//!
//! What a text says itself (SET, RESET, SAVEPOINT) becomes [`Action`]s, which count once the server has completed the statement.
//! What only the server can know (what a function does, whether a lock was got) becomes doubt: [`Aspects`] that have to be asked
//! before another client gets the physical connection. A text that does neither has no plan.

use crate::aspects::{Aspects, Pins};
use crate::routine::Routine;
use crate::sequences::Sequences;
use crate::settings::{is_half, is_planning};
use pgusher_sql::{
    Argument, Bounds, Cache, Discard, Effect, Facts, Inside, Key, Kind, LockSpan, ObjectKind, OnCommit, Quick,
    SessionFunction, Statement, Transaction, Utility, Value, Verb, Verdict,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A change of the session that counts when its statement has completed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// A setting gets this value, for the session.
    Set {
        /// Its name.
        name: Box<str>,
        /// Its value, as `set_config` takes it.
        value: Box<str>,
    },
    /// A setting gets the value that the session began with.
    Reset(Box<str>),
    /// All settings do, but for role and session authorization.
    ResetAll,
    /// A setting gets a value for the rest of the transaction.
    Local {
        /// Its name; empty if it is not known.
        name: Box<str>,
        /// Its value; `None` if only the server knows it.
        value: Option<Box<str>>,
    },
    /// SAVEPOINT
    Savepoint(Box<str>),
    /// RELEASE SAVEPOINT
    Release(Box<str>),
    /// ROLLBACK TO SAVEPOINT
    RollbackTo(Box<str>),
    /// DISCARD ALL
    DiscardAll,
    /// DISCARD SEQUENCES
    DiscardSequences,
    /// LISTEN
    Listen(Box<str>),
    /// UNLISTEN; `None`: all channels.
    Unlisten(Option<Box<str>>),
    /// DEALLOCATE of a name
    Deallocate(Box<str>),
}

/// What a text does to its session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// What each of its statements does, in order. Empty if the statements are not known.
    pub steps: Box<[Box<[Action]>]>,
    /// What has to be asked of the server.
    pub doubts: Aspects,
    /// What has to be asked if it keeps the client on its server: it may have ended.
    pub ends: Aspects,
    /// What keeps the client on its server from here on.
    pub pins: Pins,
    /// Channels that it listens to. Whoever cannot follow them has to ask the server ([`Aspects::CHANNELS`]).
    pub channels: Box<[Box<str>]>,
    /// Functions of which nothing is known but their names.
    pub functions: Box<[Box<str>]>,
    /// Settings with these names, which the server does not list, may have been made.
    pub placeholders: Box<[Box<str>]>,
    /// What names and constants of later statements stand for may change, in a way that no action tells.
    pub stirs: bool,
    /// One of its actions changes what names and constants of later statements stand for.
    pub changes_meaning: bool,
    /// It may discard prepared statements.
    pub discards: bool,
    /// It runs the statements that were prepared under these names.
    pub executes: Box<[Box<str>]>,
    /// Prepared statements that it names, in EXECUTE, PREPARE or DEALLOCATE.
    pub names: Box<[Box<str>]>,
    /// What the statements that it prepares do to the session when they are executed, where that has to be known; by name.
    pub later: Box<[(Box<str>, Arc<Plan>)]>,
    /// It discards all prepared statements, if it succeeds.
    pub forgets: bool,
    /// It changes what new sessions begin with (ALTER ROLE ... SET).
    pub defaults: bool,
    /// It makes or changes a definition that other sessions use and that may run a function behind plain statements, or a function.
    pub defines: bool,
    /// It makes tables that run a function behind plain statements only if something else in the database does.
    pub adds_tables: bool,
    /// What it does with what the backend remembers of sequences; its `functions` aside.
    pub sequences: Sequences,
    /// It may end the transaction in its middle (CALL, DO), or is only possible in a transaction block (DECLARE): it matters what
    /// stands in front of it in its batch, which may have made one of it.
    pub heeds_batch: bool,
    /// The text was not read.
    pub unread: bool,
    /// Names that stand in its blocks of code, those of relations among them; with the functions of PostgreSQL's own that they call.
    pub code_names: Box<[Box<str>]>,
    /// A block of code may use any relation.
    pub any_relation: bool,
}

impl Plan {
    /// The plan of a text of which nothing is known.
    #[must_use]
    pub fn unknown() -> Self {
        Self {
            doubts: Aspects::ALL,
            stirs: true,
            discards: true,
            heeds_batch: true,
            unread: true,
            sequences: Sequences::UNKNOWN,
            ..Self::default()
        }
    }

    /// The plan of this text, of which nothing is known but its bytes.
    #[must_use]
    pub fn unknown_text(text: &[u8]) -> Self {
        Self { placeholders: dotted_names(text), ..Self::unknown() }
    }

    fn name(&mut self, name: &str) {
        if !self.names.iter().any(|other| **other == *name) {
            let mut names = std::mem::take(&mut self.names).into_vec();
            names.push(name.into());
            self.names = names.into();
        }
    }

    /// The custom settings that it may make, by name.
    pub fn custom_names(&self) -> impl Iterator<Item = Box<str>> {
        let set = self.steps.iter().flatten().filter_map(|action| match action {
            Action::Set { name, .. } if name.contains('.') => Some(name.clone()),
            _ => None,
        });
        set.chain(self.placeholders.iter().cloned())
    }

    /// Is there anything that counts only when the server has completed it?
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.changes_meaning || self.defaults || !self.pins.is_empty() || self.steps.iter().any(|step| !step.is_empty())
    }
}

/// How a session's texts have to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reading {
    /// `standard_conforming_strings` is on.
    pub standard_strings: bool,
    /// In the client's encoding, a byte that looks like ASCII is ASCII.
    pub ascii_apart: bool,
}

impl Default for Reading {
    fn default() -> Self {
        Self { standard_strings: true, ascii_apart: true }
    }
}

/// Reads texts. Each worker has one of its own.
#[derive(Debug)]
pub struct Reader {
    cache: Cache,
}

/// A text of so many bytes is read anew each time, because that costs less than to look it up and to keep it.
const SHORT: usize = 512;

/// What was found out about a text.
#[derive(Debug)]
pub enum Read {
    /// It leaves the session as it is, but for numbers that it may get from sequences.
    Plain {
        /// It may get such a number.
        advances: bool,
    },
    /// It begins a transaction, and does nothing else.
    Begin,
    /// It ends a transaction, and does nothing else.
    End,
    /// It does this.
    Plan(Arc<Plan>),
}

impl Reader {
    /// One that has read nothing. All of a process may have the same `secret`, which nobody else may know.
    #[must_use]
    pub fn new(secret: [u8; 16]) -> Self {
        let (a, b) = secret.split_at(8);
        let number = |half: &[u8]| half.iter().fold(0_u64, |n, b| n << 8 | u64::from(*b));
        Self { cache: Cache::new(Key::new(number(a), number(b)), Bounds::default()) }
    }

    /// The relations and functions that a text names, and whether it defines something; `None` if it cannot be read.
    pub fn facts(&mut self, text: &[u8], reading: Reading) -> Option<Arc<Facts>> {
        if !reading.ascii_apart && !text.is_ascii() {
            return None;
        }
        self.cache.facts(text, reading.standard_strings).ok()
    }

    /// What the text, without its zero byte, does.
    pub fn read(&mut self, text: &[u8], reading: Reading) -> Read {
        if !reading.ascii_apart && !text.is_ascii() {
            return Read::Plan(Arc::new(Plan::unknown_text(text)));
        }
        if text.len() <= SHORT {
            match self.cache.glance(text, reading.standard_strings) {
                Quick::PlainRead => return Read::Plain { advances: false },
                Quick::PlainWrite => return Read::Plain { advances: true },
                Quick::Begin => return Read::Begin,
                Quick::Commit | Quick::Rollback => return Read::End,
                Quick::NeedsFacts => {}
            }
        }
        let verdict = self.cache.judge(text, reading.standard_strings);
        match verdict.quick {
            Quick::PlainRead => Read::Plain { advances: false },
            Quick::PlainWrite => Read::Plain { advances: true },
            Quick::Begin => Read::Begin,
            Quick::Commit | Quick::Rollback => Read::End,
            Quick::NeedsFacts => plan_of(&verdict, text),
        }
    }
}

/// The plan that follows from facts, if the text does something to its session.
fn plan_of(verdict: &Verdict, text: &[u8]) -> Read {
    let Some(Ok(facts)) = &verdict.facts else { return Read::Plan(Arc::new(Plan::unknown_text(text))) };
    let plan = plan_of_facts(facts);
    let advances = plan.sequences.advances;
    let sequences = Sequences { advances, ..Sequences::NONE };
    let heeds_batch = plan.heeds_batch;
    if plan == (Plan { steps: plan.steps.clone(), sequences, heeds_batch, ..Plan::default() }) && !plan.is_awaited() {
        return Read::Plain { advances };
    }
    Read::Plan(Arc::new(plan))
}

fn plan_of_facts(facts: &Facts) -> Plan {
    let mut plan = Plan::default();
    let mut steps = Vec::with_capacity(facts.statements().len());
    let mut functions: Vec<Box<str>> = Vec::new();
    for statement in facts.statements() {
        steps.push(step_of(statement, &mut plan));
        functions.extend(std::mem::take(&mut plan.functions));
        for function in statement.unknown_functions() {
            if !functions.contains(&function.name.name) {
                functions.push(function.name.name.clone());
            }
        }
    }
    plan.changes_meaning = steps.iter().flatten().any(changes_meaning);
    plan.steps = steps.into();
    plan.functions = functions.into();
    plan
}

fn changes_meaning(action: &Action) -> bool {
    match action {
        Action::Set { name, .. } | Action::Local { name, .. } | Action::Reset(name) => is_planning(name),
        Action::ResetAll | Action::RollbackTo(_) | Action::DiscardAll => true,
        Action::Savepoint(_)
        | Action::Release(_)
        | Action::DiscardSequences
        | Action::Listen(_)
        | Action::Unlisten(_)
        | Action::Deallocate(_) => false,
    }
}

fn step_of(statement: &Statement, plan: &mut Plan) -> Box<[Action]> {
    let mut actions = Vec::new();
    if let Kind::Utility(Utility::Transaction(transaction)) = &statement.kind {
        match transaction {
            Transaction::Savepoint(name) => actions.push(Action::Savepoint(name.clone())),
            Transaction::Release(name) => actions.push(Action::Release(name.clone())),
            Transaction::RollbackTo(name) => actions.push(Action::RollbackTo(name.clone())),
            Transaction::Begin(_)
            | Transaction::Commit { .. }
            | Transaction::Rollback { .. }
            | Transaction::Prepare(_)
            | Transaction::CommitPrepared(_)
            | Transaction::RollbackPrepared(_) => {}
        }
    }
    // What is in a temporary schema, nobody else uses.
    let own = statement.effects.iter().any(|effect| matches!(effect, Effect::Temporary(_)));
    plan.defines |= !own && statement.effects.iter().any(|effect| reaches_others(effect, false));
    plan.adds_tables |= !own && statement.effects.iter().any(|effect| reaches_others(effect, true));
    let mut is_block = false;
    for effect in &statement.effects {
        is_block |= matches!(effect, Effect::Do { .. });
        effect_of(effect, &mut actions, plan);
    }
    if statement.opaque && !is_block {
        // What the expressions of a definition run is not known.
        plan.doubts |= Aspects::ALL;
        if !matches!(statement.kind, Kind::Utility(Utility::Definition)) {
            plan.sequences |= Sequences::UNKNOWN;
        }
    }
    plan.sequences.advances |= may_advance(statement);
    actions.into()
}

/// May the statement get numbers from sequences that its text does not name: by columns' defaults, or by triggers?
fn may_advance(statement: &Statement) -> bool {
    match &statement.kind {
        Kind::Select => !statement.reads_only,
        Kind::Insert | Kind::Update | Kind::Delete | Kind::Merge => true,
        Kind::Utility(utility) => match utility {
            Utility::Copy(copy) => copy.from || !statement.reads_only,
            Utility::Explain { analyze } => *analyze,
            Utility::CreateTableAs | Utility::Truncate | Utility::Declare => !statement.reads_only,
            // Some of these cannot stand behind another message in a batch: nothing may be put in front of them.
            Utility::Definition
            | Utility::Maintenance
            | Utility::Transaction(_)
            | Utility::Set
            | Utility::Reset
            | Utility::Constraints
            | Utility::Show(_)
            | Utility::Discard
            | Utility::Prepare
            | Utility::Execute
            | Utility::Deallocate
            | Utility::Fetch
            | Utility::Move
            | Utility::Close
            | Utility::Listen
            | Utility::Unlisten
            | Utility::Notify
            | Utility::Load
            | Utility::Lock
            | Utility::Do
            | Utility::Call => false,
        },
    }
}

/// May code that defines something, perhaps by a text that it makes, run ALTER ROLE, ALTER DATABASE or ALTER SYSTEM?
fn may_change_defaults(body: &str) -> bool {
    let body = body.to_ascii_lowercase();
    body.contains("alter") && ["role", "user", "database", "system"].iter().any(|word| body.contains(word))
}

/// May it make plain statements run a function? What is dropped only makes them run fewer. `plain`: as far as other definitions
/// do.
fn reaches_others(effect: &Effect, plain: bool) -> bool {
    let Effect::Definition(definition) = effect else { return false };
    definition.plain == plain
        && matches!(definition.verb, Verb::Create | Verb::Alter)
        && !matches!(definition.object, ObjectKind::Sequence | ObjectKind::Role | ObjectKind::Database)
}

fn effect_of(effect: &Effect, actions: &mut Vec<Action>, plan: &mut Plan) {
    match effect {
        Effect::Set(set) => set_of(set, actions, plan),
        Effect::Reset(Some(name)) => actions.push(Action::Reset(name.clone())),
        Effect::Reset(None) => actions.push(Action::ResetAll),
        Effect::TransactionModes(_) | Effect::Snapshot(_) | Effect::Notify(_) | Effect::Fetch { .. } => {}
        Effect::Call => plan.heeds_batch = true,
        Effect::Discard(Discard::All) => {
            actions.push(Action::DiscardAll);
            plan.ends = Aspects::ALL;
            plan.discards = true;
            plan.forgets = true;
            plan.stirs = true;
        }
        Effect::Discard(Discard::Plans) => {}
        Effect::Discard(Discard::Sequences) => actions.push(Action::DiscardSequences),
        Effect::Discard(Discard::Temp) => {
            plan.ends |= Aspects::TEMPORARY;
            plan.stirs = true;
        }
        Effect::Prepare { name, inside, .. } => {
            plan.doubts |= Aspects::PREPARED;
            plan.name(name);
            let inner = plan_inside(inside);
            if !(inner.pins.is_empty() && inner.functions.is_empty() && inner.placeholders.is_empty()) {
                let mut later = std::mem::take(&mut plan.later).into_vec();
                later.push((name.clone(), Arc::new(inner)));
                plan.later = later.into();
            }
        }
        Effect::Execute { name } => {
            // It does what the statement does that was prepared.
            plan.doubts |= Aspects::ALL.without(Aspects::PREPARED);
            plan.stirs = true;
            plan.executes = [&*plan.executes, std::slice::from_ref(name)].concat().into();
            plan.sequences |= Sequences::UNKNOWN;
            plan.name(name);
        }
        Effect::Deallocate(name) => {
            plan.ends |= Aspects::PREPARED;
            plan.discards = true;
            plan.stirs |= name.is_none();
            plan.forgets |= name.is_none();
            if let Some(name) = name {
                actions.push(Action::Deallocate(name.clone()));
                plan.name(name);
            }
        }
        Effect::Declare { hold, .. } => {
            plan.heeds_batch = true;
            if *hold {
                plan.doubts |= Aspects::CURSORS;
            }
        }
        Effect::Close(_) => plan.ends |= Aspects::CURSORS,
        Effect::Listen(channel) => {
            actions.push(Action::Listen(channel.clone()));
            let mut channels = std::mem::take(&mut plan.channels).into_vec();
            channels.push(channel.clone());
            plan.channels = channels.into();
        }
        Effect::Unlisten(channel) => {
            actions.push(Action::Unlisten(channel.clone()));
            plan.ends |= Aspects::CHANNELS;
        }
        Effect::Load(_) => {
            plan.pins |= Pins::LIBRARY;
            plan.stirs = true;
        }
        Effect::Do { language, body } => {
            plan.heeds_batch = true;
            let block = Routine::of_block(language, body);
            plan.doubts |= block.doubts;
            plan.pins |= block.pins;
            plan.stirs |= block.stirs;
            plan.placeholders = block.placeholders;
            plan.functions = block.calls;
            plan.sequences |= block.sequences;
            plan.code_names = [&*plan.code_names, &*block.names, &*block.builtins].concat().into();
            plan.any_relation |= block.any_relation;
            plan.defines |= block.definition;
            plan.defaults |= block.definition && may_change_defaults(body);
        }
        Effect::Temporary(temporary) => {
            plan.stirs = true;
            if temporary.on_commit != OnCommit::Drop {
                plan.doubts |= Aspects::TEMPORARY;
            }
        }
        Effect::Definition(definition) => match definition.verb {
            Verb::Drop => {
                plan.ends |= Aspects::TEMPORARY;
                plan.stirs = true;
            }
            Verb::Defaults => plan.defaults = true,
            Verb::Create | Verb::Alter => plan.stirs = true,
            Verb::Describe => {}
        },
        Effect::SettingsView => {
            plan.doubts |= Aspects::SETTINGS;
            plan.stirs = true;
        }
        Effect::SetConfig { name, value, local, once } => set_config_of(name, value, local, *once, actions, plan),
        Effect::Function { function, arguments: _ } => function_of(*function, plan),
    }
}

/// What a statement does that is prepared, as far as EXECUTE does not say it.
fn plan_inside(inside: &Inside) -> Plan {
    let mut inner = Plan::default();
    for effect in &inside.effects {
        let mut actions = Vec::new();
        effect_of(effect, &mut actions, &mut inner);
        inner.steps = [&*inner.steps, &[actions.into()]].concat().into();
    }
    let functions: BTreeSet<Box<str>> = inside.unknown_functions().map(|function| function.name.name.clone()).collect();
    inner.functions = functions.into_iter().collect();
    inner.placeholders = inner.custom_names().collect();
    inner.steps = Box::default();
    inner
}

/// Settings that concern the transaction only, whatever the form of SET.
fn is_of_transaction(name: &str) -> bool {
    ["transaction_isolation", "transaction_read_only", "transaction_deferrable"]
        .iter()
        .any(|setting| setting.eq_ignore_ascii_case(name))
}

fn set_of(set: &pgusher_sql::Set, actions: &mut Vec<Action>, plan: &mut Plan) {
    if is_of_transaction(&set.name) {
        return;
    }
    if set.name.eq_ignore_ascii_case("seed") {
        plan.pins |= Pins::SEED;
        return;
    }
    let name = set.name.clone();
    match (&set.value, set.local) {
        (Value::Text(value), false) if is_half(&name, value) => ask_setting(name, plan),
        (Value::Text(value), false) => actions.push(Action::Set { name, value: value.clone() }),
        (Value::Text(value), true) => actions.push(Action::Local { name, value: Some(value.clone()) }),
        (Value::Default, false) => actions.push(Action::Reset(name)),
        (_, true) => actions.push(Action::Local { name, value: None }),
        (Value::Current | Value::Interval { .. }, false) => ask_setting(name, plan),
    }
}

/// The value of this setting is the server's to say.
fn ask_setting(name: Box<str>, plan: &mut Plan) {
    plan.doubts |= Aspects::SETTINGS;
    plan.stirs = true;
    if name.contains('.') {
        let mut names = std::mem::take(&mut plan.placeholders).into_vec();
        names.push(name);
        plan.placeholders = names.into();
    }
}

fn set_config_of(
    name: &Argument,
    value: &Argument,
    local: &Argument,
    once: bool,
    actions: &mut Vec<Action>,
    plan: &mut Plan,
) {
    let (Some(setting), Some(local)) = (name.constant(), local.boolean()) else {
        let for_transaction = local.boolean() == Some(true);
        if for_transaction {
            actions.push(Action::Local { name: Box::default(), value: None });
            return;
        }
        match name.constant() {
            Some(setting) => ask_setting(setting.into(), plan),
            None => {
                plan.pins |= Pins::SETTING;
                plan.stirs = true;
            }
        }
        return;
    };
    if is_of_transaction(setting) {
        return;
    }
    let name: Box<str> = setting.into();
    match (local, value) {
        (true, Argument::Constant(value)) if once => actions.push(Action::Local { name, value: Some(value.clone()) }),
        (true, _) => actions.push(Action::Local { name, value: None }),
        (false, Argument::Constant(value)) if once && !is_half(&name, value) => {
            actions.push(Action::Set { name, value: value.clone() })
        }
        (false, Argument::Null) if once => actions.push(Action::Reset(name)),
        (false, _) => ask_setting(name, plan),
    }
}

fn function_of(function: SessionFunction, plan: &mut Plan) {
    use SessionFunction as F;
    match function {
        F::AdvisoryLock(LockSpan::Session) => plan.doubts |= Aspects::LOCKS,
        F::AdvisoryUnlock | F::AdvisoryUnlockAll => plan.ends |= Aspects::LOCKS,
        F::AdvisoryLock(LockSpan::Transaction)
        | F::Notify
        | F::LargeObject
        | F::ReadsBackend
        | F::ExportSnapshot
        // Its own effect says more.
        | F::SetConfig => {}
        F::NextValue => plan.sequences.advances = true,
        // Not what lastval answers: what a neighbour has left may be read behind it.
        F::SetValue => plan.sequences |= Sequences::UNKNOWN,
        F::CurrentValue => plan.sequences.named = true,
        F::LastValue => plan.sequences.last = true,
        F::SetSeed => plan.pins |= Pins::SEED,
        F::ReplicationOrigin | F::Backup | F::ForeignConnection => plan.pins |= Pins::EXTENSION,
        F::RunsText => {
            plan.doubts = Aspects::ALL;
            plan.stirs = true;
            plan.sequences |= Sequences::UNKNOWN;
        }
    }
}

/// Names with a dot in them: a setting of the user's own may be among them.
fn dotted_names(text: &[u8]) -> Box<[Box<str>]> {
    // More than a session may leave open: then it keeps its connection.
    const MOST: usize = 300;
    let mut names: Vec<Box<str>> = Vec::new();
    for word in text.split(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$' | b'.'))) {
        let begins = word.first().is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_');
        let ends = word.last().is_some_and(|b| *b != b'.');
        if let (true, true, Ok(name)) = (begins && ends, word.contains(&b'.'), std::str::from_utf8(word)) {
            if name.len() <= 128 && names.len() < MOST && !names.iter().any(|other| **other == *name) {
                names.push(name.into());
            }
        }
    }
    names.into()
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
