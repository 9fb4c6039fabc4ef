//! One logical session as the manager sees it, without I/O: what the server still owes ([`ledger`]), which values the
//! session's settings have ([`settings`]) and how they go through its transactions ([`live`]), what it has prepared
//! ([`statements`]), what a text will do to it ([`plan`]), what a function does ([`routine`]), the question to the server when
//! nobody can know what it holds ([`audit`]), what the database's definitions do behind the back of plain statements
//! ([`knowledge`]), and what it does with what the backend remembers of sequences ([`sequences`]).
//!
//! The session keeps the truth; a physical connection is made to agree with it before it is used.

pub mod aspects;
pub mod audit;
pub mod knowledge;
pub mod ledger;
pub mod listening;
pub mod live;
pub mod plan;
pub mod routine;
pub mod sequences;
pub mod settings;
pub mod statements;

pub use aspects::{Aspects, Pins};
pub use ledger::Ledger;
pub use sequences::Sequences;
pub use settings::Settings;
