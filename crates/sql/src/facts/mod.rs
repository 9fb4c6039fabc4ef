//! What PostgreSQL's own grammar says of a text: values, made once, never changed, shared by reference counting.
//!
//! Facts are syntax. They name the functions that a statement calls, not what those do; they name relations as written, not as
//! `search_path` resolves them; triggers, rules, defaults, casts and operators are not seen. For that there is the relation
//! cache. Facts hold no offsets into the text, so that texts with one fingerprint can share them, unless they are
//! [bound to the text](Facts::text_bound) by a constant that matters, such as the value of a SET.

mod argument;
mod definition;
mod expression;
mod grammar;
mod parse;
mod prepared;
mod query;
mod setting;
mod statement;
mod table;
mod walk;

pub use argument::Argument;
pub use definition::{Definition, ObjectKind, OnCommit, Temporary, Verb};
pub use parse::{Limits, Unknown};
pub use setting::{Isolation, Modes, Set, Value, is_identifier_list};

use crate::functions::{SessionFunction, is_harmless};

/// The facts of all statements of one text, in order. Empty statements have none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub(crate) statements: Box<[Statement]>,
}

impl Facts {
    /// The statements.
    #[must_use]
    pub fn statements(&self) -> &[Statement] {
        &self.statements
    }

    /// Whether a constant of the text is part of these facts: then they hold for this text only, not for others with its
    /// fingerprint.
    #[must_use]
    pub fn text_bound(&self) -> bool {
        self.statements.iter().any(Statement::text_bound)
    }

    /// Roughly how much memory they take, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        size_of::<Self>() + self.statements.iter().map(Statement::size).sum::<usize>()
    }
}

/// One statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// What it is.
    pub kind: Kind,
    /// Whether it writes nothing by its syntax: no table, no row locks, no object. A function that it calls may still write.
    pub reads_only: bool,
    /// What it does to its session, in the order of the text. What is explained only (EXPLAIN without ANALYZE), or put into a
    /// definition, is not done.
    pub effects: Box<[Effect]>,
    /// The relations that it names, each once per use; names of its own WITH are none.
    pub relations: Box<[Relation]>,
    /// The functions that it calls, each once. The grammar's own constructs (COALESCE, EXTRACT of a field, CURRENT_USER) are none,
    /// or are there under the name that PostgreSQL gives them.
    pub functions: Box<[Function]>,
    /// The parameters that it uses, in ascending order, each once.
    pub parameters: Box<[u16]>,
    /// Whether it holds something that runs and was not looked into: a DO block, expressions in a definition.
    pub opaque: bool,
}

impl Statement {
    /// The highest parameter, 0 when there is none.
    #[must_use]
    pub fn highest_parameter(&self) -> u16 {
        self.parameters.last().copied().unwrap_or(0)
    }

    /// The functions of which nothing is known: neither on the list of harmless ones nor among [`SessionFunction`].
    pub fn unknown_functions(&self) -> impl Iterator<Item = &Function> {
        self.functions.iter().filter(|function| function.is_unknown())
    }

    /// Whether all that it does to its session is in [`Statement::effects`], as far as its text can tell.
    #[must_use]
    pub fn is_known(&self) -> bool {
        !self.opaque && self.unknown_functions().next().is_none()
    }

