//! One logical session as the manager sees it, without I/O: what the server still owes ([`ledger`]), which values the
//! session's settings have ([`settings`]), what it has prepared ([`statements`]), and the question to the server when nobody
//! can know what it holds ([`audit`]).
//!
//! The session keeps the truth; a physical connection is made to agree with it before it is used.

pub mod audit;
pub mod ledger;
pub mod settings;
pub mod statements;

pub use ledger::Ledger;
pub use settings::Settings;
