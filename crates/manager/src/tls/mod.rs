//! TLS as it is configured: towards clients ([`Clients`]) and towards servers ([`Servers`]). Files are read here, once, at
//! start. The bytes are the driver's business (`worker::tls`); the core only decides when a connection becomes TLS.

mod clients;
mod servers;

pub use clients::{ClientTlsMode, ClientTlsOptions, Clients};
pub use servers::{Encryption, Servers};
