//! Steps a thread out of a trampoline: it runs to the end of it while its signals are blocked.
//!
//! The thread is single-stepped; in a long handler it runs to the displaced instruction, where a
//! debug register stops it. While single-stepping, the trap flag is set: it is removed from flags
//! that a displaced `pushf` has pushed meanwhile.

use libc::siginfo_t;
use process::{Registers, Stop, Stopped};

use super::waiting::ProgressTimer;
use super::{Part, Trampoline};
use crate::signal::is_synchronous;
use crate::tracer::Tracer;

/// Signals that instructions raise. They stay unblocked: of a thread that blocks one, the kernel
/// resets the signal's handler to the default.
const RAISED: u64 = bit(libc::SIGTRAP)
    | bit(libc::SIGSEGV)
    | bit(libc::SIGBUS)
    | bit(libc::SIGILL)
    | bit(libc::SIGFPE)
    | bit(libc::SIGSYS);

/// Steps after which a debug register is used instead; setting one up costs about as much as these
/// steps.
const STEPS: u32 = 16;

/// The flag that makes the processor trap after each instruction.
pub(super) const TRAP_FLAG: u64 = 1 << 8;
/// The flag that makes unaligned accesses fault.
const ALIGNMENT_CHECK: u64 = 1 << 18;
pub(super) const STATUS_FLAGS: u64 = 0x8d5;
/// `si_code` of the SIGBUS of an unaligned access.
const BUS_ADRALN: i32 = 1;

/// A signal as a bit of a signal set.
const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Flags of the program that a thread does without while it runs handlers or commits a record. They
/// are restored at the displaced instruction, or behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SavedFlags {
    /// The trap flag: the program single-steps itself. It sees one step when the displaced
    /// instruction is done.
    pub(super) trap: bool,
    pub(super) alignment: bool,
    /// The arithmetic flags, as they were at the site: handlers preserve them only where the
    /// program reads them.
    pub(super) status: Option<u64>,
}

impl SavedFlags {
    /// Restores all but the trap flag. Returns whether that changed anything.
    fn give(&mut self, registers: &mut Registers) -> bool {
        let mut flags = registers.rflags();
        if let Some(status) = self.status.take() {
            flags = flags & !STATUS_FLAGS | status;
        }
        if std::mem::take(&mut self.alignment) {
            flags |= ALIGNMENT_CHECK;
        }
        let changed = flags != registers.rflags();
        registers.set_rflags(flags);
        changed
    }
}

/// Whether a thread has faulted because of an unaligned access by a handler, the agent, or the code
/// that commits a record. Only accesses of the program itself are the program's fault.
pub(super) fn is_misaligned(
    (trampoline, part): (&Trampoline, Part),
    info: &siginfo_t,
    registers: &Registers,
) -> bool {
    info.si_signo == libc::SIGBUS
        && info.si_code == BUS_ADRALN
        && registers.rflags() & ALIGNMENT_CHECK != 0
        && (!matches!(part, Part::Displaced(_)) || trampoline.commits_at(registers.rip()))
}

/// Clears the alignment check.
pub(super) fn lend_alignment_check(registers: &mut Registers) {
    registers.set_rflags(registers.rflags() & !ALIGNMENT_CHECK);
}

/// How a thread has left a trampoline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SteppedOut {
    /// It is outside. It is stopped by the signal of its last step, which the caller drops or
    /// replaces.
    Outside {
        /// Whether the pending signal was sent again.
        waits: bool,
        /// Whether its process was stopped by job control meanwhile; the thread was stepped all the
        /// same.
        stopped: bool,
    },
    /// The displaced instruction has raised this signal; the thread is still in the trampoline,
    /// stopped by it. The pending signal was sent again.
    Fault(i32),
}

