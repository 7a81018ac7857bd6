//! Compiles functions whose value is in the frame and has a fixed size: stacks, symbols, times,
//! addresses of networks.

use crate::ast::{Expr, ExprKind};
use crate::types::Type;
use vm::Op;

use super::call::{Call, named};
use super::compiler::Result;
use super::forms::Form;
use super::settings::stack_mode;
use super::tables::MOST_FRAMES;
use super::{function_values, refuse};

impl Call<'_, '_> {
    /// Evaluates a value that is in the frame to its place.
    pub(super) fn wide(self, at: u16) -> Result<()> {
        match self.entry.name {
            "ustack" | "kstack" => self.stack(at),
            "reg" => {
                let name = match &self.argument(0)?.kind {
                    ExprKind::Text(name) => String::from_utf8_lossy(name),
                    _ => return self.refused(),
                };
                let Some(register) = named(&name) else { return self.refused() };
                function_values::push_register(&mut self.compiler.asm, register);
                self.compiler.asm.set(at);
                Ok(())
            }
            "usym" => {
                self.compiler.pointer(self.argument(0)?)?;
                let asm = &mut self.compiler.asm;
                asm.set(at);
                asm.op(Op::PushPid);
                asm.set(at + 8);
                Ok(())
            }
            "ksym" => {
                self.compiler.pointer(self.argument(0)?)?;
                self.compiler.asm.set(at);
                Ok(())
            }
            "strftime" => self.formatted_time(at),
            "username" => {
                let asm = &mut self.compiler.asm;
                asm.op(Op::PushIds);
                asm.extend(4, false);
                asm.set(at);
                Ok(())
            }
            "comm" | "pcomm" => self.process_name(at),
            // The number of the filter's text, and that of the cgroup.
            "cgroup_path" => {
                let filter = match self.arguments.get(1).map(|filter| &filter.kind) {
                    Some(ExprKind::Text(filter)) => filter.clone(),
                    _ => Vec::new(),
                };
                let number = self.compiler.constant(&filter);
                self.compiler.asm.push(number);
                self.compiler.asm.set(at);
                self.compiler.word(self.argument(0)?)?;
                self.compiler.asm.set(at + 8);
                Ok(())
            }
            "macaddr" => {
                self.compiler.asm.clear(at, 8);
                let bytes = self.argument(0)?;
                self.raw(at, bytes, 6)
            }
            "ntop" => self.network(at),
            "pton" => {
                let text = match &self.argument(0)?.kind {
                    ExprKind::Text(text) => String::from_utf8_lossy(text).parse::<std::net::IpAddr>().ok(),
                    _ => None,
                };
                let bytes = match text {
                    Some(std::net::IpAddr::V4(address)) => address.octets().to_vec(),
                    Some(std::net::IpAddr::V6(address)) => address.octets().to_vec(),
                    None => return self.refused(),
                };
                let number = self.compiler.constant(&bytes);
                let asm = &mut self.compiler.asm;
                asm.push(number);
                asm.push(at.into());
                asm.op(Op::TextF);
                asm.drop();
                Ok(())
            }
            _ => self.refused(),
        }
    }

    /// `comm(pid)`, and `pcomm`: the number of the process.
    fn process_name(self, at: u16) -> Result<()> {
        match (self.entry.name, self.arguments.first()) {
            ("comm", Some(process)) => {
                self.compiler.word(process)?;
                self.compiler.asm.extend(4, false);
            }
            (_, Some(task)) => return Err(refuse::task(self.entry.name, task.at.0)),
            (_, None) => self.compiler.asm.op(Op::PushPid),
        }
        self.compiler.asm.set(at);
        Ok(())
    }

