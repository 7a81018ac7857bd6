//! Checks operators.

use source::{Diagnostic, Span};

use super::checker::Checker;
use super::unify::{calculated, is_text, join, stored};
use crate::ast::{Expr, ExprKind};
use crate::constant;
use crate::constant::stated;
use crate::operator::{Binary, Unary};
use crate::types::{Integer, Type};

impl Checker<'_> {
    /// An operator before a value.
    pub(crate) fn unary(&mut self, operator: Unary, value: &mut Expr) -> Type {
        let ty = self.value(value);
        let span = value.span();
        if ty == Type::Unknown {
            return if operator == Unary::Not { Type::Bool } else { Type::Unknown };
        }
        match operator {
            Unary::Not => {
                self.must_be_condition(&ty, span);
                Type::Bool
            }
            Unary::Minus => match (&value.kind, ty.as_integer()) {
                (ExprKind::Integer(number), _) => {
                    if *number > 1 << 63 {
                        self.error(span, "the negative number is smaller than 64 bits can be", "too large");
                    }
                    Type::Integer(Integer::of_negative(*number))
                }
                (_, Some(_)) => Type::I64,
                (_, None) => self.needs_integer("-", &ty, span),
            },
            Unary::Complement => match ty.as_integer() {
                Some(integer) => Type::Integer(Integer { bytes: 8, ..integer }),
                None => self.needs_integer("~", &ty, span),
            },
            Unary::Dereference => match &ty {
                Type::Pointer(inner) if **inner != Type::Void => (**inner).clone(),
                _ => {
                    let message =
                        Diagnostic::error(span, format!("a value of type `{ty}` points to nothing known"))
                            .label("expected a pointer");
                    self.report(message.help("cast it to a pointer: `*(int32 *)x`"));
                    Type::Unknown
                }
            },
            Unary::Address => match value.kind {
                ExprKind::Local(_) | ExprKind::Map(..) | ExprKind::Field(..) | ExprKind::Index(..) => {
                    ty.pointer()
                }
                _ => {
                    self.error(span, "this has no address", "expected a variable, a map or a field");
                    Type::Unknown
                }
            },
        }
    }

    /// A floating-point number is calculated with.
    fn floating(&mut self, sign: &str, span: Span) {
        let message = format!("`{sign}` cannot be applied to a floating-point number");
        self.report(
            Diagnostic::error(span, message)
                .label("scripts calculate with integers")
                .help("print it with `%g`, or convert it: `(int64)x` is its part before the point"),
        );
    }

    fn needs_integer(&mut self, sign: &str, ty: &Type, span: Span) -> Type {
        if matches!(ty, Type::Float(_)) {
            self.floating(sign, span);
            return Type::Unknown;
        }
        self.error(
            span,
            format!("`{sign}` cannot be applied to a value of type `{ty}`"),
            "expected an integer",
        );
        Type::Unknown
    }

    /// `++` and `--`.
    pub(crate) fn step(&mut self, target: &mut Expr, up: bool) -> Type {
        let sign = if up { "++" } else { "--" };
        let span = target.span();
        if !matches!(target.kind, ExprKind::Local(_) | ExprKind::Map(..)) {
            self.error(span, format!("`{sign}` cannot change this"), "expected a variable or a map");
            return Type::Unknown;
        }
        let have = self.target(target);
        let new = match &have {
            Type::Unknown | Type::Pointer(_) => have.clone(),
            Type::Integer(Integer::U64) => Type::U64,
            Type::Integer(_) | Type::Bool => Type::I64,
            Type::Aggregate(_) => {
                let message = format!("`{sign}` cannot change a map of type `{have}`");
                self.error(span, message, "is set by its function only");
                return Type::Unknown;
            }
            _ => return self.needs_integer(sign, &have, span),
        };
        // A map that is not set yet counts from 0.
        let new = match (&target.kind, new) {
            (ExprKind::Map(..), Type::Unknown) => Type::I64,
            (_, new) => new,
        };
        if new == Type::Unknown {
            return new;
        }
        let ty = self.assign(target, &new, None, span);
        target.ty = ty.clone();
        ty
    }

    /// An operator between two values.
    pub(crate) fn operation(
        &mut self,
        operator: Binary,
        (left, left_expr): (&Type, &Expr),
        (right, right_expr): (&Type, &Expr),
        span: Span,
    ) -> Type {
        if matches!(left, Type::Float(_)) || matches!(right, Type::Float(_)) {
            let float = if matches!(left, Type::Float(_)) { left_expr } else { right_expr };
            self.floating(operator.sign(), float.span());
            return Type::Unknown;
        }
        match operator {
            Binary::And | Binary::Or => {
                self.must_be_condition(left, left_expr.span());
                self.must_be_condition(right, right_expr.span());
                return Type::Bool;
            }
            Binary::Equal | Binary::Unequal => {
                let numbers = left.as_integer().is_some() && right.as_integer().is_some();
                let pointers = is_pointer_pair(left, right);
                let texts = is_text(left) && is_text(right);
                let same = join(&stored(left), &stored(right), stated(right_expr)).is_some();
                if !numbers && !pointers && !texts && !same {
                    self.incompatible(operator, left, right, span);
                }
                return Type::Bool;
            }
            _ => {}
        }
        if *left == Type::Unknown || *right == Type::Unknown {
            let known = if *left == Type::Unknown { right } else { left };
            if !matches!(known, Type::Unknown | Type::Pointer(_)) && known.as_integer().is_none() {
                self.incompatible(operator, left, right, span);
            }
            return if operator.is_test() { Type::Bool } else { Type::Unknown };
        }
        if operator.is_test() {
            if is_pointer_pair(left, right) {
                return Type::Bool;
            }
            if left.as_integer().is_none() || right.as_integer().is_none() {
                self.incompatible(operator, left, right, span);
            }
            self.signs(operator, (left, left_expr), (right, right_expr), span);
            return Type::Bool;
        }
        match (left, right, operator) {
            (Type::Pointer(_), other, Binary::Add | Binary::Subtract) if other.as_integer().is_some() => {
                left.clone()
            }
            (other, Type::Pointer(_), Binary::Add) if other.as_integer().is_some() => right.clone(),
            (Type::Pointer(_), Type::Pointer(_), Binary::Subtract) => Type::I64,
            _ => self.calculation(operator, (left, left_expr), (right, right_expr), span),
        }
    }

    fn calculation(
        &mut self,
        operator: Binary,
        (left, left_expr): (&Type, &Expr),
        (right, right_expr): (&Type, &Expr),
        span: Span,
    ) -> Type {
        let (Some(left_integer), Some(right_integer)) = (left.as_integer(), right.as_integer()) else {
            self.incompatible(operator, left, right, span);
            return Type::Unknown;
        };
        let number = constant::integer(right_expr);
        if matches!(operator, Binary::Divide | Binary::Modulo) {
            if number == Some(0) {
                self.error(right_expr.span(), "the divisor is 0", "nothing can be divided by it");
            }
            self.signs(operator, (left, left_expr), (right, right_expr), span);
        }
        if matches!(operator, Binary::Left | Binary::Right) {
            if number.is_some_and(|number| !(0..64).contains(&number)) {
                self.error(
                    right_expr.span(),
                    "a number of 64 bits cannot be shifted by this",
                    "expected 0 to 63",
                );
            }
            // Only what is shifted decides.
            return calculated(Some(left_integer), None);
        }
        let unless_stated = |integer, expr: &Expr| if stated(expr).is_some() { None } else { Some(integer) };
        calculated(unless_stated(left_integer, left_expr), unless_stated(right_integer, right_expr))
    }

    /// Warns where a sign decides and the operands differ in it.
    fn signs(
        &mut self,
        operator: Binary,
        (left, left_expr): (&Type, &Expr),
        (right, right_expr): (&Type, &Expr),
        span: Span,
    ) {
        let (Some(left_integer), Some(right_integer)) = (left.as_integer(), right.as_integer()) else {
            return;
        };
        let is_stated = stated(left_expr).is_some() || stated(right_expr).is_some();
        if !is_stated && left_integer.common(right_integer).is_none() {
            let message = format!("`{}` is between `{left}` and `{right}`", operator.sign());
            self.report(
                Diagnostic::warning(span, message)
                    .label("a negative number counts as a large one")
                    .help("cast one of them"),
            );
        }
    }

    fn incompatible(&mut self, operator: Binary, left: &Type, right: &Type, span: Span) {
        let message = format!("`{}` cannot be applied to `{left}` and `{right}`", operator.sign());
        let message = Diagnostic::error(span, message).label("expected values that go together");
        self.report(match (left, right) {
            (Type::Text, Type::Text) => message.help("strings can be compared with `==` and `!=` only"),
            (Type::Text, other) | (other, Type::Text)
                if matches!(other, Type::Pointer(_) | Type::Integer(Integer { bytes: 8, .. })) =>
            {
                message.help("read the string with `str()`")
            }
            _ => message,
        });
    }
}

/// Whether two values can be compared as addresses.
fn is_pointer_pair(left: &Type, right: &Type) -> bool {
    let address = |ty: &Type| matches!(ty, Type::Pointer(_)) || ty.as_integer().is_some();
    let pointer = matches!(left, Type::Pointer(_)) || matches!(right, Type::Pointer(_));
    pointer && address(left) && address(right)
}
