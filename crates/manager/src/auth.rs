//! How a client has to prove its identity, and how we prove ours to a server in its name.

use crate::config::AuthMethod;
use pgusher_auth::scram::DEFAULT_ITERATIONS;
use pgusher_auth::{KeyParameters, Password, ScramKeys, StoredSecret, UserList, Verifier, md5::Md5Hash};
use pgusher_wire::{Report, sqlstate};
use rand::RngCore;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use zeroize::Zeroize;

/// Stands for the database of a physical replication connection, which belongs to none and has rules of its own in pg_hba.conf. No
/// other client has it: whoever names no database means the one that is called like its role.
pub const NO_DATABASE: &str = "";

/// How a client has to prove its identity.
#[derive(Debug, Clone)]
pub enum Facts {
    /// It need not.
    Trust,
    /// By SCRAM-SHA-256 against this verifier. `login` is what we log in to the server with; without it, with the keys that
    /// the client's proof yields.
    Scram {
        /// What the proof is checked against.
        verifier: Verifier,
        /// What we log in to the server with.
        login: Option<Login>,
    },
    /// For a user that does not exist, or cannot log in: is asked as others are, and fails at the end.
    Nobody(Asked),
    /// By an md5 hash.
    Md5(Md5Hash),
    /// By its password in clear text, which is checked against this secret.
    Plain(StoredSecret),
    /// By its password in clear text, which the server then judges.
    AskServer,
    /// The server has accepted the password that was asked for.
    Accepted(Login),
    /// It is refused.
    Refuse(Report),
}

/// What somebody is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// A SCRAM-SHA-256 proof.
    Scram,
    /// An md5 hash.
    Md5,
    /// The password in clear text.
    Plain,
}

/// For how long the server's word about a user is taken without asking again. A change of pg_hba.conf or of a password is
/// noticed after that at the latest.
pub const TRUSTED_FOR: Duration = Duration::from_secs(10);

/// What the server, or its list of users, has said of a user, and when.
#[derive(Debug)]
pub struct Known {
    facts: Facts,
    learned: Instant,
    /// The count of [`Upstream::moves`](crate::shared::Upstream::moves) before that: another server may say something else.
    moves: u32,
    used: AtomicBool,
}

impl Known {
    /// Said just now, by the server that was found after so many moves.
    pub fn new(facts: Facts, moves: u32) -> Self {
        Self { facts, learned: Instant::now(), moves, used: AtomicBool::new(false) }
    }

    /// What was said, for a login to the server that was found after so many moves; `None` if it is too old, or if it was said
    /// by another one.
    pub fn for_login(&self, moves: u32) -> Option<Facts> {
        if self.age() > TRUSTED_FOR || self.moves != moves {
            return None;
        }
        self.used.store(true, Ordering::Relaxed);
        Some(self.facts.clone())
    }

    /// How long ago it was said.
    pub fn age(&self) -> Duration {
        self.learned.elapsed()
    }

    /// Has a login needed it since this was asked last?
    pub(crate) fn take_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }
}

/// What we log in to a server with.
#[derive(Debug, Clone)]
pub enum Login {
    /// A password.
    Password(Password),
    /// SCRAM keys, and what they were made with.
    Keys {
        /// The keys.
        keys: ScramKeys,
        /// Salt and iterations.
        made_with: KeyParameters,
    },
    /// An md5 hash as in pg_authid.
    Md5(Md5Hash),
}

/// Does a login to a server that ended with this SQLSTATE speak against the server, and not against the user? Another server
/// may do better then.
pub fn speaks_against_server(state: &str) -> bool {
    state.starts_with("57P") || (state.starts_with("08") && state != sqlstate::PROTOCOL_VIOLATION)
}

/// What a user that is not in the list is asked for, and a secret that nobody knows, so that it costs as much to refuse it as
/// to refuse a user of the list a wrong password. Users of one list may be asked in different ways; then those count that are
/// most.
pub(crate) fn for_strangers(method: AuthMethod, users: &UserList) -> (Asked, StoredSecret) {
    let (mut verifiers, mut hashes, mut passwords) = (0, 0, 0);
    for name in users.names() {
        match users.get(name) {
            Some(StoredSecret::Scram(_)) => verifiers += 1,
            Some(StoredSecret::Md5(_)) => hashes += 1,
            Some(StoredSecret::Plain(_)) | None => passwords += 1,
        }
    }
    let asked = match method {
        AuthMethod::Plain => Asked::Plain,
        AuthMethod::Md5 if verifiers <= hashes + passwords => Asked::Md5,
        AuthMethod::Md5 | AuthMethod::ScramSha256 | AuthMethod::Trust | AuthMethod::Server => Asked::Scram,
    };
    let mut random = [0; 32];
    rand::rng().fill_bytes(&mut random);
    let password = Password::new(random.to_vec());
    let secret = if verifiers > 0 && verifiers >= hashes.max(passwords) {
        match Verifier::from_password(&password, &random[..pgusher_auth::SALT_LEN], DEFAULT_ITERATIONS) {
            Ok(verifier) => StoredSecret::Scram(verifier),
            Err(_) => StoredSecret::Plain(password),
        }
    } else if hashes > passwords {
        StoredSecret::Md5(Md5Hash::from_password(b"", &password))
    } else {
        StoredSecret::Plain(password)
    };
    random.zeroize();
    (asked, secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_long_ago_or_elsewhere_counts_no_more() {
        let mut known = Known::new(Facts::Trust, 3);
        assert!(matches!(known.for_login(3), Some(Facts::Trust)));
        assert!(known.for_login(2).is_none() && known.for_login(4).is_none());
        known.learned = Instant::now().checked_sub(TRUSTED_FOR + Duration::from_millis(1)).unwrap();
        assert!(known.for_login(3).is_none());
    }

    #[test]
    fn strangers_are_asked_as_most_users_are() {
        let verifier = Verifier::from_password(&Password::from("x"), b"0123456789abcdef", 1).unwrap();
        let hash = Md5Hash::from_password(b"u", &Password::from("x"));
        let secrets =
            [StoredSecret::Scram(verifier), StoredSecret::Md5(hash), StoredSecret::Plain(Password::from("x"))];
        let list = |counts: [usize; 3]| -> UserList {
            let all = secrets.iter().zip(counts).flat_map(|(secret, n)| std::iter::repeat_n(secret.clone(), n));
            all.enumerate().map(|(i, secret)| (format!("u{i}"), secret)).collect()
        };
        for (method, counts, asked, kind) in [
            (AuthMethod::Plain, [1, 0, 0], Asked::Plain, 0),
            (AuthMethod::Plain, [0, 2, 1], Asked::Plain, 1),
            (AuthMethod::Plain, [1, 1, 2], Asked::Plain, 2),
            (AuthMethod::Md5, [1, 1, 1], Asked::Md5, 0),
            (AuthMethod::Md5, [3, 1, 1], Asked::Scram, 0),
            (AuthMethod::ScramSha256, [0, 2, 0], Asked::Scram, 1),
        ] {
            let (found, secret) = for_strangers(method, &list(counts));
            assert_eq!(found, asked, "{method:?} {counts:?}");
            let expected = secrets.get(kind).unwrap();
            assert_eq!(std::mem::discriminant(&secret), std::mem::discriminant(expected), "{method:?} {counts:?}");
            assert!(secret.verify_plain(b"", &Password::from("x")).is_err());
        }
    }
}
