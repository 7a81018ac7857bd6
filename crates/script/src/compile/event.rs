//! Compiles functions of the reader: what they do is logged as an event and done when it is read.
//!
//! An event is the number of its description and its arguments. Where all of them are words, they
//! are logged by one instruction:
//!
//! ```text
//!     push arguments, the last one first; push NUMBER; log COUNT + 1
//! ```

use crate::ast::{Expr, ExprKind};
use crate::compiled::Action;
use crate::constant;
use crate::types::Type;
use vm::Op;

use super::compiler::{Compiler, Result};
use super::forms::Form;
use super::refuse;
use crate::walk::is_pure;

/// The strings that `join` reads at most.
const MOST_JOINED: u64 = 16;

/// A part of an event.
#[derive(Clone, Copy, Debug)]
enum Part<'e> {
    /// A word that is evaluated when it is logged.
    Later(&'e Expr),
    /// A word in the frame.
    Word(u16),
    /// A string.
    Text(u16),
    /// So many bytes.
    Wide(u16, usize),
    /// A number.
    Number(u64),
}

/// A call of a function of the reader.
pub(super) struct Events<'c, 'a> {
    compiler: &'c mut Compiler<'a>,
    expr: &'c Expr,
}

impl<'c, 'a> Events<'c, 'a> {
    pub(super) fn new(compiler: &'c mut Compiler<'a>, expr: &'c Expr) -> Events<'c, 'a> {
        Events { compiler, expr }
    }

    /// Logs what a call asks the reader for.
    pub(super) fn call(mut self, name: &str, arguments: &[Expr]) -> Result<()> {
        match (name, arguments) {
            ("printf" | "errorf" | "warnf" | "cat" | "system", [format, values @ ..]) => {
                let ExprKind::Text(format) = &format.kind else { return self.refused(name) };
                let format = format.clone();
                let action = match name {
                    "printf" => Action::Printf(format),
                    "errorf" => Action::Errorf(format),
                    "warnf" => Action::Warnf(format),
                    "cat" => Action::Cat(format),
                    _ => Action::System(format),
                };
                self.log(action, values)
            }
            ("print", [value, rest @ ..]) => self.print(value, rest),
            ("clear" | "zero", [map]) => {
                let number = self.map(map)?;
                self.log(if name == "clear" { Action::Clear(number) } else { Action::Zero(number) }, &[])
            }
            ("unwatch", [address]) => self.log(Action::Unwatch, std::slice::from_ref(address)),
            ("time", _) => {
                let format = match arguments.first().map(|format| &format.kind) {
                    Some(ExprKind::Text(format)) => format.clone(),
                    _ => b"%H:%M:%S\n".to_vec(),
                };
                self.log(Action::Time(format), &[])
            }
            ("exit", _) => {
                match arguments.first() {
                    Some(status) => self.log(Action::Exit, std::slice::from_ref(status))?,
                    None => self.emit(Action::Exit, vec![Type::I64], &[Part::Number(0)])?,
                }
                self.compiler.end_run();
                Ok(())
            }
            ("join", [strings, separator @ ..]) => {
                let separator = match separator.first().map(|separator| &separator.kind) {
                    Some(ExprKind::Text(text)) => text.clone(),
                    _ => b" ".to_vec(),
                };
                self.join(strings, separator)
            }
            ("assert", [condition, message]) => {
                let holds = self.compiler.asm.label();
                self.compiler.test(condition, true, holds)?;
                self.compiler.perhaps(|compiler| {
                    Events::new(compiler, self.expr).log(Action::Assert, std::slice::from_ref(message))?;
                    compiler.end_run();
                    Ok(())
                })?;
                self.compiler.asm.bind(holds);
                self.compiler.asm.drop();
                Ok(())
            }
            _ => self.refused(name),
        }
    }

    fn refused(&self, name: &str) -> Result<()> {
        match crate::library::find(name) {
            Some(entry) => Err(refuse::entry(entry, self.expr.at.0)),
            None => Err(refuse::unknown(self.expr)),
        }
    }

