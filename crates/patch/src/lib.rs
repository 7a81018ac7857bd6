//! Displaces one instruction of x86-64 or i386 code: executes it elsewhere than at its own address.
//!
//! A breakpoint replaces the first byte of the probed instruction and stays in place while the
//! probe is armed: removing it, even to single-step one thread, would let other threads pass
//! unnoticed. So the instruction never runs at its own address again. It is *displaced* (Leventhal,
//! "Inside the DTrace pid provider", slides 4 to 9 and 17 to 22; "Mechanism for lossless user-level
//! tracing on an x86 architecture", paragraphs 26 to 33) in one of two ways:
//!
//! - it is **emulated**: the tracer applies the instruction's effect to the registers and memory of
//!   the stopped thread;
//! - or the thread resumes in the site's **slot**: a copy of the instruction, adjusted to its new
//!   address, followed by a jump to the instruction after the original.
//!
//! ```text
//!          the program                                the slot, within 2 GiB
//!   site:  48 8b 05 f0 0f 00 00  mov rax,[rip+0xff0]  48 8b 05 f0 0f f0 ff  mov rax,[rip-0xff010]   the same address
//!   next:  48 85 c0              test rax,rax         e9 f4 ff ef ff        jmp next
//! ```
//!
//! A 64-bit kernel runs both kinds of code, even in one process; [`displace_in`] takes the
//! [`Mode`]. 32-bit code has no operands relative to the instruction pointer, and its jumps reach
//! all 4 GiB, so its slots can be anywhere below 4 GiB. Code that finds its own address by `call`
//! and `pop` still works: the call pushes the original's return address.
//!
//! A site with a *jump* does not stop the thread, so nothing can be emulated: the instruction runs
//! in the trampoline, after the handler ([`Displaced::slot_to`]). [`tactic`] decides which bytes
//! form the jump.
//!
//! All functions here are pure functions of bytes, addresses, registers and a [`Memory`]; they use
//! no process and no operating system.
//!
//! # Guarantee
//!
//! The program computes what it would compute unprobed. An instruction that is not proven to behave
//! the same from another address is refused with a [`Refusal`] before a byte is written; the
//! refusal names the instruction and the reason. `displace` accepts any bytes and never panics:
//! instructions that the decoder does not know, that are cut off, or that Intel's and AMD's
//! processors execute differently are refused.
//!
//! # Example
//!
//! ```
//! # use dprobes_patch::{displace, Memory, Refusal, Registers};
//! # fn hit(bytes: &[u8], address: u64, slot: u64, registers: &mut Registers, memory: &mut impl Memory) -> Result<(), Refusal> {
//! let displaced = displace(bytes, address)?; //                  once, when the probe is put in
//! let slot = displaced.slot(slot)?; //                           written once, to an address in `displaced.reach()`
//! // at each hit, after the handler, with rip at the site:
//! if !(displaced.wants_emulation(registers, memory) && displaced.emulate(registers, memory).is_ok()) {
//!     registers.rip = slot.address;
//! }
//! // when the thread stops with rip in the slot for another reason (a signal, a fault, the end of the probe):
//! slot.mend(registers);
//! # Ok(()) }
//! ```
//!
//! *Every* displaced instruction has a slot, the emulated ones too. If an emulation is refused an
//! access (an unmapped page, a stack that has yet to grow), the thread runs the instruction in the
//! slot: there the processor raises the fault with the address, error code and signal that the
//! program would have seen, and [`Slot::mend`] replaces rip with the site's address.
//!
//! # What the program can see
//!
//! - The x87 unit keeps the address of the last arithmetic instruction; after one that ran in a
//!   slot, `fnstenv`, `fnsave`, `fxsave` and `xsave` store an address in the slot.
//! - During a system call from a slot the kernel sees the slot's address, and so do a seccomp
//!   filter that reads the instruction pointer and a system call dispatch range
//!   (`PR_SET_SYSCALL_USER_DISPATCH`).
//! - A thread with a shadow stack (CET, `x86_Thread_features: shstk` in `/proc/PID/status`) must
//!   not have a call or return emulated, nor run the slot of a call through a register or memory:
//!   see [`Displaced::needs_plain_stack`].
//! - Below the stack pointer: the slot of a call through a register or memory writes 16 bytes (8 in
//!   32-bit code) below the return address.

#![forbid(unsafe_code)]

mod classify;
mod displaced;
mod emulate;
mod fixup;
mod flow;
mod harmless;
mod liveness;
mod machine;
mod mode;
mod operand;
mod refusal;
mod slot;
mod slot_position;
mod stack;
mod stack_pointer;
mod substituted_argument;
pub mod tactic;
mod template;

pub use classify::instruction_length;
pub use displaced::{Displaced, displace, displace_in};
pub use flow::entered_anywhere;
pub use liveness::{dead_registers, flags_are_dead};
pub use machine::{Access, Memory, Registers};
pub use mode::Mode;
pub use refusal::Refusal;
pub use slot::{Continuation, SLOT_CAPACITY, Slot};
pub use slot_position::SlotPosition;
pub use stack_pointer::{checks_go_stack, foreign_stack};
pub use substituted_argument::{Argument, SubstitutedArgument};
