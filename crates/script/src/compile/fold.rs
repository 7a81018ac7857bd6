//! Values that are known when a script is compiled.

use crate::ast::{Expr, ExprKind};
use crate::constant::known;
use crate::operator::Unary;
use crate::types::Type;

use super::arithmetic::{apply, extended, sign};
use super::forms::Forms;

impl Forms {
    /// The value of an expression that is known when it is compiled.
    pub(super) fn fold(&self, expr: &Expr) -> Option<u64> {
        match &expr.kind {
            ExprKind::Integer(value) => Some(*value),
            ExprKind::Bool(value) => Some(u64::from(*value)),
            ExprKind::Name(name) => {
                let (ty, value) = self.records.constant(name)?;
                let value = *value as u64;
                Some(if matches!(ty, Type::Named(..)) { extended(value, 4, false) } else { value })
            }
            ExprKind::Unary(operator, value) => {
                let value = self.fold(value)?;
                match operator {
                    Unary::Minus => Some(value.wrapping_neg()),
                    Unary::Not => Some(u64::from(value == 0)),
                    Unary::Complement => Some(!value),
                    Unary::Dereference | Unary::Address => None,
                }
            }
            ExprKind::Binary(operator, left, right) => {
                if matches!((&left.ty, &right.ty), (Type::Pointer(_), _) | (_, Type::Pointer(_))) {
                    return None;
                }
                let (value, other) = (self.fold(left)?, self.fold(right)?);
                Some(apply(*operator, sign(*operator, left, right), value, other))
            }
            ExprKind::Cast(to, value) => {
                value.ty.as_integer()?;
                let value = self.fold(value)?;
                match to {
                    Type::Bool => Some(u64::from(value != 0)),
                    _ => to.as_integer().map(|to| extended(value, to.bytes, to.signed)),
                }
            }
            ExprKind::SizeOfType(ty) => self.size(ty),
            ExprKind::SizeOf(value) => self.size(&value.ty),
            ExprKind::OffsetOfType(ty, fields) => self.offset(ty, fields),
            ExprKind::OffsetOf(value, fields) => self.offset(&value.ty, fields),
            ExprKind::Call(..) => known(expr).map(u64::from),
            _ => None,
        }
    }

    /// `sizeof`: what C says; of a string its room.
    fn size(&self, ty: &Type) -> Option<u64> {
        self.records.size(ty).or_else(|| match ty {
            Type::Text | Type::Bytes => Some(self.max_strlen as u64),
            _ => self.stored(ty).map(|bytes| bytes as u64),
        })
    }

    fn offset(&self, ty: &Type, fields: &[String]) -> Option<u64> {
        let (mut ty, mut offset) = (ty.clone(), 0u64);
        for field in fields {
            if let Type::Pointer(inner) = &ty {
                ty = Type::clone(inner);
            }
            let Type::Named(_, name) = &ty else { return None };
            let layout = self.records.get(name)?;
            let placed = layout.fields.get(field)?;
            offset += placed.offset;
            ty = placed.ty.clone();
        }
        Some(offset)
    }

    /// Whether a condition holds, as far as that is known.
    pub(super) fn known(&self, test: &Expr) -> Option<bool> {
        let is_text = matches!(test.kind, ExprKind::Binary(_, ref left, _) if left.ty == Type::Text);
        match self.fold(test) {
            Some(value) => Some(value != 0),
            None if is_text => known(test),
            None => None,
        }
    }
}
