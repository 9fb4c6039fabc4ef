//! What a statement of SQL does to the session it runs in.
mod functions;
mod outline;
mod quick;
mod scan;
mod words;
pub use functions::{LockSpan, SessionFunction, is_harmless};
pub use outline::{Fingerprint, Key, Mention, Mentions, Outline, Part};
pub use quick::Quick;
pub use scan::{Scanner, Token, TokenKind, encoding_keeps_ascii_apart};
pub use words::Word;
