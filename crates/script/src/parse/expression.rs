//! Expressions.

use source::{Diagnostic, Span};

use super::cursor::{Cursor, KEYWORDS};
use super::{statement, typename};
use crate::ast::{Expr, ExprKind, Local};
use crate::library;
use crate::operator::{Binary, Unary};
use crate::token::Token;
use crate::types::Type;

type Parsed = Result<Expr, Diagnostic>;

/// An expression.
pub(crate) fn expression(cursor: &mut Cursor<'_>) -> Parsed {
    cursor.deeper(|cursor| {
        let start = cursor.span();
        let test = binary(cursor, 1)?;
        if !cursor.take("?") {
            return Ok(test);
        }
        let yes = expression(cursor)?;
        cursor.expect(":")?;
        let no = expression(cursor)?;
        cursor.build(start, ExprKind::Ternary(Box::new(test), Box::new(yes), Box::new(no)))
    })
}

/// The binary operator that is next, if it binds at least as strongly as `rank`.
fn operator(cursor: &Cursor<'_>, rank: u8) -> Option<Binary> {
    let Token::Sign(sign) = cursor.peek() else { return None };
    if *sign == "/" && cursor.in_predicate && cursor.ahead(1).is("{") {
        return None;
    }
    let found = Binary::ALL.iter().find(|(_, each, _)| each == sign)?;
    (found.2 >= rank).then_some(found.0)
}

fn binary(cursor: &mut Cursor<'_>, rank: u8) -> Parsed {
    let start = cursor.span();
    let mut left = unary(cursor)?;
    while let Some(operator) = operator(cursor, rank) {
        cursor.next();
        let right = cursor.deeper(|cursor| binary(cursor, operator.rank() + 1))?;
        left = cursor.build(start, ExprKind::Binary(operator, Box::new(left), Box::new(right)))?;
    }
    Ok(left)
}

/// A value with what stands before it.
pub(crate) fn unary(cursor: &mut Cursor<'_>) -> Parsed {
    let start = cursor.span();
    let Token::Sign(sign) = cursor.peek() else { return postfix(cursor) };
    if matches!(*sign, "++" | "--") {
        cursor.next();
        let target = cursor.deeper(unary)?;
        let kind = ExprKind::Step { before: true, up: *sign == "++", target: Box::new(target) };
        return cursor.build(start, kind);
    }
    if let Some((operator, _)) = Unary::ALL.iter().find(|(_, each)| each == sign) {
        cursor.next();
        let value = cursor.deeper(unary)?;
        return cursor.build(start, ExprKind::Unary(*operator, Box::new(value)));
    }
    if *sign == "(" && is_cast(cursor) {
        cursor.next();
        let ty = typename::whole(cursor)?;
        cursor.expect(")")?;
        let value = cursor.deeper(unary)?;
        return cursor.build(start, ExprKind::Cast(ty, Box::new(value)));
    }
    postfix(cursor)
}

/// Whether the parenthesis begins a cast.
fn is_cast(cursor: &Cursor<'_>) -> bool {
    if typename::begins(cursor, 1) {
        return true;
    }
    // `(name *)value` and `(name)value` can only be casts, to a type of a program.
    let Token::Name(name) = cursor.ahead(1) else { return false };
    if library::find(name).is_some() {
        return false;
    }
    let stars = (2..10).take_while(|ahead| cursor.ahead(*ahead).is("*")).count();
    let is_value = |token: &Token| {
        matches!(
            token,
            Token::Name(_) | Token::Local(_) | Token::Map(_) | Token::Integer(_) | Token::Positional(_)
        )
    };
    cursor.ahead(2 + stars).is(")") && (stars > 0 || is_value(cursor.ahead(3)))
}

/// A value with what stands behind it.
fn postfix(cursor: &mut Cursor<'_>) -> Parsed {
    let start = cursor.span();
    let mut value = primary(cursor)?;
    loop {
        let kind = if cursor.take(".") || cursor.take("->") {
            match cursor.peek() {
                Token::Integer(index) => {
                    cursor.next();
                    let index = u32::try_from(*index).unwrap_or(u32::MAX);
                    ExprKind::Member(Box::new(value), index)
                }
                // Names of fields may be words of the language.
                Token::Name(name) => {
                    cursor.next();
                    ExprKind::Field(Box::new(value), name.to_string())
                }
                _ => return Err(cursor.unexpected("expected the name of a field or the number of a member")),
            }
        } else if cursor.take("[") {
            let index = expression(cursor)?;
            cursor.expect("]")?;
            ExprKind::Index(Box::new(value), Box::new(index))
        } else if cursor.peek().is("++") || cursor.peek().is("--") {
            let up = cursor.next().is("++");
            ExprKind::Step { before: false, up, target: Box::new(value) }
        } else {
            return Ok(value);
        };
        value = cursor.build(start, kind)?;
    }
}

