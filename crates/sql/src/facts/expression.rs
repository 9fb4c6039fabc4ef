//! Walks expressions and FROM. Each kind of node names all its parts, so that none is forgotten; kinds that are not known here
//! make the statement opaque.

use pg_query::NodeEnum;
use pg_query::protobuf::Node;

use super::walk::Walk;
use super::{Function, Name};

impl Walk {
    pub(super) fn maybe(&mut self, node: Option<&Node>) {
        if let Some(node) = node {
            self.node(node);
        }
    }

    pub(super) fn nodes(&mut self, nodes: &[Node]) {
        for node in nodes {
            self.node(node);
        }
    }

    /// Any node of a query.
    pub(super) fn node(&mut self, node: &Node) {
        let Some(node) = &node.node else { return };
        let once = self.once;
        self.once &= matches!(
            node,
            NodeEnum::ResTarget(_)
                | NodeEnum::FuncCall(_)
                | NodeEnum::TypeCast(_)
                | NodeEnum::NamedArgExpr(_)
                | NodeEnum::SelectStmt(_)
        );
        if !(self.leaf(node) || self.operation(node) || self.construct(node) || self.source(node) || self.query(node)) {
            self.opaque = true;
        }
        self.once = once;
    }

    /// What has nothing below it that runs.
    fn leaf(&mut self, node: &NodeEnum) -> bool {
        match node {
            NodeEnum::ParamRef(parameter) => self.parameter(parameter.number),
            NodeEnum::AConst(_)
            | NodeEnum::AStar(_)
            | NodeEnum::Boolean(_)
            | NodeEnum::ColumnRef(_)
            | NodeEnum::CurrentOfExpr(_)
            | NodeEnum::Float(_)
            | NodeEnum::Integer(_)
            | NodeEnum::MergeSupportFunc(_)
            | NodeEnum::ReturningOption(_)
            | NodeEnum::SetToDefault(_)
            | NodeEnum::SqlvalueFunction(_)
            | NodeEnum::String(_)
            | NodeEnum::TypeName(_) => {}
            _ => return false,
        }
        true
    }

    fn operation(&mut self, node: &NodeEnum) -> bool {
        match node {
            NodeEnum::FuncCall(call) => {
                self.call(call);
                self.nodes(&call.args);
                self.nodes(&call.agg_order);
                self.maybe(call.agg_filter.as_deref());
                if let Some(window) = &call.over {
                    self.nodes(&window.partition_clause);
                    self.nodes(&window.order_clause);
                    self.maybe(window.start_offset.as_deref());
                    self.maybe(window.end_offset.as_deref());
                }
            }
            NodeEnum::AExpr(operation) => {
                self.maybe(operation.lexpr.as_deref());
                self.maybe(operation.rexpr.as_deref());
            }
            NodeEnum::BoolExpr(operation) => self.nodes(&operation.args),
            NodeEnum::NullTest(test) => self.maybe(test.arg.as_deref()),
            NodeEnum::BooleanTest(test) => self.maybe(test.arg.as_deref()),
            NodeEnum::TypeCast(cast) => self.maybe(cast.arg.as_deref()),
            NodeEnum::CollateClause(clause) => self.maybe(clause.arg.as_deref()),
            NodeEnum::NamedArgExpr(named) => self.maybe(named.arg.as_deref()),
            NodeEnum::SubLink(link) => {
                self.maybe(link.testexpr.as_deref());
                self.maybe(link.subselect.as_deref());
            }
            NodeEnum::AIndirection(indirection) => {
                self.maybe(indirection.arg.as_deref());
                self.nodes(&indirection.indirection);
            }
            NodeEnum::AIndices(indices) => {
                self.maybe(indices.lidx.as_deref());
                self.maybe(indices.uidx.as_deref());
            }
            _ => return false,
        }
        true
    }

