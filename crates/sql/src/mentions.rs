//! Which words and names of a text hint at an effect on its session. A hint is neither proof nor needed for one: a function of
//! the user's own may do anything. It tells, cheaply, what is worth a closer look.

use crate::functions::SessionFunction;
use crate::words::Word;

/// Words and names that hint at an effect on the session, wherever they stand in the text: a set of [`Mention`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mentions(u32);

/// One of [`Mentions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mention {
    /// `set_config`
    SetConfig,
    /// `nextval`, `currval`, `lastval`, `setval`
    Sequence,
    /// The functions of advisory locks.
    AdvisoryLock,
    /// `pg_notify`, NOTIFY
    Notify,
    /// Another function of [`SessionFunction`].
    OtherFunction,
    /// TEMP, TEMPORARY, `pg_temp`
    Temporary,
    /// LISTEN, UNLISTEN
    Listen,
    /// PREPARE, EXECUTE, DEALLOCATE
    Prepare,
    /// DECLARE
    Declare,
    /// SET
    Set,
    /// RESET
    Reset,
    /// DISCARD
    Discard,
    /// LOAD
    Load,
    /// DO
    Do,
    /// CALL
    Call,
    /// CREATE, ALTER, DROP
    Definition,
    /// `pg_settings` and the views of prepared statements and cursors.
    SessionView,
}

impl Mentions {
    /// Whether this one is there.
    #[must_use]
    pub fn has(self, mention: Mention) -> bool {
        self.0 & (1 << mention as u32) != 0
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn add(&mut self, mention: Mention) {
        self.0 |= 1 << mention as u32;
    }

    pub(crate) fn add_word(&mut self, word: Word) {
        self.add(match word {
            Word::Temp | Word::Temporary | Word::PgTemp => Mention::Temporary,
            Word::Listen | Word::Unlisten => Mention::Listen,
            Word::Notify => Mention::Notify,
            Word::Prepare | Word::Execute | Word::Deallocate => Mention::Prepare,
            Word::Declare => Mention::Declare,
            Word::Set => Mention::Set,
            Word::Reset => Mention::Reset,
            Word::Discard => Mention::Discard,
            Word::Load => Mention::Load,
            Word::Do => Mention::Do,
            Word::Call => Mention::Call,
            Word::Create | Word::Alter | Word::Drop => Mention::Definition,
            Word::PgSettings | Word::PgPreparedStatements | Word::PgCursors => Mention::SessionView,
            _ => return,
        });
    }

    pub(crate) fn add_function(&mut self, function: SessionFunction) {
        self.add(match function {
            SessionFunction::SetConfig => Mention::SetConfig,
            SessionFunction::NextValue
            | SessionFunction::SetValue
            | SessionFunction::CurrentValue
            | SessionFunction::LastValue => Mention::Sequence,
            SessionFunction::AdvisoryLock(_) | SessionFunction::AdvisoryUnlock | SessionFunction::AdvisoryUnlockAll => {
                Mention::AdvisoryLock
            }
            SessionFunction::Notify => Mention::Notify,
            SessionFunction::SetSeed
            | SessionFunction::LargeObject
            | SessionFunction::ReadsBackend
            | SessionFunction::ReplicationOrigin
            | SessionFunction::ExportSnapshot
            | SessionFunction::Backup
            | SessionFunction::RunsText
            | SessionFunction::ForeignConnection => Mention::OtherFunction,
        });
    }
}
