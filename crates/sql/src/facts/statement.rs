//! From a statement's tree to its facts.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    CopyStmt, CreateTableAsStmt, DeclareCursorStmt, DefElem, DiscardMode, DoStmt, ExplainStmt, Node, ObjectType,
    PrepareStmt, TransactionStmt, TransactionStmtKind,
};

use super::definition::ObjectKind;
use super::setting::{effects_of, element_text, modes_of};
use super::walk::Walk;
use super::{Access, Copy, CopyEnd, Discard, Effect, Inside, Kind, Statement, Transaction, Utility, prepared};

/// The facts of one statement; `text` is its own text.
pub(super) fn statement(node: &Node, text: &[u8], standard_strings: bool) -> Statement {
    let mut walk = Walk { once: true, ..Walk::default() };
    let kind = match &node.node {
        Some(node) => kind(&mut walk, node, &Source { text, standard_strings }),
        None => {
            walk.opaque = true;
            Kind::Utility(Utility::Definition)
        }
    };
    Statement {
        kind,
        reads_only: !walk.writes,
        effects: walk.effects.into(),
        relations: walk.relations.into_iter().collect(),
        functions: walk.functions.into_iter().collect(),
        parameters: walk.parameters.into_iter().collect(),
        opaque: walk.opaque,
    }
}

struct Source<'a> {
    text: &'a [u8],
    standard_strings: bool,
}

fn kind(walk: &mut Walk, node: &NodeEnum, source: &Source<'_>) -> Kind {
    match node {
        NodeEnum::SelectStmt(select) if select.into_clause.is_some() => {
            walk.query(node);
            Kind::Utility(Utility::CreateTableAs)
        }
        NodeEnum::SelectStmt(_) => {
            walk.query(node);
            Kind::Select
        }
        NodeEnum::InsertStmt(_) => {
            walk.query(node);
            Kind::Insert
        }
        NodeEnum::UpdateStmt(_) => {
            walk.query(node);
            Kind::Update
        }
        NodeEnum::DeleteStmt(_) => {
            walk.query(node);
            Kind::Delete
        }
        NodeEnum::MergeStmt(_) => {
            walk.query(node);
            Kind::Merge
        }
        _ => Kind::Utility(utility(walk, node, source)),
    }
}

/// A name that the grammar leaves empty for ALL or `*`.
fn unless_empty(name: &str) -> Option<Box<str>> {
    (!name.is_empty()).then(|| name.into())
}

