//! Connection strings as libpq understands them: the words (`keyword`), the two spellings (`keyvalue`, `uri`), the
//! places that values come from besides the string (`environment`, `service`, `passfile`), and what one may set
//! (`Params`). What the values mean together is decided in `crate::config`.
//!
//! Source: PostgreSQL documentation, chapter "Connection Strings", and `src/interfaces/libpq/fe-connect.c`.

mod environment;
mod error;
mod keyvalue;
mod keyword;
mod params;
mod passfile;
mod service;
mod uri;

pub use environment::Environment;
pub use error::ConninfoError;
pub use keyword::Keyword;
pub use params::Params;
pub use passfile::{PassQuery, password_from_file};
