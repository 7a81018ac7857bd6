//! Reading and compiling the probe program.

use std::io::IsTerminal;

use rpn::{Arch, Compiled, Object, Options};

use crate::Failure;
use crate::arguments::Program;

/// Compiles a program for a machine; notes and warnings go to standard error.
pub(crate) fn compile(program: &Program, arch: Arch) -> Result<Compiled, Failure> {
    let options = Options { defines: program.define.clone(), include_dirs: program.include.clone(), arch };
    let colour = std::io::stderr().is_terminal();
    match rpn::compile(&program.file, &options) {
        Ok(compiled) => {
            for note in &compiled.notes {
                eprintln!("{}", note.render(&compiled.sources, colour).trim_end());
            }
            Ok(compiled)
        }
        Err(failure) => {
            let texts =
                failure.diagnostics.iter().map(|diagnostic| diagnostic.render(&failure.sources, colour));
            Err(Failure::complete(texts.collect::<Vec<_>>().join("\n")))
        }
    }
}

/// The compiled program, if this version can insert it.
pub(crate) fn compile_to_insert(program: &Program) -> Result<Object, Failure> {
    let object = compile(program, Arch::X86_64)?.object;
    if object.kind != rpn::ModuleKind::User {
        return Err(Failure::new(format!(
            "{}: `modtype = {}`: only probes in user programs can be inserted; `dprobes check` compiles the others",
            program.file.display(),
            object.kind.name()
        )));
    }
    if object.probes.iter().any(|probe| probe.watch.is_some()) {
        return Err(Failure::new(format!(
            "{}: watchpoints cannot be inserted by this version; `dprobes check` compiles them",
            program.file.display()
        )));
    }
    Ok(object)
}
