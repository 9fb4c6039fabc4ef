//! What a database's definitions may do to a session behind the back of a plain statement. No I/O.
//!
//! A plain INSERT may fire a trigger whose function calls `set_config`; a view, a default, a policy or a cast may as well.
//! [`question`] is the text of one simple Query that asks a database for its definitions, [`Reader`] takes the rows of the answer,
//! and [`Knowledge`] says which relations can change a session that uses them. In most databases there are none.
//!
//! **What is asked.** All functions of the users' own with their bodies, because each may be called by one that a definition
//! reaches, and calls are found by the names in bodies; to follow them on the server would cost more than to send the bodies.
//! Left out are functions in C of extensions: they are judged by name where a body calls them. Further: what reaches a function
//! (triggers, rules and views, defaults, constraints, policies, index and partition expressions; operators, casts, types, domains,
//! aggregates, event triggers), what reaches a built-in function that changes sessions, and which relation leads to another
//! (views, rules, policies, inheritance and partitions, cascading foreign keys); and which relations are foreign, or reach a volatile
//! function in C by a rule or policy: those change no session, but a query of them cannot be run twice.
//!
//! **How it is judged.** A function is in doubt by its body ([`pgusher_sql::body`]), by a function that it calls, or by the name
//! of a relation in doubt in its body. A relation is in doubt by a function that it reaches or by another relation it leads to. This
//! is repeated until nothing is added. Relations and functions go by their plain names; those of one name in several schemas count
//! as one. `nextval` and `setval` do not count: a column of type `serial` is innocent.
//!
//! **What it costs** to ask again is little while nothing has changed: the first rows of the answer are hashes of the versions of
//! the catalogs' rows, and with the one from last time in the question, bodies come only after a change. The amount is bounded:
//! with more than [`MAX_FUNCTIONS`] functions or [`MAX_BYTES`] of bodies every statement is in doubt.
//!
//! Not known here: what a function does that a statement itself calls is for [`Knowledge::function`] and the relation cache;
//! C functions of extensions that a definition reaches are taken to be innocent; DISABLEd triggers count as if they were on.

mod judge;
mod question;
mod reader;

use std::collections::{HashMap, HashSet};

pub use question::question;
pub use reader::{MAX_BYTES, MAX_FUNCTIONS, MAX_ROWS, ReadError, Reader};

/// What a database's definitions may do to sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Knowledge {
    /// Hash of the defaults that ALTER DATABASE and ALTER ROLE have set for this database and role; 0 if there are none. When it
    /// changes, connections opened earlier have other defaults than new ones.
    pub defaults: u64,
    /// Hash of the versions of all definitions: for the next [`question`].
    pub version: u64,
    /// Something that is not bound to a relation (an operator, a cast, a type, a domain) may change sessions: every statement is in
    /// doubt. So it is when there is too much to know.
    pub everywhere: bool,
    /// There were too many functions or too long ones.
    pub too_many: bool,
    /// An event trigger may change sessions: every statement that defines something (CREATE, ALTER, DROP, GRANT) is in doubt.
    pub definitions: bool,
    /// An event trigger on login may: sessions begin with more than their defaults.
    pub login: bool,
    /// A function in doubt has the name of a harmless one of PostgreSQL's own, so that calls of it look harmless.
    pub hides: bool,
    /// A definition may reach a function that makes settings whose names are not known.
    pub nameless: bool,
    relations: HashSet<Box<str>>,
    /// Any statement may run a function of the users' own.
    code_everywhere: bool,
    /// Relations whose use may.
    code: HashSet<Box<str>>,
    functions: HashMap<Box<str>, bool>,
    placeholders: Box<[Box<str>]>,
}

impl Knowledge {
    /// Whether nothing in this database changes sessions but what statements do themselves, calls of functions included.
    #[must_use]
    pub fn is_innocent(&self) -> bool {
        !self.everywhere && !self.definitions && !self.login && !self.hides && self.relations.is_empty()
    }

    /// Whether a statement may change its session by using one of these relations. Names are without their schemas, as PostgreSQL
    /// folds them.
    #[must_use]
    pub fn touches<'a>(&self, mut relation_names: impl Iterator<Item = &'a str>) -> bool {
        self.everywhere || relation_names.any(|name| self.relations.contains(name))
    }

    /// Whether a call of the user-defined functions of this name may change the session; `None` if none of that name is known
    /// here, as for PostgreSQL's own and those in C of extensions. Always doubtful when there were too many.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<bool> {
        if self.too_many { Some(true) } else { self.functions.get(name).copied() }
    }

    /// Whether a query that uses these relations, and calls these functions, may run a function of the users' own, whatever that
    /// does, or by a view or policy a volatile one in C, such as `nextval`. Functions in C that the query itself calls are left out:
    /// they are known by their names or not at all. Names as in [`touches`](Self::touches).
    #[must_use]
    pub fn runs_code<'a>(
        &self,
        mut relation_names: impl Iterator<Item = &'a str>,
        mut function_names: impl Iterator<Item = &'a str>,
    ) -> bool {
        self.code_everywhere
            || self.too_many
            || relation_names.any(|name| self.code.contains(name))
            || function_names.any(|name| self.functions.contains_key(name))
    }

    /// Names of custom settings that may be made by what definitions reach. Sorted.
    #[must_use]
    pub fn placeholders(&self) -> &[Box<str>] {
        &self.placeholders
    }

    /// Whether any relation is in doubt.
    #[must_use]
    pub fn doubts_relations(&self) -> bool {
        self.everywhere || !self.relations.is_empty()
    }

    /// The relations in doubt, in no order.
    pub fn relations(&self) -> impl Iterator<Item = &str> {
        self.relations.iter().map(|name| &**name)
    }
}
