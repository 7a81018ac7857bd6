//! System calls made inside the traced process by one of its own threads.
//!
//! The tracer settles the thread (see [`Stopped::settle`]), blocks its signals and sends it to a
//! `syscall` instruction; it stops on entering the call and on leaving it. Then the tracer restores
//! its registers and signal mask and settles it again, so that an interrupted system call restarts
//! as if nothing had happened.
//!
//! The tracer may be killed at any moment of this. So the thread is sent to a *stub*, with its
//! stack pointer at a signal frame of its own state ([`crate::frame`]): without the tracer it makes
//! the call and returns to where it was, signal mask included.
//!
//! ```text
//! stub:  0f 05            syscall              the call
//!        48 89 44 24 f8   mov    %rax, -8(%rsp)    its result, into a word of the frame that is not used
//!        b8 0f 00 00 00   mov    $15, %eax     rt_sigreturn
//!        0f 05            syscall              to the frame
//! ```
//!
//! A frame can lead to the stub again, for another call: so a thread makes several calls with one
//! stop ([`chain`]).
//!
//! Stub and frame are in the tracer's own memory ([`StubMemory`]) once it has some in the process.
//! For the earlier calls, which map that memory, the stub is written into the zeros that fill the
//! last page of the vdso or of a file's code ([`Entrance::spare`]), and the frame goes below the
//! used part of the thread's stack, if that certainly is a stack. A tracer that is killed then
//! leaves the stub, which the thread still needs; a process that knows of it restores the zeros
//! when the thread has left, and the next tracer recognizes it. There is no frame if neither place
//! exists, in 32-bit code, and in threads with a shadow stack: such a thread is left at the wrong
//! place if the tracer dies in the middle of a call.
//!
//! A thread that runs 32-bit code makes its calls by `int 0x80`, with i386's numbers and registers;
//! the vdso's `__kernel_vsyscall` has that instruction.

use std::io;

use libc::c_long;

mod chain;
mod copy_code;
mod copying;
mod entrance;

pub(crate) use chain::Numbers;
pub use copy_code::COPY_CODE;
pub use entrance::{Entrance, STUB, StubMemory, find_syscall, is_in_stub};

use crate::ptrace;
use crate::thread::{Stop, Stopped};
use crate::{Error, Mapping, Memory, Registers, frame, memory};
use entrance::{Spare, what_is_at};

/// Bytes below the stack pointer that a program may use.
const RED_ZONE: u64 = 128;
/// Bytes left free below a frame on a thread's own stack, for a signal that comes on its way back.
const BELOW: u64 = 8192;

/// The stub and the frame by which a thread returns without the tracer, in place in its process.
struct ReturnFrame {
    /// The address of the stub.
    stub: u64,
    /// The thread's stack pointer there.
    rsp: u64,
    /// Where the stub has to be overwritten with zeros afterwards.
    borrowed: Option<(Memory, u64)>,
}

impl ReturnFrame {
    /// Writes stub and frame for a thread with these registers and blocked signals. `None` if there
    /// is no place for them.
    fn prepare(
        thread: &Stopped,
        entrance: Entrance,
        registers: &Registers,
        mask: u64,
    ) -> Option<ReturnFrame> {
        let tid = thread.tid();
        if registers.is_32_bit() || ptrace::has_shadow_stack(tid) {
            return None;
        }
        let state = thread.extended_state().ok()?;
        let components = frame::components(&state)?;
        let (stub, end, borrowed) = match entrance.refuge {
            Some(refuge) => (refuge.stub, refuge.end, None),
            None => {
                let mappings = thread.mappings().ok()?;
                let end = free_stack(&mappings, registers.rsp(), frame::most(state.len()))?;
                let memory = Memory::open(tid).ok()?;
                let stub = entrance.spare?;
                let is_free = match what_is_at(&memory, stub)? {
                    Spare::Zeros => true,
                    Spare::Stub => !is_used(tid, stub),
                };
                is_free.then_some((stub, end, Some((memory, stub))))?
            }
        };
        let (start, bytes) = frame::frame(registers, mask, &state, components, end)?;
        memory::write(tid, start, &bytes).ok()?;
        if let Some((memory, stub)) = &borrowed {
            memory.poke(*stub, &STUB).ok()?;
        }
        // The kernel expects the frame's first word below the stack pointer, as after a handler's
        // return has popped it.
        Some(ReturnFrame { stub, rsp: start + 8, borrowed })
    }

    /// Cleans up when the thread is back.
    fn end(self) {
        if let Some((memory, stub)) = self.borrowed {
            // It fails only if the process is gone.
            let _ = memory.poke(stub, &[0; STUB.len()]);
        }
    }
}