fn utility(walk: &mut Walk, node: &NodeEnum, source: &Source<'_>) -> Utility {
    match node {
        NodeEnum::TransactionStmt(statement) => Utility::Transaction(transaction(statement)),
        NodeEnum::VariableSetStmt(set) => {
            effects_of(set, &mut walk.effects);
            match walk.effects.last() {
                Some(Effect::Reset(_)) => Utility::Reset,
                _ => Utility::Set,
            }
        }
        NodeEnum::VariableShowStmt(show) => Utility::Show(show.name.as_str().into()),
        NodeEnum::ConstraintsSetStmt(_) => Utility::Constraints,
        NodeEnum::DiscardStmt(discard) => {
            walk.effects.push(Effect::Discard(match discard.target() {
                DiscardMode::Undefined | DiscardMode::DiscardAll => Discard::All,
                DiscardMode::DiscardPlans => Discard::Plans,
                DiscardMode::DiscardSequences => Discard::Sequences,
                DiscardMode::DiscardTemp => Discard::Temp,
            }));
            Utility::Discard
        }
        NodeEnum::PrepareStmt(prepare) => {
            prepare_statement(walk, prepare, source);
            Utility::Prepare
        }
        NodeEnum::ExecuteStmt(execute) => {
            walk.nodes(&execute.params);
            walk.effects.push(Effect::Execute { name: execute.name.as_str().into() });
            // What it does is what the prepared statement does.
            walk.writes = true;
            Utility::Execute
        }
        NodeEnum::DeallocateStmt(deallocate) => {
            walk.effects.push(Effect::Deallocate(unless_empty(&deallocate.name)));
            Utility::Deallocate
        }
        NodeEnum::DeclareCursorStmt(declare) => {
            declare_cursor(walk, declare);
            Utility::Declare
        }
        NodeEnum::FetchStmt(fetch) => {
            walk.effects.push(Effect::Fetch { name: fetch.portalname.as_str().into() });
            if fetch.ismove { Utility::Move } else { Utility::Fetch }
        }
        NodeEnum::ClosePortalStmt(close) => {
            walk.effects.push(Effect::Close(unless_empty(&close.portalname)));
            Utility::Close
        }
        NodeEnum::ListenStmt(listen) => {
            walk.effects.push(Effect::Listen(listen.conditionname.as_str().into()));
            Utility::Listen
        }
        NodeEnum::UnlistenStmt(unlisten) => {
            walk.effects.push(Effect::Unlisten(unless_empty(&unlisten.conditionname)));
            Utility::Unlisten
        }
        NodeEnum::NotifyStmt(notify) => {
            walk.effects.push(Effect::Notify(notify.conditionname.as_str().into()));
            walk.writes = true;
            Utility::Notify
        }
        NodeEnum::LoadStmt(load) => {
            walk.effects.push(Effect::Load(load.filename.as_str().into()));
            Utility::Load
        }
        NodeEnum::LockStmt(lock) => {
            walk.relations_of(&lock.relations, Access::Write);
            walk.writes = true;
            Utility::Lock
        }
        NodeEnum::DoStmt(block) => {
            walk.effects.push(anonymous_block(block));
            walk.opaque = true;
            walk.writes = true;
            Utility::Do
        }
        NodeEnum::CallStmt(call) => {
            if let Some(call) = &call.funccall {
                walk.call(call);
                walk.nodes(&call.args);
            }
            walk.effects.push(Effect::Call);
            walk.writes = true;
            Utility::Call
        }
        NodeEnum::CopyStmt(statement) => Utility::Copy(copy(walk, statement)),
        NodeEnum::ExplainStmt(statement) => explain(walk, statement, source),
        NodeEnum::CreateTableAsStmt(create) => {
            create_table_as(walk, create);
            Utility::CreateTableAs
        }
        NodeEnum::TruncateStmt(truncate) => {
            walk.relations_of(&truncate.relations, Access::Write);
            walk.writes = true;
            Utility::Truncate
        }
        NodeEnum::VacuumStmt(_)
        | NodeEnum::ClusterStmt(_)
        | NodeEnum::ReindexStmt(_)
        | NodeEnum::RefreshMatViewStmt(_)
        | NodeEnum::CheckPointStmt(_) => {
            maintenance(walk, node);
            Utility::Maintenance
        }
        _ => {
            walk.definition(node);
            Utility::Definition
        }
    }
}

fn transaction(statement: &TransactionStmt) -> Transaction {
    let name = || statement.savepoint_name.as_str().into();
    let id = || statement.gid.as_str().into();
    match statement.kind() {
        TransactionStmtKind::Undefined | TransactionStmtKind::TransStmtBegin | TransactionStmtKind::TransStmtStart => {
            Transaction::Begin(modes_of(&statement.options))
        }
        TransactionStmtKind::TransStmtCommit => Transaction::Commit { chain: statement.chain },
        TransactionStmtKind::TransStmtRollback => Transaction::Rollback { chain: statement.chain },
        TransactionStmtKind::TransStmtSavepoint => Transaction::Savepoint(name()),
        TransactionStmtKind::TransStmtRelease => Transaction::Release(name()),
        TransactionStmtKind::TransStmtRollbackTo => Transaction::RollbackTo(name()),
        TransactionStmtKind::TransStmtPrepare => Transaction::Prepare(id()),
        TransactionStmtKind::TransStmtCommitPrepared => Transaction::CommitPrepared(id()),
        TransactionStmtKind::TransStmtRollbackPrepared => Transaction::RollbackPrepared(id()),
    }
}

/// PREPARE runs nothing: of the inner statement only the relations are facts.
fn prepare_statement(walk: &mut Walk, prepare: &PrepareStmt, source: &Source<'_>) {
    let mut inside = Walk::default();
    if let Some(query) = &prepare.query {
        inside.node(query);
        walk.relations.append(&mut inside.relations);
    }
    let inside = Inside { effects: inside.effects.into(), functions: inside.functions.into_iter().collect() };
    match prepared::parts(source.text, source.standard_strings) {
        Some(parts) => {
            let types = parts.types.into();
            let name = prepare.name.as_str().into();
            walk.effects.push(Effect::Prepare { name, types, text: parts.text, inside });
        }
        None => walk.opaque = true,
    }
}

/// The options of a cursor: bits of `CURSOR_OPT_*` in parsenodes.h.
fn declare_cursor(walk: &mut Walk, declare: &DeclareCursorStmt) {
    const BINARY: i32 = 0x0001;
    const SCROLL: i32 = 0x0002;
    const NO_SCROLL: i32 = 0x0004;
    const HOLD: i32 = 0x0020;
    let has = |bit| declare.options & bit != 0;
    walk.effects.push(Effect::Declare {
        name: declare.portalname.as_str().into(),
        hold: has(HOLD),
        binary: has(BINARY),
        scroll: if has(SCROLL) {
            Some(true)
        } else if has(NO_SCROLL) {
            Some(false)
        } else {
            None
        },
    });
    walk.once = false;
    walk.maybe(declare.query.as_deref());
}

