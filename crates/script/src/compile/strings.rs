//! Compiles functions of strings: those that give one, and those that look into one.

use crate::ast::Expr;
use crate::provider::Provider;
use crate::types::Type;
use vm::Op;

use super::call::Call;
use super::compiler::Result;
use super::errors::TEXTS;
use super::forms::Form;
use super::syscalls;
use crate::walk::is_pure;

/// The class of constants that are names of attach points; of their functions.
const POINTS: u64 = 1 << 32;
pub(super) const FUNCTIONS: u64 = 2 << 32;

impl Call<'_, '_> {
    /// Functions of strings that give a number.
    pub(super) fn texts(mut self) -> Result<()> {
        let first = self.argument(0)?;
        match self.entry.name {
            "strlen" => {
                let at = self.memory_text(first)?;
                self.compiler.asm.get(at);
            }
            "strcap" => {
                let room = match &first.ty {
                    Type::Array(..) => self.compiler.forms.records.size(&first.ty).unwrap_or(0),
                    _ => self.compiler.settings.max_strlen as u64,
                };
                self.compiler.asm.push(room);
            }
            "strcontains" | "strstr" => {
                let second = self.argument(1)?;
                let haystack = self.compiler.steady_text(first, is_pure(second))?;
                let needle = self.compiler.text(second)?;
                let asm = &mut self.compiler.asm;
                for at in [needle, haystack] {
                    asm.get(at);
                    asm.push(u64::from(at) + 8);
                }
                asm.op(Op::FindF);
                if self.entry.name == "strcontains" {
                    asm.push(u64::MAX);
                    asm.op(Op::Eq);
                    asm.not();
                }
            }
            "globmatch" => {
                let second = self.argument(1)?;
                let text = self.compiler.steady_text(first, is_pure(second))?;
                let pattern = self.compiler.text(second)?;
                let asm = &mut self.compiler.asm;
                for at in [pattern, text] {
                    asm.get(at);
                    asm.push(u64::from(at) + 8);
                }
                asm.op(Op::GlobF);
            }
            "strncmp" => {
                let (second, count) = (self.argument(1)?, self.argument(2)?);
                let (left, right) = (self.memory_text(first)?, self.memory_text(second)?);
                let limit = match self.compiler.fold(count) {
                    Some(limit) => limit,
                    None => return self.not_stated(count),
                };
                let asm = &mut self.compiler.asm;
                for at in [right, left] {
                    asm.get(at);
                    asm.at_most(limit);
                    asm.push(u64::from(at) + 8);
                }
                asm.op(Op::CompareF);
            }
            _ => return self.compare_memory(),
        }
        Ok(())
    }

    fn not_stated<T>(&self, count: &Expr) -> Result<T> {
        let message = format!("the count of `{}` is not known when the script is compiled", self.entry.name);
        Err(source::Diagnostic::error(count.at.0, message).label("expected a number"))
    }

    /// `memcmp`: bytes as they are in memory.
    fn compare_memory(self) -> Result<()> {
        let count = self.argument(2)?;
        let Some(count) = self.compiler.fold(count) else { return self.not_stated(count) };
        let bytes = usize::try_from(count).unwrap_or(usize::MAX);
        let mut places = [0; 2];
        for (index, place) in places.iter_mut().enumerate() {
            let value = self.argument(index)?;
            *place = match self.compiler.form(value)? {
                Form::Text => {
                    let from = self.compiler.text(value)?;
                    let at = self.compiler.take(bytes, value.at.0)?;
                    let asm = &mut self.compiler.asm;
                    asm.clear(at, count);
                    asm.get(from);
                    asm.at_most(count);
                    asm.push(u64::from(from) + 8);
                    asm.push(at.into());
                    asm.op(Op::MoveF);
                    at
                }
                Form::Wide(size) if !self.compiler.in_memory(value) && size >= bytes => {
                    self.compiler.wide(value)?
                }
                _ => {
                    let at = self.compiler.take(bytes, value.at.0)?;
                    self.compiler.asm.push(count);
                    self.compiler.pointer(value)?;
                    self.compiler.asm.push(at.into());
                    self.compiler.asm.op(Op::ReadF);
                    self.compiler.asm.drop();
                    at
                }
            };
        }
        let asm = &mut self.compiler.asm;
        for at in [places[1], places[0]] {
            asm.push(count);
            asm.push(at.into());
        }
        asm.op(Op::CompareF);
        Ok(())
    }

