//! Compiles values that are in the frame: strings, bytes, tuples, structs and the like.
//!
//! A string is a word with its length and the bytes, padded with zeros to a multiple of 8:
//!
//! ```text
//!     at: length | at + 8: bytes ... 0 | ...
//! ```
//!
//! In a tuple and in a key it is only its bytes, padded with zeros to the size that all strings
//! have.

use crate::ast::{Block, Expr, ExprKind};
use crate::types::{Integer, Type};
use vm::Op;

use super::assembler::{SHORT, word};
use super::call::Call;
use super::compiler::{Compiler, Result};
use super::forms::Form;
use super::{function_values, refuse};
use crate::walk::is_pure;

impl Compiler<'_> {
    /// A string in the frame: where its length is.
    pub(super) fn text(&mut self, expr: &Expr) -> Result<u16> {
        match &expr.kind {
            ExprKind::Local(name) if self.forms.form(&expr.ty) == Some(Form::Text) => {
                self.find(name).map(|variable| variable.at).ok_or_else(|| refuse::unknown(expr))
            }
            ExprKind::Map(name, key) if self.forms.form(&expr.ty) == Some(Form::Text) => {
                let at = self.take(8 + self.forms.text_bytes(), expr.at.0)?;
                self.fetch(name, key.as_deref(), at, expr)?;
                Ok(at)
            }
            ExprKind::Block(block) => self.in_block(block, expr, |c, value| c.text(value)),
            _ => {
                let room = self.capacity(expr);
                let at = self.take(8 + room, expr.at.0)?;
                self.text_to(expr, at, room)?;
                Ok(at)
            }
        }
    }

    /// A string that stays what it is while something else is evaluated. `steady`: that changes
    /// nothing.
    pub(super) fn steady_text(&mut self, expr: &Expr, steady: bool) -> Result<u16> {
        if steady || !matches!(expr.kind, ExprKind::Local(_) | ExprKind::Block(_)) {
            return self.text(expr);
        }
        let room = self.forms.text_bytes();
        let at = self.take(8 + room, expr.at.0)?;
        self.text_to(expr, at, room)?;
        Ok(at)
    }

    /// The same for a value of a fixed size.
    pub(super) fn steady_wide(&mut self, expr: &Expr, size: usize, steady: bool) -> Result<u16> {
        let from = self.wide(expr)?;
        if steady {
            return Ok(from);
        }
        let at = self.take(size, expr.at.0)?;
        self.asm.copy(from, at, size as u64);
        Ok(at)
    }

    /// The last expression of a block. Its places stay taken: the value may be in one of them.
    fn in_block<T>(
        &mut self,
        block: &Block,
        expr: &Expr,
        then: impl FnOnce(&mut Self, &Expr) -> Result<T>,
    ) -> Result<T> {
        self.open();
        self.statements_only(block);
        let done = match &block.value {
            Some(value) => then(self, value),
            None => Err(refuse::unknown(expr)),
        };
        self.close(None);
        done
    }

    /// The bytes that a string has at most, as far as that is known; a multiple of 8.
    pub(super) fn capacity(&self, expr: &Expr) -> usize {
        let most = self.forms.text_bytes();
        let known = match &expr.kind {
            ExprKind::Text(text) => Some(text.len()),
            ExprKind::Name(name) | ExprKind::Call(name, _) if name == "comm" => Some(16),
            ExprKind::Name(name) | ExprKind::Call(name, _) if name == "probetype" => Some(24),
            ExprKind::Call(name, _) if matches!(name.as_str(), "strerror" | "syscall_name") => Some(64),
            ExprKind::Ternary(_, yes, no) => Some(self.capacity(yes).max(self.capacity(no))),
            ExprKind::Block(Block { value: Some(value), .. }) => Some(self.capacity(value)),
            ExprKind::Call(name, arguments) if matches!(name.as_str(), "str" | "buf") => arguments
                .get(1)
                .and_then(|length| self.fold(length))
                .and_then(|length| usize::try_from(length).ok()),
            _ => match &expr.ty {
                Type::Array(inner, Some(length)) if self.forms.records.size(inner) == Some(1) => {
                    usize::try_from(*length).ok()
                }
                _ => None,
            },
        };
        known.map_or(most, |known| known.min(most).next_multiple_of(8))
    }

    /// Evaluates a string into a place for it.
    pub(super) fn text_to(&mut self, expr: &Expr, at: u16, room: usize) -> Result<()> {
        match &expr.kind {
            ExprKind::Ternary(test, yes, no) => {
                self.choose(test, |c| c.text_to(yes, at, room), |c| c.text_to(no, at, room))
            }
            ExprKind::Block(block) => self.in_block(block, expr, |c, value| c.text_to(value, at, room)),
            _ => {
                self.text_bytes(expr, at + 8, room)?;
                self.asm.set(at);
                Ok(())
            }
        }
    }

    /// Evaluates the bytes of a string to a place, padded with zeros to a multiple of 8. Pushes its
    /// length.
    pub(super) fn text_bytes(&mut self, expr: &Expr, at: u16, room: usize) -> Result<()> {
        let offset = u64::from(at);
        match &expr.kind {
            ExprKind::Text(text) if text.len() <= SHORT.min(room) => {
                self.asm.words(at, text);
                self.asm.push(text.len() as u64);
                Ok(())
            }
            ExprKind::Text(text) => {
                let number = self.constant(&text[..text.len().min(room)]);
                self.asm.push(number);
                self.asm.push(offset);
                self.asm.op(Op::TextF);
                Ok(())
            }
            ExprKind::Name(name) => Call::new(self, name, &[], expr)?.text(at, room),
            ExprKind::Call(name, arguments) => Call::new(self, name, arguments, expr)?.text(at, room),
            ExprKind::Cast(_, value) => self.text_bytes(value, at, room),
            ExprKind::Member(..) | ExprKind::Index(..) if self.forms.form(&expr.ty) == Some(Form::Text) => {
                let from = match &expr.kind {
                    ExprKind::Member(value, index) => self.member(value, *index as usize, expr)?,
                    _ => self.frame_place(expr)?,
                };
                let most = self.forms.text_bytes().min(room);
                self.asm.copy(from, at, most as u64);
                self.length_at(at, most, expr)
            }
            _ if matches!(expr.ty, Type::Array(..)) => self.array_text(expr, at, room),
            ExprKind::Local(_) | ExprKind::Map(..) | ExprKind::Ternary(..) | ExprKind::Block(_) => {
                let from = self.text(expr)?;
                self.asm.get(from);
                self.asm.at_most(room as u64);
                self.asm.byte(Op::DupImm, 1);
                self.asm.round_up();
                self.asm.push(u64::from(from) + 8);
                self.asm.push(offset);
                self.asm.op(Op::MoveF);
                Ok(())
            }
            _ => Err(refuse::unknown(expr)),
        }
    }

    /// Pushes the length of the string that is padded with zeros in the frame.
    pub(super) fn length_at(&mut self, at: u16, most: usize, expr: &Expr) -> Result<()> {
        let nul = self.take(8, expr.at.0)?;
        self.asm.push(0);
        self.asm.set(nul);
        self.asm.push(1);
        self.asm.push(u64::from(nul));
        self.asm.push(most as u64);
        self.asm.push(u64::from(at));
        self.asm.op(Op::FindF);
        // Without a NUL, -1 as the greatest number.
        self.asm.at_most(most as u64);
        Ok(())
    }

    /// Pushes whether two strings are equal.
    pub(super) fn equal_texts(&mut self, left: &Expr, right: &Expr) -> Result<()> {
        let (value, literal) = match (&left.kind, &right.kind) {
            (_, ExprKind::Text(text)) => (left, Some(text)),
            (ExprKind::Text(text), _) => (right, Some(text)),
            _ => (left, None),
        };
        if let Some(literal) = literal.filter(|literal| literal.len() <= SHORT) {
            let at = self.text(value)?;
            if self.capacity(value) < literal.len() {
                self.asm.push(0);
                return Ok(());
            }
            self.asm.get(at);
            self.asm.push(literal.len() as u64);
            self.asm.op(Op::Eq);
            for (index, bytes) in literal.chunks(8).enumerate() {
                self.asm.get(at + 8 + 8 * index as u16);
                self.asm.push(word(bytes));
                self.asm.ops(&[Op::Eq, Op::And]);
            }
            return Ok(());
        }
        let first = self.steady_text(left, is_pure(right))?;
        let second = self.text(right)?;
        for at in [second, first] {
            self.asm.get(at);
            self.asm.push(u64::from(at) + 8);
        }
        self.asm.op(Op::CompareF);
        self.asm.not();
        Ok(())
    }

    /// Pushes whether two values in the frame are equal.
    pub(super) fn equal_wide(&mut self, left: &Expr, right: &Expr) -> Result<()> {
        let sizes = (self.form(left)?, self.form(right)?);
        let (Form::Wide(size), Form::Wide(other)) = sizes else { return Err(refuse::unknown(left)) };
        if size != other {
            return Err(refuse::unknown(right));
        }
        let first = self.steady_wide(left, size, is_pure(right))?;
        let second = self.wide(right)?;
        for at in [second, first] {
            self.asm.push(size as u64);
            self.asm.push(u64::from(at));
        }
        self.asm.op(Op::CompareF);
        self.asm.not();
        Ok(())
    }

    /// A value in the frame: where it is.
    pub(super) fn wide(&mut self, expr: &Expr) -> Result<u16> {
        let Form::Wide(size) = self.form(expr)? else { return Err(refuse::unknown(expr)) };
        match &expr.kind {
            ExprKind::Local(name) => {
                self.find(name).map(|variable| variable.at).ok_or_else(|| refuse::unknown(expr))
            }
            ExprKind::Block(block) => self.in_block(block, expr, |c, value| c.wide(value)),
            ExprKind::Member(value, index) => self.member(value, *index as usize, expr),
            _ => {
                let at = self.take(size, expr.at.0)?;
                let ty = expr.ty.clone();
                self.wide_to(expr, &ty, at, size)?;
                Ok(at)
            }
        }
    }

    /// Where a member of a tuple is in the frame.
    pub(super) fn member(&mut self, value: &Expr, index: usize, expr: &Expr) -> Result<u16> {
        let Type::Tuple(members) = &value.ty else { return Err(refuse::unknown(expr)) };
        let placed = self.forms.placed(members, index).map(|(offset, _)| offset);
        let offset = placed.and_then(|offset| u16::try_from(offset).ok());
        let Some(offset) = offset else { return Err(refuse::unknown(expr)) };
        Ok(self.wide(value)? + offset)
    }

    /// Evaluates a value to a place of the frame.
    pub(super) fn wide_to(&mut self, expr: &Expr, ty: &Type, at: u16, size: usize) -> Result<()> {
        if let Some(value) = self.served.value(expr)
            && !self.in_memory(expr)
        {
            return function_values::copy(&mut self.asm, &value, at, size, expr.at.0);
        }
        match &expr.kind {
            ExprKind::Name(_) if self.in_memory(expr) => self.read_wide(expr, at),
            ExprKind::Name(_) if self.served.is_all_arguments(expr) => {
                function_values::copy_all(self, expr, at)
            }
            ExprKind::Tuple(values) => self.tuple_to(values, ty, at, expr),
            ExprKind::Map(name, key) => self.fetch(name, key.as_deref(), at, expr),
            ExprKind::Ternary(test, yes, no) => {
                self.choose(test, |c| c.wide_to(yes, ty, at, size), |c| c.wide_to(no, ty, at, size))
            }
            ExprKind::Block(block) => self.in_block(block, expr, |c, value| c.wide_to(value, ty, at, size)),
            ExprKind::Name(name) => Call::new(self, name, &[], expr)?.wide(at),
            ExprKind::Call(name, arguments) => Call::new(self, name, arguments, expr)?.wide(at),
            ExprKind::Cast(_, value) => self.array_to(value, &expr.ty, at, size),
            _ if self.in_memory(expr) => self.read_wide(expr, at),
            ExprKind::Field(..) | ExprKind::Index(..) => {
                let from = self.frame_place(expr)?;
                // The bytes behind it belong to other fields.
                let bytes = self.forms.records.size(&expr.ty).unwrap_or(size as u64);
                self.clear_tail(at, bytes);
                self.asm.copy_bytes(from, at, bytes);
                Ok(())
            }
            ExprKind::Local(_) | ExprKind::Member(..) => {
                let from = self.wide(expr)?;
                self.asm.copy(from, at, size as u64);
                Ok(())
            }
            _ => Err(refuse::unknown(expr)),
        }
    }

    fn tuple_to(&mut self, values: &[Expr], ty: &Type, at: u16, expr: &Expr) -> Result<()> {
        let Type::Tuple(types) = ty else { return Err(refuse::unknown(expr)) };
        let mut at = at;
        for (value, ty) in values.iter().zip(types.iter()) {
            self.member_to(value, ty, at)?;
            let size = self.forms.member(ty).and_then(|size| u16::try_from(size).ok());
            at += size.ok_or_else(|| refuse::unknown_type(ty, value.at.0))?;
        }
        Ok(())
    }

    /// Evaluates a value to a place in a tuple or a key.
    pub(super) fn member_to(&mut self, value: &Expr, ty: &Type, at: u16) -> Result<()> {
        let Some(form) = self.forms.form(ty) else { return Err(refuse::unknown_type(ty, value.at.0)) };
        match form {
            Form::Word => {
                self.word(value)?;
                self.asm.set(at);
                Ok(())
            }
            Form::Wide(size) => self.wide_to(value, ty, at, size),
            Form::Text => {
                let room = self.forms.text_bytes();
                self.asm.clear(at, room as u64);
                self.text_bytes(value, at, room)?;
                self.asm.drop();
                Ok(())
            }
        }
    }

    /// A cast of what is not a word to a word: an array of integers as one.
    pub(super) fn cast_bytes(&mut self, to: &Type, value: &Expr) -> Result<()> {
        let to = to.as_integer().unwrap_or(Integer::U64);
        let bytes = self.forms.records.size(&value.ty).unwrap_or(0).min(8);
        let at = self.wide(value)?;
        self.asm.get(at);
        self.asm.extend(u8::try_from(bytes).unwrap_or(8).max(1), false);
        self.asm.extend(to.bytes, to.signed);
        Ok(())
    }

    /// A cast to an array: the bytes of an integer, of a string or of another array.
    fn array_to(&mut self, value: &Expr, ty: &Type, at: u16, size: usize) -> Result<()> {
        match self.form(value)? {
            Form::Word => {
                self.word(value)?;
                let bytes = self.forms.records.size(ty).unwrap_or(8);
                self.asm.extend(u8::try_from(bytes).unwrap_or(8).clamp(1, 8), false);
                self.asm.set(at);
                Ok(())
            }
            Form::Text => {
                self.asm.clear(at, size as u64);
                let bytes = self.forms.records.size(ty).unwrap_or(size as u64);
                let from = self.text(value)?;
                self.asm.get(from);
                self.asm.at_most(bytes);
                self.asm.push(u64::from(from) + 8);
                self.asm.push(u64::from(at));
                self.asm.op(Op::MoveF);
                Ok(())
            }
            Form::Wide(from_size) => {
                let from = self.wide(value)?;
                self.asm.copy(from, at, size.min(from_size) as u64);
                Ok(())
            }
        }
    }
}