fn anonymous_block(block: &DoStmt) -> Effect {
    let element = |name: &str| {
        block.args.iter().find_map(|node| match &node.node {
            Some(NodeEnum::DefElem(element)) if element.defname == name => element_text(element),
            _ => None,
        })
    };
    Effect::Do {
        language: element("language").unwrap_or_else(|| "plpgsql".into()),
        body: element("as").unwrap_or_default(),
    }
}

fn copy(walk: &mut Walk, statement: &CopyStmt) -> Copy {
    let CopyStmt { relation, query, attlist: _, is_from, is_program, filename, options: _, where_clause } = statement;
    if let Some(relation) = relation {
        walk.relation(relation, if *is_from { Access::Write } else { Access::Read });
    }
    walk.once = false;
    walk.maybe(query.as_deref());
    walk.maybe(where_clause.as_deref());
    let end = if *is_program {
        CopyEnd::Program
    } else if filename.is_empty() {
        CopyEnd::Client
    } else {
        CopyEnd::File
    };
    walk.writes |= *is_from || end != CopyEnd::Client;
    Copy { from: *is_from, end }
}

fn explain(walk: &mut Walk, statement: &ExplainStmt, source: &Source<'_>) -> Utility {
    let analyze = statement.options.iter().rev().find_map(|node| match &node.node {
        Some(NodeEnum::DefElem(element)) if element.defname == "analyze" => Some(is_on(element)),
        _ => None,
    });
    let analyze = analyze.unwrap_or(false);
    let Some(inner) = statement.query.as_ref().and_then(|query| query.node.as_ref()) else {
        return Utility::Explain { analyze };
    };
    if analyze {
        kind(walk, inner, source);
    } else {
        let mut inside = Walk::default();
        kind(&mut inside, inner, source);
        walk.relations.append(&mut inside.relations);
        walk.parameters.append(&mut inside.parameters);
        // A plan of a prepared statement needs the statement.
        walk.effects.extend(inside.effects.into_iter().filter(|effect| matches!(effect, Effect::Execute { .. })));
    }
    Utility::Explain { analyze }
}

/// An option as a boolean (`defGetBoolean`): present without a value means on.
fn is_on(element: &DefElem) -> bool {
    match element_text(element) {
        None => true,
        Some(text) => !matches!(&*text.to_ascii_lowercase(), "off" | "false" | "0"),
    }
}

fn create_table_as(walk: &mut Walk, create: &CreateTableAsStmt) {
    walk.writes = true;
    if let Some(into) = &create.into {
        let object = if create.objtype() == ObjectType::ObjectMatview {
            ObjectKind::MaterializedView
        } else {
            ObjectKind::Table
        };
        if let Some(relation) = &into.rel {
            walk.created(relation, object, into.on_commit);
        }
        walk.nodes_of_options(&into.options);
    }
    walk.once = false;
    match create.query.as_ref().and_then(|query| query.node.as_ref()) {
        Some(NodeEnum::ExecuteStmt(execute)) => {
            walk.nodes(&execute.params);
            walk.effects.push(Effect::Execute { name: execute.name.as_str().into() });
        }
        _ => walk.maybe(create.query.as_deref()),
    }
}

/// These run functions of indexes and views, as the owner and with settings of their own that do not last.
fn maintenance(walk: &mut Walk, node: &NodeEnum) {
    walk.writes = true;
    match node {
        NodeEnum::VacuumStmt(vacuum) => {
            for relation in &vacuum.rels {
                if let Some(NodeEnum::VacuumRelation(relation)) = &relation.node {
                    if let Some(relation) = &relation.relation {
                        walk.relation(relation, Access::Write);
                    }
                }
            }
        }
        NodeEnum::ClusterStmt(cluster) => {
            if let Some(relation) = &cluster.relation {
                walk.relation(relation, Access::Write);
            }
        }
        NodeEnum::ReindexStmt(reindex) => {
            if let Some(relation) = &reindex.relation {
                walk.relation(relation, Access::Write);
            }
        }
        NodeEnum::RefreshMatViewStmt(refresh) => {
            if let Some(relation) = &refresh.relation {
                walk.relation(relation, Access::Write);
            }
        }
        _ => {}
    }
}
