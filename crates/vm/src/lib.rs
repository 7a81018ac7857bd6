//! What a probe program means.
//!
//! This room holds the instruction set as one table ([`TABLE`]), the interpreter that gives each row its
//! meaning, and the [`Machine`] trait: the registers, memory, variables and system values of the place where
//! a probe fired. The assembler, the printer and every compiler read the same table; there is no second list
//! of opcodes anywhere.
//!
//! Design constraints:
//!
//! * `no_std`, no allocation: the same code runs in the tracer and inside a probed process.
//! * Any byte string is a valid input: the interpreter is safe and bounded on random bytecode.
//! * A handler's run time is bounded: jumps by `jmpmax`, calls by the call stack, logs by `logmax`; every
//!   other instruction moves forward.
//! * The word is that of the probed program: 8 bytes for x86-64, 4 for i386 ([`Word`]).
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

mod arithmetic;
mod code;
mod exception;
mod interpreter;
mod log;
mod machine;
mod opcode;
mod program;
mod register;
mod stack;
mod state;
mod word;

pub use exception::{DEFAULT_MASK, Exception, NON_MASKABLE};
pub use interpreter::{CALL_LIMIT, JUMP_LIMIT, run};
pub use log::LOG_LIMIT;
pub use machine::{Fault, Machine};
pub use opcode::{Group, Op, Operand, Row, TABLE};
pub use program::{End, Outcome, Program};
pub use register::{Register, RegisterSet};
pub use stack::STACK_WORDS;
pub use state::{CALL_DEPTH, State};
pub use word::Word;

#[cfg(test)]
extern crate self as dprobes_vm;
#[cfg(test)]
mod laws;
#[cfg(test)]
#[path = "../tests/support/machine.rs"]
mod test_machine;
