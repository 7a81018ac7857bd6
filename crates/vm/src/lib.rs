//! The RPN virtual machine: instruction set and interpreter.
//!
//! [`TABLE`] is the instruction set, [`run`] the interpreter. The [`Machine`] trait gives it the
//! registers, memory and system values of the thread that hit the probe. The assembler, the printer
//! and all compilers read the same table; there is no other list of opcodes. Every other engine
//! must agree with the interpreter bit for bit, and must pass the case files in `tests/conformance`
//! too.
//!
//! Design constraints:
//!
//! * `no_std`, no allocation, no `unsafe`: the same code runs in the tracer and inside a probed
//!   process.
//! * Any byte string is valid input: the interpreter is safe and bounded on random bytecode.
//! * A handler's run time is bounded: instructions by `insmax`, jumps by `jmpmax`, calls by
//!   [`CALL_DEPTH`] and [`CALL_LIMIT`], calls of exception handlers by [`HANDLER_LIMIT`], the log
//!   by `logmax`; every other instruction moves forward. [`run`] states the bound.
//! * The word is that of the probed program: 8 bytes for x86-64, 4 for i386 ([`Word`]). With a
//!   4-byte word, elements, variables, addresses and operands are all truncated to 32 bits.
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
//! | `state` | the memory that a run works in; nothing in it passes to the next run |
//! | `limits`, `loop_exit`, `partial_run` | the bounds of a run; why the loop is left; the state of an unfinished run |
//! | `handler_run` | [`run`] and [`resume`]: a run from its beginning, or from where compiled code has left it |
//! | `interpreter` | the loop, one arm per row of the table |
//! | `slow_path` | what leaves the loop: exceptions, and the instructions that are seldom needed |
//! | `flow` | where a run is: `code` (fetching, jumping), `stack` (the RPN stack), `frame` (calls) |
//! | `hit` | what a run does outside: memory, and `log` (records) |
//! | `trace`, `heap`, `handler_frame` | the stack trace buffer; the heap; the frame |
//! | `frame_instructions`, `map_instructions`, `constants` | what scripts are compiled to besides |
//! | `arithmetic`, `variables` | words and variables |
//!
//! # Where the manual leaves a choice
//!
//! * These raise INVALID_OPCODE: an unassigned opcode, an operand cut off by the end of the code,
//!   running past the end of the code, a jump or call to an offset outside the code, a register
//!   that the program's processor does not have, `pop` of a register that may not be popped.
//! * `jmpmax` is checked before a jump's target, the call depth before a call's. `loop` counts its
//!   jump before it decrements. The operand of a conditional jump that is not taken must be
//!   present; its target is not checked.
//! * A count or an index from the stack is the whole word, never truncated to a byte or 16 bits;
//!   major and minor codes are truncated to 16 bits.
//! * `log` pops its elements whether they fit or not. What does not fit is not examined: after
//!   LOG_OVERFLOW, `log lv` does not check the remaining indices and `log mrf` does not read the
//!   remaining bytes. The count in a prefix is that of what was logged, not of what was asked for.
//! * `log str` behaves as if it read byte by byte: if a string neither ends nor fits, and the
//!   address right behind the part that fits cannot be read, the result is a fault, not an
//!   overflow.
//! * A fault record that does not fit raises LOG_OVERFLOW, or INVALID_ADDR where LOG_OVERFLOW is
//!   masked.
//! * Addresses do not wrap: a range that passes the last address of the word faults, at address 0
//!   if the part before the end can be accessed. A store is done whole or not at all.
//! * An exception that is raised pushes its information on the stack even if no handler takes it; a
//!   masked exception pushes nothing. The offset of a handler is checked by `sx`.
//! * `rx` with a masked code, or with x-field 0, does nothing; with a masked code that is not
//!   maskable it ends the run. `rx` neither pops nor pushes: the handler finds the operands of `rx`
//!   on the stack.
//! * An instruction counts towards `insmax` when it begins, even if it then raises an exception.
//!   One instruction more than `insmax` raises JMP_MAX with second parameter 1 and ends the run: no
//!   handler takes it.
//! * Calling an exception handler is no jump: it counts towards [`HANDLER_LIMIT`], not `jmpmax`.
//!   After JMP_MAX no jump is left.
//! * A log instruction succeeds when its whole record fits and nothing faults; only then is the
//!   previous log pointer updated. This holds for all log instructions. `pop lp` sets both
//!   pointers.
//! * `pop lp` beyond the end adds zeros, as far as `logmax` allows (then LOG_OVERFLOW): bytes of an
//!   earlier run, and bytes that were dropped, never reappear.
//! * `pop stp` drops whole traces, those that end behind the value: the stack trace pointer is
//!   always at the end of the header or of a trace. A value beyond the pointer changes nothing.
//! * Stack registers hold slots, 0 to 1023. Both start at 0, the slot above 1023. Values are taken
//!   modulo 1024.
//! * A trace shows the last exception, and the handler that is set when the trace is written. With
//!   `autostacktrace` that is before the handler is called, when the exception's information is
//!   already on the stack. `rx` is traced too. For a masked exception that ends the run the trace
//!   shows the exception before it. Variables that do not exist are left out. The outermost level
//!   is not a frame.
//! * After a trace that did not fit, no more are written until `purge st`, or until `pop stp` drops
//!   something. The header counts the traces begun and not dropped. Numbers in the header are
//!   truncated to 16 bits.
//! * A heap block's handle is the number of its `malloc`; there are at most [`HEAP_BLOCKS`] blocks.
//!   Values are transferred one by one: at the first that lies outside the block the earlier ones
//!   stay transferred, and that one is not popped.
//! * What a machine refuses raises INVALID_OPCODE: a register, a port, `cpuid`, `push task`,
//!   `push field`, `push tid`, `push nsecs` (also of a clock that there is not), `push rand`,
//!   `push ids`, `comm fr`, `stack`, `callk`. The leaf, number, port or offset has been popped by
//!   then. A selector of more than 16 bits names no segment.
//! * An operand index out of range leaves the stack as it was; if the index came from the stack,
//!   index and value have been popped. A bad bit position leaves the value. A bad offset of
//!   `pop fr` and a map that there is not are operands too.
//! * `read str` behaves as if it read byte by byte. All of its room must be in the frame, however
//!   short the string; behind the string only its padding changes, which may be behind the room.
//! * `log fr` and `log text` log nothing if not all fits. `text fr` looks at the offset only if
//!   there is such a constant.
//! * `fetch` and `next` raise INVALID_OPERAND if key and value overlap; a range of no bytes
//!   overlaps nothing. What a map has no room for is lost, and raises nothing.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

