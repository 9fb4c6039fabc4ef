//! What a function is called with, as far as the text tells.

use pg_query::NodeEnum;
use pg_query::protobuf::{AConst, Node, TypeCast, a_const};

/// An argument of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Argument {
    /// A constant, in the form in which a string of it would be written.
    Constant(Box<str>),
    /// NULL
    Null,
    /// The parameter of this number.
    Parameter(u16),
    /// Anything else.
    Expression,
}

impl Argument {
    /// The constant's text.
    #[must_use]
    pub fn constant(&self) -> Option<&str> {
        match self {
            Self::Constant(text) => Some(text),
            Self::Null | Self::Parameter(_) | Self::Expression => None,
        }
    }

    /// The constant as a boolean, by the spellings that PostgreSQL accepts.
    #[must_use]
    pub fn boolean(&self) -> Option<bool> {
        let text = self.constant()?.trim_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
        let starts = |word: &str, least: usize| {
            text.len() >= least
                && text.len() <= word.len()
                && word.as_bytes()[..text.len()].eq_ignore_ascii_case(text.as_bytes())
        };
        if starts("true", 1) || starts("yes", 1) || starts("on", 2) || text == "1" {
            Some(true)
        } else if starts("false", 1) || starts("no", 1) || starts("off", 2) || text == "0" {
            Some(false)
        } else {
            None
        }
    }

    pub(super) fn is_constant(&self) -> bool {
        match self {
            Self::Constant(_) => true,
            // NULL is a keyword, and parameters count in the fingerprint.
            Self::Null | Self::Parameter(_) | Self::Expression => false,
        }
    }

    pub(super) fn size(&self) -> usize {
        self.constant().map_or(0, str::len)
    }

    pub(super) fn of(node: &Node) -> Self {
        match &node.node {
            Some(NodeEnum::AConst(constant)) => Self::of_constant(constant),
            Some(NodeEnum::ParamRef(parameter)) => {
                u16::try_from(parameter.number).map_or(Self::Expression, Self::Parameter)
            }
            Some(NodeEnum::TypeCast(cast)) => Self::of_cast(cast),
            Some(NodeEnum::NamedArgExpr(named)) => named.arg.as_deref().map_or(Self::Expression, Self::of),
            _ => Self::Expression,
        }
    }

    fn of_constant(constant: &AConst) -> Self {
        if constant.isnull {
            return Self::Null;
        }
        constant_text(constant).map_or(Self::Expression, Self::Constant)
    }

    /// A cast that leaves the text of a constant alone: to text, and to boolean and whole numbers as far as spelling goes.
    fn of_cast(cast: &TypeCast) -> Self {
        let plain = cast.type_name.as_ref().is_some_and(|name| {
            name.typmods.is_empty()
                && name.array_bounds.is_empty()
                && name.names.last().is_some_and(|last| {
                    matches!(
                        string_of(last),
                        Some("text" | "varchar" | "bool" | "int4" | "int8" | "regclass" | "unknown")
                    )
                })
        });
        match &cast.arg {
            Some(inner) if plain => Self::of(inner),
            _ => Self::Expression,
        }
    }
}

/// The text of a node that is a name.
pub(super) fn string_of(node: &Node) -> Option<&str> {
    match &node.node {
        Some(NodeEnum::String(string)) => Some(&string.sval),
        _ => None,
    }
}

/// The text of a constant: PostgreSQL's own spelling in lists of SET and in casts from a string.
pub(super) fn constant_text(constant: &AConst) -> Option<Box<str>> {
    Some(match constant.val.as_ref()? {
        a_const::Val::Ival(number) => number.ival.to_string().into(),
        a_const::Val::Fval(number) => number.fval.as_str().into(),
        a_const::Val::Boolval(boolean) => if boolean.boolval { "true" } else { "false" }.into(),
        a_const::Val::Sval(string) => string.sval.as_str().into(),
        a_const::Val::Bsval(_) => return None,
    })
}