/// The end of `size` unused bytes of a thread's stack, if its stack pointer is in a mapping that
/// certainly is a stack: the first thread's, or one above a guard page.
fn free_stack(mappings: &[Mapping], rsp: u64, size: u64) -> Option<u64> {
    let number = mappings.partition_point(|mapping| mapping.end <= rsp);
    let stack = mappings.get(number).filter(|stack| stack.start <= rsp && stack.writable)?;
    let is_guard =
        |other: &Mapping| other.end == stack.start && !(other.readable || other.writable || other.executable);
    let guarded = stack.path.is_none() && number > 0 && is_guard(&mappings[number - 1]);
    let end = rsp.checked_sub(RED_ZONE)?;
    let is_stack = stack.label.as_deref() == Some("[stack]") || guarded;
    (is_stack && end.checked_sub(size + BELOW)? >= stack.start).then_some(end)
}

/// Whether a thread of the process is still executing a stub, as far as can be seen without
/// stopping it. A thread that is not in the kernel there will have left it long before another
/// tracer comes.
fn is_used(tid: i32, stub: u64) -> bool {
    let is_there =
        |tid: i32| crate::blocked_at(tid).is_ok_and(|at| at.is_some_and(|rip| is_in_stub(rip, stub)));
    crate::threads(tid).is_ok_and(|threads| threads.into_iter().any(is_there))
}

impl Stopped {
    /// Makes one system call inside the process with this thread, by an entrance to the kernel
    /// ([`find_syscall`]). Returns the settled thread, why it is stopped now, and the call's
    /// result. [`crate::Caller`] makes several calls.
    ///
    /// `number` is x86-64's. A thread that runs 32-bit code makes i386's equivalent; only mmap (of
    /// anonymous memory), munmap and mprotect have one.
    ///
    /// # Errors
    /// The thread has been killed. An error of the call itself is in the result.
    pub fn call(
        self,
        entrance: Entrance,
        number: c_long,
        arguments: [u64; 6],
    ) -> Result<(Stopped, Stop, io::Result<u64>), Error> {
        let (thread, mut away) = self.begin_detour(entrance, &mut || ())?;
        let (thread, results) = away.calls(thread, &[(number, arguments)], None, &mut || ())?;
        let (thread, stop) = away.end_detour(thread, &mut || ())?;
        let none = || Err(io::ErrorKind::Other.into());
        Ok((thread, stop, results.into_iter().next().unwrap_or_else(none)))
    }

    /// Settles and prepares the thread for calls.
    pub(crate) fn begin_detour(
        self,
        entrance: Entrance,
        step: &mut dyn FnMut(),
    ) -> Result<(Stopped, CallDetour), Error> {
        let (thread, settled) = self.settle()?;
        let saved = thread.registers()?;
        let mask = ptrace::signal_mask(thread.tid())?;
        let way_back = ReturnFrame::prepare(&thread, entrance, &saved, mask);
        step();
        let away = CallDetour {
            instruction: entrance.instruction,
            saved,
            mask,
            way_back,
            begun: false,
            held_stop: false,
            settled,
            chains: None,
        };
        Ok((thread, away))
    }
}

/// A thread's saved state while it makes calls for the tracer.
///
/// ```text
///     settled --registers, all signals blocked--> at the call's entry --> at its exit --registers--> at the next one's entry --> ...
///             <------------ the mask, the registers, settled again ------------------
/// ```
///
/// Between two calls the thread stays where the first one left the kernel, in the stub: if the
/// tracer dies there, it returns by itself.
pub(crate) struct CallDetour {
    instruction: u64,
    saved: Registers,
    mask: u64,
    way_back: Option<ReturnFrame>,
    /// Whether the thread has left the place where it was settled.
    begun: bool,
    /// Whether a SIGSTOP came, which must be sent again.
    held_stop: bool,
    /// The stop at which it was settled; `Stop::Other` once it has made a call that requires
    /// settling it again.
    settled: Stop,
    /// Once determined: whether it can make several calls with one stop, and then its own thread
    /// id, which that requires.
    chains: Option<Option<u64>>,
}

impl std::fmt::Debug for CallDetour {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Away").field("rip", &self.saved.rip()).finish_non_exhaustive()
    }
}