    fn map(&self, expr: &Expr) -> Result<usize> {
        match &expr.kind {
            ExprKind::Map(name, _) => {
                let found = self.compiler.maps.find(name).map(|(number, _)| usize::from(number));
                found.ok_or_else(|| refuse::unknown(expr))
            }
            _ => Err(refuse::unknown(expr)),
        }
    }

    /// `print`: a value, an entry, or a whole map.
    fn print(mut self, value: &Expr, rest: &[Expr]) -> Result<()> {
        let ExprKind::Map(name, key) = &value.kind else {
            return self.log(Action::Print, std::slice::from_ref(value));
        };
        let number = self.map(value)?;
        let found = self.compiler.maps.find(name).map(|(_, map)| (map.key.is_some(), map.value.clone()));
        let Some((has_keys, value_ty)) = found else { return Err(refuse::unknown(value)) };
        if has_keys && key.is_none() {
            let stated = |index: usize| {
                let number = rest.get(index).and_then(constant::integer);
                number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
            };
            let action = Action::PrintMap { map: number, top: stated(0), divisor: stated(1) };
            return self.log(action, &[]);
        }
        // What an aggregate amounts to is looked up by the reader.
        let logs_value = !matches!(value_ty, Type::Aggregate(_));
        let (mut types, mut parts) = (Vec::new(), Vec::new());
        if let Some(key) = key {
            let ty = self.compiler.maps.find(name).and_then(|(_, map)| map.key.clone()).unwrap_or_default();
            parts.push(self.part_as(key, &ty)?);
            types.push(ty);
        }
        if logs_value {
            parts.push(self.part(value, true)?);
            types.push(value_ty);
        }
        self.emit(Action::PrintEntry(number), types, &parts)
    }