fn primary(cursor: &mut Cursor<'_>) -> Parsed {
    let start = cursor.span();
    let kind = match cursor.peek() {
        Token::Integer(value) => {
            cursor.next();
            if cursor.peek().is(".") && matches!(cursor.ahead(1), Token::Integer(_)) {
                return Err(Diagnostic::error(start, "there are no floating-point numbers")
                    .label("only integers")
                    .help("count in smaller units, such as microseconds"));
            }
            ExprKind::Integer(*value)
        }
        Token::Text(bytes) => {
            cursor.next();
            ExprKind::Text(bytes.to_vec())
        }
        Token::Local(name) => {
            cursor.next();
            ExprKind::Local(Local { name: name.to_string(), usage: 0 })
        }
        Token::Positional(index) => {
            cursor.next();
            ExprKind::Positional(*index)
        }
        Token::PositionalCount => {
            cursor.next();
            ExprKind::PositionalCount
        }
        Token::Map(name) => {
            cursor.next();
            let key = match cursor.take("[") {
                true => Some(Box::new(key(cursor)?)),
                false => None,
            };
            ExprKind::Map(name.to_string(), key)
        }
        Token::Name(word) => return word_or_call(cursor, start, word),
        Token::Sign("(") => return parenthesis(cursor),
        Token::Sign("{") => ExprKind::Block(statement::block(cursor, true)?),
        _ => return Err(cursor.unexpected("expected a value")),
    };
    cursor.build(start, kind)
}

/// What is between the brackets of a map. Several keys are one tuple.
fn key(cursor: &mut Cursor<'_>) -> Parsed {
    let start = cursor.span();
    let mut keys = vec![expression(cursor)?];
    while cursor.take(",") {
        keys.push(expression(cursor)?);
    }
    let key = match keys.pop() {
        Some(only) if keys.is_empty() => only,
        last => {
            keys.extend(last);
            cursor.build(start, ExprKind::Tuple(keys))?
        }
    };
    cursor.expect("]")?;
    Ok(key)
}

/// `()`, `(value)`, `(value,)` or `(value, value)`.
fn parenthesis(cursor: &mut Cursor<'_>) -> Parsed {
    let start = cursor.span();
    cursor.expect("(")?;
    let mut members = Vec::new();
    let mut commas = false;
    while !cursor.peek().is(")") {
        members.push(expression(cursor)?);
        if !cursor.take(",") {
            break;
        }
        commas = true;
    }
    cursor.expect(")")?;
    match members.pop() {
        Some(only) if members.is_empty() && !commas => Ok(only),
        last => {
            members.extend(last);
            cursor.build(start, ExprKind::Tuple(members))
        }
    }
}

fn word_or_call(cursor: &mut Cursor<'_>, start: Span, word: &str) -> Parsed {
    match word {
        "true" | "false" => {
            cursor.next();
            return cursor.build(start, ExprKind::Bool(word == "true"));
        }
        "sizeof" | "offsetof" => return measure(cursor, start, word),
        "comptime" => {
            cursor.next();
            let value = cursor.deeper(unary)?;
            return cursor.build(start, ExprKind::Call(word.to_owned(), vec![value]));
        }
        _ if KEYWORDS.contains(&word) => return Err(cursor.unexpected("expected a value")),
        _ => {}
    }
    cursor.next();
    if !cursor.take("(") {
        return cursor.build(start, ExprKind::Name(word.to_string()));
    }
    let mut arguments = Vec::new();
    while !cursor.peek().is(")") {
        arguments.push(expression(cursor)?);
        if !cursor.take(",") {
            break;
        }
    }
    if !cursor.take(")") {
        return Err(cursor.unexpected("expected `,` or `)` after an argument"));
    }
    cursor.build(start, ExprKind::Call(word.to_string(), arguments))
}

/// `sizeof(type or value)`, `offsetof(type or value, field.field)`.
fn measure(cursor: &mut Cursor<'_>, start: Span, word: &str) -> Parsed {
    const MAX_FIELDS: usize = 32;
    cursor.next();
    cursor.expect("(")?;
    // `name *` can only be a type, of a program.
    let stars = (1..10).take_while(|ahead| cursor.ahead(*ahead).is("*")).count();
    let behind = cursor.ahead(1 + stars);
    let is_pointer =
        matches!(cursor.peek(), Token::Name(_)) && stars > 0 && (behind.is(")") || behind.is(","));
    let of: Result<Type, Expr> = match typename::begins(cursor, 0) || is_pointer {
        true => Ok(typename::whole(cursor)?),
        false => Err(expression(cursor)?),
    };
    let mut fields = Vec::new();
    if word == "offsetof" {
        cursor.expect(",")?;
        fields.push(cursor.name("the name of a field")?);
        while cursor.take(".") {
            fields.push(cursor.name("the name of a field")?);
            if fields.len() > MAX_FIELDS {
                return Err(cursor.unexpected("too many fields"));
            }
        }
    }
    cursor.expect(")")?;
    let kind = match (word, of) {
        ("sizeof", Ok(ty)) => ExprKind::SizeOfType(ty),
        ("sizeof", Err(value)) => ExprKind::SizeOf(Box::new(value)),
        (_, Ok(ty)) => ExprKind::OffsetOfType(ty, fields),
        (_, Err(value)) => ExprKind::OffsetOf(Box::new(value), fields),
    };
    cursor.build(start, kind)
}
