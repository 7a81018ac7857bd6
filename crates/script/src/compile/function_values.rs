//! Reads the arguments of a function by name (`args.x`), and what it returns, from where debug
//! information and the calling convention have them.
//!
//! ```text
//! int in rdi                    push r, rdi; pbl 32
//! struct of 12 bytes in rdi, rsi     push r, rdi; pop fr AT; push r, rsi; pzl 32; pop fr AT + 8
//! value on the stack            it is in memory, at the stack pointer and so many bytes
//! ```

use source::{Diagnostic, Span, quote};

use crate::ast::{Expr, ExprKind};
use crate::program_types::{FunctionValue, RegisterPart, Signature, ValuePlace};
use crate::types::{Integer, Type};
use vm::{Op, Register};

use super::compiler::{Compiler, Result};
use super::forms::Form;
use super::place::raw;
use super::refuse;

impl Compiler<'_> {
    /// The argument or result that an expression is, if debug information tells it.
    pub(super) fn function_value(&self, expr: &Expr) -> Option<FunctionValue> {
        let Signature { arguments, result, .. } = &**self.served.probed.signature.as_ref()?;
        match &expr.kind {
            ExprKind::Field(value, name) if is_args(value) => {
                arguments.iter().find(|argument| argument.name == *name).cloned()
            }
            // As a number, it is in its register.
            ExprKind::Name(name) if name == "retval" => result.clone().filter(|result| result.ty == expr.ty),
            _ => None,
        }
    }

    /// Whether an expression is all arguments of a function.
    pub(super) fn is_all_arguments(&self, expr: &Expr) -> bool {
        is_args(expr) && self.served.probed.signature.is_some()
    }

    /// Whether an argument is in memory of the program.
    pub(super) fn function_value_in_memory(&self, expr: &Expr) -> Option<bool> {
        let value = self.function_value(expr)?;
        Some(matches!(value.place, ValuePlace::Stack(_) | ValuePlace::Pointed(_)))
    }

    /// Pushes the address of an argument in memory, less the offset that is returned.
    pub(super) fn function_value_place(&mut self, value: &FunctionValue, span: Span) -> Result<u64> {
        match value.place {
            ValuePlace::Stack(offset) => {
                self.asm.short(Op::PushR, Register::Rsp as u16);
                Ok(offset)
            }
            ValuePlace::Pointed(register) => {
                self.asm.short(Op::PushR, register as u16);
                Ok(0)
            }
            _ => Err(nowhere(value, span)),
        }
    }

    /// Pushes an argument that is one word and in a register.
    pub(super) fn function_value_word(&mut self, value: &FunctionValue, span: Span) -> Result<()> {
        match &value.place {
            ValuePlace::Registers(parts) if parts.len() == 1 => {
                self.asm.short(Op::PushR, parts[0].register as u16);
                let Integer { bytes, signed } = raw(&value.ty);
                self.asm.extend(bytes, signed);
                if value.ty == Type::Bool {
                    self.asm.not();
                    self.asm.not();
                }
                Ok(())
            }
            _ => Err(nowhere(value, span)),
        }
    }

    /// Copies an argument that is in registers to the frame.
    pub(super) fn function_value_to(
        &mut self,
        value: &FunctionValue,
        at: u16,
        size: usize,
        span: Span,
    ) -> Result<()> {
        let ValuePlace::Registers(parts) = &value.place else { return Err(nowhere(value, span)) };
        for word in (0..size).step_by(8).filter_map(|offset| u16::try_from(offset).ok()) {
            self.asm.push(0);
            let in_word = |part: &&RegisterPart| part.offset / 8 == word / 8;
            for part in parts.iter().filter(in_word) {
                self.asm.short(Op::PushR, part.register as u16);
                self.asm.extend(part.bytes, false);
                if !part.offset.is_multiple_of(8) {
                    self.asm.byte(Op::ShlImm, (part.offset % 8 * 8) as u8);
                }
                self.asm.op(Op::Or);
            }
            self.asm.set(at + word);
        }
        Ok(())
    }

    /// Copies all arguments of a function to the frame.
    pub(super) fn all_arguments_to(&mut self, expr: &Expr, at: u16) -> Result<()> {
        let Some(signature) = self.served.probed.signature.clone() else { return Err(refuse::unknown(expr)) };
        let Some(layout) = self.forms.records.get(&signature.key) else { return Err(refuse::unknown(expr)) };
        for argument in &signature.arguments {
            let Some(placed) = layout.fields.get(&argument.name) else { continue };
            let place = u16::try_from(placed.offset).ok().and_then(|offset| at.checked_add(offset));
            let Some(place) = place else { return Err(refuse::unknown(expr)) };
            let kind = ExprKind::Field(Box::new(expr.clone()), argument.name.clone());
            let mut part = Expr::new(expr.at, kind);
            part.ty = placed.ty.clone();
            match self.forms.form(&part.ty) {
                Some(Form::Word) => {
                    self.word(&part)?;
                    self.asm.set(place);
                }
                Some(Form::Wide(size)) => self.wide_to(&part, &placed.ty, place, size)?,
                _ => return Err(nowhere(argument, expr.at.0)),
            }
        }
        Ok(())
    }

    /// The message for `args` where nothing is known of the function.
    pub(super) fn no_arguments(&self, span: Span) -> Diagnostic {
        let reason = self.served.probed.reason.as_deref().unwrap_or("nothing is known of the function");
        Diagnostic::error(span, "the arguments of the function are not known by name")
            .label(reason.to_owned())
            .help("use `arg0`, `arg1` and so on")
    }
}

fn is_args(expr: &Expr) -> bool {
    matches!(&expr.kind, ExprKind::Name(name) if name == "args")
}

/// The message for a value that cannot be read.
pub(super) fn nowhere(value: &FunctionValue, span: Span) -> Diagnostic {
    let what = match value.name.as_str() {
        "" => format!("what the function returns, a `{}`,", value.text),
        name => format!("the argument {}, a `{}`,", quote(name), value.text),
    };
    let reason = match &value.place {
        ValuePlace::Nowhere(reason) => reason.as_str(),
        _ => "scripts do not calculate with values of this type",
    };
    Diagnostic::error(span, format!("{what} cannot be read"))
        .label(reason.to_owned())
        .help("leave it out; the others can be read")
}