mod arithmetic;
mod code;
mod constants;
mod decode;
mod effects;
mod exception;
mod flow;
mod frame;
mod frame_instructions;
mod glob;
mod handler_frame;
mod handler_run;
mod heap;
mod hit;
mod interpreter;
mod limits;
mod log;
mod loop_exit;
mod machine;
mod map_instructions;
mod opcode;
mod partial_run;
mod program;
mod register;
mod slow_path;
mod stack;
mod state;
mod trace;
mod variables;
mod word;

pub use crate::limits::{
    CALL_LIMIT, FRAMES_LIMIT, HANDLER_LIMIT, INSTRUCTION_LIMIT, INSTRUCTIONS, JUMP_LIMIT,
};
pub use crate::partial_run::{Call, Element, FrameText, FrameWord, PartialRun};
pub use constants::Constants;
pub use decode::{Decoded, Instruction, Instructions, instructions, may};
pub use effects::{ControlFlow, Effects};
pub use exception::{DEFAULT_MASK, Exception, NON_MASKABLE};
pub use frame::CALL_DEPTH;
pub use handler_frame::FRAME_LIMIT;
pub use handler_run::{resume, run};
pub use heap::{HEAP_BLOCKS, HEAP_LIMIT};
pub use log::LOG_LIMIT;
pub use machine::{Clock, Fault, Machine, RunAccess};
pub use maps::Maps;
pub use opcode::{Context, Group, Op, Operand, Row, TABLE};
pub use program::{End, Outcome, ProbepointInfo, Program};
pub use register::{Push, Register, RegisterSet, Shape};
pub use stack::STACK_WORDS;
pub use state::State;
pub use trace::TRACE_LIMIT;
pub use word::Word;

#[cfg(test)]
mod effect_properties;
#[cfg(test)]
extern crate self as vm;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod random_script_instructions;
#[cfg(test)]
mod resume_tests;
#[cfg(test)]
#[allow(unreachable_pub, reason = "a library's file")]
#[path = "../../testing/src/conformance/machine.rs"]
mod test_machine;
