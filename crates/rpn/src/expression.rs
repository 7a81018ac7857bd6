//! Constant expressions: conditions of `#if`, and all numbers in the language.
//!
//! Both have C's operators and precedence; comparisons and logical operators are for `#if` only.
//! Values are computed exactly, in 128 bits, and range-checked where they are used: `~0` is -1 and
//! fits every word.

use std::fmt;

use source::{Diagnostic, Messages, SourceLocation, quote};

use crate::cursor::Cursor;
use crate::lex::{Kind, is_name};

/// A name in the source: of a symbol, a label, a group.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) place: SourceLocation,
}

impl fmt::Display for Name {
    /// In source form: in quotes if needed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_name(&self.text) {
            f.write_str(&self.text)
        } else {
            write!(f, "\"{}\"", self.text.replace('\\', "\\\\").replace('"', "\\\""))
        }
    }
}

/// An expression as written.
#[derive(Clone, Debug)]
pub(crate) struct Expression {
    pub(crate) node: Node,
    pub(crate) place: SourceLocation,
}

#[derive(Clone, Debug)]
pub(crate) enum Node {
    Number(u64),
    Symbol(Name),
    Unary(Unary, Box<Expression>),
    Binary(Binary, Box<[Expression; 2]>),
    /// `condition ? then : otherwise`
    Choice(Box<[Expression; 3]>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unary {
    Plus,
    Minus,
    Complement,
    Not,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Multiply,
    Divide,
    Remainder,
    Add,
    Subtract,
    ShiftLeft,
    ShiftRight,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
    BitAnd,
    BitXor,
    BitOr,
    And,
    Or,
}

const UNARY: &[(&str, Unary)] =
    &[("+", Unary::Plus), ("-", Unary::Minus), ("~", Unary::Complement), ("!", Unary::Not)];

/// Sign, operator, precedence, and whether it is allowed in `#if` only.
const BINARY: &[(&str, Binary, u8, bool)] = &[
    ("*", Binary::Multiply, 10, false),
    ("/", Binary::Divide, 10, false),
    ("%", Binary::Remainder, 10, false),
    ("+", Binary::Add, 9, false),
    ("-", Binary::Subtract, 9, false),
    ("<<", Binary::ShiftLeft, 8, false),
    (">>", Binary::ShiftRight, 8, false),
    ("<", Binary::Less, 7, true),
    ("<=", Binary::LessOrEqual, 7, true),
    (">", Binary::Greater, 7, true),
    (">=", Binary::GreaterOrEqual, 7, true),
    ("==", Binary::Equal, 6, true),
    ("!=", Binary::NotEqual, 6, true),
    ("&", Binary::BitAnd, 5, false),
    ("^", Binary::BitXor, 4, false),
    ("|", Binary::BitOr, 3, false),
    ("&&", Binary::And, 2, true),
    ("||", Binary::Or, 1, true),
];

/// The kind of expression allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grammar {
    /// A number of the language; names are symbols of the probed module.
    Constant,
    /// The condition of an `#if`.
    Condition,
}

/// Maximum nesting of parentheses and unary operators.
const MAX_NESTING: usize = 64;

/// Maximum number of operators in an expression. It bounds the depth of the tree, and so every
/// recursion over it.
const MAX_OPERATORS: usize = 512;

/// Whether an expression may start with this token, names excepted.
pub(crate) fn starts_number(cursor: &Cursor) -> bool {
    let token = cursor.peek();
    token.kind == Kind::Number || token.is("(") || UNARY.iter().any(|(sign, _)| token.is(sign))
}

/// Parses an expression. `what` says in messages what was expected.
pub(crate) fn parse(
    cursor: &mut Cursor,
    grammar: Grammar,
    what: &str,
    messages: &mut Messages,
) -> Result<Expression, Diagnostic> {
    Parser { cursor, grammar, what, messages, depth: 0, operators: 0 }.whole()
}

struct Parser<'c, 't> {
    cursor: &'c mut Cursor<'t>,
    grammar: Grammar,
    what: &'c str,
    messages: &'c mut Messages,
    depth: usize,
    operators: usize,
}

impl Parser<'_, '_> {
    fn whole(&mut self) -> Result<Expression, Diagnostic> {
        let condition = self.binary(0)?;
        if self.grammar != Grammar::Condition || !self.cursor.eat("?") {
            return Ok(condition);
        }
        self.nest()?;
        let then = self.whole()?;
        if !self.cursor.eat(":") {
            return Err(self.cursor.expected("`:`"));
        }
        let otherwise = self.whole()?;
        self.depth -= 1;
        let place = condition.place.to(otherwise.place);
        Ok(Expression { node: Node::Choice(Box::new([condition, then, otherwise])), place })
    }

    fn nest(&mut self) -> Result<(), Diagnostic> {
        self.depth += 1;
        if self.depth <= MAX_NESTING {
            return Ok(());
        }
        Err(Diagnostic::error(self.cursor.peek().place, "this expression is nested too deeply")
            .label(format!("more than {MAX_NESTING} levels")))
    }

