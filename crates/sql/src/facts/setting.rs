//! SET and RESET: names, and values as PostgreSQL would store them.

use pg_query::NodeEnum;
use pg_query::protobuf::{DefElem, Node, VariableSetKind, VariableSetStmt};

use super::Effect;
use super::argument::{constant_text, string_of};

/// One assignment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Set {
    /// The setting, as written and folded: `search_path`, `app.tenant_id`, `role`, `session_authorization`. PostgreSQL compares
    /// these names without regard to case.
    pub name: Box<str>,
    /// What it is set to.
    pub value: Value,
    /// SET LOCAL: to the end of the transaction.
    pub local: bool,
}

/// What a setting is set to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// This text, as PostgreSQL stores it (`flatten_set_variable_args` in guc_funcs.c): several values joined by a comma and a
    /// blank, each quoted as an identifier where the setting is a list of identifiers.
    Text(Box<str>),
    /// DEFAULT: what RESET would give.
    Default,
    /// FROM CURRENT: the value in force becomes that of the session.
    Current,
    /// TIME ZONE INTERVAL: the interval's text, and the words behind it (`HOUR TO MINUTE`). Only the server knows how it stores that.
    Interval {
        /// The interval.
        text: Box<str>,
        /// Its fields, empty when there are none.
        fields: &'static str,
    },
}

/// Modes of a transaction; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Modes {
    /// The isolation level.
    pub isolation: Option<Isolation>,
    /// READ ONLY
    pub read_only: Option<bool>,
    /// DEFERRABLE
    pub deferrable: Option<bool>,
}

/// An isolation level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// READ UNCOMMITTED
    ReadUncommitted,
    /// READ COMMITTED
    ReadCommitted,
    /// REPEATABLE READ
    RepeatableRead,
    /// SERIALIZABLE
    Serializable,
}

impl Isolation {
    /// As the settings spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadUncommitted => "read uncommitted",
            Self::ReadCommitted => "read committed",
            Self::RepeatableRead => "repeatable read",
            Self::Serializable => "serializable",
        }
    }
}

/// The settings whose values are lists of identifiers (`GUC_LIST_QUOTE`; extensions cannot have such).
const IDENTIFIER_LISTS: [&str; 6] = [
    "search_path",
    "temp_tablespaces",
    "session_preload_libraries",
    "shared_preload_libraries",
    "local_preload_libraries",
    "unix_socket_directories",
];

/// Is this setting a list of identifiers, such as `search_path`? SET takes the names one by one then.
#[must_use]
pub fn is_identifier_list(name: &str) -> bool {
    IDENTIFIER_LISTS.iter().any(|list| list.eq_ignore_ascii_case(name))
}

impl Set {
    /// A statement that sets the same again, in any session and with either value of `standard_conforming_strings`. Without a
    /// semicolon.
    #[must_use]
    pub fn replay(&self) -> String {
        let mut text = String::from(if self.local { "SET LOCAL " } else { "SET " });
        if let Value::Interval { text: interval, fields } = &self.value {
            text.push_str("TIME ZONE INTERVAL ");
            push_literal(&mut text, interval);
            if !fields.is_empty() {
                text.push(' ');
                text.push_str(fields);
            }
            return text;
        }
        for (index, part) in self.name.split('.').enumerate() {
            if index > 0 {
                text.push('.');
            }
            push_identifier(&mut text, part);
        }
        match &self.value {
            Value::Text(value) if is_identifier_list(&self.name) && !value.is_empty() => {
                text.push_str(" TO ");
                push_list(&mut text, value);
            }
            Value::Text(value) => {
                text.push_str(" TO ");
                push_literal(&mut text, value);
            }
            Value::Default => text.push_str(" TO DEFAULT"),
            Value::Current => text.push_str(" FROM CURRENT"),
            Value::Interval { .. } => {}
        }
        text
    }

