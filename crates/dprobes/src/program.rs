//! Reads the probe program: compiles a text for one machine, or for both that this one runs, or
//! takes a PPDF.
//!
//! What only the kernel engine probes (the kernel itself, tracepoints, watchpoints) is refused
//! here, except in `load_for_kernel`.
//!
//! In: a file of the command line, and the machines that it is for. Out: `Versions`, an `Object`
//! for each machine.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use engine::Versions;
use image::{Image, Machine};
use rpn::{Arch, Compiled, DiskFiles, Files, Object, Options, Selection};

use crate::arguments::{Preprocessor, Program, Select};
use crate::{Failure, at_programs, ppdf, symbols};

/// Compiles a program for a machine; notes and warnings go to standard error.
pub(crate) fn compile(program: &Program, arch: Arch) -> Result<Compiled, Failure> {
    let compiled = Text::of(program).compile(arch).map_err(|failure| diagnostics(&failure))?;
    tell_notes(&compiled);
    Ok(compiled)
}

/// Compiles a program for the machine that `choose` returns for its module's name, or for x86-64.
pub(crate) fn compile_for_module(
    program: &Program,
    choose: impl FnOnce(&str) -> Option<Machine>,
) -> Result<Compiled, Failure> {
    let text = Text::of(program);
    let (own, other) = (text.compile(Arch::X86_64), text.compile(Arch::I386));
    let named = own.as_ref().or(other.as_ref()).ok().map(|compiled| compiled.object.module.as_str());
    let compiled = match named.and_then(choose) {
        Some(Machine::I386) => other,
        _ => own,
    };
    let compiled = compiled.map_err(|failure| diagnostics(&failure))?;
    tell_notes(&compiled);
    Ok(compiled)
}

/// The selected probes of a program or PPDF, in a version for each machine it can be inserted on.
///
/// The main version must compile and is what reports show. It is for the module's machine if the
/// text names the module by an absolute path; else for `machine`, that of the process's own
/// program; else for any machine that it compiles for.
pub(crate) fn load_to_insert(
    program: &Program,
    select: &Select,
    machine: Option<Machine>,
) -> Result<Versions, Failure> {
    load(program, select, machine, &Use::INSERT).map(|loaded| loaded.versions)
}

/// Like [`load_to_insert`], also for the kernel engine, which has probes in the kernel too.
pub(crate) fn load_for_kernel(
    program: &Program,
    select: &Select,
    machine: Option<Machine>,
) -> Result<ForKernel, Failure> {
    load(program, select, machine, &Use { tell: true, in_kernel: true })
}

/// A program that may be for the kernel engine.
pub(crate) struct ForKernel {
    pub(crate) versions: Versions,
    /// The text that it was compiled from; `None` for a PPDF.
    pub(crate) sources: Option<rpn::Sources>,
}

/// Like [`load_for_kernel`], but does not repeat its notes and warnings.
pub(crate) fn load_again(program: &Program, select: &Select) -> Result<ForKernel, Failure> {
    load(program, select, None, &Use { tell: false, in_kernel: true })
}

/// What a program is loaded for.
struct Use {
    /// Whether its notes and warnings are told.
    tell: bool,
    /// Whether its probes may be in the kernel.
    in_kernel: bool,
}

impl Use {
    /// To insert it in processes.
    const INSERT: Use = Use { tell: true, in_kernel: false };
}

fn load(
    program: &Program,
    select: &Select,
    machine: Option<Machine>,
    wanted: &Use,
) -> Result<ForKernel, Failure> {
    if program.text.is_none()
        && let Some(found) = ppdf::load(program)?
    {
        let mut object = ppdf::check_ppdf(found, &program.file)?;
        check_insertable(&mut object, program, select, wanted)?;
        let reason = format!("{} was built for {}", printable::path(&program.file), object.arch);
        return Ok(ForKernel { versions: Versions::only(object, reason), sources: None });
    }
    let text = Text::of(program);
    let (own, other) = (text.compile(Arch::X86_64), text.compile(Arch::I386));
    let (main, other) = match main_machine(machine, &own, &other) {
        Machine::I386 => (other, own),
        _ => (own, other),
    };
    let mut main = main.map_err(|failure| diagnostics(&once(program, failure)))?;
    if wanted.tell {
        tell_notes(&main);
    }
    check_insertable(&mut main.object, program, select, wanted)?;
    let other = other.map_err(|failure| reason(&failure)).and_then(|compiled| {
        let mut object = compiled.object;
        let checked = check_insertable(&mut object, program, select, wanted);
        checked.map(|()| object).map_err(|failure| failure.message().to_owned())
    });
    Ok(ForKernel { versions: Versions::of_text(main.object, other), sources: Some(main.sources) })
}

/// The machine of the main version.
fn main_machine(machine: Option<Machine>, own: &Attempt, other: &Attempt) -> Machine {
    let named = own.as_ref().or(other.as_ref()).ok().map(|compiled| Path::new(&compiled.object.module));
    let module = named.filter(|path| path.is_absolute()).and_then(|path| Image::open(path).ok());
    match module.map(|image| image.machine()).or(machine) {
        Some(machine) => machine,
        None if own.is_err() && other.is_ok() => Machine::I386,
        None => Machine::X86_64,
    }
}