    fn binary(&mut self, least: u8) -> Result<Expression, Diagnostic> {
        let mut left = self.unary()?;
        loop {
            let next = self.cursor.peek();
            let allowed = |only_condition: bool| !only_condition || self.grammar == Grammar::Condition;
            let found = BINARY.iter().find(|(sign, _, _, only)| allowed(*only) && next.is(sign));
            let Some(&(_, operator, precedence, _)) =
                found.filter(|(_, _, precedence, _)| *precedence > least)
            else {
                return Ok(left);
            };
            self.operators += 1;
            if self.operators > MAX_OPERATORS {
                return Err(Diagnostic::error(next.place, "this expression is too long")
                    .label(format!("more than {MAX_OPERATORS} operators")));
            }
            self.cursor.skip(1);
            let right = self.binary(precedence)?;
            let place = left.place.to(right.place);
            left = Expression { node: Node::Binary(operator, Box::new([left, right])), place };
        }
    }

    fn unary(&mut self) -> Result<Expression, Diagnostic> {
        let next = self.cursor.peek();
        if let Some(&(_, operator)) = UNARY.iter().find(|(sign, _)| next.is(sign)) {
            self.cursor.skip(1);
            self.nest()?;
            let inner = self.unary()?;
            self.depth -= 1;
            let place = next.place.to(inner.place);
            return Ok(Expression { node: Node::Unary(operator, Box::new(inner)), place });
        }
        if self.cursor.eat("(") {
            self.nest()?;
            let inner = self.whole()?;
            self.depth -= 1;
            if !self.cursor.eat(")") {
                return Err(self.cursor.expected("`)`").related(next.place.span, "to close this"));
            }
            return Ok(Expression { place: next.place.to(self.cursor.last_place()), ..inner });
        }
        let node = match next.kind {
            Kind::Number => Node::Number(self.number()?),
            Kind::Name => Node::Symbol(Name { text: next.text.to_string(), place: next.place }),
            Kind::Text if self.grammar == Grammar::Constant && !next.text.is_empty() => {
                Node::Symbol(Name { text: next.text.to_string(), place: next.place })
            }
            _ => return Err(self.cursor.expected(self.what)),
        };
        self.cursor.skip(1);
        Ok(Expression { node, place: next.place })
    }

    /// Parses a number: decimal, or hexadecimal after `0x`.
    fn number(&mut self) -> Result<u64, Diagnostic> {
        let token = self.cursor.peek();
        let text = &*token.text;
        let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
        let (digits, radix) = hexadecimal.map_or((text, 10), |digits| (digits, 16));
        if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
            return Err(Diagnostic::error(token.place, format!("{} is not a number", quote(text)))
                .label("expected a decimal number, or a hexadecimal one after `0x`"));
        }
        if radix == 10 && digits.len() > 1 && digits.starts_with('0') {
            self.messages.add(
                Diagnostic::warning(token.place, format!("{} is a decimal number", quote(text)))
                    .label("read as decimal")
                    .help("the language has no octal numbers; leave out the leading 0"),
            );
        }
        u64::from_str_radix(digits, radix).map_err(|_| {
            Diagnostic::error(token.place, format!("the number {} is too large", quote(text)))
                .label("does not fit in 64 bits")
        })
    }
}

impl fmt::Display for Expression {
    /// As text that parses as an equivalent expression: operands in parentheses, numbers in
    /// hexadecimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = |expression: &Expression| match expression.node {
            Node::Number(_) | Node::Symbol(_) => expression.to_string(),
            _ => format!("({expression})"),
        };
        match &self.node {
            Node::Number(value @ 0..10) => write!(f, "{value}"),
            Node::Number(value) => write!(f, "{value:#x}"),
            Node::Symbol(name) => name.fmt(f),
            Node::Unary(operator, operand) => {
                let sign = UNARY.iter().find(|row| row.1 == *operator).map_or("", |row| row.0);
                write!(f, "{sign}{}", inner(operand))
            }
            Node::Binary(operator, operands) => {
                let sign = BINARY.iter().find(|row| row.1 == *operator).map_or("", |row| row.0);
                write!(f, "{} {sign} {}", inner(&operands[0]), inner(&operands[1]))
            }
            Node::Choice(parts) => {
                write!(f, "{} ? {} : {}", inner(&parts[0]), inner(&parts[1]), inner(&parts[2]))
            }
        }
    }
}

/// The value of an expression: a number, or a symbol's address plus a number.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) symbol: Option<Name>,
    pub(crate) number: i128,
}

impl Expression {
    /// Computes an expression of the language.
    pub(crate) fn value(&self) -> Result<Value, Diagnostic> {
        self.evaluate(&|name| Value { symbol: Some(name.clone()), number: 0 })
    }

