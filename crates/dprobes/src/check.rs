//! `dprobes check`: compiles a program, reads a PPDF or checks a script, and prints what is in it.

use std::process::ExitCode;

use crate::arguments::{Check, Emit};
use crate::stdout;
use crate::{Failure, ppdf, program, scripts};

/// Compiles a program and describes it.
pub(crate) fn check(arguments: &Check) -> Result<ExitCode, Failure> {
    if scripts::is_script(arguments) {
        return scripts::check(arguments);
    }
    if arguments.emit == Some(Emit::Ast) {
        return Err(Failure::new(
            "--emit ast is for scripts, whose names end in .bt; programs have --emit asm",
        ));
    }
    let path = printable::path(&arguments.program.file);
    let found = ppdf::load(&arguments.program)?;
    let (object, is_ppdf) = match found {
        Some(found) => (found.object, true),
        None => (program::compile(&arguments.program, arguments.arch)?.object, false),
    };
    let text = match arguments.emit {
        Some(_) => rpn::disassemble(&object),
        None if is_ppdf => format!("{path}: {}\n{}", ppdf::described(&object), ppdf::sites(&object)),
        None => format!(
            "{}: {} in {}, {} bytes of code\n",
            path,
            crate::messages::count(object.probes.len() as u64, "probe"),
            printable::text(&object.module),
            object.code.len()
        ),
    };
    stdout::show(&printable::lines(&text))?;
    Ok(ExitCode::SUCCESS)
}
