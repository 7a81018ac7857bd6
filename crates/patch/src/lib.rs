//! Displacing one instruction of x86-64 code, or of i386 code.
//!
//! A breakpoint at a site replaces the first byte of an instruction, and is never taken out while the probe is armed: taking
//! it out, even for one step of one thread, lets other threads slip through unseen. So the instruction never runs
//! at its own address again. It is *displaced* (Leventhal, "Inside the DTrace pid provider", slides 4 to 9 and 17 to 22;
//! "Mechanism for lossless user-level tracing on an x86 architecture", paragraphs 26 to 33), in one of two ways:
//!
//! - it is **emulated**: the tracer does to the stopped thread's registers and memory what the instruction would have done;
//! - or the thread resumes in the site's **slot**: a copy of the instruction that computes the same from another address,
//!   followed by a jump to the instruction after the original.
//!
//! ```text
//!          the program                                the slot, within 2 GiB
//!   site:  48 8b 05 f0 0f 00 00  mov rax,[rip+0xff0]  48 8b 05 f0 0f f0 ff  mov rax,[rip-0xff010]   the same address
//!   next:  48 85 c0              test rax,rax         e9 f4 ff ef ff        jmp next
//! ```
//!
//! A 64-bit kernel runs both kinds of code, in one process even; [`displace_in`] takes the [`Mode`]. 32-bit code has no operand
//! relative to the instruction pointer, and its jumps reach all of its 4 GiB, so a slot can be anywhere below 4 GiB. What finds its
//! own address by a `call` and a `pop` finds it: the call pushes the original's return address.
//!
//! A probe that is a *jump* has no stop in which to emulate anything: the instruction runs in the jump's trampoline, behind the handler
//! ([`Displaced::slot_to`]), and which bytes make the jump is a matter of tactics: [`tactic`].
//!
//! Everything here is a pure function of bytes, addresses, registers and a [`Memory`]: no process, no operating system.
//!
//! # What must never happen
//!
//! The program must compute what it would have computed unprobed. Whatever is not proven to do so from another address is a
//! [`Refusal`], given before a byte is written; it says which instruction and why. `displace` takes any bytes at all and
//! neither panics nor guesses: what the decoder does not know, what is cut off, and what Intel's and AMD's processors
//! understand differently is refused.
//!
//! # How it is used
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
//! *Every* displaced instruction has a slot, the emulated ones too. It is where an emulation goes that was refused an access
//! (an unmapped page, a stack that has yet to grow): there the processor raises the fault itself, with the address,
//! the error code and the signal that the program would have seen, and [`Slot::mend`] gives it the site's address.
//!
//! # What the program can see
//!
//! - The x87 unit keeps the address of the last arithmetic instruction; after one that ran in a slot, `fnstenv`, `fnsave`,
//!   `fxsave` and `xsave` store an address in the slot.
//! - During a system call from a slot the kernel sees the slot's address: a seccomp filter that reads the instruction
//!   pointer, and a system call dispatch range (`PR_SET_SYSCALL_USER_DISPATCH`), see it too.
//! - A thread with a shadow stack (CET, `x86_Thread_features: shstk` in `/proc/PID/status`) must not have a call or a return
//!   emulated, nor a call through a register or memory run in its slot: see [`Displaced::needs_plain_stack`].
//! - Below the stack pointer: the slot of a call through a register or memory writes 16 bytes (8 in 32-bit code) below the return
//!   address.

#![forbid(unsafe_code)]

mod classify;
mod displaced;
mod emulate;
mod flow;
mod harmless;
mod lent;
mod liveness;
mod machine;
mod mode;
mod operand;
mod place;
mod pointer;
mod refusal;
mod slot;
mod stack;
pub mod tactic;

pub use displaced::{Displaced, displace, displace_in};
pub use flow::entered_anywhere;
pub use lent::{Argument, Lent};
pub use liveness::{dead_registers, flags_are_dead};
pub use machine::{Access, Memory, Registers};
pub use mode::Mode;
pub use place::Place;
pub use pointer::{checks_go_stack, foreign_stack};
pub use refusal::Refusal;
pub use slot::{Onward, SLOT_CAPACITY, Slot};
