//! What goes in and out of the core, apart from bytes that arrive.

use crate::auth::Facts;
use crate::core::{Origin, Rows, Word};
use crate::shared::{PoolEntry, ServerAddress};
use crate::tls::Encryption;
use pgusher_auth::{Derivation, ScramKeys};
use pgusher_pool::{Micros, Seat, WorkerId};
use pgusher_wire::Report;
use std::ops::Range;
use std::sync::Arc;
use zeroize::Zeroizing;

/// A connection of this worker, by its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConnId {
    /// A connection from an application.
    Client(u32),
    /// A connection to a PostgreSQL backend.
    Server(u32),
    /// A connection to a PostgreSQL server that carries a cancel request and ends.
    Cancel(u32),
}

/// Bytes to be sent.
#[derive(Debug)]
pub enum Bytes {
    /// A part of the buffer that was given to the core in the call just made.
    Input(Range<usize>),
    /// A part of what [`Core::composed`](super::Core::composed) gives.
    Composed(Range<usize>),
    /// Bytes of our own.
    Owned(Vec<u8>),
    /// The same, and nobody else may see them: they are wiped.
    Secret(Zeroizing<Vec<u8>>),
}

/// Something for the driver to do.
#[derive(Debug)]
pub enum Output {
    /// Send bytes, after those that could not be sent yet.
    Send {
        /// To this connection.
        to: ConnId,
        /// These.
        bytes: Bytes,
    },
    /// Connect to this address; [`ConnId::Server`] or [`ConnId::Cancel`].
    Connect {
        /// The slot that the connection will have.
        conn: ConnId,
        /// Where to.
        address: Arc<ServerAddress>,
        /// With TLS or without.
        encryption: Encryption,
    },
    /// What the client sends and gets from now on is TLS. To be answered with
    /// [`Core::client_secured`](super::Core::client_secured) at the end of the handshake.
    StartTls(ConnId),
    /// Close the connection once everything has been sent. The slot is free already.
    Close(ConnId),
    /// Stop reading.
    Pause(ConnId),
    /// Read again.
    Resume(ConnId),
    /// Take the physical connection out with [`Core::take_server`](super::Core::take_server) and send it, with its socket,
    /// to the worker of `client`.
    HandOver {
        /// Slot of the server.
        server: u32,
        /// Who gets it.
        client: Seat,
        /// Since when the client has waited.
        since: Micros,
    },
    /// The buffer of the call just made held a secret: wipe it.
    Wipe,
    /// Send this to another worker.
    Mail(WorkerId, Mail),
    /// Ask the control side.
    Ask(Question),
}

/// A message to a worker's core.
#[derive(Debug)]
pub enum Mail {
    /// The pool has promised the receiver's idle `server` to `client`.
    Fetch {
        /// The server.
        server: Seat,
        /// The client.
        client: Seat,
        /// Since when it has waited.
        since: Micros,
    },
    /// The server that was promised to `client` is gone.
    Missed {
        /// The client.
        client: Seat,
        /// Since when it has waited.
        since: Micros,
    },
    /// No server can be had for `client`.
    NoServer {
        /// The client.
        client: Seat,
        /// Why.
        report: Arc<Report>,
    },
    /// Somebody wants to cancel what `client` (by slot) does, and shows this key.
    Cancel {
        /// Slot of the client.
        client: u32,
        /// The key.
        key: Vec<u8>,
    },
    /// How a client has to prove its identity.
    Facts {
        /// The client.
        client: Seat,
        /// The answer.
        facts: Facts,
    },
    /// Keys for a login to a server.
    Keys {
        /// The server.
        server: Seat,
        /// The keys, or `None` if they could not be made.
        keys: Option<Box<ScramKeys>>,
    },
    /// It is known what the definitions of a database do, or that it cannot be known now.
    Known {
        /// The server that was asked.
        server: Seat,
    },
    /// The address of the server has changed, or it is known that no address works.
    Moved,
    /// Open one more physical connection if the pool has fewer than it keeps open, though nobody waits for one.
    Ensure {
        /// The pool.
        pool: Arc<PoolEntry>,
        /// How many it keeps open.
        kept_open: usize,
    },
    /// About channels and notifications.
    Word(Word),
    /// Shut down at transaction boundaries.
    Drain,
}

/// A question or a remark to the control side. It answers questions by [`Mail`].
#[derive(Debug)]
pub enum Question {
    /// How must this client prove its identity? With `password`: is this its password?
    Facts {
        /// Who asks.
        client: Seat,
        /// Role.
        user: Box<str>,
        /// Database.
        database: Box<str>,
        /// Where it comes from.
        origin: Origin,
        /// The password that the client sent, if it was asked for one.
        password: Option<pgusher_auth::Password>,
    },
    /// Derive SCRAM keys from a password.
    Derive {
        /// The server that needs them.
        server: Seat,
        /// The work.
        derivation: Box<Derivation>,
    },
    /// Does this password, which a client sent in clear text, agree with a verifier? That takes time.
    Check {
        /// Who asks.
        client: Seat,
        /// Role.
        user: Box<str>,
        /// What it sent.
        password: pgusher_auth::Password,
        /// What is known of it.
        secret: Box<pgusher_auth::StoredSecret>,
    },
    /// What do these rows say of the database's definitions? Every worker gets the answer.
    Definitions(Box<Rows>),
    /// No answer: a client has given a proof that does not agree with what is known of its user. The password may have been
    /// changed.
    Doubt {
        /// Role.
        user: Box<str>,
        /// Database.
        database: Box<str>,
    },
    /// No answer: nobody can log in at this address now.
    Unreachable {
        /// Where.
        address: Arc<ServerAddress>,
    },
}
