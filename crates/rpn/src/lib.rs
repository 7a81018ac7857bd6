//! The language of probe programs: text in, bytecode out, and back.
//!
//! It is the RPN language of Dynamic Probes (dprobes.lang 3.6.4, with the heap of 5.0), for programs of several
//! machines ([`Arch`]).
//!
//! ```text
//! text --preprocess--> tokens --parse--> program --check, assemble--> Object --disassemble--> text
//!                                                                     Object <--ppdf--> a file
//! ```
//!
//! Design constraints:
//!
//! * Knows no process, no operating system and no terminal. The only files it reads are the program and what it
//!   includes, through [`Files`].
//! * Its input is untrusted. It never panics, and its time and memory are bounded: bytes and number of files,
//!   tokens read and made by macros, depth and length of expressions.
//! * All mistakes of a program come in one run, each with its place, its line, what was expected, and what to do
//!   ([`Diagnostic`]). A line of a macro or an included file says how it came in.
//! * No list of opcodes: the parser, the printer and the assembler read the rows of [`vm::TABLE`], and the
//!   statements of the headers are one table too (`keys`). What the manual knows and these tables do not is in
//!   `spellings`, so that it is refused by what it is and not as unknown.
//! * `compile(disassemble(object))` is the object again.
//!
//! Keywords, instructions, registers, labels and procedures are case-insensitive; macros, the value of `name =`
//! and the symbols of the probed module are not. A newline does not end a statement.

#![forbid(unsafe_code)]

mod arch;
mod assemble;
mod ast;
mod check;
mod context;
mod cursor;
mod diagnostic;
mod disassemble;
mod expression;
mod files;
mod keys;
mod lex;
mod object;
mod parse;
pub mod ppdf;
mod preprocess;
mod print;
#[cfg(test)]
mod reference;
mod registers;
mod selection;
mod source;
mod spellings;

use std::io;
use std::path::{Path, PathBuf};

pub use arch::Arch;
pub use diagnostic::{Diagnostic, Related, Severity};
pub use disassemble::disassemble;
pub use files::{DiskFiles, Files, MemoryFiles};
pub use object::{
    Access, Location, ModuleFile, ModuleKind, Object, Point, Probe, Proc, Site, SymbolUse, Watch,
};
pub use registers::{Register, Uses};
pub use selection::Selection;
pub use source::{Position, SourceId, Sources, Span};

use preprocess::{Preprocessor, Setting};

/// How a program is to be compiled.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `-D name=value`: macros defined before the first line.
    pub defines: Vec<(String, String)>,
    /// `-I DIR`: where `#include` looks, after the including file's own directory.
    pub include_dirs: Vec<PathBuf>,
    /// The machine of the probed program.
    pub arch: Arch,
}

/// A program that compiled.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// What it became.
    pub object: Object,
    /// Warnings and notes, in the order of the source.
    pub notes: Vec<Diagnostic>,
    /// The texts that spans and messages are about.
    pub sources: Sources,
}

/// A program that did not compile.
#[derive(Clone, Debug)]
pub struct Failure {
    /// All its errors, and its warnings and notes, in the order of the source.
    pub diagnostics: Vec<Diagnostic>,
    /// The texts that they are about.
    pub sources: Sources,
}

impl Failure {
    /// Every message, rendered, with an empty line between them.
    pub fn render(&self, colour: bool) -> String {
        let rendered = self.diagnostics.iter().map(|message| message.render(&self.sources, colour));
        rendered.collect::<Vec<_>>().join("\n\n")
    }
}

/// Compiles the program at `path`, with the files it includes.
///
/// # Errors
///
/// [`Failure`] with all that is wrong: a file that cannot be read, is larger than 8 MiB or is not UTF-8, or
/// what the program has wrong.
pub fn compile(path: &Path, options: &Options) -> Result<Compiled, Failure> {
    compile_with(&DiskFiles, path, options)
}

/// Compiles a text that is in no file; `name` is what messages call it. It can include nothing.
///
/// # Errors
///
/// As [`compile`].
pub fn compile_text(name: &str, text: &str, options: &Options) -> Result<Compiled, Failure> {
    let path = PathBuf::from(name);
    compile_with(&MemoryFiles([(path.clone(), text.to_string())].into()), &path, options)
}

/// Compiles the program at `path` of `files`.
///
/// # Errors
///
/// As [`compile`].
pub fn compile_with(files: &dyn Files, path: &Path, options: &Options) -> Result<Compiled, Failure> {
    let text = read(files, path)?;
    let setting = Setting { files, defines: &options.defines, include_dirs: &options.include_dirs };
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
    let bytes = files.read(path, files::LARGEST_FILE, false);
    let why = match bytes.map(String::from_utf8) {
        Ok(Ok(text)) => return Ok(text),
        Ok(Err(error)) => format!("its byte {} is not UTF-8", error.utf8_error().valid_up_to()),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            format!("it is larger than {} bytes", files::LARGEST_FILE)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => "there is no such file".to_string(),
        Err(error) => error.to_string(),
    };
    let mut sources = Sources::default();
    let source = sources.add(path.display().to_string(), "".into(), None);
    let span = Span { source, ..Span::default() };
    let message =
        format!("the program {} cannot be read: {why}", diagnostic::quote(&path.display().to_string()));
    Err(Failure { diagnostics: vec![Diagnostic::error(span, message)], sources })
}
