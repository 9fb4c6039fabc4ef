//! The settings of one session as they are now, and as they will be when its transaction is undone.
//!
//! Two sets are followed side by side: what the session means to have, and what its physical connection has. They differ for a
//! moment after RESET of a setting that the session began with: the server goes back to its own default, and has to be told the
//! session's.

use crate::plan::Action;
use crate::settings::{Interned, Interner, Settings};
use pgusher_wire::TxStatus;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The settings of a session at one moment.
#[derive(Debug, Clone)]
pub struct Live {
    /// What the session means to have.
    pub wanted: Interned,
    /// What its physical connection has.
    pub present: Interned,
}

/// The transaction under way, since the first statement in it that changed a setting.
#[derive(Debug)]
pub struct Track {
    before: Live,
    saves: Vec<Save>,
    local: u64,
    failed: bool,
    /// A setting has become too large to be carried.
    pub too_large: bool,
}

#[derive(Debug)]
struct Save {
    name: Box<str>,
    live: Live,
    local: u64,
}

/// Savepoints that are followed, at most. Beyond that the settings have to be asked for.
const MAX_SAVES: usize = 1_000;

impl Track {
    /// Equal for sessions that have set the same for the transaction only, in the same order; 0 if there is nothing that
    /// matters to planning.
    #[must_use]
    pub fn local(&self) -> u64 {
        self.local
    }

    /// Where the settings go back to when the transaction is undone.
    #[must_use]
    pub fn before(&self) -> &Live {
        &self.before
    }

    /// A statement has failed.
    pub fn fail(&mut self) {
        self.failed = true;
    }
}

/// A statement with this action has completed. `began`: the settings that the session began with. Returns `false` if the
/// outcome cannot be followed, and has to be asked for.
pub fn apply(
    track: &mut Option<Box<Track>>,
    live: &mut Live,
    action: &Action,
    began: &Interned,
    interner: &Interner,
) -> bool {
    let track = track.get_or_insert_with(|| {
        Box::new(Track { before: live.clone(), saves: Vec::new(), local: 0, failed: false, too_large: false })
    });
    match action {
        Action::Set { name, value } => {
            let both = live.wanted.same(&live.present);
            match live.wanted.with(name, value) {
                Ok(set) => live.wanted = interner.intern(set),
                Err(_) => {
                    track.too_large = true;
                    return false;
                }
            }
            if both {
                live.present = live.wanted.clone();
            } else {
                match live.present.with(name, value) {
                    Ok(set) => live.present = interner.intern(set),
                    Err(_) => return false,
                }
            }
        }
        Action::Reset(name) => {
            live.present = interner.intern(live.present.without(name));
            live.wanted = match began.get(name) {
                Some(value) => match live.wanted.with(name, value) {
                    Ok(set) => interner.intern(set),
                    Err(_) => return false,
                },
                None => interner.intern(live.wanted.without(name)),
            };
        }
        Action::ResetAll => {
            live.present = interner.intern(live.present.roles());
            live.wanted = match began.and_roles_of(&live.wanted) {
                Ok(set) => interner.intern(set),
                Err(_) => return false,
            };
        }
        Action::DiscardAll => {
            live.present = interner.intern(Settings::default());
            live.wanted = began.clone();
        }
        Action::Local { name, value } => {
            if name.is_empty() || crate::settings::is_planning(name) {
                let mut hasher = DefaultHasher::new();
                (track.local, name.to_ascii_lowercase(), value).hash(&mut hasher);
                track.local = hasher.finish() | 1;
            }
            return value.is_some();
        }
        Action::Savepoint(name) => {
            if track.saves.len() >= MAX_SAVES {
                return false;
            }
            track.saves.push(Save { name: name.clone(), live: live.clone(), local: track.local });
        }
        Action::Release(name) => {
            if let Some(at) = track.saves.iter().rposition(|save| save.name == *name) {
                track.saves.truncate(at);
            }
        }
        Action::RollbackTo(name) => {
            track.failed = false;
            match track.saves.iter().rposition(|save| save.name == *name) {
                Some(at) => {
                    track.saves.truncate(at + 1);
                    if let Some(save) = track.saves.last() {
                        *live = save.live.clone();
                        track.local = save.local;
                    }
                }
                None => {
                    // It was made before the first change.
                    track.saves.clear();
                    *live = track.before.clone();
                    track.local = 0;
                }
            }
        }
        Action::DiscardSequences | Action::Listen(_) | Action::Unlisten(_) | Action::Deallocate(_) => {}
    }
    true
}

/// A transaction has been committed in the middle of what was sent.
pub fn commit(track: &mut Option<Box<Track>>) {
    *track = None;
}

/// A transaction has been undone.
pub fn rollback(track: &mut Option<Box<Track>>, live: &mut Live) {
    if let Some(track) = track.take() {
        *live = track.before;
    }
}

