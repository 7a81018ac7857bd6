//! Compiles what is read from memory: pointers, fields of structs, elements of arrays.
//!
//! A struct or an array is not read until it is known which part of it is wanted.

use crate::ast::{Expr, ExprKind};
use crate::check::Bits;
use crate::operator::Unary;
use crate::program_types::ValuePlace;
use crate::types::Type;
use vm::Op;

use super::compiler::{Compiler, Result};
use super::forms::{Form, raw};
use super::{function_values, refuse};

impl Compiler<'_> {
    /// Whether a value is in memory of the program; else it is in the frame.
    pub(super) fn in_memory(&self, expr: &Expr) -> bool {
        if let Some(is) = self.served.is_in_memory(expr) {
            return is;
        }
        match &expr.kind {
            ExprKind::Unary(Unary::Dereference, _) => true,
            ExprKind::Field(value, _) | ExprKind::Index(value, _) => {
                matches!(value.ty, Type::Pointer(_)) || self.in_memory(value)
            }
            _ => false,
        }
    }

    /// The place of a field in its struct.
    pub(super) fn field(&self, value: &Expr, name: &str) -> Result<(u64, Option<Bits>)> {
        let record = match &value.ty {
            Type::Pointer(inner) => &**inner,
            other => other,
        };
        let Type::Named(tag, record) = record else { return Err(refuse::unknown(value)) };
        let Some(layout) = self.forms.records.get(record) else {
            let reason = self.forms.records.reason(record);
            return Err(refuse::not_defined(*tag, record, reason, value.at.0));
        };
        let placed = layout.fields.get(name).ok_or_else(|| refuse::unknown(value))?;
        Ok((placed.offset, placed.bits))
    }

    /// Pushes the address of a value that is in memory, less the offset that is returned.
    fn memory_place(&mut self, expr: &Expr) -> Result<u64> {
        if let Some(value) = self.served.value(expr) {
            if let ValuePlace::Field(name) = &value.place {
                self.record_field(name, expr.at.0)?;
                return Ok(0);
            }
            return function_values::push_place(&mut self.asm, &value, expr.at.0);
        }
        match &expr.kind {
            ExprKind::Unary(Unary::Dereference, value) => {
                self.word(value)?;
                Ok(0)
            }
            ExprKind::Field(value, name) => {
                let (offset, _) = self.field(value, name)?;
                if matches!(value.ty, Type::Pointer(_)) {
                    self.word(value)?;
                    return Ok(offset);
                }
                Ok(self.memory_place(value)?.wrapping_add(offset))
            }
            ExprKind::Index(value, index) => {
                let (offset, inner) = match &value.ty {
                    Type::Pointer(inner) => {
                        self.word(value)?;
                        (0, inner)
                    }
                    Type::Array(inner, _) => (self.memory_place(value)?, inner),
                    _ => return Err(refuse::unknown(expr)),
                };
                let size = self.unit(inner, value)?;
                if let Some(index) = self.fold(index) {
                    return Ok(offset.wrapping_add(index.wrapping_mul(size)));
                }
                self.scaled(index, size)?;
                self.asm.op(Op::Add);
                Ok(offset)
            }
            _ => Err(refuse::unknown(expr)),
        }
    }

    /// Pushes the address of a value that is in memory.
    pub(super) fn push_place(&mut self, expr: &Expr) -> Result<()> {
        let offset = self.memory_place(expr)?;
        self.asm.plus(offset);
        Ok(())
    }

    /// Pushes an address: a pointer, an integer, or where an array is.
    pub(super) fn address(&mut self, expr: &Expr) -> Result<()> {
        if self.in_memory(expr) {
            return self.push_place(expr);
        }
        Err(source::Diagnostic::error(expr.at.0, "this value has no address in the program")
            .label("it is in the handler's own memory")
            .help("use the pointer that it was read from"))
    }

    /// Pushes the address that a value is, or at which it is.
    pub(super) fn pointer(&mut self, expr: &Expr) -> Result<()> {
        if expr.ty == Type::Unknown {
            return Err(refuse::unknown(expr));
        }
        match self.form(expr) {
            Ok(Form::Word) => self.word(expr),
            // The size does not matter for an address.
            _ => self.address(expr),
        }
    }

    /// Where a part of a value in the frame is.
    pub(super) fn frame_place(&mut self, expr: &Expr) -> Result<u16> {
        if self.served.value(expr).is_some() {
            return self.wide(expr);
        }
        let add = |at: u16, offset: u64| u16::try_from(offset).ok().and_then(|offset| at.checked_add(offset));
        match &expr.kind {
            ExprKind::Field(value, name) => {
                let (offset, _) = self.field(value, name)?;
                let at = self.frame_place(value)?;
                add(at, offset).ok_or_else(|| refuse::unknown(expr))
            }
            ExprKind::Index(value, index) => {
                if let Type::Tuple(_) = &value.ty {
                    let index = self.fold(index).and_then(|index| usize::try_from(index).ok());
                    return self.member(value, index.unwrap_or(usize::MAX), expr);
                }
                let Type::Array(inner, Some(length)) = &value.ty else { return Err(refuse::unknown(expr)) };
                let size = self.unit(inner, value)?;
                let at = self.frame_place(value)?;
                match self.fold(index) {
                    Some(index) => {
                        let offset = index.checked_mul(size).filter(|_| index < u64::from(*length));
                        offset.and_then(|offset| add(at, offset)).ok_or_else(|| refuse::unknown(expr))
                    }
                    None => self.element(at, size, u64::from(*length), index),
                }
            }
            _ => self.wide(expr),
        }
    }

    /// Copies an element of an array in the frame; zeros if there is none.
    fn element(&mut self, at: u16, size: u64, length: u64, index: &Expr) -> Result<u16> {
        let room = usize::try_from(size).ok().and_then(|size| size.checked_next_multiple_of(8));
        let room = room.unwrap_or(usize::MAX);
        let copy = self.take(room, index.at.0)?;
        self.asm.clear(copy, room as u64);
        let out = self.asm.label();
        self.word(index)?;
        self.asm.byte(Op::DupImm, 1);
        self.asm.push(length);
        self.asm.ops(&[Op::Xchg, Op::Ult]);
        self.asm.jump(Op::Jz, out);
        self.asm.drop();
        self.asm.push(size);
        self.asm.op(Op::Mul);
        self.asm.plus(u64::from(at));
        self.asm.push(size);
        self.asm.op(Op::Xchg);
        self.asm.push(u64::from(copy));
        self.asm.op(Op::MoveF);
        self.asm.push(0);
        self.asm.push(0);
        self.asm.bind(out);
        self.asm.byte(Op::Ros, 2);
        Ok(copy)
    }

    /// Pushes an integer or a pointer that is in memory or in a part of a value.
    pub(super) fn read_word(&mut self, expr: &Expr) -> Result<()> {
        if let Some(value) = self.served.value(expr)
            && !self.in_memory(expr)
        {
            if let ValuePlace::Field(name) = &value.place {
                self.record_field(name, expr.at.0)?;
                return function_values::extend(&mut self.asm, &value.ty);
            }
            return function_values::push_word(&mut self.asm, &value, expr.at.0);
        }
        let bits = match &expr.kind {
            ExprKind::Field(value, name) => self.field(value, name)?.1,
            _ => None,
        };
        if self.form(expr)? != Form::Word {
            return Err(refuse::unknown(expr));
        }
        let in_tuple = match &expr.kind {
            ExprKind::Member(..) => true,
            ExprKind::Index(value, _) => matches!(value.ty, Type::Tuple(_)),
            _ => false,
        };
        if let (true, ExprKind::Member(value, index)) = (in_tuple, &expr.kind) {
            let at = self.member(value, *index as usize, expr)?;
            self.asm.get(at);
            return Ok(());
        }
        if in_tuple {
            let at = self.frame_place(expr)?;
            self.asm.get(at);
            return Ok(());
        }
        let integer = raw(&expr.ty);
        if self.in_memory(expr) {
            let at = self.take(8, expr.at.0)?;
            self.asm.push(u64::from(integer.bytes));
            self.push_place(expr)?;
            self.asm.push(u64::from(at));
            self.asm.op(Op::ReadF);
            self.asm.drop();
            self.asm.get(at);
        } else {
            let at = self.frame_place(expr)?;
            self.asm.get(at);
        }
        match bits {
            Some(Bits { first, count }) => {
                if first > 0 {
                    self.asm.byte(Op::ShrImm, first);
                }
                if (1..64).contains(&count) {
                    self.asm.byte(if integer.signed { Op::PblImm } else { Op::PzlImm }, count);
                }
            }
            None => self.asm.extend(integer.bytes, integer.signed),
        }
        if expr.ty == Type::Bool {
            self.asm.not();
            self.asm.not();
        }
        Ok(())
    }

    /// Copies a struct or an array from memory to the frame.
    pub(super) fn read_wide(&mut self, expr: &Expr, at: u16) -> Result<()> {
        let Some(size) = self.forms.records.size(&expr.ty) else { return Err(refuse::unknown(expr)) };
        self.clear_tail(at, size);
        if size == 0 {
            return Ok(());
        }
        self.asm.push(size);
        self.push_place(expr)?;
        self.asm.push(u64::from(at));
        self.asm.op(Op::ReadF);
        self.asm.drop();
        Ok(())
    }

    /// Zeros behind a value, up to a multiple of 8.
    pub(super) fn clear_tail(&mut self, at: u16, size: u64) {
        if !size.is_multiple_of(8) {
            self.asm.push(0);
            self.asm.set(at + (size / 8 * 8) as u16);
        }
    }

    /// The bytes of an array up to its first NUL, as those of a string. Pushes their number.
    pub(super) fn array_text(&mut self, expr: &Expr, at: u16, room: usize) -> Result<()> {
        let length = self.forms.records.size(&expr.ty).unwrap_or(0);
        let length = match expr.ty {
            // An array without a length goes on to its NUL.
            Type::Array(_, None) => room,
            _ => room.min(usize::try_from(length).unwrap_or(room)),
        };
        if self.in_memory(expr) {
            self.asm.push(length as u64);
            self.push_place(expr)?;
            self.asm.push(u64::from(at));
            self.asm.op(Op::StrF);
            self.asm.no_less_than_zero();
            return Ok(());
        }
        let from = self.frame_place(expr)?;
        self.asm.clear(at, length.next_multiple_of(8) as u64);
        self.asm.copy_bytes(from, at, length as u64);
        self.length_at(at, length, expr)?;
        // What follows the NUL is no part of the string.
        let size = self.take(8, expr.at.0)?;
        self.asm.set(size);
        self.asm.get(size);
        self.asm.push(length.next_multiple_of(8) as u64);
        self.asm.op(Op::Sub);
        self.asm.get(size);
        self.asm.plus(u64::from(at));
        self.asm.op(Op::FillF);
        self.asm.get(size);
        Ok(())
    }
}