    fn construct(&mut self, node: &NodeEnum) -> bool {
        match node {
            NodeEnum::CaseExpr(case) => {
                self.maybe(case.arg.as_deref());
                self.nodes(&case.args);
                self.maybe(case.defresult.as_deref());
            }
            NodeEnum::CaseWhen(when) => {
                self.maybe(when.expr.as_deref());
                self.maybe(when.result.as_deref());
            }
            NodeEnum::CoalesceExpr(expression) => self.nodes(&expression.args),
            NodeEnum::MinMaxExpr(expression) => self.nodes(&expression.args),
            NodeEnum::GroupingFunc(expression) => self.nodes(&expression.args),
            NodeEnum::GroupingSet(set) => self.nodes(&set.content),
            NodeEnum::RowExpr(row) => self.nodes(&row.args),
            NodeEnum::AArrayExpr(array) => self.nodes(&array.elements),
            NodeEnum::List(list) => self.nodes(&list.items),
            NodeEnum::ResTarget(target) => {
                self.nodes(&target.indirection);
                self.maybe(target.val.as_deref());
            }
            NodeEnum::MultiAssignRef(reference) => self.maybe(reference.source.as_deref()),
            NodeEnum::SortBy(sort) => self.maybe(sort.node.as_deref()),
            NodeEnum::WindowDef(window) => {
                self.nodes(&window.partition_clause);
                self.nodes(&window.order_clause);
                self.maybe(window.start_offset.as_deref());
                self.maybe(window.end_offset.as_deref());
            }
            NodeEnum::IndexElem(element) => {
                self.maybe(element.expr.as_deref());
                self.nodes(&element.opclassopts);
            }
            NodeEnum::XmlExpr(expression) => {
                self.nodes(&expression.named_args);
                self.nodes(&expression.args);
            }
            NodeEnum::XmlSerialize(expression) => self.maybe(expression.expr.as_deref()),
            NodeEnum::JsonObjectConstructor(constructor) => self.nodes(&constructor.exprs),
            NodeEnum::JsonArrayConstructor(constructor) => self.nodes(&constructor.exprs),
            NodeEnum::JsonIsPredicate(predicate) => self.maybe(predicate.expr.as_deref()),
            NodeEnum::JsonKeyValue(pair) => {
                self.maybe(pair.key.as_deref());
                if let Some(value) = &pair.value {
                    self.maybe(value.raw_expr.as_deref());
                    self.maybe(value.formatted_expr.as_deref());
                }
            }
            NodeEnum::JsonValueExpr(value) => {
                self.maybe(value.raw_expr.as_deref());
                self.maybe(value.formatted_expr.as_deref());
            }
            _ => return false,
        }
        true
    }

    /// What stands in FROM.
    fn source(&mut self, node: &NodeEnum) -> bool {
        match node {
            NodeEnum::RangeVar(variable) => self.read(variable),
            NodeEnum::JoinExpr(join) => {
                self.maybe(join.larg.as_deref());
                self.maybe(join.rarg.as_deref());
                self.maybe(join.quals.as_deref());
            }
            NodeEnum::RangeSubselect(select) => self.maybe(select.subquery.as_deref()),
            // Pairs of a call and its column definitions, which are types.
            NodeEnum::RangeFunction(function) => {
                for pair in &function.functions {
                    match &pair.node {
                        Some(NodeEnum::List(pair)) => self.maybe(pair.items.first()),
                        _ => self.node(pair),
                    }
                }
            }
            NodeEnum::RangeTableFunc(table) => {
                self.maybe(table.docexpr.as_deref());
                self.maybe(table.rowexpr.as_deref());
                self.nodes(&table.namespaces);
                self.nodes(&table.columns);
            }
            NodeEnum::RangeTableFuncCol(column) => {
                self.maybe(column.colexpr.as_deref());
                self.maybe(column.coldefexpr.as_deref());
            }
            NodeEnum::RangeTableSample(sample) => {
                self.maybe(sample.relation.as_deref());
                self.nodes(&sample.args);
                self.maybe(sample.repeatable.as_deref());
                let name: Option<Name> = super::walk::name_of_list(&sample.method);
                match name {
                    Some(name) if name.schema.is_none() && matches!(&*name.name, "system" | "bernoulli") => {}
                    Some(name) => {
                        self.functions.insert(Function { name, arguments: 1 });
                    }
                    None => self.opaque = true,
                }
            }
            _ => return false,
        }
        true
    }
}
