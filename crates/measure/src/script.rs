//! Transactions to measure with, written in a subset of pgbench's script language.
//!
//! A script is a list of statements that end with a semicolon and of lines that begin with `\set NAME EXPRESSION`.
//! In a statement, `:NAME` outside of literals and comments stands for the variable's value. Expressions are whole
//! numbers of 64 bits: literals, variables, `+ - * / %`, parentheses, and the functions `random(low, high)` (both
//! ends included), `abs`, `least`, `greatest` and `mod`.
//!
//! Not here: pgbench's other backslash commands (`\if`, `\gset`, `\sleep`, `\startpipeline`), floating point, and
//! the skewed distributions. They are refused with the number of the line, never silently ignored.

mod expression;
mod lexer;

use std::collections::HashMap;

use expression::Expression;
use lexer::Item;

/// A parsed script, ready to be run by any number of clients at once.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    name: String,
    variables: Vec<String>,
    initial: Vec<i64>,
    commands: Vec<Command>,
}

#[derive(Debug, Clone, PartialEq)]
enum Command {
    Set { slot: usize, value: Expression },
    Statement(Statement),
}

/// One SQL statement of a script.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    pieces: Vec<Piece>,
    with_numbers: String,
    parameters: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq)]
enum Piece {
    Text(String),
    Variable(usize),
}

/// Why a script cannot be used. Lines count from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}, line {line}: {what}")]
pub struct ScriptError {
    /// The script's name.
    pub name: String,
    /// The line where it goes wrong.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

/// Why a `\set` of a running script has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationError {
    /// The result leaves the range of 64-bit integers.
    #[error("a \\set leaves the range of 64-bit integers")]
    Overflow,
    /// Division by zero, or a remainder of one.
    #[error("a \\set divides by zero")]
    DivisionByZero,
    /// `random(low, high)` with low above high.
    #[error("random() has a lower bound above its upper bound")]
    EmptyRange,
}

impl Script {
    /// pgbench's built-in select-only script (`pgbench -S`): one row of `pgbench_accounts` by its key. `scale` is
    /// the scale factor of the tables, 100,000 accounts each.
    #[must_use]
    pub fn select_only(scale: i64) -> Self {
        let text = "\\set aid random(1, 100000 * :scale)\n\
                    SELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n";
        match Self::parse("select only", text, &[("scale", scale)]) {
            Ok(script) => script,
            Err(error) => unreachable!("the built-in script is well-formed: {error}"),
        }
    }

    /// Parses `text`. `name` is for messages; `defined` are variables that exist from the start.
    ///
    /// # Errors
    /// [`ScriptError`] with the line: a command that is not supported, a malformed expression, a variable used
    /// before it is set, a literal or comment without end, or no statement at all.
    pub fn parse(name: &str, text: &str, defined: &[(&str, i64)]) -> Result<Self, ScriptError> {
        let fail = |line: usize, what: String| ScriptError { name: name.to_owned(), line, what };
        let mut slots: HashMap<String, usize> = HashMap::new();
        let mut script =
            Self { name: name.to_owned(), variables: Vec::new(), initial: Vec::new(), commands: Vec::new() };
        for (variable, value) in defined {
            slots.insert((*variable).to_owned(), script.variables.len());
            script.variables.push((*variable).to_owned());
            script.initial.push(*value);
        }
        for (line, item) in lexer::split(text).map_err(|(line, what)| fail(line, what))? {
            match item {
                Item::Backslash(command) => {
                    let (variable, expression) = assignment(command).map_err(|what| fail(line, what))?;
                    let value =
                        Expression::parse(expression, &|v| slots.get(v).copied()).map_err(|what| fail(line, what))?;
                    let next = script.variables.len();
                    let slot = *slots.entry(variable.to_owned()).or_insert(next);
                    if slot == next {
                        script.variables.push(variable.to_owned());
                        script.initial.push(0);
                    }
                    script.commands.push(Command::Set { slot, value });
                }
                Item::Statement(parts) => {
                    let statement = Statement::of(&parts, &slots).map_err(|what| fail(line, what))?;
                    script.commands.push(Command::Statement(statement));
                }
            }
        }
        if script.statements().next().is_none() {
            return Err(fail(1, "there is no statement in it".to_owned()));
        }
        Ok(script)
    }

