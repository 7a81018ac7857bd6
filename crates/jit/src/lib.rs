//! A handler as x86-64 machine code, straight into a trampoline.
//!
//! ```text
//!     bytecode --scan--> Facts --Compiler--> descriptors | cold code | prologue, count, handler, epilogue
//!                                                                       ^ entry               the displaced ^
//!                                                                                             instruction
//! ```
//!
//! * The meaning is the interpreter's, bit for bit. What is not worth compiling, and what raises an exception, leaves
//!   compiled code before the instruction: the run is handed to the interpreter as it is ([`vm::resume`]).
//! * The program cannot tell: all general registers and the flags are those of the site again at the end, but for what
//!   `pop r` changed. No vector register is touched. The red zone is skipped.
//! * No address of a module is in the code but the site's; data is addressed absolutely, below 2 GiB ([`layout`]).
//! * Words of 8 bytes only.
//!
//! | file | what it is |
//! |---|---|
//! | `environment` | what a handler is compiled for |
//! | `compiled` | what it becomes |
//! | `scan` | what a handler may do |
//! | `compiler`, `shape` | along every path, and what is known there |
//! | `registers`, `frame` | where elements are; the stack |
//! | `straight`, `control`, `variables`, `memory`, `logging` | the instructions |
//! | `count`, `claim`, `begin`, `record`, `leave` | the hit, its context, both at once, its record, the way out |
//! | `emit`, `instructions` | machine code as bytes |

#![forbid(unsafe_code)]

mod begin;
mod claim;
mod compiled;
mod compiler;
mod control;
mod count;
mod emit;
mod environment;
mod frame;
mod instructions;
mod leave;
mod logging;
mod memory;
mod record;
mod registers;
mod scan;
mod shape;
mod straight;
mod variables;

pub use compiled::{Compiled, Guarded, Step, Unsupported};
pub use emit::SiteField;
pub use environment::{Environment, Handler, Limits, Variable, Waiting};

use compiler::{Compiler, Mode};

/// Compiles a handler for a site.
///
/// # Errors
///
/// What cannot be done inside of the process at all. Whatever else the code holds becomes a handler.
pub fn compile(handler: &Handler<'_>, environment: &Environment<'_>) -> Result<Compiled, Unsupported> {
    let facts = scan::scan(handler);
    if let Some(offset) = facts.facility {
        return Err(Unsupported::Facility(offset));
    }
    let insmax = handler.insmax.min(vm::INSTRUCTION_LIMIT);
    let bounded = facts.most_instructions(handler.jmpmax.min(vm::JUMP_LIMIT)) <= insmax.into();
    let first = match (facts.opaque, facts.cyclic) {
        (true, _) => Mode::Interpreted,
        (false, false) if bounded => Mode::Known,
        (false, true) if bounded || insmax > compiler::SLACK => Mode::Merged,
        // So few instructions are allowed that it need not be fast.
        (false, _) => Mode::Interpreted,
    };
    let others = if first == Mode::Interpreted { &[][..] } else { &[Mode::Merged, Mode::Interpreted] };
    let compiled = std::iter::once(first)
        .chain(others.iter().copied())
        .into_iter()
        .find_map(|mode| Compiler::compile(handler, environment, &facts, mode).ok());
    Ok(compiled.expect("a handler that is interpreted is never too large"))
}
