//! The meaning of operators on integers of 64 bits, and which of them look at a sign.

use crate::ast::Expr;
use crate::constant::stated;
use crate::operator::Binary;
use crate::types::{Integer, Type};

/// How an operator reads its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Signed,
    Unsigned,
}

/// How an operator between two values reads them. A number that the script states takes the sign of
/// the other side.
pub(super) fn sign(operator: Binary, left: &Expr, right: &Expr) -> Sign {
    let unsigned = match operator {
        // Only what is shifted decides.
        Binary::Left | Binary::Right => !left.ty.as_integer().is_some_and(|integer| integer.signed),
        _ => is_wide(left) || is_wide(right),
    };
    if unsigned { Sign::Unsigned } else { Sign::Signed }
}

/// Whether a value may be larger than the largest signed number.
fn is_wide(value: &Expr) -> bool {
    match (&value.ty, stated(value)) {
        (Type::Pointer(_), _) => true,
        (ty, number) => {
            let large = number.is_none_or(|number| number > i64::MAX as u64);
            large && ty.as_integer() == Some(Integer::U64)
        }
    }
}

/// The result of an operator that has one for all operands.
pub(super) fn apply(operator: Binary, sign: Sign, left: u64, right: u64) -> u64 {
    let (signed_left, signed_right) = (left as i64, right as i64);
    let is_signed = sign == Sign::Signed;
    let less = |a: u64, b: u64| if is_signed { (a as i64) < b as i64 } else { a < b };
    match operator {
        Binary::Or => u64::from(left != 0 || right != 0),
        Binary::And => u64::from(left != 0 && right != 0),
        Binary::BitOr => left | right,
        Binary::BitXor => left ^ right,
        Binary::BitAnd => left & right,
        Binary::Equal => u64::from(left == right),
        Binary::Unequal => u64::from(left != right),
        Binary::Less => u64::from(less(left, right)),
        Binary::LessEqual => u64::from(!less(right, left)),
        Binary::Greater => u64::from(less(right, left)),
        Binary::GreaterEqual => u64::from(!less(left, right)),
        Binary::Left => left.wrapping_shl(right as u32),
        Binary::Right if is_signed => signed_left.wrapping_shr(right as u32) as u64,
        Binary::Right => left.wrapping_shr(right as u32),
        Binary::Add => left.wrapping_add(right),
        Binary::Subtract => left.wrapping_sub(right),
        Binary::Multiply => left.wrapping_mul(right),
        Binary::Divide if right == 0 => 0,
        Binary::Divide if is_signed => signed_left.wrapping_div(signed_right) as u64,
        Binary::Divide => left / right,
        Binary::Modulo if right == 0 => left,
        Binary::Modulo if is_signed => signed_left.wrapping_rem(signed_right) as u64,
        Binary::Modulo => left % right,
    }
}

/// A value as a type has it: its low bytes, extended.
pub(super) fn extended(value: u64, bytes: u8, signed: bool) -> u64 {
    let unused = 64 - u32::from(bytes.clamp(1, 8)) * 8;
    match signed {
        true => ((value << unused) as i64 >> unused) as u64,
        false => value << unused >> unused,
    }
}
