//! What was found.

use super::Aspects;

/// What a session holds. What was not asked is empty.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Findings {
    /// The session's own settings as they are now, for [`Settings::from_pairs`](crate::Settings::from_pairs); `None` if not
    /// asked. `role` and `session_authorization` are among them when they are not those of the login. An empty custom
    /// placeholder is one that was set, and then perhaps reset or rolled back.
    pub settings: Option<Vec<(String, String)>>,
    /// There is more than the findings can say: a setting or a name that is no UTF-8, or a value of more than
    /// [`MAX_VALUE`](super::MAX_VALUE) bytes.
    pub unrepresentable: bool,
    /// There are objects in the temporary schema.
    pub temporary: bool,
    /// The session holds advisory locks.
    pub locks: bool,
    /// There are cursors WITH HOLD.
    pub cursors: bool,
    /// The channels that it listens to.
    pub channels: Vec<String>,
    /// The statements that it has prepared.
    pub prepared: Vec<PreparedStatement>,
    /// All functions and procedures of the names asked for, in whatever schema but pg_catalog and information_schema.
    pub functions: Vec<FunctionDefinition>,
}

impl Findings {
    /// What was found, besides settings and functions, that stays with the physical connection.
    pub fn held(&self) -> Aspects {
        [
            (self.temporary, Aspects::TEMPORARY),
            (self.locks, Aspects::LOCKS),
            (self.cursors, Aspects::CURSORS),
            (!self.channels.is_empty(), Aspects::CHANNELS),
            (!self.prepared.is_empty(), Aspects::PREPARED),
        ]
        .iter()
        .filter(|(held, _)| *held)
        .fold(Aspects::NONE, |all, (_, aspect)| all | *aspect)
    }
}

/// A prepared statement that is not the manager's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedStatement {
    /// Its name.
    pub name: String,
    /// By PREPARE, and not by a Parse message.
    pub from_sql: bool,
    /// The text that prepared it: the PREPARE statement itself, with all that was sent in one Query together with it. `None`
    /// if it is no UTF-8 or longer than [`MAX_TEXT`](super::MAX_TEXT).
    pub text: Option<String>,
}

/// A function or procedure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionDefinition {
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// The name of its language.
    pub language: String,
    /// Its source (pg_proc.prosrc); for a function written in C, the name of its symbol. Empty for one of the language `sql` whose
    /// body the server keeps parsed (BEGIN ATOMIC, RETURN). `None` if it is no UTF-8 or longer than
    /// [`MAX_TEXT`](super::MAX_TEXT).
    pub body: Option<String>,
    /// It has settings of its own while it runs (`SET` in its definition).
    pub configured: bool,
    /// `f` function, `p` procedure, `a` aggregate, `w` window function (pg_proc.prokind).
    pub kind: char,
}
