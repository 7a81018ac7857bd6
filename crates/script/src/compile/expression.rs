//! Compiles integers and conditions: what is one element of the stack.

use std::rc::Rc;

use crate::ast::{Expr, ExprKind, is_record};
use crate::operator::{Binary, Unary};
use crate::types::{Integer, Tag, Type};
use vm::Op;

use super::arithmetic::{Sign, sign};
use super::assembler::Label;
use super::call::Call;
use super::compiler::{Compiler, Result};
use super::forms::Form;
use super::{floats, refuse};
use crate::walk::is_pure;

impl Compiler<'_> {
    /// Pushes the value of an expression that is one word.
    pub(super) fn word(&mut self, expr: &Expr) -> Result<()> {
        if let Some(value) = self.fold(expr) {
            self.asm.push(value);
            return Ok(());
        }
        match &expr.kind {
            ExprKind::Name(_) if self.served.value(expr).is_some() => self.read_word(expr),
            ExprKind::Name(name) => Call::new(self, name, &[], expr)?.word(),
            ExprKind::Call(name, arguments) => Call::new(self, name, arguments, expr)?.word(),
            ExprKind::Local(name) => match self.find(name).map(|variable| variable.at) {
                Some(at) => {
                    self.asm.get(at);
                    Ok(())
                }
                None => Err(refuse::unknown(expr)),
            },
            ExprKind::Map(name, key) => self.load(name, key.as_deref(), expr),
            ExprKind::Field(value, name)
                if is_record(value, &self.served.providers) && self.served.probed.signature.is_none() =>
            {
                self.record_field(name, expr.at.0)
            }
            ExprKind::Unary(Unary::Dereference, _) | ExprKind::Field(..) | ExprKind::Index(..) => {
                self.read_word(expr)
            }
            ExprKind::Member(..) => self.read_word(expr),
            ExprKind::Unary(Unary::Address, value) => self.address(value),
            ExprKind::Unary(operator, value) => {
                if *operator == Unary::Not {
                    return self.truth(expr);
                }
                self.word(value)?;
                match operator {
                    Unary::Minus => {
                        self.asm.push(0);
                        self.asm.op(Op::Sub);
                    }
                    // The instruction of this name is the ones' complement.
                    _ => self.asm.op(Op::Neg),
                }
                Ok(())
            }
            ExprKind::Step { before, up, target } => self.step(target, *before, *up, true),
            ExprKind::Binary(operator, left, right) => self.binary(*operator, left, right, expr),
            ExprKind::Ternary(test, yes, no) => self.choose(test, |c| c.word(yes), |c| c.word(no)),
            ExprKind::Cast(to, value) => self.cast(to, value),
            ExprKind::Block(block) => {
                self.open();
                self.statements_only(block);
                let done = match &block.value {
                    Some(value) => self.word(value),
                    None => Err(refuse::unknown(expr)),
                };
                // The places stay taken: the value may be in one of them.
                self.close(None);
                done
            }
            _ => Err(refuse::unknown(expr)),
        }
    }

    /// The value of an expression that is known when it is compiled.
    pub(super) fn fold(&self, expr: &Expr) -> Option<u64> {
        self.forms.fold(expr)
    }

    fn binary(&mut self, operator: Binary, left: &Expr, right: &Expr, expr: &Expr) -> Result<()> {
        match operator {
            Binary::And | Binary::Or => return self.truth(expr),
            Binary::Equal | Binary::Unequal => {
                self.equal(left, right)?;
                if operator == Binary::Unequal {
                    self.asm.not();
                }
                return Ok(());
            }
            Binary::Less | Binary::LessEqual | Binary::Greater | Binary::GreaterEqual => {
                if self.less(operator, left, right)? {
                    self.asm.not();
                }
                return Ok(());
            }
            _ => {}
        }
        self.operate(operator, left, right)
    }

    /// An operator that calculates. Pointers count in units of what they point to.
    pub(super) fn operate(&mut self, operator: Binary, left: &Expr, right: &Expr) -> Result<()> {
        match (&left.ty, &right.ty, operator) {
            (Type::Pointer(to), Type::Pointer(_), Binary::Subtract) => {
                let size = self.unit(to, left)?;
                self.operands(left, right, true)?;
                self.asm.op(Op::Sub);
                if size > 1 {
                    self.asm.push(size);
                    self.asm.ops(&[Op::Xchg, Op::Squo]);
                }
                Ok(())
            }
            (Type::Pointer(to), _, Binary::Add | Binary::Subtract) => {
                let size = self.unit(to, left)?;
                self.word(left)?;
                self.scaled(right, size)?;
                if operator == Binary::Subtract {
                    self.asm.op(Op::Xchg);
                }
                self.asm.op(if operator == Binary::Add { Op::Add } else { Op::Sub });
                Ok(())
            }
            (_, Type::Pointer(to), Binary::Add) => {
                let size = self.unit(to, right)?;
                self.scaled(left, size)?;
                self.word(right)?;
                self.asm.op(Op::Add);
                Ok(())
            }
            _ => self.calculate(operator, left, right),
        }
    }

    /// An index or a distance, times the size of what is counted.
    pub(super) fn scaled(&mut self, count: &Expr, size: u64) -> Result<()> {
        if let Some(count) = self.fold(count) {
            self.asm.push(count.wrapping_mul(size));
            return Ok(());
        }
        self.word(count)?;
        match size {
            1 => {}
            _ if size.is_power_of_two() => {
                self.asm.byte(Op::ShlImm, u8::try_from(size.trailing_zeros()).unwrap_or(0));
            }
            _ => {
                self.asm.push(size);
                self.asm.op(Op::Mul);
            }
        }
        Ok(())
    }

    /// The size of what a pointer points to; that of `void` is 1.
    pub(super) fn unit(&self, to: &Rc<Type>, pointer: &Expr) -> Result<u64> {
        match &**to {
            Type::Void | Type::Unknown => Ok(1),
            to => self.forms.records.size(to).ok_or_else(|| refuse::no_size(to, pointer.at.0)),
        }
    }

    fn calculate(&mut self, operator: Binary, left: &Expr, right: &Expr) -> Result<()> {
        let sign = sign(operator, left, right);
        if let Some(constant) = self.fold(right) {
            let short = u8::try_from(constant).ok().filter(|count| *count < 64);
            let power = constant.is_power_of_two().then(|| constant.trailing_zeros() as u8);
            let shift = match (operator, sign) {
                (Binary::Left, _) => short.map(|count| (Op::ShlImm, count)),
                (Binary::Right, Sign::Unsigned) => short.map(|count| (Op::ShrImm, count)),
                (Binary::Multiply, _) => power.map(|count| (Op::ShlImm, count)),
                (Binary::Divide, Sign::Unsigned) => power.map(|count| (Op::ShrImm, count)),
                _ => None,
            };
            if let Some((op, count)) = shift {
                self.word(left)?;
                self.asm.byte(op, count);
                return Ok(());
            }
            if operator == Binary::Subtract {
                self.word(left)?;
                self.asm.plus(constant.wrapping_neg());
                return Ok(());
            }
        }
        let (op, reversed) = match (operator, sign) {
            (Binary::Add, _) => (Op::Add, false),
            (Binary::Multiply, _) => (Op::Mul, false),
            (Binary::BitAnd, _) => (Op::And, false),
            (Binary::BitOr, _) => (Op::Or, false),
            (Binary::BitXor, _) => (Op::Xor, false),
            (Binary::Subtract, _) => (Op::Sub, true),
            (Binary::Left, _) => (Op::Shl, true),
            (Binary::Right, Sign::Signed) => (Op::Sar, true),
            (Binary::Right, Sign::Unsigned) => (Op::Shr, true),
            (Binary::Divide, Sign::Signed) => (Op::Squo, true),
            (Binary::Divide, Sign::Unsigned) => (Op::Quo, true),
            (_, Sign::Signed) => (Op::Srem, true),
            (_, Sign::Unsigned) => (Op::Rem, true),
        };
        self.operands(left, right, reversed)?;
        self.asm.op(op);
        Ok(())
    }

    /// Pushes two operands: the right one on top, or if `reversed` the left one. What has effects
    /// is evaluated from left to right.
    fn operands(&mut self, left: &Expr, right: &Expr, reversed: bool) -> Result<()> {
        let (first, second, exchange) = match reversed {
            true if is_pure(left) && is_pure(right) => (right, left, false),
            _ => (left, right, reversed),
        };
        self.word(first)?;
        self.word(second)?;
        if exchange {
            self.asm.op(Op::Xchg);
        }
        Ok(())
    }

    /// Pushes whether two values are equal.
    fn equal(&mut self, left: &Expr, right: &Expr) -> Result<()> {
        match (self.form(left)?, self.form(right)?) {
            (Form::Word, Form::Word) => {
                self.word(left)?;
                if self.fold(right) == Some(0) {
                    self.asm.not();
                    return Ok(());
                }
                self.word(right)?;
                self.asm.op(Op::Eq);
                Ok(())
            }
            (Form::Text, _) | (_, Form::Text) => self.equal_texts(left, right),
            _ => self.equal_wide(left, right),
        }
    }

    /// Pushes the result of a comparison, or of its contrary: then it gives `true`.
    fn less(&mut self, operator: Binary, left: &Expr, right: &Expr) -> Result<bool> {
        let op = if sign(operator, left, right) == Sign::Signed { Op::Slt } else { Op::Ult };
        // The instruction asks whether what is on top is less than what is below it.
        let reversed = matches!(operator, Binary::Less | Binary::GreaterEqual);
        self.operands(left, right, reversed)?;
        self.asm.op(op);
        Ok(matches!(operator, Binary::LessEqual | Binary::GreaterEqual))
    }

    /// Pushes 1 if a condition holds, else 0.
    fn truth(&mut self, expr: &Expr) -> Result<()> {
        if let ExprKind::Unary(Unary::Not, value) = &expr.kind {
            self.word(value)?;
            self.asm.not();
            return Ok(());
        }
        let (no, end) = (self.asm.label(), self.asm.label());
        self.test(expr, false, no)?;
        self.asm.drop();
        self.asm.push(1);
        self.asm.jump(Op::Jmp, end);
        self.asm.bind(no);
        self.asm.drop();
        self.asm.push(0);
        self.asm.bind(end);
        Ok(())
    }

    /// Jumps if a condition is as said; else goes on. Either way an element is left on the stack.
    pub(super) fn test(&mut self, expr: &Expr, on: bool, label: Label) -> Result<()> {
        match &expr.kind {
            ExprKind::Unary(Unary::Not, value) => return self.test(value, !on, label),
            ExprKind::Binary(operator @ (Binary::And | Binary::Or), left, right) => {
                // A false side of `&&` and a true side of `||` decide.
                let decides = *operator == Binary::Or;
                if decides == on {
                    self.test(left, on, label)?;
                    self.asm.drop();
                    return self.perhaps(|c| c.test(right, on, label));
                }
                let decided = self.asm.label();
                self.test(left, decides, decided)?;
                self.asm.drop();
                self.perhaps(|c| c.test(right, on, label))?;
                self.asm.bind(decided);
                return Ok(());
            }
            ExprKind::Binary(operator @ (Binary::Equal | Binary::Unequal), left, right) => {
                let equal = (*operator == Binary::Equal) == on;
                let zero = self.fold(right) == Some(0) && self.form(left)? == Form::Word;
                if zero {
                    self.word(left)?;
                    self.asm.jump(if equal { Op::Jz } else { Op::Jnz }, label);
                } else {
                    self.equal(left, right)?;
                    self.asm.jump(if equal { Op::Jnz } else { Op::Jz }, label);
                }
                return Ok(());
            }
            ExprKind::Binary(operator, left, right)
                if matches!(
                    operator,
                    Binary::Less | Binary::LessEqual | Binary::Greater | Binary::GreaterEqual
                ) && self.fold(expr).is_none() =>
            {
                let contrary = self.less(*operator, left, right)?;
                self.asm.jump(if contrary == on { Op::Jz } else { Op::Jnz }, label);
                return Ok(());
            }
            _ => {}
        }
        self.word(expr)?;
        self.asm.jump(if on { Op::Jnz } else { Op::Jz }, label);
        Ok(())
    }

    fn cast(&mut self, to: &Type, value: &Expr) -> Result<()> {
        if let Type::Float(bytes) = value.ty {
            return floats::truncated(self, value, bytes, to);
        }
        if self.form(value)? != Form::Word {
            return self.cast_bytes(to, value);
        }
        self.word(value)?;
        match to {
            Type::Bool if value.ty != Type::Bool => {
                self.asm.not();
                self.asm.not();
            }
            Type::Integer(_) | Type::Named(Tag::Enum, _) => {
                let from = value.ty.as_integer().unwrap_or(Integer::U64);
                let to = to.as_integer().unwrap_or(Integer::U64);
                let same = from == to || from.bytes < to.bytes && (to.signed || !from.signed);
                if !same {
                    self.asm.extend(to.bytes, to.signed);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// `++` and `--`. The value is pushed if it is used.
    pub(super) fn step(&mut self, target: &Expr, before: bool, up: bool, used: bool) -> Result<()> {
        let size = match &target.ty {
            Type::Pointer(to) => self.unit(to, target)?,
            _ => 1,
        };
        let by = if up { size } else { size.wrapping_neg() };
        match &target.kind {
            ExprKind::Local(name) => {
                let Some(at) = self.find(name).map(|variable| variable.at) else {
                    return Err(refuse::unknown(target));
                };
                if used && !before {
                    self.asm.get(at);
                }
                self.asm.get(at);
                self.asm.plus(by);
                self.asm.set(at);
                if used && before {
                    self.asm.get(at);
                }
                Ok(())
            }
            ExprKind::Map(name, key) => {
                self.asm.push(by);
                self.bump(name, key.as_deref(), target)?;
                match (used, before) {
                    (false, _) => self.asm.drop(),
                    (true, true) => self.asm.plus(by),
                    (true, false) => {}
                }
                Ok(())
            }
            _ => Err(refuse::unknown(target)),
        }
    }
}
