//! `dprobes check`: compiles a program, reads a PPDF or checks a script, and prints what is in it.

use std::process::ExitCode;

use rpn::{Object, Sources};

use crate::arguments::{Check, Emit};
use crate::kernel_engine::EmittedHandler;
use crate::stdout;
use crate::{Failure, kernel_engine, outfile, ppdf, program, scripts};

/// Compiles a program and describes it.
pub(crate) fn check(arguments: &Check) -> Result<ExitCode, Failure> {
    if arguments.output.is_some() && arguments.emit != Some(Emit::Bpf) {
        return Err(Failure::new(
            "--output is for --emit bpf, which writes objects; other forms go to standard output",
        ));
    }
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
    let (object, sources, is_ppdf) = match found {
        Some(found) => (found.object, None, true),
        None => {
            let compiled = program::compile(&arguments.program, arguments.arch)?;
            (compiled.object, Some(compiled.sources), false)
        }
    };
    let text = match arguments.emit {
        Some(Emit::Bpf) => return emit_bpf(arguments, &object, sources.as_ref()),
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

/// Prints the handlers as eBPF, or writes them as objects.
fn emit_bpf(arguments: &Check, object: &Object, sources: Option<&Sources>) -> Result<ExitCode, Failure> {
    let handlers = kernel_engine::emit(object, sources)?;
    match &arguments.output {
        None => {
            let texts: Vec<String> = handlers.iter().map(EmittedHandler::text).collect();
            stdout::show(&printable::lines(&texts.join("\n")))?;
        }
        Some(named) => {
            for handler in &handlers {
                let file = handler.file(named);
                outfile::write_whole(&file, &handler.object())
                    .map_err(|error| Failure::new(format!("{}: {error}", printable::path(&file))))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