    /// The string that a value is, or that is at its address.
    fn memory_text(&mut self, value: &Expr) -> Result<u16> {
        let is_text = self.compiler.form(value).is_ok_and(|form| form == Form::Text);
        if is_text || matches!(value.ty, Type::Array(..)) {
            return self.compiler.text(value);
        }
        let room = self.compiler.forms.text_bytes();
        let at = self.compiler.take(8 + room, value.at.0)?;
        self.compiler.asm.push(self.compiler.settings.max_strlen as u64);
        self.compiler.pointer(value)?;
        let asm = &mut self.compiler.asm;
        asm.push(u64::from(at) + 8);
        asm.op(Op::StrF);
        asm.no_less_than_zero();
        asm.set(at);
        Ok(at)
    }

    /// Evaluates a string to a place of the frame; pushes its length.
    pub(super) fn text(mut self, at: u16, room: usize) -> Result<()> {
        let offset = u64::from(at);
        match self.entry.name {
            // The instruction writes 16 bytes.
            "comm" if self.arguments.is_empty() && room < 16 => {
                let whole = self.compiler.take(16, self.expr.at.0)?;
                let asm = &mut self.compiler.asm;
                asm.push(whole.into());
                asm.op(Op::CommF);
                asm.at_most(room as u64);
                asm.copy(whole, at, room as u64);
                Ok(())
            }
            "comm" if self.arguments.is_empty() => {
                let asm = &mut self.compiler.asm;
                asm.push(offset);
                asm.op(Op::CommF);
                Ok(())
            }
            // The runtime cuts names to the size of strings.
            "func" | "probe" => {
                let class = if self.entry.name == "func" { FUNCTIONS } else { POINTS };
                let asm = &mut self.compiler.asm;
                asm.op(Op::PushMinor);
                asm.push(class);
                asm.op(Op::Or);
                asm.push(offset);
                asm.op(Op::TextF);
                asm.no_less_than_zero();
                Ok(())
            }
            "probetype" => {
                let mut names = self.compiler.served.providers.iter().map(|provider| match provider {
                    Provider::Begin | Provider::End | Provider::Own => "special",
                    provider => provider.name(),
                });
                let first = names.next().unwrap_or("");
                if names.any(|name| name != first) {
                    let message = "`probetype` differs between the points of this probe";
                    return Err(source::Diagnostic::error(self.expr.at.0, message)
                        .label("not known when the script is compiled")
                        .help("write a probe for each provider, or use `probe`"));
                }
                let number = self.compiler.constant(&first.as_bytes()[..first.len().min(room)]);
                let asm = &mut self.compiler.asm;
                asm.push(number);
                asm.push(offset);
                asm.op(Op::TextF);
                Ok(())
            }
            "strerror" => self.one_of(TEXTS, at),
            "syscall_name" => self.one_of(&syscalls::names(), at),
            "str" => self.string(at, room),
            "buf" => self.bytes(at, room),
            _ => self.refused(),
        }
    }

    /// The text with the number that is the argument; the last one is for all others.
    fn one_of(self, texts: &[&str], at: u16) -> Result<()> {
        let most = self.compiler.settings.max_strlen;
        let texts: Vec<&str> = texts.iter().map(|text| &text[..text.len().min(most)]).collect();
        let first = self.compiler.constants.block(&texts);
        self.compiler.word(self.argument(0)?)?;
        let asm = &mut self.compiler.asm;
        asm.at_most(texts.len() as u64 - 1);
        asm.plus(first);
        asm.push(at.into());
        asm.op(Op::TextF);
        Ok(())
    }

