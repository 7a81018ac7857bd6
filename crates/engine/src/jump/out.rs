//! A thread is taken out of a trampoline: it goes through to the end, by itself, while its signals wait.
//!
//! It is single-stepped; where a handler takes long, it runs to the displaced instruction, at which a debug register stops it.
//! The processor marks a step in the flags. What a handler (or a displaced `pushf`) saves of them in between has that mark, which
//! is taken away again.

use libc::siginfo_t;
use process::{Stop, Stopped};

use super::Part;
use super::waiting::Patience;
use crate::signal::is_synchronous;
use crate::tracer::Tracer;

/// Signals that an instruction raises: the kernel takes a thread that blocks one its handler for it.
const RAISED: u64 = bit(libc::SIGTRAP)
    | bit(libc::SIGSEGV)
    | bit(libc::SIGBUS)
    | bit(libc::SIGILL)
    | bit(libc::SIGFPE)
    | bit(libc::SIGSYS);

/// Steps after which a debug register is used, which costs as much as so many.
const STEPS: u32 = 16;

/// The flag that makes the processor trap after each instruction.
const TRAP_FLAG: u64 = 1 << 8;

/// A signal's place in a set.
const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// How a thread has left a trampoline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// It has done all there was to do. It is stopped by the signal of its last step, which is to be dropped, or replaced.
    Outside {
        /// Whether the signal that was pending waits in the kernel again.
        waits: bool,
        /// Whether its process was stopped by job control meanwhile; it has gone on all the same.
        stopped: bool,
    },
    /// The displaced instruction has raised this signal, at which the thread is stopped, still in the trampoline. The signal that
    /// was pending waits in the kernel again.
    Fault(i32),
}

impl Tracer<'_> {
    /// Lets a thread that is in a trampoline go on until it is outside. `pending` is the signal at which it is stopped; it
    /// is not delivered.
    ///
    /// # Errors
    /// The thread has been killed.
    pub(crate) fn step_out(
        &mut self,
        number: u32,
        mut thread: Stopped,
        mut pending: Option<(i32, siginfo_t)>,
    ) -> Result<(Stopped, Left), process::Error> {
        let tid = thread.tid();
        let mask = thread.signal_mask()?;
        thread.set_signal_mask(!RAISED)?;
        let stepping = thread.registers()?.rflags() & TRAP_FLAG;
        let (mut stopped, mut waits, mut held_stop) = (false, false, false);
        // Whether the last step is over, its own signal seen; and the signal that is to wait in the kernel.
        let (mut over, mut requeue, mut steps) = (true, 0, 0);
        let mut pushed_at = None;
        let mut patience = Patience::new();
        let left = loop {
            let mut watched = false;
            if over {
                let registers = thread.registers()?;
                let found = self.spaces.get(&number).and_then(|space| space.in_jump(&registers));
                let Some((trampoline, part)) = found else { break Left::Outside { waits, stopped } };
                let rip = registers.rip();
                pushed_at = trampoline.pushes_flags_at(rip).then_some(rip);
                let long = !matches!(part, Part::Displaced(_)) && steps >= STEPS;
                watched = long && thread.stop_at(Some(trampoline.displaced())).is_ok();
            }
            let signal = std::mem::take(&mut requeue);
            let stop;
            (thread, stop) = if watched {
                // It may wait for room in a ring, or for somebody who does.
                thread.run_while(signal, || self.wait_for_waiting(number, &mut patience))?
            } else {
                let stepped = thread.step(signal)?;
                // It may be waiting there, too.
                self.wait_for_waiting(number, &mut patience);
                stepped
            };
            if watched {
                thread.stop_at(None)?;
            }
            over = false;
            steps += 1;
            match stop {
                // It cannot be kept away. It is sent again below.
                Stop::Signal(libc::SIGSTOP) => held_stop = true,
                Stop::Signal(signal) => {
                    let info = thread.signal_info()?;
                    let mut registers = thread.registers()?;
                    if !is_synchronous(signal, &info) {
                        // Somebody has sent one that is not kept away.
                        thread.set_signal_mask(!RAISED | bit(signal))?;
                        requeue = signal;
                        continue;
                    }
                    over = true;
                    if signal != libc::SIGTRAP && !self.mend_fault(number, &mut registers, &info) {
                        let Some((waiting, info)) = pending.take() else { break Left::Fault(signal) };
                        // The instruction is tried again, and raises the same again, most likely.
                        thread.set_signal_mask(!RAISED | bit(waiting))?;
                        thread.set_signal_info(&info)?;
                        (requeue, waits) = (waiting, true);
                        continue;
                    }
                    if pushed_at.is_some_and(|at| at != registers.rip()) && stepping == 0 {
                        unmark(tid, registers.rsp());
                    }
                    registers.set_rflags(registers.rflags() & !TRAP_FLAG | stepping);
                    thread.set_registers(&registers)?;
                }
                Stop::Group(_) => stopped = true,
                _ => {}
            }
        };
        self.no_longer_waiting(number, &patience);
        thread.set_signal_mask(mask)?;
        if held_stop {
            // SAFETY: a plain system call without pointers.
            unsafe { libc::syscall(libc::SYS_tkill, tid, libc::SIGSTOP) };
        }
        Ok((thread, left))
    }

    /// A thread that is about to be let go, or to be looked at by others, is brought out of its trampoline. `thread` is
    /// settled, before and after.
    ///
    /// # Errors
    /// The thread has been killed.
    pub(crate) fn bring_out(
        &mut self,
        thread: Stopped,
        stop: Stop,
    ) -> Result<(Stopped, Stop), process::Error> {
        let Some(number) = self.threads.get(&thread.tid()).and_then(|tracked| tracked.space) else {
            return Ok((thread, stop));
        };
        let registers = thread.registers()?;
        if self.spaces.get(&number).is_none_or(|space| space.in_jump(&registers).is_none()) {
            return Ok((thread, stop));
        }
        // One whose instruction faults stays there: it tries again.
        self.step_out(number, thread, None)?.0.settle()
    }
}

/// Takes the mark of a step out of the flags that a thread has just pushed.
fn unmark(tid: i32, rsp: u64) {
    let mut flags = [0; 2];
    if process::read(tid, rsp, &mut flags).is_ok() {
        flags[1] &= !1;
        // The thread has just written there itself.
        let _ = process::write(tid, rsp, &flags);
    }
}
