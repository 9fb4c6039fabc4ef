//! What statements make, change and drop in the catalogs, temporary objects among it.

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, ObjectType, ObjectWithArgs, OnCommitAction, RangeVar, TypeName};

use super::argument::string_of;
use super::table::is_plain;
use super::walk::{Walk, name_of_list, name_of_variable};
use super::{Access, Effect, Name};

/// Something in the catalogs is made, changed or dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// What is done.
    pub verb: Verb,
    /// With what kind of object.
    pub object: ObjectKind,
    /// With which; empty when the statement names none in the usual way.
    pub names: Box<[Name]>,
    /// It is a table whose columns, defaults and constraints call no function but harmless ones of PostgreSQL's own. Types and
    /// operators are not looked at.
    pub plain: bool,
}

impl Definition {
    pub(super) fn text_bound(&self) -> bool {
        // Names are no constants; a default that is set is not kept here.
        false
    }

    pub(super) fn size(&self) -> usize {
        self.names.iter().map(|name| size_of::<Name>() + name.size()).sum()
    }
}

/// What is done with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// CREATE, with OR REPLACE or without.
    Create,
    /// ALTER, RENAME, SET SCHEMA, OWNER TO, and what CREATE adds to a table: an index, a trigger, a rule, a policy.
    Alter,
    /// DROP
    Drop,
    /// GRANT, REVOKE, COMMENT, SECURITY LABEL
    Describe,
    /// ALTER ROLE / DATABASE ... SET, ALTER SYSTEM: what new sessions begin with.
    Defaults,
}

/// A kind of object, as far as anybody here needs to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObjectKind {
    /// A table, partitioned and foreign ones among them.
    Table,
    /// An index. The relation is in [`Statement::relations`](super::Statement::relations).
    Index,
    /// A sequence.
    Sequence,
    /// A view.
    View,
    /// A materialized view.
    MaterializedView,
    /// A type or domain.
    Type,
    /// A function, procedure or aggregate.
    Function,
    /// A schema.
    Schema,
    /// A role.
    Role,
    /// A database.
    Database,
    /// An extension.
    Extension,
    /// Any other.
    Other,
}

pub(super) const TABLE: ObjectKind = ObjectKind::Table;

/// A temporary object that a statement makes. Not seen: a view without TEMPORARY that is temporary because it reads a temporary
/// table, and an object that a `search_path` beginning with `pg_temp` makes temporary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Temporary {
    /// What it is.
    pub object: ObjectKind,
    /// Its name.
    pub name: Name,
    /// What becomes of it at the end of the transaction.
    pub on_commit: OnCommit,
}

/// What becomes of a temporary table at the end of the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnCommit {
    /// It stays.
    PreserveRows,
    /// It stays, empty.
    DeleteRows,
    /// It is dropped: nothing outlives the transaction.
    Drop,
}

fn kind_of(object: ObjectType) -> ObjectKind {
    match object {
        ObjectType::ObjectTable | ObjectType::ObjectForeignTable | ObjectType::ObjectColumn => ObjectKind::Table,
        ObjectType::ObjectIndex => ObjectKind::Index,
        ObjectType::ObjectSequence => ObjectKind::Sequence,
        ObjectType::ObjectView => ObjectKind::View,
        ObjectType::ObjectMatview => ObjectKind::MaterializedView,
        ObjectType::ObjectType | ObjectType::ObjectDomain | ObjectType::ObjectAttribute => ObjectKind::Type,
        ObjectType::ObjectFunction
        | ObjectType::ObjectProcedure
        | ObjectType::ObjectRoutine
        | ObjectType::ObjectAggregate => ObjectKind::Function,
        ObjectType::ObjectSchema => ObjectKind::Schema,
        ObjectType::ObjectRole => ObjectKind::Role,
        ObjectType::ObjectDatabase => ObjectKind::Database,
        ObjectType::ObjectExtension => ObjectKind::Extension,
        _ => ObjectKind::Other,
    }
}