/// The server is ready for the next query.
pub fn ready(track: &mut Option<Box<Track>>, live: &mut Live, status: TxStatus) {
    if status == TxStatus::Idle {
        match track {
            Some(t) if t.failed => rollback(track, live),
            _ => commit(track),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct World {
        interner: Interner,
        began: Interned,
        track: Option<Box<Track>>,
        live: Live,
    }

    impl World {
        fn new(began: &[(&str, &str)]) -> Self {
            let interner = Interner::default();
            let pairs = began.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
            let began = interner.intern(Settings::from_pairs(pairs).expect("small"));
            let live = Live { wanted: began.clone(), present: began.clone() };
            Self { interner, began, track: None, live }
        }

        fn act(&mut self, action: Action) {
            assert!(apply(&mut self.track, &mut self.live, &action, &self.began, &self.interner));
        }

        fn set(&mut self, name: &str, value: &str) {
            self.act(Action::Set { name: name.into(), value: value.into() });
        }

        fn ready(&mut self, status: TxStatus) {
            ready(&mut self.track, &mut self.live, status);
        }

        fn get(&self, name: &str) -> Option<&str> {
            assert!(self.live.wanted.same(&self.live.present));
            self.live.wanted.get(name)
        }
    }

    #[test]
    fn a_commit_keeps_and_a_rollback_undoes() {
        let mut world = World::new(&[]);
        world.set("a", "1");
        world.ready(TxStatus::Idle);
        assert_eq!(world.get("a"), Some("1"));
        world.set("a", "2");
        world.ready(TxStatus::Transaction);
        assert_eq!(world.get("A"), Some("2"));
        rollback(&mut world.track, &mut world.live);
        world.ready(TxStatus::Idle);
        assert_eq!(world.get("a"), Some("1"));
        // An error outside of a transaction block undoes what the same Query or batch has set.
        world.set("a", "3");
        world.track.as_mut().expect("open").fail();
        world.ready(TxStatus::Idle);
        assert_eq!(world.get("a"), Some("1"));
    }

    #[test]
    fn savepoints() {
        let mut world = World::new(&[]);
        world.set("a", "1");
        world.act(Action::Savepoint("s".into()));
        world.set("a", "2");
        world.act(Action::Savepoint("s".into()));
        world.set("a", "3");
        world.act(Action::RollbackTo("s".into()));
        assert_eq!(world.get("a"), Some("2"));
        world.act(Action::Release("s".into()));
        world.act(Action::RollbackTo("s".into()));
        assert_eq!(world.get("a"), Some("1"));
        world.act(Action::Release("s".into()));
        // One that was made before the first change.
        world.act(Action::RollbackTo("early".into()));
        assert_eq!(world.get("a"), None);
    }

    #[test]
    fn what_a_session_began_with_comes_back() {
        let mut world = World::new(&[("timezone", "UTC")]);
        world.set("TimeZone", "CET");
        world.ready(TxStatus::Idle);
        assert_eq!(world.get("timezone"), Some("CET"));
        world.act(Action::Reset("TIMEZONE".into()));
        assert_eq!(world.live.wanted.get("timezone"), Some("UTC"));
        assert_eq!(world.live.present.get("timezone"), None);
        assert!(world.live.wanted.same(&world.began));
        world.ready(TxStatus::Idle);
        world.act(Action::DiscardAll);
        assert!(world.live.wanted.same(&world.began) && world.live.present.is_empty());
    }

    #[test]
    fn roles() {
        let mut world = World::new(&[]);
        world.set("role", "r");
        world.set("session_authorization", "s");
        // A change of the session's authorization ends SET ROLE.
        assert_eq!((world.get("role"), world.get("session_authorization")), (None, Some("s")));
        world.set("role", "r");
        world.set("a", "1");
        world.act(Action::ResetAll);
        assert_eq!((world.get("role"), world.get("session_authorization")), (Some("r"), Some("s")));
        assert_eq!(world.get("a"), None);
        world.act(Action::Reset("session_authorization".into()));
        assert_eq!((world.get("role"), world.get("session_authorization")), (None, None));
        world.set("role", "none");
        assert!(world.live.wanted.is_empty());
    }

    #[test]
    fn local_values_are_told_apart() {
        let mut world = World::new(&[]);
        let local = |name: &str, value: &str| Action::Local { name: name.into(), value: Some(value.into()) };
        world.act(local("statement_timeout", "1s"));
        assert_eq!(world.track.as_ref().map(|t| t.local()), Some(0));
        world.act(local("search_path", "a"));
        let first = world.track.as_ref().map(|t| t.local());
        world.ready(TxStatus::Idle);
        world.act(local("Search_Path", "a"));
        assert_eq!(world.track.as_ref().map(|t| t.local()), first);
        world.act(local("search_path", "b"));
        assert_ne!(world.track.as_ref().map(|t| t.local()), first);
        assert!(world.live.wanted.is_empty());
    }
}