    /// The name for messages and reports.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The statements in order.
    pub fn statements(&self) -> impl Iterator<Item = &Statement> {
        self.commands.iter().filter_map(|c| match c {
            Command::Statement(s) => Some(s),
            Command::Set { .. } => None,
        })
    }

    /// Starts one client's own copy of the variables.
    #[must_use]
    pub fn variables(&self, seed: u64) -> Variables {
        Variables { values: self.initial.clone(), rng: fastrand::Rng::with_seed(seed) }
    }

    /// Runs the script once: computes each `\set` in its turn and hands each statement to `run`, until that
    /// returns an error.
    ///
    /// # Errors
    /// What `run` returned, or an [`EvaluationError`] turned into the same type.
    pub fn run<E: From<EvaluationError>>(
        &self,
        variables: &mut Variables,
        mut run: impl FnMut(&Statement, &Variables) -> Result<(), E>,
    ) -> Result<(), E> {
        for command in &self.commands {
            match command {
                Command::Set { slot, value } => {
                    let value = value.evaluate(&variables.values, &mut variables.rng)?;
                    if let Some(place) = variables.values.get_mut(*slot) {
                        *place = value;
                    }
                }
                Command::Statement(statement) => run(statement, variables)?,
            }
        }
        Ok(())
    }
}

/// One client's variables and its source of random numbers.
#[derive(Debug, Clone)]
pub struct Variables {
    values: Vec<i64>,
    rng: fastrand::Rng,
}

impl Variables {
    fn get(&self, slot: usize) -> i64 {
        self.values.get(slot).copied().unwrap_or(0)
    }
}

impl Statement {
    fn of(parts: &[lexer::Part], slots: &HashMap<String, usize>) -> Result<Self, String> {
        let mut statement = Self { pieces: Vec::new(), with_numbers: String::new(), parameters: Vec::new() };
        for part in parts {
            match part {
                lexer::Part::Text(text) => {
                    statement.with_numbers.push_str(text);
                    statement.pieces.push(Piece::Text((*text).to_owned()));
                }
                lexer::Part::Variable(name) => {
                    let slot =
                        *slots.get(*name).ok_or_else(|| format!("the variable :{name} is used before it is set"))?;
                    let number = match statement.parameters.iter().position(|s| *s == slot) {
                        Some(at) => at + 1,
                        None => {
                            statement.parameters.push(slot);
                            statement.parameters.len()
                        }
                    };
                    statement.with_numbers.push_str(&format!("${number}"));
                    statement.pieces.push(Piece::Variable(slot));
                }
            }
        }
        Ok(statement)
    }

    /// The statement with the values written into it, for the simple query protocol.
    #[must_use]
    pub fn with_values(&self, variables: &Variables) -> String {
        let mut out = String::with_capacity(self.with_numbers.len() + 16);
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Variable(slot) => out.push_str(&variables.get(*slot).to_string()),
            }
        }
        out
    }

    /// The statement with `$1`, `$2`, ... in place of its variables, for the extended query protocol.
    #[must_use]
    pub fn with_parameters(&self) -> &str {
        &self.with_numbers
    }

    /// The values of the parameters of [`Self::with_parameters`], as text.
    #[must_use]
    pub fn parameters(&self, variables: &Variables) -> Vec<String> {
        self.parameters.iter().map(|slot| variables.get(*slot).to_string()).collect()
    }
}

/// Splits `set NAME EXPRESSION`.
fn assignment(command: &str) -> Result<(&str, &str), String> {
    let (word, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    if word != "set" {
        return Err(format!("\\{word} is not supported, only \\set is"));
    }
    let (name, expression) =
        rest.trim_start().split_once(char::is_whitespace).ok_or("\\set needs a name and an expression")?;
    let valid = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !valid {
        return Err(format!("{name:?} is not a name of a variable"));
    }
    Ok((name, expression))
}

#[cfg(test)]
mod tests;
