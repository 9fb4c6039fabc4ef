//! Whole-number expressions of `\set`: parsed once, evaluated for each transaction, no allocation then.

use super::EvaluationError;

/// An expression whose variables are numbered slots.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expression {
    Number(i64),
    Variable(usize),
    Negative(Box<Expression>),
    Binary(Operator, Box<(Expression, Expression)>),
    Random(Box<(Expression, Expression)>),
    Absolute(Box<Expression>),
    Least(Vec<Expression>),
    Greatest(Vec<Expression>),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// How deeply an expression may nest: enough for any script, too little to exhaust the stack.
const DEEPEST: usize = 64;
/// How many operators an expression may have, for the same reason.
const MOST_OPERATORS: usize = 1000;

impl Expression {
    /// Parses `text`; `slot_of` finds the slot of a variable.
    pub(super) fn parse(text: &str, slot_of: &dyn Fn(&str) -> Option<usize>) -> Result<Self, String> {
        let mut parser = Parser { rest: text, slot_of, depth: 0, operators: 0 };
        let expression = parser.sum()?;
        match parser.peek() {
            None => Ok(expression),
            Some(_) => Err(format!("cannot read {:?} in the expression", parser.rest)),
        }
    }

    /// The value, with `values` in the slots.
    pub(super) fn evaluate(&self, values: &[i64], rng: &mut fastrand::Rng) -> Result<i64, EvaluationError> {
        use EvaluationError::{DivisionByZero, EmptyRange, Overflow};
        Ok(match self {
            Self::Number(n) => *n,
            Self::Variable(slot) => values.get(*slot).copied().unwrap_or(0),
            Self::Negative(e) => e.evaluate(values, rng)?.checked_neg().ok_or(Overflow)?,
            Self::Absolute(e) => e.evaluate(values, rng)?.checked_abs().ok_or(Overflow)?,
            Self::Binary(operator, sides) => {
                let (a, b) = (sides.0.evaluate(values, rng)?, sides.1.evaluate(values, rng)?);
                match operator {
                    Operator::Add => a.checked_add(b),
                    Operator::Subtract => a.checked_sub(b),
                    Operator::Multiply => a.checked_mul(b),
                    Operator::Divide | Operator::Remainder if b == 0 => {
                        return Err(DivisionByZero);
                    }
                    Operator::Divide => a.checked_div(b),
                    // The remainder by -1 is 0 even where the quotient overflows.
                    Operator::Remainder => Some(a.checked_rem(b).unwrap_or(0)),
                }
                .ok_or(Overflow)?
            }
            Self::Random(bounds) => {
                let (low, high) = (bounds.0.evaluate(values, rng)?, bounds.1.evaluate(values, rng)?);
                if low > high {
                    return Err(EmptyRange);
                }
                rng.i64(low..=high)
            }
            Self::Least(list) => extreme(list, values, rng, i64::min)?,
            Self::Greatest(list) => extreme(list, values, rng, i64::max)?,
        })
    }
}

fn extreme(
    list: &[Expression],
    values: &[i64],
    rng: &mut fastrand::Rng,
    choose: fn(i64, i64) -> i64,
) -> Result<i64, EvaluationError> {
    let mut best = None;
    for e in list {
        let v = e.evaluate(values, rng)?;
        best = Some(best.map_or(v, |b| choose(b, v)));
    }
    Ok(best.unwrap_or(0))
}

struct Parser<'a> {
    rest: &'a str,
    slot_of: &'a dyn Fn(&str) -> Option<usize>,
    depth: usize,
    operators: usize,
}

