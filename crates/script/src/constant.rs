//! Expressions whose value is known without running the script.

use crate::ast::{Expr, ExprKind};
use crate::operator::{Binary, Unary};
use crate::types::Type;

/// The value of an integer expression without variables, in 64 bits.
pub(crate) fn integer(expr: &Expr) -> Option<i128> {
    let value = match &expr.kind {
        ExprKind::Integer(value) => i128::from(*value),
        ExprKind::Bool(value) => i128::from(*value),
        ExprKind::Unary(Unary::Minus, value) => -integer(value)?,
        ExprKind::Unary(Unary::Not, value) => i128::from(integer(value)? == 0),
        ExprKind::Binary(operator, left, right) => {
            let (left, right) = (integer(left)?, integer(right)?);
            match operator {
                Binary::Add => left + right,
                Binary::Subtract => left - right,
                Binary::Multiply => left.checked_mul(right)?,
                Binary::Divide => left.checked_div(right)?,
                Binary::Modulo => left.checked_rem(right)?,
                Binary::Left => left.checked_mul(1 << u32::try_from(right).ok().filter(|by| *by < 64)?)?,
                Binary::Right => left >> u32::try_from(right).ok().filter(|by| *by < 64)?,
                Binary::Equal => i128::from(left == right),
                Binary::Unequal => i128::from(left != right),
                Binary::Less => i128::from(left < right),
                Binary::LessEqual => i128::from(left <= right),
                Binary::Greater => i128::from(left > right),
                Binary::GreaterEqual => i128::from(left >= right),
                Binary::And => i128::from(left != 0 && right != 0),
                Binary::Or => i128::from(left != 0 || right != 0),
                Binary::BitAnd => left & right,
                Binary::BitOr => left | right,
                Binary::BitXor => left ^ right,
            }
        }
        _ => return None,
    };
    (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&value).then_some(value)
}

/// The number that an expression states, if it is not negative.
pub(crate) fn stated(value: &Expr) -> Option<u64> {
    integer(value).and_then(|value| u64::try_from(value).ok())
}

/// Whether a condition holds, as far as that is known without running the script. Types are known.
pub(crate) fn known(expr: &Expr) -> Option<bool> {
    if let Some(number) = integer(expr) {
        return Some(number != 0);
    }
    match &expr.kind {
        ExprKind::Unary(Unary::Not, value) => known(value).map(|value| !value),
        ExprKind::Binary(Binary::And, left, right) => Some(known(left)? && known(right)?),
        ExprKind::Binary(Binary::Or, left, right) => Some(known(left)? || known(right)?),
        ExprKind::Binary(Binary::Equal, left, right) => match (&left.kind, &right.kind) {
            (ExprKind::Text(left), ExprKind::Text(right)) => Some(left == right),
            _ => None,
        },
        ExprKind::Binary(Binary::Unequal, left, right) => match (&left.kind, &right.kind) {
            (ExprKind::Text(left), ExprKind::Text(right)) => Some(left != right),
            _ => None,
        },
        ExprKind::Call(name, arguments) => {
            let argument = arguments.first()?;
            let ty = &argument.ty;
            let literal =
                matches!(argument.kind, ExprKind::Integer(_) | ExprKind::Text(_) | ExprKind::Bool(_));
            if *ty == Type::Unknown {
                return None;
            }
            match name.as_str() {
                "is_array" => Some(matches!(ty, Type::Array(..))),
                "is_integer" => Some(matches!(ty, Type::Integer(_))),
                "is_literal" => Some(literal),
                "is_ptr" => Some(matches!(ty, Type::Pointer(_))),
                "is_str" => Some(*ty == Type::Text),
                "is_unsigned_integer" => Some(matches!(ty, Type::Integer(integer) if !integer.signed)),
                _ => None,
            }
        }
        _ => None,
    }
}