    /// Whether it is known and leaves its session as it was.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.is_known() && self.effects.is_empty() && !matches!(self.kind, Kind::Utility(Utility::Transaction(_)))
    }

    /// Whether it is a query that writes nothing and calls nothing but harmless functions of PostgreSQL's own, as far as its text
    /// can tell: to run it twice is the same as to run it once.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        self.kind == Kind::Select && self.reads_only && self.is_plain()
    }

    fn text_bound(&self) -> bool {
        let kind = match &self.kind {
            Kind::Utility(Utility::Transaction(transaction)) => transaction.text_bound(),
            Kind::Select | Kind::Insert | Kind::Update | Kind::Delete | Kind::Merge | Kind::Utility(_) => false,
        };
        kind || self.effects.iter().any(Effect::text_bound)
    }

    fn size(&self) -> usize {
        // Boxes of names beside the values themselves, with what an allocation costs.
        size_of::<Self>()
            + self.effects.iter().map(|effect| size_of::<Effect>() + effect.size()).sum::<usize>()
            + self.relations.iter().map(|relation| size_of::<Relation>() + relation.name.size()).sum::<usize>()
            + self.functions.iter().map(|function| size_of::<Function>() + function.name.size()).sum::<usize>()
            + size_of_val(&*self.parameters)
    }
}

/// What a statement is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SELECT, VALUES, TABLE; not SELECT INTO.
    Select,
    /// INSERT
    Insert,
    /// UPDATE
    Update,
    /// DELETE
    Delete,
    /// MERGE
    Merge,
    /// All others.
    Utility(Utility),
}

/// A statement that is no query. What it carries is in [`Statement::effects`] where it concerns the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Utility {
    /// BEGIN, COMMIT, SAVEPOINT and the like.
    Transaction(Transaction),
    /// SET, in all its forms but SET CONSTRAINTS.
    Set,
    /// RESET
    Reset,
    /// SET CONSTRAINTS: lasts to the end of the transaction.
    Constraints,
    /// SHOW of this setting, or of `all`.
    Show(Box<str>),
    /// DISCARD
    Discard,
    /// PREPARE
    Prepare,
    /// EXECUTE
    Execute,
    /// DEALLOCATE
    Deallocate,
    /// DECLARE
    Declare,
    /// FETCH
    Fetch,
    /// MOVE
    Move,
    /// CLOSE
    Close,
    /// LISTEN
    Listen,
    /// UNLISTEN
    Unlisten,
    /// NOTIFY
    Notify,
    /// LOAD
    Load,
    /// LOCK TABLE: to the end of the transaction.
    Lock,
    /// DO
    Do,
    /// CALL
    Call,
    /// COPY
    Copy(Copy),
    /// EXPLAIN
    Explain {
        /// Whether it runs the statement.
        analyze: bool,
    },
    /// CREATE TABLE AS, CREATE MATERIALIZED VIEW, SELECT INTO
    CreateTableAs,
    /// TRUNCATE
    Truncate,
    /// VACUUM, ANALYZE, CLUSTER, REINDEX, REFRESH, CHECKPOINT
    Maintenance,
    /// CREATE, ALTER, DROP, COMMENT, GRANT and the like.
    Definition,
}

/// Transaction control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transaction {
    /// BEGIN, START TRANSACTION
    Begin(Modes),
    /// COMMIT, END
    Commit {
        /// AND CHAIN
        chain: bool,
    },
    /// ROLLBACK, ABORT
    Rollback {
        /// AND CHAIN
        chain: bool,
    },
    /// SAVEPOINT
    Savepoint(Box<str>),
    /// RELEASE SAVEPOINT
    Release(Box<str>),
    /// ROLLBACK TO SAVEPOINT
    RollbackTo(Box<str>),
    /// PREPARE TRANSACTION
    Prepare(Box<str>),
    /// COMMIT PREPARED
    CommitPrepared(Box<str>),
    /// ROLLBACK PREPARED
    RollbackPrepared(Box<str>),
}

impl Transaction {
    fn text_bound(&self) -> bool {
        match self {
            Self::Prepare(_) | Self::CommitPrepared(_) | Self::RollbackPrepared(_) => true,
            // The isolation level is written in words; names of savepoints are part of the fingerprint.
            Self::Begin(_)
            | Self::Commit { .. }
            | Self::Rollback { .. }
            | Self::Savepoint(_)
            | Self::Release(_)
            | Self::RollbackTo(_) => false,
        }
    }
}

/// COPY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Whether it writes a table (COPY ... FROM).
    pub from: bool,
    /// Where the other end is.
    pub end: CopyEnd,
}