    /// Evaluates a value in the form of a type: members of tuples have their sizes from it.
    fn part_as<'e>(&mut self, value: &'e Expr, ty: &Type) -> Result<Part<'e>> {
        match self.compiler.forms.form(ty) {
            Some(Form::Wide(size)) => {
                let at = self.compiler.take(size, value.at.0)?;
                self.compiler.wide_to(value, ty, at, size)?;
                Ok(Part::Wide(at, size))
            }
            _ => self.part(value, is_pure(value)),
        }
    }

    /// Evaluates an argument. A word that changes nothing may wait.
    fn part<'e>(&mut self, value: &'e Expr, wait: bool) -> Result<Part<'e>> {
        Ok(match self.compiler.form(value)? {
            Form::Word if wait => Part::Later(value),
            Form::Word => {
                let at = self.compiler.take(8, value.at.0)?;
                self.compiler.word(value)?;
                self.compiler.asm.set(at);
                Part::Word(at)
            }
            Form::Text => Part::Text(self.compiler.steady_text(value, wait)?),
            Form::Wide(size) => Part::Wide(self.compiler.steady_wide(value, size, wait)?, size),
        })
    }

    /// Logs an event with these values.
    fn log(&mut self, action: Action, values: &[Expr]) -> Result<()> {
        let wait = values.iter().all(is_pure);
        let parts: Vec<Part<'_>> =
            values.iter().map(|value| self.part(value, wait)).collect::<Result<_>>()?;
        let types = values.iter().map(|value| logged(&value.ty)).collect();
        self.emit(action, types, &parts)
    }

    /// Logs an event's number and its parts; neighbouring words by one instruction.
    fn emit(&mut self, action: Action, types: Vec<Type>, parts: &[Part<'_>]) -> Result<()> {
        let number = self.compiler.event(action, types, self.expr.at);
        let mut words = vec![Part::Number(number)];
        for part in parts {
            match *part {
                Part::Text(at) => {
                    self.words(&mut words)?;
                    let asm = &mut self.compiler.asm;
                    asm.get(at);
                    asm.push(u64::from(at) + 8);
                    asm.op(Op::LogTextF);
                }
                Part::Wide(at, size) => {
                    self.words(&mut words)?;
                    let asm = &mut self.compiler.asm;
                    asm.push(size as u64);
                    asm.push(at.into());
                    asm.op(Op::LogF);
                }
                word => words.push(word),
            }
        }
        self.words(&mut words)
    }

    fn words(&mut self, words: &mut Vec<Part<'_>>) -> Result<()> {
        if words.is_empty() {
            return Ok(());
        }
        let count = u16::try_from(words.len()).map_err(|_| refuse::unknown(self.expr))?;
        for word in words.drain(..).rev() {
            match word {
                Part::Number(number) => self.compiler.asm.push(number),
                Part::Later(value) => self.compiler.word(value)?,
                Part::Word(at) | Part::Text(at) | Part::Wide(at, _) => self.compiler.asm.get(at),
            }
        }
        self.compiler.asm.short(Op::LogImm, count);
        Ok(())
    }

    /// `join`: the number of strings, and so many strings.
    ///
    /// ```text
    ///     pointers: 16 words, and one that is 0; count; position; a string
    /// ```
    fn join(&mut self, strings: &Expr, separator: Vec<u8>) -> Result<()> {
        let span = self.expr.at.0;
        let compiler = &mut *self.compiler;
        let (room, most) = (compiler.forms.text_bytes(), compiler.settings.max_strlen as u64);
        let pointers = compiler.take(8, span)?;
        let (count, position) = (compiler.take(8, span)?, compiler.take(8, span)?);
        let (pointer, text) = (compiler.take(8, span)?, compiler.take(room, span)?);
        compiler.pointer(strings)?;
        let number = compiler.event(Action::Join(separator), vec![Type::U64], self.expr.at);
        let asm = &mut compiler.asm;
        asm.set(pointers);
        let read = |asm: &mut super::assembler::Assembler, index: u16| {
            asm.push(8);
            asm.get(index);
            asm.byte(Op::ShlImm, 3);
            asm.get(pointers);
            asm.op(Op::Add);
            asm.push(pointer.into());
            asm.op(Op::ReadF);
            asm.drop();
        };
        let below = |asm: &mut super::assembler::Assembler, index: u16| {
            asm.get(index);
            asm.op(Op::Ult);
        };
        // How many there are: it is logged before them.
        let (next, counted) = (asm.label(), asm.label());
        asm.push(0);
        asm.set(count);
        asm.bind(next);
        asm.push(MOST_JOINED);
        below(asm, count);
        asm.jump(Op::Jz, counted);
        asm.drop();
        read(asm, count);
        asm.get(pointer);
        asm.jump(Op::Jz, counted);
        asm.drop();
        asm.get(count);
        asm.plus(1);
        asm.set(count);
        asm.jump(Op::Jmp, next);
        asm.bind(counted);
        asm.drop();
        asm.get(count);
        asm.push(number);
        asm.short(Op::LogImm, 2);
        let (next, end) = (asm.label(), asm.label());
        asm.push(0);
        asm.set(position);
        asm.bind(next);
        asm.get(count);
        below(asm, position);
        asm.jump(Op::Jz, end);
        asm.drop();
        read(asm, position);
        asm.push(most);
        asm.get(pointer);
        asm.push(text.into());
        asm.op(Op::StrF);
        asm.no_less_than_zero();
        asm.push(text.into());
        asm.op(Op::LogTextF);
        asm.get(position);
        asm.plus(1);
        asm.set(position);
        asm.jump(Op::Jmp, next);
        asm.bind(end);
        asm.drop();
        Ok(())
    }
}

/// The type that the reader sees: what is read from a map with a function is a number.
fn logged(ty: &Type) -> Type {
    match ty {
        Type::Aggregate(_) => ty.as_integer().map_or_else(|| ty.clone(), Type::Integer),
        _ => ty.clone(),
    }
}