    /// Computes the condition of an `#if`. A name that is not a macro is 0, as in C.
    pub(crate) fn condition(&self) -> Result<bool, Diagnostic> {
        self.evaluate(&|_| Value { symbol: None, number: 0 }).map(|value| value.number != 0)
    }

    fn evaluate(&self, symbol: &dyn Fn(&Name) -> Value) -> Result<Value, Diagnostic> {
        let plain = |number| Ok(Value { symbol: None, number });
        match &self.node {
            Node::Number(value) => plain(i128::from(*value)),
            Node::Symbol(name) => Ok(symbol(name)),
            Node::Unary(Unary::Plus, operand) => operand.evaluate(symbol),
            Node::Unary(operator, operand) => {
                let value = operand.evaluate(symbol)?.plain()?;
                match operator {
                    Unary::Plus => plain(value),
                    Unary::Minus => value.checked_neg().map_or_else(|| self.overflow(), plain),
                    Unary::Complement => plain(!value),
                    Unary::Not => plain(i128::from(value == 0)),
                }
            }
            Node::Binary(operator @ (Binary::And | Binary::Or), operands) => {
                let decides = *operator == Binary::Or;
                let left = operands[0].evaluate(symbol)?.plain()? != 0;
                let truth =
                    if left == decides { decides } else { operands[1].evaluate(symbol)?.plain()? != 0 };
                plain(i128::from(truth))
            }
            Node::Binary(operator, operands) => {
                let [left, right] = &**operands;
                self.combine(*operator, left.evaluate(symbol)?, right.evaluate(symbol)?, right.place)
            }
            Node::Choice(parts) => {
                let chosen = if parts[0].evaluate(symbol)?.plain()? != 0 { &parts[1] } else { &parts[2] };
                chosen.evaluate(symbol)
            }
        }
    }

    fn combine(
        &self,
        operator: Binary,
        left: Value,
        right: Value,
        divisor: SourceLocation,
    ) -> Result<Value, Diagnostic> {
        // A symbol's address is not known yet: the only operation is to add or subtract a number.
        match (operator, &left.symbol, &right.symbol) {
            (Binary::Add, Some(_), None)
            | (Binary::Add, None, Some(_))
            | (Binary::Subtract, Some(_), None) => {
                let sum = match operator {
                    Binary::Add => left.number.checked_add(right.number),
                    _ => left.number.checked_sub(right.number),
                };
                let symbol = left.symbol.or(right.symbol);
                return sum.map_or_else(|| self.overflow(), |number| Ok(Value { symbol, number }));
            }
            _ => {}
        }
        let (left, right) = (left.plain()?, right.plain()?);
        if matches!(operator, Binary::Divide | Binary::Remainder) && right == 0 {
            return Err(Diagnostic::error(divisor, "division by zero").label("this is 0"));
        }
        let shift = u32::try_from(right).ok().filter(|count| *count < 64);
        let number = match operator {
            Binary::Multiply => left.checked_mul(right),
            Binary::Divide => left.checked_div(right),
            Binary::Remainder => left.checked_rem(right),
            Binary::Add => left.checked_add(right),
            Binary::Subtract => left.checked_sub(right),
            Binary::ShiftLeft => shift.and_then(|count| left.checked_mul(1 << count)),
            Binary::ShiftRight => shift.map(|count| left >> count),
            Binary::Less => Some(i128::from(left < right)),
            Binary::LessOrEqual => Some(i128::from(left <= right)),
            Binary::Greater => Some(i128::from(left > right)),
            Binary::GreaterOrEqual => Some(i128::from(left >= right)),
            Binary::Equal => Some(i128::from(left == right)),
            Binary::NotEqual => Some(i128::from(left != right)),
            Binary::BitAnd => Some(left & right),
            Binary::BitXor => Some(left ^ right),
            Binary::BitOr => Some(left | right),
            Binary::And => Some(i128::from(left != 0 && right != 0)),
            Binary::Or => Some(i128::from(left != 0 || right != 0)),
        };
        match number {
            Some(number) => Ok(Value { symbol: None, number }),
            None if matches!(operator, Binary::ShiftLeft | Binary::ShiftRight) && shift.is_none() => {
                Err(Diagnostic::error(divisor, format!("a shift by {right}")).label("expected 0 to 63"))
            }
            None => self.overflow(),
        }
    }

    fn overflow<T>(&self) -> Result<T, Diagnostic> {
        Err(Diagnostic::error(self.place, "this expression overflows").label("its value is too large"))
    }
}

impl Value {
    /// The number; an error if a symbol is involved.
    pub(crate) fn plain(&self) -> Result<i128, Diagnostic> {
        match &self.symbol {
            None => Ok(self.number),
            Some(name) => Err(Diagnostic::error(
                name.place,
                format!("the address of {} is not known yet", quote(&name.text)),
            )
            .label("expected a number")
            .help("a number may be added to a symbol or subtracted from it; nothing else")),
        }
    }
}

#[cfg(test)]
mod tests;
