//! Reads the arguments of a static probe (`usdt`), each from its own place.
//!
//! ```text
//! -4@%eax          push r, rax; pbl 32
//! 8@-16(%rbp)      push 8; push r, rbp; push -16; add; push AT; read fr; ros 1; push fr AT
//! ```

use source::Diagnostic;
use vm::Op;

use crate::static_sites::{SiteArgument, SitePlace, StaticSite};

use super::call::Call;
use super::compiler::Result;

impl Call<'_, '_> {
    /// Pushes an argument of the static probe that is compiled.
    pub(super) fn static_argument(&mut self, number: u32) -> Result<()> {
        let (name, span, compiler) = (self.name, self.expr.at.0, &mut *self.compiler);
        let Some(site) = compiler.served.sites.as_deref().and_then(<[StaticSite]>::first) else {
            // No site has been found, so this is never run.
            compiler.asm.push(0);
            return Ok(());
        };
        let Some(argument) = site.arguments.get(number as usize) else {
            let message = format!("the static probe {} has no `{name}`", site.name);
            let help = match site.arguments.len() {
                0 => "it has no arguments".to_owned(),
                1 => "it has `arg0` only".to_owned(),
                count => format!("it has `arg0` to `arg{}`", count - 1),
            };
            return Err(Diagnostic::error(span, message).label("this argument").help(help));
        };
        let SiteArgument { bytes, signed, place } = argument.clone();
        match place {
            Some(SitePlace::Constant(value)) => compiler.asm.push(value as u64),
            Some(SitePlace::Register(register, shift)) => {
                compiler.asm.short(Op::PushR, register as u16);
                if shift > 0 {
                    compiler.asm.byte(Op::ShrImm, shift);
                }
            }
            Some(SitePlace::Memory { base, index, displacement }) => {
                let at = compiler.take(8, span)?;
                compiler.asm.push(bytes.into());
                match base {
                    Some(base) => compiler.asm.short(Op::PushR, base as u16),
                    None => compiler.asm.push(0),
                }
                if let Some((index, scale)) = index {
                    compiler.asm.short(Op::PushR, index as u16);
                    if scale > 1 {
                        compiler.asm.byte(Op::ShlImm, scale.trailing_zeros() as u8);
                    }
                    compiler.asm.op(Op::Add);
                }
                compiler.asm.plus(displacement as u64);
                compiler.asm.push(at.into());
                compiler.asm.op(Op::ReadF);
                compiler.asm.drop();
                compiler.asm.get(at);
            }
            None => {
                let message = format!("`{name}` of the static probe {} cannot be read", site.name);
                return Err(Diagnostic::error(span, message)
                    .label("where it is is not understood, or a float")
                    .help("`dprobes list -u FILE` shows arguments; `reg()` reads registers"));
            }
        }
        compiler.asm.extend(bytes, signed);
        Ok(())
    }
}