    pub(super) fn has_constant(&self) -> bool {
        match self.value {
            Value::Text(_) | Value::Interval { .. } => true,
            Value::Default | Value::Current => false,
        }
    }

    pub(super) fn size(&self) -> usize {
        self.name.len()
            + match &self.value {
                Value::Text(text) | Value::Interval { text, .. } => text.len(),
                Value::Default | Value::Current => 0,
            }
    }
}

fn push_literal(text: &mut String, value: &str) {
    if value.contains('\\') {
        text.push('E');
    }
    text.push('\'');
    for character in value.chars() {
        if matches!(character, '\'' | '\\') {
            text.push(character);
        }
        text.push(character);
    }
    text.push('\'');
}

/// Each name of a list as a literal: unlike an identifier it may be empty, and the server quotes it again as it was.
fn push_list(text: &mut String, value: &str) {
    let mut rest = value.trim_start_matches(' ');
    loop {
        let mut name = String::new();
        if let Some(mut inside) = rest.strip_prefix('"') {
            loop {
                let (before, behind) = inside.split_once('"').unwrap_or((inside, ""));
                name.push_str(before);
                inside = behind;
                match inside.strip_prefix('"') {
                    Some(behind) => {
                        name.push('"');
                        inside = behind;
                    }
                    None => break,
                }
            }
            rest = inside;
        } else {
            let (plain, _) = rest.split_once(',').unwrap_or((rest, ""));
            name.push_str(plain.trim_end_matches(' '));
            rest = &rest[plain.len()..];
        }
        push_literal(text, &name);
        match rest.split_once(',') {
            Some((_, behind)) => {
                text.push_str(", ");
                rest = behind.trim_start_matches(' ');
            }
            None => return,
        }
    }
}

/// As `quote_identifier` of ruleutils.c: quotes only where they are needed.
fn push_identifier(text: &mut String, name: &str) {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    // Keywords need quotes, but for the unreserved ones (kind 1; 0 is no keyword).
    let free =
        plain && pg_query::scan_tokens(name).is_ok_and(|tokens| tokens.iter().all(|token| token.keyword_kind <= 1));
    if free {
        text.push_str(name);
        return;
    }
    text.push('"');
    for character in name.chars() {
        if character == '"' {
            text.push('"');
        }
        text.push(character);
    }
    text.push('"');
}

/// The effects of a SET or RESET.
pub(super) fn effects_of(statement: &VariableSetStmt, effects: &mut Vec<Effect>) {
    let name: Box<str> = statement.name.as_str().into();
    let set = |value| Effect::Set(Set { name: name.clone(), value, local: statement.is_local });
    match statement.kind() {
        VariableSetKind::VarSetValue => {
            let value = value_of(&name, &statement.args);
            effects.push(set(value));
        }
        VariableSetKind::VarSetDefault => effects.push(set(Value::Default)),
        VariableSetKind::VarSetCurrent => effects.push(set(Value::Current)),
        VariableSetKind::VarSetMulti => multiple(statement, effects),
        VariableSetKind::VarReset => effects.push(Effect::Reset(Some(name))),
        VariableSetKind::VarResetAll | VariableSetKind::Undefined => effects.push(Effect::Reset(None)),
    }
}

fn value_of(name: &str, arguments: &[Node]) -> Value {
    let mut text = String::new();
    for (index, argument) in arguments.iter().enumerate() {
        if index > 0 {
            text.push_str(", ");
        }
        match &argument.node {
            Some(NodeEnum::AConst(constant)) => {
                let string = matches!(constant.val, Some(pg_query::protobuf::a_const::Val::Sval(_)));
                let value = constant_text(constant).unwrap_or_default();
                if string && is_identifier_list(name) {
                    push_identifier(&mut text, &value);
                } else {
                    text.push_str(&value);
                }
            }
            Some(NodeEnum::TypeCast(cast)) => {
                // SET TIME ZONE INTERVAL '...' fields: the one place where the grammar has a cast here.
                let interval = match cast.arg.as_ref().and_then(|inner| inner.node.as_ref()) {
                    Some(NodeEnum::AConst(constant)) => constant_text(constant).unwrap_or_default(),
                    _ => Box::default(),
                };
                let modifiers = cast.type_name.as_ref().map_or(&[][..], |name| &name.typmods);
                return Value::Interval { text: interval, fields: interval_fields(modifiers) };
            }
            _ => {}
        }
    }
    Value::Text(text.into())
}

