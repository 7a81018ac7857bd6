//! The compiler of probe programs: source text to bytecode, and back.
//!
//! The language is the RPN language of Dynamic Probes (dprobes.lang 3.6.4, with the heap of 5.0),
//! for programs of several machines ([`Arch`]).
//!
//! ```text
//! text --preprocess--> tokens --parse--> program --check, assemble--> Object --disassemble--> text
//!                                                                     Object <--ppdf--> a file
//! ```
//!
//! Design constraints:
//!
//! * Does not depend on processes, the operating system or a terminal. It reads only the program
//!   and the files that it includes, through [`Files`].
//! * Its input is untrusted. It never panics, and its time and memory are bounded: size and number
//!   of files, tokens read and tokens made by macros, depth and length of expressions.
//! * One run reports all mistakes of a program, each with its position, its line, what was
//!   expected, and what to do ([`Diagnostic`]). For a line from a macro or an included file it says
//!   where that was used.
//! * No list of opcodes: parser, printer and assembler read the rows of [`vm::TABLE`]. The
//!   statements of the headers are a table too (`keys`). Names of the manual that are in neither
//!   are in `spellings`, so that the message says what they were instead of calling them unknown.
//! * `compile(disassemble(object))` gives the same object.
//!
//! Keywords, instructions, registers, labels and procedures are case-insensitive; macros, the value
//! of `name =` and the symbols of the probed module are not. A newline does not end a statement.

#![forbid(unsafe_code)]

mod arch;
mod assemble;
mod ast;
mod check;
mod context;
mod cursor;
mod disassemble;
mod expression;
mod keys;
#[cfg(test)]
mod language_doc_tests;
mod lex;
mod logged;
mod object;
mod parse;
pub mod ppdf;
mod preprocess;
mod print;
mod registers;
mod selection;
mod spellings;
mod tracepoint;

use std::io;
use std::path::{Path, PathBuf};

pub use arch::Arch;
pub use disassemble::disassemble;
pub use logged::Logged;
pub use object::{
    Access, FunctionPoint, Location, ModuleFile, ModuleKind, Object, Probe, Proc, Site, SymbolUse, Watch,
};
pub use registers::{Register, Uses};
pub use selection::Selection;
pub use source::{
    Diagnostic, DiskFiles, Files, MemoryFiles, Position, Related, Severity, SourceId, Sources, Span,
};

use preprocess::{Inputs, Preprocessor};

/// Options of a compilation.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `-D name=value`: macros defined before the first line.
    pub defines: Vec<(String, String)>,
    /// `-I DIR`: directories searched by `#include`, after the including file's own.
    pub include_dirs: Vec<PathBuf>,
    /// The machine of the probed program.
    pub arch: Arch,
}

/// The result of a successful compilation.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The compiled program.
    pub object: Object,
    /// Warnings and notes, in the order of the source.
    pub notes: Vec<Diagnostic>,
    /// The texts to which spans and messages refer.
    pub sources: Sources,
}

/// The result of a failed compilation.
#[derive(Clone, Debug)]
pub struct Failure {
    /// All errors, warnings and notes, in the order of the source.
    pub diagnostics: Vec<Diagnostic>,
    /// The texts to which they refer.
    pub sources: Sources,
}

impl Failure {
    /// All messages, rendered, separated by empty lines.
    pub fn render(&self, colour: bool) -> String {
        let rendered = self.diagnostics.iter().map(|message| message.render(&self.sources, colour));
        rendered.collect::<Vec<_>>().join("\n\n")
    }
}

/// Compiles the program at `path`, with the files it includes.
///
/// # Errors
///
/// [`Failure`] with all errors: of the file (unreadable, larger than 8 MiB, not UTF-8) or of the
/// program.
pub fn compile(path: &Path, options: &Options) -> Result<Compiled, Failure> {
    compile_with(&DiskFiles, path, options)
}

/// Compiles a text that is not in a file; messages call it `name`. It cannot include files.
///
/// # Errors
///
/// As [`compile`].
pub fn compile_text(name: &str, text: &str, options: &Options) -> Result<Compiled, Failure> {
    let path = PathBuf::from(name);
    compile_with(&MemoryFiles([(path.clone(), text.to_string())].into()), &path, options)
}

/// Compiles the program at `path` in `files`.
///
/// # Errors
///
/// As [`compile`].
pub fn compile_with(files: &dyn Files, path: &Path, options: &Options) -> Result<Compiled, Failure> {
    let text = read(files, path)?;
    let setting = Inputs { files, defines: &options.defines, include_dirs: &options.include_dirs };
    let Preprocessor { sources, mut messages, output, exhausted, .. } =
        Preprocessor::run(setting, path, &text);
    let mut object = Object::default();
    if !exhausted {
        let end = output.last().map_or(Span::default(), |end| end.place.span);
        let program = parse::parse(&output, options.arch, &mut messages);
        object = check::headers(&program, options.arch, end, &mut messages);
        assemble::assemble(&program, &mut object, &mut messages);
    }
    let failed = messages.has_errors();
    let notes = messages.in_order(&sources);
    if failed {
        return Err(Failure { diagnostics: notes, sources });
    }
    Ok(Compiled { object, notes, sources })
}

fn read(files: &dyn Files, path: &Path) -> Result<String, Failure> {
    let bytes = files.read(path, source::MAX_FILE_BYTES, false);
    let why = match bytes.map(String::from_utf8) {
        Ok(Ok(text)) => return Ok(text),
        Ok(Err(error)) => format!("byte {} is not UTF-8", error.utf8_error().valid_up_to()),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            format!("it is larger than {} bytes", source::MAX_FILE_BYTES)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => "there is no such file".to_string(),
        Err(error) => error.to_string(),
    };
    let mut sources = Sources::default();
    let source = sources.add(path.display().to_string(), "".into(), None);
    let span = Span { source, ..Span::default() };
    let message = format!("the program {} cannot be read: {why}", source::quote(&path.display().to_string()));
    Err(Failure { diagnostics: vec![Diagnostic::error(span, message)], sources })
}
