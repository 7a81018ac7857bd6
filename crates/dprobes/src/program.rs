//! Reading and compiling the probe program.

use std::io::IsTerminal;
use std::path::Path;

use process::{Image, Machine};
use rpn::{Compiled, Object, Options};
use vm::Word;

use crate::Failure;
use crate::arguments::Program;

/// Compiles a program for a word; notes and warnings go to standard error.
pub(crate) fn compile(program: &Program, word: Word) -> Result<Compiled, Failure> {
    let options = Options { defines: program.define.clone(), include_dirs: program.include.clone(), word };
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

/// The compiled program, if this version can insert it. Its word is that of the machine given, which the program of
/// the process is for; or of its module's, where the program names that by its path.
pub(crate) fn compile_to_insert(program: &Program, machine: Option<Machine>) -> Result<Object, Failure> {
    let word = word_of(machine);
    let mut object = compile(program, word)?.object;
    let path = Path::new(&object.module);
    if path.is_absolute()
        && let Ok(image) = Image::open(path)
        && word_of(Some(image.machine())) != word
    {
        object = compile(program, word_of(Some(image.machine())))?.object;
    }
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

/// The word of a machine's programs; x86-64's where the machine is not known.
fn word_of(machine: Option<Machine>) -> Word {
    match machine {
        Some(Machine::I386) => Word::W4,
        _ => Word::W8,
    }
}