impl Tracer<'_> {
    /// Runs a thread that is in a trampoline until it is outside. `pending` is the signal by which
    /// it is stopped; it is not delivered.
    ///
    /// # Errors
    /// The thread has been killed.
    pub(crate) fn step_out(
        &mut self,
        number: u32,
        thread: Stopped,
        pending: Option<(i32, siginfo_t)>,
    ) -> Result<(Stopped, SteppedOut), process::Error> {
        self.step_out_and_give_back(number, thread, pending, SavedFlags::default())
    }

    /// The same for a thread whose flags in `lent` must be restored. A program that single-steps
    /// itself stops right behind its displaced instruction.
    pub(super) fn step_out_and_give_back(
        &mut self,
        number: u32,
        mut thread: Stopped,
        mut pending: Option<(i32, siginfo_t)>,
        mut lent: SavedFlags,
    ) -> Result<(Stopped, SteppedOut), process::Error> {
        let tid = thread.tid();
        let mask = thread.signal_mask()?;
        let stepping = thread.registers()?.rflags() & TRAP_FLAG;
        // If the tracer dies while the thread's signal mask is not its own, the thread traps soon,
        // and the guard's handler restores the mask.
        if let Some(space) = self.spaces.get(&number)
            && let Some(guard) = &space.guard
        {
            guard.steps(&thread, mask, &space.code.memory)?;
        }
        set_trap_flag(&mut thread, TRAP_FLAG)?;
        thread.set_signal_mask(!RAISED)?;
        let (mut stopped, mut waits, mut held_stop) = (false, false, false);
        // Whether the last step is over and its own signal was seen; and the signal to be sent
        // again.
        let (mut over, mut requeue, mut steps) = (true, 0, 0);
        let mut pushed_at = None;
        let mut patience = ProgressTimer::new();
        let left = loop {
            let mut watched = false;
            if over {
                let mut registers = thread.registers()?;
                let found = self.spaces.get(&number).and_then(|space| space.in_jump(&registers));
                let rip = registers.rip();
                let in_handlers = found.as_ref().is_some_and(|(trampoline, part)| {
                    !matches!(part, Part::Displaced(_)) || trampoline.commits_at(rip)
                });
                if !in_handlers && lent.give(&mut registers) {
                    thread.set_registers(&registers)?;
                }
                let Some((trampoline, part)) = found else { break SteppedOut::Outside { waits, stopped } };
                let covered = || self.spaces.get(&number).is_some_and(|space| space.is_amid_a_group(rip));
                if lent.trap && trampoline.is_between(rip) && !covered() {
                    break SteppedOut::Outside { waits, stopped };
                }
                pushed_at = trampoline.pushes_flags_at(rip).then_some(rip);
                let long = !matches!(part, Part::Displaced(_)) && steps >= STEPS;
                watched = long && thread.stop_at(trampoline.displaced()).is_ok();
            }
            if watched {
                // It runs, and the debug register stops it there.
                set_trap_flag(&mut thread, 0)?;
            }
            let signal = std::mem::take(&mut requeue);
            let stop;
            (thread, stop) = if watched {
                // It may wait for room in a ring, or for another thread that does.
                thread.run_while(signal, || self.wait_for_waiting(number, &mut patience))?
            } else {
                let stepped = thread.step(signal)?;
                // So may this one.
                self.wait_for_waiting(number, &mut patience);
                stepped
            };
            if watched {
                set_trap_flag(&mut thread, TRAP_FLAG)?;
                thread.stop_at([])?;
            }
            over = false;
            steps += 1;
            match stop {
                // SIGSTOP cannot be blocked. It is sent again below.
                Stop::Signal(libc::SIGSTOP) => held_stop = true,
                Stop::Signal(signal) => {
                    let info = thread.signal_info()?;
                    let mut registers = thread.registers()?;
                    if !is_synchronous(signal, &info) {
                        // A signal was sent that is not blocked: block it too.
                        thread.set_signal_mask(!RAISED | bit(signal))?;
                        requeue = signal;
                        continue;
                    }
                    over = true;
                    let part = self.spaces.get(&number).and_then(|space| space.in_jump(&registers));
                    if part.is_some_and(|(within, part)| is_misaligned((&within, part), &info, &registers)) {
                        lend_alignment_check(&mut registers);
                        lent.alignment = true;
                        thread.set_registers(&registers)?;
                        continue;
                    }
                    if signal != libc::SIGTRAP && !self.mend_fault(number, &mut registers, &info) {
                        let Some((waiting, info)) = pending.take() else { break SteppedOut::Fault(signal) };
                        // The instruction is retried, and most likely raises the same signal again.
                        thread.set_signal_mask(!RAISED | bit(waiting))?;
                        thread.set_signal_info(&info)?;
                        (requeue, waits) = (waiting, true);
                        continue;
                    }
                    if pushed_at.is_some_and(|at| at != registers.rip()) && stepping == 0 && !lent.trap {
                        unmark(tid, registers.rsp());
                    }
                    registers.set_rflags(registers.rflags() | TRAP_FLAG);
                    thread.set_registers(&registers)?;
                }
                Stop::Group(_) => stopped = true,
                _ => {}
            }
        };
        self.no_longer_waiting(number, &patience);
        thread.set_signal_mask(mask)?;
        set_trap_flag(&mut thread, stepping)?;
        if held_stop {
            thread.stop_again();
        }
        Ok((thread, left))
    }

    /// Steps a thread out of its trampoline before it is let go or shown to others. `thread` is
    /// settled before and after.
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
        // A thread whose instruction faults stays: it retries the instruction.
        self.step_out(number, thread, None)?.0.settle()
    }
}

fn set_trap_flag(thread: &mut Stopped, flag: u64) -> Result<(), process::Error> {
    let mut registers = thread.registers()?;
    registers.set_rflags(registers.rflags() & !TRAP_FLAG | flag);
    thread.set_registers(&registers)
}

/// Clears the trap flag in the flags that a thread has just pushed.
fn unmark(tid: i32, rsp: u64) {
    let mut flags = [0; 2];
    if process::read(tid, rsp, &mut flags).is_ok() {
        flags[1] &= !1;
        // Cannot fail: the thread has just written there itself.
        let _ = process::write(tid, rsp, &flags);
    }
}
