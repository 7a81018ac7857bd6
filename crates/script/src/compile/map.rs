//! Compiles keys, and what is done with the entries of maps.

use maps::Kind;
use source::Span;

use crate::ast::{Block, Expr, ExprKind, Local};
use crate::operator::Binary;
use crate::types::{Integer, Type};
use vm::Op;

use super::arithmetic::sign;
use super::assembler::SHORT;
use super::compiler::{Compiler, Loop, Result};
use super::forms::Form;
use super::refuse;
use crate::walk::is_pure;

/// A key in the frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    map: u16,
    at: u16,
    length: Length,
}

/// The length of a key.
#[derive(Clone, Copy, Debug)]
enum Length {
    /// It is always the same.
    Fixed(u64),
    /// It is on the stack, as the key ends with a string: the key is for the next instruction.
    Top,
    /// It is in the frame.
    At(u16),
}

impl Compiler<'_> {
    /// Evaluates the key of an entry.
    pub(super) fn key(&mut self, name: &str, key: Option<&Expr>, span: Span) -> Result<Key> {
        let Some((map, found)) = self.maps.find(name) else {
            return Err(refuse::unknown_type(&Type::Unknown, span));
        };
        let (Some(key), Some(ty)) = (key, found.key.clone()) else {
            return Ok(Key { map, at: 0, length: Length::Fixed(0) });
        };
        let is_value = self.forms.form(&ty) == Some(Form::Word);
        if let (true, ExprKind::Local(local)) = (is_value, &key.kind)
            && let Some(at) = self.find(local).map(|variable| variable.at)
        {
            return Ok(Key { map, at, length: Length::Fixed(8) });
        }
        let Some(room) = self.needed(key, &ty) else { return Err(refuse::unknown(key)) };
        let at = self.take(room, key.at.0)?;
        let length = self.last_to(key, &ty, at, at)?;
        Ok(Key { map, at, length })
    }

    /// The bytes that a key takes: a string at its end only what it may have.
    fn needed(&self, value: &Expr, ty: &Type) -> Option<usize> {
        match (ty, &value.kind) {
            (Type::Tuple(types), ExprKind::Tuple(values)) if !values.is_empty() => {
                let last = values.len() - 1;
                let (before, ty) = self.forms.placed(types, last)?;
                Some(before + self.needed(&values[last], ty)?)
            }
            (Type::Text | Type::Bytes, _) => Some(self.capacity(value)),
            _ => self.forms.member(ty),
        }
    }

    /// Evaluates the last part of a key. A string at the end of it is not padded to its full size.
    fn last_to(&mut self, value: &Expr, ty: &Type, at: u16, start: u16) -> Result<Length> {
        let before = u64::from(at - start);
        let Some(size) = self.forms.member(ty) else { return Err(refuse::unknown_type(ty, value.at.0)) };
        match (ty, &value.kind) {
            (Type::Tuple(types), ExprKind::Tuple(values)) if !values.is_empty() => {
                let mut at = at;
                let last = values.len() - 1;
                for (value, ty) in values.iter().zip(types.iter()).take(last) {
                    self.member_to(value, ty, at)?;
                    let size = self.forms.member(ty).and_then(|size| u16::try_from(size).ok());
                    at += size.ok_or_else(|| refuse::unknown_type(ty, value.at.0))?;
                }
                self.last_to(&values[last], &types[last], at, start)
            }
            (Type::Text, ExprKind::Text(text)) if text.len() <= SHORT.min(self.forms.text_bytes()) => {
                self.asm.words(at, text);
                Ok(Length::Fixed(before + text.len().next_multiple_of(8) as u64))
            }
            (Type::Text | Type::Bytes, _) => {
                let room = self.capacity(value);
                self.text_bytes(value, at, room)?;
                Ok(self.key_length(before))
            }
            _ => {
                self.member_to(value, ty, at)?;
                let Some((offset, room)) = self.trailing_text(ty) else {
                    return Ok(Length::Fixed(before + size as u64));
                };
                self.length_at(at + offset, room, value)?;
                Ok(self.key_length(before + u64::from(offset)))
            }
        }
    }

    /// Makes the length of a string on the stack that of the key which ends with it.
    fn key_length(&mut self, before: u64) -> Length {
        self.asm.round_up();
        self.asm.plus(before);
        Length::Top
    }

    /// Keeps a key for several instructions.
    fn kept(&mut self, key: Key, span: Span) -> Result<Key> {
        let Length::Top = key.length else { return Ok(key) };
        let at = self.take(8, span)?;
        self.asm.set(at);
        Ok(Key { length: Length::At(at), ..key })
    }

    /// Where the string is with which a tuple ends, and its size.
    fn trailing_text(&self, ty: &Type) -> Option<(u16, usize)> {
        let Type::Tuple(members) = ty else { return None };
        let (offset, last) = self.forms.placed(members, members.len().checked_sub(1)?)?;
        let offset = u16::try_from(offset).ok()?;
        match last {
            Type::Text | Type::Bytes => Some((offset, self.forms.text_bytes())),
            _ => self.trailing_text(last).map(|(inner, room)| (offset + inner, room)),
        }
    }

    /// Pushes a key for an instruction, and the instruction.
    fn with_key(&mut self, op: Op, key: Key) {
        match key.length {
            Length::Fixed(length) => self.asm.push(length),
            Length::Top => {}
            Length::At(at) => self.asm.get(at),
        }
        self.asm.push(u64::from(key.at));
        self.asm.short(op, key.map);
    }

    /// Pushes the number of an entry.
    pub(super) fn load(&mut self, name: &str, key: Option<&Expr>, expr: &Expr) -> Result<()> {
        if self.form(expr)? != Form::Word {
            return Err(refuse::unknown(expr));
        }
        let key = self.key(name, key, expr.at.0)?;
        self.with_key(Op::Load, key);
        Ok(())
    }

    /// Adds the number on the stack to an entry; pushes what it was.
    pub(super) fn bump(&mut self, name: &str, key: Option<&Expr>, expr: &Expr) -> Result<()> {
        let key = self.key(name, key, expr.at.0)?;
        self.with_key(Op::Bump, key);
        Ok(())
    }

    /// Copies an entry to a place of the frame.
    pub(super) fn fetch(&mut self, name: &str, key: Option<&Expr>, at: u16, expr: &Expr) -> Result<()> {
        self.asm.push(u64::from(at));
        let key = self.key(name, key, expr.at.0)?;
        self.with_key(Op::Fetch, key);
        self.asm.drop();
        Ok(())
    }

    /// Removes an entry, or asks whether there is one. Pushes whether there was one.
    pub(super) fn ask(&mut self, op: Op, name: &str, key: Option<&Expr>, span: Span) -> Result<()> {
        let key = self.key(name, key, span)?;
        self.with_key(op, key);
        Ok(())
    }

    /// `find(@map, key, $variable)`: pushes whether there is an entry, and sets the variable to it.
    pub(super) fn find_entry(&mut self, name: &str, key: &Expr, variable: &Expr) -> Result<()> {
        let ExprKind::Local(local) = &variable.kind else { return Err(refuse::unknown(variable)) };
        let found = match self.find(local) {
            Some(found) => found.clone(),
            None => self.declare(local, &variable.ty, variable.at.0)?,
        };
        let key = self.key(name, Some(key), variable.at.0)?;
        let key = self.kept(key, variable.at.0)?;
        self.with_key(Op::Has, key);
        let none = self.asm.label();
        self.asm.jump(Op::Jz, none);
        match self.forms.form(&found.ty) {
            Some(Form::Word) => {
                self.with_key(Op::Load, key);
                self.asm.set(found.at);
            }
            _ => {
                self.asm.push(u64::from(found.at));
                self.with_key(Op::Fetch, key);
                self.asm.drop();
            }
        }
        self.asm.bind(none);
        Ok(())
    }

    /// `@map[key] = value` and its like.
    pub(super) fn assign_entry(
        &mut self,
        target: &Expr,
        name: &str,
        key: Option<&Expr>,
        operator: Option<Binary>,
        value: &Expr,
    ) -> Result<()> {
        if let (Type::Aggregate(_), ExprKind::Call(function, arguments)) = (&value.ty, &value.kind)
            && crate::library::find(function)
                .is_some_and(|row| row.usage == crate::library::Usage::MapFunction)
        {
            return self.update(name, key, arguments, value);
        }
        let span = target.at.0;
        let Some((_, map)) = self.maps.find(name) else { return Err(refuse::unknown(target)) };
        let (ty, kind) = (map.value.clone(), map.info.kind());
        let Some(form) = self.forms.form(&ty).filter(|_| kind == Kind::Plain) else {
            return Err(refuse::unknown_type(&ty, span));
        };
        match (form, operator) {
            (Form::Word, None) => {
                self.word(value)?;
                let key = self.key(name, key, span)?;
                self.with_key(Op::Put, key);
            }
            // What is added to an entry is added at once: no update of another thread is lost.
            (Form::Word, Some(Binary::Add | Binary::Subtract)) => {
                match &ty {
                    Type::Pointer(to) => {
                        let size = self.unit(to, target)?;
                        self.scaled(value, size)?;
                    }
                    _ => self.word(value)?,
                }
                if operator == Some(Binary::Subtract) {
                    self.asm.push(0);
                    self.asm.op(Op::Sub);
                }
                self.bump(name, key, target)?;
                self.asm.drop();
            }
            (Form::Word, Some(operator)) => self.combine(target, name, key, operator, value)?,
            (Form::Text, _) => {
                let at = self.steady_text(value, key.is_none_or(is_pure))?;
                // The length and the bytes that are used.
                self.asm.get(at);
                self.asm.round_up();
                self.asm.plus(8);
                self.asm.push(u64::from(at));
                let key = self.key(name, key, span)?;
                self.with_key(Op::Store, key);
            }
            (Form::Wide(size), _) => {
                let at = match &value.kind {
                    ExprKind::Tuple(_) => {
                        let at = self.take(size, value.at.0)?;
                        self.wide_to(value, &ty, at, size)?;
                        at
                    }
                    _ => self.steady_wide(value, size, key.is_none_or(is_pure))?,
                };
                self.asm.push(size as u64);
                self.asm.push(u64::from(at));
                let key = self.key(name, key, span)?;
                self.with_key(Op::Store, key);
            }
        }
        Ok(())
    }

    /// `@map[key] operator= value` where reading and writing are two steps.
    fn combine(
        &mut self,
        target: &Expr,
        name: &str,
        key: Option<&Expr>,
        operator: Binary,
        value: &Expr,
    ) -> Result<()> {
        // The key is evaluated once.
        let sign = sign(operator, target, value);
        self.word(value)?;
        let key = self.key(name, key, target.at.0)?;
        let key = self.kept(key, target.at.0)?;
        self.with_key(Op::Load, key);
        use super::arithmetic::Sign::{Signed, Unsigned};
        // The entry is on top, as the instructions expect their first operand.
        self.asm.op(match (operator, sign) {
            (Binary::Multiply, _) => Op::Mul,
            (Binary::BitAnd, _) => Op::And,
            (Binary::BitOr, _) => Op::Or,
            (Binary::BitXor, _) => Op::Xor,
            (Binary::Left, _) => Op::Shl,
            (Binary::Right, Signed) => Op::Sar,
            (Binary::Right, Unsigned) => Op::Shr,
            (Binary::Divide, Signed) => Op::Squo,
            (Binary::Divide, Unsigned) => Op::Quo,
            (Binary::Modulo, Signed) => Op::Srem,
            (Binary::Modulo, Unsigned) => Op::Rem,
            _ => return Err(refuse::unknown(target)),
        });
        self.with_key(Op::Put, key);
        Ok(())
    }

    /// `@map[key] = count()` and its like.
    fn update(&mut self, name: &str, key: Option<&Expr>, arguments: &[Expr], value: &Expr) -> Result<()> {
        let Some((number, map)) = self.maps.find(name) else { return Err(refuse::unknown(value)) };
        let kind = map.info.kind();
        let stated = |index: usize| {
            let number = arguments.get(index).and_then(crate::constant::integer);
            number.map_or(0, |number| number as i64)
        };
        let parameters = match kind {
            Kind::Hist => [stated(1), 0, 0],
            Kind::Lhist => [stated(1), stated(2), stated(3)],
            Kind::Tseries => {
                let kind = match arguments.get(3).map(|argument| &argument.kind) {
                    Some(ExprKind::Text(text)) => match text.as_slice() {
                        b"avg" => Kind::Avg,
                        b"max" => Kind::Max,
                        b"min" => Kind::Min,
                        _ => Kind::Sum,
                    },
                    _ => Kind::Plain,
                };
                [stated(1), stated(2), i64::from(kind as u32)]
            }
            _ => [0; 3],
        };
        let signed = arguments.first().is_some_and(|value| value.ty.as_integer() != Some(Integer::U64));
        self.maps.state(number, signed, parameters, value.at.0)?;
        match arguments.first() {
            Some(argument) => self.word(argument)?,
            None => self.asm.push(1),
        }
        let key = self.key(name, key, value.at.0)?;
        self.with_key(Op::Update, key);
        Ok(())
    }

    /// `for ($entry : @map) { ... }`.
    pub(super) fn for_map(&mut self, entry: &Local, name: &str, body: &Block, span: Span) -> Result<()> {
        let Some((number, map)) = self.maps.find(name) else {
            return Err(refuse::unknown_type(&Type::Unknown, span));
        };
        let (Some(key), value, kind) = (map.key.clone(), map.value.clone(), map.info.kind()) else {
            return Err(refuse::unknown_type(&map.value, span));
        };
        let Some(form) = self.forms.form(&value) else { return Err(refuse::unknown_type(&value, span)) };
        let (Some(key_size), Some(value_size)) = (self.forms.member(&key), self.forms.member(&value)) else {
            return Err(refuse::unknown_type(&key, span));
        };
        let mark = self.open();
        let pair = Type::Tuple([key, value].into());
        let variable = self.declare(entry, &pair, span)?;
        let position = self.take(8, span)?;
        // A value with more words than its number is copied aside.
        let aside = match (form, kind) {
            (Form::Text, _) => Some(self.take(8 + self.forms.text_bytes(), span)?),
            (_, Kind::Plain | Kind::Count | Kind::Sum) => None,
            _ => Some(self.take(16, span)?),
        };
        let value_at = variable.at + u16::try_from(key_size).unwrap_or(u16::MAX);
        let (next, out, end) = (self.asm.label(), self.asm.label(), self.asm.label());
        self.asm.push(0);
        self.asm.set(position);
        self.asm.bind(next);
        self.asm.push(u64::from(aside.unwrap_or(value_at)));
        self.asm.push(u64::from(variable.at));
        self.asm.get(position);
        self.asm.short(Op::Next, number);
        self.asm.byte(Op::DupImm, 1);
        self.asm.set(position);
        self.asm.jump(Op::Jz, out);
        self.asm.drop();
        if let Some(aside) = aside {
            let from = if form == Form::Text { aside + 8 } else { aside };
            self.asm.copy(from, value_at, value_size as u64);
        }
        self.body(body, Loop { next, end });
        self.asm.jump(Op::Jmp, next);
        self.asm.bind(out);
        self.asm.drop();
        self.asm.bind(end);
        self.close(Some(mark));
        Ok(())
    }
}
