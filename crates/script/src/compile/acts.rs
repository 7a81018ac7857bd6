//! Compiles what changes the probed process: signals, results of functions that are not run, and
//! assignments to registers, arguments, results and memory. All of it needs `--unsafe`.

use source::{Diagnostic, Span};

use crate::ast::{Expr, ExprKind};
use crate::attach_point::AttachTarget;
use crate::check::Bits;
use crate::library;
use crate::operator::Binary;
use crate::program_types::ValuePlace;
use crate::provider::{Provider, Providers};
use crate::signals::signal_number;
use crate::types::Type;
use crate::walk::is_pure;
use vm::{Op, Register};

use super::call::{Call, named, registers};
use super::compiler::{Compiler, Result};
use super::forms::{Form, raw};
use super::{function_values, refuse};

impl Call<'_, '_> {
    /// `signal(number)`, and `signal_thread`.
    pub(super) fn signal(self) -> Result<()> {
        let signal = self.argument(0)?;
        match &signal.kind {
            ExprKind::Text(name) => match signal_number(name) {
                Some(number) => self.compiler.asm.push(number),
                None => return self.refused(),
            },
            _ => self.compiler.word(signal)?,
        }
        let to_thread = u8::from(self.entry.name == "signal_thread");
        self.compiler.asm.byte(Op::Signal, to_thread);
        Ok(())
    }

    /// `override(result)`: only where the function's caller is on top of the stack.
    pub(super) fn overridden(self) -> Result<()> {
        let is_entry = |place: &AttachTarget| matches!(place, AttachTarget::Function { offset: None, .. });
        let elsewhere = self
            .compiler
            .served
            .homes
            .iter()
            .find(|point| point.provider != Provider::Uprobe || !is_entry(&point.place));
        if let Some(point) = elsewhere {
            let message = format!("`override` has no meaning at `{point}`");
            let (label, help) = match point.provider {
                Provider::Uprobe => {
                    ("not the entry of a function", "probe the function itself: `uprobe:PATH:FUNCTION`")
                }
                _ => (
                    "needs the kernel's error injection",
                    "override functions of programs: `uprobe:PATH:FUNCTION`, with `-p` or a command",
                ),
            };
            return Err(Diagnostic::error(self.expr.at.0, message).label(label).help(help));
        }
        self.compiler.word(self.argument(0)?)?;
        self.compiler.asm.op(Op::Override);
        Ok(())
    }
}

/// Where something of the probed process is.
enum Target {
    Register(Register),
    /// On the stack, behind the address to return to.
    Slot(u32),
    /// In memory, as the expression says.
    Memory,
}

/// An assignment to something of the probed process.
pub(super) struct Assignment<'c, 'a> {
    pub(super) compiler: &'c mut Compiler<'a>,
}

impl Assignment<'_, '_> {
    /// `reg("ax") = value`, `arg0 = value`, `args.x = value`, `retval = value`, `*p = value`,
    /// `p->field = value`.
    pub(super) fn compile(mut self, target: &Expr, operator: Option<Binary>, value: &Expr) -> Result<()> {
        let span = target.at.0;
        let place = self.target(target, span)?;
        if !self.compiler.parameters.allow_unsafe {
            let what = match place {
                Target::Register(_) => "an assignment to a register",
                _ => "an assignment to memory of the program",
            };
            return Err(refuse::is_unsafe(what, span));
        }
        match place {
            Target::Register(register) => {
                self.value(target, operator, value)?;
                // A part of a register belongs to one argument: what is above it means nothing.
                function_values::extend(&mut self.compiler.asm, &target.ty)?;
                self.compiler.asm.short(Op::PopR, register as u16);
            }
            Target::Slot(slot) => {
                self.value(target, operator, value)?;
                let asm = &mut self.compiler.asm;
                // The value is popped first.
                asm.short(Op::PushR, Register::Rsp as u16);
                asm.plus(8 + 8 * u64::from(slot));
                asm.ops(&[Op::Xchg, Op::PopMem64]);
            }
            Target::Memory => self.memory(target, operator, value)?,
        }
        Ok(())
    }

    /// Pushes what the target is set to.
    fn value(&mut self, target: &Expr, operator: Option<Binary>, value: &Expr) -> Result<()> {
        match operator {
            Some(operator) => self.compiler.operate(operator, target, value),
            None => self.compiler.word(value),
        }
    }

