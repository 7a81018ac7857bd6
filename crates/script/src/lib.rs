//! The language of scripts: text to a checked tree, and to bytecode.
//!
//! The language is that of bpftrace, with attach points of D and of our own. This crate says
//! whether a script is one, what its values are, and what it needs; and it compiles scripts to the
//! bytecode of crate `vm`. Running them is not here.
//!
//! ```text
//! text --read--> tokens --parse--> Script --expand--> Script --check--> types, Facts
//!      (#define, import)                 (no macros)                      |
//! text <------------------------------ print -----------------------------+
//!                                                                         |
//! bytecode, maps, events <----------------------------------- compile ----+
//! ```
//!
//! Design constraints:
//!
//! * Does not depend on processes, the operating system or a terminal. It reads only the script and
//!   the files that it names, through [`Files`]. Who knows the probed programs is asked for their
//!   types ([`ProgramTypes`]); what nobody knows stays of unknown type.
//! * Its input is untrusted. It never panics, and its time and memory are bounded: size and number
//!   of files, tokens, the height of the tree, the parts of a type, what macros become.
//! * One run reports all mistakes of a script's syntax; else of its macros; else of its meaning.
//!   Each has its place, what was expected, and what to do.
//! * One table each: providers ([`provider`](TABLE)), operators, settings, and the library
//!   ([`library`]). The checker, the messages and docs/scripts.md read the same rows.
//! * What [`print()`] prints parses to the same tree.
//!
//! | file | what it contains |
//! |---|---|
//! | `scan`, `token`, `number` | tokens of one text |
//! | `static_sites` | where static probes and their arguments are |
//! | `read`, `conditions` | preprocessor lines, named files, imports |
//! | `provider`, `attach_point`, `pointparse` | attach points |
//! | `ast`, `operator`, `types`, `walk` | the tree; going through its expressions |
//! | `parse` | the parser |
//! | `expand` | macros |
//! | `library` | builtins and functions |
//! | `program_types`, `type_key`, `specialize` | what is known of programs; a probe for each signature |
//! | `check`, `constant` | names and types |
//! | `compile` | bytecode |
//! | `compiled`, `listing` | what a script is compiled to; its bytecode as text |
//! | `print` | the normal form |

#![forbid(unsafe_code)]

mod ast;
mod attach_point;
mod check;
mod compile;
mod compiled;
mod conditions;
mod constant;
mod expand;
mod key_names;
pub mod library;
mod listing;
mod number;
mod operator;
mod parse;
mod pointparse;
mod print;
mod program_types;
mod provider;
mod read;
mod scan;
mod signals;
mod specialize;
mod static_sites;
#[cfg(test)]
mod tests;
mod token;
mod type_key;
mod types;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use source::{Diagnostic, Files, MemoryFiles, Severity, Sources, Span, quote};

pub use ast::{
    At, Block, Enumeration, Expr, ExprKind, Field, FieldKind, Item, Local, Macro, MapDeclaration, Parameter,
    Probe, Record, Script, Setting, SettingValue, Statement, StatementKind,
};
pub use attach_point::{AttachPoint, AttachTarget, Binary as ProbedFile, Memory, Number, Process, Unit};
pub use check::{Bits, Facts, MapTypes};
pub use compile::{Parameters, compile};
pub use compiled::{
    Action, Compiled, EXCEPTIONS, Event, Handler, Map, Member, MissingProbes, RecordLayout, Settings,
};
pub use listing::listing;
pub use operator::{Binary, Unary};
pub use print::{print, print_typed};
pub use program_types::{
    Convention, FunctionValue, Functions, NoProgramTypes, ProgramField, ProgramRecord, ProgramTypes,
    RegisterPart, Signature, ValuePlace,
};
pub use provider::{CountedEvent, Provider, Providers, Row, TABLE, counted_event, counted_events};
pub use static_sites::{SiteArgument, SitePlace, StaticSite, StaticSites};
pub use type_key::key;
pub use types::{Aggregate, Integer, Opaque, Tag, Type};

/// A checked script.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The script: without macros and with types, if it has no errors.
    pub script: Script,
    /// What is known about it.
    pub facts: Facts,
    /// Errors, warnings and notes, in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
    /// The texts to which they refer.
    pub sources: Sources,
    /// What it was checked with.
    pub(crate) programs: Rc<dyn ProgramTypes>,
}

impl Checked {
    /// What it was checked with.
    pub fn programs(&self) -> &dyn ProgramTypes {
        &*self.programs
    }