/// The words of an interval's modifier (the bits are those of `INTERVAL_MASK` in timestamp.h; of zones only hours and minutes
/// are allowed).
fn interval_fields(modifiers: &[Node]) -> &'static str {
    const MINUTE: i32 = 1 << 11;
    const HOUR: i32 = 1 << 10;
    let number = modifiers.first().and_then(|node| match &node.node {
        Some(NodeEnum::AConst(constant)) => constant_text(constant)?.parse::<i32>().ok(),
        _ => None,
    });
    match number {
        Some(HOUR) => "HOUR",
        Some(mask) if mask == HOUR | MINUTE => "HOUR TO MINUTE",
        _ => "",
    }
}

/// SET TRANSACTION, SET TRANSACTION SNAPSHOT, SET SESSION CHARACTERISTICS AS TRANSACTION.
fn multiple(statement: &VariableSetStmt, effects: &mut Vec<Effect>) {
    match statement.name.as_str() {
        "TRANSACTION SNAPSHOT" => {
            let id = statement.args.iter().find_map(|node| match &node.node {
                Some(NodeEnum::AConst(constant)) => constant_text(constant),
                _ => None,
            });
            effects.push(Effect::Snapshot(id.unwrap_or_default()));
        }
        "SESSION CHARACTERISTICS" => {
            let modes = modes_of(&statement.args);
            let mut set = |name: &str, value: &str| {
                effects.push(Effect::Set(Set {
                    name: name.into(),
                    value: Value::Text(value.into()),
                    local: statement.is_local,
                }));
            };
            let on_off = |on| if on { "on" } else { "off" };
            if let Some(isolation) = modes.isolation {
                set("default_transaction_isolation", isolation.as_str());
            }
            if let Some(read_only) = modes.read_only {
                set("default_transaction_read_only", on_off(read_only));
            }
            if let Some(deferrable) = modes.deferrable {
                set("default_transaction_deferrable", on_off(deferrable));
            }
        }
        _ => effects.push(Effect::TransactionModes(modes_of(&statement.args))),
    }
}

/// The modes of a list of options.
pub(super) fn modes_of(options: &[Node]) -> Modes {
    let mut modes = Modes::default();
    for option in options {
        let Some(NodeEnum::DefElem(element)) = &option.node else { continue };
        let value = element_text(element).unwrap_or_default();
        match element.defname.as_str() {
            "transaction_isolation" => {
                modes.isolation = match &*value {
                    "read uncommitted" => Some(Isolation::ReadUncommitted),
                    "read committed" => Some(Isolation::ReadCommitted),
                    "repeatable read" => Some(Isolation::RepeatableRead),
                    "serializable" => Some(Isolation::Serializable),
                    _ => None,
                }
            }
            "transaction_read_only" => modes.read_only = Some(&*value != "0"),
            "transaction_deferrable" => modes.deferrable = Some(&*value != "0"),
            _ => {}
        }
    }
    modes
}

/// The text of an option's value.
pub(super) fn element_text(element: &DefElem) -> Option<Box<str>> {
    let node = element.arg.as_deref()?;
    match &node.node {
        Some(NodeEnum::AConst(constant)) => constant_text(constant),
        Some(NodeEnum::Integer(number)) => Some(number.ival.to_string().into()),
        Some(NodeEnum::Boolean(boolean)) => Some(if boolean.boolval { "true" } else { "false" }.into()),
        _ => string_of(node).map(Into::into),
    }
}
