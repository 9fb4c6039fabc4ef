//! Session scripts: what clients do, as data; played directly and through the manager, and compared.
//!
//! `script` reads a file, `side` is a client's connection, `play` carries a script out, `compare` says where two runs differ,
//! `neighbours` disturb, `ground` makes a database ready for a script. The files are described in tests/sessions/README.md.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

pub mod compare;
pub mod ground;
pub mod neighbours;
pub mod play;
pub mod script;
pub mod side;
