//! What follows from the definitions: doubts are carried from functions to those who call them, to the relations that reach them,
//! and from relation to relation, until nothing is added.

use std::collections::{BTreeSet, HashMap};

use pgusher_sql::is_harmless;

use super::Knowledge;
use super::reader::{Name, Reader};

/// How often doubts are carried on. A chain of calls and relations that is longer leaves everything in doubt.
const MAX_ROUNDS: usize = 100;

impl Reader {
    pub(super) fn judge(mut self) -> Knowledge {
        if self.too_many {
            return Knowledge {
                everywhere: true,
                too_many: true,
                definitions: true,
                login: true,
                code_everywhere: true,
                ..Knowledge::default()
            };
        }
        let mut knowledge = Knowledge::default();
        let mut by_oid = HashMap::with_capacity(self.functions.len());
        for (index, function) in self.functions.iter().enumerate() {
            by_oid.insert(function.oid, index);
        }
        for oid in &self.doubts {
            if let Some(function) = by_oid.get(oid).and_then(|index| self.functions.get_mut(*index)) {
                function.doubt = true;
            }
        }
        // By number of a name: is a function, is a relation of that name in doubt?
        let mut functions = vec![false; self.names.len()];
        let mut relations = vec![false; self.names.len()];
        let mut settled = false;
        for _ in 0..MAX_ROUNDS {
            if !self.round(&by_oid, &mut functions, &mut relations, &mut knowledge) {
                settled = true;
                break;
            }
        }
        for function in &self.functions {
            let doubt = function.doubt || !settled;
            *knowledge.functions.entry(self.names.get(function.name).into()).or_default() |= doubt;
            // `row.name` calls it, which looks like a column.
            knowledge.everywhere |= doubt && function.notation;
            knowledge.hides |= doubt && is_harmless(self.names.get(function.name));
        }
        self.settings(&by_oid, &mut knowledge);
        self.code(&mut knowledge);
        for (oid, login) in &self.events {
            if self.in_doubt(&by_oid, *oid) || !settled {
                let flag = if *login { &mut knowledge.login } else { &mut knowledge.definitions };
                *flag = true;
            }
        }
        for (number, doubt) in (0u32..).zip(&relations) {
            if *doubt {
                let name = self.names.get(number);
                // The statement's spelling of the name may have other bytes.
                knowledge.everywhere |= !self.utf8 && !name.is_ascii();
                knowledge.relations.insert(name.into());
            }
        }
        knowledge.everywhere |= !settled;
        knowledge
    }

    /// What may be set by functions in doubt that are reached from a definition: by it, or by a function that it calls. The name
    /// may also stand in the one that calls.
    fn settings(&self, by_oid: &HashMap<u32, usize>, knowledge: &mut Knowledge) {
        let mut by_name: HashMap<Name, Vec<usize>> = HashMap::new();
        let mut by_caller: HashMap<u32, Vec<usize>> = HashMap::new();
        for (index, function) in self.functions.iter().enumerate() {
            by_name.entry(function.name).or_default().push(index);
        }
        for (caller, callee) in &self.calls {
            if let Some(callee) = by_oid.get(callee) {
                by_caller.entry(*caller).or_default().push(*callee);
            }
        }
        let reached = self.reached.iter().map(|(oid, _)| oid).chain(self.events.iter().map(|(oid, _)| oid));
        let mut open: Vec<usize> = reached.filter_map(|oid| by_oid.get(oid).copied()).collect();
        let special = self.functions.iter().enumerate();
        open.extend(special.filter(|(_, f)| f.aggregate || f.notation).map(|(index, _)| index));
        let mut seen = vec![false; self.functions.len()];
        let mut found: BTreeSet<&str> = self.constants.iter().map(|name| self.names.get(*name)).collect();
        while let Some(index) = open.pop() {
            let (Some(function), Some(seen)) = (self.functions.get(index), seen.get_mut(index)) else { continue };
            if std::mem::replace(seen, true) {
                continue;
            }
            if function.doubt {
                found.extend(function.placeholders.iter().map(|name| self.names.get(*name)));
                knowledge.nameless |= function.nameless;
            }
            open.extend(by_caller.get(&function.oid).into_iter().flatten());
            open.extend(function.calls.iter().filter_map(|name| by_name.get(name)).flatten());
        }
        knowledge.placeholders = found.into_iter().map(Box::from).collect();
    }

    /// Which relations run functions of the users' own, or volatile ones in C, by themselves or by others that they lead to.
    fn code(&self, knowledge: &mut Knowledge) {
        // `row.name` calls a function, which looks like a column.
        knowledge.code_everywhere = self.functions.iter().any(|function| function.notation);
        let mut marks = vec![false; self.names.len()];
        let mut open: Vec<Name> =
            self.volatile.iter().copied().filter(|relation| mark(&mut marks, *relation)).collect();
        for (_, relation) in &self.reached {
            match relation {
                Some(relation) if mark(&mut marks, *relation) => open.push(*relation),
                Some(_) => {}
                None => knowledge.code_everywhere = true,
            }
        }
        let mut sources: HashMap<Name, Vec<Name>> = HashMap::new();
        for (source, target) in &self.edges {
            sources.entry(*target).or_default().push(*source);
        }
        while let Some(relation) = open.pop() {
            let name = self.names.get(relation);
            // The statement's spelling of the name may have other bytes.
            knowledge.code_everywhere |= !self.utf8 && !name.is_ascii();
            knowledge.code.insert(name.into());
            for source in sources.get(&relation).into_iter().flatten() {
                if mark(&mut marks, *source) {
                    open.push(*source);
                }
            }
        }
    }

    fn in_doubt(&self, by_oid: &HashMap<u32, usize>, oid: u32) -> bool {
        by_oid.get(&oid).and_then(|index| self.functions.get(*index)).is_some_and(|function| function.doubt)
    }

    /// Carries doubts one step. Whether there are new ones.
    fn round(
        &mut self,
        by_oid: &HashMap<u32, usize>,
        functions: &mut [bool],
        relations: &mut [bool],
        knowledge: &mut Knowledge,
    ) -> bool {
        let mut more = false;
        for function in &self.functions {
            if function.doubt {
                more |= mark(functions, function.name);
            }
        }
        for (oid, relation) in &self.reached {
            if *oid == 0 || self.in_doubt(by_oid, *oid) {
                match relation {
                    Some(relation) => more |= mark(relations, *relation),
                    None => knowledge.everywhere = true,
                }
            }
        }
        for (source, target) in &self.edges {
            if is(relations, *target) {
                more |= mark(relations, *source);
            }
        }
        let any = relations.contains(&true);
        let called: Vec<u32> =
            self.calls.iter().filter(|(_, callee)| self.in_doubt(by_oid, *callee)).map(|(caller, _)| *caller).collect();
        for oid in called {
            if let Some(function) = by_oid.get(&oid).and_then(|index| self.functions.get_mut(*index)) {
                more |= !std::mem::replace(&mut function.doubt, true);
            }
        }
        for function in &mut self.functions {
            if !function.doubt
                && (function.calls.iter().any(|name| is(functions, *name))
                    || (any && (function.any_relation || function.names.iter().any(|name| is(relations, *name)))))
            {
                function.doubt = true;
                more = true;
            }
        }
        more
    }
}

fn is(marks: &[bool], name: Name) -> bool {
    marks.get(name as usize).copied().unwrap_or(false)
}

/// Whether it was not marked before.
fn mark(marks: &mut [bool], name: Name) -> bool {
    marks.get_mut(name as usize).is_some_and(|mark| !std::mem::replace(mark, true))
}