    /// Whether only the kernel can run it: it has a probe of the kernel, or asks for its stack.
    pub fn needs_kernel(&self) -> bool {
        let is_stack = |expr: &Expr| matches!(&expr.kind, ExprKind::Name(name) | ExprKind::Call(name, _) if name == "kstack");
        self.script.items.iter().any(|item| match item {
            Item::Probe(probe) => {
                probe.points.iter().any(|point| Providers::KERNEL.has(point.provider))
                    || walk::find(probe, &is_stack).is_some()
            }
            _ => false,
        })
    }

    /// The symbols of the kernel whose addresses it asks for (`kaddr`, `percpu_kaddr`).
    pub fn kernel_symbols(&self) -> Vec<String> {
        let mut names = Vec::new();
        for item in &self.script.items {
            let Item::Probe(probe) = item else { continue };
            let names = std::cell::RefCell::new(&mut names);
            // Nothing is looked for: each expression is seen.
            walk::find(probe, &|expr| {
                if let ExprKind::Call(name, arguments) = &expr.kind
                    && matches!(name.as_str(), "kaddr" | "percpu_kaddr")
                    && let Some(ExprKind::Text(symbol)) = arguments.first().map(|argument| &argument.kind)
                {
                    let mut names = names.borrow_mut();
                    names.push(String::from_utf8_lossy(symbol).into_owned());
                    if name == "percpu_kaddr" {
                        names.push(compile::PROCESSORS.to_owned());
                    }
                }
                false
            });
        }
        names
    }

    /// What the script calls the parts of each map's keys: `pid` and `arg0` of
    /// `@m[pid, str(arg0)]`. Where a part has no name, it is empty; where uses differ, the first
    /// one counts.
    pub fn key_names(&self) -> BTreeMap<String, Vec<String>> {
        key_names::of(&self.script)
    }

    /// Whether the script is refused.
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(|message| message.severity == Severity::Error)
    }

    /// The strings in quotes that a function is called with: of `cgroupid`, the paths of cgroups.
    pub fn literals(&self, function: &str) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for item in &self.script.items {
            let Item::Probe(probe) = item else { continue };
            let mut see = |expr: &ast::Expr| literals(expr, function, &mut found);
            walk::of_block(&probe.action, &mut see);
            probe.predicate.iter().for_each(&mut see);
        }
        found
    }

    /// All messages, separated by empty lines.
    pub fn render(&self, colour: bool) -> String {
        let rendered = self.diagnostics.iter().map(|message| message.render(&self.sources, colour));
        rendered.collect::<Vec<_>>().join("\n\n")
    }

    /// The script in its normal form, with the types of its maps and variables as comments.
    pub fn typed(&self) -> String {
        let mut out = String::new();
        for (name, MapTypes { key, value }) in &self.facts.maps {
            let key = match key {
                None => String::new(),
                Some(Type::Tuple(members)) if members.len() > 1 => {
                    let members: Vec<String> = members.iter().map(ToString::to_string).collect();
                    format!("[{}]", members.join(", "))
                }
                Some(key) => format!("[{key}]"),
            };
            out.push_str(&format!("// @{name}{key}: {value}\n"));
        }
        let needs = [
            (&self.facts.in_kernel, "needs code in the kernel"),
            (&self.facts.unsafe_functions, "needs --unsafe"),
        ];
        for (names, what) in needs {
            if !names.is_empty() {
                out.push_str(&format!(
                    "// {what}: {}\n",
                    names.iter().copied().collect::<Vec<_>>().join(", ")
                ));
            }
        }
        if !out.is_empty() {
            out.push('\n');
        }
        out + &print_typed(&self.script)
    }
}

/// Where a script is read from, and what it is checked with.
#[derive(Clone)]
pub struct Surroundings<'a> {
    /// The files.
    pub files: &'a dyn Files,
    /// Where files are looked for that a script names, after the directory of the file that names
    /// them.
    pub directories: &'a [PathBuf],
    /// What is known of the programs that the script probes.
    pub programs: Rc<dyn ProgramTypes>,
}

impl std::fmt::Debug for Surroundings<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Surroundings").field("directories", &self.directories).finish_non_exhaustive()
    }
}

/// Reads and checks the script at `path` in `files`, without knowing its programs. Files that it
/// names are looked for beside the file that names them, then in `directories`.
pub fn check(files: &dyn Files, path: &Path, directories: &[PathBuf]) -> Checked {
    check_in(&Surroundings { files, directories, programs: Rc::new(NoProgramTypes) }, path)
}

/// Reads and checks the script at `path`.
pub fn check_in(around: &Surroundings<'_>, path: &Path) -> Checked {
    match text(around.files, path) {
        Ok(text) => check_text_in(around, path, &text),
        Err(why) => {
            let mut sources = Sources::default();
            let source = sources.add(path.display().to_string(), "".into(), None);
            let message = format!("the script {} cannot be read: {why}", quote(&path.display().to_string()));
            let diagnostics = vec![Diagnostic::error(Span { source, ..Span::default() }, message)];
            let programs = Rc::clone(&around.programs);
            Checked { script: Script::default(), facts: Facts::default(), diagnostics, sources, programs }
        }
    }
}

