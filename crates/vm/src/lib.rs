//! What a probe program means.
//!
//! This room holds the instruction set as one table ([`TABLE`]), the interpreter that gives each row its
//! meaning ([`run`]), and the [`Machine`] trait: the registers, memory and system values of the place where
//! a probe fired. The assembler, the printer and every compiler read the same table; there is no second list
//! of opcodes anywhere. Other engines must agree with the interpreter bit for bit; the case files in
//! `tests/cases` are theirs too.
//!
//! Design constraints:
//!
//! * `no_std`, no allocation, no `unsafe`: the same code runs in the tracer and inside a probed process.
//! * Any byte string is a valid input: the interpreter is safe and bounded on random bytecode.
//! * A handler's run time is bounded: jumps by `jmpmax`, calls by [`CALL_DEPTH`] and [`CALL_LIMIT`], the log by
//!   `logmax`; every other instruction moves forward. [`run`] states the bound.
//! * The word is that of the probed program: 8 bytes for x86-64, 4 for i386 ([`Word`]). In a word of 4 bytes
//!   everything is cut to 32 bits: elements, variables, addresses, operands.
//!
//! # One hit
//!
//! ```text
//!              Program (shared by all hits)                    Machine (the thread that hit)
//!     code   jmpmax  logmax  mask   locals  globals         registers  memory  pid  processor  task
//!       |                              |                                  |
//!       +--------------->  run(program, entry, state, machine)  <---------+
//!                                      |
//!              Outcome: end, major, minor      State: log, and the stack as it was left
//! ```
//!
//! # The parts
//!
//! | file | what it is |
//! |---|---|
//! | `opcode`, `register`, `word` | the tables: instructions, registers, the word |
//! | `program`, `machine`, `exception` | what a run is given, and how it can end |
//! | `state` | the memory that a run works in; nothing in it passes to the next run |
//! | `interpreter` | [`run`] and the loop, one arm per row of the table |
//! | `flow` | where a run is: `code` (fetching, jumping), `stack` (the RPN stack), calls |
//! | `hit` | what a run does outside: memory, and `log` (records) |
//! | `arithmetic`, `variables` | words and variables |
//!
//! # Where the manual leaves a choice
//!
//! * What is not an instruction raises INVALID_OPCODE: an unassigned opcode, an operand cut off by the end of the
//!   code, the end of the code itself, a jump or call to where there is no byte of the code, a register that the
//!   program's processor does not have, `pop` of a register that may not be popped.
//! * `jmpmax` is looked at before a jump's target, the depth of calls before a call's. `loop` counts before it
//!   decrements. The operand of a conditional jump that is not taken must be there; its target need not.
//! * A count or an index from the stack is the whole word, never cut to a byte or 16 bits; major and minor codes
//!   are cut to 16 bits.
//! * `log` pops its elements whether they fit or not. What does not fit is not looked at: after LOG_OVERFLOW, `log lv`
//!   does not check the remaining indices and `log mrf` does not read the remaining bytes. The count in a prefix is
//!   what follows it.
//! * `log str` works as if it read byte by byte: of a string that neither ends nor fits, an address that cannot be
//!   read right behind what fits is a fault, not an overflow.
//! * A fault record that does not fit: LOG_OVERFLOW, and where that is masked INVALID_ADDR.
//! * Addresses do not wrap: a range that passes the last address of the word faults, at 0 if the part before can be
//!   accessed. A store is done whole or not at all.
//! * An index out of range as an operand leaves the stack as it was; from the stack, index and value are popped.
//!   A bad bit position leaves the value.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

mod arithmetic;
mod code;
mod exception;
mod flow;
mod frame;
mod heap;
mod hit;
mod interpreter;
mod log;
mod machine;
mod opcode;
mod outside;
mod program;
mod register;
mod stack;
mod state;
mod trace;
mod variables;
mod word;

pub use exception::{DEFAULT_MASK, Exception, NON_MASKABLE};
pub use frame::CALL_DEPTH;
pub use heap::{HEAP_BLOCKS, HEAP_LIMIT};
pub use interpreter::{CALL_LIMIT, HANDLER_LIMIT, JUMP_LIMIT, run};
pub use log::LOG_LIMIT;
pub use machine::{Fault, Machine};
pub use opcode::{Context, Group, Op, Operand, Row, TABLE};
pub use program::{End, Outcome, Point, Program};
pub use register::{Push, Register, RegisterSet, Shape};
pub use stack::STACK_WORDS;
pub use state::State;
pub use trace::TRACE_LIMIT;
pub use word::Word;

#[cfg(test)]
extern crate self as dprobes_vm;
#[cfg(test)]
mod laws;
#[cfg(test)]
#[path = "../tests/support/machine.rs"]
mod test_machine;