/// Checks that an object can be inserted, and removes all but the selected probes from it.
fn check_insertable(
    object: &mut Object,
    program: &Program,
    select: &Select,
    wanted: &Use,
) -> Result<(), Failure> {
    let failed =
        |cause: &dyn std::fmt::Display| Failure::new(format!("{}: {cause}", printable::path(&program.file)));
    let at_tracepoint = |probe: &&rpn::Probe| matches!(probe.location, rpn::Location::Tracepoint { .. });
    if let Some(probe) = object.probes.iter().find(at_tracepoint).filter(|_| !wanted.in_kernel) {
        return Err(failed(&format!(
            "{}: a tracepoint is the kernel's, and cannot be inserted in a process; `dprobes attach` and \
             `dprobes insert` without -p probe the kernel",
            probe.point
        )));
    }
    if object.kind != rpn::ModuleKind::User && !wanted.in_kernel {
        return Err(failed(&format!(
            "`modtype = {}`: only probes in user programs can be inserted in a process; `dprobes attach` and `dprobes insert` without -p \
             put probes into the kernel",
            object.kind.name()
        )));
    }
    if object.probes.iter().any(|probe| probe.watch.is_some()) && !wanted.in_kernel {
        return Err(failed(
            &"`watchpoint =`: only the kernel engine watches memory; `dprobes attach --engine kernel -p PID` sets the watchpoints of a process",
        ));
    }
    symbols::check_module(object, &program.file)?;
    let selection = Selection { groups: select.group.clone(), types: select.kind.clone() };
    selection.apply(object).map(drop).map_err(|error| failed(&error))
}

/// The result of compiling.
type Attempt = Result<Compiled, rpn::Failure>;

/// The text of a program. It is read once, however often it is compiled: it may come from a pipe,
/// or change in the meantime.
struct Text<'a> {
    program: &'a Program,
    files: CachedFiles,
}

impl<'a> Text<'a> {
    fn of(program: &'a Program) -> Text<'a> {
        Text { program, files: CachedFiles { text: program.text.clone(), ..CachedFiles::default() } }
    }

    fn compile(&self, arch: Arch) -> Attempt {
        let Program { file, preprocessor: Preprocessor { define, include }, .. } = self.program;
        let options = Options { defines: define.clone(), include_dirs: include.clone(), arch };
        rpn::compile_with(&self.files, file, &options)
    }
}

/// The files of this machine, each read at most once.
#[derive(Default)]
struct CachedFiles {
    /// A program that is not in a file.
    text: Option<at_programs::Text>,
    read: RefCell<HashMap<PathBuf, Vec<u8>>>,
}

impl Files for CachedFiles {
    fn read(&self, path: &Path, limit: usize, include: bool) -> io::Result<Vec<u8>> {
        if let Some(text) = self.text.as_ref().and_then(|text| text.at(path)) {
            return Ok(text.as_bytes().to_vec());
        }
        if let Some(bytes) = self.read.borrow().get(path).filter(|bytes| bytes.len() <= limit) {
            return Ok(bytes.clone());
        }
        let bytes = DiskFiles.read(path, limit, include)?;
        self.read.borrow_mut().insert(path.to_owned(), bytes.clone());
        Ok(bytes)
    }

    fn identity(&self, path: &Path) -> PathBuf {
        match self.text.as_ref().and_then(|text| text.at(path)) {
            Some(_) => path.to_owned(),
            None => DiskFiles.identity(path),
        }
    }
}

fn tell_notes(compiled: &Compiled) {
    let colour = io::stderr().is_terminal();
    for note in &compiled.notes {
        crate::messages::say(note.render(&compiled.sources, colour).trim_end());
    }
}

/// All errors of a text.
fn diagnostics(failure: &rpn::Failure) -> Failure {
    let colour = io::stderr().is_terminal();
    let texts = failure.diagnostics.iter().map(|diagnostic| diagnostic.render(&failure.sources, colour));
    Failure::complete(texts.collect::<Vec<_>>().join("\n"))
}

/// The errors of a program of the command line, reported once although its handler occurs at each
/// probepoint.
fn once(program: &Program, failure: rpn::Failure) -> rpn::Failure {
    let Some(text) = &program.text else { return failure };
    let first = Program { text: Some(text.first()), ..program.clone() };
    [Arch::X86_64, Arch::I386]
        .into_iter()
        .find_map(|arch| Text::of(&first).compile(arch).err())
        .unwrap_or(failure)
}

/// The first error of a text, in one line.
fn reason(failure: &rpn::Failure) -> String {
    let error = failure.diagnostics.iter().find(|message| message.severity == rpn::Severity::Error);
    error.map_or_else(String::new, |error| {
        format!("{}: {}", failure.sources.locate(error.span), error.message)
    })
}