    /// `str(data, length)`.
    fn string(&mut self, at: u16, room: usize) -> Result<()> {
        let data = self.argument(0)?;
        let most = room.min(self.compiler.settings.max_strlen) as u64;
        let limit = self.arguments.get(1);
        let known = limit.map_or(Some(most), |limit| self.compiler.fold(limit)).map(|known| known.min(most));
        let is_text = self.compiler.form(data).is_ok_and(|form| form == Form::Text);
        if is_text || matches!(data.ty, Type::Array(..)) {
            let from = self.compiler.text(data)?;
            match (known, limit) {
                (Some(known), _) => {
                    self.compiler.asm.get(from);
                    self.compiler.asm.at_most(known);
                }
                (None, Some(limit)) => self.lesser(limit, from, most)?,
                (None, None) => {}
            }
            let size = self.compiler.take(8, self.expr.at.0)?;
            let asm = &mut self.compiler.asm;
            asm.set(size);
            asm.clear(at, (most as usize).next_multiple_of(8).min(room) as u64);
            asm.get(size);
            asm.push(u64::from(from) + 8);
            asm.push(at.into());
            asm.op(Op::MoveF);
            asm.get(size);
            return Ok(());
        }
        match (known, limit) {
            (Some(known), _) => self.compiler.asm.push(known),
            (None, Some(limit)) => {
                self.compiler.word(limit)?;
                self.compiler.asm.at_most(most);
            }
            (None, None) => {}
        }
        self.compiler.pointer(data)?;
        let asm = &mut self.compiler.asm;
        asm.push(at.into());
        asm.op(Op::StrF);
        asm.no_less_than_zero();
        Ok(())
    }

    /// Pushes the lesser of a limit and the length of a string.
    fn lesser(&mut self, limit: &Expr, from: u16, most: u64) -> Result<()> {
        self.compiler.word(limit)?;
        let size = self.compiler.take(8, limit.at.0)?;
        let asm = &mut self.compiler.asm;
        asm.at_most(most);
        asm.set(size);
        let fits = asm.label();
        asm.get(from);
        asm.byte(Op::DupImm, 1);
        asm.get(size);
        asm.op(Op::Ult);
        asm.jump(Op::Jz, fits);
        asm.byte(Op::Ros, 2);
        asm.get(size);
        asm.push(0);
        asm.bind(fits);
        asm.drop();
        Ok(())
    }

    /// `buf(data, length)`.
    fn bytes(&mut self, at: u16, room: usize) -> Result<()> {
        let data = self.argument(0)?;
        let array = match data.ty {
            Type::Array(..) => self.compiler.forms.records.size(&data.ty),
            _ => None,
        };
        let most = (room as u64).min(self.compiler.settings.max_strlen as u64).min(array.unwrap_or(u64::MAX));
        let form = self.compiler.form(data).ok();
        if form == Some(Form::Text) {
            return self.string(at, room);
        }
        let size = self.compiler.take(8, self.expr.at.0)?;
        match self.arguments.get(1) {
            Some(limit) => {
                self.compiler.word(limit)?;
                self.compiler.asm.at_most(most);
            }
            None => self.compiler.asm.push(most),
        }
        self.compiler.asm.set(size);
        self.compiler.asm.clear(at, (most as usize).next_multiple_of(8).min(room) as u64);
        if matches!(form, Some(Form::Wide(_))) && !self.compiler.in_memory(data) {
            let from = self.compiler.wide(data)?;
            let asm = &mut self.compiler.asm;
            asm.get(size);
            asm.push(from.into());
            asm.push(at.into());
            asm.op(Op::MoveF);
            asm.get(size);
            return Ok(());
        }
        self.compiler.asm.get(size);
        self.compiler.pointer(data)?;
        let asm = &mut self.compiler.asm;
        asm.push(at.into());
        asm.op(Op::ReadF);
        asm.get(size);
        asm.op(Op::Mul);
        Ok(())
    }
}