    /// `ustack(mode, limit)`: the number of the stack, and the process with the mode above it.
    /// `kstack(mode, limit)`: the same with 0 for the process.
    fn stack(self, at: u16) -> Result<()> {
        let (mut mode, mut limit) = (self.compiler.settings.stack_mode, None);
        for argument in self.arguments {
            match &argument.kind {
                ExprKind::Name(name) if stack_mode(name).is_some() => mode = stack_mode(name).unwrap_or(0),
                _ => limit = Some(argument),
            }
        }
        if mode > 2 {
            let message = "stacks of build ids are not available";
            return Err(source::Diagnostic::error(self.expr.at.0, message)
                .label("expected the mode bpftrace, perf or raw")
                .help(format!("write `{}(perf)`, or set `stack_mode`", self.entry.name)));
        }
        // A limit that is known makes the map smaller.
        let most = limit.and_then(|limit| self.compiler.forms.fold(limit)).unwrap_or(MOST_FRAMES);
        let Some(stacks) = self.compiler.maps.stacks(most) else { return self.refused() };
        match limit {
            Some(limit) => {
                self.compiler.word(limit)?;
                self.compiler.asm.at_most(MOST_FRAMES);
            }
            None => self.compiler.asm.push(MOST_FRAMES),
        }
        let asm = &mut self.compiler.asm;
        let is_kernel = self.entry.name == "kstack";
        asm.short(if is_kernel { Op::KStackOf } else { Op::StackOf }, stacks);
        asm.set(at);
        match is_kernel {
            true => asm.push(0),
            false => asm.op(Op::PushPid),
        }
        if mode != 0 {
            asm.push(u64::from(mode) << 32);
            asm.op(Op::Or);
        }
        asm.set(at + 8);
        Ok(())
    }

    /// `strftime(format, time)`: the number of the format, with the clock above it.
    fn formatted_time(self, at: u16) -> Result<()> {
        let ExprKind::Text(format) = &self.argument(0)?.kind else { return self.refused() };
        let time = self.argument(1)?;
        let clock = match &time.kind {
            ExprKind::Call(name, arguments) if name == "nsecs" => {
                match arguments.first().map(|clock| &clock.kind) {
                    Some(ExprKind::Name(name)) if name.ends_with("tai") => 3u64,
                    Some(ExprKind::Name(name)) if name == "boot" => 2,
                    _ => 0,
                }
            }
            _ => 0,
        };
        let number = self.compiler.constant(format) | clock << 32;
        self.compiler.asm.push(number);
        self.compiler.asm.set(at);
        self.compiler.word(time)?;
        self.compiler.asm.set(at + 8);
        Ok(())
    }

    /// Copies bytes from an address, or from a value in the frame.
    fn raw(self, at: u16, value: &Expr, count: u64) -> Result<()> {
        if matches!(self.compiler.form(value), Ok(Form::Wide(_))) && !self.compiler.in_memory(value) {
            let from = self.compiler.wide(value)?;
            self.compiler.asm.copy_bytes(from, at, count);
            return Ok(());
        }
        if self.compiler.form(value).is_ok_and(|form| form == Form::Text) {
            let from = self.compiler.text(value)?;
            self.compiler.asm.copy_bytes(from + 8, at, count);
            return Ok(());
        }
        self.compiler.asm.push(count);
        self.compiler.pointer(value)?;
        let asm = &mut self.compiler.asm;
        asm.push(at.into());
        asm.op(Op::ReadF);
        asm.drop();
        Ok(())
    }

    /// `ntop(family, address)`: the family, and 16 bytes of the address.
    fn network(self, at: u16) -> Result<()> {
        const INET: u64 = 2;
        const INET6: u64 = 10;
        let (family, address) = match self.arguments {
            [family, address] => (Some(family), address),
            _ => (None, self.argument(0)?),
        };
        let bytes = match &address.ty {
            Type::Array(..) => self.compiler.forms.records.size(&address.ty).unwrap_or(4).min(16),
            _ => 4,
        };
        match family {
            Some(family) => self.compiler.word(family)?,
            None => self.compiler.asm.push(if bytes == 16 { INET6 } else { INET }),
        }
        self.compiler.asm.set(at);
        self.compiler.asm.clear(at + 8, 16);
        if self.compiler.form(address).is_ok_and(|form| form == Form::Word) {
            self.compiler.word(address)?;
            self.compiler.asm.extend(4, false);
            self.compiler.asm.set(at + 8);
            return Ok(());
        }
        self.raw(at + 8, address, bytes)
    }
}