impl CallDetour {
    /// Makes one system call; `step` is called after each change of the thread's state.
    ///
    /// # Errors
    /// The thread has been killed. An error of the call itself is in the result.
    pub(crate) fn call(
        &mut self,
        mut thread: Stopped,
        number: c_long,
        arguments: [u64; 6],
        step: &mut dyn FnMut(),
    ) -> Result<(Stopped, io::Result<u64>), Error> {
        self.settled = Stop::Other;
        let rsp = self.way_back.as_ref().map_or(self.saved.rsp(), |way| way.rsp);
        let registers = self.for_call(number, arguments, rsp);
        self.send(&mut thread, &registers, step)?;
        let mut faulted = false;
        let mut system_call_stops = 0;
        while system_call_stops < 2 && !faulted {
            ptrace::resume_to_syscall(thread.tid())?;
            let (stopped, stop) = thread.next_stop()?;
            thread = stopped.known_as(&thread, false);
            step();
            match stop {
                Stop::SystemCall => system_call_stops += 1,
                // The one signal that cannot be blocked and does not kill: it is sent again at the
                // end.
                Stop::Signal(libc::SIGSTOP) => self.held_stop = true,
                // SIGSEGV is blocked, so this is a fault: the process has changed or unmapped the
                // stub.
                Stop::Signal(libc::SIGSEGV) if self.way_back.is_some() => faulted = true,
                _ => {}
            }
        }
        let value = if faulted { -i64::from(libc::EFAULT) } else { result(&thread.registers()?) };
        let result = if (-4095..0).contains(&value) {
            Err(io::Error::from_raw_os_error(-value as i32))
        } else {
            Ok(value as u64)
        };
        Ok((thread, result))
    }

    /// The registers for making a call with this stack pointer.
    fn for_call(&self, number: c_long, arguments: [u64; 6], rsp: u64) -> Registers {
        let mut registers = self.saved;
        registers.set_rip(self.way_back.as_ref().map_or(self.instruction, |way| way.stub));
        registers.set_rsp(rsp);
        registers.set_orig_rax(!0);
        prepare(&mut registers, number, arguments);
        registers
    }

    /// Sets the registers for a call and blocks all signals.
    fn send(
        &mut self,
        thread: &mut Stopped,
        registers: &Registers,
        step: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        // In this order: if signals are blocked that the thread does not block, it is on the way
        // back.
        thread.set_registers(registers)?;
        step();
        if !std::mem::replace(&mut self.begun, true) {
            ptrace::set_signal_mask(thread.tid(), !0)?;
            step();
        }
        Ok(())
    }

    /// Restores and settles the thread. Returns it with why it is stopped now.
    ///
    /// # Errors
    /// The thread has been killed.
    pub(crate) fn end_detour(
        self,
        mut thread: Stopped,
        step: &mut dyn FnMut(),
    ) -> Result<(Stopped, Stop), Error> {
        if self.begun {
            ptrace::set_signal_mask(thread.tid(), self.mask)?;
            step();
            thread.set_registers(&self.saved)?;
            step();
        }
        if let Some(way_back) = self.way_back {
            way_back.end();
        }
        if self.held_stop {
            thread.stop_again();
        }
        match self.settled {
            // It is where the kernel takes signals, as before.
            Stop::Interrupt => Ok((thread.settled(Stop::Interrupt), Stop::Interrupt)),
            _ => thread.settle(),
        }
    }
}

/// The indices in [`Registers::general`] of a system call's number and its six arguments: rax; rdi,
/// rsi, rdx, r10, r8, r9.
const PLACES: [usize; 7] = [0, 7, 6, 2, 10, 8, 9];
/// The same for 32-bit code: eax; ebx, ecx, edx, esi, edi, ebp.
const PLACES_32: [usize; 7] = [0, 3, 1, 2, 6, 7, 5];

/// Puts a call's number and arguments into the registers.
fn prepare(registers: &mut Registers, number: c_long, arguments: [u64; 6]) {
    let narrow = registers.is_32_bit();
    let (number, places) = if narrow { (number_32(number), PLACES_32) } else { (number, PLACES) };
    let mut general = registers.general();
    for (place, value) in places.into_iter().zip(std::iter::once(number as u64).chain(arguments)) {
        general[place] = if narrow { value & 0xffff_ffff } else { value };
    }
    registers.set_general(&general);
}

/// i386's number of a call (arch/x86/entry/syscalls/syscall_32.tbl); for other calls a number that
/// the kernel answers with ENOSYS.
fn number_32(number: c_long) -> c_long {
    match number {
        // mmap2, whose offset is in pages.
        libc::SYS_mmap => 192,
        libc::SYS_munmap => 91,
        libc::SYS_mprotect => 125,
        _ => 0x7fff_ffff,
    }
}

/// The result of a call. In 32-bit code an address may have the sign bit set; only the last 4095
/// values are errors.
fn result(registers: &Registers) -> i64 {
    let value = registers.result();
    if registers.is_32_bit() && !(-4095..0).contains(&value) { value & 0xffff_ffff } else { value }
}

#[cfg(test)]
mod child;
#[cfg(test)]
mod copies;
#[cfg(test)]
mod deaths;
#[cfg(test)]
mod urgent;

#[cfg(test)]
mod tests;
