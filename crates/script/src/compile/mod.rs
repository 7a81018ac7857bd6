//! The compiler: a checked script to bytecode, and to what its reader must know.
//!
//! ```text
//! Checked --parameters put in, checked again--> tree --compile--> code + handlers
//!                                                                 maps, constants, events
//! ```
//!
//! Integers, pointers and the like are elements of the stack, extended to 64 bits by the signedness
//! of their type; strings, tuples and structs are in the frame. A script's variables are in the
//! frame too.
//!
//! Design constraints:
//!
//! * What this engine cannot do is refused with its place, the cause and what to do. No instruction
//!   is emitted for something else than what the script says.
//! * Each part of a tree is compiled once, so the code is not larger than a multiple of the script.
//! * A handler raises no exception by itself: memory that cannot be read gives 0 or an empty string
//!   (`read fr` and `read str`, never `push mem`), as in bpftrace. Only memory that a script sets
//!   and that cannot be written raises one.
//! * Nothing is taken from the frame that the handler did not write in the same run.
//! * A value that is tested stays on the stack of the interpreter over the jump, which does not pop
//!   it: the code at both ends drops it.
//!
//! | file | what it contains |
//! |---|---|
//! | `parameters`, `settings` | what comes from outside |
//! | `assembler`, `frame`, `forms`, `tables` | emitting code; places and sizes of values; constants, maps |
//! | `compiler` | the state; handlers |
//! | `statement` | statements |
//! | `expression`, `arithmetic`, `floats`, `fold` | integers and conditions |
//! | `value` | strings, and other values in the frame |
//! | `memory_reads` | memory of the program: fields, elements |
//! | `map` | keys, and what is done with entries |
//! | `call`, `strings`, `objects`, `errors`, `syscalls` | builtins and functions |
//! | `addresses` | the addresses of symbols |
//! | `acts` | what changes the probed process |
//! | `groups`, `static_probe` | one handler for each way to read a static probe's arguments |
//! | `function_values` | arguments by name, and typed results |
//! | `event`, `printed`, `refuse` | what the reader does, and knows of types; what is refused |

mod acts;
mod addresses;
mod arithmetic;
mod assembler;
mod call;
mod compiler;
mod errors;
mod event;
mod expression;
mod floats;
mod fold;
mod forms;
mod frame;
mod function_values;
mod groups;
mod map;
mod objects;

mod memory_reads;
mod parameters;
mod printed;
mod refuse;
mod settings;
mod statement;
mod static_probe;
mod strings;
mod syscalls;
mod tables;
mod value;

use std::rc::Rc;

use source::{Diagnostic, Messages, Severity, Span};

use crate::Checked;
use crate::ast::Item;
use crate::check::{self, Records};
use crate::compiled::Compiled;

pub(crate) use addresses::PROCESSORS;
use compiler::Compiler;
use forms::Forms;
pub use parameters::Parameters;

/// Compiles a checked script.
///
/// # Errors
///
/// What the script asks for and this engine does not have, or does not know yet; in the order of
/// the text.
pub fn compile(checked: &Checked, parameters: &Parameters) -> Result<Compiled, Vec<Diagnostic>> {
    if checked.has_errors() {
        return Err(errors(checked.diagnostics.clone()));
    }
    if parameters.word != 8 {
        let message = format!("no script can be compiled for words of {} bytes", parameters.word);
        return Err(vec![
            Diagnostic::error(Span::default(), message).label("expected 8").help("probe a 64-bit program"),
        ]);
    }
    let mut script = checked.script.clone();
    let mut messages = Messages::default();
    parameters::put(&mut script, parameters).into_iter().for_each(|message| messages.add(message));
    let programs = &checked.programs;
    let facts = check::check(&mut script, programs, &[], &mut messages);
    if messages.has_errors() {
        return Err(errors(messages.in_order(&checked.sources)));
    }
    let settings = settings::of(&script, parameters);
    let records = Records::of(&script, Rc::clone(programs), &mut Messages::default());
    let forms = Forms { records, max_strlen: settings.max_strlen };
    let mut compiler = Compiler::new(&script, &facts, parameters, settings, forms);
    for item in &script.items {
        if let Item::Probe(probe) = item {
            compiler.probe(probe);
        }
    }
    let (mut compiled, messages, forms) = compiler.finish();
    if messages.has_errors() {
        return Err(errors(messages.in_order(&checked.sources)));
    }
    printed::describe(&forms.records, &mut compiled);
    for item in &script.items {
        if let Item::Enumeration(found) = item
            && let Some(name) = &found.name
        {
            compiled.enums.insert(name.as_str().into(), found.values.clone());
        }
    }
    Ok(compiled)
}

fn errors(all: Vec<Diagnostic>) -> Vec<Diagnostic> {
    all.into_iter().filter(|message| message.severity == Severity::Error).collect()
}
