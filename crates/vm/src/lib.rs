//! What a probe program means.
//!
//! This crate holds the instruction set as one table ([`TABLE`]), the interpreter that gives each row its
//! meaning ([`run`]), and the [`Machine`] trait: the registers, memory and system values of the place where
//! a probe fired. The assembler, the printer and every compiler read the same table; there is no second list
//! of opcodes anywhere. Other engines must agree with the interpreter bit for bit; the case files in
//! `tests/conformance` are theirs too.
//!
//! Design constraints:
//!
//! * `no_std`, no allocation, no `unsafe`: the same code runs in the tracer and inside a probed process.
//! * Any byte string is a valid input: the interpreter is safe and bounded on random bytecode.
//! * A handler's run time is bounded: instructions by `insmax`, jumps by `jmpmax`, calls by [`CALL_DEPTH`] and [`CALL_LIMIT`], exceptions that
//!   are taken by [`HANDLER_LIMIT`], the log by `logmax`; every other instruction moves forward. [`run`] states the
//!   bound.
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
//!              Outcome: end, major, minor      State: log, stack traces, and the stack as it was left
//! ```
//!
//! # The parts
//!
//! | file | what it is |
//! |---|---|
//! | `opcode`, `register`, `word` | the tables: instructions, registers, the word |
//! | `effects`, `decode` | what an instruction does, and bytecode as instructions, for all that reads code without running it |
//! | `program`, `machine`, `exception` | what a run is given, and how it can end |
//! | `resume` | a run that something else has begun |
//! | `state` | the memory that a run works in; nothing in it passes to the next run |
//! | `interpreter` | [`run`] and the loop, one arm per row of the table |
//! | `outside` | what leaves the loop: exceptions, and the instructions that are seldom needed |
//! | `flow` | where a run is: `code` (fetching, jumping), `stack` (the RPN stack), `frame` (calls) |
//! | `hit` | what a run does outside: memory, and `log` (records) |
//! | `trace`, `heap` | the stack trace buffer; the heap |
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
//! * An exception that is raised has its information on the stack, whether a handler takes it or none; one that is
//!   masked has not. The offset of a handler is looked at by `sx`.
//! * `rx` of a masked code, or of none, does nothing; of a masked code that is not maskable it ends the run. What is on
//!   the stack stays, and nothing is pushed: it is what the handler finds.
//! * An instruction counts towards `insmax` when it is begun, whether it then raises an exception or not. One more than
//!   `insmax` raises JMP_MAX, whose second parameter is 1 then, and ends the run: no handler takes it.
//! * Going to a handler is no jump: `jmpmax` does not count it, [`HANDLER_LIMIT`] does. After JMP_MAX no jump is left.
//! * A logging succeeds when all of its record fits and nothing faults; only then the previous log pointer follows. All
//!   loggings move it alike. `pop lp` sets both pointers.
//! * `pop lp` beyond the end adds zeros, as far as `logmax` (then LOG_OVERFLOW) reaches: nothing of an earlier run, and
//!   nothing that was dropped, comes back.
//! * `pop stp` drops the traces that end behind the value, whole: the stack trace pointer is always at the end of the
//!   header or of a trace. A value beyond it changes nothing.
//! * Stack registers are slots, 0 to 1023; both start at 0, the slot above 1023. What sets them is taken modulo 1024.
//! * A trace shows the last exception and the handler that is set when it is written: with `autostacktrace` before the
//!   handler is called, its information being on the stack already. `rx` is traced too. Of a masked exception that
//!   ends the run the trace shows the one before. Variables that there are not are not shown. The outermost level is
//!   no frame.
//! * Once a trace did not fit, none is written until `purge st`, or until `pop stp` drops something. The count of traces in
//!   the header is of those that have been begun and not dropped. Numbers in the header are cut to 16 bits.
//! * A heap block's handle is the number of its `malloc`; there are [`HEAP_BLOCKS`] at most. Values move one by one: what
//!   came before one that is outside of the block stays moved, and that one is not popped.
//! * What a machine refuses is not an instruction: a register, a port, `cpuid`, `push task`, `callk`. The leaf, number or
//!   port has been popped by then. A selector of more than 16 bits names no segment.
//! * An index out of range as an operand leaves the stack as it was; from the stack, index and value are popped.
//!   A bad bit position leaves the value.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

mod arithmetic;
mod code;
mod decode;
mod effects;
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
mod resume;
mod stack;
mod state;
mod trace;
mod variables;
mod word;

pub use decode::{Decoded, Instruction, Instructions, instructions, may};
pub use effects::{Effects, Transfer};
pub use exception::{DEFAULT_MASK, Exception, NON_MASKABLE};
pub use frame::CALL_DEPTH;
pub use heap::{HEAP_BLOCKS, HEAP_LIMIT};
pub use interpreter::{CALL_LIMIT, HANDLER_LIMIT, INSTRUCTION_LIMIT, INSTRUCTIONS, JUMP_LIMIT, run};
pub use log::LOG_LIMIT;
pub use machine::{Fault, Lent, Machine};
pub use opcode::{Context, Group, Op, Operand, Row, TABLE};
pub use program::{End, Outcome, Point, Program};
pub use register::{Push, Register, RegisterSet, Shape};
pub use resume::{Call, Element, Middle, resume};
pub use stack::STACK_WORDS;
pub use state::State;
pub use trace::TRACE_LIMIT;
pub use word::Word;

#[cfg(test)]
mod effect_laws;
#[cfg(test)]
extern crate self as vm;
#[cfg(test)]
mod laws;
#[cfg(test)]
mod stopped;
#[cfg(test)]
#[allow(unreachable_pub, reason = "a library's file")]
#[path = "../../testing/src/conformance/machine.rs"]
mod test_machine;