/// The name of an object in a list of DROP, COMMENT and the like.
fn name_of(node: &Node) -> Option<Name> {
    match &node.node {
        Some(NodeEnum::List(list)) => name_of_list(&list.items),
        Some(NodeEnum::TypeName(TypeName { names, .. })) => name_of_list(names),
        Some(NodeEnum::ObjectWithArgs(ObjectWithArgs { objname, .. })) => name_of_list(objname),
        Some(NodeEnum::RangeVar(variable)) => Some(name_of_variable(variable)),
        Some(NodeEnum::String(_)) => Some(single(string_of(node)?)),
        _ => None,
    }
}

fn single(name: &str) -> Name {
    Name { schema: None, name: name.into() }
}

impl Walk {
    fn define(&mut self, verb: Verb, object: ObjectKind, names: impl IntoIterator<Item = Name>) {
        let names: Box<[Name]> = names.into_iter().collect();
        if verb == Verb::Create {
            for name in names.iter().filter(|name| name.is_temporary()) {
                let temporary = Temporary { object, name: name.clone(), on_commit: OnCommit::PreserveRows };
                self.effects.push(Effect::Temporary(temporary));
            }
        }
        self.effects.push(Effect::Definition(Definition { verb, object, names, plain: false }));
    }

    /// A relation is made, a temporary one perhaps.
    pub(super) fn created(&mut self, relation: &RangeVar, object: ObjectKind, on_commit: i32) {
        self.relation(relation, Access::Define);
        let name = name_of_variable(relation);
        if relation.relpersistence == "t" || name.is_temporary() {
            let on_commit = match OnCommitAction::try_from(on_commit) {
                Ok(OnCommitAction::OncommitDrop) => OnCommit::Drop,
                Ok(OnCommitAction::OncommitDeleteRows) => OnCommit::DeleteRows,
                Ok(OnCommitAction::Undefined | OnCommitAction::OncommitNoop | OnCommitAction::OncommitPreserveRows)
                | Err(_) => OnCommit::PreserveRows,
            };
            self.effects.push(Effect::Temporary(Temporary { object, name: name.clone(), on_commit }));
        }
        let names = [name].into();
        self.effects.push(Effect::Definition(Definition { verb: Verb::Create, object, names, plain: false }));
    }

    fn altered(&mut self, relation: Option<&RangeVar>, object: ObjectKind) {
        if let Some(relation) = relation {
            self.relation(relation, Access::Define);
        }
        self.define(Verb::Alter, object, relation.map(name_of_variable));
    }

    /// Any statement that no other part knows. What it runs besides (defaults, checks, expressions of an index) is not looked
    /// into where it may be more than constants: then the statement is opaque.
    pub(super) fn definition(&mut self, node: &NodeEnum) {
        self.writes = true;
        if !(self.creation(node) || self.alteration(node) || self.removal(node)) {
            self.opaque = true;
            self.define(Verb::Alter, ObjectKind::Other, None);
        }
    }