    /// Sets memory.
    ///
    /// ```text
    ///     push address; push value; pop mem, uN
    /// ```
    ///
    /// A bit field is put into the unit that it is in:
    ///
    /// ```text
    ///     push address; push unit, without its bits; push value, cut and shifted; or; pop mem, uN
    /// ```
    ///
    /// What cannot be written raises an exception, which ends the action.
    fn memory(&mut self, target: &Expr, operator: Option<Binary>, value: &Expr) -> Result<()> {
        let span = target.at.0;
        if operator.is_some() && !is_pure(target) {
            return Err(Diagnostic::error(span, "the address of what is changed would be calculated twice")
                .label("it has an effect of its own")
                .help("keep the pointer first: `$p = ...; *$p += 1`"));
        }
        let compiler = &mut *self.compiler;
        if compiler.form(target)? != Form::Word {
            return Err(refuse::unknown(target));
        }
        let integer = raw(&target.ty);
        let bits = match &target.kind {
            ExprKind::Field(record, name) if compiler.served.value(target).is_none() => {
                compiler.field(record, name)?.1
            }
            _ => None,
        };
        compiler.push_place(target)?;
        match bits {
            Some(Bits { first, count }) if (1..64).contains(&count) => {
                let mask = (1u64 << count) - 1;
                let unit = compiler.take(8, span)?;
                compiler.asm.push(u64::from(integer.bytes));
                compiler.push_place(target)?;
                compiler.asm.push(u64::from(unit));
                compiler.asm.op(Op::ReadF);
                compiler.asm.drop();
                self.value(target, operator, value)?;
                let asm = &mut self.compiler.asm;
                asm.push(mask);
                asm.op(Op::And);
                if first > 0 {
                    asm.byte(Op::ShlImm, first);
                }
                asm.get(unit);
                asm.push(!(mask << first));
                asm.ops(&[Op::And, Op::Or]);
            }
            _ => {
                self.value(target, operator, value)?;
                if target.ty == Type::Bool {
                    self.compiler.asm.not();
                    self.compiler.asm.not();
                }
            }
        }
        self.compiler.asm.op(match integer.bytes {
            1 => Op::PopMem8,
            2 => Op::PopMem16,
            4 => Op::PopMem32,
            _ => Op::PopMem64,
        });
        Ok(())
    }

    fn target(&self, target: &Expr, span: Span) -> Result<Target> {
        let refused = |message: &str, help: &str| {
            Err(Diagnostic::error(span, message.to_owned()).label("cannot be set").help(help.to_owned()))
        };
        let served = &self.compiler.served;
        let is_ours = |provider: &Provider| !Providers::TRACED.has(*provider);
        if let Some(provider) = served.providers.iter().find(|provider| is_ours(provider)) {
            let message =
                format!("`{}` runs in dprobes itself, not in the program that is set", provider.name());
            return refused(&message, "set it in a probe of the program, such as `uprobe`");
        }
        let usdt = served.providers.contains(&Provider::Usdt);
        if let Some(value) = served.value(target)
            && !self.compiler.in_memory(target)
        {
            return match &value.place {
                ValuePlace::Registers(parts) => match parts.as_slice() {
                    [part] if part.register.can_pop() && self.compiler.form(target)? == Form::Word => {
                        Ok(Target::Register(part.register))
                    }
                    _ => refused(
                        "what is in several registers, or in one for floats, is not set",
                        "set the register that has it: `reg(\"si\") = 1`",
                    ),
                },
                ValuePlace::Field(_) => refused(
                    "an argument of the kernel's is not set",
                    "scripts change programs only, where a process is probed: `-p` or a command",
                ),
                _ => Err(refuse::nowhere(&value, span)),
            };
        }
        match &target.kind {
            ExprKind::Call(name, arguments) if name == "reg" => {
                let register = match arguments.first().map(|name| &name.kind) {
                    Some(ExprKind::Text(name)) => named(&String::from_utf8_lossy(name)),
                    _ => None,
                };
                match register.filter(|register| register.can_pop() && *register != Register::Rsp) {
                    Some(register) => Ok(Target::Register(register)),
                    None => refused(
                        "a script cannot set this register",
                        "general registers can be set, but for `sp`: `reg(\"ax\") = 1`",
                    ),
                }
            }
            ExprKind::Name(name) if name == "retval" => Ok(Target::Register(Register::Rax)),
            ExprKind::Name(name) if name.starts_with("arg") && usdt => refused(
                "an argument of a static probe is not set",
                "set the register that has it: `reg(\"ax\") = 1`",
            ),
            ExprKind::Name(name) => {
                let number = library::argument(name).unwrap_or(0);
                let arguments = registers(served.convention);
                let in_registers = if name.starts_with("sarg") { &[][..] } else { arguments };
                let slot = number.checked_sub(in_registers.len() as u32);
                match (in_registers.get(number as usize), slot) {
                    (Some(register), _) => Ok(Target::Register(*register)),
                    (None, Some(slot)) => Ok(Target::Slot(slot)),
                    (None, None) => Err(refuse::unknown(target)),
                }
            }
            _ if self.compiler.in_memory(target) => Ok(Target::Memory),
            _ if target.ty == Type::Unknown => Err(refuse::unknown(target)),
            _ => refused(
                "this part of a value is in registers, or in the handler's own memory",
                "set the register that has it: `reg(\"si\") = 1`",
            ),
        }
    }
}