/// The other end of a COPY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyEnd {
    /// The client, by the protocol's COPY messages (STDIN, STDOUT).
    Client,
    /// A file of the server.
    File,
    /// A program that the server runs.
    Program,
}

/// What a statement does to its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// SET. SESSION CHARACTERISTICS are there as the settings that they stand for.
    Set(Set),
    /// RESET of one setting, or of all (`None`).
    Reset(Option<Box<str>>),
    /// SET TRANSACTION: modes of the transaction under way.
    TransactionModes(Modes),
    /// SET TRANSACTION SNAPSHOT
    Snapshot(Box<str>),
    /// DISCARD
    Discard(Discard),
    /// PREPARE
    Prepare {
        /// The name of the statement.
        name: Box<str>,
        /// The types of its parameters, as written.
        types: Box<[Box<str>]>,
        /// The text of what is prepared.
        text: Box<str>,
        /// What that does when it is executed.
        inside: Inside,
    },
    /// EXECUTE, also within EXPLAIN and CREATE TABLE AS.
    Execute {
        /// The name of the statement.
        name: Box<str>,
    },
    /// DEALLOCATE of one statement, or of all (`None`).
    Deallocate(Option<Box<str>>),
    /// DECLARE
    Declare {
        /// The name of the cursor.
        name: Box<str>,
        /// WITH HOLD: it outlives its transaction.
        hold: bool,
        /// BINARY
        binary: bool,
        /// SCROLL (`Some(true)`) or NO SCROLL.
        scroll: Option<bool>,
    },
    /// FETCH or MOVE in this cursor.
    Fetch {
        /// The name of the cursor.
        name: Box<str>,
    },
    /// CLOSE of one cursor, or of all (`None`).
    Close(Option<Box<str>>),
    /// LISTEN
    Listen(Box<str>),
    /// UNLISTEN of one channel, or of all (`None`).
    Unlisten(Option<Box<str>>),
    /// NOTIFY: sent at commit.
    Notify(Box<str>),
    /// LOAD
    Load(Box<str>),
    /// DO: the block runs as it stands.
    Do {
        /// The language; `plpgsql` when the statement names none.
        language: Box<str>,
        /// The block.
        body: Box<str>,
    },
    /// CALL: the procedure is in [`Statement::functions`].
    Call,
    /// A temporary object is made.
    Temporary(Temporary),
    /// Something in the catalogs is made, changed or dropped.
    Definition(Definition),
    /// `UPDATE pg_settings`: sets what it names.
    SettingsView,
    /// A call of `set_config`.
    SetConfig {
        /// The setting.
        name: Argument,
        /// Its value; `Null` resets.
        value: Argument,
        /// Whether for the transaction only.
        local: Argument,
        /// Whether it is called exactly once: in the list of a SELECT without FROM, WHERE and the like.
        once: bool,
    },
    /// A call of another function that concerns the session.
    Function {
        /// Which.
        function: SessionFunction,
        /// With what.
        arguments: Box<[Argument]>,
    },
}

impl Effect {
    fn text_bound(&self) -> bool {
        match self {
            Self::Set(set) => set.has_constant(),
            Self::Snapshot(_) | Self::Prepare { .. } | Self::Load(_) | Self::Do { .. } => true,
            Self::SetConfig { name, value, local, once: _ } => {
                [name, value, local].into_iter().any(Argument::is_constant)
            }
            Self::Function { function: _, arguments } => arguments.iter().any(Argument::is_constant),
            Self::Definition(definition) => definition.text_bound(),
            Self::Reset(_)
            | Self::TransactionModes(_)
            | Self::Discard(_)
            | Self::Execute { .. }
            | Self::Deallocate(_)
            | Self::Declare { .. }
            | Self::Fetch { .. }
            | Self::Close(_)
            | Self::Listen(_)
            | Self::Unlisten(_)
            | Self::Notify(_)
            | Self::Call
            | Self::Temporary(_)
            | Self::SettingsView => false,
        }
    }