    fn creation(&mut self, node: &NodeEnum) -> bool {
        match node {
            NodeEnum::CreateStmt(create) => {
                if let Some(relation) = &create.relation {
                    self.created(relation, TABLE, create.oncommit);
                }
                self.relations_of(&create.inh_relations, Access::Define);
                let plain = is_plain(create);
                self.opaque |= !plain;
                if let Some(Effect::Definition(definition)) = self.effects.last_mut() {
                    definition.plain = plain;
                }
            }
            NodeEnum::CreateForeignTableStmt(create) => {
                if let Some(relation) = create.base_stmt.as_ref().and_then(|base| base.relation.as_ref()) {
                    self.created(relation, TABLE, 0);
                }
                self.opaque = true;
            }
            NodeEnum::ViewStmt(view) => {
                if let Some(relation) = &view.view {
                    self.created(relation, ObjectKind::View, 0);
                }
                if let Some(query) = &view.query {
                    // Only named, not run.
                    let mut inside = Self::default();
                    inside.node(query);
                    self.relations.append(&mut inside.relations);
                }
            }
            NodeEnum::CreateSeqStmt(create) => {
                if let Some(relation) = &create.sequence {
                    self.created(relation, ObjectKind::Sequence, 0);
                }
            }
            NodeEnum::CompositeTypeStmt(create) => {
                if let Some(name) = &create.typevar {
                    self.define(Verb::Create, ObjectKind::Type, [name_of_variable(name)]);
                }
            }
            NodeEnum::CreateEnumStmt(create) => {
                self.define(Verb::Create, ObjectKind::Type, name_of_list(&create.type_name))
            }
            NodeEnum::CreateRangeStmt(create) => {
                self.define(Verb::Create, ObjectKind::Type, name_of_list(&create.type_name))
            }
            NodeEnum::CreateDomainStmt(create) => {
                self.define(Verb::Create, ObjectKind::Type, name_of_list(&create.domainname));
            }
            NodeEnum::DefineStmt(define) => {
                self.define(Verb::Create, kind_of(define.kind()), name_of_list(&define.defnames));
            }
            NodeEnum::CreateFunctionStmt(create) => {
                self.define(Verb::Create, ObjectKind::Function, name_of_list(&create.funcname));
            }
            NodeEnum::CreateSchemaStmt(create) => {
                self.define(Verb::Create, ObjectKind::Schema, [single(&create.schemaname)]);
                self.opaque |= !create.schema_elts.is_empty();
            }
            NodeEnum::CreateRoleStmt(create) => self.define(Verb::Create, ObjectKind::Role, [single(&create.role)]),
            NodeEnum::CreatedbStmt(create) => self.define(Verb::Create, ObjectKind::Database, [single(&create.dbname)]),
            NodeEnum::CreateExtensionStmt(create) => {
                self.define(Verb::Create, ObjectKind::Extension, [single(&create.extname)]);
                self.opaque = true;
            }
            _ => return false,
        }
        true
    }

