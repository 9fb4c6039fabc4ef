//! Walks SELECT, INSERT, UPDATE, DELETE and MERGE.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    DeleteStmt, InferClause, InsertStmt, IntoClause, MergeStmt, Node, RangeVar, ReturningClause, SelectStmt, UpdateStmt,
};

use super::walk::Walk;
use super::{Access, Effect};

impl Walk {
    /// False when the node is none of these.
    pub(super) fn query(&mut self, node: &NodeEnum) -> bool {
        match node {
            NodeEnum::SelectStmt(select) => self.select(select),
            NodeEnum::InsertStmt(insert) => self.insert(insert),
            NodeEnum::UpdateStmt(update) => self.update(update),
            NodeEnum::DeleteStmt(delete) => self.delete(delete),
            NodeEnum::MergeStmt(merge) => self.merge(merge),
            _ => return false,
        }
        true
    }

    fn select(&mut self, select: &SelectStmt) {
        let SelectStmt {
            distinct_clause,
            into_clause,
            target_list,
            from_clause,
            where_clause,
            group_clause,
            group_distinct: _,
            having_clause,
            window_clause,
            values_lists,
            sort_clause,
            limit_offset,
            limit_count,
            limit_option: _,
            locking_clause,
            with_clause,
            op: _,
            all: _,
            larg,
            rarg,
        } = select;
        let entered = self.enter(with_clause.as_ref());
        let once = self.once;
        self.once &= from_clause.is_empty()
            && where_clause.is_none()
            && group_clause.is_empty()
            && having_clause.is_none()
            && values_lists.is_empty()
            && limit_offset.is_none()
            && limit_count.is_none()
            && larg.is_none();
        self.nodes(target_list);
        self.once = false;
        if let Some(into) = into_clause {
            self.made_by_into(into);
        }
        self.nodes(from_clause);
        self.nodes(distinct_clause);
        self.maybe(where_clause.as_deref());
        self.nodes(group_clause);
        self.maybe(having_clause.as_deref());
        self.nodes(window_clause);
        self.nodes(values_lists);
        self.nodes(sort_clause);
        self.maybe(limit_offset.as_deref());
        self.maybe(limit_count.as_deref());
        self.writes |= !locking_clause.is_empty();
        for side in [larg, rarg].into_iter().flatten() {
            self.select(side);
        }
        self.once = once;
        self.leave(entered);
    }

    /// The table that SELECT INTO and CREATE TABLE AS make.
    pub(super) fn made_by_into(&mut self, into: &IntoClause) {
        self.writes = true;
        self.nodes_of_options(&into.options);
        if let Some(table) = &into.rel {
            self.created(table, super::definition::TABLE, into.on_commit);
        }
    }

    /// How often anything runs from here on depends on rows. Gives back what held before.
    fn rows_decide(&mut self) -> bool {
        std::mem::replace(&mut self.once, false)
    }

    fn target(&mut self, relation: Option<&RangeVar>) {
        self.writes = true;
        let Some(relation) = relation else { return };
        if relation.relname == "pg_settings" && matches!(relation.schemaname.as_str(), "" | "pg_catalog") {
            self.effects.push(Effect::SettingsView);
        }
        self.relation(relation, Access::Write);
    }

    fn returning(&mut self, clause: Option<&ReturningClause>) {
        if let Some(clause) = clause {
            self.nodes(&clause.exprs);
        }
    }

    fn insert(&mut self, insert: &InsertStmt) {
        let InsertStmt {
            relation,
            cols,
            select_stmt,
            on_conflict_clause,
            returning_clause,
            with_clause,
            r#override: _,
        } = insert;
        let once = self.rows_decide();
        let entered = self.enter(with_clause.as_ref());
        self.target(relation.as_ref());
        self.nodes(cols);
        self.maybe(select_stmt.as_deref());
        if let Some(conflict) = on_conflict_clause {
            if let Some(infer) = &conflict.infer {
                let InferClause { index_elems, where_clause, conname: _, location: _ } = &**infer;
                self.nodes(index_elems);
                self.maybe(where_clause.as_deref());
            }
            self.nodes(&conflict.target_list);
            self.maybe(conflict.where_clause.as_deref());
        }
        self.returning(returning_clause.as_ref());
        self.leave(entered);
        self.once = once;
    }

    fn update(&mut self, update: &UpdateStmt) {
        let UpdateStmt { relation, target_list, where_clause, from_clause, returning_clause, with_clause } = update;
        let once = self.rows_decide();
        let entered = self.enter(with_clause.as_ref());
        self.target(relation.as_ref());
        self.nodes(target_list);
        self.nodes(from_clause);
        self.maybe(where_clause.as_deref());
        self.returning(returning_clause.as_ref());
        self.leave(entered);
        self.once = once;
    }

    fn delete(&mut self, delete: &DeleteStmt) {
        let DeleteStmt { relation, using_clause, where_clause, returning_clause, with_clause } = delete;
        let once = self.rows_decide();
        let entered = self.enter(with_clause.as_ref());
        self.target(relation.as_ref());
        self.nodes(using_clause);
        self.maybe(where_clause.as_deref());
        self.returning(returning_clause.as_ref());
        self.leave(entered);
        self.once = once;
    }

    fn merge(&mut self, merge: &MergeStmt) {
        let MergeStmt { relation, source_relation, join_condition, merge_when_clauses, returning_clause, with_clause } =
            merge;
        let once = self.rows_decide();
        let entered = self.enter(with_clause.as_ref());
        self.target(relation.as_ref());
        self.maybe(source_relation.as_deref());
        self.maybe(join_condition.as_deref());
        for clause in merge_when_clauses {
            if let Some(NodeEnum::MergeWhenClause(clause)) = &clause.node {
                self.maybe(clause.condition.as_deref());
                self.nodes(&clause.target_list);
                self.nodes(&clause.values);
            }
        }
        self.returning(returning_clause.as_ref());
        self.leave(entered);
        self.once = once;
    }

    /// Options with values: constants nearly always.
    pub(super) fn nodes_of_options(&mut self, options: &[Node]) {
        for option in options {
            if let Some(NodeEnum::DefElem(element)) = &option.node {
                self.maybe(element.arg.as_deref());
            }
        }
    }
}
