//! What has been found so far.

use std::collections::BTreeSet;

use super::BodyFacts;

/// Names of one kind that are kept; a body with more is opaque.
const MAX_NAMES: usize = 20_000;

#[derive(Default)]
pub(super) struct Found {
    pub(super) facts: BodyFacts,
    /// Texts made at run time that were followed.
    pub(super) runs: u32,
    calls: BTreeSet<Box<str>>,
    builtins: BTreeSet<Box<str>>,
    placeholders: BTreeSet<Box<str>>,
    names: BTreeSet<Box<str>>,
}

impl Found {
    pub(super) fn call(&mut self, name: &str) {
        keep(&mut self.calls, name, &mut self.facts.opaque);
    }

    pub(super) fn builtin(&mut self, name: &str) {
        keep(&mut self.builtins, name, &mut self.facts.opaque);
    }

    pub(super) fn name(&mut self, name: &str) {
        keep(&mut self.names, name, &mut self.facts.opaque);
    }

    pub(super) fn placeholder(&mut self, name: &str) {
        // Names of settings are compared without regard to case.
        keep(&mut self.placeholders, &name.to_ascii_lowercase(), &mut self.facts.opaque);
    }

    /// The names of several parts within a string.
    pub(super) fn placeholders_in(&mut self, text: &str) {
        let part = |c: char| c.is_alphanumeric() || c == '_' || c == '$' || c == '.';
        for run in text.split(|c| !part(c)) {
            let run = run.trim_matches('.');
            if run.contains('.') && run.starts_with(|c: char| !c.is_ascii_digit()) {
                self.placeholder(run);
            }
        }
    }

    /// Something is set whose name cannot be read, for how long cannot be read either.
    pub(super) fn sets_anything(&mut self) {
        self.facts.settings = true;
        self.facts.unknown_names = true;
    }

    /// A text runs that is not known.
    pub(super) fn unknown_text(&mut self) {
        self.facts.opaque = true;
        self.facts.unknown_names = true;
        self.facts.any_relation = true;
    }

    pub(super) fn finish(self) -> BodyFacts {
        let list = |set: BTreeSet<Box<str>>| set.into_iter().collect::<Box<[_]>>();
        let mut facts = BodyFacts {
            calls: list(self.calls),
            builtins: list(self.builtins),
            placeholders: list(self.placeholders),
            names: list(self.names),
            ..self.facts
        };
        facts.harmless = !facts.any_flag();
        facts
    }
}

fn keep(set: &mut BTreeSet<Box<str>>, name: &str, full: &mut bool) {
    if !set.contains(name) {
        if set.len() == MAX_NAMES {
            *full = true;
        } else {
            set.insert(name.into());
        }
    }
}

impl BodyFacts {
    fn any_flag(&self) -> bool {
        self.settings
            || self.local
            || self.unknown_names
            || self.temporary
            || self.locks
            || self.channels
            || self.cursors
            || self.prepared
            || self.load
            || self.sequence_reads
            || self.sequence_writes
            || self.seed
            || self.definition
            || self.foreign
            || self.opaque
    }
}
