//! What is gathered while a statement's tree is walked, and how names count.

use std::collections::BTreeSet;

use pg_query::NodeEnum;
use pg_query::protobuf::{FuncCall, Node, RangeVar, WithClause};

use super::argument::string_of;
use super::{Access, Argument, Effect, Function, Name, Relation};
use crate::functions::SessionFunction;

/// Walks one statement.
#[derive(Debug, Default)]
pub(super) struct Walk {
    pub(super) effects: Vec<Effect>,
    pub(super) relations: BTreeSet<Relation>,
    pub(super) functions: BTreeSet<Function>,
    pub(super) parameters: BTreeSet<u16>,
    pub(super) opaque: bool,
    pub(super) writes: bool,
    /// Whether what is walked now is evaluated exactly once if the statement succeeds.
    pub(super) once: bool,
    /// The names of WITH that are visible here.
    pub(super) queries: Vec<Box<str>>,
}

impl Walk {
    /// A relation that is read, unless the name is one of WITH.
    pub(super) fn read(&mut self, variable: &RangeVar) {
        let own = variable.schemaname.is_empty() && self.queries.iter().any(|name| **name == *variable.relname);
        if !own {
            self.relation(variable, Access::Read);
        }
    }

    /// A relation that is written or defined: WITH gives it no name.
    pub(super) fn relation(&mut self, variable: &RangeVar, access: Access) {
        self.relations.insert(Relation { name: name_of_variable(variable), access });
    }

    /// The relations of a list of [`RangeVar`].
    pub(super) fn relations_of(&mut self, nodes: &[Node], access: Access) {
        for node in nodes {
            if let Some(NodeEnum::RangeVar(variable)) = &node.node {
                self.relation(variable, access);
            }
        }
    }

    pub(super) fn parameter(&mut self, number: i32) {
        match u16::try_from(number) {
            Ok(number) => {
                self.parameters.insert(number);
            }
            Err(_) => self.opaque = true,
        }
    }

    /// A call, without its arguments' own content.
    pub(super) fn call(&mut self, call: &FuncCall) {
        let Some(name) = name_of_list(&call.funcname) else {
            self.opaque = true;
            return;
        };
        let arguments = u16::try_from(call.args.len()).unwrap_or(u16::MAX);
        let function = Function { name, arguments };
        if let Some(session) = function.session_function() {
            let given: Box<[Argument]> = call.args.iter().map(Argument::of).collect();
            self.effects.push(match (session, &*given) {
                (SessionFunction::SetConfig, [name, value, local]) => Effect::SetConfig {
                    name: name.clone(),
                    value: value.clone(),
                    local: local.clone(),
                    // Arguments given by name may come in any order.
                    once: self.once
                        && call.args.iter().all(|node| !matches!(node.node, Some(NodeEnum::NamedArgExpr(_)))),
                },
                _ => Effect::Function { function: session, arguments: given },
            });
        }
        self.functions.insert(function);
    }

    /// WITH: walks its queries and makes their names visible. Give the result to [`Walk::leave`].
    pub(super) fn enter(&mut self, with: Option<&WithClause>) -> usize {
        let before = self.queries.len();
        let Some(with) = with else { return before };
        let names = with.ctes.iter().filter_map(|node| match &node.node {
            Some(NodeEnum::CommonTableExpr(query)) => Some(query),
            _ => None,
        });
        if with.recursive {
            self.queries.extend(names.clone().map(|query| query.ctename.as_str().into()));
        }
        let once = std::mem::replace(&mut self.once, false);
        for query in names {
            self.maybe(query.ctequery.as_deref());
            if let Some(cycle) = &query.cycle_clause {
                self.maybe(cycle.cycle_mark_value.as_deref());
                self.maybe(cycle.cycle_mark_default.as_deref());
            }
            if !with.recursive {
                self.queries.push(query.ctename.as_str().into());
            }
        }
        self.once = once;
        before
    }

    /// The names that WITH made visible are not any more.
    pub(super) fn leave(&mut self, before: usize) {
        self.queries.truncate(before);
    }
}

/// A name of one or several parts; of a name of three, the database in front is left out.
pub(super) fn name_of_list(parts: &[Node]) -> Option<Name> {
    let (last, before) = parts.split_last()?;
    let schema = match before.last() {
        Some(part) => Some(string_of(part)?.into()),
        None => None,
    };
    Some(Name { schema, name: string_of(last)?.into() })
}

pub(super) fn name_of_variable(variable: &RangeVar) -> Name {
    let schema = &variable.schemaname;
    Name { schema: (!schema.is_empty()).then(|| schema.as_str().into()), name: variable.relname.as_str().into() }
}