/// Checks a text that is not in a file; messages call it `name`. It cannot name files.
pub fn check_text(name: &str, text: &str) -> Checked {
    check_with(&MemoryFiles::default(), Path::new(name), text, &[])
}

/// Checks a text as if it were the file at `path`, without knowing the script's programs.
pub fn check_with(files: &dyn Files, path: &Path, text: &str, directories: &[PathBuf]) -> Checked {
    check_text_in(&Surroundings { files, directories, programs: Rc::new(NoProgramTypes) }, path, text)
}

/// Checks a text as if it were the file at `path`.
pub fn check_text_in(around: &Surroundings<'_>, path: &Path, text: &str) -> Checked {
    let (script, unread, mut messages, sources) =
        read_and_parse(around.files, path, text, around.directories);
    let programs = Rc::clone(&around.programs);
    let refused = |script, messages: source::Messages, sources: Sources| Checked {
        script,
        facts: Facts::default(),
        diagnostics: messages.in_order(&sources),
        sources,
        programs: Rc::clone(&programs),
    };
    if messages.has_errors() {
        return refused(script, messages, sources);
    }
    let mut script = expand::expand(script, &mut messages);
    if messages.has_errors() {
        return refused(script, messages, sources);
    }
    specialize::specialize(&mut script, &*programs, &mut messages);
    let facts = check::check(&mut script, &programs, &unread, &mut messages);
    let probes = script.items.iter().any(|item| matches!(item, Item::Probe(_)));
    if !probes && !messages.has_errors() {
        messages.add(
            Diagnostic::warning(Span::default(), "the script has no probe")
                .label("nothing is traced")
                .help("a probe is attach points and an action: `begin { print(1); }`"),
        );
    }
    Checked { script, facts, diagnostics: messages.in_order(&sources), sources, programs }
}

/// Adds the strings in quotes with which a function is called in an expression.
fn literals(expr: &ast::Expr, function: &str, found: &mut BTreeSet<String>) {
    if let ast::ExprKind::Call(name, arguments) = &expr.kind
        && name == function
    {
        found.extend(arguments.iter().filter_map(|argument| match &argument.kind {
            ast::ExprKind::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
            _ => None,
        }));
    }
    walk::visit_parts(expr, &mut |part| literals(part, function, found));
}

/// Parses a text into the tree as it is written, macros included.
///
/// # Errors
///
/// The messages about its syntax, and the text to which they refer.
pub fn parse(name: &str, text: &str) -> Result<Script, (Vec<Diagnostic>, Sources)> {
    let (script, _, messages, sources) = read_and_parse(&MemoryFiles::default(), Path::new(name), text, &[]);
    if messages.has_errors() { Err((messages.in_order(&sources), sources)) } else { Ok(script) }
}

type Parsed = (Script, Vec<(String, Span)>, source::Messages, Sources);

fn read_and_parse(files: &dyn Files, path: &Path, text: &str, directories: &[PathBuf]) -> Parsed {
    let mut reader = read::Reader::new(read::Access { files, directories });
    reader.script(path, text);
    let read::Reader { tokens, mut messages, sources, unread, .. } = reader;
    let script = parse::parse(&tokens, &mut messages);
    (script, unread, messages, sources)
}

fn text(files: &dyn Files, path: &Path) -> Result<String, String> {
    match files.read(path, read::MAX_FILE_BYTES, false).map(String::from_utf8) {
        Ok(Ok(text)) => Ok(text),
        Ok(Err(error)) => Err(format!("byte {} is not UTF-8", error.utf8_error().valid_up_to())),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            Err(format!("it is larger than {} bytes", read::MAX_FILE_BYTES))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err("there is no such file".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// The tables of docs/scripts.md: providers, library and settings.
pub fn documentation() -> String {
    let mut out = String::from("| provider | other names | attach points | served by |\n|---|---|---|---|\n");
    for row in TABLE {
        let others: Vec<String> = row.names[1..].iter().map(|name| format!("`{name}`")).collect();
        let forms: Vec<String> = row.forms.iter().map(|form| format!("`{form}`")).collect();
        let served = row.served.map_or_else(|needs| format!("refused: {needs}"), String::from);
        out.push_str(&format!(
            "| `{}` | {} | {} | {served} |\n",
            row.names[0],
            others.join(", "),
            forms.join(", ")
        ));
    }
    out + "\n" + &library::markdown() + "\n" + &check::settings_markdown()
}
