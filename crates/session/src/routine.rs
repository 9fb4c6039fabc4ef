//! What a function of the user's own does to the session that calls it, from its definitions.

use crate::aspects::{Aspects, Pins};
use crate::audit::FunctionDefinition;
use crate::sequences::Sequences;
use pgusher_sql::body::{self, BodyFacts, Definition};

/// What calling a function means. Of several functions with one name, what any of them means.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Routine {
    /// What has to be asked of the server.
    pub doubts: Aspects,
    /// What keeps the client on its server.
    pub pins: Pins,
    /// What names and constants of later statements stand for may change.
    pub stirs: bool,
    /// It changes the catalogs.
    pub definition: bool,
    /// Settings with these names may be made.
    pub placeholders: Box<[Box<str>]>,
    /// What it does itself with what the backend remembers of sequences.
    pub sequences: Sequences,
    /// Functions that it calls.
    pub calls: Box<[Box<str>]>,
    /// Harmless functions of PostgreSQL's own that it calls; one of the user's own may hide one of these.
    pub builtins: Box<[Box<str>]>,
    /// Names that stand in it, those of relations among them.
    pub names: Box<[Box<str>]>,
    /// It may use any relation.
    pub any_relation: bool,
}

impl Routine {
    /// The meaning of a name, from all functions with this name. There are none: it is one of the server's own, and
    /// harmless.
    pub fn of<'a>(definitions: impl Iterator<Item = &'a FunctionDefinition>) -> Self {
        let mut routine = Self::default();
        for definition in definitions {
            if definition.kind == 'p' && definition.body.as_deref().is_some_and(ends_transactions) {
                routine.doubts |= Aspects::SETTINGS;
            }
            match definition.body.as_deref() {
                // Its transition functions are not looked up.
                _ if matches!(definition.kind, 'a' | 'w') => routine.doubt(),
                // A body that the server keeps parsed only cannot be read here.
                Some("") if definition.language == "sql" => routine.doubt(),
                Some(body) => {
                    let language = &definition.language;
                    routine.add(&body::facts_of(Definition { language, body, configured: definition.configured }));
                }
                None => routine.doubt(),
            }
        }
        routine
    }

    /// What a block of code means.
    pub fn of_block(language: &str, body: &str) -> Self {
        let mut routine = Self::default();
        routine.add(&body::facts_of_do(language, body));
        if ends_transactions(body) {
            routine.doubts |= Aspects::SETTINGS;
        }
        routine
    }

    fn doubt(&mut self) {
        self.doubts = Aspects::ALL;
        self.stirs = true;
        self.sequences |= Sequences::UNKNOWN;
        self.any_relation = true;
    }

    fn add(&mut self, facts: &BodyFacts) {
        if facts.opaque {
            self.doubt();
        }
        let doubts = [
            (facts.settings, Aspects::SETTINGS),
            (facts.temporary, Aspects::TEMPORARY),
            (facts.locks, Aspects::LOCKS),
            (facts.channels, Aspects::CHANNELS),
            (facts.prepared, Aspects::PREPARED),
            (facts.cursors, Aspects::CURSORS),
        ];
        for (_, aspect) in doubts.iter().filter(|(may, _)| *may) {
            self.doubts |= *aspect;
        }
        let pins = [
            (facts.unknown_names, Pins::SETTING),
            (facts.load, Pins::LIBRARY),
            (facts.seed, Pins::SEED),
            (facts.foreign, Pins::EXTENSION),
        ];
        for (_, pin) in pins.iter().filter(|(may, _)| *may) {
            self.pins |= *pin;
        }
        self.stirs |= facts.settings || facts.local || facts.temporary || facts.definition || facts.prepared;
        self.definition |= facts.definition;
        self.sequences |= Sequences {
            named: facts.sequence_reads,
            advances: facts.sequence_writes || facts.writes || facts.definition,
            ..Sequences::NONE
        };
        if facts.settings {
            self.placeholders = union(&self.placeholders, &facts.placeholders);
        }
        self.calls = union(&self.calls, &facts.calls);
        self.builtins = union(&self.builtins, &facts.builtins);
        self.names = union(&self.names, &facts.names);
        self.any_relation |= facts.any_relation;
    }
}

/// May a procedure with this body end the transaction that has called it? What was set before in the same batch is kept or undone
/// then, and no reply says so.
fn ends_transactions(body: &str) -> bool {
    let body = body.to_ascii_lowercase();
    body.contains("commit") || body.contains("rollback")
}

fn union(one: &[Box<str>], other: &[Box<str>]) -> Box<[Box<str>]> {
    let mut all: Vec<Box<str>> = one.iter().chain(other).cloned().collect();
    all.sort();
    all.dedup();
    all.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(language: &str, body: &str) -> FunctionDefinition {
        FunctionDefinition {
            schema: "public".into(),
            name: "f".into(),
            language: language.into(),
            body: Some(body.into()),
            configured: false,
            kind: 'f',
        }
    }

    #[test]
    fn all_functions_of_a_name_count() {
        assert_eq!(Routine::of([].iter()), Routine::default());
        let plain = definition("plpgsql", "begin update t set a = 1; return new; end");
        let routine = Routine::of([plain.clone()].iter());
        assert_eq!(routine.sequences, Sequences::ADVANCES);
        assert!(routine.doubts.is_empty() && !routine.stirs && routine.names.iter().any(|name| **name == *"t"));
        let sets = definition("plpgsql", "begin perform set_config('app.tenant', '1', false); end");
        let both = Routine::of([plain, sets].iter());
        assert_eq!(both.doubts, Aspects::SETTINGS);
        assert!(both.stirs && both.placeholders.iter().any(|name| **name == *"app.tenant"));
        let kept_parsed = definition("sql", "");
        assert_eq!(Routine::of([kept_parsed].iter()).doubts, Aspects::ALL);
        let aggregate = FunctionDefinition { kind: 'a', ..definition("internal", "aggregate_dummy") };
        assert_eq!(Routine::of([aggregate].iter()).doubts, Aspects::ALL);
    }
}