    fn size(&self) -> usize {
        let maybe = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
        match self {
            Self::Set(set) => set.size(),
            Self::Reset(text) | Self::Deallocate(text) | Self::Close(text) | Self::Unlisten(text) => maybe(text),
            Self::Snapshot(text) | Self::Listen(text) | Self::Notify(text) | Self::Load(text) => text.len(),
            Self::Execute { name } | Self::Declare { name, .. } | Self::Fetch { name } => name.len(),
            Self::Prepare { name, types, text, inside } => {
                inside.size()
                    + name.len()
                    + text.len()
                    + types.iter().map(|text| size_of::<Box<str>>() + text.len()).sum::<usize>()
            }
            Self::Do { language, body } => language.len() + body.len(),
            Self::Temporary(temporary) => temporary.name.size(),
            Self::Definition(definition) => definition.size(),
            Self::SetConfig { name, value, local, once: _ } => name.size() + value.size() + local.size(),
            Self::Function { function: _, arguments } => {
                arguments.iter().map(|argument| size_of::<Argument>() + argument.size()).sum()
            }
            Self::TransactionModes(_) | Self::Discard(_) | Self::Call | Self::SettingsView => 0,
        }
    }
}

/// What a statement that is prepared does to the session of who executes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inside {
    /// As [`Statement::effects`].
    pub effects: Box<[Effect]>,
    /// As [`Statement::functions`].
    pub functions: Box<[Function]>,
}

impl Inside {
    /// The functions of which nothing is known, as [`Statement::unknown_functions`].
    pub fn unknown_functions(&self) -> impl Iterator<Item = &Function> {
        self.functions.iter().filter(|function| function.is_unknown())
    }

    fn size(&self) -> usize {
        self.effects.iter().map(|effect| size_of::<Effect>() + effect.size()).sum::<usize>()
            + self.functions.iter().map(|function| size_of::<Function>() + function.name.size()).sum::<usize>()
    }
}

/// What DISCARD discards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Discard {
    /// Everything: settings, cursors, statements, channels, locks, plans, sequences, temporary objects.
    All,
    /// Cached plans.
    Plans,
    /// What nextval left behind.
    Sequences,
    /// Temporary objects.
    Temp,
}

/// A name as written, with its schema if one was written; folded or unquoted as PostgreSQL does it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    /// The schema.
    pub schema: Option<Box<str>>,
    /// The name.
    pub name: Box<str>,
}

impl Name {
    /// Whether it names the schema of the session's temporary objects.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        self.schema.as_deref() == Some("pg_temp")
    }

    fn size(&self) -> usize {
        self.name.len() + self.schema.as_ref().map_or(0, |schema| schema.len())
    }
}

/// What is done with a relation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// It is read.
    Read,
    /// Rows are added, changed or removed, or it is locked or truncated.
    Write,
    /// It is made, changed or dropped itself.
    Define,
}

/// A relation that a statement names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Relation {
    /// Its name.
    pub name: Name,
    /// What is done with it.
    pub access: Access,
}

/// A function that a statement calls.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Function {
    /// Its name.
    pub name: Name,
    /// How many arguments it is given.
    pub arguments: u16,
}

impl Function {
    /// Whether the name belongs to PostgreSQL: it has no schema, or `pg_catalog`.
    fn may_be_built_in(&self) -> bool {
        self.name.schema.as_deref().is_none_or(|schema| schema == "pg_catalog")
    }

    /// What the session has to know of it.
    #[must_use]
    pub fn session_function(&self) -> Option<SessionFunction> {
        if self.may_be_built_in() { SessionFunction::of_name(&self.name.name) } else { None }
    }

    fn is_unknown(&self) -> bool {
        !(self.may_be_built_in() && (is_harmless(&self.name.name) || self.session_function().is_some()))
    }
}