impl<'a> Parser<'a> {
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    fn eat(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.rest = self.rest.get(wanted.len_utf8()..).unwrap_or("");
        }
        found
    }

    fn expect(&mut self, wanted: char) -> Result<(), String> {
        if self.eat(wanted) { Ok(()) } else { Err(format!("the expression lacks a {wanted:?}")) }
    }

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !accept(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn sum(&mut self) -> Result<Expression, String> {
        let mut left = self.product()?;
        loop {
            let operator = match self.peek() {
                Some('+') => Operator::Add,
                Some('-') => Operator::Subtract,
                _ => return Ok(left),
            };
            self.operator()?;
            left = Expression::Binary(operator, Box::new((left, self.product()?)));
        }
    }

    /// Takes the operator that is next. A chain of them makes a tree as deep as it is long.
    fn operator(&mut self) -> Result<(), String> {
        self.rest = self.rest.get(1..).unwrap_or("");
        self.operators += 1;
        if self.operators > MOST_OPERATORS {
            return Err(format!("the expression has more than {MOST_OPERATORS} operators"));
        }
        Ok(())
    }

    fn product(&mut self) -> Result<Expression, String> {
        let mut left = self.factor()?;
        loop {
            let operator = match self.peek() {
                Some('*') => Operator::Multiply,
                Some('/') => Operator::Divide,
                Some('%') => Operator::Remainder,
                _ => return Ok(left),
            };
            self.operator()?;
            left = Expression::Binary(operator, Box::new((left, self.factor()?)));
        }
    }

    fn factor(&mut self) -> Result<Expression, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("the expression nests deeper than {DEEPEST}"));
        }
        let factor = self.factor_inside();
        self.depth -= 1;
        factor
    }

    fn factor_inside(&mut self) -> Result<Expression, String> {
        if self.eat('-') {
            return Ok(Expression::Negative(Box::new(self.factor()?)));
        }
        if self.eat('+') {
            return self.factor();
        }
        if self.eat('(') {
            let inner = self.sum()?;
            self.expect(')')?;
            return Ok(inner);
        }
        if self.eat(':') {
            let name = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
            let slot = (self.slot_of)(name).ok_or_else(|| format!("the variable :{name} is used before it is set"))?;
            return Ok(Expression::Variable(slot));
        }
        match self.peek() {
            Some(c) if c.is_ascii_digit() => {
                let digits = self.take_while(|c| c.is_ascii_digit());
                if self.rest.starts_with('.') {
                    return Err("only whole numbers are supported".to_owned());
                }
                let number = digits.parse().map_err(|_| format!("{digits} is not a 64-bit integer"))?;
                Ok(Expression::Number(number))
            }
            Some(c) if c.is_ascii_alphabetic() => {
                let name = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
                let arguments = self.arguments()?;
                function(name, arguments)
            }
            Some(_) => Err(format!("cannot read {:?} in the expression", self.rest)),
            None => Err("the expression ends too early".to_owned()),
        }
    }

    fn arguments(&mut self) -> Result<Vec<Expression>, String> {
        self.expect('(')?;
        let mut list = vec![self.sum()?];
        while self.eat(',') {
            list.push(self.sum()?);
        }
        self.expect(')')?;
        Ok(list)
    }
}

fn function(name: &str, mut arguments: Vec<Expression>) -> Result<Expression, String> {
    let given = arguments.len();
    let mut two = || match (arguments.pop(), arguments.pop(), arguments.pop()) {
        (Some(b), Some(a), None) => Ok(Box::new((a, b))),
        _ => Err(format!("{name}() takes two arguments, not {given}")),
    };
    match name.to_ascii_lowercase().as_str() {
        "random" => Ok(Expression::Random(two()?)),
        "mod" => Ok(Expression::Binary(Operator::Remainder, two()?)),
        "abs" => match (arguments.pop(), arguments.pop()) {
            (Some(a), None) => Ok(Expression::Absolute(Box::new(a))),
            _ => Err(format!("abs() takes one argument, not {given}")),
        },
        "least" => Ok(Expression::Least(arguments)),
        "greatest" => Ok(Expression::Greatest(arguments)),
        _ => Err(format!("the function {name}() is not supported")),
    }
}
