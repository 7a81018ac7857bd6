//! Compiles a handler's bytecode to x86-64 machine code, which runs directly in a trampoline.
//!
//! ```text
//!     bytecode --scan--> Facts --Compiler--> descriptors | cold code | prologue, count, handler, epilogue
//!                                                                       ^ entry               the displaced ^
//!                                                                                             instruction
//! ```
//!
//! * The code behaves exactly as the interpreter does. Before an instruction that is not compiled
//!   or that raises an exception, it passes the run to the interpreter in its current state
//!   ([`vm::resume`]).
//! * The program notices nothing: at the end all general registers and the flags are as at the
//!   site, except what `pop r` changed. Vector registers and the red zone are not touched.
//! * The only address of a module in the code is the site's; data is addressed absolutely, below 2
//!   GiB ([`layout`]).
//! * Only words of 8 bytes are supported.
//!
//! | file | what it is |
//! |---|---|
//! | `environment` | what a handler is compiled for |
//! | `compiled` | the result |
//! | `scan` | an analysis of the bytecode before compilation |
//! | `compiler`, `begin`, `control` | following all paths, from the count of the hit over each jump to the end |
//! | `run`, `shape` | a run on a path, and what is known of it at each place |
//! | `straight`, `variables`, `aggregates`, `memory`, `logging` | the instructions of a run |
//! | `path`, `words`, `arithmetic` | where elements are, and words of the handler's frame; the instructions that only compute |
//! | `map_operation`, `map_range`, `lookup`, `agent_call` | instructions on maps: in machine code what is found at the first look, else by the agent |
//! | `texts` | strings in the handler's frame |
//! | `record`, `ring`, `side_exit` | the record, room for it, the way to the interpreter |
//! | `output`, `frame` | the code being written; its stack frame |
//! | `count`, `claim`, `count_and_claim`, `owner` | counting the hit, claiming a context, both at once; thread and site |
//! | `clock` | the time in nanoseconds |
//! | `emit`, `modrm`, `instructions`, `operands` | encoding of machine code |
//!
//! # Owners and roles
//!
//! Each owner has the next: `Compiler` (all paths), `Run` (one instruction after another), `Path`
//! (its elements and their registers), `Output` (code, frame and data). What is below does not know
//! what is above: an `Output` knows no element, a `Path` no record. `Leaver`, `RecordBeginner`,
//! `AgentCall`, `MapOperation` and `Texts` are roles: they borrow an owner and what else they
//! read.

#![forbid(unsafe_code)]

mod agent_call;
mod aggregates;
mod arithmetic;
mod begin;
mod claim;
mod clock;
mod compiled;
mod compiler;
mod control;
mod count;
mod count_and_claim;
mod emit;
mod environment;
mod frame;
mod instructions;
mod logging;
mod lookup;
mod map_operation;
mod map_range;
mod memory;
mod modrm;
mod operands;
mod output;
mod owner;
mod path;
mod record;
mod ring;
mod run;
mod scan;
mod shape;
mod side_exit;
mod straight;
mod texts;
mod variables;
mod words;

pub use compiled::{Compiled, Guarded, Step, Unsupported};
pub use emit::SiteField;
pub use environment::{Environment, Handler, Limits, Variable, Waiting};

use compiler::Compiler;
use run::Mode;

/// Compiles a handler for a site.
///
/// # Errors
///
/// If the handler calls a debug facility, which is impossible inside the process. All other code is
/// compiled.
pub fn compile(handler: &Handler<'_>, environment: &Environment<'_>) -> Result<Compiled, Unsupported> {
    let facts = scan::scan(handler);
    if let Some(offset) = facts.facility {
        return Err(Unsupported::Facility(offset));
    }
    let insmax = handler.insmax.min(vm::INSTRUCTION_LIMIT);
    let bounded = facts.most_instructions(handler.jmpmax.min(vm::JUMP_LIMIT)) <= insmax.into();
    let first = match (facts.interpret_only, facts.cyclic) {
        (true, _) => Mode::Interpreted,
        (false, false) if bounded => Mode::Known,
        (false, true) if bounded || insmax > compiler::SLACK => Mode::Merged,
        // Fast code would not pay: hardly any instructions are allowed.
        (false, _) => Mode::Interpreted,
    };
    let others = if first == Mode::Interpreted { &[][..] } else { &[Mode::Merged, Mode::Interpreted] };
    let compiled = std::iter::once(first)
        .chain(others.iter().copied())
        .into_iter()
        .find_map(|mode| Compiler::compile(handler, environment, &facts, mode).ok());
    Ok(compiled.expect("a handler that is interpreted is never too large"))
}
