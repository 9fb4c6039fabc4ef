//! Tables that run nothing of the users' own.

use pg_query::NodeEnum;
use pg_query::protobuf::{ConstrType, Constraint, CreateStmt};

use super::walk::Walk;
use crate::functions::is_harmless;

/// Is it a table of its own, that runs nothing when it is made and nothing of the users' own when it is used?
pub(super) fn is_plain(create: &CreateStmt) -> bool {
    let alone = create.inh_relations.is_empty()
        && create.partbound.is_none()
        && create.partspec.is_none()
        && create.of_typename.is_none();
    alone
        && create.table_elts.iter().all(|element| match &element.node {
            Some(NodeEnum::ColumnDef(column)) => {
                column.raw_default.is_none()
                    && column.constraints.iter().all(|node| match &node.node {
                        Some(NodeEnum::Constraint(constraint)) => is_harmless_constraint(constraint),
                        _ => false,
                    })
            }
            Some(NodeEnum::Constraint(constraint)) => is_harmless_constraint(constraint),
            _ => false,
        })
}

fn is_harmless_constraint(constraint: &Constraint) -> bool {
    match constraint.contype() {
        ConstrType::ConstrNull
        | ConstrType::ConstrNotnull
        | ConstrType::ConstrIdentity
        | ConstrType::ConstrPrimary
        | ConstrType::ConstrUnique
        | ConstrType::ConstrForeign
        | ConstrType::ConstrAttrDeferrable
        | ConstrType::ConstrAttrNotDeferrable
        | ConstrType::ConstrAttrDeferred
        | ConstrType::ConstrAttrImmediate
        | ConstrType::ConstrAttrEnforced
        | ConstrType::ConstrAttrNotEnforced => true,
        ConstrType::ConstrDefault | ConstrType::ConstrCheck => constraint.raw_expr.as_ref().is_some_and(|expression| {
            let mut inside = Walk::default();
            inside.node(expression);
            !inside.opaque
                && inside.effects.is_empty()
                && inside.functions.iter().all(|function| is_harmless(&function.name.name))
        }),
        ConstrType::ConstrGenerated | ConstrType::ConstrExclusion | ConstrType::Undefined => false,
    }
}
