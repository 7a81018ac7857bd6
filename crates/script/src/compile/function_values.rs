//! Reads the arguments of a function by name (`args.x`), and what it returns, from where debug
//! information and the calling convention have them.
//!
//! ```text
//! int in rdi                    push r, rdi; pbl 32
//! struct of 12 bytes in rdi, rsi     push r, rdi; pop fr AT; push r, rsi; pzl 32; pop fr AT + 8
//! value on the stack            it is in memory, at the stack pointer and so many bytes
//! ```

use source::{Diagnostic, Span};

use crate::ast::{Expr, ExprKind};
use crate::program_types::{FunctionValue, RegisterPart, Signature, ValuePlace};
use crate::types::{Integer, Type};
use vm::{Op, Register, Shape};

use super::assembler::Assembler;
use super::compiler::{Compiler, Result};
use super::forms::{Form, raw};
use super::groups::Served;
use super::refuse::{self, nowhere};

impl Served {
    /// The argument or result that an expression is, if debug information tells it.
    pub(super) fn value(&self, expr: &Expr) -> Option<FunctionValue> {
        let Signature { arguments, result, .. } = &**self.probed.signature.as_ref()?;
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
        is_args(expr) && self.probed.signature.is_some()
    }

    /// Whether an argument is in memory of the program; `None` if an expression is none.
    pub(super) fn is_in_memory(&self, expr: &Expr) -> Option<bool> {
        let value = self.value(expr)?;
        Some(match &value.place {
            ValuePlace::Stack(_) | ValuePlace::Pointed(_) => true,
            ValuePlace::Field(_) => !matches!(value.ty, Type::Pointer(_)) && value.ty.as_integer().is_none(),
            _ => false,
        })
    }

    /// The message for `args` where nothing is known of the function.
    pub(super) fn no_arguments(&self, span: Span) -> Diagnostic {
        let reason = self.probed.reason.as_deref().unwrap_or("nothing is known of the function");
        Diagnostic::error(span, "the arguments of the function are not known by name")
            .label(reason.to_owned())
            .help("use `arg0`, `arg1` and so on")
    }
}

/// Pushes the address of an argument in memory, less the offset that is returned.
pub(super) fn push_place(asm: &mut Assembler, value: &FunctionValue, span: Span) -> Result<u64> {
    match value.place {
        ValuePlace::Stack(offset) => {
            asm.short(Op::PushR, Register::Rsp as u16);
            Ok(offset)
        }
        ValuePlace::Pointed(register) => {
            asm.short(Op::PushR, register as u16);
            Ok(0)
        }
        _ => Err(nowhere(value, span)),
    }
}

/// Pushes an argument that is one word and in a register.
pub(super) fn push_word(asm: &mut Assembler, value: &FunctionValue, span: Span) -> Result<()> {
    match &value.place {
        ValuePlace::Registers(parts) if parts.len() == 1 => {
            asm.short(Op::PushR, parts[0].register as u16);
            extend(asm, &value.ty)
        }
        _ => Err(nowhere(value, span)),
    }
}

/// Pushes a register; of one for floats its first 8 bytes.
pub(super) fn push_register(asm: &mut Assembler, register: Register) {
    asm.short(Op::PushR, register as u16);
    if register.shape() == Shape::Vector {
        // The rest is below them.
        asm.op(Op::Xchg);
        asm.drop();
    }
}

/// Extends the word on the stack as its type says.
pub(super) fn extend(asm: &mut Assembler, ty: &Type) -> Result<()> {
    let Integer { bytes, signed } = raw(ty);
    asm.extend(bytes, signed);
    if *ty == Type::Bool {
        asm.not();
        asm.not();
    }
    Ok(())
}

/// Copies an argument that is in registers to the frame.
pub(super) fn copy(
    asm: &mut Assembler,
    value: &FunctionValue,
    at: u16,
    size: usize,
    span: Span,
) -> Result<()> {
    let ValuePlace::Registers(parts) = &value.place else { return Err(nowhere(value, span)) };
    for word in (0..size).step_by(8).filter_map(|offset| u16::try_from(offset).ok()) {
        asm.push(0);
        let in_word = |part: &&RegisterPart| part.offset / 8 == word / 8;
        for part in parts.iter().filter(in_word) {
            push_register(asm, part.register);
            asm.extend(part.bytes, false);
            if !part.offset.is_multiple_of(8) {
                asm.byte(Op::ShlImm, (part.offset % 8 * 8) as u8);
            }
            asm.op(Op::Or);
        }
        asm.set(at + word);
    }
    Ok(())
}

/// Copies all arguments of a function to the frame.
pub(super) fn copy_all(compiler: &mut Compiler<'_>, expr: &Expr, at: u16) -> Result<()> {
    let Some(signature) = compiler.served.probed.signature.clone() else { return Err(refuse::unknown(expr)) };
    let Some(layout) = compiler.forms.records.get(&signature.key) else { return Err(refuse::unknown(expr)) };
    for argument in &signature.arguments {
        let Some(placed) = layout.fields.get(&argument.name) else { continue };
        let place = u16::try_from(placed.offset).ok().and_then(|offset| at.checked_add(offset));
        let Some(place) = place else { return Err(refuse::unknown(expr)) };
        let kind = ExprKind::Field(Box::new(expr.clone()), argument.name.clone());
        let mut part = Expr::new(expr.at, kind);
        part.ty = placed.ty.clone();
        match compiler.forms.form(&part.ty) {
            Some(Form::Word) => {
                compiler.word(&part)?;
                compiler.asm.set(place);
            }
            Some(Form::Wide(size)) => compiler.wide_to(&part, &placed.ty, place, size)?,
            _ => return Err(nowhere(argument, expr.at.0)),
        }
    }
    Ok(())
}

fn is_args(expr: &Expr) -> bool {
    matches!(&expr.kind, ExprKind::Name(name) if name == "args")
}
