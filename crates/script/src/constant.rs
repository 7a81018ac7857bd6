//! Expressions whose value is known without running the script.

use crate::ast::{Expr, ExprKind};
use crate::operator::{Binary, Unary};

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