    fn alteration(&mut self, node: &NodeEnum) -> bool {
        match node {
            NodeEnum::AlterTableStmt(alter) => {
                self.altered(alter.relation.as_ref(), kind_of(alter.objtype()));
                self.opaque = true;
            }
            NodeEnum::IndexStmt(index) => {
                self.altered(index.relation.as_ref(), TABLE);
                self.opaque = true;
            }
            NodeEnum::CreateTrigStmt(trigger) => self.altered(trigger.relation.as_ref(), TABLE),
            NodeEnum::RuleStmt(rule) => self.altered(rule.relation.as_ref(), TABLE),
            NodeEnum::CreatePolicyStmt(policy) => self.altered(policy.table.as_ref(), TABLE),
            NodeEnum::AlterPolicyStmt(policy) => self.altered(policy.table.as_ref(), TABLE),
            NodeEnum::AlterSeqStmt(alter) => self.altered(alter.sequence.as_ref(), ObjectKind::Sequence),
            NodeEnum::RenameStmt(rename) => {
                let kind = kind_of(rename.rename_type());
                match (&rename.relation, &rename.object) {
                    (Some(relation), _) => self.altered(Some(relation), kind),
                    (None, Some(object)) => self.define(Verb::Alter, kind, name_of(object)),
                    (None, None) => self.define(Verb::Alter, kind, [single(&rename.subname)]),
                }
            }
            NodeEnum::AlterObjectSchemaStmt(alter) => match (&alter.relation, &alter.object) {
                (Some(relation), _) => self.altered(Some(relation), kind_of(alter.object_type())),
                (None, object) => {
                    self.define(Verb::Alter, kind_of(alter.object_type()), object.as_deref().and_then(name_of));
                }
            },
            NodeEnum::AlterOwnerStmt(alter) => match (&alter.relation, &alter.object) {
                (Some(relation), _) => self.altered(Some(relation), kind_of(alter.object_type())),
                (None, object) => {
                    self.define(Verb::Alter, kind_of(alter.object_type()), object.as_deref().and_then(name_of));
                }
            },
            NodeEnum::AlterEnumStmt(alter) => {
                self.define(Verb::Alter, ObjectKind::Type, name_of_list(&alter.type_name))
            }
            NodeEnum::AlterTypeStmt(alter) => {
                self.define(Verb::Alter, ObjectKind::Type, name_of_list(&alter.type_name))
            }
            NodeEnum::AlterDomainStmt(alter) => {
                self.define(Verb::Alter, ObjectKind::Type, name_of_list(&alter.type_name));
                self.opaque = true;
            }
            NodeEnum::AlterFunctionStmt(alter) => {
                let name = alter.func.as_ref().and_then(|function| name_of_list(&function.objname));
                self.define(Verb::Alter, ObjectKind::Function, name);
            }
            NodeEnum::AlterRoleStmt(alter) => {
                self.define(Verb::Alter, ObjectKind::Role, alter.role.as_ref().map(|role| single(&role.rolename)));
            }
            NodeEnum::AlterDatabaseStmt(alter) => {
                self.define(Verb::Alter, ObjectKind::Database, [single(&alter.dbname)])
            }
            NodeEnum::AlterRoleSetStmt(alter) => {
                self.define(Verb::Defaults, ObjectKind::Role, alter.role.as_ref().map(|role| single(&role.rolename)));
            }
            NodeEnum::AlterDatabaseSetStmt(alter) => {
                self.define(Verb::Defaults, ObjectKind::Database, [single(&alter.dbname)]);
            }
            NodeEnum::AlterSystemStmt(_) => self.define(Verb::Defaults, ObjectKind::Other, None),
            NodeEnum::CommentStmt(comment) => {
                let name = comment.object.as_deref().and_then(name_of);
                self.define(Verb::Describe, kind_of(comment.objtype()), name);
            }
            NodeEnum::GrantStmt(grant) => {
                let names: Vec<Name> = grant.objects.iter().filter_map(name_of).collect();
                self.define(Verb::Describe, kind_of(grant.objtype()), names);
            }
            NodeEnum::GrantRoleStmt(_) | NodeEnum::AlterDefaultPrivilegesStmt(_) | NodeEnum::SecLabelStmt(_) => {
                self.define(Verb::Describe, ObjectKind::Other, None);
            }
            _ => return false,
        }
        true
    }

    fn removal(&mut self, node: &NodeEnum) -> bool {
        match node {
            NodeEnum::DropStmt(drop) => {
                let kind = kind_of(drop.remove_type());
                let names: Vec<Name> = drop.objects.iter().filter_map(name_of).collect();
                if matches!(
                    kind,
                    ObjectKind::Table | ObjectKind::View | ObjectKind::MaterializedView | ObjectKind::Sequence
                ) {
                    let relations =
                        names.iter().map(|name| super::Relation { name: name.clone(), access: Access::Define });
                    self.relations.extend(relations);
                }
                self.define(Verb::Drop, kind, names);
            }
            NodeEnum::DropRoleStmt(drop) => {
                let names: Vec<Name> = drop
                    .roles
                    .iter()
                    .filter_map(|role| match &role.node {
                        Some(NodeEnum::RoleSpec(role)) => Some(single(&role.rolename)),
                        _ => None,
                    })
                    .collect();
                self.define(Verb::Drop, ObjectKind::Role, names);
            }
            NodeEnum::DropdbStmt(drop) => self.define(Verb::Drop, ObjectKind::Database, [single(&drop.dbname)]),
            NodeEnum::DropOwnedStmt(_) => self.define(Verb::Drop, ObjectKind::Other, None),
            _ => return false,
        }
        true
    }
}
