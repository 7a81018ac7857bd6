//! Reading the probe program: compiling a text, or taking a PPDF.

use std::io::IsTerminal;
use std::path::Path;

use process::{Image, Machine};
use rpn::{Arch, Compiled, Object, Options, Selection};

use crate::arguments::{Program, Select};
use crate::{Failure, ppdf, symbols};

/// Compiles a program for a machine; notes and warnings go to standard error.
pub(crate) fn compile(program: &Program, arch: Arch) -> Result<Compiled, Failure> {
    compile_and_tell(program, arch, true)
}

fn compile_and_tell(program: &Program, arch: Arch, tell: bool) -> Result<Compiled, Failure> {
    let options = Options { defines: program.define.clone(), include_dirs: program.include.clone(), arch };
    let colour = std::io::stderr().is_terminal();
    match rpn::compile(&program.file, &options) {
        Ok(compiled) => {
            for note in compiled.notes.iter().filter(|_| tell) {
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

/// The selected probes of a program or PPDF, if this version can insert it. A program is compiled for the machine
/// given, which the process's own program is for; or for its module's, where it names that by its path.
pub(crate) fn load_to_insert(
    program: &Program,
    select: &Select,
    machine: Option<Machine>,
) -> Result<Object, Failure> {
    load_and_tell(program, select, machine, true)
}

/// As [`load_to_insert`], without notes and warnings: they have been told.
pub(crate) fn load_again(program: &Program, select: &Select) -> Result<Object, Failure> {
    load_and_tell(program, select, None, false)
}

/// Compiles a program for a machine, or for its module's.
fn compile_to_insert(program: &Program, machine: Option<Machine>, tell: bool) -> Result<Object, Failure> {
    let arch = arch_of(machine);
    let object = compile_and_tell(program, arch, tell)?.object;
    let path = Path::new(&object.module);
    match Image::open(path).ok().filter(|_| path.is_absolute()).map(|image| arch_of(Some(image.machine()))) {
        Some(other) if other != arch => Ok(compile_and_tell(program, other, tell)?.object),
        _ => Ok(object),
    }
}

fn load_and_tell(
    program: &Program,
    select: &Select,
    machine: Option<Machine>,
    tell: bool,
) -> Result<Object, Failure> {
    let mut object = match ppdf::load(program)? {
        Some(found) => ppdf::applicable(found, &program.file)?,
        None => compile_to_insert(program, machine, tell)?,
    };
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
    symbols::check_module(&object, &program.file)?;
    let selection = Selection { groups: select.group.clone(), types: select.kind.clone() };
    let selected = selection.apply(&mut object);
    selected.map_err(|error| Failure::new(format!("{}: {error}", program.file.display())))?;
    Ok(object)
}

/// The machine as the language knows it; x86-64 where it is not known.
fn arch_of(machine: Option<Machine>) -> Arch {
    match machine {
        Some(Machine::I386) => Arch::I386,
        _ => Arch::X86_64,
    }
}
