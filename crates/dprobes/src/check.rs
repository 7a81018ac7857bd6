//! `dprobes check`.

use std::io::Write;
use std::process::ExitCode;

use crate::Failure;
use crate::arguments::{Check, Emit};
use crate::program;

/// Compiles a program and says what it is.
pub(crate) fn check(arguments: &Check) -> Result<ExitCode, Failure> {
    let object = program::compile(&arguments.program, vm::Word::W8)?.object;
    let text = match arguments.emit {
        Some(Emit::Asm) => rpn::disassemble(&object),
        None => format!(
            "{}: {} in {}, {} bytes of code\n",
            arguments.program.file.display(),
            crate::summary::count(object.probes.len() as u64, "probe"),
            object.module,
            object.code.len()
        ),
    };
    // A reader that has seen enough is no error.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(ExitCode::SUCCESS)
}
