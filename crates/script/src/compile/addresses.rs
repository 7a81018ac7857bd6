//! Compiles the addresses of symbols: of the kernel, and of the probed program.

use source::{Diagnostic, quote};

use crate::ast::ExprKind;
use crate::specialize::binary;
use vm::{Op, Register};

use super::call::Call;
use super::compiler::Result;
use super::strings::FUNCTIONS;

/// The kernel's array of the distances of processors' variables from their symbols.
pub(crate) const PROCESSORS: &str = "__per_cpu_offset";

impl Call<'_, '_> {
    /// The address of a symbol of the kernel, which is known before the script runs.
    pub(super) fn kernel_address(&self) -> Result<u64> {
        match &self.argument(0)?.kind {
            ExprKind::Text(name) => self.address_of(&String::from_utf8_lossy(name)),
            _ => self.refused(),
        }
    }

    fn address_of(&self, name: &str) -> Result<u64> {
        let reason = match self.compiler.parameters.kernel_symbols.get(name) {
            Some(Ok(address)) => return Ok(*address),
            Some(Err(reason)) => reason.clone(),
            None => "it is looked up when the script is run".to_owned(),
        };
        let message = format!("the address of the kernel's symbol {} is not known", quote(name));
        Err(Diagnostic::error(self.expr.at.0, message).label(reason).help("state the address"))
    }

    /// `percpu_kaddr(symbol, cpu)`: a processor's variables are at a distance from the symbols,
    /// which the kernel has in an array. 0 if there is no such processor.
    pub(super) fn processor_address(self) -> Result<()> {
        let symbol = self.kernel_address()?;
        let distances = self.address_of(PROCESSORS)?;
        let span = self.expr.at.0;
        let (processor, found) = (self.compiler.take(8, span)?, self.compiler.take(8, span)?);
        match self.arguments.get(1) {
            Some(processor) => self.compiler.word(processor)?,
            None => self.compiler.asm.op(Op::PushProcid),
        }
        let processors = self.compiler.parameters.processors;
        let asm = &mut self.compiler.asm;
        asm.set(processor);
        asm.push(0);
        asm.set(found);
        let none = asm.label();
        asm.push(processors.into());
        asm.get(processor);
        asm.op(Op::Ult);
        asm.jump(Op::Jz, none);
        asm.drop();
        asm.push(8);
        asm.get(processor);
        asm.byte(Op::ShlImm, 3);
        asm.plus(distances);
        asm.push(found.into());
        asm.op(Op::ReadF);
        asm.drop();
        asm.get(found);
        asm.plus(symbol);
        asm.set(found);
        asm.push(0);
        asm.bind(none);
        asm.drop();
        asm.get(found);
        Ok(())
    }

    /// `uaddr(symbol)`. A module is somewhere else in each process, but its parts keep their
    /// distances: the symbol is as far from the probed instruction as it is in the file. Where that
    /// instruction is in the file, is a constant of its attach point.
    ///
    /// ```text
    ///     place of the first address among the constants + minor -> address of the instruction
    ///     push r, rip; less that; plus the address of the symbol
    /// ```
    pub(super) fn program_address(self) -> Result<()> {
        let span = self.expr.at.0;
        let ExprKind::Text(name) = &self.argument(0)?.kind else { return self.refused() };
        let name = String::from_utf8_lossy(name);
        let refused = |reason: String, help: &str| {
            let message = format!("the address of the symbol {} is not known", quote(&name));
            Err(Diagnostic::error(span, message).label(reason).help(help.to_owned()))
        };
        let mut found = None;
        for home in &self.compiler.served.homes {
            if binary(home).is_none() {
                continue;
            }
            let symbol = match self.compiler.forms.records.programs().symbol(home, &name) {
                Ok(Some(symbol)) => symbol,
                Ok(None) => {
                    return refused(
                        "the probed program or library has no such symbol".to_owned(),
                        "`uaddr` finds symbols of the file that is probed: probe a function of the file that has it",
                    );
                }
                Err(reason) => return refused(reason, "start the program, or name its file by a path"),
            };
            if found.is_some_and(|other| other != symbol) {
                return refused(
                    "the attach points are in different files".to_owned(),
                    "write an action for each file",
                );
            }
            found = Some(symbol);
        }
        let Some((address, _)) = found else {
            return refused("no program is known".to_owned(), "name the program in the attach point");
        };
        let at = self.compiler.take(8, span)?;
        let first = self.compiler.addresses();
        let asm = &mut self.compiler.asm;
        let constant = |asm: &mut super::assembler::Assembler| {
            asm.push(at.into());
            asm.op(Op::TextF);
            asm.drop();
            asm.get(at);
        };
        asm.push(first);
        constant(asm);
        asm.op(Op::PushMinor);
        asm.op(Op::Add);
        asm.push(FUNCTIONS);
        asm.op(Op::Or);
        constant(asm);
        asm.short(Op::PushR, Register::Rip as u16);
        asm.op(Op::Sub);
        asm.plus(address);
        Ok(())
    }
}
